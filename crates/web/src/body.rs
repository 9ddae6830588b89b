//! What came as the body of a page: unpacked within bounds, and read as text by the encoding it is in.

use std::io::Read;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// What a page holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Markup as it came.
    Html { text: String, cut: Cut },
    /// Any other text, JSON too.
    Text { text: String, cut: Cut },
    /// Nothing to read; its size where it was told.
    Other { bytes: Option<u64> },
}

/// Whether all of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Whole,
    /// It is longer; so many bytes were read.
    TooLong {
        bytes: usize,
    },
    /// The connection broke, or time ran out; so many bytes had come.
    Broken {
        bytes: usize,
    },
}

/// What the head says of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Html,
    Text,
    /// It does not say.
    Unknown,
    Other,
}

/// A media type without its parameters, in small letters.
pub(crate) fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(crate) fn kind(content_type: Option<&str>) -> Kind {
    let Some(media) = content_type.map(media_type).filter(|media| !media.is_empty()) else { return Kind::Unknown };
    let (class, name) = media.split_once('/').unwrap_or((&media, ""));
    match (class, name) {
        ("text", "html") | ("application", "xhtml+xml") => Kind::Html,
        ("text", _) | ("message", _) => Kind::Text,
        ("application", name) if name.ends_with("+json") || name.ends_with("+xml") || TEXTS.contains(&name) => {
            Kind::Text
        }
        ("image", "svg+xml") => Kind::Text,
        ("application", "octet-stream") | ("binary", "octet-stream") => Kind::Unknown,
        _ => Kind::Other,
    }
}

/// What of `application/…` is text.
const TEXTS: &[&str] = &[
    "json",
    "xml",
    "javascript",
    "x-javascript",
    "ecmascript",
    "typescript",
    "yaml",
    "x-yaml",
    "toml",
    "sql",
    "graphql",
    "x-sh",
    "x-ndjson",
    "ndjson",
    "jsonl",
    "rtf",
    "x-www-form-urlencoded",
    "x-httpd-php",
    "pgp-signature",
];

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Deflate,
}

impl Packing {
    /// By `Content-Encoding`. None: one we did not ask for.
    pub(crate) fn of(header: Option<&str>) -> Option<Self> {
        match header.map(|header| header.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "identity") => Some(Packing::Plain),
            Some("gzip" | "x-gzip") => Some(Packing::Gzip),
            Some("deflate") => Some(Packing::Deflate),
            Some(_) => None,
        }
    }
}

/// At most `bytes_max` of what is packed in `bytes`, whatever they would grow to. What is broken ends there.
pub(crate) fn unpack(bytes: Vec<u8>, packing: Packing, cut: Cut, bytes_max: usize) -> (Vec<u8>, Cut) {
    let read = |from: &mut dyn Read| {
        let mut out = Vec::new();
        let mut buffer = [0; 16 * 1024];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return (out, cut),
                Ok(length) if out.len() + length > bytes_max => {
                    out.extend_from_slice(&buffer[..bytes_max - out.len()]);
                    return (out, Cut::TooLong { bytes: bytes_max });
                }
                Ok(length) => out.extend_from_slice(&buffer[..length]),
                Err(_) => {
                    let bytes = out.len();
                    return (out, if cut == Cut::Whole { Cut::Broken { bytes } } else { cut });
                }
            }
        }
    };
    match packing {
        Packing::Plain => (bytes, cut),
        Packing::Gzip => read(&mut MultiGzDecoder::new(bytes.as_slice())),
        // The standard means zlib; some servers send it bare. A zlib header is a multiple of 31.
        Packing::Deflate => match bytes.as_slice() {
            [first, second, ..] if first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0 => {
                read(&mut ZlibDecoder::new(bytes.as_slice()))
            }
            rest => read(&mut DeflateDecoder::new(rest)),
        },
    }
}

/// A body as text: by its byte order mark, else by the header, else by what the page says of itself, else UTF-8 where it
/// is that and Western where it is not. What is invalid becomes U+FFFD.
pub(crate) fn text(bytes: &[u8], content_type: Option<&str>, kind: Kind, cut: Cut) -> Body {
    let is_html = match kind {
        Kind::Html => true,
        Kind::Text | Kind::Other => false,
        Kind::Unknown => begins_as_page(bytes),
    };
    let told = content_type.and_then(charset).or_else(|| is_html.then(|| meta_charset(bytes)).flatten());
    let encoding = match Encoding::for_bom(bytes) {
        Some((encoding, _)) => encoding,
        None => told.unwrap_or_else(|| if is_utf8(bytes) { UTF_8 } else { WINDOWS_1252 }),
    };
    let is_unknown_binary =
        kind == Kind::Unknown && !is_html && Encoding::for_bom(bytes).is_none() && bytes.contains(&0);
    if is_unknown_binary {
        let bytes = matches!(cut, Cut::Whole).then_some(bytes.len() as u64);
        return Body::Other { bytes };
    }
    let text = encoding.decode(bytes).0.into_owned();
    if is_html { Body::Html { text, cut } } else { Body::Text { text, cut } }
}

/// A character that was cut at the end is no sign of another encoding.
fn is_utf8(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

fn begins_as_page(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(SNIFFED_BYTES)];
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start().to_ascii_lowercase();
    [&b"<!doctype html"[..], b"<html", b"<head", b"<body"].iter().any(|begin| start.starts_with(begin))
}

/// Where a page must say its encoding, if it does (HTML Standard, 4.2.5.4).
const SNIFFED_BYTES: usize = 1024;

