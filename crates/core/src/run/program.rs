//! What a program makes of a run: phases entered and left, what they came to, what the model is told of it.

use super::*;
use crate::event::{AnswerRefused, TransitionTaken};
use crate::ids::PhaseName;
use crate::payload::Payload;
use crate::program::{self, At, Kind, Outcome, Phase, Phases, Prose, To};
use crate::task::CheckSpec;

impl Run {
    /// The program's phases; None: the plain loop.
    pub fn phases(&self) -> Option<&Phases> {
        self.task.program.phases()
    }

    /// The phase the run is in, from its first transition on.
    pub fn phase(&self) -> Option<&Phase> {
        let course = self.course.as_ref().filter(|course| course.at != At::Start)?;
        self.phases()?.phase(&course.phase)
    }

    /// Whether the next thing in `Ready` is a model call.
    pub fn wants_model(&self) -> bool {
        match self.course.as_ref().map(|course| &course.at) {
            None | Some(At::Working { .. }) => true,
            Some(
                At::Start
                | At::Proposing
                | At::Calling { .. }
                | At::Checking { .. }
                | At::Children { .. }
                | At::Over(_)
                | At::Failed { .. }
                | At::Finished,
            ) => false,
        }
    }

    /// An acceptance check, or one of the present phase's own.
    pub fn check_spec(&self, name: &CheckName) -> Option<&CheckSpec> {
        let own = match self.phase().map(|phase| &phase.kind) {
            Some(Kind::Checks(checks)) => checks.own.as_slice(),
            Some(
                Kind::Agent(_)
                | Kind::Reply(_)
                | Kind::Call(_)
                | Kind::Ask(_)
                | Kind::Branch
                | Kind::Each(_)
                | Kind::Run(_),
            )
            | None => &[],
        };
        own.iter().chain(&self.task.acceptance).find(|spec| spec.name == *name)
    }

    /// Whether words beside calls, and replies in prose, are not wanted now.
    pub fn drops_prose(&self) -> bool {
        match self.phase().map(|phase| &phase.kind) {
            Some(Kind::Agent(agent)) => agent.prose == Prose::Dropped,
            Some(
                Kind::Reply(_)
                | Kind::Call(_)
                | Kind::Checks(_)
                | Kind::Ask(_)
                | Kind::Branch
                | Kind::Each(_)
                | Kind::Run(_),
            )
            | None => false,
        }
    }

    pub(super) fn transition_taken(&mut self, taken: &TransitionTaken) {
        self.barren_claims = 0;
        let task = Arc::clone(&self.task);
        let (Some(program), Some(course)) = (task.program.phases(), &mut self.course) else { return };
        course.step += 1;
        if let (Some(ok), At::Children { .. }) = (taken.ok, &course.at) {
            let output = taken.output.clone().unwrap_or(Content::Inline(Payload::null()));
            course.at = At::Over(Outcome { ok, output });
        }
        if let Some(left) = taken.from.as_ref().and_then(|from| program.phase(from)) {
            course.leave(&left.kind, taken.output.as_ref());
        }
        if let Some(lesson) = &taken.lesson {
            course.learn(&lesson.list, &lesson.text);
        }
        let mut told: Vec<String> = taken
            .lesson
            .iter()
            .map(|lesson| format!("To be remembered ({}): {}", lesson.list, lesson.text.trim()))
            .collect();
        match &taken.to {
            To::Phase(name) => {
                let Some(phase) = program.phase(name) else { return };
                let checks = checks_of(&task, phase);
                if !checks.is_empty() {
                    self.rounds += 1;
                }
                course.enter(phase, &taken.words, checks, self.rounds);
                if phase.kind.has_model() {
                    told.push(announce(phase, course.visits_of(name), &taken.words));
                }
            }
            To::Done => {
                let answers = course.answers(program);
                match answers.and_then(|name| program.phase(&name)).filter(|phase| phase.kind.has_model()) {
                    // Whatever is found wrong with the answer, this one mends it.
                    Some(phase) => {
                        course.phase = phase.name.clone();
                        course.at = At::Working { turns: 0 };
                    }
                    None => course.at = At::Finished,
                }
            }
            To::Failed(reason) => course.at = At::Failed { reason: reason.clone() },
        }
        if !told.is_empty() {
            self.tell(observe::note(&observe::escaped(&told.join("\n"))));
        }
    }

    /// A reply without calls: the phase has come to its end, unless something was said meanwhile that it did not see.
    pub(super) fn phase_replied(&mut self, text: &str) {
        if self.pending.is_empty()
            && let Some(course) = &mut self.course
            && let At::Working { .. } = course.at
        {
            course.at = At::Over(Outcome::text(true, text));
        }
    }

    /// A reply with calls: one of the phase's turns is used.
    pub(super) fn phase_acts(&mut self) {
        if let Some(course) = &mut self.course
            && let At::Working { turns } = &mut course.at
        {
            *turns += 1;
        }
    }

