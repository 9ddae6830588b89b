//! Hosts: which ones a rule is about, and which ones a command reaches, as far as its words say so.
//!
//! A deny or ask rule on `web_fetch` binds whatever reaches its hosts, commands too.

use url::{Host, Url};

use crate::path::{Case, PathPattern};
use crate::rule::{Matches, Rule};
use crate::shell::table::shown;
use crate::verdict::{Strictness, Verdict, own};
use crate::{Effect, EffectKind, Policy};

/// `docs.rs`, `*.rust-lang.org`, `example.org:8443` or `https://example.org/docs/**`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPattern {
    /// None: http and https.
    scheme: Option<String>,
    /// As DNS has it: lower case, without a dot at the end.
    host: String,
    /// Every name below the host, and not the host itself.
    below: bool,
    /// None: for rules that allow the port of the scheme, for others every port.
    port: Option<u16>,
    path: Option<PathPattern>,
}

impl HostPattern {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => (Some(scheme.to_owned()), rest),
            Some(_) => return None,
            None => (None, text),
        };
        let (place, path) = match rest.find('/') {
            Some(at) => (rest.get(..at)?, Some(rest.get(at..)?)),
            None => (rest, None),
        };
        // a path says nothing of the network without the scheme it is asked for with
        let path = match path {
            None | Some("/") if scheme.is_none() => None,
            None => None,
            Some(_) if scheme.is_none() => return None,
            Some(path) => Some(PathPattern::parse(path)?),
        };
        let (below, place) = match place.strip_prefix("*.") {
            Some(place) => (true, place),
            None => (false, place),
        };
        if place.is_empty() || place.contains(['*', '@', '?', '#', ' ', '\\', '%']) {
            return None;
        }
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && !host.ends_with(':') && !place.ends_with(']') => {
                (host, Some(port.parse().ok()?))
            }
            Some(_) | None => (place, None),
        };
        let host = canonical(host)?;
        (!below || host.parse::<std::net::IpAddr>().is_err()).then_some(Self { scheme, host, below, port, path })
    }

    /// Whether an allow rule covers this address.
    pub(crate) fn covers(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().and_then(canonical) else { return false };
        let port = match self.port {
            Some(port) => url.port_or_known_default() == Some(port),
            None => url.port().is_none(),
        };
        let scheme = self.scheme.as_deref().is_none_or(|scheme| scheme == url.scheme());
        // servers do not agree on what an encoded slash is
        let odd = ["%2f", "%5c", "%2e", "%00"];
        let path = self.path.as_ref().is_none_or(|pattern| {
            let written = url.path().to_lowercase();
            pattern.covers(url.path(), Case::Matters) && !odd.iter().any(|odd| written.contains(odd))
        });
        self.is_about(&host) && port && scheme && path
    }

    /// Whether an ask or deny rule binds this address.
    pub(crate) fn binds(&self, url: &Url) -> bool {
        let Some(host) = url.host_str().and_then(canonical) else { return false };
        let port = self.port.is_none_or(|port| url.port_or_known_default() == Some(port));
        let scheme = self.scheme.as_deref().is_none_or(|scheme| scheme == url.scheme());
        let path = self.path.as_ref().is_none_or(|pattern| {
            let plain = percent_decoded(url.path());
            pattern.covers(url.path(), Case::Ignored) || pattern.covers(&plain, Case::Ignored)
        });
        self.is_about(&host) && port && scheme && path
    }

    /// Whether it binds a host of which the rest of the address is not known.
    pub(crate) fn binds_host(&self, host: &str) -> bool {
        canonical(host).is_some_and(|host| self.is_about(&host))
    }

    /// Whether it names one host.
    pub(crate) fn spells_out(&self) -> bool {
        !self.below
    }

    fn is_about(&self, host: &str) -> bool {
        match self.below {
            true => host.strip_suffix(self.host.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            false => host == self.host,
        }
    }
}

/// A host as it is compared: what a browser makes of it, without a dot at the end.
pub(crate) fn canonical(host: &str) -> Option<String> {
    let host = host.trim_end_matches('.');
    let host = match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => Host::Ipv6(address),
        Err(_) => Host::parse(host).ok()?,
    };
    Some(match host {
        Host::Domain(name) => name.trim_end_matches('.').to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    })
}

pub(crate) fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

impl Policy {
    /// What deny and ask rules on `web_fetch` say of the hosts a command reaches.
    pub(crate) fn hosts_of(&self, effects: &[Effect]) -> Verdict {
        let mut verdict = Verdict::allow(own::READS_INSIDE);
        for effect in effects.iter().filter(|effect| effect.kind == EffectKind::Network) {
            let host = host_in(&effect.what);
            verdict = verdict.and(self.host_rule(&effect.what, |pattern| match &host {
                Some(host) => pattern.binds_host(host),
                None => false,
            }));
            let hosts = |rule: &&Rule| matches!(rule.matches, Matches::Hosts(_));
            if host.is_none()
                && let Some(rule) = self.deny.iter().find(hosts)
            {
                let reason = format!(
                    "whether the rule \"{}\" denies where {} reaches cannot be told",
                    rule.text,
                    shown(&effect.what)
                );
                verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
            }
        }
        verdict
    }

