//! What is asked of a real store while it is recorded, and what it answered when.

use std::fmt;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use longrein_core::check::{Finding, Verdict};
use longrein_core::event::{CheckFinished, Event, RunParked};
use longrein_core::ids::{ActionId, CheckName, Digest, InputId, RunId, Seq, ToolName};
use longrein_core::input::{Input, InputBody};
use longrein_core::payload::{Content, Payload, place};
use longrein_core::time::{Timestamp, millis};
use longrein_ports::{
    AppendError, Batch, BatchId, BoxFuture, Claim, ClaimError, Clock, Committed, Create, Durability, Journal,
    KeyChange, KeyId, KeyRow, KeyState, NewEvent, Posted, Recorded, RunRow, Store, Unread, Worker,
};
use longrein_sim::chance::Chance;
use longrein_store::{SqliteJournal, worker_here};

use crate::disk::{Disk, Fate};
use crate::record::{Op, Watch};

/// Where the store lies in a recorded folder: below two folders that it makes itself.
const STORE: &str = "home/longrein/longrein.db";
const RUNS: usize = 3;
/// Keys of each run.
const KEYS: usize = 2;

/// A point in the story: how many answers and questions came before, and how much had happened on disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) tick: u64,
    pub(crate) position: usize,
}

impl Mark {
    const NEVER: Mark = Mark { tick: u64::MAX, position: usize::MAX };
}

/// Everything that can be seen of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) events: Vec<Recorded>,
    pub(crate) row: Option<RunRow>,
    pub(crate) inbox: Vec<Input>,
    pub(crate) keys: Vec<Option<KeyRow>>,
    pub(crate) hold: Hold,
}

/// What only a claim can tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    #[default]
    NeverClaimed,
    /// The newest fence.
    Claimed(u64),
    /// Given up.
    Released(u64),
    /// The run was removed.
    Removed,
}

impl Hold {
    /// How the run was held before this claim was asked for. None: it failed.
    pub(crate) fn before(claimed: &Result<Claim, ClaimError>) -> Option<Self> {
        match claimed {
            Ok(claim) if claim.fence.0 == 1 => Some(Hold::NeverClaimed),
            Ok(claim) if claim.predecessor.is_none() => Some(Hold::Released(claim.fence.0 - 1)),
            Ok(claim) => Some(Hold::Claimed(claim.fence.0 - 1)),
            Err(ClaimError::Removed(_)) => Some(Hold::Removed),
            Err(
                ClaimError::Held(_)
                | ClaimError::WorkspaceHeld { .. }
                | ClaimError::NoSuchRun(_)
                | ClaimError::Unread(_)
                | ClaimError::Journal(_),
            ) => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Ask {
    Claim,
    Release,
    Append(Box<Batch>),
    Post(Box<Input>),
    Purge,
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ask::Claim => f.write_str("claim"),
            Ask::Release => f.write_str("release"),
            Ask::Append(batch) => write!(f, "{:?} append {}", batch.durability, batch.id.0),
            Ask::Post(input) => write!(f, "post {}", input.id),
            Ask::Purge => f.write_str("purge"),
        }
    }
}

/// Something asked of the store that changed a run.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) ask: Ask,
    pub(crate) asked: Mark,
    pub(crate) answered: Mark,
    /// The run as it was shown after the answer.
    pub(crate) after: Seen,
}

impl Step {
    pub(crate) fn durability(&self) -> Durability {
        match &self.ask {
            Ask::Claim | Ask::Release => Durability::Written,
            Ask::Append(batch) => batch.durability,
            Ask::Post(_) | Ask::Purge => Durability::Synced,
        }
    }

    pub(crate) fn blobs(&self) -> &[(Digest, Bytes)] {
        match &self.ask {
            Ask::Append(batch) => &batch.blobs,
            Ask::Claim | Ask::Release | Ask::Post(_) | Ask::Purge => &[],
        }
    }
}