    /// The calls of a turn are told: a call of the program has its result, and a phase may have used up its turns.
    pub(super) fn phase_told(&mut self, actions: &BTreeMap<ActionId, Action>) {
        let bound = match self.phase().map(|phase| &phase.kind) {
            Some(Kind::Agent(agent)) => agent.turns,
            Some(
                Kind::Reply(_)
                | Kind::Call(_)
                | Kind::Checks(_)
                | Kind::Ask(_)
                | Kind::Branch
                | Kind::Each(_)
                | Kind::Run(_),
            )
            | None => None,
        };
        let Some(course) = &mut self.course else { return };
        match &course.at {
            At::Calling { action } => {
                let Some(action) = actions.get(action) else { return };
                let outcome = outcome(action);
                if outcome.ok {
                    course.evidence.insert(course.phase.clone(), action.id.evidence());
                } else {
                    course.evidence.remove(&course.phase);
                }
                course.at = At::Over(outcome);
            }
            At::Working { turns } if bound.is_some_and(|bound| *turns >= bound) => {
                course.at = At::Over(Outcome::nothing(false));
            }
            At::Working { .. }
            | At::Start
            | At::Proposing
            | At::Checking { .. }
            | At::Children { .. }
            | At::Over(_)
            | At::Failed { .. }
            | At::Finished => {}
        }
    }

    /// A call of the program is in the ledger.
    pub(super) fn phase_calls(&mut self, action: ActionId) {
        self.stage = Stage::Acting { turn: self.turn(), actions: BTreeMap::new() };
        if let Some(course) = &mut self.course {
            course.at = At::Calling { action };
        }
    }

    pub(super) fn phase_checked(&mut self, finished: &CheckFinished) {
        let Some(course) = &mut self.course else { return };
        if !course.checked(&finished.check, &finished.verdict) {
            return;
        }
        let At::Checking { verdicts, .. } = &course.at else { return };
        let verdicts: Vec<(CheckName, Verdict)> =
            verdicts.iter().filter_map(|(name, verdict)| Some((name.clone(), verdict.clone()?))).collect();
        let passed = verdicts.iter().all(|(_, verdict)| verdict.finding == Finding::Passed);
        let output = Payload::of(&Found {
            passed,
            checks: verdicts.iter().map(|(name, verdict)| (name.as_str(), FoundOne::of(verdict))).collect(),
        })
        .expect("names are strings");
        course.at = At::Over(Outcome { ok: passed, output: Content::Inline(output) });
        let mut text = format!("The program ran checks (phase {}):", course.phase);
        for (name, verdict) in &verdicts {
            let one = FoundOne::of(verdict);
            let word = if one.passed { "passed" } else { "failed" };
            let status = verdict.exit_status.map_or("no exit status".to_owned(), |status| format!("exit {status}"));
            text.push_str(&format!("\n- {name}: {word} ({status})"));
            if !one.passed {
                text.push_str(&format!(":\n{}", one.evidence.trim_end()));
            }
        }
        self.tell(observe::note(&observe::escaped(&text)));
    }

    /// What the model replied is not what its phase wants.
    pub(super) fn reply_refused(&mut self, refused: &AnswerRefused) {
        let words = match &mut self.course {
            Some(course) => {
                course.refusals += 1;
                course.at = At::Working { turns: 0 };
                format!("Your reply was not taken: {}\nReply again.", refused.reason)
            }
            None => return,
        };
        self.tell(observe::note(&observe::escaped(&words)));
    }

    /// The answer was refused: the phase that gave it works on.
    pub(super) fn answer_again(&mut self) {
        if let Some(course) = &mut self.course
            && matches!(course.at, At::Over(_))
        {
            course.at = At::Working { turns: 0 };
        }
    }

    /// A person has said something, or given what was missing: what was over by the model's word is open again.
    pub(super) fn course_heard(&mut self) {
        let task = Arc::clone(&self.task);
        let (Some(program), Some(course)) = (task.program.phases(), &mut self.course) else { return };
        let has_model = |name: &PhaseName| program.phase(name).is_some_and(|phase| phase.kind.has_model());
        match &course.at {
            At::Over(_) if has_model(&course.phase) => course.at = At::Working { turns: 0 },
            At::Failed { .. } => {
                let present = Some(course.phase.clone()).filter(|name| has_model(name));
                if let Some(name) = present.or_else(|| course.answers(program).filter(|name| has_model(name))) {
                    course.phase = name;
                    course.at = At::Working { turns: 0 };
                    course.visits.clear();
                    course.marks.clear();
                }
            }
            At::Over(_)
            | At::Start
            | At::Working { .. }
            | At::Proposing
            | At::Calling { .. }
            | At::Checking { .. }
            | At::Children { .. }
            | At::Finished => {}
        }
        course.refusals = 0;
    }

