//! What was changed in a folder since a moment, as far as the file system can tell: by the time of each file's last change of
//! content, name or attributes, which the kernel keeps and nobody but its administrator sets back.
//!
//! Nothing is left out that can be read again: no ignore file counts here. What the bounds leave unseen is told as the
//! folders it lies in, so that whoever must know of every change knows too much rather than too little.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longrein_core::ids::Digest;

use crate::read::READ_MAX_BYTES;
use crate::root::{Place, Root};

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
pub struct ChangeLimits {
    /// Files and folders seen.
    pub entries: usize,
    /// Bytes of changed files that are read.
    pub bytes: u64,
    pub until: Instant,
    /// Of what is answered. Beyond them, whole folders are told, the deepest first.
    pub answers: usize,
}

/// The kernel stamps changes with a clock that lags behind by a tick, at most 10 ms.
const SLACK: Duration = Duration::from_millis(20);
/// Network file systems stamp them with another machine's clock, and simple ones with full seconds.
const SLACK_ELSEWHERE: Duration = Duration::from_secs(2);
/// File systems that are stamped by this kernel, finely: ext, xfs, btrfs, tmpfs, overlay, zfs, f2fs, bcachefs
/// (`statfs(2)`).
const LOCAL: [u64; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0xca45_1a4e];

/// Everything below is told as the folder it is in.
const DEPTH_MAX: usize = 128;

/// What was changed, below the folder: files with the digest of their content; None: whatever is and lies there.
pub type Changes = BTreeMap<PathBuf, Option<Digest>>;

impl Root {
    /// Regular files below this folder that were changed at or after `since` (since 1970), and folders that were not looked
    /// through. Links are not followed.
    pub fn changed_since(&self, since: Duration, limits: &ChangeLimits) -> Changes {
        let is_local = rustix::fs::statfs(self.name())
            .is_ok_and(|system| u64::try_from(system.f_type).is_ok_and(|magic| LOCAL.contains(&(magic & 0xffff_ffff))));
        let since = since.saturating_sub(if is_local { SLACK } else { SLACK_ELSEWHERE });
        let (mut changes, mut bytes, mut seen) = (Changes::new(), 0, 0);
        // The shallow ones first: what a person wrote lies higher than what machines made.
        let mut folders = VecDeque::from([PathBuf::new()]);
        while let Some(folder) = folders.pop_front() {
            let enough = seen >= limits.entries || Instant::now() >= limits.until;
            if enough || folder.components().count() > DEPTH_MAX {
                changes.insert(folder, None);
                continue;
            }
            // What cannot be listed here cannot be listed by a tool either; what can be guessed of it can be read.
            let Ok(entries) = fs::read_dir(self.name().join(&folder)) else {
                changes.insert(folder, None);
                continue;
            };
            for entry in entries.flatten() {
                seen += 1;
                let path = folder.join(entry.file_name());
                // Gone meanwhile.
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    folders.push_back(path);
                } else if metadata.is_file() && changed_at(&metadata) >= since {
                    bytes += metadata.len();
                    let readable = bytes <= limits.bytes && metadata.len() <= READ_MAX_BYTES;
                    let content = readable.then(|| self.digest(&Place::Inside(path.clone())));
                    match content {
                        Some(Ok(None)) => {}
                        Some(Ok(Some(content))) => {
                            changes.insert(path, Some(content));
                        }
                        Some(Err(_)) | None => {
                            changes.insert(path, None);
                        }
                    }
                }
            }
        }
        within(changes, limits.answers)
    }
}

/// When a file was changed last, since 1970.
fn changed_at(metadata: &Metadata) -> Duration {
    let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
    Duration::new(seconds, u32::try_from(metadata.ctime_nsec()).unwrap_or(0))
}

