//! What a server at an address lets us in by: tokens of its authorization server, kept in one file that only its owner reads.
//!
//! They are got by a person (`login.rs`) and renewed here, one process at a time. They are sent to the address they were got
//! for and to no other, and whoever shows anything of a server asks [`Keys::secrets`] what not to show.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialRefreshGuard, CredentialStore, OAuthClientConfig,
    StoredCredentials,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::asking::{Asking, Signatory};
use super::bound::Prover;
use super::http::Fetcher;
use super::signing::SigningKey;

/// The keys of one server: where they are kept, and the address they are for.
#[derive(Debug, Clone)]
pub struct Keys {
    file: PathBuf,
    url: String,
}

/// What is known of a server's keys, without asking anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// There are none for this address.
    None,
    There {
        scopes: Vec<String>,
        /// When the token ends, in seconds since 1970, if that was said.
        until: Option<u64>,
        /// It can be renewed without a person.
        renewable: bool,
        /// What the server has asked for since.
        wanted: Vec<String>,
    },
}

/// The file. Everything that is needed to renew, so that a run asks nobody but the token endpoint.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Record {
    /// The server's address.
    pub(super) url: String,
    /// What the tokens are for, as the server names itself.
    pub(super) resource: String,
    pub(super) metadata: AuthorizationMetadata,
    pub(super) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_secret: Option<String>,
    /// The client signs for itself with this (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client_key: Option<String>,
    /// The key that tokens are bound to, where the server knows such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bound_to: Option<String>,
    pub(super) credentials: Option<StoredCredentials>,
    /// The client is let in for itself: a new token needs nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) for_itself: bool,
    /// Scopes that the server has asked for since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) wanted: Vec<String>,
}

impl Record {
    /// How tokens are asked for.
    pub(super) fn asking(&self) -> Result<Asking, String> {
        let signatory = |pem: &String| {
            let audience = self.metadata.issuer.as_ref().unwrap_or(&self.metadata.token_endpoint).clone();
            Ok::<_, String>(Signatory { key: SigningKey::of_pem(pem)?, client_id: self.client_id.clone(), audience })
        };
        Ok(Asking {
            token_endpoint: self.metadata.token_endpoint.clone(),
            client: self.client_key.as_ref().map(signatory).transpose()?,
            prover: self.prover()?,
        })
    }

    fn prover(&self) -> Result<Option<Prover>, String> {
        self.bound_to.as_ref().map(|key| Prover::new(SigningKey::of_kept(key)?)).transpose()
    }

    /// Whether the token is one that is bound. An authorization server may give another.
    fn is_bound(&self) -> bool {
        let token = self.credentials.as_ref().and_then(token);
        let kind = token.as_ref().and_then(|token| token.get("token_type")).and_then(Value::as_str);
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case("dpop"))
    }
}

/// What sends the token and renews it.
pub(super) struct Sender {
    pub(super) manager: AuthorizationManager,
    /// What each use of the token is to be proven with.
    pub(super) prover: Option<Prover>,
}

const FILE_MAX_BYTES: u64 = 1 << 20;
/// How long another process may renew.
const LOCK_WITHIN: Duration = Duration::from_secs(40);
/// Scopes that are remembered.
const WANTED_MAX: usize = 64;

