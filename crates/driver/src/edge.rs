//! The edge of core: what is about payloads is worked out here and handed in as values (digests, schema checks, guards,
//! rulings, evidence, key rows).

use std::collections::BTreeMap;

use bytes::Bytes;
use longrein_core::action::{Action, Life};
use longrein_core::check::Finding;
use longrein_core::decide::{Asks, KeyView, Proposal, Readiness, key_scope};
use longrein_core::event::{Event, Wants};
use longrein_core::ids::{ActionId, Digest, EvidenceId, FactName, Seq, ToolName};
use longrein_core::input::Truth;
use longrein_core::outcome::{Outcome, RawCall, ToolError, class};
use longrein_core::payload::{Content, Payload};
use longrein_core::prompt::Item;
use longrein_core::ruling::{Bearing, EffectKind, Ruling};
use longrein_core::run::{Evidence, Run, Stage};
use longrein_core::taint::Mark;
use longrein_core::target::Target;
use longrein_core::task::{Builtin, EffectClass, Mode, ToolBody, ToolSpec};
use longrein_ports::{
    Answers, Changed, Cited, GateCall, GuardInput, Handed, JournalError, KeyChange, KeyId, KeyState, RecordedBody,
    Ruled, ValidArgs, Work,
};

use crate::ports::Ports;

/// The data behind some content. None: the blob is missing.
pub(crate) async fn load(ports: &Ports, content: &Content) -> Result<Option<Payload>, JournalError> {
    match content {
        Content::Inline(payload) => Ok(Some(payload.clone())),
        Content::Blob(blob) => {
            let bytes = ports.journal.blob(&blob.digest).await?;
            Ok(bytes.as_deref().and_then(parse))
        }
    }
}

