//! Scenarios: stories written down by hand, in files anyone can read.
//!
//! A file is a list of lines `word: rest`; `#` begins a comment. The run advances by itself as far as it can whenever a
//! line asks what came of it (`human`, `expect`). Replies of the model are taken in the order of the file.
//!
//! ```text
//! tools:   NAME ask | NAME note                       one that asks a person, one that keeps notes
//! tools:   NAME read|workspace|external [idempotent] [reconcile] [tell] [key=ARG] [provides=F] [requires=F]
//!          [depends=NAME] [max=N] [cache] [check] [compensate=NAME] [writes=PATH]   one tool; repeat the line for more
//! gate:    NAME allow|ask|deny                        the operator's rule, from now on
//! program: NAME                                       one of those that are shipped
//! program: a line of a program file                   repeat it for more
//! checks:  NAME passed|failed …                       an acceptance check and its verdicts, one after the other
//! check:   TOOL passed|failed …                       what the check of a tool finds, one after the other
//! protect: NAME PATH/**                               paths of an acceptance check
//! changed: NAME | writing: NAME                       a check whose program was changed | one that writes the workspace
//! stirred: NAME                                       a check right after which somebody else changes a file, once
//! snapshots: fail                                     none can be taken
//! file:    [after 150ms] PATH "words" | PATH gone      somebody else changes a file of the workspace
//! hook:    NAME EVENT [TOOL|TOOL] pass|block|ask|fail|halt|hang …   a hook and what it says, one after the other
//! limits:  turns=N model_calls=N tool_calls=N tokens=N time_ms=N
//! mode:    plan|ask|accept-edits|auto|shadow          the permission mode; after the start, of the next process
//! user:    the goal
//! window:  N [output=N]                               tokens the model takes, and the most of them in a reply
//! route:   NAME [on=CLASS,CLASS] [phase=NAME] [context=N] [window=N]   where calls go; without a condition: on any failure
//! served:  N                                          tokens it takes in truth; from now on they are counted
//! constraint: words                                   that hold for the whole task
//! rules:   PATH "words"                               a rule file of the workspace
//! tool:    NAME done|fails|lands-and-fails|not-done|hangs|slow|large:BYTES …   how its attempts go, one after the other
//! tool:    NAME says:WORD|error:CLASS[:SECONDS] …      the same: what it returns each time; an error that names its class
//! probe:   NAME pending|yes|no …                      what its next reconcile commands say, instead of the truth
//! model:   "words"                                    a reply without calls
//! model:   NAME {json}; NAME {json}                   a reply with calls
//! model:   N times …                                  the same reply in so many turns; # in it is the number of the turn
//! model:   fails transient|rate_limited|overloaded|quota|bad_request|context|refused   a call without a reply
//! model:   fails context limit=N                      too long, and the server says how much it takes
//! model:   cut | empty                                a reply that cannot be used
//! human:   approve a1 [always] | deny a1 "why" | settle a1 done|not-done | message "words" | cancel | raise turns=N …
//! human:   rollback [a1]                              the workspace back to before it
//! human:   switch NAME [window=N]                     another model goes on
//! human:   after 150ms message "words" | …            not now: while the run goes on
//! crash:   POINT[:N]                                  the process dies there (the names of --crash-at)
//! power:   lost                                       what was not synced is gone
//! resume:                                             a new process takes the run up
//! time:    60s                                        passes
//! expect:  done | exhausted NAME | failed NAME | cancelled | context_exhausted | suspended | crashed
//! expect:  waiting a1 a2                              nothing can move without a person
//! expect:  model sees "words" | model does not see "words"
//! expect:  reason "words"                             why the last model call was not made
//! expect:  because "words"                            why the run ended or was suspended
//! expect:  asked NAME NAME …                          the models that were asked, in order
//! expect:  noticed KIND told|taken|ended              that it went in circles, last
//! expect:  noticed nothing
//! expect:  may call NAME … | may not call NAME …      by the manifest of the last request
//! expect:  rebuilt N                                  so many generations have followed the first
//! expect:  file PATH a1 | file PATH "words" | file PATH gone   what lies there: what that action wrote, or these words
//! expect:  verified true | verified false | verified null
//! expect:  refused "words"                            the last input, for this reason
//! expect:  check NAME ran N
//! expect:  way A B done                                the phases that were entered, in order, and the end
//! expect:  output PHASE "json" | lesson LIST "words"    what a phase has left, what is remembered
//! expect:  NAME happened N | NAME ran N | model was asked N | answer "words"
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longrein_core::budget::{Limit, Raise};
use longrein_core::check::Finding;
use longrein_core::event::{End, Event, Wait};
use longrein_core::hook::HookEvent;
use longrein_core::ids::{ActionId, Digest, FactName, ModelName, PhaseName, RunId, ToolName};
use longrein_core::input::{Approve, Covers, Door, InputBody, Rollback, Settle, Truth};
use longrein_core::outcome::{Finish, ModelErrorClass, ProbeAnswer, Reply, Served};
use longrein_core::payload::{Content, Payload};
use longrein_core::program::Program;
use longrein_core::route::{ROUTABLE, Route, class_of};
use longrein_core::task::{EffectClass, KeyScope, KeySpec, Mode, ModelSpec, OnUnknown, RuleFile, Task, ToolSpec};
use longrein_driver::{Begin, DriveError, Standing, Stop, WhenAsked};
use longrein_ports::CrashAt;

