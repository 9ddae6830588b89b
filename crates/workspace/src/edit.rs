//! Replacing a piece of text by another, with every byte outside it left as it is.
//!
//! The piece is looked for as the file is shown: a line feed in it stands for however a line ends. Only what spells carriage
//! returns is looked for as these bytes first. If nothing is found, it is looked for by whole lines, without regard to white
//! space, which counts only if it finds one place. There is no looser step: replacing something that reads differently from
//! what was to be replaced would lose what nobody named.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use encoding_rs::{BIG5, EUC_JP, EUC_KR, GB18030, SHIFT_JIS};

use crate::near::{self, Candidate};
use crate::text::{Encoding, Line, Newline, Text, Unreadable, written_lines};

/// The largest file that is edited. It is held in memory twice.
pub const EDIT_MAX_BYTES: u64 = 16 << 20;

/// How many line numbers an error names.
const LINES_NAMED_MAX: usize = 20;

/// Which matches to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matches {
    /// The only one; several are an error.
    One,
    All,
}

/// How the replaced text was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Exact,
    /// But for how its lines end.
    Newlines,
    /// But for white space.
    Whitespace,
}

/// An edit that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The whole file as it is to be.
    pub bytes: Vec<u8>,
    pub how: How,
    /// How many places were replaced.
    pub count: usize,
    /// First and last line of the first place, as the file was.
    pub lines: (usize, usize),
    pub encoding: Encoding,
    /// The regions replaced, in the file as it was.
    pub replaced: Vec<Range<usize>>,
}

/// Which of the two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    Old,
    New,
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Argument::Old => "old",
            Argument::New => "new",
        })
    }
}

/// Why there is nothing to replace, or not safely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("the text to replace is empty")]
    EmptyOld,
    #[error("the text to replace and its replacement are the same")]
    Same,
    #[error("the file {0}")]
    Unreadable(Unreadable),
    #[error("the file has {bytes} bytes; at most {max} can be edited")]
    TooLarge { bytes: u64, max: u64 },
    /// Which bytes the character `found` would have to become is not known.
    #[error(
        "the file is not UTF-8 but some 8-bit encoding, so it can be edited in ASCII only; {found:?} in {argument} is not ASCII"
    )]
    NotAscii { found: char, argument: Argument },
    #[error(
        "the text in line {line} may start in the middle of a character: the file is not UTF-8 and can be read as {encoding}"
    )]
    InsideCharacter { line: usize, encoding: &'static str },
    /// First lines of the places, at most 20 of them.
    #[error("the text is found {count} times")]
    Several { count: usize, lines: Vec<usize>, how: How },
    #[error("the text is not found")]
    NotFound { nearest: Vec<Candidate> },
}

/// Replaces `old` by `new` in a file's bytes.
///
/// Outside what is replaced nothing changes. `new` is written in the file's encoding, and its lines end as the replaced
/// ones do, or, where none does, as those around it; only where `old` and `new` differ in nothing but newlines are they
/// taken as written. A file in an unknown 8-bit encoding takes ASCII only.
pub fn apply(bytes: &[u8], old: &str, new: &str, matches: Matches) -> Result<Edited, EditError> {
    if old.is_empty() {
        return Err(EditError::EmptyOld);
    }
    if old == new {
        return Err(EditError::Same);
    }
    let length = bytes.len() as u64;
    if length > EDIT_MAX_BYTES {
        return Err(EditError::TooLarge { bytes: length, max: EDIT_MAX_BYTES });
    }
    let text = Text::new(bytes).map_err(EditError::Unreadable)?;
    if text.encoding == Encoding::Unknown8Bit {
        for (argument, written) in [(Argument::Old, old), (Argument::New, new)] {
            if let Some(found) = written.chars().find(|c| !c.is_ascii()) {
                return Err(EditError::NotAscii { found, argument });
            }
        }
    }
    let (how, regions, new) = find(&text, old, new)?;
    if regions.len() > 1 && (matches == Matches::One || how == How::Whitespace) {
        let lines = regions.iter().take(LINES_NAMED_MAX).map(|region| text.line_of(region.start)).collect();
        return Err(EditError::Several { count: regions.len(), lines, how });
    }
    at_characters(&text, &regions)?;
    splice(bytes, &text, how, &regions, old, &new)
}

