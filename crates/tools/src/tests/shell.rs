//! The shell: what it is given, what its end means, what of its output is shown and kept.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use longrein_core::outcome::{Outcome, ToolError, class};
use longrein_core::task::{Builtin, EffectClass};
use longrein_ports::{Handed, Ran, Tools};

use super::*;

/// A folder to work in, and a toolbox with the shell.
struct Bench {
    folder: tempfile::TempDir,
    task: Task,
    toolbox: Toolbox,
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let mut task = task_in(folder.path(), &[]);
    task.tools = vec![crate::builtin(Builtin::Shell)];
    // a secret comes to be known by a tool that is given it
    let other = serde_json::from_str(&tool("other", &json!({ "env": ["${secret:TOKEN}"] })).to_string()).unwrap();
    task.tools.push(other);
    let mut operator = operator();
    operator.extend(
        [
            ("TZ", "Europe/Berlin"),
            ("OPENAI_API_KEY", "sk-nothing"),
            ("LONGREIN_HOME", "/nowhere"),
            ("GIT_DIR", "/elsewhere"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let toolbox = Toolbox::new(&task, &operator, Secrets::new()).unwrap();
    Bench { folder, task, toolbox }
}

impl Bench {
    async fn ran(&self, args: Value) -> Ran {
        let name = ToolName::new("shell");
        let valid = match self.toolbox.validate(&name, &args.to_string()) {
            Ok(valid) => valid,
            Err(error) => return Ran { outcome: Outcome::Error(error), blobs: Vec::new() },
        };
        let attempt = Attempt { args: valid.args, ..self.attempt() };
        self.toolbox.attempt(&self.task, &attempt, &Handed::default()).await
    }

    /// Of a run of its own, so that its processes are known from those of other tests.
    fn attempt(&self) -> Attempt {
        let folder = self.folder.path().file_name().unwrap().to_str().unwrap();
        Attempt { run: RunId::new(format!("shell-test-{folder}")), ..attempt("shell", &json!({})) }
    }

    /// The result of a command that is done, as the model sees it.
    async fn done(&self, command: &str) -> Value {
        let ran = self.ran(json!({ "command": command })).await;
        let Outcome::Done(content) = &ran.outcome else { panic!("{command}: {ran:?}") };
        shown(content)
    }

    async fn output(&self, command: &str) -> String {
        self.done(command).await["output"].as_str().unwrap().to_owned()
    }

    async fn error(&self, args: Value) -> ToolError {
        let ran = self.ran(args).await;
        let Outcome::Error(error) = ran.outcome else { panic!("{ran:?}") };
        error
    }
}

fn shown(content: &Content) -> Value {
    match content {
        Content::Inline(payload) => payload.read().unwrap(),
        Content::Blob(blob) => blob.shown.read().unwrap(),
    }
}

#[tokio::test]
async fn any_status_is_a_result() {
    let bench = bench();
    for (command, status) in [("true", 0), ("false", 1), ("exit 75", 75), ("no-such-program", 127), ("if", 2)] {
        let result = bench.done(command).await;
        assert_eq!(result["status"], status, "{command}: {result}");
    }
    let result = bench.done("echo out; echo err >&2; echo out again; exit 3").await;
    assert_eq!((&result["status"], &result["output"]), (&json!(3), &json!("out\nerr\nout again")));
    assert!(result["duration_ms"].is_u64() && result.get("background_ended").is_none(), "{result}");
    assert!(bench.output("-x").await.contains("-x"));
}

#[tokio::test]
async fn a_signal_is_named_and_is_no_timeout() {
    let bench = bench();
    for (command, signal) in [("kill -TERM $$", "SIGTERM"), ("kill -9 $$", "SIGKILL"), ("kill -SEGV $$", "SIGSEGV")] {
        let result = bench.done(&format!("echo before; {command}")).await;
        assert_eq!((&result["signal"], &result["output"]), (&json!(signal), &json!("before")));
        assert!(result.get("status").is_none());
    }
}

#[tokio::test]
async fn what_we_end_has_an_unknown_outcome_and_shows_what_was_printed() {
    let bench = bench();
    let error = bench.error(json!({ "command": "printf partial; sleep 9999", "timeout": "300ms" })).await;
    assert_eq!(error.class, class::UNKNOWN_OUTCOME);
    assert_eq!(error.message, "The command was ended after 300ms: its time was up.");
    assert_eq!(shown(&error.data.unwrap())["output"], "partial");
    assert!(error.hint.unwrap().contains("look before going on"));
}

/// What ends by itself, because it is given nothing to wait for, and what we end when its time is up.
#[tokio::test]
async fn no_habit_holds_us_or_leaves_a_process() {
    let by_itself = [
        "cat",
        "read x; echo $x",
        "head -c1 /dev/tty",
        "sleep 9999 & echo on",
        "setsid sleep 9999 & disown; echo on",
        "(setsid sh -c 'sleep 9999 & sleep 9998' &) ; sleep 0.1",
        "nohup sleep 9999 >/dev/null 2>&1 &",
        "git init -q . && git -c user.name=a -c user.email=a@b commit --allow-empty",
        "git rebase -i HEAD; ${EDITOR:-vi} x; ${VISUAL:-vi} x; man ls | head -1",
        "sudo -k true; python3 -c 'input()'; exit 0",
    ];
    let by_us = [
        "trap '' TERM HUP INT; sleep 9999; sleep 9998",
        "kill -STOP $$",
        "exec sleep 9999",
        "yes > /dev/null",
        "yes",
        "while :; do sleep 9999 & sleep 0.01; done",
        "exec >&- 2>&-; sleep 9999",
    ];
    let bench = bench();
    for (command, timeout) in by_itself.map(|it| (it, "10m")).into_iter().chain(by_us.map(|it| (it, "500ms"))) {
        let began = Instant::now();
        let ran = bench.ran(json!({ "command": command, "timeout": timeout })).await;
        // half a second and two of grace, on a machine that is busy otherwise
        assert!(began.elapsed() < Duration::from_secs(15), "{command}: {:?}", began.elapsed());
        let as_said = match &ran.outcome {
            Outcome::Done(_) => timeout == "10m",
            Outcome::Error(error) => timeout != "10m" && error.class == class::UNKNOWN_OUTCOME,
            Outcome::NotDone(_) | Outcome::Unknown(_) => false,
        };
        assert!(as_said, "{command}: {:?}", ran.outcome);
        let left = marked(&bench.attempt());
        assert!(left.is_empty(), "{command} left {left:?}");
    }
}

/// Processes that carry the mark of an attempt.
fn marked(attempt: &Attempt) -> Vec<PathBuf> {
    let mark = format!("LONGREIN_INSIDE={}/{}/{}", attempt.run, attempt.action, attempt.fence.0);
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|process| {
            std::fs::read(process.join("environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()))
        })
        .collect()
}

#[tokio::test]
async fn background_processes_are_ended_and_counted() {
    let bench = bench();
    let result = bench.done("sleep 9999 & sleep 9998 >/dev/null 2>&1 & echo started").await;
    assert_eq!((&result["status"], &result["background_ended"]), (&json!(0), &json!(2)), "{result}");
    assert_eq!(result["output"], "started");
}

/// A repository from elsewhere may name programs; `git status` is allowed unasked.
#[tokio::test]
async fn a_repository_s_monitor_is_not_started() {
    let bench = bench();
    bench.output("git init -q . && git config core.fsmonitor 'touch started; false'").await;
    bench.output("git status --short").await;
    assert!(!bench.output("ls").await.contains("started"));
}

#[tokio::test]
async fn the_environment_is_ours() {
    let bench = bench();
    let env = bench.output("env").await;
    for line in [
        "HOME=/home/ops",
        "TZ=Europe/Berlin",
        "GIT_TERMINAL_PROMPT=0",
        "GIT_EDITOR=false",
        "EDITOR=false",
        "GIT_PAGER=cat",
        "PAGER=cat",
        "TERM=dumb",
        "NO_COLOR=1",
        "PYTHONDONTWRITEBYTECODE=1",
        "DEBIAN_FRONTEND=noninteractive",
    ] {
        assert!(env.lines().any(|have| have == line), "{line} not in\n{env}");
    }
    assert!(env.contains("LONGREIN_INSIDE="), "{env}");
    for foreign in ["OPENAI_API_KEY", "LONGREIN_HOME", "GIT_DIR", "TOKEN", "UNRELATED"] {
        assert!(!env.contains(foreign), "{foreign} in\n{env}");
    }
}

#[tokio::test]
async fn it_runs_in_the_workspace() {
    let bench = bench();
    let root = bench.folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("sub/deep")).unwrap();
    std::fs::write(root.join("file"), "").unwrap();
    std::os::unix::fs::symlink("/", root.join("out")).unwrap();
    std::os::unix::fs::symlink("sub", root.join("link")).unwrap();
    std::os::unix::fs::symlink("gone", root.join("dangling")).unwrap();
    assert_eq!(bench.output("pwd -P; cd /; true").await, root.to_str().unwrap());
    assert_eq!(bench.output("pwd -P").await, root.to_str().unwrap());
    for (cwd, found) in [
        ("sub", "sub"),
        ("./sub/deep/..", "sub"),
        ("link", "sub"),
        (".", ""),
        ("", ""),
        (root.join("sub").to_str().unwrap(), "sub"),
    ] {
        let ran = bench.ran(json!({ "command": "pwd -P", "cwd": cwd })).await;
        let Outcome::Done(content) = &ran.outcome else { panic!("{cwd}: {ran:?}") };
        assert_eq!(
            shown(content)["output"].as_str().unwrap(),
            root.join(found).to_str().unwrap().trim_end_matches('/')
        );
    }
    for (cwd, why) in [
        ("..", "outside"),
        ("out", "outside"),
        ("out/tmp", "outside"),
        ("/", "outside"),
        ("sub/../../..", "outside"),
        ("nowhere", "No such file"),
        ("dangling", "No such file"),
        ("file", "no folder"),
        ("a\0b", "Nothing was run"),
    ] {
        let error = bench.error(json!({ "command": "touch ran", "cwd": cwd })).await;
        assert!(error.message.contains(why) && error.message.contains("Nothing was run"), "{cwd:?}: {}", error.message);
        assert_eq!((error.class.as_str(), error.field.as_deref()), (class::INVALID_ARGUMENTS, Some("/cwd")));
        assert!(error.hint.is_some());
    }
    assert!(!root.join("ran").exists());
}

#[tokio::test]
async fn what_is_printed_is_shown_as_a_terminal_would() {
    let bench = bench();
    for (command, shown) in [
        (r"printf '\033[1;31mred\033[0m\033]0;title\007!\033]52;c;AAAA\007\n'", "red!"),
        (r"printf '10%%\r50%%\r100%%\ndone\n'", "100%\ndone"),
        (r"printf 'a\377b\000c\n'", "a\u{fffd}bc"),
        (r"printf '\377\376h\000i\000'", "hi"),
        (r"printf '\203\145\203\130\203\147'", "\u{fffd}e\u{fffd}X\u{fffd}g"),
        ("printf '{\"error\":{\"message\":\"x\"}}'", "{\"error\":{\"message\":\"x\"}}"),
        ("printf 'no line end'", "no line end"),
        (":", ""),
    ] {
        assert_eq!(bench.output(command).await, shown, "{command}");
    }
}

#[tokio::test]
async fn long_output_is_shown_in_part_and_kept() {
    let bench = bench();
    let ran = bench.ran(json!({ "command": "printf '\\033[31mred\\033[0m\\n'; seq 20000; exit 4" })).await;
    let Outcome::Done(Content::Blob(blob)) = &ran.outcome else { panic!("{:?}", ran.outcome) };
    let shown: Value = blob.shown.read().unwrap();
    assert_eq!((&shown["status"], &shown["output_lines"]), (&json!(4), &json!(20_001)));
    let output = shown["output"].as_str().unwrap();
    assert!(output.starts_with("red\n1\n2\n") && output.ends_with("\n19999\n20000"), "{output}");
    assert!(output.contains(" bytes left out, lines ") && blob.shown.as_str().len() <= 16 * 1024, "{output}");
    let (digest, kept) = &ran.blobs[0];
    assert_eq!((digest, Digest::of(kept)), (&blob.digest, blob.digest.clone()));
    let kept: Value = serde_json::from_slice(kept).unwrap();
    let whole = kept["output"].as_str().unwrap();
    assert!(whole.starts_with("\u{1b}[31mred\u{1b}[0m\n1\n2\n") && whole.ends_with("\n20000\n"));
    assert_eq!((whole.lines().count(), &kept["output_bytes"]), (20_001, &json!(whole.len())));
    assert!(shown.get("dropped_bytes").is_none(), "all of it is kept");
}

#[tokio::test]
async fn what_is_kept_nowhere_is_said_where_it_is_missing() {
    let bench = bench();
    let ran = bench.ran(json!({ "command": "seq 400000" })).await;
    let Outcome::Done(Content::Blob(blob)) = &ran.outcome else { panic!("{:?}", ran.outcome) };
    let shown: Value = blob.shown.read().unwrap();
    let kept: Value = serde_json::from_slice(&ran.blobs[0].1).unwrap();
    let whole = kept["output"].as_str().unwrap();
    assert_eq!(shown["output_lines"], 400_000);
    assert!(shown["dropped_bytes"].as_u64().unwrap() > 500_000 && shown["dropped_bytes"] == kept["dropped_bytes"]);
    assert!(whole.contains(" bytes left out for good; lines below are numbered without them …]\n"), "it is told");
    assert!(whole.lines().count() < 400_000 && whole.ends_with("\n400000\n"));
}

#[tokio::test]
async fn errors_in_the_middle_of_a_long_output_are_shown() {
    let bench = bench();
    let output =
        bench.output("seq 20000; echo 'error: no such thing'; seq 20000; head -c 900 /dev/urandom | base64 -w0").await;
    assert!(output.contains("\n20,001: error: no such thing\n") && output.ends_with("[data, 900 bytes]"), "{output}");
    let long = bench.output("seq 600000; head -c 900 /dev/urandom | base64 -w0").await;
    assert!(long.contains("lines left out: ask for less") && long.ends_with("[data, 900 bytes]"), "{long}");
    assert_eq!(bench.output("head -c 900 /dev/urandom | base64 -w0").await, "[data, 900 bytes]");
}

#[tokio::test]
async fn secrets_stay_out_of_what_is_shown_and_kept() {
    let bench = bench();
    for command in [
        "printf hunter2; printf '\\033[0m'; printf 'hunter2\\n'",
        "printf hunter2; sleep 0.05; echo hunter2",
        "printf '%s' hunter2 hunter2 | base64",
        "printf 'hunter2\\033[1mhunter2\\roverwritten\\n'",
    ] {
        let split = command.replace("hunter2hunter2", "");
        for long in ["", "; seq 20000"] {
            let ran = bench.ran(json!({ "command": format!("{split}{long}") })).await;
            let everything = format!("{ran:?}");
            for part in ["hunter2", "aHVudGVyMmh1bnRlcjI"] {
                assert!(!everything.contains(part), "{command}{long}: {part}");
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused() {
    let bench = bench();
    for (args, field) in [
        (json!({}), "/command"),
        (json!({ "command": "  " }), "/command"),
        (json!({ "command": "x".repeat(200_000) }), "/command"),
        (json!({ "command": ["ls"] }), "/command"),
        (json!({ "command": "true", "timeout": "1h" }), "/timeout"),
        (json!({ "command": "true", "timeout": "soon" }), "/timeout"),
        (json!({ "command": "true", "background": true }), "/background"),
    ] {
        let error = bench.toolbox.validate(&ToolName::new("shell"), &args.to_string()).unwrap_err();
        assert_eq!(
            (error.class.as_str(), error.field.as_deref()),
            (class::INVALID_ARGUMENTS, Some(field)),
            "{error:?}"
        );
    }
    // as long as the kernel takes
    let long = format!("echo ok #{}", "x".repeat(128 * 1024 - 1 - 9));
    assert_eq!(bench.output(&long).await, "ok");
}

#[test]
fn as_it_is_declared() {
    let spec = crate::builtin(Builtin::Shell);
    assert_eq!((spec.name.as_str(), spec.effect), ("shell", EffectClass::Workspace));
    assert!(
        spec.env
            .iter()
            .all(|name| !["KEY", "TOKEN", "SECRET", "PASSWORD", "SOCK"].iter().any(|bad| name.contains(bad)))
    );
}
