//! `run` and `resume`: everything that advances a run from the command line.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longrein::core::action::Life;
use longrein::core::budget::{BudgetKind, Raise};
use longrein::core::event::{End, Failure as RunFailure, RunEnded, Suspension, Wait};
use longrein::core::hook::HookSpec;
use longrein::core::ids::{ModelName, RunId};
use longrein::core::input::InputBody;
use longrein::core::run::{Run, Stage};
use longrein::core::task::{Mode, ModeChange, PIPED, PolicyRules, Task};
use longrein::ports::{CrashAt, CrashPoint, Faults, Listed, RunRow};
use longrein::taskfile::{self, LimitFlag, Loaded};
use longrein::{
    Driven, Runs, SandboxMode, SandboxSettings, SandboxTier, Standing, Stop, Surroundings, Target, WhenAsked,
    projection,
};
use serde_json::json;

use crate::args::{DriveArgs, Globals, OnAsk, ResumeArgs, RunArgs};
use crate::config::Config;
use crate::context::{self, StoreAt};
use crate::failure::{CRASHED, Failure, Status};
use crate::inspect::{line, shown_state};
use crate::out::{explain, say, tell};
use crate::progress::{Opening, Progress, Style, print_line};
use crate::shadow::Report;
use crate::trust::{self, Tightening};
use crate::unasked::Unasked;
use crate::{ask, words};

/// The most context taken from a pipe beside a prompt.
const CONTEXT_MAX_BYTES: u64 = 1024 * 1024;

/// What a drive is told of permissions, beside the task.
pub(crate) struct Permits {
    /// Of a run that is there: the mode it goes on in.
    pub(crate) mode: Option<Mode>,
    /// Of a run that is there: rules that can only tighten.
    pub(crate) policy: Option<PolicyRules>,
    /// Of a run that is there: the hooks its task names now.
    pub(crate) hooks: Option<Vec<HookSpec>>,
    pub(crate) sandbox: SandboxSettings,
}

/// Said before anything is sent to the run.
fn may_go_on(run: &Run, to: Mode) -> Result<(), Failure> {
    match run.mode.change(to) {
        ModeChange::None | ModeChange::Tightens | ModeChange::Loosens => Ok(()),
        ModeChange::Refused => Err(longrein::RunsError::Mode { run: run.id.clone(), from: run.mode, to }.into()),
    }
}

/// A run that rests goes on in no mode at all.
fn say_mode_stays(run: &Run, permits: &Permits) {
    if permits.mode.is_some_and(|mode| mode != run.mode) {
        tell!("the run rests, and stays in permission mode {}; --message has it go on", run.mode);
    }
}

/// The mode that a flag names.
fn named_mode(args: &DriveArgs) -> Result<Option<Mode>, Failure> {
    let named = args.permission_mode.as_deref().map(taskfile::mode).transpose();
    named.map_err(|problem| Failure::new(Status::Usage, format!("--permission-mode: {problem}")))
}

/// One command's way to a run.
pub(crate) struct Session {
    pub(crate) runs: Arc<Runs>,
    pub(crate) store: StoreAt,
    pub(crate) config: Config,
    globals: Globals,
}

impl Session {
    pub(crate) fn open(globals: Globals) -> Result<Self, Failure> {
        let store = StoreAt::of(&globals)?;
        let config = Config::load()?;
        let runs = Arc::new(store.open()?);
        Ok(Self { runs, store, config, globals })
    }
}

pub(crate) async fn run(globals: Globals, args: RunArgs) -> Result<Status, Failure> {
    if prints_points(&args.drive) {
        return Ok(Status::Done);
    }
    has_place_for_the_answer(&args.drive)?;
    refuse_file_as_prompt(&args)?;
    let id = args.id.as_deref().map(RunId::parse).transpose();
    let id = id.map_err(|error| Failure::new(Status::Usage, format!("--id: {error}")))?;
    if let Some(id) = id.as_ref().filter(|id| id.as_str().starts_with('-')) {
        return Err(Failure::new(Status::Usage, format!("--id {id}: an id that begins with - looks like a flag")));
    }
    let mut session = Session::open(globals)?;
    let known = match &id {
        Some(id) if session.runs.listed(id).await?.is_some() => Some(session.runs.fold(id, |_| {}).await?),
        Some(_) | None => None,
    };
    match known {
        Some(run) => {
            let names_nothing = args.prompt.is_none() && args.task.is_none() && args.images.is_empty();
            let permits = if names_nothing {
                session.permits_of(&run, &args.drive)?
            } else {
                // Where nobody names a model, it is the one the run was started with.
                let its_own = || (run.task.model.name.to_string(), format!("run {}", run.id));
                session.config.model.get_or_insert_with(its_own);
                let mut loaded = load(&args, &session.config)?;
                trust::add_servers(&mut loaded.task, &session.globals)?;
                same_task(&run, &loaded)?;
                let permits = session.permits_for(&mut loaded.task, &args.drive)?;
                let mode = session.mode_now(&run, &loaded.task, &args.drive)?;
                let Task { policy, hooks, .. } = loaded.task;
                Permits { mode: Some(mode), policy: Some(policy), hooks: Some(hooks), ..permits }
            };
            if session.is_over(&run).await? {
                say_mode_stays(&run, &permits);
                return session.print_stored(&run, &args.drive).await;
            }
            let (id, model) = (run.id.clone(), session.runs.model_of(&run).await?.name);
            let opening = session.opening(permits.mode.unwrap_or(run.mode), &run.task, &permits);
            session.drive(&id, Target::Existing(id.clone()), &model, permits, opening, &args.drive).await
        }
        None => {
            let Loaded { mut task, blobs } = load(&args, &session.config)?;
            trust::add_servers(&mut task, &session.globals)?;
            session.store.refuse_inside(task.workspace.as_ref())?;
            let permits = session.permits_for(&mut task, &args.drive)?;
            let left_out = longrein::pin(&mut task, &context::environment());
            for line in left_out.iter().filter(|_| !session.globals.quiet) {
                tell!("warning: {}", words::safe(line));
            }
            let id = id.unwrap_or_else(context::fresh_id);
            session.warn_if_heavy(&task).await;
            session.notice_unprotected(&task);
            let model = task.model.name.clone();
            let opening = session.opening(task.permission_mode, &task, &permits);
            let target = Target::New { id: id.clone(), task: Box::new(task), blobs };
            session.drive(&id, target, &model, permits, opening, &args.drive).await
        }
    }
}

