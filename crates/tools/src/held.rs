//! The names git obeys that are not there yet, held by something empty of ours for as long as a run is driven: only what is
//! there can be mounted read-only. And a note of it outside every command's reach, for whoever comes after a kill.
//!
//! What holds a name is as good as nothing to git: an empty file or folder, and for `commondir` the folder itself. What
//! somebody has put in its place meanwhile is theirs and stays.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::planted::{There, take_away};
use crate::terrain::{OBEYED, OF_SUBMODULES};

/// For git the folder this stands in; nobody else writes it like this.
pub(crate) const ITSELF: &str = "././.\n";

/// Notes of earlier processes that are looked at; each is of one drive that was killed.
const NOTES_MAX: usize = 1_000;
const NOTE_MAX_BYTES: u64 = 4 << 20;

/// What walls make of the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Mounted read-only: no command makes them.
    Mounted,
    /// Only compared before and after.
    Watched,
}

/// Names that are held, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Ours, folders before what lies in them.
    made: Vec<PathBuf>,
    note: Option<(PathBuf, File)>,
}

/// What a later process has to know.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    workspace: PathBuf,
    run: String,
    /// Whether walls kept commands from making the names.
    is_mounted: bool,
    /// Those that were not there, or only as something empty.
    names: Vec<PathBuf>,
}

