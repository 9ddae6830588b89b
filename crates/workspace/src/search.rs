//! Lines that match a pattern: ripgrep's own engine over files opened our way.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};

use crate::error::Error;
use crate::root::{Found, Place, Root};
use crate::shown::{head, json_bytes};
use crate::walk::{Go, Step, Unfinished, Wanted, walk};

/// What is looked for, and where not.
#[derive(Clone, Copy)]
pub struct Sought<'a> {
    /// A regular expression (Rust syntax).
    pub pattern: &'a str,
    /// Below a folder, only in files that it takes.
    pub glob: Option<&'a str>,
    /// Lines to show before and after each match.
    pub context_lines: usize,
    /// Below a folder, not in these files.
    pub leaves_out: &'a dyn Fn(&Place) -> bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchLimits {
    pub max_matches: usize,
    /// Of all lines together, as JSON counts them.
    pub max_bytes: usize,
    pub max_line_bytes: usize,
    pub time: Duration,
}

/// Whether a line matched or stands beside one that did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    Match,
    Beside,
}

/// A line that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub place: Place,
    pub line: u64,
    pub context: Context,
    /// Without its newline; a long one is cut around what matched.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Searched {
    /// By path, then by line.
    pub hits: Vec<Hit>,
    pub matches: usize,
    pub files_searched: usize,
    pub files_matched: usize,
    /// Too large or with lines too long to be searched.
    pub files_skipped: usize,
    /// Not looked into, as was asked.
    pub files_left_out: usize,
    /// There are, or may be, more.
    pub unfinished: bool,
}

/// Larger files are skipped: data, not text to be read.
pub const SEARCH_MAX_BYTES: u64 = 256 << 20;
/// A line that does not fit ends the search of its file.
const LINE_MAX_BYTES: usize = 16 << 20;
/// Of a compiled pattern. ripgrep's default is 100 MiB; a pattern that needs more than this is a mistake.
const PATTERN_MAX_BYTES: usize = 10 << 20;
const CONTEXT_MAX_LINES: usize = 20;

impl Root {
    /// Searches one file, or files below a folder. Binary files are passed over as soon as they show to be, links are not
    /// followed.
    pub fn search(
        &self,
        place: &Place,
        found: Found,
        sought: Sought<'_>,
        limits: SearchLimits,
    ) -> Result<Searched, Error> {
        let Sought { pattern, glob, context_lines, leaves_out } = sought;
        let matcher = RegexMatcherBuilder::new()
            // `^` and `$` are the ends of a line: many lines are searched at once
            .multi_line(true)
            .crlf(true)
            .size_limit(PATTERN_MAX_BYTES)
            .dfa_size_limit(PATTERN_MAX_BYTES)
            .build(pattern)
            .map_err(|error| Error::Pattern(error.to_string()))?;
        let wanted = Wanted::new(glob)?;
        let until = Instant::now() + limits.time;
        let mut search = Search {
            root: self,
            matcher,
            searcher: SearcherBuilder::new()
                .line_terminator(LineTerminator::crlf())
                .line_number(true)
                .binary_detection(BinaryDetection::quit(0))
                .before_context(context_lines.min(CONTEXT_MAX_LINES))
                .after_context(context_lines.min(CONTEXT_MAX_LINES))
                .heap_limit(Some(LINE_MAX_BYTES))
                .build(),
            until,
            limits,
            cost: 0,
            full: false,
            out: Searched::default(),
        };
        let unfinished = match found {
            Found::Folder => walk(self, place, &wanted, until, |Step { place, entry }| {
                if entry.file_type().is_some_and(|kind| kind.is_file()) {
                    if leaves_out(&place) {
                        search.out.files_left_out += 1;
                    } else {
                        search.file(&place);
                    }
                }
                if search.full { Go::Stop } else { Go::On }
            }),
            Found::File { .. } | Found::Special(_) | Found::Nothing => {
                drop(self.open_file(place)?);
                search.file(place);
                search.full.then_some(Unfinished::Enough)
            }
        };
        search.out.unfinished = unfinished.is_some() || search.full;
        Ok(search.out)
    }
}

