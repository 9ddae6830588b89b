//! Whatever is asked of a run, in whatever order, it stays whole: nothing panics, the fold of its events is its state,
//! what is over stays over, and it always owes something, waits for somebody, or rests.

mod setting;
mod typed;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longrein_core::action::{Action, Life};
use longrein_core::budget::{Limit, Limits, Raise, Spent, Usage};
use longrein_core::check::{Accepted, Finding, Judgement, Proof, Standing, Verdict};
use longrein_core::children::{self, ChildSpec, Report};
use longrein_core::context::settings::ContextSpec;
use longrein_core::context::window::Part;
use longrein_core::decide::{
    Asks, Command, Entry, Found, KeyView, Proposal, Readiness, Refusal, Transit, TreeView, Undone, begin, claimed,
    decide,
};
use longrein_core::event::{AfterFailure, Counted, End, Event, Failure, RouteWhy, Suspension, Wants};
use longrein_core::hook::{self, Heard, HookEvent, HookOutcome, HookRan, HookSpec, Moment};
use longrein_core::ids::{
    ActionId, AttemptId, CheckName, Digest, FactName, Fence, InputId, ModelName, PhaseName, RunId, Seq, ToolName,
    TreeId, TurnId,
};
use longrein_core::image::ImageRef;
use longrein_core::input::{Approve, Covers, Deny, Door, Endorse, Input, InputBody, LateOutcome, Settle, Truth};
use longrein_core::outcome::{
    Billing, Finish, ModelErrorClass, ModelFailure, Outcome, ProbeAnswer, RawCall, Reply, ToolError, class,
};
use longrein_core::owed::{self, Duty};
use longrein_core::payload::{Content, Payload};
use longrein_core::program::{
    Agent, At, Call, Checks, Kind, LESSON_BYTES_MAX, LESSONS_MAX, Memory, Next, Phase, Phases, Program, Prose, To,
};
use longrein_core::prompt::{Item, Purpose};
use longrein_core::route::{self, ROUTABLE, Route};
use longrein_core::ruling::{Bearing, Effect, EffectKind, Ruling};
use longrein_core::run::{Activity, Run, Stage};
use longrein_core::taint::{Confidentiality, Integrity, Label, Mark, Taint};
use longrein_core::task::{
    CheckSpec, EffectClass, Holds, KeyScope, KeySpec, Mode, ModelSpec, OnUnknown, Overlap, PolicyRules, Task, ToolBody,
    ToolSpec,
};
use longrein_core::time::Timestamp;
use proptest::prelude::*;
use setting::{phases, routes, task};

/// A run, its events, and a source of choices.
struct Table {
    run: Run,
    events: Vec<(Timestamp, Event)>,
    now: Timestamp,
    dice: u64,
    inputs: u32,
}

impl Table {
    fn new(seed: u64) -> Self {
        let mut table = Self {
            run: Run::new(&begin(RunId::new("r"), task(0, Mode::Ask), "test"), Timestamp(0)),
            events: Vec::new(),
            now: Timestamp(1_000),
            dice: seed,
            inputs: 0,
        };
        let limits = table.roll(4);
        // Every second run as most are.
        let mode = *Mode::ALL.get(usize::try_from(table.roll(10)).expect("it is an index")).unwrap_or(&Mode::Ask);
        let mut task = task(limits, mode);
        // Drawn apart, so that the other draws stay what they were.
        if seed % 2 == 1 {
            task.program = Program::Phases(Box::new(phases()));
        }
        // Every third has somewhere else to go.
        if seed.is_multiple_of(3) {
            task.routes = routes();
        }
        let started = begin(RunId::new("r"), task, "test");
        table.run = Run::new(&started, table.now);
        table.events.push((table.now, Event::RunStarted(Box::new(started))));
        table.claim();
        table
    }

    fn roll(&mut self, below: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % below
    }

    fn roll32(&mut self, below: u32) -> u32 {
        u32::try_from(self.roll(u64::from(below))).expect("it is below a u32")
    }

    /// Decides, and folds what follows. Answers whether it was accepted.
    fn ask(&mut self, command: Command) -> bool {
        let before = self.run.clone();
        let Ok(events) = decide(&self.run, command, self.now) else {
            assert_eq!(before, self.run, "a refusal changes nothing");
            return false;
        };
        assert!(!events.is_empty(), "an accepted command has an effect");
        self.no_start_without_its_hooks(&events);
        for event in events {
            let json = serde_json::to_string(&event).expect("events serialise");
            let read: Event = serde_json::from_str(&json).expect("and are read back");
            assert_eq!(read, event, "{json}");
            if let Event::ActionFinished(finished) = &event
                && let Outcome::NotDone(error) = &finished.outcome
            {
                assert_ne!(error.class, class::UNKNOWN_OUTCOME, "what is known not to have happened is not unknown");
            }
            self.law_8_modes(&before, &event);
            self.law_11_routes(&event);
            let known = self.run.taint.clone();
            self.run.apply(self.run.head.next(), self.now, &event);
            law_8_only_an_endorsement_lowers(&known, &self.run, &event);
            self.events.push((self.now, event));
            self.grows(&before);
        }
        self.is_whole();
        true
    }

