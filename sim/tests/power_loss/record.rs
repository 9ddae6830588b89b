//! What a store does to its files, in order: the log from which every loss of power is played.
//!
//! A [`Watch`] records one folder. Names are relative to it, so that a log goes on in another folder after the death of a
//! process. The shared memory of SQLite (`-shm`) is left out: what is in it means nothing to another boot.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Which file, whatever it is called: numbered as they are made.
pub(crate) type Node = usize;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Folder,
    File(Node),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    /// Names that change together; None: the name is gone.
    Names(Vec<(PathBuf, Option<Target>)>),
    Write {
        node: Node,
        at: usize,
        bytes: Vec<u8>,
    },
    Resize {
        node: Node,
        length: usize,
    },
    Sync(Node),
    /// The names in this folder.
    SyncFolder(PathBuf),
}

impl Op {
    pub(crate) fn is_sync(&self) -> bool {
        match self {
            Op::Sync(_) | Op::SyncFolder(_) => true,
            Op::Names(_) | Op::Write { .. } | Op::Resize { .. } => false,
        }
    }
}

/// Files whose sync can be made a lie: answered, and not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Database,
    /// The write-ahead log, and the journal before it.
    Log,
    Blob,
    Folder,
}

fn kind(name: &Path) -> Kind {
    let text = name.to_string_lossy();
    if text.contains("blobs/") {
        Kind::Blob
    } else if text.ends_with("-wal") || text.ends_with("-journal") {
        Kind::Log
    } else {
        Kind::Database
    }
}

/// All watches of this process, and what its descriptors stand for.
pub(crate) struct Recorder {
    watches: Vec<Watched>,
    descriptors: BTreeMap<i32, Descriptor>,
}

struct Watched {
    root: PathBuf,
    names: BTreeMap<PathBuf, Target>,
    nodes: usize,
    log: Vec<Op>,
    lies: Option<Kind>,
    gate: Gate,
}

#[derive(Clone, PartialEq, Eq)]
struct Descriptor {
    watch: usize,
    name: PathBuf,
    target: Target,
}

/// Where a sync can be held up, so that what is asked for meanwhile comes as one group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
    /// Somebody waits there.
    Reached,
}

static RECORDER: Mutex<Recorder> = Mutex::new(Recorder { watches: Vec::new(), descriptors: BTreeMap::new() });
static GATE: Condvar = Condvar::new();

pub(crate) fn recorder() -> MutexGuard<'static, Recorder> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that is being recorded.
pub(crate) struct Watch(usize);

impl Watch {
    /// Records what happens in `root`, which is empty.
    pub(crate) fn new(root: &Path) -> Self {
        Self::resume(root, &[])
    }

    /// Records what happens in `root`, which holds what the log leads to.
    pub(crate) fn resume(root: &Path, log: &[Op]) -> Self {
        let mut watched = Watched {
            root: root.to_owned(),
            names: BTreeMap::new(),
            nodes: 0,
            log: Vec::new(),
            lies: None,
            gate: Gate::Open,
        };
        for op in log {
            watched.push(op.clone());
        }
        let mut recorder = recorder();
        recorder.watches.push(watched);
        Self(recorder.watches.len() - 1)
    }

    /// From now on syncs of such files are answered and not done.
    pub(crate) fn lie_about(&self, kind: Kind) {
        recorder().watches[self.0].lies = Some(kind);
    }

    /// How much has happened so far.
    pub(crate) fn position(&self) -> usize {
        recorder().watches[self.0].log.len()
    }

    pub(crate) fn log(&self) -> Vec<Op> {
        recorder().watches[self.0].log.clone()
    }

    /// The next sync waits until [`Watch::open_gate`].
    pub(crate) fn close_gate(&self) {
        recorder().watches[self.0].gate = Gate::Closed;
    }

