//! The task: what is asked, resolved (defaults and variables filled in) and immutable once the run has started.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::budget::{Limits, Price};
use crate::context::settings::ContextSpec;
use crate::hook::HookSpec;
use crate::ids::{CheckName, Digest, FactName, ModelName, ToolName};
use crate::image::ImageRef;
use crate::mcp::{McpServer, McpTool};
use crate::payload::{Content, Payload};
use crate::program::{Kind, Program};
use crate::route::Route;

/// Everything a run is to do, as it stands in `run.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub goal: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    pub program: Program,
    pub model: ModelSpec,
    /// Absolute path of the folder the run works in.
    pub workspace: String,
    /// Absolute path of the folder relative commands run in: the task file's, else the workspace.
    pub folder: String,
    /// Who this is for: a JSON object given by the operator, never by the model.
    pub principal: Payload,
    pub limits: Limits,
    /// Captured by content at the start; tools get them on stdin.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, Content>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<CheckSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerSpec>,
    #[serde(default)]
    pub policy: PolicyRules,
    #[serde(default, skip_serializing_if = "Mode::is_ask")]
    pub permission_mode: Mode,
    /// Commands that are told of what the run does, and may say no: those in force for the whole of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookSpec>,
    /// Files of the workspace that say how to work in their folder, captured by content at the start; from the root down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleFile>,
    #[serde(default, skip_serializing_if = "ContextSpec::is_default")]
    pub context: ContextSpec,
    /// Other models, in the order in which they are considered: see [`crate::route`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Where each value that was not left at its default came from: `budget.turns` → `--max-turns`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
    /// Servers of somebody else's whose tools are offered, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub servers: BTreeMap<String, McpServer>,
    /// Whether the workspace is kept as it was before each step that may change it.
    #[serde(default, skip_serializing_if = "Snapshots::is_auto")]
    pub snapshots: Snapshots,
    /// Where in the goal begins what was piped in beside what a person typed, in bytes. None: nothing is known to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub piped_from: Option<u64>,
    /// How long a question waits for a person before nobody's silence counts as no answer (`semantics.md` E4). None: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub questions_expire_ms: Option<u64>,
    /// What a person shows with the goal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// Digests of what surrounds the task: tool programs, checks, the script. Paths or names → content.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pins: BTreeMap<String, Digest>,
}

impl Task {
    pub fn tool(&self, name: &ToolName) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| &tool.name == name)
    }

    /// The goal as far as a person is known to have typed it. Journals that do not say where that ends have a heading there.
    pub fn typed_goal(&self) -> &str {
        match self.piped_from {
            Some(at) => usize::try_from(at).ok().and_then(|at| self.goal.get(..at)).unwrap_or_default(),
            None => self.goal.split(PIPED).next().unwrap_or_default(),
        }
    }

    /// The task with everything in its place that an older journal has elsewhere.
    #[must_use]
    pub fn lifted(mut self) -> Self {
        for tool in &mut self.tools {
            if tool.check.is_empty() {
                tool.check = std::mem::take(&mut tool.declared.check);
            }
            let compensate = std::mem::take(&mut tool.declared.compensate);
            if tool.compensate.is_none() && !compensate.is_empty() {
                tool.compensate = Some(ToolName::new(compensate));
            }
        }
        self
    }

    /// Acceptance checks, and those that phases of its program run.
    pub fn every_check(&self) -> impl Iterator<Item = &CheckSpec> {
        let phases = self.program.phases().into_iter().flat_map(|program| &program.phases);
        let own = phases.flat_map(|phase| match &phase.kind {
            Kind::Checks(checks) => checks.own.as_slice(),
            Kind::Agent(_)
            | Kind::Reply(_)
            | Kind::Call(_)
            | Kind::Ask(_)
            | Kind::Branch
            | Kind::Each(_)
            | Kind::Run(_) => &[],
        });
        self.acceptance.iter().chain(own)
    }

    /// The parts in which `other` asks for something else (`semantics.md` B5). Surroundings (policy, pins) do not count, and
    /// where this one has the mark of a secret, the other may have the secret.
    pub fn differences(&self, other: &Task) -> Vec<&'static str> {
        let mut named = Vec::new();
        let mut note = |differs: bool, name: &'static str| {
            if differs {
                named.push(name);
            }
        };
        note(!is_kept_of(&self.goal, &other.goal), "goal");
        let shown = |task: &Task| -> Vec<Digest> { task.images.iter().map(|image| image.digest.clone()).collect() };
        note(shown(self) != shown(other), "images");
        note(!is_kept_of(&self.instructions, &other.instructions), "instructions");
        note(!is_kept_of(&self.constraints, &other.constraints), "constraints");
        note(!is_kept_of(&self.program, &other.program), "program");
        note(self.model.name != other.model.name, "model");
        note(self.workspace != other.workspace, "workspace");
        note(self.principal != other.principal, "principal");
        note(self.limits != other.limits, "budget");
        // what servers offer is only known once they have been asked
        let own = |task: &Task| -> Vec<ToolSpec> {
            task.tools.iter().filter(|tool| !matches!(tool.body, ToolBody::Mcp(_))).cloned().collect()
        };
        note(!is_kept_of(&own(self), &own(other)), "tools");
        note(self.servers != other.servers, "servers");
        note(!is_kept_of(&self.acceptance, &other.acceptance), "acceptance");
        note(!is_kept_of(&self.answer, &other.answer), "answer");
        note(!self.inputs.keys().eq(other.inputs.keys()), "inputs");
        named
    }
}

