//! Text for people: events in one line each, and content made safe to print.

use longrein::core::action::Life;
use longrein::core::check::{Finding, Judge};
use longrein::core::event::{
    ActionProposed, AfterFailure, End, Event, GenerationStarted, How, JudgeFinished, JudgeOutcome, Level,
    ModelRequested, No, NoteTaken, RebuildStep, RebuildWhy, Received, Requeue, RollbackWhy, RouteWhy, Settled,
    SettledBy, SummaryFinished, SummaryOutcome, Wait, Wants,
};
use longrein::core::hook::{HookEvent, HookOutcome, HookSpec};
use longrein::core::ids::{NoteId, ToolName, TreeId};
use longrein::core::image::ImageRef;
use longrein::core::input::Covers;
use longrein::core::input::Truth;
use longrein::core::manifest::{Manifest, Why, Withheld};
use longrein::core::outcome::{ModelErrorClass, Outcome, ProbeAnswer};
use longrein::core::payload::{Content, Payload};
use longrein::core::program::To;
use longrein::core::prompt::Item;
use longrein::core::ruling::{Effect, EffectKind};
use longrein::core::run::Run;
use longrein::core::task::{Builtin, ToolBody, ToolSpec};
use longrein::core::time::Timestamp;
use longrein::projection::outcome_word;

/// Makes text safe for a terminal: control characters and direction marks become visible.
pub(crate) fn safe(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let hidden = c.is_control() && c != '\n' && c != '\t';
            let deceptive = matches!(c,
                // Soft hyphen, Arabic letter mark, Mongolian vowel separator, zero-width characters and direction marks,
                // line and paragraph separators, embeddings, word joiner to isolates, fillers, byte order mark,
                // interlinear marks, tags.
                '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
            if hidden || deceptive { c.escape_unicode().collect::<Vec<_>>() } else { vec![c] }
        })
        .collect()
}

/// One safe line of at most `limit` characters.
pub(crate) fn short(text: &str, limit: usize) -> String {
    let one_line = crate::lines::one_line(&safe(text));
    if one_line.chars().count() <= limit {
        one_line
    } else {
        format!("{}…", one_line.chars().take(limit.saturating_sub(1)).collect::<String>())
    }
}

/// Characters of a reason that are shown before and after what is left out: the end says what to do.
const REASON_HEAD: usize = 400;
const REASON_TAIL: usize = 200;

/// Why a run stands where it does, safe to print. A provider may have answered with a page: of more than anybody reads the
/// middle is left out, and `whole` is the command that prints it.
pub(crate) fn reason(text: &str, whole: &str) -> String {
    let text = safe(text);
    let count = text.chars().count();
    let Some(left_out) = count.checked_sub(REASON_HEAD + REASON_TAIL).filter(|left_out| *left_out > REASON_TAIL) else {
        return text;
    };
    let head: String = text.chars().take(REASON_HEAD).collect();
    let tail: String = text.chars().skip(count - REASON_TAIL).collect();
    format!("{head} … ({} characters left out: {whole}) … {tail}", grouped(left_out as u64))
}

pub(crate) fn shown(content: &Content) -> String {
    match content {
        Content::Inline(payload) => short(payload.as_str(), 100),
        Content::Blob(blob) => format!("{} bytes: {}", blob.bytes, short(&blob.shown_text(), 80)),
    }
}

/// The time of day of an event.
pub(crate) fn clock(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(11..19).unwrap_or(&text).to_owned()
}

/// The tool of an action, if it is still in play.
fn tool_of(run: Option<&Run>, action: longrein::core::ids::ActionId) -> String {
    run.and_then(|run| run.action(action)).map(|action| format!(" {}", safe(action.tool.as_str()))).unwrap_or_default()
}

/// Exactly what a call would run: the tool, its arguments, and the command that gets them on stdin.
pub(crate) fn call(run: &Run, action: &longrein::core::action::Action) -> String {
    let mut text = format!("{} {}", safe(action.tool.as_str()), safe(action.args.as_str()));
    if let Some(tool) = run.task.tool(&action.tool) {
        text.push_str(&format!("\n  by: {}", carried_out_by(run, tool)));
    }
    text
}