use crate::crash::{Crashes, WithCrashes};
use crate::laws;
use crate::people::{Answer, Counts, Say};
use crate::story::in_virtual_time;
use crate::town::{Drove, Town, asking, check, hook, noting, task, tool};
use crate::ushers::HookSays;
use crate::world::{Manner, receipt};

/// One line of a file.
#[derive(Debug, Clone)]
struct Line {
    number: usize,
    word: String,
    rest: String,
}

/// Runs a scenario. The error says which line did not come true.
pub fn run(text: &str) -> Result<(), String> {
    let lines = parse(text)?;
    in_virtual_time(async {
        let mut stage = Stage::set(&lines)?;
        for line in &lines {
            stage.play(line).await.map_err(|what| {
                let trace = stage.town.record.trace().join("\n");
                format!("line {}: `{}: {}`: {what}\n{trace}", line.number, line.word, line.rest)
            })?;
        }
        laws::check(&stage.town, &stage.id).await;
        let breaches = stage.town.record.breaches();
        if breaches.is_empty() {
            Ok(())
        } else {
            Err(format!("{breaches:?}\n{}", stage.town.record.trace().join("\n")))
        }
    })
}

fn parse(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let trimmed = raw.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let number = index + 1;
        let (word, rest) = trimmed.split_once(':').ok_or_else(|| format!("line {number}: no `word:`"))?;
        lines.push(Line { number, word: word.trim().to_owned(), rest: rest.trim().to_owned() });
    }
    Ok(lines)
}

struct Stage {
    town: Arc<Town>,
    crashes: Arc<Crashes>,
    id: RunId,
    task: Task,
    /// Something happened since the run was advanced.
    due: bool,
    last: Last,
    inputs: u32,
    /// What the next process is told.
    mode: Option<Mode>,
    /// The program of the run that is to begin: a name, or the lines of a file.
    program: String,
}

/// How the last advance ended.
#[derive(Debug)]
enum Last {
    NotYet,
    Crashed,
    Stands(Standing),
    Hangs,
    Failed(DriveError),
}

impl Stage {
    fn set(lines: &[Line]) -> Result<Self, String> {
        let crashes = Crashes::none();
        let town = Town::new(1, Arc::new(WithCrashes(Arc::clone(&crashes))));
        let mut task = task("scenario");
        task.tools = Vec::new();
        let mut turns: Vec<Vec<Answer>> = vec![Vec::new()];
        for line in lines.iter().filter(|line| line.word == "model") {
            for rest in repeated(&line.rest) {
                let (answer, ends_turn) = answer(&rest).map_err(|what| format!("line {}: {what}", line.number))?;
                turns.last_mut().into_iter().for_each(|turn| turn.push(answer.clone()));
                if ends_turn {
                    turns.push(Vec::new());
                }
            }
        }
        turns.retain(|turn| !turn.is_empty());
        town.brain.script_attempts(turns);
        for line in lines.iter().filter(|line| line.word == "tools") {
            task.tools.push(spec(&line.rest).map_err(|what| format!("line {}: {what}", line.number))?);
        }
        town.set_tools(task.tools.clone());
        let id = RunId::new("scenario");
        Ok(Self {
            town,
            crashes,
            id,
            task,
            due: true,
            last: Last::NotYet,
            inputs: 0,
            mode: None,
            program: String::new(),
        })
    }

