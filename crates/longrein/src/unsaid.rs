//! What a task says in words, as it may be kept and sent: a mark in place of each secret.
//!
//! What it has run (commands, environments, paths, rules of the policy) stays as it is: with a mark in it, it would be
//! something else.

use longrein_core::program::{Child, Kind, Phases, Program};
use longrein_core::task::{Task, ToolSpec};
use longrein_driver::Ports;
use longrein_ports::Tools;
use longrein_tools::Secrets;

/// Known values are taken out of whatever the model reads of it; files of the workspace lose what looks like a secret too,
/// as whenever they are read.
pub(crate) fn of_task(task: &mut Task, tools: &dyn Tools) {
    let typed = task.piped_from.and_then(|at| usize::try_from(at).ok()).filter(|at| task.goal.is_char_boundary(*at));
    match typed {
        Some(at) => {
            let mut piped = task.goal.split_off(at);
            of_text(&mut task.goal, tools);
            of_text(&mut piped, tools);
            task.piped_from = Some(task.goal.len() as u64);
            task.goal.push_str(&piped);
        }
        None => of_text(&mut task.goal, tools),
    }
    of_text(&mut task.instructions, tools);
    task.constraints.iter_mut().for_each(|text| of_text(text, tools));
    for file in &mut task.rules {
        of_text(&mut file.text, tools);
        file.text = Secrets::new().clean(&file.text);
    }
    of_tools(&mut task.tools, tools);
    of_program(&mut task.program, tools);
}

/// The same of what the model is offered.
pub(crate) fn of_definitions(ports: &mut Ports) {
    let mut definitions = ports.definitions.to_vec();
    definitions.iter_mut().for_each(|tool| of_text(&mut tool.description, ports.tools.as_ref()));
    ports.definitions = definitions.into();
}

fn of_text(text: &mut String, tools: &dyn Tools) {
    if let Some(unsaid) = tools.unsaid(text) {
        *text = unsaid;
    }
}

fn of_tools(specs: &mut [ToolSpec], tools: &dyn Tools) {
    specs.iter_mut().for_each(|spec| of_text(&mut spec.description, tools));
}

fn of_program(program: &mut Program, tools: &dyn Tools) {
    match program {
        Program::React => {}
        Program::Phases(phases) => of_phases(phases, tools),
    }
}

fn of_phases(program: &mut Phases, tools: &dyn Tools) {
    of_text(&mut program.description, tools);
    for phase in &mut program.phases {
        match &mut phase.kind {
            Kind::Agent(agent) => of_text(&mut agent.instructions, tools),
            Kind::Reply(reply) => of_text(&mut reply.instructions, tools),
            Kind::Ask(ask) => of_text(&mut ask.question, tools),
            Kind::Each(each) => of_child(&mut each.child, tools),
            Kind::Run(child) => of_child(child, tools),
            Kind::Call(_) | Kind::Checks(_) | Kind::Branch => {}
        }
        phase.memory.iter_mut().for_each(|memory| of_text(&mut memory.text, tools));
    }
}

fn of_child(child: &mut Child, tools: &dyn Tools) {
    child.goal.iter_mut().for_each(|goal| of_text(goal, tools));
    let Some(found) = &mut child.found else { return };
    found.program.iter_mut().for_each(|program| of_program(program, tools));
    of_tools(&mut found.tools, tools);
    if let Some(task) = &mut found.task {
        let words = task.goal.iter_mut().chain(&mut task.instructions).chain(&mut task.constraints);
        words.for_each(|text| of_text(text, tools));
        task.tools.iter_mut().for_each(|specs| of_tools(specs, tools));
    }
}
