//! Where an Ollama server is, in all the forms that `OLLAMA_HOST` may have.

use std::net::Ipv6Addr;

use reqwest::Url;

use crate::connect::ConfigError;

/// Where Ollama listens if nobody says otherwise.
const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: u16 = 11434;

/// The server's root, without `/api`. Without a scheme the port is Ollama's own unless it is named; with one it is the
/// scheme's. A server that listens everywhere is reached at home.
pub(super) fn root(host: Option<&str>) -> Result<Url, ConfigError> {
    let written = host.unwrap_or_default().trim().trim_matches(['"', '\'']).trim();
    let bad = |problem: &str| ConfigError::OllamaHost { host: written.to_owned(), problem: problem.to_owned() };
    let (scheme, rest) = match written.split_once("://") {
        Some((scheme, rest)) if matches!(scheme, "http" | "https") => (Some(scheme), rest),
        Some(_) => return Err(bad("the scheme must be http or https")),
        None => (None, written),
    };
    // An address of many colons without brackets is no host with a port.
    let rest = if rest.parse::<Ipv6Addr>().is_ok() { format!("[{rest}]") } else { rest.to_owned() };
    let rest = if rest.is_empty() || rest.starts_with([':', '/']) { format!("{DEFAULT_HOST}{rest}") } else { rest };
    let url = format!("{}://{rest}", scheme.unwrap_or("http"));
    let mut url = Url::parse(&url).map_err(|error| bad(&error.to_string()))?;
    if scheme.is_none() && !names_port(&rest) {
        url.set_port(Some(DEFAULT_PORT)).map_err(|()| bad("it names no host"))?;
    }
    if matches!(url.host_str(), Some("0.0.0.0")) {
        url.set_host(Some(DEFAULT_HOST)).map_err(|error| bad(&error.to_string()))?;
    } else if matches!(url.host_str(), Some("[::]")) {
        url.set_host(Some("[::1]")).map_err(|error| bad(&error.to_string()))?;
    }
    let path = url.path().trim_end_matches('/').to_owned();
    // As written for other clients of the same server.
    let path = ["/api/chat", "/api", "/v1"].iter().find_map(|end| path.strip_suffix(end)).unwrap_or(&path);
    url.set_path(path);
    url.set_query(None);
    Ok(url)
}

/// Whether a host is followed by a port: one that is the scheme's own is not seen in the parsed address.
fn names_port(rest: &str) -> bool {
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    after.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty())
}

/// An endpoint under the root.
pub(super) fn at(root: &Url, endpoint: &str) -> Url {
    let mut url = root.clone();
    url.set_path(&format!("{}/{endpoint}", root.path().trim_end_matches('/')));
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(host: &str, expected: &str) {
        let root = root(Some(host)).unwrap();
        assert_eq!(at(&root, "api/chat").as_str(), expected, "{host}");
    }

    #[test]
    fn every_form_of_the_variable() {
        for (host, expected) in [
            ("", "http://127.0.0.1:11434/api/chat"),
            ("  ", "http://127.0.0.1:11434/api/chat"),
            ("box", "http://box:11434/api/chat"),
            ("box:1234", "http://box:1234/api/chat"),
            ("box:80", "http://box/api/chat"),
            (":1234", "http://127.0.0.1:1234/api/chat"),
            ("http://box", "http://box/api/chat"),
            ("http://box:1234/", "http://box:1234/api/chat"),
            ("https://box", "https://box/api/chat"),
            ("https://box/behind/a/proxy/", "https://box/behind/a/proxy/api/chat"),
            ("\"127.0.0.1:5000\"", "http://127.0.0.1:5000/api/chat"),
            ("0.0.0.0", "http://127.0.0.1:11434/api/chat"),
            ("0.0.0.0:99", "http://127.0.0.1:99/api/chat"),
            ("::1", "http://[::1]:11434/api/chat"),
            ("[::1]", "http://[::1]:11434/api/chat"),
            ("[::1]:99", "http://[::1]:99/api/chat"),
            ("[::]:99", "http://[::1]:99/api/chat"),
            ("http://localhost:11434/v1", "http://localhost:11434/api/chat"),
            ("http://localhost:11434/api", "http://localhost:11434/api/chat"),
        ] {
            check(host, expected);
        }
        assert_eq!(root(None).unwrap().as_str(), "http://127.0.0.1:11434/");
        for host in ["ftp://box", "box:port", "box:123456"] {
            assert!(root(Some(host)).is_err(), "{host}");
        }
    }
}
