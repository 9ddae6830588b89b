//! One play: a task, what is injected into it, who answers the questions; and what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein::core::event::Event;
use longrein::core::ids::{ActionId, RunId, Seq};
use longrein::core::input::{Approve, Covers, Door, InputBody};
use longrein::core::outcome::Outcome;
use longrein::core::task::Builtin;
use longrein::ports::RecordedBody;
use longrein::{Containment, LanguageModel, Longrein, Mode, Question, RunState, Task, WhenAsked};
use serde_json::Value;

use crate::puppet::{Move, Puppet, Strings};
use crate::world::World;

/// Who answers what the gate asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Approver {
    /// Nobody is there.
    DenyAll,
    /// A person who approves the calls of their own task, as often as it has them, and nothing else.
    UserIntent,
    /// A tired person: only denials count.
    ApproveAll,
}

impl Approver {
    pub(crate) const ALL: [Approver; 3] = [Approver::DenyAll, Approver::UserIntent, Approver::ApproveAll];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Approver::DenyAll => "nobody",
            Approver::UserIntent => "their own calls only",
            Approver::ApproveAll => "everything",
        }
    }
}

/// Of the operator's own: what they allow in this project without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Tests, commits, the inbox.
    Plain,
    /// Besides what the eight tasks need: the tracker, `package.json`, mail, the docs' host.
    Generous,
}

/// One run of a play.
pub(crate) struct Leg {
    pub(crate) goal: String,
    pub(crate) task: Vec<Move>,
    pub(crate) strings: Vec<Strings>,
}

pub(crate) struct Play {
    pub(crate) world: World,
    pub(crate) legs: Vec<Leg>,
    pub(crate) mode: Mode,
    pub(crate) approver: Approver,
    pub(crate) rules: Rules,
    pub(crate) containment: Containment,
    /// The calls none of which an attacker may get started, beyond those that the user wants.
    pub(crate) decisive: Vec<Move>,
    /// Sources that people trusted beforehand.
    pub(crate) endorsed: Vec<String>,
    /// The model's window in tokens, where it is a small one.
    pub(crate) window: Option<u64>,
    /// Somebody says "always" to the first question, whoever answers the others.
    pub(crate) always_first: bool,
    /// What the user writes once a run has ended, and that it goes on with.
    pub(crate) message: Option<&'static str>,
    /// In words, to whatever the model asks.
    pub(crate) answer: &'static str,
}

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// That had it asked.
    pub(crate) rule: String,
    pub(crate) is_users: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Played {
    /// Decisive calls that were started.
    pub(crate) started: Vec<String>,
    pub(crate) asked: Vec<Asked>,
    /// Calls of the attacker that were proposed at all.
    pub(crate) tried: usize,
    /// Strings that nobody read.
    pub(crate) unread: usize,
    pub(crate) rebuilt: usize,
    /// What was not done, and what was said of it.
    pub(crate) undone: Vec<String>,
    pub(crate) states: Vec<RunState>,
}

const DRIVES_MAX: usize = 200;

impl Play {
    fn open(&self) -> Longrein {
        let asked = match self.approver {
            // whoever pauses or says "always" is there for a while
            Approver::DenyAll if !self.always_first => WhenAsked::Deny,
            Approver::DenyAll | Approver::UserIntent | Approver::ApproveAll => WhenAsked::Park,
        };
        let door = Longrein::builder(&self.store()).environment(self.world.environment()).when_asked(asked);
        door.containment(self.containment).tools(self.world.tools()).open().unwrap()
    }

    /// Only a run that another process takes up needs a store that outlives one.
    fn store(&self) -> String {
        match self.legs.iter().flat_map(|leg| &leg.strings).any(|strings| strings.pauses) {
            true => self.world.store(),
            false => "memory:".to_owned(),
        }
    }

    fn task(&self, leg: &Leg, id: &str, model: LanguageModel) -> Task {
        let inbox = self.world.inbox().display().to_string();
        let mut rules = vec![
            format!("read_file({inbox}/**)"),
            "shell(sh tests/run.sh)".to_owned(),
            "shell(npm test)".to_owned(),
            "shell(git add *)".to_owned(),
            "shell(git commit *)".to_owned(),
        ];
        match self.rules {
            Rules::Plain => {}
            Rules::Generous => rules.extend(
                ["label_issue", "send_mail", "edit_file(package.json)", "web_fetch(docs.example)"].map(str::to_owned),
            ),
        }
        let task = Task::new(&leg.goal).id(id).workspace(self.world.work()).model(model).tools(self.world.tools());
        let task = task.builtins(Builtin::ALL).permission_mode(self.mode);
        rules.iter().fold(task, |task, rule| task.allow(rule))
    }

    /// The user's own calls, as often as they are wanted.
    fn users(&self) -> Vec<Move> {
        self.legs.iter().flat_map(|leg| leg.task.iter().cloned()).collect()
    }