/// One run, as it was told.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) id: RunId,
    pub(crate) steps: Vec<Step>,
    /// Posts that were answered with "posted before": how many steps must be there for that to be true, and when.
    pub(crate) repeated: Vec<(usize, Mark)>,
    claim: Option<Claim>,
}

impl Told {
    fn seen(&self) -> Seen {
        self.after(self.steps.len())
    }

    /// The run after so many of its steps.
    fn after(&self, steps: usize) -> Seen {
        match steps.checked_sub(1) {
            Some(last) => self.steps[last].after.clone(),
            None => Seen { keys: vec![None; KEYS], ..Seen::default() },
        }
    }

    /// How many of the first `begun` steps lead to what is found: they and no others, whole.
    pub(crate) fn steps_behind(&self, begun: usize, found: &Seen) -> Result<usize, String> {
        (0..=begun).rev().find(|steps| self.after(*steps) == *found).ok_or_else(|| {
            let was = |seen: &Seen| (seen.events.len(), seen.inbox.len(), seen.hold);
            let ever: Vec<_> = (0..=begun).map(|steps| was(&self.after(steps))).collect();
            format!("{} is in no state it was ever in: (events, inbox, hold) {:?} of {ever:?}", self.id, was(found))
        })
    }
}

/// What happened, from an empty folder on.
pub(crate) struct Recording {
    pub(crate) log: Vec<Op>,
    pub(crate) runs: Vec<Told>,
    tick: u64,
}

impl Recording {
    /// Whether something was answered as synced at that moment.
    pub(crate) fn is_promise(&self, position: usize) -> bool {
        let mut steps = self.runs.iter().flat_map(|told| &told.steps);
        steps.any(|step| step.answered.position == position && step.durability() == Durability::Synced)
    }

    /// Whether an input was being posted at that moment.
    pub(crate) fn is_posting(&self, position: usize) -> bool {
        let mut steps = self.runs.iter().flat_map(|told| &told.steps);
        steps.any(|step| {
            matches!(step.ask, Ask::Post(_)) && (step.asked.position..step.answered.position).contains(&position)
        })
    }
}

/// How large what is appended is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Mixed,
    /// Enough that SQLite moves its log into the database by itself, and begins it anew.
    Checkpointing,
}

pub(crate) struct Story {
    pub(crate) watch: Watch,
    root: PathBuf,
    journal: Option<Arc<SqliteJournal>>,
    runs: Vec<Told>,
    chance: Chance,
    tick: u64,
    heard: Heard,
}

/// What the store makes of the durability that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    AsAsked,
    /// A protection removed.
    AsWritten,
}

impl Heard {
    fn of(self, batch: &Batch) -> Batch {
        match self {
            Heard::AsAsked => batch.clone(),
            Heard::AsWritten => Batch { durability: Durability::Written, ..batch.clone() },
        }
    }
}

/// Stands still; every worker of an earlier handle is dead.
struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000 + millis(self.boottime()))
    }
    fn boottime(&self) -> Duration {
        Duration::from_secs(1000)
    }
    fn jitter(&self) -> u32 {
        4
    }
}

pub(crate) fn open(root: &Path) -> Result<SqliteJournal, String> {
    let opened = SqliteJournal::open_with(&root.join(STORE), Arc::new(StillClock), Arc::new(|_| false));
    opened.map_err(|error| format!("it does not open: {error}"))
}

/// What another boot may find of SQLite's shared memory beside a store that is there: anything.
pub(crate) fn leave_shared_memory(root: &Path, chance: &mut Chance) {
    let name = root.join(format!("{STORE}-shm"));
    if root.join(STORE).exists() {
        let words = std::iter::repeat_with(|| chance.number().to_le_bytes()).take(4096);
        std::fs::write(name, words.flatten().collect::<Vec<u8>>()).expect("can be left there");
    }
}

pub(crate) fn worker() -> Worker {
    worker_here().expect("/proc is there")
}

