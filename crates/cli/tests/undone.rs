//! After any failed step workspace and facts equal the state before it, byte for byte, and the user's git is untouched: random
//! trees, random steps, the real driver and real snapshots. `LONGREIN_SEEDS=N` plays more of them; a failure names its seed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::task::{calls, says, task};
use crate::support::{World, of_type};

/// Kind, permissions, and content or target of everything below a folder, git's own files included.
type Picture = BTreeMap<Vec<u8>, (char, u32, Vec<u8>)>;

fn picture(root: &Path) -> Picture {
    let mut found = Picture::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let mode = about.permissions().mode() & 0o7777;
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let what = if about.is_symlink() {
                ('l', 0, fs::read_link(&path).unwrap().into_os_string().into_vec())
            } else if about.is_dir() {
                open.push(path);
                ('d', mode, Vec::new())
            } else {
                ('f', mode, fs::read(&path).unwrap())
            };
            found.insert(name, what);
        }
    }
    found
}

/// The same numbers for the same seed, everywhere.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.next() % from.len() as u64;
        &from[usize::try_from(at).unwrap()]
    }

    fn name(&mut self, from: &[&'static [u8]]) -> &'static [u8] {
        let name: &&'static [u8] = self.pick(from);
        name
    }
}

/// Names of every sort, folders first.
const FOLDERS: [&[u8]; 6] = [b"d", b"d/e", b"empty", b".hid", b"f\xff\xfe", b"d/sp ace"];
const NAMES: [&[u8]; 10] =
    [b"a", b"b.sh", b"-dash", b"n\xff", b"l\nm", b"d/a", b"d/e/deep", b".hid/x", b"f\xff\xfe/\xe9", b"d/sp ace/q'uote"];
const MODES: [u32; 6] = [0o644, 0o755, 0o600, 0o444, 0o711, 0o664];

fn below(root: &Path, name: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(name))
}

/// A tree with a repository in which things are committed, staged, stashed and untracked.
fn plant(root: &Path, chance: &mut Chance) {
    let git = |line: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]);
        let done = command.args(line).current_dir(root).env("HOME", root).output().unwrap();
        assert!(done.status.success(), "git {line:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    fs::write(root.join("kept"), "kept\n").unwrap();
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "one"]);
    fs::write(root.join("kept"), "stashed\n").unwrap();
    git(&["stash", "-q"]);
    for folder in FOLDERS {
        if !chance.next().is_multiple_of(3) {
            let _ = fs::create_dir_all(below(root, folder));
        }
    }
    for name in NAMES {
        let path = below(root, name);
        if chance.next().is_multiple_of(4) || !path.parent().unwrap().is_dir() {
            continue;
        }
        match chance.next() % 5 {
            0 => symlink(OsStr::from_bytes(chance.name(&NAMES)), &path).unwrap(),
            _ => {
                let size = chance.next() % 300;
                let bytes: Vec<u8> = (0..size).map(|_| chance.next().to_le_bytes()[0]).collect();
                fs::write(&path, bytes).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(*chance.pick(&MODES))).unwrap();
            }
        }
        if chance.next().is_multiple_of(4) {
            git(&["add", "-A"]);
            git(&["commit", "-q", "--allow-empty", "-m", "more"]);
        }
    }
    if chance.next().is_multiple_of(2) {
        fs::write(root.join("staged"), "staged\n").unwrap();
        git(&["add", "staged"]);
        fs::write(root.join("staged"), "and changed\n").unwrap();
    }
    for folder in FOLDERS {
        let path = below(root, folder);
        if chance.next().is_multiple_of(4) && path.is_dir() {
            fs::set_permissions(&path, fs::Permissions::from_mode(*chance.pick(&[0o755, 0o700, 0o775]))).unwrap();
        }
    }
}

/// A name as a shell writes it.
fn quoted(name: &[u8]) -> String {
    let octal: String = name.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("\"./$(printf '{octal}')\"")
}

/// What a step does to the workspace: lines of shell, each of which may fail.
fn step(chance: &mut Chance) -> String {
    let mut lines = String::from("cd space\n");
    for _ in 0..4 + chance.next() % 12 {
        let any = |chance: &mut Chance| {
            let folder = chance.next().is_multiple_of(3);
            quoted(if folder { chance.name(&FOLDERS) } else { chance.name(&NAMES) })
        };
        let (one, other, file) = (any(chance), any(chance), quoted(chance.name(&NAMES)));
        lines.push_str(&match chance.next() % 12 {
            0 => format!("printf %s {} > {file}", chance.next()),
            1 => format!("printf %s {} >> {file}", chance.next()),
            2 => format!("rm -rf {one}"),
            3 => format!("mkdir -p {one}"),
            4 => format!("mv {one} {other}"),
            5 => format!("ln -sfn {one} {other}"),
            6 => format!("ln -f {file} {other}"),
            7 => format!("chmod {:o} {file}", chance.pick(&MODES)),
            8 => format!("cp -r {one} {other}"),
            9 => format!("rm -rf {one}; ln -s nowhere {one}"),
            10 => format!("rm -rf {one}; mkdir {one}; echo x > {one}/new"),
            _ => format!("chmod 700 {one}; touch -d @1 {one}"),
        });
        lines.push_str(" 2>/dev/null\n");
    }
    lines.push_str("echo '{\"ok\":true}'\n");
    lines
}

fn play(seed: u64) {
    let mut chance = Chance(seed);
    let world = World::new();
    let space = world.path("space");
    fs::create_dir(&space).unwrap();
    plant(&space, &mut chance);
    let before = picture(&space);
    let checks = ["[\"false\"]", "[\"sh\", \"-c\", \"echo x > space/wrote; mkdir -p space/made/by; exit 3\"]"];
    let mut tools =
        String::from("workspace = \"space\"\nbuiltins = []\n[policy]\nallow = [\"step0\", \"step1\", \"step2\"]\n");
    let mut replies = String::new();
    for number in 0..3 {
        world.write(&format!("step{number}.sh"), &step(&mut chance));
        tools.push_str(&format!(
            "[[tools]]\nname = \"step{number}\"\ndescription = \"Steps.\"\neffect = \"workspace\"\n\
             command = [\"sh\", \"step{number}.sh\"]\ncheck = {}\nprovides = [\"fact{number}\"]\n",
            chance.pick(&checks)
        ));
        replies.push_str(&calls(&format!("step{number}"), "{}"));
    }
    task(&world, "", &(replies + &says("Done.")));
    let file = world.read("task.toml").replace("workspace = \".\"\n", "");
    world.write("task.toml", &(file + &tools));
    world.run("run --task task.toml --id r");
    let log = world.log("r");
    let told = of_type(&log, "action.rolled_back").len();
    assert_eq!(told, 3, "seed {seed}: every step is undone: {:?}", of_type(&log, "action.not_undone"));
    let after = picture(&space);
    let gone: Vec<_> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    let odd: Vec<_> = after.iter().filter(|(name, what)| before.get(*name) != Some(what)).collect();
    assert!(gone.is_empty() && odd.is_empty(), "seed {seed}: gone {gone:?}, odd {odd:?}");
    assert!(of_type(&log, "fact.set").is_empty(), "seed {seed}: a fact of a failed step");
    assert_eq!(world.show("r")["facts"].as_object().map_or(0, |facts| facts.len()), 0, "seed {seed}");
    world.verify("r");
}

#[test]
fn law_12_after_any_failed_step_everything_is_as_it_was() {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("skipped: there is no git");
        return;
    }
    let seeds = std::env::var("LONGREIN_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    (0..seeds).for_each(play);
}
