//! A program's values: conditions are evaluated here and templates filled in, over what the run holds; core is handed what
//! came of it (`semantics.md` I2). Nothing is decided here.

use std::collections::BTreeMap;

use longrein_core::check::{Finding, Judgement};
use longrein_core::decide::{Command, Entry, Found, Transit, request_children};
use longrein_core::ids::{CheckName, PhaseName};
use longrein_core::outcome::RawCall;
use longrein_core::payload::{Content, INLINE_MAX_BYTES, Payload, place};
use longrein_core::program::children::{self, Askable, WIDTH_MAX, Wanted};
use longrein_core::program::{
    At, Call, Course, Form, Kind, Outcome, Phase, Phases, Prose, STRUCTURED_ANSWER, To, yes_or_no,
};
use longrein_core::run::Run;
use longrein_core::task::AnswerSpec;
use serde::Serialize;

use crate::claimed::Drive;
use crate::drive::DriveError;
use crate::edge;
use crate::steps::Look;

/// Values by name, as conditions and templates see them.
type Values = BTreeMap<String, Payload>;

impl Drive<'_> {
    /// Finds out where the present phase leads.
    pub(crate) async fn transit(&mut self, step: u32) -> Result<bool, DriveError> {
        let Some((course, program)) = self.run.course.clone().zip(self.run.phases().cloned()) else {
            return Ok(false);
        };
        match &course.at {
            At::Over(outcome) => match program.phase(&course.phase) {
                Some(phase) => self.lead(step, &course, &program, Some((phase, outcome)), None).await,
                None => Ok(false),
            },
            At::Start
            | At::Working { .. }
            | At::Proposing
            | At::Calling { .. }
            | At::Checking { .. }
            | At::Children { .. }
            | At::Failed { .. }
            | At::Finished => self.lead(step, &course, &program, None, None).await,
        }
    }

    /// Finds out where a phase leads that has come to this; none was entered yet: where the program begins. `childless`: it
    /// came to it now, by asking for no children.
    async fn lead(
        &mut self,
        step: u32,
        course: &Course,
        program: &Phases,
        left: Option<(&Phase, &Outcome)>,
        childless: Option<bool>,
    ) -> Result<bool, DriveError> {
        let output = match left {
            Some((phase, outcome)) => self.output(phase, outcome).await?,
            None => Ok(Payload::null()),
        };
        let output = match output {
            Ok(output) => output,
            Err(reason) => {
                let refused = Transit {
                    step,
                    found: Vec::new(),
                    output: Err(reason),
                    childless: None,
                    judgement: None,
                    entry: Ok(Entry::default()),
                };
                return Ok(self.command(Command::Transit(Box::new(refused))));
            }
        };
        let mut values = self.values(left.map(|(phase, outcome)| (phase, outcome.ok, &output))).await?;
        let (found, to) = match left {
            None => (Vec::new(), Some(To::Phase(program.start.clone()))),
            Some((phase, _)) => self.choose(phase, &values),
        };
        let entry = self.entry(left.map(|(phase, _)| phase), to.as_ref(), &mut values);
        let judgement = match to {
            Some(To::Done) => Some(self.judge(course, left.map(|(phase, _)| (&phase.name, &output))).await?),
            Some(To::Phase(_) | To::Failed(_)) | None => None,
        };
        let kept = match left {
            // What is in the journal already, as it is, need not stand there twice.
            Some((phase, outcome))
                if childless.is_some() || phase.kind != Kind::Branch && is_news(&outcome.output, &output) =>
            {
                let (content, blob) = place(output);
                let blob = blob.map(|(digest, payload)| (digest, bytes::Bytes::from(payload.as_str().to_owned())));
                self.keep_blobs(blob.into_iter().collect());
                Some(content)
            }
            Some(_) | None => None,
        };
        let transit = Transit { step, found, output: Ok(kept), childless, judgement, entry };
        Ok(self.command(Command::Transit(Box::new(transit))))
    }

    /// What a phase leaves; or why the model's reply is not what it wants.
    async fn output(&self, phase: &Phase, outcome: &Outcome) -> Result<Result<Payload, String>, DriveError> {
        let output = self.load(&outcome.output).await?;
        let judged = |spec: &AnswerSpec| {
            let text = text_of(&output);
            match self.ports.checks.judge(Some(spec), &text, &BTreeMap::new()) {
                Judgement::Accepted(accepted) => Ok(accepted.answer),
                Judgement::Refused(reason) => Err(reason),
            }
        };
        Ok(match &phase.kind {
            Kind::Reply(reply) if outcome.ok => judged(&AnswerSpec::of_schema(reply.schema.clone())),
            Kind::Agent(agent) if outcome.ok && agent.prose == Prose::Dropped && self.run.task.answer.is_none() => {
                let spec = AnswerSpec::of_schema(Payload::parse(STRUCTURED_ANSWER).expect("this is JSON"));
                judged(&spec).map_err(|reason| format!("{NO_PROSE} {reason}"))
            }
            Kind::Ask(ask) if outcome.ok && ask.form == Form::YesNo => {
                let yes = yes_or_no(&text_of(&output)).unwrap_or(false);
                Ok(Payload::of(&yes).expect("a truth value serialises"))
            }
            Kind::Agent(_)
            | Kind::Reply(_)
            | Kind::Call(_)
            | Kind::Checks(_)
            | Kind::Ask(_)
            | Kind::Branch
            | Kind::Each(_)
            | Kind::Run(_) => Ok(output),
        })
    }

    /// The conditions of a phase up to the first that holds, and where it leads by them. None: one gives no verdict.
    fn choose(&self, phase: &Phase, values: &Values) -> (Vec<Found>, Option<To>) {
        let mut found = Vec::new();
        for next in &phase.next {
            let Some(when) = &next.when else { return (found, Some(next.to.clone())) };
            match self.ports.checks.condition(when, values) {
                Ok(true) => {
                    found.push(Found::Holds);
                    return (found, Some(next.to.clone()));
                }
                Ok(false) => found.push(Found::HoldsNot),
                Err(problem) => {
                    found.push(Found::Fails(problem));
                    return (found, None);
                }
            }
        }
        (found, None)
    }

    /// What goes along into the next phase.
    fn entry(&self, left: Option<&Phase>, to: Option<&To>, values: &mut Values) -> Result<Entry, String> {
        let mut entry = Entry::default();
        if let Some((phase, memory)) = left.and_then(|phase| Some((phase, phase.memory.as_ref()?))) {
            let filled = self.ports.checks.fill(&Payload::string(&memory.text), values);
            let filled = filled.map_err(|problem| format!("the lesson of the phase {}: {problem}", phase.name))?;
            // Nothing is no lesson.
            entry.lesson = if filled == Payload::null() { String::new() } else { text_of(&filled) };
            // The next phase is told of it in its first words.
            if let Some(course) = self.run.course.as_ref().filter(|_| !entry.lesson.trim().is_empty()) {
                let mut course = course.clone();
                course.learn(&memory.list, &entry.lesson);
                values.insert("lessons".to_owned(), payload(&course.lessons));
            }
        }
        let Some(To::Phase(name)) = to else { return Ok(entry) };
        let Some(phase) = self.run.phases().and_then(|program| program.phase(name)) else { return Ok(entry) };
        let Some(instructions) = phase.kind.instructions().filter(|words| !words.is_empty()) else {
            return Ok(entry);
        };
        // As they will be once it is entered.
        values.insert("visits".to_owned(), visits(&self.run, Some(name)));
        values.insert("since".to_owned(), since(&self.run, Some(name)));
        let filled = self.ports.checks.fill(&Payload::string(instructions), values);
        let filled = filled.map_err(|problem| format!("the instructions of the phase {name}: {problem}"))?;
        entry.words = text_of(&filled);
        Ok(entry)
    }

    /// Judges the answer of a program that is through. `left`: the phase that leads to its end, and what that leaves.
    async fn judge(&self, course: &Course, left: Option<(&PhaseName, &Payload)>) -> Result<Judgement, DriveError> {
        let Some(program) = self.run.phases() else {
            return Ok(Judgement::Refused("there is no program".to_owned()));
        };
        let answers = course.answers(program);
        let output = match (&answers, left) {
            (Some(name), Some((present, output))) if name == present => output.clone(),
            (Some(name), _) => match course.outputs.get(name) {
                Some(content) => self.load(content).await?,
                None => return Ok(Judgement::Refused(format!("the phase {name} has left nothing that could be one"))),
            },
            (None, _) => Payload::string(""),
        };
        let text = text_of(&output);
        let by_prose = answers.as_ref().and_then(|name| program.phase(name)).is_some_and(|phase| match &phase.kind {
            Kind::Agent(agent) => agent.prose == Prose::Dropped,
            Kind::Reply(_)
            | Kind::Call(_)
            | Kind::Checks(_)
            | Kind::Ask(_)
            | Kind::Branch
            | Kind::Each(_)
            | Kind::Run(_) => false,
        });
        let structured;
        let spec = match &self.run.task.answer {
            Some(spec) => Some(spec),
            // People read the words, not the form they came in.
            None if by_prose => {
                let schema = Payload::parse(STRUCTURED_ANSWER).expect("this is JSON");
                let template = Some("{{ answer.answer }}".to_owned());
                structured = AnswerSpec { template, ..AnswerSpec::of_schema(schema) };
                Some(&structured)
            }
            None => None,
        };
        let cited = edge::cited(self.ports, &self.run, &text).await?;
        Ok(self.ports.checks.judge(spec, &text, &cited))
    }

    /// Fills in and proposes the call of the present phase.
    pub(crate) async fn propose_call(&mut self, step: u32) -> Result<bool, DriveError> {
        let Some(phase) = self.run.phase().cloned() else { return Ok(false) };
        let values = self.values(None).await?;
        let call = match &phase.kind {
            Kind::Call(call) => call.clone(),
            Kind::Ask(ask) => {
                let question = Payload::of(&Question { question: &ask.question }).expect("its key is a string");
                Call { tool: ask.tool.clone(), args: question }
            }
            Kind::Agent(_) | Kind::Reply(_) | Kind::Checks(_) | Kind::Branch | Kind::Each(_) | Kind::Run(_) => {
                return Ok(false);
            }
        };
        let proposal = match self.ports.checks.fill(&call.args, &values) {
            Ok(args) => {
                let raw =
                    RawCall { id: String::new(), name: call.tool.to_string(), arguments: args.as_str().to_owned() };
                let proposals = edge::proposals(self.ports, &self.run, &[raw], self.asks()).await?;
                proposals.into_iter().next().map(Box::new).ok_or_else(|| "it is no call".to_owned())
            }
            Err(problem) => Err(problem),
        };
        Ok(self.command(Command::ProposeCall { step, proposal }))
    }

    /// Asks for the children of the present phase. Where there are none to be asked for, or they are not given, the phase is
    /// over.
    pub(crate) async fn ask_children(&mut self, step: u32) -> Result<bool, DriveError> {
        let wanted = match self.children().await? {
            Ok(wanted) => wanted,
            Err(problem) => return Ok(self.command(Command::AskForPhase { step, asked: Err(problem) })),
        };
        let (Some(owed), Some(askable)) = (children::owed(&self.run), children::askable(&self.run, &wanted)) else {
            return Ok(false);
        };
        let now = self.ports.clock.now().max(self.run.at);
        let (ok, output) = if wanted.is_empty() {
            (owed.is_ok(0, 0), payload(&[(); 0]))
        } else {
            match request_children(&self.run, &askable.specs, askable.at_once, now) {
                Ok(_) => {
                    let tree = match self.first_look() {
                        Look::Taken(tree) => tree,
                        Look::TookOff => return Ok(true),
                        Look::Flying => return Ok(false),
                    };
                    let askable = Askable { tree, ..askable };
                    return Ok(self.command(Command::AskForPhase { step, asked: Ok(askable) }));
                }
                Err(unfit) => (false, payload(&Refused { error: unfit.to_string() })),
            }
        };
        let (Some(mut course), Some(program)) = (self.run.course.clone(), self.run.phases().cloned()) else {
            return Ok(false);
        };
        let outcome = Outcome { ok, output: Content::Inline(output) };
        course.at = At::Over(outcome.clone());
        let Some(phase) = program.phase(&course.phase) else { return Ok(false) };
        self.lead(step, &course, &program, Some((phase, &outcome)), Some(ok)).await
    }

    /// The children that the present phase asks for, with everything filled in. Empty: it asks for none.
    async fn children(&self) -> Result<Result<Vec<Wanted>, String>, DriveError> {
        let values = self.values(None).await?;
        Ok(wanted(self.ports.checks.as_ref(), &self.run, values))
    }

    /// Everything conditions and templates may look at. `left`: the phase that is being left, how, and what it leaves.
    async fn values(&self, left: Option<(&Phase, bool, &Payload)>) -> Result<Values, DriveError> {
        let run = &self.run;
        let Some(course) = &run.course else { return Ok(Values::new()) };
        let mut outputs: BTreeMap<&str, Payload> = BTreeMap::new();
        for (name, content) in &course.outputs {
            outputs.insert(name.as_str(), self.load(content).await?);
        }
        let mut last = course.last.as_ref().map(|(phase, ok)| (phase.as_str(), *ok));
        if let Some((phase, ok, output)) = left.filter(|(phase, ..)| phase.kind != Kind::Branch) {
            outputs.insert(phase.name.as_str(), output.clone());
            last = Some((phase.name.as_str(), ok));
        }
        let last = last.map(|(phase, ok)| Last { phase, ok, output: outputs.get(phase) });
        let checks: BTreeMap<&CheckName, CheckValue> = course
            .verdicts
            .iter()
            .map(|(name, verdict)| {
                let passed = verdict.finding == Finding::Passed;
                (name, CheckValue { passed, exit_status: verdict.exit_status, evidence: verdict.evidence.shown() })
            })
            .collect();
        let facts = edge::facts(self.ports, run).await?;
        Ok([
            ("goal", payload(&run.task.goal)),
            ("facts", payload(&facts)),
            ("outputs", payload(&outputs)),
            ("evidence", payload(&course.evidence)),
            ("inputs", payload(&self.inputs)),
            ("last", payload(&last)),
            ("visits", visits(run, None)),
            ("since", since(run, None)),
            ("checks", payload(&checks)),
            ("lessons", payload(&course.lessons)),
            ("principal", run.task.principal.clone()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect())
    }

    /// The data behind some content, which may be stored with the batch in the making.
    async fn load(&self, content: &Content) -> Result<Payload, DriveError> {
        let unstored = self.draft.blobs.iter().find(|(digest, _)| *digest == content.digest());
        if let Some(payload) = unstored.and_then(|(_, bytes)| edge::parse(bytes)) {
            return Ok(payload);
        }
        // A blob that is lost: what there is of it.
        Ok(edge::load(self.ports, content).await?.unwrap_or_else(|| content.shown().clone()))
    }
}

/// The children a phase asks for: one for each item, or one.
fn wanted(checks: &dyn longrein_ports::Checks, run: &Run, mut values: Values) -> Result<Vec<Wanted>, String> {
    let Some(owed) = children::owed(run) else { return Ok(Vec::new()) };
    let items: Vec<Option<Payload>> = match owed.over {
        Some(over) => {
            let list = checks.fill(&Payload::string(over), &values)?;
            let items: Vec<Payload> =
                list.read().map_err(|_| format!("`{over}` of the phase {} gives no list", owed.phase))?;
            items.into_iter().map(Some).collect()
        }
        None => vec![None],
    };
    if items.len() > WIDTH_MAX {
        return Err(format!(
            "the phase {} has {} items; at most {WIDTH_MAX} are taken at once",
            owed.phase,
            items.len()
        ));
    }
    items
        .into_iter()
        .enumerate()
        .map(|(place, item)| {
            values.insert("item".to_owned(), item.clone().unwrap_or_else(Payload::null));
            let goal = match &owed.child.goal {
                Some(goal) => Some(text_of(&checks.fill(&Payload::string(goal), &values)?)),
                None => None,
            };
            Ok(Wanted { key: owed.key(place), goal, item })
        })
        .collect()
}

/// Whether what a phase leaves is something else than it came to, or too long to stay in the state.
fn is_news(came_to: &Content, leaves: &Payload) -> bool {
    match came_to {
        Content::Inline(payload) => payload != leaves || payload.as_str().len() > INLINE_MAX_BYTES,
        Content::Blob(blob) => blob.digest != leaves.digest(),
    }
}

/// How often each phase was entered; `entering` once more than so far.
fn visits(run: &Run, entering: Option<&PhaseName>) -> Payload {
    let Some((course, program)) = run.course.as_ref().zip(run.phases()) else { return Payload::null() };
    let visits: BTreeMap<&PhaseName, u32> = program
        .phases
        .iter()
        .map(|phase| (&phase.name, course.visits_of(&phase.name) + u32::from(entering == Some(&phase.name))))
        .collect();
    payload(&visits)
}

/// How often each phase was entered since each other was: `since.plan.step`.
fn since(run: &Run, entering: Option<&PhaseName>) -> Payload {
    let Some((course, program)) = run.course.as_ref().zip(run.phases()) else { return Payload::null() };
    let names = || program.phases.iter().map(|phase| &phase.name);
    let of = |other: &PhaseName, phase: &PhaseName| match entering {
        Some(entering) if entering == other => 0,
        entering => course.visits_since(phase, other) + u32::from(entering == Some(phase)),
    };
    let since: BTreeMap<&PhaseName, BTreeMap<&PhaseName, u32>> =
        names().map(|other| (other, names().map(|phase| (phase, of(other, phase))).collect())).collect();
    payload(&since)
}

/// A value as text: a text as it is, anything else as JSON.
fn text_of(value: &Payload) -> String {
    value.read::<String>().unwrap_or_else(|_| value.as_str().to_owned())
}

fn payload(value: &impl Serialize) -> Payload {
    Payload::of(value).expect("its keys are strings")
}

#[derive(Serialize)]
struct Last<'a> {
    phase: &'a str,
    ok: bool,
    output: Option<&'a Payload>,
}

