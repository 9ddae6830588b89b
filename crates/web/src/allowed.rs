//! The hosts a command may reach, as its task names them: `host:port`, or `*.host:port` for what lies below a name.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use longrein_core::address::not_public;
use url::Host;

/// A list of hosts, each with its port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    host: Named,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    Exactly(Host<String>),
    /// Every name that ends in this one and is longer.
    Below(String),
}

/// An entry that names no host. The task author's to mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{entry}\" is no host:port: {why}")]
pub struct BadEntry {
    pub entry: String,
    pub why: &'static str,
}

impl Allowed {
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, BadEntry> {
        entries
            .iter()
            .map(|entry| Entry::parse(entry.as_ref()))
            .collect::<Result<_, _>>()
            .map(|entries| Self { entries })
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry that lets this host through, and the port that is meant exactly.
    pub(crate) fn entry(&self, host: &Host<String>, port: u16) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.port == port && entry.host.fits(host))
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, entry) in self.entries.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            match &entry.host {
                Named::Exactly(host) => write!(f, "{comma}{host}:{}", entry.port)?,
                Named::Below(name) => write!(f, "{comma}*.{name}:{}", entry.port)?,
            }
        }
        Ok(())
    }
}

impl Entry {
    fn parse(entry: &str) -> Result<Self, BadEntry> {
        let bad = |why| BadEntry { entry: entry.to_owned(), why };
        let (host, port) = entry.trim().rsplit_once(':').ok_or_else(|| bad("it has no port"))?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = Some(port).filter(|_| is_number).and_then(|port| port.parse().ok()).filter(|port| *port > 0);
        let port = port.ok_or_else(|| bad("its port is no number from 1 to 65535"))?;
        let (name, is_wild) = host.strip_prefix("*.").map_or((host, false), |name| (name, true));
        if host.contains('/') || host.contains('@') {
            return Err(bad("write the host alone, without scheme, path or user"));
        }
        match (plain_host(name), is_wild) {
            (None, _) => Err(bad("its host is no name or address; an IPv6 address stands in brackets")),
            (Some(host), false) => Ok(Self { host: Named::Exactly(host), port }),
            (Some(Host::Domain(name)), true) if name.contains('.') => Ok(Self { host: Named::Below(name), port }),
            (Some(_), true) => Err(bad("\"*.\" stands before a name with a dot in it, such as *.example.com")),
        }
    }

    /// Why this address may not be reached. A private one must be named: loopback by `localhost` or itself, any other by
    /// itself. A name that only leads there is not enough.
    pub(crate) fn refuses(&self, address: SocketAddr) -> Option<&'static str> {
        let ip = address.ip();
        let is_named = match &self.host {
            Named::Exactly(Host::Ipv4(named)) => ip == IpAddr::V4(*named),
            Named::Exactly(Host::Ipv6(named)) => ip == IpAddr::V6(*named),
            Named::Exactly(Host::Domain(name)) => is_localhost(name) && ip.is_loopback(),
            Named::Below(_) => false,
        };
        if is_named { None } else { not_public(ip) }
    }
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

impl Named {
    fn fits(&self, host: &Host<String>) -> bool {
        match (self, host) {
            (Named::Exactly(named), host) => named == host,
            (Named::Below(name), Host::Domain(host)) => host
                .strip_suffix(name.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            (Named::Below(_), Host::Ipv4(_) | Host::Ipv6(_)) => false,
        }
    }
}

/// A host as everybody must write it to be compared: in small letters, international names in their ASCII form, without
/// the dot at the end, addresses as addresses however they are spelled.
pub(crate) fn plain_host(text: &str) -> Option<Host<String>> {
    let text = text.strip_suffix('.').unwrap_or(text);
    match Host::parse(text).ok()? {
        Host::Domain(name) if name.is_empty() || name.ends_with('.') || name.starts_with('.') || name.contains('*') => {
            None
        }
        Host::Domain(name) => Some(Host::Domain(name)),
        Host::Ipv4(address) => Some(Host::Ipv4(address)),
        // the mapped form of an IPv4 address is that address
        Host::Ipv6(address) => Some(address.to_ipv4_mapped().map_or(Host::Ipv6(address), Host::Ipv4)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_name_no_host() {
        for (entry, why) in [
            ("example.com", "no port"),
            ("example.com:", "no number"),
            ("example.com:0", "no number"),
            ("example.com:+80", "no number"),
            ("example.com:70000", "no number"),
            (":80", "no name"),
            ("::1:80", "in brackets"),
            ("*:443", "no name"),
            ("*.com:443", "a name with a dot"),
            ("a.*.com:443", "no name"),
            ("https://example.com:443", "the host alone"),
            ("user@example.com:443", "the host alone"),
            ("exa mple.com:443", "no name"),
            ("..:443", "no name"),
        ] {
            let error = Allowed::parse(&[entry]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_an_entry_lets_through() {
        let check = |entry: &str, host: &str, port| {
            let allowed = Allowed::parse(&[entry]).unwrap();
            plain_host(host).is_some_and(|host| allowed.entry(&host, port).is_some())
        };
        assert!(check("Example.com:443", "example.COM", 443));
        assert!(check("example.com.:443", "example.com.", 443));
        assert!(check("bücher.example:443", "xn--bcher-kva.example", 443));
        assert!(check("127.0.0.1:80", "0x7f000001", 80));
        assert!(check("[::1]:80", "[0:0::1]", 80));
        assert!(check("127.0.0.1:80", "[::ffff:127.0.0.1]", 80));
        assert!(check("*.example.com:443", "a.b.example.com", 443));
        for (entry, host, port) in [
            ("example.com:443", "example.com", 80),
            ("example.com:443", "www.example.com", 443),
            ("example.com:443", "example.com.evil.com", 443),
            ("example.com:443", "evilexample.com", 443),
            ("*.example.com:443", "example.com", 443),
            ("*.example.com:443", ".example.com", 443),
            ("*.example.com:443", "evilexample.com", 443),
            ("localhost:80", "127.0.0.1", 80),
            ("example.com:443", "example.com..", 443),
        ] {
            assert!(!check(entry, host, port), "{entry} {host}");
        }
    }

    #[test]
    fn inside_must_be_named() {
        let refused = |entry: &str, address: &str| {
            let allowed = Allowed::parse(&[entry]).unwrap();
            allowed.entries[0].refuses(SocketAddr::new(address.parse().unwrap(), 80)).is_some()
        };
        assert!(!refused("localhost:80", "127.0.0.1"));
        assert!(!refused("localhost:80", "::1"));
        assert!(!refused("10.0.0.7:80", "10.0.0.7"));
        assert!(!refused("example.com:80", "1.1.1.1"));
        for (entry, address) in [
            ("localhost:80", "10.0.0.7"),
            ("10.0.0.7:80", "10.0.0.8"),
            ("example.com:80", "127.0.0.1"),
            ("example.com:80", "169.254.169.254"),
            ("*.example.com:80", "::1"),
        ] {
            assert!(refused(entry, address), "{entry} {address}");
        }
    }
}