/// The data of a piece of evidence, from the journal where its turn has left the window. None: it is lost.
pub(crate) async fn evidence_data(
    ports: &Ports,
    run: &Run,
    evidence: &Evidence,
) -> Result<Option<Payload>, JournalError> {
    if let Some(content) = &evidence.content {
        return load(ports, content).await;
    }
    let before = Seq(evidence.seq.0.saturating_sub(1));
    let records = ports.journal.read(&run.id, before, 1).await?;
    let content = records.into_iter().next().and_then(|record| match record.body {
        RecordedBody::Known(Event::ActionFinished(finished)) => match finished.outcome {
            Outcome::Done(result) => Some(result),
            Outcome::Error(_) | Outcome::NotDone(_) | Outcome::Unknown(_) => None,
        },
        RecordedBody::Known(Event::ActionSettled(settled)) => match settled.truth {
            Truth::Done(result) => Some(result),
            Truth::NotDone => None,
        },
        RecordedBody::Known(_) | RecordedBody::Unknown { .. } | RecordedBody::Damaged { .. } => None,
    });
    match content {
        Some(content) => load(ports, &content).await,
        None => Ok(None),
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Option<Payload> {
    String::from_utf8(bytes.to_vec()).ok().and_then(|text| Payload::parse(text).ok())
}

/// The task's captured inputs, as tools get them. `fresh`: blobs that are not stored yet.
pub(crate) async fn inputs(
    ports: &Ports,
    run: &Run,
    fresh: &[(Digest, Bytes)],
) -> Result<BTreeMap<String, Payload>, JournalError> {
    let mut inputs = BTreeMap::new();
    for (name, content) in &run.task.inputs {
        let digest = content.digest();
        let unstored = fresh.iter().find(|(stored, _)| *stored == digest).and_then(|(_, bytes)| parse(bytes));
        let payload = match unstored {
            Some(payload) => Some(payload),
            None => load(ports, content).await?,
        };
        let payload = payload.unwrap_or_else(|| Payload::string("[lost from the blob store]"));
        inputs.insert(name.clone(), payload);
    }
    Ok(inputs)
}

/// Sees every call of a reply: validated, and ruled on where that can be told by now.
pub(crate) async fn proposals(
    ports: &Ports,
    run: &Run,
    calls: &[RawCall],
    asks: Asks,
) -> Result<Vec<Proposal>, JournalError> {
    let mut proposals = Vec::with_capacity(calls.len());
    for (index, call) in calls.iter().enumerate() {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        proposals.push(propose(ports, run, call, index, asks).await?);
    }
    Ok(proposals)
}

/// Longest tool name kept of what a model made up.
const NAME_MAX: usize = 64;

/// Whether a call changes one file, so that what it is about depends on what runs before it.
fn changes_a_file(spec: &ToolSpec) -> bool {
    match spec.body {
        ToolBody::Builtin(Builtin::WriteFile | Builtin::EditFile) => true,
        ToolBody::Builtin(
            Builtin::ReadFile
            | Builtin::ListFiles
            | Builtin::SearchFiles
            | Builtin::Shell
            | Builtin::Ask
            | Builtin::Recall
            | Builtin::Note
            | Builtin::WebFetch,
        )
        | ToolBody::Command(_)
        | ToolBody::Host(_)
        | ToolBody::Mcp(_) => false,
    }
}

async fn propose(ports: &Ports, run: &Run, call: &RawCall, index: u32, asks: Asks) -> Result<Proposal, JournalError> {
    let tool = ToolName::new(call.name.chars().take(NAME_MAX).collect::<String>());
    let valid = match ports.tools.validate(&tool, &call.arguments) {
        Ok(valid) => valid,
        Err(error) => {
            let args = Payload::null();
            let digest = args.digest();
            let readiness = Readiness::Refused(error);
            return Ok(Proposal { tool, args, digest, key: None, path: None, builds_on: Vec::new(), readiness });
        }
    };
    let first = run.next_action().0;
    let builds_on: Vec<u32> = valid
        .cites
        .values()
        .filter_map(|(evidence, _)| evidence.0.checked_sub(first))
        .filter(|position| *position < index)
        .collect();
    let action = ActionId(first + index);
    let readiness = match run.task.tool(&tool) {
        None => Readiness::Refused(ToolError::new(class::UNKNOWN_TOOL, format!("There is no tool {tool}."))),
        Some(_) if !builds_on.is_empty() => Readiness::Later,
        // Calls of the same reply before it may change what it finds.
        Some(spec) if index > 0 && changes_a_file(spec) => Readiness::Later,
        Some(spec) => readiness(ports, run, spec, action, &valid, asks).await?.0,
    };
    Ok(Proposal {
        tool,
        args: valid.args,
        digest: valid.digest,
        key: valid.key,
        path: valid.path,
        builds_on,
        readiness,
    })
}

/// Rules on a call as it stands now, and gathers what it would be handed.
pub(crate) async fn readiness(
    ports: &Ports,
    run: &Run,
    spec: &ToolSpec,
    action: ActionId,
    valid: &ValidArgs,
    asks: Asks,
) -> Result<(Readiness, BTreeMap<String, Payload>), JournalError> {
    let evidence = match cited_evidence(ports, run, valid).await? {
        Ok(evidence) => evidence,
        Err(error) => return Ok((Readiness::Refused(error), BTreeMap::new())),
    };
    // A missing fact is core's to name; a guard over facts would only be in the way.
    let facts_hold = spec.requires.iter().all(|fact| run.fact_holds(fact));
    if let Some(guard) = spec.guard.as_ref().filter(|_| facts_hold) {
        let facts = facts(ports, run).await?;
        let input =
            GuardInput { args: &valid.args, facts: &facts, evidence: &evidence, principal: &run.task.principal };
        if let Err(message) = ports.checks.guard(guard, &input) {
            return Ok((Readiness::Refused(ToolError::new(class::GUARD, message)), BTreeMap::new()));
        }
    }
    if spec.body == ToolBody::Builtin(Builtin::Note) {
        let read = match ports.tools.note(&valid.args) {
            Ok(note) => Readiness::Note(note),
            Err(error) => Readiness::Refused(error),
        };
        return Ok((read, BTreeMap::new()));
    }
    let target = match ports.tools.target(&run.task, &spec.name, &valid.args, &run.seen).await {
        Ok(target) => target,
        Err(error) => return Ok((Readiness::Refused(error), BTreeMap::new())),
    };
    let changed = ports.tools.changed(&spec.name);
    let said = said(run);
    let call = GateCall {
        tool: spec,
        args: &valid.args,
        target: target.as_ref(),
        workspace: &run.task.workspace,
        mode: run.mode,
        taint: &run.taint,
        said: &said,
    };
    let is_shell = spec.body == ToolBody::Builtin(Builtin::Shell);
    let (ruled, bearing) = match run.mode {
        // What would become of it is what a person at work would meet.
        Mode::Shadow => (ports.gate.rule(&GateCall { mode: Mode::Ask, ..call.clone() }), bearing(ports, &call)),
        // A command that only looks needs no snapshot before it.
        Mode::Plan | Mode::Ask | Mode::AcceptEdits | Mode::Auto if is_shell => {
            (ports.gate.rule(&call), bearing(ports, &call))
        }
        Mode::Plan | Mode::Ask | Mode::AcceptEdits | Mode::Auto => (ports.gate.rule(&call), Bearing::Acts),
    };
    let ruled = typed(ruled, run, action, asks);
    let wants = ruled.1;
    let Ruled { ruling, mut answers, effects, beyond, brings, runs, unless_typed: _ } = match (&changed, ruled.0) {
        // What is denied is denied, whatever runs it.
        (_, ruled @ Ruled { ruling: Ruling::Deny { .. }, .. }) | (None, ruled) => ruled,
        (Some(Changed { file, .. }), ruled) => Ruled {
            ruling: Ruling::Ask {
                rule: "pinned programs".to_owned(),
                reason: format!("{file} is not what it was when the run started"),
            },
            ..ruled
        },
    };
    // Only where somebody is asked does it matter what the files are that a command runs.
    let mut programs = match &ruling {
        Ruling::Ask { .. } => ports.tools.scripts(&run.task, &runs),
        Ruling::Allow { .. } | Ruling::Deny { .. } => Vec::new(),
    };
    // What could not be read is bound to nothing.
    if programs.iter().any(|program| program.content.is_none()) {
        answers = Answers::Fresh;
    }
    programs.extend(changed);
    let Digests { question, exact } = digests(
        run,
        action,
        &Asked { spec, valid, evidence: &evidence, target: target.as_ref(), programs: &programs, wants: &wants },
    );
    let readiness = match (spec.body == ToolBody::Builtin(Builtin::Ask), ruling) {
        // To be asked whether one may ask is asking twice.
        (true, Ruling::Allow { rule } | Ruling::Ask { rule, .. }) => {
            Readiness::Question { text: question_text(&valid.args), digest: question, rule, asks }
        }
        (true, ruling @ Ruling::Deny { .. }) | (false, ruling) => {
            let exact = match answers {
                Answers::Remembered => Some(exact),
                Answers::Fresh => None,
            };
            let sandbox = ports.tools.sandbox(&spec.name).map(str::to_owned);
            Readiness::Ruled { ruling, question, exact, wants, asks, target, brings, effects, beyond, bearing, sandbox }
        }
    };
    Ok((readiness, evidence))
}

/// What the gate denies unless a person types it out is a question where one may be asked, or has answered; else a denial.
fn typed(ruled: Ruled, run: &Run, action: ActionId, asks: Asks) -> (Ruled, Wants) {
    let is_granted = run.action(action).is_some_and(|action| action.grant.is_some());
    match ruled {
        Ruled { ruling: Ruling::Deny { rule, reason }, unless_typed: Some(text), .. }
            if asks == Asks::Hold || is_granted =>
        {
            let ruled =
                Ruled { ruling: Ruling::Ask { rule, reason }, answers: Answers::Fresh, unless_typed: None, ..ruled };
            (ruled, Wants::Typed(text))
        }
        ruled => (ruled, Wants::Yes),
    }
}

/// Whether a call only looks: what a plan may do, by the gate, and a command that is not known to do more than read.
fn bearing(ports: &Ports, call: &GateCall<'_>) -> Bearing {
    let Ruled { ruling, effects, .. } = ports.gate.rule(&GateCall { mode: Mode::Plan, ..call.clone() });
    let reads = effects.iter().all(|effect| match effect.kind {
        EffectKind::Read | EffectKind::Run => true,
        EffectKind::Write | EffectKind::Delete | EffectKind::Network | EffectKind::Unknown => false,
    });
    let is_command = call.tool.body == ToolBody::Builtin(Builtin::Shell);
    match ruling {
        Ruling::Allow { .. } if call.tool.effect == EffectClass::Read || (is_command && reads) => Bearing::Looks,
        Ruling::Allow { .. } | Ruling::Ask { .. } | Ruling::Deny { .. } => Bearing::Acts,
    }
}

/// What people have typed in this run.
fn said(run: &Run) -> Vec<&str> {
    let words = run.memory.messages.iter().filter_map(|message| match message.item.as_ref() {
        Item::User(words) | Item::Pictured { text: words, images: _ } => Some(words.as_str()),
        Item::Assistant { .. } | Item::Observation { .. } | Item::Harness(_) | Item::Exhibit { .. } => None,
    });
    // What was piped in beside a goal nobody has typed.
    std::iter::once(run.task.typed_goal()).chain(words).collect()
}

/// What `ask` asks: its one argument, which the schema requires.
fn question_text(args: &Payload) -> String {
    let text = args.read::<BTreeMap<String, Payload>>().ok().and_then(|mut args| args.remove("question"));
    text.and_then(|text| text.read().ok()).unwrap_or_else(|| args.as_str().to_owned())
}

/// What exactly a person is asked about.
struct Digests {
    /// This one action.
    question: Digest,
    /// Every action of the run that would do the very same.
    exact: Digest,
}

/// What a person says yes to.
struct Asked<'a> {
    spec: &'a ToolSpec,
    valid: &'a ValidArgs,
    evidence: &'a BTreeMap<String, Payload>,
    target: Option<&'a Target>,
    programs: &'a [Changed],
    wants: &'a Wants,
}

/// Of everything in it (`semantics.md` E4).
fn digests(run: &Run, action: ActionId, asked: &Asked<'_>) -> Digests {
    let Asked { spec, valid, evidence, target, programs, wants } = *asked;
    let definition = Payload::of(spec).expect("a tool spec has only string keys");
    let id = action.to_string();
    let mut parts: Vec<&[u8]> =
        vec![definition.as_str().as_bytes(), valid.args.as_str().as_bytes(), run.task.folder.as_bytes()];
    for (name, data) in evidence {
        parts.push(name.as_bytes());
        parts.push(data.as_str().as_bytes());
    }
    let target = target.map(|target| Payload::of(target).expect("a target has only string keys"));
    parts.extend(target.iter().map(|target| target.as_str().as_bytes()));
    // A yes to the program as it was is none to what it has become.
    for Changed { file, content } in programs {
        parts.push(file.as_bytes());
        parts.push(content.as_ref().map_or(b"gone".as_slice(), |content| content.as_str().as_bytes()));
    }
    // Nor is a plain yes one to what has to be typed out by now.
    match wants {
        Wants::Typed(text) => parts.extend([b"typed".as_slice(), text.as_bytes()]),
        Wants::Yes | Wants::Words => {}
    }
    let run = run.id.as_str().as_bytes();
    let of = |whom: [&[u8]; 2]| Digest::of_parts(whom.into_iter().chain(parts.iter().copied()));
    Digests { question: of([run, id.as_bytes()]), exact: of([run, b"every call"]) }
}

async fn cited_evidence(
    ports: &Ports,
    run: &Run,
    valid: &ValidArgs,
) -> Result<Result<BTreeMap<String, Payload>, ToolError>, JournalError> {
    let mut handed = BTreeMap::new();
    for (argument, (id, tool)) in &valid.cites {
        let refuse = |message: String| {
            Ok(Err(ToolError::new(class::EVIDENCE, message)
                .at(format!("/{argument}"))
                .hint(format!("Call {tool} and cite the evidence id of its result."))))
        };
        let Some(evidence) = run.evidence.get(id) else {
            return refuse(format!("There is no evidence {id}."));
        };
        if &evidence.tool != tool {
            return refuse(format!("{id} is a result of {}, not of {tool}.", evidence.tool));
        }
        if let Some(since) = run.void_since(evidence) {
            return refuse(format!("{id} is void since #{since}: something was written after it."));
        }
        match evidence_data(ports, run, evidence).await? {
            Some(data) => handed.insert(argument.clone(), data),
            None => return refuse(format!("The data of {id} is lost.")),
        };
    }
    Ok(Ok(handed))
}

pub(crate) async fn facts(ports: &Ports, run: &Run) -> Result<BTreeMap<FactName, Payload>, JournalError> {
    let mut facts = BTreeMap::new();
    for (name, id) in run.facts.iter().filter(|(name, _)| run.fact_holds(name)) {
        if let Some(evidence) = run.evidence.get(id)
            && let Some(data) = evidence_data(ports, run, evidence).await?
        {
            facts.insert(name.clone(), data);
        }
    }
    Ok(facts)
}

/// What is judged: the answer that was given; in a program, what the phase before its checks has left. None: nothing yet.
pub(crate) async fn answer(ports: &Ports, run: &Run) -> Result<Option<Payload>, JournalError> {
    match (&run.stage, &run.course) {
        (Stage::Verifying { accepted, .. }, _) => Ok(Some(accepted.answer.clone())),
        (Stage::Ready(_), Some(course)) => {
            let left = course.last.as_ref().and_then(|(phase, _)| course.outputs.get(phase));
            match left {
                Some(content) => load(ports, content).await,
                None => Ok(None),
            }
        }
        (Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_), _) => Ok(None),
    }
}