    async fn play(&mut self, line: &Line) -> Result<(), String> {
        let words: Vec<&str> = line.rest.split_whitespace().collect();
        match line.word.as_str() {
            "tools" | "model" => Ok(()),
            "user" => {
                self.task.goal.clone_from(&line.rest);
                Ok(())
            }
            "mode" => {
                let mode = Mode::from_name(&line.rest).ok_or_else(|| format!("no mode {}", line.rest))?;
                match self.town.store.run(&self.id) {
                    Some(_) => self.mode = Some(mode),
                    None => self.task.permission_mode = mode,
                }
                Ok(())
            }
            "program" => {
                self.program.push_str(&line.rest);
                self.program.push('\n');
                Ok(())
            }
            "window" => {
                let [limit, more @ ..] = &words[..] else { return Err("wants a number of tokens".to_owned()) };
                self.task.model.context_limit = Some(number(limit)?);
                if let Some(output) = option(more, "output")? {
                    self.task.model.max_output = output;
                }
                Ok(())
            }
            "route" => {
                self.task.routes.push(route(&words)?);
                Ok(())
            }
            "served" => {
                let served = [(self.task.model.name.clone(), number(&line.rest)?)].into();
                self.town.brain.count(Counts { density: 250, served, says_limit: false });
                Ok(())
            }
            "constraint" => {
                self.task.constraints.push(line.rest.clone());
                Ok(())
            }
            "rules" => {
                let [path, ..] = words[..] else { return Err("wants a path".to_owned()) };
                let text = quoted(&line.rest)?;
                let digest = Digest::of(text.as_bytes());
                self.task.rules.push(RuleFile { path: path.to_owned(), text, digest });
                Ok(())
            }
            "gate" => {
                let [name, say] = words[..] else { return Err("wants a tool and a ruling".to_owned()) };
                let say = match say {
                    "allow" => Say::Allow,
                    "ask" => Say::Ask,
                    "deny" => Say::Deny,
                    other => return Err(format!("no ruling {other}")),
                };
                self.town.rules.set(name, say);
                Ok(())
            }
            "checks" => {
                let [name, findings @ ..] = &words[..] else { return Err("wants a name".to_owned()) };
                self.task.acceptance.push(check(name));
                let findings = findings.iter().map(|word| match *word {
                    "passed" => Ok(Finding::Passed),
                    "failed" => Ok(Finding::Failed),
                    other => Err(format!("no verdict {other}")),
                });
                self.town.bench.script(name, findings.collect::<Result<Vec<_>, _>>()?);
                Ok(())
            }
            "check" => {
                let [tool, findings @ ..] = &words[..] else { return Err("wants a tool".to_owned()) };
                let findings = findings.iter().map(|word| match *word {
                    "passed" => Ok(Finding::Passed),
                    "failed" => Ok(Finding::Failed),
                    other => Err(format!("no verdict {other}")),
                });
                self.town.bench.script(tool, findings.collect::<Result<Vec<_>, _>>()?);
                Ok(())
            }
            "protect" => {
                let [name, pattern] = words[..] else { return Err("wants a check and a path".to_owned()) };
                let check = self.task.acceptance.iter_mut().find(|check| check.name.as_str() == name);
                check.ok_or("no such check")?.protect.push(pattern.to_owned());
                Ok(())
            }
            "changed" => {
                self.town.bench.change_program(&line.rest);
                Ok(())
            }
            "writing" => {
                self.town.bench.writes(&line.rest);
                Ok(())
            }
            "stirred" => {
                self.town.bench.is_followed_by_an_edit(&line.rest);
                Ok(())
            }
            "snapshots" => {
                self.town.world.has_no_room_for_trees();
                Ok(())
            }
            "file" => self.file(&line.rest).await,
            "hook" => {
                let [name, event, more @ ..] = &words[..] else { return Err("wants a name and an event".to_owned()) };
                let event = HookEvent::named(event).ok_or("no such event")?;
                let (tools, says) = match more {
                    [tools, says @ ..] if event.is_about_a_tool() => (*tools, says),
                    says => ("*", says),
                };
                let tools: Vec<&str> = tools.split('|').filter(|tool| *tool != "*").collect();
                self.task.hooks.push(hook(name, event, &tools));
                let says = says.iter().map(|word| word.parse()).collect::<Result<Vec<HookSays>, String>>()?;
                self.town.ushers.script(name, says);
                Ok(())
            }
            "limits" => {
                let raise = raise(&words)?;
                let limits = &mut self.task.limits;
                let set = |limit: &mut Limit, to: u64| {
                    if to > 0 {
                        *limit = Limit::At(to);
                    }
                };
                set(&mut limits.turns, raise.turns);
                set(&mut limits.model_calls, raise.model_calls);
                set(&mut limits.tool_calls, raise.tool_calls);
                set(&mut limits.tokens, raise.tokens);
                set(&mut limits.time_ms, raise.time_ms);
                Ok(())
            }
            "tool" => {
                let [name, manners @ ..] = &words[..] else { return Err("wants a tool".to_owned()) };
                let manners = manners.iter().map(|word| manner(word)).collect::<Result<Vec<_>, _>>()?;
                self.town.world.script(name, manners);
                Ok(())
            }
            "probe" => {
                let [name, answers @ ..] = &words[..] else { return Err("wants a tool".to_owned()) };
                let answers = answers.iter().map(|word| match *word {
                    "pending" => Ok(ProbeAnswer::NoAnswer("pending".to_owned())),
                    "yes" => Ok(ProbeAnswer::TookEffect(Content::Inline(receipt(ActionId(1))))),
                    "no" => Ok(ProbeAnswer::NoEffect),
                    other => Err(format!("no answer {other}")),
                });
                self.town.world.script_probes(name, answers.collect::<Result<Vec<_>, _>>()?);
                Ok(())
            }
            "crash" => {
                let CrashAt { point, nth } = line.rest.parse()?;
                self.crashes.arm(point, nth);
                self.due = true;
                Ok(())
            }
            "power" => {
                self.town.lose_power();
                Ok(())
            }
            "resume" => {
                self.due = true;
                Ok(())
            }
            "time" => {
                self.advance().await;
                tokio::time::sleep(span(&line.rest)?).await;
                Ok(())
            }
            "human" => self.human(&line.rest).await,
            "expect" => {
                self.advance().await;
                self.expect(&line.rest)
            }
            other => Err(format!("no such word {other}")),
        }
    }

