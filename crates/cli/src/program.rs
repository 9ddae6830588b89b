//! `longrein program`: those that come along, and any of them checked and drawn, without a run.

use longrein::core::program::Phases;
use longrein::taskfile::{self, Place, program};
use longrein::{mermaid, program_text};
use serde_json::{Value, json};

use crate::args::{Globals, ProgramShowArgs};
use crate::context;
use crate::failure::Failure;
use crate::failure::Status;
use crate::out::{lay, say, tell};
use crate::progress::print_line;
use crate::tools;
use crate::words;

/// Where the second column of the list begins.
const BESIDE_NAME: usize = 11;

/// The programs that come along, and what each is for.
pub(crate) fn list(globals: &Globals) -> Result<Status, Failure> {
    let here = context::here()?;
    let mut rows = Vec::new();
    for (name, _) in program::SHIPPED {
        let found = program::find(name, &here, &Place::Flag("program".to_owned()))?;
        rows.push((name, found.phases.description));
    }
    if globals.json {
        let rows: Vec<_> =
            rows.iter().map(|(name, description)| json!({ "name": name, "description": description })).collect();
        print_line(&json!(rows));
        return Ok(Status::Done);
    }
    for (name, description) in &rows {
        lay!(BESIDE_NAME, "{name:<BESIDE_NAME$}{}", words::safe(description));
    }
    tell!("longrein run --program NAME …; longrein program show NAME --source > mine.toml, to change one");
    Ok(Status::Done)
}

fn source(name: &str) -> Result<Status, Failure> {
    let Some((_, text)) = program::SHIPPED.iter().find(|(shipped, _)| *shipped == name) else {
        let problem = format!("{} does not come along: what is in a file of yours, you have", words::safe(name));
        return Err(Failure::new(Status::Usage, problem).way_out("longrein program list"));
    };
    say!("{}", text.trim_end());
    Ok(Status::Done)
}

pub(crate) fn show(globals: &Globals, args: &ProgramShowArgs) -> Result<Status, Failure> {
    if args.source {
        return source(&args.program);
    }
    let here = context::here()?;
    let place = Place::Flag("program".to_owned());
    let mut program = program::find(&args.program, &here, &place)?;
    let task = args.task.as_ref().map(|file| tools::load(file, &args.vars)).transpose()?;
    let workspace = task.as_ref().map_or_else(|| here.clone(), |task| task.workspace.clone().into());
    program.resolve(&taskfile::Options { here, ..taskfile::Options::default() }, &workspace)?;
    if let Some(task) = &task {
        program.fits(task)?;
    }
    if globals.json {
        print_line(&lines(&program.phases));
    } else if args.mermaid {
        say!("{}", mermaid(&program.phases).trim_end());
    } else {
        say!("{}", words::safe(program_text(&program.phases).trim_end()));
        say!("");
        say!("{}", mermaid(&program.phases).trim_end());
    }
    Ok(Status::Done)
}

fn lines(program: &Phases) -> Value {
    let phases = program.phases.iter().map(|phase| {
        json!({
            "name": phase.name, "kind": phase.kind.as_str(), "visits": phase.visits,
            "child": phase.kind.child().map(|child| json!({
                "task": child.task, "program": child.program, "model": child.model,
                "says": child.found.as_ref().and_then(|found| found.task.as_ref()),
            })),
            "memory": phase.memory.as_ref().map(|memory| &memory.list),
            "next": phase.next.iter().map(|next| json!({ "when": next.when, "to": next.to.to_string() })).collect::<Vec<_>>(),
        })
    });
    json!({
        "name": program.name, "description": program.description, "start": program.start, "answer": program.answer,
        "phases": phases.collect::<Vec<_>>(), "mermaid": mermaid(program),
    })
}