    /// In shadow nothing but reads starts, and nothing is ever done; a plan begins nothing that only writes; no run
    /// becomes a shadow, and none leaves it.
    fn law_8_modes(&self, before: &Run, event: &Event) {
        if let Event::ActionStarted(started) = event {
            let begins = started.attempt == 1 && started.effect != EffectClass::Read;
            assert!(!begins || !matches!(before.mode, Mode::Shadow | Mode::Plan), "{started:?} in {}", before.mode);
        }
        let asks = matches!(event, Event::ActionHeld(held) if held.wants != Wants::Words);
        assert!(!asks || before.mode != Mode::Shadow, "a shadow asks for no yes");
        if let Event::RunEnded(ended) = event {
            assert!(before.mode != Mode::Shadow || !matches!(ended.end, End::Done(_)), "a shadow is never done");
            assert!(before.mode != Mode::Shadow || ended.done.is_empty(), "nothing of it happened");
        }
        if let Event::SurroundingsChanged(changed) = event {
            let crosses = |mode: Mode| (mode == Mode::Shadow) != (before.mode == Mode::Shadow);
            assert!(!changed.mode.is_some_and(crosses), "{} became {:?}", before.mode, changed.mode);
        }
    }

    /// Law 11: a move leads from the model in use to another one of the task's, and within a turn no failure moves a run to
    /// one that has failed in it.
    fn law_11_routes(&self, event: &Event) {
        let Event::ModelRouted(routed) = event else { return };
        assert_eq!(routed.from, self.run.model.name);
        assert_ne!(routed.from, routed.model.name);
        let known = route::models(&self.run.task, Some(&self.run));
        assert!(known.iter().any(|model| model.name == routed.model.name), "{routed:?}");
        let mut failed = BTreeSet::from([&routed.from]);
        for (_, event) in self.events.iter().rev() {
            if let Event::ModelRouted(before) = event
                && let RouteWhy::Failed(_) = before.why
            {
                failed.insert(&before.from);
            }
            let is_new = matches!(event, Event::ModelReplied(_) | Event::ModelSwitched(_) | Event::ModelForgone(_));
            let gave_up =
                matches!(event, Event::ModelFailed(failure) if !matches!(failure.next, AfterFailure::Retry { .. }));
            if is_new || gave_up {
                break;
            }
        }
        assert!(!failed.contains(&routed.model.name), "{routed:?} though {failed:?} have failed in this turn");
        assert!(failed.len() <= self.run.task.routes.len() + 2, "{failed:?}");
    }

    /// Law 8: every hook that has a say in a start was heard in the batch that writes it, and none said no.
    fn no_start_without_its_hooks(&self, events: &[Event]) {
        for event in events {
            let Event::ActionStarted(started) = event else { continue };
            let moment = Moment::Before { action: started.action, attempt: started.attempt };
            let may = |hook: u32| {
                let heard = events.iter().find_map(|event| {
                    let Event::HookFinished(heard) = event else { return None };
                    (heard.hook == hook && heard.action == Some(started.action)).then_some(&heard.outcome)
                });
                matches!(heard, Some(HookOutcome::Passed | HookOutcome::Asked { .. }))
            };
            assert!(hook::told(&self.run, &moment).into_iter().all(may), "{started:?} beside {events:?}");
        }
    }

    /// Asks for a start, and the hooks if they must be asked.
    fn start(&mut self, action: ActionId, readiness: Readiness, key: KeyView) {
        let mut heard = Heard::NotAsked;
        let mut tree = TreeView::NotTaken;
        for _ in 0..3 {
            let start = Command::Start {
                action,
                readiness: readiness.clone(),
                key: key.clone(),
                heard: heard.clone(),
                tree: tree.clone(),
            };
            match decide(&self.run, start, self.now) {
                Err(Refusal::HooksFirst) => {
                    let attempt = self.run.action(action).expect("it is there").attempts + 1;
                    heard = Heard::Asked(self.said(&Moment::Before { action, attempt }));
                }
                Err(Refusal::TreeFirst) => tree = self.tree_view(),
                Ok(_) | Err(Refusal::Stale | Refusal::AtRest | Refusal::NotDue | Refusal::Unfit(_)) => break,
            }
        }
        self.ask(Command::Start { action, readiness, key, heard, tree });
    }

    fn tree(&mut self) -> TreeId {
        TreeId::new(format!("tree{}", self.roll(2)))
    }

    fn tree_view(&mut self) -> TreeView {
        match self.roll(8) {
            0 => TreeView::None("off".to_owned()),
            1 => TreeView::Failed("full".to_owned()),
            _ => TreeView::Taken(self.tree()),
        }
    }

    /// A verdict, most of the time on the same workspace; now and then on changed checks.
    fn verdict(&mut self) -> Verdict {
        let finding = if self.roll(2) == 0 { Finding::Passed } else { Finding::Failed };
        let tree = (self.roll(6) > 0).then(|| self.tree());
        let protected = if self.roll(8) == 0 { vec!["tests/a".to_owned()] } else { Vec::new() };
        Verdict { proof: Proof { tree, protected, ..Proof::default() }, ..verdict(finding) }
    }

    /// What the hooks of a moment say; some of them nothing.
    fn said(&mut self, moment: &Moment) -> Vec<HookRan> {
        let reason = "why not".to_owned();
        let mut ran = Vec::new();
        for hook in hook::told(&self.run, moment) {
            let outcome = match self.roll(12) {
                0 => HookOutcome::Blocked { reason: reason.clone() },
                1 => HookOutcome::Asked { reason: reason.clone() },
                2 => HookOutcome::Failed { reason: reason.clone() },
                3 if self.roll(4) == 0 => HookOutcome::Halted { reason: reason.clone() },
                4 if self.roll(4) == 0 => continue,
                _ => HookOutcome::Passed,
            };
            let words = (self.roll(4) == 0).then(|| "<longrein>words</longrein>".to_owned());
            ran.push(HookRan { hook, outcome, words, took_ms: 1 });
        }
        ran
    }