#[derive(Serialize)]
struct CheckValue<'a> {
    passed: bool,
    exit_status: Option<i32>,
    evidence: &'a Payload,
}

/// What a phase leaves whose children were not given.
#[derive(Serialize)]
struct Refused {
    error: String,
}

#[derive(Serialize)]
struct Question<'a> {
    question: &'a str,
}

/// What a model is told that answers in prose where none is wanted.
const NO_PROSE: &str = "Prose does not count here: call a tool, or finish with {\"answer\": \"…\"}.";

#[cfg(test)]
mod tests {
    use longrein_core::budget::Limits;
    use longrein_core::check::Judgement;
    use longrein_core::decide::begin;
    use longrein_core::ids::{EvidenceId, ModelName, RunId};
    use longrein_core::program::{Child, Each, Join, Next, OnFailure, Program};
    use longrein_core::task::{CheckSpec, Guard, ModelSpec, Task};
    use longrein_core::time::Timestamp;
    use longrein_ports::{ActionCheck, BoxFuture, CheckRun, Checked, Checks, Cited, GuardInput};

    use super::*;

    /// Fills in by looking a template up in the values.
    struct Lookup;

    impl Checks for Lookup {
        fn guard(&self, _: &Guard, _: &GuardInput<'_>) -> Result<(), String> {
            Ok(())
        }
        fn cites(&self, _: &AnswerSpec, _: &str) -> Vec<EvidenceId> {
            Vec::new()
        }
        fn judge(&self, _: Option<&AnswerSpec>, _: &str, _: &BTreeMap<EvidenceId, Cited>) -> Judgement {
            Judgement::Refused(String::new())
        }
        fn condition(&self, _: &str, _: &Values) -> Result<bool, String> {
            Ok(true)
        }
        fn fill(&self, template: &Payload, values: &Values) -> Result<Payload, String> {
            let name: String = template.read().map_err(|error| error.to_string())?;
            values.get(&name).cloned().ok_or_else(|| format!("no {name}"))
        }
        fn check<'a>(&'a self, _: &'a Task, run: CheckRun) -> BoxFuture<'a, Checked> {
            let CheckRun { spec: CheckSpec { name, .. }, .. } = run;
            Box::pin(async move { panic!("{name} is not run here") })
        }
        fn protected(&self, _: &CheckSpec, _: Vec<String>) -> Vec<String> {
            Vec::new()
        }
        fn check_action<'a>(&'a self, _: &'a Task, check: ActionCheck) -> BoxFuture<'a, Checked> {
            Box::pin(async move { panic!("{check:?} is not run here") })
        }
    }