pub(crate) async fn resume(globals: Globals, args: ResumeArgs) -> Result<Status, Failure> {
    if prints_points(&args.drive) {
        return Ok(Status::Done);
    }
    let store = StoreAt::of(&globals)?;
    if args.id.is_none() && !args.last && !store.exists()? {
        if globals.json {
            print_line(&json!([]));
        }
        tell!("no run is unfinished: there is no store at {} yet", store.url);
        return Ok(Status::Done);
    }
    store.must_exist()?;
    let session = Session::open(globals)?;
    let id = match (&args.id, args.last) {
        (Some(id), _) => session.runs.find(id).await?,
        (None, true) => {
            let unfinished = unfinished(&session.runs).await?;
            match unfinished.into_iter().max_by_key(|(row, _)| row.updated) {
                Some((row, _)) => row.run,
                None => return Err(Failure::new(Status::NotFound, "no run is unfinished").way_out("longrein runs")),
            }
        }
        (None, false) => return list_unfinished(&session).await,
    };
    has_place_for_the_answer(&args.drive)?;
    let raise = raise(&args)?;
    let run = session.runs.fold(&id, |_| {}).await?;
    let permits = session.permits_of(&run, &args.drive)?;
    let mut inputs = Vec::new();
    if let Some(name) = &args.model {
        let model = another_model(&session.config, name, &run)?;
        longrein::connectable(&model, &context::model_config(&session.config, &model.name, &context::environment())?)
            .map_err(longrein::RunsError::from)?;
        // A worker that has the run is connected to the model it began with.
        if let Some((_, Some(holder))) = session.runs.listed(&id).await? {
            return Err(longrein::ports::ClaimError::Held(holder).into());
        }
        inputs.push(InputBody::SwitchModel(model));
    }
    if !raise.is_nothing() {
        inputs.push(InputBody::Raise(raise));
    }
    let images = crate::answer::images(&args.images)?;
    let says_something = !inputs.is_empty() || args.message.is_some();
    for body in inputs {
        crate::answer::posted(session.runs.post(&id, body).await?.1, &id)?;
    }
    if let Some(text) = &args.message {
        crate::answer::posted(session.runs.show(&id, text.as_str(), images).await?.1, &id)?;
    }
    if says_something && let Some((_, Some(holder))) = session.runs.listed(&id).await? {
        tell!("recorded; {holder} takes it");
        return Ok(Status::Done);
    }
    if session.is_over(&run).await? {
        say_mode_stays(&run, &permits);
        return session.print_stored(&run, &args.drive).await;
    }
    let model = session.runs.model_of(&run).await?.name;
    let opening = session.opening(permits.mode.unwrap_or(run.mode), &run.task, &permits);
    session.drive(&id, Target::Existing(id.clone()), &model, permits, opening, &args.drive).await
}

impl Session {
    /// A run that rests, and that nobody has sent anything to.
    pub(crate) async fn is_over(&self, run: &Run) -> Result<bool, Failure> {
        Ok(matches!(run.stage, Stage::Rest(_)) && self.runs.inbox(&run.id).await?.is_empty())
    }

    /// Prints the result of a run that rests, without a model call.
    async fn print_stored(&self, run: &Run, args: &DriveArgs) -> Result<Status, Failure> {
        let Stage::Rest(ended) = &run.stage else {
            return Err(Failure::new(Status::Internal, "the run does not rest"));
        };
        if self.globals.json {
            let event = longrein::core::event::Event::RunEnded(ended.clone());
            print_line(&projection::line(run, Some(run.head), run.at, &event));
        } else if !self.globals.quiet {
            tell!(
                "run {} has ended; what it came to is printed again, and no model is called (a new run: another --id)",
                run.id
            );
        }
        self.report_shadow(run).await;
        self.report_unasked(run).await;
        self.finish(run, &Standing::Rested(ended.clone()), args)
    }

