//! Snapshots and small values: what may be lost, and must never be wrong.

use std::slice::from_ref;

use bytes::Bytes;
use longrein_core::ids::{RunId, Seq};
use longrein_ports::{Claim, JournalError, Snapshot, Unread, VALUE_MAX_BYTES};

use crate::common::{Bench, batch, every_backend, park};

async fn run_of(bench: &Bench, name: &str, events: u64) -> Claim {
    let claim = bench.start(name).await;
    for head in 1..events {
        bench.append(&claim, batch(&claim, head, &format!("b{head}"), [park(head + 1)])).await.unwrap();
    }
    claim
}

fn snapshot(seq: u64, body: &str) -> Snapshot {
    Snapshot { seq: Seq(seq), catalogue: "events 1".into(), body: Bytes::from(body.to_owned()) }
}

fn numbers(snapshots: &[Snapshot]) -> Vec<u64> {
    snapshots.iter().map(|snapshot| snapshot.seq.0).collect()
}

every_backend! {
    async fn the_newest_two_snapshots_are_kept(bench: &Bench) {
        let claim = run_of(bench, "r1", 9).await;
        assert_eq!(bench.journal.snapshots(&claim.run).await.unwrap(), []);
        for seq in [3, 5, 8] {
            bench.journal.keep_snapshot(&claim.run, &snapshot(seq, &format!("as of {seq}"))).await.unwrap();
        }
        let kept = bench.journal.snapshots(&claim.run).await.unwrap();
        assert_eq!(kept, [snapshot(8, "as of 8"), snapshot(5, "as of 5")]);
        // An older one does not push out a newer; the same number again replaces.
        bench.journal.keep_snapshot(&claim.run, &snapshot(4, "late")).await.unwrap();
        bench.journal.keep_snapshot(&claim.run, &snapshot(8, "again")).await.unwrap();
        let kept = bench.journal.snapshots(&claim.run).await.unwrap();
        assert_eq!(kept, [snapshot(8, "again"), snapshot(5, "as of 5")]);
        assert!(bench.is_whole(&claim.run).await);
    }

    async fn a_snapshot_of_nothing_is_refused(bench: &Bench) {
        let claim = run_of(bench, "r1", 3).await;
        for (run, seq) in [("r1", 4), ("r1", 0), ("nobody", 1), ("nobody", 0)] {
            let refused = bench.journal.keep_snapshot(&RunId::new(run), &snapshot(seq, "x")).await;
            assert!(matches!(refused, Err(JournalError::Unusable(_))), "{run} {seq}: {refused:?}");
        }
        assert_eq!(bench.journal.snapshots(&claim.run).await.unwrap(), []);
        assert_eq!(bench.journal.snapshots(&RunId::new("nobody")).await.unwrap(), []);
    }

    async fn every_run_has_its_own_snapshots(bench: &Bench) {
        let one = run_of(bench, "run", 3).await;
        let two = run_of(bench, "RUN", 3).await;
        bench.journal.keep_snapshot(&one.run, &snapshot(2, "one")).await.unwrap();
        bench.journal.keep_snapshot(&two.run, &snapshot(3, "two")).await.unwrap();
        assert_eq!(bench.journal.snapshots(&one.run).await.unwrap(), [snapshot(2, "one")]);
        assert_eq!(bench.journal.snapshots(&two.run).await.unwrap(), [snapshot(3, "two")]);
    }

    async fn a_large_body_and_an_empty_one(bench: &Bench) {
        let claim = run_of(bench, "r1", 3).await;
        let large = snapshot(2, &"é".repeat(2_000_000));
        bench.journal.keep_snapshot(&claim.run, &large).await.unwrap();
        bench.journal.keep_snapshot(&claim.run, &snapshot(3, "")).await.unwrap();
        assert_eq!(bench.journal.snapshots(&claim.run).await.unwrap(), [snapshot(3, ""), large]);
    }

    async fn a_removed_run_leaves_no_snapshot(bench: &Bench) {
        let claim = run_of(bench, "r1", 3).await;
        bench.journal.keep_snapshot(&claim.run, &snapshot(2, "x")).await.unwrap();
        bench.journal.release(&claim).await.unwrap();
        bench.journal.purge(from_ref(&claim.run), Unread::Goes).await.unwrap();
        assert_eq!(bench.journal.snapshots(&claim.run).await.unwrap(), []);
        assert!(bench.is_whole(&claim.run).await);
    }

    async fn a_value_comes_back_as_it_was_kept(bench: &Bench) {
        assert_eq!(bench.journal.recollect("a model").await.unwrap(), None);
        let long = "k/../".repeat(10_000);
        for (key, value) in [("a model", "1"), ("", "empty key"), ("../../etc", "2"), ("A MODEL", "3"), (&long, ""), ("\0", "nul")] {
            bench.journal.remember(key, Bytes::from(value.to_owned())).await.unwrap();
        }
        bench.journal.remember("a model", Bytes::from_static(b"newer")).await.unwrap();
        for (key, value) in [("a model", "newer"), ("", "empty key"), ("../../etc", "2"), ("A MODEL", "3"), (&long, ""), ("\0", "nul")] {
            assert_eq!(bench.journal.recollect(key).await.unwrap().as_deref(), Some(value.as_bytes()), "{key:?}");
        }
    }

    async fn a_value_is_small(bench: &Bench) {
        bench.journal.remember("k", Bytes::from(vec![1; VALUE_MAX_BYTES])).await.unwrap();
        let refused = bench.journal.remember("k", Bytes::from(vec![1; VALUE_MAX_BYTES + 1])).await;
        assert!(matches!(refused, Err(JournalError::Unusable(_))), "{refused:?}");
        assert_eq!(bench.journal.recollect("k").await.unwrap().map(|value| value.len()), Some(VALUE_MAX_BYTES));
    }
}

