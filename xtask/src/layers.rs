//! Which crate may import which. Imports point down, siblings do not import each other, and core is left alone with values.
//!
//! The list below is the architecture. A new edge is a commit of its own, with the reason.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

/// A package and everything of ours it may import. Dev-dependencies are held to the same list.
const ALLOWED: &[(&str, Layer, &[&str])] = &[
    ("longrein-core", Layer::Core, &[]),
    ("longrein-ports", Layer::Ports, &["longrein-core"]),
    ("longrein-store", Layer::Sibling, &["longrein-core", "longrein-ports"]),
    ("longrein-models", Layer::Sibling, &["longrein-core", "longrein-ports"]),
    ("longrein-sandbox", Layer::Sibling, &[]),
    ("longrein-workspace", Layer::Sibling, &["longrein-core"]),
    ("longrein-web", Layer::Sibling, &["longrein-core"]),
    // the three edges between siblings: a command tool runs in the sandbox, a file tool reaches files through the
    // workspace, and what reaches the network goes through the web
    (
        "longrein-tools",
        Layer::Sibling,
        &["longrein-core", "longrein-ports", "longrein-sandbox", "longrein-workspace", "longrein-web"],
    ),
    // rules and policy implement ports (Checks and Gate), so they see them
    ("longrein-rules", Layer::Sibling, &["longrein-core", "longrein-ports"]),
    ("longrein-policy", Layer::Sibling, &["longrein-core", "longrein-ports"]),
    ("longrein-driver", Layer::Sibling, &["longrein-core", "longrein-ports"]),
    // a tool server is a program: it is started in the sandbox like a command
    ("longrein-protocols", Layer::Sibling, &["longrein-core", "longrein-ports", "longrein-sandbox"]),
    (
        "longrein",
        Layer::Facade,
        &[
            "longrein-core",
            "longrein-ports",
            "longrein-store",
            "longrein-models",
            "longrein-tools",
            "longrein-workspace",
            "longrein-sandbox",
            "longrein-rules",
            "longrein-policy",
            "longrein-driver",
            "longrein-protocols",
        ],
    ),
    ("longrein-cli", Layer::Binary, &["longrein"]),
    (
        "longrein-sim",
        Layer::Unshipped,
        &[
            "longrein-core",
            "longrein-ports",
            "longrein-store",
            "longrein-driver",
            "longrein-rules",
            "longrein-policy",
            // scenarios name programs, in the format people write
            "longrein",
        ],
    ),
    (
        "longrein-bench",
        Layer::Unshipped,
        &["longrein", "longrein-core", "longrein-models", "longrein-ports", "longrein-store"],
    ),
    ("xtask", Layer::Unshipped, &[]),
];

/// All that core may take from outside: digests, time as a value, and the shape of events. No runtime, no I/O.
const CORE_MAY_USE: &[&str] = &["blake3", "jiff", "serde", "serde_json"];
/// For its tests, beside that.
const CORE_TESTS_MAY_USE: &[&str] = &["proptest"];
/// The only package whose shipped code may be `unsafe`.
pub(crate) const UNSAFE: &str = "longrein-sandbox";

/// How high a package stands. A package imports from below only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Core,
    Ports,
    Sibling,
    Facade,
    Binary,
    Unshipped,
}

/// The packages of a workspace and what each depends on.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    name: String,
    depends: Vec<Dependency>,
}

#[derive(Debug)]
struct Dependency {
    name: String,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Normal,
    Test,
    Build,
}

impl Graph {
    /// Asks cargo. Nothing is resolved, so no network is needed.
    pub(crate) fn of_workspace(root: &Path) -> anyhow::Result<Self> {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(program)
            .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"])
            .current_dir(root)
            .output()
            .context("cargo could not be started")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Self::of_metadata(&serde_json::from_slice(&output.stdout).context("cargo metadata is no JSON")?)
    }