    /// Somebody else changes a file, now or later.
    async fn file(&mut self, rest: &str) -> Result<(), String> {
        let (wait, rest) = match rest.strip_prefix("after ") {
            Some(later) => {
                let (wait, what) = later.split_once(' ').ok_or("wants a time and a path")?;
                (Some(span(wait)?), what)
            }
            None => (None, rest),
        };
        let (path, what) = rest.split_once(' ').ok_or("wants a path and what becomes of it")?;
        let content = if what == "gone" { None } else { Some(quoted(what)?) };
        let (town, folder, path) = (Arc::clone(&self.town), self.task.workspace.clone(), path.to_owned());
        let change = async move { town.world.meddle(&folder, &path, content.as_deref()) };
        match wait {
            Some(wait) => {
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    change.await;
                });
            }
            None => {
                self.advance().await;
                change.await;
            }
        }
        Ok(())
    }

    async fn advance(&mut self) {
        if !std::mem::take(&mut self.due) {
            return;
        }
        if let Err(what) = self.install() {
            panic!("{what}");
        }
        let begin = match self.town.store.run(&self.id) {
            Some(_) => Begin::Existing { changed: Vec::new(), mode: self.mode.take() },
            None => Begin::New { task: Box::new(self.task.clone()), blobs: Vec::new() },
        };
        let process = self.town.process("h1");
        self.last = match self.town.drive(&process, &self.id, begin, WhenAsked::Park, Stop::new()).await {
            Drove::Died => Last::Crashed,
            Drove::Hung => Last::Hangs,
            Drove::Back(Ok(driven)) => Last::Stands(driven.standing),
            Drove::Back(Err(error)) => Last::Failed(error),
        };
    }

    /// Gives the task its program, once all it may name is known.
    fn install(&mut self) -> Result<(), String> {
        let text = std::mem::take(&mut self.program);
        if text.is_empty() {
            return Ok(());
        }
        let program = crate::town::program(&text)?;
        program.fits(&self.task).map_err(|error| error.to_string())?;
        let phases = program.install(&mut self.task);
        self.task.program = Program::Phases(Box::new(phases));
        self.town.set_tools(self.task.tools.clone());
        Ok(())
    }

    async fn human(&mut self, rest: &str) -> Result<(), String> {
        self.inputs += 1;
        let name = format!("human{}", self.inputs);
        if let Some(later) = rest.strip_prefix("after ") {
            let (wait, what) = later.split_once(' ').ok_or("wants a time and an act")?;
            let (wait, body) = (span(wait)?, self.act(what)?);
            let (town, id) = (Arc::clone(&self.town), self.id.clone());
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                town.store.post(&id, &name, body).await;
            });
            return Ok(());
        }
        self.advance().await;
        let body = self.act(rest)?;
        self.town.store.post(&self.id, &name, body).await.ok_or("there is no run yet")?;
        self.due = true;
        Ok(())
    }

    fn act(&self, what: &str) -> Result<InputBody, String> {
        let words: Vec<&str> = what.split_whitespace().collect();
        let action = || -> Result<ActionId, String> {
            words.get(1).ok_or("wants an action")?.parse().map_err(|error: longrein_core::ids::BadId| error.to_string())
        };
        match words.first().copied() {
            Some("message") => Ok(InputBody::Message(quoted(what)?)),
            Some("cancel") => Ok(InputBody::Cancel),
            Some("rollback") => {
                let to = if words.len() > 1 { Some(action()?) } else { None };
                Ok(InputBody::Rollback(Rollback { to, by: "ann".to_owned(), door: Door::Cli }))
            }
            Some("switch") => {
                let name = words.get(1).ok_or("wants a model")?;
                let mut model = ModelSpec::plain(ModelName::new(*name), 200);
                model.context_limit = option(&words[2..], "window")?;
                Ok(InputBody::SwitchModel(model))
            }
            Some("raise") => Ok(InputBody::Raise(raise(&words[1..])?)),
            Some("approve" | "deny") => {
                let run = self.town.store.run(&self.id).ok_or("there is no run yet")?;
                let yes = words[0] == "approve";
                let body = self.town.verdict(&run, action()?, yes).ok_or("it is not held")?;
                Ok(match body {
                    InputBody::Deny(mut deny) => {
                        deny.reason = quoted(what).ok();
                        InputBody::Deny(deny)
                    }
                    InputBody::Approve(approve) if words.get(2) == Some(&"always") => {
                        InputBody::Approve(Approve { covers: Covers::Always, ..approve })
                    }
                    body => body,
                })
            }
            Some("settle") => {
                let action = action()?;
                let truth = match words.get(2).copied() {
                    Some("done") => Truth::Done(Content::Inline(receipt(action))),
                    Some("not-done") => Truth::NotDone,
                    other => return Err(format!("settle as done or not-done, not {other:?}")),
                };
                Ok(InputBody::Settle(Settle { action, truth, by: "ann".to_owned() }))
            }
            other => Err(format!("a human cannot {other:?}")),
        }
    }

    fn expect(&self, what: &str) -> Result<(), String> {
        let words: Vec<&str> = what.split_whitespace().collect();
        let sees = |text: &str| self.town.brain.last_sent().is_some_and(|sent| sent.text().contains(text));
        match words[..] {
            ["model", "sees", ..] => expect(sees(&quoted(what)?), "the model does not see it"),
            ["model", "does", "not", "see", ..] => expect(!sees(&quoted(what)?), "the model sees it"),
            ["model", "was", "asked", times] => same(times, self.town.brain.sends()),
            ["reason", ..] => {
                let words = quoted(what)?;
                let reason = self.last_event(|event| match event {
                    Event::ModelForgone(forgone) => Some(forgone.reason.clone()),
                    _ => None,
                });
                expect(reason.as_ref().is_some_and(|reason| reason.contains(&words)), &format!("{reason:?}"))
            }
            ["because", ..] => {
                let words = quoted(what)?;
                let reason = self.last_event(|event| match event {
                    Event::RunEnded(ended) => Some(ended.reason.clone()),
                    Event::RunSuspended(suspended) => Some(suspended.detail.clone()),
                    _ => None,
                });
                expect(reason.as_ref().is_some_and(|reason| reason.contains(&words)), &format!("{reason:?}"))
            }
            ["asked", ref wanted @ ..] => {
                let asked = self.town.asked(&self.id);
                expect(
                    asked.iter().map(String::as_str).eq(wanted.iter().copied()),
                    &format!("it is: {}", asked.join(" ")),
                )
            }
            ["noticed", ref what @ ..] => {
                let last = self.last_event(|event| match event {
                    Event::LoopNoticed(notice) => {
                        let kind = serde_json::to_value(notice.repetition).ok()?;
                        let level = serde_json::to_value(notice.level).ok()?;
                        Some(format!("{} {}", kind.as_str()?, level.as_str()?))
                    }
                    _ => None,
                });
                let found = last.as_deref().unwrap_or("nothing");
                expect(found == what.join(" "), found)
            }
            ["may", "call", ref tools @ ..] => self.expect_manifest(tools, true),
            ["may", "not", "call", ref tools @ ..] => self.expect_manifest(tools, false),
            ["way", ..] => {
                let found = self.town.way(&self.id).join(" ");
                expect(what == format!("way {found}"), &format!("it is: {found}"))
            }
            ["output", phase, ..] => {
                let run = self.town.store.run(&self.id).and_then(|run| run.course);
                let outputs = run.map(|course| course.outputs).unwrap_or_default();
                let found = outputs.get(&PhaseName::new(phase)).map(|content| content.shown().as_str().to_owned());
                expect(found.as_deref() == Some(&quoted(what)?), &format!("it is: {found:?}"))
            }
            ["lesson", list, ..] => {
                let run = self.town.store.run(&self.id).and_then(|run| run.course);
                let found = run.and_then(|course| course.lessons.get(list).cloned()).unwrap_or_default();
                expect(found.contains(&quoted(what)?), &format!("they are: {found:?}"))
            }
            ["rebuilt", times] => {
                let generation = self.town.store.run(&self.id).map_or(1, |run| run.window.generation);
                same(times, u64::from(generation) - 1)
            }
            ["check", name, "ran", times] => same(times, u64::from(self.town.bench.runs_of(name))),
            [tool, "happened", times] => same(times, self.town.world.happened_by_tool(tool) as u64),
            [tool, "ran", times] => same(times, self.town.world.attempts_of(tool) as u64),
            ["file", path, ref wanted @ ..] => {
                let found = self.town.world.workspace(&self.task.workspace).remove(path);
                let wanted = match wanted {
                    ["gone"] => None,
                    [action] if !action.starts_with('"') => Some(format!("{} {action} 1", self.id)),
                    _ => Some(quoted(what)?),
                };
                expect(found == wanted, &format!("it is {found:?}"))
            }
            ["refused", ..] => {
                let words = quoted(what)?;
                let reason = self.last_event(|event| match event {
                    Event::InputRefused(refused) => Some(refused.reason.clone()),
                    _ => None,
                });
                expect(reason.as_ref().is_some_and(|reason| reason.contains(&words)), &format!("{reason:?}"))
            }
            ["crashed"] => expect(matches!(self.last, Last::Crashed), &format!("{:?}", self.last)),
            _ => self.expect_standing(&words, what),
        }
    }

    /// What the journal says could be called at the last request.
    fn expect_manifest(&self, tools: &[&str], offered: bool) -> Result<(), String> {
        let manifest = self.last_event(|event| match event {
            Event::ModelRequested(requested) => requested.manifest.clone(),
            _ => None,
        });
        let is_offered = |tool: &str| {
            manifest.as_ref().is_none_or(|manifest| manifest.offered.iter().any(|offered| offered.as_str() == tool))
        };
        expect(tools.iter().all(|tool| is_offered(tool) == offered), &format!("{manifest:?}"))
    }

    fn last_event<T>(&self, pick: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let shadow = self.town.store.shadow();
        shadow.runs.get(&self.id)?.events.iter().rev().find_map(|new| pick(&new.event))
    }

    fn expect_standing(&self, words: &[&str], what: &str) -> Result<(), String> {
        let standing = match &self.last {
            Last::Stands(standing) => standing,
            Last::Failed(error) => return Err(error.to_string()),
            Last::NotYet | Last::Crashed | Last::Hangs => return Err(format!("{:?}", self.last)),
        };
        let end = match standing {
            Standing::Rested(rest) => Some(&rest.end),
            Standing::Parked(_) | Standing::Suspended(..) => None,
        };
        let holds = match (words, standing) {
            (["suspended"], standing) => matches!(standing, Standing::Suspended(..)),
            (["waiting", actions @ ..], Standing::Parked(waits)) => {
                let waits: Vec<_> = waits
                    .iter()
                    .map(|wait| match wait {
                        Wait::Approval(action) | Wait::Answer(action) | Wait::Unknown(action) => action.to_string(),
                        Wait::Child { child, .. } => child.to_string(),
                    })
                    .collect();
                waits == actions
            }
            (["verified", verified], _) => {
                matches!(end, Some(End::Done(done)) if format!("{:?}", done.verified) == match *verified {
                    "true" => "Some(true)",
                    "false" => "Some(false)",
                    _ => "None",
                })
            }
            (["done"], _) => matches!(end, Some(End::Done(_))),
            (["answer", ..], _) => {
                let text = quoted(what)?;
                matches!(end, Some(End::Done(done)) if done.accepted.rendered == text)
            }
            (["cancelled"], _) => matches!(end, Some(End::Cancelled)),
            (["context_exhausted"], _) => matches!(end, Some(End::ContextExhausted)),
            (["exhausted", budget], _) => matches!(end, Some(End::Exhausted(kind)) if kind.to_string() == *budget),
            (["failed", why], _) => {
                matches!(end, Some(End::Failed(failure)) if format!("{failure:?}").eq_ignore_ascii_case(why))
            }
            _ => return Err("nothing like it can be expected".to_owned()),
        };
        expect(holds, &format!("{standing:?}"))
    }
}

