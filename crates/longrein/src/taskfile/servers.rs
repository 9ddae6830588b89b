//! `[mcp.NAME]`: servers of somebody else's whose tools are offered. The same table in a task file and in configuration; and
//! `.mcp.json`, which a workspace brings along.

use std::collections::BTreeMap;
use std::path::Path;

use longrein_core::mcp::{McpAuth, McpReach, McpServer, McpWalls, OnError, ends_clearly};
use longrein_core::task::EffectClass;
use serde_json::Value as Json;

use super::error::TaskFileError;
use super::section::{Section, Value};
use super::tool;

/// Servers that a configuration file declares. The rest of it is read elsewhere.
pub fn configured(file: &Path, text: &str) -> Result<BTreeMap<String, McpServer>, TaskFileError> {
    let (mut top, _) = Section::parse(file, text, &BTreeMap::new())?;
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = file.parent().unwrap_or(Path::new("/"));
    let source = file.display().to_string();
    read(&mut top, folder, &source)
}

/// All of `mcp`. `folder`: that of the file.
pub(super) fn read(
    top: &mut Section,
    folder: &Path,
    source: &str,
) -> Result<BTreeMap<String, McpServer>, TaskFileError> {
    let Some(tables) = top.section("mcp")? else { return Ok(BTreeMap::new()) };
    let mut servers = BTreeMap::new();
    for (name, table) in tables.named() {
        let table = table?;
        if let Some(problem) = wrong_name(&name) {
            return Err(table.wrong("", problem));
        }
        if let Some(server) = one(table, folder, source)? {
            servers.insert(name, server);
        }
    }
    Ok(servers)
}

/// What is wrong with a server's name.
fn wrong_name(name: &str) -> Option<&'static str> {
    let is_name = (1..=40).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    if !is_name {
        return Some("a server is named by 1 to 40 of A-Z a-z 0-9 . _ -");
    }
    (!ends_clearly(name)).then_some(
        "a server's name holds no two of _ and . side by side, and ends in neither: its tools are called mcp__NAME__TOOL, and a \
         rule for the server a would mean the server a__b too; give it another name",
    )
}

/// None: it is switched off.
fn one(mut table: Section, folder: &Path, source: &str) -> Result<Option<McpServer>, TaskFileError> {
    let (url_place, kind) = (table.place("url"), table.text("type")?);
    let is_on = table.truth("enabled")?.unwrap_or(true);
    let command = words(&mut table)?;
    let url = table.text("url")?;
    let reach = match (command, url) {
        (Some(command), None) => {
            let walls = tool::one_of(&mut table, "sandbox", &WALLS)?.unwrap_or(McpWalls::OfTheRun);
            let folder = match table.text("cwd")? {
                Some(cwd) => folder.join(cwd),
                None => folder.to_owned(),
            };
            McpReach::Stdio {
                command,
                folder: super::utf8(&folder)?,
                env: env(&mut table)?,
                network: table.texts("network")?.unwrap_or_default(),
                reads: table.texts("reads")?.unwrap_or_default(),
                writes: table.texts("writes")?.unwrap_or_default(),
                walls,
            }
        }
        (None, Some(url)) => {
            if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
                let problem = "this must begin with http:// or https://".to_owned();
                return Err(TaskFileError::Task { place: url_place, problem });
            }
            if has_credentials(&url) {
                return Err(TaskFileError::Task { place: url_place, problem: NO_CREDENTIALS.to_owned() });
            }
            let headers = match table.section("headers")? {
                Some(headers) => headers.named_texts()?.into_iter().map(|(name, (_, text))| (name, text)).collect(),
                None => BTreeMap::new(),
            };
            McpReach::Http { url, headers, auth: auth(&mut table)? }
        }
        (Some(_), Some(_)) => return Err(table.wrong("url", "a server has a command or a url; make two of it")),
        (None, None) if MANNERS.iter().any(|key| table.has(key)) => McpReach::OfWorkspace,
        (None, None) => return Err(table.wrong("command", "how is it reached? Give it a command, or a url")),
    };
    if let Some(kind) = kind.filter(|kind| !["stdio", "http", "streamable-http"].contains(&kind.as_str())) {
        return Err(table.wrong("type", format!("\"{kind}\" is not spoken here; it must be stdio or http")));
    }
    let mut server = McpServer::new(reach, source);
    server.effect = tool::one_of(&mut table, "effect", &EFFECTS)?.unwrap_or(server.effect);
    if let Some(tools) = table.section("tools")? {
        for (name, tool) in tools.named() {
            let mut tool = tool?;
            if let Some(effect) = tool::one_of(&mut tool, "effect", &EFFECTS)? {
                server.tools.insert(name, effect);
            }
            tool.finish()?;
        }
    }
    server.allow = table.texts("allow")?.unwrap_or_default();
    server.timeout = tool::positive_span(&mut table, "timeout", McpServer::TIMEOUT)?;
    server.start_timeout = tool::positive_span(&mut table, "start_timeout", McpServer::START_TIMEOUT)?;
    server.idle_timeout = table.span("idle_timeout")?.filter(|span| !span.is_zero());
    server.on_error = tool::one_of(&mut table, "on_error", &ON_ERROR)?.unwrap_or_default();
    server.trusted = table.truth("trusted")?.unwrap_or(false);
    server.required = table.truth("required")?.unwrap_or(false);
    table.finish()?;
    Ok(is_on.then_some(server))
}

