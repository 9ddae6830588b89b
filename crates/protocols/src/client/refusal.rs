//! What an HTTP error says of a request that had left: its status first, and what to do about it.
//!
//! Three of them are answers of a door, not of the server behind it: 401, 403 and 429 say that nothing was done. Of every
//! other one nobody knows what happened before it, a session that is over (404) included: a call that left is never sent
//! again from here.

use std::error::Error;

use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError, StreamableHttpError};

/// An answer that is no answer of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) retry_after_s: Option<u64>,
    /// The server does not know our session any more.
    pub(super) session_is_over: bool,
}

impl Refusal {
    /// None: the error is none of HTTP's.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if error.is::<AuthRequiredError>() {
                return Some(Self::plain(401));
            }
            if error.is::<InsufficientScopeError>() {
                return Some(Self::plain(403));
            }
            if let Some(error) = error.downcast_ref::<StreamableHttpError<reqwest::Error>>()
                && let Some(found) = Self::of_transport(error)
            {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    fn of_transport(error: &StreamableHttpError<reqwest::Error>) -> Option<Self> {
        if let StreamableHttpError::HttpStatus(error) = error {
            let retry_after_s = error.retry_after.as_deref().and_then(|text| text.trim().parse().ok());
            return Some(Self { retry_after_s, ..Self::plain(error.status) });
        }
        if let StreamableHttpError::SessionExpired = error {
            return Some(Self { session_is_over: true, ..Self::plain(404) });
        }
        if let StreamableHttpError::UnexpectedServerResponse(text) = error {
            return status(text).map(Self::plain);
        }
        None
    }

    fn plain(status: u16) -> Self {
        Self { status, retry_after_s: None, session_is_over: false }
    }

    /// Whether it was turned away before anything was done.
    pub(super) fn is_at_the_door(self) -> bool {
        matches!(self.status, 401 | 403 | 429)
    }

    pub(super) fn words(self) -> String {
        let what = match self.status {
            _ if self.session_is_over => "it does not know the session any more; the next call opens a new one",
            300..=399 => "it points elsewhere, which is not followed: give its new address as the url",
            401 => "it is not authorised: give its token in headers",
            403 => "it is not allowed with the token that it was given in headers",
            404 => "there is nothing at this address: look at the url",
            429 => "too many requests: try again later",
            400..=499 => "it would not take the request",
            500..=599 => "it failed",
            _ => "that is no answer",
        };
        format!("HTTP {}: {what}", self.status)
    }
}

/// `HTTP 404 Not Found: …`, as the library words what it did not expect.
fn status(text: &str) -> Option<u16> {
    text.strip_prefix("HTTP ")?.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn the_status_stands_first_and_only_a_door_says_that_nothing_was_done() {
        for (text, status, at_the_door) in [
            ("HTTP 401 Unauthorized: {}", 401, true),
            ("HTTP 403 Forbidden: x", 403, true),
            ("HTTP 400 Bad Request: HTTP 401", 400, false),
            ("HTTP 307 Temporary Redirect: ", 307, false),
        ] {
            let error: StreamableHttpError<reqwest::Error> =
                StreamableHttpError::UnexpectedServerResponse(Cow::Borrowed(text));
            let found = Refusal::of(&error).unwrap();
            assert_eq!((found.status, found.is_at_the_door()), (status, at_the_door), "{text}");
            assert!(found.words().starts_with(&format!("HTTP {status}: ")), "{}", found.words());
        }
        let expired: StreamableHttpError<reqwest::Error> = StreamableHttpError::SessionExpired;
        let found = Refusal::of(&expired).unwrap();
        assert!(found.session_is_over && !found.is_at_the_door());
        // what only says so is no answer of a door
        let body: StreamableHttpError<reqwest::Error> =
            StreamableHttpError::UnexpectedServerResponse(Cow::Borrowed("could not parse: HTTP 401"));
        assert_eq!(Refusal::of(&body), None);
    }
}
