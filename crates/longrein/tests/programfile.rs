//! Program files as text: what is read of them, and for every mistake the message, which names the phase and the way out.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its folder should stop there")]

use std::fs;
use std::path::{Path, PathBuf};

use longrein::taskfile::program::{SHIPPED, find, read};
use longrein::taskfile::{Options, Place, TaskFileError, load};
use longrein::{mermaid, program_text};
use longrein_core::program::{Kind, Phases, Program};
use longrein_core::task::{Builtin, ToolBody};

fn error(text: &str) -> String {
    read(Path::new("p.toml"), text, Path::new(".")).err().map_or_else(|| "fine".to_owned(), |error| error.to_string())
}

const END: &str = "next = [{ to = \"done\" }]\n";

/// A program of one phase of this kind.
fn one(kind: &str) -> String {
    format!("start = \"a\"\n[[phase]]\nname = \"a\"\n{kind}\n{END}")
}

#[test]
fn every_kind_is_read() {
    let text = r#"
name = "all"
description = "Everything."
start = "a"
answer = "a"
[[phase]]
name = "a"
kind = "agent"
instructions = "{{ goal }}"
tools = ["look"]
turns = 3
prose = false
visits = 2
memory = { list = "lessons", text = "{{ last.output }}" }
next = [{ when = "last.ok", to = "b" }, { to = "failed", reason = "no" }]
[[phase]]
name = "b"
kind = "reply"
schema = { type = "object" }
next = [{ to = "c" }]
[[phase]]
name = "c"
kind = "call"
tool = "look"
args = { n = 1, text = "{{ outputs.b }}" }
next = [{ to = "d" }]
[[phase]]
name = "d"
kind = "checks"
checks = ["tests"]
commands = [{ name = "lint", command = ["lint"], timeout = "5s" }]
next = [{ to = "e" }]
[[phase]]
name = "e"
kind = "ask"
question = "Sure?"
answer = "yes_no"
next = [{ to = "f" }]
[[phase]]
name = "f"
kind = "branch"
next = [{ to = "g" }]
[[phase]]
name = "g"
kind = "each"
over = "{{ outputs.b.parts }}"
goal = "{{ item }}"
parallel = 2
join = "any"
on_failure = "go_on"
next = [{ to = "h" }]
[[phase]]
name = "h"
kind = "run"
program = "plan"
turns = 5
next = [{ to = "done" }]
"#;
    let program = read(Path::new("p.toml"), text, Path::new(".")).unwrap().phases;
    let kinds: Vec<_> = program.phases.iter().map(|phase| phase.kind.as_str()).collect();
    assert_eq!(kinds, ["agent", "reply", "call", "checks", "ask", "branch", "each", "run"]);
    // It is the same after a way through the journal.
    let json = serde_json::to_string(&Program::Phases(Box::new(program.clone()))).unwrap();
    assert_eq!(serde_json::from_str::<Program>(&json).unwrap(), Program::Phases(Box::new(program.clone())));
    assert_eq!(serde_json::from_str::<Program>("\"react\"").unwrap(), Program::React);
    let text = program_text(&program);
    for line in [
        "all: Everything.",
        "starts with a; the answer is what a leaves",
        "a: agent, tools look, 3 turns, at most 2 times",
        "  remembers in lessons: {{ last.output }}",
        "  → b  (last.ok)",
        "  → failed: no  (otherwise)",
        "b: one structured reply",
        "c: call look",
        "d: checks lint, tests",
        "e: asks a person, yes or no",
        "g: a run for each of {{ outputs.b.parts }}, 2 at a time, join any",
        "h: a run of plan",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let drawn = mermaid(&program);
    for line in [
        "flowchart TD",
        "  start([start]) --> p_a",
        "  p_f{\"f<br/>branch\"}",
        "  p_a -->|\"last.ok\"| p_b",
        "  p_a -->|\"otherwise\"| failed([failed])",
        "  p_h --> done([done])",
    ] {
        assert!(drawn.lines().any(|found| found == line), "{line}\n{drawn}");
    }
    assert!(!drawn.contains("{{ outputs"), "braces are Mermaid's own syntax\n{drawn}");
}

#[test]
fn every_mistake_names_the_phase_and_the_way_out() {
    let agent = one("kind = \"agent\"");
    for (text, parts) in [
        ("start = ", &["p.toml", "TOML"][..]),
        (
            "[[phase]]\nname = \"a\"\nkind = \"agent\"\nnext = [{ to = \"done\" }]\n",
            &["with which phase does it start?"],
        ),
        (&agent.replace("start = \"a\"", "start = \"b\""), &["start", "no phase \"b\" to start with; name one"]),
        (&format!("answer = \"x\"\n{agent}"), &["answer", "no phase \"x\" whose output could be the answer"]),
        (&format!("strat = \"a\"\n{agent}"), &["strat: there is no such key; near it: start"]),
        ("start = \"a\"\n", &["it has no phases; add a [[phase]]"]),
        (&one(""), &["phase[0] (a).kind", "what is done in the phase \"a\"?", "agent, reply, call"]),
        (&one("kind = \"agnet\""), &["line 4", "phase[0] (a).kind", "no kind \"agnet\"; there are: agent, reply"]),
        (&one("kind = \"agent\"\nschema = {}"), &["phase[0] (a).schema: there is no such key"]),
        (&one("kind = \"branch\"\nturns = 3"), &["phase[0] (a).turns: there is no such key"]),
        (&one("kind = \"agent\"\nturns = 0"), &["phase[0] (a).turns", "0 is no count; write 1 or more"]),
        (&one("kind = \"agent\"\nvisits = 5000"), &["phase[0] (a).visits", "the phase \"a\" may be entered 1 to 1000"]),
        (&one("kind = \"reply\""), &["phase[0] (a).schema", "what must the reply of the phase \"a\" be?"]),
        (
            &one("kind = \"reply\"\nschema = { type = \"objekt\" }"),
            &["phase[0] (a).schema", "the phase \"a\"", "objekt"],
        ),
        (&one("kind = \"call\""), &["which tool does the phase \"a\" call?"]),
        (&one("kind = \"call\"\ntool = \"t\"\nargs = 3"), &["phase[0] (a).args", "a table"]),
        (
            &one("kind = \"call\"\ntool = \"t\"\nargs = { x = \"{{ nowhere }}\" }"),
            &["phase[0] (a).args", "the phase \"a\"", "\"nowhere\" is not defined here; there are:"],
        ),
        (&one("kind = \"ask\""), &["what does the phase \"a\" ask?"]),
        (&one("kind = \"ask\"\nquestion = \"x\"\nanswer = \"maybe\""), &["\"maybe\" must be one of: words, yes_no"]),
        (&one("kind = \"each\""), &["over which list does the phase \"a\" go?"]),
        (
            &one("kind = \"each\"\nover = \"['a', 'b']\""),
            &["phase[0] (a).over", "is text, and no list; write one expression, as in \"{{ ['a', 'b'] }}\""],
        ),
        (&one("kind = \"each\"\nover = \"{{ goal }} and more\""), &["phase[0] (a).over", "is text, and no list"]),
        (
            &one("kind = \"agent\"\nmemory = { text = \"x\" }"),
            &["phase[0] (a).memory.list", "which list is it put on?"],
        ),
        (
            &one("kind = \"agent\"\nmemory = { list = \"l\", text = \"{{ x }}\" }"),
            &["phase[0] (a).memory", "the phase \"a\"", "\"x\" is not defined"],
        ),
        (&agent.replace("name = \"a\"", "name = \"a b\""), &["phase[0] (a b).name", "cannot be a phase's name"]),
        (&agent.replace("\"a\"", "\"done\""), &["\"done\" is an end, so that no phase can be called so"]),
        (&agent.replace(END, ""), &["phase[0] (a).next", "the phase \"a\" has no exit", "without `when`"]),
        (&agent.replace("{ to = \"done\" }", "{ when = \"true\", to = \"done\" }"), &["the phase \"a\" has no exit"]),
        (&agent.replace("\"done\"", "\"dnoe\""), &["the phase \"a\" leads to \"dnoe\", which is no phase and no end"]),
        (&agent.replace("{ to = \"done\" }", "{ to = \"failed\" }"), &["why does the phase \"a\" fail the run?"]),
        (&agent.replace("{ to = \"done\" }", "{}"), &["where does the phase \"a\" lead?"]),
        (&agent.replace("\"done\" }", "\"done\", reason = \"x\" }"), &["only the end \"failed\" has a reason"]),
        (&agent.replace("\"done\" }]", "\"done\" }, { to = \"a\" }]"), &["transitions behind one without `when`"]),
        (
            &agent.replace("[{ to", "[{ when = \"last.ok &&\", to = \"done\" }, { to"),
            &["phase[0] (a).next", "the phase \"a\": `last.ok &&` is no condition: it does not parse"],
        ),
        (
            &agent.replace("[{ to", "[{ when = \"outputs.b.x\", to = \"done\" }, { to"),
            &["names the phase \"b\", and there are: a"],
        ),
        (
            &agent.replace("[{ to", "[{ when = \"last.ok\", to = \"a\" }, { to"),
            &["phase[0] (a).next", "nothing bounds: a → a; give one of them visits = N"],
        ),
        (&format!("{agent}[[phase]]\nname = \"a\"\nkind = \"branch\"\n{END}"), &["a second phase named \"a\""]),
        (
            &format!("{agent}[[phase]]\nname = \"b\"\nkind = \"branch\"\n{END}"),
            &["phase[1] (b).name", "no transition leads"],
        ),
    ] {
        let said = error(text);
        for part in parts {
            assert!(said.contains(part), "{text}\n{said}\nlacks: {part}");
        }
    }
}

/// A task with one tool and one check, and this program.
fn loaded(name: &str, program: &str) -> Result<longrein_core::task::Task, TaskFileError> {
    loaded_with(name, program, &[])
}

/// The same, with these files beside the program.
fn loaded_with(name: &str, program: &str, files: &[(&str, &str)]) -> Result<longrein_core::task::Task, TaskFileError> {
    let folder = std::env::temp_dir().join(format!("longrein-programfile-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(folder.join("m.script.toml"), "").unwrap();
    fs::write(folder.join("sub/p.toml"), program).unwrap();
    files.iter().for_each(|(name, text)| fs::write(folder.join("sub").join(name), text).unwrap());
    fs::write(
        folder.join("task.toml"),
        "goal = \"g\"\nmodel = \"script/m.script.toml\"\nprogram = \"sub/p.toml\"\n[[tools]]\nname = \"look\"\neffect = \
         \"read\"\ncommand = [\"true\"]\nprovides = [\"seen\"]\n[[acceptance]]\nname = \"tests\"\ncommand = [\"true\"]\n",
    )
    .unwrap();
    let loaded = load(Path::new("task.toml"), &Options { here: folder.clone(), ..Options::default() });
    let _ = fs::remove_dir_all(&folder);
    loaded.map(|loaded| loaded.task)
}

#[test]
fn a_program_must_fit_its_task() {
    let with = |kind: &str, next: &str| one(kind).replace("[{ to", &format!("[{next}{{ to"));
    for (name, program, said) in [
        (
            "tool",
            one("kind = \"call\"\ntool = \"lok\""),
            "names the tool \"lok\", which the task does not have; it has: look",
        ),
        ("tools", one("kind = \"agent\"\ntools = [\"lok\"]"), "names the tool \"lok\""),
        ("check", one("kind = \"checks\"\nchecks = [\"test\"]"), "names the acceptance check \"test\""),
        (
            "own",
            one("kind = \"checks\"\ncommands = [{ name = \"tests\", command = [\"x\"] }]"),
            "the task has one of that name",
        ),
        (
            "fact",
            with("kind = \"agent\"", "{ when = \"facts.sene.ok\", to = \"done\" }, "),
            "names the fact \"sene\", and there are: seen",
        ),
        (
            "when",
            with("kind = \"agent\"", "{ when = \"checks.x.passed\", to = \"done\" }, "),
            "names the check \"x\", and there are: tests",
        ),
    ] {
        let error = loaded(name, &program).unwrap_err();
        assert!(matches!(error, TaskFileError::Task { .. }), "{name}: {error}");
        let error = error.to_string();
        assert!(error.contains(said) && error.contains("phase \"a\""), "{name}: {error}");
        assert!(error.starts_with("sub/p.toml, line "), "{name}: {error}");
    }
    for kind in ["kind = \"each\"\nover = \"{{ goal }}\"", "kind = \"run\""] {
        loaded("child", &one(kind)).unwrap();
        let missing = loaded("child", &one(&format!("{kind}\ntask = \"other.toml\""))).unwrap_err();
        assert!(matches!(missing, TaskFileError::Unreadable { .. }), "{missing}");
        assert!(missing.to_string().contains("task: cannot read"), "{missing}");
    }
    // A program of its own is read with the one that names it; none starts itself.
    let own = loaded("own", &one("kind = \"run\"\nprogram = \"p.toml\"")).unwrap_err();
    assert!(own.to_string().contains("programs start each other more than 4 deep"), "{own}");
    let task = loaded("plan", &one("kind = \"run\"\nprogram = \"plan\"")).unwrap();
    let Program::Phases(phases) = &task.program else { panic!("{:?}", task.program) };
    let longrein_core::program::Kind::Run(child) = &phases.phases[0].kind else { panic!("{phases:?}") };
    let found = child.found.as_ref().and_then(|found| found.program.as_ref());
    assert_eq!(found.map(Program::name), Some("plan"));
}

#[test]
fn a_question_of_the_program_brings_its_tool_which_the_model_is_not_offered() {
    let task = loaded("ask", &one("kind = \"ask\"\nquestion = \"x\"")).unwrap();
    assert_eq!(task.tools.last().unwrap().body, ToolBody::Builtin(Builtin::Ask));
    let Program::Phases(phases) = &task.program else { panic!("{:?}", task.program) };
    assert_eq!(phases.own_tools.iter().map(|tool| tool.as_str()).collect::<Vec<_>>(), ["ask"]);
}

/// Each of a folder's programs.
fn programs(folder: &str) -> Vec<(String, Phases)> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", folder].iter().collect();
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let program = read(&file, &text, Path::new(".")).unwrap_or_else(|error| panic!("{error}"));
        (name, program.phases)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn what_is_shipped_is_what_lies_there_and_draws() {
    let there: Vec<_> = programs("programs").into_iter().map(|(name, _)| name).collect();
    let mut shipped: Vec<_> = SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect();
    shipped.sort();
    assert_eq!(there, shipped);
    let examples = programs("examples/programs");
    assert_eq!(examples.len(), 4);
    for (name, program) in programs("programs").into_iter().chain(examples) {
        assert_eq!(program.name, name);
        assert!(!program.description.is_empty(), "{name} says nothing of itself");
        let drawn = mermaid(&program);
        for phase in &program.phases {
            assert!(drawn.contains(&format!("p_{}", phase.name)), "{name}: {drawn}");
        }
    }
    for (name, _) in SHIPPED {
        assert_eq!(find(name, Path::new("."), &Place::Flag(String::new())).unwrap().phases.name, name);
    }
}

#[test]
fn react_as_a_file_is_one_agent_phase() {
    let program = find("react", Path::new("."), &Place::Flag(String::new())).unwrap().phases;
    let [phase] = &program.phases[..] else { panic!("{program:?}") };
    let Kind::Agent(agent) = &phase.kind else { panic!("{phase:?}") };
    assert_eq!((agent.instructions.as_str(), &agent.tools, agent.turns), ("", &None, None));
}

const PART: &str = "goal = \"one part\"\nmodel = \"script/x.toml\"\npermission_mode = \"plan\"\nprogram = \"below.toml\"\n\
                    constraints = [\"slowly\"]\n[budget]\nturns = 3\n[[tools]]\nname = \"peek\"\neffect = \"read\"\n\
                    command = [\"sh\", \"check.sh\"]\n[[acceptance]]\nname = \"own\"\ncommand = [\"sh\", \"check.sh\"]\n";

#[test]
fn a_task_file_for_children_is_read_with_the_program_and_relative_to_it() {
    let below = one("kind = \"agent\"\ntools = [\"peek\"]");
    let files = [("part.toml", PART), ("x.toml", ""), ("below.toml", below.as_str()), ("check.sh", "true\n")];
    for kind in ["kind = \"each\"\nover = \"{{ goal }}\"", "kind = \"run\""] {
        let program = one(&format!("{kind}\ntask = \"part.toml\""));
        let task = loaded_with("part", &program, &files).unwrap();
        let phases = task.program.phases().unwrap();
        let child = phases.phases[0].kind.child().unwrap();
        let mine = longrein_core::program::task_of(&task, child, None, None);
        assert_eq!((mine.goal.as_str(), mine.program.name()), ("one part", "below"));
        assert!(mine.model.name.as_str().ends_with("sub/x.toml"), "{}", mine.model.name);
        assert!(mine.folder.ends_with("/sub") && mine.workspace == task.workspace, "{}", mine.folder);
        assert_eq!(mine.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["peek"]);
        assert_eq!(mine.acceptance.iter().map(|check| check.name.as_str()).collect::<Vec<_>>(), ["own"]);
        assert_eq!(mine.constraints, ["slowly"]);
        let text = program_text(phases);
        for line in ["of part.toml", "its goal one part", "its tools peek", "its checks own", "its mode plan"] {
            assert!(text.contains(line), "{text}\nlacks {line}");
        }
    }
}

#[test]
fn what_cannot_be_a_child_s_own_is_refused_when_it_is_read() {
    let program = one("kind = \"run\"\ntask = \"part.toml\"");
    let circle = "goal = \"g\"\nprogram = \"p.toml\"\n";
    let writes = "goal = \"g\"\nbuiltins = [\"write_file\"]\n";
    for (name, part, place, said) in [
        ("syntax", "goal = ", "part.toml, line 1", ""),
        ("key", "goal = \"g\"\nturnips = 3\n", "part.toml, line 2", "turnips"),
        ("principal", "[principal]\nuser = \"root\"\n", "part.toml", "the principal of its parent"),
        ("workspace", "workspace = \".\"\nbuiltins = []\n", "part.toml, line 1", "works in its parent's workspace"),
        ("writes", writes, "sub/p.toml, line 5, phase[0] (a).task", "nothing holds the workspace for it"),
        ("model", "model = \"script/none.toml\"\n", "part.toml, line 1", "cannot read"),
        ("variable", "goal = \"${x}\"\n", "part.toml", "x"),
        ("circle", circle, "part.toml, line 2", "more than 4 deep"),
        ("program", "program = \"nothing\"\n", "part.toml, line 1", "there is no program \"nothing\""),
        ("mode", "permission_mode = \"root\"\n", "part.toml, line 1", "there is no mode"),
    ] {
        let error = loaded_with(name, &program, &[("part.toml", part)]).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains(said), "{name}: {error}");
    }
}

/// Each phase of a program may name another, and so on: what is read and drawn grows with what is written, not with its powers.
#[test]
fn a_program_grows_with_what_is_written() {
    let program = |phases: usize, names: &str| {
        let mut text = String::from("start = \"p0\"\n");
        for number in 0..phases {
            let next = if number + 1 == phases { "done".to_owned() } else { format!("p{}", number + 1) };
            text.push_str(&format!(
                "[[phase]]\nname = \"p{number}\"\nkind = \"run\"\n{names}next = [{{ to = \"{next}\" }}]\n"
            ));
        }
        text
    };
    let drawn = |phases: usize| {
        let read = read(Path::new("p.toml"), &program(phases, ""), Path::new(".")).unwrap().phases;
        (program_text(&read).lines().count(), mermaid(&read).lines().count())
    };
    let (one, two, four) = (drawn(16), drawn(32), drawn(64));
    assert_eq!(
        (four.0 - two.0, four.1 - two.1),
        (2 * (two.0 - one.0), 2 * (two.1 - one.1)),
        "twice the phases, twice the lines"
    );
    // Four files of 20 phases that name each other one below the other would be 168,420.
    let (deep, leaf) = (program(20, "program = \"c.toml\"\n"), program(20, ""));
    let files = [("b.toml", program(20, "program = \"deep.toml\"\n")), ("deep.toml", deep), ("c.toml", leaf)];
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let error = loaded_with("powers", &program(20, "program = \"b.toml\"\n"), &files).unwrap_err().to_string();
    assert!(error.contains("more than 1024 phases"), "{error}");
    let few = [("c.toml", program(20, ""))];
    let few: Vec<_> = few.iter().map(|(name, text)| (*name, text.as_str())).collect();
    loaded_with("few", &program(20, "program = \"c.toml\"\n"), &few).unwrap();
}
