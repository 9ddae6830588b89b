//! Tokens that are bound to a key (DPoP, RFC 9449): every request that carries one carries a proof of its own that the key is
//! here, signed for that method, that address and that token. Who finds the token alone can do nothing with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use ring::digest::{SHA256, digest};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use serde_json::{Value, json};

use super::keys::now;
use super::signing::{SigningKey, url_safe};

pub(super) const PROOF: &str = "dpop";
const NONCE: &str = "dpop-nonce";
/// Longer ones are no nonces.
const NONCE_MAX_BYTES: usize = 1024;

/// What proves to one party that the key is here.
pub(super) struct Prover {
    key: SigningKey,
    public: Value,
    /// What that party wants to find in a proof, since it said so.
    nonce: Mutex<Option<String>>,
}

impl Prover {
    pub(super) fn new(key: SigningKey) -> Result<Self, String> {
        let public = key.public().ok_or("a token cannot be bound to this key")?;
        Ok(Self { key, public, nonce: Mutex::new(None) })
    }

    /// A proof for one request, with the token that it carries.
    pub(super) fn proof(&self, method: &Method, url: &Url, token: Option<&str>) -> Result<HeaderValue, String> {
        let mut address = url.clone();
        address.set_query(None);
        address.set_fragment(None);
        let mut claims = json!({
            "jti": uuid::Uuid::now_v7().to_string(),
            "htm": method.as_str(),
            "htu": address.as_str(),
            "iat": now(),
        });
        if let Some(token) = token {
            claims["ath"] = url_safe(digest(&SHA256, token.as_bytes())).into();
        }
        if let Some(nonce) = self.nonce() {
            claims["nonce"] = nonce.into();
        }
        let header = json!({"typ": "dpop+jwt", "alg": self.key.algorithm(), "jwk": self.public});
        HeaderValue::from_str(&self.key.signed(&header, &claims)?).map_err(|error| error.to_string())
    }

    pub(super) fn algorithm(&self) -> &'static str {
        self.key.algorithm()
    }

    /// The key's name: what a token that is bound to it says.
    pub(super) fn thumbprint(&self) -> String {
        url_safe(digest(&SHA256, self.public.to_string().as_bytes()))
    }

    fn nonce(&self) -> Option<String> {
        self.nonce.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the nonce of an answer. True: it is another than before, so that a request that was refused may be made again.
    pub(super) fn learn(&self, answer: &HeaderMap) -> bool {
        let said = answer.get(NONCE).and_then(|value| value.to_str().ok());
        let Some(said) = said.filter(|said| !said.is_empty() && said.len() <= NONCE_MAX_BYTES) else { return false };
        let mut held = self.nonce.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = held.as_deref() != Some(said);
        *held = Some(said.to_owned());
        is_new
    }
}

/// Whether who asks for a token so knows tokens that are bound to a key.
pub(super) fn is_asked_for(challenge: &str) -> bool {
    challenge.split([',', ' ']).any(|word| word.eq_ignore_ascii_case("dpop"))
}

/// A client whose tokens are bound.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) client: reqwest::Client,
    pub(super) prover: Arc<Prover>,
}

type Failure = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl Bound {
    /// Sends with a proof; where it is refused for a nonce, once more with that.
    async fn proven<T, Sent: Future<Output = Result<T, Failure>>>(
        &self,
        method: Method,
        uri: &str,
        token: Option<String>,
        headers: Headers,
        send: impl Fn(Headers) -> Sent,
    ) -> Result<T, Failure> {
        let Some(token) = token else { return send(headers).await };
        let wrong = |what: String| StreamableHttpError::UnexpectedServerResponse(what.into());
        let url = Url::parse(uri).map_err(|error| wrong(error.to_string()))?;
        let proven = || -> Result<Headers, Failure> {
            let mut headers = headers.clone();
            let scheme = HeaderValue::from_str(&format!("DPoP {token}"));
            let mut scheme = scheme.map_err(|_| wrong("its token cannot be sent".to_owned()))?;
            scheme.set_sensitive(true);
            headers.insert(AUTHORIZATION, scheme);
            let proof = self.prover.proof(&method, &url, Some(&token)).map_err(wrong)?;
            headers.insert(HeaderName::from_static(PROOF), proof);
            Ok(headers)
        };
        let sent = send(proven()?).await;
        let Err(Failure::AuthRequired(refusal)) = &sent else { return sent };
        if may_want_nonce(&refusal.www_authenticate_header) && self.ask_for_nonce(&url, proven()?).await {
            return send(proven()?).await;
        }
        sent
    }

    /// What came with a refusal is not handed on by `rmcp`: an empty message is refused for the same reason, and says it again.
    async fn ask_for_nonce(&self, url: &Url, headers: Headers) -> bool {
        let request = self.client.post(url.clone()).headers(headers.into_iter().collect()).timeout(ASK_WITHIN);
        let Ok(reply) = request.send().await else { return false };
        reply.status() == StatusCode::UNAUTHORIZED && self.prover.learn(reply.headers())
    }
}

