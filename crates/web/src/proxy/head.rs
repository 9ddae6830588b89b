//! The head of a request to the proxy and of an answer from a server, read strictly: what two readers could understand in
//! two ways is refused, so that nothing can be smuggled past this one.

use url::{Host, Position, Url};

use crate::allowed::plain_host;

/// A longer head is refused.
pub(crate) const HEAD_MAX_BYTES: usize = 32 * 1024;

const HEADERS_MAX: usize = 100;

/// A request, as far as the proxy needs to know it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    pub(crate) how: How,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum How {
    Tunnel,
    Plain {
        /// To be sent to the server.
        head: String,
        body: Length,
    },
}

/// How long the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Bytes(u64),
    Chunked,
}

/// Why a request is refused. For the client to read.
pub(crate) type Bad = &'static str;

/// Reads the head of a request, without the empty line at its end.
pub(crate) fn request(head: &[u8]) -> Result<Wanted, Bad> {
    let Lines { first, headers } = lines(head)?;
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("the first line is no request line");
    };
    if !is_token(method) || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the first line is no request line");
    }
    if version != "HTTP/1.1" && version != "HTTP/1.0" {
        return Err("only HTTP/1.1 is served");
    }
    if method == "CONNECT" {
        let (host, port) = authority(target).ok_or("CONNECT takes host:port")?;
        // what such a body would be is nobody's to say
        let has_body = headers.iter().any(|(name, value)| match name.to_ascii_lowercase().as_str() {
            "transfer-encoding" => true,
            "content-length" => *value != "0",
            _ => false,
        });
        return if has_body { Err("CONNECT has no body") } else { Ok(Wanted { host, port, how: How::Tunnel }) };
    }
    let url = Url::parse(target).map_err(|_| "a proxy is sent absolute URLs")?;
    if url.scheme() != "http" {
        return Err("only http is served so; for https use CONNECT");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("no credentials in URLs");
    }
    let host = url.host_str().and_then(plain_host).ok_or("the URL has no host")?;
    let port = url.port_or_known_default().filter(|port| *port > 0).ok_or("the URL has no port")?;
    let body = length(&headers)?;
    let target = &url[Position::BeforePath..Position::AfterQuery];
    let authority = &url[Position::BeforeHost..Position::AfterPort];
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {authority}\r\n");
    let named = named_by_connection(&headers);
    for (name, value) in &headers {
        let lower = name.to_ascii_lowercase();
        // the expectation is met: the body is passed on at once
        if HOP_BY_HOP.contains(&lower.as_str()) || named.contains(&lower) || lower == "host" || lower == "expect" {
            continue;
        }
        if lower == "content-length" {
            continue;
        }
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match body {
        Length::Bytes(0) if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length")) => {}
        Length::Bytes(bytes) => head.push_str(&format!("Content-Length: {bytes}\r\n")),
        Length::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
    }
    head.push_str("Connection: close\r\n\r\n");
    Ok(Wanted { host, port, how: How::Plain { head, body } })
}

/// The head of an answer as the client gets it: the connection ends with it. With it, whether it is only an interim one.
pub(crate) fn response(head: &[u8]) -> Result<(String, Interim), Bad> {
    let Lines { first, headers } = lines(head)?;
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| first.strip_prefix("HTTP/1.0 "))
        .and_then(|rest| rest.get(..3))
        .filter(|status| status.bytes().all(|byte| byte.is_ascii_digit()) && !status.starts_with('0'))
        .ok_or("the first line is no status line")?;
    let named = named_by_connection(&headers);
    let mut out = format!("{first}\r\n");
    for (name, value) in &headers {
        let lower = name.to_ascii_lowercase();
        let stays = lower == "transfer-encoding" || lower == "trailer";
        if !stays && (HOP_BY_HOP.contains(&lower.as_str()) || named.contains(&lower)) {
            continue;
        }
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    let interim = if status.starts_with('1') { Interim::Yes } else { Interim::No };
    match interim {
        Interim::Yes => out.push_str("\r\n"),
        Interim::No => out.push_str("Connection: close\r\n\r\n"),
    }
    Ok((out, interim))
}