    async fn drive(
        &self,
        id: &RunId,
        target: Target,
        model: &ModelName,
        permits: Permits,
        opening: Option<String>,
        args: &DriveArgs,
    ) -> Result<Status, Failure> {
        let environment = context::environment();
        let model = context::model_config(&self.config, model, &environment)?;
        let somebody = ask::somebody_is_there();
        let asked = match args.on_ask {
            Some(OnAsk::Prompt) if !somebody => {
                return Err(Failure::new(Status::Usage, "--on-ask prompt needs a terminal; use wait or deny"));
            }
            Some(OnAsk::Prompt) => WhenAsked::Stay,
            Some(OnAsk::Wait) => WhenAsked::Park,
            Some(OnAsk::Deny) => WhenAsked::Deny,
            None if somebody => WhenAsked::Stay,
            // What waits already goes on waiting: only an explicit no throws a question away.
            None if self.has_questions(&target).await => WhenAsked::Park,
            None => WhenAsked::Deny,
        };
        let style = Style::of(&self.globals);
        let stop = Stop::new();
        let questions = (asked == WhenAsked::Stay).then(|| {
            let (send, receive) = tokio::sync::mpsc::unbounded_channel();
            tokio::spawn(ask::answer_questions(Arc::clone(&self.runs), id.clone(), receive, stop.clone()));
            send
        });
        let again = match &questions {
            Some(_) => ask::asked_before(&self.runs, &target).await,
            None => Vec::new(),
        };
        let (config, of_models) = (self.config.clone(), environment.clone());
        let around = Surroundings {
            model,
            summariser: Box::new(move |name| {
                context::model_config(&config, name, &of_models).map_err(|failure| failure.problem)
            }),
            environment,
            asked,
            observer: Arc::new(Progress::new(style, questions, Opening { line: opening, again })),
            stop: stop.clone(),
            policy: permits.policy,
            hooks: permits.hooks,
            mode: permits.mode,
            sandbox: permits.sandbox,
            faults: faults(args, self.store.command(&format!("resume {id}")))?,
        };
        heed_signals(stop)?;
        let driven = self.runs.drive(target, around).await;
        crate::out::question_over(crate::out::Asked::GivenUp);
        crate::out::status(None);
        let Driven { run, standing } = driven.map_err(|error| self.explain(error, id))?;
        if matches!(standing, Standing::Rested(_)) {
            self.report_shadow(&run).await;
            self.report_unasked(&run).await;
        }
        self.finish(&run, &standing, args)
    }

    /// What counts for a task beside itself: the workspace's own configuration, which tightens it here, and the sandbox.
    pub(crate) fn permits_for(&self, task: &mut Task, args: &DriveArgs) -> Result<Permits, Failure> {
        let ours = trust::of_workspace(task.workspace.as_ref(), &self.globals)?;
        if let Some(ours) = &ours {
            let mode = ours.mode_for(task.permission_mode);
            // A flag is the operator's word on this very run.
            if mode != task.permission_mode && args.permission_mode.is_none() {
                task.permission_mode = mode;
                task.sources.insert("permission_mode".to_owned(), ours.source.clone());
            }
            if ours.rules != PolicyRules::default() {
                taskfile::add(&mut task.policy, &ours.rules);
                let source = task.sources.entry("policy".to_owned()).or_default();
                *source = if source.is_empty() { ours.source.clone() } else { format!("{source}, {}", ours.source) };
            }
        }
        Ok(Permits { mode: None, policy: None, hooks: None, sandbox: self.sandbox(ours.as_ref(), args)? })
    }

    /// What counts for a run that is there: rules that configuration has now, which can only tighten, and the mode that a
    /// flag names, else the run's own or a stricter one of the workspace's.
    pub(crate) fn permits_of(&self, run: &Run, args: &DriveArgs) -> Result<Permits, Failure> {
        let ours = trust::of_workspace(run.task.workspace.as_ref(), &self.globals)?;
        let mut policy = run.task.policy.clone();
        for layer in &self.config.policy {
            // What it allows now, it did not when the run started.
            taskfile::add(&mut policy, &PolicyRules { allow: Vec::new(), ..layer.rules.clone() });
        }
        if let Some(ours) = &ours {
            taskfile::add(&mut policy, &ours.rules);
        }
        let mode = match named_mode(args)? {
            Some(mode) => mode,
            None => ours.as_ref().map_or(run.mode, |ours| ours.mode_for(run.mode)),
        };
        may_go_on(run, mode)?;
        let policy = (policy != run.task.policy).then_some(policy);
        Ok(Permits { mode: Some(mode), policy, hooks: None, sandbox: self.sandbox(ours.as_ref(), args)? })
    }

