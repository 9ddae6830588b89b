//! Walking a folder: sorted, without following a link, without what ignore files leave out, and bounded.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};

use crate::error::Error;
use crate::root::{Place, Root};

/// The most entries that are looked at. A walk of that many takes some seconds.
const ENTRIES_MAX: usize = 500_000;
/// Deeper is a mistake, or a trap.
const DEPTH_MAX: usize = 128;

/// Which paths below a folder count.
#[derive(Debug)]
pub(crate) struct Wanted {
    glob: Option<GlobMatcher>,
    hidden: bool,
}

impl Wanted {
    /// `glob` is matched against the path below the folder; without a `/` in it, against the name alone.
    pub(crate) fn new(glob: Option<&str>) -> Result<Self, Error> {
        let Some(written) = glob else { return Ok(Self { glob: None, hidden: false }) };
        let pattern = written.strip_prefix("./").unwrap_or(written);
        let pattern =
            if pattern.contains('/') { pattern.trim_start_matches('/').to_owned() } else { format!("**/{pattern}") };
        let glob = GlobBuilder::new(&pattern)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| Error::Glob(error.to_string()))?;
        // who asks for what is hidden by name means it
        let hidden = pattern.split('/').any(|part| part.starts_with('.') || part.starts_with("{."));
        Ok(Self { glob: Some(glob.compile_matcher()), hidden })
    }

    pub(crate) fn is_pattern(&self) -> bool {
        self.glob.is_some()
    }

    fn takes(&self, below: &Path) -> bool {
        self.glob.as_ref().is_none_or(|glob| glob.is_match(below))
    }
}

/// Why a walk ended before everything was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfinished {
    Entries,
    Time,
    /// Whoever walks has enough.
    Enough,
}

/// Something on the way, below the folder.
pub(crate) struct Step<'a> {
    pub(crate) place: Place,
    pub(crate) entry: &'a DirEntry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Go {
    On,
    Stop,
}

/// Shows `visit` everything below a folder that is wanted, sorted by name at every level.
pub(crate) fn walk(
    root: &Root,
    folder: &Place,
    wanted: &Wanted,
    until: Instant,
    mut visit: impl FnMut(Step<'_>) -> Go,
) -> Option<Unfinished> {
    let top: PathBuf = match folder {
        Place::Inside(path) => root.name().join(path),
        Place::Outside(path) => path.clone(),
    };
    let mut builder = WalkBuilder::new(&top);
    builder
        .follow_links(false)
        .hidden(!wanted.hidden)
        .require_git(false)
        // what is left out must not depend on whose machine this is
        .git_global(false)
        .max_depth(Some(DEPTH_MAX))
        .sort_by_file_name(OsStr::cmp)
        .filter_entry(|entry| entry.file_name() != ".git");
    for (seen, entry) in builder.build().enumerate() {
        if seen >= ENTRIES_MAX {
            return Some(Unfinished::Entries);
        }
        if Instant::now() >= until {
            return Some(Unfinished::Time);
        }
        // what cannot be read is left out
        let Ok(entry) = entry else { continue };
        let Ok(below) = entry.path().strip_prefix(&top) else { continue };
        if below.as_os_str().is_empty() || !wanted.takes(below) {
            continue;
        }
        if visit(Step { place: folder.join(below), entry: &entry }) == Go::Stop {
            return Some(Unfinished::Enough);
        }
    }
    None
}
