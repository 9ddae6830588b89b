//! Ordinary work with the tool chains that this machine has on `PATH`, inside every tier it can show.
#![expect(clippy::print_stdout, reason = "a test may")]

use std::path::Path;
use std::time::Duration;

use longrein_sandbox::{Became, Confined, Confinement, How, Keep, Marker, NO_FLOOD, Spec, Stderr, Way, probe_way, run};

/// The program that must be there, and what is done with it in an empty folder.
const WORK: [(&str, &str); 8] = [
    (
        "git",
        "git init -q . && echo a > f && git add . && git -c user.name=n -c user.email=e@x commit -qm one && git status && git log --oneline && echo b > f && git diff | grep -q +b",
    ),
    ("cc", "printf 'int main(void){return 0;}' > hello.c && cc hello.c -o hello && ./hello"),
    ("make", "printf 'all:\\n\\techo made > made\\n' > Makefile && make && test -s made"),
    (
        "python3",
        "python3 -c 'import ssl, json, tempfile, subprocess; tempfile.mkstemp(); subprocess.run([\"true\"], check=True)'",
    ),
    (
        "node",
        "node -e 'require(\"fs\").writeFileSync(\"x\", require(\"os\").tmpdir()); require(\"child_process\").execSync(\"true\")'",
    ),
    ("perl", "perl -e 'print 1'"),
    ("go", "printf 'package main\\nfunc main() {}\\n' > m.go && go run m.go"),
    ("cargo", "cargo init -q --name tiny . && cargo build --offline -q && cargo test --offline -q"),
];

#[tokio::test]
async fn tool_chains_keep_working() {
    let path = std::env::var("PATH").unwrap();
    let home = std::env::var("HOME").unwrap_or_else(|_| "/".to_owned());
    for way in [Way::Namespaces, Way::UserNamespace, Way::Landlock] {
        let became = probe_way(way).await;
        if !matches!(became, Became::Held { .. }) {
            println!("skipped: {way:?}: {became}");
            continue;
        }
        for (program, script) in WORK {
            if !path.split(':').any(|folder| Path::new(folder).join(program).is_file()) {
                println!("skipped: no {program} here");
                continue;
            }
            let folder = tempfile::tempdir().unwrap();
            let at = folder.path().canonicalize().unwrap();
            let (work, scratch) = (at.join("work"), at.join("scratch"));
            std::fs::create_dir_all(&work).unwrap();
            std::fs::create_dir_all(&scratch).unwrap();
            let mut confined = Confined::new(way);
            confined.writes = vec![work.clone()];
            confined.scratch = Some(scratch);
            let ended = run(Spec {
                argv: ["sh", "-ec", script].map(str::to_owned).into(),
                cwd: work,
                env: vec![("PATH".to_owned(), path.clone()), ("HOME".to_owned(), home.clone())],
                stdin: Vec::new(),
                stdout: Keep::Ends { max_bytes: 8192, flood_bytes: NO_FLOOD },
                stderr: Stderr::WithStdout,
                timeout: Duration::from_secs(120),
                marker: Marker { run: "toolchains".to_owned(), action: program.to_owned(), fence: 1 },
                confinement: Confinement::Confined(Box::new(confined)),
            })
            .await
            .unwrap();
            let said = String::from_utf8_lossy(&ended.stdout.head);
            assert_eq!(ended.how, How::Exited(0), "{way:?}: {program}: {said}");
        }
    }
}
