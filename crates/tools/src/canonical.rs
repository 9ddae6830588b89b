//! Canonical JSON: RFC 8785, except that integers keep every digit.
//!
//! The RFC writes all numbers as doubles and so turns the order number 9007199254740993 into 9007199254740992. Below 2^53
//! both forms are the same bytes.

use serde_json::Value;

/// The canonical text of a value.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&by_rfc(value)),
        Value::Number(number) if number.is_f64() => out.push_str(&by_rfc(value)),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            // the RFC sorts by UTF-16 units
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&by_rfc(key));
                out.push(':');
                write(member, out);
            }
            out.push('}');
        }
    }
}

fn by_rfc(scalar: &impl serde::Serialize) -> String {
    serde_json_canonicalizer::to_string(scalar).expect("null, booleans, strings and finite numbers always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text() {
        let value: Value =
            serde_json::from_str(r#"{"b":1.0,"a":[9007199254740993,1e2,-0.5,"é\n\u0007"],"A":{"z":null,"y":true}}"#)
                .unwrap();
        assert_eq!(canonical(&value), r#"{"A":{"y":true,"z":null},"a":[9007199254740993,100,-0.5,"é\n\u0007"],"b":1}"#);
    }
}
