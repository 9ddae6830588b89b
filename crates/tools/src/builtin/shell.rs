//! `shell`: a command line, run as a command tool is: a session of its own, no terminal, nothing to read, an end in time,
//! and nothing left running.
//!
//! Both outputs come through one pipe, in the order printed, as a terminal would show them. Whatever the status, the command
//! ran and the status is its result; only an end we made (time, flood) is an error of unknown outcome (`semantics.md` D3).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longrein_core::ids::ToolName;
use longrein_core::outcome::{Outcome, ToolError, class};
use longrein_core::payload::{Content, INLINE_MAX_BYTES, Payload, head_and_tail};
use longrein_core::task::{Builtin, EffectClass, ToolBody, ToolSpec};
use longrein_core::time::{self, millis};
use longrein_ports::Ran;
use longrein_sandbox::{Captured, Confinement, Ended, How, Keep, Marker, Spec, StartError, Stderr, Strays};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ending::{Blobs, not_started};
use crate::excerpt::excerpt;
use crate::output::{readable, unrendered};
use crate::preview::{cleaned, preview};
use crate::secrets::Secrets;

/// Unless the call says otherwise: most builds and test runs, and not much longer than a person waits for a hung one.
const TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// The most a call may ask for.
const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 60);

/// Of an output so much is kept, head and tail: some tens of thousands of lines. On its way to the store it is in memory a
/// few times over.
const KEPT_MAX_BYTES: usize = 2 << 20;

/// How much of a long output is shown: about 4,000 tokens.
const SHOWN_MAX_BYTES: usize = 16 * 1024;

/// A command that prints more is ended: nobody reads it, and it would go on until its time is up.
const FLOOD_BYTES: u64 = 1 << 30;

/// The kernel takes no longer argument (MAX_ARG_STRLEN), the zero at its end included.
const COMMAND_MAX_BYTES: usize = 128 * 1024 - 1;

/// What a tool chain is told by the environment. None of it is a secret; what holds one, or opens a door such as that to an
/// ssh agent, does not belong here.
const PASSED_ON: [&str; 27] = [
    "USER",
    "LOGNAME",
    "TZ",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "LD_LIBRARY_PATH",
    "PKG_CONFIG_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "NVM_DIR",
    "NODE_PATH",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "GEM_HOME",
    "DOTNET_ROOT",
];

pub(super) fn spec() -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "required": ["command"],
        "additionalProperties": false,
        "properties": {
            "command": { "type": "string", "description": "The command line." },
            "cwd": { "type": "string", "description": "The folder to run it in, relative to the workspace. Default: the workspace." },
            "timeout": {
                "type": ["string", "number"],
                "description": "Then it is ended: a text such as \"30s\" or \"5m\", or a number of seconds. Default \"2m\", at most \"10m\".",
            },
        },
    });
    let name = ToolName::new(Builtin::Shell.as_str());
    ToolSpec {
        description: DESCRIPTION.to_owned(),
        parameters: Payload::of(&parameters).expect("a JSON value always serialises"),
        timeout: TIMEOUT_MAX,
        env: PASSED_ON.map(str::to_owned).to_vec(),
        ..ToolSpec::new(name, ToolBody::Builtin(Builtin::Shell), EffectClass::Workspace)
    }
}

const DESCRIPTION: &str = "Runs a command line in the workspace, with bash (sh where there is none), and returns its exit \
status and what it printed: stdout and stderr together, in the order printed. Use it to build, run tests, use git and look \
around; to change files use the file tools. A status other than 0 is a result, not a failure of this tool. There is no \
terminal and nothing to read on stdin: programs that would ask, page or open an editor fail, so pass what they need as \
arguments (git commit -m). Every call starts afresh: cd and variables do not last, use cwd. What still runs in the \
background when the command ends is ended too; background_ended says how many processes that were. Of long output the start, \
the end and lines that look like errors are shown: ask for less with grep, head, tail or sed -n. Commands run in a sandbox: \
they see the workspace, the system and the tool chains, can write the workspace and /tmp, and have no network. What a command \
itself names beyond that (curl https://host/…, cargo fetch, git push, a path elsewhere) it gets once that is allowed; a script \
or build that reaches out by itself does not, so fetch first, in a command of its own.";

