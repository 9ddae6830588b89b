//! What only a file can do wrong: damage, other processes, other programs, power and permission.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Bench, batch, checked, event, key, message, park, take};
use longrein_core::event::Durability;
use longrein_core::ids::{Digest, InputId, RunId, Seq};
use longrein_core::payload::{Payload, place};
use longrein_ports::{AppendError, ClaimError, Create, Journal, JournalError, Posted, RecordedBody, Store};
use longrein_store::encoding::{EncodedBody, RunRecord, Sealed, StoredEvent};
use longrein_store::{SqliteJournal, SystemClock};
use rusqlite::{Connection, params};

fn open(path: &Path) -> Result<SqliteJournal, JournalError> {
    SqliteJournal::open(path, Arc::new(SystemClock::default()))
}

fn refusal(path: &Path) -> String {
    match open(path).err() {
        Some(JournalError::Unusable(text)) => {
            assert!(text.contains(&path.display().to_string()), "names the file: {text}");
            assert!(text.contains("--store sqlite:PATH"), "says the way out: {text}");
            text
        }
        other => panic!("{other:?}"),
    }
}

/// A store with one of each kind of record; the journal is closed.
async fn full_store() -> (Bench, RunId) {
    let bench = Bench::sqlite();
    let run = RunId::new("r1");
    let claim = bench.journal.claim(&run, &bench.worker(1), Some("/w"), Create::IfAbsent).await.unwrap();
    bench.append(&claim, batch(&claim, 0, "b0", [park(1)])).await.unwrap();
    bench.journal.post_input(&run, &message("i1")).await.unwrap();
    bench.journal.post_input(&run, &message("i2")).await.unwrap();
    let mut second = take(&claim, 1, "b1", &key("pay"), 1);
    second.consumed = vec![InputId::new("i1")];
    for (n, length) in [40_000, 400_000].into_iter().enumerate() {
        let (content, blob) = place(Payload::string(&"x".repeat(length)));
        let (digest, payload) = blob.expect("too large to stay inline");
        second.events.push(event(10 + n as u64, crate::common::checked(content)));
        second.blobs.push((digest, payload.as_str().to_owned().into()));
    }
    second.marks = vec![crate::marks::mark(&claim, "/w/a", &["one"], &["x.test"])];
    bench.append(&claim, second).await.unwrap();
    bench.journal.endorse(&crate::marks::endorsement("docs.test")).await.unwrap();
    assert!(bench.is_whole(&run).await);
    (bench, run)
}

#[test]
fn sqlite_itself_is_new_enough() {
    // 3.51.2 and older can reset a write-ahead log that is in use.
    assert!(rusqlite::version_number() > 3_051_002, "{}", rusqlite::version());
}