/// What a check judges that is no command: the answer, the newest live evidence of each tool, and the facts.
pub(crate) async fn work(ports: &Ports, run: &Run) -> Result<Work, JournalError> {
    let answer = answer(ports, run).await?.unwrap_or_else(Payload::null);
    let live = run.evidence.values().filter(|evidence| run.void_since(evidence).is_none());
    let newest: BTreeMap<&ToolName, &Evidence> = live.map(|evidence| (&evidence.tool, evidence)).collect();
    let mut evidence = BTreeMap::new();
    for (tool, found) in newest {
        if let Some(data) = evidence_data(ports, run, found).await? {
            evidence.insert(tool.clone(), data);
        }
    }
    Ok(Work { answer, evidence, facts: facts(ports, run).await? })
}

/// What an attempt is handed beside its arguments.
pub(crate) async fn handed(
    ports: &Ports,
    run: &Run,
    action: &Action,
    inputs: &BTreeMap<String, Payload>,
) -> Result<Handed, JournalError> {
    // What undoes another call gets that call's own object.
    let tool = action.undoes().map_or(&action.tool, |other| &other.tool);
    let evidence = match ports.tools.validate(tool, action.args.as_str()) {
        // Void or lost evidence of an attempt that was started is handed on as far as it can be read.
        Ok(valid) => {
            let mut evidence = BTreeMap::new();
            for (argument, (id, _)) in &valid.cites {
                if let Some(found) = run.evidence.get(id)
                    && let Some(data) = evidence_data(ports, run, found).await?
                {
                    evidence.insert(argument.clone(), data);
                }
            }
            evidence
        }
        Err(_) => BTreeMap::new(),
    };
    let result = match (action.undoes(), &action.life) {
        (Some(other), _) => load(ports, &other.result).await?,
        (None, Life::Checking(tentative)) => load(ports, &tentative.result).await?,
        (None, _) => None,
    };
    Ok(Handed { evidence, inputs: inputs.clone(), result })
}

