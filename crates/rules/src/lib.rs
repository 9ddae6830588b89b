//! Rules that speak for an answer or against a call: conditions (CEL), JSON Schema, templates, and the judgement made of
//! them. Pure: no I/O, no clock, no state between calls.
//!
//! Read [`Rulebook`] first: all rules of a task, compiled once, so that a mistake in one is found when the task is
//! loaded and not when the run depends on it. It answers what the port [`longrein_ports::Checks`] asks, except running
//! commands.
//!
//! Deliberately absent: rules that call out, remote schemas, and any way for a rule to change something.

mod answer;
mod condition;
mod found;
mod numbers;
pub mod program;
mod rulebook;
mod schema;
mod template;

pub use answer::{Answer, AnswerMistake, BOUND_ANSWER, is_name};
pub use condition::{Condition, ConditionMistake, Unmet};
pub use rulebook::{CHECK_NAMES, GUARD_NAMES, Mistake, Rulebook};
pub use schema::{Fault, Schema, SchemaMistake};
pub use template::{Template, TemplateMistake};