    /// The mode a run goes on in, where its task was named again.
    fn mode_now(&self, run: &Run, task: &Task, args: &DriveArgs) -> Result<Mode, Failure> {
        let (now, then) = (task.permission_mode, run.task.permission_mode);
        if let Some(mode) = named_mode(args)? {
            may_go_on(run, mode)?;
            return Ok(mode);
        }
        let mode = match run.mode.change(now) {
            // The task says what it said when the run started.
            _ if now == then => run.mode,
            ModeChange::None | ModeChange::Tightens => now,
            ModeChange::Refused => now,
            ModeChange::Loosens => {
                tell!("the run goes on in mode {}; --permission-mode {now} loosens it", run.mode);
                run.mode
            }
        };
        may_go_on(run, mode)?;
        Ok(mode)
    }

    fn sandbox(&self, ours: Option<&Tightening>, args: &DriveArgs) -> Result<SandboxSettings, Failure> {
        let mut settings = self.config.sandbox.clone();
        if let Some(mode) = ours.and_then(|ours| ours.sandbox) {
            settings.mode = settings.mode.max(mode);
        }
        if let Some(name) = &args.sandbox {
            let mode = crate::config::sandbox_mode(name);
            settings.mode = mode.map_err(|problem| Failure::new(Status::Usage, format!("--sandbox: {problem}")))?;
        }
        Ok(settings)
    }

    /// The first thing a person sees of a run: what it may do, and who says so. None: nobody looks.
    fn opening(&self, mode: Mode, task: &Task, permits: &Permits) -> Option<String> {
        match Style::of(&self.globals) {
            Style::Json | Style::Quiet => return None,
            Style::Plain | Style::Live => {}
        }
        let from =
            |key: &str| task.sources.get(key).filter(|_| mode == task.permission_mode || key != "permission_mode");
        let named = |key: &str| from(key).map(|source| format!(" ({})", words::safe(source))).unwrap_or_default();
        let rules = permits.policy.as_ref().unwrap_or(&task.policy);
        let counts: Vec<_> = [(&rules.allow, "allow"), (&rules.ask, "ask"), (&rules.deny, "deny")]
            .into_iter()
            .filter(|(list, _)| !list.is_empty())
            .map(|(list, word)| format!("{} {word}", list.len()))
            .collect();
        let rules = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        let sandbox = self.runs.tier(task, &permits.sandbox).map(|tier| match tier {
            SandboxTier::Full => "; sandbox: full",
            SandboxTier::KernelRules => "; sandbox: partial (kernel rules)",
            SandboxTier::NetworkOnly => "; sandbox: weak (network only, files are not protected)",
            SandboxTier::None => "; sandbox: NONE works here",
            SandboxTier::External => "; sandbox: none of ours, trusted to the surroundings",
        });
        let required = match permits.sandbox.mode {
            SandboxMode::Required => ", required",
            SandboxMode::Best | SandboxMode::External => "",
        };
        let sandbox = sandbox.map(|sandbox| format!("{sandbox}{required}")).unwrap_or_default();
        let (mode_from, rules_from) = (named("permission_mode"), named("policy"));
        Some(format!("permission mode: {mode}{mode_from}; rules: {rules}{rules_from}{sandbox}"))
    }

    /// What a shadow run would have done, call by call.
    async fn report_shadow(&self, run: &Run) {
        if run.mode != Mode::Shadow || self.globals.json || self.globals.quiet {
            return;
        }
        let mut report = Report::default();
        // Without the journal there is no report; the reason at the end has the counts.
        let _ = self.runs.fold(&run.id, |record| report.see(record)).await;
        if !report.is_empty() {
            tell!("What it would have done:");
        }
        report.lines().iter().for_each(|line| tell!("  {line}"));
    }

    /// Which calls a run did without though nobody said no.
    async fn report_unasked(&self, run: &Run) {
        match Style::of(&self.globals) {
            Style::Plain | Style::Live => {}
            Style::Json | Style::Quiet => return,
        }
        let mut unasked = Unasked::default();
        // Without the journal nothing is known of it; the run's own end is said all the same.
        let _ = self.runs.fold(&run.id, |record| unasked.see(record)).await;
        unasked.lines(&self.store, run).iter().for_each(|line| explain(line));
    }

    /// A run whose requests are nearly full before it has begun is told of (`design.md` §5).
    async fn warn_if_heavy(&self, task: &Task) {
        let Some(fixed) = self.runs.heavy(task).await.filter(|_| !self.globals.quiet) else { return };
        let percent = (fixed.tokens * 100).checked_div(fixed.safe).unwrap_or(100);
        let largest: Vec<_> = fixed.pieces.iter().take(3).map(|(what, tokens)| format!("{what} ({tokens})")).collect();
        tell!(
            "warning: tools, system text and rule files take about {} of the {} tokens that may be sent ({percent} %); the \
             largest are {}",
            fixed.tokens,
            fixed.safe,
            words::safe(&largest.join(", "))
        );
    }

