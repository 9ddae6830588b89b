//! The conditions and templates of a program: what they may look at, and what is wrong with them when it is loaded.
//!
//! A template is any JSON value; its strings are filled in. A string that is one expression and nothing else, `"{{ … }}"`,
//! gives the value itself, so that a number stays a number; any other gives text.

use std::collections::{BTreeMap, BTreeSet};

use longrein_core::payload::Payload;
use longrein_core::program::{Kind, Phases};
use serde_json::{Map, Value as Json};

use crate::condition::{Condition, Unmet};
use crate::schema::Schema;
use crate::template::{Template, expression};

/// What conditions and templates of a program may look at.
pub const PROGRAM_NAMES: [&str; 11] =
    ["goal", "facts", "outputs", "evidence", "inputs", "last", "visits", "since", "checks", "lessons", "principal"];

/// Also in what a child run of `each` is told.
const ITEM: &str = "item";

/// What a program's rules may name beside its own phases, as far as it is known.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Facts that tools provide. None: the task is not known.
    pub facts: Option<BTreeSet<String>>,
    /// Acceptance checks of the task. None: likewise.
    pub checks: Option<BTreeSet<String>>,
}

/// A rule of a program that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramMistake {
    pub phase: String,
    /// The key it is in.
    pub key: &'static str,
    /// What is wrong, and what to do.
    pub problem: String,
}

/// Only an expression that stands alone gives a list: what is filled into words is text.
fn gives_a_value(template: &str) -> Result<(), String> {
    match expression(template) {
        Some(_) => Ok(()),
        None => Err(format!(
            "\"{}\" is text, and no list; write one expression, as in \"{{{{ ['a', 'b'] }}}}\"",
            crate::condition::shorten(template, 80)
        )),
    }
}

/// Everything that is wrong with a program's conditions, templates and schemas.
pub fn mistakes(program: &Phases, known: &Known) -> Vec<ProgramMistake> {
    let mut found = Vec::new();
    let own_checks = program.phases.iter().filter_map(|phase| match &phase.kind {
        Kind::Checks(checks) => Some(checks.own.iter().map(|check| check.name.to_string())),
        Kind::Agent(_)
        | Kind::Reply(_)
        | Kind::Call(_)
        | Kind::Ask(_)
        | Kind::Branch
        | Kind::Each(_)
        | Kind::Run(_) => None,
    });
    let checks = known.checks.clone().map(|mut all| {
        all.extend(own_checks.flatten());
        all
    });
    let phases: BTreeSet<String> = program.phases.iter().map(|phase| phase.name.to_string()).collect();
    let scope = Scope { phases: &phases, facts: known.facts.as_ref(), checks: checks.as_ref() };
    for phase in &program.phases {
        let mut note = |key: &'static str, problem: Result<(), String>| {
            if let Err(problem) = problem {
                found.push(ProgramMistake { phase: phase.name.to_string(), key, problem });
            }
        };
        for when in phase.next.iter().filter_map(|next| next.when.as_deref()) {
            note("next", scope.condition(when));
        }
        if let Some(memory) = &phase.memory {
            note("memory", template(&Json::String(memory.text.clone()), &PROGRAM_NAMES));
        }
        let text = |text: &str| Json::String(text.to_owned());
        let with_item: Vec<&str> = PROGRAM_NAMES.iter().copied().chain([ITEM]).collect();
        match &phase.kind {
            Kind::Agent(agent) => note("instructions", template(&text(&agent.instructions), &PROGRAM_NAMES)),
            Kind::Reply(reply) => {
                note("instructions", template(&text(&reply.instructions), &PROGRAM_NAMES));
                let schema: Json = reply.schema.read().unwrap_or(Json::Null);
                note("schema", Schema::compile(&schema).map(|_| ()).map_err(|mistake| mistake.to_string()));
            }
            Kind::Call(call) => {
                let args: Json = call.args.read().unwrap_or(Json::Null);
                note("args", template(&args, &PROGRAM_NAMES));
            }
            Kind::Ask(ask) => note("question", template(&text(&ask.question), &PROGRAM_NAMES)),
            Kind::Each(each) => {
                note("over", template(&text(&each.over), &PROGRAM_NAMES).and_then(|()| gives_a_value(&each.over)));
                if let Some(goal) = &each.child.goal {
                    note("goal", template(&text(goal), &with_item));
                }
            }
            Kind::Run(child) => {
                if let Some(goal) = &child.goal {
                    note("goal", template(&text(goal), &PROGRAM_NAMES));
                }
            }
            Kind::Checks(_) | Kind::Branch => {}
        }
    }
    found
}

