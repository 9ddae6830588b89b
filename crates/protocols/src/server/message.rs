//! JSON-RPC as it arrives: any bytes in, messages or the error to answer out. Pure; knows no method.

use serde_json::{Map, Value, json};

/// An id is echoed; a longer one is not.
const ID_MAX_BYTES: usize = 1024;
/// The most messages of one batch.
pub(crate) const BATCH_MAX: usize = 64;

/// What a request is answered with that could not be served.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// JSON-RPC's number for it.
    pub code: i64,
    /// What happened, to what, and what to try.
    pub message: String,
    /// More of it, for programs.
    pub data: Option<Value>,
}

impl RpcError {
    pub(crate) fn parse(message: impl Into<String>) -> Self {
        Self::new(-32700, message)
    }

    /// The message is none, or it may not come now.
    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(-32600, message)
    }

    /// There is no such method here.
    pub fn method_not_found(method: &str) -> Self {
        let method: String = method.chars().take(100).collect();
        Self::new(-32601, format!("there is no method \"{method}\" here"))
    }

    /// The method is there, and not with these parameters.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// This server failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(-32603, message)
    }

    /// No resource has this address.
    pub fn no_such_resource(uri: &str) -> Self {
        let uri: String = uri.chars().take(400).collect();
        let error = Self::new(-32002, format!("there is no resource {uri}"));
        Self { data: Some(json!({ "uri": uri })), ..error }
    }

    /// Too much is going on; the same may be served later.
    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(-32000, message)
    }

    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    fn to_value(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let (Some(data), Value::Object(error)) = (&self.data, &mut error) {
            error.insert("data".to_owned(), data.clone());
        }
        error
    }
}

/// A response, as it is sent.
pub(crate) fn response(id: &Value, outcome: &Result<Value, RpcError>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error.to_value() }),
    }
}

/// A message that can be acted on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    Request {
        id: Value,
        method: String,
        params: Map<String, Value>,
    },
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// An answer to one of our own requests.
    Response {
        id: Value,
        outcome: Result<Value, Value>,
    },
}

/// One that cannot, and the answer to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refused {
    pub(crate) id: Value,
    pub(crate) error: RpcError,
}

impl Refused {
    pub(crate) fn nameless(error: RpcError) -> Self {
        Self { id: Value::Null, error }
    }

    pub(crate) fn into_response(self) -> Value {
        response(&self.id, &Err(self.error))
    }
}

/// What one line or one body holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Incoming {
    One(Result<Message, Refused>),
    Batch(Vec<Result<Message, Refused>>),
}

pub(crate) fn parse(bytes: &[u8]) -> Incoming {
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => {
            let error = RpcError::parse(format!("this is no JSON: {error}"));
            return Incoming::One(Err(Refused::nameless(error)));
        }
    };
    match value {
        Value::Array(all) if all.is_empty() => {
            Incoming::One(Err(Refused::nameless(RpcError::invalid_request("the batch is empty"))))
        }
        Value::Array(all) if all.len() > BATCH_MAX => {
            let problem = format!("a batch has at most {BATCH_MAX} messages; this one has {}", all.len());
            Incoming::One(Err(Refused::nameless(RpcError::invalid_request(problem))))
        }
        Value::Array(all) => Incoming::Batch(all.into_iter().map(message).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Incoming::One(message(value))
        }
    }
}

