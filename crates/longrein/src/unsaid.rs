//! What a task says in words and schemas, as it may be kept and sent: a mark in place of each secret.
//!
//! What it has run (commands, environments, paths, conditions, rules of the policy) stays as it is: with a mark in it, it would
//! be something else.

use std::collections::BTreeMap;

use longrein_core::payload::Payload;
use longrein_core::program::{Child, Kind, Phases, Program};
use longrein_core::task::{CheckBy, CheckSpec, Task, ToolSpec};
use longrein_tools::{Secrets, know_named};

/// The secrets that are given to a task's tools, hooks and servers become known, as far as they are set here.
pub(crate) fn know_those_of(task: &Task, operator: &BTreeMap<String, String>, secrets: &mut Secrets) {
    let servers = serde_json::to_string(&task.servers).expect("what was declared can be written down");
    let given = task.tools.iter().flat_map(|tool| &tool.env).chain(task.hooks.iter().flat_map(|hook| &hook.env));
    know_named(given.map(String::as_str).chain([servers.as_str()]), operator, secrets);
}

/// Known values are taken out of whatever the model reads of it; files of the workspace lose what looks like a secret too,
/// as whenever they are read. A schema that cannot do without one is an error.
pub(crate) fn of_task(task: &mut Task, secrets: &Secrets) -> Result<(), String> {
    let typed = task.piped_from.and_then(|at| usize::try_from(at).ok()).filter(|at| task.goal.is_char_boundary(*at));
    match typed {
        Some(at) => {
            let mut piped = task.goal.split_off(at);
            of_text(&mut task.goal, secrets);
            of_text(&mut piped, secrets);
            task.piped_from = Some(task.goal.len() as u64);
            task.goal.push_str(&piped);
        }
        None => of_text(&mut task.goal, secrets),
    }
    of_text(&mut task.instructions, secrets);
    task.constraints.iter_mut().for_each(|text| of_text(text, secrets));
    for file in &mut task.rules {
        of_text(&mut file.text, secrets);
        file.text = Secrets::new().clean(&file.text);
    }
    of_tools(&mut task.tools, secrets)?;
    of_checks(&mut task.acceptance, secrets)?;
    if let Some(schema) = task.answer.as_mut().and_then(|answer| answer.schema.as_mut()) {
        of_schema(schema, "the answer's schema", secrets)?;
    }
    of_program(&mut task.program, secrets)
}

fn of_text(text: &mut String, secrets: &Secrets) {
    if let Some(unsaid) = secrets.unsaid(text) {
        *text = unsaid;
    }
}

/// As text, so that all else in it stays as it was written.
fn of_schema(schema: &mut Payload, what: &str, secrets: &Secrets) -> Result<(), String> {
    if let Some(unsaid) = secrets.unsaid(schema.as_str()) {
        *schema = Payload::parse(unsaid).map_err(|_| {
            format!("the value of a secret stands in {what} as a number; name the secret by ${{secret:NAME}} where it is used, and leave its value out")
        })?;
    }
    Ok(())
}

fn of_checks(checks: &mut [CheckSpec], secrets: &Secrets) -> Result<(), String> {
    for check in checks {
        match &mut check.by {
            Some(CheckBy::Schema(schema)) => {
                of_schema(schema, &format!("the schema of the check {}", check.name), secrets)?
            }
            Some(CheckBy::Judge(judge)) => of_text(&mut judge.means, secrets),
            Some(CheckBy::Rule(_) | CheckBy::Host(_)) | None => {}
        }
    }
    Ok(())
}

fn of_tools(specs: &mut [ToolSpec], secrets: &Secrets) -> Result<(), String> {
    for spec in specs {
        of_text(&mut spec.description, secrets);
        of_schema(&mut spec.parameters, &format!("the parameters of the tool {}", spec.name), secrets)?;
    }
    Ok(())
}

fn of_program(program: &mut Program, secrets: &Secrets) -> Result<(), String> {
    match program {
        Program::React => Ok(()),
        Program::Phases(phases) => of_phases(phases, secrets),
    }
}

fn of_phases(program: &mut Phases, secrets: &Secrets) -> Result<(), String> {
    of_text(&mut program.description, secrets);
    for phase in &mut program.phases {
        match &mut phase.kind {
            Kind::Agent(agent) => of_text(&mut agent.instructions, secrets),
            Kind::Reply(reply) => {
                of_text(&mut reply.instructions, secrets);
                of_schema(&mut reply.schema, &format!("the schema of the phase {}", phase.name), secrets)?;
            }
            Kind::Ask(ask) => of_text(&mut ask.question, secrets),
            Kind::Each(each) => of_child(&mut each.child, secrets)?,
            Kind::Run(child) => of_child(child, secrets)?,
            Kind::Checks(checks) => of_checks(&mut checks.own, secrets)?,
            Kind::Call(_) | Kind::Branch => {}
        }
        phase.memory.iter_mut().for_each(|memory| of_text(&mut memory.text, secrets));
    }
    Ok(())
}

fn of_child(child: &mut Child, secrets: &Secrets) -> Result<(), String> {
    child.goal.iter_mut().for_each(|goal| of_text(goal, secrets));
    let Some(found) = &mut child.found else { return Ok(()) };
    if let Some(program) = &mut found.program {
        of_program(program, secrets)?;
    }
    of_tools(&mut found.tools, secrets)?;
    if let Some(task) = &mut found.task {
        let words = task.goal.iter_mut().chain(&mut task.instructions).chain(&mut task.constraints);
        words.for_each(|text| of_text(text, secrets));
        if let Some(specs) = &mut task.tools {
            of_tools(specs, secrets)?;
        }
    }
    Ok(())
}
