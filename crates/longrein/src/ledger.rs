//! The ledger of tainted files: what reading a file brings back, by what the store remembers of it and what lies there now.
//!
//! A file counts as tainted while its content is one that a tainted run left there; what a person has changed since is
//! another one. What was moved about in the folder that the run worked in is known by its content. Whoever cannot look
//! (the store fails, the file cannot be read) says the worst.
//!
//! Marks are kept in memory and brought up before every look: other processes write to the same store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longrein_core::ids::Digest;
use longrein_core::taint::{Confidentiality, Integrity, Label, Mark, Taint};
use longrein_core::time::Timestamp;
use longrein_ports::{BoxFuture, FileMark, JournalError, Origins, Store, Written};
use longrein_workspace::{ChangeLimits, Place, READ_MAX_BYTES, Root};

/// What one look for changes may take.
const ENTRIES_MAX: usize = 100_000;
const BYTES_MAX: u64 = 512 << 20;
const LOOK_FOR: Duration = Duration::from_secs(5);
/// The most files one action is remembered by; of more, the folders are remembered.
const ANSWERS_MAX: usize = 1_000;
/// The most files below a folder that are compared with what they were; with more, the folder counts as tainted.
const COMPARED_MAX: usize = 20_000;
/// Contents that are shorter lie in many places by chance: those are known by their paths alone.
const MOVED_MIN_BYTES: u64 = 64;

/// The tainted files of a store, and the sources its people trust.
pub(crate) struct Ledger {
    store: Arc<dyn Store>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The number of the last mark that is in here.
    next: u64,
    /// By path.
    marks: BTreeMap<String, FileMark>,
    /// Where a content was left.
    places: BTreeMap<Digest, BTreeSet<String>>,
    /// Contents as they were last compared, by path.
    compared: BTreeMap<String, (Stamp, Digest)>,
}

/// A file that has not changed since has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// What lies at a path.
enum Lies {
    Nothing,
    File {
        content: Digest,
        bytes: u64,
    },
    /// A file that cannot be compared.
    Unreadable,
    /// A folder, or something that has no content of its own.
    Other,
}

impl Ledger {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, known: Mutex::default() }
    }

    fn known(&self) -> Result<MutexGuard<'_, Known>, JournalError> {
        // What is brought up is a copy: half of it is brought up again.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = self.store.marks(known.next)?;
        for mark in marks.files {
            for content in &mark.contents {
                known.places.entry(content.clone()).or_default().insert(mark.path.clone());
            }
            known.marks.insert(mark.path.clone(), mark);
        }
        known.next = marks.next;
        Ok(known)
    }

    /// Empty if it cannot be told: then nobody is trusted.
    fn trusted(&self) -> BTreeSet<String> {
        let endorsements = self.store.endorsements().unwrap_or_default();
        endorsements.into_iter().map(|endorsement| endorsement.source).collect()
    }

    pub(crate) fn file(&self, path: &str) -> Option<Mark> {
        let Ok(mut known) = self.known() else { return Some(worst(path)) };
        if known.marks.is_empty() {
            return None;
        }
        let mut taint = Taint::default();
        for mark in known.covering(path) {
            taint.join(&mark.taint);
        }
        match known.lies(path) {
            Lies::Nothing | Lies::Other => {}
            Lies::Unreadable => {
                if let Some(mark) = known.marks.get(path) {
                    taint.join(&mark.taint);
                }
            }
            Lies::File { content, bytes } => {
                for place in known.places.get(&content).into_iter().flatten() {
                    let Some(mark) = known.marks.get(place) else { continue };
                    let moved = bytes >= MOVED_MIN_BYTES && lies_below(path, &mark.root);
                    if mark.contents.contains(&content) && (mark.path == path || moved) {
                        taint.join(&mark.taint);
                    }
                }
            }
        }
        said(&taint, path, &self.trusted())
    }

    pub(crate) fn below(&self, folder: &str) -> Option<Mark> {
        let folder = tidy(folder);
        let Ok(mut known) = self.known() else { return Some(worst(folder)) };
        if known.marks.is_empty() {
            return None;
        }
        let trusted = self.trusted();
        let mut taint = Taint::default();
        for mark in known.covering(folder) {
            taint.join(&mark.taint);
        }
        let below = if folder == "/" { "/".to_owned() } else { format!("{folder}/") };
        let inside: Vec<FileMark> = known
            .marks
            .range(below.clone()..)
            .take_while(|(path, _)| path.starts_with(&below))
            .map(|(_, mark)| mark.clone())
            .collect();
        for (nth, mark) in inside.iter().enumerate() {
            let label = said(&taint, folder, &trusted).map(|mark| mark.label).unwrap_or_default();
            let more = said(&mark.taint, folder, &trusted).is_some_and(|mark| label.join(mark.label) != label);
            if !more {
                continue;
            }
            let still = nth >= COMPARED_MAX
                || match known.lies(&mark.path) {
                    Lies::Nothing => false,
                    Lies::Unreadable => true,
                    Lies::Other => mark.contents.is_empty(),
                    Lies::File { content, .. } => mark.contents.is_empty() || mark.contents.contains(&content),
                };
            if still {
                taint.join(&mark.taint);
            }
        }
        said(&taint, folder, &trusted)
    }

    pub(crate) fn endorses(&self, source: &str) -> bool {
        self.trusted().contains(source)
    }
}

