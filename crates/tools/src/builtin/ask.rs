//! `ask`: a question to a person. It is never started: core holds it until somebody answers, and the answer is its result.

use longrein_core::ids::ToolName;
use longrein_core::payload::Payload;
use longrein_core::task::{Builtin, EffectClass, Holds, ToolBody, ToolSpec};

const DESCRIPTION: &str = "\
Ask the person you work for one question and wait for the answer. Use it when you cannot go on without something only a \
person can tell: which of several readings of the task is meant, a preference, a value or access that no tool gives you. \
Not for what a tool can find out, not for permission to call a tool (that is asked for you), and not to report progress. \
Ask everything you need in one question, name the choices you see and which you would take. Returns the person's words; an \
error says that nobody can be asked.";

const PARAMETERS: &str = r#"{"additionalProperties":false,"properties":{"question":{"description":"The question, complete in itself: the person may not have seen what you did.","maxLength":8000,"minLength":1,"type":"string"}},"required":["question"],"type":"object"}"#;

pub(super) fn spec() -> ToolSpec {
    let body = ToolBody::Builtin(Builtin::Ask);
    ToolSpec {
        description: DESCRIPTION.to_owned(),
        parameters: Payload::parse(PARAMETERS).expect("this is JSON"),
        // What a person said stays said, whatever is written.
        holds: Holds::Run,
        ..ToolSpec::new(ToolName::new(Builtin::Ask.as_str()), body, EffectClass::Read)
    }
}
