//! One claim on one run: gather what happened, decide, append, act; until the run rests, waits or is stopped.
//!
//! One append is in flight at a time; what happens meanwhile forms the next batch. State runs ahead of the journal only
//! within one batch, and is folded anew from the journal when a batch is not taken as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longrein_core::action::{Action, Life};
use longrein_core::children::may_write;
use longrein_core::context::meter::Meter;
use longrein_core::decide::{Asks, Command, Readiness, Refusal, begin, claimed, decide};
use longrein_core::event::{Event, Suspension};
use longrein_core::holds::Hold;
use longrein_core::hook::{HookRan, Moment};
use longrein_core::ids::{ActionId, Digest, ModelName, RunId, Seq, TreeId};
use longrein_core::input::{Input, InputBody};
use longrein_core::owed::{self, Duty};
use longrein_core::payload::Payload;
use longrein_core::prompt::Purpose;
use longrein_core::run::{Run, Stage};
use longrein_core::task::{Overlap, ToolSpec};
use longrein_core::time::Timestamp;
use longrein_ports::{Claim, Create, Encoded, LEASE, NewEvent, Reaped};

use crate::batch::{Appended, Draft};
use crate::children::{Leases, Minding, end_id, reap_tree, report};
use crate::drive::{Begin, DriveError, Driven, Driver, Observer, Standing, Stop, WhenAsked};
use crate::edge;
use crate::fold::{FoldError, fold_known};
use crate::jobs::{self, Flight, GivenUp, Hangar, Landed, Recovery};
use crate::lease::RENEW_EVERY;
use crate::origin::{self, Watch};
use crate::ports::Ports;
use crate::summary::Asked;

/// Duties begun before the batch is appended: a reply brings at most 64 calls, each begun a few times.
pub(crate) const STEPS_MAX: usize = 1_000;
/// Batches in a row that were not taken as they were. Each takes an input or a key that was new, so a few are many.
pub(crate) const REWINDS_MAX: u32 = 100;
/// How long a call waits for another run that holds the same key.
pub(crate) const KEY_WAIT: Duration = Duration::from_secs(30);

/// One claim on one run.
pub(crate) struct Drive<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) ports: &'a Ports,
    pub(crate) observer: &'a Arc<dyn Observer>,
    /// Whether something of the attempt on its way was shown.
    pub(crate) told: Arc<AtomicBool>,
    pub(crate) stop: Stop,
    /// The options', until whoever is asked leaves.
    pub(crate) asked: WhenAsked,
    pub(crate) claim: Claim,
    /// End of the lease in boot time.
    pub(crate) until: Duration,
    /// Its own and those of the runs above it.
    pub(crate) leases: Leases,
    pub(crate) minding: Minding,
    /// When to ask for more, in boot time.
    pub(crate) renew_at: Duration,
    pub(crate) run: Run,
    /// For the model it is named with.
    pub(crate) meter: Option<(ModelName, Meter)>,
    /// The last event that a snapshot was made of, and how many more make the next.
    pub(crate) snapshot: Seq,
    /// The last event that the archive's index was asked to look at.
    pub(crate) indexed: Seq,
    pub(crate) snapshot_every: u64,
    /// The journal's head: `run.head` is ahead of it by the batch in the making.
    pub(crate) head: Seq,
    pub(crate) batches: u64,
    pub(crate) draft: Draft,
    pub(crate) hangar: Hangar,
    /// Requests that go out when their event is committed.
    pub(crate) outgoing: BTreeMap<longrein_core::ids::AttemptId, Encoded>,
    /// The bytes of the images in the window.
    pub(crate) images: Arc<BTreeMap<Digest, Arc<[u8]>>>,
    /// The summary that is asked for, or about to be.
    pub(crate) summary: Option<Asked>,
    /// What a judge is asked, until it is sent.
    pub(crate) question: Option<Encoded>,
    pub(crate) inputs: BTreeMap<String, Payload>,
    /// Since when a call waits for another run's key.
    pub(crate) key_waits: BTreeMap<ActionId, Timestamp>,
    /// What hooks said of starts and messages that are not taken yet.
    pub(crate) heard: BTreeMap<Moment, Vec<HookRan>>,
    /// The workspace as it was found in a write epoch, for the starts that need it, and the actions that wait for it.
    pub(crate) tree: Option<(usize, Result<TreeId, String>)>,
    pub(crate) tree_waits: BTreeSet<ActionId>,
    /// The workspace as a call left it that nothing wrote beside, for what starts with that call's result. It is looked at
    /// anew once anything was waited for.
    pub(crate) just_left: Option<(usize, TreeId)>,
    /// What was just found of the first call of a reply, and the last event then: where it starts in the same step and
    /// nothing has changed, that is the ruling of the step that writes it (`semantics.md` D2).
    pub(crate) just_ruled: Option<(Seq, ActionId, Readiness)>,
    /// Something owed could not begin before the batch was committed.
    pub(crate) put_off: bool,
    /// Set once the process was told to stop: when external calls are given up.
    pub(crate) stopping: Option<Duration>,
}

