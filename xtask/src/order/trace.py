"""trace.py BINARY MAP CHECKOUT OUT: writes a linker script that lays together the functions that BINARY enters while it does what
it is mostly run for: first those of a turn, as a turn enters them, then those of start and end.

Each function gets a breakpoint at its first byte, which goes when it is hit: what is entered is seen exactly, whatever its
share of the time. x86-64 Linux, and the map that the linker drew of the binary.
"""

import collections
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
TRACEME, CONT, GETREGS, SETREGS, DETACH, SETOPTIONS = 0, 7, 12, 13, 17, 0x4200
# fork, vfork, clone and exec are told; whoever is traced ends with us
OPTIONS = 0x2 | 0x4 | 0x8 | 0x10 | 0x100000
EVENT_EXEC = 4
REGISTERS_BYTES, RIP_AT = 27 * 8, 16 * 8
ALL_CHILDREN = 0x40000000
INT3 = 0xCC

# Enough that the context was rebuilt; then what a turn takes when all is warm.
TURNS, MARKED_FROM = 400, 380


class Traced:
    """One process under breakpoints."""

    def __init__(self, binary, names, arguments, folder, environment):
        self.names, self.hit = names, {}
        self.pid = os.fork()
        if self.pid == 0:
            os.chdir(folder)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for fixed in 0, 1, 2:
                os.dup2(nowhere, fixed)
            libc.ptrace(TRACEME, 0, None, None)
            os.execve(binary, [binary, *arguments], environment)
        os.waitpid(self.pid, 0)
        libc.ptrace(SETOPTIONS, self.pid, None, OPTIONS)
        mapped = [line.split() for line in open(f"/proc/{self.pid}/maps") if line.rstrip().endswith(binary)]
        spans = [[int(end, 16) for end in fields[0].split("-")] for fields in mapped]
        self.base = spans[0][0] - int(mapped[0][2], 16)
        self.texts = [span for span, fields in zip(spans, mapped) if "x" in fields[1]]
        self.whole = [self.read(start, end - start) for start, end in self.texts]
        self.first = {}
        for (start, end), text in zip(self.texts, self.whole):
            for at in names:
                if start <= self.base + at < end:
                    self.first[self.base + at] = text[self.base + at - start]
        self.arm()

    def read(self, at, length):
        with open(f"/proc/{self.pid}/mem", "rb", 0) as memory:
            memory.seek(at)
            return memory.read(length)

    def arm(self):
        """A breakpoint at every function: what was hit before is forgotten."""
        self.hit = {}
        memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        for (start, end), text in zip(self.texts, self.whole):
            armed = bytearray(text)
            for at in self.first:
                if start <= at < end:
                    armed[at - start] = INT3
            done = 0
            while done < len(armed):
                done += os.pwrite(memory, bytes(armed[done:]), start + done)
        os.close(memory)

    def run(self):
        """To its end; answers its status."""
        registers = ctypes.create_string_buffer(REGISTERS_BYTES)
        status_of_all = None
        libc.ptrace(CONT, self.pid, None, None)
        while True:
            try:
                thread, status = os.waitpid(-1, ALL_CHILDREN)
            except ChildProcessError:
                return status_of_all
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                if thread == self.pid:
                    status_of_all = os.waitstatus_to_exitcode(status)
                continue
            if status >> 16 == EVENT_EXEC:
                libc.ptrace(DETACH, thread, None, None)
                continue
            told, deliver = os.WSTOPSIG(status), 0
            if status >> 16 == 0 and told == signal.SIGTRAP:
                libc.ptrace(GETREGS, thread, None, ctypes.addressof(registers))
                at = struct.unpack_from("<Q", registers.raw, RIP_AT)[0] - 1
                if at in self.first:
                    self.hit.setdefault(at)
                    memory = os.open(f"/proc/{thread}/mem", os.O_RDWR)
                    os.pwrite(memory, bytes([self.first[at]]), at)
                    os.close(memory)
                    struct.pack_into("<Q", registers, RIP_AT, at)
                    libc.ptrace(SETREGS, thread, None, ctypes.addressof(registers))
                else:
                    deliver = told
            elif status >> 16 == 0 and told != signal.SIGSTOP:
                deliver = told
            libc.ptrace(CONT, thread, None, deliver)

    def functions(self):
        return [self.names[at - self.base] for at in self.hit]


def functions_of(link_map):
    """Names of the sections that hold one function each, by where they begin, and how long they are together."""
    names, lengths = {}, collections.Counter()
    for line in open(link_map):
        at, _, length, _, where = line.split(None, 4) if line.count(" ") > 3 else ("", "", "", "", "")
        held = re.search(r":\(([.]text[.].+)\)$", where.rstrip())
        if held and int(length, 16) > 0:
            names.setdefault(int(at, 16), held[1])
            lengths[held[1]] += int(length, 16)
    return names, lengths


