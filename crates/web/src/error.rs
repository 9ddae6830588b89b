//! Why a page was not fetched: what the model can make of it decides the variants.

use std::net::IpAddr;
use std::time::Duration;

use crate::address::BadUrl;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The name leads inside: to this machine, its network, or a cloud's metadata.
    #[error("{host} leads to {address} ({why}), which is not on the open internet")]
    NotPublic { host: String, address: IpAddr, why: &'static str },
    #[error("the name {host} could not be looked up: {why}")]
    Unresolved { host: String, why: String },
    #[error("{host} could not be reached: {why}")]
    Unreachable { host: String, why: String },
    /// TLS failed: a certificate that is not of this host, above all.
    #[error("no secure connection to {host} could be made: {why}")]
    Tls { host: String, why: String },
    #[error("{host} {what} within {limit:?}")]
    Timeout { host: String, what: &'static str, limit: Duration },
    /// It answered, but not as HTTP has it, or with more of a head than is read.
    #[error("the answer of {host} could not be read: {why}")]
    Protocol { host: String, why: String },
    #[error("{from} redirects to \"{to}\", which is not followed: {why}")]
    Redirect { from: String, to: String, why: Why },
}

/// Why a redirect is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("that is http, and the page was asked for by https")]
    Downgrade,
    #[error("{0}")]
    Bad(BadUrl),
    #[error("that is the redirect after {0} others")]
    TooMany(usize),
}
