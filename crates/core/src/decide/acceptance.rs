//! Verdicts of acceptance checks: they count for one workspace, the one that is there (`semantics.md` G3, G4).

use super::*;
use crate::check::{Finding, Proof};
use crate::judge;

/// Times the workspace may move under the checks of one round: after that nothing can be proven about it.
pub const VOIDED_MAX: u32 = 5;

/// The tool's name that the question about changed checks stands under.
pub const ACCEPTS: &str = "accept_changed_checks";

pub(super) fn verdict(
    run: &Run,
    check: CheckName,
    round: u32,
    mut verdict: Verdict,
    brings: Vec<Mark>,
) -> Result<Vec<Event>, Refusal> {
    let (verdicts, voided) = match &run.stage {
        Stage::Verifying { round: present, verdicts, voided, .. }
            if *present == round && run.hooks.stop.is_none() && verdicts.get(&check).is_some_and(Option::is_none) =>
        {
            (verdicts, *voided)
        }
        Stage::Verifying { .. } | Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => {
            return Err(Refusal::Stale);
        }
    };
    let tree = verdict.proof.tree.clone();
    let saw_another = verdicts.values().flatten().any(|other| other.proof.tree != tree);
    let mut events = Vec::new();
    if saw_another && voided < VOIDED_MAX {
        events.push(Event::ChecksVoided(ChecksVoided { round, tree }));
    } else if saw_another {
        verdict = restless(voided, verdict.proof);
    }
    let unasked = if events.is_empty() { unasked(run, verdicts, &check, &verdict) } else { Vec::new() };
    events.push(Event::CheckFinished(CheckFinished { check, round, action: None, verdict, brings, phase: None }));
    events.extend(unasked.into_iter().map(|(check, verdict)| {
        let (brings, phase) = (Vec::new(), None);
        Event::CheckFinished(CheckFinished { check, round, action: None, verdict, brings, phase })
    }));
    Ok(events)
}

/// The models that are not asked any more, because something better than an opinion has said no by now.
fn unasked(
    run: &Run,
    verdicts: &BTreeMap<CheckName, Option<Verdict>>,
    check: &CheckName,
    verdict: &Verdict,
) -> Vec<(CheckName, Verdict)> {
    let mut open = verdicts.iter().filter(|(name, verdict)| *name != check && verdict.is_none());
    let earlier = verdicts.values().flatten().any(|verdict| verdict.finding == Finding::Failed);
    if !(earlier || verdict.finding == Finding::Failed) {
        return Vec::new();
    }
    let judges: Option<Vec<_>> = open.try_fold(Vec::new(), |mut judges, (name, _)| {
        judges.push(run.check_spec(name).filter(|spec| judge::spec(spec).is_some())?);
        Some(judges)
    });
    let (tree, unhashed) = (&verdict.proof.tree, &verdict.proof.unhashed);
    let not_asked = |spec: &crate::task::CheckSpec| {
        let why = "Not asked for an opinion: another check has failed.".to_owned();
        (spec.name.clone(), judge::verdict(spec, Err(why), tree.clone(), unhashed.clone()))
    };
    judges.unwrap_or_default().into_iter().map(not_asked).collect()
}

/// Nothing can be said of what does not hold still.
fn restless(voided: u32, proof: Proof) -> Verdict {
    let text = format!("The workspace changed {voided} times while it was checked: nothing can be said of it.");
    let evidence = Content::Inline(Payload::string(&text));
    Verdict { finding: Finding::Failed, evidence, exit_status: None, took_ms: 0, proof }
}

pub(super) fn void(run: &Run, round: u32, tree: Option<TreeId>) -> Result<Vec<Event>, Refusal> {
    match &run.stage {
        Stage::Verifying { round: present, voided, .. } if *present == round && *voided < VOIDED_MAX => {
            Ok(vec![Event::ChecksVoided(ChecksVoided { round, tree })])
        }
        Stage::Verifying { round: present, verdicts, voided, .. } if *present == round => {
            let Some(check) = verdicts.keys().next().cloned() else { return Err(Refusal::Stale) };
            let verdict = restless(*voided, Proof { tree, ..Proof::default() });
            let (brings, phase) = (Vec::new(), None);
            Ok(vec![Event::CheckFinished(CheckFinished { check, round, action: None, verdict, brings, phase })])
        }
        Stage::Verifying { .. } | Stage::Ready(_) | Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => {
            Err(Refusal::Stale)
        }
    }
}

/// Asks a person whether verdicts on changed checks count; where nobody can be asked, they do not.
pub(super) fn question(run: &Run, asks: Asks) -> Result<Vec<Event>, Refusal> {
    let Some((changed, digest)) = owed::unasked_checks(run) else { return Err(Refusal::NotDue) };
    let args = Payload::of(&changed).unwrap_or_else(|_| Payload::null());
    let action = run.next_action();
    let names: Vec<_> = changed.names().collect();
    let shown: Vec<_> = names.iter().take(8).copied().collect();
    let more = match names.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let reason = format!(
        "what the work is checked by is not what it was when the run started: {}{more}. A yes lets the verdict count, as unverified",
        shown.join(", ")
    );
    let proposed = ActionProposed {
        action,
        index: 0,
        tool: ToolName::new(ACCEPTS),
        call: String::new(),
        effect: EffectClass::Read,
        digest: args.digest(),
        args,
        sent: None,
        key: None,
        path: None,
        after: Vec::new(),
        proposer: Proposer::Acceptance,
    };
    let held = ActionHeld {
        action,
        digest,
        rule: "changed checks".to_owned(),
        reason,
        wants: Wants::Yes,
        exact: None,
        effects: Vec::new(),
    };
    Ok(vec![Event::ActionProposed(proposed), ask(held, asks)])
}