/// Whether a refusal can be one for want of a nonce: it says so, or does not say why.
fn may_want_nonce(challenge: &str) -> bool {
    challenge.contains("use_dpop_nonce") || !challenge.contains("error=")
}

const ASK_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

impl StreamableHttpClient for Bound {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failure> {
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
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let send = |headers| {
            let (uri, message, session) = (uri.clone(), message.clone(), session.clone());
            self.client.post_message_with_response_limits(uri, message, session, None, headers, limits)
        };
        self.proven(Method::POST, &uri, token, headers, send).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failure> {
        let send = |headers| self.client.delete_session(uri.clone(), session.clone(), None, headers);
        self.proven(Method::DELETE, &uri, token, headers, send).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, Failure> {
        let send = |headers| self.client.get_stream(uri.clone(), session.clone(), last.clone(), None, headers);
        self.proven(Method::GET, &uri, token, headers, send).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
        event_max_bytes: usize,
    ) -> Result<BoxedSseResponse, Failure> {
        let send = |headers| {
            let (uri, session, last) = (uri.clone(), session.clone(), last.clone());
            self.client.get_stream_with_max_sse_event_size(uri, session, last, None, headers, event_max_bytes)
        };
        self.proven(Method::GET, &uri, token, headers, send).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prover() -> Prover {
        Prover::new(SigningKey::of_kept(&SigningKey::made().unwrap()).unwrap()).unwrap()
    }

    fn claims(proof: &HeaderValue) -> Value {
        let part = proof.to_str().unwrap().split('.').nth(1).unwrap();
        let bytes = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, part).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn a_proof_is_for_one_request_and_one_token() {
        let (prover, url) = (prover(), Url::parse("https://a.example/mcp?x=1#y").unwrap());
        let proof = |token| claims(&prover.proof(&Method::POST, &url, token).unwrap());
        let (one, two) = (proof(Some("token")), proof(None));
        assert_eq!((&one["htm"], &one["htu"]), (&"POST".into(), &"https://a.example/mcp".into()));
        // the digest that RFC 9449 prescribes, of "token"
        assert_eq!(one["ath"], "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A");
        assert_ne!(one["jti"], two["jti"]);
        assert!(two.get("ath").is_none() && two.get("nonce").is_none());
        let said = |nonce: &str| HeaderMap::from_iter([(HeaderName::from_static(NONCE), nonce.parse().unwrap())]);
        assert!(prover.learn(&said("n1")) && !prover.learn(&said("n1")) && !prover.learn(&HeaderMap::new()));
        assert!(!prover.learn(&said(&"n".repeat(NONCE_MAX_BYTES + 1))));
        assert_eq!(proof(None)["nonce"], "n1");
    }

    #[test]
    fn challenges_that_ask_for_proofs() {
        for asks in
            ["DPoP", "DPoP algs=\"ES256\"", "dpop resource_metadata=\"x\"", "Bearer realm=\"x\", DPoP algs=\"ES256\""]
        {
            assert!(is_asked_for(asks), "{asks}");
        }
        for other in ["", "Bearer", "Bearer realm=\"dpop\"", "Bearer resource_metadata=\"https://a/dpop\""] {
            assert!(!is_asked_for(other), "{other}");
        }
        assert!(may_want_nonce("DPoP error=\"use_dpop_nonce\"") && may_want_nonce("DPoP"));
        assert!(!may_want_nonce("DPoP error=\"invalid_token\""));
    }
}