impl Keys {
    /// `file` need not be there.
    pub fn new(file: impl Into<PathBuf>, url: impl Into<String>) -> Self {
        Self { file: file.into(), url: url.into() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn state(&self) -> Result<KeyState, String> {
        let Some(record) = self.read()? else { return Ok(KeyState::None) };
        let Some(credentials) = record.credentials else { return Ok(KeyState::None) };
        let Some(token) = token(&credentials) else { return Ok(KeyState::None) };
        let lasts = token.get("expires_in").and_then(Value::as_u64);
        let until = lasts.zip(credentials.token_received_at).map(|(lasts, at)| at.saturating_add(lasts));
        Ok(KeyState::There {
            scopes: credentials.granted_scopes.clone(),
            until,
            renewable: token.get("refresh_token").is_some_and(Value::is_string),
            wanted: record.wanted,
        })
    }

    /// Everything in the file that nobody may see.
    pub fn secrets(&self) -> Vec<String> {
        let Ok(Some(record)) = self.read() else { return Vec::new() };
        let mut secrets: Vec<String> =
            [record.client_secret, record.client_key, record.bound_to].into_iter().flatten().collect();
        if let Some(token) = record.credentials.as_ref().and_then(token) {
            let secret = |key: &str| token.get(key).and_then(Value::as_str).map(str::to_owned);
            secrets.extend(["access_token", "refresh_token", "id_token"].into_iter().filter_map(secret));
        }
        secrets
    }

    /// Forgets them. False: there were none.
    pub fn forget(&self) -> Result<bool, String> {
        match std::fs::remove_file(&self.file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(format!("{}: {error}", self.file.display())),
        }
    }

    /// What the file holds for this address; another address has no keys.
    pub(super) fn read(&self) -> Result<Option<Record>, String> {
        let wrong = |what: String| format!("{}: {what}", self.file.display());
        let file = match File::open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error.to_string())),
        };
        let mut text = String::new();
        file.take(FILE_MAX_BYTES).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
        // serde's words could quote what is in it
        let record: Record =
            serde_json::from_str(&text).map_err(|_| wrong("it is damaged: remove it and log in again".to_owned()))?;
        Ok((record.url == self.url).then_some(record))
    }

    /// As a whole or not at all, for its owner's eyes.
    pub(super) fn write(&self, record: &Record) -> Result<(), String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", self.file.display());
        let folder = self.file.parent().unwrap_or(Path::new("."));
        make_folder(folder).map_err(wrong)?;
        let text = serde_json::to_vec_pretty(record).map_err(|error| wrong(error.into()))?;
        let beside = self.file.with_extension(format!("new-{}-{}", std::process::id(), uuid::Uuid::now_v7().simple()));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&beside, &self.file)
        })();
        if written.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        written.map_err(wrong)
    }

    /// Notes what the server has asked for beyond what there is, for the next login.
    pub(super) fn want(&self, challenge: &str) {
        let scopes = scopes_of(challenge);
        let Ok(Some(mut record)) = self.read() else { return };
        let before = record.wanted.len();
        for scope in scopes {
            if !record.wanted.contains(&scope) && record.wanted.len() < WANTED_MAX {
                record.wanted.push(scope);
            }
        }
        if record.wanted.len() > before {
            // the next login learns of it anew where this fails
            let _ = self.write(&record);
        }
    }

    /// None: there is no token.
    pub(super) async fn sender(&self) -> Result<Option<Sender>, String> {
        let Some(mut record) = self.read()?.filter(|record| record.credentials.is_some()) else { return Ok(None) };
        let fetcher = Arc::new(Fetcher::of(&self.url)?);
        fetcher.ask(record.asking()?);
        let wrong = |error: AuthError| explain(&error);
        // the tokens are renewed for what they were got for
        let manager = AuthorizationManager::new_with_oauth_http_client(record.resource.as_str(), fetcher.clone()).await;
        let mut manager = manager.map_err(wrong)?;
        manager.set_metadata(record.metadata.clone());
        let mut client = OAuthClientConfig::new(record.client_id.clone(), &self.url);
        client.client_secret.clone_from(&record.client_secret);
        manager.configure_client(client).map_err(wrong)?;
        if record.for_itself && self.is_over()? {
            let scopes = record.credentials.take().map(|held| held.granted_scopes).unwrap_or_default();
            record.credentials = Some(super::login::for_itself(&mut manager, &fetcher, &record, scopes).await?);
            self.write(&record)?;
        }
        manager.set_credential_store(self.clone());
        let prover = if record.is_bound() { record.prover()? } else { None };
        Ok(Some(Sender { manager, prover }))
    }

    /// Whether the token has ended, or is about to.
    fn is_over(&self) -> Result<bool, String> {
        let now = now();
        Ok(match self.state()? {
            KeyState::There { until: Some(until), .. } => until <= now + 5,
            KeyState::There { until: None, .. } | KeyState::None => false,
        })
    }

    fn lock(&self) -> Result<File, String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", self.file.display());
        make_folder(self.file.parent().unwrap_or(Path::new("."))).map_err(wrong)?;
        let path = self.file.with_extension("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(wrong)?;
        let by = Instant::now() + LOCK_WITHIN;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < by => std::thread::sleep(Duration::from_millis(20)),
                Err(TryLockError::WouldBlock) => {
                    return Err("another process does not end renewing its token".to_owned());
                }
                Err(TryLockError::Error(error)) => return Err(wrong(error)),
            }
        }
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A token response as it came.
fn token(credentials: &StoredCredentials) -> Option<Value> {
    serde_json::to_value(credentials.token_response.as_ref()?).ok()
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The scopes that a challenge asks for.
pub(super) fn scopes_of(challenge: &str) -> Vec<String> {
    let Some((_, rest)) = challenge.split_once("scope=") else { return Vec::new() };
    let value = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().unwrap_or_default(),
        None => rest.split([',', ' ']).next().unwrap_or_default(),
    };
    value.split_whitespace().map(str::to_owned).collect()
}