#[tokio::test]
async fn one_changed_byte_is_found_in_every_column_of_every_table() {
    let (bench, run) = full_store().await;
    let raw = Connection::open(bench.path()).unwrap();
    raw.execute_batch(&format!("VACUUM INTO '{}'", bench.path().with_extension("saved").display())).unwrap();
    let mut columns = raw
        .prepare(
            "SELECT t.name, c.name, c.type FROM pragma_table_list t, pragma_table_info(t.name) c
                  WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY 1, 2",
        )
        .unwrap();
    let columns: Vec<(String, String, String)> =
        columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap().map(Result::unwrap).collect();
    assert!(columns.len() > 35, "{columns:?}");
    for (table, column, kind) in columns {
        // Tables without a rowid have one row here.
        let rows: i64 = raw.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert!(rows > 0, "{table} is empty");
        let changed = match kind.as_str() {
            "INTEGER" => format!("{column} + 1024"),
            "TEXT" => format!("CAST(CAST(substr({column}, 1, length({column}) - 1) AS BLOB) || x'7E' AS TEXT)"),
            // A seal ends as it may: with this very byte once in 256.
            _ => format!(
                "CAST(substr({column}, 1, length({column}) - 1) || iif(substr({column}, -1) = x'07', x'08', x'07') AS BLOB)"
            ),
        };
        for row in 0..rows {
            let hasrowid = !matches!(table.as_str(), "runs" | "claims");
            let which =
                if hasrowid { format!("rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET {row})") } else { "1".into() };
            let done = raw.execute(&format!("UPDATE {table} SET {column} = {changed} WHERE {which}"), []).unwrap();
            assert_eq!(done, 1);
            let report = bench.journal.verify(&run).await.unwrap().expect("the run is not hidden");
            assert!(!report.findings.is_empty(), "{table}.{column} of row {row}");
            restore(&bench, &raw).await;
        }
    }

    // Puts back what the test's first look saved.
    async fn restore(bench: &Bench, raw: &Connection) {
        raw.execute_batch(&format!("ATTACH '{}' AS saved", bench.path().with_extension("saved").display())).unwrap();
        for table in ["runs", "claims", "events", "inbox", "keys", "blobs", "marks", "endorsements"] {
            raw.execute_batch(&format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM saved.{table}"))
                .unwrap();
        }
        raw.execute_batch("DETACH saved").unwrap();
        assert!(bench.is_whole(&RunId::new("r1")).await);
    }
}

#[tokio::test]
async fn a_damaged_blob_file_is_found_and_not_handed_out() {
    let (bench, run) = full_store().await;
    let blobs = bench.path().with_file_name("blobs");
    let folder = std::fs::read_dir(&blobs).unwrap().next().unwrap().unwrap().path();
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let report = bench.journal.verify(&run).await.unwrap().unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert_eq!(report.findings[0].record, format!("blob {name}"));
    let digest = longrein_core::ids::Digest::new(name);
    assert_eq!(bench.journal.blob(&digest).await.unwrap(), None);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(bench.journal.verify(&run).await.unwrap().unwrap().findings.len(), 1);
    assert_eq!(bench.journal.blob(&digest).await.unwrap(), None);
}

#[tokio::test]
async fn a_read_hides_no_record() {
    let (bench, run) = full_store().await;
    let raw = Connection::open(bench.path()).unwrap();
    let damaged = async |after: u64| -> Vec<(u64, bool)> {
        let found = bench.journal.read(&run, Seq(after), 100).await.unwrap();
        found.iter().map(|found| (found.seq.0, matches!(found.body, RecordedBody::Damaged { .. }))).collect()
    };
    raw.execute("UPDATE events SET body = x'E282' WHERE seq = 2", []).unwrap();
    assert_eq!(damaged(0).await, [(1, false), (2, true), (3, false), (4, false)]);
    raw.execute("DELETE FROM events WHERE seq = 2", []).unwrap();
    assert_eq!(damaged(0).await, [(1, false), (2, true), (3, true), (4, false)]);
    assert_eq!(damaged(2).await, [(3, true), (4, false)]);
    raw.execute("DELETE FROM events WHERE seq = 4", []).unwrap();
    assert_eq!(damaged(0).await, [(1, false), (2, true), (3, true), (4, true)]);
    raw.execute("UPDATE runs SET listing = x'00'", []).unwrap();
    let (row, _) = bench.journal.row(&run).await.unwrap().unwrap();
    assert_eq!(row.state, "damaged");
    assert_eq!(bench.journal.runs().await.unwrap().len(), 1, "still listed");
    let claim = bench.claim("r1", 1).await;
    assert!(matches!(&claim, Err(ClaimError::Journal(JournalError::Corrupt { .. }))), "never advanced: {claim:?}");
}

#[tokio::test]
async fn an_unknown_kind_keeps_its_number() {
    let bench = Bench::sqlite();
    let claim = bench.start("r1").await;
    let raw = Connection::open(bench.path()).unwrap();
    // What a newer binary does, with the claim released in between.
    let run = raw
        .query_row("SELECT head, chain, at, batch, arrivals, listing FROM runs", [], |row| {
            Ok(RunRecord {
                run: claim.run.clone(),
                head: row.get(0)?,
                chain: row.get(1)?,
                at: row.get(2)?,
                batch: row.get(3)?,
                arrivals: row.get(4)?,
                listing: row.get(5)?,
                seal: vec![],
            })
        })
        .unwrap();
    let mut known = EncodedBody::of(longrein_core::time::Timestamp(5), &park(5).event).unwrap();
    known.kind_version = 9;
    let future = EncodedBody {
        at: 6,
        kind: "future/9".into(),
        kind_version: 1,
        must_understand: false,
        json: b"\xE2\x82 no JSON".to_vec(),
    };
    let second = StoredEvent::seal(&run.chain, 2, &known);
    let third = StoredEvent::seal(&second.checksum, 3, &future);
    for event in [&second, &third] {
        raw.execute(
            "INSERT INTO events VALUES ('r1', ?1, ?2, CAST(?3 AS TEXT), ?4, ?5, ?6, ?7)",
            params![
                event.seq,
                event.at,
                event.kind,
                event.kind_version,
                event.must_understand,
                event.body,
                event.checksum
            ],
        )
        .unwrap();
    }
    let run = RunRecord { head: 3, at: 6, chain: third.checksum.clone(), ..run }.sealed();
    assert!(run.fault().is_none());
    raw.execute("UPDATE runs SET head = 3, at = 6, chain = ?1, seal = ?2", params![run.chain, run.seal]).unwrap();

    bench.append(&claim, batch(&claim, 3, "b9", [park(7)])).await.unwrap();
    let found = bench.journal.read(&claim.run, Seq(0), 100).await.unwrap();
    assert_eq!(found.iter().map(|found| found.seq.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(
        matches!(&found[1].body, RecordedBody::Unknown { kind, must_understand: true, .. } if kind == "run.parked")
    );
    assert!(matches!(&found[2].body, RecordedBody::Unknown { kind, must_understand: false, .. } if kind == "future/9"));
    assert!(matches!(&found[3].body, RecordedBody::Known(_)));
    assert!(bench.is_whole(&claim.run).await);
}

#[tokio::test]
async fn two_handles_on_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longrein.db");
    let (one, two) = (open(&path).unwrap(), open(&path).unwrap());
    let here = longrein_store::worker_here().unwrap();
    let run = RunId::new("r1");
    let (first, second) =
        tokio::join!(one.claim(&run, &here, None, Create::IfAbsent), two.claim(&run, &here, None, Create::IfAbsent));
    let (claim, holder, other) = match (first, second) {
        (Ok(claim), Err(ClaimError::Held(_))) => (claim, &one, &two),
        (Err(ClaimError::Held(_)), Ok(claim)) => (claim, &two, &one),
        other => panic!("{other:?}"),
    };
    holder.append(&claim, &batch(&claim, 0, "b0", [park(1)])).await.unwrap();
    // An input posted through the other handle wakes who waits on this one.
    let waits = holder.inbox_changed(&run);
    let posts = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(other.post_input(&run, &message("i1")).await.unwrap(), Posted::Accepted);
        Instant::now()
    };
    let ((), posted) = tokio::join!(waits, posts);
    // Half a second is promised; a busy machine may schedule the test itself late.
    assert!(posted.elapsed() < Duration::from_millis(1_500), "{:?}", posted.elapsed());
    assert_eq!(holder.inbox(&run).await.unwrap(), [message("i1")]);
    // A claim through the other handle fences this one.
    holder.release(&claim).await.unwrap();
    let next = other.claim(&run, &here, None, Create::Never).await.unwrap();
    let late = holder.append(&claim, &batch(&claim, 1, "b1", [park(2)])).await;
    assert!(matches!(late, Err(AppendError::Fenced { by }) if by == next.fence), "{late:?}");
    other.append(&next, &batch(&next, 1, "b2", [park(2)])).await.unwrap();
    assert_eq!(holder.read(&run, Seq(0), 10).await.unwrap().len(), 2);
}

/// Looking for them would find them after five seconds, not within one.
#[tokio::test]
async fn posts_of_others_are_heard_and_not_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longrein.db");
    let bell = folder.path().join("longrein.db-bell");
    let (holder, here) = (open(&path).unwrap(), longrein_store::worker_here().unwrap());
    let run = RunId::new("r1");
    let claim = holder.claim(&run, &here, None, Create::IfAbsent).await.unwrap();
    holder.append(&claim, &batch(&claim, 0, "b0", [park(1)])).await.unwrap();
    for (nth, spoil) in [None, Some("gone"), Some("moved"), None].into_iter().enumerate() {
        let id = format!("i{nth}");
        let posts = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            match spoil {
                Some("moved") => std::fs::rename(&bell, folder.path().join("elsewhere")).unwrap(),
                Some(_) => std::fs::remove_file(&bell).unwrap(),
                None => {}
            }
            let other = open(&path).unwrap();
            assert_eq!(other.post_input(&run, &message(&id)).await.unwrap(), Posted::Accepted);
            Instant::now()
        };
        let waits = async {
            // What it is woken for may be nothing.
            while holder.inbox(&run).await.unwrap().len() <= nth {
                holder.inbox_changed(&run).await;
            }
        };
        let ((), posted) = tokio::join!(waits, posts);
        assert!(posted.elapsed() < Duration::from_millis(1_500), "{nth}: {:?}", posted.elapsed());
    }
}