/// What carries a tool's calls out.
pub(crate) fn carried_out_by(run: &Run, tool: &ToolSpec) -> String {
    match &tool.body {
        ToolBody::Command(words) => {
            let words: Vec<_> = words.iter().map(|word| crate::context::quoted(word)).collect();
            format!("{} (in {})", safe(&words.join(" ")), safe(&run.task.folder))
        }
        ToolBody::Builtin(_) => "Longrein itself".to_owned(),
        ToolBody::Host(_) => "the program that embeds Longrein".to_owned(),
        ToolBody::Mcp(of) => format!("the MCP server {}", of.server),
    }
}

/// The arguments of a call as they are, decoded: text as it would be read, its lines marked as such, everything that a
/// terminal would act on or hide made visible.
pub(crate) fn arguments(args: &Payload) -> Vec<String> {
    let Ok(fields) = args.read::<std::collections::BTreeMap<String, serde_json::Value>>() else {
        return vec![safe(args.as_str())];
    };
    // What it is about first, and what is there before what is to be.
    const FIRST: [&str; 4] = ["path", "command", "old", "new"];
    let mut fields: Vec<_> = fields.into_iter().collect();
    fields.sort_by_key(|(name, _)| FIRST.iter().position(|first| first == name).unwrap_or(FIRST.len()));
    let mut lines = Vec::new();
    for (name, value) in fields {
        let name = visible(&name);
        match value.as_str() {
            Some(text) if text.contains('\n') => {
                lines.push(format!("{name}:"));
                lines.extend(text.split('\n').map(|line| format!("  | {}", visible(line))));
            }
            Some(text) => lines.push(format!("{name}: {}", visible(text))),
            None => lines.push(format!("{name}: {}", safe(&value.to_string()))),
        }
    }
    lines
}

/// As [`safe`], with tabs and line ends visible too.
fn visible(text: &str) -> String {
    safe(text).replace('\t', "\\t").replace('\n', "\\n")
}

/// What a call of a tool would do, for a person: what it reaches and changes. That it runs a command, or the tool itself, is
/// plain from the call.
pub(crate) fn effects(tool: &str, effects: &[Effect]) -> Vec<String> {
    let mut lines = Vec::new();
    let effects = effects.iter().filter(|effect| effect.what != tool);
    let effects: Vec<_> = effects.collect();
    for (kind, word) in [
        (EffectKind::Network, "would reach"),
        (EffectKind::Write, "would write"),
        (EffectKind::Delete, "would delete"),
        (EffectKind::Read, "would read"),
        (EffectKind::Unknown, "cannot be told before it runs"),
    ] {
        let of_kind: Vec<_> = effects.iter().filter(|effect| effect.kind == kind).collect();
        lines.extend(of_kind.iter().take(EFFECTS_SHOWN).map(|effect| format!("{word}: {}", visible(&effect.what))));
        if of_kind.len() > EFFECTS_SHOWN {
            lines.push(format!("{word}: {} more", of_kind.len() - EFFECTS_SHOWN));
        }
    }
    lines
}

/// Effects of one kind that are listed.
const EFFECTS_SHOWN: usize = 12;

/// Why a yes to every call like this one is not taken: where no earlier yes counts, none for later does.
pub(crate) fn no_always(run: &Run) -> &'static str {
    if run.taint.is_tainted() {
        "\"always\" is not offered: this run has read what others could have written, so each such call is asked"
    } else {
        "\"always\" is not offered: each such call is asked"
    }
}

/// What a yes to every call like this one covers.
pub(crate) fn always(run: &Run, action: &longrein::core::action::Action) -> String {
    let tool = safe(action.tool.as_str());
    let is_command =
        run.task.tool(&action.tool).is_some_and(|tool| matches!(tool.body, ToolBody::Builtin(Builtin::Shell)));
    let same = if is_command { "this very command" } else { "these very arguments" };
    format!("always: {tool} with {same}, as it is now, for the rest of this run")
}

/// The id of a note: that of the action that took it.
fn note_id(taken: &NoteTaken) -> NoteId {
    NoteId(taken.action.0)
}

/// Why a window is made anew.
pub(crate) fn why(why: RebuildWhy) -> String {
    match why {
        RebuildWhy::Economic => "carrying on would cost more".to_owned(),
        RebuildWhy::ColdCache => "the provider's cache is cold anyway".to_owned(),
        RebuildWhy::Trigger => "it reached the share that the task names".to_owned(),
        RebuildWhy::Watermark => "it was nearly full".to_owned(),
        RebuildWhy::Forecast => "by forecast it is full in a few turns".to_owned(),
        RebuildWhy::Full => "it was full".to_owned(),
        RebuildWhy::Overflow(1) => "the provider found it too long".to_owned(),
        RebuildWhy::Overflow(times) => format!("the provider found it too long {times} times in a row"),
        RebuildWhy::Rendering => "this version renders it differently".to_owned(),
    }
}

