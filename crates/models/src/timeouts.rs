//! How long a call may be silent in each of its phases.

use std::time::Duration;

/// How long each phase of a call may take. A healthy stream may go on for long, so there is a limit on silence, and only
/// a very distant one on the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    /// From sending the request to the head of the response.
    pub headers: Duration,
    /// From the head to the first byte of the body.
    pub first_byte: Duration,
    /// Between two pieces of the body.
    pub idle: Duration,
    /// After the model said why it stopped: how long to wait for usage and the end of the stream.
    pub grace: Duration,
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: CONNECT_TIMEOUT,
            headers: HEADERS_TIMEOUT,
            first_byte: FIRST_BYTE_TIMEOUT,
            idle: IDLE_TIMEOUT,
            grace: GRACE,
            total: TOTAL_TIMEOUT,
        }
    }
}

impl Timeouts {
    /// For a server on one's own machine, which may read the model from disk and then a long prompt on a slow processor
    /// before it says anything.
    pub fn local() -> Self {
        Self { headers: LOCAL_TIMEOUT, first_byte: LOCAL_TIMEOUT, idle: LOCAL_TIMEOUT, ..Self::default() }
    }
}

/// Reaching a server takes longer only where it is not reachable.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A model may think before it says anything; two minutes of silence is more than any of them takes between signs of life.
pub const HEADERS_TIMEOUT: Duration = Duration::from_secs(120);
/// As for the head.
pub const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(120);
/// As for the head; streams send keep-alives in between.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Ollama itself gives a model five minutes to load; the prompt comes after that.
pub const LOCAL_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// The last chunks follow at once or never: some servers keep the connection open for good.
pub const GRACE: Duration = Duration::from_secs(2);
/// Only against a server that drips for ever.
pub const TOTAL_TIMEOUT: Duration = Duration::from_secs(60 * 60);
