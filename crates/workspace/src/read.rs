//! Reading a range of lines, in one pass and in bounded memory, however long the file or its lines.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use longrein_core::ids::Digest;
use rustix::fs::OFlags;

use crate::error::Error;
use crate::root::{Place, Root, bytes};
use crate::shown::{head, json_bytes};
use crate::text::{Encoding, Newline, Newlines, Unreadable};

/// The largest file that is read. All of it is hashed, which takes about a second.
pub const READ_MAX_BYTES: u64 = 1 << 30;

const CHUNK_BYTES: usize = 64 << 10;

/// Lines, counted from 1, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub from: u64,
    /// None: to the end.
    pub to: Option<u64>,
}

impl Range {
    pub const ALL: Range = Range { from: 1, to: None };

    fn holds(self, line: u64) -> bool {
        line >= self.from && self.to.is_none_or(|to| line <= to)
    }
}

/// What one read may show at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// As JSON counts them ([`json_bytes`]).
    pub max_bytes: usize,
    pub max_lines: u64,
    pub max_line_bytes: usize,
}

/// What was read, and of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    /// Decoded, each line ended by a line feed if it ends at all.
    pub text: String,
    /// Lines shown; none if `to < from`.
    pub from: u64,
    pub to: u64,
    /// In the file.
    pub total_lines: u64,
    pub bytes: u64,
    /// Lines of the range that the limits left out.
    pub left_out: u64,
    /// Shown lines of which only the start is shown.
    pub cut_lines: u64,
    pub encoding: Encoding,
    pub newlines: Newlines,
    pub final_newline: bool,
    /// Of the whole file.
    pub digest: Digest,
}

impl Root {
    /// Reads lines of a text file.
    pub fn read_lines(&self, place: &Place, range: Range, limits: ReadLimits) -> Result<Lines, Error> {
        let mut opened = self.open_file(place)?;
        let size = bytes(&opened.stat);
        if size > READ_MAX_BYTES {
            return Err(Error::TooLarge { path: place.to_string(), bytes: size, max: READ_MAX_BYTES });
        }
        let whole = pass(&mut opened.file, place, range, limits, b'\n')?;
        if whole.newlines != Newlines::None || !whole.lone_cr {
            return whole.lines(place.to_string());
        }
        // no line feed at all: what separates the lines is the carriage return
        opened.file.seek(SeekFrom::Start(0)).map_err(|error| Error::io(error, place.to_string()))?;
        pass(&mut opened.file, place, range, limits, b'\r')?.lines(place.to_string())
    }

    /// All bytes of a file of at most `max` bytes, and their digest.
    pub fn read_whole(&self, place: &Place, max: u64) -> Result<(Vec<u8>, Digest), Error> {
        let opened = self.open_file(place)?;
        let too_large = |bytes| Error::TooLarge { path: place.to_string(), bytes, max };
        if bytes(&opened.stat) > max {
            return Err(too_large(bytes(&opened.stat)));
        }
        let mut whole = Vec::with_capacity(usize::try_from(bytes(&opened.stat)).unwrap_or_default());
        let mut limited = opened.file.take(max + 1);
        limited.read_to_end(&mut whole).map_err(|error| Error::io(error, place.to_string()))?;
        if whole.len() as u64 > max {
            return Err(too_large(whole.len() as u64));
        }
        let digest = Digest::of(&whole);
        Ok((whole, digest))
    }

