//! A workspace's own configuration: trusted by content, and only ever stricter.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::World;
use crate::support::task::{calls, says, task};

const DENIES: &str = "permission_mode = \"ask\"\n[policy]\ndeny = [\"shell(touch *)\"]\n";

fn world() -> World {
    let world = World::new();
    let replies = calls("shell", "{ command = \"touch made\" }") + &says("done");
    task(&world, "builtins = [\"shell\"]\n[policy]\nallow = [\"shell\"]\n", &replies);
    world.write(".longrein/config.toml", DENIES);
    world
}

/// A FIFO that nobody writes to.
fn pipe(file: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(file).status().unwrap().success());
}

fn made(world: &World) -> bool {
    let path = world.path("made");
    let there = path.exists();
    let _ = fs::remove_file(path);
    there
}

#[test]
fn law_8_a_workspace_configuration_counts_only_as_it_was_trusted() {
    let world = world();
    let untrusted = world.run("run --task task.toml --id one").is(0);
    assert_eq!(untrusted.stderr.matches("is not trusted, and is not read").count(), 1, "{}", untrusted.stderr);
    assert!(made(&world), "it is data");
    world.run("run --task task.toml --id quiet --quiet").is(0);
    assert!(made(&world));

    let trusted = world.run("trust --yes").is(0);
    assert!(trusted.stdout.contains("denies: shell(touch *)"), "{}", trusted.stdout);
    assert!(trusted.stdout.contains("permission mode at most: ask"), "{}", trusted.stdout);
    let register = world.home().join("trusted.json");
    assert_eq!(register.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(world.home())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("trusted") })
            .count(),
        1,
        "no draft is left"
    );
    let done = world.run("run --task task.toml --id two --permission-mode auto").is(0);
    assert!(!made(&world));
    let file = world.path(".longrein/config.toml").canonicalize().unwrap();
    assert!(done.stderr.contains(&format!("1 deny (task file, {})", file.display())), "{}", done.stderr);
    let line = "{\"id\":1,\"tool\":\"shell\",\"args\":{\"command\":\"touch x\"}}";
    assert!(world.typed("longrein policy check - --allow shell").stdin(line).done().is(0).stdout.contains("deny"));

    world.write(".longrein/config.toml", &DENIES.replace("touch", "rm"));
    let changed = world.run("run --task task.toml --id three").is(0);
    let said = "changed since you trusted it, and is not read; `longrein trust ";
    assert_eq!(changed.stderr.matches(said).count(), 1, "{}", changed.stderr);
    assert!(made(&world));
    assert!(world.run("trust --list").is(0).stdout.starts_with("changed"));
    assert!(world.run("doctor").stdout.contains("changed since you trusted it"));
    world.write(".longrein/config.toml", DENIES);
    world.run("run --task task.toml --id four").is(0);
    assert!(!made(&world), "as it was trusted, it counts again");
    assert!(world.run("trust --list").is(0).stdout.starts_with("as trusted"));

    world.run("trust --forget .").is(0);
    world.run("trust --forget .").is(66);
    world.run("run --task task.toml --id five").is(0);
    assert!(made(&world));
    assert!(world.run("trust --list --json").is(0).last_json().as_array().unwrap().is_empty());
}

#[test]
fn law_8_what_is_trusted_tightens_a_run_that_is_there() {
    let world = world();
    fs::remove_dir_all(world.path(".longrein")).unwrap();
    let replies = calls("shell", "{ command = \"touch made\" }") + &says("done");
    task(
        &world,
        "permission_mode = \"auto\"\nbuiltins = [\"shell\"]\n[policy]\nask = [\"shell(touch *)\"]\n",
        &replies,
    );
    world.run("run --task task.toml --id r --on-ask wait").is(3);
    world.run("approve r a1").is(0);
    world.write(".longrein/config.toml", DENIES);
    world.run("trust --yes .").is(0);
    world.run("resume r").is(0).says("permission mode: ask");
    assert!(!made(&world));
    assert_eq!(world.show("r")["permission_mode"], "ask");
}

#[test]
fn law_8_a_workspace_can_be_told_nothing_that_loosens() {
    let world = world();
    for (text, named) in [
        ("[policy]\nallow = [\"*\"]\n", "policy.allow"),
        ("permission_mode = \"auto\"\n", "permission_mode = \"auto\""),
        ("[sandbox]\nmode = \"external\"\n", "sandbox.mode = \"external\""),
        ("model = \"openai/mine\"\n", "model"),
    ] {
        world.write(".longrein/config.toml", text);
        world.run("trust").is(78).says(named);
        world.run("trust --list").is(0).says("no workspace's configuration is trusted");
        // Not even looked into before it is trusted.
        world.run("run --task task.toml").is(0);
        assert!(made(&world));
    }
    world.write(".longrein/config.toml", "[sandbox]\nmode = \"required\"\n");
    world.run("trust --yes").is(0);
}