    fn run(kind: Kind) -> Run {
        let phases = Phases {
            name: "p".to_owned(),
            description: String::new(),
            start: PhaseName::new("fan"),
            answer: None,
            phases: vec![Phase {
                name: PhaseName::new("fan"),
                kind,
                visits: None,
                memory: None,
                next: vec![Next { when: None, to: To::Done }],
            }],
            own_tools: Vec::new(),
        };
        let task = Task {
            goal: "g".to_owned(),
            instructions: String::new(),
            constraints: Vec::new(),
            program: Program::Phases(Box::new(phases.clone())),
            model: ModelSpec::plain(ModelName::new("m/m"), 100),
            workspace: "/".to_owned(),
            folder: "/".to_owned(),
            principal: Payload::null(),
            limits: Limits::default(),
            inputs: BTreeMap::new(),
            tools: Vec::new(),
            acceptance: Vec::new(),
            answer: None,
            policy: Default::default(),
            permission_mode: Default::default(),
            servers: Default::default(),
            snapshots: Default::default(),
            piped_from: None,
            questions_expire_ms: None,
            images: Vec::new(),
            hooks: Vec::new(),
            rules: Vec::new(),
            context: Default::default(),
            routes: Vec::new(),
            sources: BTreeMap::new(),
            pins: BTreeMap::new(),
        };
        let mut run = Run::new(&begin(RunId::new("r"), task, "test"), Timestamp(0));
        let mut course = Course::new(&phases);
        course.at = At::Children { asked: Vec::new() };
        course.step = 2;
        run.course = Some(course);
        run
    }

