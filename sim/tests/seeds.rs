//! Stories from seeds: whatever happens in them, the laws hold. `LONGREIN_SIM_SEEDS=N` plays more of them,
//! `LONGREIN_SIM_SEED=S` plays one and prints every port call.

use std::sync::Arc;

use longrein_sim::story::play;
use longrein_sim::town::Plain;

/// Enough to see most things happen once; more belong to a night.
const SEEDS: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a seed is a number"))
}

#[test]
fn seeds() {
    if let Some(seed) = number("LONGREIN_SIM_SEED") {
        let report = play(seed, Arc::new(Plain));
        eprintln!("{}", report.trace.join("\n"));
        assert!(report.breaches.is_empty(), "{}", report.complaint());
        return;
    }
    let mut complaints = Vec::new();
    for seed in 0..number("LONGREIN_SIM_SEEDS").unwrap_or(SEEDS) {
        let report = play(seed, Arc::new(Plain));
        if !report.breaches.is_empty() {
            complaints.push(report.complaint());
        }
    }
    let first: Vec<_> = complaints.iter().take(20).cloned().collect();
    assert!(complaints.is_empty(), "{} stories break a law:\n{}", complaints.len(), first.join("\n"));
}

#[test]
fn one_seed_is_one_story() {
    for seed in [3, 7, 11, 19, 42, 77, 123, 256] {
        let (one, other) = (play(seed, Arc::new(Plain)), play(seed, Arc::new(Plain)));
        assert_eq!(one.journal, other.journal, "seed {seed}: the journals differ");
        let differs = one.trace.iter().zip(&other.trace).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}: the traces differ");
        assert_eq!(one, other, "seed {seed}");
    }
}
