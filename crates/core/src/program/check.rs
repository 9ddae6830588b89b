//! What is wrong with a program as a graph: found when it is loaded, each with its phase and the way out. What needs a
//! compiler (conditions, templates, schemas) or the task (tools, facts, checks) is looked at by whoever loads it.
//!
//! The one rule for cycles: every cycle passes a phase that says how often it may be entered (`visits`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{ENDS, Phases, To};
use crate::ids::PhaseName;

/// More phases are several programs.
pub const PHASES_MAX: usize = 64;
/// Nobody means a phase to be entered more often.
pub const VISITS_MAX: u32 = 1_000;

/// What is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    NoPhases,
    TooMany(usize),
    /// The start is no phase.
    NoStart(PhaseName),
    /// The phase whose output is to be the answer is none.
    NoAnswer(PhaseName),
    Twice(PhaseName),
    /// A phase is called like an end.
    Reserved(PhaseName),
    /// It has no transition that is taken when no other is.
    NoExit(PhaseName),
    /// A transition without a condition stands before others, which are never looked at.
    Shadowed(PhaseName),
    UnknownTarget {
        from: PhaseName,
        to: PhaseName,
    },
    /// No transition leads there.
    Unreachable(PhaseName),
    /// No way leads from it to an end.
    Endless(PhaseName),
    /// A cycle nothing bounds.
    Unbounded(Vec<PhaseName>),
    Visits(PhaseName),
}

impl Fault {
    /// The phase it is in. None: it is the program's own.
    pub fn phase(&self) -> Option<&PhaseName> {
        match self {
            Fault::NoPhases | Fault::TooMany(_) | Fault::NoStart(_) | Fault::NoAnswer(_) => None,
            Fault::Twice(phase)
            | Fault::Reserved(phase)
            | Fault::NoExit(phase)
            | Fault::Shadowed(phase)
            | Fault::UnknownTarget { from: phase, .. }
            | Fault::Unreachable(phase)
            | Fault::Endless(phase)
            | Fault::Visits(phase) => Some(phase),
            Fault::Unbounded(cycle) => cycle.first(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoPhases => f.write_str("it has no phases; add a [[phase]]"),
            Fault::TooMany(count) => {
                write!(f, "it has {count} phases; at most {PHASES_MAX} are read: make two programs of it")
            }
            Fault::NoStart(start) => write!(f, "there is no phase \"{start}\" to start with; name one that is there"),
            Fault::NoAnswer(answer) => {
                write!(f, "there is no phase \"{answer}\" whose output could be the answer; name one that is there")
            }
            Fault::Twice(name) => write!(f, "a second phase named \"{name}\"; give it another name"),
            Fault::Reserved(name) => {
                write!(f, "\"{name}\" is an end, so that no phase can be called so; give it another name")
            }
            Fault::NoExit(name) => write!(
                f,
                "the phase \"{name}\" has no exit for when none of its conditions holds; end its `next` with \
                 {{ to = \"…\" }} without `when`"
            ),
            Fault::Shadowed(name) => write!(
                f,
                "the phase \"{name}\" has transitions behind one without `when`, which are never looked at; put that one \
                 last"
            ),
            Fault::UnknownTarget { from, to } => write!(
                f,
                "the phase \"{from}\" leads to \"{to}\", which is no phase and no end; correct the name, or write \"done\" \
                 or \"failed\""
            ),
            Fault::Unreachable(name) => {
                write!(f, "no transition leads to the phase \"{name}\"; lead one there, or leave it out")
            }
            Fault::Endless(name) => {
                write!(f, "no way leads from the phase \"{name}\" to an end; lead one to \"done\" or \"failed\"")
            }
            Fault::Unbounded(cycle) => {
                let way: Vec<_> = cycle.iter().chain(cycle.first()).map(PhaseName::as_str).collect();
                write!(
                    f,
                    "the phases go in a circle that nothing bounds: {}; give one of them visits = N",
                    way.join(" → ")
                )
            }
            Fault::Visits(name) => write!(
                f,
                "the phase \"{name}\" may be entered 1 to {VISITS_MAX} times; write visits = N with such a number"
            ),
        }
    }
}

/// Everything that is wrong with the graph, the most basic first.
pub fn faults(program: &Phases) -> Vec<Fault> {
    if program.phases.is_empty() {
        return vec![Fault::NoPhases];
    }
    if program.phases.len() > PHASES_MAX {
        return vec![Fault::TooMany(program.phases.len())];
    }
    let mut faults = names(program);
    for phase in &program.phases {
        if phase.visits.is_some_and(|visits| visits == 0 || visits > VISITS_MAX) {
            faults.push(Fault::Visits(phase.name.clone()));
        }
        match phase.next.iter().position(|next| next.when.is_none()) {
            None => faults.push(Fault::NoExit(phase.name.clone())),
            Some(place) if place + 1 < phase.next.len() => faults.push(Fault::Shadowed(phase.name.clone())),
            Some(_) => {}
        }
        for to in targets(program, &phase.name) {
            if program.phase(to).is_none() {
                faults.push(Fault::UnknownTarget { from: phase.name.clone(), to: to.clone() });
            }
        }
    }
    // What follows goes along transitions: where those are wrong it would only repeat that.
    if faults.is_empty() {
        faults.extend(ways(program));
    }
    faults
}

fn names(program: &Phases) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for phase in &program.phases {
        if !seen.insert(&phase.name) {
            faults.push(Fault::Twice(phase.name.clone()));
        }
        if ENDS.contains(&phase.name.as_str()) {
            faults.push(Fault::Reserved(phase.name.clone()));
        }
    }
    if !seen.contains(&program.start) {
        faults.push(Fault::NoStart(program.start.clone()));
    }
    if let Some(answer) = program.answer.as_ref().filter(|answer| !seen.contains(answer)) {
        faults.push(Fault::NoAnswer(answer.clone()));
    }
    faults
}

