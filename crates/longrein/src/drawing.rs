//! Programs drawn: as Mermaid, for whatever renders it, and as text, for a terminal.

use longrein_core::program::{Form, Join, Kind, Next, Phase, Phases, To};

use crate::taskfile::part::in_words;

/// The program as a Mermaid flowchart.
pub fn mermaid(program: &Phases) -> String {
    let mut text = String::from("flowchart TD\n");
    text.push_str(&format!("  start([start]) --> {}\n", node(program.start.as_str())));
    for phase in &program.phases {
        let label = format!("{}<br/>{}", quoted(phase.name.as_str()), quoted(&summary(phase)));
        let name = node(phase.name.as_str());
        let shape = match phase.kind {
            Kind::Branch => format!("{name}{{\"{label}\"}}"),
            Kind::Agent(_) | Kind::Reply(_) => format!("{name}[\"{label}\"]"),
            Kind::Call(_) | Kind::Checks(_) => format!("{name}[[\"{label}\"]]"),
            Kind::Ask(_) => format!("{name}[/\"{label}\"/]"),
            Kind::Each(_) | Kind::Run(_) => format!("{name}[[\"{label}\"]]"),
        };
        text.push_str(&format!("  {shape}\n"));
    }
    for phase in &program.phases {
        let from = node(phase.name.as_str());
        for next in &phase.next {
            let to = match &next.to {
                To::Phase(name) => node(name.as_str()),
                To::Done => "done([done])".to_owned(),
                To::Failed(_) => "failed([failed])".to_owned(),
            };
            text.push_str(&match label(next, phase) {
                Some(label) => format!("  {from} -->|\"{}\"| {to}\n", quoted(&label)),
                None => format!("  {from} --> {to}\n"),
            });
        }
    }
    text
}

/// The program in lines: each phase with what is done in it and where it leads.
pub fn text(program: &Phases) -> String {
    let mut text = program.name.clone();
    if !program.description.is_empty() {
        text.push_str(&format!(": {}", program.description));
    }
    let answer = match &program.answer {
        Some(answer) => format!("the answer is what {answer} leaves"),
        None => "the answer is the model's last reply".to_owned(),
    };
    text.push_str(&format!("\nstarts with {}; {answer}\n", program.start));
    for phase in &program.phases {
        text.push_str(&format!("\n{}: {}\n", phase.name, summary(phase)));
        if let Some(memory) = &phase.memory {
            text.push_str(&format!("  remembers in {}: {}\n", memory.list, one_line(&memory.text)));
        }
        for line in phase
            .kind
            .child()
            .and_then(|child| child.found.as_ref()?.task.as_ref())
            .into_iter()
            .flat_map(|part| in_words(part))
        {
            text.push_str(&format!("  its {line}\n"));
        }
        for next in &phase.next {
            let reason = match &next.to {
                To::Failed(reason) => format!(": {reason}"),
                To::Phase(_) | To::Done => String::new(),
            };
            let when = label(next, phase).map(|when| format!("  ({when})")).unwrap_or_default();
            text.push_str(&format!("  → {}{reason}{when}\n", next.to));
        }
    }
    text
}

/// What a transition depends on. None: it is the only one.
fn label(next: &Next, phase: &Phase) -> Option<String> {
    match &next.when {
        Some(when) => Some(one_line(when)),
        None if phase.next.len() > 1 => Some("otherwise".to_owned()),
        None => None,
    }
}

/// What is done in a phase, in a few words.
fn summary(phase: &Phase) -> String {
    let mut words = match &phase.kind {
        Kind::Agent(agent) => {
            let tools = match agent.tools.as_deref() {
                None => String::new(),
                Some([]) => ", no tools".to_owned(),
                Some(tools) => {
                    let names: Vec<_> = tools.iter().map(|tool| tool.as_str()).collect();
                    format!(", tools {}", names.join(" "))
                }
            };
            let turns = agent.turns.map(|turns| format!(", {turns} turns")).unwrap_or_default();
            format!("agent{tools}{turns}")
        }
        Kind::Reply(_) => "one structured reply".to_owned(),
        Kind::Call(call) => format!("call {}", call.tool),
        Kind::Checks(checks) => {
            let names = checks.own.iter().map(|check| &check.name).chain(&checks.named);
            let names: Vec<_> = names.map(|name| name.as_str()).collect();
            if names.is_empty() { "all acceptance checks".to_owned() } else { format!("checks {}", names.join(", ")) }
        }
        Kind::Ask(ask) => match ask.form {
            Form::Words => "asks a person".to_owned(),
            Form::YesNo => "asks a person, yes or no".to_owned(),
        },
        Kind::Branch => "branch".to_owned(),
        Kind::Each(each) => {
            let join = match each.join {
                Join::All => "all",
                Join::Any => "any",
            };
            let what = each.child.task.as_ref().or(each.child.program.as_ref());
            let of = what.map(|what| format!(" of {what}")).unwrap_or_default();
            format!("a run{of} for each of {}, {} at a time, join {join}", one_line(&each.over), each.parallel)
        }
        Kind::Run(child) => match child.task.as_ref().or(child.program.as_ref()) {
            Some(what) => format!("a run of {what}"),
            None => "a run of its own".to_owned(),
        },
    };
    if let Some(visits) = phase.visits {
        words.push_str(&format!(", at most {visits} times"));
    }
    words
}

/// A node's name: `end` is a word of Mermaid's own.
fn node(name: &str) -> String {
    format!("p_{name}")
}

/// Text in a label: quotes, brackets and the like are its syntax.
fn quoted(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '"' => "#quot;".to_owned(),
            '<' => "#lt;".to_owned(),
            '>' => "#gt;".to_owned(),
            '{' => "#123;".to_owned(),
            '}' => "#125;".to_owned(),
            '|' => "#124;".to_owned(),
            '#' => "#35;".to_owned(),
            '`' => "#96;".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