#[tokio::test]
async fn a_lock_held_for_long_fails_nothing() {
    let bench = Bench::sqlite();
    let claim = bench.start("r1").await;
    let raw = Connection::open(bench.path()).unwrap();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let started = Instant::now();
    // And keeps nobody's thread.
    let others = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        started.elapsed()
    });
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(6_500));
        raw.execute_batch("COMMIT").unwrap();
    });
    // Longer than SQLite itself waits.
    bench.append(&claim, batch(&claim, 1, "b1", [park(2)])).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(6));
    assert!(others.await.unwrap() < Duration::from_secs(5));
    release.join().unwrap();
}

/// Whoever asks may stop waiting at any time, on any thread, beside others: what it asked for is done as a whole, in order.
#[test]
fn an_append_nobody_waits_for_is_done_all_the_same() {
    const RUNS: u64 = 6;
    const APPENDS: u64 = 60;
    let bench = Bench::sqlite();
    let appends = async |number: u64| {
        let claim = bench.claim(&format!("r{number}"), 1).await.unwrap();
        for turn in 0..APPENDS {
            let head = 2 * turn;
            let mut sent = batch(&claim, head, &format!("b{turn}"), [park(head + 1), park(head + 2)]);
            sent.durability = if turn % 3 == number % 3 { Durability::Synced } else { Durability::Written };
            let append = bench.journal.append(&claim, &sent);
            if turn % 2 == 0 {
                // Asked once, then dropped; the next one follows it.
                tokio::select! {
                    biased;
                    committed = append => assert_eq!(committed.unwrap().head.0, head + 2),
                    () = std::future::ready(()) => {}
                }
            } else {
                assert_eq!(append.await.unwrap().head.0, head + 2);
            }
        }
        assert_eq!(bench.head(&claim.run).await, 2 * APPENDS);
        assert!(bench.is_whole(&claim.run).await);
    };
    std::thread::scope(|scope| {
        for number in 0..RUNS {
            let appends = &appends;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(appends(number));
            });
        }
    });
}