    fn grows(&self, before: &Run) {
        let (old, new) = (&before.spent, &self.run.spent);
        assert!(new.turns >= old.turns && new.model_calls >= old.model_calls && new.tool_calls >= old.tool_calls);
        assert!(new.usage.tokens() >= old.usage.tokens() && new.micros >= old.micros && new.time_ms >= old.time_ms);
        if self.run.window.generation == before.window.generation {
            let (old, new) = (&before.window.items, &self.run.window.items);
            assert!(new.len() >= old.len(), "inside a generation the window only grows");
        }
        for (limit, used) in [
            (self.run.limits.turns, new.turns),
            (self.run.limits.model_calls, new.model_calls),
            (self.run.limits.tool_calls, new.tool_calls),
        ] {
            assert!(matches!(limit, Limit::Unlimited) || matches!(limit, Limit::At(limit) if used <= limit));
        }
    }

    fn is_whole(&self) {
        let (first, rest) = self.events.split_first().expect("it has begun");
        let Event::RunStarted(started) = &first.1 else { panic!("it begins with its start") };
        let mut folded = Run::new(started, first.0);
        for (number, (at, event)) in rest.iter().enumerate() {
            folded.apply(Seq(number as u64 + 2), *at, event);
        }
        assert_eq!(folded, self.run, "the fold of the events is the state");
        if !matches!(self.run.stage, Stage::Acting { .. }) {
            pairing(&self.run);
        }
        self.is_not_stuck();
        self.images_stay_with_their_words();
        self.program_is_bounded();
    }

    fn is_not_stuck(&self) {
        let stopped = match self.run.activity {
            Activity::Claimed => false,
            Activity::Idle | Activity::Parked | Activity::Suspended { .. } => true,
        };
        if stopped || matches!(self.run.stage, Stage::Rest(_)) {
            return;
        }
        let waits_for_retry = matches!(&self.run.stage, Stage::Ready(ready) if ready.after.is_some());
        let moves = owed::owed(&self.run).iter().any(|duty| match duty {
            Duty::Wake { .. } => waits_for_retry,
            Duty::Call { .. }
            | Duty::AwaitReply { .. }
            | Duty::Start { .. }
            | Duty::AwaitAction { .. }
            | Duty::Recover { .. }
            | Duty::CheckAction { .. }
            | Duty::Undo { .. }
            | Duty::AskChecks { .. }
            | Duty::Check { .. }
            | Duty::Judge { .. }
            | Duty::AwaitJudge { .. }
            | Duty::NoticeLoop
            | Duty::Transit { .. }
            | Duty::Propose { .. }
            | Duty::AskChildren { .. }
            | Duty::Conclude
            | Duty::Suspend => true,
            Duty::Hooks { .. } | Duty::Child { .. } => true,
            Duty::Summarise { .. } | Duty::AwaitSummary { .. } => false,
        });
        // What winds down gives its calls up: the driver then reports them.
        let winds_down = self.run.winding.is_some();
        let is_stuck = !moves && owed::waits(&self.run).is_empty() && !winds_down;
        assert!(!is_stuck, "it owes nothing and waits for nobody: {:?}", self.run.stage);
    }

    // ---- moves ----

    fn claim(&mut self) {
        let fence = self.run.fence.next();
        self.ask(Command::Claim(claimed(fence, "host", "boot", 1, "test", None)));
    }