/// A rebuild of the window in one line of a terminal.
pub(crate) fn rebuilt_short(started: &GenerationStarted) -> String {
    let (generation, before, after) = (started.generation, started.before, started.after);
    format!("context made anew (generation {generation}), {}: about {before} → {after} tokens", why(started.why))
}

/// A rebuild of the window: why, what each step freed, and what is left.
pub(crate) fn rebuilt(started: &GenerationStarted) -> String {
    let why = why(started.why);
    let results = |count: usize| if count == 1 { "1 result".to_owned() } else { format!("{count} results") };
    let steps: Vec<_> = started
        .steps
        .iter()
        .map(|step| match step {
            RebuildStep::Superseded { actions, freed } => {
                format!("{} replaced by later looks (−{freed})", results(actions.len()))
            }
            RebuildStep::Refetchable { actions, freed } => {
                format!("{} reduced to their ids (−{freed})", results(actions.len()))
            }
            RebuildStep::PagedOut { from, to, calls, freed, .. } => {
                let turns = if from == to { format!("turn {from}") } else { format!("turns {from}–{to}") };
                format!("{turns} archived, {} (−{freed})", count((*calls).into(), "call", "calls"))
            }
            RebuildStep::Shortened { actions, freed, .. } => {
                format!("{} shortened (−{freed})", results(actions.len()))
            }
        })
        .collect();
    let steps = if steps.is_empty() { "nothing left out".to_owned() } else { steps.join(", ") };
    let again = match started.readmitted.len() {
        0 => String::new(),
        count => format!(", {} brought back that something open cites", results(count)),
    };
    format!(
        "the context was made anew (generation {}): {why}; {steps}{again}; about {} → {} tokens",
        started.generation, started.before, started.after
    )
}

/// How a request differs from the one that was found too long. None: there was none, or it was answered since.
fn smaller(run: Option<&Run>, requested: &ModelRequested) -> Option<String> {
    /// A number in it may have fewer digits.
    const OF_NUMBERS: u64 = 20;
    let run = run?;
    let refused = run.window.refused.as_ref()?;
    let fewer = refused.bytes.saturating_sub(requested.bytes);
    let prompt = if refused.bytes < requested.bytes {
        format!("{} more than what was too long", grouped(requested.bytes - refused.bytes))
    } else if refused.generation == run.window.generation && fewer <= OF_NUMBERS {
        "what was too long, once more".to_owned()
    } else {
        format!("{} fewer than what was too long", grouped(fewer))
    };
    let reply = match (refused.output, requested.output) {
        (Some(before), Some(now)) if now < before => {
            format!(", for a reply of at most {} instead of {} tokens", grouped(now), grouped(before))
        }
        (Some(_) | None, Some(_) | None) => String::new(),
    };
    Some(format!("{prompt}{reply}"))
}

/// What a request asks for that follows one that was found too long, in one line of a terminal.
pub(crate) fn asked_smaller(run: &Run, requested: &ModelRequested) -> Option<String> {
    smaller(Some(run), requested)
        .map(|smaller| format!("{} asks with {} bytes: {smaller}", requested.attempt, requested.bytes))
}

/// What may be called, and what not for want of what.
pub(crate) fn offered(manifest: &Manifest) -> String {
    let names = |names: &[ToolName]| names.iter().map(|name| safe(name.as_str())).collect::<Vec<_>>().join(", ");
    let offered = if manifest.offered.is_empty() { "nothing".to_owned() } else { names(&manifest.offered) };
    let withheld: Vec<_> = manifest.withheld.iter().map(withheld).collect();
    let withheld = if withheld.is_empty() { String::new() } else { format!("; not {}", withheld.join(", ")) };
    format!("may call {offered}{withheld}")
}

/// A tool that may not be called now, and why in a word.
fn withheld(withheld: &Withheld) -> String {
    let why = match withheld.why {
        Why::Mode => "plan mode".to_owned(),
        Why::Phase => "not in this phase".to_owned(),
        Why::Rule => "denied by a rule".to_owned(),
        Why::Loop => "taken away for a turn".to_owned(),
        Why::Fact => {
            let missing: Vec<_> = withheld.missing.iter().map(ToString::to_string).collect();
            let by: Vec<_> = withheld.provided_by.iter().map(|tool| safe(tool.as_str())).collect();
            let by = if by.is_empty() { String::new() } else { format!(": {}", by.join(" or ")) };
            format!("needs {}{by}", safe(&missing.join(", ")))
        }
        Why::Check => "its check failed too often".to_owned(),
        Why::Quota => "used up".to_owned(),
    };
    format!("{} ({why})", safe(withheld.tool.as_str()))
}