    pub(crate) async fn play(&self) -> Played {
        let mut played = Played::default();
        let mut users = self.users();
        let mut door = self.open();
        for source in &self.endorsed {
            door.runs().endorse(source, "kim", Door::Library).await.unwrap();
        }
        for (at, leg) in self.legs.iter().enumerate() {
            let puppet = Arc::new(Puppet::new(leg.task.clone(), leg.strings.clone()));
            let model = LanguageModel::own("puppet/obedient", puppet.clone());
            let model = self
                .window
                .into_iter()
                .fold(model, |model, tokens| model.context_limit(tokens).max_output(tokens / 16));
            let id = format!("r{at}");
            let mut message = self.message;
            let mut run = door.start(self.task(leg, &id, model.clone())).await.unwrap();
            for _ in 0..DRIVES_MAX {
                let outcome = tokio::select! {
                    outcome = run.outcome() => Some(outcome.unwrap()),
                    () = puppet.paused() => None,
                };
                match outcome {
                    Some(outcome) if outcome.state == RunState::Waiting => {
                        for question in &outcome.questions {
                            self.answer(&door, run.id(), question, &mut users, &mut played).await;
                        }
                        run = door.resume(&outcome.run).await.unwrap();
                    }
                    Some(outcome) if message.is_some() && outcome.is_done() => {
                        door.send(&outcome.run, message.take().unwrap_or_default()).await.unwrap();
                        run = door.start(self.task(leg, &id, model.clone())).await.unwrap();
                    }
                    Some(outcome) => {
                        played.states.push(outcome.state);
                        break;
                    }
                    // another process takes it up: nothing that was in memory is there any more
                    None => {
                        let id = run.id().clone();
                        run.suspend().await.unwrap();
                        drop(door);
                        door = self.open();
                        run = door.start(self.task(leg, id.as_str(), model.clone())).await.unwrap();
                    }
                }
            }
            assert_eq!(played.states.len(), at + 1, "run {at} came to no end: {played:?}");
            played.unread += puppet.unread();
        }
        self.look(&door, &mut played).await;
        played
    }

    async fn answer(
        &self,
        door: &Longrein,
        run: &RunId,
        question: &Question,
        users: &mut Vec<Move>,
        played: &mut Played,
    ) {
        if question.tool.as_str() == Builtin::Ask.as_str() {
            door.send(run, self.answer).await.unwrap();
            return;
        }
        let users_own = users.iter().position(|own| own.is(question.tool.as_str(), &question.args));
        let (rule, is_users) = (question.rule.clone(), users_own.is_some());
        let is_first = played.asked.is_empty();
        played.asked.push(Asked { rule, is_users });
        let yes = match self.approver {
            Approver::DenyAll => false,
            // letters are no reflex: what has to be typed out is not
            Approver::ApproveAll => question.to_type.is_none(),
            Approver::UserIntent => users_own.is_some() && question.to_type.is_none(),
        };
        if let Some(own) = users_own {
            users.remove(own);
        }
        if self.always_first && is_first {
            always(door, run, question.action).await;
            return;
        }
        match yes {
            true => door.approve(run, question.action, "kim").await.unwrap(),
            false => door.deny(run, question.action, "kim", "").await.unwrap(),
        }
    }

    /// What the journals say was started, beyond what the user wants.
    async fn look(&self, door: &Longrein, played: &mut Played) {
        let mut wanted = self.users();
        for at in 0..self.legs.len() {
            let mut proposed: BTreeMap<ActionId, (String, Value)> = BTreeMap::new();
            let mut after = Seq(0);
            loop {
                let page = door.runs().records(&RunId::new(format!("r{at}")), after).await.unwrap();
                let Some(last) = page.last() else { break };
                after = last.seq;
                for record in page {
                    let RecordedBody::Known(event) = record.body else { panic!("an event cannot be read") };
                    if let Event::ActionProposed(action) = &event {
                        let args: Value = action.args.read().unwrap();
                        let is_attack = self.decisive.iter().any(|own| own.is(action.tool.as_str(), &args));
                        played.tried += usize::from(is_attack);
                        proposed.insert(action.action, (action.tool.to_string(), args));
                    } else if let Event::ActionStarted(started) = &event {
                        let (tool, args) = &proposed[&started.action];
                        match wanted.iter().position(|own| own.is(tool, args)) {
                            Some(own) => drop(wanted.remove(own)),
                            None if self.decisive.iter().any(|own| !own.is_aside && own.is(tool, args)) => {
                                played.started.push(format!("{tool} {args} by \"{}\"", started.rule));
                            }
                            None => {}
                        }
                    } else if let Event::ActionRefused(refused) = &event {
                        let (tool, args) = &proposed[&refused.action];
                        played.undone.push(format!("{tool} {args}: {}", refused.error.message));
                    } else if let Event::ActionFinished(finished) = &event
                        && let Outcome::Error(error) | Outcome::NotDone(error) = &finished.outcome
                    {
                        let (tool, args) = &proposed[&finished.action];
                        played.undone.push(format!("{tool} {args}: {}", error.message));
                    } else if matches!(event, Event::GenerationStarted(_)) {
                        played.rebuilt += 1;
                    }
                }
            }
        }
    }
}

/// Yes, to this and to every call of the run that would do the very same.
async fn always(door: &Longrein, run: &RunId, action: ActionId) {
    let folded = door.runs().fold(run, |_| {}).await.unwrap();
    let held = folded.action(action).map(|action| action.life.clone());
    let Some(longrein::core::action::Life::Held(question)) = held else { panic!("it is not asked") };
    let expires = door.runs().clock().now().plus(std::time::Duration::from_secs(3600));
    let approve = Approve {
        action,
        digest: question.digest,
        by: "kim".to_owned(),
        door: Door::Library,
        expires,
        covers: Covers::Always,
        reason: None,
        typed: None,
    };
    door.runs().post(run, InputBody::Approve(approve)).await.unwrap();
}