/// What can be said of a server that a workspace's own file declares.
const MANNERS: [&str; 8] =
    ["effect", "tools", "allow", "timeout", "start_timeout", "idle_timeout", "on_error", "trusted"];

/// What is known of us where the server's tokens come from.
fn auth(table: &mut Section) -> Result<McpAuth, TaskFileError> {
    let Some(mut table) = table.section("auth")? else { return Ok(McpAuth::default()) };
    let port_place = table.place("port");
    let port = match table.whole("port")?.map(u16::try_from) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => {
            return Err(TaskFileError::Task { place: port_place, problem: "a port is 1 to 65535".to_owned() });
        }
    };
    let mut secret = |name: &'static str| match table.text(name)? {
        Some(value) if !value.contains("${secret:") => {
            Err(table.wrong(name, "name a variable that holds it: \"${secret:NAME}\""))
        }
        value => Ok(value),
    };
    let (client_secret, client_key, assertion) =
        (secret("client_secret")?, secret("client_key")?, secret("assertion")?);
    let auth = McpAuth {
        client_id: table.text("client_id")?,
        client_secret,
        client_key,
        client_document: table.text("client_document")?,
        for_itself: tool::one_of(&mut table, "grant", &GRANTS)?.unwrap_or(false),
        assertion,
        scopes: table.texts("scopes")?.unwrap_or_default(),
        port,
    };
    let has_secret = auth.client_secret.is_some() || auth.client_key.is_some();
    if auth.for_itself && (auth.client_id.is_none() || !has_secret) {
        return Err(table.wrong("grant", "for client_credentials give client_id, and client_secret or client_key"));
    }
    if auth.client_secret.is_some() && auth.client_key.is_some() {
        return Err(table.wrong("client_key", "a client has a secret or a key: remove one of them"));
    }
    if auth.client_id.is_none() && has_secret {
        let key = if auth.client_key.is_some() { "client_key" } else { "client_secret" };
        return Err(table.wrong(key, "it needs the client_id that it belongs to"));
    }
    if auth.client_document.as_ref().is_some_and(|document| !document.starts_with("https://")) {
        return Err(table.wrong("client_document", "this must begin with https://"));
    }
    table.finish()?;
    Ok(auth)
}