impl<'a> Drive<'a> {
    pub(crate) async fn claim(
        driver: &'a Driver,
        id: &RunId,
        begin_with: Begin,
        stop: Stop,
        above: Leases,
    ) -> Result<Self, DriveError> {
        let Driver { ports, options, observer } = driver;
        let known = match &begin_with {
            Begin::New { .. } | Begin::Child { .. } => None,
            Begin::Existing { .. } => Some(fold_known(ports, id).await?),
        };
        let task = match (&begin_with, &known) {
            (Begin::New { task, .. }, _) => task.as_ref(),
            (Begin::Child { started, .. }, _) => &started.task,
            (Begin::Existing { .. }, Some(run)) => run.task.as_ref(),
            (Begin::Existing { .. }, None) => return Err(FoldError::Empty(id.clone()).into()),
        };
        let is_child = match (&begin_with, &known) {
            // At rest nothing of it writes, and what becomes known of it is taken here.
            (Begin::Existing { .. }, Some(Run { descent: Some(_), stage: Stage::Rest(_), .. })) => true,
            (Begin::Existing { .. }, Some(Run { descent: Some(descent), .. })) => {
                return Err(DriveError::IsChild { run: id.clone(), root: descent.root.clone() });
            }
            (Begin::Child { .. }, _) => true,
            (Begin::Existing { .. } | Begin::New { .. }, _) => false,
        };
        // Children work under the lease of their root (`semantics.md` D11).
        let workspace = (may_write(task) && !is_child).then(|| task.workspace.clone());
        let create = match &begin_with {
            Begin::New { .. } | Begin::Child { .. } => Create::IfAbsent,
            Begin::Existing { .. } => Create::Never,
        };
        let ends = matches!(begin_with, Begin::Child { ends: true, .. });
        let claim = ports.journal.claim(id, &options.worker, workspace.as_deref(), create).await?;
        // A workspace changes hands only when nobody writes it any more (`semantics.md` C3, D11).
        for run in &claim.displaced {
            if reap_tree(ports, run).await == Reaped::Unverified {
                ports.journal.release(&claim).await?;
                return Err(DriveError::WorkspaceBusy { run: run.clone() });
            }
        }
        let now = ports.clock.now();
        let mut draft = Draft::default();
        // What was folded before the claim may have grown since.
        let (run, changed, mode) = match begin_with {
            Begin::New { task, blobs } if claim.head == Seq(0) => {
                draft.blobs = blobs;
                let mut started = begin(id.clone(), *task, &options.binary);
                started.brings = origin::captured(ports, &started.task);
                let run = Run::new(&started, now);
                draft.events.push(NewEvent { at: now, event: Event::RunStarted(Box::new(started)) });
                (run, Vec::new(), None)
            }
            Begin::New { task, .. } => {
                // Somebody was faster under the same id: go on with it only if it is the same.
                let run = fold_known(ports, id).await?;
                let parts = run.task.differences(&task);
                if !parts.is_empty() {
                    ports.journal.release(&claim).await?;
                    return Err(DriveError::OtherTask { run: id.clone(), parts });
                }
                (run, Vec::new(), None)
            }
            Begin::Child { started, .. } if claim.head == Seq(0) => {
                let mut started = *started;
                started.brings.extend(origin::captured(ports, &started.task));
                let run = Run::new(&started, now);
                draft.events.push(NewEvent { at: now, event: Event::RunStarted(Box::new(started)) });
                (run, Vec::new(), None)
            }
            Begin::Child { changed, mode, .. } => (fold_known(ports, id).await?, changed, mode),
            Begin::Existing { changed, mode } => match known {
                Some(run) if run.head == claim.head => (run, changed, mode),
                Some(_) | None => (fold_known(ports, id).await?, changed, mode),
            },
        };
        let inputs = edge::inputs(ports, &run, &draft.blobs).await?;
        let claim_head = claim.head;
        let leases = above.with_own();
        leases.renewed(claim.until);
        let mut drive = Self {
            driver,
            leases,
            minding: Minding::default(),
            ports,
            observer,
            told: Arc::default(),
            stop,
            asked: options.asked,
            until: claim.until,
            renew_at: claim.until.saturating_sub(LEASE - RENEW_EVERY),
            head: claim.head,
            claim,
            run,
            meter: None,
            snapshot: claim_head,
            // It may have been lost with the boot: whoever searches first would wait for all of it.
            indexed: Seq(0),
            snapshot_every: options.snapshot_every,
            batches: 0,
            draft,
            hangar: Hangar::new(),
            outgoing: BTreeMap::new(),
            images: Arc::default(),
            summary: None,
            question: None,
            inputs,
            key_waits: BTreeMap::new(),
            heard: BTreeMap::new(),
            tree: None,
            tree_waits: BTreeSet::new(),
            just_left: None,
            just_ruled: None,
            put_off: false,
            stopping: None,
        };
        let worker = &options.worker;
        let worked_until = drive.claim.last_alive.map(|alive| alive.plus(RENEW_EVERY).min(now));
        let event = claimed(drive.claim.fence, &worker.host, &worker.boot, worker.pid, &options.binary, worked_until);
        let now = drive.ports.clock.now();
        let running: Vec<_> = drive.run.actions().filter(|action| action.may_run()).collect();
        let watches: Vec<_> = running.iter().filter_map(|action| Watch::of(&drive.run, action, now)).collect();
        let running: Vec<_> = running.iter().map(|action| action.id).collect();
        drive.command(Command::Claim(event));
        if matches!(drive.run.stage, Stage::Rest(_)) {
            drive.end(running).await;
            for watch in watches {
                let written = watch.look(drive.ports).await;
                drive.enter(None, written);
            }
        }
        drive.command(Command::NoteSurroundings { changed, mode });
        if ends && !matches!(drive.run.stage, Stage::Rest(_)) && drive.run.winding.is_none() {
            let input = Input { id: end_id(id), at: now, body: InputBody::Cancel, images: Vec::new() };
            // One that is not there yet has no inbox: it begins with the word.
            if claim_head == Seq(0) {
                drive.command(Command::TakeInput(input));
            } else {
                drive.ports.journal.post_input(id, &input).await?;
            }
        }
        drive.take_inbox().await?;
        Ok(drive)
    }