/// What came of a judge's opinion.
fn judged(finished: &JudgeFinished) -> String {
    let what = match &finished.outcome {
        JudgeOutcome::Opinion { finding, reason } => format!("{}: {}", finding.as_str(), short(reason, 160)),
        JudgeOutcome::Unusable { reason } => format!("no verdict: {}", short(reason, 160)),
        JudgeOutcome::Failed { message, .. } => format!("failed: {}", short(message.trim_end_matches('.'), 160)),
        JudgeOutcome::Lost => "given up".to_owned(),
    };
    let (input, output) = (finished.usage.tokens() - finished.usage.output, finished.usage.output);
    let tokens = match finished.settled {
        Settled::Reported => format!("{input} tokens in, {output} out"),
        Settled::Estimated => format!("no usage reported; counted as {input} in, {output} out at most"),
    };
    format!("opinion on {} ({tokens}): {what}", safe(finished.check.as_str()))
}

/// What came of a summary of turns that had left the window.
fn summed_up(finished: &SummaryFinished) -> String {
    let what = match &finished.outcome {
        SummaryOutcome::Kept { lines } if lines.len() == 1 => "1 line kept for the next control block".to_owned(),
        SummaryOutcome::Kept { lines } => format!("{} lines kept for the next control block", lines.len()),
        SummaryOutcome::Refused { reason } => format!("nothing of it is kept: {}", short(reason, 160)),
        SummaryOutcome::Failed { message, again, .. } => {
            let next = again.map(|turn| format!("; asked again with {turn}")).unwrap_or_default();
            format!("failed: {}{next}", short(message.trim_end_matches('.'), 160))
        }
        SummaryOutcome::Lost => "given up, and not asked for again".to_owned(),
        SummaryOutcome::Forgone { reason } => format!("not asked for: {}", short(reason, 160)),
    };
    let (input, output) = (finished.usage.tokens() - finished.usage.output, finished.usage.output);
    let tokens = match finished.settled {
        Settled::Reported if input + output == 0 => String::new(),
        Settled::Reported => format!(" ({input} tokens in, {output} out)"),
        Settled::Estimated => format!(" (no usage reported; counted as {input} in, {output} out at most)"),
    };
    format!("summary for generation {}{tokens}: {what}", finished.generation)
}

/// A number with its thousands set apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of a thing.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// What a call that was refused had as arguments: as the model wrote them, since they are none that could be read.
fn arguments_as_written<'a>(run: Option<&'a Run>, proposed: &'a ActionProposed) -> &'a str {
    let written = run.filter(|_| proposed.args.as_str() == "null").and_then(|run| {
        let calls = run.window.items.iter().rev().filter_map(|item| match item.as_ref() {
            Item::Assistant { calls, .. } => Some(calls),
            Item::User(_)
            | Item::Pictured { .. }
            | Item::Exhibit { .. }
            | Item::Observation { .. }
            | Item::Harness(_) => None,
        });
        calls.flatten().find(|call| call.id == proposed.call).map(|call| call.arguments.as_str())
    });
    written.unwrap_or(proposed.args.as_str())
}

/// The images that go with some words: ` [image a.png 640×480 png]` for each, as far as a line has room.
pub(crate) fn images(images: &[ImageRef]) -> String {
    const NAMED: usize = 4;
    let more = images.len().saturating_sub(NAMED);
    let named: String = images.iter().take(NAMED).map(|image| format!(" {}", safe(&image.label(None)))).collect();
    if more > 0 { format!("{named} and {more} more images") } else { named }
}

/// A hook in one line, with where it was declared.
pub(crate) fn hook(hook: &HookSpec) -> String {
    let tools = hook.tools.join("|");
    let tools = if tools.is_empty() { tools } else { format!(" {}", short(&tools, 80)) };
    format!("{}{tools} `{}`, from {}", hook.event.as_str(), short(&hook.label(), 80), safe(&hook.source))
}

/// An event in one line. `run`: the state around it, where there is one, for names.
pub(crate) fn describe(run: Option<&Run>, event: &Event) -> String {
    format!("{}{}", what_happened(run, event), crate::taint::brought(event.brings()))
}

