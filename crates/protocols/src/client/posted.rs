//! Messages that are posted: what answers a post is the answer to what was posted, whatever id it carries. A server that cannot
//! read whose request it refuses says so with an error that has none, and nobody would ever be told.

use std::collections::HashMap;
use std::sync::Arc;

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, JsonRpcError, JsonRpcMessage, RequestId};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};

/// The code of an error without an id that answered a request of a session: most often that session is over. Only ours: a server
/// that sends it itself says just that.
pub(super) const NOT_KNOWN: ErrorCode = ErrorCode(i32::MIN + 1);

/// A client for posts.
#[derive(Clone)]
pub(super) struct Posted<C>(pub(super) C);

type Headers = HashMap<HeaderName, HeaderValue>;

impl<C: StreamableHttpClient + Sync> StreamableHttpClient for Posted<C> {
    type Error = C::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, token, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let asked = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            JsonRpcMessage::Response(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_) => None,
        };
        let had_session = session.is_some();
        let answer = self.0.post_message_with_response_limits(uri, message, session, token, headers, limits).await?;
        match asked {
            Some(id) => belonging(answer, id, had_session),
            None => Ok(answer),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), StreamableHttpError<C::Error>> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, StreamableHttpError<C::Error>> {
        self.0.get_stream(uri, session, last, token, headers).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
        event_max_bytes: usize,
    ) -> Result<BoxedSseResponse, StreamableHttpError<C::Error>> {
        self.0.get_stream_with_max_sse_event_size(uri, session, last, token, headers, event_max_bytes).await
    }
}

/// An answer with the id of what was asked.
#[expect(clippy::wildcard_enum_match_arm, reason = "rmcp may add kinds of answers: they stay as they are")]
fn belonging<E: std::error::Error + Send + Sync + 'static>(
    answer: StreamableHttpPostResponse,
    asked: RequestId,
    had_session: bool,
) -> Result<StreamableHttpPostResponse, StreamableHttpError<E>> {
    let is_its = |id: &RequestId| id.to_string() == asked.to_string();
    match answer {
        StreamableHttpPostResponse::Json(JsonRpcMessage::Error(said), session)
            if !said.id.as_ref().is_some_and(is_its) =>
        {
            let ErrorData { code, message, data, .. } = said.error;
            let code = if had_session { NOT_KNOWN } else { code };
            let error = JsonRpcError::new(Some(asked), ErrorData::new(code, message, data));
            Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session))
        }
        StreamableHttpPostResponse::Json(JsonRpcMessage::Response(said), _) if !is_its(&said.id) => {
            Err(StreamableHttpError::UnexpectedServerResponse("an answer to another request".into()))
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ServerJsonRpcMessage;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_answers_a_post_has_its_id() {
        let belongs = |said: Value, had_session| {
            let said: ServerJsonRpcMessage = serde_json::from_value(said).unwrap();
            let said = StreamableHttpPostResponse::Json(said, None);
            match belonging::<reqwest::Error>(said, RequestId::Number(3), had_session) {
                Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _)) => {
                    (error.id == Some(RequestId::Number(3)), error.error.code.0)
                }
                Ok(_) => (true, 0),
                Err(_) => (false, 0),
            }
        };
        let error = |id: Value| json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "m"}});
        for id in [Value::Null, json!("server-error"), json!(7)] {
            assert_eq!(belongs(error(id.clone()), true), (true, NOT_KNOWN.0), "{id}");
            assert_eq!(belongs(error(id), false), (true, -32000));
        }
        assert_eq!(belongs(error(json!(3)), true), (true, -32000));
        let result = |id: Value| json!({"jsonrpc": "2.0", "id": id, "result": {}});
        assert_eq!(belongs(result(json!(3)), true), (true, 0));
        assert_eq!(belongs(result(json!(4)), true), (false, 0));
    }
}
