//! What a run has read, weighed against what a call would do: the escalation table.
//!
//! It only makes stricter. Read [`TABLE`] first: what is not in it stays as it is judged. Reading secrets has no column of
//! its own: the analysis denies it in every context, and nothing lifts that.

use longrein_core::taint::{Confidentiality, Integrity, Label, Taint};
use longrein_core::task::EffectClass;
use longrein_ports::GateCall;
use serde_json::Value;

use crate::files::Places;
use crate::modes::{Containment, Nature};
use crate::named::{is_command_said, is_picked, is_said};
use crate::shell::table::shown;
use crate::verdict::{Strictness, Verdict, own};
use crate::{EFFECTS_MAX, Effect, EffectKind};

/// What a call does that text from outside must not bring about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sink {
    /// Data leaves, or something elsewhere changes.
    Egress,
    /// Something is written that others run or obey later.
    RunLater,
    Removal,
    /// Any other file is written.
    Write,
}

/// What the run has read, all in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    Clean,
    Untrusted,
    Secret,
    UntrustedAndSecret,
}

impl Context {
    pub(crate) fn of(label: Label) -> Self {
        match (label.integrity == Integrity::Untrusted, label.confidentiality == Confidentiality::Secret) {
            (false, false) => Context::Clean,
            (true, false) => Context::Untrusted,
            (false, true) => Context::Secret,
            (true, true) => Context::UntrustedAndSecret,
        }
    }
}

/// The least that a call of this kind deserves in this context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) context: Context,
    pub(crate) sink: Sink,
    pub(crate) least: Strictness,
}

const fn row(context: Context, sink: Sink, least: Strictness) -> Row {
    Row { context, sink, least }
}

pub(crate) const TABLE: &[Row] = &[
    row(Context::Untrusted, Sink::Egress, Strictness::Ask),
    row(Context::Untrusted, Sink::RunLater, Strictness::Ask),
    row(Context::Untrusted, Sink::Removal, Strictness::Ask),
    row(Context::Secret, Sink::Egress, Strictness::Ask),
    row(Context::Secret, Sink::RunLater, Strictness::Ask),
    row(Context::UntrustedAndSecret, Sink::Egress, Strictness::DenyUnlessTyped),
    row(Context::UntrustedAndSecret, Sink::RunLater, Strictness::Deny),
    row(Context::UntrustedAndSecret, Sink::Removal, Strictness::Ask),
    row(Context::UntrustedAndSecret, Sink::Write, Strictness::Ask),
];

/// One thing a call does, and to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) sink: Sink,
    pub(crate) what: String,
    /// A person has named the target in this run: it is their choice and not that of what the run has read.
    pub(crate) named: bool,
}

/// What a fetch tells the host beyond its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Carries {
    /// A person has typed the address, or there is nothing behind the host.
    Nothing,
    /// Plain names that nobody typed.
    Path,
    /// What could be data: a query, a long or encoded name.
    Data,
}