/// How the mark begins that stands in place of a secret.
const MARK: &str = "[redacted:";

/// Whether `kept` is what the journal has of `given`: the same, but for marks in place of secrets.
fn is_kept_of<T: PartialEq + Serialize>(kept: &T, given: &T) -> bool {
    if kept == given {
        return true;
    }
    let text = |of: &T| serde_json::to_string(of).expect("a part of a task can be written down");
    let (kept, given) = (text(kept), text(given));
    let mut pieces = kept.split(MARK);
    let first = pieces.next().unwrap_or_default();
    let mut pieces: Vec<&str> = pieces.map(|piece| piece.split_once(']').map_or(piece, |(_, after)| after)).collect();
    let Some(last) = pieces.pop() else { return false };
    let Some(rest) = given.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
    let found = pieces.into_iter().try_fold(rest, |rest, piece| rest.find(piece).map(|at| &rest[at + piece.len()..]));
    found.is_some()
}

/// Whether tree snapshots are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Snapshots {
    /// Where the workspace can be kept.
    #[default]
    Auto,
    Off,
}

impl Snapshots {
    fn is_auto(&self) -> bool {
        *self == Snapshots::Auto
    }
}

/// Stands between a goal and what was piped in beside it: that nobody has typed.
pub const PIPED: &str = "\n\nContext:\n";

/// How much a run may do without a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Reads only; everything else is denied.
    Plan,
    /// Reads inside the workspace; everything else is asked unless a rule allows it.
    #[default]
    Ask,
    /// As `Ask`, and ordinary files of the workspace may be written.
    AcceptEdits,
    /// Whatever the sandbox contains; the rest is asked.
    Auto,
    /// Reads are run; of every other call it is recorded what it would have done.
    Shadow,
}

