//! The MCP project's own conformance suite against what ships here. Not among the tests: it is fetched with npm and runs on
//! Node.
//!
//! Counts are taken from the suite's records of every check, never from its exit status, and each check that did not pass is
//! named with its reason. Nothing of the suite or of what it writes is kept in the repository.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

/// Pinned: a new version of the suite is a change of what was shown.
const SUITE: &str = "@modelcontextprotocol/conformance@0.2.0-alpha.12";
/// The version of the protocol that is tested.
const SPEC: &str = "2025-11-25";
/// The suite needs a Node of this version or newer; where there is none, it comes with npm too.
const NODE: u32 = 22;

/// The server's fixtures, over the layers that ship.
pub(crate) fn server() -> anyhow::Result<()> {
    let suite = Suite::fetched()?;
    let mut fixtures = Fixtures::started()?;
    let results = suite.folder.join("results-server");
    if results.exists() {
        std::fs::remove_dir_all(&results).context("the records of the last time cannot be removed")?;
    }
    let words = ["server", "--url", &fixtures.url, "--suite", "all", "--spec-version", SPEC, "-o"];
    let mut command = suite.command();
    command.args(words).arg(&results).stdout(Stdio::null());
    // Its status says less than its records.
    command.status().context("the suite could not be started")?;
    fixtures.child.kill().context("the fixtures could not be ended")?;
    fixtures.child.wait().context("the fixtures could not be ended")?;
    report("server", &Tally::of(&results)?)
}

/// The client that ships, which the suite starts once per scenario.
pub(crate) fn client() -> anyhow::Result<()> {
    let suite = Suite::fetched()?;
    let program = client_program()?;
    let results = suite.folder.join("results-client");
    if results.exists() {
        std::fs::remove_dir_all(&results).context("the records of the last time cannot be removed")?;
    }
    let mut command = suite.command();
    // what the version requires, and what it runs beside that without counting it
    command.arg("client").arg("--command").arg(program).args(["--requirements", SPEC, "-o"]);
    command.arg(&results).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().context("the suite could not be started")?;
    report("client", &Tally::of(&results)?)
}

/// The example `conformance_client`, built.
fn client_program() -> anyhow::Result<PathBuf> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = ["build", "--locked", "--quiet", "--package", "longrein-protocols", "--example", "conformance_client"];
    let mut command = Command::new(program);
    command.args(words).arg("--message-format=json").current_dir(crate::root()).stderr(Stdio::inherit());
    let built = command.output().context("cargo could not be started")?;
    if !built.status.success() {
        bail!("the example could not be built ({})", built.status);
    }
    let messages = String::from_utf8_lossy(&built.stdout).into_owned();
    let mut executables = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_ours = message.pointer("/target/name")?.as_str()? == "conformance_client";
        message.get("executable")?.as_str().filter(|_| is_ours).map(PathBuf::from)
    });
    executables.next_back().context("cargo does not say where the example is")
}

/// What was recorded of all checks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// By scenario: passed and not passed.
    scenarios: BTreeMap<String, (u32, u32)>,
    /// Scenario, check, status and reason of what did not pass.
    lacking: Vec<String>,
}

impl Tally {
    fn of(results: &Path) -> anyhow::Result<Self> {
        let mut tally = Self::default();
        for folder in folders(results)? {
            let name = folder.strip_prefix(results).unwrap_or(&folder).to_string_lossy().into_owned();
            let Ok(text) = std::fs::read_to_string(folder.join("checks.json")) else { continue };
            let checks: Vec<Value> =
                serde_json::from_str(&text).with_context(|| format!("{name}: no list of checks"))?;
            tally.add(&scenario(&name), &checks);
        }
        tally.lacking.sort();
        Ok(tally)
    }

    fn add(&mut self, scenario: &str, checks: &[Value]) {
        let (passed, failed) = self.scenarios.entry(scenario.to_owned()).or_default();
        for check in checks {
            let text = |key: &str| check.get(key).and_then(Value::as_str).unwrap_or_default();
            match text("status") {
                // What it says by the way is no check.
                "INFO" => continue,
                "SUCCESS" => *passed += 1,
                status => {
                    *failed += 1;
                    let (id, reason) = (text("id"), text("errorMessage"));
                    self.lacking.push(format!("{scenario} / {id}: {status}: {reason}"));
                }
            }
        }
    }
}

/// The folders of all scenarios: those of a group lie in a folder of the group's.
fn folders(results: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let below = |folder: &Path| -> anyhow::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder).context("the suite recorded nothing")?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(paths.into_iter().filter(|path| path.is_dir()).collect())
    };
    let mut folders = Vec::new();
    for folder in below(results)? {
        match folder.join("checks.json").exists() {
            true => folders.push(folder),
            false => folders.extend(below(&folder)?),
        }
    }
    Ok(folders)
}

