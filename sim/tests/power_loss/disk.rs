//! What is left on a disk when power goes: everything synced, and of the rest whatever it happened to have written.
//!
//! The model is that of a page cache over a disk that writes sectors whole: since its last sync, every sector of a file,
//! the file's length and every name in a folder may be found as they were at any moment, each for itself. Nothing else is
//! promised, least of all order; a file's sync does not bring its name along.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use longrein_sim::chance::Chance;

use crate::record::{Node, Op, Target};

/// As of which moment since the last sync something is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// What was synced, nothing after it.
    Oldest,
    Newest,
    /// Drawn for each.
    Any,
    /// What changed last is there and what changed before is not: the disk wrote backwards.
    LastFirst,
}

/// What becomes of everything that was not synced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fate {
    pub(crate) names: Moment,
    pub(crate) lengths: Moment,
    pub(crate) bytes: Moment,
    /// Bytes that the disk writes whole.
    pub(crate) sector: usize,
    /// Decides whatever is drawn.
    pub(crate) seed: u64,
}

impl Fate {
    /// No loss of power at all: what the death of the process leaves.
    pub(crate) const KEPT: Fate = Fate::all(Moment::Newest, 512, 0);
    pub(crate) const DROPPED: Fate = Fate::all(Moment::Oldest, 512, 0);

    const fn all(moment: Moment, sector: usize, seed: u64) -> Fate {
        Fate { names: moment, lengths: moment, bytes: moment, sector, seed }
    }

    /// Everything lost; names without bytes, bytes without names, lengths without either; the rest torn.
    pub(crate) fn cases(seed: u64) -> Vec<Fate> {
        use Moment::{Any, LastFirst, Newest, Oldest};
        vec![
            Fate::DROPPED,
            Fate { names: Newest, ..Fate::DROPPED },
            Fate { names: Newest, lengths: Newest, ..Fate::DROPPED },
            Fate { names: Oldest, ..Fate::KEPT },
            Fate { names: Newest, ..Fate::all(LastFirst, 512, seed) },
            Fate::all(LastFirst, 4096, seed),
            Fate::all(Any, 512, seed),
            Fate::all(Any, 4096, seed),
            Fate { names: Newest, lengths: Newest, ..Fate::all(Any, 512, seed) },
            Fate { names: Newest, lengths: Newest, ..Fate::all(Any, 4096, seed) },
        ]
    }
}

/// Something that changes: what was synced, then each later value with its moment.
#[derive(Debug, Clone)]
struct Versions<T>(Vec<(usize, T)>);

impl<T: Clone> Versions<T> {
    fn new(synced: T) -> Self {
        Self(vec![(0, synced)])
    }

    fn push(&mut self, moment: usize, value: T) {
        self.0.push((moment, value));
    }

    fn sync(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }

    fn is_synced(&self) -> bool {
        self.0.len() == 1
    }

    /// `cutoff`: what changed after it is what [`Moment::LastFirst`] keeps.
    fn as_of(&self, moment: Moment, cutoff: usize, chance: &mut Chance) -> &T {
        let (last, newest) = self.0.last().expect("the synced one is always there");
        match moment {
            Moment::Oldest => &self.0[0].1,
            Moment::Newest => newest,
            Moment::Any => &chance.pick(&self.0).1,
            Moment::LastFirst if *last >= cutoff => newest,
            Moment::LastFirst => &self.0[0].1,
        }
    }
}

/// The files of a log up to a moment.
#[derive(Default, Clone)]
pub(crate) struct Disk {
    moment: usize,
    names: BTreeMap<PathBuf, Versions<Option<Target>>>,
    files: BTreeMap<Node, File>,
}

#[derive(Default, Clone)]
struct File {
    synced: Vec<u8>,
    pending: Vec<(usize, Change)>,
}

#[derive(Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Resize(usize),
}

impl Disk {
    pub(crate) fn of(log: &[Op]) -> Self {
        let mut disk = Self::default();
        log.iter().for_each(|op| disk.apply(op));
        disk
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        self.moment += 1;
        match op {
            Op::Names(changes) => {
                for (name, target) in changes {
                    let versions = self.names.entry(name.clone()).or_insert_with(|| Versions::new(None));
                    versions.push(self.moment, *target);
                }
            }
            Op::Write { node, at, bytes } => self.change(*node, Change::Write { at: *at, bytes: bytes.clone() }),
            Op::Resize { node, length } => self.change(*node, Change::Resize(*length)),
            Op::Sync(node) => {
                let file = self.files.entry(*node).or_default();
                for (_, change) in std::mem::take(&mut file.pending) {
                    change.apply(&mut file.synced);
                }
            }
            Op::SyncFolder(folder) => {
                let inside = self.names.iter_mut().filter(|(name, _)| name.parent() == Some(folder));
                inside.for_each(|(_, versions)| versions.sync());
            }
        }
    }