/// The thread that asks waits for no disk, however long the log gets: a hung one must not keep it from its other duties.
#[test]
fn only_the_writer_syncs() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let child = child("sqlite::as_child", &folder.path().join("longrein.db"), "2000 mixed");
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", "trace=fsync,fdatasync,pwrite64", "-o"]).arg(&trace);
    traced.arg(child.get_program()).args(child.get_args());
    for (name, value) in child.get_envs() {
        traced.env(name, value.unwrap());
    }
    let ran = traced.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !ran.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace is missing here or may not trace");
        return;
    }
    let lines = std::fs::read_to_string(&trace).unwrap();
    // Opening the store writes and syncs on the thread that opens it, before anything else is done.
    let opened = lines.lines().position(|line| line.contains("pwrite64(") && !line.starts_with(asker(&lines)));
    let after: Vec<_> = lines.lines().skip(opened.unwrap()).collect();
    let by_asker = |call: &str| after.iter().filter(|l| l.contains(call) && l.starts_with(asker(&lines))).count();
    assert!(by_asker("pwrite64(") > 2000, "most appends are written by who asks");
    assert_eq!(by_asker("sync("), 0);
    let checkpoints = after.iter().filter(|line| line.contains("sync(")).count();
    assert!(checkpoints > 20 + 2, "the log was copied, too: {checkpoints}");
}

/// The thread that opened the store, by its number.
fn asker(lines: &str) -> &str {
    lines.split(' ').next().unwrap()
}

