//! Programs: which transition is taken, and the calls a phase makes by itself.

use super::*;
use crate::ids::PhaseName;
use crate::outcome::RawCall;
use crate::program::{At, Course, Form, Kind, Outcome, Phase, To};

/// Where the present phase leads, as the edge has found out. Everything in it is a value.
#[derive(Debug, Clone)]
pub struct Transit {
    /// Of the course it was worked out for.
    pub step: u32,
    /// The conditions of the phase that was left, in order, up to the first that holds or gives no verdict.
    pub found: Vec<Found>,
    /// What the phase left, where that is not what it came to word for word; or why its reply is not what it wants.
    pub output: Result<Option<Content>, String>,
    /// The phase asks for children and none is started: whether it went well so. What it leaves is in `output`.
    pub childless: Option<bool>,
    /// How the answer was judged, if it leads to `done`.
    pub judgement: Option<Judgement>,
    pub entry: Result<Entry, String>,
}

/// What goes along into the next phase; filled in for the one it leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    pub words: String,
    /// Empty: there is nothing to remember.
    pub lesson: String,
}

/// What a condition came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Holds,
    HoldsNot,
    /// It gives no verdict, and why.
    Fails(String),
}

/// Which transition a phase takes.
struct Choice {
    to: To,
    why: String,
    values: Vec<ConditionValue>,
}

pub(super) fn transit(run: &Run, transit: Transit) -> Result<Vec<Event>, Refusal> {
    let Some((program, course)) = run.phases().zip(run.course.as_ref()) else { return Err(Refusal::Stale) };
    match &run.stage {
        Stage::Ready(_) if course.step == transit.step && owed::due_end(run).is_none() && run.hooks.goal.is_empty() => {
        }
        Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
            return Err(Refusal::Stale);
        }
    }
    let Transit { step: _, found, output, childless, judgement, entry } = transit;
    let over;
    let course = match (&course.at, childless, &output) {
        (At::Children { asked }, Some(ok), Ok(Some(output))) if asked.is_empty() => {
            over = Course { at: At::Over(Outcome { ok, output: output.clone() }), ..course.clone() };
            &over
        }
        _ => course,
    };
    let left = match &course.at {
        At::Start => None,
        At::Over(_) => Some(program.phase(&course.phase).ok_or(Refusal::Stale)?),
        At::Working { .. }
        | At::Proposing
        | At::Calling { .. }
        | At::Checking { .. }
        | At::Children { .. }
        | At::Failed { .. }
        | At::Finished => return Err(Refusal::Stale),
    };
    let output = match output {
        Ok(output) => output,
        Err(reason) => {
            let phase = Some(course.phase.clone());
            return Ok(vec![Event::AnswerRefused(AnswerRefused {
                attempt: last_attempt(run),
                reason,
                unfinished: None,
                phase,
            })]);
        }
    };
    let mut choice = match left {
        None => {
            Choice { to: To::Phase(program.start.clone()), why: "the program begins".to_owned(), values: Vec::new() }
        }
        Some(phase) => choose(phase, &found)?,
    };
    if let To::Phase(name) = &choice.to {
        let phase = program.phase(name).ok_or(Refusal::Stale)?;
        if let Some(most) = phase.visits.filter(|most| course.visits_of(name) >= *most) {
            choice.to =
                To::Failed(format!("the phase {name} may be entered {most} times, and has been ({})", choice.why));
        }
    }
    let entry = match (entry, &choice.to) {
        (Ok(entry), _) => entry,
        (Err(_), To::Failed(_)) => Entry::default(),
        (Err(reason), To::Phase(_) | To::Done) => {
            choice.to = To::Failed(reason);
            Entry::default()
        }
    };
    let lesson = left
        .and_then(|phase| phase.memory.as_ref())
        .filter(|_| !entry.lesson.trim().is_empty())
        .map(|memory| Lesson { list: memory.list.clone(), text: entry.lesson });
    let taken = |choice: Choice, words: String| TransitionTaken {
        from: left.map(|phase| phase.name.clone()),
        to: choice.to,
        why: choice.why,
        values: choice.values,
        output,
        ok: childless,
        lesson,
        words,
    };
    let taken = |choice, words| Event::TransitionTaken(Box::new(taken(choice, words)));
    if choice.to != To::Done {
        return Ok(vec![taken(choice, entry.words)]);
    }
    let attempt = last_attempt(run);
    match judgement.ok_or(Refusal::Stale)? {
        Judgement::Accepted(accepted) => {
            Ok(vec![taken(choice, String::new()), Event::AnswerAccepted(AnswerAccepted { attempt, accepted })])
        }
        Judgement::Refused(reason) => {
            let refused =
                Event::AnswerRefused(AnswerRefused { attempt, reason: reason.clone(), unfinished: None, phase: None });
            let answers = course.answers(program).and_then(|name| program.phase(&name));
            match answers.filter(|phase| phase.kind.has_model()) {
                Some(phase) if phase.name == course.phase => Ok(vec![refused]),
                // The phase that gave it is where `done` leads as long as it does not stand.
                Some(_) => Ok(vec![taken(choice, String::new()), refused]),
                None => {
                    choice.to = To::Failed(format!("the answer was not accepted: {reason}"));
                    Ok(vec![taken(choice, String::new())])
                }
            }
        }
    }
}