/// What a call asks for.
#[derive(Debug, PartialEq)]
struct Call {
    command: String,
    cwd: Option<String>,
    timeout: Duration,
}

#[derive(Deserialize)]
struct Arguments {
    command: String,
    cwd: Option<String>,
    timeout: Option<Value>,
}

/// Refuses arguments that fit the schema and still cannot be meant.
pub(super) fn check(args: &Value) -> Result<(), ToolError> {
    let read = Arguments::deserialize(args).map_err(|error| invalid(format!("The arguments do not fit: {error}.")))?;
    Call::of(read).map(|_| ())
}

impl Call {
    fn of(Arguments { command, cwd, timeout }: Arguments) -> Result<Self, ToolError> {
        if command.trim().is_empty() {
            return Err(invalid("command is empty.").at("/command").hint("Give the command line to run."));
        }
        if command.contains('\0') {
            let hint = "Leave it out; in a file, printf '\\0' writes one.";
            return Err(invalid("command holds a NUL character, which no command can.").at("/command").hint(hint));
        }
        if command.len() > COMMAND_MAX_BYTES {
            let message = format!("command is {} bytes long; at most {COMMAND_MAX_BYTES} can be run.", command.len());
            return Err(invalid(message).at("/command").hint("Write it to a file and run that."));
        }
        let timeout = timeout.as_ref().map_or(Ok(TIMEOUT), span)?;
        Ok(Self { command, cwd: cwd.filter(|cwd| !cwd.is_empty()), timeout })
    }
}

fn span(value: &Value) -> Result<Duration, ToolError> {
    let seconds = match value {
        Value::String(text) => match time::span(text) {
            Some(span) => Some(span.as_secs_f64()),
            None => text.trim().parse().ok(),
        },
        Value::Number(number) => number.as_f64(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let refuse = |why: String| {
        let hint = format!("Give \"30s\", \"5m\" or a number of seconds, at most {}.", TIMEOUT_MAX.as_secs());
        Err(invalid(why).at("/timeout").hint(hint))
    };
    let shown = head_and_tail(&value.to_string(), 80);
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(span)) if span.is_zero() => refuse(format!("timeout is {shown}: nothing can run in no time.")),
        Some(Ok(span)) if span <= TIMEOUT_MAX => Ok(span),
        Some(Ok(_)) => refuse(format!("timeout is {shown}, which is longer than a command may take.")),
        Some(Err(_)) | None => refuse(format!("timeout is {shown}, which is no span of time.")),
    }
}

fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::new(class::INVALID_ARGUMENTS, message)
}

/// Where a call runs, whatever it asks for.
pub(crate) struct Place<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) marker: Marker,
    pub(crate) walls: Confinement,
}

/// Runs a call. `args` passed [`check`]; `start` runs a command in its walls.
pub(crate) async fn run<Started: Future<Output = Result<Ended, StartError>>>(
    spec: &ToolSpec,
    args: &Payload,
    place: Place<'_>,
    start: impl FnOnce(Spec) -> Started,
    secrets: &Secrets,
) -> Ran {
    let Place { workspace, env, marker, walls } = place;
    let call = match args.read().map_err(|error| invalid(error.to_string())).and_then(Call::of) {
        Ok(call) => call,
        Err(error) => return refused(error),
    };
    let cwd = match folder(workspace, call.cwd.as_deref()) {
        Ok(cwd) => cwd,
        Err(error) => return refused(error),
    };
    let timeout = call.timeout.min(spec.timeout);
    let ended = start(Spec {
        // after "--" a command may begin with a hyphen
        argv: [interpreter(env), "-c".to_owned(), "--".to_owned(), call.command].to_vec(),
        cwd,
        env: env.clone().into_iter().collect(),
        stdin: Vec::new(),
        stdout: Keep::Ends { max_bytes: KEPT_MAX_BYTES, flood_bytes: FLOOD_BYTES },
        stderr: Stderr::WithStdout,
        timeout,
        marker,
        confinement: walls,
    })
    .await;
    outcome(spec, timeout, ended, secrets)
}

fn refused(error: ToolError) -> Ran {
    Ran { outcome: Outcome::Error(error), blobs: Vec::new() }
}

