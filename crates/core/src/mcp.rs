//! Tool servers of somebody else's (MCP) that a task uses, and one tool of such a server. Values only: what a server is told
//! and how it is reached lies outside.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, ToolName};
use crate::task::{EffectClass, duration_ms, option_duration_ms};

/// What every tool of a server begins with.
pub const PREFIX: &str = "mcp__";
/// No provider takes longer names.
const NAME_MAX: usize = 64;

/// A server, as configuration or a task file declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServer {
    pub reach: McpReach,
    /// Of every tool that [`McpServer::tools`] does not name. What a server says of its own tools does not count.
    pub effect: EffectClass,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, EffectClass>,
    /// The tools that are offered, by the server's names, `*` for any text; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Of one call.
    #[serde(rename = "timeout_ms", with = "duration_ms")]
    pub timeout: Duration,
    /// From its start until it has listed its tools.
    #[serde(rename = "start_timeout_ms", with = "duration_ms")]
    pub start_timeout: Duration,
    /// How long a call may go on without any sign of progress. None: as long as it may take.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "idle_timeout_ms", with = "option_duration_ms")]
    pub idle_timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "OnError::is_told")]
    pub on_error: OnError,
    /// The operator's word that what it brings is no stranger's: it taints nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
    /// A run does not start without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Where it is declared: a file.
    pub source: String,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpReach {
    /// A program of our own, spoken to over its standard input and output.
    Stdio {
        /// In its words `${secret:X}` stands for a variable of the operator's.
        command: Vec<String>,
        /// The folder it runs in.
        folder: String,
        /// `NAME`, `NAME=value` or `${secret:NAME}`; nothing else is inherited.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        env: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        network: Vec<String>,
        /// Paths beside the workspace and the folder.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reads: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        writes: Vec<String>,
        walls: McpWalls,
    },
    /// Streamable HTTP.
    Http {
        url: String,
        /// Sent with every request; `${secret:X}` stands for a variable of the operator's.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        #[serde(default, skip_serializing_if = "McpAuth::is_default")]
        auth: McpAuth,
    },
    /// As the workspace's own file says, if it has one that is trusted: this one says how far it is to be trusted.
    OfWorkspace,
}

/// What a server's authorization server knows of us, where it does not register anybody who comes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpAuth {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// `${secret:X}`, never the secret itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// A private key that the client signs for itself with (PEM), in place of a secret: `${secret:X}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
    /// An `https` address of a document that describes the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_document: Option<String>,
    /// No person logs in: the client with its secret or key is let in for itself (`client_credentials`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_itself: bool,
    /// No person logs in: a token of somebody who vouches for the client (`${secret:X}`), as the place it runs in gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assertion: Option<String>,
    /// Asked for beside what the server asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Of the loopback address that the browser comes back to. None: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl McpAuth {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What is around a server that is a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpWalls {
    /// Those of the run's commands.
    OfTheRun,
    /// None: the operator says that it may do what they may.
    None,
}

/// What it means that a server answers a call that is no read with an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The model is told, and the run goes on. Nobody knows what happened before it: it is no evidence, provides nothing, and
    /// is not made again unasked.
    #[default]
    Told,
    /// Nobody knows what happened before it: the effect is unknown.
    Unknown,
}

impl OnError {
    fn is_told(&self) -> bool {
        *self == OnError::Told
    }
}

impl McpServer {
    pub const TIMEOUT: Duration = Duration::from_secs(60);
    pub const START_TIMEOUT: Duration = Duration::from_secs(10);

    pub fn new(reach: McpReach, source: impl Into<String>) -> Self {
        Self {
            reach,
            effect: EffectClass::External,
            tools: BTreeMap::new(),
            allow: Vec::new(),
            timeout: Self::TIMEOUT,
            start_timeout: Self::START_TIMEOUT,
            idle_timeout: None,
            on_error: OnError::Told,
            trusted: false,
            required: false,
            source: source.into(),
        }
    }

    pub fn effect_of(&self, tool: &str) -> EffectClass {
        self.tools.get(tool).copied().unwrap_or(self.effect)
    }