/// The first transition whose condition holds; one that gives no verdict ends the run, naming it.
fn choose(phase: &Phase, found: &[Found]) -> Result<Choice, Refusal> {
    let mut values = Vec::new();
    for (index, next) in phase.next.iter().enumerate() {
        let Some(when) = &next.when else {
            let why = if index == 0 { "it always leads there" } else { "no condition held" };
            return Ok(Choice { to: next.to.clone(), why: why.to_owned(), values });
        };
        let value = |value| ConditionValue { when: when.clone(), value };
        match found.get(index).ok_or(Refusal::Stale)? {
            Found::Holds => {
                values.push(value(Truthful::True));
                return Ok(Choice { to: next.to.clone(), why: format!("`{when}` holds"), values });
            }
            Found::HoldsNot => values.push(value(Truthful::False)),
            Found::Fails(problem) => {
                values.push(value(Truthful::Error(problem.clone())));
                let reason = format!("the phase {} cannot be left: {problem}", phase.name);
                return Ok(Choice { to: To::Failed(reason), why: "a condition gives no verdict".to_owned(), values });
            }
        }
    }
    Err(Refusal::Stale)
}

/// The attempt whose reply was the last.
fn last_attempt(run: &Run) -> AttemptId {
    let turn = crate::ids::TurnId(u32::try_from(run.spent.turns).unwrap_or(u32::MAX).max(1));
    AttemptId { turn, attempt: 1 }
}

pub(super) fn propose_call(
    run: &Run,
    step: u32,
    proposal: Result<Box<Proposal>, String>,
) -> Result<Vec<Event>, Refusal> {
    let Some((course, phase)) = run.course.as_ref().zip(run.phase()) else { return Err(Refusal::Stale) };
    let is_due = matches!(run.stage, Stage::Ready(_)) && course.at == At::Proposing && course.step == step;
    if !is_due || owed::due_end(run).is_some() {
        return Err(Refusal::Stale);
    }
    let proposal = match proposal {
        Ok(proposal) => *proposal,
        Err(problem) => {
            return Ok(vec![Event::TransitionTaken(Box::new(TransitionTaken {
                from: Some(phase.name.clone()),
                to: To::Failed(format!("the call of the phase {} cannot be made: {problem}", phase.name)),
                why: "a template could not be filled in".to_owned(),
                values: Vec::new(),
                output: None,
                ok: None,
                lesson: None,
                words: String::new(),
            }))]);
        }
    };
    let call = RawCall { id: String::new(), name: proposal.tool.to_string(), arguments: String::new() };
    Ok(propose(run, &[call], vec![proposal], &Proposer::Program(phase.name.clone())))
}

