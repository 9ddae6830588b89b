//! What stays the same from one command to the next: the view of the file system, and the steps that lay it out.
//!
//! To work it out takes some hundred looks at the file system. What it came to is kept, with every name that was looked at
//! on the way and what lay there; as long as each of them is what it was, so is the view. A name that was not there and is
//! now (a file of secrets that somebody makes), a link that leads elsewhere, a folder in another's place: then it is worked
//! out anew.
//!
//! A folder that was not changed itself has the names it had, each of its kind: so one look at the folder stands for looks
//! at all names in it, where its file system keeps the time of a folder's last change and that time lies far enough back.
//!
//! Read [`of`].

use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::confine::{Confined, Network};
use crate::laid::{Identity, Slot};
use crate::layout::Layout;
use crate::plan::{Grab, Laying};
use crate::toolchain;
use crate::view::{self, View};

/// A view, and how it is laid out.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) view: View,
    pub(crate) grabs: Vec<Grab>,
    pub(crate) steps: Vec<Laying>,
    /// What of it is done for each command by itself, where the rest was done before, in `laid`.
    pub(crate) own: Vec<Laying>,
    /// Paths of the view on which rules grant more than to read, and how they lie.
    pub(crate) rules: Vec<(CString, u64)>,
    pub(crate) laid: Slot,
}

/// One for each kind of command that a run has, and a few runs.
const KEPT_MAX: usize = 16;

/// The last one used comes last.
static KEPT: Mutex<VecDeque<Kept>> = Mutex::new(VecDeque::new());

struct Kept {
    confined: Confined,
    env: Vec<(String, String)>,
    names: Vec<Names>,
    drawn: Arc<Drawn>,
}

/// What a command like this sees now.
pub(crate) fn of(confined: &Confined, env: &[(String, String)]) -> io::Result<Arc<Drawn>> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let is_like = |kept: &Kept| {
        let env = env.iter().filter(|(name, _)| toolchain::names_folders(name));
        is_like(&kept.confined, confined) && kept.env.iter().eq(env)
    };
    if let Some(mut known) = kept.iter().position(is_like).and_then(|at| kept.remove(at)) {
        let found = known.names.iter_mut().map(Names::look_again).max();
        if found != Some(Found::Other) {
            if found == Some(Found::Replaced) || !known.is_what_was_laid() {
                known.drawn.laid.forget();
            }
            let drawn = Arc::clone(&known.drawn);
            kept.push_back(known);
            return Ok(drawn);
        }
    }
    drop(kept);
    let before = Stamps::of(confined, env);
    let view = View::of(confined, env)?;
    let drawn = Arc::new(Layout::of(confined, view)?);
    // what changed meanwhile was seen as it was before or as it is after: the next command looks for itself
    if let Some(before) = before
        && Stamps::of(confined, env).is_some_and(|after| after.0 == before.0)
    {
        let confined = Confined { network: Network::Off, ..confined.clone() };
        let env = env.iter().filter(|(name, _)| toolchain::names_folders(name)).cloned().collect();
        let names = before.by_folder();
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(Kept { confined, env, names, drawn: Arc::clone(&drawn) });
    }
    Ok(drawn)
}

impl Kept {
    /// Whether all that was laid out lies where it was taken from.
    fn is_what_was_laid(&self) -> bool {
        self.drawn.laid.is_of(|source| {
            let names = self.names.iter().find(|names| source.parent() == Some(&names.folder))?;
            let (_, sight) = names.sights.iter().find(|(path, _)| path == source)?;
            sight.identity()
        })
    }
}

