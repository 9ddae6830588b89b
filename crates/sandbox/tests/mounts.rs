//! Mounts that we make and take away while views are kept. Alone in its process: every mount has all of them laid out anew.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use longrein_sandbox::{
    Became, Confined, Confinement, How, Keep, Marker, NO_FLOOD, Spec, Stderr, Way, all_gone, probe_way, run,
};

fn spec(work: &Path, script: &str) -> Spec {
    let mut confined = Confined::new(Way::Namespaces);
    confined.writes = vec![work.to_owned()];
    Spec {
        argv: ["sh", "-c", script].map(str::to_owned).into(),
        cwd: PathBuf::from("/"),
        env: vec![
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("W".to_owned(), work.display().to_string()),
        ],
        stdin: Vec::new(),
        stdout: Keep::Ends { max_bytes: 64 << 10, flood_bytes: NO_FLOOD },
        stderr: Stderr::WithStdout,
        timeout: Duration::from_secs(20),
        marker: Marker { run: "mounts".to_owned(), action: "a1".to_owned(), fence: 1 },
        confinement: Confinement::Confined(Box::new(confined)),
    }
}

async fn said(work: &Path, script: &str) -> String {
    let ended = run(spec(work, script)).await.unwrap();
    let text = String::from_utf8_lossy(&ended.stdout.head).trim().to_owned();
    assert_eq!(ended.how, How::Exited(0), "{script}: {text}");
    text
}

/// What a path of the host is laid over with, taken away in the end.
struct Mounted(PathBuf);

impl Mounted {
    fn over(path: &Path, words: &[&str]) -> Self {
        let done = Command::new("mount").args(words).arg(path).output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        Self(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[tokio::test]
async fn a_mount_that_is_made_later_is_seen_and_one_that_is_gone_is_not() {
    match probe_way(Way::Namespaces).await {
        Became::Held { .. } => {}
        became @ (Became::Breached { .. } | Became::Unusable { .. }) => {
            println!("skipped: {became}");
            return;
        }
    }
    let folder = tempfile::Builder::new().prefix("longrein-mounts").tempdir_in("/var/tmp").unwrap();
    let work = folder.path().canonicalize().unwrap().join("work");
    let deep = work.join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    for _ in 0..3 {
        assert_eq!(said(&work, "ls $W/a/b").await, "");
    }
    assert_eq!(
        said(&work, "grep -c ' /dev/shm ' /proc/self/mountinfo").await,
        "2",
        "the view is a copy of one that is kept"
    );
    for _ in 0..3 {
        let mounted = Mounted::over(&deep, &["-t", "tmpfs", "none"]);
        std::fs::write(deep.join("mounted"), "x").unwrap();
        for _ in 0..3 {
            assert_eq!(said(&work, "ls $W/a/b; touch $W/a/b/mounted").await, "mounted");
        }
        // another kind of change to a mount
        let again = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&deep).status().unwrap();
        assert!(again.success());
        for _ in 0..3 {
            assert_eq!(said(&work, "touch $W/a/b/mounted 2> /dev/null || echo read-only").await, "read-only");
        }
        drop(mounted);
        for _ in 0..3 {
            assert_eq!(said(&work, "ls $W/a/b").await, "");
        }
    }
    dropped_commands_leave_nothing(&work).await;
    let ours = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!ours.contains(folder.path().to_str().unwrap()), "nothing of a command is mounted in ours: {ours}");
}

async fn dropped_commands_leave_nothing(work: &Path) {
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(all_gone().await);
    let before = files();
    for round in 0..100 {
        let long = run(spec(work, "sleep 9999"));
        assert!(tokio::time::timeout(Duration::from_micros(300 * round), long).await.is_err());
    }
    assert!(all_gone().await);
    said(work, ":").await;
    assert!(all_gone().await);
    // networks are kept, and what goes with them: each is seven descriptors, and there are never more than eight
    assert!(files() <= before + 56, "{before} -> {}", files());
    // not even what is kept holds a folder fast
    std::fs::remove_dir_all(work).unwrap();
    assert!(!work.exists());
}