    /// Ends what dead workers left of calls that nobody will recover: a claim may bring the run to its end (`semantics.md`
    /// C5).
    pub(crate) async fn end(&self, running: Vec<ActionId>) {
        for action in running {
            // What cannot be ended from here stays as unknown as it is.
            let _ = self.ports.tools.reap(&self.run.id, action, self.run.fence).await;
        }
    }

    /// Gives the claim back where it still is ours.
    pub(crate) async fn leave(mut self, result: Result<Standing, DriveError>) -> Result<Driven, DriveError> {
        match result {
            Ok(standing) => {
                self.hangar.abort_all(GivenUp::AtRest).await;
                self.remember_model().await;
                self.ports.journal.release(&self.claim).await?;
                report(self.ports, &self.run).await?;
                Ok(Driven { run: self.run, standing })
            }
            Err(DriveError::ClaimLost { run, by }) => {
                self.pass_on_what_is_known().await;
                Err(DriveError::ClaimLost { run, by })
            }
            Err(error) => {
                self.hangar.abort_all(GivenUp::AtRest).await;
                Err(error)
            }
        }
    }

    pub(crate) async fn advance(&mut self) -> Result<Standing, DriveError> {
        self.watch_inbox();
        // Told to stop before it began: nothing is started, only what was sent is taken.
        if self.stop.token.is_cancelled() {
            self.stopping = Some(self.ports.clock.boottime());
        }
        let mut rewinds = 0;
        loop {
            self.keep_lease().await?;
            self.perform().await?;
            match self.append().await? {
                Appended::Rewound if rewinds < REWINDS_MAX => {
                    rewinds += 1;
                    continue;
                }
                Appended::Rewound => return Err(DriveError::Stuck { run: self.run.id.clone() }),
                Appended::Committed => rewinds = 0,
            }
            if std::mem::take(&mut self.put_off) {
                continue;
            }
            self.reconcile();
            if let Some(standing) = self.standing().filter(|_| !self.hooks_are_due()) {
                return Ok(standing);
            }
            if self.park_or_stop().await? {
                continue;
            }
            self.wait().await?;
        }
    }