/// The phases one leads to.
fn targets<'a>(program: &'a Phases, from: &PhaseName) -> impl Iterator<Item = &'a PhaseName> {
    program.phase(from).into_iter().flat_map(|phase| &phase.next).filter_map(|next| match &next.to {
        To::Phase(name) => Some(name),
        To::Done | To::Failed(_) => None,
    })
}

fn ways(program: &Phases) -> Vec<Fault> {
    let mut faults = Vec::new();
    let reached = reach(program, [&program.start]);
    for phase in program.phases.iter().filter(|phase| !reached.contains(&phase.name)) {
        faults.push(Fault::Unreachable(phase.name.clone()));
    }
    let ends = |phase: &super::Phase| {
        phase.next.iter().any(|next| match next.to {
            To::Done | To::Failed(_) => true,
            To::Phase(_) => false,
        })
    };
    for phase in &program.phases {
        let from_here = reach(program, [&phase.name]);
        let has_end = program.phases.iter().any(|other| from_here.contains(&other.name) && ends(other));
        if !has_end {
            faults.push(Fault::Endless(phase.name.clone()));
        }
    }
    faults.extend(unbounded(program));
    faults
}

fn reach<'a>(program: &'a Phases, from: impl IntoIterator<Item = &'a PhaseName>) -> BTreeSet<&'a PhaseName> {
    let mut open: Vec<&PhaseName> = from.into_iter().collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        if seen.insert(name) {
            open.extend(targets(program, name));
        }
    }
    seen
}