fn find(text: &Text<'_>, old: &str, new: &str) -> Result<(How, Vec<Range<usize>>, String), EditError> {
    let bytes = text.encoding.encode(old);
    if old.contains('\r') || !old.contains('\n') {
        let regions = exact(text, &bytes);
        if !regions.is_empty() {
            return Ok((How::Exact, regions, new.to_owned()));
        }
    }
    let lines = written_lines(old);
    let encoded: Vec<Vec<u8>> = lines.iter().map(|line| text.encoding.encode(line)).collect();
    let regions = but_for_newlines(text, &encoded);
    if !regions.is_empty() {
        let exact = regions.iter().all(|region| text.body[region.clone()] == *bytes);
        return Ok((if exact { How::Exact } else { How::Newlines }, regions, new.to_owned()));
    }
    for looseness in [Looseness::LineEnds, Looseness::All] {
        let found = but_for_whitespace(text, &lines, looseness);
        if let [only] = found.as_slice() {
            if let Some(new) = refit(text, only, &lines, new, looseness) {
                return Ok((How::Whitespace, vec![only.region.clone()], new));
            }
        } else if !found.is_empty() {
            return Ok((How::Whitespace, found.into_iter().map(|found| found.region).collect(), new.to_owned()));
        }
    }
    Err(EditError::NotFound { nearest: near::nearest(text, &lines) })
}

/// From left to right, without overlap, at whole units, and none that starts between the two halves of a newline.
fn exact(text: &Text<'_>, old: &[u8]) -> Vec<Range<usize>> {
    let finder = memchr::memmem::Finder::new(old);
    let width = text.encoding.width();
    let mut regions = Vec::new();
    let mut from = 0;
    while let Some(at) = text.body.get(from..).and_then(|rest| finder.find(rest)) {
        let start = from + at;
        if start.is_multiple_of(width) && !text.splits_newline(start) {
            regions.push(start..start + old.len());
            from = start + old.len();
        } else {
            from = start + 1;
        }
    }
    regions
}

/// The first written line must end a line, the last start one, those between be whole lines.
fn but_for_newlines(text: &Text<'_>, old: &[Vec<u8>]) -> Vec<Range<usize>> {
    let [first, between @ .., last] = old else { return Vec::new() };
    if !occurs(text, old.iter().max_by_key(|line| line.len()).map_or(&[], Vec::as_slice)) {
        return Vec::new();
    }
    let mut regions: Vec<Range<usize>> = Vec::new();
    for line in text.lines() {
        if line.next == line.end || !text.content(line).ends_with(first) {
            continue;
        }
        let start = line.end - first.len();
        if regions.last().is_some_and(|before| start < before.end) {
            continue;
        }
        let mut at = line;
        let all = between.iter().all(|written| match text.line_at(at.next, at.number + 1) {
            Some(next) if next.next > next.end && text.content(next) == written => {
                at = next;
                true
            }
            Some(_) | None => false,
        });
        if all && text.body[at.next..].starts_with(last) {
            regions.push(start..at.next + last.len());
        }
    }
    regions
}