/// The young ones may belong to an append that is under way.
#[tokio::test]
async fn a_collection_leaves_young_files() {
    let bench = Bench::sqlite();
    let claim = bench.start("r1").await;
    let bytes = bytes::Bytes::from(vec![b'x'; 400_000]);
    let digest = Digest::of(&bytes);
    let mut storing = batch(&claim, 1, "b1", [park(2)]);
    storing.blobs = vec![(digest.clone(), bytes)];
    bench.append(&claim, storing).await.unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    assert_eq!(bench.journal.collect(day).await.unwrap().blobs, 0);
    assert!(bench.journal.blob(&digest).await.unwrap().is_some());
    assert_eq!(bench.journal.collect(Duration::ZERO).await.unwrap().blobs, 1);
}

/// While runs write the same large results again and again, nothing in use is taken.
#[tokio::test]
async fn a_collection_beside_writers_takes_nothing_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longrein.db");
    let (one, two) = (open(&path).unwrap(), open(&path).unwrap());
    let here = longrein_store::worker_here().unwrap();
    let run = RunId::new("r1");
    let claim = one.claim(&run, &here, None, Create::IfAbsent).await.unwrap();
    let writes = async {
        for n in 0..30 {
            let text = Payload::string(&["a", "b"][n % 2].repeat(400_000));
            let (content, blob) = place(text);
            let (digest, payload) = blob.expect("too large to stay inline");
            let head = n as u64;
            let mut storing = batch(&claim, head, &format!("b{n}"), [event(head, checked(content))]);
            storing.blobs = vec![(digest, bytes::Bytes::from(payload.as_str().to_owned()))];
            one.append(&claim, &storing).await.unwrap();
        }
    };
    let collects = async {
        for _ in 0..30 {
            two.collect(Duration::ZERO).await.unwrap();
        }
    };
    // The work of both is done by their threads.
    tokio::join!(writes, collects);
    assert_eq!(one.verify(&run).await.unwrap().unwrap().findings, []);
}

#[tokio::test]
async fn a_collection_beside_damage_takes_nothing() {
    let bench = Bench::sqlite();
    let claim = bench.start("r1").await;
    let bytes = bytes::Bytes::from_static(b"small and unreferenced");
    let digest = Digest::of(&bytes);
    let mut storing = batch(&claim, 1, "b1", [park(2)]);
    storing.blobs = vec![(digest.clone(), bytes)];
    bench.append(&claim, storing).await.unwrap();
    let raw = Connection::open(bench.path()).unwrap();
    raw.execute("UPDATE events SET body = x'00' WHERE seq = 1", []).unwrap();
    let refused = bench.journal.collect(Duration::ZERO).await;
    assert!(matches!(refused, Err(JournalError::Corrupt { .. })), "{refused:?}");
    assert!(bench.journal.blob(&digest).await.unwrap().is_some());
}

#[tokio::test]
async fn files_are_private() {
    let (bench, _) = full_store().await;
    let home = bench.path().parent().unwrap().to_owned();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home), 0o700);
    let mut seen = 0;
    let mut folders = vec![home];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            seen += 1;
            if path.is_dir() {
                assert_eq!(mode(&path), 0o700, "{path:?}");
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{path:?}");
            }
        }
    }
    assert!(seen >= 6, "the file, its log, its shared memory, and a blob with two folders");
}

#[test]
fn a_file_that_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.db");
    std::fs::write(&garbage, b"not a database, and long enough to hold a header of a hundred bytes".repeat(4)).unwrap();
    assert!(refusal(&garbage).contains("no SQLite file"));
    let other = folder.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE songs (name TEXT)").unwrap();
    assert!(refusal(&other).contains("another program's"));
    assert!(refusal(folder.path()).contains("is a folder"));
    let below = open(&garbage.join("longrein.db")).err();
    assert!(matches!(below, Some(JournalError::Unusable(_))), "a file is no folder: {below:?}");
}

#[tokio::test]
async fn a_newer_store_is_refused_by_version() {
    let bench = Bench::sqlite();
    bench.start("r1").await;
    let raw = Connection::open(bench.path()).unwrap();
    raw.execute_batch("PRAGMA user_version = 7").unwrap();
    assert!(refusal(&bench.path()).contains("version 7"));
}

