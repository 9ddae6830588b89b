//! What `longrein trust` would trust: shown whole, with what changed since the last time, before anybody is asked. What is
//! trusted are the bytes that were shown, whatever the file says by then.

use std::io::BufRead;

use super::*;

/// One file that could be trusted.
pub(super) struct Offer {
    file: PathBuf,
    /// Under which it stands in the register.
    key: String,
    digest: Digest,
    /// What it says, one thing a line.
    says: Vec<String>,
    /// What of it is not used.
    unused: Vec<String>,
    /// The same for programs.
    json: serde_json::Value,
}

/// A workspace's `.mcp.json`. None: it has none.
pub(super) fn of_servers(workspace: &Path) -> Result<Option<Offer>, Failure> {
    let file = workspace.join(MCP_FILE);
    let refused = |problem: String| Failure::new(Status::Configuration, format!("{}: {problem}", file.display()));
    let Some(bytes) = read_servers(workspace).map_err(refused)? else { return Ok(None) };
    let text = std::str::from_utf8(&bytes).map_err(|_| refused("it is no UTF-8".to_owned()))?;
    let (servers, unused) = taskfile::servers_of_workspace(workspace, text).map_err(refused)?;
    let key = file.to_str().ok_or_else(|| refused("the workspace's path is no UTF-8".to_owned()))?.to_owned();
    let digest = Digest::of(&bytes);
    let line = |name: &str, server: &McpServer| match &server.reach {
        McpReach::Stdio { command, env, .. } => {
            let words: Vec<_> = command.iter().map(|word| context::quoted(word)).collect();
            let with = if env.is_empty() { String::new() } else { format!(", with {}", env.join(" ")) };
            format!("starts {} for the server {name}{with}", words.join(" "))
        }
        McpReach::OfWorkspace => format!("says nothing of the server {name}"),
        McpReach::Http { url, headers, auth: _ } => {
            let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            let with = if headers.is_empty() { String::new() } else { format!(", with {}", headers.join(", ")) };
            format!("reaches {url} for the server {name}{with}")
        }
    };
    let says: Vec<_> = servers.iter().map(|(name, server)| line(name, server)).collect();
    let json =
        json!({ "v": 1, "file": key, "digest": digest, "servers": servers.keys().collect::<Vec<_>>(), "says": says });
    Ok(Some(Offer { file, key, digest, says, unused, json }))
}

/// A workspace's `.longrein/config.toml`. None: it has none.
pub(super) fn of_configuration(workspace: &Path) -> Result<Option<Offer>, Failure> {
    let file = workspace.join(FOLDER).join(FILE);
    let refused = |problem: String| Failure::new(Status::Configuration, format!("{}: {problem}", file.display()));
    let bytes = read(workspace).map_err(|problem| refused(format!("it cannot be trusted: {problem}")))?;
    let Some(bytes) = bytes else { return Ok(None) };
    let found = tightening(&bytes, &file)?;
    let key = workspace.to_str().ok_or_else(|| refused("the workspace's path is no UTF-8".to_owned()))?.to_owned();
    let digest = Digest::of(&bytes);
    let json = json!({
        "v": 1, "workspace": key, "digest": digest, "policy": found.rules, "permission_mode": found.mode,
        "sandbox": found.sandbox.map(SandboxMode::as_str),
    });
    Ok(Some(Offer { says: found.lines(), file, key, digest, unused: Vec::new(), json }))
}

/// Shows what is offered, asks, and trusts all of it.
pub(super) fn agree_on(offers: &[Offer], yes: bool, globals: &Globals, home: &Path) -> Result<Status, Failure> {
    let register = Register::open(home)?;
    let new: Vec<&Offer> = offers
        .iter()
        .filter(|offer| register.of(&offer.key).is_none_or(|entry| entry.digest != offer.digest))
        .collect();
    if !globals.json {
        offers.iter().for_each(|offer| offer.show(register.of(&offer.key)));
    }
    if !new.is_empty() && !yes {
        if globals.json || !crate::ask::somebody_is_there() {
            let problem = "nothing is trusted: look at what the files say, and say --yes where nobody can be asked";
            return Err(Failure::new(Status::Usage, problem));
        }
        if !is_agreed() {
            tell!("nothing is trusted");
            return Ok(Status::Done);
        }
    }
    let by = crate::ask::operator();
    Register::change(home, |workspaces| {
        for offer in &new {
            let entry = Entry { digest: offer.digest.clone(), by: by.clone(), says: Some(offer.says.clone()) };
            workspaces.insert(offer.key.clone(), entry);
        }
    })?;
    if globals.json {
        offers.iter().for_each(|offer| print_line(&offer.json));
        return Ok(Status::Done);
    }
    for offer in new {
        say!("{} is trusted as it is now", words::safe(&offer.file.display().to_string()));
    }
    if let Some(folder) =
        offers.first().and_then(|offer| offer.file.ancestors().find(|at| at.is_dir() && !at.ends_with(FOLDER)))
    {
        let folder = context::quoted(&folder.to_string_lossy());
        tell!("a change to a file has to be trusted again; longrein trust --forget {folder}");
    }
    Ok(Status::Done)
}

impl Offer {
    fn show(&self, before: Option<&Entry>) {
        let file = self.file.display().to_string();
        let file = words::safe(&file);
        match before {
            None => say!("{file} is not trusted. It"),
            Some(entry) if entry.digest == self.digest => say!("{file} is trusted already, as it is now. It"),
            Some(entry) => say!("{file} changed since {} trusted it. It", words::safe(&entry.by)),
        }
        if self.says.is_empty() {
            say!("  says nothing");
        }
        self.says.iter().for_each(|line| say!("  {}", words::safe(line)));
        self.unused.iter().for_each(|line| say!("  is not used for {}", words::safe(line)));
        let Some(before) = before.filter(|entry| entry.digest != self.digest) else { return };
        let Some(said) = &before.says else {
            say!("what it said then is not known");
            return;
        };
        let gone = said.iter().filter(|line| !self.says.contains(line)).map(|line| ('-', line));
        let come = self.says.iter().filter(|line| !said.contains(line)).map(|line| ('+', line));
        let changes: Vec<_> = gone.chain(come).collect();
        if changes.is_empty() {
            say!("of what is used of it nothing changed");
            return;
        }
        say!("what changed (- it said then, + it says now)");
        changes.iter().for_each(|(mark, line)| say!("  {mark} {}", words::safe(line)));
    }
}

fn is_agreed() -> bool {
    tell!("Trust this? [y/N]");
    let mut line = String::new();
    // Who cannot be heard has not agreed.
    let _ = std::io::stdin().lock().read_line(&mut line);
    matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}
