//! What commands of a run do to a workspace inside real walls. Where this machine has no namespaces, each says that it is
//! passed over.

use longrein_core::check::Finding;
use longrein_core::outcome::Outcome;
use longrein_core::ruling::{Effect, EffectKind};
use longrein_core::task::{Builtin, CheckSpec};
use longrein_ports::{CheckRun, Handed};
use longrein_sandbox::{Tier, probe_blocking};

use super::*;
use crate::{Sandbox, Walls, Workspace};

struct Bench {
    folder: tempfile::TempDir,
    task: Task,
    toolbox: Toolbox,
}

/// A repository with one nested in it, secrets, and a folder outside. None: no walls that show it.
fn bench(tools: &[Value]) -> Option<Bench> {
    if probe_blocking().tier() != Tier::Full {
        eprintln!("skipped: {} is no full tier", probe_blocking().tier());
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("proj");
    for path in ["proj/sub", "proj/deep/er", "proj/.git-not", "outside"] {
        std::fs::create_dir_all(folder.path().join(path)).unwrap();
    }
    for place in [&work, &work.join("sub")] {
        git(place, &["init", "-q", "--template="]);
        git(place, &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "first"]);
    }
    // some names are there before, so that they can only be protected and not seen to appear
    std::fs::create_dir_all(work.join("sub/.git/hooks")).unwrap();
    std::fs::create_dir_all(work.join("sub/.git/info")).unwrap();
    std::fs::write(work.join("sub/.git/info/attributes"), "theirs\n").unwrap();
    for secret in ["deep/er/.env.local", "deep/.netrc", "deep/er/.env.example"] {
        std::fs::write(work.join(secret), "hush").unwrap();
    }
    std::fs::write(folder.path().join("outside/neighbour"), "theirs").unwrap();
    std::fs::write(folder.path().join("outside/named"), "old").unwrap();
    let mut task = task_in(&work, tools);
    task.tools.push(crate::builtin(Builtin::Shell));
    std::fs::create_dir_all(work.join("hooks-of-the-operator")).unwrap();
    let sandbox = Sandbox::new(Walls::Strongest, Workspace::Writable, Vec::new())
        .obeying(vec![work.join("hooks-of-the-operator")]);
    let toolbox = Toolbox::new(&task, &operator(), Secrets::new()).unwrap().with_sandbox(sandbox);
    Some(Bench { folder, task, toolbox })
}

fn git(place: &Path, words: &[&str]) {
    let done = std::process::Command::new("git").args(words).current_dir(place).status().unwrap();
    assert!(done.success(), "git {words:?}");
}

impl Bench {
    async fn shell(&self, command: &str, beyond: Vec<Effect>) -> Value {
        let args = json!({ "command": command });
        let attempt = Attempt { beyond, ..self.attempt("shell", &args) };
        let ran = self.toolbox.attempt(&self.task, &attempt, &Handed::default()).await;
        let Outcome::Done(content) = &ran.outcome else { panic!("{command}: {ran:?}") };
        inline(content)
    }

    fn attempt(&self, tool: &str, args: &Value) -> Attempt {
        let folder = self.folder.path().file_name().unwrap().to_str().unwrap();
        Attempt { run: RunId::new(format!("walls-test-{folder}")), ..attempt(tool, args) }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }

    fn effect(&self, kind: EffectKind, path: &str) -> Effect {
        Effect { kind, what: self.at(path).to_str().unwrap().to_owned() }
    }
}

/// What git would obey and is not there, each with how it is planted.
const PLANTS: [(&str, &str); 10] = [
    ("commondir", "echo /tmp/evil > .git/commondir"),
    ("commondir", "rm -f .git/commondir; echo /tmp/evil > .git/commondir"),
    ("config.worktree", "echo '[core]' > .git/config.worktree"),
    ("hooks/pre-commit", "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit"),
    ("hooks/pre-commit", "mv .git/hooks .git/old; mkdir .git/hooks; echo x > .git/hooks/pre-commit"),
    ("info/attributes", "mkdir -p .git/info && echo '* filter=x' > .git/info/attributes"),
    ("objects/info/alternates", "mkdir -p .git/objects/info && echo /tmp > .git/objects/info/alternates"),
    ("info", "rm -rf .git/info; ln -sT /tmp .git/info"),
    ("modules/m/config", "mkdir -p .git/modules/m && echo '[core]' > .git/modules/m/config"),
    ("modules", "rm -rf .git/modules; ln -sT /tmp .git/modules"),
];