    /// What deny and ask rules on hosts say, where `binds` tells whether one is meant.
    pub(crate) fn host_rule(&self, what: &str, binds: impl Fn(&HostPattern) -> bool) -> Verdict {
        let bound = |rule: &&Rule| match &rule.matches {
            Matches::Hosts(pattern) => binds(pattern),
            Matches::EveryTool | Matches::Tool(_) | Matches::Paths(..) | Matches::Commands(_) => false,
        };
        if let Some(rule) = self.deny.iter().find(bound) {
            return Verdict::new(
                Strictness::Deny,
                &rule.text,
                format!("the rule \"{}\" denies {}", rule.text, shown(what)),
            );
        }
        if let Some(rule) = self.ask.iter().find(bound) {
            let reason = format!("the rule \"{}\" has {} asked first", rule.text, shown(what));
            return Verdict::new(Strictness::Ask, &rule.text, reason);
        }
        Verdict::allow(own::READS_INSIDE)
    }
}

/// The host in what a network effect says: a host, one with a port or a user, or a URL. None: a command.
pub(crate) fn host_in(what: &str) -> Option<String> {
    if what.contains(char::is_whitespace) {
        return None;
    }
    if what.contains("://") {
        // for schemes that no browser knows, the host is kept as it is written
        return Url::parse(what).ok()?.host_str().and_then(canonical);
    }
    let place = what.rsplit_once('@').map_or(what, |(_, place)| place);
    let place = place.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match place.rsplit_once(':') {
        Some((host, _)) if !host.contains(':') || host.starts_with('[') => host,
        Some(_) | None => place,
    };
    (host.contains('.') || host.contains(':') || host == "localhost").then(|| canonical(host)).flatten()
}

/// Whom a command reaches, one effect each: the hosts its words name, or the command itself where it is known to reach out
/// and does not say to whom. Empty: nothing says that it does.
pub(crate) fn reached(words: &[Option<&str>], base: &str, command: &str) -> Vec<String> {
    let known = || words.iter().skip(1).flatten().copied();
    let mut hosts: Vec<String> = known().filter_map(url_host).collect();
    let mut plain = known().skip_while(|word| word.starts_with('+'));
    let mut subcommand = "";
    while let Some(word) = plain.next() {
        match word {
            // options of git with a value of their own
            "-C" | "-c" if base == "git" => drop(plain.next()),
            word if word.starts_with('-') => {}
            word => {
                subcommand = word;
                break;
            }
        }
    }
    let next = plain.next().unwrap_or_default();
    let reaches = match NETWORK.iter().find(|(name, _)| *name == base) {
        Some((_, [])) => true,
        Some((_, subcommands)) => subcommands.iter().any(|known| match known.split_once(' ') {
            Some((first, second)) => first == subcommand && second == next,
            None => *known == subcommand,
        }),
        None => false,
    };
    if !reaches {
        return hosts;
    }
    if matches!(base, "ssh" | "scp" | "rsync" | "sftp" | "git" | "nc" | "ncat" | "telnet" | "ping" | "curl" | "wget") {
        let places = known().filter(|word| !word.starts_with('-') && !word.contains("://"));
        hosts.extend(places.filter(|word| word.contains('.')).filter_map(|word| {
            let place = word.rsplit_once('@').map_or(word, |(_, place)| place);
            let (host, _) = place.split_once([':', '/']).unwrap_or((place, ""));
            let is_host = host.split('.').count() > 1 && host.split('.').all(|label| !label.is_empty());
            let is_file = base != "ssh" && !word.contains(['@', ':']) && matches!(base, "scp" | "rsync" | "git");
            (is_host && !is_file).then(|| canonical(host)).flatten()
        }));
    }
    if hosts.is_empty() {
        hosts.push(command.to_owned());
    }
    hosts
}

/// The host, and the port if it is unusual, of a URL in a word.
fn url_host(word: &str) -> Option<String> {
    let at = word.find("://")?;
    let start =
        word.get(..at)?.rfind(|letter: char| !letter.is_ascii_alphanumeric() && !matches!(letter, '+' | '-' | '.'));
    let url = Url::parse(word.get(start.map_or(0, |start| start + 1)..)?).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty() && url.scheme() != "file")?;
    let host = canonical(host).unwrap_or_else(|| host.to_owned());
    Some(url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}")))
}

