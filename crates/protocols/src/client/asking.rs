//! How a token endpoint is asked: who the client is by a key of its own (`private_key_jwt`, RFC 7523), and which key the token is
//! to be bound to (DPoP, RFC 9449). Every request for a token goes this way, whoever makes it.

use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderName};
use reqwest::{Method, Request, Url};
use rmcp::transport::auth::AuthorizationMetadata;
use serde_json::{Value, json};

use super::bound::{PROOF, Prover};
use super::http::encoded;
use super::keys::now;
use super::signing::SigningKey;

pub(super) struct Asking {
    pub(super) token_endpoint: String,
    pub(super) client: Option<Signatory>,
    pub(super) prover: Option<Prover>,
}

/// A client that signs for itself.
pub(super) struct Signatory {
    pub(super) key: SigningKey,
    pub(super) client_id: String,
    /// Whom it speaks to: the authorization server, as it names itself.
    pub(super) audience: String,
}

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// How long an assertion counts.
const ASSERTION_S: u64 = 300;

impl Asking {
    pub(super) fn is_for(&self, request: &Request) -> bool {
        request.method() == Method::POST && Url::parse(&self.token_endpoint).is_ok_and(|url| url == *request.url())
    }

    /// The request with what is made anew each time it is sent.
    pub(super) fn dressed(&self, request: &Request) -> Result<Request, String> {
        let mut dressed = request.try_clone().ok_or("a request for a token could not be made again")?;
        if let Some(client) = &self.client {
            let form = request.body().and_then(|body| body.as_bytes()).unwrap_or_default();
            let signed = client.assertion()?;
            let more = encoded(&[("client_assertion_type", ASSERTION_TYPE), ("client_assertion", &signed)]);
            let between: &[u8] = if form.is_empty() { b"" } else { b"&" };
            *dressed.body_mut() = Some([form, between, more.as_bytes()].concat().into());
            dressed.headers_mut().remove(CONTENT_LENGTH);
        }
        if let Some(prover) = &self.prover {
            let proof = prover.proof(request.method(), request.url(), None)?;
            dressed.headers_mut().insert(HeaderName::from_static(PROOF), proof);
        }
        Ok(dressed)
    }

    /// Whether an answer is a refusal for want of the nonce that came with it.
    pub(super) fn wants_nonce(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let Some(prover) = &self.prover else { return false };
        let is_new = prover.learn(headers);
        let said: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        is_new && said.get("error").and_then(Value::as_str) == Some("use_dpop_nonce")
    }
}

impl Signatory {
    fn assertion(&self) -> Result<String, String> {
        let header = json!({"typ": "JWT", "alg": self.key.algorithm()});
        let now = now();
        let claims = json!({
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": self.audience,
            "jti": uuid::Uuid::now_v7().to_string(),
            "iat": now,
            "exp": now + ASSERTION_S,
        });
        self.key.signed(&header, &claims)
    }
}

/// The algorithms of an authorization server's `key`. None: it names none.
fn algorithms(metadata: &AuthorizationMetadata, key: &str) -> Option<Vec<String>> {
    let named = metadata.additional_fields.get(key)?.as_array()?;
    Some(named.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Whether an authorization server takes what a key signs. `key`: the member in which it names what it takes.
pub(super) fn is_taken(metadata: &AuthorizationMetadata, key: &str, algorithm: &str) -> Result<(), String> {
    match algorithms(metadata, key) {
        Some(named) if !named.iter().any(|named| named == algorithm) => {
            let named: String = named.join(", ").chars().filter(|char| !char.is_control()).take(200).collect();
            Err(format!("its authorization server takes no signatures of {algorithm}; it names {named}"))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SigningKey {
        SigningKey::of_kept(&SigningKey::made().unwrap()).unwrap()
    }

    #[test]
    fn a_token_endpoint_is_asked_with_an_assertion_and_a_proof_and_nobody_else_is() {
        let client = Signatory { key: key(), client_id: "me".to_owned(), audience: "https://a.example".to_owned() };
        let asking = Asking {
            token_endpoint: "https://a.example/token".to_owned(),
            client: Some(client),
            prover: Some(Prover::new(key()).unwrap()),
        };
        let request = |url: &str| {
            let mut request = Request::new(Method::POST, Url::parse(url).unwrap());
            *request.body_mut() = Some("grant_type=x".into());
            request
        };
        assert!(!asking.is_for(&request("https://a.example/register")));
        let plain = request("https://a.example/token");
        assert!(asking.is_for(&plain));
        let body = |request: &Request| {
            String::from_utf8(request.body().and_then(|body| body.as_bytes()).unwrap().to_vec()).unwrap()
        };
        let (one, two) = (asking.dressed(&plain).unwrap(), asking.dressed(&plain).unwrap());
        let said = body(&one);
        assert!(said.starts_with("grant_type=x&client_assertion_type=urn%3Aietf%3Aparams%3A"), "{said}");
        assert_ne!(said, body(&two), "an assertion counts once");
        assert_ne!(one.headers()[PROOF], two.headers()[PROOF], "a proof counts once");
        let nonce =
            |nonce: &str| HeaderMap::from_iter([(HeaderName::from_static("dpop-nonce"), nonce.parse().unwrap())]);
        let wanted = br#"{"error":"use_dpop_nonce"}"#;
        assert!(asking.wants_nonce(&nonce("a"), wanted));
        assert!(!asking.wants_nonce(&nonce("a"), wanted), "the same nonce was sent already");
        assert!(!asking.wants_nonce(&nonce("b"), br#"{"error":"invalid_grant"}"#), "another reason");
    }

    #[test]
    fn what_an_authorization_server_does_not_take_is_said_before_it_is_asked() {
        let mut metadata = AuthorizationMetadata::default();
        assert!(is_taken(&metadata, "x", "ES256").is_ok());
        metadata.additional_fields.insert("x".to_owned(), json!(["RS256", "PS256"]));
        assert!(is_taken(&metadata, "x", "RS256").is_ok());
        assert!(is_taken(&metadata, "x", "ES256").unwrap_err().contains("it names RS256, PS256"));
    }
}
