//! Tainted files and trusted sources: kept with the batch or not at all, for good, and seen by every process.

use longrein_core::ids::{ActionId, Digest, RunId, Seq};
use longrein_core::taint::{Confidentiality, Integrity, Label, Mark, Taint};
use longrein_core::time::Timestamp;
use longrein_ports::{AppendError, CONTENTS_MAX, Claim, Endorsement, FileMark, JournalError, KeyChange, Marks, Unread};
use rusqlite::Connection;

use crate::common::{Bench, batch, every_backend, key, park, take};

pub(crate) fn untrusted(source: &str) -> Mark {
    let label = Label { integrity: Integrity::Untrusted, confidentiality: Confidentiality::Workspace };
    Mark { label, source: source.into() }
}

fn tainted(sources: &[&str]) -> Taint {
    let mut taint = Taint::default();
    sources.iter().for_each(|source| taint.add(&untrusted(source), Seq(3)));
    taint
}

pub(crate) fn mark(claim: &Claim, path: &str, contents: &[&str], sources: &[&str]) -> FileMark {
    FileMark {
        path: path.into(),
        contents: contents.iter().map(|content| Digest::of(content.as_bytes())).collect(),
        root: "/w".into(),
        taint: tainted(sources),
        run: claim.run.clone(),
        action: Some(ActionId(4)),
        at: Timestamp(9),
    }
}

async fn enter(bench: &Bench, claim: &Claim, marks: Vec<FileMark>) {
    let head = bench.head(&claim.run).await;
    let mut batch = batch(claim, head, &format!("m{head}"), [park(head + 1)]);
    batch.marks = marks;
    bench.append(claim, batch).await.unwrap();
}

fn all(bench: &Bench) -> Marks {
    bench.journal.marks(0).unwrap()
}

pub(crate) fn endorsement(source: &str) -> Endorsement {
    Endorsement { source: source.into(), by: "ann".into(), at: Timestamp(7) }
}

every_backend! {
    async fn marks_are_read_on_from_a_number(bench: &Bench) {
        let claim = bench.start("r1").await;
        assert_eq!(all(bench), Marks::default());
        let (a, b) = (mark(&claim, "/w/a", &["one"], &["x.test"]), mark(&claim, "/w/b", &[], &["x.test"]));
        enter(bench, &claim, vec![a.clone(), b.clone()]).await;
        let found = all(bench);
        assert_eq!(found.files, [a, b]);
        assert_eq!(bench.journal.marks(found.next).unwrap(), Marks { files: vec![], next: found.next });
        let c = mark(&claim, "/w/c", &["two"], &["y.test"]);
        enter(bench, &claim, vec![c.clone()]).await;
        assert_eq!(bench.journal.marks(found.next).unwrap().files, [c]);
        assert!(bench.is_whole(&claim.run).await);
    }

    async fn what_was_known_of_a_file_is_not_taken_back(bench: &Bench) {
        let one = bench.start("r1").await;
        let two = bench.start("r2").await;
        enter(bench, &one, vec![mark(&one, "/w/a", &["one"], &["x.test"])]).await;
        enter(bench, &two, vec![mark(&two, "/w/a", &["two"], &["y.test"]), mark(&two, "/w/a", &["one"], &["y.test"])]).await;
        let found = all(bench).files;
        let expected = FileMark { contents: vec![Digest::of(b"two"), Digest::of(b"one")], ..mark(&two, "/w/a", &[], &["x.test", "y.test"]) };
        assert_eq!(found, [expected], "the content written last is the last");
        enter(bench, &two, vec![mark(&two, "/w/a", &[], &["y.test"]), mark(&two, "/w/a", &["three"], &[])]).await;
        assert_eq!(all(bench).files[0].contents, [], "whatever lies there");
        let many: Vec<_> = (0..CONTENTS_MAX + 3).map(|n| mark(&one, "/w/b", &[&n.to_string()], &["x.test"])).collect();
        enter(bench, &one, many).await;
        let contents = all(bench).files.into_iter().find(|mark| mark.path == "/w/b").unwrap().contents;
        assert_eq!((contents.len(), contents.last()), (CONTENTS_MAX, Some(&Digest::of((CONTENTS_MAX + 2).to_string().as_bytes()))));
    }

    async fn a_batch_that_is_refused_marks_nothing(bench: &Bench) {
        let one = bench.start("r1").await;
        let two = bench.start("r2").await;
        bench.append(&one, take(&one, 1, "b1", &key("pay"), 1)).await.unwrap();
        let mut refused = batch(&two, 1, "b1", [park(2)]);
        refused.marks = vec![mark(&two, "/w/a", &["one"], &["x.test"])];
        let mut beside = refused.clone();
        beside.keys = vec![KeyChange::Take { id: key("pay"), run: two.run.clone(), action: ActionId(1), args: longrein_core::payload::Payload::null() }];
        assert!(matches!(bench.append(&two, beside).await, Err(AppendError::KeyTaken(_))));
        let mut late = refused.clone();
        late.expected = Seq(7);
        assert!(matches!(bench.append(&two, late).await, Err(AppendError::Conflict { .. })));
        bench.kill(1);
        bench.claim("r2", 2).await.unwrap();
        assert!(matches!(bench.append(&two, refused).await, Err(AppendError::Fenced { .. })));
        let mut strange = batch(&one, 2, "b2", [park(3)]);
        strange.marks = vec![mark(&two, "/w/a", &["one"], &["x.test"])];
        assert!(bench.append(&one, strange).await.is_err(), "of another run");
        assert_eq!(all(bench), Marks::default());
    }

    async fn a_batch_sent_twice_marks_once(bench: &Bench) {
        let claim = bench.start("r1").await;
        let mut sent = batch(&claim, 1, "b1", [park(2)]);
        sent.marks = vec![mark(&claim, "/w/a", &["one"], &["x.test"])];
        bench.append(&claim, sent.clone()).await.unwrap();
        let once = all(bench);
        bench.append(&claim, sent).await.unwrap();
        assert_eq!(all(bench), once);
    }

    async fn a_file_stays_tainted_when_its_run_is_gone(bench: &Bench) {
        let claim = bench.start("r1").await;
        enter(bench, &claim, vec![mark(&claim, "/w/a", &["one"], &["x.test"])]).await;
        bench.journal.release(&claim).await.unwrap();
        bench.journal.purge(&[RunId::new("r1")], Unread::Goes).await.unwrap();
        bench.journal.collect(std::time::Duration::ZERO).await.unwrap();
        assert_eq!(all(bench).files.len(), 1);
    }

    async fn a_source_is_trusted_until_it_is_forgotten(bench: &Bench) {
        assert_eq!(bench.journal.endorsements().unwrap(), []);
        bench.journal.endorse(&endorsement("docs.test")).await.unwrap();
        bench.journal.endorse(&endorsement("a.test")).await.unwrap();
        let again = Endorsement { by: "bob".into(), ..endorsement("docs.test") };
        bench.journal.endorse(&again).await.unwrap();
        assert_eq!(bench.journal.endorsements().unwrap(), [endorsement("a.test"), again]);
        assert!(bench.journal.forget_endorsement("a.test").await.unwrap());
        assert!(!bench.journal.forget_endorsement("a.test").await.unwrap());
        assert_eq!(bench.journal.endorsements().unwrap().len(), 1);
    }
}