    // ---- deciding ----

    /// Decides one command and folds what follows into the state and the next batch.
    pub(crate) fn command(&mut self, command: Command) -> bool {
        self.try_command(command).is_ok()
    }

    /// The same, for whoever can do something about a refusal.
    pub(crate) fn try_command(&mut self, command: Command) -> Result<(), Refusal> {
        let now = self.ports.clock.now().max(self.run.at);
        for event in decide(&self.run, command, now)? {
            self.push(now, event);
        }
        Ok(())
    }

    /// What is due by time. An answer that was sent before its question expired comes first, though it is taken only now.
    async fn tick(&mut self) -> Result<(), DriveError> {
        let now = self.ports.clock.now().max(self.run.at);
        if owed::expired(&self.run, now).next().is_some() {
            self.take_inbox().await?;
            // What hooks are still to hear counts from when it was sent.
            let expires = owed::question_expires(&self.run);
            let is_open =
                |input: &Input| matches!(input.body, InputBody::Message(_)) && !self.draft.consumed.contains(&input.id);
            let inbox = self.ports.journal.inbox(&self.run.id).await?;
            if inbox.iter().any(|input| is_open(input) && expires.is_some_and(|expires| input.at < expires)) {
                return Ok(());
            }
        }
        // As of before the look into the inbox: what expired since may have been answered since.
        for event in decide(&self.run, Command::Tick, now).unwrap_or_default() {
            self.push(now.max(self.run.at), event);
        }
        Ok(())
    }

    pub(crate) fn push(&mut self, at: Timestamp, event: Event) {
        self.draft.keys.extend(edge::key_changes(&self.run, &event));
        self.run.apply(self.run.head.next(), at, &event);
        self.draft.marks.extend(origin::mark_of_start(&self.run, &event));
        self.draft.events.push(NewEvent { at, event });
    }

