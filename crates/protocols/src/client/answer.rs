//! What a server answered to a call, as the run keeps it.

use longrein_core::payload::{Payload, head_and_tail};
use serde_json::{Value, json};

/// An answer, good or bad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub result: Payload,
    /// The server says that the call failed.
    pub is_error: bool,
}

impl Answer {
    /// The text of an error.
    pub fn message(&self) -> String {
        self.result.read::<String>().unwrap_or_else(|_| self.result.as_str().to_owned())
    }
}

/// Reads a result, or says what is wrong with its shape: nothing is made of one that a server meant in another way. One text is that text, or the JSON it holds, as with a command; what is structured is kept; everything else
/// stays as the server sent it. Images and other bytes are taken out where results are cleaned, for every tool alike.
pub(super) fn read(raw: &Value) -> Result<Answer, String> {
    if let Some(problem) = misshapen(raw) {
        let shown = head_and_tail(&raw.to_string(), MISSHAPEN_SHOWN_BYTES);
        return Err(format!("it answered with no result of a tool: {problem}: {shown}"));
    }
    let is_error = raw.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let blocks = raw.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let structured = raw.get("structuredContent").filter(|value| !value.is_null());
    let texts: Option<Vec<&str>> = blocks.iter().map(text).collect();
    let result = match (texts, structured) {
        (Some(texts), None) if !texts.is_empty() => said(&texts.join("\n")),
        (Some(texts), Some(structured)) => {
            let text = texts.join("\n");
            let plain = parsed(&text);
            let wrapped = structured.as_object().filter(|members| members.len() == 1);
            let is_wrapped = is_wrapped(wrapped.and_then(|members| members.get("result")), &plain, &text);
            if text.is_empty() {
                json(structured)
            } else if plain == *structured || is_wrapped {
                // Said twice: the text has every digit. Many servers wrap what is no object, and say it again.
                said(&text)
            } else {
                json(&json!({"structuredContent": structured, "content": text}))
            }
        }
        (None, Some(structured)) => json(&json!({"structuredContent": structured, "content": blocks})),
        (None, None) => json(&json!({ "content": blocks })),
        (Some(_), None) if raw.get("content").is_some() => Payload::string(""),
        (Some(_), None) => json(raw),
    };
    Ok(Answer { result, is_error })
}

/// What is not as the protocol has it, of what is looked at here.
fn misshapen(raw: &Value) -> Option<&'static str> {
    let is_missing = |key: &str| raw.get(key).is_none_or(Value::is_null);
    let is_block = |block: &Value| match block.get("type") {
        Some(Value::String(kind)) => kind != "text" || text(block).is_some(),
        Some(_) | None => false,
    };
    match raw.get("content") {
        _ if !raw.is_object() => Some("it is no object"),
        _ if !is_missing("isError") && !raw["isError"].is_boolean() => Some("its isError is neither true nor false"),
        Some(Value::Array(blocks)) => (!blocks.iter().all(is_block)).then_some("its content holds what is no block"),
        Some(_) if !is_missing("content") => Some("its content is no list"),
        Some(_) | None => None,
    }
}

const MISSHAPEN_SHOWN_BYTES: usize = 4 * 1024;

fn json(value: &Value) -> Payload {
    Payload::of(value).unwrap_or_else(|_| Payload::string(""))
}

/// What was read of a server beside its tools. One text is that text; everything else is as the server sent it.
pub(super) fn of_reading(raw: Value) -> Answer {
    let contents = raw.get("contents").and_then(Value::as_array).map(Vec::as_slice);
    let one = match contents {
        Some([content]) => content.get("text").and_then(Value::as_str).map(said),
        Some(_) | None => None,
    };
    let result = one.unwrap_or_else(|| json(&raw));
    Answer { result, is_error: false }
}

fn text(block: &Value) -> Option<&str> {
    if block.get("type").and_then(Value::as_str) == Some("text") {
        block.get("text").and_then(Value::as_str)
    } else {
        None
    }
}

