//! What the analysis allows, run by the real bash among programs that only write down how they were called: no program runs
//! that was not judged, with no other words, and nothing is written.
//!
//! The seed is fixed; `LONGREIN_NIGHTLY=1` plays many more, `LONGREIN_FUZZ_SEED=N` one.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use longrein_policy::EffectKind;
use support::{Folder, is_allowed, judge, policy};

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).unwrap_or(0) % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// Programs that write down how they were called. `bash` and the wrappers are the real ones.
const STUBS: [&str; 27] = [
    "cat", "ls", "head", "tail", "grep", "wc", "sort", "uniq", "cut", "sed", "awk", "rm", "touch", "mv", "cp", "curl",
    "python3", "make", "git", "diff", "tee", "sudo", "ssh", "chmod", "stat", "rg", "jq",
];
const REAL: [&str; 9] = ["bash", "sh", "timeout", "nice", "env", "nohup", "xargs", "find", "stdbuf"];

/// A word, spelt in one of the ways a shell reads.
fn word(dice: &mut Dice, depth: usize) -> String {
    let plain = dice.pick(&[
        "a.txt",
        "src",
        "src/b.txt",
        "README.md",
        "-n",
        "-l",
        "x y",
        "c d.txt",
        ".",
        "'",
        "-",
        "é.txt",
        "1",
        "a;b",
        "$x",
        "--",
    ]);
    match dice.roll(22) {
        0..=6 => match plain.contains([' ', '\'', ';', '$']) {
            true => format!("'{}'", plain.replace('\'', "'\\''")),
            false => plain.to_owned(),
        },
        7 => format!("'{}'", plain.replace('\'', "'\\''")),
        8 => format!("\"{}\"", plain.replace('$', "\\$")),
        9 => plain.chars().fold(String::new(), |mut text, letter| {
            let _ = write!(text, "\\{letter}");
            text
        }),
        10 => dice
            .pick(&["*.txt", "src/*", "a?txt", "[ab].txt", "*", "src/*.txt", "nothing/*", "*.none", ".*"])
            .to_owned(),
        11 => dice.pick(&["{a,b}.txt", "src/{b,c}.txt", "{1..3}", "{a}", "a{", "}"]).to_owned(),
        12 => dice
            .pick(&[
                "$x",
                "${x}",
                "\"$x\"",
                "$HOME",
                "\"${y:-a.txt}\"",
                "$1",
                "$?",
                "$((1+1))",
                "$f",
                "\"$f\"",
                "${f}",
                "$n",
                "\"$1\"",
                "\"$2\"",
                "$((n+1))",
            ])
            .to_owned(),
        13 => dice.pick(&["~", "~/x", "~root", "a~"]).to_owned(),
        14 => dice.pick(&["$'a.txt'", "$'\\x61.txt'", "$\"a.txt\"", "$'a\\'b'"]).to_owned(),
        15 if depth > 0 => format!("$({})", command(dice, depth - 1)),
        16 if depth > 0 => format!("\"$({})\"", command(dice, depth - 1)),
        17 if depth > 0 => format!("<({})", command(dice, depth - 1)),
        18 => format!("{}\\\n{}", "a.", "txt"),
        19 => format!("a'{}'b", dice.pick(&[".", " ", "\"", "\\"])),
        20 => dice.pick(&["..", "../x", "/etc/hosts", ".env", "src/../a.txt", "link", "link/x"]).to_owned(),
        _ => plain.replace(['\'', ' ', ';', '$'], "z"),
    }
}