#[tokio::test]
async fn a_truncated_store_is_refused_or_found_damaged() {
    for keep in [20, 100, 1024, 4096, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("longrein.db");
        let here = longrein_store::worker_here().unwrap();
        {
            let journal = open(&path).unwrap();
            let claim = journal.claim(&RunId::new("r1"), &here, None, Create::IfAbsent).await.unwrap();
            journal.append(&claim, &batch(&claim, 0, "b0", [park(1)])).await.unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() > keep);
        std::fs::write(&path, &bytes[..keep]).unwrap();
        refusal(&path);
    }
}

#[tokio::test]
async fn every_byte_of_the_file_may_flip_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longrein.db");
    let here = longrein_store::worker_here().unwrap();
    let run = RunId::new("r1");
    {
        let journal = open(&path).unwrap();
        let claim = journal.claim(&run, &here, None, Create::IfAbsent).await.unwrap();
        journal.append(&claim, &batch(&claim, 0, "b0", [park(1)])).await.unwrap();
    }
    let whole = std::fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(397) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(journal) = open(&path) {
            let _ = journal.runs().await;
            let _ = journal.read(&run, Seq(0), 10).await;
            let _ = journal.verify(&run).await;
            let _ = journal.claim(&run, &here, None, Create::Never).await;
        }
    }
}

#[tokio::test]
async fn a_torn_log_loses_only_its_end() {
    let bench = Bench::sqlite();
    let claim = bench.start("r1").await;
    for head in 1..30 {
        bench.append(&claim, batch(&claim, head, &format!("b{head}"), [park(head + 1)])).await.unwrap();
    }
    let name = |suffix: &str| std::path::PathBuf::from(format!("{}{suffix}", bench.path().display()));
    let log = std::fs::read(name("-wal")).unwrap();
    let base = std::fs::read(bench.path()).unwrap();
    let mut heads = Vec::new();
    for cut in [0, 1, 31, 100, 5_000, log.len() / 2 + 7, log.len() - 3, log.len()] {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("longrein.db");
        std::fs::write(&copy, &base).unwrap();
        std::fs::write(folder.path().join("longrein.db-wal"), &log[..cut]).unwrap();
        let journal = open(&copy).unwrap();
        let found = journal.read(&claim.run, Seq(0), 100).await.unwrap();
        assert!(found.iter().all(|found| matches!(found.body, RecordedBody::Known(_))));
        if let Some(report) = journal.verify(&claim.run).await.unwrap() {
            assert_eq!(report.findings, []);
        }
        heads.push(found.len());
    }
    assert!(heads.is_sorted(), "{heads:?}");
    assert_eq!((heads[0], heads[heads.len() - 1]), (0, 30));
}

/// Runs this test binary again as another process that runs only `test`.
fn child(test: &str, path: &Path, work: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("STORE_TEST_PATH", path)
        .env("STORE_TEST_WORK", work);
    command
}

/// The other process: appends as told and says after each that it is committed.
#[tokio::test]
async fn as_child() {
    let (Ok(path), Ok(work)) = (std::env::var("STORE_TEST_PATH"), std::env::var("STORE_TEST_WORK")) else { return };
    let journal = open(Path::new(&path)).unwrap();
    let here = longrein_store::worker_here().unwrap();
    let claim = journal.claim(&RunId::new("r1"), &here, None, Create::IfAbsent).await.unwrap();
    let (count, durability) = work.split_once(' ').unwrap();
    for head in 0..count.parse().unwrap() {
        let mut sent = batch(&claim, head, &format!("b{head}"), [park(head + 1)]);
        sent.durability = match durability {
            "synced" => Durability::Synced,
            "mixed" if head % 100 == 0 => Durability::Synced,
            _ => Durability::Written,
        };
        journal.append(&claim, &sent).await.unwrap();
        writeln!(std::io::stdout(), "committed {}", head + 1).unwrap();
    }
    std::process::exit(0);
}