    /// Something a driver would do.
    fn work(&mut self) {
        self.give_up_what_is_not_owed();
        let mut due = owed::retry_due(&self.run, self.now).into_iter().chain(owed::owed(&self.run)).collect::<Vec<_>>();
        if due.iter().any(|duty| !matches!(duty, Duty::Wake { .. })) {
            due.retain(|duty| !matches!(duty, Duty::Wake { .. }));
        }
        if due.is_empty() {
            return;
        }
        let pick = self.roll(due.len() as u64);
        let duty = due[usize::try_from(pick).expect("it is an index")].clone();
        match duty {
            Duty::Call { attempt, closing } => {
                let purpose = if closing { Purpose::Closing } else { Purpose::Work };
                let bytes = self.roll(5_000);
                let counted = Counted { likely: bytes / 4, upper: bytes / 2, safe: 100_000 };
                if route::due(&self.run, self.now).is_some() {
                    assert!(self.ask(Command::Route), "what is due is taken");
                    assert_eq!(route::due(&self.run, self.now), None, "one move, and it is where it wants to be");
                }
                self.ask(Command::Request {
                    attempt,
                    purpose,
                    digest: Digest::of(b"request"),
                    bytes,
                    output: 100,
                    counted,
                    tail: None,
                });
            }
            Duty::AwaitReply { attempt } => {
                if self.roll(5) == 0 {
                    let failure = self.failure();
                    self.ask(Command::FailModel { attempt, failure, jitter: 1 });
                } else {
                    let reply = self.reply(attempt);
                    self.ask(reply);
                }
            }
            Duty::Start { action } => {
                let reads = self.run.action(action).is_some_and(|action| action.effect == EffectClass::Read);
                let (readiness, key) = (self.readiness(reads), self.key());
                self.start(action, readiness, key);
            }
            Duty::AwaitAction { action, attempt, .. } => {
                let (outcome, brings) = (self.outcome(action), self.marks());
                let left = (self.roll(3) > 0).then(|| self.tree());
                let (outcome_again, brings_again) = (outcome.clone(), brings.clone());
                let again = Command::Finish {
                    action,
                    attempt,
                    outcome: outcome_again,
                    brings: brings_again,
                    left: left.clone(),
                };
                self.ask(Command::Finish { action, attempt, outcome, brings, left });
                assert!(!self.ask(again), "an attempt ends once");
            }
            Duty::Recover { action, attempt, .. } => {
                let probe = self.probe(action);
                self.ask(Command::Recover { action, attempt, probe, jitter: 1 });
            }
            Duty::CheckAction { action, attempt, .. } => {
                let (verdict, brings) = (self.verdict(), self.marks());
                let again = verdict.clone();
                assert!(self.ask(Command::GiveActionVerdict { action, attempt, verdict, brings }), "it is owed");
                let again = Command::GiveActionVerdict { action, attempt, verdict: again, brings: Vec::new() };
                assert!(!self.ask(again), "a check finds something once");
            }
            Duty::Undo { action, attempt } => {
                let undone = match self.roll(4) {
                    0 => Err("somebody changed it".to_owned()),
                    _ => Ok(Undone { to: self.tree(), paths: vec!["a".to_owned()], aside: None }),
                };
                let again = undone.clone();
                assert!(self.ask(Command::TakeUndone { action, attempt, undone }), "it is owed");
                assert!(!self.ask(Command::TakeUndone { action, attempt, undone: again }), "undone once");
            }
            Duty::AskChecks { .. } => {
                let asks = if self.roll(4) == 0 { Asks::Deny } else { Asks::Hold };
                assert!(self.ask(Command::AskChecks { asks }), "it is owed");
            }
            Duty::Check { check, round } => {
                let brings = self.marks();
                let verdict = self.verdict();
                let again = verdict.clone();
                self.ask(Command::GiveVerdict { check: check.clone(), round, verdict, brings });
                assert!(!self.ask(Command::GiveVerdict { check, round, verdict: again, brings: Vec::new() }));
            }
            Duty::Hooks { moment } => {
                let ran = self.said(&moment);
                let again = Command::TakeHooks { moment: moment.clone(), ran: ran.clone() };
                assert!(self.ask(Command::TakeHooks { moment, ran }), "what is owed is accepted");
                assert!(!self.ask(again), "hooks are heard once");
            }
            Duty::Child { child, ends } => self.child_ends(child, ends),
            Duty::NoticeLoop => {
                assert!(self.ask(Command::NoticeLoop), "what is owed is accepted");
            }
            Duty::Transit { step } => {
                let transit = self.transit(step);
                assert!(self.ask(Command::Transit(Box::new(transit.clone()))), "what is owed is accepted");
                assert!(!self.ask(Command::Transit(Box::new(transit))), "a phase is left once");
            }
            Duty::AskChildren { step } => {
                let childless = Some(self.roll(2) == 0);
                let transit = Transit { childless, output: Ok(Some(result())), ..self.transit(step) };
                assert!(self.ask(Command::Transit(Box::new(transit))), "what is owed is accepted");
            }
            Duty::Propose { step } => {
                let raw = RawCall { id: String::new(), name: "look".to_owned(), arguments: String::new() };
                let proposal = match self.roll(6) {
                    0 => Err("no such value".to_owned()),
                    _ => Ok(Box::new(self.proposal(&raw, 0))),
                };
                let again = Command::ProposeCall { step, proposal: proposal.clone() };
                assert!(self.ask(Command::ProposeCall { step, proposal }), "what is owed is accepted");
                assert!(!self.ask(again), "a phase calls once");
            }
            Duty::Conclude => {
                assert!(self.ask(Command::Conclude), "what is owed is accepted");
                assert!(!self.ask(Command::Conclude), "a run ends once");
            }
            Duty::Judge { .. } | Duty::AwaitJudge { .. } => unreachable!("no check asks a model"),
            Duty::Summarise { .. } | Duty::AwaitSummary { .. } => unreachable!("no summary model is named"),
            Duty::Suspend => {
                self.ask(Command::Suspend { cause: Suspension::Model, detail: "down".to_owned() });
                assert!(!owed::owed(&self.run).contains(&Duty::Suspend), "a suspension is owed once");
            }
            Duty::Wake { at } => {
                self.now = self.now.max(at);
                self.ask(Command::Tick);
            }
        }
    }

    /// Asks for one to three children with more or less than is left.
    fn ask_for_children(&mut self) {
        let count = 1 + usize::try_from(self.roll(3)).expect("it is small");
        let share = children::share(&self.run, count);
        let number = self.run.children.len();
        let specs: Vec<ChildSpec> = (number..number + count)
            .map(|number| {
                let mut task = self.run.task.as_ref().clone();
                task.goal = format!("part {number}");
                let mut grant = share.clone();
                if self.roll(6) == 0 {
                    grant.model_calls = grant.model_calls.raised(self.roll(4));
                }
                ChildSpec { key: number.to_string(), task, grant }
            })
            .collect();
        let before = children::reserved(&self.run).model_calls;
        if self.ask(Command::AskForChildren { specs: specs.clone(), at_once: 2 }) {
            let (limits, spent) = (&self.run.limits, self.run.spent.model_calls);
            let aside = children::reserved(&self.run).model_calls;
            assert!(aside >= before && limits.model_calls.left(spent) >= aside, "what is set aside is there");
            let again = Command::AskForChildren { specs, at_once: 2 };
            assert!(!self.ask(again), "nobody is asked for twice");
        }
    }

    /// A child ends within its grant; told twice, it counts once.
    fn child_ends(&mut self, id: RunId, ends: bool) {
        assert!(self.run.children.contains_key(&id) && self.run.winding.is_some() == ends);
        let grant = self.run.children[&id].grant.clone();
        let mut part = |limit: Limit| match limit {
            Limit::At(limit) => self.roll(limit + 1),
            Limit::Unlimited => self.roll(50),
        };
        let usage = Usage { input: part(grant.tokens), ..Usage::default() };
        let spent = Spent {
            turns: part(grant.turns),
            model_calls: part(grant.model_calls),
            tool_calls: part(grant.tool_calls),
            micros: part(grant.micros),
            usage,
            time_ms: 5,
        };
        let (wrote, brings) = (self.roll(2) == 0, self.marks());
        let unknown = BTreeMap::new();
        let end = if ends { End::Cancelled } else { End::Failed(Failure::Checks) };
        let report = Report { child: id.clone(), end, reason: "it ended".to_owned(), spent, wrote, unknown, brings };
        let told = |id: &str| {
            let body = InputBody::ChildEnded(Box::new(report.clone()));
            Command::TakeInput(Input { id: InputId::new(id), at: Timestamp(1), body, images: Vec::new() })
        };
        let before = self.run.spent;
        assert!(self.ask(told("once")));
        assert_eq!(self.run.spent.model_calls, before.model_calls + spent.model_calls);
        assert_eq!(self.run.spent.usage.tokens(), before.usage.tokens() + usage.tokens());
        assert_eq!(self.run.spent.turns, before.turns, "turns are its own");
        let after = self.run.spent;
        assert!(self.ask(told("twice")), "it is refused, and said so");
        assert_eq!(
            (self.run.spent.model_calls, self.run.spent.usage),
            (after.model_calls, after.usage),
            "settled once"
        );
    }

