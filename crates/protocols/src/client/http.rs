//! The HTTP that servers and their authorization servers are spoken to over: TLS of our own, and no address that a stranger's
//! document named may be one of this machine or its network.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::StreamExt;
use hyper::http::Response;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};
use serde_json::Value;

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
            let mut made = builder(&secure)?.redirect(redirects).timeout(FETCH_MAX);
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
        Ok(Self { follows: make(follow)?, stays: make(Policy::none())?, is_inside })
    }
}

impl Fetcher {
    /// Posts a form and reads the JSON that answers it. `basic`: a client's name and secret.
    pub(super) async fn form(
        &self,
        url: &str,
        form: &[(&str, &str)],
        basic: Option<(&str, &str)>,
    ) -> Result<Value, String> {
        let url = parsed(url)?;
        if !is_allowed(&url, self.is_inside) {
            return Err(format!("{url} is an address of this machine or its network"));
        }
        let mut request = self.stays.post(url).body(encoded(form));
        request = request.header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some((id, secret)) = basic {
            let word = |text: &str| encoded(&[("", text)]).trim_start_matches('=').to_owned();
            request = request.basic_auth(word(id), Some(word(secret)));
        }
        let reply = request.send().await.map_err(|error| error.without_url().to_string())?;
        let (status, mut body, mut stream) = (reply.status(), Vec::new(), reply.bytes_stream());
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| error.without_url().to_string())?;
            if chunk.len() > BODY_MAX_BYTES - body.len() {
                return Err(format!("the reply is larger than {BODY_MAX_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        let said: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(said);
        }
        let error = said.get("error").and_then(Value::as_str).unwrap_or("no reason");
        let error: String = error.chars().filter(|char| !char.is_control()).take(100).collect();
        Err(format!("the authorization server refused ({status}): {error}"))
    }
}

/// As forms are written.
fn encoded(form: &[(&str, &str)]) -> String {
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
            if !is_allowed(request.url(), self.is_inside) {
                return Err(refused(format!("{} is an address of this machine or its network", request.url())));
            }
            let reply = client.execute(request).await.map_err(reqwest::Error::without_url)?;
            let mut builder = Response::builder().status(reply.status()).version(reply.version());
            for (name, value) in reply.headers() {
                builder = builder.header(name, value);
            }
            let (mut body, mut stream) = (Vec::new(), reply.bytes_stream());
            while let Some(chunk) = stream.next().await {
                let chunk = chunk.map_err(reqwest::Error::without_url)?;
                if chunk.len() > BODY_MAX_BYTES - body.len() {
                    return Err(refused(format!("the reply is larger than {BODY_MAX_BYTES} bytes")));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(builder.body(body)?)
        })
    }
}

fn refused(why: String) -> OAuthHttpClientError {
    why.into()
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
    fn forms_are_written_as_forms() {
        assert_eq!(encoded(&[("a b", "x&y=z"), ("c", "é+")]), "a+b=x%26y%3Dz&c=%C3%A9%2B");
    }

    #[test]
    fn secrets_travel_over_tls_or_stay_here() {
        assert!(is_private("https://x/token") && is_private("http://127.0.0.1:1/token"));
        assert!(!is_private("http://x/token") && !is_private("nonsense") && !is_private("file:///x"));
    }
}