fn what_happened(run: Option<&Run>, event: &Event) -> String {
    let named = |action| format!("{action}{}", tool_of(run, action));
    match event {
        Event::RunStarted(e) => {
            let hooks: Vec<_> = e.task.hooks.iter().map(hook).collect();
            let hooks = if hooks.is_empty() { String::new() } else { format!("; hooks: {}", hooks.join("; ")) };
            format!("run {} started: {}{}{hooks}", e.run, short(&e.task.goal, 90), images(&e.task.images))
        }
        Event::RunForked(e) => format!("forked from event {} of run {}", e.at, e.from),
        Event::RunClaimed(e) => format!("claimed by process {} on {} (fence {})", e.pid, e.host, e.fence),
        Event::InputReceived(e) => match &e.body {
            Received::Message(text) => format!("message: {}{}", short(text, 90), images(&e.images)),
            Received::Answer(action) => format!("message: the answer to {}{}", named(*action), images(&e.images)),
            Received::Cancel => "asked to cancel".to_owned(),
            Received::ChildSettled { child, .. } => format!("word on what child {child} had left unknown"),
            Received::LateOutcome(late) => {
                format!("late word on {} attempt {}: {}", late.action, late.attempt, outcome_word(&late.outcome))
            }
        },
        Event::InputRefused(e) => format!("input refused: {}", short(&e.reason, 120)),
        Event::ModelRequested(e) => {
            let manifest = e.manifest.as_ref().map(|manifest| format!("; {}", offered(manifest))).unwrap_or_default();
            let smaller = smaller(run, e).map(|smaller| format!("; {smaller}")).unwrap_or_default();
            format!("{} asks {} ({} bytes{smaller}){manifest}", e.attempt, e.model, e.bytes)
        }
        Event::ModelReplied(e) => {
            let calls: Vec<_> = e.reply.calls.iter().map(|call| short(&call.name, 40)).collect();
            let what = if calls.is_empty() { short(&e.reply.text, 90) } else { format!("calls {}", calls.join(", ")) };
            let (input, output) = (e.usage.tokens() - e.usage.output, e.usage.output);
            let tokens = match e.settled {
                Settled::Reported => format!("{input} tokens in, {output} out"),
                Settled::Estimated => format!("no usage reported; counted as {input} in, {output} out at most"),
            };
            let mended = if e.reply.repaired.is_some() { " (its broken JSON was repaired)" } else { "" };
            format!("{} replied ({tokens}): {what}{mended}", e.attempt)
        }
        Event::ModelFailed(e) => {
            let next = match e.next {
                // What follows at once says itself how it differs.
                AfterFailure::Retry { .. }
                    if e.class == ModelErrorClass::Lost || e.class == ModelErrorClass::ContextExhausted =>
                {
                    String::new()
                }
                AfterFailure::Retry { at } => format!("; next try at {}", clock(at)),
                AfterFailure::Suspend => "; giving up for now".to_owned(),
                AfterFailure::Fail(_) | AfterFailure::ContextExhausted => "; giving up".to_owned(),
            };
            format!("{} failed: {}{next}", e.attempt, short(e.message.trim_end_matches('.'), 160))
        }
        Event::ModelForgone(e) => format!("the next model call is not made: {}", short(&e.reason, 400)),
        Event::GenerationStarted(e) => rebuilt(e),
        Event::SummaryRequested(e) => {
            format!("{} is asked to sum up turns {}–{} ({} bytes)", e.model, e.from, e.to, e.bytes)
        }
        Event::SummaryFinished(e) => summed_up(e),
        Event::JudgeRequested(e) => {
            format!(
                "{} is asked for its opinion of the work, check {} ({} bytes)",
                e.model,
                safe(e.check.as_str()),
                e.bytes
            )
        }
        Event::JudgeFinished(e) => judged(e),
        Event::ResultSpilled(e) => {
            format!("{} is shown shorter: {} of {} bytes", named(e.action), e.shown.as_str().len(), e.total)
        }
        Event::NoteTaken(e) => {
            format!("note {} ({}): {}", note_id(e), e.note.kind.as_str().replace('_', " "), short(&e.note.text, 120))
        }
        Event::ModelRouted(e) => {
            let why = match &e.why {
                RouteWhy::Failed(class) => {
                    format!("{} failed ({})", e.from, longrein::core::route::class_word(*class).replace('_', " "))
                }
                #[expect(clippy::cast_precision_loss, reason = "shown to people")]
                RouteWhy::Spent(micros) => format!("${:.4} is spent", *micros as f64 / 1e6),
                RouteWhy::Phase(_)
                | RouteWhy::Context(_)
                | RouteWhy::Images
                | RouteWhy::CooledDown
                | RouteWhy::Main => e.words.clone(),
            };
            let until = match (&e.wanted, e.until) {
                (Some(wanted), Some(at)) => format!("; {wanted} is tried again at {}", clock(at)),
                (Some(_) | None, _) => String::new(),
            };
            let passed_over = match e.passed_over.as_slice() {
                [] => String::new(),
                [one] => format!("; {one} is passed over, it takes no images"),
                more => {
                    let names: Vec<_> = more.iter().map(|name| name.as_str()).collect();
                    format!("; {} are passed over, they take no images", names.join(", "))
                }
            };
            safe(&format!("model is now {}: {why}{passed_over}{until}", e.model.name))
        }
        Event::ModelSwitched(e) => format!("model is now {}", e.model.name),
        Event::ActionProposed(e) => {
            let args = short(arguments_as_written(run, e), 90);
            let undoes = e.proposer.undoes().map(|other| format!(", to undo {other}")).unwrap_or_default();
            format!("{} {} {args} ({}{undoes})", e.action, short(e.tool.as_str(), 64), e.effect)
        }
        Event::ActionRefused(e) => format!("{} refused: {}", named(e.action), short(&e.error.message, 160)),
        Event::ActionHeld(e) => match &e.wants {
            Wants::Yes => {
                format!("{} waits for a yes: {} ({})", named(e.action), short(&e.reason, 120), short(&e.rule, 60))
            }
            Wants::Typed(text) => {
                let (action, text) = (named(e.action), short(text, 80));
                format!(
                    "{action} waits until a person types {text}: {} ({})",
                    short(&e.reason, 120),
                    short(&e.rule, 60)
                )
            }
            Wants::Words => format!("{} asks: {}", e.action, short(&e.reason, 200)),
        },
        Event::ActionApproved(e) => {
            let always = match e.covers {
                Covers::Once => "",
                Covers::Always => ", and every call exactly like it",
            };
            let reason = e.reason.as_deref().map(|reason| format!(": {}", short(reason, 120))).unwrap_or_default();
            format!("{} approved by {}{always}{reason}", named(e.action), safe(&e.by))
        }
        Event::ActionDenied(e) => match e.no {
            No::Expired => format!("{} was not answered in time: no", named(e.action)),
            No::Person { .. } | No::Unasked => {
                let reason = e.reason.as_deref().map(|reason| format!(": {}", short(reason, 120))).unwrap_or_default();
                format!("{} denied by {}{reason}", named(e.action), safe(&e.by))
            }
        },
        Event::ActionStarted(e) => {
            let again = if e.attempt > 1 { format!(", attempt {}", e.attempt) } else { String::new() };
            // Where all is well there is nothing to say.
            let walls = match e.sandbox.as_deref() {
                None | Some("full") => String::new(),
                Some(tier) => format!(", sandbox {}", safe(tier)),
            };
            let tree = e.tree.as_ref().map(|tree| format!(", tree {}", short_tree(tree))).unwrap_or_default();
            format!("{} started (by {}{again}{walls}{tree})", named(e.action), short(&e.rule, 60))
        }
        Event::ActionRequeued(e) => {
            let why = match e.why {
                Requeue::Read => "it only reads",
                Requeue::NoEffect => "nothing had happened",
                Requeue::Idempotent => "the receiver knows its key",
                Requeue::MayPass => "what it failed with may pass",
            };
            let error = e.error.as_ref().map(|error| format!(" ({})", short(&error.message, 100))).unwrap_or_default();
            format!("{} will be started again: {why}{error}", named(e.action))
        }
        Event::ActionProbed(e) => match &e.answer {
            ProbeAnswer::TookEffect(_) => format!("{} took effect", named(e.action)),
            ProbeAnswer::NoEffect => format!("{} had no effect", named(e.action)),
            ProbeAnswer::NoAnswer(why) => {
                format!("{}: no answer on what became of it: {}", named(e.action), short(why, 100))
            }
        },
        Event::ActionFinished(e) => {
            let how = match &e.how {
                How::Observed => String::new(),
                How::Recovered => match &e.outcome {
                    Outcome::Unknown(_) => " (nothing more can be found out)".to_owned(),
                    Outcome::Done(_) | Outcome::Error(_) | Outcome::NotDone(_) => " (after a loss)".to_owned(),
                },
                How::Reconciled => " (found out by its reconcile command)".to_owned(),
                How::Answered => " (answered by a person)".to_owned(),
                How::Kept => String::new(),
                How::Replayed { run: other, action } => match run {
                    Some(run) if run.id == *other => format!(" (result of {action}, not run again)"),
                    Some(_) | None => format!(" (result of {action} of run {}, not run again)", safe(other.as_str())),
                },
            };
            let what = match &e.outcome {
                Outcome::Done(result) => shown(result),
                Outcome::Error(error) | Outcome::NotDone(error) | Outcome::Unknown(error) => short(&error.message, 160),
            };
            format!("{} {}{how}: {what}", named(e.action), outcome_word(&e.outcome))
        }
        Event::ActionSettled(e) => {
            let by = match &e.by {
                SettledBy::Person { by, .. } => safe(by),
                SettledBy::LateOutcome { .. } => "the worker that had started it".to_owned(),
            };
            let truth = match &e.truth {
                Truth::Done(_) => "done",
                Truth::NotDone => "not done",
            };
            format!("{} settled as {truth} by {by}", named(e.action))
        }
        Event::ActionRolledBack(e) => {
            let by = match &e.why {
                RollbackWhy::Check => String::new(),
                RollbackWhy::Lost => ", for nobody knows how far it came".to_owned(),
                RollbackWhy::Operator { by, .. } => format!(" by {}", safe(by)),
            };
            let paths = match e.paths.as_slice() {
                [] => "nothing had changed".to_owned(),
                paths => short(&paths.join(", "), 160),
            };
            let aside =
                e.aside.as_ref().map(|aside| format!("; what was there is in {}", safe(aside))).unwrap_or_default();
            format!("{} undone{by}, back to tree {}: {paths}{aside}", named(e.action), short_tree(&e.to))
        }
        Event::ActionNotUndone(e) => format!("{} could not be undone: {}", named(e.action), short(&e.reason, 200)),
        Event::ChecksVoided(e) => {
            let tree = e.tree.as_ref().map(|tree| format!(" (it is {})", short_tree(tree))).unwrap_or_default();
            format!("the workspace is not what the checks have seen{tree}: all of them again")
        }
        Event::AnswerAccepted(e) => format!("answer accepted in form: {}", short(&e.accepted.rendered, 120)),
        Event::AnswerRefused(e) => match e.unfinished {
            Some(_) => format!("not the end yet: {}", short(&e.reason, 160)),
            None => format!("answer refused: {}", short(&e.reason, 160)),
        },
        Event::LoopNoticed(e) => {
            let what = short(&longrein::core::repeat::what(e), 160);
            match e.level {
                Level::Told => format!("goes in circles: {what}; the model is told"),
                Level::Taken => format!("goes in circles: {what}; the tools are taken away for a turn"),
                Level::Ended => format!("goes in circles: {what}; the run ends"),
            }
        }
        Event::CheckFinished(e) => {
            let proof = &e.verdict.proof;
            let verdict = match e.verdict.finding {
                Finding::Passed if proof.is_on_changed_checks() => "passed on changed checks",
                Finding::Passed if proof.opinion.is_some() => "passed, in a model's opinion",
                Finding::Passed => "passed",
                Finding::Failed => match proof.opinion {
                    None => "failed",
                    Some(Judge::Spoke) => "failed, in a model's opinion",
                    Some(Judge::Silent) => "has no verdict, which counts as failed",
                },
                Finding::Held => "was not run",
            };
            let tree = match (&proof.tree, &proof.unhashed) {
                (Some(tree), _) => format!(" (tree {})", short_tree(tree)),
                (None, Some(why)) => format!(" (tree not hashed: {})", short(why, 60)),
                (None, None) => String::new(),
            };
            let of = e.action.map(|action| format!(" of {action}")).unwrap_or_default();
            format!("check {}{of} {verdict}{tree}: {}", safe(e.check.as_str()), shown(&e.verdict.evidence))
        }
        Event::ChildStarted(e) => {
            format!("child {} asked for ({}): {}", e.child, short(&e.key, 40), short(&e.goal, 90))
        }
        Event::ChildEnded(e) => {
            let report = &e.report;
            let said = report.answer().unwrap_or(&report.reason);
            format!("child {} ended: {}: {}", report.child, report.end.state(), short(said, 120))
        }
        Event::HookFinished(e) => {
            let about = e.action.map(|action| format!(" before {action}")).unwrap_or_default();
            let about = if e.event == HookEvent::AfterTool { about.replace("before", "after") } else { about };
            let said = match (&e.outcome, &e.words) {
                (HookOutcome::Passed, None) => String::new(),
                (HookOutcome::Passed, Some(words)) => format!(": {}", short(words, 160)),
                (outcome, _) => format!(": {}", short(outcome.reason().unwrap_or_default(), 160)),
            };
            let (event, outcome) = (e.event.as_str(), e.outcome.as_str());
            format!("hook {event}{about} `{}` {outcome} in {} ms{said}", short(&e.command, 60), e.took_ms)
        }
        Event::FactSet(e) => format!("fact {} holds ({})", e.fact, e.evidence),
        Event::FactVoided(e) => format!("fact {} holds no more ({})", e.fact, e.evidence),
        Event::BudgetReached(e) => format!("the budget of {} is used up", e.budget),
        Event::BudgetRaised(_) => "budget raised".to_owned(),
        Event::SourceEndorsed(e) => format!("{} is trusted by {}", short(&e.source, 120), safe(&e.by)),
        Event::SurroundingsChanged(e) => {
            let changed =
                (!e.changed.is_empty()).then(|| format!("changed since the start: {}", safe(&e.changed.join(", "))));
            let mode = e.mode.map(|mode| format!("the operator has it go on in permission mode {mode}"));
            changed.into_iter().chain(mode).collect::<Vec<_>>().join("; ")
        }
        Event::TransitionTaken(e) => {
            let from = e.from.as_ref().map(|from| format!("{} → ", safe(from.as_str()))).unwrap_or_default();
            let reason = match &e.to {
                To::Failed(reason) => format!(": {}", short(reason, 160)),
                To::Phase(_) | To::Done => String::new(),
            };
            format!("phase {from}{}{reason} ({})", safe(&e.to.to_string()), short(&e.why, 120))
        }
        Event::RunParked(e) => format!("waits: {}", waits(&e.waits)),
        Event::RunSuspended(e) => {
            let detail = if e.detail.is_empty() { String::new() } else { format!(": {}", short(&e.detail, 160)) };
            format!("suspended, {}{detail}", longrein::suspension_in_words(e.cause))
        }
        Event::RunEnded(e) => ended(&e.end, &short(&e.reason, 200)),
    }
}