/// What conditions may name.
struct Scope<'a> {
    phases: &'a BTreeSet<String>,
    facts: Option<&'a BTreeSet<String>>,
    checks: Option<&'a BTreeSet<String>>,
}

impl Scope<'_> {
    fn condition(&self, when: &str) -> Result<(), String> {
        let condition = Condition::compile(when, PROGRAM_NAMES)
            .map_err(|mistake| format!("`{when}` is no condition: {mistake}"))?;
        let lists = [
            ("outputs", "phase", Some(self.phases)),
            ("visits", "phase", Some(self.phases)),
            ("since", "phase", Some(self.phases)),
            ("evidence", "phase", Some(self.phases)),
            ("facts", "fact", self.facts),
            ("checks", "check", self.checks),
        ];
        for (name, what, known) in lists {
            let Some(known) = known else { continue };
            if let Some(unknown) = condition.fields_of(name).iter().find(|field| !known.contains(**field)) {
                let all = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                let there = if all.is_empty() { "there is none".to_owned() } else { format!("there are: {all}") };
                return Err(format!("`{when}` names the {what} \"{unknown}\", and {there}"));
            }
        }
        Ok(())
    }
}

/// What is wrong with a template, if anything is.
fn template(value: &Json, names: &[&str]) -> Result<(), String> {
    match value {
        Json::String(text) => Template::compile(text, names.iter().copied())
            .map(|_| ())
            .map_err(|mistake| format!("\"{}\" is no template: {mistake}", crate::condition::shorten(text, 80))),
        Json::Array(items) => items.iter().try_for_each(|item| template(item, names)),
        Json::Object(fields) => fields.values().try_for_each(|item| template(item, names)),
        Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
    }
}

type Values = BTreeMap<String, Payload>;

/// Whether a condition holds. Err: it gives no verdict, and why.
pub fn holds(condition: &Condition, values: &Values) -> Result<bool, String> {
    let read = read(values.iter().filter(|(name, _)| condition.names().contains(name.as_str())))?;
    let by_name: BTreeMap<&str, &Json> = read.iter().map(|(name, value)| (name.as_str(), value)).collect();
    match condition.hold(&by_name) {
        Ok(()) => Ok(true),
        Err(Unmet::False { .. }) => Ok(false),
        Err(unmet @ (Unmet::NoBool { .. } | Unmet::Failed { .. })) => Err(unmet.to_string()),
    }
}

/// Compiles and evaluates a condition of a program.
pub fn condition(condition: &str, values: &Values) -> Result<bool, String> {
    let compiled = Condition::compile(condition, values.keys().map(String::as_str))
        .map_err(|mistake| format!("`{condition}` is no condition: {mistake}"))?;
    holds(&compiled, values)
}

/// Fills in the strings of a template.
pub fn fill(template: &Payload, values: &Values) -> Result<Payload, String> {
    let template: Json = template.read().map_err(|error| format!("the template cannot be read: {error}"))?;
    let read = read(values.iter())?;
    let by_name: BTreeMap<&str, &Json> = read.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let filled = filled(&template, &by_name)?;
    Payload::of(&filled).map_err(|error| error.to_string())
}

fn filled(template: &Json, values: &BTreeMap<&str, &Json>) -> Result<Json, String> {
    let quoted = |text: &str| crate::condition::shorten(text, 80);
    Ok(match template {
        Json::String(text) if !text.contains("{{") && !text.contains("{%") => Json::String(text.clone()),
        Json::String(text) => match expression(text) {
            Some(inner) => crate::template::evaluate(inner, values)
                .map_err(|problem| format!("\"{}\" cannot be filled in: {problem}", quoted(text)))?,
            None => {
                let compiled = Template::compile(text, values.keys().copied())
                    .map_err(|mistake| format!("\"{}\" is no template: {mistake}", quoted(text)))?;
                let text = compiled
                    .render(values)
                    .map_err(|problem| format!("\"{}\" cannot be filled in: {problem}", quoted(text)))?;
                Json::String(text)
            }
        },
        Json::Array(items) => Json::Array(items.iter().map(|item| filled(item, values)).collect::<Result<_, _>>()?),
        Json::Object(fields) => Json::Object(
            fields
                .iter()
                .map(|(name, item)| Ok((name.clone(), filled(item, values)?)))
                .collect::<Result<Map<String, Json>, String>>()?,
        ),
        Json::Null | Json::Bool(_) | Json::Number(_) => template.clone(),
    })
}