/// To be called where walls could not be put up: what was kept may be the reason.
pub(crate) fn forget() {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Whether two commands see the same: whom they may talk to is not to be seen.
fn is_like(one: &Confined, other: &Confined) -> bool {
    let Confined { way, writes, reads, read_only, sealed, hidden, scratch, network: _, limits } = one;
    *way == other.way
        && *writes == other.writes
        && *reads == other.reads
        && *read_only == other.read_only
        && *sealed == other.sealed
        && *hidden == other.hidden
        && *scratch == other.scratch
        && *limits == other.limits
}

/// Names in one folder, and what lay there.
struct Names {
    folder: PathBuf,
    /// The folder as it was before the names were last looked at, if it would show that one of them changed.
    unchanged: Option<FolderStamp>,
    sights: Vec<(PathBuf, Sight)>,
}

impl Names {
    fn look_again(&mut self) -> Found {
        let now = FolderStamp::of(&self.folder);
        if now.is_some() && now == self.unchanged {
            return Found::Same;
        }
        self.unchanged = now.filter(|now| now.is_telling(&self.folder));
        let mut found = Found::Same;
        for (path, sight) in &mut self.sights {
            let Some((now, _)) = Sight::at(path) else { return Found::Other };
            found = found.max(sight.compared(now));
            *sight = now;
        }
        found
    }
}

/// What lies at names that were looked at before, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Same,
    /// Another file or folder in one's place: it looks the same.
    Replaced,
    Other,
}

/// A folder with the times of its last change: whoever makes, removes or replaces a name in it sets them, and cannot set
/// both back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FolderStamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Two changes within a tick of the kernel's clock have one time.
const TELLING_AFTER: Duration = Duration::from_secs(2);

/// File systems of this machine, whose folders have the time of their last change: ext4, XFS, Btrfs, F2FS, tmpfs and overlays
/// of them (`linux/magic.h`). Others may have another machine's clock, or none.
const TIMED: [u32; 6] = [0x0000_EF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994, 0x794C_7630];

impl FolderStamp {
    /// None: no folder is there.
    fn of(folder: &Path) -> Option<Self> {
        let found = folder.symlink_metadata().ok().filter(Metadata::is_dir)?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whether a change from now on would show in it.
    fn is_telling(&self, folder: &Path) -> bool {
        let changed = Duration::from_secs(u64::try_from(self.changed.0.max(self.modified.0)).unwrap_or(0));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // the seconds of the change are cut off
        let is_settled = changed + TELLING_AFTER + Duration::from_secs(1) < now;
        let is_timed = || {
            rustix::fs::statfs(folder).is_ok_and(|stat| TIMED.contains(&((stat.f_type as i128 & 0xFFFF_FFFF) as u32)))
        };
        is_settled && is_timed()
    }
}

/// What lay at a name: all that a view depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Nothing,
    Folder(Identity),
    File(Identity),
    /// Links are never changed, but replaced.
    Link {
        identity: Identity,
        changed: (i64, i64),
    },
}

impl Sight {
    fn compared(self, now: Self) -> Found {
        match (self, now) {
            _ if self == now => Found::Same,
            (Self::Folder(_), Self::Folder(_)) | (Self::File(_), Self::File(_)) => Found::Replaced,
            (Self::Nothing | Self::Folder(_) | Self::File(_) | Self::Link { .. }, _) => Found::Other,
        }
    }

    fn identity(self) -> Option<Identity> {
        match self {
            Self::Folder(identity) | Self::File(identity) => Some(identity),
            Self::Nothing | Self::Link { .. } => None,
        }
    }

    /// With its last change. None: it cannot be told.
    fn at(path: &Path) -> Option<(Self, Option<Stamp>)> {
        match path.symlink_metadata() {
            Ok(found) => {
                let stamp = Stamp::of(&found);
                let sight = if found.is_dir() {
                    Self::Folder(stamp.identity)
                } else if found.is_symlink() {
                    Self::Link { identity: stamp.identity, changed: stamp.changed }
                } else {
                    Self::File(stamp.identity)
                };
                Some((sight, Some(stamp)))
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Some((Self::Nothing, None))
            }
            Err(_) => None,
        }
    }
}

/// Tells two things apart that lay at one name one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    identity: Identity,
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        // what is in a folder changes all the time, and is looked at by itself
        let changed = if found.is_dir() { (0, 0) } else { (found.ctime(), found.ctime_nsec()) };
        Self { identity: Identity { device: found.dev(), inode: found.ino() }, changed }
    }
}