/// At most so many answers: the deepest are told by the folders they lie in.
fn within(mut changes: Changes, most: usize) -> Changes {
    let depth = |path: &Path| path.components().count();
    let mut deepest = changes.keys().map(|path| depth(path)).max().unwrap_or(0);
    while changes.len() > most.max(1) && deepest > 0 {
        deepest -= 1;
        let deep: Vec<PathBuf> = changes.keys().filter(|path| depth(path) > deepest).cloned().collect();
        for path in deep {
            changes.remove(&path);
            changes.insert(path.components().take(deepest).collect(), None);
        }
    }
    let folders: BTreeSet<PathBuf> =
        changes.iter().filter(|(_, content)| content.is_none()).map(|(path, _)| path.clone()).collect();
    changes.retain(|path, _| !path.ancestors().skip(1).any(|above| folders.contains(above)));
    changes
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn limits() -> ChangeLimits {
        let until = Instant::now() + Duration::from_secs(60);
        ChangeLimits { entries: 10_000, bytes: 1 << 20, until, answers: 1_000 }
    }

    fn now() -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
    }

    fn write(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn found(folder: &Path, since: Duration, limits: &ChangeLimits) -> Vec<(String, bool)> {
        let changes = Root::open(folder).expect("opens").changed_since(since, limits);
        changes.into_iter().map(|(path, content)| (path.display().to_string(), content.is_some())).collect()
    }

    #[test]
    fn what_was_changed_is_found_wherever_it_lies_and_whatever_its_dates_say() {
        let folder = tempfile::tempdir().expect("a folder");
        let before = now();
        write(folder.path(), ".gitignore", "hidden\n");
        write(folder.path(), "hidden/.deep/x", "one");
        write(folder.path(), ".git/config", "two");
        let old = fs::File::options().write(true).open(folder.path().join("hidden/.deep/x")).expect("opens");
        old.set_modified(SystemTime::UNIX_EPOCH).expect("the date of the content can be set back");
        let all =
            [(".git/config", true), (".gitignore", true), ("hidden/.deep/x", true)].map(|(p, c)| (p.to_owned(), c));
        assert_eq!(found(folder.path(), before, &limits()), all);
        let root = Root::open(folder.path()).expect("opens");
        let changes = root.changed_since(before, &limits());
        assert_eq!(changes[Path::new(".git/config")], Some(Digest::of(b"two")));
        assert_eq!(found(folder.path(), now() + Duration::from_secs(60), &limits()), []);
    }

    /// A clone and a run right after it: the clone's files are not the run's.
    #[test]
    fn what_was_written_just_before_is_not_among_it() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "before", "one");
        std::thread::sleep(Duration::from_millis(100));
        let since = now();
        write(folder.path(), "after", "two");
        let found = found(folder.path(), since, &limits());
        assert!(found.contains(&("after".to_owned(), true)), "{found:?}");
        let magic = rustix::fs::statfs(folder.path()).expect("it has one").f_type;
        if u64::try_from(magic).is_ok_and(|magic| LOCAL.contains(&magic)) {
            assert_eq!(found.len(), 1, "{found:?}");
        }
    }

    #[test]
    fn links_are_not_followed() {
        let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
        write(other.path(), "secret", "x");
        std::os::unix::fs::symlink(other.path(), folder.path().join("link")).expect("linked");
        assert_eq!(found(folder.path(), Duration::ZERO, &limits()), []);
    }

    #[test]
    fn what_is_beyond_the_bounds_is_told_by_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        for number in 0..30 {
            write(folder.path(), &format!("a/b{}/{number}", number % 3), "x");
        }
        write(folder.path(), "top", "x");
        let few = ChangeLimits { answers: 10, ..limits() };
        let told =
            |told: &[(&str, bool)]| told.iter().map(|(path, file)| ((*path).to_owned(), *file)).collect::<Vec<_>>();
        let expected = told(&[("a/b0", false), ("a/b1", false), ("a/b2", false), ("top", true)]);
        assert_eq!(found(folder.path(), Duration::ZERO, &few), expected);
        let fewer = ChangeLimits { answers: 1, ..limits() };
        assert_eq!(found(folder.path(), Duration::ZERO, &fewer), told(&[("", false)]));
        let unseen = ChangeLimits { entries: 3, ..limits() };
        assert_eq!(found(folder.path(), Duration::ZERO, &unseen), expected);
        let unread = ChangeLimits { bytes: 0, answers: 1_000, ..limits() };
        assert!(found(folder.path(), Duration::ZERO, &unread).iter().all(|(_, content)| !content));
        let late = ChangeLimits { until: Instant::now(), ..limits() };
        assert_eq!(found(folder.path(), Duration::ZERO, &late), told(&[("", false)]));
    }
}
