//! Program files: TOML in, a checked [`Phases`] out. The format itself stays in this module.
//!
//! Read [`find`] first. What is wrong with a program is found when it is loaded: as a graph by core, in its conditions,
//! templates and schemas by the rules, and against the task it is to run in.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longrein_core::children::DEPTH_MAX;
use longrein_core::ids::{CheckName, Digest, PhaseName, ToolName};
use longrein_core::payload::Payload;
use longrein_core::program::Program as Loop;
use longrein_core::program::{
    Agent, Ask, Call, Checks, Child, Each, Form, Join, Kind, Memory, Next, OnFailure, Phase, Phases, Prose, Reply, To,
    check, task_of,
};
use longrein_core::task::{Builtin, CheckSpec, ModelSpec, Task, ToolBody};
use longrein_rules::program::{Known, mistakes};

use super::error::{Place, TaskFileError};
use super::part::{Part, Resolved};
use super::schema::{self, Schemas};
use super::section::Section;
use super::{CHECK_TIMEOUT, Options, tool};

type Result<T, E = TaskFileError> = std::result::Result<T, E>;

/// Programs that are part of the binary, by name; each is a file anyone can copy.
pub const SHIPPED: [(&str, &str); 4] = [
    ("react", include_str!("../../../../programs/react.toml")),
    ("direct", include_str!("../../../../programs/direct.toml")),
    ("plan", include_str!("../../../../programs/plan.toml")),
    ("reflexion", include_str!("../../../../programs/reflexion.toml")),
];

/// A program as it was read, with where each part of it stands.
#[derive(Debug)]
pub struct Program {
    /// Sound as far as it can be told without a task.
    pub phases: Phases,
    places: Places,
    /// What child runs are to follow, by phase; none of the plain loop.
    below: BTreeMap<String, Program>,
    /// Task files for child runs, by phase.
    parts: BTreeMap<String, Part>,
}

/// Where the parts of a program stand.
#[derive(Debug)]
struct Places {
    top: BTreeMap<&'static str, Place>,
    phases: Vec<(String, BTreeMap<&'static str, Place>)>,
}

impl Places {
    fn of_top(&self, key: &'static str) -> Place {
        self.top.get(key).or_else(|| self.top.get("")).cloned().unwrap_or(Place::Flag("the program".to_owned()))
    }