/// Where to run it: in the workspace, wherever links lead. A command can go elsewhere by itself; this keeps a slip from
/// starting there, and is no fence.
fn folder(workspace: &Path, cwd: Option<&str>) -> Result<PathBuf, ToolError> {
    let Some(cwd) = cwd else { return Ok(workspace.to_owned()) };
    let shown = head_and_tail(cwd, 200);
    let refuse = |why: String| invalid(format!("cwd is \"{shown}\": {why} Nothing was run.")).at("/cwd");
    let found = workspace
        .canonicalize()
        .and_then(|root| Ok((workspace.join(cwd).canonicalize()?, root)))
        .map_err(|error| refuse(format!("{error}.")).hint("Name a folder of the workspace, relative to it."))?;
    let (folder, root) = found;
    if !folder.starts_with(&root) {
        let hint = "Run it in the workspace, and name what lies outside in the command.";
        return Err(refuse("that is outside the workspace.".to_owned()).hint(hint));
    }
    if !folder.is_dir() {
        return Err(refuse("that is no folder.".to_owned()).hint("Name the folder it is in."));
    }
    Ok(folder)
}

/// What people write on a command line is bash; sh is what every system has.
fn interpreter(env: &BTreeMap<String, String>) -> String {
    let path = env.get("PATH").map_or("", String::as_str);
    path.split(':')
        .filter(|folder| folder.starts_with('/'))
        .map(|folder| format!("{folder}/bash"))
        .find(|file| Path::new(file).is_file())
        .unwrap_or_else(|| "/bin/sh".to_owned())
}

fn outcome(spec: &ToolSpec, timeout: Duration, ended: Result<Ended, StartError>, secrets: &Secrets) -> Ran {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return Ran { outcome: not_started(spec, &error), blobs: Vec::new() },
    };
    let how = ended.how;
    let mut blobs = Blobs::default();
    let data = told(ended, secrets, &mut blobs);
    let unknown = |message: String, hint: &str| {
        let mut error = ToolError::new(class::UNKNOWN_OUTCOME, message).hint(hint);
        error.data = Some(data.clone());
        Outcome::Error(error)
    };
    let outcome = match how {
        How::Exited(_) | How::Signalled(_) => Outcome::Done(data),
        How::TimedOut => unknown(
            format!("The command was ended after {timeout:?}: its time was up."),
            "It may have changed files before that: look before going on. If it only needs longer, give it a longer \
             timeout (at most \"10m\"); if it waits for input or runs for ever, it needs another command.",
        ),
        How::Cut => unknown(
            format!("The command was ended because it had printed more than {} MiB.", FLOOD_BYTES >> 20),
            "It may have changed files before that: look before going on. Print less, or into a file.",
        ),
    };
    Ran { outcome, blobs: blobs.0 }
}

/// The result as the model is told it, and as it is kept.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    /// It ended by this signal, and not by us.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'a str>,
    duration_ms: u64,
    /// So many processes still ran when the command had ended, and were ended too.
    #[serde(skip_serializing_if = "Option::is_none")]
    background_ended: Option<usize>,
    /// So many could not be ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    background_left: Option<usize>,
    /// Of what was printed in all, where not all is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_lines: Option<u64>,
    /// Of those, what lay between the two ends that are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_bytes: Option<u64>,
    output: &'a str,
}

