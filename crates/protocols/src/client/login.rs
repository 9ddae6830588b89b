//! A person lets us in: the flow that ends in [`Keys`]. One address is handed out to be opened in a browser, and one address
//! comes back; who opens it and how it comes back is the caller's affair.
//!
//! The server is asked first, without a key: it says whether one is needed, and where its authorization server is described.

use std::sync::Arc;

use rmcp::transport::auth::{
    AuthorizationCallback, AuthorizationManager, ClientCredentialsConfig, CredentialStore, InMemoryCredentialStore,
    OAuthClientConfig, StoredCredentials,
};

use super::asking::is_taken;
use super::assertion::{Assertion, Bearer, token_of};
use super::bound;
use super::connect::{Http, challenge};
use super::http::{Fetcher, is_private};
use super::keys::{Keys, Record, explain, now, scopes_of};
use super::signing::SigningKey;

/// What we are to an authorization server. The first of these that is possible counts: a client that it knows, a document that
/// describes us, or a registration on the spot.
#[derive(Clone, Default)]
pub struct Client {
    /// It knows us by this name, and perhaps by a secret.
    pub known: Option<(String, Option<String>)>,
    /// The client that is known signs for itself with this private key (PEM), and has no secret.
    pub key: Option<String>,
    /// An `https` address of a document that describes us.
    pub document: Option<String>,
    /// Scopes to ask for, beside what the server says.
    pub scopes: Vec<String>,
    /// No person is asked: the client that is known, with its secret or key, is let in for itself (the grant `client_credentials`).
    pub for_itself: bool,
    /// No person is asked: somebody else vouches for the client.
    pub assertion: Option<Assertion>,
}

/// Without the secret and the key.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.known.as_ref().map(|(id, _)| id);
        f.debug_struct("Client").field("known", &known).field("document", &self.document).finish_non_exhaustive()
    }
}

/// What a server asks for.
pub enum Asked {
    /// It lets everybody in.
    Nothing,
    /// A person must go to [`Login::address`].
    Login(Box<Login>),
    /// Nobody: the client was let in for itself.
    NoPerson,
}

/// A login that has begun.
pub struct Login {
    manager: AuthorizationManager,
    store: InMemoryCredentialStore,
    address: String,
    keys: Keys,
    record: Record,
}