    /// Of a key of a phase; of the last phase of that name, so that the second of two is named.
    fn of(&self, phase: &str, key: &'static str) -> Place {
        let found = self.phases.iter().rev().find(|(name, _)| name == phase);
        found.and_then(|(_, keys)| keys.get(key)).cloned().unwrap_or_else(|| self.of_top(""))
    }
}

/// The program that is named so: one of the shipped ones, or a file relative to `base`.
pub fn find(name: &str, base: &Path, place: &Place) -> Result<Program> {
    find_below(name, base, place, 0, &Cell::new(0))
}

/// `all`: the phases read so far, of the program that was asked for and of those below it.
fn find_below(name: &str, base: &Path, place: &Place, depth: u32, all: &Cell<usize>) -> Result<Program> {
    if depth > DEPTH_MAX {
        let problem = format!("programs start each other more than {DEPTH_MAX} deep; a tree of runs is no deeper");
        return Err(TaskFileError::Task { place: place.clone(), problem });
    }
    if let Some((name, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
        return read_below(&PathBuf::from(format!("programs/{name}.toml")), text, base, depth, all);
    }
    let looks_like_a_file = name.contains('/') || Path::new(name).extension().is_some();
    if !looks_like_a_file {
        let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let problem =
            format!("there is no program \"{name}\"; there are: {}, or write the path of a file", names.join(", "));
        return Err(match place {
            Place::Flag(_) => TaskFileError::Usage { place: place.clone(), problem },
            Place::File(_) | Place::Line { .. } | Place::Key { .. } => {
                TaskFileError::Task { place: place.clone(), problem }
            }
        });
    }
    let file = base.join(name);
    let text = schema::read_text(place, &file, FILE_MAX_BYTES)?;
    let folder = file.parent().map_or_else(|| base.to_owned(), Path::to_owned);
    read_below(Path::new(name), &text, &folder, depth, all)
}

/// Reads a program's text. `folder`: what paths in it are relative to.
pub fn read(file: &Path, text: &str, folder: &Path) -> Result<Program> {
    read_below(file, text, folder, 0, &Cell::new(0))
}

fn read_below(file: &Path, text: &str, folder: &Path, depth: u32, all: &Cell<usize>) -> Result<Program> {
    let (mut top, _) = Section::parse(file, text, &BTreeMap::new())?;
    let schemas = Schemas { folder };
    let keys = ["name", "start", "answer", "phase"];
    let mut places: BTreeMap<&'static str, Place> = keys.iter().map(|key| (*key, top.place(key))).collect();
    places.insert("", Place::File(file.to_owned()));
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let name = top.text("name")?.unwrap_or(stem);
    let description = top.text("description")?.unwrap_or_default();
    let start =
        top.text("start")?.ok_or_else(|| top.wrong("start", "with which phase does it start? start = \"…\""))?;
    let answer = top.text("answer")?.map(PhaseName::new);
    let mut phases = Vec::new();
    let mut of_phases = Vec::new();
    let tables = top.sections("phase")?;
    // Before anything is made of them: what follows compares phases with one another.
    if tables.len() > check::PHASES_MAX {
        return Err(TaskFileError::Task {
            place: places.get("phase").cloned().unwrap_or(Place::File(file.to_owned())),
            problem: check::Fault::TooMany(tables.len()).to_string(),
        });
    }
    // Each phase may name a program, and each of that one: without a bound, a few files make millions of phases.
    all.set(all.get() + tables.len());
    if all.get() > PHASES_TOGETHER_MAX {
        let problem = format!(
            "with the programs that its phases name there are more than {PHASES_TOGETHER_MAX} phases, each counted as often as \
             it is named; let fewer phases name a program"
        );
        return Err(TaskFileError::Task { place: Place::File(file.to_owned()), problem });
    }
    for table in tables {
        let (phase, at) = phase(table, &schemas)?;
        of_phases.push((phase.name.to_string(), at));
        phases.push(phase);
    }
    top.finish()?;
    let phases = Phases { name, description, start: PhaseName::new(start), answer, phases, own_tools: Vec::new() };
    let places = Places { top: places, phases: of_phases };
    let (mut below, mut parts) = (BTreeMap::new(), BTreeMap::new());
    for phase in &phases.phases {
        let Some(child) = phase.kind.child() else { continue };
        let part = match &child.task {
            Some(name) => Some(Part::read(name, folder, places.of(phase.name.as_str(), "task"))?),
            None => None,
        };
        let place = places.of(phase.name.as_str(), "program");
        let of_phase = child.program.as_deref().map(|name| (name, folder, &place));
        let follows = match (of_phase, &part) {
            (Some(named), _) => Some(named).filter(|(name, ..)| *name != Loop::React.name()),
            (None, Some(part)) => part.program(),
            (None, None) => None,
        };
        if let Some((name, base, place)) = follows {
            below.insert(phase.name.to_string(), find_below(name, base, place, depth + 1, all)?);
        }
        parts.extend(part.map(|part| (phase.name.to_string(), part)));
    }
    let program = Program { phases, places, below, parts };
    program.is_sound()?;
    Ok(program)
}

impl Program {
    /// As a graph, and in its rules; without a task.
    fn is_sound(&self) -> Result<()> {
        if let Some(fault) = check::faults(&self.phases).into_iter().next() {
            let place = match fault.phase() {
                Some(phase) => self.places.of(phase.as_str(), fault_key(&fault)),
                None => self.places.of_top(fault_key(&fault)),
            };
            return Err(TaskFileError::Task { place, problem: fault.to_string() });
        }
        self.rules_hold(&Known::default())
    }

    fn rules_hold(&self, known: &Known) -> Result<()> {
        match mistakes(&self.phases, known).into_iter().next() {
            None => Ok(()),
            Some(mistake) => Err(TaskFileError::Task {
                place: self.places.of(&mistake.phase, mistake.key),
                problem: format!("the phase \"{}\": {}", mistake.phase, mistake.problem),
            }),
        }
    }

    /// Fills in what task files for children say, and those of the programs that these follow. Answers what is too large for
    /// an event: to be stored before a run starts.
    pub fn resolve(&mut self, options: &Options, workspace: &Path) -> Result<Vec<(Digest, Payload)>> {
        let mut blobs = Vec::new();
        for phase in &mut self.phases.phases {
            let name = phase.name.to_string();
            if let (Some(child), Some(part)) = (phase.kind.child_mut(), self.parts.get(&name)) {
                let Resolved { task, model, blobs: more } = part.resolve(options, workspace)?;
                let model = model.filter(|_| child.model.is_none());
                let found = child.found.get_or_insert_default();
                (found.task, found.model) = (Some(Box::new(task)), model);
                blobs.extend(more);
            }
            if let Some(program) = self.below.get_mut(&name) {
                blobs.extend(program.resolve(options, workspace)?);
            }
        }
        Ok(blobs)
    }

    /// Whether it can run with this task's tools, facts and checks. Task files for children count once they are resolved.
    pub fn fits(&self, task: &Task) -> Result<()> {
        let facts = task.tools.iter().flat_map(|tool| &tool.provides).map(ToString::to_string).collect();
        let checks = task.acceptance.iter().map(|check| check.name.to_string()).collect();
        self.rules_hold(&Known { facts: Some(facts), checks: Some(checks) })?;
        let tools: Vec<&str> = task.tools.iter().map(|tool| tool.name.as_str()).collect();
        let checks: Vec<&str> = task.acceptance.iter().map(|check| check.name.as_str()).collect();
        for phase in &self.phases.phases {
            let unknown = |key: &'static str, what: &str, name: &str, all: &[&str]| {
                let there =
                    if all.is_empty() { "it has none".to_owned() } else { format!("it has: {}", all.join(", ")) };
                let problem = format!(
                    "the phase \"{}\" names the {what} \"{name}\", which the task does not have; {there}",
                    phase.name
                );
                Err(TaskFileError::Task { place: self.places.of(phase.name.as_str(), key), problem })
            };
            match &phase.kind {
                Kind::Agent(agent) => {
                    let named = agent.tools.iter().flatten().map(ToolName::as_str);
                    if let Some(name) = { named }.find(|name| !tools.contains(name) && !is_of_a_server(name)) {
                        return unknown("tools", "tool", name, &tools);
                    }
                }
                Kind::Call(call) if !tools.contains(&call.tool.as_str()) && !is_of_a_server(call.tool.as_str()) => {
                    return unknown("tool", "tool", call.tool.as_str(), &tools);
                }
                Kind::Checks(wanted) => {
                    let named = wanted.named.iter().map(CheckName::as_str);
                    if let Some(name) = { named }.find(|name| !checks.contains(name)) {
                        return unknown("checks", "acceptance check", name, &checks);
                    }
                    let own = wanted.own.iter().map(|check| check.name.as_str());
                    if let Some(name) = { own }.find(|name| checks.contains(name)) {
                        let problem = format!(
                            "the phase \"{}\" has a check \"{name}\", and the task has one of that name; give it another",
                            phase.name
                        );
                        let place = self.places.of(phase.name.as_str(), "commands");
                        return Err(TaskFileError::Task { place, problem });
                    }
                }
                Kind::Each(Each { child, .. }) | Kind::Run(child) => {
                    let of_child = task_of(task, child, None, None);
                    let program = self.below.get(phase.name.as_str());
                    if let Some(part) = self.parts.get(phase.name.as_str()) {
                        part.fits(task, &of_child, program.map(|program| &program.phases))?;
                    }
                    if let Some(program) = program {
                        program.fits(&of_child)?;
                    }
                }
                Kind::Call(_) | Kind::Reply(_) | Kind::Ask(_) | Kind::Branch => {}
            }
        }
        Ok(())
    }

    /// The file it stands in.
    pub fn place(&self) -> Place {
        self.places.of_top("")
    }

    /// The phases as a task has them: with the tools that only the program needs put beside the task's.
    pub fn install(self, task: &mut Task) -> Phases {
        let (mut phases, mut below) = (self.phases, self.below);
        for phase in &mut phases.phases {
            let program = below.remove(phase.name.as_str());
            if let (Some(child), Some(program)) = (phase.kind.child_mut(), program) {
                let mut of_child = task_of(task, child, None, None);
                let theirs = of_child.tools.len();
                let installed = program.install(&mut of_child);
                let found = child.found.get_or_insert_default();
                found.tools = of_child.tools.split_off(theirs);
                found.program = Some(Loop::Phases(Box::new(installed)));
            }
        }
        let asks = phases.phases.iter().any(|phase| matches!(phase.kind, Kind::Ask(_)));
        let has_ask = task.tools.iter().any(|tool| tool.body == ToolBody::Builtin(Builtin::Ask));
        if asks && !has_ask {
            let spec = longrein_tools::builtin(Builtin::Ask);
            phases.own_tools.push(spec.name.clone());
            task.tools.push(spec);
        }
        phases
    }
}

/// Gives every child that names a model what that name stands for.
pub fn find_models(phases: &mut Phases, find: &impl Fn(&str) -> Result<ModelSpec>) -> Result<()> {
    for child in phases.phases.iter_mut().filter_map(|phase| phase.kind.child_mut()) {
        let model = child.model.as_deref().map(find).transpose()?;
        if model.is_some() {
            child.found.get_or_insert_default().model = model;
        }
        if let Some(Loop::Phases(below)) = child.found.as_mut().and_then(|found| found.program.as_mut()) {
            find_models(below, find)?;
        }
    }
    Ok(())
}

/// What a server offers is known only once it has been started; a name that nobody offers then is refused where it is called.
fn is_of_a_server(name: &str) -> bool {
    name.starts_with(longrein_core::mcp::PREFIX)
}

/// The key a fault of the graph is in.
fn fault_key(fault: &check::Fault) -> &'static str {
    match fault {
        check::Fault::NoPhases | check::Fault::TooMany(_) => "phase",
        check::Fault::NoStart(_) => "start",
        check::Fault::NoAnswer(_) => "answer",
        check::Fault::Twice(_) | check::Fault::Reserved(_) | check::Fault::Unreachable(_) => "name",
        check::Fault::Visits(_) => "visits",
        check::Fault::NoExit(_)
        | check::Fault::Shadowed(_)
        | check::Fault::UnknownTarget { .. }
        | check::Fault::Endless(_)
        | check::Fault::Unbounded(_) => "next",
    }
}

