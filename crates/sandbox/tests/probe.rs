//! What the probe says of this machine, and what it and a confined command cost. Alone in its process.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use longrein_sandbox::{
    Became, Confined, Confinement, How, Keep, Marker, NO_FLOOD, Spec, Stderr, Tier, Way, probe, probe_way, run,
};

#[tokio::test]
async fn every_way_holds_or_says_why_not() {
    let began = Instant::now();
    let probed = probe().await;
    println!("probe: {:?}; {}", began.elapsed(), probed.sentence());
    for attempt in &probed.tried {
        println!("{:?}: {}", attempt.way, attempt.became);
    }
    for way in [Way::Namespaces, Way::UserNamespace, Way::Landlock, Way::SystemCalls] {
        let began = Instant::now();
        let became = probe_way(way).await;
        println!("{way:?} in {:?}: {became}", began.elapsed());
        // a wall may be missing here; one that stands must not leak
        assert!(!matches!(became, Became::Breached { .. }), "{way:?}: {became}");
    }
    assert!(probed.tier() >= Tier::NetworkOnly, "{probed:?}");
}

#[tokio::test]
async fn a_confined_command_costs_little_more() {
    let Some(way) = probe().await.way else {
        println!("skipped: no sandbox here");
        return;
    };
    let plain = median(Confinement::None).await;
    println!("sh -c true, median of 200: {plain:?} without");
    for way in [way, Way::Landlock] {
        if matches!(probe_way(way).await, Became::Held { .. }) {
            let confined = median(Confinement::Confined(Box::new(Confined::new(way)))).await;
            println!("{confined:?} with {way:?}");
            assert!(confined < plain + Duration::from_millis(30), "{way:?}: {plain:?} -> {confined:?}");
        }
    }
}

async fn median(confinement: Confinement) -> Duration {
    let mut took = Vec::new();
    for _ in 0..200 {
        let spec = Spec {
            argv: ["/bin/sh", "-c", "true"].map(str::to_owned).into(),
            cwd: PathBuf::from("/"),
            env: vec![
                ("PATH".to_owned(), std::env::var("PATH").unwrap()),
                ("HOME".to_owned(), std::env::var("HOME").unwrap_or_default()),
            ],
            stdin: Vec::new(),
            stdout: Keep::Whole { max_bytes: 1 << 20 },
            stderr: Stderr::Apart(Keep::Ends { max_bytes: 1 << 16, flood_bytes: NO_FLOOD }),
            timeout: Duration::from_secs(10),
            marker: Marker { run: "cost".to_owned(), action: "a1".to_owned(), fence: 1 },
            confinement: confinement.clone(),
        };
        let began = Instant::now();
        assert_eq!(run(spec).await.unwrap().how, How::Exited(0));
        took.push(began.elapsed());
    }
    took.sort_unstable();
    took[100]
}
