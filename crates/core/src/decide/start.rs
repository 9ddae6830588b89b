//! The start of an action: everything is looked at once more, and only then it is written that it runs.

use super::*;

/// What has to be there before a start, beside what it is about.
pub(super) struct Before {
    pub(super) heard: Heard,
    pub(super) tree: TreeView,
}

pub(super) fn start(
    run: &Run,
    id: ActionId,
    readiness: Readiness,
    key: KeyView,
    before: Before,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let action = match run.action(id) {
        Some(action) if action.life == Life::Queued => action,
        Some(_) | None => return Err(Refusal::Stale),
    };
    if run.winding.is_some() {
        return Err(Refusal::NotDue);
    }
    let Some(spec) = run.task.tool(&action.tool) else { return Err(Refusal::Stale) };
    // An attempt that may have happened is never "refused": what cannot be repeated stays unknown.
    let refuse = |error: ToolError| {
        let event = if action.in_doubt {
            finished(
                action,
                Outcome::Unknown(unknown(action, &format!("and it was not tried again: {}", error.message))),
                How::Recovered,
                0,
            )
        } else {
            refused(id, error)
        };
        Ok(vec![event])
    };
    // In a shadow run what it depends on may have been left out as well: that is no failure.
    let is_met = |before: ActionId| run.action(before).is_some_and(Action::is_done) || run.would.has(before);
    let failed_dependency = action.after.iter().find(|before| !is_met(**before));
    if let Some(before) = failed_dependency {
        let message = format!("Not run: it depends on {before}, which did not succeed.");
        return refuse(ToolError::new(class::DEPENDENCY, message).hint("Mend that call first."));
    }
    let Before { heard, tree } = before;
    let first = action.attempts == 0;
    // What undoes another call is no new step of the model's.
    let undoes = action.undoes().is_some();
    if first
        && !undoes
        && let Some(error) = missing_capability(run, &action.tool)
    {
        return refuse(error);
    }
    if let Readiness::Ruled { ruling, bearing, effects, .. } = &readiness
        && let Some(shadowed) = shadowed(run, Some(spec), ruling, *bearing, effects)
    {
        return Ok(vec![not_executed(id, shadowed)]);
    }
    // A replayed result counts as a call too (`semantics.md` G2), and so does a question.
    let out_of_calls = first && !undoes && run.limits.tool_calls.left(run.spent.tool_calls) == 0;
    let beyond_budget = || {
        let mut events = refuse(
            ToolError::new(class::BUDGET, "Not run: the run's budget of tool calls is used up.")
                .hint("Give your best answer from what you have."),
        )?;
        if run.closing == Closing::NotYet {
            events.push(Event::BudgetReached(BudgetReached { budget: BudgetKind::ToolCalls }));
        }
        Ok(events)
    };
    let (ruling, question, exact, wants, asks, target, brings, effects, beyond, bearing, sandbox) = match readiness {
        Readiness::Refused(error) => return refuse(error),
        Readiness::Later => return Err(Refusal::NotDue),
        Readiness::Ruled { .. } | Readiness::Question { .. } | Readiness::Note(_) if out_of_calls => {
            return beyond_budget();
        }
        // What the run does itself has no question of its own that a person could answer for a hook.
        Readiness::Note(_) | Readiness::Question { .. } => {
            let (mut events, say) = hooks::of_start(run, action, heard)?;
            events.extend(match (say, readiness) {
                (hooks::Say::Refuse(error), _) => refuse(error)?,
                (hooks::Say::Ask { reason, .. }, _) => refuse(ToolError::new(class::HOOK, reason))?,
                (hooks::Say::Pass, Readiness::Note(note)) => take_note(run, action, note)?,
                (hooks::Say::Pass, Readiness::Question { asks: Asks::Deny, .. }) => refuse(nobody())?,
                (hooks::Say::Pass, Readiness::Question { text, digest, rule, asks: Asks::Hold }) => {
                    vec![Event::ActionHeld(ActionHeld {
                        action: id,
                        digest,
                        rule,
                        reason: text,
                        wants: Wants::Words,
                        exact: None,
                        effects: Vec::new(),
                    })]
                }
                (hooks::Say::Pass, Readiness::Refused(_) | Readiness::Later | Readiness::Ruled { .. }) => {
                    return Err(Refusal::NotDue);
                }
            });
            return Ok(events);
        }
        Readiness::Ruled {
            ruling,
            question,
            exact,
            wants,
            asks,
            target,
            brings,
            effects,
            beyond,
            bearing,
            sandbox,
        } => (ruling, question, exact, wants, asks, target, brings, effects, beyond, bearing, sandbox),
    };
    match key {
        KeyView::Free { .. } => {}
        KeyView::Held { run: holder, action: other } => {
            let message = format!(
                "The same {} was started before ({other} of run {holder}) and its outcome is not known.",
                spec.name
            );
            let hint = "Do not try again; find out what became of it, or ask the operator to settle it.";
            return refuse(ToolError::new(class::UNKNOWN_OUTCOME, message).hint(hint));
        }
        KeyView::Done { run: holder, action: other, result, brings } => {
            let mut events =
                vec![finished(action, Outcome::Done(result), How::Replayed { run: holder, action: other }, 0)];
            if let Event::ActionFinished(finished) = &mut events[0] {
                finished.attempt = 0;
                finished.brings = brings;
            }
            events.extend(set_facts(run, action));
            return Ok(events);
        }
        KeyView::Conflict { run: holder, action: other, fields } => {
            let message = format!(
                "{} was called before with the same key ({other} of run {holder}) but with other values for {}.",
                spec.name,
                fields.join(", ")
            );
            let hint =
                "One key means one intent: use the earlier result, or another key if this is really another one.";
            return refuse(ToolError::new(class::CONFLICT, message).hint(hint));
        }
    }
    if spec.cost_micros > 0 && run.limits.micros.left(run.spent.micros) < spec.cost_micros {
        return refuse(ToolError::new(
            class::BUDGET,
            "Not run: its cost does not fit what is left of the run's money.",
        ));
    }
    let granted = action.grant.as_ref().filter(|grant| grant.digest == question && (!first || now < grant.expires));
    let rule = match ruling {
        Ruling::Allow { rule } => rule,
        Ruling::Deny { rule, reason } => return refuse(denied_by_rule(&rule, &reason)),
        Ruling::Ask { rule, reason } => match granted {
            Some(grant) => format!("approved by {}", grant.by),
            None => match exact.as_ref().and_then(|exact| run.allowed.get(exact)) {
                Some(by) => format!("allowed for the rest of the run by {by}"),
                None => {
                    let held = ActionHeld { action: id, digest: question, rule, reason, wants, exact, effects };
                    return Ok(vec![ask(held, asks)]);
                }
            },
        },
    };
    // A person's or a rule's yes is needed for it all the same: what was allowed then may not be now.
    if first && let Some((other, result)) = run.known_answer(action) {
        let how = How::Replayed { run: run.id.clone(), action: other };
        let mut finished = finished(action, Outcome::Done(result.clone()), how, 0);
        if let Event::ActionFinished(finished) = &mut finished {
            finished.attempt = 0;
            finished.brings = brings;
        }
        let facts =
            spec.provides.iter().map(|fact| Event::FactSet(FactSet { fact: fact.clone(), evidence: other.evidence() }));
        return Ok(std::iter::once(finished).chain(facts).collect());
    }
    let times_freed = match key {
        KeyView::Free { times_freed } => times_freed,
        KeyView::Held { .. } | KeyView::Done { .. } | KeyView::Conflict { .. } => 0,
    };
    // Last of all, so that they see only what would start; what a person said before stays said.
    let (mut events, say) = hooks::of_start(run, action, heard)?;
    match say {
        hooks::Say::Pass => {}
        hooks::Say::Refuse(error) => {
            events.extend(refuse(error)?);
            return Ok(events);
        }
        hooks::Say::Ask { .. } if granted.is_some() => {}
        // An earlier yes to every call like it was said without this hook's reason.
        hooks::Say::Ask { rule, reason } => {
            let ruling = Ruling::Ask { rule: rule.clone(), reason: reason.clone() };
            if let Some(would) = shadowed(run, Some(spec), &ruling, bearing, &effects) {
                events.push(not_executed(id, would));
                return Ok(events);
            }
            let exact = None;
            let held = ActionHeld { action: id, digest: question, rule, reason, wants, exact, effects };
            events.push(ask(held, asks));
            return Ok(events);
        }
    }
    // Last of all: what hooks did is not the action's.
    let tree = match checked::tree_before(run, action, bearing, tree)? {
        Ok(tree) => tree,
        Err(error) => {
            events.extend(refuse(error)?);
            return Ok(events);
        }
    };
    events.extend(void_facts_if(run, writes(action)));
    events.push(Event::ActionStarted(ActionStarted {
        action: id,
        attempt: action.attempts + 1,
        fence: run.fence,
        effect: action.effect,
        rule,
        idempotency_key: match action.effect {
            EffectClass::External => Some(idempotency_key(run, action, times_freed)),
            EffectClass::Read | EffectClass::Workspace => None,
        },
        target,
        brings,
        beyond,
        sandbox,
        tree,
    }));
    Ok(events)
}

