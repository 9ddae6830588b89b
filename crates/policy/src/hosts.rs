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

/// The hosts of the addresses that stand in a command's words.
pub(crate) fn named(words: &[Option<&str>]) -> Vec<String> {
    words.iter().skip(1).flatten().copied().filter_map(url_host).collect()
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
}