/// A cycle among the phases that do not say how often they may be entered.
fn unbounded(program: &Phases) -> Option<Fault> {
    let free = |name: &PhaseName| program.phase(name).is_some_and(|phase| phase.visits.is_none());
    // The way back to where each phase was first reached from.
    for start in program.phases.iter().map(|phase| &phase.name).filter(|name| free(name)) {
        let mut came_from: BTreeMap<&PhaseName, &PhaseName> = BTreeMap::new();
        let mut open = vec![start];
        while let Some(name) = open.pop() {
            for to in targets(program, name).filter(|to| free(to)) {
                if to == start {
                    let mut cycle = vec![name.clone()];
                    let mut at = name;
                    while at != start {
                        let Some(before) = came_from.get(at) else { break };
                        at = before;
                        cycle.push(at.clone());
                    }
                    cycle.reverse();
                    return Some(Fault::Unbounded(cycle));
                }
                if !came_from.contains_key(to) {
                    came_from.insert(to, name);
                    open.push(to);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Next, Phase};
    use super::*;

    /// A program of branches: `a>b,c; b*3>done`. `*N` bounds the visits, `?` is a condition, `.` means no exit.
    fn program(text: &str) -> Phases {
        let phases: Vec<Phase> = text
            .split(';')
            .filter(|part| !part.trim().is_empty())
            .map(|part| {
                let (name, ways) = part.trim().split_once('>').expect("a phase leads somewhere");
                let (name, visits) = match name.split_once('*') {
                    Some((name, visits)) => (name, visits.parse().ok()),
                    None => (name, None),
                };
                let next = ways
                    .split(',')
                    .filter(|way| *way != ".")
                    .map(|way| {
                        let (way, when) = match way.strip_prefix('?') {
                            Some(way) => (way, Some("true".to_owned())),
                            None => (way, None),
                        };
                        let to = match way {
                            "done" => To::Done,
                            "failed" => To::Failed("why".to_owned()),
                            other => To::Phase(PhaseName::new(other)),
                        };
                        Next { when, to }
                    })
                    .collect();
                Phase { name: PhaseName::new(name), kind: Kind::Branch, visits, memory: None, next }
            })
            .collect();
        Phases {
            name: "test".to_owned(),
            description: String::new(),
            start: PhaseName::new("a"),
            answer: None,
            phases,
            own_tools: Vec::new(),
        }
    }

    fn said(text: &str) -> String {
        faults(&program(text)).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn sound_programs_have_no_faults() {
        for text in ["a>done", "a>?b,failed; b>done", "a>b; b*3>?a,done", "a>?b,c; b>?d,done; c>d; d*9>?a,failed"] {
            assert_eq!(said(text), "", "{text}");
        }
    }

    #[test]
    fn every_fault_names_its_phase_and_the_way_out() {
        for (text, parts) in [
            ("", ["no phases", "[[phase]]"]),
            ("b>done", ["no phase \"a\" to start with", "name one"]),
            ("a>?b,done; b>done; b>done", ["second phase named \"b\"", "another name"]),
            ("a>done; done>done", ["\"done\" is an end", "another name"]),
            ("a>?done", ["the phase \"a\" has no exit", "without `when`"]),
            ("a>.", ["the phase \"a\" has no exit", "without `when`"]),
            ("a>done,?b; b>done", ["the phase \"a\" has transitions behind one without `when`", "put that one last"]),
            ("a>?c,done", ["the phase \"a\" leads to \"c\"", "correct the name"]),
            ("a>done; b>done", ["no transition leads to the phase \"b\"", "leave it out"]),
            ("a>?b,done; b*3>b", ["no way leads from the phase \"b\" to an end", "\"done\" or \"failed\""]),
            ("a>?b,done; b>c; c>?b,done", ["nothing bounds: b → c → b", "visits = N"]),
            ("a>?a,done", ["nothing bounds: a → a", "visits = N"]),
            ("a*0>done", ["the phase \"a\" may be entered 1 to 1000 times", "visits = N"]),
        ] {
            let said = said(text);
            for part in parts {
                assert!(said.contains(part), "{text}: {said}");
            }
        }
    }

    #[test]
    fn a_cycle_is_found_wherever_it_is_and_only_there() {
        // The circle through b is bounded, the one beside it is not.
        let said = said("a>?b,c; b*2>?a,done; c>?d,done; d>?e,failed; e>?c,done");
        assert!(said.contains("c → d → e → c"), "{said}");
        assert!(!said.contains("b →"), "{said}");
    }
}