/// The arguments of a call as they stand.
pub(crate) fn as_it_is(action: &Action) -> ValidArgs {
    let (args, digest) = (action.args.clone(), action.digest.clone());
    ValidArgs { args, digest, cites: BTreeMap::new(), key: None, path: None }
}

/// The evidence a final reply cites, with its data.
pub(crate) async fn cited(ports: &Ports, run: &Run, text: &str) -> Result<BTreeMap<EvidenceId, Cited>, JournalError> {
    let mut cited = BTreeMap::new();
    let Some(spec) = &run.task.answer else { return Ok(cited) };
    let cites = ports.checks.cites(spec, text);
    // Where numbers must come from evidence, any that is live will do.
    let live = run.evidence.iter().filter(|(_, evidence)| spec.numbers.is_some() && run.void_since(evidence).is_none());
    let ids: std::collections::BTreeSet<EvidenceId> = cites.into_iter().chain(live.map(|(id, _)| *id)).collect();
    for id in ids {
        if let Some(evidence) = run.evidence.get(&id)
            && let Some(data) = evidence_data(ports, run, evidence).await?
        {
            let void_since = run.void_since(evidence);
            cited.insert(id, Cited { tool: evidence.tool.clone(), data, void_since });
        }
    }
    Ok(cited)
}