impl Login {
    /// `back`: where the browser is sent afterwards.
    pub async fn begin(http: &Http, keys: &Keys, client: &Client, back: &str) -> Result<Asked, String> {
        if !is_private(&http.url) {
            return Err(format!("{}: a token would travel there in the clear; it must begin with https://", http.url));
        }
        let held = keys.read().ok().flatten();
        let said = match challenge(http).await? {
            Some(said) => said,
            // it lets us in, and yet has asked for more
            None if held.as_ref().is_some_and(|held| !held.wanted.is_empty()) => String::new(),
            None => return Ok(Asked::Nothing),
        };
        let fetcher = Arc::new(Fetcher::of(&http.url)?);
        let manager = AuthorizationManager::new_with_oauth_http_client(http.url.as_str(), fetcher.clone()).await;
        let mut manager = manager.map_err(|error| explain(&error))?;
        let said = Some(said.as_str()).filter(|said| !said.is_empty());
        let found = manager.resolve_metadata_from_challenge(said).await.map_err(|error| explain(&error))?;
        let metadata = found.metadata;
        let endpoints = [Some(&metadata.authorization_endpoint), Some(&metadata.token_endpoint)];
        for endpoint in endpoints.into_iter().flatten().chain(&metadata.registration_endpoint) {
            if !is_private(endpoint) {
                return Err(format!("its authorization server names an address that is not https: {endpoint:?}"));
            }
        }
        manager.set_metadata(metadata.clone());
        let bound_to = match said.is_some_and(bound::is_asked_for) || fetcher.saw_bound_tokens() {
            true => Some(SigningKey::made()?),
            false => None,
        };
        let scopes = scopes(&manager, client, said, held.as_ref()).await;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let documents = metadata.additional_fields.get("client_id_metadata_document_supported");
        let documents = documents.and_then(serde_json::Value::as_bool).unwrap_or(false);
        let config = match (&client.known, &client.document) {
            (Some((id, secret)), _) => {
                let mut config = OAuthClientConfig::new(id, back);
                config.client_secret.clone_from(secret);
                config
            }
            (None, Some(document)) if documents => OAuthClientConfig::new(document, back),
            // who is vouched for needs no name
            (None, _) if client.assertion.is_some() => OAuthClientConfig::new("", back),
            (None, _) if metadata.registration_endpoint.is_none() => return Err(UNKNOWN_CLIENT.to_owned()),
            (None, _) => manager.register_client("Longrein", back, &scopes).await.map_err(|error| explain(&error))?,
        };
        manager.configure_client(config.clone()).map_err(|error| explain(&error))?;
        let store = InMemoryCredentialStore::new();
        manager.set_credential_store(store.clone());
        let mut address = manager.get_authorization_url(&scopes).await.map_err(|error| explain(&error))?;
        let mut record = Record {
            url: http.url.clone(),
            resource: resource(&address).unwrap_or_else(|| http.url.clone()),
            metadata,
            client_id: config.client_id,
            client_secret: config.client_secret,
            client_key: client.key.clone(),
            bound_to,
            credentials: None,
            for_itself: client.for_itself,
            wanted: Vec::new(),
        };
        let asking = record.asking()?;
        if let Some(client) = &asking.client {
            is_taken(&record.metadata, "token_endpoint_auth_signing_alg_values_supported", client.key.algorithm())?;
        }
        if let Some(prover) = &asking.prover {
            is_taken(&record.metadata, "dpop_signing_alg_values_supported", prover.algorithm())?;
            // what the browser brings back is of use to nobody without the key
            address = format!("{address}&dpop_jkt={}", prover.thumbprint());
        }
        fetcher.ask(asking);
        if let Some(assertion) = &client.assertion {
            let scopes: Vec<String> = scopes.into_iter().map(str::to_owned).collect();
            let bearer = Bearer {
                metadata: &record.metadata,
                resource: &record.resource,
                client_id: Some(record.client_id.as_str()).filter(|id| !id.is_empty()),
                client_secret: record.client_secret.as_deref(),
                scopes: &scopes,
            };
            let credentials = bearer.exchange(&fetcher, assertion, now()).await?;
            record.credentials = Some(credentials);
            keys.write(&record)?;
            return Ok(Asked::NoPerson);
        }
        if client.for_itself {
            let scopes = scopes.into_iter().map(str::to_owned).collect();
            let credentials = for_itself(&mut manager, &fetcher, &record, scopes).await?;
            record.credentials = Some(credentials);
            keys.write(&record)?;
            return Ok(Asked::NoPerson);
        }
        Ok(Asked::Login(Box::new(Self { manager, store, address, keys: keys.clone(), record })))
    }

    /// Where a person says yes.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether an address that was called is the one that belongs to this login: others are nobody's business.
    pub fn is_ours(&self, came_back: &str) -> bool {
        let state = |url: &str| {
            let url = reqwest::Url::parse(url).ok()?;
            url.query_pairs().find(|(key, _)| key == "state").map(|(_, value)| value.into_owned())
        };
        state(&self.address).is_some_and(|ours| Some(ours) == state(came_back))
    }

    /// `came_back`: the whole address that the browser was sent to. The tokens are in the file afterwards.
    pub async fn finish(mut self, came_back: &str) -> Result<(), String> {
        if let Some(why) = refused(came_back) {
            return Err(why);
        }
        let back = AuthorizationCallback::from_redirect_url(came_back).map_err(|error| explain(&error))?;
        let exchanged =
            self.manager.exchange_code_for_token_with_issuer(&back.code, &back.csrf_token, back.issuer.as_deref());
        exchanged.await.map_err(|error| explain(&error))?;
        self.record.credentials = self.store.load().await.map_err(|error| explain(&error))?;
        self.keys.write(&self.record)
    }
}

