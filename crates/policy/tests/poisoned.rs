//! Repositories that have git run a program, and the real git: what is allowed unasked runs none.
//!
//! Skipped, saying so, where there is no git.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::{Folder, is_allowed, judge, policy};

/// Commands that read. Each is allowed in a plain repository.
const READING: [&str; 30] = [
    "git status",
    "git status --short --branch",
    "git diff",
    "git diff --stat",
    "git diff --cached",
    "git diff HEAD~1 -- a.txt",
    "git log",
    "git log -p -2",
    "git log --stat --oneline --graph",
    "git log -S one -- a.txt",
    "git show",
    "git show HEAD:a.txt",
    "git show --stat HEAD~1",
    "git blame a.txt",
    "git ls-files",
    "git ls-files -m",
    "git ls-tree HEAD",
    "git grep -n one",
    "git branch -a",
    "git tag -l",
    "git remote -v",
    "git rev-parse HEAD",
    "git rev-list --count HEAD",
    "git describe --always",
    "git stash list",
    "git shortlog -s HEAD",
    "git reflog",
    "git -C . status",
    "git --no-pager diff",
    "cd sub && git status",
];

/// How a repository can be prepared: a name, and shell text that is run in it with `$P`, a program that leaves a mark.
const POISONS: [(&str, &str); 20] = [
    ("monitor", "git config core.fsmonitor \"$P\""),
    ("external diff", "git config diff.external \"$P\""),
    ("diff driver", "git config diff.x.command \"$P\"; echo '*.txt diff=x' > .gitattributes"),
    ("textconv", "git config diff.x.textconv \"$P\"; echo '*.txt diff=x' > .gitattributes"),
    ("clean filter", "git config filter.x.clean \"$P\"; echo '*.txt filter=x' > .gitattributes; touch a.txt"),
    ("process filter", "git config filter.x.process \"$P\"; echo '*.txt filter=x' > .gitattributes; touch a.txt"),
    ("signatures", "git config log.showSignature true; git config gpg.program \"$P\""),
    ("pager", "git config core.pager \"$P\"; git config pager.log \"$P\"; git config pager.diff \"$P\""),
    ("hooks", "mkdir -p h; cp \"$P\" h/post-index-change; git config core.hooksPath h; touch a.txt"),
    (
        "hooks in their usual place, and a file whose time alone has changed",
        "cp \"$P\" .git/hooks/post-index-change; cp \"$P\" .git/hooks/fsmonitor-watchman; git checkout -q a.txt; touch -d 2001-01-01 a.txt",
    ),
    (
        "included",
        "printf '[core]\\nfsmonitor = %s\\n[diff]\\nexternal = %s\\n' \"$P\" \"$P\" > more; git config include.path ../more",
    ),
    (
        "conditionally included",
        "printf '[diff]\\nexternal = %s\\n' \"$P\" > more; git config includeIf.gitdir:/.path ../more",
    ),
    ("alias", "git config alias.status \"!$P\"; git config alias.diff \"!$P\""),
    (
        "a repository inside",
        "git init -q inner; (cd inner; git config core.fsmonitor \"$P\"; git config filter.x.clean \"$P\"; \
         echo '* filter=x' > .gitattributes; echo x > f; git -c filter.x.clean= add f .gitattributes; \
         git -c filter.x.clean= -c core.fsmonitor= commit -qm x; echo y > f); git add inner 2> /dev/null",
    ),
    (
        "a bare repository in a folder",
        "git init -q --bare bare.git; mv bare.git/* sub/; printf '[core]\\nrepositoryformatversion = 0\\nbare = false\\nworktree = .\\nfsmonitor = %s\\n[diff]\\nexternal = %s\\n' \"$P\" \"$P\" > sub/config",
    ),
    ("a repository elsewhere", "mv .git elsewhere; echo 'gitdir: elsewhere' > .git; git config diff.external \"$P\""),
    (
        "a worktree's own settings",
        "git config extensions.worktreeConfig true; git config --worktree diff.external \"$P\"",
    ),
    ("a worktree moved", "git config core.worktree /etc"),
    ("odd spelling", "printf '[DIFF]external=%s\\n' \"$P\" >> .git/config"),
    (
        "a line that goes on",
        "printf '[diff]\\n\\tex\\\\\\nternal = %s\\n[diff] external = %s\\n' \"$P\" \"$P\" >> .git/config",
    ),
];