impl Held {
    /// `notes`: a folder that no command reaches.
    pub(crate) fn over(
        workspace: &Path,
        run: &str,
        repositories: &[PathBuf],
        hold: Hold,
        notes: Option<&Path>,
    ) -> Self {
        let wanted: Vec<PathBuf> = repositories.iter().flat_map(|folder| missing(folder)).collect();
        // first the note: a name without one would be nobody's
        let note = Note {
            workspace: workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned()),
            run: run.to_owned(),
            is_mounted: hold == Hold::Mounted,
            names: wanted.clone(),
        };
        let note = notes.and_then(|notes| note.write(notes).ok());
        let mut made = Vec::new();
        if hold == Hold::Mounted {
            wanted.iter().for_each(|path| make(path, &mut made));
        }
        Self { made, note }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // what is no longer empty is not ours any more, and a folder with something in it is not removed
        for path in self.made.iter().rev() {
            if There::at(path) == There::Empty {
                let _ = remove_empty(path);
            }
        }
        if let Some((path, _)) = &self.note {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Takes away what runs left in this workspace that were killed: what held names, and where nothing else did, what commands
/// made of them. A line each for people.
pub(crate) fn sweep(workspace: &Path, notes: &Path) -> Vec<String> {
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let mut left = Vec::new();
    let entries = notes.read_dir().into_iter().flatten().flatten().take(NOTES_MAX);
    for path in entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let Ok(file) = File::open(&path) else { continue };
        let Some(note) = Note::read(&file).filter(|note| note.workspace == workspace) else { continue };
        match file.try_lock() {
            Ok(()) => left.push((path, file, note)),
            // a run that goes on needs them; what an earlier one left waits until then
            Err(_) => return Vec::new(),
        }
    }
    let mut told = Vec::new();
    for (path, _file, note) in left {
        for name in &note.names {
            let is_in_place =
                name.parent().is_some_and(|around| around.canonicalize().is_ok_and(|real| real == around));
            if !is_in_place || !name.starts_with(&workspace) {
                continue;
            }
            match There::at(name) {
                There::Nothing => {}
                // only what git cannot take for an ordinary one has to go
                There::Empty if name.file_name().is_some_and(|name| name == "commondir") || note.is_mounted => {
                    let _ = remove_empty(name);
                }
                There::Empty => {}
                There::Something | There::Link(_) if note.is_mounted => {}
                There::Something | There::Link(_) => {
                    let shown = name.strip_prefix(&workspace).unwrap_or(name).display();
                    let kept = notes.join("quarantined");
                    let _ = std::fs::create_dir_all(&kept);
                    told.push(match take_away(name, Some(&kept)) {
                        Ok(()) => format!(
                            "{shown} was moved to {}: run {} was killed, and it was not there when its commands began; git \
                             would run or follow what it names",
                            kept.display(),
                            note.run
                        ),
                        Err(error) => format!(
                            "{shown} appeared while run {}, which was killed, had commands running, and could not be moved \
                             away ({error}): do not use git",
                            note.run
                        ),
                    });
                }
            }
        }
        let _ = std::fs::remove_file(path);
    }
    told
}

impl Note {
    /// Locked for as long as the file is open: so it is told whether whoever wrote it is alive.
    fn write(&self, notes: &Path) -> std::io::Result<(PathBuf, File)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        std::fs::create_dir_all(notes)?;
        let text = serde_json::to_string(self)?;
        let (path, mut file) = loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = notes.join(format!("{}-{number}.json", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        file.try_lock()?;
        file.write_all(text.as_bytes())?;
        Ok((path, file))
    }

    fn read(file: &File) -> Option<Self> {
        let is_ours = file.metadata().is_ok_and(|found| found.is_file() && found.len() <= NOTE_MAX_BYTES);
        is_ours.then(|| serde_json::from_reader(file).ok()).flatten()
    }
}

/// What git would obey in this folder and is not there. Behind a link nothing is made.
fn missing(folder: &Path) -> Vec<PathBuf> {
    let Ok(real) = folder.canonicalize() else { return Vec::new() };
    // the folder of another worktree: the rest is read in the repository that it is of
    let is_of_another = match std::fs::read(real.join("commondir")) {
        Ok(text) => text != ITSELF.as_bytes(),
        Err(_) => false,
    };
    let names = OBEYED.into_iter().chain([OF_SUBMODULES]);
    let names = names.filter(|name| match *name {
        "config.worktree" => true,
        // only another worktree has one
        "gitdir" => false,
        _ => !is_of_another,
    });
    let paths = names.map(|name| real.join(name));
    paths
        .filter(|path| match There::at(path) {
            There::Nothing => true,
            // left by one that was killed, whoever it was
            There::Empty => path.file_name().is_some_and(|name| name == "commondir"),
            There::Something | There::Link(_) => false,
        })
        .collect()
}

/// Makes something empty, and the folders on the way. What cannot be made here, the sweep after each command looks for.
fn make(path: &Path, made: &mut Vec<PathBuf>) {
    let Some((around, name)) = path.parent().zip(path.file_name()) else { return };
    if around.symlink_metadata().is_err() && around.parent().is_some_and(|above| above.is_dir()) {
        if std::fs::create_dir(around).is_err() {
            return;
        }
        made.push(around.to_owned());
    }
    if !around.canonicalize().is_ok_and(|real| real == around) {
        return;
    }
    let is_made = match name.to_str() {
        Some("hooks" | OF_SUBMODULES) => std::fs::create_dir(path),
        name => OpenOptions::new().write(true).create_new(true).open(path).and_then(|mut file| match name {
            Some("commondir") => file.write_all(ITSELF.as_bytes()),
            Some(_) | None => Ok(()),
        }),
    };
    if is_made.is_ok() || There::at(path) == There::Empty && name == "commondir" {
        made.push(path.to_owned());
    }
}

fn remove_empty(path: &Path) -> std::io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => std::fs::remove_dir(path),
        false => std::fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(folder: &Path) -> PathBuf {
        let git = folder.join(".git");
        std::fs::create_dir_all(git.join("objects")).unwrap();
        std::fs::write(git.join("config"), "[core]\n").unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        git.canonicalize().unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn names_are_held_and_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let git = repository(folder.path());
        let notes = folder.path().join("notes");
        let held = Held::over(folder.path(), "r1", std::slice::from_ref(&git), Hold::Mounted, Some(&notes));
        assert_eq!(
            names(&git),
            ["HEAD", "commondir", "config", "config.worktree", "hooks", "info", "modules", "objects"]
        );
        assert_eq!(
            (names(&git.join("info")), names(&git.join("objects"))),
            (vec!["attributes".to_owned()], vec!["info".to_owned()])
        );
        assert_eq!(names(&notes).len(), 1);
        // somebody's own meanwhile
        std::fs::write(git.join("config.worktree"), "[user]\n").unwrap();
        // a second look while the first goes on takes nothing away
        assert!(sweep(folder.path(), &notes).is_empty() && git.join("commondir").exists());
        drop(held);
        assert_eq!(names(&git), ["HEAD", "config", "config.worktree", "objects"]);
        assert!(names(&git.join("objects")).is_empty() && names(&notes).is_empty());
    }

    #[test]
    fn what_a_killed_run_left_is_swept_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let git = repository(folder.path());
        let notes = folder.path().join("notes");
        for (hold, stays) in [(Hold::Mounted, true), (Hold::Watched, false)] {
            let mut held = Held::over(folder.path(), "r1", std::slice::from_ref(&git), hold, Some(&notes));
            // a kill: the lock is gone, and everything else is not
            held.made.clear();
            drop(held.note.take().map(|(_, file)| file));
            std::fs::create_dir_all(git.join("hooks")).unwrap();
            std::fs::write(git.join("hooks/post-checkout"), "x").unwrap();
            let told = sweep(folder.path(), &notes);
            assert_eq!(git.join("hooks/post-checkout").exists(), stays, "{hold:?}");
            assert_eq!(
                told.iter().filter(|line| line.starts_with(".git/hooks was moved to")).count(),
                usize::from(!stays)
            );
            assert!(!git.join("commondir").exists(), "{hold:?}");
            assert!(names(&notes).iter().all(|name| name == "quarantined"), "{hold:?}");
            let _ = std::fs::remove_dir_all(git.join("hooks"));
        }
        assert_eq!(names(&notes.join("quarantined")).len(), 1);
    }
}
