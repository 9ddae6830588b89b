//! One kept-alive connection to one server, and a limit on every kind of silence. It sends bytes and feeds the decoder;
//! what the bytes mean is decided there.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::outcome::{Billing, ModelErrorClass, ModelFailure, Reply};
use longrein_ports::Listener;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue,
    LOCATION, RETRY_AFTER,
};
use reqwest::{Response, Url};
use tokio::time::{Instant, timeout_at};

use crate::connect::{ConfigError, ModelConfig, Secret};
use crate::failure::{Refusal, broken};
use crate::lanes::{Lane, Lanes};
use crate::reading::{End, Progress, Reading, malformed};
use crate::telling::Telling;
use crate::timeouts::Timeouts;

/// Where a wire puts the key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyIn {
    /// `Authorization: Bearer …`
    Bearer,
    /// A header of its own, in small letters.
    Header(&'static str),
}

/// Says whose blocks a reply has.
pub(crate) fn claim(reply: &mut Reply, model: &str) {
    if let Some(wired) = &mut reply.wired {
        model.clone_into(&mut wired.model);
    }
}

/// Where requests go: `path` behind a base URL, which may hold it already. `version`: what the base ends with where people
/// leave it out.
pub(crate) fn endpoint(base: &str, path: &str, version: Option<&str>) -> Result<Url, ConfigError> {
    let bad = |problem: &str| ConfigError::BaseUrl { url: base.to_owned(), problem: problem.to_owned() };
    const FORM: &str = "it must begin with http:// or https://: write http://HOST:PORT/v1";
    if !base.contains("://") {
        return Err(bad(FORM));
    }
    let mut url = Url::parse(base.trim()).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad(FORM));
    }
    let mut folder = url.path().trim_end_matches('/').trim_end_matches(path).to_owned();
    let is_versioned = |folder: &str| {
        let last = folder.rsplit('/').next().unwrap_or_default();
        last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    if let Some(version) = version.filter(|_| !is_versioned(&folder)) {
        folder = format!("{folder}/{version}");
    }
    url.set_path(&format!("{folder}{path}"));
    Ok(url)
}

pub(crate) struct Client {
    url: Url,
    /// The header with the key, marked as sensitive, and what the wire and the configuration add to every request.
    headers: HeaderMap,
    has_key: bool,
    key_from: Option<String>,
    /// What must not stand in any message: the key, and the headers of the configuration.
    secrets: Vec<Secret>,
    timeouts: Timeouts,
    /// What it shares with all calls with this key to this model, and how many of them may be on the way together.
    lane: Option<Arc<Lane>>,
    at_once: Option<u32>,
    /// What to look at where the server cannot be reached.
    advice: &'static str,
    /// Built at the first call: a run that makes none should not read the system's certificates. The error is a text
    /// because it is told at every call.
    http: OnceLock<Result<reqwest::Client, String>>,
}

impl Client {
    /// `url` is where requests are posted; `own`: headers of the wire, which the configuration's may replace.
    pub(crate) fn of(
        url: Url,
        key: KeyIn,
        config: &ModelConfig,
        own: &[(&'static str, &'static str)],
    ) -> Result<Self, ConfigError> {
        let usual = || if is_loopback(&url) { Timeouts::local() } else { Timeouts::default() };
        let timeouts = config.timeouts.clone().unwrap_or_else(usual);
        Self::new(url, key, config, own, timeouts, "is the base URL right, is the server up?")
    }

