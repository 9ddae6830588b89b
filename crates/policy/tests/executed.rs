//! A yes to a command is one to what it runs, as it is: which files those are, and where that cannot be told.

mod support;

use longrein_policy::RunAs;
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
        ("[ -f y ] && . ./y", "y"),
        ("if test -r x/y; then source x/y; fi", "x/y"),
        ("case a in a) ./y;; *) sh x/y;; esac", "x/y y"),
        ("for ((i=0; i<2; i++)); do ./y; done", "y"),
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
        "xargs -a y sh",
        "xargs -a data.json -I{} sh -c '{}'",
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

/// Whoever has to know all that is run is told what scripts run as well, read as a shell reads them.
#[test]
fn scripts_are_read_with_their_functions_their_folder_and_their_words() {
    let folder = workspace("scripts");
    for (file, text) in [
        ("more.sh", "true\n"),
        ("t/more.sh", "true\n"),
        ("t/by_dirname.sh", ". \"$(dirname \"$0\")/more.sh\"\n"),
        ("t/by_cut.sh", ". \"${0%/*}/more.sh\"\n"),
        ("t/by_source.sh", "here=$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)\nsh \"$here/more.sh\"\n"),
        ("t/by_cd.sh", "cd \"$(dirname \"$0\")\" || exit\nsh more.sh\n"),
        ("t/by_word.sh", "sh \"$1\"\n"),
        ("t/lib.sh", "run() { sh \"$1\"; }\nall() { cd t; run more.sh; }\n"),
        ("calls.sh", ". t/lib.sh\nall\n"),
        ("gives.sh", ". ./t/lib.sh\nrun t/by_cut.sh\n"),
        ("set.sh", "for f in t/more.sh more.sh; do run=sh; $run $f; done\n"),
        ("hash", "#!/usr/bin/env bash\n./t/more.sh\n"),
        ("hash.py", "#!/usr/bin/env python3\nimport os\n"),
        (
            "long.sh",
            &("if a; then b; fi\n".repeat(40) + "here=${0%/*}\ncd t\nsh by_cut.sh\nsh \"$here/t/by_word.sh\"\n"),
        ),
    ] {
        folder.write(&format!("w/{file}"), text);
    }
    let policy = policy(&folder.text("home"));
    let workspace = folder.path().join("w").display().to_string();
    for (command, files) in [
        ("sh t/by_dirname.sh", "t/by_dirname.sh t/more.sh"),
        ("sh t/by_cut.sh", "t/by_cut.sh t/more.sh"),
        ("bash t/by_source.sh", "t/by_source.sh t/more.sh"),
        ("cd / && bash W/t/by_source.sh", "t/by_source.sh t/more.sh"),
        // a cd may fail
        ("sh t/by_cd.sh", "more.sh t/by_cd.sh t/more.sh"),
        ("sh t/by_word.sh more.sh", "more.sh t/by_word.sh"),
        ("sh calls.sh", "calls.sh more.sh t/lib.sh t/more.sh"),
        // whoever sources functions may call them all
        ("sh gives.sh", "gives.sh more.sh t/by_cut.sh t/lib.sh t/more.sh"),
        ("sh set.sh", "more.sh set.sh t/more.sh"),
        ("./hash", "hash t/more.sh"),
        ("./hash.py", ""),
        ("cat t/by_word.sh | sh -s", "t/by_word.sh"),
        ("sh ./long.sh", "long.sh t/by_cut.sh t/by_word.sh"),
    ] {
        let command = ["sh", "-c", &command.replace('W', &workspace)].map(str::to_owned);
        let found = policy.run_by(&command, &workspace, &workspace).files.into_iter();
        let scripts = found.filter(|(file, run_as)| *run_as == RunAs::Script && std::path::Path::new(file).exists());
        let below: Vec<String> =
            scripts.map(|(file, _)| file.strip_prefix(&format!("{workspace}/")).unwrap_or(&file).to_owned()).collect();
        assert_eq!(below.join(" "), files, "{}", command[2]);
    }
}
