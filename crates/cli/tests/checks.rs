//! Acceptance checks over a real workspace: what they run in turn is part of them, and what they leave behind is none of the
//! work.

use serde_json::{Value, json};

use crate::support::task::{calls, says, task};
use crate::support::{World, of_type};

/// What the script of the model does, and then says that it is done, as often as it is asked.
fn world(files: &[(&str, &str)], acts: &[(&str, &str)]) -> World {
    let world = World::new();
    files.iter().for_each(|(name, text)| drop(world.write(name, text)));
    let acts: String = acts.iter().map(|(tool, args)| calls(tool, args)).collect();
    let claims = says("All tests pass.").repeat(6);
    task(
        &world,
        "builtins = [\"shell\", \"write_file\"]\n[policy]\nallow = [\"shell\", \"write_file\"]\n",
        &(acts + &claims),
    );
    world
}

/// What a check does to the work is undone: the next round judges the work, and not what the last one left of it.
#[test]
fn law_9_a_check_never_passes_on_its_own_wreck() {
    for check in [
        "test ! -f work.txt || { rm work.txt; exit 1; }",
        "grep -q right work.txt || { echo right > work.txt; exit 1; }",
        "test -d made || mkdir made && test -f made/by || { echo x > made/by; exit 1; }",
    ] {
        let world = World::new();
        world.write("work.txt", "wrong\n");
        let more = format!("builtins = []\n[[acceptance]]\nname = \"c\"\ncommand = ['sh', '-c', '''{check}''']\n");
        task(&world, &more, &says("Done.").repeat(6));
        world.run("run --task task.toml --id r").is(4);
        assert_eq!((world.read("work.txt").as_str(), world.path("made").exists()), ("wrong\n", false), "{check}");
        let log = world.log("r");
        let found = of_type(&log, "check.finished");
        assert!(found.iter().all(|line| line["verdict"] == "failed"), "{check}: {found:?}");
        assert!(found[0].to_string().contains("that was set back"), "{check}: {found:?}");
        world.verify("r");
    }
}

const FILES: [(&str, &str); 4] = [
    ("work.txt", "wrong\n"),
    ("check.sh", "set -e\n. ./lib.sh\nproven\n"),
    ("lib.sh", "proven() { sh t/run.sh; }\n"),
    ("t/run.sh", "grep -q right work.txt\n"),
];

#[test]
fn law_9_a_check_whose_helpers_were_edited_proves_nothing() {
    for (check, edit) in [
        ("sh check.sh", "echo true > check.sh"),
        ("sh check.sh", "echo 'proven() { true; }' > lib.sh"),
        ("sh check.sh", "echo true > t/run.sh"),
        ("cd t && cd .. && ./check.sh", "chmod +x check.sh; echo true > t/run.sh"),
        ("cd t; sh run.sh", "mv t away; mkdir t; echo true > t/run.sh"),
        ("sh check.sh", "mv lib.sh real.sh; ln -s real.sh lib.sh; echo 'proven() { true; }' > real.sh"),
        ("sh check.sh", "ln lib.sh other.sh; echo 'proven() { true; }' > other.sh"),
    ] {
        let world = world(&FILES, &[("shell", &format!("{{ command = \"{edit}\" }}"))]);
        let line = format!("run --task task.toml --id r --json --on-ask deny --check '{check}'");
        let last = world.typed(&format!("longrein {line}")).done().last_json();
        assert_eq!((&last["state"], &last["verified"]), (&json!("failed"), &Value::Null), "{check}: {edit}");
        world.verify("r");
    }
}

#[test]
fn what_a_check_runs_and_nobody_edited_is_no_hindrance() {
    let world = world(&FILES, &[("shell", "{ command = \"echo right > work.txt\" }")]);
    let done = world.typed("longrein run --task task.toml --id r --json --on-ask deny --check 'sh check.sh'").done();
    assert_eq!(done.is(0).last_json()["verified"], true);
}

/// A Python test leaves bytecode where nobody wrote an ignore file; and bytecode of the source before an edit, of the same
/// size and second, would be taken for the new.
#[test]
fn what_a_test_run_leaves_in_caches_is_no_change_of_the_work() {
    let files = [
        ("add.py", "def add(a, b):\n    return a - b\n"),
        ("test_add.py", "from add import add\nassert add(2, 3) == 5\n"),
    ];
    let mend =
        "{ command = \"python3 test_add.py; sed -i s/-/+/ add.py; mkdir -p __pycache__; : > __pycache__/x.pyc\" }";
    let world = world(&files, &[("shell", mend)]);
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let check = "mkdir -p __pycache__ .pytest_cache && date > __pycache__/add.cpython-0.pyc && python3 test_add.py";
    let line = format!("longrein run --task task.toml --id r --json --on-ask deny --check '{check}'");
    assert_eq!(world.typed(&line).done().is(0).last_json()["verified"], true);
    assert_eq!(of_type(&world.log("r"), "check.finished").len(), 1);
}