impl Mode {
    pub const ALL: [Mode; 5] = [Mode::Plan, Mode::Ask, Mode::AcceptEdits, Mode::Auto, Mode::Shadow];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Plan => "plan",
            Mode::Ask => "ask",
            Mode::AcceptEdits => "accept-edits",
            Mode::Auto => "auto",
            Mode::Shadow => "shadow",
        }
    }

    /// The mode that is written so.
    pub fn from_name(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// What becomes of a run of this mode that is to go on in another one.
    pub fn change(self, to: Mode) -> ModeChange {
        match (self.freedom(), to.freedom()) {
            _ if self == to => ModeChange::None,
            (Some(from), Some(to)) if to < from => ModeChange::Tightens,
            (Some(_), Some(_)) => ModeChange::Loosens,
            (None, _) | (_, None) => ModeChange::Refused,
        }
    }

    /// The stricter of two. What cannot be compared stays as it is.
    #[must_use]
    pub fn tightened(self, to: Mode) -> Mode {
        match self.change(to) {
            ModeChange::Tightens => to,
            ModeChange::None | ModeChange::Loosens | ModeChange::Refused => self,
        }
    }

    /// From strict to free. None: a shadow run is of another kind; nothing of it happened.
    fn freedom(self) -> Option<u8> {
        match self {
            Mode::Plan => Some(0),
            Mode::Ask => Some(1),
            Mode::AcceptEdits => Some(2),
            Mode::Auto => Some(3),
            Mode::Shadow => None,
        }
    }

    fn is_ask(&self) -> bool {
        *self == Mode::Ask
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What another permission mode would be for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeChange {
    /// It is the same.
    None,
    /// It counts at once.
    Tightens,
    /// It is the operator's act.
    Loosens,
    /// A shadow run stays one, and no other run becomes one.
    Refused,
}

/// A file such as `AGENTS.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFile {
    /// Relative to the workspace, with slashes.
    pub path: String,
    pub text: String,
    /// Of the file's bytes.
    pub digest: Digest,
}

/// Which model answers, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSpec {
    pub name: ModelName,
    /// The most tokens a reply may have, reasoning included.
    pub max_output: u64,
    /// None: unpriced. A run with a usd limit needs a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// None: the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "temperature_milli")]
    pub temperature: Option<Temperature>,
    /// The most tokens of a request and its reply together. None: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Protocol::is_native")]
    pub protocol: Protocol,
    /// Whether it is sent images. None: it is, where its wire has a place for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
}

impl ModelSpec {
    /// A model of which nothing is known but how much it may say.
    pub fn plain(name: ModelName, max_output: u64) -> Self {
        let protocol = Protocol::Native;
        Self { name, max_output, price: None, temperature: None, context_limit: None, protocol, images: None }
    }

    /// Whether images are sent to it as such. A script reads text, and so does the JSON action protocol.
    pub fn takes_images(&self) -> bool {
        let has_place = match self.protocol {
            Protocol::Native => !self.name.as_str().starts_with("script/"),
            Protocol::Json => false,
        };
        has_place && self.images.unwrap_or(true)
    }
}

/// How a model is told of tools, and calls them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// As its provider spells tools and calls.
    #[default]
    Native,
    /// By the JSON action protocol: each reply is one JSON object, for models that know no tools.
    Json,
}

impl Protocol {
    fn is_native(&self) -> bool {
        *self == Protocol::Native
    }
}

/// A sampling temperature, in thousandths: whole numbers, so that a request has the same bytes after a resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Temperature(u32);

impl Temperature {
    /// The hottest that is taken for meant; servers take 1 or 2 at most.
    pub const MAX: f64 = 10.0;

    /// None: no number from 0 to [`Temperature::MAX`] of at most three decimals.
    pub fn of(number: f64) -> Option<Self> {
        let thousandths = number * 1000.0;
        // Decimals such as 0.7 are not exact in binary.
        let is_whole = (thousandths - thousandths.round()).abs() < 1e-6;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
        ((0.0..=Self::MAX).contains(&number) && is_whole).then(|| Self(thousandths.round() as u32))
    }

    /// As a provider takes it.
    pub fn number(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing.
    Read,
    /// Changes files that can be rolled back.
    Workspace,
    /// Changes the world.
    External,
}

impl fmt::Display for EffectClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EffectClass::Read => "read",
            EffectClass::Workspace => "workspace",
            EffectClass::External => "external",
        })
    }
}

/// How long what a tool provided holds (`semantics.md` G1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// Until something is written.
    UntilWrite,
    /// For the rest of the run.
    Run,
}

/// Where a key is unique (`semantics.md` D6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyScope {
    /// In the root run, its children and forks.
    Run,
    /// In the whole store.
    Store,
}

/// What follows when an outcome stays unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// Wait for a person to settle it.
    Wait,
    /// Tell the model and go on.
    Tell,
}

/// Whether calls of one tool may overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    Parallel,
    OneAtATime,
}