impl Known {
    /// Marks of whatever lies at the path or above it.
    fn covering<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a FileMark> {
        let above = Path::new(path).ancestors().filter_map(Path::to_str);
        above.filter_map(|path| self.marks.get(path)).filter(|mark| mark.contents.is_empty())
    }

    fn lies(&mut self, path: &str) -> Lies {
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Lies::Unreadable,
            Err(_) => return Lies::Nothing,
        };
        if !metadata.is_file() {
            return Lies::Other;
        }
        let stamp = Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        if let Some((_, content)) = self.compared.get(path).filter(|(compared, _)| *compared == stamp) {
            return Lies::File { content: content.clone(), bytes: stamp.bytes };
        }
        match content(path, stamp.bytes) {
            Some(content) => {
                if self.compared.len() >= COMPARED_MAX {
                    self.compared.clear();
                }
                // A change within the clock's grain of this look would have the same stamp.
                if is_settled(&metadata) {
                    self.compared.insert(path.to_owned(), (stamp, content.clone()));
                }
                Lies::File { content, bytes: stamp.bytes }
            }
            None => Lies::Unreadable,
        }
    }
}

/// Whether the last change of a file lies so far back that another one would show.
fn is_settled(metadata: &fs::Metadata) -> bool {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let changed = Duration::from_secs(u64::try_from(metadata.ctime()).unwrap_or(u64::MAX));
    changed.saturating_add(Duration::from_secs(3)) < now
}

/// The digest of a file, reached without following a link. None: it cannot be read.
fn content(path: &str, bytes: u64) -> Option<Digest> {
    if bytes > READ_MAX_BYTES {
        return None;
    }
    let path = Path::new(path);
    let root = Root::open(path.parent()?).ok()?;
    root.digest(&Place::Inside(path.file_name()?.into())).ok().flatten()
}

/// What a reader is told of what lies in a file or folder. None: nothing that taints, or people trust all of it.
fn said(taint: &Taint, place: &str, trusted: &BTreeSet<String>) -> Option<Mark> {
    if trusted.contains(place) {
        return None;
    }
    let left: Vec<_> = taint.sources.iter().filter(|(source, _)| !trusted.contains(*source)).collect();
    let label = left.iter().fold(taint.rest, |label, (_, brought)| label.join(brought.label));
    if !label.is_tainted() {
        return None;
    }
    let source = match left.as_slice() {
        [(source, _)] if !taint.rest.is_tainted() => (*source).clone(),
        // Whoever trusts this trusts the place with all that is in it.
        _ => place.to_owned(),
    };
    Some(Mark { label, source })
}

fn worst(place: &str) -> Mark {
    let label = Label { integrity: Integrity::Untrusted, confidentiality: Confidentiality::Workspace };
    Mark { label, source: place.to_owned() }
}

fn tidy(folder: &str) -> &str {
    match folder.trim_end_matches('/') {
        "" => "/",
        tidy => tidy,
    }
}