    fn of_metadata(metadata: &Value) -> anyhow::Result<Self> {
        let list = |value: &Value, key: &str| value[key].as_array().cloned().with_context(|| format!("no {key}"));
        let name = |value: &Value| value["name"].as_str().map(str::to_owned).context("no name");
        let mut packages = Vec::new();
        for package in list(metadata, "packages")? {
            let mut depends = Vec::new();
            for dependency in list(&package, "dependencies")? {
                let stage = match dependency["kind"].as_str() {
                    None => Stage::Normal,
                    Some("dev") => Stage::Test,
                    Some("build") => Stage::Build,
                    Some(other) => bail!("a dependency of the kind {other}"),
                };
                depends.push(Dependency { name: name(&dependency)?, stage });
            }
            packages.push(Package { name: name(&package)?, depends });
        }
        Ok(Self { packages })
    }
}

/// Every edge that may not be, each with the reason.
pub(crate) fn faults(graph: &Graph) -> Vec<String> {
    let mut faults = Vec::new();
    for package in &graph.packages {
        let Some((_, layer, allowed)) = row(&package.name) else {
            faults.push(format!(
                "{}: this package stands in no layer. Add it to the list in xtask/src/layers.rs, in a commit that says \
                 what it may import and why it is a crate.",
                package.name
            ));
            continue;
        };
        for dependency in &package.depends {
            let ours = row(&dependency.name).is_some() || graph.packages.iter().any(|p| p.name == dependency.name);
            if ours && !allowed.contains(&dependency.name.as_str()) {
                faults.push(format!(
                    "{} -> {}: {}",
                    package.name,
                    dependency.name,
                    reason(&package.name, *layer, &dependency.name)
                ));
            }
            if !ours && *layer == Layer::Core && !core_may_use(dependency) {
                faults.push(format!(
                    "{} -> {}: core is pure values, with no runtime, I/O, clock or randomness. It may use {} only.",
                    package.name,
                    dependency.name,
                    CORE_MAY_USE.join(", ")
                ));
            }
        }
    }
    faults
}

fn core_may_use(dependency: &Dependency) -> bool {
    let name = dependency.name.as_str();
    match dependency.stage {
        Stage::Normal => CORE_MAY_USE.contains(&name),
        Stage::Test => CORE_MAY_USE.contains(&name) || CORE_TESTS_MAY_USE.contains(&name),
        Stage::Build => false,
    }
}

fn row(name: &str) -> Option<&'static (&'static str, Layer, &'static [&'static str])> {
    ALLOWED.iter().find(|(known, ..)| *known == name)
}

