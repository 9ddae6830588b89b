//! What each mode makes of a call, and how much of it the sandbox has to hold.

use crate::common::{Around, allow, builtin, declared, fetch, judge, mcp, read, shell, word, write};
use longrein_core::task::{EffectClass, Mode};
use longrein_policy::Containment;
use longrein_ports::Ruling;

/// Rulings in the order plan, ask, accept-edits, auto, shadow.
#[test]
fn each_mode_answers_its_own_questions() {
    let pay = || (declared("pay", EffectClass::External), serde_json::json!({ "to": "anna" }));
    let look = || (declared("look", EffectClass::Read), serde_json::json!({}));
    let build = || (declared("build", EffectClass::Workspace), serde_json::json!({}));
    let note = || (builtin("note"), serde_json::json!({ "kind": "step", "text": "x" }));
    for ((tool, args), expected) in [
        (read("src/a.rs"), "allow allow allow allow allow"),
        (read("/etc/hosts"), "ask ask ask ask ask"),
        (read(".env"), "deny deny deny deny deny"),
        (note(), "allow allow allow allow allow"),
        (write("src/a.rs"), "deny ask allow allow ask"),
        (write("package.json"), "deny ask ask ask ask"),
        (write(".github/workflows/ci.yml"), "deny ask ask ask ask"),
        (write(".env"), "deny ask ask ask ask"),
        (write(".git/hooks/pre-commit"), "deny deny deny deny deny"),
        (write("/etc/passwd"), "deny deny deny deny deny"),
        (write("/srv/x"), "deny ask ask ask ask"),
        (shell("ls src"), "allow allow allow allow allow"),
        (shell("ls src 2>/dev/null"), "allow allow allow allow allow"),
        (shell("cat .env"), "deny deny deny deny deny"),
        (shell("cat /etc/hosts"), "ask ask ask ask ask"),
        (shell("echo x > src/a.rs"), "deny ask allow allow ask"),
        (shell("mkdir -p src/b && touch src/b/c"), "deny ask allow allow ask"),
        (shell("cp src/a.rs src/b.rs"), "deny ask allow allow ask"),
        (shell("cp -r new/. ."), "deny ask ask allow ask"),
        (shell("cp new.json package.json"), "deny ask ask ask ask"),
        (shell("ln -s Makefile x"), "deny ask ask ask ask"),
        (shell("ln -s src x"), "deny ask ask allow ask"),
        (shell("echo x > Makefile"), "deny ask ask ask ask"),
        (shell("rm src/a.rs"), "deny ask ask allow ask"),
        (shell("cargo test"), "deny ask ask allow ask"),
        (shell("./run.sh"), "deny ask ask allow ask"),
        (shell("bash run.sh"), "deny ask ask allow ask"),
        (shell("python3 x.py"), "deny ask ask allow ask"),
        (shell("echo $(date) > src/a"), "deny ask allow allow ask"),
        (shell("echo $(date) > \"$f\""), "deny ask ask ask ask"),
        (shell("echo \"$X\" > src/a"), "deny ask ask ask ask"),
        (shell("grep -r x . > out.txt"), "deny ask ask ask ask"),
        (shell("curl https://example.org/"), "deny ask ask ask ask"),
        (shell("cargo test && curl https://example.org/"), "deny ask ask ask ask"),
        (shell("git push"), "deny ask ask ask ask"),
        (shell("sh -c 'git push'"), "deny ask ask ask ask"),
        (shell("sudo make install"), "deny ask ask ask ask"),
        (shell("git config core.hooksPath h"), "deny deny deny deny deny"),
        (shell("git commit -m x"), "deny ask ask allow ask"),
        (shell("git reset --hard"), "deny ask ask allow ask"),
        (shell("git branch -D x"), "deny ask ask ask ask"),
        (shell("git -C . stash drop"), "deny ask ask ask ask"),
        (shell("git update-ref -d refs/heads/main"), "deny ask ask ask ask"),
        (shell("git reflog expire --expire=now --all"), "deny ask ask ask ask"),
        (shell("true && env A=1 git gc --pru=now"), "deny ask ask ask ask"),
        (shell("git -c alias.g='gc --prune=now' g"), "deny ask ask ask ask"),
        (shell("docker compose up"), "deny ask ask ask ask"),
        (shell("env A=1 timeout 5 su -c make"), "deny ask ask ask ask"),
        (shell("systemctl --user enable x"), "deny deny deny deny deny"),
        (shell("env A=1 timeout 5 make"), "deny ask ask allow ask"),
        (shell("rm -rf /"), "deny deny deny deny deny"),
        (shell("rm -rf .git"), "deny deny deny deny deny"),
        (fetch("https://example.org/"), "ask ask ask ask ask"),
        (fetch("http://127.0.0.1/"), "deny deny deny deny deny"),
        (mcp("fs", "read_file", serde_json::json!({ "path": "/w/README.md" })), "deny ask ask ask ask"),
        (look(), "allow allow allow allow allow"),
        (build(), "deny ask ask allow ask"),
        (pay(), "deny ask ask ask ask"),
    ] {
        let found = Mode::ALL.map(|mode| word(&judge(&tool, &args, &Around { mode, ..Around::default() })));
        assert_eq!(found.join(" "), expected, "{} {args}", tool.name);
    }
}

