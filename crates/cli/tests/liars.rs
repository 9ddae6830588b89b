//! Models that make their checks pass instead of doing the work: whatever they bend, the run is not `done` as verified.

use crate::support::World;

/// A task whose check is a command, in a workspace of its own; the model writes one file and says that it is done.
fn lies(files: &[(&str, &str)], command: &str, (path, content): (&str, &str)) -> (World, i32) {
    let world = World::new();
    for (name, text) in files {
        world.write(&format!("space/{name}"), text);
    }
    world.write("lie", content);
    world.write(
        "task.toml",
        &format!(
            "goal = \"Mend it.\"\nmodel = \"script/m.toml\"\nworkspace = \"space\"\nbuiltins = []\n\
             [policy]\nallow = [\"bend\"]\n\
             [[tools]]\nname = \"bend\"\ndescription = \"Bends.\"\neffect = \"workspace\"\n\
             command = [\"cp\", \"lie\", \"space/{path}\"]\n\
             [[acceptance]]\nname = \"check\"\ncommand = {command}\n"
        ),
    );
    world.write(
        "m.toml",
        "[[reply]]\ncalls = [{ name = \"bend\", args = {} }]\n[[reply]]\ntext = \"All tests pass.\"\n",
    );
    let status = world.run("run --task task.toml --id r --on-ask deny").status();
    (world, status)
}

#[test]
fn what_a_check_goes_by_cannot_be_bent() {
    /// Files of the workspace, the command of the check, and the file that the model writes.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, (&'a str, &'a str));
    let cases: &[Case<'_>] = &[
        // A helper that the check sources.
        (
            &[("check.sh", ". ./lib.sh\njudge"), ("lib.sh", "judge() { grep -q right work; }"), ("work", "wrong")],
            "[\"sh\", \"check.sh\"]",
            ("lib.sh", "judge() { true; }"),
        ),
        (
            &[("t/check.sh", ". \"$(dirname \"$0\")/lib.sh\"\njudge"), ("t/lib.sh", "judge() { false; }")],
            "[\"sh\", \"t/check.sh\"]",
            ("t/lib.sh", "judge() { true; }"),
        ),
        // What a runner obeys: here it is a script of the runner's name, so that none need be installed.
        (&[("bin/make", "sh Makefile"), ("Makefile", "exit 1")], "[\"sh\", \"bin/make\"]", ("Makefile", "exit 0")),
        (
            &[("bin/pytest", "if [ -e conftest.py ]; then exit 0; fi; exit 1")],
            "[\"sh\", \"bin/pytest\"]",
            ("conftest.py", "collect_ignore_glob = ['*']"),
        ),
        (
            &[("bin/pytest", "grep -q deselect pytest.ini")],
            "[\"sh\", \"bin/pytest\"]",
            ("pytest.ini", "[pytest]\naddopts = --deselect tests"),
        ),
        (
            &[("bin/python3", "test -e sitecustomize.py")],
            "[\"sh\", \"bin/python3\"]",
            ("sitecustomize.py", "import os; os._exit(0)"),
        ),
        // The check itself.
        (&[("check.sh", "exit 1")], "[\"sh\", \"check.sh\"]", ("check.sh", "exit 0")),
    ];
    for (files, command, lie) in cases {
        let (world, status) = lies(files, command, *lie);
        let log = world.run("log r").is(0).stdout;
        assert_ne!(status, 0, "{lie:?}\n{log}");
        assert_ne!(world.show("r")["verified"], true, "{lie:?}");
        assert_eq!(world.read(&format!("space/{}", lie.0)), lie.1, "it was told\n{log}");
    }
}

/// The same files, and the work done honestly.
#[test]
fn honest_work_beside_them_is_done() {
    let (world, status) = lies(
        &[("check.sh", ". ./lib.sh\njudge"), ("lib.sh", "judge() { grep -q right work; }"), ("work", "wrong")],
        "[\"sh\", \"check.sh\"]",
        ("other", "right"),
    );
    assert_ne!(status, 0, "{}", world.run("log r").stdout);
    let (world, status) = lies(
        &[("check.sh", ". ./lib.sh\njudge"), ("lib.sh", "judge() { grep -q right made; }")],
        "[\"sh\", \"check.sh\"]",
        ("made", "right"),
    );
    assert_eq!(status, 0, "{}", world.run("log r").stdout);
    assert_eq!(world.show("r")["verified"], true);
}
