//! All rules of a task, compiled once.

use std::collections::BTreeMap;

use longrein_core::check::Judgement;
use longrein_core::ids::{CheckName, EvidenceId, ToolName};
use longrein_core::payload::Payload;
use longrein_core::program::{Kind, Phases};
use longrein_core::task::{AnswerSpec, CheckBy, Guard, Task};
use longrein_ports::{Cited, GuardInput, Work};
use serde_json::{Map, Value as Json};

use crate::answer::{Answer, AnswerMistake, judge_plain};
use crate::condition::{Condition, ConditionMistake, Unmet};
use crate::program::{self, PROGRAM_NAMES};
use crate::schema::Schema;

/// What a guard may look at.
pub const GUARD_NAMES: [&str; 4] = ["args", "facts", "ev", "principal"];

/// What the rule of an acceptance check may look at.
pub const CHECK_NAMES: [&str; 4] = ["answer", "ev", "facts", "principal"];

/// The rules of one task. A rule it does not know (of another task) is compiled when it is asked for, so that one
/// empty book can serve many tasks, more slowly.
#[derive(Debug, Default)]
pub struct Rulebook {
    guards: BTreeMap<String, Condition>,
    answer: Option<(AnswerSpec, Answer)>,
    /// Of acceptance checks.
    rules: BTreeMap<String, Condition>,
    /// Of the program.
    conditions: BTreeMap<String, Condition>,
    /// What `reply` phases and structured answers of the program must be.
    replies: Vec<(AnswerSpec, Answer)>,
}

/// A rule of the task that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    #[error("the guard of {tool}: {mistake}")]
    Guard { tool: ToolName, mistake: ConditionMistake },
    #[error("the rule of the check \"{check}\": {mistake}")]
    Check { check: CheckName, mistake: ConditionMistake },
    #[error("the schema of the check \"{check}\": {problem}")]
    CheckSchema { check: CheckName, problem: String },
    #[error("answer.{}: {mistake}", mistake.key())]
    Answer { mistake: AnswerMistake },
}

impl Rulebook {
    pub fn of(task: &Task) -> Result<Self, Mistake> {
        let mut book = Self::default();
        for tool in &task.tools {
            if let Some(guard) = &tool.guard {
                let condition = Condition::compile(&guard.condition, GUARD_NAMES)
                    .map_err(|mistake| Mistake::Guard { tool: tool.name.clone(), mistake })?;
                book.guards.insert(guard.condition.clone(), condition);
            }
        }
        if let Some(spec) = &task.answer {
            let answer = Answer::compile(spec).map_err(|mistake| Mistake::Answer { mistake })?;
            book.answer = Some((spec.clone(), answer));
        }
        for check in &task.acceptance {
            match &check.by {
                Some(CheckBy::Rule(rule)) => {
                    let condition = Condition::compile(rule, CHECK_NAMES)
                        .map_err(|mistake| Mistake::Check { check: check.name.clone(), mistake })?;
                    book.rules.insert(rule.clone(), condition);
                }
                Some(CheckBy::Schema(schema)) => {
                    fits(schema, &Payload::null())
                        .map_err(|problem| Mistake::CheckSchema { check: check.name.clone(), problem })?
                        .err();
                }
                Some(CheckBy::Host(_) | CheckBy::Judge(_)) | None => {}
            }
        }
        if let Some(program) = task.program.phases() {
            book.learn(program);
        }
        Ok(book)
    }