    /// The digest of a file's content; None if there is no such file.
    pub fn digest(&self, place: &Place) -> Result<Option<Digest>, Error> {
        match self.open_file(place) {
            Ok(opened) => digest(opened.file, place).map(Some),
            Err(Error::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The digest of what a path leads to, wherever that lies. None: it is no file, cannot be read, or is larger than what is read
/// at all. What is put in a file's place, a pipe or a device, is never waited for.
pub fn digest_of(path: &Path) -> Option<Digest> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path).ok()?;
    let found = file.metadata().ok().filter(|found| found.is_file() && found.len() <= READ_MAX_BYTES);
    found.and_then(|_| digest(file, &Place::Outside(path.to_owned())).ok())
}

/// Of everything a reader gives, up to what is read at all.
pub(crate) fn digest(mut reader: impl Read, place: &Place) -> Result<Digest, Error> {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut seen = 0;
    loop {
        let count = reader.read(&mut chunk).map_err(|error| Error::io(error, place.to_string()))?;
        if count == 0 {
            return Ok(Digest::new(hasher.finalize().to_hex().to_string()));
        }
        seen += count as u64;
        within_bounds(seen, place)?;
        hasher.update(&chunk[..count]);
    }
}

/// A file may grow for ever while it is read.
fn within_bounds(seen: u64, place: &Place) -> Result<(), Error> {
    if seen <= READ_MAX_BYTES {
        return Ok(());
    }
    Err(Error::TooLarge { path: place.to_string(), bytes: seen, max: READ_MAX_BYTES })
}

struct Pass {
    range: Range,
    limits: ReadLimits,
    newline: u8,
    hasher: blake3::Hasher,
    bytes: u64,
    encoding: Encoding,
    problem: Option<Unreadable>,
    utf8: Utf8Check,
    /// Of the line that is being read, as much as may be shown, in UTF-8 or as it is in the file.
    line: Vec<u8>,
    line_bytes: u64,
    /// The number of that line.
    number: u64,
    /// The last byte seen, in UTF-8.
    last: Option<u8>,
    lone_cr: bool,
    newlines: Newlines,
    text: String,
    cost: usize,
    shown: u64,
    left_out: u64,
    cut_lines: u64,
}

fn pass(reader: &mut impl Read, place: &Place, range: Range, limits: ReadLimits, newline: u8) -> Result<Pass, Error> {
    let failed = |error| Error::io(error, place.to_string());
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut filled = 0;
    // enough to see every byte order mark
    while filled < 4 {
        let count = reader.read(&mut chunk[filled..]).map_err(failed)?;
        if count == 0 {
            break;
        }
        filled += count;
    }
    let start = Encoding::of_start(&chunk[..filled]);
    let encoding = start.unwrap_or(Encoding::Utf8 { bom: false });
    let mut pass = Pass {
        range,
        limits,
        newline,
        hasher: blake3::Hasher::new(),
        bytes: 0,
        encoding,
        problem: start.err(),
        utf8: Utf8Check::default(),
        line: Vec::new(),
        line_bytes: 0,
        number: 1,
        last: None,
        lone_cr: false,
        newlines: Newlines::None,
        text: String::new(),
        cost: 0,
        shown: 0,
        left_out: 0,
        cut_lines: 0,
    };
    let mut decoder = match encoding {
        Encoding::Utf16Le => Some(encoding_rs::UTF_16LE.new_decoder_without_bom_handling()),
        Encoding::Utf16Be => Some(encoding_rs::UTF_16BE.new_decoder_without_bom_handling()),
        Encoding::Utf8 { .. } | Encoding::Unknown8Bit => None,
    };
    let mut skip = encoding.mark().len();
    loop {
        pass.hasher.update(&chunk[..filled]);
        pass.bytes += filled as u64;
        within_bounds(pass.bytes, place)?;
        let content = &chunk[skip..filled];
        skip = 0;
        match &mut decoder {
            None => {
                pass.utf8.take(content);
                pass.take(content);
            }
            Some(decoder) => {
                let last = filled == 0;
                let mut decoded = String::with_capacity(decoder.max_utf8_buffer_length(content.len()).unwrap_or(0));
                // the buffer is as large as the decoder says it can need
                let _complete = decoder.decode_to_string(content, &mut decoded, last);
                pass.take(decoded.as_bytes());
            }
        }
        if filled == 0 || pass.problem.is_some() {
            return Ok(pass);
        }
        filled = reader.read(&mut chunk).map_err(failed)?;
    }
}

impl Pass {
    /// The next bytes: UTF-8, or as they are in the file.
    fn take(&mut self, bytes: &[u8]) {
        if memchr::memchr(0, bytes).is_some() {
            self.problem = Some(Unreadable::Binary);
            return;
        }
        let mut rest = bytes;
        while let Some(at) = memchr::memchr(self.newline, rest) {
            self.grow(&rest[..at]);
            let after_cr = self.newline == b'\n' && self.last == Some(b'\r') && self.line_bytes > 0;
            self.end_line(if after_cr {
                Some(Newline::CrLf)
            } else if self.newline == b'\r' {
                Some(Newline::Cr)
            } else {
                Some(Newline::Lf)
            });
            rest = &rest[at + 1..];
        }
        self.grow(rest);
    }

    fn grow(&mut self, part: &[u8]) {
        if let Some(last) = part.last() {
            self.last = Some(*last);
            self.lone_cr |= memchr::memchr(b'\r', part).is_some();
        }
        self.line_bytes += part.len() as u64;
        if self.range.holds(self.number) {
            // what a line may show, and a carriage return or the rest of a character behind it
            let room = (self.limits.max_line_bytes + 4).saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
        }
    }

    fn end_line(&mut self, newline: Option<Newline>) {
        self.newlines = match (self.newlines, newline) {
            (before, None) => before,
            (Newlines::None, Some(newline)) => Newlines::All(newline),
            (Newlines::All(before), Some(newline)) if before == newline => Newlines::All(before),
            (Newlines::All(_) | Newlines::Mixed, Some(_)) => Newlines::Mixed,
        };
        if self.range.holds(self.number) {
            self.show(newline);
        }
        self.line.clear();
        self.line_bytes = 0;
        self.number += 1;
        self.last = newline.map(|_| self.newline);
    }

    fn show(&mut self, newline: Option<Newline>) {
        let carriage_return = u64::from(newline == Some(Newline::CrLf));
        let length = self.line_bytes - carriage_return;
        let kept = usize::try_from(length).unwrap_or(usize::MAX).min(self.line.len());
        let text = String::from_utf8_lossy(&self.line[..kept]);
        let cut = length > self.limits.max_line_bytes as u64;
        let shown = if cut { head(&text, self.limits.max_line_bytes) } else { &text };
        let mut line = shown.to_owned();
        if cut {
            line.push_str(&format!(" [… {length} bytes in this line …]"));
        }
        if newline.is_some() {
            line.push('\n');
        }
        let cost = json_bytes(&line);
        // once a line is left out, all that follow are
        if self.left_out > 0 || self.shown >= self.limits.max_lines || self.cost + cost > self.limits.max_bytes {
            self.left_out += 1;
            return;
        }
        self.cost += cost;
        self.shown += 1;
        self.cut_lines += u64::from(cut);
        self.text.push_str(&line);
    }

    fn lines(mut self, path: String) -> Result<Lines, Error> {
        if let Some(why) = self.problem {
            return Err(Error::Unreadable { path, why });
        }
        let final_newline = self.last == Some(self.newline) && self.line_bytes == 0;
        if self.line_bytes > 0 {
            self.end_line(None);
        }
        let is_utf8 = matches!(self.encoding, Encoding::Utf8 { .. });
        let encoding = if is_utf8 && !self.utf8.is_valid() { Encoding::Unknown8Bit } else { self.encoding };
        let lines = Lines {
            text: self.text,
            from: self.range.from,
            to: (self.range.from + self.shown).saturating_sub(1),
            total_lines: self.number - 1,
            bytes: self.bytes,
            left_out: self.left_out,
            cut_lines: self.cut_lines,
            encoding,
            newlines: self.newlines,
            final_newline,
            digest: Digest::new(self.hasher.finalize().to_hex().to_string()),
        };
        Ok(lines)
    }
}

/// Whether what passes by is UTF-8, chunk by chunk.
#[derive(Debug, Default)]
struct Utf8Check {
    /// The start of a character that the next chunk has to finish.
    begun: Vec<u8>,
    broken: bool,
}

impl Utf8Check {
    fn take(&mut self, chunk: &[u8]) {
        if self.broken {
            return;
        }
        let mut rest = chunk;
        // one byte at a time until the character is whole
        while let ([next, after @ ..], false) = (rest, self.begun.is_empty()) {
            self.begun.push(*next);
            rest = after;
            match std::str::from_utf8(&self.begun) {
                Ok(_) => self.begun.clear(),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => self.broken = true,
            }
            if self.broken {
                return;
            }
        }
        if let Err(error) = std::str::from_utf8(rest) {
            match error.error_len() {
                None => self.begun = rest[error.valid_up_to()..].to_vec(),
                Some(_) => self.broken = true,
            }
        }
    }

    fn is_valid(&self) -> bool {
        !self.broken && self.begun.is_empty()
    }
}