    /// A pattern that names nothing yet may be a slip of the pen.
    fn notice_unprotected(&self, task: &Task) {
        if self.globals.quiet {
            return;
        }
        for (check, pattern) in longrein::taskfile::protects_nothing_yet(task) {
            tell!(
                "notice: the check {} protects \"{}\", and nothing in the workspace is called that now; what appears there \
                 counts as changed",
                words::safe(check.as_str()),
                words::safe(pattern)
            );
        }
    }

    /// Whether the run waits for answers from an earlier session.
    async fn has_questions(&self, target: &Target) -> bool {
        let Target::Existing(id) = target else { return false };
        let run = self.runs.fold(id, |_| {}).await;
        run.is_ok_and(|run| run.actions().any(|action| matches!(action.life, Life::Held { .. })))
    }

    fn explain(&self, error: longrein::RunsError, id: &RunId) -> Failure {
        let failure = Failure::from(error);
        if failure.status == Status::Unavailable && failure.way_out.is_none() {
            failure.way_out(self.store.command(&format!("resume {id}")))
        } else {
            failure
        }
    }

    /// Prints the answer where there is one, else the command that goes on.
    fn finish(&self, run: &Run, standing: &Standing, args: &DriveArgs) -> Result<Status, Failure> {
        let status = status(standing);
        if status == Status::Done {
            let answer = projection::answer_text(run).unwrap_or_default();
            if let (Standing::Rested(ended), false, false) = (standing, self.globals.json, self.globals.quiet) {
                match projection::answer(run).and_then(|done| done.verified) {
                    Some(_) => tell!("done: {}", words::safe(&ended.reason)),
                    None if !run.task.acceptance.is_empty() => {
                        tell!("done, unverified: {}", words::safe(&ended.reason));
                    }
                    None => tell!("done, unverified: the task has no check; the answer is the model's word"),
                }
            }
            if let Some(file) = &args.output_last_message {
                std::fs::write(file, format!("{answer}\n")).map_err(|error| {
                    let problem = format!("the run is done, but {} cannot be written: {error}", file.display());
                    Failure::new(Status::Data, problem).way_out(self.store.command(&format!("run --id {}", run.id)))
                })?;
            }
            if !self.globals.json {
                say!("{answer}");
            }
            return Ok(status);
        }
        let id = &run.id;
        let whole = self.store.command(&format!("log {id} --raw"));
        match standing {
            Standing::Rested(ended) => {
                explain(&words::ended(&ended.end, &words::reason(&ended.reason, &whole)));
                if let Some(ways) = other_ways(run, ended) {
                    explain(&ways);
                }
                if let Some(remark) = &ended.remark {
                    tell!("The model's last words, unverified: {}", words::safe(remark));
                }
                let unknown: Vec<_> =
                    ended.unknown.iter().filter(|id| run.open.contains_key(id)).map(ToString::to_string).collect();
                if !unknown.is_empty() {
                    tell!("Nobody knows what became of {}.", unknown.join(", "));
                }
            }
            Standing::Parked(waits) => {
                tell!("waits for {}", words::waits(waits));
                for (action, question) in run.actions().filter_map(|action| Some((action, action.asks()?))) {
                    tell!("{} asks: {}", action.id, words::safe(&question.reason));
                }
                if Wait::questions(id, waits).iter().any(|(_, wait)| matches!(wait, Wait::Unknown(_))) {
                    tell!("find out what is true, then settle it --as done or --as not-done");
                }
                let mut commands = crate::answer::commands(id, waits);
                commands.retain(|command| *command != next_command(run, standing));
                commands.iter().for_each(|command| tell!("{}", self.store.command(command)));
            }
            Standing::Suspended(..) => {
                let row = longrein::run_row(run);
                explain(&format!("suspended: {}", words::reason(&row.reason, &whole)));
            }
        }
        tell!("{}", self.store.command(&next_command(run, standing)));
        Ok(status)
    }
}

fn status(standing: &Standing) -> Status {
    match standing {
        Standing::Rested(ended) => match &ended.end {
            End::Done(_) => Status::Done,
            End::Exhausted(_) => Status::Exhausted,
            End::Failed(_) => Status::Failed,
            End::ContextExhausted => Status::ContextExhausted,
            End::Cancelled => Status::Cancelled,
        },
        Standing::Parked(_) => Status::Waiting,
        Standing::Suspended(cause, _) => match cause {
            Suspension::Interrupted => Status::Interrupted,
            Suspension::Terminated => Status::Terminated,
            Suspension::Dropped => Status::Waiting,
            Suspension::Model => Status::Model,
        },
    }
}

/// What goes on from here.
fn next_command(run: &Run, standing: &Standing) -> String {
    let id = &run.id;
    match standing {
        Standing::Rested(ended) => way_on(run, ended).unwrap_or_else(|| match &ended.end {
            End::Failed(RunFailure::Script) => format!("log {id}"),
            End::Cancelled => match ended.unknown.iter().find(|id| run.open.contains_key(id)) {
                Some(action) => crate::answer::settling(id, *action),
                None => format!("show {id}"),
            },
            End::Exhausted(_) | End::Failed(_) | End::ContextExhausted | End::Done(_) => format!("show {id}"),
        }),
        Standing::Parked(waits) => {
            crate::answer::commands(id, waits).into_iter().next().unwrap_or_else(|| format!("resume {id}"))
        }
        Standing::Suspended(..) => format!("resume {id}"),
    }
}