/// Every name that leads to what a view shows or hides, as it is now.
struct Stamps(BTreeMap<PathBuf, (Sight, Option<Stamp>)>);

/// As many links as the kernel follows.
pub(crate) const LINKS_MAX: usize = 40;

impl Stamps {
    /// None: something on the way cannot be looked at.
    fn of(confined: &Confined, env: &[(String, String)]) -> Option<Self> {
        let mut stamps = Self(BTreeMap::new());
        for path in view::looked_at(confined, env) {
            stamps.follow(&path)?;
        }
        Some(stamps)
    }

    fn by_folder(self) -> Vec<Names> {
        let mut names: BTreeMap<PathBuf, Vec<(PathBuf, Sight)>> = BTreeMap::new();
        for (path, (sight, _)) in self.0 {
            let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
            names.entry(folder).or_default().push((path, sight));
        }
        names.into_iter().map(|(folder, sights)| Names { folder, unchanged: None, sights }).collect()
    }

    fn follow(&mut self, path: &Path) -> Option<()> {
        let mut links = 0;
        let mut at = PathBuf::from("/");
        let mut way: Vec<PathBuf> = parts(path);
        while let Some(part) = way.pop() {
            if part == Path::new("/") {
                at = part;
                continue;
            }
            if part == Path::new("..") {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            let (sight, _) = match self.0.get(&next) {
                Some(known) => *known,
                None => {
                    let found = Sight::at(&next)?;
                    self.0.insert(next.clone(), found);
                    found
                }
            };
            match sight {
                Sight::Folder(_) => at = next,
                Sight::Nothing | Sight::File(_) => return Some(()),
                Sight::Link { .. } => {
                    links += 1;
                    if links > LINKS_MAX {
                        return None;
                    }
                    way.extend(parts(&next.read_link().ok()?));
                }
            }
        }
        Some(())
    }
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let part = |part: Component<'_>| match part {
        Component::CurDir => None,
        Component::Prefix(_) | Component::RootDir | Component::ParentDir | Component::Normal(_) => {
            Some(PathBuf::from(part.as_os_str()))
        }
    };
    path.components().rev().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine::Way;
    use crate::view::Kind;
    use std::os::unix::fs::symlink;

    struct Place {
        folder: tempfile::TempDir,
        confined: Confined,
        env: Vec<(String, String)>,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().canonicalize().unwrap();
            for path in ["work/sub", "other", "home"] {
                std::fs::create_dir_all(root.join(path)).unwrap();
            }
            symlink(root.join("work"), root.join("link")).unwrap();
            let mut confined = Confined::new(Way::UserNamespace);
            confined.writes = vec![root.join("link")];
            confined.hidden = vec![root.join("work/.env"), root.join("work/sub/.env")];
            let env = vec![("HOME".to_owned(), root.join("work").display().to_string())];
            Self { folder, confined, env }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.folder.path().canonicalize().unwrap().join(path)
        }

        fn drawn(&self) -> Arc<Drawn> {
            of(&self.confined, &self.env).unwrap()
        }

