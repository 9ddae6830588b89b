//! How long the gate takes for a ruling, on the calls that attackers make.

use std::time::{Duration, Instant};

use longrein::core::task::{Builtin, PolicyRules};
use longrein::policycheck::PolicyCheck;
use serde_json::json;

use crate::MODES;
use crate::goals::GOALS;
use crate::world::World;

const ROUNDS: usize = 10;

/// A sentence with the middle and the slowest hundredth.
pub(crate) fn latency() -> String {
    let world = World::new();
    let workspace = world.work().display().to_string();
    let environment = world.environment().into_iter().collect();
    let check = PolicyCheck::new(PolicyRules::default(), Vec::new(), workspace, environment).unwrap();
    let taint = json!({ "integrity": "untrusted", "confidentiality": "public", "sources": ["x.example"] });
    let builtin = |tool: &str| Builtin::ALL.iter().any(|builtin| builtin.as_str() == tool);
    let moves = GOALS.iter().flat_map(|goal| (goal.moves)(&world)).filter(|own| builtin(own.tool));
    let lines = moves.flat_map(|own| {
        MODES.map(|mode| {
            json!({ "id": 1, "tool": own.tool, "args": own.args, "mode": mode.to_string(), "context": { "taint": taint } })
                .to_string()
        })
    });
    let lines: Vec<String> = lines.collect();
    let mut times: Vec<Duration> = Vec::new();
    for line in (0..ROUNDS).flat_map(|_| &lines) {
        let begun = Instant::now();
        let ruled = check.line(line.as_bytes());
        times.push(begun.elapsed());
        assert!(ruled.is_ok(), "{line}");
    }
    times.sort_unstable();
    let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100];
    format!("A ruling, of {}, with this build: p50 {:?}, p99 {:?}.", times.len(), at(50), at(99))
}