fn key(run: &RunId, nth: usize) -> KeyId {
    KeyId { scope: "store".into(), tool: ToolName::new("pay"), digest: Digest::of(format!("{run} {nth}").as_bytes()) }
}

/// The run as the store shows it; what only a claim can tell is left out.
pub(crate) async fn look(journal: &dyn Journal, run: &RunId) -> Result<Seen, String> {
    let failed = |error| format!("{run} cannot be read: {error}");
    let mut keys = Vec::new();
    for nth in 0..KEYS {
        keys.push(journal.key(&key(run, nth)).await.map_err(failed)?);
    }
    Ok(Seen {
        events: journal.read(run, Seq(0), usize::MAX).await.map_err(failed)?,
        row: journal.row(run).await.map_err(failed)?.map(|(row, _)| row),
        inbox: journal.inbox(run).await.map_err(failed)?,
        keys,
        hold: Hold::NeverClaimed,
    })
}

impl Story {
    /// Opens a store that is not there yet; `watched` sees the watch before anything happens.
    pub(crate) fn begin(root: &Path, seed: u64, watched: impl FnOnce(&Watch)) -> Self {
        let watch = Watch::new(root);
        watched(&watch);
        let journal = Arc::new(open(root).expect("a new store opens"));
        assert!(watch.position() > 0, "the C library's calls are not replaced here: nothing was recorded");
        let told = |nth| Told { id: RunId::new(format!("r{nth}")), steps: vec![], repeated: vec![], claim: None };
        Self {
            watch,
            root: root.to_owned(),
            journal: Some(journal),
            runs: (0..RUNS).map(told).collect(),
            chance: Chance::new(seed, "story"),
            tick: 0,
            heard: Heard::AsAsked,
        }
    }

    /// From now on no append is synced, whatever is asked for.
    pub(crate) fn weakened(self) -> Self {
        Self { heard: Heard::AsWritten, ..self }
    }

    /// Another process goes on in an empty folder with what one left that was killed at `position`.
    pub(crate) async fn after_death(
        before: &Recording,
        position: usize,
        root: &Path,
        seed: u64,
    ) -> Result<Self, String> {
        let log = &before.log[..position];
        Disk::of(log).lay_out(Fate::KEPT, root).map_err(|error| error.to_string())?;
        let watch = Watch::resume(root, log);
        let journal = Arc::new(open(root)?);
        let mut story = Self {
            watch,
            root: root.to_owned(),
            journal: Some(journal),
            runs: Vec::new(),
            chance: Chance::new(seed, "after"),
            tick: before.tick,
            heard: Heard::AsAsked,
        };
        for told in &before.runs {
            story.take_up(told, position).await?;
        }
        Ok(story)
    }

    /// Finds out how far a run came, then asks again for what its worker was at when it died.
    async fn take_up(&mut self, told: &Told, position: usize) -> Result<(), String> {
        let journal = self.journal();
        let begun = told.steps.iter().filter(|step| step.asked.position <= position).count();
        let here = look(&*journal, &told.id).await?;
        let asked = self.mark();
        let claim = journal.claim(&told.id, &worker(), None, Create::IfAbsent).await;
        let claimed = self.mark();
        let hold = Hold::before(&claim).ok_or_else(|| format!("{} cannot be claimed: {claim:?}", told.id))?;
        let here = Seen { hold, ..here };
        let steps = told.steps_behind(begun, &here)?;
        let answered = told.steps.iter().filter(|step| step.answered.position <= position).count();
        if steps < answered {
            return Err(format!("{}: step {} was answered and is gone", told.id, steps + 1));
        }
        let run = self.runs.len();
        let mut left = Told { steps: told.steps[..steps].to_vec(), ..told.clone() };
        left.repeated.retain(|(_, mark)| mark.position <= position);
        for unanswered in left.steps.iter_mut().skip(answered) {
            unanswered.answered = Mark::NEVER;
        }
        if let Ok(claim) = claim {
            let after = Seen { hold: Hold::Claimed(claim.fence.0), ..here };
            left.steps.push(Step { ask: Ask::Claim, asked, answered: claimed, after });
            left.claim = Some(claim);
        }
        self.runs.push(left);
        match told.steps.get(answered).filter(|_| answered < begun).map(|step| step.ask.clone()) {
            Some(Ask::Post(input)) => self.step(run, Ask::Post(input)).await,
            Some(Ask::Append(batch)) => {
                let mut again = self.batch(run, Durability::Synced);
                again.events = batch.events.clone();
                again.blobs = batch.blobs.clone();
                self.step(run, Ask::Append(Box::new(again))).await;
            }
            Some(Ask::Purge) if hold != Hold::Removed => self.step(run, Ask::Purge).await,
            Some(Ask::Claim | Ask::Release | Ask::Purge) | None => {}
        }
        Ok(())
    }

