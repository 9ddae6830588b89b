//! The calls of a reply, or of the program, become actions: refused, held, or left to start.

use super::*;

pub(super) fn propose(
    run: &Run,
    calls: &[crate::outcome::RawCall],
    proposals: Vec<Proposal>,
    proposer: &Proposer,
) -> Vec<Event> {
    // Every call is proposed before any is ruled on: a turn closes when all its calls are told.
    let mut events = Vec::new();
    let mut rulings = Vec::new();
    let mut taken = BTreeSet::new();
    let mut by_tool: BTreeMap<ToolName, Vec<ActionId>> = BTreeMap::new();
    // What each call of the reply waits for, as far as they are seen: never in a circle.
    let mut waiting: BTreeMap<ActionId, BTreeSet<ActionId>> = BTreeMap::new();
    for (index, proposal) in proposals.iter().enumerate() {
        let id = ActionId(run.next_action().0 + u32::try_from(index).unwrap_or(u32::MAX));
        by_tool.entry(proposal.tool.clone()).or_default().push(id);
    }
    for (index, (raw, proposal)) in calls.iter().zip(proposals).enumerate() {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let action = ActionId(run.next_action().0 + index);
        let call = run.unique_call_id(&raw.id, action, &taken);
        taken.insert(call.clone());
        let spec = run.task.tool(&proposal.tool);
        let cited = proposal.builds_on.iter().map(|position| ActionId(run.next_action().0 + position));
        let after: BTreeSet<_> = spec
            .into_iter()
            .flat_map(|spec| &spec.depends_on)
            .flat_map(|tool| by_tool.get(tool).cloned().unwrap_or_default())
            .filter(|other| *other != action)
            .chain(cited)
            .collect();
        let circle = after.iter().copied().find(|before| waits_for(&waiting, *before, action));
        let after = if circle.is_some() { BTreeSet::new() } else { after };
        waiting.insert(action, after.clone());
        let builds_on_others = !after.is_empty();
        let unread = proposal.args == Payload::null();
        events.push(Event::ActionProposed(ActionProposed {
            action,
            index,
            tool: proposal.tool.clone(),
            call,
            effect: spec.map_or(EffectClass::Read, |spec| spec.effect),
            args: proposal.args,
            sent: unread.then(|| sent(&raw.arguments)).flatten(),
            digest: proposal.digest,
            key: proposal.key,
            path: proposal.path,
            after: after.into_iter().collect(),
            proposer: proposer.clone(),
        }));
        let refused = |error: ToolError| refused(action, error);
        if let Some(before) = circle {
            let message = format!("Not run: it builds on {before}, which itself waits for this call.");
            rulings
                .push(refused(ToolError::new(class::DEPENDENCY, message).hint("Make the two calls in two replies.")));
            continue;
        }
        match proposal.readiness {
            Readiness::Refused(error) => rulings.push(refused(error)),
            Readiness::Later => {}
            // It is asked when it would start.
            Readiness::Question { .. } => {}
            // It is kept when it would start, in call order.
            Readiness::Note(_) => {}
            Readiness::Ruled { .. } if builds_on_others => {}
            Readiness::Ruled {
                ruling,
                question,
                exact,
                wants,
                asks,
                target: _,
                brings: _,
                effects,
                beyond: _,
                bearing,
                sandbox: _,
            } => {
                if let Some(error) = spec.and_then(|spec| missing_capability(run, &spec.name)) {
                    rulings.push(refused(error));
                } else if let Some(shadowed) = shadowed(run, spec, &ruling, bearing, &effects) {
                    rulings.push(not_executed(action, shadowed));
                } else {
                    match ruling {
                        Ruling::Allow { .. } => {}
                        Ruling::Ask { .. } if exact.as_ref().is_some_and(|exact| run.allowed.contains_key(exact)) => {}
                        Ruling::Ask { rule, reason } => {
                            let held = ActionHeld { action, digest: question, rule, reason, wants, exact, effects };
                            rulings.push(ask(held, asks));
                        }
                        Ruling::Deny { rule, reason } => rulings.push(refused(denied_by_rule(&rule, &reason))),
                    }
                }
            }
        }
    }
    events.extend(rulings);
    events
}

/// Arguments that could not be read, as they were written.
fn sent(arguments: &str) -> Option<Payload> {
    let sent = Payload::parse_compact(arguments).unwrap_or_else(|_| Payload::string(arguments));
    (sent != Payload::null()).then_some(sent)
}

/// Whether `one` waits for `other`, directly or through others.
fn waits_for(waiting: &BTreeMap<ActionId, BTreeSet<ActionId>>, one: ActionId, other: ActionId) -> bool {
    let mut seen = BTreeSet::new();
    let mut ahead = vec![one];
    while let Some(id) = ahead.pop() {
        if id == other {
            return true;
        }
        if seen.insert(id) {
            ahead.extend(waiting.get(&id).into_iter().flatten());
        }
    }
    false
}