fn phase(mut table: Section, schemas: &Schemas<'_>) -> Result<(Phase, BTreeMap<&'static str, Place>)> {
    let places: BTreeMap<&'static str, Place> = PHASE_KEYS.iter().map(|key| (*key, table.place(key))).collect();
    let name = table.text("name")?.ok_or_else(|| table.wrong("name", "the phase needs a name"))?;
    if !is_phase_name(&name) {
        let problem = format!("\"{name}\" cannot be a phase's name: a letter, then letters, digits and _, 64 at most");
        return Err(table.wrong("name", problem));
    }
    let kind_place = table.place("kind");
    let kind = table.text("kind")?.ok_or_else(|| {
        table.wrong("kind", format!("what is done in the phase \"{name}\"? kind = one of: {}", KINDS.join(", ")))
    })?;
    let kind = match kind.as_str() {
        "agent" => Kind::Agent(agent(&mut table)?),
        "reply" => Kind::Reply(reply(&mut table, schemas, &name)?),
        "call" => Kind::Call(call(&mut table, &name)?),
        "checks" => Kind::Checks(checks(&mut table)?),
        "ask" => Kind::Ask(ask(&mut table, &name)?),
        "branch" => Kind::Branch,
        "each" => Kind::Each(each(&mut table, &name)?),
        "run" => Kind::Run(child(&mut table)?),
        other => {
            let problem =
                format!("the phase \"{name}\": there is no kind \"{other}\"; there are: {}", KINDS.join(", "));
            return Err(TaskFileError::Task { place: kind_place, problem });
        }
    };
    let visits = count(&mut table, "visits")?;
    let memory = match table.section("memory")? {
        Some(mut memory) => {
            let list = memory.text("list")?.ok_or_else(|| memory.wrong("list", "which list is it put on?"))?;
            let text = memory.text("text")?.ok_or_else(|| memory.wrong("text", "what is put on it? A template"))?;
            if !longrein_rules::is_name(&list) {
                return Err(memory.wrong("list", format!("\"{list}\" cannot be a list's name: letters, digits and _")));
            }
            memory.finish()?;
            Some(Memory { list, text })
        }
        None => None,
    };
    let mut next = Vec::new();
    for way in table.sections("next")? {
        next.push(transition(way, &name)?);
    }
    table.finish()?;
    Ok((Phase { name: PhaseName::new(name), kind, visits, memory, next }, places))
}

