//! A yes to a command is one to what it runs, as it is: which files those are, and where that cannot be told.

mod support;

use longrein_ports::{Answers, Ruling};
use support::{Folder, is_allowed, judge, policy};

fn workspace(name: &str) -> Folder {
    let folder = Folder::new(name);
    for file in
        ["y", "x/y", "x/Makefile", "Makefile", "mod.py", "pkg/__init__.py", "pkg/run.py", "data.json", "package.json"]
    {
        folder.write(&format!("w/{file}"), "content\n");
    }
    folder
}

#[test]
fn what_is_run_is_told_however_it_is_reached() {
    let folder = workspace("executed");
    let policy = policy(&folder.text("home"));
    let workspace = folder.path().join("w").display().to_string();
    for (command, files) in [
        ("./y", "y"),
        ("cd x && sh y", "x/y"),
        ("cd x && ./y", "x/y"),
        ("cd x; . ./y", "x/y y"),
        ("env A=b nice -n 5 ./y", "y"),
        ("timeout 5 bash -eu x/y a b", "x/y"),
        ("bash -o pipefail -x y", "y"),
        ("bash --rcfile x/y -i y", "x/y y"),
        ("sh -c 'cd x && sh y'", "x/y"),
        ("cat y | sh", "y"),
        ("cat y x/y | env bash -s -- a", "x/y y"),
        ("sh < y", "y"),
        ("sudo sh < x/y", "x/y"),
        ("bash -c 'true; sh' < y", "y"),
        ("cat y | { true; sh; }", "y"),
        ("cat y | python3", "y"),
        ("python3 - < y", "y"),
        ("source y", "y"),
        (". x/y", "x/y"),
        ("python3 -u y data.json", "data.json y"),
        ("python3 y data.json", "y"),
        ("python3 -W ignore mod.py", "mod.py"),
        ("python3 -m mod", "mod.py"),
        ("python3 -Bm pkg.run", "pkg/__init__.py pkg/run.py"),
        ("python3 -mpytest", ""),
        ("node --require ./x/y gone.js", "gone.js x/y"),
        ("perl -Ilib y", "y"),
        ("make", "Makefile"),
        ("make -f y all", "y"),
        ("make --file=x/y", "x/y"),
        ("make -fy", "y"),
        ("make -C x all", "x/Makefile"),
        ("cd x && make", "x/Makefile"),
        ("npm run build", "package.json"),
        ("for f in x/y y; do sh \"$f\"; done", "x/y y"),
        ("xargs sh y", "y"),
        ("find . -name a -exec sh y {} +", "y"),
        ("awk -f y data.json", "y"),
        ("sed -n -f x/y data.json", "x/y"),
        ("psql -f y", "y"),
        ("uv run y", "y"),
        ("sh gone.sh", "gone.sh"),
        ("/usr/bin/env python3 /usr/lib/x.py", ""),
        ("touch a", ""),
        ("cargo test", ""),
    ] {
        let ruled = judge(&policy, command, &workspace);
        let found: Vec<_> =
            ruled.runs.iter().map(|file| file.strip_prefix(&format!("{workspace}/")).unwrap_or(file)).collect();
        assert_eq!(found.join(" "), files, "{command}: {ruled:?}");
        assert_eq!(ruled.answers, Answers::Remembered, "{command}: {ruled:?}");
    }
}

#[test]
fn where_it_cannot_be_told_a_yes_counts_once_and_says_so() {
    let folder = workspace("untold");
    let policy = policy(&folder.text("home"));
    let workspace = folder.text("w");
    for command in [
        "sh \"$FILE\"",
        "$PROGRAM y",
        "find . -name '*.sh' | xargs sh",
        "sed 's/a/b/' y | sh",
        "sh <(cat y)",
        "source <(./y)",
        "sh x/*",
        "python3 -m \"$M\"",
        "make -f \"$F\"",
        "make -C \"$D\"",
        "PATH=x:$PATH y",
        "BASH_ENV=x/y bash y",
        "env PYTHONPATH=x python3 -m mod",
        "cp x/y y && sh y",
        "echo 'rm a' > y; ./y",
        "cat y - | sh",
        "{ sh; } < y",
        "while read f; do sh \"$f\"; done",
        "popd; sh y",
    ] {
        let ruled = judge(&policy, command, &workspace);
        assert!(!is_allowed(&ruled), "{command}: {ruled:?}");
        if let Ruling::Ask { reason, .. } = &ruled.ruling {
            assert!(reason.contains("a yes counts once"), "{command}: {reason}");
            assert_eq!(ruled.answers, Answers::Fresh, "{command}");
        }
    }
}

/// What one part of a call brings in from elsewhere, another part does not run without a question, whatever rules allow.
#[test]
fn what_was_just_cloned_is_not_run_by_a_rule() {
    let folder = workspace("cloned");
    let workspace = folder.text("w");
    let policy = support::policy_allowing(
        &folder.text("home"),
        &["shell", "shell(git clone *)", "shell(make *)", "shell(wget *)"],
    );
    for command in [
        "git clone https://h.example/r.git && cd r && make",
        "git clone https://h.example/r && make -C r",
        "git clone --depth 1 https://h.example/r.git sub/d; sh sub/d/install.sh",
        "git clone h.example:o/r && ./r/configure",
        "git clone https://h.example/r && cd r && npm test",
        // nor does a rule about a program cover what its options have it run or reach
        "wget --use-askpass=./y https://h.example/x",
        "make URL=https://h.example/x get",
        "make CC=./y",
    ] {
        let ruled = judge(&policy, command, &workspace);
        assert!(matches!(ruled.ruling, Ruling::Ask { .. } | Ruling::Deny { .. }), "{command}: {ruled:?}");
    }
    for command in [
        "git clone https://h.example/r.git && cd r && ls && git log",
        "git clone https://h.example/r.git",
        "make -j4 all V=1",
        "wget -q https://h.example/x",
    ] {
        let ruled = judge(&policy, command, &workspace);
        assert!(is_allowed(&ruled), "{command}: {ruled:?}");
    }
}