    #[test]
    fn entering_a_fan_out_yields_the_same_children_each_time() {
        let child = Child { goal: Some("item".to_owned()), program: Some("react".to_owned()), ..Child::default() };
        let each = |child| {
            let (join, on_failure) = (Join::All, OnFailure::Stop);
            Kind::Each(Each { over: "list".to_owned(), child, parallel: 2, join, on_failure })
        };
        let list = |text: &str| Values::from([("list".to_owned(), Payload::parse(text).expect("JSON"))]);
        let found = wanted(&Lookup, &run(each(child.clone())), list(r#"["a",{"n":1}]"#)).expect("a list");
        let said: Vec<_> =
            found.iter().map(|child| format!("{} {}", child.key, child.goal.as_deref().unwrap_or("-"))).collect();
        assert_eq!(said, ["fan.2.0 a", "fan.2.1 {\"n\":1}"]);
        assert_eq!(found, wanted(&Lookup, &run(each(child.clone())), list(r#"["a",{"n":1}]"#)).expect("a list"));
        assert_eq!(wanted(&Lookup, &run(each(child.clone())), list("[]")).expect("a list"), []);
        let no_list = wanted(&Lookup, &run(each(child.clone())), list("7")).expect_err("no list");
        assert_eq!(no_list, "`list` of the phase fan gives no list");
        let many = format!("[{}0]", "0,".repeat(WIDTH_MAX));
        let too_many = wanted(&Lookup, &run(each(child)), list(&many)).expect_err("too many");
        assert!(too_many.contains("at most 64"), "{too_many}");
        let one = wanted(&Lookup, &run(Kind::Run(Child::default())), list("[]")).expect("one child");
        assert_eq!(one.iter().map(|child| child.key.as_str()).collect::<Vec<_>>(), ["fan.2.0"]);
        assert_eq!(wanted(&Lookup, &run(Kind::Branch), list("[]")).expect("none"), []);
    }
}