fn meta_charset(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = bytes[..bytes.len().min(SNIFFED_BYTES)].to_ascii_lowercase();
    let start = String::from_utf8_lossy(&start).into_owned();
    let meta = start.split("<meta").skip(1).find_map(|tag| charset(tag.split('>').next()?));
    // a page that says so in ASCII is not in UTF-16
    meta.map(|encoding| if encoding.is_ascii_compatible() { encoding } else { UTF_8 })
}

fn charset(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let value = lower[lower.find("charset")? + "charset".len()..].trim_start().strip_prefix('=')?.trim_start();
    let value = value.trim_start_matches(['"', '\'']);
    let end = value.find(|c: char| c.is_whitespace() || matches!(c, ';' | '"' | '\'' | '/' | ','));
    Encoding::for_label(&value.as_bytes()[..end.unwrap_or(value.len())])
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], content_type: &str, expected: &str) {
        let content_type = Some(content_type).filter(|text| !text.is_empty());
        match text(bytes, content_type, kind(content_type), Cut::Whole) {
            Body::Html { text, .. } | Body::Text { text, .. } => assert_eq!(text, expected),
            Body::Other { .. } => panic!("no text: {bytes:?}"),
        }
    }

    #[test]
    fn encodings() {
        check("Grüße".as_bytes(), "text/plain; charset=utf-8", "Grüße");
        check("Grüße".as_bytes(), "text/plain", "Grüße");
        check(b"Gr\xfc\xdfe", "text/plain", "Grüße");
        check(b"Gr\xfc\xdfe", "text/plain; charset=\"ISO-8859-1\"", "Grüße");
        check(b"\x83\x65\x83\x58\x83\x67", "text/html; charset=Shift_JIS", "テスト");
        // the mark is stronger than the header
        check(b"\xef\xbb\xbfGr\xc3\xbc\xc3\x9fe", "text/html; charset=latin1", "Grüße");
        check(b"\xff\xfeh\0i\0", "text/plain", "hi");
        // a lie, and a label nobody knows
        check(b"Gr\xfc\xdfe", "text/plain; charset=utf-8", "Gr\u{fffd}\u{fffd}e");
        check(b"Gr\xfc\xdfe", "text/plain; charset=klingon", "Grüße");
        check(b"<meta charset=windows-1251><p>\xcf\xf0\xe8", "text/html", "<meta charset=windows-1251><p>При");
        check(
            b"<meta http-equiv=x content='text/html; charset=utf-16'>\xc3\xbc",
            "text/html",
            "<meta http-equiv=x content='text/html; charset=utf-16'>ü",
        );
        check(b"<!DOCTYPE html><p>x", "", "<!DOCTYPE html><p>x");
        check(b"plain", "application/octet-stream", "plain");
        // cut in the middle of a character
        check(&"aü".as_bytes()[..2], "text/plain", "a\u{fffd}");
        assert_eq!(text(b"\x7fELF\0\0", None, Kind::Unknown, Cut::Whole), Body::Other { bytes: Some(6) });
    }

    #[test]
    fn kinds() {
        for (content_type, expected) in [
            ("text/html; charset=utf-8", Kind::Html),
            ("TEXT/HTML", Kind::Html),
            ("application/json", Kind::Text),
            ("application/problem+json", Kind::Text),
            ("application/atom+xml", Kind::Text),
            ("text/markdown", Kind::Text),
            ("image/png", Kind::Other),
            ("application/pdf", Kind::Other),
            ("application/zip", Kind::Other),
            ("application/octet-stream", Kind::Unknown),
            ("nonsense", Kind::Other),
        ] {
            assert_eq!(kind(Some(content_type)), expected, "{content_type}");
        }
        assert_eq!(kind(None), Kind::Unknown);
    }

    fn packed(bytes: &[u8]) -> [(Packing, Vec<u8>); 3] {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(bytes).unwrap();
        zlib.write_all(bytes).unwrap();
        bare.write_all(bytes).unwrap();
        [
            (Packing::Gzip, gzip.finish().unwrap()),
            (Packing::Deflate, zlib.finish().unwrap()),
            (Packing::Deflate, bare.finish().unwrap()),
        ]
    }

    #[test]
    fn a_bomb_is_cut_and_a_torn_one_ends() {
        for (packing, bytes) in packed(&vec![b'x'; 4 << 20]) {
            assert!(bytes.len() < 8 * 1024);
            let (text, cut) = unpack(bytes.clone(), packing, Cut::Whole, 10_000);
            assert_eq!((text.len(), cut), (10_000, Cut::TooLong { bytes: 10_000 }));
            let (text, cut) = unpack(bytes[..bytes.len() / 2].to_vec(), packing, Cut::Whole, 8 << 20);
            assert!(!text.is_empty() && text.len() < 4 << 20);
            assert_eq!(cut, Cut::Broken { bytes: text.len() });
        }
        // many empty members give nothing and come to an end
        let [(_, empty), ..] = packed(b"");
        assert_eq!(unpack(empty.repeat(1000), Packing::Gzip, Cut::Whole, 100), (Vec::new(), Cut::Whole));
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            for (packing, packed) in packed(&bytes) {
                prop_assert_eq!(unpack(packed, packing, Cut::Whole, 4000), (bytes.clone(), Cut::Whole));
            }
        }

        #[test]
        fn any_bytes_are_survived(
            bytes in prop::collection::vec(any::<u8>(), 0..500),
            content_type in prop::sample::select(vec!["", "text/html", "text/plain; charset=", "text/html; charset=utf-16", "x/y"]),
        ) {
            for packing in [Packing::Plain, Packing::Gzip, Packing::Deflate] {
                let (bytes, cut) = unpack(bytes.clone(), packing, Cut::Whole, 100_000);
                text(&bytes, Some(content_type), kind(Some(content_type)), cut);
            }
        }
    }
}