#[tokio::test]
async fn a_snapshot_of_a_history_that_was_lost_is_left_out() {
    let bench = Bench::memory();
    let claim = bench.start("r1").await;
    let mut synced = batch(&claim, 1, "b1", [park(2)]);
    synced.durability = longrein_core::event::Durability::Synced;
    bench.append(&claim, synced).await.unwrap();
    bench.append(&claim, batch(&claim, 2, "b2", [park(3)])).await.unwrap();
    bench.journal.keep_snapshot(&claim.run, &snapshot(2, "kept")).await.unwrap();
    bench.journal.keep_snapshot(&claim.run, &snapshot(3, "of what is lost")).await.unwrap();
    bench.memory.as_ref().expect("this bench is in memory").lose_power();
    assert_eq!(numbers(&bench.journal.snapshots(&claim.run).await.unwrap()), [2]);
    // Another event under the same number makes it no better.
    bench.append(&claim, batch(&claim, 2, "b2'", [park(77)])).await.unwrap();
    assert_eq!(numbers(&bench.journal.snapshots(&claim.run).await.unwrap()), [2]);
    bench.journal.keep_snapshot(&claim.run, &snapshot(3, "new")).await.unwrap();
    assert_eq!(bench.journal.snapshots(&claim.run).await.unwrap(), [snapshot(3, "new"), snapshot(2, "kept")]);
    assert!(bench.is_whole(&claim.run).await);
}

#[tokio::test]
async fn a_damaged_snapshot_is_left_out_and_told() {
    let bench = Bench::sqlite();
    let claim = run_of(&bench, "r1", 4).await;
    for seq in [2, 3] {
        bench.journal.keep_snapshot(&claim.run, &snapshot(seq, &format!("as of {seq}"))).await.unwrap();
    }
    let file = bench.cache_of(&claim.run).join("snapshot-3");
    let whole = std::fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        assert_eq!(numbers(&bench.journal.snapshots(&claim.run).await.unwrap()), [2], "byte {at}");
    }
    for length in 0..whole.len() {
        std::fs::write(&file, &whole[..length]).unwrap();
        assert_eq!(numbers(&bench.journal.snapshots(&claim.run).await.unwrap()), [2], "{length} bytes");
    }
    let report = bench.journal.verify(&claim.run).await.unwrap().unwrap();
    assert_eq!(report.findings.iter().map(|finding| finding.record.as_str()).collect::<Vec<_>>(), ["snapshot 3"]);
    // The next one takes its place.
    bench.journal.keep_snapshot(&claim.run, &snapshot(4, "as of 4")).await.unwrap();
    assert_eq!(numbers(&bench.journal.snapshots(&claim.run).await.unwrap()), [4, 2]);
    assert!(bench.is_whole(&claim.run).await);
}

#[tokio::test]
async fn a_damaged_value_is_none() {
    let bench = Bench::sqlite();
    bench.journal.remember("k", Bytes::from_static(b"value")).await.unwrap();
    let folder = bench.path().with_file_name("longrein.db-cache").join("values");
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(bench.journal.recollect("k").await.unwrap(), None);
    std::fs::write(&file, b"").unwrap();
    assert_eq!(bench.journal.recollect("k").await.unwrap(), None);
}
