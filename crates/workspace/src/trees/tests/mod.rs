//! A workspace, a store beside it, and a picture of every byte of the one.

mod going_back;
mod keeping;
mod random;
mod taking;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use longrein_core::ids::TreeId;
use tempfile::TempDir;

use super::*;

struct World {
    dir: TempDir,
    root: Root,
    store: TreeStore,
}

/// What is at a path: its mode, its bytes. Written so that a failed comparison can be read.
type Picture = BTreeMap<String, String>;

impl World {
    fn new() -> Self {
        Self::with(TreeSettings::default())
    }

    fn with(settings: TreeSettings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ws")).unwrap();
        let root = Root::open(&dir.path().join("ws")).unwrap();
        let store = TreeStore::open(&dir.path().join("home/trees"), settings).unwrap();
        Self { dir, root, store }
    }

    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join("ws").join(below)
    }

    fn bytes(&self, below: &[u8]) -> PathBuf {
        self.path(OsStr::from_bytes(below))
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn link(&self, target: &str, path: &str) {
        symlink(target, self.path(path)).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.symlink_metadata().unwrap().is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), Permissions::from_mode(mode)).unwrap();
    }

    fn take(&self) -> TreeId {
        self.store.snapshot(&self.root).unwrap().id
    }

    fn undo(&self, to: &TreeId, left: &TreeId) -> Result<Undone, TreesError> {
        self.store.undo(&self.root, to, left, None)
    }

    fn differences(&self, from: &TreeId, to: &TreeId) -> Vec<String> {
        let sign = |became| match became {
            Became::Added => '+',
            Became::Removed => '-',
            Became::Changed => '~',
        };
        let found = self.store.differences(from, to).unwrap();
        found.iter().map(|(path, became)| format!("{} {path}", sign(*became))).collect()
    }

    fn picture(&self) -> Picture {
        picture(&self.path(""))
    }

    /// Deletes what is known of files, as if this were the first look at them.
    fn forget(&self) {
        let caches = self.store.shelf.at("caches");
        for entry in fs::read_dir(caches).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
}

/// CPU time of this process, to 10 ms; `utime` and `stime` are fields 14 and 15.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let ticks = rest.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Everything below a folder, `.git` too.
fn picture(folder: &Path) -> Picture {
    fn add(path: &Path, name: String, picture: &mut Picture) {
        let metadata = path.symlink_metadata().unwrap();
        let mode = metadata.permissions().mode();
        if metadata.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                let below = node::below(name.as_bytes(), written(entry.file_name().as_bytes()).as_bytes());
                add(&entry.path(), String::from_utf8(below).unwrap(), picture);
            }
            picture.insert(name, format!("folder {mode:o}"));
        } else if metadata.is_symlink() {
            picture.insert(name, format!("link {:?}", fs::read_link(path).unwrap()));
        } else if metadata.is_file() {
            picture.insert(name, format!("file {mode:o} {}", written(&fs::read(path).unwrap())));
        } else {
            picture.insert(name, format!("special {mode:o}"));
        }
    }
    let mut picture = Picture::new();
    add(folder, String::new(), &mut picture);
    picture
}
