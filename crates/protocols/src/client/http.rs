//! The HTTP that servers and their authorization servers are spoken to over: TLS of our own, and no address that a stranger's
//! document named may be one of this machine or its network.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use hyper::http::Response;
use reqwest::StatusCode;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::redirect::Policy;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest};
use serde_json::Value;

use super::asking::Asking;

/// A client for messages to a server.
pub(super) fn client(url: &str) -> Result<reqwest::Client, String> {
    // a message is not sent to anybody but the one it is for
    let builder = builder(&parsed(url)?)?.pool_max_idle_per_host(0).redirect(Policy::none());
    builder.build().map_err(|error| error.to_string())
}

fn parsed(url: &str) -> Result<reqwest::Url, String> {
    reqwest::Url::parse(url).map_err(|error| format!("{url}: {error}"))
}

/// A TLS configuration of our own: nothing process-wide is needed or installed.
fn builder(url: &reqwest::Url) -> Result<reqwest::ClientBuilder, String> {
    use rustls_platform_verifier::BuilderVerifierExt;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let tls = if url.scheme() == "https" {
        tls.with_platform_verifier().map_err(|error| error.to_string())?
    } else {
        tls.with_root_certificates(rustls::RootCertStore::empty())
    };
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls.with_no_client_auth())
        .user_agent(concat!("longrein/", env!("CARGO_PKG_VERSION")));
    Ok(if is_here(url) { builder.no_proxy() } else { builder })
}

/// Whether an address is this very machine.
pub(super) fn is_here(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "localhost" || literal(host).is_some_and(|ip| ip.is_loopback())
}

fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether what is secret may be sent there: over TLS, or not leaving this machine.
pub(super) fn is_private(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| url.scheme() == "https" || (url.scheme() == "http" && is_here(&url)))
}

/// Makes the requests of an authorization, whose addresses come from documents of strangers.
pub(super) struct Fetcher {
    follows: reqwest::Client,
    stays: reqwest::Client,
    /// The server is on this machine, or its network: so may its authorization server be.
    is_inside: bool,
    /// How tokens are asked for, once that is known.
    asking: Mutex<Option<Arc<Asking>>>,
    saw_bound_tokens: AtomicBool,
}

/// Metadata and tokens are small.
const BODY_MAX_BYTES: usize = 1 << 20;
const REDIRECTS_MAX: usize = 5;
const FETCH_MAX: std::time::Duration = std::time::Duration::from_secs(30);

impl Fetcher {
    /// For the server at this address.
    pub(super) fn of(url: &str) -> Result<Self, String> {
        let url = parsed(url)?;
        let is_inside = is_here(&url) || url.host_str().and_then(literal).is_some_and(|ip| !is_public(ip));
        // its authorization server may be reached over TLS, though it itself is not
        let mut secure = url.clone();
        let _ = secure.set_scheme("https");
        let make = |redirects: Policy| {
            // a person may take longer than a server keeps an idle connection, and what asks for a token is not sent twice
            let mut made = builder(&secure)?.redirect(redirects).timeout(FETCH_MAX).pool_max_idle_per_host(0);
            if !is_inside {
                made = made.dns_resolver(Arc::new(PublicOnly));
            }
            made.build().map_err(|error| error.to_string())
        };
        let follow = Policy::custom(move |attempt| {
            if attempt.previous().len() > REDIRECTS_MAX {
                attempt.error("too many redirects")
            } else if is_allowed(attempt.url(), is_inside) {
                attempt.follow()
            } else {
                attempt.error("it leads to an address of this machine or its network")
            }
        });
        Ok(Self {
            follows: make(follow)?,
            stays: make(Policy::none())?,
            is_inside,
            asking: Mutex::default(),
            saw_bound_tokens: AtomicBool::new(false),
        })
    }
}

/// An answer as a whole.
type Whole = (StatusCode, HeaderMap, Vec<u8>);

impl Fetcher {
    /// From now on a token endpoint is asked so.
    pub(super) fn ask(&self, asking: Asking) {
        *self.asking.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(asking));
    }

    /// Whether a document of the server's said that it knows tokens that are bound to a key.
    pub(super) fn saw_bound_tokens(&self) -> bool {
        self.saw_bound_tokens.load(Relaxed)
    }

    /// Posts a form and reads the JSON that answers it. `basic`: a client's name and secret.
    pub(super) async fn form(
        &self,
        url: &str,
        form: &[(&str, &str)],
        basic: Option<(&str, &str)>,
    ) -> Result<Value, String> {
        let mut request = self.stays.post(parsed(url)?).body(encoded(form));
        request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some((id, secret)) = basic {
            let word = |text: &str| encoded(&[("", text)]).trim_start_matches('=').to_owned();
            request = request.basic_auth(word(id), Some(word(secret)));
        }
        let request = request.build().map_err(|error| error.without_url().to_string())?;
        let (status, _, body) = self.answered(&self.stays, request).await?;
        let said: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(said);
        }
        let error = said.get("error").and_then(Value::as_str).unwrap_or("no reason");
        let error: String = error.chars().filter(|char| !char.is_control()).take(100).collect();
        Err(format!("the authorization server refused ({status}): {error}"))
    }

    /// What answers a request; one for a token is made as [`Fetcher::ask`] said, once more where a nonce was wanted.
    async fn answered(&self, client: &reqwest::Client, request: reqwest::Request) -> Result<Whole, String> {
        if !is_allowed(request.url(), self.is_inside) {
            return Err(format!("{} is an address of this machine or its network", request.url()));
        }
        let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(asking) = asking.filter(|asking| asking.is_for(&request)) else {
            return whole(client, request).await;
        };
        let first = whole(client, asking.dressed(&request)?).await?;
        if asking.wants_nonce(&first.1, &first.2) {
            return whole(client, asking.dressed(&request)?).await;
        }
        Ok(first)
    }
}