/// Whether these bytes stand anywhere, at whole units or not: where they do not, no line needs to be looked at.
fn occurs(text: &Text<'_>, bytes: &[u8]) -> bool {
    memchr::memmem::find(text.body, bytes).is_some()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looseness {
    /// White space at the ends of lines.
    LineEnds,
    /// Every run of white space, indentation too.
    All,
}

struct Loose {
    region: Range<usize>,
    lines: Vec<Line>,
}

fn but_for_whitespace(text: &Text<'_>, old: &[&str], looseness: Looseness) -> Vec<Loose> {
    let ends_with_newline = old.len() > 1 && old.last().is_some_and(|last| last.is_empty());
    let wanted: Vec<String> =
        old[..old.len() - usize::from(ends_with_newline)].iter().map(|line| normal(line, looseness)).collect();
    let words = old.iter().flat_map(|line| line.split_whitespace());
    let Some(longest) = words.max_by_key(|word| word.len()) else { return Vec::new() };
    if !occurs(text, &text.encoding.encode(longest)) {
        return Vec::new();
    }
    let fits = |line: Line, wanted: &String| {
        text.encoding.decode(text.content(line)).is_some_and(|line| normal(&line, looseness) == *wanted)
    };
    let mut found: Vec<Loose> = Vec::new();
    for line in text.lines() {
        if !fits(line, &wanted[0]) {
            continue;
        }
        let mut lines = vec![line];
        let all = wanted[1..].iter().all(|wanted| {
            let before = lines[lines.len() - 1];
            match text.line_at(before.next, before.number + 1) {
                Some(next) if fits(next, wanted) => {
                    lines.push(next);
                    true
                }
                Some(_) | None => false,
            }
        });
        let last = lines[lines.len() - 1];
        if all {
            found.push(Loose { region: line.start..if ends_with_newline { last.next } else { last.end }, lines });
        }
    }
    found
}

fn normal(line: &str, looseness: Looseness) -> String {
    match looseness {
        Looseness::LineEnds => line.trim_end().to_owned(),
        Looseness::All => line.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// `new` as it belongs where `old` was found: indented as the lines there are, and without a final newline where the file
/// has none. None: how its lines are to be indented does not follow from the lines replaced.
fn refit(text: &Text<'_>, found: &Loose, old: &[&str], new: &str, looseness: Looseness) -> Option<String> {
    let last = found.lines[found.lines.len() - 1];
    let at_end = last.next == last.end && old.last().is_some_and(|last| last.is_empty());
    let new =
        if at_end { new.strip_suffix('\n').map_or(new, |new| new.strip_suffix('\r').unwrap_or(new)) } else { new };
    if looseness == Looseness::LineEnds {
        return Some(new.to_owned());
    }
    let mut indents = BTreeMap::new();
    for (written, line) in old.iter().zip(&found.lines) {
        let present = text.encoding.decode(text.content(*line))?;
        if written.trim().is_empty() {
            continue;
        }
        let present = indent(&present).to_owned();
        if indents.insert(indent(written), present.clone()).is_some_and(|before| before != present) {
            return None;
        }
    }
    let shift = Shift::of(&indents);
    let lines = new.split_inclusive('\n').map(|line| {
        let written = indent(line);
        if line.trim().is_empty() {
            return Some(line.to_owned());
        }
        let present = match indents.get(written) {
            Some(present) => present.clone(),
            None => shift.as_ref()?.applied(written)?,
        };
        Some(present + &line[written.len()..])
    });
    lines.collect()
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// All lines are further in, or further out, by the same.
enum Shift {
    In(String),
    Out(String),
}

impl Shift {
    fn of(indents: &BTreeMap<&str, String>) -> Option<Self> {
        let (written, present) = indents.first_key_value()?;
        let shift = match (present.strip_suffix(written), written.strip_suffix(present.as_str())) {
            (Some(more), _) => Shift::In(more.to_owned()),
            (None, Some(less)) => Shift::Out(less.to_owned()),
            (None, None) => return None,
        };
        let same = indents.iter().all(|(written, present)| shift.applied(written).as_ref() == Some(present));
        same.then_some(shift)
    }

    fn applied(&self, written: &str) -> Option<String> {
        match self {
            Shift::In(more) => Some(format!("{more}{written}")),
            Shift::Out(less) => written.strip_prefix(less.as_str()).map(str::to_owned),
        }
    }
}

/// In an unknown 8-bit encoding, the second byte of a character may look like ASCII. Wherever the file can be read as one
/// of the encodings that have such characters, a match must start at a character in it.
fn at_characters(text: &Text<'_>, regions: &[Range<usize>]) -> Result<(), EditError> {
    if text.encoding != Encoding::Unknown8Bit {
        return Ok(());
    }
    for encoding in [SHIFT_JIS, GB18030, BIG5, EUC_KR, EUC_JP] {
        let reads = |bytes| encoding.decode_without_bom_handling_and_without_replacement(bytes).is_some();
        if !reads(text.body) {
            continue;
        }
        let mut from = 0;
        for region in regions {
            if !reads(&text.body[from..region.start]) {
                let line = text.line_of(region.start);
                return Err(EditError::InsideCharacter { line, encoding: encoding.name() });
            }
            from = region.start;
        }
    }
    Ok(())
}

fn splice(
    bytes: &[u8],
    text: &Text<'_>,
    how: How,
    regions: &[Range<usize>],
    old: &str,
    new: &str,
) -> Result<Edited, EditError> {
    let mark = text.encoding.mark().len();
    let only_newlines_differ = how != How::Whitespace && written_lines(old) == written_lines(new);
    let usual = text.usual_newline();
    let mut out = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for region in regions {
        let newline = if only_newlines_differ { None } else { newline_in(text, region).or(usual) };
        out.extend_from_slice(&bytes[from..mark + region.start]);
        out.extend(text.encoding.encode(&with_newlines(new, newline)));
        from = mark + region.end;
    }
    out.extend_from_slice(&bytes[from..]);
    if out == bytes {
        return Err(EditError::Same);
    }
    let first = regions.first().expect("something was found");
    let last_byte = first.end.max(first.start + 1) - 1;
    let lines = (text.line_of(first.start), text.line_of(last_byte));
    let replaced = regions.iter().map(|region| mark + region.start..mark + region.end).collect();
    Ok(Edited { bytes: out, how, count: regions.len(), lines, encoding: text.encoding, replaced })
}

/// How the first line that a region reaches ends.
fn newline_in(text: &Text<'_>, region: &Range<usize>) -> Option<Newline> {
    let before = &text.body[..region.start];
    // back to where the line starts: after the last newline before the region
    let newline = text.encoding.encode("\n");
    let start = exact_last(before, &newline, text.encoding.width()).unwrap_or(0);
    text.newline(text.line_at(start, 1)?)
}

/// Where the last occurrence ends.
fn exact_last(bytes: &[u8], wanted: &[u8], width: usize) -> Option<usize> {
    let mut end = bytes.len();
    while let Some(at) = memchr::memmem::rfind(&bytes[..end], wanted) {
        if at.is_multiple_of(width) {
            return Some(at + wanted.len());
        }
        end = at + wanted.len() - 1;
    }
    None
}

/// `text` with its newlines all of one kind; None: as they are.
fn with_newlines(text: &str, newline: Option<Newline>) -> String {
    match newline {
        None => text.to_owned(),
        Some(newline) => text.replace("\r\n", "\n").replace('\n', newline.as_str()),
    }
}