# What a mangled name ends with: of the compiler, the versions of dependencies, and the types a generic function is for.
HASH = re.compile("(17h[0-9a-f]{16}E.*|[.]llvm[.][0-9]+)$")
# A name without its hash may stand for so many bytes per byte that is entered; else the hash stays, and the name lasts until
# the next update.
WASTE_MAX = 2


def bare(name):
    return HASH.sub(lambda found: found[0][:3] + "*" if found[0].startswith("17h") else ".llvm.*", name)


def script(entered, lengths):
    whole, hot = collections.Counter(), collections.Counter()
    for name, length in lengths.items():
        whole[bare(name)] += length
    for name in entered:
        hot[bare(name)] += lengths[name]
    loose = {name: bare(name) for name in entered}
    lasting = [loose[name] if whole[loose[name]] <= WASTE_MAX * hot[loose[name]] else name for name in entered]
    # Where the hash is another one, the function is among all of its name, behind the rest.
    lines = "".join(f"*({name})\n" for name in dict.fromkeys([*lasting, *loose.values()]))
    return f"/* Made by `cargo xtask order`. */\nSECTIONS {{ .text.run : {{\n{lines}}} }} INSERT BEFORE .text;\n"


TASK = """
goal = "Look at every reading, then say whether they are in order."
workspace = "."
builtins = ["shell", "read_file", "write_file"]
[budget]
turns = 500
model_calls = 500
tool_calls = 500
tokens = 1_000_000_000
[policy]
allow = ["shell(*)", "write_file(**)"]
[[tools]]
name = "reading"
description = "The reading of one minute."
command = ["/bin/cat", "reading.json"]
effect = "read"
[tools.parameters]
type = "object"
properties = { window = { type = "string" } }
"""



def call(turn):
    """No two alike: that would be a circle."""
    calls = [
        ("reading", {"window": f"minute {turn}"}),
        ("shell", {"command": f"cat reading.json; echo {turn}"}),
        ("read_file", {"path": "reading.json", "from": 1, "to": 1 + turn}),
        ("write_file", {"path": f"notes-{turn}.txt", "content": f"{turn} is in order\n"}),
    ]
    return calls[turn % len(calls)]


def serve(listener, begin_turns):
    """A Chat Completions server for one client: calls, then an answer."""
    turn = 0
    while turn <= TURNS:
        stream, _ = listener.accept()
        lines = stream.makefile("rb")
        while turn <= TURNS:
            length = 0
            line = lines.readline()
            if not line:
                break
            while line not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                line = lines.readline()
            lines.read(length)
            if turn == MARKED_FROM:
                begin_turns()
            if turn < TURNS:
                name, arguments = call(turn)
                function = {"name": name, "arguments": json.dumps(arguments)}
                delta = {"tool_calls": [{"index": 0, "id": f"call_{turn}", "type": "function", "function": function}]}
                reason = "tool_calls"
            else:
                delta, reason = {"content": "All readings are in order."}, "stop"
            events = [
                {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
                {"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}},
            ]
            body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
            stream.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                + f"{len(body):x}\r\n{body}\r\n0\r\n\r\n".encode()
            )
            turn += 1


def main():
    binary, link_map, checkout, out = (os.path.realpath(word) for word in sys.argv[1:])
    names, lengths = functions_of(link_map)
    home = tempfile.mkdtemp()
    workspace = os.path.join(home, "work")
    shutil.copytree(os.path.join(checkout, "examples"), os.path.join(home, "examples"))
    os.mkdir(workspace)
    for name, text in ("reading.json", '{"errors":17}\n'), ("task.toml", TASK):
        with open(os.path.join(workspace, name), "w") as file:
            file.write(text)
    listener = socket.create_server(("127.0.0.1", 0))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "LONGREIN_HOME": os.path.join(home, "store"),
        "OPENAI_BASE_URL": f"http://127.0.0.1:{listener.getsockname()[1]}/v1",
    }
    ordered = {}
    traced = Traced(binary, names, ["run", "--task", "task.toml", "-m", "openai/m"], workspace, environment)
    until_then = []

    def begin_turns():
        until_then.extend(traced.functions())
        traced.arm()

    threading.Thread(target=serve, args=(listener, begin_turns), daemon=True).start()
    status = traced.run()
    ordered.update(dict.fromkeys(traced.functions() + until_then))
    done = [("turns", status)]
    for task in "checkout", "fix-the-bug", "capabilities":
        folder = os.path.join(home, "examples", task)
        traced = Traced(binary, names, ["run", "--task", "task.toml"], folder, environment)
        status = traced.run()
        ordered.update(dict.fromkeys(traced.functions()))
        done.append((task, status))
    shutil.rmtree(home)
    failed = [f"{what} ended with {status}" for what, status in done if status != 0]
    if failed:
        sys.exit("; ".join(failed))
    with open(out, "w") as file:
        file.write(script(ordered, lengths))


main()