    fn journal(&self) -> Arc<SqliteJournal> {
        Arc::clone(self.journal.as_ref().expect("open between two steps"))
    }

    fn mark(&mut self) -> Mark {
        self.tick += 1;
        Mark { tick: self.tick, position: self.watch.position() }
    }

    /// Everything a store is asked for, drawn from the seed.
    pub(crate) async fn play(&mut self, rounds: usize, size: Size) {
        for run in 0..RUNS {
            self.step(run, Ask::Claim).await;
            let first = self.batch(run, Durability::Synced);
            self.step(run, Ask::Append(Box::new(first))).await;
        }
        for round in 0..rounds {
            self.round(round, size, RUNS).await;
            if round == rounds / 2 && size == Size::Mixed {
                self.reopen();
            }
        }
        // The last run goes, and what only it referred to.
        self.step(RUNS - 1, Ask::Purge).await;
        self.journal().collect(Duration::ZERO).await.expect("collected");
        for round in rounds..rounds + rounds / 5 {
            self.round(round, size, RUNS - 1).await;
        }
    }

    /// Something for one of the first `runs`, or for all of them.
    async fn round(&mut self, round: usize, size: Size, runs: usize) {
        let run = self.chance.below(runs as u64) as usize;
        match self.chance.below(10) {
            0 | 1 => {
                let input = Input {
                    id: InputId::new(format!("i{round}")),
                    at: Timestamp(5),
                    body: InputBody::Message("what about the others?".to_owned()),
                    images: Vec::new(),
                };
                self.step(run, Ask::Post(Box::new(input))).await;
            }
            2 => {
                self.step(run, Ask::Release).await;
                self.step(run, Ask::Claim).await;
            }
            // A group gathers while a sync is held.
            3 | 4 if self.heard == Heard::AsAsked => self.group(size, runs).await,
            _ => {
                let batch = self.filled(run, size);
                self.step(run, Ask::Append(Box::new(batch))).await;
            }
        }
    }

    /// Closes the store, which moves its log into the database, and opens it again.
    fn reopen(&mut self) {
        self.journal = None;
        self.journal = Some(Arc::new(open(&self.root).expect("it opens again")));
    }