    fn change(&mut self, node: Node, change: Change) {
        let moment = self.moment;
        self.files.entry(node).or_default().pending.push((moment, change));
    }

    /// Whether a loss of power would change nothing.
    pub(crate) fn is_synced(&self) -> bool {
        self.names.values().all(Versions::is_synced) && self.files.values().all(|file| file.pending.is_empty())
    }

    /// Lays out in an empty folder what is found after the loss of power.
    pub(crate) fn lay_out(&self, fate: Fate, root: &Path) -> io::Result<()> {
        let mut chance = Chance::new(fate.seed, "power");
        let unsynced: Vec<usize> = self.unsynced().collect();
        // The last third or so: what the disk wrote first.
        let cutoff = unsynced.len().checked_sub(1 + unsynced.len() / 3).map_or(0, |nth| unsynced[nth]);
        let mut laid_out: BTreeMap<Node, PathBuf> = BTreeMap::new();
        // Folders come before what is in them: a name whose folder is gone is gone with it.
        for (name, versions) in &self.names {
            let path = root.join(name);
            let there = path.parent().is_some_and(Path::is_dir);
            match versions.as_of(fate.names, cutoff, &mut chance) {
                Some(Target::Folder) if there => fs::create_dir(&path)?,
                Some(Target::File(node)) if there => match laid_out.get(node) {
                    Some(elsewhere) => fs::hard_link(elsewhere, &path)?,
                    None => {
                        let bytes = self.files.get(node).map(|file| file.found(fate, cutoff, &mut chance));
                        fs::write(&path, bytes.unwrap_or_default())?;
                        laid_out.insert(*node, path);
                    }
                },
                Some(Target::Folder | Target::File(_)) | None => {}
            }
        }
        Ok(())
    }

    /// The moments of everything that is not synced, in order.
    fn unsynced(&self) -> impl Iterator<Item = usize> {
        let names = self.names.values().flat_map(|versions| versions.0[1..].iter().map(|(moment, _)| *moment));
        let files = self.files.values().flat_map(|file| file.pending.iter().map(|(moment, _)| *moment));
        let mut moments: Vec<usize> = names.chain(files).collect();
        moments.sort_unstable();
        moments.into_iter()
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write { at, bytes: written } => {
                let end = at + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at..end].copy_from_slice(written);
            }
            Change::Resize(length) => bytes.resize(*length, 0),
        }
    }

    /// The bytes it may change, in a file that is `length` long.
    fn touches(&self, length: usize) -> std::ops::Range<usize> {
        match self {
            Change::Write { at, bytes } => *at..at + bytes.len(),
            Change::Resize(to) => length.min(*to)..length.max(*to),
        }
    }
}

impl File {
    fn found(&self, fate: Fate, cutoff: usize, chance: &mut Chance) -> Vec<u8> {
        let mut now = self.synced.clone();
        if fate.bytes == Moment::Newest && fate.lengths == Moment::Newest {
            self.pending.iter().for_each(|(_, change)| change.apply(&mut now));
            return now;
        }
        let mut lengths = Versions::new(now.len());
        let mut sectors: BTreeMap<usize, Versions<Vec<u8>>> = BTreeMap::new();
        let sector = |bytes: &[u8], nth: usize| {
            let end = bytes.len().min((nth + 1) * fate.sector);
            bytes.get(nth * fate.sector..end).unwrap_or_default().to_vec()
        };
        for (moment, change) in &self.pending {
            let touched = change.touches(now.len());
            change.apply(&mut now);
            lengths.push(*moment, now.len());
            for nth in touched.start / fate.sector..touched.end.div_ceil(fate.sector) {
                let versions = sectors.entry(nth).or_insert_with(|| Versions::new(sector(&self.synced, nth)));
                versions.push(*moment, sector(&now, nth));
            }
        }
        let mut found = self.synced.clone();
        found.resize(*lengths.as_of(fate.lengths, cutoff, chance), 0);
        for (nth, versions) in sectors {
            let chosen = versions.as_of(fate.bytes, cutoff, chance);
            let from = (nth * fate.sector).min(found.len());
            let to = (from + fate.sector).min(found.len());
            for (n, byte) in found[from..to].iter_mut().enumerate() {
                *byte = chosen.get(n).copied().unwrap_or(0);
            }
        }
        found
    }
}