/// What carries a tool out. In a task's JSON it is one key of the tool: `command`, `builtin` or `host`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolBody {
    /// A program, with its arguments.
    Command(Vec<String>),
    Builtin(Builtin),
    /// A function of the program that embeds Longrein. The text is its version, as that program names it: another one is
    /// another tool.
    Host(String),
    /// A tool of a server of somebody else's.
    Mcp(McpTool),
}

impl ToolBody {
    /// The words of a command; of anything else, none.
    pub fn command(&self) -> &[String] {
        match self {
            ToolBody::Command(words) => words,
            ToolBody::Builtin(_) | ToolBody::Host(_) | ToolBody::Mcp(_) => &[],
        }
    }
}

/// The built-in tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Builtin {
    ReadFile,
    WriteFile,
    EditFile,
    ListFiles,
    SearchFiles,
    Shell,
    /// Asks a person.
    Ask,
    /// Reads back what has left the window.
    Recall,
    /// Writes something down for the rest of the run.
    Note,
    WebFetch,
}

impl Builtin {
    pub const ALL: [Builtin; 10] = [
        Builtin::ReadFile,
        Builtin::WriteFile,
        Builtin::EditFile,
        Builtin::ListFiles,
        Builtin::SearchFiles,
        Builtin::Shell,
        Builtin::Ask,
        Builtin::Recall,
        Builtin::Note,
        Builtin::WebFetch,
    ];

    /// The name it has as a tool.
    pub fn as_str(self) -> &'static str {
        match self {
            Builtin::ReadFile => "read_file",
            Builtin::WriteFile => "write_file",
            Builtin::EditFile => "edit_file",
            Builtin::ListFiles => "list_files",
            Builtin::SearchFiles => "search_files",
            Builtin::Shell => "shell",
            Builtin::Ask => "ask",
            Builtin::Recall => "recall",
            Builtin::Note => "note",
            Builtin::WebFetch => "web_fetch",
        }
    }
}

/// A declared tool. Every key of `[[tools]]`, with its default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: ToolName,
    pub description: String,
    /// JSON Schema of the arguments. A property may carry `evidence = "tool"`.
    pub parameters: Payload,
    #[serde(flatten)]
    pub body: ToolBody,
    pub effect: EffectClass,
    #[serde(rename = "timeout_ms", with = "duration_ms")]
    pub timeout: Duration,
    pub overlap: Overlap,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ToolName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<FactName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provides: Vec<FactName>,
    pub holds: Holds,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeySpec>,
    /// How long the receiver honours an idempotency key, from the first start. None: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "idempotent_ms", with = "option_duration_ms")]
    pub idempotent: Option<Duration>,
    /// A command that tells whether a call took effect; empty: there is none. Of a tool that is a function of the embedding
    /// program, one word: the version of the function that tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reconcile: Vec<String>,
    #[serde(rename = "settle_after_ms", with = "duration_ms")]
    pub settle_after: Duration,
    pub on_unknown: OnUnknown,
    #[serde(default)]
    pub cost_micros: u64,
    /// Variables the program gets, by name. `${secret:X}` is a reference, never the value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Paths it reads and writes; None: undeclared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Vec<String>>,
    /// A command that is run after each call that is done, before anything builds on it; empty: there is none. Whatever
    /// does not pass is undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check: Vec<String>,
    /// External: the tool that undoes a call whose check failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<ToolName>,
    #[serde(default, skip_serializing_if = "Declared::is_empty")]
    pub declared: Declared,
}

impl ToolSpec {
    /// How long a call may take unless its tool says otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(30);
    /// How long after death an attempt may still land unless its tool says otherwise (`semantics.md` C3).
    pub const SETTLE_AFTER: Duration = Duration::from_secs(2);