    async fn step(&mut self, run: usize, ask: Ask) {
        let journal = self.journal();
        let asked = self.mark();
        let mut seen = self.runs[run].seen();
        // People post by another process as often as not.
        let by = match &ask {
            Ask::Post(_) if self.chance.percent(50) => Arc::new(open(&self.root).expect("it opens beside")),
            Ask::Claim | Ask::Release | Ask::Append(_) | Ask::Post(_) | Ask::Purge => Arc::clone(&journal),
        };
        let told = &mut self.runs[run];
        match &ask {
            Ask::Claim => {
                let claim = journal.claim(&told.id, &worker(), None, Create::IfAbsent).await.expect("nobody holds it");
                seen.hold = Hold::Claimed(claim.fence.0);
                told.claim = Some(claim);
            }
            Ask::Release => {
                let claim = told.claim.take().expect("claimed between two steps");
                journal.release(&claim).await.expect("released");
                seen.hold = Hold::Released(claim.fence.0);
            }
            Ask::Append(batch) => {
                let claim = told.claim.as_ref().expect("claimed between two steps");
                journal.append(claim, &self.heard.of(batch)).await.expect("appended");
            }
            Ask::Purge => {
                journal.purge(from_ref(&told.id), Unread::Goes).await.expect("nobody holds it");
                seen.hold = Hold::Removed;
            }
            Ask::Post(input) => match by.post_input(&told.id, input).await.expect("posted") {
                Posted::Accepted => {}
                Posted::Duplicate => {
                    let mark = self.mark();
                    let told = &mut self.runs[run];
                    let speaks_for =
                        told.steps.iter().position(|step| matches!(&step.ask, Ask::Post(it) if it == input));
                    told.repeated.push((speaks_for.expect("it was posted before") + 1, mark));
                    return;
                }
                answer @ (Posted::Closed | Posted::Full) => panic!("{answer:?}"),
            },
        }
        let answered = self.mark();
        self.keep(run, Step { ask, asked, answered, after: seen }).await;
    }

    /// Looks at the run after an answer.
    async fn keep(&mut self, run: usize, step: Step) {
        let journal = self.journal();
        let told = &mut self.runs[run];
        let shown = look(&*journal, &told.id).await.expect("it can be read");
        let after = Seen { hold: step.after.hold, ..shown };
        if let Ask::Append(batch) = &step.ask {
            let newest = &after.events[after.events.len() - batch.events.len()..];
            let same = |(found, new): (&Recorded, &NewEvent)| found.at == new.at && found.body == known(&new.event);
            assert!(newest.iter().zip(&batch.events).all(same), "what was answered is there at once");
        }
        told.steps.push(Step { after, ..step });
    }

    /// The first run's append is held in its sync until the others have asked for theirs: those are one group.
    async fn group(&mut self, size: Size, runs: usize) {
        let journal = self.journal();
        let mut batches: Vec<Batch> = (0..runs).map(|run| self.filled(run, size)).collect();
        batches[0].durability = Durability::Synced;
        let claims: Vec<Claim> = self.runs[..runs].iter().map(|told| told.claim.clone().expect("claimed")).collect();
        self.watch.close_gate();
        let mut pending: Vec<(Mark, BoxFuture<'_, Result<Committed, AppendError>>)> = Vec::new();
        for (nth, (claim, batch)) in claims.iter().zip(&batches).enumerate() {
            let asked = self.mark();
            let mut append = journal.append(claim, batch);
            let asking = append.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(asking, Poll::Pending), "its sync is held");
            if nth == 0 {
                self.watch.wait_at_gate();
            }
            pending.push((asked, append));
        }
        self.watch.open_gate();
        let mut asked = Vec::new();
        for (mark, append) in pending {
            append.await.expect("appended");
            asked.push(mark);
        }
        let answered = self.mark();
        for (run, (batch, asked)) in batches.into_iter().zip(asked).enumerate() {
            let after = self.runs[run].seen();
            self.keep(run, Step { ask: Ask::Append(Box::new(batch)), asked, answered, after }).await;
        }
    }

    fn batch(&self, run: usize, durability: Durability) -> Batch {
        let told = &self.runs[run];
        let seen = told.seen();
        let fence = told.claim.as_ref().map_or(0, |claim| claim.fence.0);
        Batch { durability, ..batch(&told.id, fence, seen.events.len() as u64) }
    }

