//! What kind of text some bytes are: encoding and newlines.

use std::fmt;

/// How text is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Plain ASCII too.
    Utf8 {
        bom: bool,
    },
    /// With a byte order mark; without one UTF-16 cannot be told from binary data.
    Utf16Le,
    Utf16Be,
    /// Not UTF-8, but its ASCII bytes mean ASCII: Latin-1, Windows code pages, GBK, Shift_JIS, EUC. Which one cannot be
    /// known.
    Unknown8Bit,
}

/// How a line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newline {
    Lf,
    CrLf,
    /// Only in a file that has no line feed at all: elsewhere a lone carriage return is a character of its line.
    Cr,
}

/// How the lines of a text end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newlines {
    /// No line ends.
    None,
    All(Newline),
    /// LF and CRLF.
    Mixed,
}

/// Why bytes are not taken for text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// NUL bytes, and no byte order mark of UTF-16.
    Binary,
    Utf32,
}

/// A whole text as reading shows it: without its byte order mark, lines ended by a line feed.
pub fn decoded(bytes: &[u8]) -> Result<String, Unreadable> {
    let encoding = Encoding::of(bytes)?;
    Ok(encoding.decode_lossy(&bytes[encoding.mark().len()..]).replace("\r\n", "\n"))
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unreadable::Binary => "is binary (it holds NUL bytes), not text",
            Unreadable::Utf32 => "is UTF-32, which is not supported",
        })
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encoding::Utf8 { bom: false } => "utf-8",
            Encoding::Utf8 { bom: true } => "utf-8 with BOM",
            Encoding::Utf16Le => "utf-16le with BOM",
            Encoding::Utf16Be => "utf-16be with BOM",
            Encoding::Unknown8Bit => "unknown 8-bit",
        })
    }
}

impl Newline {
    pub fn as_str(self) -> &'static str {
        match self {
            Newline::Lf => "\n",
            Newline::CrLf => "\r\n",
            Newline::Cr => "\r",
        }
    }
}

impl fmt::Display for Newlines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Newlines::None => "none",
            Newlines::All(Newline::Lf) => "lf",
            Newlines::All(Newline::CrLf) => "crlf",
            Newlines::All(Newline::Cr) => "cr",
            Newlines::Mixed => "mixed lf and crlf",
        })
    }
}

impl Encoding {
    /// What the first bytes say. UTF-8 without a mark is a guess that the rest may prove wrong.
    pub(crate) fn of_start(start: &[u8]) -> Result<Self, Unreadable> {
        match start {
            [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => Err(Unreadable::Utf32),
            [0xff, 0xfe, ..] => Ok(Encoding::Utf16Le),
            [0xfe, 0xff, ..] => Ok(Encoding::Utf16Be),
            [0xef, 0xbb, 0xbf, ..] => Ok(Encoding::Utf8 { bom: true }),
            _ => Ok(Encoding::Utf8 { bom: false }),
        }
    }

    /// Of a whole text.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, Unreadable> {
        let encoding = Self::of_start(bytes)?;
        let body = &bytes[encoding.mark().len()..];
        match encoding {
            Encoding::Utf16Le | Encoding::Utf16Be if body.chunks_exact(2).any(|unit| unit == [0, 0]) => {
                Err(Unreadable::Binary)
            }
            Encoding::Utf16Le | Encoding::Utf16Be => Ok(encoding),
            Encoding::Utf8 { .. } | Encoding::Unknown8Bit if memchr::memchr(0, body).is_some() => {
                Err(Unreadable::Binary)
            }
            Encoding::Utf8 { .. } | Encoding::Unknown8Bit if std::str::from_utf8(body).is_err() => {
                Ok(Encoding::Unknown8Bit)
            }
            Encoding::Utf8 { .. } | Encoding::Unknown8Bit => Ok(encoding),
        }
    }

    /// The byte order mark.
    pub(crate) fn mark(self) -> &'static [u8] {
        match self {
            Encoding::Utf8 { bom: true } => &[0xef, 0xbb, 0xbf],
            Encoding::Utf16Le => &[0xff, 0xfe],
            Encoding::Utf16Be => &[0xfe, 0xff],
            Encoding::Utf8 { bom: false } | Encoding::Unknown8Bit => &[],
        }
    }

    /// Bytes of the smallest unit.
    pub(crate) fn width(self) -> usize {
        match self {
            Encoding::Utf16Le | Encoding::Utf16Be => 2,
            Encoding::Utf8 { .. } | Encoding::Unknown8Bit => 1,
        }
    }

    pub(crate) fn encode(self, text: &str) -> Vec<u8> {
        match self {
            Encoding::Utf16Le => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Encoding::Utf16Be => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            Encoding::Utf8 { .. } | Encoding::Unknown8Bit => text.as_bytes().to_vec(),
        }
    }

    /// None: these bytes are no text of this encoding.
    pub(crate) fn decode(self, bytes: &[u8]) -> Option<String> {
        let units = |of: fn([u8; 2]) -> u16| {
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = pairs.iter().copied().map(of).collect();
            if rest.is_empty() { String::from_utf16(&units).ok() } else { None }
        };
        match self {
            Encoding::Utf16Le => units(u16::from_le_bytes),
            Encoding::Utf16Be => units(u16::from_be_bytes),
            Encoding::Utf8 { .. } | Encoding::Unknown8Bit => std::str::from_utf8(bytes).ok().map(str::to_owned),
        }
    }

    /// For showing: what is no text becomes U+FFFD.
    pub(crate) fn decode_lossy(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Utf16Le => encoding_rs::UTF_16LE.decode_without_bom_handling(bytes).0.into_owned(),
            Encoding::Utf16Be => encoding_rs::UTF_16BE.decode_without_bom_handling(bytes).0.into_owned(),
            Encoding::Utf8 { .. } | Encoding::Unknown8Bit => String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

/// A text as bytes, cut into lines without being decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'a> {
    /// After the byte order mark.
    pub(crate) body: &'a [u8],
    pub(crate) encoding: Encoding,
    /// No line feed in it, so a carriage return ends a line.
    cr_only: bool,
}

