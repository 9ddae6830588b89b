//! The file tools together: which file a call is about, the call itself, and what became of a lost one.
//!
//! Everything here that touches a disk runs on a thread of its own, so that a slow one holds up nobody else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use longrein_core::ids::Digest;
use longrein_core::outcome::{ProbeAnswer, ToolError, class};
use longrein_core::payload::Payload;
use longrein_core::target::{self, Target};
use longrein_core::task::{Builtin, Task};
use longrein_workspace::{Error, Found, Located, Place, READ_MAX_BYTES, Root};
use serde::Deserialize;
use serde_json::Value;

use super::change::{self, Change, Present};
use super::{edit_file, list_files, read_file, search_files, told, write_file};

/// What one result may take, as JSON: less than what is kept in an event and shown whole, and room for what stands around
/// it.
pub(crate) const RESULT_MAX_BYTES: usize = longrein_core::payload::INLINE_MAX_BYTES - 4 * 1024;

/// The file tools among the built-in ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileTool {
    Read,
    List,
    Search,
    Change(ChangeTool),
}

/// Those that write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeTool {
    Write,
    Edit,
}

impl FileTool {
    pub(crate) fn of(builtin: Builtin) -> Option<Self> {
        match builtin {
            Builtin::ReadFile => Some(FileTool::Read),
            Builtin::WriteFile => Some(FileTool::Change(ChangeTool::Write)),
            Builtin::EditFile => Some(FileTool::Change(ChangeTool::Edit)),
            Builtin::ListFiles => Some(FileTool::List),
            Builtin::SearchFiles => Some(FileTool::Search),
            Builtin::Shell | Builtin::Ask | Builtin::Recall | Builtin::Note | Builtin::WebFetch => None,
        }
    }
}

/// The workspace of one run, opened by the first call and held from then on: a folder that takes its name later is another
/// folder.
#[derive(Debug)]
pub(crate) struct Files {
    /// Its name, as the task has it.
    workspace: PathBuf,
    root: OnceLock<Arc<Root>>,
    /// Held while a file is checked and replaced: holds go by the path as written, and one file can be written in two ways.
    writing: Arc<Mutex<()>>,
}

#[derive(Deserialize)]
struct Named {
    path: String,
}

impl Files {
    pub(crate) fn of(task: &Task) -> Self {
        Self { workspace: PathBuf::from(&task.workspace), root: OnceLock::new(), writing: Arc::default() }
    }

    /// A path in the workspace is written relative to it or absolute: in one way for its hold.
    pub(crate) fn spelling(&self, path: String) -> String {
        match Path::new(&path).strip_prefix(&self.workspace).ok().and_then(Path::to_str) {
            Some("") => ".".to_owned(),
            Some(relative) => relative.to_owned(),
            None => path,
        }
    }

    fn root(&self) -> Result<Arc<Root>, ToolError> {
        if let Some(root) = self.root.get() {
            return Ok(Arc::clone(root));
        }
        let root = Root::open(&self.workspace).map_err(|error| {
            ToolError::new(class::INTERNAL, format!("The workspace cannot be opened: {error}."))
                .hint("File tools do not work in this run; say so.")
        })?;
        Ok(Arc::clone(self.root.get_or_init(|| Arc::new(root))))
    }

    /// What exactly a call is about. A change that cannot be made is refused here, before anyone is asked.
    pub(crate) async fn target(
        &self,
        tool: FileTool,
        args: &Payload,
        seen: &BTreeMap<String, Digest>,
    ) -> Result<Target, ToolError> {
        let root = self.root()?;
        let written: String = read::<Named>(args)?.path;
        let located = {
            let root = Arc::clone(&root);
            apart(move || root.locate(&written).map_err(|error| told::path(&error))).await?
        };
        let (path, lies) = name(&located.place)?;
        let seen = seen.get(&path).cloned();
        let args = args.clone();
        let (before, after) = apart(move || match tool {
            FileTool::Read => Ok((digest(&root, &located), None)),
            FileTool::List | FileTool::Search => Ok((None, None)),
            FileTool::Change(tool) => {
                let present = change::present(&root, &located.place)?;
                change::known(present.as_ref(), &located.place, seen.as_ref())?;
                let change = plan(&root, tool, &args, &located.place, present)?;
                let after = change.after();
                Ok((change.before, Some(after)))
            }
        })
        .await?;
        Ok(Target { path, place: lies, before, after })
    }

