//! Let in on the word of somebody else who vouches for the client (RFC 7523): a token of the place it runs in, or, where an
//! enterprise manages who may go where, of its identity provider (RFC 8693). Each is tried once; no other grant follows a no.

use rmcp::transport::auth::{AuthorizationMetadata, OAuthTokenResponse, StoredCredentials};
use serde_json::Value;

use super::http::{Fetcher, is_private};

/// Who vouches for the client.
#[derive(Clone)]
pub enum Assertion {
    /// A token that says so, as it is.
    Token(String),
    /// An identity provider gives such a token for one of a person who has logged in there.
    IdentityProvider { token_endpoint: String, client_id: Option<String>, id_token: String },
}

/// What a login with an assertion is about.
pub(super) struct Bearer<'a> {
    pub(super) metadata: &'a AuthorizationMetadata,
    pub(super) resource: &'a str,
    pub(super) client_id: Option<&'a str>,
    pub(super) client_secret: Option<&'a str>,
    pub(super) scopes: &'a [String],
}

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

impl Bearer<'_> {
    pub(super) async fn exchange(
        &self,
        fetcher: &Fetcher,
        assertion: &Assertion,
        now: u64,
    ) -> Result<StoredCredentials, String> {
        let token = match assertion {
            Assertion::Token(token) => token.clone(),
            Assertion::IdentityProvider { token_endpoint, client_id, id_token } => {
                let audience = self.metadata.issuer.as_deref().unwrap_or(self.resource);
                let mut form = vec![
                    ("grant_type", TOKEN_EXCHANGE),
                    ("requested_token_type", ID_JAG),
                    ("subject_token", id_token),
                    ("subject_token_type", ID_TOKEN),
                    ("audience", audience),
                    ("resource", self.resource),
                ];
                form.extend(client_id.as_deref().map(|id| ("client_id", id)));
                if !is_private(token_endpoint) {
                    return Err(format!("the identity provider's address is not https: {token_endpoint:?}"));
                }
                let reply = fetcher.form(token_endpoint, &form, None).await?;
                let token = reply.get("access_token").and_then(Value::as_str);
                token.ok_or("the identity provider gave no token")?.to_owned()
            }
        };
        let scopes = self.scopes.join(" ");
        let mut form = vec![("grant_type", JWT_BEARER), ("assertion", token.as_str()), ("resource", self.resource)];
        if !scopes.is_empty() {
            form.push(("scope", &scopes));
        }
        let basic = self.client_id.zip(self.client_secret);
        if basic.is_none() {
            form.extend(self.client_id.map(|id| ("client_id", id)));
        }
        let reply = fetcher.form(&self.metadata.token_endpoint, &form, basic).await?;
        let client_id = self.client_id.unwrap_or_default().to_owned();
        let credentials = StoredCredentials::new(client_id, Some(token_of(reply)?), self.scopes.to_vec(), Some(now));
        Ok(credentials.with_issuer(self.metadata.issuer.clone()))
    }
}

/// A token from the answer that brought it.
pub(super) fn token_of(reply: Value) -> Result<OAuthTokenResponse, String> {
    // serde's words could quote what is in it
    serde_json::from_value(reply).map_err(|_| "the authorization server's answer is no token".to_owned())
}