/// Programs that reach other machines: always, or with one of these subcommands.
pub(crate) const NETWORK: &[(&str, &[&str])] = &[
    ("curl", &[]),
    ("wget", &[]),
    ("ssh", &[]),
    ("scp", &[]),
    ("sftp", &[]),
    ("rsync", &[]),
    ("nc", &[]),
    ("ncat", &[]),
    ("socat", &[]),
    ("telnet", &[]),
    ("ftp", &[]),
    ("ping", &[]),
    ("dig", &[]),
    ("nslookup", &[]),
    ("host", &[]),
    ("gh", &[]),
    ("glab", &[]),
    ("aws", &[]),
    ("gcloud", &[]),
    ("az", &[]),
    ("kubectl", &[]),
    ("helm", &[]),
    ("terraform", &[]),
    ("twine", &[]),
    (
        "git",
        &[
            "push",
            "pull",
            "fetch",
            "clone",
            "ls-remote",
            "send-email",
            "remote update",
            "remote show",
            "remote prune",
            "submodule update",
            "submodule add",
        ],
    ),
    ("npm", &["install", "i", "ci", "publish", "update", "exec", "view", "audit", "login", "add"]),
    ("pnpm", &["install", "i", "add", "publish", "update", "dlx"]),
    ("yarn", &["install", "add", "publish", "upgrade", "dlx"]),
    ("npx", &[]),
    ("pip", &["install", "download"]),
    ("pip3", &["install", "download"]),
    ("uv", &["sync", "add", "pip", "publish", "tool"]),
    ("cargo", &["publish", "install", "fetch", "update", "add", "search", "login", "yank", "owner"]),
    ("go", &["get", "install", "mod"]),
    ("gem", &["install", "push", "update"]),
    ("docker", &["pull", "push", "login", "run", "build"]),
    ("podman", &["pull", "push", "login", "run", "build"]),
    ("apt", &["install", "update", "upgrade"]),
    ("apt-get", &["install", "update", "upgrade"]),
    ("brew", &["install", "update", "upgrade"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_what_it_says_and_binds_more() {
        for (pattern, url, covers, binds) in [
            ("docs.rs", "https://docs.rs/tokio", true, true),
            ("docs.rs", "https://DOCS.rs./tokio", true, true),
            ("docs.rs", "https://docs.rs:8443/", false, true),
            ("docs.rs", "https://docs.rs.evil.example/", false, false),
            ("docs.rs", "https://notdocs.rs/", false, false),
            ("docs.rs", "https://docs.rs@evil.example/", false, false),
            ("*.rust-lang.org", "https://doc.rust-lang.org/std", true, true),
            ("*.rust-lang.org", "https://a.b.rust-lang.org/", true, true),
            ("*.rust-lang.org", "https://rust-lang.org/", false, false),
            ("*.rust-lang.org", "https://evilrust-lang.org/", false, false),
            ("example.org:8443", "https://example.org:8443/x", true, true),
            ("example.org:8443", "https://example.org/x", false, false),
            ("https://example.org/docs/**", "https://example.org/docs/a/b", true, true),
            ("https://example.org/docs/**", "https://example.org/docs/../admin", false, false),
            ("https://example.org/docs/**", "https://example.org/docs/%2e%2e/admin", false, false),
            ("https://example.org/docs/**", "https://example.org/docs/..%2fadmin", false, true),
            ("https://example.org/docs/**", "http://example.org/docs/a", false, false),
            ("https://example.org/admin/**", "https://example.org/%61dmin/x", false, true),
            ("127.0.0.1", "http://2130706433/", true, true),
            ("bücher.example", "https://xn--bcher-kva.example/", true, true),
        ] {
            let parsed = HostPattern::parse(pattern).unwrap();
            let url = Url::parse(url).unwrap();
            assert_eq!((parsed.covers(&url), parsed.binds(&url)), (covers, binds), "{pattern} {url}");
        }
        for wrong in [
            "",
            "*",
            "*.",
            "a*b",
            "ftp://x.example",
            "x.example/path",
            "u@x.example",
            "x.example:99999",
            "*.*.x",
            "a b",
        ] {
            assert_eq!(HostPattern::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_words_of_a_command_say_whom_it_reaches() {
        for (command, hosts) in [
            ("curl -sSL https://example.org/t.tgz", "example.org"),
            ("curl example.org/x", "example.org"),
            ("wget --post-file=a http://x.example:8080/y", "x.example:8080"),
            ("git push origin main", "git push origin main"),
            ("git clone git@github.com:a/b.git", "github.com"),
            ("git status", ""),
            ("git remote -v", ""),
            ("git log push", ""),
            ("git -C sub push", "git -C sub push"),
            ("git remote update", "git remote update"),
            ("cargo +nightly publish", "cargo +nightly publish"),
            ("scp a.txt me@host.example:/srv", "host.example"),
            ("ssh host.example uptime", "host.example"),
            ("mytool --to=https://x.example/", "x.example"),
            ("mytool file:///etc/hosts", ""),
            ("cargo publish", "cargo publish"),
            ("cargo test", ""),
        ] {
            let words: Vec<Option<&str>> = command.split(' ').map(Some).collect();
            assert_eq!(reached(&words, words[0].unwrap(), command).join(" "), hosts, "{command}");
        }
    }
}