fn expect(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn same(times: &str, found: u64) -> Result<(), String> {
    expect(times.parse() == Ok(found), &format!("it is {found}"))
}

/// The text between the first and the last quote.
fn quoted(text: &str) -> Result<String, String> {
    let (_, rest) = text.split_once('"').ok_or("wants words in quotes")?;
    let (inner, _) = rest.rsplit_once('"').ok_or("wants words in quotes")?;
    Ok(inner.to_owned())
}

fn span(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = digits.parse().map_err(|_| format!("{text} is no time"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "h" => Ok(Duration::from_secs(number * 3600)),
        other => Err(format!("{other} is no unit of time")),
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// The number behind `name=`, if it is there.
fn option(words: &[&str], name: &str) -> Result<Option<u64>, String> {
    let found = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found.map(number).transpose()
}

fn raise(words: &[&str]) -> Result<Raise, String> {
    let mut raise = Raise::default();
    for word in words {
        let (name, amount) = word.split_once('=').ok_or_else(|| format!("{word} is no name=amount"))?;
        let amount = amount.parse().map_err(|_| format!("{amount} is no amount"))?;
        match name {
            "turns" => raise.turns = amount,
            "model_calls" => raise.model_calls = amount,
            "tool_calls" => raise.tool_calls = amount,
            "tokens" => raise.tokens = amount,
            "time_ms" => raise.time_ms = amount,
            other => return Err(format!("no budget {other}")),
        }
    }
    Ok(raise)
}

fn manner(word: &str) -> Result<Manner, String> {
    match word {
        "done" => Ok(Manner::done()),
        "fails" => Ok(Manner::fails(false)),
        "lands-and-fails" => Ok(Manner::fails(true)),
        "not-done" => Ok(Manner::not_done()),
        "hangs" => Ok(Manner::hangs(false)),
        "slow" => Ok(Manner::slow(5_000, 10_000)),
        other => match other.split_once(':') {
            Some(("large", bytes)) => {
                Ok(Manner::large(usize::try_from(number(bytes)?).map_err(|error| error.to_string())?))
            }
            Some(("says", word)) => Ok(Manner::says(word)),
            Some(("error", class)) => match class.split_once(':') {
                Some((class, after)) => Ok(Manner::error(class, Some(number(after)?))),
                None => Ok(Manner::error(class, None)),
            },
            Some(_) | None => Err(format!("a tool cannot end {other}")),
        },
    }
}

/// One tool from `NAME CLASS option…`.
fn spec(rest: &str) -> Result<ToolSpec, String> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [name, class, options @ ..] = &words[..] else { return Err("wants a name and a class".to_owned()) };
    let effect = match *class {
        "read" => EffectClass::Read,
        "workspace" => EffectClass::Workspace,
        "external" => EffectClass::External,
        "ask" => return Ok(asking(name)),
        "note" => return Ok(noting(name)),
        other => return Err(format!("no class {other}")),
    };
    let mut spec = tool(name, effect);
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("idempotent", _) => spec.idempotent = Some(Duration::from_secs(24 * 60 * 60)),
            ("reconcile", _) => spec.reconcile = vec!["ask".to_owned()],
            ("tell", _) => spec.on_unknown = OnUnknown::Tell,
            ("key", argument) => spec.key = Some(KeySpec { args: vec![argument.to_owned()], scope: KeyScope::Run }),
            ("provides", fact) => spec.provides.push(FactName::new(fact)),
            ("requires", fact) => spec.requires.push(FactName::new(fact)),
            ("depends", tool) => spec.depends_on.push(ToolName::new(tool)),
            ("max", times) => spec.max_calls = times.parse().ok(),
            ("check", _) => spec.check = vec!["sound".to_owned()],
            ("compensate", tool) => spec.compensate = Some(ToolName::new(tool)),
            ("writes", path) => spec.writes.get_or_insert_default().push(path.to_owned()),
            ("cache", _) => spec.declared.cache = true,
            (other, _) => return Err(format!("no option {other}")),
        }
    }
    Ok(spec)
}

/// The replies of a line: one, or as many as it says.
fn repeated(rest: &str) -> Vec<String> {
    let several = rest.split_once(" times ").and_then(|(times, rest)| Some((times.parse::<u32>().ok()?, rest)));
    match several {
        Some((times, rest)) => (1..=times).map(|number| rest.replace('#', &number.to_string())).collect(),
        None => vec![rest.to_owned()],
    }
}

/// One reply, and whether it ends the turn's attempts.
fn answer(rest: &str) -> Result<(Answer, bool), String> {
    if rest.starts_with('"') {
        return Ok((Answer::say(&quoted(rest)?), true));
    }
    if let Some(class) = rest.strip_prefix("fails ") {
        if let Some(limit) = class.trim().strip_prefix("context limit=") {
            let served = Served { limit: Some(number(limit)?), ..Served::default() };
            return Ok((Answer::too_long(Some(served)), false));
        }
        let class = match class.trim() {
            "transient" => ModelErrorClass::Transient,
            "rate_limited" => ModelErrorClass::RateLimited,
            "overloaded" => ModelErrorClass::Overloaded,
            "quota" => ModelErrorClass::Quota,
            "bad_request" => ModelErrorClass::BadRequest,
            "context" => ModelErrorClass::ContextExhausted,
            "refused" => ModelErrorClass::ContentRefused,
            other => return Err(format!("a model cannot fail {other}")),
        };
        return Ok((Answer::fail(class), false));
    }
    let reply =
        |finish| Reply { text: String::new(), calls: Vec::new(), finish, usage: None, repaired: None, wired: None };
    match rest {
        "cut" => return Ok((Answer::of(reply(Finish::Length)), false)),
        "empty" => return Ok((Answer::of(reply(Finish::Stop)), false)),
        _ => {}
    }
    let mut calls = Vec::new();
    for call in rest.split("; ") {
        let (name, arguments) = call.trim().split_once(' ').ok_or("a call is NAME {json}")?;
        Payload::parse(arguments).map_err(|error| format!("{arguments}: {error}"))?;
        calls.push((name, arguments));
    }
    Ok((Answer::call(&calls), true))
}

/// `route: NAME …`
fn route(words: &[&str]) -> Result<Route, String> {
    let [name, more @ ..] = words else { return Err("wants a model".to_owned()) };
    let listed = |key: &str| {
        let value = more.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        value.into_iter().flat_map(|value| value.split(',')).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut on = listed("on").iter().map(|word| class_of(word)).collect::<Result<BTreeSet<_>, _>>()?;
    let phases: BTreeSet<_> = listed("phase").iter().map(PhaseName::new).collect();
    let context_over = option(more, "context")?;
    if on.is_empty() && phases.is_empty() && context_over.is_none() {
        on.extend(ROUTABLE);
    }
    let mut model = ModelSpec::plain(ModelName::new(*name), 200);
    model.context_limit = option(more, "window")?;
    Ok(Route { model, on, phases, context_over, spent_over: None, images: false })
}