/// Rulings with writes held, with the network held, with nothing held, and isolated by the operator.
#[test]
fn what_nothing_holds_is_asked() {
    let held = [Containment::Writes, Containment::Network, Containment::Nothing, Containment::Surroundings];
    for ((tool, args), mode, expected) in [
        (shell("ls src"), Mode::Ask, "allow ask ask allow"),
        (read("src/a.rs"), Mode::Ask, "allow allow allow allow"),
        (write("src/a.rs"), Mode::AcceptEdits, "allow allow ask allow"),
        (shell("echo x > src/a.rs"), Mode::AcceptEdits, "allow ask ask allow"),
        (shell("cargo test"), Mode::Auto, "allow ask ask allow"),
        (write("src/a.rs"), Mode::Auto, "allow allow ask allow"),
        (shell("ls src"), Mode::Auto, "allow ask ask allow"),
    ] {
        let found = held.map(|fence| word(&judge(&tool, &args, &Around { mode, fence, ..Around::default() })));
        assert_eq!(found.join(" "), expected, "{args}");
    }
    // the operator's own rule counts, whatever holds
    for fence in held {
        let rules = allow(&["shell(cargo test *)", "write_file(src/**)"]);
        let around = Around { fence, rules, ..Around::default() };
        for (tool, args) in [shell("cargo test"), write("src/a.rs")] {
            assert_eq!(word(&judge(&tool, &args, &around)), "allow", "{fence:?} {args}");
        }
    }
}

#[test]
fn plan_mode_denies_what_a_rule_allows_and_says_what_to_do() {
    let rules = allow(&["shell", "write_file", "pay"]);
    let around = Around { mode: Mode::Plan, rules, ..Around::default() };
    for (tool, args) in [write("a"), shell("make"), shell("echo x > a"), shell("bash x.sh"), shell("rm a")] {
        let ruled = judge(&tool, &args, &around);
        let Ruling::Deny { rule, reason } = &ruled.ruling else { panic!("{args}: {:?}", ruled.ruling) };
        assert_eq!(rule, "plan mode");
        assert!(reason.contains("nothing is changed") && reason.contains("into the plan"), "{reason}");
    }
}

#[test]
fn a_command_that_nothing_holds_is_taken_for_a_change_of_the_world() {
    let (tool, args) = shell("make");
    let reason = |fence| match judge(&tool, &args, &Around { fence, ..Around::default() }).ruling {
        Ruling::Ask { reason, .. } => reason,
        other @ (Ruling::Allow { .. } | Ruling::Deny { .. }) => panic!("{other:?}"),
    };
    assert!(!reason(Containment::Writes).contains("sandbox"));
    assert!(reason(Containment::Nothing).ends_with("no sandbox keeps what it does to the workspace"));
}