/// An error of an authorization, without what could be secret in it.
pub(super) fn explain(error: &AuthError) -> String {
    let mut said = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let inner_said = inner.to_string();
        if !said.contains(&inner_said) {
            said = format!("{said}: {inner_said}");
        }
        source = inner.source();
    }
    said.chars().map(|char| if char.is_control() { ' ' } else { char }).take(SAID_MAX_CHARS).collect()
}

const SAID_MAX_CHARS: usize = 500;

type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

impl CredentialStore for Keys {
    fn load<'a, 'b>(&'a self) -> Later<'b, Option<StoredCredentials>>
    where
        'a: 'b,
        Self: 'b,
    {
        let record = self.read();
        Box::pin(
            async move { Ok(record.map_err(AuthError::CredentialStoreError)?.and_then(|record| record.credentials)) },
        )
    }

    fn save<'a, 'b>(&'a self, credentials: StoredCredentials) -> Later<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        let saved = self.read().and_then(|record| {
            let mut record = record.ok_or("its file is gone: log in again")?;
            record.credentials = Some(credentials);
            self.write(&record)
        });
        Box::pin(async move { saved.map_err(AuthError::CredentialStoreError) })
    }

    fn clear<'a, 'b>(&'a self) -> Later<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        let cleared = self.forget().map(drop);
        Box::pin(async move { cleared.map_err(AuthError::CredentialStoreError) })
    }

    fn acquire_refresh_guard<'a, 'b>(&'a self) -> Later<'b, Option<CredentialRefreshGuard>>
    where
        'a: 'b,
        Self: 'b,
    {
        let keys = self.clone();
        Box::pin(async move {
            let locked = tokio::task::spawn_blocking(move || keys.lock()).await;
            let locked = locked.map_err(|error| error.to_string()).and_then(|locked| locked);
            Ok(Some(CredentialRefreshGuard::new(locked.map_err(AuthError::CredentialStoreError)?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn record(url: &str) -> Record {
        let credentials = StoredCredentials::new(
            "me".to_owned(),
            serde_json::from_value(serde_json::json!({"access_token": "sesame", "token_type": "Bearer",
                "refresh_token": "again", "expires_in": 60}))
            .unwrap(),
            vec!["a".to_owned()],
            Some(1_000),
        );
        Record {
            url: url.to_owned(),
            resource: url.to_owned(),
            metadata: AuthorizationMetadata::default(),
            client_id: "me".to_owned(),
            client_secret: Some("hush".to_owned()),
            client_key: None,
            bound_to: Some("a key".to_owned()),
            credentials: Some(credentials),
            for_itself: false,
            wanted: Vec::new(),
        }
    }

    #[test]
    fn they_are_for_one_address_and_one_pair_of_eyes() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("mcp/shop.json");
        let keys = Keys::new(&file, "https://shop.example/mcp");
        assert_eq!(keys.state().unwrap(), KeyState::None);
        keys.write(&record("https://shop.example/mcp")).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        keys.want("Bearer error=\"insufficient_scope\", scope=\"b c\", x=y");
        let there = KeyState::There {
            scopes: vec!["a".to_owned()],
            until: Some(1_060),
            renewable: true,
            wanted: vec!["b".to_owned(), "c".to_owned()],
        };
        assert_eq!(keys.state().unwrap(), there);
        assert_eq!(keys.secrets(), ["hush", "a key", "sesame", "again"]);
        let other = Keys::new(&file, "https://evil.example/mcp");
        assert_eq!((other.state().unwrap(), other.secrets().len()), (KeyState::None, 0));
        std::fs::write(&file, "{\"access_token\": \"sesame\"").unwrap();
        assert!(!keys.state().unwrap_err().contains("sesame"));
        assert!(keys.forget().unwrap() && !keys.forget().unwrap());
    }

    #[test]
    fn a_token_is_bound_where_the_authorization_server_says_so() {
        let mut record = record("https://shop.example/mcp");
        assert!(!record.is_bound(), "it was asked for and not given");
        let token = serde_json::json!({"access_token": "sesame", "token_type": "DPoP"});
        let token = Some(serde_json::from_value(token).unwrap());
        record.credentials = Some(StoredCredentials::new("me".to_owned(), token, Vec::new(), None));
        assert!(record.is_bound());
        let whole: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert!(whole.is_bound(), "it is kept so");
        assert!(whole.asking().err().unwrap().contains("log in again"), "a key that is none");
    }

    #[test]
    fn scopes_of_challenges() {
        assert_eq!(scopes_of("Bearer scope=\"a b\", resource_metadata=\"x\""), ["a", "b"]);
        assert_eq!(scopes_of("Bearer scope=a, realm=x"), ["a"]);
        assert!(scopes_of("Bearer").is_empty());
    }
}