fn lies_below(path: &str, root: &str) -> bool {
    let root = tidy(root);
    root == "/" || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

impl longrein_ports::Ledger for Ledger {
    fn file(&self, path: &str) -> Option<Mark> {
        Ledger::file(self, path)
    }

    fn below(&self, folder: &str) -> Option<Mark> {
        Ledger::below(self, folder)
    }

    fn endorses(&self, source: &str) -> bool {
        Ledger::endorses(self, source)
    }
}

impl Origins for Ledger {
    fn written<'a>(&'a self, folder: &'a str, since: Timestamp) -> BoxFuture<'a, Vec<Written>> {
        Box::pin(async move {
            let (name, all) = (folder.to_owned(), vec![Written { path: tidy(folder).to_owned(), content: None }]);
            let looked = tokio::task::spawn_blocking(move || changes(&name, Duration::from_millis(since.0)));
            // Nobody knows what was written: anything may have been.
            looked.await.ok().flatten().unwrap_or(all)
        })
    }
}

/// None: the folder cannot be looked through.
fn changes(folder: &str, since: Duration) -> Option<Vec<Written>> {
    let root = Root::open(Path::new(folder)).ok()?;
    let limits =
        ChangeLimits { entries: ENTRIES_MAX, bytes: BYTES_MAX, until: Instant::now() + LOOK_FOR, answers: ANSWERS_MAX };
    let found = root.changed_since(since, &limits);
    // A name that is no text cannot be remembered; its folder can.
    let name = |path: &Path| {
        let whole = path.ancestors().find_map(|above| Some((above, above.to_str()?)));
        let (above, text) = whole.unwrap_or((Path::new(""), ""));
        let full = if text.is_empty() { tidy(folder).to_owned() } else { format!("{}/{text}", tidy(folder)) };
        (full, above == path)
    };
    Some(
        found
            .into_iter()
            .map(|(path, content)| {
                let (path, whole) = name(&path);
                Written { path, content: content.filter(|_| whole) }
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use longrein_core::event::{Event, RunParked};
    use longrein_core::ids::{RunId, Seq};
    use longrein_ports::{Batch, BatchId, Claim, Create, Durability, Endorsement, NewEvent, RunRow};
    use longrein_store::{SystemClock, worker_here};

    use super::*;

    /// A store in memory, a workspace on the disk, and a run that has read a host.
    struct Bench {
        store: Arc<dyn Store>,
        ledger: Ledger,
        folder: tempfile::TempDir,
        claim: Claim,
        batches: u64,
    }

    impl Bench {
        async fn new() -> Self {
            let store = longrein_store::open("memory:", Arc::new(SystemClock::default())).expect("opens");
            let worker = worker_here().expect("proc is readable");
            let claim = store.claim(&RunId::new("r1"), &worker, None, Create::IfAbsent).await.expect("claims");
            let folder = tempfile::tempdir().expect("a folder");
            Self { ledger: Ledger::new(Arc::clone(&store)), store, folder, claim, batches: 0 }
        }

        fn path(&self, name: &str) -> String {
            self.folder.path().canonicalize().expect("is there").join(name).to_string_lossy().into_owned()
        }

        fn write(&self, name: &str, text: &str) -> String {
            let path = self.path(name);
            fs::create_dir_all(Path::new(&path).parent().expect("it has one")).expect("made");
            fs::write(&path, text).expect("written");
            path
        }

        async fn mark(&mut self, path: &str, content: Option<&str>, sources: &[&str]) {
            let mut taint = Taint::default();
            for source in sources {
                taint.add(&Mark { source: (*source).to_owned(), ..worst("") }, Seq(1));
            }
            let mark = FileMark {
                path: path.to_owned(),
                contents: content.into_iter().map(|text| Digest::of(text.as_bytes())).collect(),
                root: self.path("").trim_end_matches('/').to_owned(),
                taint,
                run: self.claim.run.clone(),
                action: None,
                at: Timestamp(1),
            };
            let row = RunRow {
                parent: None,
                run: self.claim.run.clone(),
                state: "running".to_owned(),
                reason: String::new(),
                goal: String::new(),
                turns: 0,
                micros: 0,
                started: Timestamp(0),
                updated: Timestamp(0),
                sources: Vec::new(),
            };
            let batch = Batch {
                id: BatchId(format!("b{}", self.batches)),
                expected: Seq(self.batches),
                events: vec![NewEvent { at: Timestamp(1), event: Event::RunParked(RunParked { waits: Vec::new() }) }],
                consumed: Vec::new(),
                keys: Vec::new(),
                marks: vec![mark],
                blobs: Vec::new(),
                durability: Durability::Synced,
                row,
            };
            self.store.append(&self.claim, &batch).await.expect("appended");
            self.batches += 1;
        }

        async fn endorse(&self, source: &str) {
            let endorsement = Endorsement { source: source.to_owned(), by: "ann".to_owned(), at: Timestamp(2) };
            self.store.endorse(&endorsement).await.expect("endorsed");
        }

        fn source(&self, path: &str) -> Option<String> {
            self.ledger.file(path).map(|mark| mark.source)
        }
    }

    const LONG: &str = "a text that is long enough for nobody to have written it a second time by chance";

    #[tokio::test]
    async fn a_tainted_file_taints_until_a_person_changes_it() {
        let mut bench = Bench::new().await;
        let path = bench.write("notes.txt", LONG);
        assert_eq!(bench.ledger.file(&path), None);
        bench.mark(&path, Some(LONG), &["evil.test"]).await;
        let mark = bench.ledger.file(&path).expect("it is tainted");
        assert_eq!((mark.label.integrity, mark.source.as_str()), (Integrity::Untrusted, "evil.test"));
        assert_eq!(bench.ledger.below(&bench.path("")).map(|mark| mark.source).as_deref(), Some("evil.test"));
        assert_eq!(bench.ledger.below("/").map(|mark| mark.source).as_deref(), Some("evil.test"));
        bench.write("notes.txt", "edited by hand");
        assert_eq!(bench.ledger.file(&path), None);
        assert_eq!(bench.ledger.below(&bench.path("")), None);
        bench.write("notes.txt", LONG);
        assert!(bench.ledger.file(&path).is_some(), "put back, it is what it was");
    }

    #[tokio::test]
    async fn what_is_moved_about_in_its_workspace_is_known_again() {
        let mut bench = Bench::new().await;
        let path = bench.write("a.txt", LONG);
        bench.mark(&path, Some(LONG), &["evil.test"]).await;
        let moved = bench.path("deep");
        fs::rename(&path, &moved).expect("moved");
        assert_eq!(bench.source(&moved).as_deref(), Some("evil.test"));
        let elsewhere = tempfile::tempdir().expect("a folder");
        let other = elsewhere.path().canonicalize().expect("is there").join("a.txt");
        fs::write(&other, LONG).expect("written");
        assert_eq!(bench.source(&other.to_string_lossy()), None, "another workspace may have it of its own");
        let short = bench.write("b.txt", "{}");
        bench.mark(&short, Some("{}"), &["evil.test"]).await;
        assert_eq!(bench.source(&bench.write("c.txt", "{}")), None, "short texts are alike by chance");
    }

    #[tokio::test]
    async fn a_folder_mark_is_for_everything_below() {
        let mut bench = Bench::new().await;
        let file = bench.write("clone/src/a.rs", "new");
        let beside = bench.write("clones/a.rs", "new");
        bench.mark(&bench.path("clone"), None, &["git.test"]).await;
        assert_eq!(bench.source(&file).as_deref(), Some("git.test"));
        assert_eq!(bench.source(&beside), None);
        assert!(bench.ledger.below(&bench.path("clone/src")).is_some());
        assert!(bench.ledger.below(&bench.path("clones")).is_none());
        assert!(bench.ledger.below(&bench.path("")).is_some());
    }

    #[tokio::test]
    async fn a_file_is_as_trusted_as_all_its_sources() {
        let mut bench = Bench::new().await;
        let path = bench.write("a.txt", LONG);
        bench.mark(&path, Some(LONG), &["a.test", "b.test"]).await;
        assert_eq!(bench.source(&path), Some(path.clone()), "more than one source: the file itself is named");
        bench.endorse("a.test").await;
        assert_eq!(bench.source(&path).as_deref(), Some("b.test"));
        assert!(bench.ledger.endorses("a.test") && !bench.ledger.endorses("b.test"));
        bench.endorse("sub.b.test").await;
        assert!(bench.source(&path).is_some(), "a host is that host only");
        bench.endorse("b.test").await;
        assert_eq!(bench.source(&path), None);
        bench.store.forget_endorsement("a.test").await.expect("forgotten");
        assert_eq!(bench.source(&path).as_deref(), Some("a.test"));
        bench.endorse(&path).await;
        assert_eq!(bench.source(&path), None, "a place can be trusted as well");
    }

    #[tokio::test]
    async fn what_was_written_is_found() {
        let bench = Bench::new().await;
        let path = bench.write("out/of/it.txt", LONG);
        let now = Timestamp(u64::try_from(jiff::Timestamp::now().as_millisecond()).expect("after 1970"));
        let folder = bench.path("").trim_end_matches('/').to_owned();
        let found = bench.ledger.written(&folder, now).await;
        assert_eq!(found, [Written { path, content: Some(Digest::of(LONG.as_bytes())) }]);
        assert_eq!(bench.ledger.written(&folder, now.plus(Duration::from_secs(60))).await, []);
        let gone = bench.ledger.written("/nowhere/at/all", now).await;
        assert_eq!(gone, [Written { path: "/nowhere/at/all".to_owned(), content: None }], "anything may have been");
    }
}