    /// Checks are about the world as a claim finds it: those under way are run again.
    pub(super) fn course_claimed(&mut self) {
        if let Some(course) = &mut self.course
            && let At::Checking { verdicts, .. } = &mut course.at
        {
            verdicts.values_mut().for_each(|verdict| *verdict = None);
        }
    }
}

impl Run {
    /// A child was asked for: one of the present phase's, or one that somebody else wants.
    pub(super) fn phase_asked(&mut self, child: &RunId, key: &str) {
        let is_own = program::children::owed(self).is_some_and(|owed| owed.is_own(key));
        if let Some(Course { at: At::Children { asked }, .. }) = &mut self.course
            && is_own
        {
            asked.push(child.clone());
        }
    }

    /// A child has ended; with the last of its own the phase is over.
    pub(super) fn phase_child_ended(&mut self) {
        let Some(outcome) = program::children::outcome(self) else { return };
        if let Some(course) = &mut self.course {
            course.at = At::Over(outcome);
        }
    }

    /// Children of the run that this one was forked from are that one's: the phase asks for its own.
    pub(super) fn phase_asks_anew(&mut self) {
        if let Some(Course { at: At::Children { asked }, .. }) = &mut self.course {
            asked.clear();
        }
    }
}

/// The checks a phase runs.
fn checks_of(task: &Task, phase: &Phase) -> BTreeMap<CheckName, Option<Verdict>> {
    let Kind::Checks(checks) = &phase.kind else { return BTreeMap::new() };
    let own = checks.own.iter().map(|spec| &spec.name);
    let all = checks.named.is_empty() && checks.own.is_empty();
    let named = task.acceptance.iter().map(|spec| &spec.name).filter(|name| all || checks.named.contains(name));
    own.chain(named).map(|name| (name.clone(), None)).collect()
}

/// What the model is told when a phase begins.
fn announce(phase: &Phase, visit: u32, words: &str) -> String {
    let visit = match phase.visits {
        Some(most) if most > 1 => format!(" ({visit} of at most {most})"),
        Some(_) | None if visit > 1 => format!(" ({visit})"),
        Some(_) | None => String::new(),
    };
    let form = match &phase.kind {
        Kind::Reply(reply) => format!(
            "\nReply with one JSON object and nothing else; no tool can be called in this phase. Its JSON Schema: {}",
            reply.schema.as_str()
        ),
        Kind::Agent(agent) => {
            let mut form = String::new();
            if let Some(turns) = agent.turns {
                form.push_str(&format!("\nIt has at most {turns} turns; your reply without a tool call ends it."));
            }
            if agent.prose == Prose::Dropped {
                form.push_str(
                    "\nWrite no prose: only tool calls, and at the end one JSON object as your answer. Words beside calls \
                     are dropped.",
                );
            }
            form
        }
        Kind::Call(_) | Kind::Checks(_) | Kind::Ask(_) | Kind::Branch | Kind::Each(_) | Kind::Run(_) => String::new(),
    };
    let words = words.trim();
    let words = if words.is_empty() { String::new() } else { format!("\n{words}") };
    format!("Phase {}{visit} begins.{words}{form}", phase.name)
}

fn outcome(action: &Action) -> Outcome {
    match &action.life {
        Life::Ended(Ended::Done { result, .. }) => Outcome { ok: true, output: result.clone() },
        Life::Ended(Ended::Refused(error) | Ended::Error(error) | Ended::NotDone(error))
        | Life::Unknown(error)
        | Life::Doubtful(_, error) => {
            let output = Payload::of(&Failed { error }).expect("an error has only string keys");
            Outcome { ok: false, output: Content::Inline(output) }
        }
        Life::Queued
        | Life::Held(_)
        | Life::Started { .. }
        | Life::Checking(_)
        | Life::Undoing(..)
        | Life::Compensating(..)
        | Life::Lost(_) => Outcome::nothing(false),
    }
}

#[derive(Serialize)]
struct Failed<'a> {
    error: &'a ToolError,
}

#[derive(Serialize)]
struct Found<'a> {
    passed: bool,
    checks: BTreeMap<&'a str, FoundOne>,
}

#[derive(Serialize)]
struct FoundOne {
    passed: bool,
    exit_status: Option<i32>,
    evidence: String,
}

impl FoundOne {
    fn of(verdict: &Verdict) -> Self {
        let evidence = match &verdict.evidence {
            Content::Inline(payload) => payload.read::<String>().unwrap_or_else(|_| payload.as_str().to_owned()),
            Content::Blob(blob) => blob.shown_text(),
        };
        let evidence = crate::payload::head_and_tail(&evidence, EVIDENCE_BYTES_MAX);
        Self { passed: verdict.finding == Finding::Passed, exit_status: verdict.exit_status, evidence }
    }
}

/// How much of what a check printed is a value, and is told.
const EVIDENCE_BYTES_MAX: usize = 8 * 1024;