/// One line. Offsets are into the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) start: usize,
    /// Before its newline.
    pub(crate) end: usize,
    /// Where the next line starts; equal to `end` in a last line without a newline.
    pub(crate) next: usize,
}

impl<'a> Text<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        let encoding = Encoding::of(bytes)?;
        let mut text = Self { body: &bytes[encoding.mark().len()..], encoding, cr_only: false };
        text.cr_only = text.find(b'\n', 0).is_none();
        Ok(text)
    }

    /// The first unit at or after `from` that is this ASCII character.
    fn find(&self, ascii: u8, from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            at += memchr::memchr(ascii, &self.body[at..])?;
            let unit = match self.encoding {
                Encoding::Utf8 { .. } | Encoding::Unknown8Bit => return Some(at),
                Encoding::Utf16Le => at,
                Encoding::Utf16Be => at.wrapping_sub(1),
            };
            let expected = self.encoding.encode(char::from(ascii).encode_utf8(&mut [0; 4]));
            if unit % 2 == 0 && self.body.get(unit..unit + 2) == Some(&expected) {
                return Some(unit);
            }
            at += 1;
        }
    }

    pub(crate) fn line_at(&self, start: usize, number: usize) -> Option<Line> {
        if start >= self.body.len() {
            return None;
        }
        let width = self.encoding.width();
        let Some(at) = self.find(if self.cr_only { b'\r' } else { b'\n' }, start) else {
            return Some(Line { number, start, end: self.body.len(), next: self.body.len() });
        };
        let cr: &[u8] = match self.encoding {
            Encoding::Utf8 { .. } | Encoding::Unknown8Bit => b"\r",
            Encoding::Utf16Le => b"\r\0",
            Encoding::Utf16Be => b"\0\r",
        };
        let end = if !self.cr_only && self.body[start..at].ends_with(cr) { at - width } else { at };
        Some(Line { number, start, end, next: at + width })
    }

    pub(crate) fn lines(self) -> impl Iterator<Item = Line> {
        let mut following = (0, 1);
        std::iter::from_fn(move || {
            let line = self.line_at(following.0, following.1)?;
            following = (line.next, line.number + 1);
            Some(line)
        })
    }

    pub(crate) fn content(&self, line: Line) -> &'a [u8] {
        &self.body[line.start..line.end]
    }

    /// None: a last line without one.
    pub(crate) fn newline(&self, line: Line) -> Option<Newline> {
        match (line.next - line.end) / self.encoding.width() {
            0 => None,
            1 if self.cr_only => Some(Newline::Cr),
            1 => Some(Newline::Lf),
            _ => Some(Newline::CrLf),
        }
    }

    /// Whether an offset lies within a newline: after its carriage return, before its line feed.
    pub(crate) fn splits_newline(&self, offset: usize) -> bool {
        let (cr, lf) = (self.encoding.encode("\r"), self.encoding.encode("\n"));
        self.body[..offset].ends_with(&cr) && self.body[offset..].starts_with(&lf)
    }

    /// Which line an offset lies in.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        self.lines().take_while(|line| line.start <= offset).last().map_or(1, |line| line.number)
    }

    /// How most lines end; None where none does.
    pub(crate) fn usual_newline(&self) -> Option<Newline> {
        let mut counts = [0usize; 3];
        let kinds = [Newline::Lf, Newline::CrLf, Newline::Cr];
        for newline in self.lines().filter_map(|line| self.newline(line)) {
            counts[match newline {
                Newline::Lf => 0,
                Newline::CrLf => 1,
                Newline::Cr => 2,
            }] += 1;
        }
        let most = counts.iter().max().copied().unwrap_or_default();
        kinds.into_iter().zip(counts).find(|(_, count)| *count == most && most > 0).map(|(kind, _)| kind)
    }

    pub(crate) fn newlines(&self) -> Newlines {
        let mut seen = Newlines::None;
        for newline in self.lines().filter_map(|line| self.newline(line)) {
            seen = match seen {
                Newlines::None => Newlines::All(newline),
                Newlines::All(before) if before == newline => seen,
                Newlines::All(_) | Newlines::Mixed => return Newlines::Mixed,
            };
        }
        seen
    }
}

/// The lines of a text a model wrote, without their newlines. Every kind of newline counts; after a final one stands an
/// empty last line.
pub(crate) fn written_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\n', '\r']) {
        lines.push(&rest[..at]);
        rest = &rest[at..];
        rest = rest.strip_prefix("\r\n").unwrap_or_else(|| &rest[1..]);
    }
    lines.push(rest);
    lines
}
