//! Commands of every bad habit: whatever they do, `run` returns in time and leaves nothing behind.
#![expect(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longrein_sandbox::{
    Confinement, Ended, GRACE, How, INSIDE, Keep, Marker, NO_FLOOD, Reaped, Spec, StartError, Stderr, Strays,
    reap_marked, run,
};

const STDOUT_MAX_BYTES: usize = 4 << 20;

fn marker(name: &str) -> Marker {
    Marker { run: format!("test-{}", std::process::id()), action: name.to_owned(), fence: 3 }
}

fn spec(name: &str, argv: &[&str]) -> Spec {
    Spec {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        cwd: PathBuf::from("/"),
        env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
        stdin: Vec::new(),
        stdout: Keep::Whole { max_bytes: STDOUT_MAX_BYTES },
        stderr: Stderr::Apart(Keep::Ends { max_bytes: 64 << 10, flood_bytes: NO_FLOOD }),
        timeout: Duration::from_secs(20),
        marker: marker(name),
        confinement: Confinement::None,
    }
}

fn shell(name: &str, script: &str) -> Spec {
    spec(name, &["sh", "-c", script])
}

/// Processes that carry this test's mark.
fn alive(name: &str) -> usize {
    let entry = format!("{INSIDE}={}", marker(name));
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("environ")).ok())
        .filter(|environ| environ.split(|byte| *byte == 0).any(|part| part == entry.as_bytes()))
        .count()
}