        fn kind(&self, path: &str) -> Option<Kind> {
            self.drawn().view.places.get(&self.at(path)).cloned()
        }
    }

    #[test]
    fn a_view_is_kept_while_nothing_on_its_ways_changes() {
        let mut place = Place::new();
        let first = place.drawn();
        std::fs::write(place.at("work/notes"), "x").unwrap();
        std::fs::create_dir(place.at("elsewhere")).unwrap();
        assert!(Arc::ptr_eq(&first, &place.drawn()));
        place.confined.network = Network::Open;
        place.env.push(("EDITOR".to_owned(), "ed".to_owned()));
        assert!(Arc::ptr_eq(&first, &place.drawn()), "neither is to be seen");
        place.confined.hidden.pop();
        assert!(!Arc::ptr_eq(&first, &place.drawn()));
        place.env.push(("CARGO_HOME".to_owned(), place.at("other").display().to_string()));
        assert!(place.kind("other").is_some());
    }

    #[test]
    fn what_appears_is_hidden_at_once() {
        let place = Place::new();
        for secret in ["work/.env", "work/sub/.env", "work/.netrc", "work/.aws"] {
            assert_eq!(place.kind(secret), None, "{secret}");
            std::fs::write(place.at(secret), "key").unwrap();
            assert!(matches!(place.kind(secret), Some(Kind::Hide { .. })), "{secret}");
            std::fs::remove_file(place.at(secret)).unwrap();
            assert_eq!(place.kind(secret), None, "{secret}");
            symlink(place.at("work/sub"), place.at(secret)).unwrap();
            assert!(matches!(place.kind("work/sub"), Some(Kind::Hide { .. })), "{secret}");
            std::fs::remove_file(place.at(secret)).unwrap();
        }
        std::fs::create_dir(place.at("work/.config")).unwrap();
        assert_eq!(place.kind("work/.config/gh"), None);
        std::fs::create_dir(place.at("work/.config/gh")).unwrap();
        assert!(matches!(place.kind("work/.config/gh"), Some(Kind::Hide { .. })));
    }

    /// The same once one look at a folder stands for looks at its names.
    #[test]
    fn what_appears_in_a_folder_that_lay_still_is_hidden_at_once() {
        let place = Place::new();
        std::fs::create_dir(place.at("work/.config")).unwrap();
        std::thread::sleep(TELLING_AFTER + Duration::from_millis(1_100));
        let first = place.drawn();
        assert!(Arc::ptr_eq(&first, &place.drawn()), "its folders are looked at");
        assert!(Arc::ptr_eq(&first, &place.drawn()), "and now stand for what is in them");
        let folders = |place: &Place| -> Vec<PathBuf> {
            let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
            let ours = kept.iter().find(|kept| is_like(&kept.confined, &place.confined)).map(|kept| {
                kept.names.iter().filter(|names| names.unchanged.is_some()).map(|names| names.folder.clone()).collect()
            });
            ours.unwrap_or_default()
        };
        let is_timed = FolderStamp::of(&place.at("work")).is_some_and(|stamp| stamp.is_telling(&place.at("work")));
        assert_eq!(folders(&place).contains(&place.at("work")), is_timed);
        for secret in ["work/.env", "work/sub/.env", "work/.config/gh"] {
            assert_eq!(place.kind(secret), None, "{secret}");
            std::fs::write(place.at(secret), "key").unwrap();
            // times that are set back tell nothing
            let folder = place.at(secret).parent().unwrap().to_owned();
            std::fs::File::open(&folder).unwrap().set_modified(UNIX_EPOCH).unwrap();
            assert!(matches!(place.kind(secret), Some(Kind::Hide { .. })), "{secret}");
            std::fs::remove_file(place.at(secret)).unwrap();
            assert_eq!(place.kind(secret), None, "{secret}");
        }
        std::fs::rename(place.at("work"), place.at("was")).unwrap();
        std::fs::create_dir(place.at("work")).unwrap();
        std::fs::write(place.at("work/.env"), "key").unwrap();
        assert!(matches!(place.kind("work/.env"), Some(Kind::Hide { .. })), "another folder in its place");
    }

    #[test]
    fn a_link_that_leads_elsewhere_is_followed_anew() {
        let place = Place::new();
        assert!(matches!(place.kind("work"), Some(Kind::Write { .. })));
        std::fs::remove_file(place.at("link")).unwrap();
        symlink(place.at("other"), place.at("link")).unwrap();
        assert!(matches!(place.kind("other"), Some(Kind::Write { .. })));
        assert!(!matches!(place.kind("work"), Some(Kind::Write { .. })));
        std::fs::remove_file(place.at("link")).unwrap();
        of(&place.confined, &place.env).unwrap_err();
    }
}
