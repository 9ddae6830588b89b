//! Where a page lies: its URL, read once, and the addresses its name leads to, looked up once and all of them checked.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use longrein_core::address::not_public;
use url::{Host, Position, Url};

/// A longer one is no address of a page.
const URL_MAX_BYTES: usize = 8_000;

/// More addresses than this are not tried.
const ADDRESSES_MAX: usize = 8;

/// An `http` or `https` URL without credentials: what a page is fetched by. What was read here is what is connected to;
/// nobody reads the text a second time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageUrl(Url);

/// Why a text is no URL that is fetched. Told to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("it is longer than {URL_MAX_BYTES} bytes")]
    TooLong,
    /// Parsers differ in what they make of these, and somebody else ruled on this text.
    #[error("it has a blank, a control character or a backslash in it; write them as %20, %0A, %5C")]
    Characters,
    #[error("it is no absolute URL ({0})")]
    NoUrl(url::ParseError),
    #[error("its scheme is {0}; only http and https are fetched")]
    Scheme(String),
    #[error("it has no host")]
    NoHost,
    #[error("it has a user name or password in it; nothing is fetched with credentials")]
    Credentials,
    #[error("its port is 0")]
    Port,
}

impl PageUrl {
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        if text.len() > URL_MAX_BYTES {
            return Err(BadUrl::TooLong);
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(BadUrl::Characters);
        }
        Self::of(Url::parse(text).map_err(BadUrl::NoUrl)?)
    }

    /// Where a `Location` or a link of this page leads.
    pub fn join(&self, reference: &str) -> Result<Self, BadUrl> {
        if reference.len() > URL_MAX_BYTES {
            return Err(BadUrl::TooLong);
        }
        Self::of(self.0.join(reference.trim()).map_err(BadUrl::NoUrl)?)
    }

    fn of(mut url: Url) -> Result<Self, BadUrl> {
        match url.scheme() {
            "http" | "https" => {}
            other => return Err(BadUrl::Scheme(other.to_owned())),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadUrl::Credentials);
        }
        if url.host().is_none_or(|host| host == Host::Domain("")) {
            return Err(BadUrl::NoHost);
        }
        if url.port() == Some(0) {
            return Err(BadUrl::Port);
        }
        // never sent, and no part of what is fetched
        url.set_fragment(None);
        Ok(Self(url))
    }

    pub fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    pub(crate) fn host(&self) -> Host<String> {
        self.0.host().expect("a page URL has a host").to_owned()
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.port_or_known_default().expect("http and https have a default port")
    }

    /// As the `Host` header has it: the port only where it is not the scheme's own.
    pub(crate) fn authority(&self) -> &str {
        &self.0[Position::BeforeHost..Position::AfterPort]
    }

    pub(crate) fn path_and_query(&self) -> &str {
        &self.0[Position::BeforePath..Position::AfterQuery]
    }

    /// Whether whoever ruled on this page has ruled on that one: the same host and port, or the same host by TLS instead.
    pub(crate) fn is_same_place(&self, other: &PageUrl) -> bool {
        let by_default = |url: &PageUrl| url.0.port().is_none();
        self.host() == other.host()
            && match (self.is_https(), other.is_https()) {
                (false, true) => by_default(self) && by_default(other),
                (true, true) | (false, false) => self.port() == other.port(),
                (true, false) => false,
            }
    }
}

impl fmt::Display for PageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// What may be reached. Given by the program that makes a [`crate::Web`]: no model, task or environment has a say in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// The open internet.
    #[default]
    Public,
    /// These too, though they are somebody's inside: servers of a test, or an operator's own.
    These(Vec<SocketAddr>),
}

impl Reach {
    /// Why this address may not be reached.
    pub(crate) fn refuses(&self, address: SocketAddr) -> Option<&'static str> {
        match self {
            Reach::These(named) if named.contains(&address) => None,
            Reach::Public | Reach::These(_) => not_public(address.ip()),
        }
    }
}

/// A look-up under way.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Looks names up. Another one stands in for the system's in tests.
pub trait Resolve: Send + Sync + fmt::Debug {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a>;
}

/// The system's own, with its hosts file and name servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Why a name leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Astray {
    /// One of its addresses may not be reached: then none is.
    Refused {
        address: IpAddr,
        why: &'static str,
    },
    Unknown(String),
}