fn simple(dice: &mut Dice, depth: usize) -> String {
    let mut text = String::new();
    if dice.roll(8) == 0 {
        text += dice.pick(&["LC_ALL=C ", "X=1 ", "PATH=src ", "TZ=UTC ", "A=b C=d "]);
    }
    if dice.roll(6) == 0 {
        text += dice.pick(&[
            "timeout 5 ",
            "nice ",
            "env ",
            "command ",
            "nohup ",
            "time ",
            "env -i ",
            "exec ",
            "stdbuf -oL ",
            "nice -n 5 ",
        ]);
    }
    let name = dice.pick(&[
        "cat", "ls", "head", "tail", "grep", "wc", "sort", "uniq", "echo", "echo", "printf", "cd", "true", "test",
        "cut", "sed", "awk", "rm", "touch", "curl", "git", "diff", "stat", "c'a't", "\\ls", "l\"s\"", "find", "xargs",
        "rg", "jq", "pwd",
    ]);
    text += name;
    match name {
        "git" => text += dice.pick(&[" status", " diff", " log -p", " push", " -C src status", " -c a=b log"]),
        "sed" => text += dice.pick(&[" -n 1p", " s/a/b/", " 's/a/b/w x'", " -i s/a/b/", " -e p -e d"]),
        "awk" => text += dice.pick(&[" '{print $1}'", " '{print > \"x\"}'", " 'BEGIN{system(\"ls\")}'", " -F, '/a/'"]),
        "find" => {
            text += dice.pick(&[
                " . -name '*.txt'",
                " . -type f -name '*.txt' -exec cat {} \\;",
                " . -exec rm {} +",
                " src -delete",
                " src -type f -name 'b*' -print0",
            ])
        }
        "xargs" => text += dice.pick(&[" cat", " -0 wc", " rm", " -n1 echo"]),
        "jq" => text += dice.pick(&[" .", " -r '.a'"]),
        _ => {}
    }
    for _ in 0..dice.roll(4) {
        text.push(' ');
        text += &word(dice, depth);
    }
    match dice.roll(10) {
        0 => text += dice.pick(&[" 2>/dev/null", " >/dev/null", " 2>&1", " &>/dev/null", " <a.txt", " < src/b.txt"]),
        1 => text += dice.pick(&[" > out", " >> out", " &> out", " >| out", " <> out", " >&out", " 3>out"]),
        2 => text += dice.pick(&[" <<< a", " <<< 'a b'", " <<< $x", " <<< \"$(ls)\""]),
        3 => text += dice.pick(&[" <<E\na\nE\n", " <<'E'\n$(rm a)\nE\n", " <<E\n$(rm a)\nE\n", " <<-E\n\tx\n\tE\n"]),
        4 => text += dice.pick(&[" # remark", " #x; rm a", "#y"]),
        _ => {}
    }
    text
}