/// Whether another head follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interim {
    Yes,
    No,
}

/// These are between two neighbours, and are not passed on.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

fn named_by_connection(headers: &[(&str, &str)]) -> Vec<String> {
    headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("connection") || name.eq_ignore_ascii_case("proxy-connection"))
        .flat_map(|(_, value)| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        // how long the body is was read already, and cannot be taken back
        .filter(|name| name != "content-length" && name != "host")
        .collect()
}

/// One reading of how long the body is, or none.
fn length(headers: &[(&str, &str)]) -> Result<Length, Bad> {
    let all = |wanted: &str| -> Vec<&str> {
        headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value).collect()
    };
    match (all("transfer-encoding").as_slice(), all("content-length").as_slice()) {
        ([], []) => Ok(Length::Bytes(0)),
        ([], [value]) if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
            value.parse().map(Length::Bytes).map_err(|_| "Content-Length is no length")
        }
        ([], _) => Err("Content-Length is no length, or there are several"),
        ([value], []) if value.eq_ignore_ascii_case("chunked") => Ok(Length::Chunked),
        (_, []) => Err("Transfer-Encoding can only be chunked"),
        (_, _) => Err("both Content-Length and Transfer-Encoding"),
    }
}

fn authority(text: &str) -> Option<(Host<String>, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?;
    let is_host = !host.contains(['/', '@', '?', '#', '%', '\\']);
    Some((plain_host(host).filter(|_| is_host)?, port)).filter(|(_, port)| *port > 0)
}

struct Lines<'a> {
    first: &'a str,
    headers: Vec<(&'a str, &'a str)>,
}

