//! Stories from seeds: whatever happens in them, the laws hold. `LONGREIN_SIM_SEEDS=N` plays more of them,
//! `LONGREIN_SIM_SEED=S` plays one and prints every port call.

use std::collections::BTreeMap;
use std::sync::Arc;

use longrein_sim::story::play;
use longrein_sim::town::Plain;

/// What laws 6 and 7 are about; each is in a few stories at least.
const TOLD_OFTEN: [&str; 5] =
    ["\"generation.started\"", "\"overflow\":", "\"result.spilled\"", "\"note.taken\"", "\"model.forgone\""];

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
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..number("LONGREIN_SIM_SEEDS").unwrap_or(SEEDS) {
        let report = play(seed, Arc::new(Plain));
        if !report.breaches.is_empty() {
            complaints.push(report.complaint());
        }
        for what in TOLD_OFTEN {
            let is_told = report.journal.iter().any(|line| line.contains(what));
            *seen.entry(what).or_default() += u32::from(is_told);
        }
    }
    eprintln!("stories with: {seen:?}");
    let first: Vec<_> = complaints.iter().take(20).cloned().collect();
    assert!(complaints.is_empty(), "{} stories break a law:\n{}", complaints.len(), first.join("\n"));
    let rare: Vec<_> = seen.iter().filter(|(_, times)| **times < 3).collect();
    assert!(rare.is_empty(), "too few stories tell of this to prove anything: {rare:?}");
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
