//! What a command costs us. Alone in its process, so that nothing else is counted.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::path::PathBuf;
use std::time::Duration;

use longrein_sandbox::{Confined, Confinement, How, Keep, Marker, NO_FLOOD, Spec, Stderr, all_gone, probe, run};

fn nothing() -> Spec {
    Spec {
        argv: vec!["/bin/true".to_owned()],
        cwd: PathBuf::from("/"),
        env: Vec::new(),
        stdin: b"{}".to_vec(),
        stdout: Keep::Whole { max_bytes: 1 << 20 },
        stderr: Stderr::Apart(Keep::Ends { max_bytes: 1 << 16, flood_bytes: NO_FLOOD }),
        timeout: Duration::from_secs(10),
        marker: Marker { run: "cost".to_owned(), action: "a1".to_owned(), fence: 1 },
        confinement: Confinement::None,
    }
}

/// Own processor time, and resident pages, and open descriptors.
fn spent() -> (Duration, usize, usize) {
    let cpu: u64 = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum();
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    (Duration::from_nanos(cpu), pages, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Of a workspace with the folders that views are about, as a tool has it.
async fn confined_ones_cost_little_more() {
    let Some(way) = probe().await.way else {
        println!("skipped: no sandbox here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for path in ["home/.cargo/bin", "work/.git/hooks", "scratch"] {
        std::fs::create_dir_all(root.join(path)).unwrap();
    }
    let mut confined = Confined::new(way);
    confined.writes = vec![root.join("work")];
    confined.read_only = vec![root.join("work/.git/hooks"), root.join("work/.git/config")];
    confined.hidden = vec![root.join("work/.env"), root.join("work/.envrc")];
    confined.scratch = Some(root.join("scratch"));
    let mut spec = nothing();
    spec.confinement = Confinement::Confined(Box::new(confined));
    spec.env = vec![
        ("HOME".to_owned(), root.join("home").display().to_string()),
        ("PATH".to_owned(), format!("{}:/usr/bin:/bin", root.join("home/.cargo/bin").display())),
    ];
    for _ in 0..20 {
        run(spec.clone()).await.unwrap();
        assert!(all_gone().await);
    }
    let (cpu, pages, fds) = spent();
    for _ in 0..200 {
        assert_eq!(run(spec.clone()).await.unwrap().how, How::Exited(0));
    }
    assert!(all_gone().await);
    let (cpu_after, pages_after, fds_after) = spent();
    let each = (cpu_after - cpu) / 200;
    println!("confined by {way:?}: {each:?}; pages {pages} -> {pages_after}; descriptors {fds} -> {fds_after}");
    assert!(each < Duration::from_millis(3), "{each:?}");
    assert!(pages_after < pages + 256, "{pages} -> {pages_after}");
    // networks are kept, and what goes with them: each is seven descriptors, and there are never more than eight
    assert!(fds_after <= fds + 56, "{fds} -> {fds_after}");
}

/// Children of ours, zombies too.
fn children() -> String {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .collect()
}

#[tokio::test]
async fn two_hundred_runs_cost_little_and_leave_nothing() {
    for _ in 0..20 {
        run(nothing()).await.unwrap();
    }
    let (cpu, pages, fds) = spent();
    for _ in 0..200 {
        assert_eq!(run(nothing()).await.unwrap().how, How::Exited(0));
    }
    let (cpu_after, pages_after, fds_after) = spent();
    let each = (cpu_after - cpu) / 200;
    println!(
        "own processor time per command: {each:?}; pages {pages} -> {pages_after}; descriptors {fds} -> {fds_after}"
    );
    // the aim is well under a millisecond; a loaded machine of slow tests gets some room
    assert!(each < Duration::from_millis(3), "{each:?}");
    assert!(pages_after < pages + 256, "{pages} -> {pages_after}");
    assert!(fds_after <= fds, "{fds} -> {fds_after}");

    confined_ones_cost_little_more().await;
    let fds = spent().2;

    for script in [
        "sleep 9999 &",
        "(true &) ; sleep 0.1",
        "setsid sleep 9999 & sleep 0.1",
        "(sh -c 'setsid sleep 9999 &' &) ; sleep 0.1",
        "kill -9 $$",
        "env -i setsid sleep 9999 & sleep 0.1",
        "(env -i setsid sh -c 'sleep 9999 & sleep 9998' &) ; sleep 0.1",
    ] {
        let mut background = nothing();
        background.argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()];
        background.env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        run(background).await.unwrap();
        assert_eq!(children(), "", "{script} left a zombie");
    }
    let mut missing = nothing();
    missing.argv = vec!["/no/such".to_owned()];
    run(missing).await.unwrap_err();
    assert_eq!(children(), "", "a failed start left a zombie");

    let dropped = tokio::time::timeout(Duration::from_millis(50), {
        let mut long = nothing();
        long.argv = vec!["/bin/sleep".to_owned(), "9999".to_owned()];
        run(long)
    });
    assert!(dropped.await.is_err());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(children(), "", "a dropped command left a zombie");
    assert!(spent().2 <= fds, "descriptors are left");
}