/// The scenario of a folder of records, `server-NAME-DATE`.
fn scenario(folder: &str) -> String {
    let name = folder.strip_prefix("server-").unwrap_or(folder);
    // The date is as long in every name: 2026-11-30T22-08-59-953Z.
    const DATE: usize = "-2026-11-30T22-08-59-953Z".len();
    name.len().checked_sub(DATE).and_then(|end| name.get(..end)).unwrap_or(name).to_owned()
}

fn report(what: &str, tally: &Tally) -> anyhow::Result<()> {
    let (mut passed, mut failed) = (0, 0);
    for (scenario, (good, bad)) in &tally.scenarios {
        println!("{scenario}: {good} of {}", good + bad);
        passed += good;
        failed += bad;
    }
    println!("{what}, {SUITE}, {SPEC}: {passed} of {} checks, {} scenarios", passed + failed, tally.scenarios.len());
    tally.lacking.iter().for_each(|line| println!("not passed: {line}"));
    if failed > 0 || passed == 0 { bail!("{failed} checks did not pass") } else { Ok(()) }
}

/// The suite, where npm has put it.
pub(crate) struct Suite {
    pub(crate) folder: PathBuf,
    node: PathBuf,
}

impl Suite {
    pub(crate) fn fetched() -> anyhow::Result<Self> {
        let version = SUITE.rsplit('@').next().unwrap_or_default();
        let folder = std::env::temp_dir().join(format!("longrein-conformance-{version}"));
        std::fs::create_dir_all(&folder).context("no folder for the suite")?;
        let suite = Self { node: folder.join("node_modules/node/bin/node"), folder };
        if !suite.script().exists() {
            suite.install(SUITE)?;
        }
        if major("node").is_some_and(|major| major >= NODE) {
            return Ok(Self { node: "node".into(), ..suite });
        }
        if !suite.node.exists() {
            suite.install(&format!("node@{NODE}"))?;
        }
        Ok(suite)
    }

    fn install(&self, package: &str) -> anyhow::Result<()> {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&self.folder).arg(package);
        let status = npm.current_dir(&self.folder).status().context("npm could not be started")?;
        if status.success() { Ok(()) } else { bail!("npm could not install {package} ({status})") }
    }

    fn script(&self) -> PathBuf {
        self.folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js")
    }

    /// The suite's command, without its words.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(self.script()).current_dir(&self.folder);
        command
    }
}

fn major(node: &str) -> Option<u32> {
    let output = Command::new(node).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// The example `conformance_server`, at work.
struct Fixtures {
    child: Child,
    url: String,
}

impl Fixtures {
    fn started() -> anyhow::Result<Self> {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let words =
            ["run", "--locked", "--quiet", "--package", "longrein-protocols", "--example", "conformance_server"];
        let mut command = Command::new(program);
        command.args(words).current_dir(crate::root()).stdout(Stdio::piped());
        // On Unix cargo becomes the program it runs, so that ending the one ends the other.
        let mut child = command.spawn().context("cargo could not be started")?;
        let stdout = child.stdout.take().context("the fixtures have no stdout")?;
        let mut url = String::new();
        BufReader::new(stdout).read_line(&mut url).context("the fixtures do not say where they are")?;
        if url.trim().is_empty() {
            bail!("the fixtures did not start ({})", child.wait()?);
        }
        Ok(Self { child, url: url.trim().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_did_not_pass_is_counted_and_named() {
        let mut tally = Tally::default();
        let checks = [
            json!({ "id": "a", "status": "SUCCESS" }),
            json!({ "id": "b", "status": "INFO" }),
            json!({ "id": "c", "status": "FAILURE", "errorMessage": "why" }),
            json!({ "id": "d", "status": "SKIPPED" }),
        ];
        tally.add("one", &checks);
        assert_eq!(tally.scenarios["one"], (1, 2));
        assert_eq!(tally.lacking, ["one / c: FAILURE: why", "one / d: SKIPPED: "]);
        assert!(report("server", &tally).is_err());
        assert!(report("server", &Tally::default()).is_err(), "nothing checked is nothing shown");
    }

    #[test]
    fn a_scenario_is_known_by_its_folder() {
        assert_eq!(scenario("server-ping-2026-11-30T22-08-59-953Z"), "ping");
        assert_eq!(scenario("auth/basic-cimd-2026-11-30T22-08-59-953Z"), "auth/basic-cimd");
        assert_eq!(scenario("server-json-schema-2020-12-2026-11-30T22-08-59-953Z"), "json-schema-2020-12");
    }
}