    /// A call, on the target that was ruled on. Its result, or what the model is told instead.
    pub(crate) async fn run(
        &self,
        tool: FileTool,
        args: &Payload,
        target: Option<&Target>,
        timeout: Duration,
    ) -> Result<Value, ToolError> {
        let root = self.root()?;
        let target = target
            .cloned()
            .ok_or_else(|| ToolError::new(class::INTERNAL, "It was not worked out which file this call is about."))?;
        let args = args.clone();
        let writing = Arc::clone(&self.writing);
        // lives as long as somebody waits for this call
        let waiting = Arc::new(());
        let waited_for = Arc::downgrade(&waiting);
        let work = apart(move || {
            let place = place(&target);
            match tool {
                FileTool::Read => read_file::run(&root, &place, &read(&args)?),
                FileTool::List => list_files::run(&root, &place, &read(&args)?),
                FileTool::Search => search_files::run(&root, &place, &read(&args)?),
                FileTool::Change(tool) => {
                    let _one_at_a_time = writing.lock().unwrap_or_else(PoisonError::into_inner);
                    let present = change::present(&root, &place)?;
                    change::as_ruled(present.as_ref(), &place, target.before.as_ref())?;
                    let change = plan(&root, tool, &args, &place, present)?;
                    if waited_for.strong_count() == 0 {
                        return Err(ToolError::new(class::CANCELLED, "Given up before it changed anything."));
                    }
                    change::make(&root, &target, change)
                }
            }
        });
        let answer = tokio::time::timeout(timeout, work).await;
        drop(waiting);
        match answer {
            Ok(done) => done,
            Err(_) => {
                let (class, hint) = match tool {
                    FileTool::Read | FileTool::List | FileTool::Search => (class::TIMEOUT, "Ask for less."),
                    FileTool::Change(_) => (class::UNKNOWN_OUTCOME, "Read the file to see whether it was written."),
                };
                Err(ToolError::new(class, format!("The disk did not answer within {timeout:?}.")).cut().hint(hint))
            }
        }
    }

    pub(crate) async fn probe(&self, target: &Target) -> ProbeAnswer {
        let root = match self.root() {
            Ok(root) => root,
            Err(error) => return ProbeAnswer::NoAnswer(error.message),
        };
        let target = target.clone();
        let answer = apart(move || Ok(change::probe(&root, &target))).await;
        answer.unwrap_or_else(|error| ProbeAnswer::NoAnswer(error.message))
    }
}

fn plan(
    root: &Root,
    tool: ChangeTool,
    args: &Payload,
    place: &Place,
    present: Option<Present>,
) -> Result<Change, ToolError> {
    match tool {
        ChangeTool::Write => write_file::plan(place, present, &read(args)?),
        ChangeTool::Edit => edit_file::plan(root, place, present, &read(args)?),
    }
}

/// Of what a read would see. What cannot be read is told by the call itself: until then it may appear.
fn digest(root: &Root, located: &Located) -> Option<Digest> {
    match located.found {
        Found::File { bytes } if bytes <= READ_MAX_BYTES => root.digest(&located.place).ok().flatten(),
        Found::File { .. } | Found::Folder | Found::Special(_) | Found::Nothing => None,
    }
}

/// As it is journaled and ruled on.
fn name(place: &Place) -> Result<(String, target::Place), ToolError> {
    let path = place.path().to_str().ok_or_else(|| told::not_utf8(place))?;
    Ok(match place {
        Place::Inside(_) if path.is_empty() => (".".to_owned(), target::Place::Inside),
        Place::Inside(_) => (path.to_owned(), target::Place::Inside),
        Place::Outside(_) => (path.to_owned(), target::Place::Outside),
    })
}

pub(crate) fn place(target: &Target) -> Place {
    match target.place {
        target::Place::Inside if target.path == "." => Place::Inside(PathBuf::new()),
        target::Place::Inside => Place::Inside(PathBuf::from(&target.path)),
        target::Place::Outside => Place::Outside(PathBuf::from(&target.path)),
    }
}

/// Arguments that passed the schema.
fn read<'a, T: Deserialize<'a>>(args: &'a Payload) -> Result<T, ToolError> {
    args.read().map_err(|error| ToolError::new(class::INVALID_ARGUMENTS, format!("The arguments do not fit: {error}.")))
}

/// What is there now, for tools that take files and folders.
pub(crate) fn look(root: &Root, place: &Place) -> Result<Found, ToolError> {
    // a canonical name leads to itself, unless somebody put a link there since
    let written = place.path().to_str().ok_or_else(|| told::not_utf8(place))?;
    let located = root.locate(if written.is_empty() { "." } else { written }).map_err(|error| told::path(&error))?;
    if located.place != *place {
        return Err(told::path(&Error::Moved { path: place.to_string() }));
    }
    match located.found {
        Found::Nothing => Err(told::missing(root, place)),
        found @ (Found::File { .. } | Found::Folder | Found::Special(_)) => Ok(found),
    }
}

async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(broken) => {
            let message = format!("This is a fault of Longrein, not of the call: {broken}.");
            Err(ToolError::new(class::UNKNOWN_OUTCOME, message).hint("Look at the file before you go on."))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_was_given_up_while_it_waited_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { workspace: dir.path().to_owned(), root: OnceLock::new(), writing: Arc::default() };
        let args = Payload::parse(r#"{"content":"late","path":"f"}"#).unwrap();
        let tool = FileTool::Change(ChangeTool::Write);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let target = runtime.block_on(files.target(tool, &args, &BTreeMap::new())).unwrap();
        let other_write = files.writing.lock().unwrap();
        let patience = Duration::from_secs(60);
        let given_up = runtime.block_on(async {
            let call = files.run(tool, &args, Some(&target), patience);
            tokio::time::timeout(Duration::from_millis(100), call).await
        });
        assert!(given_up.is_err());
        drop(other_write);
        // waits for the thread that was waiting
        drop(runtime);
        assert!(!dir.path().join("f").exists());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(files.run(tool, &args, Some(&target), patience)).unwrap();
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"late");
    }
}