fn command(dice: &mut Dice, depth: usize) -> String {
    if depth == 0 {
        return simple(dice, 0);
    }
    let inner = depth - 1;
    match dice.roll(32) {
        0..=7 => simple(dice, depth),
        8 => format!("{} | {}", command(dice, inner), simple(dice, inner)),
        9 => format!("{} && {}", command(dice, inner), command(dice, inner)),
        10 => format!("{} || {}", command(dice, inner), command(dice, inner)),
        11 => format!("{}; {}", command(dice, inner), command(dice, inner)),
        12 => format!("{}\n{}", command(dice, inner), command(dice, inner)),
        13 => format!("( {} )", command(dice, inner)),
        14 => format!("{{ {}; }}", command(dice, inner)),
        15 => format!("! {}", command(dice, inner)),
        16 => format!("if {}; then {}; else {}; fi", simple(dice, inner), command(dice, inner), command(dice, inner)),
        17 | 18 => {
            let values = (0..1 + dice.roll(3)).map(|_| word(dice, 0)).collect::<Vec<_>>().join(" ");
            let joint = dice.pick(&["; ", "\n", " ; "]);
            format!("for f in {values}{joint}do {}; done", command(dice, inner))
        }
        19 => format!("[[ {} {} ]] && {}", dice.pick(&["-f", "-n", "-d", "! -e"]), word(dice, 0), command(dice, inner)),
        20 => format!("bash -c '{}'", command(dice, inner).replace('\'', "'\\''")),
        21 => format!("cd src && {}", command(dice, inner)),
        22 => format!("{} & {}", simple(dice, inner), simple(dice, inner)),
        23 | 24 => {
            let (joint, name) = (dice.pick(&["&&", "||"]), dice.pick(&["-f", "-n", "! -e", "( -z"]));
            let end = if name.starts_with('(') { " )" } else { "" };
            let (one, other) = (word(dice, inner), word(dice, 0));
            let sign = dice.pick(&["==", "!=", "=~", "-eq", "<"]);
            format!("[[ {one} {sign} {other} {joint} {name} {}{end} ]] && {}", word(dice, 0), command(dice, inner))
        }
        25 | 26 => {
            let (value, pattern) = (word(dice, inner), word(dice, 0));
            let (open, end) = (dice.pick(&["", "("]), dice.pick(&[";;", ";&"]));
            let (one, other) = (command(dice, inner), command(dice, inner));
            format!("case {value} in {open}{pattern}|b) {one} {end}\n*) {other};; esac")
        }
        27 => {
            let (end, on) = (dice.pick(&["n<2", "n < 2", "n<x", ""]), dice.pick(&["n++", "n+=1", "n=n+1", "n=x"]));
            format!("for ((n=0; {end}; {on})); do {}; done", command(dice, inner))
        }
        28 => {
            let (test, on) = (
                dice.pick(&["[ $n -lt 2 ]", "[ \"$n\" -lt 2 ]", "((n + 0 - 2))", "[[ $n -lt 2 ]]", "((n < 2))"]),
                dice.pick(&["n=$((n+1))", "((n++))", "((n+=1))", "n=$(ls | wc -l)", "n=x"]),
            );
            format!("n=0; while {test}; do {}; {on}; done", command(dice, inner))
        }
        29 | 30 => {
            let (name, body) = (dice.pick(&["g", "show", "ls", "g-h", "cd"]), command(dice, inner));
            let (one, other) = (word(dice, inner), word(dice, 0));
            let before = dice.pick(&["", "true && ", "if ls; then ls; fi; ", "x=1; "]);
            format!("{before}{name}() {{ {body}; }}; {name} {one} {other}")
        }
        _ => dice
            .pick(&[
                "f() { ls; }; f",
                "n=1; cat <<E\na $n ${n}\nE",
                "n=$(ls); cat <<E > out\n$n\nE",
                "if ls; then g() { rm a; }; else g() { ls; }; fi; g",
                "g() { cat \"$1\"; }; g a.txt; g .env",
                "g() { $1 $2; }; g rm a.txt",
                "case a in a) ls;; esac",
                "while false; do ls; done",
                "eval ls",
                "trap ls EXIT",
                "((1+1))",
                "a[0]=1",
            ])
            .to_owned(),
    }
}

/// Every file below, with what it holds; of links, that they are some.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").filter_map(Result::ok) {
            let path = entry.path();
            let kind = entry.file_type().expect("a kind");
            let held = if kind.is_file() { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
            if kind.is_dir() {
                todo.push(path.clone());
            }
            found.insert(path.display().to_string(), held);
        }
    }
    found
}

fn prepare(folder: &Folder) {
    for (name, text) in [
        ("w/a.txt", "a\n"),
        ("w/b.txt", "b\n"),
        ("w/src/b.txt", "b\n"),
        ("w/src/c.txt", "c\n"),
        ("w/README.md", "x\n"),
        ("w/c d.txt", "x\n"),
        ("w/.env", "K=V\n"),
        ("w/-n", "x\n"),
        ("home/x", "x\n"),
        ("x", "x\n"),
    ] {
        folder.write(name, text);
    }
    std::os::unix::fs::symlink("..", folder.path().join("w/link")).expect("a link");
    for name in STUBS {
        // one line for each call: the words with their ends marked. Each command finds the programs under a name of its own,
        // and what it leaves running in the background writes to its own log
        let text = format!(
            "#!/bin/sh\nIFS=$(printf '\\001')\nprintf '%s\\002\\n' \"{name}${{1+$IFS}}$*\" >> \"${{0%/*}}.log\"\n"
        );
        folder.write(&format!("bin/{name}"), &text);
        let path = folder.path().join("bin").join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it may be run");
    }
    for name in REAL {
        let real = ["/usr/bin", "/bin"].iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
        if let Some(real) = real {
            std::os::unix::fs::symlink(real, folder.path().join("bin").join(name)).expect("a link");
        }
    }
}

