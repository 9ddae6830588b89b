//! What went wrong on the way to a server, in words: the cause at the bottom, and no type of any library.

use std::error::Error;
use std::io;

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::lines::UNREADABLE;
use super::posted::NOT_KNOWN;
use super::refusal::Refusal;

/// Why a server could not be greeted. `place`: its host and port, where it has any.
pub(super) fn of_greeting(error: &ClientInitializeError, place: Option<&str>) -> String {
    if error.is_authorization_required() || error.to_string().contains("HTTP 401") {
        return "it is not authorised: give its token in headers".to_owned();
    }
    if let ClientInitializeError::ConnectionClosed(_) = error {
        return "it closed its output before it answered".to_owned();
    }
    if let ClientInitializeError::TransportError { error, .. } = error {
        return of_transport(error.error.as_ref(), place);
    }
    if let ClientInitializeError::JsonRpcError(said) = error {
        if said.code == UNREADABLE {
            return said.message.to_string();
        }
        return format!("it refused to be greeted: {}", said.message);
    }
    if let ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) = error {
        return "it answered the greeting with something else".to_owned();
    }
    format!("it could not be greeted: {error}")
}

/// What became of a request.
pub(super) fn of_request(error: &ServiceError) -> String {
    if let ServiceError::TransportSend(error) = error {
        return of_transport(error.error.as_ref(), None);
    }
    if let ServiceError::McpError(said) = error
        && (said.code == UNREADABLE || said.code == NOT_KNOWN)
    {
        return said.message.to_string();
    }
    error.to_string()
}

fn of_transport(error: &(dyn Error + 'static), place: Option<&str>) -> String {
    if let Some(refusal) = Refusal::of(error) {
        return refusal.words();
    }
    let mut at = error;
    loop {
        if let Some(http) = at.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            if let StreamableHttpError::Client(client) = http {
                at = client;
                continue;
            }
            if let StreamableHttpError::UnexpectedContentType(kind) = http {
                let kind = kind.as_deref().map(str::trim).filter(|kind| !kind.is_empty());
                let what = kind.map_or_else(|| "something without a Content-Type".to_owned(), str::to_owned);
                return format!("it answered with {what}, which no MCP server does: is its url right?");
            }
            if let StreamableHttpError::UnexpectedServerResponse(said) = http {
                return format!("it answered with {said}: is its url right?");
            }
        }
        match at.source() {
            Some(below) => at = below,
            None => break,
        }
    }
    let why = match at.downcast_ref::<io::Error>() {
        // without the number that the system has for it
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        Some(_) | None => at.to_string(),
    };
    match place {
        Some(place) => format!("{place} could not be reached: {why}"),
        None => format!("its connection failed: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_type_is_said_to_have_none() {
        for (kind, named) in [
            (None, "without a Content-Type"),
            (Some(String::new()), "without a Content-Type"),
            (Some("text/html".to_owned()), "with text/html"),
        ] {
            let error: StreamableHttpError<reqwest::Error> = StreamableHttpError::UnexpectedContentType(kind);
            let said = of_transport(&error, None);
            assert!(said.contains(named), "{said}");
        }
    }
}
