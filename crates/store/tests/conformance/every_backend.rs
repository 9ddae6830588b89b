//! What every store must do, run against each backend. What only a file can do wrong is in `sqlite`.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Bench, batch, event, every_backend, input, key, message, park, take};
use crate::marks::untrusted;
use longrein_core::event::{Durability, End, Event, RunEnded};
use longrein_core::ids::{ActionId, Digest, InputId, RunId, Seq};
use longrein_core::input::{INBOX_MAX, InputBody, Settle, Truth};
use longrein_core::payload::{Content, Payload};
use longrein_ports::{
    AppendError, ClaimError, Collected, Create, JournalError, KeyChange, KeyState, LEASE, Posted, REMOVED,
    RecordedBody, Unread,
};

fn ended(state: End) -> Event {
    Event::RunEnded(Box::new(RunEnded {
        end: state,
        reason: "over".into(),
        remark: None,
        done: vec![],
        undone: vec![],
        unknown: vec![],
        would: longrein_core::event::Would::default(),
    }))
}

every_backend! {
    async fn events_come_back_in_order_and_by_page(bench: &Bench) {
        let claim = bench.start("r1").await;
        for n in 0..5 {
            bench.append(&claim, batch(&claim, 1 + n, &format!("c{n}"), [park(2 + n)])).await.unwrap();
        }
        let all = bench.journal.read(&claim.run, Seq(0), 100).await.unwrap();
        assert_eq!(all.iter().map(|found| found.seq.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert!(all.iter().all(|found| matches!(found.body, RecordedBody::Known(_))));
        let page = bench.journal.read(&claim.run, Seq(2), 2).await.unwrap();
        assert_eq!(page, all[2..4]);
        assert_eq!(bench.journal.read(&claim.run, Seq(6), 10).await.unwrap(), []);
        assert_eq!(bench.journal.read(&RunId::new("nobody"), Seq(0), 10).await.unwrap(), []);
    }

    async fn a_batch_is_numbered_as_one(bench: &Bench) {
        let claim = bench.start("r1").await;
        let committed = bench.append(&claim, batch(&claim, 1, "b1", [park(2), park(3), park(3)])).await.unwrap();
        assert_eq!(committed.head, Seq(4));
        assert!(bench.is_whole(&claim.run).await);
    }

    async fn the_same_batch_twice_counts_once(bench: &Bench) {
        let claim = bench.start("r1").await;
        let sent = batch(&claim, 1, "b1", [park(2)]);
        assert_eq!(bench.append(&claim, sent.clone()).await.unwrap().head, Seq(2));
        assert_eq!(bench.append(&claim, sent).await.unwrap().head, Seq(2));
        assert_eq!(bench.head(&claim.run).await, 2);
    }

    async fn a_wrong_head_is_a_conflict(bench: &Bench) {
        let claim = bench.start("r1").await;
        for expected in [0, 2] {
            match bench.append(&claim, batch(&claim, expected, "b1", [park(2)])).await {
                Err(AppendError::Conflict { expected: told, found }) => assert_eq!((told.0, found.0), (expected, 1)),
                other => panic!("{other:?}"),
            }
        }
    }

    async fn time_does_not_go_back(bench: &Bench) {
        let claim = bench.start("r1").await;
        bench.append(&claim, batch(&claim, 1, "b1", [park(500)])).await.unwrap();
        let refused = bench.append(&claim, batch(&claim, 2, "b2", [park(499)])).await;
        assert!(matches!(refused, Err(AppendError::Journal(JournalError::Unusable(_)))), "{refused:?}");
        let refused = bench.append(&claim, batch(&claim, 2, "b3", [park(501), park(500)])).await;
        assert!(refused.is_err());
        assert_eq!(bench.head(&claim.run).await, 2);
    }

    async fn a_run_is_listed_from_its_first_event_on(bench: &Bench) {
        let run = RunId::new("r1");
        let missing = bench.journal.claim(&run, &bench.worker(1), None, Create::Never).await;
        assert!(matches!(missing, Err(ClaimError::NoSuchRun(_))), "{missing:?}");
        let claim = bench.claim("r1", 1).await.unwrap();
        assert_eq!(claim.head, Seq(0));
        assert!(bench.journal.row(&run).await.unwrap().is_none());
        assert!(bench.journal.runs().await.unwrap().is_empty());
        let posted = bench.journal.post_input(&run, &message("i1")).await;
        assert!(matches!(posted, Err(ClaimError::NoSuchRun(_))), "{posted:?}");
        bench.append(&claim, batch(&claim, 0, "b0", [park(1)])).await.unwrap();
        let (row, holder) = bench.journal.row(&run).await.unwrap().unwrap();
        assert_eq!((row.run, row.state.as_str()), (run.clone(), "running"));
        assert_eq!(holder.unwrap().worker, bench.worker(1));
        bench.journal.release(&claim).await.unwrap();
        let listed = bench.journal.runs().await.unwrap();
        assert_eq!(listed.len(), 1);
        assert!(listed[0].1.is_none());
    }

    async fn a_live_claim_keeps_others_out(bench: &Bench) {
        let claim = bench.start("r1").await;
        assert_eq!((claim.before, claim.predecessor.clone()), (None, None));
        match bench.claim("r1", 2).await {
            Err(ClaimError::Held(holder)) => {
                assert_eq!(holder.worker, bench.worker(1));
                assert_eq!(holder.left, LEASE);
            }
            other => panic!("{other:?}"),
        }
        // Nor is the same process a second driver.
        assert!(matches!(bench.claim("r1", 1).await, Err(ClaimError::Held(_))));
        bench.journal.release(&claim).await.unwrap();
        let next = bench.claim("r1", 2).await.unwrap();
        assert_eq!((next.fence.0, next.before, next.predecessor), (2, None, None));
    }

    async fn a_dead_holder_is_replaced_at_once(bench: &Bench) {
        bench.start("r1").await;
        bench.kill(1);
        let next = bench.claim("r1", 2).await.unwrap();
        assert_eq!((next.fence.0, next.before, next.predecessor), (2, None, Some(bench.worker(1))));
    }

    async fn an_older_boot_is_dead(bench: &Bench) {
        bench.start("r1").await;
        let mut later = bench.worker(2);
        later.boot = "another boot".into();
        let next = bench.journal.claim(&RunId::new("r1"), &later, None, Create::Never).await.unwrap();
        assert_eq!((next.before, next.predecessor), (None, Some(bench.worker(1))));
    }

    async fn another_host_waits_for_the_lease(bench: &Bench) {
        bench.start("r1").await;
        bench.kill(1);
        let mut elsewhere = bench.worker(2);
        elsewhere.host = "elsewhere".into();
        let run = RunId::new("r1");
        let held = bench.journal.claim(&run, &elsewhere, None, Create::Never).await;
        assert!(matches!(held, Err(ClaimError::Held(_))), "{held:?}");
        bench.clock.pass(LEASE + Duration::from_secs(2));
        let next = bench.journal.claim(&run, &elsewhere, None, Create::Never).await.unwrap();
        assert_eq!(next.before, Some(bench.clock.boot() - Duration::from_secs(2)));
    }

    async fn a_lease_that_ran_out_can_be_renewed_or_lost(bench: &Bench) {
        let claim = bench.start("r1").await;
        bench.clock.pass(LEASE + Duration::from_secs(1));
        let until = bench.journal.renew(&claim).await.unwrap();
        assert_eq!(until, bench.clock.boot() + LEASE);
        assert!(matches!(bench.claim("r1", 2).await, Err(ClaimError::Held(_))));
        bench.clock.pass(LEASE);
        // The fence is the truth, not the clock.
        bench.append(&claim, batch(&claim, 1, "b1", [park(2)])).await.unwrap();
        let next = bench.claim("r1", 2).await.unwrap();
        assert_eq!((next.fence.0, next.head), (2, Seq(2)));
        assert_eq!((next.before, next.predecessor.clone()), (Some(until), Some(bench.worker(1))));
        assert!(matches!(bench.journal.renew(&claim).await, Err(AppendError::Fenced { by }) if by == next.fence));
        let late = bench.append(&claim, batch(&claim, 2, "b2", [park(3)])).await;
        assert!(matches!(late, Err(AppendError::Fenced { by }) if by == next.fence), "{late:?}");
        // Giving up what is lost leaves the other's claim alone.
        bench.journal.release(&claim).await.unwrap();
        bench.append(&next, batch(&next, 2, "b3", [park(3)])).await.unwrap();
    }

    async fn a_released_claim_writes_no_more(bench: &Bench) {
        let claim = bench.start("r1").await;
        bench.journal.release(&claim).await.unwrap();
        assert!(matches!(bench.append(&claim, batch(&claim, 1, "b1", [park(2)])).await, Err(AppendError::Fenced { .. })));
        assert!(bench.journal.renew(&claim).await.is_err());
    }

    async fn a_workspace_has_one_writing_run(bench: &Bench) {
        let claim = |run: &str, root: &'static str, pid| {
            let (run, worker) = (RunId::new(run), bench.worker(pid));
            async move { bench.journal.claim(&run, &worker, Some(root), Create::IfAbsent).await }
        };
        let first = claim("r1", "/w/a", 1).await.unwrap();
        for root in ["/w/a", "/w/a/", "/w/a/sub", "/w", "/"] {
            match claim("r2", root, 2).await {
                Err(ClaimError::WorkspaceHeld { root, holder }) => {
                    assert_eq!((root.as_str(), holder.run.as_str()), ("/w/a", "r1"));
                }
                other => panic!("{root}: {other:?}"),
            }
        }
        claim("r3", "/w/ab", 2).await.unwrap();
        bench.journal.release(&first).await.unwrap();
        claim("r2", "/w/a", 2).await.unwrap();
    }

    async fn a_sleeper_loses_its_fence_with_its_workspace(bench: &Bench) {
        let run = RunId::new("r1");
        let sleeper = bench.journal.claim(&run, &bench.worker(1), Some("/w"), Create::IfAbsent).await.unwrap();
        bench.append(&sleeper, batch(&sleeper, 0, "b0", [park(1)])).await.unwrap();
        bench.clock.pass(LEASE);
        bench.journal.claim(&RunId::new("r2"), &bench.worker(2), Some("/w"), Create::IfAbsent).await.unwrap();
        assert!(matches!(bench.journal.renew(&sleeper).await, Err(AppendError::Fenced { .. })));
        // Whoever continues it still learns who had it and until when.
        let next = bench.claim("r1", 2).await.unwrap();
        assert_eq!((next.fence.0, next.predecessor), (3, Some(bench.worker(1))));
        assert_eq!(next.before, Some(sleeper.until));
    }

    async fn inputs_come_in_order_once(bench: &Bench) {
        let claim = bench.start("r1").await;
        let post = async |id: &str| bench.journal.post_input(&claim.run, &message(id)).await.unwrap();
        assert_eq!(post("z").await, Posted::Accepted);
        assert_eq!(post("a").await, Posted::Accepted);
        assert_eq!(post("z").await, Posted::Duplicate);
        let inbox = bench.journal.inbox(&claim.run).await.unwrap();
        assert_eq!(inbox, [message("z"), message("a")]);
        let mut taking = batch(&claim, 1, "b1", [park(2)]);
        taking.consumed = vec![InputId::new("z")];
        bench.append(&claim, taking.clone()).await.unwrap();
        assert_eq!(bench.journal.inbox(&claim.run).await.unwrap(), [message("a")]);
        assert_eq!(post("z").await, Posted::Duplicate, "a taken input is still known");
        // Nothing is taken twice, nothing that is not there.
        for id in ["z", "nobody"] {
            let mut again = batch(&claim, 2, "b2", [park(2)]);
            again.consumed = vec![InputId::new(id)];
            assert!(bench.append(&claim, again).await.is_err());
        }
        assert_eq!(bench.head(&claim.run).await, 2);
        assert!(bench.is_whole(&claim.run).await);
    }

    async fn an_inbox_is_bounded(bench: &Bench) {
        let claim = bench.start("r1").await;
        for n in 0..INBOX_MAX {
            assert_eq!(bench.journal.post_input(&claim.run, &message(&n.to_string())).await.unwrap(), Posted::Accepted);
        }
        assert_eq!(bench.journal.post_input(&claim.run, &message("more")).await.unwrap(), Posted::Full);
        let mut taking = batch(&claim, 1, "b1", [park(2)]);
        taking.consumed = vec![InputId::new("7")];
        bench.append(&claim, taking).await.unwrap();
        assert_eq!(bench.journal.post_input(&claim.run, &message("more")).await.unwrap(), Posted::Accepted);
    }

    async fn an_end_waits_for_the_inbox(bench: &Bench) {
        let claim = bench.start("r1").await;
        bench.journal.post_input(&claim.run, &message("i1")).await.unwrap();
        let end = |id: &str| batch(&claim, 1, id, [event(2, ended(End::Cancelled))]);
        let refused = bench.append(&claim, end("b1")).await;
        assert!(matches!(refused, Err(AppendError::InputPending)), "{refused:?}");
        assert_eq!(bench.head(&claim.run).await, 1);
        let mut taking = end("b2");
        taking.consumed = vec![InputId::new("i1")];
        bench.append(&claim, taking).await.unwrap();
    }

    async fn a_cancelled_run_takes_settlements_only(bench: &Bench) {
        let claim = bench.start("r1").await;
        let mut end = batch(&claim, 1, "b1", [event(2, ended(End::Cancelled))]);
        end.row.state = "cancelled".into();
        bench.append(&claim, end).await.unwrap();
        let post = async |id: &str, body| bench.journal.post_input(&claim.run, &input(id, body)).await.unwrap();
        assert_eq!(post("i1", InputBody::Message("hello".into())).await, Posted::Closed);
        assert_eq!(post("i2", InputBody::Cancel).await, Posted::Closed);
        let settle = Settle { action: ActionId(1), truth: Truth::NotDone, by: "ann".into() };
        assert_eq!(post("i3", InputBody::Settle(settle)).await, Posted::Accepted);
    }

    async fn a_post_wakes_who_waits(bench: &Bench) {
        let claim = bench.start("r1").await;
        let waited = tokio::time::timeout(Duration::from_millis(50), bench.journal.inbox_changed(&claim.run)).await;
        assert!(waited.is_err(), "nothing was posted");
        let (journal, run) = (Arc::clone(&bench.journal), claim.run.clone());
        let waiter = tokio::spawn(async move { journal.inbox_changed(&run).await });
        tokio::task::yield_now().await;
        bench.journal.post_input(&claim.run, &message("i1")).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), waiter).await.expect("woken").unwrap();
        // A post between two waits is not missed, and one is not told for ever.
        bench.journal.post_input(&claim.run, &message("i2")).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), bench.journal.inbox_changed(&claim.run)).await.expect("at once");
        let waited = tokio::time::timeout(Duration::from_millis(50), bench.journal.inbox_changed(&claim.run)).await;
        assert!(waited.is_err(), "nothing new was posted");
    }

    async fn a_key_is_taken_once(bench: &Bench) {
        let one = bench.start("r1").await;
        let two = bench.start("r2").await;
        let id = key("pay");
        assert_eq!(bench.journal.key(&id).await.unwrap(), None);
        bench.append(&one, take(&one, 1, "b1", &id, 1)).await.unwrap();
        let row = bench.journal.key(&id).await.unwrap().unwrap();
        assert_eq!((row.run.as_str(), row.action, &row.state), ("r1", ActionId(1), &KeyState::Held));
        for refused in [
            bench.append(&two, take(&two, 1, "b1", &id, 1)).await,
            bench.append(&one, take(&one, 2, "b2", &id, 2)).await,
        ] {
            assert!(matches!(&refused, Err(AppendError::KeyTaken(taken)) if *taken == id), "{refused:?}");
        }
        assert_eq!((bench.head(&one.run).await, bench.head(&two.run).await), (2, 1));
        // A re-run of the same action goes on under its key.
        bench.append(&one, take(&one, 2, "b3", &id, 1)).await.unwrap();
        let result = Content::Inline(Payload::string("paid"));
        let mut finish = batch(&one, 3, "b4", [park(4)]);
        finish.keys = vec![KeyChange::Finish { id: id.clone(), result: result.clone(), brings: vec![untrusted("docs.test")] }];
        bench.append(&one, finish).await.unwrap();
        let row = bench.journal.key(&id).await.unwrap().unwrap();
        assert_eq!((row.state, row.brings), (KeyState::Done(result), vec![untrusted("docs.test")]));
        let refused = bench.append(&two, take(&two, 1, "b2", &id, 1)).await;
        assert!(matches!(refused, Err(AppendError::KeyTaken(_))), "{refused:?}");
        assert!(bench.is_whole(&one.run).await);
    }

    async fn a_freed_key_may_be_taken_again(bench: &Bench) {
        let one = bench.start("r1").await;
        let two = bench.start("r2").await;
        let id = key("pay");
        bench.append(&one, take(&one, 1, "b1", &id, 1)).await.unwrap();
        let free = |claim, expected| {
            let mut free = batch(claim, expected, "free", [park(9)]);
            free.keys = vec![KeyChange::Free { id: id.clone() }];
            free
        };
        assert!(bench.append(&two, free(&two, 1)).await.is_err(), "not its own");
        bench.append(&one, free(&one, 2)).await.unwrap();
        bench.append(&two, take(&two, 1, "b2", &id, 3)).await.unwrap();
        let row = bench.journal.key(&id).await.unwrap().unwrap();
        assert_eq!((row.run.as_str(), row.action, row.times_freed, row.state), ("r2", ActionId(3), 1, KeyState::Held));
    }

    async fn all_or_nothing(bench: &Bench) {
        let one = bench.start("r1").await;
        let two = bench.start("r2").await;
        bench.journal.post_input(&two.run, &message("i1")).await.unwrap();
        bench.append(&one, take(&one, 1, "b1", &key("pay"), 1)).await.unwrap();
        let blob = bytes::Bytes::from_static(b"\"content\"");
        let digest = Digest::of(&blob);
        let mut bad = take(&two, 1, "b1", &key("ship"), 1);
        bad.keys.push(KeyChange::Take {
            id: key("pay"),
            run: two.run.clone(),
            action: ActionId(1),
            args: Payload::null(),
        });
        bad.consumed = vec![InputId::new("i1")];
        bad.blobs = vec![(digest.clone(), blob)];
        let refused = bench.append(&two, bad).await;
        assert!(matches!(refused, Err(AppendError::KeyTaken(_))), "{refused:?}");
        assert_eq!(bench.head(&two.run).await, 1);
        assert_eq!(bench.journal.inbox(&two.run).await.unwrap().len(), 1);
        assert_eq!(bench.journal.key(&key("ship")).await.unwrap(), None);
        assert_eq!(bench.journal.blob(&digest).await.unwrap(), None);
        assert!(bench.is_whole(&two.run).await);
    }

    async fn blobs_small_and_large(bench: &Bench) {
        let claim = bench.start("r1").await;
        for (n, length) in [(1_u64, 10), (2, 256 * 1024), (3, 256 * 1024 + 1), (4, 3_000_000)] {
            let bytes = bytes::Bytes::from(vec![n as u8; length]);
            let digest = Digest::of(&bytes);
            assert_eq!(bench.journal.blob(&digest).await.unwrap(), None);
            for again in 0..2 {
                let mut storing = batch(&claim, bench.head(&claim.run).await, &format!("b{n}.{again}"), [park(2)]);
                storing.blobs = vec![(digest.clone(), bytes.clone())];
                bench.append(&claim, storing).await.unwrap();
            }
            assert_eq!(bench.journal.blob(&digest).await.unwrap(), Some(bytes));
        }
        let mut lying = batch(&claim, 9, "lie", [park(2)]);
        lying.blobs = vec![(Digest::of(b"a"), bytes::Bytes::from_static(b"b"))];
        assert!(matches!(bench.append(&claim, lying).await, Err(AppendError::Journal(JournalError::Unusable(_)))));
    }

    async fn a_missing_blob_is_found(bench: &Bench) {
        let claim = bench.start("r1").await;
        let text = Payload::string(&"x".repeat(40_000));
        let (content, blob) = longrein_core::payload::place(text);
        let (digest, payload) = blob.expect("too large to stay inline");
        let check = crate::common::checked(content);
        let mut storing = batch(&claim, 1, "b1", [event(2, check.clone())]);
        storing.blobs = vec![(digest.clone(), bytes::Bytes::from(payload.as_str().to_owned()))];
        bench.append(&claim, storing).await.unwrap();
        assert!(bench.is_whole(&claim.run).await);
        let other = bench.start("r2").await;
        let (content, blob) = longrein_core::payload::place(Payload::string(&"y".repeat(40_000)));
        let lost = blob.expect("too large").0;
        bench.append(&other, batch(&other, 1, "b1", [event(2, crate::common::checked(content))])).await.unwrap();
        let report = bench.journal.verify(&other.run).await.unwrap().unwrap();
        assert_eq!(report.findings.len(), 1);
        assert_eq!(report.findings[0].record, format!("blob {lost}"));
    }

    async fn a_removed_run_leaves_its_id_and_its_keys(bench: &Bench) {
        let claim = bench.start("r1").await;
        let other = bench.start("r2").await;
        bench.append(&claim, take(&claim, 1, "b1", &key("pay"), 1)).await.unwrap();
        bench.journal.post_input(&claim.run, &message("i1")).await.unwrap();
        let purge = async |run: &RunId, unread| bench.journal.purge(from_ref(run), unread).await;
        assert!(matches!(purge(&claim.run, Unread::Goes).await, Err(ClaimError::Held(_))), "not while it is held");
        bench.journal.release(&claim).await.unwrap();
        // All or none, and none while what a person sent waits to be taken.
        bench.journal.release(&other).await.unwrap();
        let both = [other.run.clone(), claim.run.clone()];
        let spared = bench.journal.purge(&both, Unread::Spares).await;
        assert!(matches!(&spared, Err(ClaimError::Unread(run)) if *run == claim.run), "{spared:?}");
        assert_eq!((bench.head(&claim.run).await, bench.head(&other.run).await), (2, 1));
        purge(&claim.run, Unread::Goes).await.unwrap();
        assert_eq!(bench.head(&claim.run).await, 0);
        assert_eq!(bench.journal.inbox(&claim.run).await.unwrap(), []);
        let (row, holder) = bench.journal.row(&claim.run).await.unwrap().unwrap();
        assert_eq!((row.state.as_str(), row.goal.as_str(), holder), (REMOVED, "", None));
        assert_eq!(bench.journal.key(&key("pay")).await.unwrap().unwrap().run, claim.run);
        assert!(bench.is_whole(&claim.run).await, "a tombstone is no damage");
        // Its id is not given out again, and a worker that slept through it does nothing.
        assert!(matches!(bench.claim("r1", 2).await, Err(ClaimError::Removed(_))));
        let asleep = bench.append(&claim, batch(&claim, 2, "b2", [park(3)])).await;
        assert!(matches!(asleep, Err(AppendError::Fenced { .. })), "{asleep:?}");
        assert!(matches!(bench.journal.post_input(&claim.run, &message("i2")).await, Err(ClaimError::Removed(_))));
        assert!(matches!(purge(&claim.run, Unread::Goes).await, Err(ClaimError::Removed(_))));
        assert!(matches!(purge(&RunId::new("nobody"), Unread::Goes).await, Err(ClaimError::NoSuchRun(_))));
        assert_eq!(bench.head(&other.run).await, 1);
        assert!(bench.is_whole(&other.run).await);
    }

    async fn a_collection_takes_what_nothing_refers_to(bench: &Bench) {
        let kept = bench.start("kept").await;
        let gone = bench.start("gone").await;
        let mut digests = Vec::new();
        for (claim, letter, length) in [(&kept, "k", 40_000), (&kept, "K", 400_000), (&gone, "g", 40_000), (&gone, "G", 400_000)] {
            let (content, blob) = longrein_core::payload::place(Payload::string(&letter.repeat(length)));
            let (digest, payload) = blob.expect("too large to stay inline");
            let head = bench.head(&claim.run).await;
            let mut storing = batch(claim, head, letter, [event(head + 1, crate::common::checked(content))]);
            storing.blobs = vec![(digest.clone(), bytes::Bytes::from(payload.as_str().to_owned()))];
            bench.append(claim, storing).await.unwrap();
            digests.push(digest);
        }
        assert_eq!(bench.journal.collect(Duration::ZERO).await.unwrap(), Collected::default(), "all are in use");
        bench.journal.release(&gone).await.unwrap();
        bench.journal.purge(from_ref(&gone.run), Unread::Goes).await.unwrap();
        let freed = bench.journal.collect(Duration::ZERO).await.unwrap();
        assert_eq!(freed.blobs, 2);
        assert!(freed.bytes > 440_000, "{freed:?}");
        let mut there = Vec::new();
        for digest in &digests {
            there.push(bench.journal.blob(digest).await.unwrap().is_some());
        }
        assert_eq!(there, [true, true, false, false]);
        assert!(bench.is_whole(&kept.run).await);
        assert_eq!(bench.journal.collect(Duration::ZERO).await.unwrap(), Collected::default());
    }

    async fn verify_knows_no_run_that_is_not_there(bench: &Bench) {
        assert_eq!(bench.journal.verify(&RunId::new("nobody")).await.unwrap(), None);
    }

    async fn an_empty_batch_is_refused(bench: &Bench) {
        let claim = bench.start("r1").await;
        assert!(bench.append(&claim, batch(&claim, 1, "b1", [])).await.is_err());
    }

    async fn many_runs_at_once(bench: &Bench) {
        let mut tasks = Vec::new();
        for n in 0..20 {
            let claim = bench.start(&format!("r{n}")).await;
            let journal = Arc::clone(&bench.journal);
            tasks.push(tokio::spawn(async move {
                for head in 1..20 {
                    let mut sent = batch(&claim, head, &format!("b{head}"), [park(head + 1)]);
                    sent.durability = if head % 3 == 0 { Durability::Synced } else { Durability::Written };
                    journal.append(&claim, &sent).await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        for n in 0..20 {
            let run = RunId::new(format!("r{n}"));
            assert_eq!(bench.head(&run).await, 20);
        }
        assert!(bench.is_whole(&RunId::new("r7")).await);
    }
}

#[tokio::test]
async fn power_loss_takes_what_was_only_written() {
    let bench = Bench::memory();
    let claim = bench.start("r1").await;
    let mut synced = take(&claim, 1, "b1", &key("pay"), 1);
    synced.durability = Durability::Synced;
    bench.append(&claim, synced).await.unwrap();
    bench.append(&claim, take(&claim, 2, "b2", &key("ship"), 2)).await.unwrap();
    bench.memory.as_ref().expect("this bench is in memory").lose_power();
    assert_eq!(bench.head(&claim.run).await, 2);
    assert!(bench.journal.key(&key("pay")).await.unwrap().is_some());
    assert!(bench.journal.key(&key("ship")).await.unwrap().is_none());
    assert!(bench.is_whole(&claim.run).await);
}