    /// Names of tools that are configured and that a server with these tools does not have, each with its key. Patterns of
    /// [`McpServer::allow`] that fit nothing are among them.
    pub fn unknown<'a>(&'a self, has: &'a [&str]) -> impl Iterator<Item = (&'static str, &'a str)> {
        let named = self.tools.keys().map(|name| ("tools", name.as_str()));
        let allowed = self.allow.iter().map(|pattern| ("allow", pattern.as_str()));
        named.filter(|(_, name)| !has.contains(name)).chain(
            allowed
                .filter(|(_, pattern)| !has.iter().any(|name| crate::hook::fits(pattern.as_bytes(), name.as_bytes()))),
        )
    }

    /// Whether a tool of it is offered.
    pub fn offers(&self, tool: &str) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|pattern| crate::hook::fits(pattern.as_bytes(), tool.as_bytes()))
    }
}

/// One tool of a server, as it was when the run started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpTool {
    /// The server's name in [`crate::task::Task::servers`].
    pub server: String,
    /// Its name there.
    pub tool: String,
    /// Of what the server said of it: another one is another tool.
    pub definition: Digest,
    #[serde(default, skip_serializing_if = "OnError::is_told")]
    pub on_error: OnError,
    /// It is no tool of the server's, but one of ours that reads what the server has beside tools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads: bool,
}

/// A server's name in the names of its tools, of the letters that every provider takes.
pub fn shown_server(server: &str) -> String {
    clean(server)
}

/// Whether the names of a server's tools tell where its own name ends: else a rule for one server could mean another.
pub fn ends_clearly(server: &str) -> bool {
    let shown = clean(server);
    !shown.contains("__") && !shown.ends_with('_')
}

fn clean(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_ascii_alphanumeric() || char == '-' || char == '_' { char } else { '_' })
        .collect()
}

/// What the model calls it by: `mcp__SERVER__TOOL`, of the letters that every provider takes. A name that is too long, or that
/// another tool has already, is told apart by a digest at its end.
pub fn tool_name(server: &str, tool: &str, taken: impl Fn(&ToolName) -> bool) -> ToolName {
    let plain = format!("{PREFIX}{}__{}", clean(server), clean(tool));
    let name = ToolName::new(plain.as_str());
    if plain.len() <= NAME_MAX && !taken(&name) {
        return name;
    }
    let digest = Digest::of_parts([server.as_bytes(), tool.as_bytes()]).to_string();
    let digest: String = digest.chars().filter(char::is_ascii_alphanumeric).collect();
    let tail: String = digest.chars().rev().take(DIGEST_SHOWN).collect();
    let head: String = plain.chars().take(NAME_MAX - DIGEST_SHOWN - 1).collect();
    ToolName::new(format!("{head}_{tail}"))
}

const DIGEST_SHOWN: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_every_provider_takes() {
        let nobody = |_: &ToolName| false;
        assert_eq!(tool_name("shop", "get_user", nobody).as_str(), "mcp__shop__get_user");
        assert_eq!(tool_name("a b", "größe/read.file", nobody).as_str(), "mcp__a_b__gr__e_read_file");
        let first = tool_name("s", "a.b", nobody);
        let second = tool_name("s", "a/b", |name| *name == first);
        assert_ne!(first, second);
        let long = tool_name("server", &"x".repeat(300), nobody);
        assert_eq!(long.as_str().len(), 64);
        assert_ne!(long, tool_name("server", &"x".repeat(299), nobody));
    }

    #[test]
    fn a_servers_name_ends_where_its_tools_begin() {
        for clear in ["shop", "my_shop", "_shop", "a.b", "a-b"] {
            assert!(ends_clearly(clear), "{clear}");
        }
        for unclear in ["shop__admin", "shop_", "shop.", "a._b", "__", "größe__x"] {
            assert!(!ends_clearly(unclear), "{unclear}");
        }
        assert_eq!(shown_server("a.b"), shown_server("a_b"));
    }
}
