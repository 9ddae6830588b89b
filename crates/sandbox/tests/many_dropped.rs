//! Many commands dropped at the same moment, each with a daemon that is just being born: when all are said to be gone,
//! nobody is left.
#![expect(clippy::unwrap_used, reason = "a test may")]

use std::path::PathBuf;
use std::time::Duration;

use longrein_sandbox::{Confinement, INSIDE, Keep, Marker, Spec, Stderr, all_gone, run};
use tokio::task::JoinSet;

const ROUNDS: u64 = 60;
const AT_ONCE: u64 = 8;

#[tokio::test]
async fn daemons_born_while_many_commands_are_dropped_are_ended() {
    let name = format!("many-{}", std::process::id());
    for round in 0..ROUNDS {
        let mut commands = JoinSet::new();
        for number in 0..AT_ONCE {
            commands.spawn(run(Spec {
                argv: ["sh", "-c", "setsid sleep 60 > /dev/null 2>&1 & sleep 0.005"].map(str::to_owned).into(),
                cwd: PathBuf::from("/"),
                env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
                stdin: Vec::new(),
                stdout: Keep::Whole { max_bytes: 1 << 20 },
                stderr: Stderr::WithStdout,
                timeout: Duration::from_secs(20),
                marker: Marker { run: name.clone(), action: format!("a{number}"), fence: round },
                confinement: Confinement::None,
            }));
        }
        // Somewhere between the first birth and the last end.
        let _ = tokio::time::timeout(Duration::from_micros(round * 700 % 17_000), async {
            while commands.join_next().await.is_some() {}
        })
        .await;
        drop(commands);
        assert!(all_gone().await, "round {round}");
        // One that was killed a moment ago may still be on its way out where the machine is busy; one that was missed sleeps
        // for a minute.
        let mut left = alive(&name);
        for _ in 0..100 {
            if left.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            left = alive(&name);
        }
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
}

/// What carries the mark of a run.
fn alive(run: &str) -> Vec<String> {
    let mark = format!("{INSIDE}={run}/");
    let environs = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let environ = std::fs::read(entry.path().join("environ")).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), environ))
    });
    environs
        .filter(|(_, environ)| environ.split(|byte| *byte == 0).any(|part| part.starts_with(mark.as_bytes())))
        .map(|(pid, _)| pid)
        .collect()
}