    /// A batch with some of what a batch may have.
    fn filled(&mut self, run: usize, size: Size) -> Batch {
        let durability = if self.chance.percent(50) { Durability::Synced } else { Durability::Written };
        let mut batch = self.batch(run, durability);
        let seen = self.runs[run].seen();
        let length = match (size, self.chance.below(8)) {
            (Size::Checkpointing, _) => self.chance.between(150_000, 250_000),
            (Size::Mixed, 0) => self.chance.between(270_000, 300_000),
            (Size::Mixed, 1) => self.chance.between(33_000, 60_000),
            (Size::Mixed, _) => self.chance.between(10, 3_000),
        };
        let word = format!("{:016x}", self.chance.number());
        let (content, blob) = place(Payload::string(&word.repeat(length as usize / word.len() + 1)));
        batch.events.push(new_event(checked(content)));
        batch.blobs.extend(blob.map(|(digest, payload)| (digest, Bytes::from(payload.as_str().to_owned()))));
        if self.chance.percent(50) {
            batch.consumed.extend(seen.inbox.first().map(|input| input.id.clone()));
        }
        if self.chance.percent(40) {
            let nth = self.chance.below(KEYS as u64) as usize;
            let id = key(&self.runs[run].id, nth);
            batch.keys.extend(match seen.keys[nth].as_ref().map(|row| &row.state) {
                None | Some(KeyState::Free) => Some(KeyChange::Take {
                    id,
                    run: self.runs[run].id.clone(),
                    action: ActionId(batch.expected.0 as u32),
                    args: Payload::null(),
                }),
                Some(KeyState::Held) if self.chance.percent(50) => {
                    Some(KeyChange::Finish { id, result: Content::Inline(Payload::string(&word)), brings: vec![] })
                }
                Some(KeyState::Held) => Some(KeyChange::Free { id }),
                Some(KeyState::Done(_)) => None,
            });
        }
        batch
    }

    /// Ends the recording. What was recorded is all that happened: the log leads to the very files that are there.
    pub(crate) fn end(mut self) -> Recording {
        self.journal = None;
        let log = self.watch.log();
        let copy = tempfile::tempdir().expect("a folder");
        Disk::of(&log).lay_out(Fate::KEPT, copy.path()).expect("can be laid out");
        assert_eq!(files(&self.root), files(copy.path()), "something changed files and was not recorded");
        Recording { log, runs: self.runs, tick: self.tick }
    }
}

/// Every file below a folder with the digest of its bytes; folders without.
fn files(root: &Path) -> Vec<(PathBuf, Option<Digest>)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("found below it").to_owned();
            if path.is_dir() {
                folders.push(path);
                found.push((name, None));
            } else if !path.to_string_lossy().ends_with("-shm") {
                found.push((name, Some(Digest::of(&std::fs::read(&path).expect("a file")))));
            }
        }
    }
    found.sort();
    found
}

fn new_event(event: Event) -> NewEvent {
    NewEvent { at: Timestamp(7), event }
}

fn known(event: &Event) -> longrein_ports::RecordedBody {
    longrein_ports::RecordedBody::Known(event.clone())
}

fn checked(evidence: Content) -> Event {
    let verdict =
        Verdict { finding: Finding::Passed, evidence, exit_status: Some(0), took_ms: 1, proof: Default::default() };
    let check = CheckName::new("c");
    Event::CheckFinished(CheckFinished { check, round: 1, action: None, verdict, brings: vec![], phase: None })
}

/// One event after the last one.
pub(crate) fn batch(run: &RunId, fence: u64, head: u64) -> Batch {
    Batch {
        id: BatchId(format!("b{fence}.{head}")),
        expected: Seq(head),
        events: vec![new_event(Event::RunParked(RunParked { waits: vec![] }))],
        consumed: vec![],
        keys: vec![],
        marks: vec![],
        blobs: vec![],
        durability: Durability::Synced,
        row: RunRow {
            parent: None,
            run: run.clone(),
            state: "running".into(),
            reason: String::new(),
            goal: "lose nothing".into(),
            turns: head,
            micros: 2,
            started: Timestamp(1),
            updated: Timestamp(2),
            sources: vec![],
        },
    }
}
