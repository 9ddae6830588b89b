//! A run as other programs read it.

use serde_json::Value;

use crate::support::World;
use crate::support::task::{calls, says, task, tool};

/// A run with a large result, a failed call, a crash and a message.
fn world() -> World {
    let world = World::new();
    let tools = tool("big", "read", "head -c 60000 /dev/zero | tr '\\0' x", "") + &tool("bad", "read", "exit 3", "");
    task(&world, &tools, &(calls("big", "{}") + &calls("bad", "{}") + &says("one") + &says("two")));
    world.run("run --task task.toml --id r --crash-at tool.running:2").is(75);
    world.run("resume r").is(0);
    world.run("resume r --message again").is(0);
    world
}

#[test]
fn jsonl_is_the_log_with_large_results_in_their_places() {
    let world = world();
    let (exported, log) = (world.run("export r").is(0).json(), world.log("r"));
    assert_eq!(exported.len(), log.len());
    for (mut exported, mut log) in exported.into_iter().zip(log) {
        if exported["action"] == "a1" && exported["type"] == "action.finished" {
            assert_eq!(exported["data"].as_str().map(str::len), Some(60_000));
            assert!(log["data"]["blob"].is_string());
            exported["data"] = Value::Null;
            log["data"] = Value::Null;
        }
        assert_eq!(exported, log);
    }
}

#[test]
fn openai_is_a_conversation_a_provider_would_take() {
    let world = world();
    let line = world.run("export r --format openai").is(0).last_json();
    let messages = line["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant"]);
    for pair in messages.windows(2).filter(|pair| pair[1]["role"] == "tool") {
        assert_eq!(pair[0]["tool_calls"][0]["id"], pair[1]["tool_call_id"]);
        assert!(pair[1]["tool_call_id"].as_str().is_some_and(|id| !id.is_empty()));
    }
    assert_eq!(line["tools"][0]["function"]["name"], "big");
}

#[test]
fn atif_counts_its_steps_and_joins_results_to_calls() {
    let world = world();
    let document = world.run("export r --format atif").is(0).last_json();
    assert!(document["schema_version"].as_str().unwrap().starts_with("ATIF-v1."));
    assert_eq!((&document["session_id"], &document["agent"]["name"]), (&"r".into(), &"longrein".into()));
    let steps = document["steps"].as_array().unwrap();
    for (step, number) in steps.iter().zip(1..) {
        assert_eq!(step["step_id"], number);
        assert!(["system", "user", "agent"].contains(&step["source"].as_str().unwrap()), "{step}");
        assert!(step["message"].is_string() && step["timestamp"].as_str().unwrap().ends_with('Z'), "{step}");
        if step["tool_calls"].is_array() {
            assert!(step["tool_calls"][0]["arguments"].is_object());
            assert_eq!(step["tool_calls"][0]["tool_call_id"], step["observation"]["results"][0]["source_call_id"]);
        }
    }
    let spent: u64 = steps.iter().filter_map(|step| step["metrics"]["prompt_tokens"].as_u64()).sum();
    assert_eq!(document["final_metrics"]["total_prompt_tokens"], spent);
    assert_eq!(document["final_metrics"]["total_steps"], steps.len());
    assert_eq!(world.run("export nobody").is(66).stdout, "");
    assert_eq!(world.run("export r --format yaml").is(64).stdout, "");
}
