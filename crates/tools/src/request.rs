//! The one JSON object a tool's program reads on its standard input.

use std::collections::BTreeMap;

use longrein_core::action::Attempt;
use longrein_core::ids::{ActionId, Digest, Fence, RunId};
use longrein_core::payload::Payload;
use longrein_ports::Handed;
use serde::Serialize;

#[derive(Serialize)]
struct Request<'a> {
    args: &'a Payload,
    evidence: &'a BTreeMap<String, Payload>,
    inputs: &'a BTreeMap<String, Payload>,
    principal: &'a Payload,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a Digest>,
    run: &'a RunId,
    action: ActionId,
    attempt: u32,
    fence: Fence,
    /// What the call brought that is undone, or checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Payload>,
    /// The call that is undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    compensates: Option<Compensates<'a>>,
}

#[derive(Serialize)]
struct Compensates<'a> {
    action: ActionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a Digest>,
}

/// As bytes, with a line end, so that line readers see the end of it.
pub(crate) fn encode(attempt: &Attempt, handed: &Handed, principal: &Payload) -> Vec<u8> {
    let request = Request {
        args: &attempt.args,
        evidence: &handed.evidence,
        inputs: &handed.inputs,
        principal,
        idempotency_key: attempt.idempotency_key.as_ref(),
        run: &attempt.run,
        action: attempt.action,
        attempt: attempt.number,
        fence: attempt.fence,
        result: handed.result.as_ref(),
        compensates: attempt
            .undoes
            .as_ref()
            .map(|undone| Compensates { action: undone.action, idempotency_key: undone.idempotency_key.as_ref() }),
    };
    let mut bytes = serde_json::to_vec(&request).expect("payloads are JSON, and all keys are strings");
    bytes.push(b'\n');
    bytes
}