    /// A blank key is none.
    pub(crate) fn new(
        url: Url,
        place: KeyIn,
        config: &ModelConfig,
        own: &[(&'static str, &'static str)],
        timeouts: Timeouts,
        advice: &'static str,
    ) -> Result<Self, ConfigError> {
        let mut headers = HeaderMap::new();
        for (name, value) in own {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let key = config.api_key.as_ref().map(|key| key.reveal().trim()).filter(|key| !key.is_empty());
        if let Some(key) = key {
            let (name, value) = match place {
                KeyIn::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
                KeyIn::Header(name) => (HeaderName::from_static(name), key.to_owned()),
            };
            let mut value = HeaderValue::try_from(value).map_err(|_| ConfigError::BadKey)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        for (name, value) in &config.headers {
            let bad = || ConfigError::BadHeader { name: name.clone() };
            let name = HeaderName::try_from(name).map_err(|_| bad())?;
            let mut value = HeaderValue::try_from(value.reveal()).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let named = config.headers.iter().map(|(_, value)| value.clone());
        let secrets =
            key.map(Secret::new).into_iter().chain(named).filter(|one| one.reveal().len() >= SECRET_MIN_BYTES);
        let (has_key, secrets) = (key.is_some(), secrets.collect());
        // A cap alone is kept, too, where nobody has brought lanes.
        let lanes = config.lanes.clone().or_else(|| config.max_concurrent.map(|_| Lanes::default()));
        let place =
            format!("{} {}", url.origin().ascii_serialization(), config.base_url.as_deref().unwrap_or_default());
        let lane = lanes.map(|lanes| lanes.of(&place, key.unwrap_or_default()));
        let at_once = config.max_concurrent;
        let key_from = config.key_from.clone();
        Ok(Self { url, headers, has_key, key_from, secrets, timeouts, lane, at_once, advice, http: OnceLock::new() })
    }

    pub(crate) fn has_key(&self) -> bool {
        self.has_key
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// One attempt.
    pub(crate) async fn attempt<D: Reading>(
        &self,
        body: Bytes,
        listener: &dyn Listener,
    ) -> Result<Reply, ModelFailure> {
        let _pass = match &self.lane {
            Some(lane) => Some(lane.enter(self.at_once).await.map_err(|left| self.closed(left))?),
            None => None,
        };
        let mut telling = Telling::to(listener);
        let reply = self.exchange::<D>(body, &mut telling).await.map_err(|failure| {
            let is_slow = matches!(failure.class, ModelErrorClass::RateLimited | ModelErrorClass::Overloaded);
            if let (Some(lane), Some(seconds)) = (&self.lane, failure.retry_after_s.filter(|_| is_slow)) {
                lane.asked(Duration::from_secs(seconds));
            }
            self.without_key(failure)
        })?;
        telling.settle(&reply);
        Ok(reply)
    }

    /// It is not even sent.
    fn closed(&self, left: Duration) -> ModelFailure {
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let text = format!(
            "not sent: {} has asked for a pause from all that use this key and model, {seconds} s of it are left",
            self.host()
        );
        let failure = broken(ModelErrorClass::RateLimited, Billing::Nothing, text);
        ModelFailure { retry_after_s: Some(seconds), ..failure }
    }

    async fn exchange<D: Reading>(&self, body: Bytes, telling: &mut Telling<'_>) -> Result<Reply, ModelFailure> {
        let http = self.http()?;
        let began = Instant::now();
        let last = began + self.timeouts.total;
        let request = http
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/x-ndjson, application/json")
            .header(ACCEPT_ENCODING, PLAIN)
            .headers(self.headers.clone())
            .body(body);
        let response = match timeout_at(last.min(began + self.timeouts.headers), request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unsent(&error)),
            Err(_) => return Err(self.silent("did not begin to answer", self.timeouts.headers)),
        };
        if let Some(lane) = &self.lane {
            lane.heard(response.status(), response.headers(), retry_after(response.headers()));
        }
        if !response.status().is_success() {
            Err(self.refused(response, last).await)
        } else if let Some(encoding) = packed(response.headers()) {
            let text = format!("{} packs its answers ({encoding}), unasked: switch that off there", self.host());
            Err(broken(ModelErrorClass::BadRequest, Billing::Perhaps, text))
        } else {
            self.read::<D>(response, last, telling).await
        }
    }

    /// The body of a `GET`, whole, within `limit`.
    pub(crate) async fn get(&self, url: Url, limit: Duration) -> Result<Vec<u8>, ModelFailure> {
        let fetched = timeout_at(Instant::now() + limit, self.fetch(url)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(self.silent("did not answer", limit)));
        fetched.map_err(|failure| self.without_key(failure))
    }

    async fn fetch(&self, url: Url) -> Result<Vec<u8>, ModelFailure> {
        let request = self.http()?.get(url).header(ACCEPT, "application/json").header(ACCEPT_ENCODING, PLAIN);
        let request = request.headers(self.headers.clone());
        let mut response = request.send().await.map_err(|error| self.unsent(&error))?;
        if !response.status().is_success() {
            return Err(self.refused(response, Instant::now() + self.timeouts.grace).await);
        }
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.map_err(|error| self.unsent(&error))? {
            body.extend_from_slice(&bytes);
            if body.len() > LISTING_MAX_BYTES {
                return Err(malformed("the listing is larger than 4 MiB and was refused"));
            }
        }
        Ok(body)
    }

    fn http(&self) -> Result<&reqwest::Client, ModelFailure> {
        self.http.get_or_init(|| self.build()).as_ref().map_err(|why| {
            broken(ModelErrorClass::BadRequest, Billing::Nothing, format!("no HTTP client could be made: {why}"))
        })
    }

    /// Reads a response that began well.
    async fn read<D: Reading>(
        &self,
        mut response: Response,
        last: Instant,
        telling: &mut Telling<'_>,
    ) -> Result<Reply, ModelFailure> {
        let mut decoder = D::default();
        let mut progress = Progress::Reading;
        let mut silence = self.timeouts.first_byte;
        let mut stopped = None;
        let too_long = || End::Broken(format!("it took more than {:?}", self.timeouts.total));
        loop {
            let now = Instant::now();
            // Where there is always more to read, no waiting ever ends.
            if now >= last {
                return decoder.end(too_long());
            }
            let until = match progress {
                Progress::Reading => now + silence,
                Progress::Stopped => *stopped.get_or_insert(now) + self.timeouts.grace,
                // So that the connection can be used again: nothing of it is waited for.
                Progress::Complete => *stopped.get_or_insert(now) + DRAIN,
                Progress::Failed => return decoder.end(End::Closed),
            };
            match timeout_at(until.min(last), response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    let before = progress;
                    progress = decoder.feed(&bytes);
                    telling.tell(decoder.said());
                    silence = self.timeouts.idle;
                    if before != progress {
                        stopped = None;
                    }
                }
                Ok(Ok(None)) => return decoder.end(End::Closed),
                Ok(Err(error)) => return decoder.end(End::Broken(chain(&error))),
                Err(_) if until.min(last) == last => return decoder.end(too_long()),
                Err(_) => {
                    return decoder.end(End::Broken(format!("{} sent nothing for {silence:?}", self.host())));
                }
            }
        }
    }

    async fn refused(&self, mut response: Response, last: Instant) -> ModelFailure {
        let status = response.status();
        let retry_after_s = retry_after(response.headers());
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        // The status alone says enough if the rest does not come, or comes drop by drop.
        let last = last.min(Instant::now() + self.timeouts.grace * REFUSAL_GRACES);
        while body.len() < REFUSAL_MAX_BYTES {
            match timeout_at(last.min(Instant::now() + self.timeouts.grace), response.chunk()).await {
                Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes[..bytes.len().min(REFUSAL_MAX_BYTES)]),
                Ok(Ok(None) | Err(_)) | Err(_) => break,
            }
        }
        let body = match location {
            Some(to) if status.is_redirection() => format!("the server redirects to {to}, which is not followed"),
            Some(_) | None => String::from_utf8_lossy(&body).into_owned(),
        };
        let failure = Refusal { status: Some(status.as_u16()), body: &body, retry_after_s }.into_failure();
        if failure.class != ModelErrorClass::Authentication {
            return failure;
        }
        let message = format!("{}: {}", failure.message, self.about_the_key());
        ModelFailure { message, ..failure }
    }

    fn about_the_key(&self) -> String {
        match (self.has_key, &self.key_from) {
            (true, Some(variable)) => format!("the key in {variable} is refused"),
            (true, None) => "the key is refused".to_owned(),
            // Another header may have been meant to open the door.
            (false, _) if self.headers.contains_key(AUTHORIZATION) => {
                "what was sent as authorization is refused".to_owned()
            }
            (false, Some(variable)) => format!("no key was sent; {variable} is not set"),
            (false, None) => "no key was sent".to_owned(),
        }
    }

    fn build(&self) -> Result<reqwest::Client, String> {
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(self.url.scheme()).map_err(|error| error.to_string())?)
            .http1_only()
            .tcp_nodelay(true)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(POOL_IDLE)
            .connect_timeout(self.timeouts.connect)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .user_agent(concat!("longrein/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&self.url) {
            builder = builder.no_proxy();
        }
        builder.build().map_err(|error| chain(&error))
    }

    fn unsent(&self, error: &reqwest::Error) -> ModelFailure {
        let (billing, what) = if error.is_connect() {
            (Billing::Nothing, "could not be reached")
        } else {
            (Billing::Perhaps, "closed the connection before it answered")
        };
        let text = format!("{} {what}: {} ({})", self.host(), chain(error), self.advice);
        broken(ModelErrorClass::Transient, billing, text)
    }

    fn silent(&self, what: &str, limit: Duration) -> ModelFailure {
        let text = format!("{} {what} within {limit:?}", self.host());
        broken(ModelErrorClass::Transient, Billing::Perhaps, text)
    }

    fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or("the server");
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Servers quote the key they refuse, some of them whole.
    fn without_key(&self, mut failure: ModelFailure) -> ModelFailure {
        for secret in self.secrets.iter().map(Secret::reveal).filter(|secret| !secret.is_empty()) {
            failure.message = failure.message.replace(secret, "[key]");
        }
        failure
    }
}

/// Anything shorter would be found in every word.
const SECRET_MIN_BYTES: usize = 3;

/// How long the end of the HTTP body is waited for after the reply is complete; it is nearly always there already.
const DRAIN: Duration = Duration::from_millis(50);

/// Servers close idle connections after a minute or more; one that waits for longer is likely to be dead.
const POOL_IDLE: Duration = Duration::from_secs(55);

/// The most of a listing of models; the longest known, of a router of hundreds, has half a megabyte.
const LISTING_MAX_BYTES: usize = 4 * 1024 * 1024;

/// How long the body of a refusal may take, in times of grace.
const REFUSAL_GRACES: u32 = 5;

/// The most of a refusal's body that is read.
const REFUSAL_MAX_BYTES: usize = 64 * 1024;

pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// A configuration of our own, so that nothing process-wide is needed or installed. The system's certificates are read
/// only for a server that shows one.
fn tls(scheme: &str) -> Result<rustls::ClientConfig, rustls::Error> {
    use rustls_platform_verifier::BuilderVerifierExt;

    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = if scheme == "https" {
        builder.with_platform_verifier()?
    } else {
        builder.with_root_certificates(rustls::RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}

/// Pieces of a packed answer come late, and a reply is read piece by piece.
const PLAIN: &str = "identity";

/// What an answer is packed with, if it is.
fn packed(headers: &HeaderMap) -> Option<String> {
    let encoding = String::from_utf8_lossy(headers.get(CONTENT_ENCODING)?.as_bytes()).trim().to_ascii_lowercase();
    (!encoding.is_empty() && encoding != PLAIN).then_some(encoding)
}

/// How long a refusal asks us to wait, in seconds, rounded up: `retry-after-ms`, or `retry-after` as a number or a date.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let text = |value: Option<&HeaderValue>| Some(value?.to_str().ok()?.trim().to_owned());
    if let Some(millis) = text(headers.get("retry-after-ms")).and_then(|text| text.parse::<f64>().ok()) {
        return whole_seconds(millis / 1000.0);
    }
    let after = text(headers.get(RETRY_AFTER))?;
    if let Ok(seconds) = after.parse::<f64>() {
        return whole_seconds(seconds);
    }
    let date = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp());
    // The server's own clock, if it tells the time, since the date is meant by it.
    let now = text(headers.get(DATE)).and_then(|text| date(&text)).unwrap_or_else(jiff::Timestamp::now);
    let wait = date(&after)?.duration_since(now);
    Some(u64::try_from(wait.as_secs()).unwrap_or(0))
}

pub(crate) fn whole_seconds(seconds: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked, and saturates")]
    (seconds >= 0.0).then(|| seconds.ceil() as u64)
}

/// Causes that only say which layer passed on the next one.
const LAYERS: [&str; 3] = ["client error (Connect)", "client error (SendRequest)", "tcp connect error"];

/// An error with its causes; reqwest's own text leaves them out. The URL is told elsewhere.
fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(cause) = next {
        let words = cause.to_string();
        next = cause.source();
        if next.is_some() && LAYERS.contains(&words.as_str()) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&words);
    }
    if text.is_empty() { error.to_string() } else { text }
}