#[test]
fn law_8_links_are_no_configuration() {
    let world = world();
    world.run("trust --yes").is(0);
    fs::rename(world.path(".longrein"), world.path("real")).unwrap();
    symlink("real", world.path(".longrein")).unwrap();
    world.run("trust").is(78).says("is a link");
    world.run("run --task task.toml").is(78).says("it cannot be read: .longrein is a link");
    fs::remove_file(world.path(".longrein")).unwrap();
    fs::create_dir(world.path(".longrein")).unwrap();
    symlink("../real/config.toml", world.path(".longrein/config.toml")).unwrap();
    world.run("trust").is(78).says("is a link");
    world.run("run --task task.toml").is(78).says("it cannot be read: config.toml is a link");
    let put = |make: &dyn Fn(&std::path::Path)| {
        let _ = fs::remove_file(world.path(".longrein/config.toml"));
        make(&world.path(".longrein/config.toml"));
        world.run("trust").is(78);
        world.run("run --task task.toml").is(78).says(".longrein/config.toml: it cannot be read");
        world.run("run --task task.toml --quiet").is(78);
    };
    put(&|file| symlink("nowhere", file).unwrap());
    put(&|file| pipe(file));
    put(&|file| fs::create_dir(file).unwrap());
    assert!(!made(&world), "nothing was run");
    fs::remove_dir_all(world.path(".longrein")).unwrap();
    world.run("trust").is(66).says("there is nothing to trust");
}

#[test]
fn law_8_another_folder_with_the_same_content_is_not_trusted() {
    let world = world();
    world.run("trust --yes").is(0);
    let other = world.path("other");
    fs::create_dir_all(other.join(".longrein")).unwrap();
    fs::copy(world.path(".longrein/config.toml"), other.join(".longrein/config.toml")).unwrap();
    world.run("run --task task.toml -C other").is(0).says("is not trusted");
    // The folder that was trusted, and not what stands in its place.
    fs::rename(world.path(".longrein"), world.path("moved")).unwrap();
    world.run("run --task task.toml").is(0);
    assert!(made(&world));
}

#[test]
fn law_8_a_register_that_cannot_be_believed_stops_the_run() {
    let world = world();
    world.run("trust --yes").is(0);
    let register = world.home().join("trusted.json");
    let text = fs::read_to_string(&register).unwrap();
    fs::write(&register, "{").unwrap();
    world.run("run --task task.toml").is(78).says("trusted.json");
    world.run("trust").is(78);
    fs::write(&register, text).unwrap();
    fs::set_permissions(&register, fs::Permissions::from_mode(0o666)).unwrap();
    world.run("run --task task.toml").is(78).says("others can write it");
    assert!(!made(&world));
}

#[test]
fn law_8_a_run_cannot_trust() {
    let world = world();
    let done = world.typed("longrein trust").env("LONGREIN_INSIDE", "r@x").done().is(78);
    assert!(done.stderr.contains("a run cannot operate Longrein"), "{}", done.stderr);
    assert!(!world.home().join("trusted.json").exists());
}

#[test]
fn what_would_be_trusted_is_shown_and_asked() {
    const SERVERS: &str = r#"{"mcpServers": {"shop": {"command": "python3", "args": ["a b.py"], "env": {"K": "v"}}}}"#;
    let world = world();
    world.write(".mcp.json", SERVERS);
    let shown = world.run("trust").is(64).says("--yes");
    for said in ["starts python3 'a b.py' for the server shop, with K=v", "denies: shell(touch *)", "is not trusted"] {
        assert!(shown.stdout.contains(said), "{said}: {}", shown.stdout);
    }
    world.run("trust --json").is(64);
    world.run("trust --list").is(0).says("no workspace's configuration is trusted");
    let doctor = world.run("doctor").stdout;
    assert_eq!(doctor.matches("is not trusted, and is not read").count(), 2, "{doctor}");

    // One that could not be trusted keeps the other from it.
    world.write(".longrein/config.toml", "model = \"openai/x\"\n");
    world.run("trust --yes").is(78);
    world.run("trust --list").is(0).says("no workspace's configuration is trusted");
    world.write(".longrein/config.toml", DENIES);

    let on_terminal = |answer: &str| {
        let mut terminal = world.typed("longrein trust").on_terminal(120);
        terminal.wait_for("Trust this? [y/N]");
        terminal.type_in(answer);
        let (status, written) = terminal.end();
        assert!(status.success(), "{written}");
        written
    };
    assert!(on_terminal("n\n").contains("nothing is trusted"));
    world.run("trust --list").is(0).says("no workspace's configuration is trusted");
    assert!(on_terminal("y\n").contains("is trusted as it is now"));
    assert_eq!(world.run("trust --list").is(0).stdout.matches("as trusted").count(), 2);
    assert_eq!(world.run("doctor").stdout.matches("is trusted and counts").count(), 2);

    // What is trusted already is not asked again.
    assert!(world.run("trust").is(0).stdout.contains("is trusted already"));
    world.write(".mcp.json", &SERVERS.replace("a b.py", "evil.py"));
    assert!(world.run("doctor").stdout.contains(".mcp.json changed since you trusted it, and is not read"));
    let changed = world.run("trust").is(64).stdout;
    assert!(changed.contains("- starts python3 'a b.py' for the server shop"), "{changed}");
    assert!(changed.contains("+ starts python3 evil.py for the server shop"), "{changed}");
    assert!(!changed.contains("+ denies"), "{changed}");
    let told = world.run("trust --yes --json").is(0).json();
    assert_eq!((told.len(), told[0]["servers"][0].as_str()), (2, Some("shop")), "{told:?}");
}