    /// What the edge found out, whatever that is.
    fn transit(&mut self, step: u32) -> Transit {
        let course = self.run.course.clone().expect("it has a program");
        let found = (0..3)
            .map(|_| match self.roll(8) {
                0 => Found::Fails("no such value".to_owned()),
                1..4 => Found::Holds,
                _ => Found::HoldsNot,
            })
            .collect();
        let output = match self.roll(5) {
            0 if course.at != At::Start => Err("it is no JSON".to_owned()),
            1 => Ok(Some(result())),
            _ => Ok(None),
        };
        let entry = match self.roll(9) {
            0 => Err("a template is wrong".to_owned()),
            _ => Ok(Entry {
                words: "words".to_owned(),
                lesson: if self.roll(2) == 0 { "x".repeat(5_000) } else { String::new() },
            }),
        };
        let judgement = Some(self.judgement());
        Transit { step, found, output, childless: None, judgement, entry }
    }

    fn judgement(&mut self) -> Judgement {
        if self.roll(4) == 0 {
            return Judgement::Refused("no".to_owned());
        }
        Judgement::Accepted(Accepted {
            answer: Payload::string("words"),
            rendered: "words".to_owned(),
            evidence: Vec::new(),
            standing: Standing::Claimed,
        })
    }

    /// A program's state stays as small as the program, and no phase is entered more often than it may be.
    fn program_is_bounded(&self) {
        let Some((course, program)) = self.run.course.as_ref().zip(self.run.phases()) else { return };
        for phase in &program.phases {
            let most = phase.visits.unwrap_or(u32::MAX);
            assert!(course.visits_of(&phase.name) <= most, "{} was entered too often", phase.name);
        }
        assert!(course.outputs.len() <= program.phases.len());
        for lesson in course.lessons.values() {
            assert!(lesson.len() <= LESSONS_MAX && lesson.iter().all(|lesson| lesson.len() <= LESSON_BYTES_MAX));
        }
    }

    /// What runs and is not owed any more is ended by the driver, which then says so.
    fn give_up_what_is_not_owed(&mut self) {
        if self.run.winding.is_none() {
            return;
        }
        if let Stage::Thinking(thinking) = &self.run.stage {
            let attempt = thinking.attempt;
            let failure = ModelFailure { class: ModelErrorClass::Lost, ..self.failure() };
            self.ask(Command::FailModel { attempt, failure, jitter: 0 });
        }
        let given_up: Vec<_> = self
            .run
            .actions()
            .filter(|action| matches!(action.life, Life::Started { .. }) && action.effect != EffectClass::External)
            .map(|action| (action.id, action.attempts))
            .collect();
        for (action, attempt) in given_up {
            let outcome = Outcome::Error(ToolError::new("cancelled", "given up"));
            self.ask(Command::Finish { action, attempt, outcome, brings: Vec::new(), left: None });
        }
    }

    /// Something from outside, sensible or not.
    fn meddle(&mut self) {
        let action = ActionId(self.roll32(12) + 1);
        let attempt = AttemptId { turn: TurnId(self.roll32(5) + 1), attempt: self.roll32(4) + 1 };
        match self.roll(18) {
            // Twice as often as it would be taken: mostly it is not the time for it.
            16 | 17 => self.ask_for_children(),
            0 => self.claim(),
            1..7 => {
                let body = self.input(action);
                self.inputs += 1;
                let is_message = matches!(body, InputBody::Message(_));
                let images = if is_message { self.images() } else { Vec::new() };
                let input = Input { id: InputId::new(format!("i{}", self.inputs)), at: self.now, body, images };
                let moment = Moment::Message { input: input.id.clone() };
                if !self.ask(Command::TakeInput(input.clone())) {
                    assert!(matches!(input.body, InputBody::Message(_)) && !hook::told(&self.run, &moment).is_empty());
                    let heard = Heard::Asked(self.said(&moment));
                    assert!(self.ask(Command::TakeMessage(input, heard)), "an input is always answered");
                }
            }
            7 => {
                self.ask(Command::Park);
            }
            8 => {
                self.ask(Command::Suspend { cause: Suspension::Terminated, detail: String::new() });
            }
            9 => {
                self.ask(Command::Tick);
            }
            10 => {
                let outcome = self.outcome(action);
                let attempt = self.roll32(4);
                let brings = self.marks();
                self.ask(Command::Finish { action, attempt, outcome, brings, left: None });
            }
            11 => {
                let reads = self.run.action(action).is_some_and(|action| action.effect == EffectClass::Read);
                let (readiness, key) = (self.readiness(reads), self.key());
                let tree = self.tree_view();
                self.ask(Command::Start { action, readiness, key, heard: Heard::NotAsked, tree });
            }
            12 => {
                let (attempt, probe) = (self.roll32(4), self.probe(action));
                self.ask(Command::Recover { action, attempt, probe, jitter: 2 });
            }
            13 => {
                let reply = self.reply(attempt);
                self.ask(reply);
            }
            14 => {
                self.ask(Command::DenyUnasked { action, reason: "nobody".to_owned() });
            }
            _ => {
                let mode = Mode::ALL.get(usize::try_from(self.roll(10)).expect("it is an index")).copied();
                self.ask(Command::NoteSurroundings { changed: vec![format!("file{}", action.0)], mode });
            }
        }
    }