fn transition(mut way: Section, from: &str) -> Result<Next> {
    let when = way.text("when")?;
    let to =
        way.text("to")?.ok_or_else(|| way.wrong("to", format!("where does the phase \"{from}\" lead? to = \"…\"")))?;
    let reason_place = way.place("reason");
    let reason = way.text("reason")?;
    let to = match (to.as_str(), reason) {
        ("failed", Some(reason)) if !reason.trim().is_empty() => To::Failed(reason),
        ("failed", _) => {
            let problem = format!("why does the phase \"{from}\" fail the run? reason = \"…\", for people");
            return Err(TaskFileError::Task { place: reason_place, problem });
        }
        (_, Some(_)) => {
            let problem = "only the end \"failed\" has a reason; leave it out".to_owned();
            return Err(TaskFileError::Task { place: reason_place, problem });
        }
        ("done", None) => To::Done,
        (name, None) => To::Phase(PhaseName::new(name)),
    };
    way.finish()?;
    Ok(Next { when, to })
}

fn agent(table: &mut Section) -> Result<Agent> {
    Ok(Agent {
        instructions: table.text("instructions")?.unwrap_or_default(),
        tools: table.texts("tools")?.map(|tools| tools.into_iter().map(ToolName::new).collect()),
        turns: count(table, "turns")?,
        prose: match table.truth("prose")? {
            Some(false) => Prose::Dropped,
            Some(true) | None => Prose::Kept,
        },
    })
}

