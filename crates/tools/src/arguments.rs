//! From what a model wrote to one JSON object, strictly: nothing is repaired, nothing is guessed.

use std::fmt;

use longrein_core::outcome::{ToolError, class};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A model that writes more than this has lost its way.
const ARGUMENTS_MAX_BYTES: usize = 1 << 20;

/// Deeper nesting serves no tool and costs every reader a stack.
const DEPTH_MAX: usize = 64;

/// Reads arguments. Nothing at all is an empty object: calls without arguments are often sent so.
pub(crate) fn parse(text: &str) -> Result<Map<String, Value>, ToolError> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    if text.len() > ARGUMENTS_MAX_BYTES {
        let message = format!("The arguments are {} bytes long; at most {ARGUMENTS_MAX_BYTES} are taken.", text.len());
        return Err(invalid(message).hint("Send less in one call."));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { depth: 0 }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| unreadable(&error))?;
    let members = match value {
        Value::Object(members) => members,
        Value::String(inner) => {
            let holds_object = serde_json::from_str::<Map<String, Value>>(&inner).is_ok();
            let hint = if holds_object {
                "Send the object itself, not a string that holds it."
            } else {
                "Send an object with the arguments by name."
            };
            return Err(invalid("The arguments are a JSON string, not an object.").hint(hint));
        }
        Value::Null => return Err(not_an_object("null")),
        Value::Bool(_) => return Err(not_an_object("a boolean")),
        Value::Number(_) => return Err(not_an_object("a number")),
        Value::Array(_) => return Err(not_an_object("an array")),
    };
    match inexact_number(text) {
        Some(number) => Err(invalid(format!("The number {number} has more digits than can be kept exactly."))
            .hint("Round it, or send it as a string if the schema allows one.")),
        None => Ok(members),
    }
}

fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::new(class::INVALID_ARGUMENTS, message)
}

fn not_an_object(what: &str) -> ToolError {
    invalid(format!("The arguments are {what}, not an object."))
        .hint("Send an object with the arguments by name; {} if there are none.")
}

fn unreadable(error: &serde_json::Error) -> ToolError {
    if error.is_eof() {
        return invalid(format!("The arguments end in the middle: {error}."))
            .hint("The reply may have been cut. Make the whole call again, with less text if it was long.");
    }
    let hint = if error.is_data() {
        "Name each argument once, in a flat object."
    } else {
        "Send one JSON object: keys and strings in double quotes, no comments, no trailing commas, nothing around it."
    };
    invalid(format!("The arguments are not valid JSON: {error}.")).hint(hint)
}

/// A JSON text as a value, where no object in it has a key twice and it is not too deep.
pub(crate) fn unambiguous(text: &str) -> Option<Value> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { depth: 0 }.deserialize(&mut reader).ok()?;
    reader.end().ok().map(|()| value)
}

/// Whether some object in a valid JSON text has a key twice.
pub(crate) fn repeats_a_key(text: &str) -> bool {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Strict { depth: 0 }.deserialize(&mut deserializer).is_err_and(|error| error.to_string().contains("occurs twice"))
}

/// Builds a value and refuses what serde_json lets pass: a key that occurs twice, and deep nesting.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom(format_args!("nested more than {DEPTH_MAX} deep")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = members.next_value_seed(inner)?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key \"{}\" occurs twice", key.escape_debug())));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// The first number of a valid JSON text whose digits do not survive: integers beyond 64 bits and fractions beyond a
/// double would reach the tool as another number.
fn inexact_number(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let start = at;
                while at < bytes.len() && matches!(bytes[at], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') {
                    at += 1;
                }
                if !is_exact(&text[start..at]) {
                    return Some(&text[start..at]);
                }
            }
            _ => at += 1,
        }
    }
    None
}

fn is_exact(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    number.parse::<f64>().is_ok_and(|value| decimal(&format!("{value:e}")) == decimal(number))
}

/// Digits without zeros at either end, and the power of ten of the last one: equal for equal numbers.
fn decimal(number: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let shortened = digits.trim_end_matches('0');
    if shortened.is_empty() {
        return Some((String::new(), 0));
    }
    let exponent: i64 = exponent.trim_start_matches('+').parse().ok()?;
    let power = exponent - i64::try_from(fraction.len()).ok()? + i64::try_from(digits.len() - shortened.len()).ok()?;
    Some((shortened.to_owned(), power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = parse(text).unwrap_err();
        assert_eq!(error.class, class::INVALID_ARGUMENTS);
        assert!(error.hint.is_some(), "{error:?}");
        assert!(error.message.contains(expected), "{text}: {error:?}");
    }

    #[test]
    fn nothing_is_an_empty_object() {
        for text in ["", " ", "\n\t", "{}", " {} "] {
            assert_eq!(parse(text).unwrap().len(), 0);
        }
    }

    #[test]
    fn only_objects() {
        refused("[]", "an array");
        refused("null", "null");
        refused("3", "a number");
        refused("true", "a boolean");
        refused("\"x\"", "a JSON string");
        assert!(parse(r#""{\"a\":1}""#).unwrap_err().hint.unwrap().contains("the object itself"));
    }

    #[test]
    fn only_whole_valid_json() {
        refused(r#"{"path":"a","content":"abc"#, "end in the middle");
        refused(r#"{"a":1"#, "end in the middle");
        refused("{'a':1}", "not valid JSON");
        refused(r#"{"a":1,}"#, "not valid JSON");
        refused(r#"{"a":1} and more"#, "not valid JSON");
        refused("I would like to call it", "not valid JSON");
        refused(r#"{"a":1,"b":{"c":1,"c":2}}"#, "\"c\" occurs twice");
        refused(&format!("{{\"a\":{}{}}}", "[".repeat(70), "]".repeat(70)), "deep");
        refused(&format!("{{\"a\":\"{}\"}}", "x".repeat(ARGUMENTS_MAX_BYTES)), "bytes long");
        refused(r#"{"a":1e999}"#, "out of range");
    }

    #[test]
    fn numbers_are_kept_or_refused() {
        for exact in [
            "9007199254740993",
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "1.50",
            "1e2",
            "1E+2",
            "-0",
            "0.0",
            "1e22",
            "123456.789e3",
        ] {
            assert!(parse(&format!("{{\"n\":{exact}}}")).is_ok(), "{exact}");
        }
        for inexact in
            ["18446744073709551617", "0.10000000000000000001", "12345678901234567890123", "1.0000000000000001e0"]
        {
            refused(&format!("{{\"n\":[{inexact}]}}"), "more digits");
        }
        assert!(parse(r#"{"n":"12345678901234567890123 \" 0.10000000000000000001"}"#).is_ok());
    }
}