/// Runs it and asserts that it returned within `limit` and that no process of it is left.
async fn check(spec: Spec, limit: Duration) -> Ended {
    let name = spec.marker.action.clone();
    let began = Instant::now();
    let ended = run(spec).await.unwrap();
    assert!(began.elapsed() < limit, "took {:?}", began.elapsed());
    assert_eq!(alive(&name), 0, "left something behind: {ended:?}");
    ended
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn exit_status_outputs_and_exact_environment() {
    let mut plain = shell("plain", "env | sort; echo oops >&2; pwd; exit 7");
    plain.env.push(("A".to_owned(), "b c".to_owned()));
    plain.env.push((INSIDE.to_owned(), "forged".to_owned()));
    let ended = check(plain, SOON).await;
    assert_eq!(ended.how, How::Exited(7));
    let inside = marker("plain").to_string();
    let mut lines: BTreeSet<&str> = text(&ended.stdout.head).lines().collect();
    assert!(lines.remove(format!("{INSIDE}={inside}").as_str()), "{lines:?}");
    for expected in ["A=b c", "PATH=/usr/local/bin:/usr/bin:/bin", "/"] {
        assert!(lines.remove(expected), "{expected} not in {lines:?}");
    }
    // PWD, and in some shells OLDPWD, SHLVL and _, come from the shell
    assert!(lines.iter().all(|line| ["PWD=", "OLDPWD", "SHLVL=", "_="].iter().any(|own| line.starts_with(own))));
    assert_eq!(text(&ended.stderr.head), "oops\n");
    assert_eq!(ended.strays, Strays::None);
}

#[tokio::test]
async fn a_clean_house() {
    let ended = check(
        shell(
            "clean",
            "ls /proc/self/fd; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ulimit -c; ulimit -Hc; cat /dev/tty",
        ),
        SOON,
    )
    .await;
    let out = text(&ended.stdout.head);
    // ls has 3 open to read the folder
    assert!(out.starts_with("0\n1\n2\n3\n"), "{out}");
    assert!(!out.starts_with("0\n1\n2\n3\n4"), "{out}");
    for signals in ["SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"] {
        assert!(out.contains(signals), "{out}");
    }
    assert!(out.trim_end().ends_with("0\n0"), "{out}");
    assert!(text(&ended.stderr.head).contains("/dev/tty"), "{ended:?}");
    assert_ne!(ended.how, How::Exited(0));
}

#[tokio::test]
async fn stdin_is_empty_unless_given() {
    let ended = check(spec("empty-stdin", &["cat"]), SOON).await;
    assert_eq!((ended.how, ended.stdout.head.len()), (How::Exited(0), 0));
}

#[tokio::test]
async fn reads_all_of_a_large_stdin() {
    let mut large = spec("large-stdin", &["wc", "-c"]);
    large.stdin = vec![b'x'; 10 << 20];
    let ended = check(large, SOON).await;
    assert_eq!(text(&ended.stdout.head).trim(), "10485760");
}

#[tokio::test]
async fn never_reads_a_large_stdin() {
    let mut deaf = shell("deaf", "sleep 0.2; echo done");
    deaf.stdin = vec![b'x'; 10 << 20];
    let ended = check(deaf, SOON).await;
    assert_eq!((ended.how, text(&ended.stdout.head)), (How::Exited(0), "done\n"));
}

#[tokio::test]
async fn closes_stdin_at_once() {
    let mut closed = shell("closed", "exec <&-; sleep 0.1; echo done");
    closed.stdin = vec![b'x'; 10 << 20];
    assert_eq!(text(&check(closed, SOON).await.stdout.head), "done\n");
}

#[tokio::test]
async fn reads_stdin_forever() {
    let mut reader = shell("reader", "cat >/dev/null; sleep 9999");
    reader.stdin = b"{}".to_vec();
    reader.timeout = Duration::from_millis(300);
    assert_eq!(check(reader, SOON).await.how, How::TimedOut);
}

#[tokio::test]
async fn writes_forever() {
    let ended = check(spec("yes", &["yes"]), SOON).await;
    assert_eq!(ended.how, How::Cut);
    assert_eq!(ended.stdout.head.len(), STDOUT_MAX_BYTES);
}

#[tokio::test]
async fn complains_forever() {
    let mut loud = shell("loud", "echo first >&2; yes >&2");
    loud.timeout = Duration::from_millis(500);
    let ended = check(loud, SOON).await;
    assert_eq!(ended.how, How::TimedOut);
    assert!(ended.stderr.head.starts_with(b"first\ny\n"));
    assert!(ended.stderr.head.len() + ended.stderr.tail.len() == 64 << 10);
}

#[tokio::test]
async fn keeps_ends_of_both_outputs_in_order() {
    let mut merged = shell("merged", "echo one; echo two >&2; echo three; seq 100000; echo last >&2");
    merged.stdout = Keep::Ends { max_bytes: 1000, flood_bytes: NO_FLOOD };
    merged.stderr = Stderr::WithStdout;
    let ended = check(merged, SOON).await;
    assert_eq!(ended.how, How::Exited(0));
    assert!(text(&ended.stdout.head).starts_with("one\ntwo\nthree\n1\n2\n"), "{ended:?}");
    assert!(text(&ended.stdout.tail).ends_with("100000\nlast\n"), "{ended:?}");
    assert_eq!((ended.stdout.lines(), ended.stdout.left_out()), (100_004, ended.stdout.bytes - 1000));
}

/// Whether it is over before anybody listens or long after, and wherever a read or a pipe is full.
#[tokio::test]
async fn outputs_of_every_size_are_whole() {
    for bytes in [0_usize, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 300_000] {
        for after in ["", "; sleep 0.05", "; sleep 9999 &"] {
            let script = format!("head -c {bytes} /dev/zero; head -c {bytes} /dev/zero >&2{after}");
            let mut sized = shell("sized", &script);
            sized.stderr = Stderr::Apart(Keep::Whole { max_bytes: STDOUT_MAX_BYTES });
            let ended = check(sized, SOON).await;
            let sizes = (ended.stdout.head.len(), ended.stderr.head.len());
            assert_eq!((ended.how, sizes), (How::Exited(0), (bytes, bytes)), "{script}");
        }
    }
}

#[tokio::test]
async fn a_flood_is_ended() {
    let mut flood = spec("flood", &["yes"]);
    flood.stdout = Keep::Ends { max_bytes: 1000, flood_bytes: 10 << 20 };
    flood.stderr = Stderr::WithStdout;
    let ended = check(flood, SOON).await;
    assert_eq!((ended.how, ended.stdout.head.len() + ended.stdout.tail.len()), (How::Cut, 1000));
}

#[tokio::test]
async fn closes_its_outputs_early() {
    let ended = check(shell("mute", "echo early; exec >&- 2>&-; sleep 0.5; exit 3"), SOON).await;
    assert_eq!((ended.how, text(&ended.stdout.head)), (How::Exited(3), "early\n"));
    assert!(ended.took >= Duration::from_millis(500));
}

#[tokio::test]
async fn background_children_do_not_hold_us() {
    for (name, script) in [
        ("background", "sleep 9999 & echo done"),
        ("quiet", "sleep 9999 >/dev/null 2>&1 & echo done"),
        ("nohup", "nohup sleep 9999 & echo done"),
        ("setsid", "setsid sleep 9999 & echo done"),
        ("setsid-quiet", "setsid sleep 9999 >/dev/null 2>&1 </dev/null & echo done"),
        ("double", "(setsid sh -c 'sleep 9999 & sleep 9998' & ) ; sleep 0.1; echo done"),
        ("orphan", "(sh -c 'setsid sh -c \"sleep 9999 & exit 0\" &' &) ; sleep 0.2; echo done"),
        ("stubborn", "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & sleep 0.1; echo done"),
        ("wiped", "env -i sleep 9999 & echo done"),
    ] {
        let ended = check(shell(name, script), SOON).await;
        assert_eq!((ended.how, text(&ended.stdout.head).lines().last()), (How::Exited(0), Some("done")), "{name}");
        assert!(matches!(ended.strays, Strays::Ended(1..)), "{name}: {:?}", ended.strays);
    }
}

#[tokio::test]
async fn ends_a_tree_that_ignores_sigterm() {
    let mut tree = shell(
        "tree",
        "trap '' TERM; for i in 1 2 3; do sh -c 'trap \"\" TERM; setsid sleep 9999 & sleep 9998; sleep 9997' & done; sleep 9999; sleep 9998",
    );
    tree.timeout = Duration::from_millis(300);
    let ended = check(tree, GRACE + SOON).await;
    assert_eq!(ended.how, How::TimedOut);
    assert!(ended.took >= GRACE);
}

#[tokio::test]
async fn sigterm_comes_first() {
    let mut polite = shell("polite", "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done");
    polite.timeout = Duration::from_millis(300);
    let ended = check(polite, SOON).await;
    assert_eq!((ended.how, text(&ended.stdout.head)), (How::TimedOut, "bye\n"));
    assert!(ended.took < GRACE);
}

#[tokio::test]
async fn stops_itself() {
    let mut stopped = shell("stopped", "trap 'echo bye; exit 0' TERM; kill -STOP $$; sleep 9999");
    stopped.timeout = Duration::from_millis(300);
    let ended = check(stopped, SOON).await;
    assert_eq!((ended.how, text(&ended.stdout.head)), (How::TimedOut, "bye\n"));
    assert!(ended.took < GRACE);
}

#[tokio::test]
async fn processes_are_bounded() {
    let ended = check(shell("bounded", "grep 'Max processes' /proc/self/limits"), SOON).await;
    let soft = text(&ended.stdout.head).split_whitespace().nth(2).unwrap().to_owned();
    assert!(soft.parse::<u64>().unwrap() <= 16 * 1024, "{soft}");
}

#[tokio::test]
async fn a_signal_is_no_timeout() {
    assert_eq!(check(shell("signal", "kill -TERM $$"), SOON).await.how, How::Signalled(15));
}

#[tokio::test]
async fn bytes_come_as_they_are() {
    let ended = check(spec("bytes", &["printf", r"\377\000\033[31mred"]), SOON).await;
    assert_eq!(ended.stdout.head, b"\xff\0\x1b[31mred");
}

#[tokio::test]
async fn what_cannot_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str, mode| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut nowhere = spec("start", &["true"]);
    nowhere.cwd = folder.path().join("missing");
    let huge = "x".repeat(3 << 20);
    type Is = fn(&StartError) -> bool;
    let cases: Vec<(Spec, Is)> = vec![
        (spec("start", &[]), |e| matches!(e, StartError::Empty)),
        (spec("start", &["no-such-program"]), |e| matches!(e, StartError::NotFound { .. })),
        (spec("start", &["./no/such"]), |e| matches!(e, StartError::NotFound { .. })),
        (spec("start", &[&file("plain", "echo", 0o644)]), |e| matches!(e, StartError::NotExecutable { .. })),
        (spec("start", &[&file("bare", "echo hi", 0o755)]), |e| matches!(e, StartError::BadFormat { .. })),
        (spec("start", &[&file("odd", "#!/no/such\n", 0o755)]), |e| matches!(e, StartError::NoInterpreter { .. })),
        (spec("start", &["true", &huge]), |e| matches!(e, StartError::TooLarge)),
        (spec("start", &["true", "a\0b"]), |e| matches!(e, StartError::Nul { .. })),
        (nowhere, |e| matches!(e, StartError::Folder { .. })),
    ];
    for (spec, is) in cases {
        let error = run(spec).await.unwrap_err();
        assert!(is(&error), "{error:?}");
    }
}