    fn images(&mut self) -> Vec<ImageRef> {
        let count = [0, 0, 1, 3][usize::try_from(self.roll(4)).expect("it is an index")];
        let side = |number: u64| u8::try_from(number + 1).expect("it is small");
        let file = |number: u64| [b"GIF89a", &[side(number), 0, 9, 0][..]].concat();
        (0..count).map(|number| ImageRef::read("a.gif", &file(number)).expect("it is one")).collect()
    }

    /// What came with a message stays with it, whatever becomes of the message: in the window, behind it, and in memory.
    fn images_stay_with_their_words(&self) {
        let mut came: BTreeMap<Seq, &[ImageRef]> = BTreeMap::new();
        for (number, (_, event)) in self.events.iter().enumerate() {
            if let Event::InputReceived(received) = event {
                came.insert(Seq(number as u64 + 1), &received.images);
            }
        }
        for message in &self.run.memory.messages {
            assert_eq!(message.item.images(), came[&message.seq], "u{}", message.seq);
        }
        let kept: BTreeSet<Seq> = self.run.memory.messages.iter().map(|message| message.seq).collect();
        let is_lost = came.iter().find(|(seq, images)| !images.is_empty() && !kept.contains(seq));
        assert_eq!(is_lost, None, "images came and nobody shows them");
        for (part, item) in self.run.window.parts.iter().zip(self.run.window.items.iter()) {
            if let Part::Message(seq) = part {
                assert_eq!(item.images(), came[seq], "u{seq}");
            } else {
                assert!(item.images().is_empty(), "{part:?} has images");
            }
        }
    }

    fn input(&mut self, action: ActionId) -> InputBody {
        let asked = self.run.action(action).map(|action| action.life.clone());
        let digest = match asked {
            Some(Life::Held(question)) if self.roll(4) > 0 => question.digest,
            _ => Digest::of(b"something else"),
        };
        let (by, door) = ("ann".to_owned(), Door::Cli);
        match self.roll(9) {
            0 => InputBody::Message("words".to_owned()),
            1 | 2 => {
                let expires = self.now.plus(Duration::from_secs(self.roll(3) * 3600));
                let covers = if self.roll(4) == 0 { Covers::Always } else { Covers::Once };
                let typed = (self.roll(3) > 0).then(|| "x".to_owned());
                InputBody::Approve(Approve { action, digest, by, door, expires, covers, reason: None, typed })
            }
            3 => InputBody::Deny(Deny { action, digest, by, door, reason: None }),
            4 | 5 => {
                let truth = if self.roll(2) == 0 { Truth::Done(result()) } else { Truth::NotDone };
                InputBody::Settle(Settle { action, truth, by })
            }
            6 => {
                let outcome = self.outcome(action);
                let (attempt, brings) = (self.roll32(3), self.marks());
                InputBody::LateOutcome(LateOutcome { action, attempt, outcome, brings })
            }
            7 => InputBody::Raise(Raise { turns: self.roll(3), model_calls: self.roll(3), ..Raise::default() }),
            8 | 9 => {
                let source = format!("host{}.test", self.roll(4));
                InputBody::Endorse(Endorse { source, by, door })
            }
            _ if self.roll(6) == 0 => InputBody::Cancel,
            _ => InputBody::SwitchModel(ModelSpec::plain(ModelName::new("other"), 100)),
        }
    }

    fn failure(&mut self) -> ModelFailure {
        use ModelErrorClass::*;
        let classes = [Transient, RateLimited, Overloaded, Quota, Malformed, Lost, ContentRefused, ContextExhausted];
        let class = classes[usize::try_from(self.roll(8)).expect("it is an index")];
        ModelFailure {
            class,
            message: "it failed".to_owned(),
            status: None,
            retry_after_s: (self.roll(2) == 0).then_some(7),
            billing: if self.roll(2) == 0 { Billing::Nothing } else { Billing::Perhaps },
            usage: None,
            partial: None,
            served: None,
        }
    }

    fn reply(&mut self, attempt: AttemptId) -> Command {
        let names = [
            "look", "edit", "pay", "ship", "email", "book", "publish", "release", "nothing", "craft", "reserve",
            "announce",
        ];
        let count = if self.roll(4) == 0 { 0 } else { self.roll(6) };
        let calls: Vec<RawCall> = (0..count)
            .map(|_| RawCall {
                id: format!("c{}", self.roll(3)),
                name: names[usize::try_from(self.roll(12)).expect("it is an index")].to_owned(),
                arguments: "{}".to_owned(),
            })
            .collect();
        let proposals = calls.iter().enumerate().map(|(index, call)| self.proposal(call, index)).collect();
        let text = if self.roll(8) == 0 { String::new() } else { "words".to_owned() };
        let finish = match self.roll(12) {
            0 => Finish::Length,
            1 => Finish::Other(String::new()),
            _ => Finish::Stop,
        };
        let usage = (self.roll(2) == 0).then(|| Usage { input: 10, output: 5, ..Usage::default() });
        let judgement = calls.is_empty().then(|| {
            if self.roll(4) == 0 {
                Judgement::Refused("no".to_owned())
            } else {
                Judgement::Accepted(Accepted {
                    answer: Payload::string("words"),
                    rendered: "words".to_owned(),
                    evidence: Vec::new(),
                    standing: Standing::Claimed,
                })
            }
        });
        let reply = Reply { text, calls, finish, usage, repaired: None, wired: None };
        Command::Reply { attempt, reply, proposals, judgement, jitter: 3 }
    }