/// Enough of a tree's name to tell it from the others.
pub(crate) fn short_tree(tree: &TreeId) -> &str {
    tree.as_str().get(..12).unwrap_or(tree.as_str())
}

pub(crate) fn end(end: &End) -> String {
    end.state().replace('_', " ")
}

/// How a run ended and why, in one line, without the same word twice.
pub(crate) fn ended(how: &End, reason: &str) -> String {
    let how = end(how);
    if reason.starts_with(&how) { reason.to_owned() } else { format!("{how}: {reason}") }
}

pub(crate) fn waits(waits: &[Wait]) -> String {
    let each = |wait: &Wait| match wait {
        Wait::Approval(action) => format!("approval of {action}"),
        Wait::Answer(action) => format!("an answer to {action}"),
        Wait::Unknown(action) => format!("word on what became of {action}"),
        Wait::Child { child, waits: of_child } => format!("{} (child {child})", self::waits(of_child)),
    };
    waits.iter().map(each).collect::<Vec<_>>().join(", ")
}

/// A life in one word.
pub(crate) fn life(life: &Life) -> &'static str {
    use longrein::core::action::Ended;
    match life {
        Life::Queued => "queued",
        Life::Held(question) => match question.wants {
            Wants::Yes => "waits for a yes",
            Wants::Typed(_) => "waits for a typed yes",
            Wants::Words => "waits for an answer",
        },
        Life::Started { .. } => "running",
        Life::Lost(_) => "lost, being looked into",
        Life::Doubtful(..) => "doubtful, being looked into",
        Life::Unknown(_) => "unknown",
        Life::Checking(_) => "done, being checked",
        Life::Undoing(..) => "being undone",
        Life::Compensating(..) => "waits for what undoes it",
        Life::Ended(Ended::Refused(_)) => "refused",
        Life::Ended(Ended::Done { .. }) => "done",
        Life::Ended(Ended::Error(_)) => "error",
        Life::Ended(Ended::NotDone(_)) => "not done",
    }
}