#[tokio::test]
async fn relative_programs_count_from_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("here.sh"), "echo $PWD").unwrap();
    let mut relative = spec("relative", &["sh", "here.sh"]);
    relative.cwd = folder.path().to_owned();
    assert_eq!(Path::new(text(&check(relative, SOON).await.stdout.head).trim()), folder.path().canonicalize().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_at_once() {
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            tokio::spawn(async move {
                let mut one = shell(&format!("many-{number}"), "cat; sleep 0.05; setsid sleep 9999 &");
                one.stdin = number.to_string().into_bytes();
                one.stdin.extend(vec![b'.'; 200_000]);
                (number, run(one).await.unwrap())
            })
        })
        .collect();
    for task in tasks {
        let (number, ended) = task.await.unwrap();
        assert_eq!(ended.how, How::Exited(0));
        assert!(ended.stdout.head.starts_with(number.to_string().as_bytes()));
        assert_eq!(alive(&format!("many-{number}")), 0);
    }
}

#[tokio::test]
async fn dropping_the_future_ends_the_tree() {
    let script = "trap '' TERM; setsid sleep 9999 & env -i setsid sleep 9898 & sleep 9997; sleep 9996";
    let wiped = || {
        let commands =
            std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
        commands.filter(|command| command == b"sleep\09898\0").count()
    };
    let running = tokio::spawn(run(shell("dropped", script)));
    while alive("dropped") < 3 || wiped() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(alive("dropped"), 0);
    assert_eq!(wiped(), 0, "who wipes its environment is still a descendant");
}