fn read<'a>(values: impl Iterator<Item = (&'a String, &'a Payload)>) -> Result<BTreeMap<String, Json>, String> {
    values
        .map(|(name, payload)| {
            let value = payload.read().map_err(|error| format!("{name} cannot be read: {error}"))?;
            Ok((name.clone(), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use longrein_core::ids::PhaseName;
    use longrein_core::program::{Agent, Next, Phase, Prose, To};
    use serde_json::json;

    use super::*;

    fn values() -> Values {
        [
            ("outputs", json!({ "plan": { "steps": ["a", "b"], "n": 2, "done": false }, "text": "words" })),
            ("visits", json!({ "plan": 1, "work": 0 })),
            ("last", json!({ "phase": "plan", "ok": true })),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Payload::of(&value).unwrap()))
        .collect()
    }

    #[test]
    fn conditions_hold_or_do_not_or_say_why() {
        for (when, found) in [
            ("last.ok && visits.plan < 3", "true"),
            ("size(outputs.plan.steps) > 2", "false"),
            ("outputs.work.x", "error: `outputs.work.x` could not be evaluated: there is no \"work\" in the value"),
            ("outputs.text", "error: `outputs.text` gives a string, not true or false"),
        ] {
            let said = match condition(when, &values()) {
                Ok(holds) => holds.to_string(),
                Err(problem) => format!("error: {problem}"),
            };
            assert!(said.starts_with(found), "{when}: {said}");
        }
    }

    #[test]
    fn one_expression_keeps_its_type_and_text_is_text() {
        let fill = |template: Json| match fill(&Payload::of(&template).unwrap(), &values()) {
            Ok(filled) => filled.as_str().to_owned(),
            Err(problem) => format!("error: {problem}"),
        };
        assert_eq!(fill(json!("{{ outputs.plan.steps[visits.work] }}")), "\"a\"");
        assert_eq!(
            fill(
                json!({ "n": "{{ outputs.plan.n }}", "l": "{{ outputs.plan.steps }}", "k": 1.5, "b": ["{{ last.ok }}"] })
            ),
            r#"{"n":2,"l":["a","b"],"k":1.5,"b":[true]}"#
        );
        assert_eq!(fill(json!("Do {{ outputs.plan.n }} of {{ outputs.text }}")), "\"Do 2 of words\"");
        assert_eq!(fill(json!("plain")), "\"plain\"");
        assert!(
            fill(json!("{{ outputs.nothing }}")).starts_with("error: \"{{ outputs.nothing }}\" cannot be filled in")
        );
        assert!(fill(json!("x {{ outputs.nothing.deep }}")).contains("undefined value"));
    }

    #[test]
    fn mistakes_name_phase_key_and_way_out() {
        let broken = |when: &str, instructions: &str| {
            let agent = Agent { instructions: instructions.to_owned(), tools: None, turns: None, prose: Prose::Kept };
            let program = Phases {
                name: "p".to_owned(),
                description: String::new(),
                start: PhaseName::new("work"),
                answer: None,
                phases: vec![Phase {
                    name: PhaseName::new("work"),
                    kind: Kind::Agent(agent),
                    visits: None,
                    memory: None,
                    next: vec![
                        Next { when: Some(when.to_owned()), to: To::Done },
                        Next { when: None, to: To::Failed("no".to_owned()) },
                    ],
                }],
                own_tools: Vec::new(),
            };
            let known =
                Known { facts: Some(["built".to_owned()].into()), checks: Some(["tests pass".to_owned()].into()) };
            mistakes(&program, &known)
                .into_iter()
                .map(|mistake| format!("{} {}: {}", mistake.phase, mistake.key, mistake.problem))
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert_eq!(broken("facts.built.ok && checks['tests pass'].passed && has(outputs.work)", "{{ goal }}"), "");
        for (when, instructions, said) in [
            ("last.ok &&", "", "work next: `last.ok &&` is no condition: it does not parse"),
            ("other.x", "", "\"other\" is not defined here; there are:"),
            ("outputs.wrok == 1.0", "", "names the phase \"wrok\", and there are: work"),
            ("visits['wrok'] == 1.0", "", "names the phase \"wrok\", and there are: work"),
            ("facts.biult", "", "names the fact \"biult\", and there are: built"),
            ("checks.tests.passed", "", "names the check \"tests\", and there are: tests pass"),
            ("last.ok", "{{ item }}", "work instructions: \"{{ item }}\" is no template: \"item\" is not defined here"),
            ("last.ok", "{{ last.ok", "work instructions: \"{{ last.ok\" is no template: syntax error"),
        ] {
            let found = broken(when, instructions);
            assert!(found.contains(said), "{when} {instructions}: {found}");
        }
    }
}