    /// Ok if the rule of an acceptance check holds over what was done; else why not. A rule that gives no verdict does not
    /// hold.
    pub fn check(&self, rule: &str, work: &Work, principal: &Payload) -> Result<(), String> {
        let compiled;
        let condition = match self.rules.get(rule) {
            Some(condition) => condition,
            None => {
                compiled = Condition::compile(rule, CHECK_NAMES)
                    .map_err(|mistake| format!("The rule is broken: {mistake}."))?;
                &compiled
            }
        };
        let values = [
            ("answer", read(&work.answer)?),
            ("ev", object(work.evidence.iter().map(|(name, value)| (name.as_str(), value)))?),
            ("facts", object(work.facts.iter().map(|(name, value)| (name.as_str(), value)))?),
            ("principal", read(principal)?),
        ];
        let values: BTreeMap<&str, &Json> = values.iter().map(|(name, value)| (*name, value)).collect();
        condition.hold(&values).map_err(|unmet| format!("{unmet}."))
    }

    /// Ok if the answer fits a schema; else where it does not.
    pub fn check_schema(&self, schema: &Payload, work: &Work) -> Result<(), String> {
        fits(schema, &work.answer).unwrap_or_else(|problem| Err(format!("The schema is broken: {problem}.")))
    }

    /// Compiles a program's rules, as far as they can be: what is wrong with them was found when it was loaded.
    fn learn(&mut self, program: &Phases) {
        for when in program.phases.iter().flat_map(|phase| &phase.next).filter_map(|next| next.when.as_ref()) {
            if let Ok(condition) = Condition::compile(when, PROGRAM_NAMES) {
                self.conditions.insert(when.clone(), condition);
            }
        }
        for phase in &program.phases {
            if let Kind::Reply(reply) = &phase.kind {
                let spec = AnswerSpec::of_schema(reply.schema.clone());
                if let Ok(answer) = Answer::compile(&spec) {
                    self.replies.push((spec, answer));
                }
            }
        }
    }

    /// Whether a condition of the program holds. Err: it gives no verdict, and why.
    pub fn condition(&self, condition: &str, values: &BTreeMap<String, Payload>) -> Result<bool, String> {
        match self.conditions.get(condition) {
            Some(condition) => program::holds(condition, values),
            None => program::condition(condition, values),
        }
    }

    /// Fills in a template of the program.
    pub fn fill(&self, template: &Payload, values: &BTreeMap<String, Payload>) -> Result<Payload, String> {
        program::fill(template, values)
    }

    /// Ok if the guard holds; else the message for the model. A guard that cannot be evaluated does not hold.
    pub fn guard(&self, guard: &Guard, input: &GuardInput<'_>) -> Result<(), String> {
        let compiled;
        let condition = match self.guards.get(&guard.condition) {
            Some(condition) => condition,
            None => {
                compiled = Condition::compile(&guard.condition, GUARD_NAMES)
                    .map_err(|mistake| format!("The guard of this tool is broken: {mistake}."))?;
                &compiled
            }
        };
        let values = [
            ("args", read(input.args)?),
            ("facts", object(input.facts.iter().map(|(name, value)| (name.as_str(), value)))?),
            ("ev", object(input.evidence.iter().map(|(name, value)| (name.as_str(), value)))?),
            ("principal", read(input.principal)?),
        ];
        let values: BTreeMap<&str, &Json> = values.iter().map(|(name, value)| (*name, value)).collect();
        condition.hold(&values).map_err(|unmet| match (&unmet, &guard.message) {
            (Unmet::False { .. }, Some(message)) => format!("{message} ({unmet})"),
            (Unmet::False { .. }, None) => format!("The guard of this tool does not hold: {unmet}."),
            // the task's message is the reason of a guard that is false, and this is another one
            (Unmet::NoBool { .. } | Unmet::Failed { .. }, _) => {
                format!("The call was refused because the guard of this tool gives no verdict: {unmet}.")
            }
        })
    }

    /// The evidence ids an answer cites in its bound fields; those that cannot be read are left out.
    pub fn cites(&self, spec: &AnswerSpec, text: &str) -> Vec<EvidenceId> {
        match self.answer.iter().find(|(known, _)| known == spec) {
            Some((_, answer)) => answer.cites(text),
            None => Answer::compile(spec).map(|answer| answer.cites(text)).unwrap_or_default(),
        }
    }