/// The signals are sent by the drop itself: a daemon that is already an orphan may not wait for a thread of ours.
#[tokio::test]
async fn dropping_ends_daemons_at_once() {
    let script = "(setsid sleep 9999 &) ; sleep 9998";
    let mut running = Box::pin(run(shell("daemon", script)));
    while alive("daemon") < 2 {
        let _ = tokio::time::timeout(Duration::from_millis(20), &mut running).await;
    }
    tokio::time::timeout(Duration::from_millis(100), &mut running).await.unwrap_err();
    drop(running);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(alive("daemon"), 0);
}

#[test]
fn dropping_the_runtime_ends_the_tree() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.spawn(run(shell("runtime", "setsid sleep 9999 & sleep 9999")));
    runtime.block_on(async {
        while alive("runtime") < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    drop(runtime);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(alive("runtime"), 0);
}

/// Not a test: what `a_killed_parent_takes_its_children` starts as a process of its own.
#[test]
fn helper_that_is_killed() {
    if std::env::var_os("HELPER").is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut orphan = shell("orphan", "setsid sh -c 'exec sleep 9999' & exec sleep 9998");
    orphan.marker.run = std::env::var("HELPER").unwrap();
    let _ = runtime.block_on(run(orphan));
}

#[tokio::test]
async fn a_killed_parent_takes_its_children_and_the_next_finds_the_rest() {
    let run_id = marker("").run;
    let mut helper = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_is_killed", "--nocapture"])
        .env("HELPER", &run_id)
        .stdout(std::process::Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    while alive("orphan") < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    helper.kill().unwrap();
    helper.wait().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(alive("orphan"), 1, "the direct child dies with its parent; what left its session does not");
    assert_eq!(reap_marked(&run_id, "orphan", 3).await, Reaped::Gone { ended: 0 }, "its own fence is spared");
    assert_eq!(reap_marked(&run_id, "orpha", 4).await, Reaped::Gone { ended: 0 }, "another action is spared");
    assert_eq!(alive("orphan"), 1);
    assert_eq!(reap_marked(&run_id, "orphan", 4).await, Reaped::Gone { ended: 1 });
    assert_eq!(alive("orphan"), 0);
}