/// What this call does, as far as the table is concerned.
pub(crate) fn flows(
    nature: Nature<'_>,
    call: &GateCall<'_>,
    effects: &[Effect],
    carries: Carries,
    places: &Places<'_>,
    containment: impl FnOnce() -> Containment,
) -> Vec<Flow> {
    let mut flows = Vec::new();
    let mut add = |sink, what: &str, named| flows.push(Flow { sink, what: what.to_owned(), named });
    let context = Context::of(call.taint.label());
    match nature {
        Nature::OfTheRun | Nature::ReadsFiles | Nature::WritesFiles | Nature::Shell => {}
        Nature::Fetch => {
            let secret = matches!(context, Context::Secret | Context::UntrustedAndSecret);
            if carries == Carries::Data || (carries == Carries::Path && secret) {
                let url = call.args.read::<Value>().ok();
                let url = url.as_ref().and_then(|args| args.get("url")).and_then(Value::as_str).unwrap_or("an address");
                add(Sink::Egress, url, false);
            }
        }
        Nature::Mcp => add(Sink::Egress, call.tool.name.as_str(), is_all_said(call)),
        Nature::Declared(tool) => {
            let sends = tool.effect == EffectClass::External || !tool.declared.network.is_empty();
            if sends {
                add(Sink::Egress, tool.name.as_str(), is_all_said(call));
            } else if tool.effect == EffectClass::Workspace {
                add(Sink::Write, tool.name.as_str(), false);
            }
        }
    }
    let is_shell = matches!(nature, Nature::Shell);
    // a command of which nothing is known sends what it likes, unless it has no network
    let unknown_sends = is_shell
        && effects.iter().any(|effect| effect.kind == EffectKind::Unknown || effects.len() >= EFFECTS_MAX)
        && !containment().holds_network();
    if is_shell && effects.len() >= EFFECTS_MAX {
        add(Sink::Egress, "more than can be looked at", false);
    }
    for Effect { kind, what } in effects {
        match kind {
            EffectKind::Write | EffectKind::Delete if places.is_harmless(what) => {}
            EffectKind::Write if places.is_obeyed(what) => add(Sink::RunLater, what, false),
            EffectKind::Write => add(Sink::Write, what, false),
            EffectKind::Delete => {
                add(Sink::Removal, what, false);
                if places.is_obeyed(what) {
                    add(Sink::RunLater, what, false);
                }
            }
            EffectKind::Network if is_shell => {
                add(
                    Sink::Egress,
                    what,
                    is_said(call.said, what) && what.contains('.') || is_command_said(call.said, what),
                );
            }
            EffectKind::Unknown if unknown_sends => {
                add(Sink::Egress, what, is_command_said(call.said, what));
            }
            EffectKind::Read | EffectKind::Run | EffectKind::Network | EffectKind::Unknown => {}
        }
    }
    flows
}

/// Whether people have typed everything that a call would send, each text and number among its arguments, and picked out
/// what it is about: one of them is a name and not just a word.
fn is_all_said(call: &GateCall<'_>) -> bool {
    fn said(words: &[&str], value: &Value, picked: &mut bool) -> bool {
        match value {
            Value::Null | Value::Bool(_) => true,
            Value::Number(number) => is_said(words, &number.to_string()),
            Value::String(text) => {
                *picked |= is_picked(words, text);
                is_said(words, text)
            }
            Value::Array(values) => values.iter().all(|value| said(words, value, picked)),
            Value::Object(values) => values.values().all(|value| said(words, value, picked)),
        }
    }
    let Ok(args) = call.args.read::<Value>() else { return false };
    let mut picked = false;
    said(call.said, &args, &mut picked) && picked
}

/// The verdict, as what the run has read leaves it. Never milder than it was.
pub(crate) fn escalate(table: &[Row], verdict: Verdict, flows: &[Flow], taint: &Taint) -> Verdict {
    let context = Context::of(taint.label());
    let mut worst: Option<(Strictness, &Flow)> = None;
    for flow in flows {
        let row = table.iter().find(|row| row.context == context && row.sink == flow.sink);
        let Some(row) = row else { continue };
        // whom a person named, they meant; what secrets may go there they did not say
        let least = match (flow.named, context, row.least) {
            (true, Context::Untrusted, _) => continue,
            (true, Context::Clean | Context::Secret | Context::UntrustedAndSecret, Strictness::DenyUnlessTyped) => {
                Strictness::Ask
            }
            (true | false, _, least) => least,
        };
        if worst.as_ref().is_none_or(|(strictness, _)| least > *strictness) {
            worst = Some((least, flow));
        }
    }
    let Some((least, flow)) = worst else { return verdict };
    let says = reason(context, flow, taint);
    if verdict.strictness < least {
        return Verdict { doubts: verdict.doubts, ..Verdict::new(least, own::TAINT, says) };
    }
    if verdict.strictness == Strictness::Deny || context == Context::Clean {
        return verdict;
    }
    Verdict { reason: format!("{}; besides, {says}", verdict.reason), ..verdict }
}