/// What was not synced goes with the power, mark and event together.
#[tokio::test]
async fn a_loss_of_power_takes_marks_with_their_events() {
    let bench = Bench::memory();
    let claim = bench.start("r1").await;
    let mut synced = batch(&claim, 1, "b1", [park(2)]);
    synced.marks = vec![mark(&claim, "/w/a", &["one"], &["x.test"])];
    synced.durability = longrein_ports::Durability::Synced;
    bench.append(&claim, synced).await.unwrap();
    enter(&bench, &claim, vec![mark(&claim, "/w/a", &["two"], &["y.test"]), mark(&claim, "/w/b", &[], &["y.test"])])
        .await;
    bench.memory.as_ref().unwrap().lose_power();
    assert_eq!(all(&bench).files, [mark(&claim, "/w/a", &["one"], &["x.test"])]);
}

/// A damaged mark says nothing of its file: whoever asks must hear of it.
#[tokio::test]
async fn a_damaged_mark_is_an_error_and_a_finding() {
    let bench = Bench::sqlite();
    let claim = bench.start("r1").await;
    enter(&bench, &claim, vec![mark(&claim, "/w/a", &["one"], &["x.test"])]).await;
    let raw = Connection::open(bench.path()).unwrap();
    raw.execute("UPDATE marks SET path = '/w/b'", []).unwrap();
    assert!(matches!(bench.journal.marks(0), Err(JournalError::Corrupt { .. })));
    let findings = bench.journal.verify(&claim.run).await.unwrap().unwrap().findings;
    assert_eq!(findings.iter().map(|found| found.record.as_str()).collect::<Vec<_>>(), ["mark /w/b"]);
    raw.execute("UPDATE marks SET path = '/w/a'", []).unwrap();
    bench.journal.endorse(&endorsement("docs.test")).await.unwrap();
    raw.execute("UPDATE endorsements SET source = 'evil.test'", []).unwrap();
    assert!(bench.journal.endorsements().is_err(), "nobody is trusted on a damaged word");
}

/// A store of before there were marks goes on, with all it held.
#[tokio::test]
async fn a_store_of_version_1_gets_the_tables() {
    let bench = Bench::sqlite();
    let claim = bench.start("r1").await;
    let raw = Connection::open(bench.path()).unwrap();
    raw.execute_batch("DROP TABLE marks; DROP TABLE endorsements; PRAGMA user_version = 1").unwrap();
    drop(raw);
    for _ in 0..2 {
        let opened = longrein_store::open(
            &format!("sqlite:{}", bench.path().display()),
            std::sync::Arc::new(longrein_store::SystemClock::default()),
        );
        let journal = opened.unwrap();
        assert_eq!(journal.marks(0).unwrap(), Marks::default());
        assert_eq!(journal.read(&claim.run, Seq(0), 10).await.unwrap().len(), 1);
        assert_eq!(journal.verify(&claim.run).await.unwrap().unwrap().findings, []);
    }
    let raw = Connection::open(bench.path()).unwrap();
    let version: i64 = raw.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 2);
}