fn message(value: Value) -> Result<Message, Refused> {
    let Value::Object(mut object) = value else {
        return Err(Refused::nameless(RpcError::invalid_request("a message is a JSON object")));
    };
    let id = match object.remove("id") {
        None => None,
        Some(id) => Some(usable(id).map_err(Refused::nameless)?),
    };
    let refused = |id: &Option<Value>, error| Refused { id: id.clone().unwrap_or(Value::Null), error };
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(refused(&id, RpcError::invalid_request("\"jsonrpc\" must be \"2.0\"")));
    }
    match object.remove("method") {
        Some(Value::String(method)) => {
            let params = match object.remove("params") {
                None | Some(Value::Null) => Ok(Map::new()),
                Some(Value::Object(params)) => Ok(params),
                Some(_) => Err(RpcError::invalid_params("\"params\" must be an object")),
            };
            match (id, params) {
                (Some(id), Ok(params)) => Ok(Message::Request { id, method, params }),
                (Some(id), Err(error)) => Err(Refused { id, error }),
                // Nobody waits for an answer; what it would have said is as good as nothing.
                (None, params) => Ok(Message::Notification { method, params: params.unwrap_or_default() }),
            }
        }
        Some(_) => Err(refused(&id, RpcError::invalid_request("\"method\" must be a string"))),
        None => match (id, object.remove("result"), object.remove("error")) {
            (Some(id), Some(result), None) => Ok(Message::Response { id, outcome: Ok(result) }),
            (Some(id), None, Some(error)) => Ok(Message::Response { id, outcome: Err(error) }),
            (id, _, _) => {
                let error = RpcError::invalid_request("this is neither a request nor a notification nor a response");
                Err(refused(&id, error))
            }
        },
    }
}

/// MCP's ids are strings and numbers; null is none.
fn usable(id: Value) -> Result<Value, RpcError> {
    match id {
        Value::Number(_) => Ok(id),
        Value::String(ref text) if text.len() <= ID_MAX_BYTES => Ok(id),
        Value::String(_) => Err(RpcError::invalid_request(format!("an id has at most {ID_MAX_BYTES} bytes"))),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err(RpcError::invalid_request("an id is a string or a number"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> (Value, i64) {
        let Incoming::One(Err(refused)) = parse(text.as_bytes()) else { panic!("{text} passes") };
        (refused.id, refused.error.code)
    }

    #[test]
    fn what_is_no_message_is_answered_with_what_it_lacks() {
        let cases: [(&str, Value, i64); 16] = [
            ("{", Value::Null, -32700),
            ("\u{0}", Value::Null, -32700),
            ("1", Value::Null, -32600),
            ("null", Value::Null, -32600),
            ("\"text\"", Value::Null, -32600),
            ("[]", Value::Null, -32600),
            ("{}", Value::Null, -32600),
            (r#"{"id":1,"method":"ping"}"#, json!(1), -32600),
            (r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#, json!("a"), -32600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":3,"method":7}"#, json!(3), -32600),
            (r#"{"jsonrpc":"2.0","id":3,"method":"ping","params":[1]}"#, json!(3), -32602),
            (r#"{"jsonrpc":"2.0","id":3,"method":"ping","params":"text"}"#, json!(3), -32602),
            (r#"{"jsonrpc":"2.0","id":3,"result":1,"error":{}}"#, json!(3), -32600),
        ];
        for (text, id, number) in cases {
            assert_eq!(code(text), (id, number), "{text}");
        }
        assert_eq!(code(&"[".repeat(100_000)).1, -32700, "depth is bounded");
        assert_eq!(parse(b"\xff\xfe{}"), parse(b"\xff\xfe{}"));
        assert!(matches!(parse(b"\xff\xfe{}"), Incoming::One(Err(refused)) if refused.error.code == -32700));
    }

    #[test]
    fn ids_come_back_as_they_came() {
        for id in ["1", "-7", "1.5", "9007199254740993", "\"\"", "\"ä\\u0000\""] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let Incoming::One(Ok(Message::Request { id: read, .. })) = parse(text.as_bytes()) else {
                panic!("{text} does not pass");
            };
            assert_eq!(read, serde_json::from_str::<Value>(id).unwrap());
        }
    }

    #[test]
    fn every_message_of_a_batch_stands_for_itself() {
        let text = r#"[1, {"jsonrpc":"2.0","id":1,"method":"ping"}, {"jsonrpc":"2.0","method":"x","params":4}]"#;
        let Incoming::Batch(all) = parse(text.as_bytes()) else { panic!("no batch") };
        assert!(matches!(all.as_slice(), [Err(_), Ok(Message::Request { .. }), Ok(Message::Notification { .. })]));
    }
}