/// What a person types to have it sent all the same: where it goes, if that can be read and written.
pub(crate) fn to_type(flows: &[Flow]) -> String {
    let to = flows.iter().find(|flow| flow.sink == Sink::Egress && !flow.named).map(|flow| flow.what.as_str());
    let to = to.unwrap_or_default();
    let place = to.split_once("://").map_or(to, |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let plain =
        !place.is_empty() && place.len() <= TYPED_MAX && place.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if plain { place.trim().to_owned() } else { "send it out".to_owned() }
}

fn reason(context: Context, flow: &Flow, taint: &Taint) -> String {
    let what = shown(&flow.what);
    let does = match flow.sink {
        Sink::Egress => format!("this would send data out: {what}"),
        Sink::RunLater => format!("this would write {what}, which others run or obey"),
        Sink::Removal => format!("this would remove {what}"),
        Sink::Write => format!("this would write {what}"),
    };
    let has = match context {
        Context::Clean => return does,
        Context::Untrusted => "the run has read what anybody may have written",
        Context::Secret => "the run has read secrets",
        Context::UntrustedAndSecret => "the run has read secrets and what anybody may have written",
    };
    let mut sources: Vec<String> = taint
        .sources
        .iter()
        .filter(|(_, brought)| brought.label.is_tainted())
        .take(SOURCES_SHOWN)
        .map(|(source, brought)| format!("{source} at #{}", brought.since.0))
        .collect();
    if taint.sources.len() > SOURCES_SHOWN || taint.rest.is_tainted() {
        sources.push("more".to_owned());
    }
    let from = if sources.is_empty() { String::new() } else { format!(" ({})", sources.join(", ")) };
    let way_out = match context {
        Context::UntrustedAndSecret if flow.sink == Sink::Egress => {
            "; a person at a terminal can confirm it by typing where it goes, or endorse the source"
        }
        Context::UntrustedAndSecret if flow.sink == Sink::RunLater => {
            "; a person can do it themselves, or endorse the source"
        }
        Context::Clean | Context::Untrusted | Context::Secret | Context::UntrustedAndSecret => "",
    };
    format!("{has}{from}, and {does}{way_out}")
}

const SOURCES_SHOWN: usize = 3;
/// Longer words nobody types with care.
const TYPED_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use longrein_core::ids::Seq;
    use longrein_core::taint::Mark;

    use super::*;

    fn taint(context: Context) -> Taint {
        let (integrity, confidentiality) = match context {
            Context::Clean => (Integrity::Workspace, Confidentiality::Workspace),
            Context::Untrusted => (Integrity::Untrusted, Confidentiality::Public),
            Context::Secret => (Integrity::Workspace, Confidentiality::Secret),
            Context::UntrustedAndSecret => (Integrity::Untrusted, Confidentiality::Secret),
        };
        let mut taint = Taint::default();
        taint.add(&Mark { label: Label { integrity, confidentiality }, source: "x.example".to_owned() }, Seq(7));
        taint
    }

    /// What the design says, written down a second time: context by sink, for a call that nobody would have asked about.
    fn faults(table: &[Row]) -> Vec<String> {
        use Strictness::{Allow, Ask, Deny, DenyUnlessTyped};
        let sinks = [Sink::Egress, Sink::RunLater, Sink::Removal, Sink::Write];
        let mut faults = Vec::new();
        for (context, expected) in [
            (Context::Clean, [Allow, Allow, Allow, Allow]),
            (Context::Untrusted, [Ask, Ask, Ask, Allow]),
            (Context::Secret, [Ask, Ask, Allow, Allow]),
            (Context::UntrustedAndSecret, [DenyUnlessTyped, Deny, Ask, Ask]),
        ] {
            for (sink, expected) in sinks.into_iter().zip(expected) {
                let flow = Flow { sink, what: "it".to_owned(), named: false };
                let found = escalate(table, Verdict::allow("a rule"), &[flow], &taint(context)).strictness;
                if found != expected {
                    faults.push(format!("{context:?} {sink:?}: {found:?}, not {expected:?}"));
                }
            }
        }
        faults
    }

    #[test]
    fn law_8_the_table_is_what_the_design_says_and_each_row_counts() {
        assert_eq!(faults(TABLE), Vec::<String>::new());
        for at in 0..TABLE.len() {
            let mut without = TABLE.to_vec();
            let row = without.remove(at);
            assert!(!faults(&without).is_empty(), "nothing notices that {row:?} is missing");
            let mut milder = TABLE.to_vec();
            milder[at].least = Strictness::Allow;
            assert!(!faults(&milder).is_empty(), "nothing notices that {row:?} allows");
        }
    }

    #[test]
    fn law_8_it_only_makes_stricter_and_says_why() {
        use Strictness::{Allow, Ask, Deny, DenyUnlessSpelt, DenyUnlessTyped, Unless, UnlessSpelt};
        let strictnesses = [Allow, Unless, UnlessSpelt, Ask, DenyUnlessTyped, DenyUnlessSpelt, Deny];
        for context in [Context::Clean, Context::Untrusted, Context::Secret, Context::UntrustedAndSecret] {
            for sink in [Sink::Egress, Sink::RunLater, Sink::Removal, Sink::Write] {
                for named in [false, true] {
                    for base in strictnesses {
                        let flow = Flow { sink, what: "it".to_owned(), named };
                        let before = Verdict::new(base, "r", "because");
                        let after = escalate(TABLE, before, &[flow], &taint(context));
                        assert!(after.strictness >= base, "{context:?} {sink:?} {base:?}");
                    }
                }
            }
        }
        let flow = Flow { sink: Sink::Egress, what: "https://e.example/?q=1".to_owned(), named: false };
        let after =
            escalate(TABLE, Verdict::allow("web_fetch"), std::slice::from_ref(&flow), &taint(Context::Untrusted));
        assert_eq!(
            after.reason,
            "the run has read what anybody may have written (x.example at #7), and this would send data out: \
             \"https://e.example/?q=1\""
        );
        let named = Flow { named: true, ..flow };
        let one =
            |context| escalate(TABLE, Verdict::allow("r"), std::slice::from_ref(&named), &taint(context)).strictness;
        assert_eq!(one(Context::Untrusted), Strictness::Allow, "a person named it");
        assert_eq!(one(Context::Secret), Strictness::Ask, "but not which secrets go there");
        assert_eq!(one(Context::UntrustedAndSecret), Strictness::Ask);
        // what is denied for another reason, or does more than send, nobody lifts by typing
        let sends = Flow { named: false, ..named };
        let plants = Flow { sink: Sink::RunLater, ..sends.clone() };
        let both = |base, flows: &[Flow]| {
            escalate(TABLE, Verdict::new(base, "r", "because"), flows, &taint(Context::UntrustedAndSecret)).strictness
        };
        assert_eq!(both(Strictness::Allow, std::slice::from_ref(&sends)), Strictness::DenyUnlessTyped);
        assert_eq!(both(Strictness::Allow, &[sends.clone(), plants]), Strictness::Deny);
        for denied in [Strictness::DenyUnlessSpelt, Strictness::Deny] {
            assert_eq!(both(denied, std::slice::from_ref(&sends)), denied);
        }
    }

    #[test]
    fn what_is_typed_is_where_it_goes() {
        for (what, typed) in [
            ("https://e.example/?q=secret", "e.example"),
            ("e.example", "e.example"),
            ("git push origin main", "git push origin main"),
            ("send_mail", "send_mail"),
            ("https://me@e.example:8443/x", "me@e.example:8443"),
            ("two\nlines", "send it out"),
            ("\u{435}.example", "send it out"),
        ] {
            let flow = Flow { sink: Sink::Egress, what: what.to_owned(), named: false };
            assert_eq!(to_type(&[flow]), typed);
        }
        let long = Flow { sink: Sink::Egress, what: "x".repeat(200), named: false };
        assert_eq!(to_type(&[long]), "send it out");
    }
}