/// The command with which a run that has ended goes on. None: there is none for this end.
pub(crate) fn way_on(run: &Run, ended: &RunEnded) -> Option<String> {
    let id = &run.id;
    match &ended.end {
        End::Exhausted(budget) => match budget {
            BudgetKind::Turns => Some(format!("resume {id} --add-turns 10")),
            BudgetKind::ModelCalls => Some(format!("resume {id} --add-model-calls 10")),
            BudgetKind::ToolCalls => Some(format!("resume {id} --add-tool-calls 10")),
            BudgetKind::Tokens => Some(format!("resume {id} --add-tokens 100000")),
            BudgetKind::Usd => Some(format!("resume {id} --add-usd 1")),
            BudgetKind::Time => Some(format!("resume {id} --add-time 10m")),
            BudgetKind::Deadline => None,
        },
        End::Failed(RunFailure::Script | RunFailure::Shadow) => None,
        // A message would come to the same end: the goal stays what it is.
        End::Failed(RunFailure::Hook) if run.hooks.goal_blocked => None,
        End::Failed(_) => Some(format!("resume {id} --message 'what to do differently'")),
        // Not with the one that it was too long for.
        End::ContextExhausted => {
            let other = run.task.routes.iter().map(|route| &route.model.name).find(|name| **name != run.model.name);
            // Never sent, it may fit once its model is given a larger context_limit.
            let fallback = if run.window.refused.is_some() { "PROVIDER/LARGER" } else { run.model.name.as_str() };
            Some(format!("resume {id} --model {}", context::quoted(other.map_or(fallback, |name| name.as_str()))))
        }
        End::Done(_) | End::Cancelled => None,
    }
}

/// What may help a run whose window was too small, beside the command that goes on.
pub(crate) fn other_ways(run: &Run, ended: &RunEnded) -> Option<String> {
    let name = words::safe(run.model.name.as_str());
    match &ended.end {
        End::ContextExhausted => Some(format!(
            "Give models.\"{name}\" a larger context_limit in the configuration, or name another model. A new run fits with \
             fewer `builtins` or tools, or shorter rule files."
        )),
        End::Failed(RunFailure::Shadow) => {
            Some("Nothing has changed. To have it done, start a run in another mode.".to_owned())
        }
        End::Failed(RunFailure::NoProgress) => {
            Some("Say what to do differently; a larger window helps too: --model, or context_limit.".to_owned())
        }
        End::Exhausted(_) | End::Failed(_) | End::Done(_) | End::Cancelled => None,
    }
}

/// A run may work for hours: that its answer has no place is said before.
fn has_place_for_the_answer(args: &DriveArgs) -> Result<(), Failure> {
    let Some(file) = &args.output_last_message else { return Ok(()) };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if file.is_dir() || !folder.is_dir() {
        let problem =
            format!("-o {}: the answer cannot be written there; name a file in a folder that exists", file.display());
        return Err(Failure::new(Status::Usage, problem));
    }
    Ok(())
}

/// A prompt that names a task file was meant to be one.
fn refuse_file_as_prompt(args: &RunArgs) -> Result<(), Failure> {
    let Some(prompt) = args.prompt.as_deref().filter(|_| args.task.is_none()) else { return Ok(()) };
    if prompt.ends_with(".toml") && !prompt.contains(char::is_whitespace) {
        let problem = format!("the prompt is \"{}\"; a task file goes with --task", words::safe(prompt));
        return Err(
            Failure::new(Status::Usage, problem).way_out(format!("longrein run --task {}", context::quoted(prompt)))
        );
    }
    Ok(())
}

// ---- what the flags ask for ----