    pub(crate) async fn take_inbox(&mut self) -> Result<(), DriveError> {
        // Messages keep their order, whatever hooks have to say about them; nothing else waits for those.
        let mut holds_messages = false;
        for input in self.ports.journal.inbox(&self.run.id).await? {
            let is_message = matches!(input.body, InputBody::Message(_));
            if self.draft.consumed.contains(&input.id) || (is_message && holds_messages) {
                continue;
            }
            let id = input.id.clone();
            if matches!(input.body, InputBody::Rollback(_)) {
                if self.take_rollback(&input).await? {
                    self.draft.consumed.push(id);
                }
                continue;
            }
            self.look_after_input(&input.body).await;
            if self.take_heard(input) {
                self.draft.consumed.push(id);
            } else {
                holds_messages |= is_message;
            }
        }
        Ok(())
    }

    /// Begins everything owed that is not in flight, until nothing more follows without waiting.
    pub(crate) async fn perform(&mut self) -> Result<(), DriveError> {
        self.tick().await?;
        let mut put_off = BTreeSet::new();
        for _ in 0..STEPS_MAX {
            let Some(duty) = self.next_duty(&put_off) else { return Ok(()) };
            if !self.begin(&duty).await? {
                put_off.insert(duty);
            }
        }
        Err(DriveError::Stuck { run: self.run.id.clone() })
    }

    pub(crate) fn next_duty(&self, put_off: &BTreeSet<Duty>) -> Option<Duty> {
        let now = self.ports.clock.now().max(self.run.at);
        let due = owed::retry_due(&self.run, now).into_iter().chain(owed::owed(&self.run));
        // Nothing is started on the last third of a lease that was not renewed (`semantics.md` C2).
        let lease_is_good = self.leases_are_good();
        due.filter(|duty| !put_off.contains(duty)).find(|duty| match duty {
            // A call that has not returned though its time was up may still change what was proven.
            Duty::Conclude => !self.hooks_hold_the_end() && !self.proof_flies() && !self.overtime_holds_the_end(),
            Duty::Call { .. } => self.stopping.is_none() && lease_is_good && !self.hooks_hold_the_model(),
            Duty::Start { action } => {
                let attempt = self.run.action(*action).map_or(0, |action| action.attempts) + 1;
                let asked = Flight::Hooks(Moment::Before { action: *action, attempt });
                self.stopping.is_none()
                    && lease_is_good
                    && !self.hangar.is_flying(&asked)
                    && !(self.tree_waits.contains(action)
                        && self.hangar.is_flying(&Flight::Tree(self.run.epochs.len())))
            }
            Duty::Hooks { moment } => {
                self.stopping.is_none() && lease_is_good && !self.hangar.is_flying(&Flight::Hooks(moment.clone()))
            }
            Duty::NoticeLoop => true,
            Duty::Transit { .. } | Duty::Propose { .. } | Duty::AskChildren { .. } => {
                self.stopping.is_none() && !self.hooks_hold_the_model()
            }
            Duty::Suspend | Duty::AskChecks { .. } => self.stopping.is_none(),
            Duty::Child { child, ends } => {
                self.stopping.is_none() && lease_is_good && self.may_begin_child(child, *ends)
            }
            Duty::Recover { action, attempt, probe, .. } => {
                self.stopping.is_none()
                    && !self.hangar.is_flying(&Flight::Recover(*action, *attempt, *probe))
                    // It may still tell by itself, and until then a "no" would be none.
                    && self.hangar.overtime().all(|(overtime, _)| overtime != *action)
            }
            Duty::CheckAction { action, attempt, .. } => {
                self.stopping.is_none() && !self.hangar.is_flying(&Flight::CheckAction(*action, *attempt))
            }
            Duty::Undo { action, attempt } => {
                self.stopping.is_none()
                    && lease_is_good
                    && !self.hangar.is_flying(&Flight::Undo(*action, *attempt))
                    // It still writes.
                    && self.hangar.overtime().all(|(overtime, _)| overtime != *action)
            }
            Duty::Check { check, round } => {
                self.stopping.is_none() && !self.hangar.is_flying(&Flight::Check(check.clone(), *round))
            }
            Duty::Judge { check, round, .. } => {
                self.stopping.is_none()
                    && lease_is_good
                    && !self.hangar.is_flying(&Flight::AskJudge(check.clone(), *round))
            }
            Duty::Summarise { generation, attempt } => {
                self.stopping.is_none()
                    && lease_is_good
                    && self.ports.summariser.is_some()
                    && !self.hangar.is_flying(&Flight::Gather(*generation, *attempt))
            }
            Duty::AwaitReply { .. }
            | Duty::AwaitAction { .. }
            | Duty::AwaitSummary { .. }
            | Duty::AwaitJudge { .. }
            | Duty::Wake { .. } => false,
        })
    }