/// `command` as one word or as all of them, and `args` after it. None: there is no command.
fn words(table: &mut Section) -> Result<Option<Vec<String>>, TaskFileError> {
    let place = table.place("command");
    let mut words = match table.node("command") {
        None => return Ok(None),
        Some(node) => match node.value {
            Value::Text(word) => vec![word],
            Value::List(items) => {
                let word = |item: super::section::Node| match item.value {
                    Value::Text(word) => Ok(word),
                    other @ (Value::Whole(_)
                    | Value::Fraction(_)
                    | Value::Truth(_)
                    | Value::Moment(_)
                    | Value::List(_)
                    | Value::Table(_)) => Err(table.unfit("command", item.line, &other, "a string")),
                };
                items.into_iter().map(word).collect::<Result<_, _>>()?
            }
            other @ (Value::Whole(_) | Value::Fraction(_) | Value::Truth(_) | Value::Moment(_) | Value::Table(_)) => {
                return Err(table.unfit("command", node.line, &other, "a string, or a list of strings"));
            }
        },
    };
    words.extend(table.texts("args")?.unwrap_or_default());
    if words.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(TaskFileError::Task { place, problem: "the first word is the program; it is empty".to_owned() });
    }
    Ok(Some(words))
}

/// `env` as a table of values, or as a list like a tool's.
fn env(table: &mut Section) -> Result<Vec<String>, TaskFileError> {
    let Some(node) = table.node("env") else { return Ok(Vec::new()) };
    match node.value {
        Value::Table(_) => {
            let texts = table.inner("env", node)?.named_texts()?;
            Ok(texts.into_iter().map(|(name, (_, text))| format!("{name}={text}")).collect())
        }
        Value::List(items) => {
            let entry = |item: super::section::Node| match item.value {
                Value::Text(entry) => Ok(entry),
                other @ (Value::Whole(_)
                | Value::Fraction(_)
                | Value::Truth(_)
                | Value::Moment(_)
                | Value::List(_)
                | Value::Table(_)) => Err(table.unfit("env", item.line, &other, "a string")),
            };
            items.into_iter().map(entry).collect()
        }
        other @ (Value::Text(_) | Value::Whole(_) | Value::Fraction(_) | Value::Truth(_) | Value::Moment(_)) => {
            Err(table.unfit("env", node.line, &other, "a table of strings"))
        }
    }
}

/// The servers of a workspace's `.mcp.json`, and what cannot be used of it, for people. It says nothing of effects, walls and
/// trust: those are the operator's to say, in `[mcp.NAME]` of their own configuration.
pub fn of_workspace(workspace: &Path, text: &str) -> Result<(BTreeMap<String, McpServer>, Vec<String>), String> {
    let file: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let declared = file.get("mcpServers").and_then(Json::as_object).ok_or("it has no object \"mcpServers\"")?;
    let source = workspace.join(MCP_FILE).display().to_string();
    let (mut servers, mut told) = (BTreeMap::new(), Vec::new());
    for (name, entry) in declared {
        if let Some(problem) = wrong_name(name) {
            told.push(format!("the server \"{}\": {problem}", name.escape_debug()));
            continue;
        }
        match foreign(entry, workspace, &source) {
            Ok(server) => {
                servers.insert(name.clone(), server);
            }
            Err(problem) => told.push(format!("the server {name}: {problem}")),
        }
    }
    Ok((servers, told))
}

/// As Claude Code reads it.
pub const MCP_FILE: &str = ".mcp.json";

fn foreign(entry: &Json, workspace: &Path, source: &str) -> Result<McpServer, String> {
    let text = |key: &str| entry.get(key).and_then(Json::as_str);
    let table = |key: &str| -> Result<BTreeMap<String, String>, String> {
        let members = entry.get(key).and_then(Json::as_object).into_iter().flatten();
        let value = |(name, value): (&String, &Json)| {
            let value = value.as_str().ok_or_else(|| format!("{key}.{name} is no text"))?;
            Ok((name.clone(), referred(value)))
        };
        members.map(value).collect()
    };
    match (text("type"), text("command"), text("url")) {
        (None | Some("stdio"), Some(command), _) => {
            let mut words = vec![referred(command)];
            for word in entry.get("args").and_then(Json::as_array).into_iter().flatten() {
                words.push(referred(word.as_str().ok_or("args are no texts")?));
            }
            let reach = McpReach::Stdio {
                command: words,
                folder: workspace.to_str().ok_or("the workspace's path is no UTF-8")?.to_owned(),
                env: table("env")?.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
                network: Vec::new(),
                reads: Vec::new(),
                writes: Vec::new(),
                walls: McpWalls::OfTheRun,
            };
            Ok(McpServer::new(reach, source))
        }
        (None | Some("http" | "streamable-http"), None, Some(url)) => {
            // What a variable holds is looked at when it is reached.
            if !["http://", "https://", "${"].iter().any(|start| url.starts_with(start)) {
                return Err("its url must begin with http:// or https://".to_owned());
            }
            if has_credentials(url) {
                return Err(NO_CREDENTIALS.to_owned());
            }
            let reach = McpReach::Http { url: referred(url), headers: table("headers")?, auth: McpAuth::default() };
            Ok(McpServer::new(reach, source))
        }
        (Some(kind), ..) => Err(format!("\"{kind}\" is not spoken here; it must be stdio or http")),
        (None, ..) => Err("it has no command and no url".to_owned()),
    }
}