/// How often a seed was allowed something, and everything that went wrong.
fn play(seed: u64, commands: usize) -> (usize, usize, Vec<String>) {
    let folder = Folder::new(&format!("fuzz-{seed}"));
    prepare(&folder);
    let policy = policy(&folder.text("home"));
    let workspace = folder.text("w");
    let before = (contents(&folder.path().join("w")), contents(&folder.path().join("home")));
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut allowed, mut wrong, mut tried) = (0, Vec::new(), Vec::new());
    for _ in 0..commands {
        let text = command(&mut dice, 3);
        let judgement = judge(&policy, &text, &workspace);
        if !is_allowed(&judgement) {
            continue;
        }
        allowed += 1;
        let programs = folder.path().join(format!("run-{allowed}"));
        std::os::unix::fs::symlink("bin", &programs).expect("a link");
        let mut bash = Command::new("timeout");
        bash.args(["5", "/bin/bash", "-c", &text]).current_dir(&workspace).env_clear();
        bash.env("PATH", &programs).env("HOME", folder.path().join("home")).env("x", "rm").env("f", "rm -rf");
        let _ = bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let after = (contents(&folder.path().join("w")), contents(&folder.path().join("home")));
        if after != before {
            wrong.push(format!("seed {seed}: {text:?} wrote something"));
            return (allowed, 0, wrong);
        }
        tried.push((text, judgement));
    }
    let mut calls = 0;
    // what runs in the background may be late
    std::thread::sleep(Duration::from_millis(300));
    for (at, (text, judgement)) in tried.iter().enumerate() {
        let log = folder.path().join(format!("run-{}.log", at + 1));
        let ran = std::fs::read_to_string(&log).unwrap_or_default();
        let seen: Vec<&str> = judgement
            .effects
            .iter()
            .filter(|effect| effect.kind == EffectKind::Run)
            .map(|effect| effect.what.as_str())
            .collect();
        for call in ran.split("\u{2}\n").filter(|call| !call.is_empty()) {
            calls += 1;
            let called = call.replace('\u{1}', " ");
            let name = called.split(' ').next().unwrap_or_default();
            // patterns and what find finds stand in the effects as they were written
            let fits = |what: &&str| {
                **what == called
                    || (what.split(' ').next() == Some(name) && what.contains(['*', '?', '[', '{', '…', '\\']))
                    || (what.split(' ').next() == Some(name) && text.contains("find ") && what.ends_with("x.txt"))
                    || (what.split(' ').next() == Some(name) && text.contains("<("))
            };
            if !seen.iter().any(fits) {
                wrong.push(format!("seed {seed}: {text:?} ran {called:?}, seen were {seen:?}"));
            }
            if ["rm", "touch", "mv", "cp", "curl", "python3", "make", "tee", "sudo", "ssh", "chmod"].contains(&name) {
                wrong.push(format!("seed {seed}: {text:?} ran {called:?} unasked"));
            }
        }
    }
    (allowed, calls, wrong)
}

#[test]
fn an_allowed_command_does_what_the_analysis_saw_and_nothing_else() {
    if !Path::new("/bin/bash").exists() {
        eprintln!("skipped: no bash");
        return;
    }
    let nightly = std::env::var_os("LONGREIN_NIGHTLY").is_some();
    let one = std::env::var("LONGREIN_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds: Vec<u64> = one.map_or_else(|| (1..=if nightly { 100 } else { 2 }).collect(), |seed| vec![seed]);
    let (mut allowed, mut calls, mut wrong) = (0, 0, Vec::new());
    for seed in seeds {
        let (more, called, mistakes) = play(seed, COMMANDS);
        allowed += more;
        calls += called;
        wrong.extend(mistakes);
    }
    eprintln!("{allowed} commands were allowed and run; they called {calls} programs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(allowed > 100 && calls > 50, "too few are allowed to try anything: {allowed}, {calls}");
}

/// Commands of one seed.
const COMMANDS: usize = 800;