/// All addresses of a host, each of them checked. One that may not be reached spoils them all: a name that leads inside
/// as well as outside is no name to follow.
pub(crate) async fn checked(
    resolver: &dyn Resolve,
    host: &Host<String>,
    port: u16,
    refuses: impl Fn(SocketAddr) -> Option<&'static str>,
) -> Result<Vec<SocketAddr>, Astray> {
    let mut addresses = match host {
        Host::Ipv4(address) => vec![SocketAddr::from((*address, port))],
        Host::Ipv6(address) => vec![SocketAddr::from((*address, port))],
        Host::Domain(name) => resolver.resolve(name, port).await.map_err(|error| Astray::Unknown(error.to_string()))?,
    };
    // whatever a resolver says of ports, this is the one that was asked about
    for address in &mut addresses {
        address.set_port(port);
    }
    for address in &addresses {
        if let Some(why) = refuses(*address) {
            return Err(Astray::Refused { address: address.ip(), why });
        }
    }
    addresses.truncate(ADDRESSES_MAX);
    if addresses.is_empty() { Err(Astray::Unknown("it has no address".to_owned())) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_are_fetched() {
        for (text, refusal) in [
            ("", "no absolute URL"),
            ("example.com", "no absolute URL"),
            ("/etc/passwd", "no absolute URL"),
            ("file:///etc/passwd", "scheme is file"),
            ("ftp://example.com/", "scheme is ftp"),
            ("data:text/plain,x", "scheme is data"),
            ("javascript:alert(1)", "scheme is javascript"),
            ("http://", "no absolute URL"),
            ("http://user@example.com/", "user name"),
            ("http://:pass@example.com/", "user name"),
            ("http://example.com:0/", "port is 0"),
            ("http://example.com:99999/", "no absolute URL"),
            ("http://a b/", "a blank"),
            ("http://a.com\n.evil/", "a control character"),
            ("http://a.com\\@evil/", "a backslash"),
            ("http://\u{a0}a.com/", "a blank"),
        ] {
            let error = PageUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(refusal), "{text}: {error}");
        }
        assert_eq!(PageUrl::parse(&format!("http://a.com/{}", "x".repeat(8000))), Err(BadUrl::TooLong));
        let url = PageUrl::parse("HTTPS://EXAMPLE.com:443/a/../b?q=1#part").unwrap();
        assert_eq!(url.to_string(), "https://example.com/b?q=1");
        assert_eq!((url.authority(), url.path_and_query(), url.port()), ("example.com", "/b?q=1", 443));
        assert_eq!(PageUrl::parse("http://[::1]:8080").unwrap().authority(), "[::1]:8080");
    }

    #[test]
    fn odd_spellings_of_an_address_are_that_address() {
        for text in
            ["http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/", "http://１２７.0.0.1/"]
        {
            assert_eq!(PageUrl::parse(text).unwrap().host().to_string(), "127.0.0.1", "{text}");
        }
    }

    #[test]
    fn the_same_place() {
        let same = |from: &str, to: &str| {
            let from = PageUrl::parse(from).unwrap();
            from.is_same_place(&from.join(to).unwrap())
        };
        assert!(same("https://a.com/x", "/y"));
        assert!(same("https://a.com/x", "//a.com/z"));
        assert!(same("http://a.com/", "https://a.com/"));
        assert!(!same("https://a.com/", "http://a.com/"));
        assert!(!same("http://a.com:8080/", "https://a.com/"));
        assert!(!same("https://a.com/", "https://a.com:8443/"));
        assert!(!same("https://a.com/", "https://www.a.com/"));
    }

    #[derive(Debug)]
    struct Says(&'static [&'static str]);

    impl Resolve for Says {
        fn resolve<'a>(&'a self, _host: &'a str, port: u16) -> Resolving<'a> {
            let addresses = self.0.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect();
            Box::pin(async move { Ok(addresses) })
        }
    }

    #[test]
    fn one_address_inside_spoils_the_name() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let host = Host::Domain("x.example".to_owned());
        let look = |says: &'static [&'static str]| {
            let reach = Reach::Public;
            runtime.block_on(checked(&Says(says), &host, 80, |address| reach.refuses(address)))
        };
        assert_eq!(look(&["1.1.1.1", "2606:4700::1111"]).unwrap().len(), 2);
        for inside in
            ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1", "64:ff9b::a00:1"]
        {
            let both: &'static [&'static str] = Box::leak(Box::new(["1.1.1.1", inside]));
            assert!(matches!(look(both), Err(Astray::Refused { .. })), "{inside}");
        }
        assert!(matches!(look(&[]), Err(Astray::Unknown(_))));
    }
}