/// A name or a password before the host would be kept with the run, and shown.
fn has_credentials(url: &str) -> bool {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    after.split(['/', '?', '#', '\\']).next().is_some_and(|authority| authority.contains('@'))
}

const NO_CREDENTIALS: &str = "a url holds no name and no password: set its variable and write headers = { Authorization = \
                              \"Basic ${secret:NAME}\" }";

/// `${X}` and `${X:-else}` are references to a variable of the operator's, as ours are written.
fn referred(value: &str) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let Some((name, after)) = rest[at + 2..].split_once('}') else { break };
        if name.starts_with("secret:") {
            out.push_str(&format!("${{{name}}}"));
        } else {
            out.push_str(&format!("${{secret:{name}}}"));
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

const EFFECTS: [(&str, EffectClass); 3] =
    [("read", EffectClass::Read), ("workspace", EffectClass::Workspace), ("external", EffectClass::External)];
/// Whether the client is let in for itself.
const GRANTS: [(&str, bool); 2] = [("authorization_code", false), ("client_credentials", true)];
const WALLS: [(&str, McpWalls); 2] = [("run", McpWalls::OfTheRun), ("none", McpWalls::None)];
const ON_ERROR: [(&str, OnError); 2] = [("told", OnError::Told), ("unknown", OnError::Unknown)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read() {
        let text = "[mcp.shop]\ncommand = \"python3\"\nargs = [\"server.py\"]\nenv = { KEY = \"${secret:SHOP}\" }\n\
                    effect = \"read\"\ntimeout = \"5s\"\nallow = [\"get_*\"]\n[mcp.shop.tools.pay]\neffect = \"external\"\n\
                    [mcp.web]\nurl = \"http://127.0.0.1:1/mcp\"\nheaders = { Authorization = \"Bearer ${secret:T}\" }\n";
        let servers = configured(Path::new("/etc/x/config.toml"), text).unwrap();
        let shop = &servers["shop"];
        let McpReach::Stdio { command, folder, env, .. } = &shop.reach else { panic!("{shop:?}") };
        assert_eq!((command.join(" ").as_str(), folder.as_str()), ("python3 server.py", "/etc/x"));
        assert_eq!(env, &["KEY=${secret:SHOP}"]);
        assert_eq!((shop.effect_of("pay"), shop.effect_of("get_user")), (EffectClass::External, EffectClass::Read));
        assert!(shop.offers("get_user") && !shop.offers("pay"));
        assert_eq!(servers["web"].effect, EffectClass::External);
        let manners = configured(Path::new("/etc/x/config.toml"), "[mcp.shop]\ntrusted = true\n").unwrap();
        assert_eq!((&manners["shop"].reach, manners["shop"].trusted), (&McpReach::OfWorkspace, true));
        let login = "[mcp.a]\nurl = \"https://x\"\n[mcp.a.auth]\nclient_id = \"me\"\nclient_secret = \"${secret:S}\"\nport = 80\n";
        let McpReach::Http { auth, .. } = &configured(Path::new("c.toml"), login).unwrap()["a"].reach else { panic!() };
        assert_eq!((auth.client_id.as_deref(), auth.port), (Some("me"), Some(80)));
        for (text, named) in [
            (
                "[mcp.a]\nurl = \"https://x\"\n[mcp.a.auth]\nclient_id = \"me\"\nclient_secret = \"hush\"\n",
                "${secret:NAME}",
            ),
            ("[mcp.a]\nurl = \"https://x\"\n[mcp.a.auth]\nport = 70000\n", "1 to 65535"),
            (
                "[mcp.a]\nurl = \"https://x\"\n[mcp.a.auth]\ngrant = \"client_credentials\"\n",
                "client_secret or client_key",
            ),
            (
                "[mcp.a]\nurl = \"https://x\"\n[mcp.a.auth]\nclient_id = \"me\"\nclient_key = \"hush\"\n",
                "${secret:NAME}",
            ),
            ("[mcp.a]\nurl = \"https://x\"\n[mcp.a.auth]\nclient_key = \"${secret:S}\"\n", "client_id"),
            (
                "[mcp.a]\nurl = \"https://x\"\n[mcp.a.auth]\nclient_id = \"me\"\nclient_key = \"${secret:S}\"\n\
                 client_secret = \"${secret:T}\"\n",
                "remove one",
            ),
            ("[mcp.a]\nurl = \"https://x\"\n[mcp.a.auth]\nclient_secret = \"${secret:S}\"\n", "client_id"),
            ("[mcp.a]\nurl = \"https://x\"\n[mcp.a.auth]\nclient_document = \"http://x\"\n", "https://"),
            ("[mcp.a]\nargs = [\"x\"]\n", "how is it reached"),
            ("[mcp.a]\n", "how is it reached"),
            ("[mcp.a]\ncommand = \"x\"\nurl = \"http://x\"\n", "make two"),
            ("[mcp.a]\nurl = \"ftp://x\"\n", "http://"),
            ("[mcp.a]\nurl = \"http://u:pw@x/mcp\"\n", "no password"),
            ("[mcp.a]\nurl = \"https://u@x?a\"\n", "no password"),
            ("[mcp.a]\ncommand = \"x\"\nefect = \"read\"\n", "effect"),
            ("[mcp.\"a b\"]\ncommand = \"x\"\n", "named by"),
            ("[mcp.a__b]\ncommand = \"x\"\n", "another name"),
            ("[mcp.\"a.\"]\ncommand = \"x\"\n", "another name"),
            ("[mcp.a]\ncommand = \"x\"\ntype = \"sse\"\n", "not spoken"),
        ] {
            let problem = configured(Path::new("c.toml"), text).unwrap_err().to_string();
            assert!(problem.contains(named), "{text}: {problem}");
        }
    }

    #[test]
    fn a_file_of_a_workspace_says_how_and_never_how_far() {
        let text = r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "s"], "env": {"K": "x${TOKEN:-}"}, "trusted": true,
            "effect": "read"}, "b": {"type": "http", "url": "https://x/mcp", "headers": {"A": "Bearer ${T}"}}, "c": {"type": "sse",
            "url": "https://x"}, "d": {"command": "x", "args": ["--in=${KEY:-/tmp}/x"]}, "e": {"url": "${HOST:-https://x}/mcp"}, "f": {"url":
            "https://${SECRET}@x/mcp"}, "a__b": {"command": "x"}}}"#;
        let (servers, told) = of_workspace(Path::new("/w"), text).unwrap();
        assert_eq!(servers.keys().collect::<Vec<_>>(), ["a", "b", "d", "e"]);
        assert_eq!(told.len(), 3, "{told:?}");
        let McpReach::Stdio { command, .. } = &servers["d"].reach else { panic!() };
        assert_eq!(command, &["x", "--in=${secret:KEY:-/tmp}/x"]);
        let McpReach::Http { url, .. } = &servers["e"].reach else { panic!() };
        assert_eq!(url, "${secret:HOST:-https://x}/mcp");
        assert_eq!((servers["a"].effect, servers["a"].trusted), (EffectClass::External, false));
        let McpReach::Stdio { env, .. } = &servers["a"].reach else { panic!() };
        assert_eq!(env, &["K=x${secret:TOKEN:-}"]);
    }
}