    /// A tool with everything at the default of its class: no description, and any object for arguments.
    pub fn new(name: ToolName, body: ToolBody, effect: EffectClass) -> Self {
        Self {
            name,
            description: String::new(),
            parameters: Payload::parse(r#"{"type":"object"}"#).expect("this is JSON"),
            body,
            effect,
            timeout: Self::TIMEOUT,
            overlap: match effect {
                EffectClass::Read => Overlap::Parallel,
                EffectClass::Workspace | EffectClass::External => Overlap::OneAtATime,
            },
            depends_on: Vec::new(),
            requires: Vec::new(),
            provides: Vec::new(),
            holds: match effect {
                EffectClass::Read => Holds::UntilWrite,
                EffectClass::Workspace | EffectClass::External => Holds::Run,
            },
            max_calls: None,
            guard: None,
            key: None,
            idempotent: None,
            reconcile: Vec::new(),
            settle_after: Self::SETTLE_AFTER,
            on_unknown: OnUnknown::Wait,
            cost_micros: 0,
            env: Vec::new(),
            reads: None,
            writes: None,
            check: Vec::new(),
            compensate: None,
            declared: Declared::default(),
        }
    }
}

/// Keys of `[[tools]]` beside the usual. Not all of them do something yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// A read whose answer to the same arguments is the same until something is written: it is given again, not run again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cache: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// Where journals of 0.1.0 have [`ToolSpec::compensate`]: read only there, and only by [`Task::lifted`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compensate: String,
    /// The same of [`ToolSpec::check`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
}

impl Declared {
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// A CEL condition over `args`, `facts`, `ev`, `principal` that must hold before the tool runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    pub condition: String,
    /// What the model is told when it does not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Which arguments name the business intent, and where they are unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySpec {
    pub args: Vec<String>,
    pub scope: KeyScope,
}

/// An acceptance check: by default a command run in the workspace; exit 0 passes and its output is the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckSpec {
    pub name: CheckName,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What judges instead of a command. None: the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<CheckBy>,
    #[serde(rename = "timeout_ms", with = "duration_ms")]
    pub timeout: Duration,
    /// Paths the run may not change without it being said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
}

/// What judges the work where it is no command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckBy {
    /// A CEL condition over `answer`, `ev` (the newest live evidence of each tool, by the tool's name), `facts`, `principal`.
    Rule(String),
    /// A JSON Schema that the answer must fit.
    Schema(Payload),
    /// A function of the program that embeds Longrein; the text is its version, as that program names it.
    Host(String),
    /// A model's opinion, which is no proof.
    Judge(JudgeSpec),
}

/// By what a model judges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeSpec {
    /// What good means, in words.
    pub means: String,
    /// None: the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<ModelSpec>>,
}

impl CheckSpec {
    /// What it judges by, in one line.
    pub fn what(&self) -> String {
        match &self.by {
            None => self.command.join(" "),
            Some(CheckBy::Rule(rule)) => format!("the rule {}", rule.split_whitespace().collect::<Vec<_>>().join(" ")),
            Some(CheckBy::Schema(_)) => "the answer must fit a schema".to_owned(),
            Some(CheckBy::Host(_)) => "a check of the program that runs this".to_owned(),
            Some(CheckBy::Judge(judge)) => {
                let by = judge.model.as_ref().map_or("the run's model", |model| model.name.as_str());
                let means = judge.means.split_whitespace().collect::<Vec<_>>().join(" ");
                format!("the opinion of {by}: {}", crate::payload::excerpt(&means, 300))
            }
        }
    }
}

/// What the final answer must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Payload>,
    /// Name in the check and the template → which field of the answer cites which tool's evidence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub evidence: BTreeMap<String, Binding>,
    /// CEL over `answer`, and each bound name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Where its numbers must come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Numbers>,
}

impl AnswerSpec {
    /// One JSON value of this schema, and nothing more.
    pub fn of_schema(schema: Payload) -> Self {
        Self { schema: Some(schema), evidence: BTreeMap::new(), check: None, template: None, numbers: None }
    }
}

/// Where the numbers of an answer must come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// Each occurs in live evidence, or is one that does, rounded to the decimals shown.
    Evidence,
}

/// A field of the answer that must hold the id of a live, successful evidence of this tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    pub field: String,
    pub tool: ToolName,
}

/// Permission rules as written. Deny beats ask beats allow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRules {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// Durations as whole milliseconds.
pub(crate) mod duration_ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(crate::time::millis(*span))
    }
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// Durations that may be absent, as whole milliseconds.
pub(crate) mod option_duration_ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        span.map(crate::time::millis).serialize(serializer)
    }
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}