/// A command's plant is never there, not even while it runs: whoever kills us leaves none behind.
#[tokio::test]
async fn nothing_is_planted_for_git_not_even_for_a_moment() {
    let Some(bench) = bench(&[]) else { return };
    for (name, plant) in PLANTS {
        for folder in ["", "sub/"] {
            let at = bench.at("proj").join(folder).join(".git").join(name);
            // it looks for what it planted itself: its own view is the host's
            let see =
                format!("cat {0} 2>/dev/null | grep -q . && echo PLANTED; test -L {0} && echo PLANTED", at.display());
            let told = bench.shell(&format!("(cd ./{folder}; {plant}); {see}; true"), Vec::new()).await;
            let output = told["output"].as_str().unwrap();
            let is_ours = |text: String| matches!(text.as_str(), "" | "././.\n" | "theirs\n");
            assert!(is_ours(std::fs::read_to_string(&at).unwrap_or_default()), "{plant}: {told}");
            assert!(!output.contains("was removed"), "{plant}: {told}");
            assert!(!at.is_symlink(), "{plant}: {told}");
        }
    }
    // what held the names goes with the run
    let proj = bench.at("proj/.git");
    assert!(proj.join("commondir").exists() && proj.join("modules").exists());
    let Bench { folder, task: _, toolbox } = bench;
    drop(toolbox);
    for name in ["commondir", "config.worktree", "hooks", "info", "modules", "objects/info/alternates"] {
        assert!(proj.join(name).symlink_metadata().is_err(), "{name}");
    }
    drop(folder);
}

/// Submodules that are there are worked in as before; none is made.
#[tokio::test]
async fn a_submodule_is_worked_in_and_none_is_planted() {
    let Some(bench) = bench(&[]) else { return };
    let proj = bench.at("proj");
    let from = bench.at("proj/sub").display().to_string();
    git(&proj, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &from, "lib/m"]);
    let name = "export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t; ";
    let told =
        bench.shell(&format!("{name}cd lib/m && git commit -q --allow-empty -m x && git gc -q"), Vec::new()).await;
    assert_eq!(told["status"], 0, "{told}");
    for attack in [
        "echo x >> .git/modules/lib/m/config",
        "mkdir .git/modules/other",
        "mkdir .git/modules/lib/other",
        "mv .git/modules/lib/m .git/modules/lib/n",
        "echo /tmp > .git/modules/lib/m/commondir",
    ] {
        let told = bench.shell(attack, Vec::new()).await;
        assert_ne!(told["status"], 0, "{attack}: {told}");
    }
}

#[tokio::test]
async fn what_git_obeys_already_cannot_be_changed_however_deep() {
    let Some(bench) = bench(&[]) else { return };
    for attack in [
        "echo '[core]' >> .git/config",
        "echo '[core]' >> sub/.git/config",
        "echo x > sub/.git/hooks/pre-commit",
        "echo '* filter=x' >> sub/.git/info/attributes",
        "rm sub/.git/info/attributes",
        "mv sub/.git sub/.git-old",
        "mv sub sub-old",
    ] {
        let told = bench.shell(attack, Vec::new()).await;
        assert_ne!(told["status"], 0, "{attack}: {told}");
    }
    assert!(bench.at("proj/sub/.git/hooks").read_dir().unwrap().next().is_none());
}

#[tokio::test]
async fn honest_work_with_git_goes_on() {
    let Some(bench) = bench(&[]) else { return };
    let name = "export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t; ";
    for honest in [
        "echo x > file && git add file && git commit -qm more",
        "echo y > file && git stash -q && git stash pop -q && git checkout -q file",
        "cd sub && echo x > file && git add file && git commit -qm more && git gc -q",
        "git worktree add -q ../proj/tree && cd tree && git commit -q --allow-empty -m there",
        "git -C tree status --short && git worktree remove tree && git gc -q",
        "git init -q fresh && cd fresh && git config user.name me && git commit -q --allow-empty -m new",
        "git -C fresh config user.name you && git clone -q sub copy && git -C copy config a.b c && ls copy/.git/hooks",
    ] {
        let told = bench.shell(&format!("{name}{honest}"), Vec::new()).await;
        assert_eq!(told["status"], 0, "{honest}: {told}");
        assert!(!told["output"].as_str().unwrap().contains("[sandbox]"), "{honest}: {told}");
    }
}

#[tokio::test]
async fn tools_and_checks_plant_nothing_either() {
    let planting = ["sh", "-c", "echo /tmp/evil > .git/commondir || exit 3"];
    let Some(bench) = bench(&[tool("build", &json!({ "command": planting, "effect": "workspace" }))]) else { return };
    let ours = || std::fs::read_to_string(bench.at("proj/.git/commondir")).unwrap() == "././.\n";
    let ran = bench.toolbox.attempt(&bench.task, &bench.attempt("build", &json!({})), &Handed::default()).await;
    assert!(!matches!(ran.outcome, Outcome::Done(_)) && ours(), "{ran:?}");
    let spec = json!({ "name": "test", "command": planting, "timeout_ms": 20_000 });
    let spec: CheckSpec = serde_json::from_value(spec).unwrap();
    let check = CheckRun { run: bench.attempt("build", &json!({})).run, spec, about: Default::default() };
    let checked = bench.toolbox.run_check(&bench.task, &check).await;
    assert_eq!(checked.verdict.finding, Finding::Failed);
    assert!(ours());
}

#[tokio::test]
async fn secrets_are_masked_wherever_they_lie() {
    let Some(bench) = bench(&[]) else { return };
    let told = bench.shell("cat deep/er/.env.local deep/.netrc; cat deep/er/.env.example", Vec::new()).await;
    let output = told["output"].as_str().unwrap();
    assert_eq!(output.matches("hush").count(), 1, "{told}");
    assert_eq!(told["status"], 0, "{told}");
}