pub(crate) fn load(args: &RunArgs, config: &Config) -> Result<Loaded, Failure> {
    let variables = context::variables(&args.vars)?;
    let limits = [
        (BudgetKind::Turns, &args.max_turns),
        (BudgetKind::ModelCalls, &args.max_model_calls),
        (BudgetKind::ToolCalls, &args.max_tool_calls),
        (BudgetKind::Tokens, &args.max_tokens_total),
        (BudgetKind::Usd, &args.max_budget_usd),
        (BudgetKind::Time, &args.max_time),
        (BudgetKind::Deadline, &args.deadline),
    ];
    let limits = limits.into_iter().filter_map(|(kind, value)| Some(LimitFlag { kind, value: value.clone()? }));
    let options = taskfile::Options {
        here: context::here()?,
        prompt: prompt(args.prompt.as_deref())?,
        model: args.model.clone(),
        workspace: args.cd.clone(),
        program: args.program.clone(),
        permission_mode: args.drive.permission_mode.clone(),
        limits: limits.collect(),
        checks: args.checks.clone(),
        images: args.images.clone(),
        output_schema: args.output_schema.clone(),
        rules: PolicyRules { allow: args.allow.clone(), ask: args.ask.clone(), deny: args.deny.clone() },
        variables,
        defaults: config.defaults(),
    };
    let typed = args.prompt.as_deref().unwrap_or_default();
    let finish = |mut loaded: Loaded| {
        let piped = loaded.task.goal.strip_prefix(typed).is_some_and(|rest| rest.starts_with(PIPED));
        loaded.task.piped_from = piped.then_some(typed.len() as u64);
        loaded.task.questions_expire_ms = config.questions_expire.map(|span| span.as_millis() as u64);
        loaded
    };
    let names_no_model = options.model.is_none() && options.defaults.model.is_none();
    let failed = |error: taskfile::TaskFileError| match Failure::from(error) {
        // It says what can be named, and what answers.
        failure if names_no_model && failure.status == Status::Configuration => failure.way_out("longrein models"),
        failure => failure,
    };
    match &args.task {
        Some(file) => Ok(finish(taskfile::load(file, &options).map_err(failed)?)),
        None if options.prompt.is_none() => {
            let problem = "nothing to do: give a PROMPT, or a task file with --task FILE";
            Err(Failure::new(Status::Usage, problem).way_out("longrein run --help"))
        }
        None => Ok(finish(taskfile::plain(&options).map_err(failed)?)),
    }
}

/// The prompt, with what was piped in beside it.
fn prompt(given: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(given) = given else { return Ok(None) };
    let is_piped = !std::io::stdin().is_terminal();
    if given == "-" {
        return piped()?
            .filter(|text| !text.trim().is_empty())
            .map(Some)
            .ok_or_else(|| Failure::new(Status::Usage, "the prompt on stdin is empty"));
    }
    let context = if is_piped { piped()? } else { None };
    Ok(Some(match context {
        Some(context) if !context.trim().is_empty() => format!("{given}{PIPED}{context}"),
        Some(_) | None => given.to_owned(),
    }))
}

fn piped() -> Result<Option<String>, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(CONTEXT_MAX_BYTES + 1).read_to_end(&mut bytes);
    match read {
        Ok(read) if read as u64 > CONTEXT_MAX_BYTES => {
            let problem = format!("more than {CONTEXT_MAX_BYTES} bytes were piped in; save them to a file and name it");
            Err(Failure::new(Status::Data, problem))
        }
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        // A closed stdin is no context.
        Err(_) => Ok(None),
    }
}

/// Under a known id only the same task goes on (`semantics.md` B5).
pub(crate) fn same_task(run: &Run, loaded: &Loaded) -> Result<(), Failure> {
    let differences = run.task.differences(&loaded.task);
    if differences.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "run {} was started with another {}; a task does not change once it has started. Use another --id, or go on as it \
         was started",
        run.id,
        differences.join(", ")
    );
    Err(Failure::new(Status::Data, problem).way_out(format!("longrein resume {}", run.id)))
}

fn raise(args: &ResumeArgs) -> Result<Raise, Failure> {
    let amount = |flag: &str, kind: BudgetKind, text: &Option<String>| match text {
        None => Ok(0),
        Some(text) => taskfile::amount(kind, text)
            .map_err(|problem| Failure::new(Status::Usage, format!("{flag} {text}: {problem}"))),
    };
    Ok(Raise {
        turns: amount("--add-turns", BudgetKind::Turns, &args.add_turns)?,
        model_calls: amount("--add-model-calls", BudgetKind::ModelCalls, &args.add_model_calls)?,
        tool_calls: amount("--add-tool-calls", BudgetKind::ToolCalls, &args.add_tool_calls)?,
        tokens: amount("--add-tokens", BudgetKind::Tokens, &args.add_tokens)?,
        micros: amount("--add-usd", BudgetKind::Usd, &args.add_usd)?,
        time_ms: amount("--add-time", BudgetKind::Time, &args.add_time)?,
    })
}

/// The model to switch to; a script's path is relative to here.
fn switched_name(name: &str) -> Result<ModelName, Failure> {
    match name.strip_prefix("script/") {
        Some(file) => {
            let path = PathBuf::from(file)
                .canonicalize()
                .map_err(|error| Failure::new(Status::Data, format!("--model {name}: {error}")))?;
            Ok(ModelName::new(format!("script/{}", path.display())))
        }
        None => Ok(ModelName::new(name)),
    }
}

fn another_model(config: &Config, name: &str, run: &Run) -> Result<longrein::core::task::ModelSpec, Failure> {
    let defaults = config.defaults();
    let switched = switched_name(name)?;
    // A script is configured under the name it is written by, and known to its run by its place.
    let is_meant = |written: &String| *written == *name || switched_name(written).is_ok_and(|place| place == switched);
    let settings = defaults.models.iter().find(|(written, _)| is_meant(written)).map(|(_, settings)| *settings);
    let settings = settings.unwrap_or_default();
    let price = settings.price.or(if name.starts_with("script/") { run.model.price } else { None });
    let settings = longrein::taskfile::ModelSettings { price, ..settings };
    let spec = settings.spec(switched, run.model.max_output);
    let has_usd_limit = run.limits.micros != longrein::core::budget::Limit::Unlimited;
    if has_usd_limit && spec.price.is_none() {
        let problem =
            format!("the run has a usd budget and no price is known of {name}; add one to [models.\"{name}\"]");
        return Err(Failure::new(Status::Configuration, problem));
    }
    Ok(spec)
}