/// The children of the present phase; or why they cannot be named, which ends the run as a condition without a verdict does.
pub(super) fn ask_children(
    run: &Run,
    step: u32,
    asked: Result<Askable, String>,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let Some((course, phase)) = run.course.as_ref().zip(run.phase()) else { return Err(Refusal::Stale) };
    let is_due = match &course.at {
        At::Children { asked } => asked.is_empty() && course.step == step && matches!(run.stage, Stage::Ready(_)),
        At::Start
        | At::Working { .. }
        | At::Proposing
        | At::Calling { .. }
        | At::Checking { .. }
        | At::Over(_)
        | At::Failed { .. }
        | At::Finished => false,
    };
    if !is_due || owed::due_end(run).is_some() || crate::children::are_open(run) {
        return Err(Refusal::Stale);
    }
    match asked {
        Ok(Askable { specs, at_once, tree }) => {
            let mut events = request_children(run, &specs, at_once, now).map_err(Refusal::Unfit)?;
            if let Some(Event::ChildStarted(first)) = events.first_mut() {
                first.tree = tree;
            }
            Ok(events)
        }
        Err(problem) => Ok(vec![Event::TransitionTaken(Box::new(TransitionTaken {
            from: Some(phase.name.clone()),
            to: To::Failed(format!("the children of the phase {} cannot be asked for: {problem}", phase.name)),
            why: "a template could not be filled in".to_owned(),
            values: Vec::new(),
            output: None,
            ok: None,
            lesson: None,
            words: String::new(),
        }))]),
    }
}

/// Whether the present phase still waits for this verdict.
pub(super) fn awaits_verdict(run: &Run, check: &CheckName, round: u32) -> bool {
    match run.course.as_ref().map(|course| &course.at) {
        Some(At::Checking { round: present, verdicts }) => {
            *present == round && verdicts.get(check).is_some_and(Option::is_none)
        }
        Some(
            At::Start
            | At::Working { .. }
            | At::Proposing
            | At::Calling { .. }
            | At::Children { .. }
            | At::Over(_)
            | At::Failed { .. }
            | At::Finished,
        )
        | None => false,
    }
}

/// Why a tool is outside of what the present phase allows the model. What the program calls itself it may call.
pub(crate) fn outside_phase(run: &Run, tool: &ToolName) -> Option<(String, String)> {
    let own = run.phases().is_some_and(|program| program.own_tools.contains(tool));
    let (name, allowed): (&PhaseName, &[ToolName]) = match run.phase().map(|phase| (&phase.name, &phase.kind)) {
        Some((name, Kind::Agent(agent))) => match &agent.tools {
            Some(tools) => (name, tools),
            None if own => (name, &[]),
            None => return None,
        },
        Some((
            _,
            Kind::Reply(_)
            | Kind::Call(_)
            | Kind::Checks(_)
            | Kind::Ask(_)
            | Kind::Branch
            | Kind::Each(_)
            | Kind::Run(_),
        ))
        | None => return None,
    };
    if allowed.contains(tool) {
        return None;
    }
    let hint = match allowed {
        [] => "Go on without it.".to_owned(),
        tools => {
            let names: Vec<_> = tools.iter().map(ToolName::as_str).collect();
            format!("In this phase there are: {}.", names.join(", "))
        }
    };
    Some((format!("{tool} cannot be called in the phase {name}."), hint))
}

/// Why a whole reply is of no use to its phase: its class, and what the model is told.
pub(super) fn unusable(run: &Run, reply: &Reply, purpose: Purpose) -> Option<(ModelErrorClass, String)> {
    if purpose == Purpose::Closing || reply.calls.is_empty() {
        return None;
    }
    let phase = run.phase()?;
    matches!(phase.kind, Kind::Reply(_)).then(|| {
        let told =
            "No tool can be called in this phase, and nothing was run. Reply with one JSON object of the schema.";
        (ModelErrorClass::Malformed, told.to_owned())
    })
}

/// Whether a question is one of the program's that is answered by yes or no.
pub(super) fn wants_yes_or_no(run: &Run, action: &Action) -> bool {
    let Some(phase) = action.proposer.phase().and_then(|name| run.phases()?.phase(name)) else { return false };
    matches!(&phase.kind, Kind::Ask(ask) if ask.form == Form::YesNo)
}