#[tokio::test]
async fn a_file_that_may_be_written_is_no_folder_that_may() {
    let Some(bench) = bench(&[]) else { return };
    let outside = bench.at("outside").display().to_string();
    let write = |path: &str| vec![bench.effect(EffectKind::Write, path)];
    for path in ["outside/named", "outside/new"] {
        let told = bench.shell(&format!("echo text > {}", bench.at(path).display()), write(path)).await;
        assert_eq!(told["status"], 0, "{told}");
        assert_eq!(std::fs::read_to_string(bench.at(path)).unwrap(), "text\n");
        for attack in ["echo evil > neighbour", "rm neighbour", "echo evil > planted", "mkdir planted"] {
            // where folders for temporary files are private it may well succeed, on nothing of ours
            bench.shell(&format!("cd {outside} && {attack}"), write(path)).await;
            assert_eq!(std::fs::read_to_string(bench.at("outside/neighbour")).unwrap(), "theirs", "{attack}");
            assert!(!bench.at("outside/planted").exists(), "{attack}");
        }
    }
    let names = || {
        let mut names: Vec<_> =
            bench.at("outside").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["named", "neighbour", "new"]);
    // what is left as it was made goes again; an empty file that was meant stays
    bench.shell("true", write("outside/unused")).await;
    assert!(!bench.at("outside/unused").exists());
    bench.shell(&format!("touch {outside}/meant"), write("outside/meant")).await;
    assert!(bench.at("outside/meant").exists());
    // a link is no way to its end
    std::os::unix::fs::symlink(bench.at("outside/neighbour"), bench.at("outside/link")).unwrap();
    bench.shell(&format!("echo evil > {outside}/link"), write("outside/link")).await;
    assert_eq!(std::fs::read_to_string(bench.at("outside/neighbour")).unwrap(), "theirs");
    // no folder above one that is not there
    bench.shell(&format!("mkdir -p {outside}/none && echo x > {outside}/none/x"), write("outside/none/x")).await;
    assert!(!bench.at("outside/none").exists());
}

#[tokio::test]
async fn a_name_is_removed_only_by_what_does_nothing_else() {
    let Some(bench) = bench(&[]) else { return };
    let named = bench.at("outside/named").display().to_string();
    let run = |what: &str| Effect { kind: EffectKind::Run, what: what.to_owned() };
    let unknown = Effect { kind: EffectKind::Unknown, what: "a script".to_owned() };
    let remove = format!("rm {named}");
    for others in [vec![], vec![run(&remove), run("./build.sh")], vec![run(&remove), unknown], vec![run("./rm x")]] {
        let effects = [vec![bench.effect(EffectKind::Delete, "outside/named")], others].concat();
        let told = bench.shell(&remove, effects.clone()).await;
        assert_ne!(told["status"], 0, "{effects:?}: {told}");
        assert!(bench.at("outside/named").exists(), "{effects:?}");
    }
    let effects = vec![bench.effect(EffectKind::Delete, "outside/named"), run(&remove)];
    let told = bench.shell(&remove, effects).await;
    assert_eq!(told["status"], 0, "{told}");
    assert!(!bench.at("outside/named").exists());
}

/// What the operator's git obeys in the workspace is written only by a call that was allowed to by name.
#[tokio::test]
async fn what_the_operators_git_names_is_read_only_unless_it_was_allowed() {
    let Some(bench) = bench(&[]) else { return };
    let plant = "echo x > hooks-of-the-operator/pre-commit";
    let told = bench.shell(plant, Vec::new()).await;
    assert_ne!(told["status"], 0, "{told}");
    assert!(!bench.at("proj/hooks-of-the-operator/pre-commit").exists());
    let allowed = vec![bench.effect(EffectKind::Write, "proj/hooks-of-the-operator/pre-commit")];
    let told = bench.shell(plant, allowed).await;
    assert_eq!(told["status"], 0, "{told}");
    assert!(bench.at("proj/hooks-of-the-operator/pre-commit").exists());
}

/// A hint says what is not reachable, and only where a command failed in such words.
#[tokio::test]
async fn a_command_that_fails_at_its_walls_is_told_what_may_be_why() {
    let Some(bench) = bench(&[]) else { return };
    for (command, hint) in [
        ("echo 'curl: (6) Could not resolve host: h.example' >&2; exit 6", Some("there is no network here")),
        ("echo x > .git/hooks/x", Some("only the workspace and /tmp are written here")),
        ("cat deep/.netrc", Some("secrets, other rights")),
        ("echo 'Network is unreachable'", None),
        ("echo broken; exit 3", None),
    ] {
        let told = bench.shell(command, Vec::new()).await;
        let output = told["output"].as_str().unwrap();
        match hint {
            Some(hint) => assert!(output.contains("[sandbox] This may be why: ") && output.contains(hint), "{told}"),
            None => assert!(!output.contains("[sandbox]"), "{told}"),
        }
    }
}