async fn unfinished(runs: &Runs) -> Result<Vec<Listed>, Failure> {
    let is_unfinished = |row: &RunRow| matches!(row.state.as_str(), "running" | "waiting" | "suspended");
    // Children are gone on with by their roots.
    let listed = runs.list().await?.into_iter();
    Ok(listed.filter(|(row, _)| row.parent.is_none() && is_unfinished(row)).collect())
}

async fn list_unfinished(session: &Session) -> Result<Status, Failure> {
    let listed = unfinished(&session.runs).await?;
    if session.globals.json {
        let now = session.runs.clock().now();
        let mut lines = Vec::with_capacity(listed.len());
        for listed in &listed {
            lines.push(line(listed, session.runs.inbox(&listed.0.run).await?.len(), now));
        }
        print_line(&json!(lines));
        return Ok(Status::Done);
    }
    if listed.is_empty() {
        tell!("no run is unfinished");
    }
    for (row, holder) in listed {
        let state = shown_state(&row.state, holder.is_some());
        say!("{}  {state}  {}", row.run, words::short(&row.goal, 70));
    }
    // At rest, but for want of room: they go on with another word or another window.
    for (row, _) in session.runs.list().await? {
        if row.state != "context_exhausted" && row.state != "failed" {
            continue;
        }
        // One that cannot be read is no reason not to list the others.
        let Ok(run) = session.runs.fold(&row.run, |_| {}).await else { continue };
        let Stage::Rest(ended) = &run.stage else { continue };
        let (Some(ways), Some(command)) = (other_ways(&run, ended), way_on(&run, ended)) else { continue };
        say!("{}  {}  {}", row.run, row.state.replace('_', " "), words::short(&row.goal, 70));
        say!("  {ways}");
        say!("  {}", session.store.command(&command));
    }
    Ok(Status::Done)
}

// ---- signals and faults ----

/// SIGINT and SIGTERM stop the run where it is; a second one ends the process at once.
fn heed_signals(stop: Stop) -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error: std::io::Error| Failure::new(Status::Internal, format!("signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    // A closed terminal ends the run orderly, unless it was started to outlive it (nohup).
    let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup()).map_err(failed)?) };
    tokio::spawn(async move {
        let mut told = false;
        loop {
            let (why, code) = tokio::select! {
                _ = interrupt.recv() => (Suspension::Interrupted, Status::Interrupted),
                _ = terminate.recv() => (Suspension::Terminated, Status::Terminated),
                Some(_) = next(&mut hangup) => (Suspension::Terminated, Status::Terminated),
            };
            if told {
                std::process::exit(code.code().into());
            }
            told = true;
            stop.now(why);
        }
    });
    Ok(())
}

async fn next(hangup: &mut Option<tokio::signal::unix::Signal>) -> Option<()> {
    match hangup {
        Some(hangup) => hangup.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether this process was told to ignore SIGHUP, by the mask of ignored signals in /proc.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

/// `--crash-at list` prints the points and does nothing else.
fn prints_points(args: &DriveArgs) -> bool {
    let asked = args.crash_at.as_deref() == Some("list");
    if asked {
        CrashPoint::all().iter().for_each(|point| say!("{point}"));
    }
    asked
}

fn faults(args: &DriveArgs, goes_on: String) -> Result<Option<Arc<dyn Faults>>, Failure> {
    let Some(text) = &args.crash_at else { return Ok(None) };
    let at: CrashAt = text.parse().map_err(|problem: String| {
        Failure::new(Status::Usage, format!("--crash-at: {problem}")).way_out("longrein run --crash-at list")
    })?;
    Ok(Some(Arc::new(Crash { at, left: Mutex::new(at.nth), is_journaled: AtomicBool::new(false), goes_on })))
}

/// Ends the process without flushing anything when its point is reached for the N-th time.
struct Crash {
    at: CrashAt,
    left: Mutex<u32>,
    /// Whether a batch was committed: before the first one there may be no run to go on with.
    is_journaled: AtomicBool,
    /// The command that goes on.
    goes_on: String,
}

impl Faults for Crash {
    fn reached(&self, point: CrashPoint) {
        if let CrashPoint::AfterAppend(_) = point {
            self.is_journaled.store(true, Ordering::Relaxed);
        }
        if point != self.at.point {
            return;
        }
        let mut left = self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *left = left.saturating_sub(1);
        if *left == 0 {
            tell!("longrein: stopped by --crash-at {point}");
            if self.is_journaled.load(Ordering::Relaxed) {
                tell!("{}", self.goes_on);
            } else {
                tell!("nothing was journaled: start it again");
            }
            longrein::exit_now(CRASHED);
        }
    }
}
