//! `web_fetch`: which addresses may be asked for a page, and what the address itself would tell them.
//!
//! The address is parsed once, as browsers parse it. What leads inside (this machine, its network, a cloud's metadata) is
//! denied under every spelling; a public host is asked about unless a rule or a person names it; what could carry data out
//! is asked about unless it was said. Redirects are judged again. Nothing is looked up here: where the world knows no
//! answer, whoever connects checks.

use std::cell::Cell;
use std::net::IpAddr;

use longrein_core::address::not_public;
use longrein_ports::GateCall;
use serde_json::{Map, Value};
use url::{Host, ParseError, Url};

use crate::credential;
use crate::escalate::Carries;
use crate::hosts::{canonical, percent_decoded};
use crate::named::is_said;
use crate::rule::{Matches, Rule};
use crate::shell::{self, table::shown};
use crate::verdict::{Strictness, Verdict, own};
use crate::{Effect, EffectKind, Policy};

fn deny(reason: impl Into<String>) -> Verdict {
    Verdict::new(Strictness::Deny, own::ADDRESS, reason)
}

fn ask(reason: impl Into<String>) -> Verdict {
    Verdict::new(Strictness::Ask, own::UNREADABLE, reason)
}

impl Policy {
    pub(crate) fn fetch(
        &self,
        args: &Map<String, Value>,
        call: &GateCall<'_>,
        effects: &mut Vec<Effect>,
    ) -> (Verdict, Carries) {
        let mut verdict = Verdict::allow(own::DEFAULT);
        if let Some(other) = args.keys().find(|key| *key != "url") {
            verdict = verdict.and(ask(format!("web_fetch has no argument {}", shown(other))));
        }
        let Some(Value::String(text)) = args.get("url") else {
            // whatever else it is, what it names may be denied
            let mut verdict = verdict.and(ask("it does not say which address it is about"));
            for text in texts(args.get("url").unwrap_or(&Value::Null)) {
                verdict = verdict.and(self.address(&text, call, effects).0);
            }
            return (verdict, Carries::Data);
        };
        let (found, carries) = self.address(text, call, effects);
        (verdict.and(found), carries)
    }

    fn address(&self, text: &str, call: &GateCall<'_>, effects: &mut Vec<Effect>) -> (Verdict, Carries) {
        let mut verdict = Verdict::allow(own::DEFAULT);
        if let Some(reason) = shell::suspicious(text).or_else(|| blank_inside(text)) {
            verdict = verdict.and(ask(reason));
        }
        let url = match read(text) {
            Read::Url(url) => url,
            Read::Meant(url, reason) => {
                verdict = verdict.and(ask(reason));
                url
            }
            Read::Nothing(reason) => return (verdict.and(ask(reason)), Carries::Data),
        };
        if let Some(host) = url.host_str() {
            let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
            Effect::add(effects, EffectKind::Network, &format!("{host}{port}"));
        }
        let (found, carries) = self.page(&url, text, call);
        (verdict.and(found).and(self.sent_on(&url, text)), carries)
    }

    /// The page itself: floors, rules, and who named it.
    fn page(&self, url: &Url, text: &str, call: &GateCall<'_>) -> (Verdict, Carries) {
        let floor = self.inside(url);
        if floor.strictness == Strictness::Deny {
            return (floor, Carries::Data);
        }
        let bound = self.host_rule(text, |pattern| pattern.binds(url));
        if bound.strictness == Strictness::Deny {
            return (bound, Carries::Data);
        }
        let host = url.host_str().and_then(canonical).unwrap_or_default();
        let verbatim = is_said(call.said, text.trim()) || is_said(call.said, url.as_str());
        let told = told(url, call.said);
        let carries = if verbatim { Carries::Nothing } else { told.carries() };
        if let Some(kind) = credential::found_in(text).or_else(|| credential::found_in(&percent_decoded(text))) {
            let reason = format!("the address holds what looks like {kind}, and would send it to {host}");
            return (Verdict::new(Strictness::Deny, own::SECRET, reason), Carries::Data);
        }
        let mut verdict = Verdict::new(Strictness::Unless, own::NETWORK, format!("it reaches {host}"));
        for reason in [odd_host(url, text), odd_port(url), told.odd].into_iter().flatten() {
            verdict = verdict.and(Verdict::new(Strictness::UnlessSpelt, own::NETWORK, reason));
        }
        if let Some(reason) = told.unsaid.filter(|_| verdict.strictness == Strictness::Unless) {
            verdict = Verdict::new(Strictness::Unless, own::NETWORK, reason);
        }
        (self.opened(url, verdict, verbatim, carries, call, &host).and(bound).and(floor), carries)
    }