fn shell(text: &str, folder: &Path, home: &Path, program: &Path) {
    let mut command = Command::new("bash");
    command.arg("-c").arg(text).current_dir(folder).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", home).env("P", program);
    for (name, value) in [
        // as the tool `shell` sets them
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_PAGER", "cat"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
        ("GIT_CONFIG_VALUE_0", "false"),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@example.org"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@example.org"),
    ] {
        command.env(name, value);
    }
    let output = command.stdin(Stdio::null()).output().expect("bash runs");
    drop(output);
}

/// A repository with two commits and a change, in a folder of its own.
fn repository(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("home/empty", "");
    folder.write("w/a.txt", "one\n");
    folder.write("w/sub/b.txt", "two\n");
    let mark = folder.text("mark");
    folder.write("program", &format!("#!/bin/sh\necho ran >> {mark}\ncat 2> /dev/null\nexit 0\n"));
    let begin = "chmod +x \"$P\"; git init -q .; git add .; git commit -qm one; echo more >> a.txt; git commit -qam two; \
                 echo changed >> a.txt";
    shell(begin, &folder.path().join("w"), &folder.path().join("home"), &folder.path().join("program"));
    folder
}

fn has_git() -> bool {
    let found =
        Command::new("git").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: no git");
    }
    found
}

#[test]
fn a_plain_repository_is_read_unasked() {
    if !has_git() {
        return;
    }
    let folder = repository("plain");
    let policy = policy(&folder.text("home"));
    for command in READING {
        let judgement = judge(&policy, command, &folder.text("w"));
        assert!(is_allowed(&judgement), "{command}: {judgement:?}");
    }
}

#[test]
fn what_is_allowed_runs_no_program_of_a_poisoned_repository() {
    if !has_git() {
        return;
    }
    let mut asked = 0;
    let mut ran = 0;
    for (at, (poison, prepare)) in POISONS.iter().enumerate() {
        let folder = repository(&format!("poisoned-{at}"));
        let (workspace, home, program) =
            (folder.path().join("w"), folder.path().join("home"), folder.path().join("program"));
        shell(prepare, &workspace, &home, &program);
        let mark = folder.path().join("mark");
        // preparing it may have run it
        let _ = std::fs::remove_file(&mark);
        let policy = policy(&folder.text("home"));
        for command in READING {
            if !is_allowed(&judge(&policy, command, &folder.text("w"))) {
                asked += 1;
                continue;
            }
            ran += 1;
            shell(command, &workspace, &home, &program);
            assert!(!mark.exists(), "{poison}: {command} ran a program of the repository");
        }
    }
    eprintln!("{ran} commands were allowed and ran nothing of the repository's, {asked} were asked about");
    assert!(asked > 300, "the poison is not noticed: {asked}");
}