fn reply(table: &mut Section, schemas: &Schemas<'_>, name: &str) -> Result<Reply> {
    let instructions = table.text("instructions")?.unwrap_or_default();
    let place = table.place("schema");
    let Some(node) = table.node("schema") else {
        let problem = format!("what must the reply of the phase \"{name}\" be? schema = a JSON Schema, or a file");
        return Err(TaskFileError::Task { place, problem });
    };
    let schema = schemas.read(table, "schema", node)?;
    Ok(Reply { instructions, schema: schema::canonical(&schema) })
}

fn call(table: &mut Section, name: &str) -> Result<Call> {
    let tool = table
        .text("tool")?
        .ok_or_else(|| table.wrong("tool", format!("which tool does the phase \"{name}\" call? tool = \"…\"")))?;
    let args = match table.node("args") {
        Some(node) => tool::object(table, "args", node)?,
        None => Payload::parse("{}").expect("an empty object is JSON"),
    };
    Ok(Call { tool: ToolName::new(tool), args })
}

fn checks(table: &mut Section) -> Result<Checks> {
    let named = table.texts("checks")?.unwrap_or_default().into_iter().map(CheckName::new).collect();
    let mut own: Vec<CheckSpec> = Vec::new();
    for mut command in table.sections("commands")? {
        let words = tool::command(&mut command)?;
        let name = command.text("name")?.filter(|name| !name.is_empty()).unwrap_or_else(|| words.join(" "));
        if own.iter().any(|check| check.name.as_str() == name) {
            return Err(command.wrong("name", format!("a second check named \"{name}\"; give it another name")));
        }
        let timeout = tool::positive_span(&mut command, "timeout", CHECK_TIMEOUT)?;
        own.push(CheckSpec { name: CheckName::new(name), command: words, timeout, protect: Vec::new(), by: None });
        command.finish()?;
    }
    Ok(Checks { named, own })
}

