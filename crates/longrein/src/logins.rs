//! How servers at an address let us in: where their tokens are kept, how a person gets one, and what is known of that without
//! asking anybody. A run uses what is there; it opens no browser and waits for nobody.

use std::collections::BTreeMap;
use std::path::PathBuf;

use longrein_core::mcp::{McpReach, McpServer};
use longrein_core::payload::Payload;
use longrein_protocols::client::{Answer, Assertion, CallError, Client, Http, Keys};
use longrein_tools::{Secrets, with_secrets};

pub use longrein_protocols::client::{Asked, KeyState, Login};

/// A way in that a header of the operator's is.
const HEADER: &str = "authorization";

/// The keys of a server, if it may be let in by tokens: it is an address, and no header of the operator's says otherwise.
pub fn keys(name: &str, server: &McpServer, environment: &BTreeMap<String, String>) -> Option<Keys> {
    match &server.reach {
        McpReach::Http { url, headers, .. } => keys_of(name, url, headers, environment),
        McpReach::Stdio { .. } | McpReach::OfWorkspace => None,
    }
}

fn keys_of(
    name: &str,
    url: &str,
    headers: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
) -> Option<Keys> {
    let has_header = headers.keys().any(|header| header.eq_ignore_ascii_case(HEADER));
    let file = state_folder(environment)?.join("mcp").join(format!("{name}.json"));
    (!has_header).then(|| Keys::new(file, url))
}

/// As the binary finds it.
fn state_folder(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let around = crate::gate::surroundings(None, environment, std::sync::Arc::new(crate::gate::FileSystem));
    std::path::absolute(around.longrein_home?).ok()
}

/// A server at an address, with all it is to be sent; what is secret of it is known from now on.
pub(crate) fn http(
    name: &str,
    url: &str,
    headers: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
    secrets: &mut Secrets,
) -> Result<Http, String> {
    let mut whole = BTreeMap::new();
    for (header, value) in headers {
        whole.insert(header.clone(), with_secrets(value, environment, secrets)?);
    }
    let keys = keys_of(name, url, headers, environment);
    let url = with_secrets(url, environment, secrets)?;
    for secret in keys.iter().flat_map(Keys::secrets) {
        secrets.know(format!("token of {name}"), secret);
    }
    let way_in = match &keys {
        Some(_) => format!("run longrein mcp login {name}"),
        None => "give its token in headers".to_owned(),
    };
    Ok(Http { url, headers: whole, keys, way_in })
}

/// Begins a login. `back`: the loopback address that the browser comes back to.
pub async fn begin_login(
    name: &str,
    server: &McpServer,
    environment: &BTreeMap<String, String>,
    back: &str,
) -> Result<Asked, String> {
    let McpReach::Http { url, headers, auth } = &server.reach else {
        return Err("it is no address, and needs no login".to_owned());
    };
    let mut secrets = Secrets::new();
    let http = http(name, url, headers, environment, &mut secrets)?;
    let Some(keys) = http.keys.clone() else {
        return Err("its token is given in headers: remove the Authorization header to log in".to_owned());
    };
    let secret = auth.client_secret.as_ref().map(|secret| with_secrets(secret, environment, &mut secrets));
    let secret = secret.transpose()?;
    let key = auth.client_key.as_ref().map(|key| with_secrets(key, environment, &mut secrets)).transpose()?;
    let assertion = auth.assertion.as_ref().map(|token| with_secrets(token, environment, &mut secrets)).transpose()?;
    let assertion = assertion.map(Assertion::Token);
    let client = Client {
        known: auth.client_id.clone().map(|id| (id, secret)),
        key,
        document: auth.client_document.clone(),
        scopes: auth.scopes.clone(),
        for_itself: auth.for_itself,
        assertion,
    };
    Login::begin(&http, &keys, &client, back).await
}

/// What a call came to, without the tokens it was made with: they may be newer than what the run knows to hide.
pub(crate) fn hidden(keys: &Keys, called: Result<Answer, CallError>) -> Result<Answer, CallError> {
    let secrets = keys.secrets();
    let without = |text: String| {
        secrets.iter().filter(|secret| secret.len() >= SECRET_MIN_BYTES).fold(text, |text, secret| {
            if text.contains(secret.as_str()) { text.replace(secret.as_str(), "[redacted]") } else { text }
        })
    };
    match called {
        Ok(answer) => {
            // As it came, and as it reads: a token may be written with escapes.
            let came = answer.result.as_str().to_owned();
            let reads = answer.result.read::<serde_json::Value>().map(|value| value.to_string()).unwrap_or_default();
            let hidden = [came, reads].into_iter().find_map(|text| {
                let without = without(text.clone());
                (without != text).then_some(without)
            });
            let result = hidden.map_or(answer.result, parsed);
            Ok(Answer { result, is_error: answer.is_error })
        }
        Err(CallError::NotSent(text)) => Err(CallError::NotSent(without(text))),
        Err(CallError::Refused(text)) => Err(CallError::Refused(without(text))),
        Err(CallError::Failed(text)) => Err(CallError::Failed(without(text))),
        Err(CallError::TurnedAway { status, why, retry_after_s }) => {
            Err(CallError::TurnedAway { status, why: without(why), retry_after_s })
        }
        Err(CallError::Lost(text)) => Err(CallError::Lost(without(text))),
    }
}

/// Shorter ones would be found in anything.
const SECRET_MIN_BYTES: usize = 8;

fn parsed(text: String) -> Payload {
    Payload::parse(&text).unwrap_or_else(|_| Payload::string("[redacted]"))
}
