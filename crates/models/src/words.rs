//! Words that servers have for the same thing: why a reply ended, and that something went wrong.

use longrein_core::outcome::{Billing, Finish, ModelErrorClass, ModelFailure};
use serde_json::Value;

use crate::failure::broken;
use crate::reading::{inside, says_something};

/// Why a model stopped, in any dialect's word for it.
pub(crate) fn finish(word: &str) -> Finish {
    match word.to_ascii_lowercase().as_str() {
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "stop_token" | "complete" | "completed"
        | "end" | "end_of_turn" => Finish::Stop,
        "tool_calls" | "tool_call" | "tool_use" | "function_call" | "function_calls" => Finish::ToolCalls,
        "length" | "max_tokens" | "max_output_tokens" | "max_length" => Finish::Length,
        "content_filter"
        | "content_filtered"
        | "sensitive"
        | "refusal"
        | "safety"
        | "recitation"
        | "error_toxic"
        | "guardrail_intervened" => Finish::Refused,
        _ => Finish::Other(word.to_owned()),
    }
}

/// Whether the reply ended where the model's window does, by Mistral's and Anthropic's words.
pub(crate) fn is_window_full(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "model_length" | "model_context_window_exceeded")
}

/// What is said of a refusal that came without words: how it ended, and the filters that ended it.
pub(crate) fn declined(word: &str, filters: &[String]) -> String {
    if filters.is_empty() { word.to_owned() } else { format!("{word}: {}", filters.join(", ")) }
}

/// A reason to stop that is a fault of the server's: what came is no reply.
pub(crate) fn fault(word: &str) -> Option<ModelFailure> {
    let class = match word.to_ascii_lowercase().as_str() {
        // DeepSeek: the request was interrupted for lack of room.
        "insufficient_system_resource" => ModelErrorClass::Overloaded,
        // vLLM and SGLang, Zhipu, routers.
        "abort" | "aborted" | "network_error" | "error" | "timeout" => ModelErrorClass::Transient,
        _ => return None,
    };
    Some(broken(class, Billing::Perhaps, format!("the server broke the reply off: {word}")))
}

/// Whether a value that holds nothing of a reply is a complaint: `{"detail": …}`, `{"errors": […]}`, a code and a word.
pub(crate) fn is_complaint(value: &Value) -> bool {
    let says = |key: &str| value.get(key).is_some_and(says_something);
    let is_word = |key: &str| value.get(key).is_some_and(Value::is_string) && says(key);
    let in_words = ["message", "detail", "msg", "error_msg", "errorMessage", "error_message", "title"];
    says("errors")
        || says("fault")
        || value.get("detail").is_some_and(|detail| detail.is_array() && says_something(detail))
        || in_words.into_iter().any(is_word)
        || is_base_fault(value)
}

/// MiniMax says in a field of its own whether all is well.
pub(crate) fn is_base_fault(value: &Value) -> bool {
    inside(value, ["base_resp", "status_code"]).and_then(Value::as_i64).is_some_and(|code| code != 0)
}