#[tokio::test]
async fn what_was_written_survives_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longrein.db");
    let mut process = child("sqlite::as_child", &path, "1000000 written").stdout(Stdio::piped()).spawn().unwrap();
    let mut told = 0;
    for line in BufReader::new(process.stdout.take().unwrap()).lines() {
        if let Some(head) = line.unwrap().split("committed ").nth(1) {
            told = head.parse().unwrap();
        }
        if told == 200 {
            process.kill().unwrap();
        }
    }
    // Not yet reaped: a zombie holds no claim.
    let journal = open(&path).unwrap();
    let run = RunId::new("r1");
    let here = longrein_store::worker_here().unwrap();
    let claim = journal.claim(&run, &here, None, Create::Never).await.unwrap();
    assert_eq!((claim.fence.0, claim.before), (2, None));
    assert_eq!(claim.predecessor.as_ref().map(|worker| worker.pid), Some(process.id()));
    assert!(claim.head.0 >= told, "{} of {told}", claim.head);
    assert_eq!(journal.read(&run, Seq(0), usize::MAX).await.unwrap().len() as u64, claim.head.0);
    assert_eq!(journal.verify(&run).await.unwrap().unwrap().findings, []);
    process.wait().unwrap();
}

#[test]
fn only_synced_appends_sync_and_once_each() {
    let syncs = |work: &str| -> Option<i64> {
        let folder = tempfile::tempdir().unwrap();
        let (path, trace) = (folder.path().join("longrein.db"), folder.path().join("trace"));
        let child = child("sqlite::as_child", &path, work);
        let mut traced = Command::new("strace");
        traced
            .args(["-f", "-e", "trace=fsync,fdatasync", "-o"])
            .arg(&trace)
            .arg(child.get_program())
            .args(child.get_args());
        for (name, value) in child.get_envs() {
            traced.env(name, value.unwrap());
        }
        let ran = traced.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !ran.is_ok_and(|status| status.success()) {
            return None;
        }
        let lines = std::fs::read_to_string(&trace).unwrap();
        Some(lines.lines().filter(|line| line.contains("sync(")).count() as i64)
    };
    // Where processes cannot be traced there is nothing to count.
    let Some(none) = syncs("0 written") else {
        eprintln!("skipped: strace is missing here or may not trace");
        return;
    };
    assert_eq!(syncs("40 written").unwrap() - none, 0);
    assert_eq!(syncs("40 synced").unwrap() - none, 40);
}

#[tokio::test]
async fn urls() {
    let clock = || Arc::new(SystemClock::default());
    let folder = tempfile::tempdir().unwrap();
    longrein_store::open(&format!("sqlite:{}/a/b/c.db", folder.path().display()), clock()).unwrap();
    assert!(folder.path().join("a/b/c.db").exists());
    longrein_store::open("memory:", clock()).unwrap();
    for (url, says) in
        [("postgres://x", "not supported yet"), ("mysql:x", "names no store"), ("sqlite:", "names no store")]
    {
        match longrein_store::open(url, clock()).err() {
            Some(JournalError::Unusable(text)) => assert!(text.contains(says), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Not a check: prints what an append costs. `LONGREIN_NIGHTLY=1 cargo test --release -- --nocapture cost`
#[tokio::test]
async fn cost_of_an_append() {
    if std::env::var_os("LONGREIN_NIGHTLY").is_none() {
        return;
    }
    let bench = Bench::sqlite();
    let claim = bench.start("r1").await;
    let mut head = 1;
    for _ in 0..5 {
        let (wall, before) = (Instant::now(), cpu());
        for _ in 0..2_000 {
            bench.append(&claim, batch(&claim, head, &format!("b{head}"), [park(head + 1)])).await.unwrap();
            head += 1;
        }
        let spent = (cpu() - before).as_micros() / 2_000;
        writeln!(std::io::stdout(), "to {head}: {spent} µs CPU, {:?} each", wall.elapsed() / 2_000).unwrap();
    }

    fn cpu() -> Duration {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let of = |path: std::path::PathBuf| -> u64 {
            let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        Duration::from_nanos(tasks.map(|task| of(task.unwrap().path())).sum())
    }
}

/// Several processes may meet at a store that is not there yet: none takes the others' half-made file for a stranger's.
#[test]
fn a_store_may_be_made_by_many_at_once() {
    for _ in 0..30 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("longrein.db");
        std::thread::scope(|scope| {
            let opening: Vec<_> = (0..6)
                .map(|_| scope.spawn(|| SqliteJournal::open(&path, Arc::new(SystemClock::default())).map(drop)))
                .collect();
            for opened in opening {
                opened.join().unwrap().unwrap();
            }
        });
    }
}