struct Search<'a> {
    root: &'a Root,
    matcher: RegexMatcher,
    searcher: Searcher,
    until: Instant,
    limits: SearchLimits,
    cost: usize,
    /// A limit is reached.
    full: bool,
    out: Searched,
}

impl Search<'_> {
    fn file(&mut self, place: &Place) {
        let Ok(opened) = self.root.open_file(place) else { return };
        if crate::root::bytes(&opened.stat) > SEARCH_MAX_BYTES {
            self.out.files_skipped += 1;
            return;
        }
        self.out.files_searched += 1;
        let reader = Bounded { file: opened.file, left: SEARCH_MAX_BYTES, until: self.until };
        let before = self.out.matches;
        let hits = self.out.hits.len();
        let mut lines = Lines {
            place,
            matcher: &self.matcher,
            limits: self.limits,
            cost: &mut self.cost,
            full: &mut self.full,
            out: &mut self.out,
            binary: false,
        };
        let done = self.searcher.search_reader(&self.matcher, reader, &mut lines);
        if lines.binary {
            // what matched before the first NUL is no text either
            self.out.hits.truncate(hits);
            self.out.matches = before;
        }
        if let Err(error) = done {
            if error.kind() == io::ErrorKind::TimedOut {
                self.full = true;
            } else {
                self.out.files_skipped += 1;
            }
        }
        self.out.files_matched += usize::from(self.out.matches > before);
    }
}

/// Collects lines until there are enough.
struct Lines<'a> {
    place: &'a Place,
    matcher: &'a RegexMatcher,
    limits: SearchLimits,
    cost: &'a mut usize,
    full: &'a mut bool,
    out: &'a mut Searched,
    binary: bool,
}

impl Lines<'_> {
    fn take(&mut self, line: Option<u64>, context: Context, bytes: &[u8]) -> bool {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let text = match context {
            Context::Match => self.around_match(bytes),
            Context::Beside => clipped(bytes, 0, self.limits.max_line_bytes),
        };
        let cost = json_bytes(&text);
        let over = context == Context::Match && self.out.matches >= self.limits.max_matches;
        if over || *self.cost + cost > self.limits.max_bytes {
            *self.full = true;
            return false;
        }
        *self.cost += cost;
        self.out.matches += usize::from(context == Context::Match);
        let line = line.unwrap_or_default();
        self.out.hits.push(Hit { place: self.place.clone(), line, context, text });
        true
    }

    fn around_match(&self, bytes: &[u8]) -> String {
        let max = self.limits.max_line_bytes;
        if bytes.len() <= max {
            return String::from_utf8_lossy(bytes).into_owned();
        }
        let start = self.matcher.find(bytes).ok().flatten().map_or(0, |found| found.start());
        clipped(bytes, start.saturating_sub(max / 4), max)
    }
}

/// At most `max` bytes from `from` on, and where something is left out, a mark.
fn clipped(bytes: &[u8], from: usize, max: usize) -> String {
    let from = (from..bytes.len()).find(|at| bytes[*at] & 0xc0 != 0x80).unwrap_or(from.min(bytes.len()));
    let rest = &bytes[from..];
    // a little more than is shown, so that the cut falls at a character
    let decoded = String::from_utf8_lossy(&rest[..rest.len().min(max + 4)]);
    let shown = head(&decoded, max);
    let (before, after) = (if from > 0 { "…" } else { "" }, if rest.len() > max { "…" } else { "" });
    format!("{before}{shown}{after}")
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        Ok(self.take(found.line_number(), Context::Match, found.bytes()))
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        Ok(self.take(line.line_number(), Context::Beside, line.bytes()))
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }
}

/// A file that may grow, or take longer than there is time.
struct Bounded {
    file: File,
    left: u64,
    until: Instant,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read(&mut buffer[..room])?;
        self.left -= count as u64;
        Ok(count)
    }
}