fn is_wrapped(result: Option<&Value>, plain: &Value, said: &str) -> bool {
    result.is_some_and(|result| result == plain || result.as_str() == Some(said))
}

/// A text as a result: the JSON of an object or a list, its digits and the order of its keys as they came, or a string.
fn said(text: &str) -> Payload {
    let json = match parsed(text) {
        Value::Object(_) | Value::Array(_) => Payload::parse_compact(text).ok(),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => None,
    };
    json.unwrap_or_else(|| Payload::string(text))
}

fn parsed(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => value,
        Ok(_) | Err(_) => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: Value, wanted: &Value) {
        assert_eq!(read(&raw).unwrap().result.read::<Value>().unwrap(), *wanted, "{raw}");
    }

    #[test]
    fn readings() {
        let check = |raw: Value, wanted: Value| assert_eq!(of_reading(raw).result.read::<Value>().unwrap(), wanted);
        check(json!({"contents": [{"uri": "a:b", "text": "hi"}]}), json!("hi"));
        let blob = json!({"contents": [{"uri": "a:b", "mimeType": "image/png", "blob": "AAAA"}]});
        check(blob.clone(), blob);
        let list = json!({"resources": [{"uri": "a:b", "name": "b"}]});
        check(list.clone(), list);
    }

    #[test]
    fn results() {
        let text = |text: &str| json!({"type": "text", "text": text});
        check(json!({"content": [text("hello")]}), &json!("hello"));
        check(json!({"content": [text("{\"a\": [1, 2.5]}")]}), &json!({"a": [1, 2.5]}));
        check(json!({"content": [text("12")]}), &json!("12"));
        check(json!({"content": [text("a"), text("b")]}), &json!("a\nb"));
        check(json!({"content": []}), &json!(""));
        check(json!({"content": [text("{\"a\":1}")], "structuredContent": {"a": 1}}), &json!({"a": 1}));
        check(json!({"content": [text("hi")], "structuredContent": {"result": "hi"}}), &json!("hi"));
        check(
            json!({"content": [text("short")], "structuredContent": {"a": 1}}),
            &json!({"structuredContent": {"a": 1}, "content": "short"}),
        );
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        check(json!({"content": [image]}), &json!({"content": [image]}));
        check(json!({"something": "else"}), &json!({"something": "else"}));
        let digits = "{\"z\": 12345678901234567890123, \"a\": 0.10000000000000000555}";
        let kept = r#"{"z":12345678901234567890123,"a":0.10000000000000000555}"#;
        let structured: Value = serde_json::from_str(digits).unwrap();
        assert_eq!(read(&json!({"content": [text(digits)]})).unwrap().result.as_str(), kept, "as a command's output");
        let twice = json!({"content": [text(digits)], "structuredContent": structured});
        assert_eq!(read(&twice).unwrap().result.as_str(), kept);
        assert!(read(&json!({"content": [text("no")], "isError": true})).unwrap().is_error);
    }

    #[test]
    fn what_has_another_shape_is_no_result() {
        let text = json!({"type": "text", "text": "paid"});
        for (raw, named) in [
            (json!({"content": "paid"}), "no list: {\"content\":\"paid\"}"),
            (json!({"content": text}), "no list"),
            (json!({"content": ["paid"]}), "no block"),
            (json!({"content": [{"type": "text", "text": 5}]}), "no block"),
            (json!({"content": [{"text": "paid"}]}), "no block"),
            (json!({"content": [text], "isError": "true"}), "neither true nor false"),
            (json!({"isError": 1}), "neither true nor false"),
            (json!("paid"), "no object"),
            (json!(null), "no object"),
        ] {
            let said = read(&raw).unwrap_err();
            assert!(said.contains(named), "{raw}: {said}");
        }
        check(json!({"content": null, "isError": null, "structuredContent": {"a": 1}}), &json!({"a": 1}));
    }
}