async fn whole(client: &reqwest::Client, request: reqwest::Request) -> Result<Whole, String> {
    let wrong = |error: reqwest::Error| error.without_url().to_string();
    let reply = client.execute(request).await.map_err(wrong)?;
    let (status, headers) = (reply.status(), reply.headers().clone());
    let (mut body, mut stream) = (Vec::new(), reply.bytes_stream());
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(wrong)?;
        if chunk.len() > BODY_MAX_BYTES - body.len() {
            return Err(format!("the reply is larger than {BODY_MAX_BYTES} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, headers, body))
}

/// As forms are written.
pub(super) fn encoded(form: &[(&str, &str)]) -> String {
    let mut url = reqwest::Url::parse("http://form").expect("it is one");
    url.query_pairs_mut().extend_pairs(form);
    url.query().unwrap_or_default().to_owned()
}

fn is_allowed(url: &reqwest::Url, is_inside: bool) -> bool {
    matches!(url.scheme(), "http" | "https")
        && (is_inside || (!is_here(url) && url.host_str().and_then(literal).is_none_or(is_public)))
}

/// Whether an address is one of the open internet.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            !(ip.is_loopback()
                || ip.is_private()
                || ip.is_link_local()
                || ip.is_unspecified()
                || ip.is_broadcast()
                || ip.is_multicast()
                || a == 0
                || (a == 100 && (64..128).contains(&b)))
        }
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => is_public(IpAddr::V4(ip)),
            None => {
                !(ip.is_loopback()
                    || ip.is_unspecified()
                    || ip.is_multicast()
                    || ip.is_unique_local()
                    || ip.is_unicast_link_local())
            }
        },
    }
}

struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.filter(|address| is_public(address.ip())).collect();
            if found.is_empty() {
                return Err(format!("{} has no public address", name.as_str()).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl OAuthHttpClient for Fetcher {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            // a new policy of the library's, which we do not know, follows nothing
            let follows = request.redirect_policy == OAuthHttpRedirectPolicy::Follow;
            let client = if follows { &self.follows } else { &self.stays };
            let request = reqwest::Request::try_from(request.request)?;
            let (status, headers, body) = self.answered(client, request).await?;
            if status.is_success() && knows_bound_tokens(&body) {
                self.saw_bound_tokens.store(true, Relaxed);
            }
            let mut builder = Response::builder().status(status);
            for (name, value) in &headers {
                builder = builder.header(name, value);
            }
            Ok(builder.body(body)?)
        })
    }
}

/// Whether it is a server's word of itself (RFC 9728) that says so. That an authorization server could bind tokens says nothing
/// of the server they are for.
fn knows_bound_tokens(document: &[u8]) -> bool {
    let Ok(document) = serde_json::from_slice::<Value>(document) else { return false };
    let is_required = document.get("dpop_bound_access_tokens_required") == Some(&Value::Bool(true));
    document.get("authorization_servers").is_some()
        && (is_required || document.get("dpop_signing_alg_values_supported").is_some_and(Value::is_array))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_a_stranger_leads_to_no_address_of_this_network() {
        let allowed = |url: &str, is_inside| is_allowed(&reqwest::Url::parse(url).unwrap(), is_inside);
        for inner in [
            "http://127.0.0.1/x",
            "http://localhost:1",
            "http://169.254.169.254/",
            "http://10.0.0.1",
            "http://192.168.1.1",
            "http://[::1]/",
            "http://[fd00::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://100.64.0.1",
            "http://0.0.0.0",
            "http://[fe80::1]",
            "http://2130706433/",
        ] {
            assert!(!allowed(inner, false), "{inner}");
            assert!(allowed(inner, true), "{inner}");
        }
        assert!(allowed("https://auth.example/token", false));
        assert!(allowed("https://8.8.8.8/", false));
        assert!(!allowed("file:///etc/passwd", true));
    }

    #[test]
    fn only_a_servers_own_word_binds_tokens() {
        let knows = |document: &str| knows_bound_tokens(document.as_bytes());
        assert!(knows(r#"{"authorization_servers":["a"],"dpop_bound_access_tokens_required":true}"#));
        assert!(knows(r#"{"authorization_servers":["a"],"dpop_signing_alg_values_supported":["ES256"]}"#));
        assert!(!knows(r#"{"authorization_servers":["a"],"dpop_bound_access_tokens_required":false}"#));
        assert!(!knows(r#"{"issuer":"a","dpop_signing_alg_values_supported":["ES256"]}"#) && !knows("{"));
    }

    #[test]
    fn forms_are_written_as_forms() {
        assert_eq!(encoded(&[("a b", "x&y=z"), ("c", "é+")]), "a+b=x%26y%3Dz&c=%C3%A9%2B");
    }

    #[test]
    fn secrets_travel_over_tls_or_stay_here() {
        assert!(is_private("https://x/token") && is_private("http://127.0.0.1:1/token"));
        assert!(!is_private("http://x/token") && !is_private("nonsense") && !is_private("file:///x"));
    }
}