    /// Answers whether the state changed or something took off; if not, the duty waits for the next round.
    pub(crate) async fn begin(&mut self, duty: &Duty) -> Result<bool, DriveError> {
        match duty {
            Duty::Call { attempt, closing } => {
                let purpose = if *closing { Purpose::Closing } else { Purpose::Work };
                self.call(*attempt, purpose).await
            }
            Duty::Start { action } => self.start(*action).await,
            Duty::Recover { action, attempt, probe, from } => {
                self.recover(*action, *attempt, *probe, *from).await?;
                Ok(true)
            }
            Duty::Check { check, round } => {
                // A verdict is about the world after everything that is journaled: append first.
                if !self.draft.events.is_empty() {
                    self.put_off = true;
                    return Ok(false);
                }
                if let Some(acceptance) = self.acceptance(check).await? {
                    let watch = Watch::of_checks(&self.run, self.ports.clock.now());
                    let work = jobs::check(self.ports, self.run.task.clone(), acceptance, watch);
                    let (flight, check, round) = (Flight::Check(check.clone(), *round), check.clone(), *round);
                    self.hangar.launch(flight, work, move |checked| Landed::Check(check, round, checked));
                }
                Ok(true)
            }
            Duty::CheckAction { action, attempt, until } => self.check_action(*action, *attempt, *until).await,
            Duty::Undo { action, attempt } => Ok(self.undo(*action, *attempt)),
            Duty::Hooks { moment } => Ok(self.tell_owed(moment)),
            Duty::NoticeLoop => Ok(self.command(Command::NoticeLoop)),
            Duty::Child { child, ends } => self.begin_child(child, *ends).await,
            Duty::Transit { step } => self.transit(*step).await,
            Duty::Propose { step } => self.propose_call(*step).await,
            Duty::AskChildren { step } => self.ask_children(*step).await,
            Duty::AskChecks { .. } => {
                let asks = self.asks();
                Ok(self.command(Command::AskChecks { asks }))
            }
            Duty::Conclude => Ok(self.conclude()),
            Duty::Suspend => {
                let detail = match &self.run.stage {
                    Stage::Ready(ready) => ready.detail.clone(),
                    Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
                        String::new()
                    }
                };
                Ok(self.command(Command::Suspend { cause: Suspension::Model, detail }))
            }
            Duty::Summarise { .. } => Ok(self.gather()),
            Duty::Judge { check, round, .. } => Ok(self.ask_judge(check, *round)),
            Duty::AwaitReply { .. }
            | Duty::AwaitAction { .. }
            | Duty::AwaitSummary { .. }
            | Duty::AwaitJudge { .. }
            | Duty::Wake { .. } => Ok(false),
        }
    }

    pub(crate) fn asks(&self) -> Asks {
        match self.asked {
            WhenAsked::Stay | WhenAsked::Park => Asks::Hold,
            WhenAsked::Deny => Asks::Deny,
        }
    }

    pub(crate) async fn start(&mut self, id: ActionId) -> Result<bool, DriveError> {
        let Some(action) = self.run.action(id) else { return Ok(false) };
        let Some(spec) = self.run.task.tool(&action.tool) else { return Ok(false) };
        if self.is_held_by_overtime(action, spec) {
            return Ok(false);
        }
        let just_ruled = self.just_ruled.take().filter(|(seq, of, _)| *of == id && *seq == self.run.head);
        let readiness = match just_ruled {
            Some((_, _, readiness)) => readiness,
            None => self.readiness(id, action, spec).await?,
        };
        // What the batch in the making says of the key is not in its row yet: append first.
        let key_id = edge::key_id(&self.run, action);
        if key_id.is_some() && self.draft.keys.iter().any(|change| Some(change.id()) == key_id.as_ref()) {
            self.put_off = true;
            return Ok(false);
        }
        let key = edge::key_view(self.ports, &self.run, action).await?;
        if let longrein_core::decide::KeyView::Held { run, .. } = &key
            && *run != self.run.id
        {
            let now = self.ports.clock.now();
            let since = *self.key_waits.entry(id).or_insert(now);
            if now.since(since) < KEY_WAIT {
                return Ok(false);
            }
        }
        self.key_waits.remove(&id);
        let tree = self.tree_view();
        Ok(self.start_heard(id, |heard| Command::Start { action: id, readiness, key, heard, tree }))
    }

    /// Rules on a call as it stands now.
    async fn readiness(&self, id: ActionId, action: &Action, spec: &ToolSpec) -> Result<Readiness, DriveError> {
        let valid = match self.ports.tools.validate(&action.tool, action.args.as_str()) {
            Ok(valid) => valid,
            // It gets the arguments of the call it undoes, whatever a model would have to give it.
            Err(_) if action.undoes().is_some() => edge::as_it_is(action),
            Err(error) => return Ok(Readiness::Refused(error)),
        };
        Ok(edge::readiness(self.ports, &self.run, spec, id, &valid, self.asks()).await?.0)
    }

    /// Whether a call that has not returned when its time was up still holds what this one needs.
    fn is_held_by_overtime(&self, action: &Action, spec: &ToolSpec) -> bool {
        let mut overtime = self.hangar.overtime().peekable();
        if overtime.peek().is_none() {
            return false;
        }
        let hold = Hold::of(spec, action.path.as_deref());
        overtime.any(|(id, tool)| {
            let same_tool = *tool == action.tool;
            let other = self.run.task.tool(tool).map(|spec| Hold::of(spec, None));
            id == action.id
                || (same_tool && spec.overlap == Overlap::OneAtATime)
                || other.is_some_and(|other| other.conflicts(&hold))
        })
    }

    pub(crate) async fn recover(
        &mut self,
        id: ActionId,
        attempt: u32,
        probe: u32,
        from: Option<Timestamp>,
    ) -> Result<(), DriveError> {
        let Some(action) = self.run.action(id) else { return Ok(()) };
        let Some(spec) = self.run.task.tool(&action.tool) else { return Ok(()) };
        let now = self.ports.clock.now();
        let doubt = if let Life::Lost(doubt) | Life::Doubtful(doubt, _) = &action.life { Some(doubt) } else { None };
        let started = doubt.map_or(now, |doubt| doubt.started);
        let old_lease = self.claim.before.unwrap_or_default().saturating_sub(self.ports.clock.boottime());
        let recovery = Recovery {
            attempt: self.run.attempt(action, action.idempotency_key.clone()),
            effect: action.effect,
            fence: self.run.fence,
            from: from.map(|from| from.since(now)).unwrap_or_default(),
            settle_after: spec.settle_after,
            unseen: old_lease.max(started.plus(spec.timeout).since(now)),
            has_probe: !spec.reconcile.is_empty()
                || action.target.as_ref().is_some_and(|target| target.after.is_some()),
            handed: edge::handed(self.ports, &self.run, action, &self.inputs).await?,
            watch: Watch::of(&self.run, action, now),
        };
        let work = jobs::recover(self.ports, self.run.task.clone(), recovery);
        let hears = move |found| Landed::Recover(id, attempt, found);
        self.hangar.launch(Flight::Recover(id, attempt, probe), work, hears);
        Ok(())
    }
}