    /// Returns once a sync waits.
    pub(crate) fn wait_at_gate(&self) {
        let mut recorder = recorder();
        while recorder.watches[self.0].gate != Gate::Reached {
            recorder = GATE.wait(recorder).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn open_gate(&self) {
        recorder().watches[self.0].gate = Gate::Open;
        GATE.notify_all();
    }
}

impl Watched {
    fn push(&mut self, op: Op) {
        if let Op::Names(changes) = &op {
            for (name, target) in changes {
                if let Some(Target::File(node)) = target {
                    self.nodes = self.nodes.max(node + 1);
                }
                match target {
                    Some(target) => self.names.insert(name.clone(), *target),
                    None => self.names.remove(name),
                };
            }
        }
        self.log.push(op);
    }
}

/// The calls, each after the kernel has done it.
impl Recorder {
    fn place(&self, path: &Path) -> Option<(usize, PathBuf)> {
        if path.to_string_lossy().ends_with("-shm") {
            return None;
        }
        let found = self.watches.iter().enumerate().rev();
        found.filter_map(|(watch, watched)| Some((watch, path.strip_prefix(&watched.root).ok()?.to_owned()))).next()
    }

    pub(crate) fn opened(&mut self, fd: i32, path: &Path, creates: bool, empties: bool) {
        self.descriptors.remove(&fd);
        let Some((watch, name)) = self.place(path) else { return };
        let watched = &mut self.watches[watch];
        let target = match watched.names.get(&name) {
            Some(target) => *target,
            None if name.as_os_str().is_empty() => Target::Folder,
            None if creates => {
                let target = Target::File(watched.nodes);
                watched.push(Op::Names(vec![(name.clone(), Some(target))]));
                target
            }
            None => return,
        };
        match target {
            Target::File(node) if empties => watched.push(Op::Resize { node, length: 0 }),
            Target::File(_) | Target::Folder => {}
        }
        self.descriptors.insert(fd, Descriptor { watch, name, target });
    }

    pub(crate) fn closed(&mut self, fd: i32) {
        self.descriptors.remove(&fd);
    }

    pub(crate) fn knows(&self, fd: i32) -> bool {
        self.descriptors.contains_key(&fd)
    }

    pub(crate) fn wrote(&mut self, fd: i32, at: usize, bytes: &[u8]) {
        if let Some(Descriptor { watch, target: Target::File(node), .. }) = self.descriptors.get(&fd) {
            self.watches[*watch].push(Op::Write { node: *node, at, bytes: bytes.to_vec() });
        }
    }

    pub(crate) fn resized(&mut self, fd: i32, length: usize) {
        if let Some(Descriptor { watch, target: Target::File(node), .. }) = self.descriptors.get(&fd) {
            self.watches[*watch].push(Op::Resize { node: *node, length });
        }
    }

    pub(crate) fn made_folder(&mut self, path: &Path) {
        self.named(&[(path, Some(Target::Folder))]);
    }

    pub(crate) fn removed(&mut self, path: &Path) {
        self.named(&[(path, None)]);
    }

    pub(crate) fn renamed(&mut self, from: &Path, to: &Path) {
        let target = self.target(from);
        self.named(&[(from, None), (to, target)]);
    }

    pub(crate) fn linked(&mut self, from: &Path, to: &Path) {
        let target = self.target(from);
        self.named(&[(to, target)]);
    }

    fn target(&self, path: &Path) -> Option<Target> {
        let (watch, name) = self.place(path)?;
        self.watches[watch].names.get(&name).copied()
    }

    fn named(&mut self, changes: &[(&Path, Option<Target>)]) {
        let mut changed = Vec::new();
        let mut of = None;
        for (path, target) in changes {
            let Some((watch, name)) = self.place(path) else { return };
            of = Some(watch);
            changed.push((name, *target));
        }
        if let Some(watch) = of {
            self.watches[watch].push(Op::Names(changed));
        }
    }
}

/// A sync; waits at the gate if that is closed.
pub(crate) fn sync(fd: i32) {
    let mut recorder = recorder();
    let Some(Descriptor { watch, name, target }) = recorder.descriptors.get(&fd).cloned() else { return };
    if recorder.watches[watch].gate == Gate::Closed {
        recorder.watches[watch].gate = Gate::Reached;
        GATE.notify_all();
        while recorder.watches[watch].gate == Gate::Reached {
            recorder = GATE.wait(recorder).unwrap_or_else(PoisonError::into_inner);
        }
    }
    let watched = &mut recorder.watches[watch];
    let (op, kind) = match target {
        Target::File(node) => (Op::Sync(node), kind(&name)),
        Target::Folder => (Op::SyncFolder(name), Kind::Folder),
    };
    if watched.lies != Some(kind) {
        watched.push(op);
    }
}
