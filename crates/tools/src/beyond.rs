//! What a command of the shell was allowed outside the workspace, as paths to grant: each no wider than was allowed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use longrein_core::ruling::{Effect, EffectKind};

/// Programs that remove names and do nothing else with a folder they may write.
const REMOVERS: [&str; 4] = ["rm", "unlink", "rmdir", "mv"];

/// Where every command has something of its own.
const OWN: [&str; 4] = ["/dev", "/proc", "/tmp", "/var/tmp"];

/// A file that was made so that it could be granted. Removed with this if the command left it as it was.
#[derive(Debug)]
pub(crate) struct Made {
    path: PathBuf,
    inode: u64,
}

/// A path to be written. A file is granted by itself, and made if it is not there; the folder around it is nobody's.
pub(crate) fn written(path: &Path, made: &mut Vec<Made>) -> Option<PathBuf> {
    // a command that was given a folder before may have put a link there: what was allowed is its name and not its end
    if is_own(path) || path.is_symlink() {
        return None;
    }
    if path.exists() {
        return Some(path.to_owned());
    }
    if is_own(path.parent()?) {
        return None;
    }
    // fails where there is no folder to make it in
    let file = OpenOptions::new().write(true).create_new(true).open(path).ok()?;
    made.push(Made::of(path, &file)?);
    Some(path.to_owned())
}

/// The folder a name is to be removed from, where the command does nothing but remove.
pub(crate) fn emptied(path: &Path, effects: &[Effect]) -> Option<PathBuf> {
    let only_removes = effects.iter().all(|Effect { kind, what }| match kind {
        EffectKind::Run => what.split_whitespace().next().is_some_and(|program| REMOVERS.contains(&program)),
        EffectKind::Unknown => false,
        EffectKind::Read | EffectKind::Write | EffectKind::Delete | EffectKind::Network => true,
    });
    // that nothing is said of what it runs is no word on it
    let is_told = effects.iter().any(|effect| effect.kind == EffectKind::Run);
    let is_folder = |around: &&Path| around.parent().is_some() && around.is_dir() && !is_own(around);
    let around = path.parent().filter(is_folder)?;
    (only_removes && is_told).then(|| around.to_owned())
}

/// Whether a command was allowed to reach out for submodules, which is granted to a line that runs nothing else: their
/// repositories are made then.
pub(crate) fn adds_submodules(effects: &[Effect]) -> bool {
    let names = |effect: &Effect| effect.kind == EffectKind::Network && effect.what.starts_with("git submodule ");
    effects.iter().any(names)
}

fn is_own(path: &Path) -> bool {
    OWN.iter().any(|own| path == Path::new(own))
}

impl Made {
    /// Dated as no file is, to tell later whether it was touched.
    fn of(path: &Path, file: &File) -> Option<Self> {
        file.set_modified(SystemTime::UNIX_EPOCH).ok()?;
        Some(Self { path: path.to_owned(), inode: file.metadata().ok()?.ino() })
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let is_untouched = |found: &std::fs::Metadata| {
            found.is_file() && found.len() == 0 && found.ino() == self.inode && found.mtime() == 0
        };
        if self.path.symlink_metadata().is_ok_and(|found| is_untouched(&found)) {
            // what cannot be removed is an empty file
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