/// Keeps a note; what cannot be kept is told like any refused call.
fn take_note(run: &Run, action: &Action, note: Note) -> Result<Vec<Event>, Refusal> {
    if let Err(error) = memory::check_note(run, &note) {
        return Ok(vec![refused(action.id, error)]);
    }
    let kept = match note.kind {
        NoteKind::Close => format!(r#"{{"closed":"{}"}}"#, note.replaces.as_deref().unwrap_or_default()),
        NoteKind::Decision | NoteKind::Finding | NoteKind::Constraint | NoteKind::OpenLoop | NoteKind::Step => {
            format!(r#"{{"id":"{}"}}"#, NoteId(action.id.0))
        }
    };
    let result = Payload::parse(kept).expect("ids have no quotes: an id that is closed was parsed as one");
    let mut finished = finished(action, Outcome::Done(Content::Inline(result)), How::Kept, 0);
    if let Event::ActionFinished(finished) = &mut finished {
        finished.attempt = 0;
    }
    Ok(vec![Event::NoteTaken(NoteTaken { action: action.id, note }), finished])
}

/// What the receiver may recognise a repetition by (`semantics.md` D6). Never depends on the attempt.
fn idempotency_key(run: &Run, action: &Action, times_freed: u32) -> Digest {
    // An attempt that was made has it already.
    if let Some(key) = &action.idempotency_key {
        return key.clone();
    }
    let key_spec = run.task.tool(&action.tool).and_then(|tool| tool.key.as_ref());
    match (&action.key, key_spec) {
        (Some(key), Some(spec)) => {
            let scope = key_scope(run, spec.scope);
            Digest::of_parts([
                b"key".as_slice(),
                scope.as_bytes(),
                action.tool.as_str().as_bytes(),
                key.as_str().as_bytes(),
                &times_freed.to_le_bytes(),
            ])
        }
        (Some(_) | None, Some(_) | None) => {
            Digest::of_parts([b"action".as_slice(), run.id.as_str().as_bytes(), action.id.to_string().as_bytes()])
        }
    }
}

/// The scope of a key in words: the root run's id, or the store.
pub fn key_scope(run: &Run, scope: KeyScope) -> String {
    match scope {
        KeyScope::Run => format!("run:{}", run.root.as_ref().unwrap_or(&run.id)),
        KeyScope::Store => "store".to_owned(),
    }
}
