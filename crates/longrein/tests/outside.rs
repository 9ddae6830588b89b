//! A crate outside this workspace that depends on the facade alone: it builds offline, and its run goes as it should.
//!
//! It compiles every crate of ours once more, so it is one of the slow tests (`cargo xtask nightly`).

use std::fs;
use std::path::Path;
use std::process::Command;

/// The versions are those that this workspace names, so that what is built for it is used again.
const MANIFEST: &str = r#"
[package]
name = "outside"
version = "0.0.0"
edition = "2024"

[dependencies]
longrein = { path = "LONGREIN" }
serde = { version = "1", features = ["derive"] }
schemars = "1"
tokio = { version = "1", features = ["rt", "macros"] }

[workspace]

[profile.dev]
debug = false
"#;

const MAIN: &str = r#"
//! Everything comes from the facade and three crates beside it.
use longrein::{Call, CallError, Longrein, Script, Task, Tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sum {
    numbers: Vec<i64>,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Total {
    total: i64,
}

fn sum() -> Tool {
    Tool::read("sum", "Adds numbers.", |sum: Sum, _: Call| async move {
        let total = sum.numbers.iter().try_fold(0_i64, |sum, next| sum.checked_add(*next));
        Ok(Total { total: total.ok_or_else(|| CallError::new("The sum is too large."))? })
    })
}

#[derive(serde::Serialize)]
struct Args {
    numbers: [i64; 3],
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), longrein::Error> {
    let longrein = Longrein::open("memory:")?;
    let script = Script::new().call("sum", Args { numbers: [1, 2, 39] }).json(Total { total: 42 });
    let mut run = longrein.start(Task::new("Add them.").model(script).tool(sum()).answer::<Total>()).await?;
    while let Some(line) = run.next().await {
        println!("{}", line?);
    }
    let total: Total = run.await?.answer_as().expect("it fits the schema");
    println!("total {}", total.total);
    Ok(())
}
"#;

#[test]
fn a_crate_outside_the_workspace_needs_the_facade_alone() {
    if std::env::var_os("LONGREIN_NIGHTLY").is_none() {
        return;
    }
    let longrein = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = longrein.ancestors().nth(2).unwrap();
    // Where this test itself was built: what it was built from is there.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("src")).unwrap();
    fs::write(at("Cargo.toml"), MANIFEST.replace("LONGREIN", longrein.to_str().unwrap())).unwrap();
    fs::write(at("src/main.rs"), MAIN).unwrap();
    fs::copy(root.join("Cargo.lock"), at("Cargo.lock")).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ran = Command::new(cargo)
        .args(["run", "--quiet", "--offline"])
        .env("CARGO_TARGET_DIR", target)
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (out, complaints) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{complaints}");
    assert!(!complaints.contains("warning"), "{complaints}");
    assert!(out.contains(r#""type":"run.ended""#) && out.ends_with("total 42\n"), "{out}");
}