fn ask(table: &mut Section, name: &str) -> Result<Ask> {
    let question = table
        .text("question")?
        .filter(|question| !question.trim().is_empty())
        .ok_or_else(|| table.wrong("question", format!("what does the phase \"{name}\" ask? question = \"…\"")))?;
    let form = tool::one_of(table, "answer", &[("words", Form::Words), ("yes_no", Form::YesNo)])?.unwrap_or_default();
    Ok(Ask { tool: ToolName::new(Builtin::Ask.as_str()), question, form })
}

fn each(table: &mut Section, name: &str) -> Result<Each> {
    let over = table.text("over")?.ok_or_else(|| {
        table.wrong("over", format!("over which list does the phase \"{name}\" go? over = \"{{{{ … }}}}\""))
    })?;
    Ok(Each {
        over,
        parallel: count(table, "parallel")?.unwrap_or(PARALLEL),
        join: tool::one_of(table, "join", &[("all", Join::All), ("any", Join::Any)])?.unwrap_or_default(),
        on_failure: tool::one_of(table, "on_failure", &[("stop", OnFailure::Stop), ("go_on", OnFailure::GoOn)])?
            .unwrap_or_default(),
        child: child(table)?,
    })
}

fn child(table: &mut Section) -> Result<Child> {
    Ok(Child {
        goal: table.text("goal")?,
        task: table.text("task")?,
        program: table.text("program")?,
        model: table.text("model")?,
        turns: count(table, "turns")?,
        found: None,
    })
}

/// A number of at least one.
fn count(table: &mut Section, key: &'static str) -> Result<Option<u32>> {
    let place = table.place(key);
    let Some(number) = table.whole(key)? else { return Ok(None) };
    match u32::try_from(number) {
        Ok(number) if number > 0 => Ok(Some(number)),
        Ok(_) | Err(_) => Err(TaskFileError::Task {
            place,
            problem: format!("{number} is no count; write 1 or more, or leave it out"),
        }),
    }
}

/// Conditions name phases: `outputs.plan`.
fn is_phase_name(name: &str) -> bool {
    name.len() <= 64 && longrein_rules::is_name(name)
}

const KINDS: [&str; 8] = ["agent", "reply", "call", "checks", "ask", "branch", "each", "run"];
/// Keys whose places are needed after they are read.
const PHASE_KEYS: [&str; 17] = [
    "name",
    "kind",
    "visits",
    "memory",
    "next",
    "instructions",
    "schema",
    "tools",
    "tool",
    "args",
    "checks",
    "commands",
    "question",
    "over",
    "task",
    "program",
    "model",
];
/// Children driven at the same time where nothing is said.
const PARALLEL: u32 = 4;
const FILE_MAX_BYTES: u64 = 1024 * 1024;
/// Phases of a program and of all below it: all of them stand in the start of a run.
const PHASES_TOGETHER_MAX: usize = 1024;