/// The key row an action takes, if its tool has a key.
pub(crate) fn key_id(run: &Run, action: &Action) -> Option<KeyId> {
    let spec = run.task.tool(&action.tool)?.key.as_ref()?;
    let digest = action.key.clone()?;
    Some(KeyId { scope: key_scope(run, spec.scope), tool: action.tool.clone(), digest })
}

/// What the store knows of an action's key.
pub(crate) async fn key_view(ports: &Ports, run: &Run, action: &Action) -> Result<KeyView, JournalError> {
    let Some(id) = key_id(run, action) else { return Ok(KeyView::Free { times_freed: 0 }) };
    let Some(row) = ports.journal.key(&id).await? else { return Ok(KeyView::Free { times_freed: 0 }) };
    let is_ours = row.run == run.id && row.action == action.id;
    let same_args = row.args == action.args;
    let (holder, other) = (row.run, row.action);
    Ok(match row.state {
        KeyState::Free => KeyView::Free { times_freed: row.times_freed },
        KeyState::Held | KeyState::Done(_) if is_ours => KeyView::Free { times_freed: row.times_freed },
        KeyState::Held | KeyState::Done(_) if !same_args => {
            KeyView::Conflict { run: holder, action: other, fields: differing(&row.args, &action.args) }
        }
        KeyState::Held => KeyView::Held { run: holder, action: other },
        KeyState::Done(result) => {
            KeyView::Done { run: holder, action: other, result, brings: trusted(ports, row.brings) }
        }
    })
}