const UNKNOWN_CLIENT: &str = "its authorization server registers nobody by itself: register Longrein there, with the redirect \
    address http://127.0.0.1:PORT/callback, and give client_id and port in [mcp.NAME.auth]";

/// A token for the client itself.
pub(super) async fn for_itself(
    manager: &mut AuthorizationManager,
    fetcher: &Fetcher,
    record: &Record,
    scopes: Vec<String>,
) -> Result<StoredCredentials, String> {
    let token = match (&record.client_key, &record.client_secret) {
        // the rest of the form says who asks
        (Some(_), _) => {
            let wanted = scopes.join(" ");
            let mut form = vec![("grant_type", "client_credentials"), ("resource", record.resource.as_str())];
            if !wanted.is_empty() {
                form.push(("scope", &wanted));
            }
            token_of(fetcher.form(&record.metadata.token_endpoint, &form, None).await?)?
        }
        (None, Some(secret)) => {
            let config = ClientCredentialsConfig::ClientSecret {
                client_id: record.client_id.clone(),
                client_secret: secret.clone(),
                scopes: scopes.clone(),
                resource: Some(record.resource.clone()),
            };
            manager.set_credential_store(InMemoryCredentialStore::new());
            manager.validate_client_credentials_metadata(&config).map_err(|error| explain(&error))?;
            manager.configure_client_credentials(&config).map_err(|error| explain(&error))?;
            manager.exchange_client_credentials(&config).await.map_err(|error| explain(&error))?
        }
        (None, None) => {
            return Err(
                "a client that is let in for itself needs client_id, and client_secret or client_key".to_owned()
            );
        }
    };
    let credentials = StoredCredentials::new(record.client_id.clone(), Some(token), scopes, Some(now()));
    Ok(credentials.with_issuer(record.metadata.issuer.clone()))
}

/// What the server asks for, else what it offers; and what was held or asked for before.
async fn scopes(
    manager: &AuthorizationManager,
    client: &Client,
    said: Option<&str>,
    held: Option<&Record>,
) -> Vec<String> {
    let mut scopes = manager.select_initial_scopes(&[]).await;
    let held = held.filter(|held| !held.wanted.is_empty());
    let granted = held.and_then(|held| held.credentials.as_ref()).map(|held| held.granted_scopes.clone());
    let wanted = held.map(|held| held.wanted.clone());
    if wanted.is_some() && said.is_none_or(|said| scopes_of(said).is_empty()) {
        // what it offers at large is not what it asked for
        scopes.clear();
    }
    let more = [granted, wanted].into_iter().flatten().flatten().chain(client.scopes.iter().cloned());
    for scope in more {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes
}

/// The resource that an authorization is asked for.
fn resource(address: &str) -> Option<String> {
    let address = reqwest::Url::parse(address).ok()?;
    address.query_pairs().find(|(key, _)| key == "resource").map(|(_, value)| value.into_owned())
}

/// Why a person or the authorization server said no.
fn refused(came_back: &str) -> Option<String> {
    let url = reqwest::Url::parse(came_back).ok()?;
    let said = |wanted: &str| {
        let value = url.query_pairs().find(|(key, _)| key == wanted).map(|(_, value)| value.into_owned());
        value.map(|value| value.chars().filter(|char| !char.is_control()).take(200).collect::<String>())
    };
    let error = said("error")?;
    Some(match said("error_description") {
        Some(description) => format!("the authorization server refused: {error}: {description}"),
        None => format!("the authorization server refused: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_is_told_as_it_was_said() {
        let back = "http://127.0.0.1:1/callback?error=access_denied&error_description=not%20you%0A&state=s";
        assert_eq!(refused(back).unwrap(), "the authorization server refused: access_denied: not you");
        assert_eq!(refused("http://127.0.0.1:1/callback?code=c&state=s"), None);
        assert_eq!(resource("https://a/authorize?x=y&resource=https%3A%2F%2Fm%2Fmcp").unwrap(), "https://m/mcp");
    }
}