    fn proposal(&mut self, call: &RawCall, index: usize) -> Proposal {
        let args = Payload::parse("{}").expect("it is JSON");
        let is_known = self.run.task.tool(&ToolName::new(call.name.clone())).is_some();
        let readiness = match self.roll(6) {
            _ if !is_known => Readiness::Refused(ToolError::new("unknown_tool", "no such tool")),
            0 => Readiness::Refused(ToolError::new("invalid_arguments", "no")),
            _ => self.readiness(call.name == "look"),
        };
        let index = u32::try_from(index).expect("there are few calls");
        let builds_on = if index > 0 && self.roll(5) == 0 { vec![self.roll32(index)] } else { Vec::new() };
        Proposal {
            path: None,
            tool: ToolName::new(call.name.clone()),
            digest: args.digest(),
            args,
            key: (call.name == "book").then(|| Digest::of(b"order 1")),
            builds_on,
            readiness,
        }
    }

    /// What only reads may be a question to a person.
    fn readiness(&mut self, reads: bool) -> Readiness {
        let rule = "rule".to_owned();
        let asks = if self.roll(5) == 0 { Asks::Deny } else { Asks::Hold };
        if reads && self.roll(3) == 0 {
            return Readiness::Question { text: "which?".to_owned(), digest: Digest::of(b"question"), rule, asks };
        }
        let ruling = match self.roll(8) {
            0 => Ruling::Deny { rule, reason: "no".to_owned() },
            1 | 2 => Ruling::Ask { rule, reason: "hm".to_owned() },
            _ => Ruling::Allow { rule },
        };
        let exact = (self.roll(4) > 0).then(|| Digest::of(&[u8::from(self.roll(2) == 0)]));
        let bearing = if self.roll(2) == 0 { Bearing::Looks } else { Bearing::Acts };
        let effects = vec![Effect { kind: EffectKind::Run, what: "it".to_owned() }];
        let question = Digest::of(b"question");
        let wants = if self.roll(4) == 0 { Wants::Typed("x".to_owned()) } else { Wants::Yes };
        let brings = self.marks();
        Readiness::Ruled {
            ruling,
            question,
            exact,
            wants,
            asks,
            target: None,
            brings,
            effects,
            beyond: Vec::new(),
            bearing,
            sandbox: None,
        }
    }

    fn key(&mut self) -> KeyView {
        let (run, action) = (RunId::new("other"), ActionId(1));
        match self.roll(12) {
            0 => KeyView::Held { run, action },
            1 => KeyView::Done { run, action, result: result(), brings: self.marks() },
            2 => KeyView::Conflict { run, action, fields: vec!["x".to_owned()] },
            _ => KeyView::Free { times_freed: 0 },
        }
    }

    /// What a result brings: mostly nothing.
    fn marks(&mut self) -> Vec<Mark> {
        if self.roll(4) > 0 {
            return Vec::new();
        }
        let integrity = [Integrity::User, Integrity::Workspace, Integrity::Untrusted][self.roll(3) as usize];
        let confidentiality = [Confidentiality::Public, Confidentiality::Secret][self.roll(2) as usize];
        let source = format!("host{}.test", self.roll(4));
        vec![Mark { label: Label { integrity, confidentiality }, source }]
    }

    /// One that fits the class of the action's tool.
    fn outcome(&mut self, action: ActionId) -> Outcome {
        let error = ToolError::new("exit", "exit 1");
        let is_external = self.run.action(action).is_some_and(|action| action.effect == EffectClass::External);
        match self.roll(4) {
            0 if is_external => Outcome::NotDone(error),
            1 if is_external => Outcome::Unknown(ToolError::new(class::UNKNOWN_OUTCOME, "exit 75")),
            0 | 1 => Outcome::Error(error),
            _ => Outcome::Done(result()),
        }
    }

    fn probe(&mut self, action: ActionId) -> Option<ProbeAnswer> {
        let asks = self
            .run
            .action(action)
            .and_then(|action| self.run.task.tool(&action.tool))
            .is_some_and(|tool| !tool.reconcile.is_empty());
        if !asks {
            return None;
        }
        Some(match self.roll(3) {
            0 => ProbeAnswer::TookEffect(result()),
            1 => ProbeAnswer::NoEffect,
            _ => ProbeAnswer::NoAnswer("pending".to_owned()),
        })
    }
}

/// Every call has exactly one observation, in call order, before the next reply.
fn pairing(run: &Run) {
    let mut owed: Vec<&str> = Vec::new();
    let mut ids = BTreeSet::new();
    for item in run.window.items.iter() {
        match item.as_ref() {
            Item::Observation { call, .. } => {
                assert!(!owed.is_empty(), "the observation of {call} is an orphan");
                assert_eq!(owed.remove(0), call, "observations come in call order");
            }
            Item::Assistant { calls, .. } => {
                assert!(owed.is_empty(), "{owed:?} have no observation");
                for call in calls {
                    assert!(!call.id.is_empty() && ids.insert(call.id.clone()), "the id {} is not unique", call.id);
                    owed.push(&call.id);
                }
            }
            Item::User(_) | Item::Pictured { .. } | Item::Exhibit { .. } | Item::Harness(_) => {
                assert!(owed.is_empty(), "words between {owed:?} and their observations")
            }
        }
    }
    let is_thinking_about_none = owed.is_empty();
    assert!(is_thinking_about_none, "{owed:?} have no observation");
}

fn result() -> Content {
    Content::Inline(Payload::string("result"))
}

fn verdict(finding: Finding) -> Verdict {
    Verdict { finding, evidence: result(), exit_status: Some(0), took_ms: 1, proof: Proof::default() }
}