    /// A question about a public host, held against what a person typed and the rules that allow.
    fn opened(
        &self,
        url: &Url,
        verdict: Verdict,
        verbatim: bool,
        carries: Carries,
        call: &GateCall<'_>,
        host: &str,
    ) -> Verdict {
        let spelt = |rule: &&Rule| match &rule.matches {
            Matches::Hosts(pattern) => pattern.spells_out() && pattern.covers(url),
            Matches::EveryTool | Matches::Tool(_) | Matches::Paths(..) | Matches::Commands(_) => false,
        };
        let covering = |rule: &&Rule| match &rule.matches {
            Matches::Hosts(pattern) => pattern.covers(url),
            Matches::Tool(tool) => *tool == call.tool.name,
            // every tool: but as with files, not what lies outside
            Matches::EveryTool | Matches::Paths(..) | Matches::Commands(_) => false,
        };
        let rule = match verdict.strictness {
            Strictness::Unless => self.allow.iter().find(covering),
            Strictness::UnlessSpelt => self.allow.iter().find(spelt),
            Strictness::Allow
            | Strictness::Ask
            | Strictness::DenyUnlessTyped
            | Strictness::DenyUnlessSpelt
            | Strictness::Deny => None,
        };
        if let Some(rule) = rule {
            return Verdict::allow(&rule.text);
        }
        let named = is_said(call.said, host) && carries != Carries::Data && verdict.strictness == Strictness::Unless;
        if verbatim || named { Verdict::allow(own::NAMED) } else { verdict }
    }