/// Why an edge may not be, and what to do instead.
fn reason(from: &str, layer: Layer, to: &str) -> String {
    let Some((_, below, _)) = row(to) else {
        return format!("{to} stands in no layer yet, so nothing may import it.");
    };
    match (layer, *below) {
        (_, Layer::Unshipped) => format!("{to} is never shipped, so no other crate may need it."),
        (Layer::Core, _) => "core depends on none of ours. What it needs is handed in as a value.".to_owned(),
        (Layer::Binary, _) => {
            "the binary comes in by the one door, the facade `longrein`. Export what is missing there.".to_owned()
        }
        (Layer::Sibling, Layer::Sibling) => {
            "siblings do not import each other (tools -> sandbox, workspace and web excepted). What both need belongs \
             in ports or core, and the facade joins them."
                .to_owned()
        }
        (above, below) if below >= above => format!("imports point down, and {to} stands above {from}."),
        (..) => {
            "this edge is not on the list in xtask/src/layers.rs. A new edge is an architecture change: add it there, \
                 in a commit of its own that says why."
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    /// Packages written `a -> b c (dev d)`, one a line; what is wrong with them.
    fn check(edges: &str) -> Vec<String> {
        let packages: Vec<Value> = edges
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(|line| {
                let (name, depends) = line.split_once("->").unwrap_or((line, ""));
                let depends: Vec<Value> = depends
                    .split_whitespace()
                    .map(|word| match word.split_once(':') {
                        Some((kind, name)) => json!({ "name": name, "kind": kind }),
                        None => json!({ "name": word, "kind": null }),
                    })
                    .collect();
                json!({ "name": name.trim(), "dependencies": depends })
            })
            .collect();
        faults(&Graph::of_metadata(&json!({ "packages": packages })).unwrap())
    }

    #[track_caller]
    fn refused(edges: &str, why: &str) {
        let found = check(edges);
        assert_eq!(found.len(), 1, "{edges}: {found:?}");
        assert!(found[0].contains(why), "{edges}: {found:?}");
    }

    #[test]
    fn edges_that_point_down_pass() {
        let edges = "
            longrein-core -> blake3 serde dev:proptest
            longrein-ports -> longrein-core thiserror
            longrein-store -> longrein-core longrein-ports rusqlite
            longrein-sandbox -> libc tokio
            longrein-tools -> longrein-ports longrein-sandbox longrein-web
            longrein -> longrein-tools longrein-store
            longrein-cli -> longrein clap dev:tempfile
            longrein-sim -> longrein-driver longrein-store
            xtask -> anyhow";
        assert_eq!(check(edges), [] as [&str; 0]);
    }

    #[test]
    fn forbidden_edges_fail_and_say_why() {
        refused("longrein-core -> longrein-ports", "core depends on none of ours");
        refused("longrein-core -> tokio", "core is pure values");
        refused("longrein-core -> proptest", "core is pure values");
        refused("longrein-core -> build:cc", "core is pure values");
        refused("longrein-ports -> longrein-store", "imports point down");
        refused("longrein-policy -> longrein", "imports point down");
        refused("longrein-store -> longrein-models", "siblings do not import each other");
        refused("longrein-policy -> longrein-web", "siblings do not import each other");
        refused("longrein-web -> longrein-sandbox", "siblings do not import each other");
        refused("longrein-sandbox -> longrein-tools", "siblings do not import each other");
        refused("longrein-driver -> longrein-sandbox", "siblings do not import each other");
        refused("longrein-driver -> dev:longrein-store", "siblings do not import each other");
        refused("longrein-cli -> longrein-core", "the one door");
        refused("longrein -> longrein-sim", "never shipped");
        refused("longrein-core -> dev:longrein-sim", "never shipped");
        refused("longrein-utils ->", "stands in no layer");
        refused("longrein-sandbox -> longrein-core", "not on the list");
    }

    #[test]
    fn this_workspace_passes() {
        let found = faults(&Graph::of_workspace(&crate::root()).unwrap());
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    /// A copy of every manifest of this workspace, with empty sources, so that cargo reads it as it reads the real one.
    fn copy_of_the_manifests() -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        let root = crate::root();
        let take = |path: &Path| {
            let to = copy.path().join(path);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(root.join(path), to).unwrap();
        };
        take(Path::new("Cargo.toml"));
        take(Path::new("Cargo.lock"));
        for manifest in crate::source::files(&root).unwrap() {
            if manifest.file_name().is_some_and(|name| name == "Cargo.toml") && manifest.parent().is_some() {
                take(&manifest);
                let src: PathBuf = copy.path().join(manifest.parent().unwrap()).join("src");
                fs::create_dir_all(&src).unwrap();
                fs::write(src.join("lib.rs"), "").unwrap();
                fs::write(src.join("main.rs"), "").unwrap();
            }
        }
        copy
    }

    #[test]
    fn a_forbidden_line_in_a_real_manifest_fails() {
        let copy = copy_of_the_manifests();
        assert!(faults(&Graph::of_workspace(copy.path()).unwrap()).is_empty(), "the copy is as good as the original");
        let manifest = copy.path().join("crates/core/Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        let forbidden = text.replacen("[dependencies]\n", "[dependencies]\nlongrein-store.workspace = true\n", 1);
        assert_ne!(text, forbidden);
        fs::write(&manifest, forbidden).unwrap();
        let found = faults(&Graph::of_workspace(copy.path()).unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("longrein-core -> longrein-store: core depends on none of ours"), "{found:?}");
    }
}