/// A short output is the result itself; of a long one an excerpt is shown and all that was kept goes apart.
fn told(ended: Ended, secrets: &Secrets, blobs: &mut Blobs) -> Content {
    let Ended { how, stdout: captured, stderr: _, took, strays } = ended;
    let signal = match how {
        How::Signalled(signal) => Some(signal_name(signal)),
        How::Exited(_) | How::TimedOut | How::Cut => None,
    };
    let (background_ended, background_left) = match strays {
        Strays::None => (None, None),
        Strays::Ended(count) => (Some(count), None),
        Strays::Left(count) => (None, Some(count)),
    };
    let dropped_bytes = Some(captured.left_out()).filter(|bytes| *bytes > 0);
    let told = |output_bytes, output_lines, output: &str| {
        let told = Told {
            status: match how {
                How::Exited(status) => Some(status),
                How::Signalled(_) | How::TimedOut | How::Cut => None,
            },
            signal: signal.as_deref(),
            duration_ms: millis(took),
            background_ended,
            background_left,
            output_bytes,
            output_lines,
            dropped_bytes,
            output,
        };
        Payload::of(&told).expect("all keys are strings")
    };
    let text = readable(&captured, secrets);
    if captured.left_out() == 0 && text.len() < INLINE_MAX_BYTES {
        let payload = told(None, None, &text);
        if payload.as_str().len() <= INLINE_MAX_BYTES {
            return blobs.keep(payload);
        }
    }
    let (bytes, lines) = (captured.bytes, captured.lines());
    let counted = |output: &str| told(Some(bytes), Some(lines), output);
    let shown = if captured.left_out() == 0 {
        preview(&counted(&text), SHOWN_MAX_BYTES)
    } else {
        // What of it is missing already has no line numbers.
        let shown = counted(&excerpt(&text, lines));
        cleaned(&shown).unwrap_or(shown)
    };
    drop(text);
    let text = as_printed(&captured, secrets).unwrap_or_else(|| readable(&captured, secrets));
    drop(captured);
    blobs.apart(counted(&text), shown)
}

/// What goes to the blob store, escape sequences and all. None where that is not safe, or a flood of them.
fn as_printed(captured: &Captured, secrets: &Secrets) -> Option<String> {
    // in JSON a control character takes six bytes
    let is_fit = |text: &String| text.bytes().filter(|byte| *byte < b' ').count() * 6 <= KEPT_MAX_BYTES;
    unrendered(captured, secrets).filter(is_fit)
}

/// The names of signals 1 to 31 on Linux (signal(7)).
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

fn signal_name(signal: i32) -> String {
    let name = usize::try_from(signal).ok().and_then(|signal| SIGNALS.get(signal.checked_sub(1)?));
    name.map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(args: Value) -> Result<Call, ToolError> {
        let arguments = Arguments::deserialize(&args).unwrap();
        assert_eq!(check(&args).err(), Call::of(Arguments::deserialize(&args).unwrap()).err());
        Call::of(arguments)
    }

    #[test]
    fn spans_as_models_write_them() {
        for (written, seconds) in [
            (json!("30s"), 30.0),
            (json!("1m30s"), 90.0),
            (json!("500ms"), 0.5),
            (json!("45"), 45.0),
            (json!(45), 45.0),
            (json!(0.5), 0.5),
            (json!("10m"), 600.0),
            (json!(600), 600.0),
        ] {
            let call = call(json!({ "command": "true", "timeout": written })).unwrap();
            assert_eq!(call.timeout, Duration::from_secs_f64(seconds), "{written}");
        }
        assert_eq!(call(json!({ "command": "true" })).unwrap().timeout, TIMEOUT);
        for (written, why) in [
            (json!(0), "no time"),
            (json!("0s"), "no time"),
            (json!(-1), "no span"),
            (json!("-5"), "no span"),
            (json!("soon"), "no span"),
            (json!("NaN"), "no span"),
            (json!(""), "no span"),
            (json!(120_000), "longer"),
            (json!("601s"), "longer"),
            (json!(1e300), "no span"),
        ] {
            let error = call(json!({ "command": "true", "timeout": written })).unwrap_err();
            assert!(error.message.contains(why) && error.hint.unwrap().contains("600"), "{written}: {}", error.message);
            assert_eq!(error.field.as_deref(), Some("/timeout"));
        }
    }

    #[test]
    fn commands_that_cannot_be_run() {
        for (command, why) in
            [("", "empty"), (" \n\t", "empty"), ("echo \0", "NUL"), (&"x".repeat(COMMAND_MAX_BYTES + 1), "bytes long")]
        {
            let error = call(json!({ "command": command })).unwrap_err();
            assert!(error.message.contains(why), "{}", error.message);
            assert_eq!((error.class.as_str(), error.field.as_deref()), (class::INVALID_ARGUMENTS, Some("/command")));
            assert!(error.hint.is_some());
        }
    }

    #[test]
    fn signals_by_name() {
        assert_eq!(
            (signal_name(9), signal_name(15), signal_name(31)),
            ("SIGKILL".into(), "SIGTERM".into(), "SIGSYS".into())
        );
        assert_eq!((signal_name(40), signal_name(0)), ("signal 40".into(), "signal 0".into()));
    }
}