    /// What no rule lifts: other schemes, credentials, and whatever leads inside.
    fn inside(&self, url: &Url) -> Verdict {
        if !matches!(url.scheme(), "http" | "https") {
            return deny(format!("only http and https can be fetched, not {}", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return deny("an address with a user name or a password in it is not fetched; leave them out");
        }
        let addresses = match url.host() {
            None => return ask("the address names no host"),
            Some(Host::Ipv4(address)) => vec![vec![IpAddr::V4(address)]],
            Some(Host::Ipv6(address)) => vec![vec![IpAddr::V6(address)]],
            Some(Host::Domain(name)) => {
                if let Some(reason) = inner_name(name) {
                    return deny(reason);
                }
                self.surroundings.world.addresses(name.trim_end_matches('.')).unwrap_or_default()
            }
        };
        let inside = |address: &IpAddr| not_public(*address).map(|what| (*address, what));
        match addresses.iter().flatten().find_map(inside) {
            Some((address, what)) => {
                let host = url.host_str().unwrap_or_default();
                let leads =
                    if host == address.to_string() { String::new() } else { format!(" leads to {address}, which") };
                deny(format!("{host}{leads} is not of the open internet: {what}"))
            }
            None => Verdict::allow(own::DEFAULT),
        }
    }

    /// Where the server sends on to, as far as that is known.
    fn sent_on(&self, url: &Url, text: &str) -> Verdict {
        let world = self.surroundings.world.as_ref();
        let mut verdict = Verdict::allow(own::DEFAULT);
        let mut from = url.clone();
        let mut location = world.redirect(text).or_else(|| world.redirect(url.as_str()));
        let mut hops = 0;
        while let Some(place) = location {
            hops += 1;
            if hops > REDIRECTS_MAX {
                return verdict.and(ask(format!("it is sent on more than {REDIRECTS_MAX} times")));
            }
            let Ok(to) = from.join(&place) else {
                return verdict.and(ask(format!("it is sent on to {}, which is no address", shown(&place))));
            };
            let inside = self.inside(&to);
            if inside.strictness == Strictness::Deny {
                let reason = format!("{from} sends on to {to}: {}", inside.reason);
                return verdict.and(Verdict { reason, ..inside });
            }
            verdict = verdict.and(inside).and(self.host_rule(to.as_str(), |pattern| pattern.binds(&to)));
            if to.host_str() != from.host_str() || to.port_or_known_default() != from.port_or_known_default() {
                verdict = verdict
                    .and(ask(format!("{from} sends on to {to}, another place; fetch that one by its own address")));
            } else if from.scheme() == "https" && to.scheme() == "http" {
                verdict = verdict.and(ask(format!("{from} sends on to {to}, which is not encrypted")));
            }
            location = world.redirect(to.as_str());
            from = to;
        }
        verdict
    }

    /// What an address in the arguments of another tool is denied for. A text that only might be one (`Berlin`, `42`) has
    /// to look like a host.
    pub(crate) fn leads_inside(&self, text: &str) -> Option<Verdict> {
        let url = match read(text) {
            Read::Url(url) if matches!(url.scheme(), "http" | "https") || text.contains("://") => url,
            Read::Meant(url, _) if text.contains(['.', ':']) || text.eq_ignore_ascii_case("localhost") => url,
            Read::Url(_) | Read::Meant(..) | Read::Nothing(_) => return None,
        };
        let is_name =
            text.contains("://") || url.host_str().is_some_and(|host| host.contains(['.', ':']) || host == "localhost");
        let verdict = self.inside(&url);
        (verdict.strictness == Strictness::Deny && is_name).then_some(verdict)
    }
}

enum Read {
    Url(Url),
    /// It is none, and this is what it may have been meant to be.
    Meant(Url, &'static str),
    Nothing(&'static str),
}

fn read(text: &str) -> Read {
    if text.len() > ADDRESS_MAX {
        return Read::Nothing("the address is too long for any server");
    }
    match Url::parse(text) {
        Ok(url) => Read::Url(url),
        Err(ParseError::RelativeUrlWithoutBase) => {
            let meant = Url::parse(&format!("http://{}", text.trim_start_matches([':', '/', '\\'])));
            let reason = "it is no address: write it with http:// or https://";
            meant.map_or(Read::Nothing(reason), |url| Read::Meant(url, reason))
        }
        Err(_) => {
            // a zone (`[fe80::1%25eth0]`) is of one machine and no part of an address
            let without_zone =
                text.split_once('%').and_then(|(before, after)| Some((before, after.split_once(']')?.1)));
            let meant = without_zone.and_then(|(before, after)| Url::parse(&format!("{before}]{after}")).ok());
            let reason = "the address cannot be read";
            meant.map_or(Read::Nothing(reason), |url| Read::Meant(url, reason))
        }
    }
}

/// Every text in a value, as far as anybody would write them.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    let mut todo = vec![value];
    let mut texts = Vec::new();
    while let Some(value) = todo.pop() {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) if texts.len() < TEXTS_MAX => texts.push(text.clone()),
            Value::String(_) => {}
            Value::Array(values) => todo.extend(values),
            Value::Object(values) => todo.extend(values.values()),
        }
    }
    texts
}

fn blank_inside(text: &str) -> Option<String> {
    text.contains(['\n', '\t', ' ']).then(|| "there are blanks in the address".to_owned())
}

/// Names that lead inside, whatever their servers say.
fn inner_name(name: &str) -> Option<String> {
    let name = name.trim_end_matches('.').to_lowercase();
    let below = |suffix: &str| name == suffix || name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
    if INNER_NAMES.iter().any(|suffix| below(suffix)) {
        return Some(format!("{name} is a name of this machine or its network"));
    }
    if ADDRESSES_AS_NAMES.iter().any(|suffix| below(suffix)) {
        return Some(format!("{name} leads to whatever address stands in its name"));
    }
    (!name.contains('.')).then(|| format!("{name} is a name that only a network of its own knows"))
}

/// Why a host is not what it seems to be.
fn odd_host(url: &Url, text: &str) -> Option<String> {
    let host = url.host_str()?;
    match url.host()? {
        Host::Ipv4(address) if !text.contains(&address.to_string()) => {
            return Some(format!("it writes the address {address} in another way"));
        }
        Host::Ipv4(_) | Host::Ipv6(_) => return Some(format!("it names the address {host} and no host")),
        Host::Domain(_) => {}
    }
    if host.split('.').any(|label| label.starts_with("xn--")) {
        return Some(format!("the host {host} has letters that may look like others"));
    }
    let long = host.split('.').any(|label| label.len() > LABEL_MAX || credential::is_encoded(label));
    (long || host.len() > HOST_MAX).then(|| format!("a name in {} could carry data", shown(host)))
}

fn odd_port(url: &Url) -> Option<String> {
    let port = url.port().filter(|port| !matches!(port, 80 | 443))?;
    Some(format!("it reaches port {port} of {}", url.host_str().unwrap_or_default()))
}

/// What an address tells its host that nobody said.
struct Told {
    /// Why it looks as if data were hidden in it.
    odd: Option<String>,
    /// What in it could be data.
    unsaid: Option<String>,
    has_path: bool,
}

impl Told {
    fn carries(&self) -> Carries {
        match (&self.odd, &self.unsaid) {
            (None, None) if self.has_path => Carries::Path,
            (None, None) => Carries::Nothing,
            (Some(_), _) | (_, Some(_)) => Carries::Data,
        }
    }
}

fn told(url: &Url, said: &[&str]) -> Told {
    let host = url.host_str().unwrap_or_default();
    // more parts than people type are not looked for one by one
    let looked_for = Cell::new(0);
    let is_unsaid = |value: &str| {
        looked_for.set(looked_for.get() + 1);
        !value.is_empty() && (looked_for.get() > PARTS_MAX || !is_said(said, value))
    };
    let query: Vec<String> =
        url.query_pairs().filter(|(_, value)| is_unsaid(value)).map(|pair| pair.1.into_owned()).collect();
    // a query of names only is data too
    let bare = url.query_pairs().any(|(name, value)| value.is_empty() && is_unsaid(&name));
    // a fragment is not sent, but a page may read it
    let fragment = url.fragment().map(percent_decoded).filter(|part| is_unsaid(part) && part.len() > LABEL_MAX);
    let names: Vec<String> = url.path().split('/').filter(|part| !part.is_empty()).map(percent_decoded).collect();
    let is_long = |text: &str| text.len() > NAME_MAX || credential::is_encoded(text);
    let odd_name = names.iter().find(|name| is_unsaid(name) && (is_long(name) || name.contains(char::is_whitespace)));
    let odd_query = query.iter().find(|value| is_long(value));
    let path_long = url.path().len() > PATH_MAX && !is_said(said, url.path());
    let odd_label = host.split('.').any(|label| label.len() > LABEL_MAX || credential::is_encoded(label));
    let odd = odd_name
        .or(odd_query)
        .or(fragment.as_ref())
        .map(|part| format!("it would send {} to {host}, which nobody said", shown(part)))
        .or_else(|| path_long.then(|| format!("its path is so long that it could carry data to {host}")))
        .or_else(|| (odd_label && !is_said(said, host)).then(|| format!("a name in {} could carry data", shown(host))));
    let unsaid = (!query.is_empty() || bare)
        .then(|| format!("it would send {} to {host}, which nobody said", shown(url.query().unwrap_or_default())));
    let has_path = names.iter().any(|name| is_unsaid(name));
    Told { odd, unsaid, has_path }
}

const ADDRESS_MAX: usize = 8 * 1024;
const REDIRECTS_MAX: usize = 5;
const TEXTS_MAX: usize = 256;
const PARTS_MAX: usize = 128;
/// Letters of a name in a path, of all of a path, of one label of a host and of a host, beyond which they may be data.
const NAME_MAX: usize = 64;
const PATH_MAX: usize = 256;
const LABEL_MAX: usize = 24;
const HOST_MAX: usize = 100;

const INNER_NAMES: [&str; 14] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "in-addr.arpa",
    "ip6.arpa",
    "metadata.google.internal",
    "metadata.goog",
];
/// Public names that stand for any address, or for this machine.
const ADDRESSES_AS_NAMES: [&str; 10] = [
    "nip.io",
    "sslip.io",
    "xip.io",
    "localtest.me",
    "lvh.me",
    "vcap.me",
    "lacolhost.com",
    "localho.st",
    "rbndr.us",
    "1u.ms",
];