/// Marks but for those of sources that a person trusts by now.
pub(crate) fn trusted(ports: &Ports, marks: Vec<Mark>) -> Vec<Mark> {
    marks.into_iter().filter(|mark| !ports.origins.endorses(&mark.source)).collect()
}

/// Names of the top-level arguments in which two calls differ.
fn differing(one: &Payload, other: &Payload) -> Vec<String> {
    type Fields = BTreeMap<String, Payload>;
    let (Ok(one), Ok(other)) = (one.read::<Fields>(), other.read::<Fields>()) else {
        return vec!["their arguments".to_owned()];
    };
    let names: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    names.into_iter().filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

/// The changes of key rows that belong to an event, seen from the run just before it.
pub(crate) fn key_changes(run: &Run, event: &Event) -> Vec<KeyChange> {
    key_change(run, event).into_iter().chain(compensated(run, event)).collect()
}

/// The key of a call is free again once the call is undone; nothing else than its compensation does that
/// (`semantics.md` D6).
fn compensated(run: &Run, event: &Event) -> Option<KeyChange> {
    let by = if let Event::ActionFinished(finished) = event {
        matches!(finished.outcome, Outcome::Done(_)).then_some(finished.action)
    } else if let Event::ActionSettled(settled) = event {
        matches!(settled.truth, Truth::Done(_)).then_some(settled.action)
    } else {
        None
    };
    let other = run.action(by?)?.undoes()?;
    let spec = run.task.tool(&other.tool)?.key.as_ref()?;
    let id = KeyId { scope: key_scope(run, spec.scope), tool: other.tool.clone(), digest: other.key.clone()? };
    Some(KeyChange::Free { id })
}

/// The change of a key row that belongs to an event, seen from the run just before it.
fn key_change(run: &Run, event: &Event) -> Option<KeyChange> {
    let of = |id: ActionId| {
        let action = run.action(id)?;
        Some((key_id(run, action)?, action))
    };
    match event {
        Event::ActionStarted(started) => {
            let (id, action) = of(started.action)?;
            Some(KeyChange::Take { id, run: run.id.clone(), action: action.id, args: action.args.clone() })
        }
        Event::ActionFinished(finished) if finished.attempt > 0 => {
            let (id, action) = of(finished.action)?;
            match &finished.outcome {
                // Not before its check says so.
                Outcome::Done(_) if run.is_checked(action) => None,
                Outcome::Done(result) => {
                    let brings = [action.brings.as_slice(), finished.brings.as_slice()].concat();
                    Some(KeyChange::Finish { id, result: result.clone(), brings })
                }
                Outcome::NotDone(_) => Some(KeyChange::Free { id }),
                Outcome::Error(_) | Outcome::Unknown(_) => None,
            }
        }
        Event::ActionSettled(settled) => {
            let (id, action) = of(settled.action)?;
            match &settled.truth {
                Truth::Done(_) if run.is_checked(action) && !run.open.contains_key(&action.id) => None,
                Truth::Done(result) => {
                    let brings = [action.brings.as_slice(), settled.brings.as_slice()].concat();
                    Some(KeyChange::Finish { id, result: result.clone(), brings })
                }
                Truth::NotDone => Some(KeyChange::Free { id }),
            }
        }
        // Refused after attempts that are known to have had no effect: nothing happened.
        Event::ActionRefused(refused) => {
            let (id, action) = of(refused.action)?;
            (action.attempts > 0).then_some(KeyChange::Free { id })
        }
        // But not where an attempt may have happened: it stays unknown, and holds its key.
        Event::ActionDenied(denied) => {
            let (id, action) = of(denied.action)?;
            (action.attempts > 0 && !action.in_doubt).then_some(KeyChange::Free { id })
        }
        Event::CheckFinished(finished) if finished.verdict.finding == Finding::Passed => {
            let (id, action) = of(finished.action?)?;
            let Life::Checking(tentative) = &action.life else { return None };
            Some(KeyChange::Finish { id, result: tentative.result.clone(), brings: action.brings.clone() })
        }
        Event::RunStarted(_)
        | Event::RunForked(_)
        | Event::RunClaimed(_)
        | Event::InputReceived(_)
        | Event::InputRefused(_)
        | Event::ModelRequested(_)
        | Event::ModelReplied(_)
        | Event::ModelFailed(_)
        | Event::ModelSwitched(_)
        | Event::ModelForgone(_)
        | Event::ModelRouted(_)
        | Event::GenerationStarted(_)
        | Event::ResultSpilled(_)
        | Event::SummaryRequested(_)
        | Event::SummaryFinished(_)
        | Event::JudgeRequested(_)
        | Event::JudgeFinished(_)
        | Event::NoteTaken(_)
        | Event::ActionProposed(_)
        | Event::ActionHeld(_)
        | Event::ActionApproved(_)
        | Event::ActionRequeued(_)
        | Event::ActionProbed(_)
        | Event::ActionFinished(_)
        | Event::ActionRolledBack(_)
        | Event::ActionNotUndone(_)
        | Event::AnswerAccepted(_)
        | Event::AnswerRefused(_)
        | Event::CheckFinished(_)
        | Event::ChecksVoided(_)
        | Event::HookFinished(_)
        | Event::LoopNoticed(_)
        | Event::FactSet(_)
        | Event::FactVoided(_)
        | Event::BudgetReached(_)
        | Event::BudgetRaised(_)
        | Event::ChildStarted(_)
        | Event::ChildEnded(_)
        | Event::SourceEndorsed(_)
        | Event::SurroundingsChanged(_)
        | Event::TransitionTaken(_)
        | Event::RunParked(_)
        | Event::RunSuspended(_)
        | Event::RunEnded(_) => None,
    }
}

/// The outcome of an attempt that was given up or whose tool panicked: what is certain, by class.
pub(crate) fn cut_off(effect: EffectClass, why: &str) -> Outcome {
    match effect {
        EffectClass::Read => Outcome::Error(ToolError::new(class::CANCELLED, why)),
        EffectClass::Workspace => Outcome::Error(
            ToolError::new(class::UNKNOWN_OUTCOME, why).hint("Look at the files it works on before you go on."),
        ),
        EffectClass::External => Outcome::Unknown(
            ToolError::new(class::UNKNOWN_OUTCOME, why).hint("It may have happened: find out before you repeat it."),
        ),
    }
}