/// Lines end in CRLF and nothing else does; no line goes on in the next.
fn lines(head: &[u8]) -> Result<Lines<'_>, Bad> {
    // what is not ASCII may stand in values, as whatever it is
    let head = std::str::from_utf8(head).map_err(|_| "the head is no text")?;
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("a header without a colon")?;
        if !is_token(name) {
            return Err("a header name that is none");
        }
        headers.push((name, value.trim_matches([' ', '\t'])));
    }
    if head.replace("\r\n", "").chars().any(|c| c.is_control() && c != '\t') {
        return Err("a control character, or a line that does not end in CRLF");
    }
    if headers.len() > HEADERS_MAX {
        return Err("too many headers");
    }
    Ok(Lines { first, headers })
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn refused(head: &str, why: &str) {
        let found = request(head.as_bytes()).unwrap_err();
        assert!(found.contains(why), "{head:?}: {found}");
    }

    #[test]
    fn tunnels() {
        let tunnel = |target: &str| {
            let wanted = request(format!("CONNECT {target} HTTP/1.1\r\nHost: other.example").as_bytes()).unwrap();
            assert_eq!(wanted.how, How::Tunnel);
            (wanted.host.to_string(), wanted.port)
        };
        assert_eq!(tunnel("Example.COM.:443"), ("example.com".to_owned(), 443));
        assert_eq!(tunnel("[::1]:80"), ("[::1]".to_owned(), 80));
        assert_eq!(tunnel("0x7f.1:80"), ("127.0.0.1".to_owned(), 80));
        for target in [
            "example.com",
            "example.com:",
            "example.com:0",
            "example.com:99999",
            "a@b:80",
            "/:80",
            "http://a:80",
            "a%2eb:80",
            ":80",
            "a:+1",
        ] {
            refused(&format!("CONNECT {target} HTTP/1.1"), "CONNECT takes host:port");
        }
        refused("CONNECT a.com:443 HTTP/1.1\r\nContent-Length: 5", "no body");
        refused("CONNECT a.com:443 HTTP/1.1\r\nTransfer-Encoding: chunked", "no body");
    }

    #[test]
    fn plain_requests_are_written_anew() {
        let head = "POST http://A.com:8080/x/../y?q=1#f HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: Basic x\r\n\
             Connection: keep-alive, X-Secret\r\nX-Secret: 1\r\nContent-Length: 3\r\nExpect: 100-continue\r\nAccept: */*\r\n\
             Upgrade: websocket";
        let wanted = request(head.as_bytes()).unwrap();
        let sent =
            "POST /y?q=1 HTTP/1.1\r\nHost: a.com:8080\r\nAccept: */*\r\nContent-Length: 3\r\nConnection: close\r\n\r\n";
        assert_eq!((wanted.host.to_string().as_str(), wanted.port), ("a.com", 8080));
        assert_eq!(wanted.how, How::Plain { head: sent.to_owned(), body: Length::Bytes(3) });
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let get = |headers: &str| format!("GET http://a.com/ HTTP/1.1\r\n{headers}");
        refused(&get("Content-Length: 3\r\nContent-Length: 3"), "several");
        refused(&get("Content-Length: +3"), "no length");
        refused(&get("Content-Length: 3, 3"), "no length");
        refused(&get("Content-Length: 99999999999999999999"), "no length");
        refused(&get("Content-Length:"), "no length");
        refused(&get("Content-Length: 3\r\nTransfer-Encoding: chunked"), "both");
        refused(&get("Transfer-Encoding: gzip, chunked"), "only be chunked");
        refused(&get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), "only be chunked");
        refused(&get("Transfer-Encoding : chunked"), "a header name");
        refused(&get("X: 1\r\n folded"), "a header without");
        refused(&get("X: 1\r\n folded: 2"), "a header name");
        refused(&get("X: 1\nHost: b"), "CRLF");
        refused(&get("X: 1\rHost: b"), "CRLF");
        refused(&get("X: a\0b"), "control");
        refused("GET http://a.com/\tHTTP/1.1", "no request line");
        refused("GET  http://a.com/ HTTP/1.1", "no request line");
        refused("GET http://a.com/ HTTP/1.1 x", "no request line");
        refused("GET http://a.com/ HTTP/2.0", "only HTTP/1.1");
        refused("GET / HTTP/1.1\r\nHost: a.com", "absolute URLs");
        refused("GET https://a.com/ HTTP/1.1", "CONNECT");
        refused("GET ftp://a.com/ HTTP/1.1", "CONNECT");
        refused("GET http://u:p@a.com/ HTTP/1.1", "credentials");
        refused(&get(&"X: 1\r\n".repeat(101).trim_end().replace("\r\n\r\n", "\r\n")), "too many");
    }

    #[test]
    fn answers_end_the_connection() {
        let head = "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 5";
        let sent = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
        assert_eq!(response(head.as_bytes()).unwrap(), (sent.to_owned(), Interim::No));
        assert_eq!(response(b"HTTP/1.1 103 Hints\r\nLink: x").unwrap().1, Interim::Yes);
        for bad in ["", "HTTP/2 200", "ICY 200 OK", "HTTP/1.1 2x0 no", "HTTP/1.1 20"] {
            assert!(response(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        /// Whatever comes in, what goes out is one request with one host and one length.
        #[test]
        fn what_goes_out_is_one_request(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "GET", " ", "http://a.com", "/", "HTTP/1.1", "\r\n", "\r", "\n", "Host:", "b", "Content-Length:", "5",
                "Transfer-Encoding:", "chunked", "Connection:", ",", "\t", "é", "\0", "CONNECT", "a.com:443", "X:", "\r\n\r\n",
            ]), 0..14)
        ) {
            let start = "POST http://a.com/ HTTP/1.1\r\n";
            for head in [pieces.concat(), format!("{start}{}", pieces.concat())] {
                let Ok(Wanted { how: How::Plain { head, .. }, .. }) = request(head.as_bytes()) else { continue };
                prop_assert!(head.ends_with("\r\n\r\n") && head.matches("\r\n\r\n").count() == 1, "{head:?}");
                let lower = head.to_ascii_lowercase();
                prop_assert_eq!(lower.matches("\r\nhost:").count(), 1);
                prop_assert!(lower.matches("\r\ncontent-length:").count() + lower.matches("\r\ntransfer-encoding:").count() <= 1);
                prop_assert!(!head.replace("\r\n", "").contains(['\r', '\n']));
            }
        }
    }
}