    /// Judges a final reply: schema, bindings, condition, then the template.
    pub fn judge(&self, spec: Option<&AnswerSpec>, text: &str, cited: &BTreeMap<EvidenceId, Cited>) -> Judgement {
        let Some(spec) = spec else {
            return judge_plain(text);
        };
        match self.answer.iter().chain(&self.replies).find(|(known, _)| known == spec) {
            Some((_, answer)) => answer.judge(text, cited),
            None => match Answer::compile(spec) {
                Ok(answer) => answer.judge(text, cited),
                Err(mistake) => Judgement::Refused(format!("The rule for the answer is broken: {mistake}.")),
            },
        }
    }
}

/// The outer error: the schema is none.
fn fits(schema: &Payload, value: &Payload) -> Result<Result<(), String>, String> {
    let schema: Json = schema.read().map_err(|error| error.to_string())?;
    let schema = Schema::compile(&schema).map_err(|mistake| mistake.to_string())?;
    let value: Json = value.read().map_err(|error| error.to_string())?;
    let faults: Vec<_> = schema.faults(&value).iter().map(ToString::to_string).collect();
    Ok(if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) })
}

fn read(payload: &Payload) -> Result<Json, String> {
    payload.read().map_err(|error| format!("The guard could not read its input: {error}."))
}

fn object<'a>(values: impl Iterator<Item = (&'a str, &'a Payload)>) -> Result<Json, String> {
    let fields: Result<Map<String, Json>, String> =
        values.map(|(name, payload)| Ok((name.to_owned(), read(payload)?))).collect();
    fields.map(Json::Object)
}

#[cfg(test)]
mod tests {
    use longrein_core::ids::FactName;

    use super::*;

    fn check(condition: &str, message: Option<&str>) -> String {
        let guard = Guard { condition: condition.to_owned(), message: message.map(str::to_owned) };
        let json = |text: &str| Payload::parse(text).unwrap();
        let input = GuardInput {
            args: &json(r#"{"amount": 120, "to": "acme"}"#),
            facts: &BTreeMap::from([(FactName::new("limit"), json("100"))]),
            evidence: &BTreeMap::from([("invoice_id".to_owned(), json(r#"{"amount": 120.0}"#))]),
            principal: &json(r#"{"tenant": "shop"}"#),
        };
        Rulebook::default().guard(&guard, &input).err().unwrap_or_else(|| "holds".to_owned())
    }

    #[test]
    fn a_guard_sees_arguments_facts_evidence_and_principal() {
        assert_eq!(check("args.amount == ev.invoice_id.amount && principal.tenant == 'shop'", None), "holds");
        assert_eq!(
            check("args.amount <= facts.limit", None),
            "The guard of this tool does not hold: `args.amount <= facts.limit` is false."
        );
        assert_eq!(
            check("args.amount <= facts.limit", Some("Split payments above the limit.")),
            "Split payments above the limit. (`args.amount <= facts.limit` is false)"
        );
        assert!(check("facts.missing > 1.0", None).contains("there is no \"missing\""));
        assert_eq!(
            check("args.amount <= facts.missing", Some("Split payments above the limit.")),
            "The call was refused because the guard of this tool gives no verdict: `args.amount <= facts.missing` could \
             not be evaluated: there is no \"missing\" in the value it is looked up in."
        );
        assert!(check("args.amount", Some("Split.")).ends_with("`args.amount` gives a number, not true or false."));
        assert!(check("answer.x", None).contains("broken"));
    }

    #[test]
    fn without_a_specification_the_text_is_the_answer() {
        let judged = Rulebook::default().judge(None, "All \"done\".", &BTreeMap::new());
        let Judgement::Accepted(accepted) = judged else { panic!("{judged:?}") };
        assert_eq!(accepted.answer.as_str(), "\"All \\\"done\\\".\"");
        assert_eq!(accepted.rendered, "All \"done\".");
    }
}
