//! `longrein program show`: a program checked and drawn, without a run.

use longrein::core::program::Phases;
use longrein::taskfile::{self, Place, program};
use longrein::{mermaid, program_text};
use serde_json::{Value, json};

use crate::args::{Globals, ProgramShowArgs};
use crate::context;
use crate::failure::Failure;
use crate::failure::Status;
use crate::out::say;
use crate::progress::print_line;
use crate::tools;
use crate::words;

pub(crate) fn show(globals: &Globals, args: &ProgramShowArgs) -> Result<Status, Failure> {
    let here = context::here()?;
    let place = Place::Flag("program".to_owned());
    let program = program::find(&args.program, &here, &place)?;
    if let Some(file) = &args.task {
        let task = tools::load(file, &args.vars)?;
        match program.fits(&task) {
            // Drawn it can be.
            Ok(()) | Err(taskfile::TaskFileError::NotYet { .. }) => {}
            Err(error) => return Err(error.into()),
        }
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
            "memory": phase.memory.as_ref().map(|memory| &memory.list),
            "next": phase.next.iter().map(|next| json!({ "when": next.when, "to": next.to.to_string() })).collect::<Vec<_>>(),
        })
    });
    json!({
        "name": program.name, "description": program.description, "start": program.start, "answer": program.answer,
        "phases": phases.collect::<Vec<_>>(), "mermaid": mermaid(program),
    })
}