/// What the operator's own configuration, and that of the repository, name inside the workspace is obeyed later, whoever
/// writes it; and where git would read it to read, git is not read-only.
#[test]
fn what_the_operators_git_names_in_the_workspace_is_obeyed_later() {
    for (config, files, springs) in [
        ("[core]\n\thooksPath = .hooks\n", &["w/.hooks/pre-commit", "w/.hooks"][..], false),
        ("[core]\n\thooksPath = tools/hooks\n", &["w/tools/hooks/x", "w/tools"], false),
        ("[core]\n\tattributesFile = w/attrs\n", &[][..], false),
        ("[core]\n\tattributesFile = attrs\n", &["w/attrs"], false),
        ("[core]\n\tfsmonitor = ./bin/watch\n", &["w/bin/watch"], true),
        ("[filter \"x\"]\n\tclean = python3 \"scripts/clean.py\" %f\n", &["w/scripts/clean.py"], true),
        ("[includeIf \"gitdir:~/\"]\n\tpath = ../w/team.cfg\n", &["w/team.cfg"], true),
        ("[include]\n\tpath = more\n", &["w/by/more"], false),
        ("[alias]\n\tst = !./run.sh\n", &["w/run.sh"], false),
        ("[merge \"m\"]\n\tdriver = ./merge %A\n", &["w/merge"], false),
        // none of these is there
        ("[core]\n\texcludesFile = .ignored\n", &["w/.ignored"], false),
        ("[core]\n\thooksPath = not/yet/there\n", &["w/not/yet/there/pre-push", "w/not/yet", "w/not"], false),
        ("[include]\n\tpath = ../w/not/yet.cfg\n", &["w/not/yet.cfg", "w/not"], true),
        ("[alias]\n\tx = !sh tools.sh\n", &["w/tools.sh"], false),
        ("[diff \"d\"]\n\ttextconv = python3 conv.py\n", &["w/conv.py"], true),
        ("[blame]\n\tignoreRevsFile = .revs\n", &["w/.revs"], false),
        ("[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n", &[], false),
    ] {
        let folder = Folder::new("named");
        folder.write("w/.git/HEAD", "ref: refs/heads/main\n");
        folder.write("w/a.txt", "x");
        folder.write("home/.gitconfig", config);
        folder.write("home/more", "[core]\n\tsshCommand = ../w/by/more -x\n");
        let policy = policy(&folder.text("home"));
        let workspace = folder.text("w");
        for file in files {
            let path = folder.text(file);
            let inside = file.strip_prefix("w/").unwrap_or_default();
            for command in [format!("echo x > {path}"), format!("cp a.txt {inside}"), format!("mv a.txt ./{inside}")] {
                let judged = judge(&policy, &command, &workspace);
                assert!(is_run_later(&judged), "{config} {command}: {judged:?}");
            }
        }
        assert!(!is_run_later(&judge(&policy, "echo x > ordinary/file", &workspace)), "{config}");
        if has_git() {
            let reads = judge(&policy, "git status", &workspace);
            assert_eq!(!is_allowed(&reads), springs, "{config}: {reads:?}");
        }
    }
}

/// A folder becomes a repository by what lies in it.
#[test]
fn what_makes_a_folder_a_repository_is_obeyed_later() {
    let folder = Folder::new("bare");
    folder.write("w/a.txt", "x");
    folder.write("w/mirror/HEAD", "ref: refs/heads/main\n");
    folder.write("w/plain/config", "x");
    let policy = policy(&folder.text("home"));
    let workspace = folder.text("w");
    for command in [
        "echo 'ref: refs/heads/x' > HEAD",
        "cp a.txt deep/er/HEAD",
        "echo /elsewhere > sub/commondir",
        "echo x > mirror/config",
        "mkdir mirror/refs",
        "cp a.txt mirror/hooks/post-checkout",
        "touch mirror/objects/info/alternates",
        "cd mirror && echo x >> config",
    ] {
        let judged = judge(&policy, command, &workspace);
        assert!(is_run_later(&judged), "{command}: {judged:?}");
    }
    for command in ["echo x > plain/config", "mkdir src/objects", "cp a.txt hooks/x", "touch head.html"] {
        let judged = judge(&policy, command, &workspace);
        assert!(!is_run_later(&judged), "{command}: {judged:?}");
    }
    folder.write("w/odd/HEAD", "ref: refs/heads/main\n");
    folder.write("w/odd/commondir", "../a.txt\n");
    assert!(!is_allowed(&judge(&policy, "cd odd && git log", &workspace)));
}

fn is_run_later(judged: &longrein_ports::Ruled) -> bool {
    matches!(&judged.ruling, longrein_ports::Ruling::Ask { rule, .. } if rule == "run or obeyed later")
}