/// A label rises with all that an event brings, and falls by an endorsement alone, by no more than that source.
fn law_8_only_an_endorsement_lowers(before: &Taint, run: &Run, event: &Event) {
    let after = &run.taint;
    for mark in event.brings().iter().filter(|mark| mark.label.is_tainted()) {
        assert_eq!(mark.label.join(after.label()), after.label(), "{mark:?} is not in {after:?}");
        assert!(after.sources.contains_key(&mark.source), "there is room for all of these");
    }
    let Event::SourceEndorsed(endorsed) = event else {
        for (source, brought) in &before.sources {
            let now = after.sources.get(source).expect("a source is taken out by an endorsement only");
            assert_eq!((brought.label.join(now.label), now.since), (now.label, brought.since));
        }
        assert_eq!(before.label().join(after.label()), after.label(), "{event:?}");
        return;
    };
    assert!(before.sources.contains_key(&endorsed.source), "only what taints is endorsed");
    let mut left = before.clone();
    left.sources.remove(&endorsed.source);
    assert_eq!(&left, after, "the others stay");
}

/// At least 400 cases; PROPTEST_CASES asks for more.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.max(400), failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_run_stays_whole_whatever_is_asked_of_it(
        seed in any::<u64>(),
        moves in prop::collection::vec((0u8..10, 0u64..20_000), 1..70),
    ) {
        let mut table = Table::new(seed);
        for (kind, later) in moves {
            table.now = table.now.plus(Duration::from_millis(later));
            if kind < 7 { table.work() } else { table.meddle() }
        }
        // What is left of any action is one of the lives there are.
        let ids: BTreeSet<_> = table.run.actions().map(|action: &Action| action.id).collect();
        prop_assert!(ids.len() == table.run.actions().count());
    }

    /// Left to a driver for whom everything goes well, every run comes to rest or waits for a person.
    #[test]
    fn a_run_that_is_worked_on_comes_to_rest(seed in any::<u64>()) {
        let mut table = Table::new(seed);
        for _ in 0..2_000 {
            let is_claimed = table.run.activity == Activity::Claimed;
            if matches!(table.run.stage, Stage::Rest(_)) || !owed::waits(&table.run).is_empty() {
                return Ok(());
            }
            if !is_claimed {
                table.claim();
            }
            table.now = table.now.plus(Duration::from_millis(500));
            table.work();
        }
        prop_assert!(false, "no end in sight: {:?}", table.run.stage);
    }

    #[test]
    fn a_start_under_an_old_fence_clears_nothing(seed in any::<u64>()) {
        let mut table = Table::new(seed);
        for _ in 0..60 {
            table.now = table.now.plus(Duration::from_millis(50));
            table.work();
            let started = match table.events.last() {
                Some((_, Event::ActionStarted(started))) => started.clone(),
                _ => continue,
            };
            prop_assert!(table.run.clear(&started).is_some());
            table.claim();
            prop_assert!(table.run.clear(&started).is_none());
            prop_assert!(table.run.fence > Fence(1));
            return Ok(());
        }
    }
}

/// What was read before stays read: in the other run, in what is made of it, and in a run that is written down.
#[test]
fn law_8_a_fork_and_a_snapshot_know_what_was_read() {
    let label = Label { integrity: Integrity::Untrusted, confidentiality: Confidentiality::Workspace };
    let mut start = begin(RunId::new("r"), task(9, Mode::Ask), "test");
    start.brings = vec![Mark { label, source: "/w/AGENTS.md".to_owned() }];
    let mut run = Run::new(&start, Timestamp(1));
    assert_eq!(run.taint.label(), label, "rules that were captured stand in every request");
    let forked = longrein_core::event::RunForked {
        from: RunId::new("q"),
        at: Seq(1),
        limits: run.limits.clone(),
        first_tree: None,
    };
    run.apply(Seq(2), Timestamp(2), &Event::RunForked(forked));
    assert_eq!(run.taint.label(), label);
    let saved = longrein_core::snapshot::save(&run);
    assert_eq!(longrein_core::snapshot::restore(&saved, &start).expect("restored").taint, run.taint);
}

/// Events of before there were labels.
#[test]
fn events_without_labels_are_read_as_bringing_nothing() {
    for json in [
        r#"{"action.finished":{"action":"a1","attempt":1,"effect":"read","outcome":{"done":{"inline":"x"}},"how":"observed"}}"#,
        r#"{"check.finished":{"check":"c","round":1,"verdict":{"finding":"passed","evidence":{"inline":"x"},"exit_status":0,"took_ms":1}}}"#,
        r#"{"action.settled":{"action":"a1","truth":"not_done","by":{"person":{"input":"i","by":"ann"}}}}"#,
        r#"{"action.started":{"action":"a1","attempt":1,"fence":1,"effect":"read","rule":"r"}}"#,
    ] {
        let event: Event = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        assert!(event.brings().is_empty());
        let again = serde_json::to_string(&event).expect("written");
        assert!(!again.contains("brings"), "and so it is written: {again}");
    }
}

/// A yes was given to another run (`semantics.md` I1).
#[test]
fn a_fork_brings_no_approval_along() {
    let start = begin(RunId::new("r"), task(9, Mode::Ask), "test");
    let mut run = Run::new(&start, Timestamp(1));
    run.allowed.insert(Digest::of(b"exactly this"), "ops".to_owned());
    run.seen.insert("a.rs".to_owned(), Digest::of(b"content"));
    let forked = longrein_core::event::RunForked {
        from: RunId::new("q"),
        at: Seq(1),
        limits: run.limits.clone(),
        first_tree: None,
    };
    run.apply(Seq(2), Timestamp(2), &Event::RunForked(forked));
    assert!(run.allowed.is_empty(), "it is asked again");
    assert!(run.seen.is_empty(), "files may have changed: they are read again");
    assert_eq!(run.started, Timestamp(2));
}
