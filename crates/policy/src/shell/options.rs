//! Options and settings by which a program is told to run another one.
//!
//! An allow rule with `*` means the program it spells, not whatever an option has it run. Known are short options of common
//! programs, and long ones by what their name says: what such an option is given is run, as a word of its own.

use super::word::Word;

/// The programs that options of this command name, each with the option. A value that cannot be told is one as well.
pub(super) fn programs(base: &str, words: &[Word]) -> Vec<(String, Word)> {
    let mut found = Vec::new();
    let short =
        SHORT.iter().filter(|(names, _)| names.contains(&base)).flat_map(|(_, options)| options.iter().copied());
    let short: Vec<&str> = short.collect();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        at += 1;
        let text = word.text.as_str();
        if text == "--" {
            break;
        }
        if is_made_by_variables(base)
            && let Some((name, value)) = text.split_once('=')
            && !text.starts_with('-')
            && !is_plain_value(value)
        {
            found.push((name.to_owned(), Word { text: value.to_owned(), kind: word.kind }));
            continue;
        }
        if let Some(option) = short.iter().find(|option| text.strip_prefix(**option).is_some()) {
            let glued = text.strip_prefix(option).unwrap_or_default();
            let glued = glued.strip_prefix('=').unwrap_or(glued);
            match (glued.is_empty(), option.len() > 2) {
                (true, _) => {
                    found.extend(words.get(at).map(|value| ((*option).to_owned(), value.clone())));
                    at += 1;
                }
                // `-exec` and not `-execute`
                (false, true) if !text.contains('=') => {}
                (false, _) => {
                    found.push(((*option).to_owned(), Word { text: glued.to_owned(), kind: word.kind }));
                }
            }
            continue;
        }
        let Some(long) = text.strip_prefix("--") else { continue };
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        if !says_program(base, name) {
            continue;
        }
        match value {
            Some(value) if is_plain_value(value) => {}
            Some(value) => found.push((format!("--{name}"), Word { text: value.to_owned(), kind: word.kind })),
            None => {
                // a flag has nothing behind it but the next option
                let next = words.get(at).filter(|next| !next.text.starts_with('-'));
                found.extend(next.map(|value| (format!("--{name}"), value.clone())));
            }
        }
    }
    found
}

/// Whether the name of a long option says that its value is run, or says what is.
fn says_program(base: &str, name: &str) -> bool {
    // what these are told in words is of their own language
    const LANGUAGES: [&str; 5] = ["psql", "mysql", "mariadb", "sqlite3", "duckdb"];
    if LANGUAGES.contains(&base) && matches!(name, "command" | "execute") {
        return false;
    }
    let is_config = name == "config" && matches!(base, "curl" | "cargo" | "git" | "wget" | "ssh" | "npm");
    let parts = name.split(['-', '_', '.']);
    is_config || parts.into_iter().any(|part| PARTS.contains(&part))
}

fn is_made_by_variables(base: &str) -> bool {
    matches!(base, "make" | "gmake" | "bmake" | "just" | "ninja" | "scons" | "rake" | "waf" | "task" | "go-task")
}

/// A switch or a number, which is no program.
fn is_plain_value(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_digit())
        || matches!(
            value.to_ascii_lowercase().as_str(),
            "y" | "n"
                | "yes"
                | "no"
                | "true"
                | "false"
                | "on"
                | "off"
                | "debug"
                | "release"
                | "auto"
                | "never"
                | "always"
        )
}

/// Parts of names of long options.
const PARTS: [&str; 42] = [
    "pre",
    "bin",
    "askpass",
    "exec",
    "execute",
    "command",
    "cmd",
    "program",
    "rsh",
    "shell",
    "pager",
    "editor",
    "browser",
    "hook",
    "hooks",
    "hookspath",
    "pack",
    "wrapper",
    "launcher",
    "runner",
    "linker",
    "action",
    "script",
    "preprocessor",
    "compressor",
    "decompressor",
    "filter",
    "helper",
    "sshcommand",
    "proxycommand",
    "interpreter",
    "toolexec",
    "vettool",
    "executable",
    "opener",
    "plugin",
    "plugins",
    "loader",
    "require",
    "eval",
    "init",
    "rcfile",
];

/// Short ones, and long ones with one dash.
const SHORT: [(&[&str], &[&str]); 15] = [
    (&["wget"], &["-e"]),
    (&["curl"], &["-K"]),
    (&["rsync"], &["-e", "-M"]),
    (&["tar", "bsdtar", "gtar"], &["-I", "-F"]),
    (&["zip"], &["-TT"]),
    (&["git"], &["-u", "-x", "-O"]),
    (&["ssh", "scp", "sftp"], &["-o", "-S", "-F"]),
    (&["go"], &["-exec", "-toolexec", "-vettool", "-overlay"]),
    (&["gcc", "g++", "clang", "cc", "c++"], &["-wrapper", "-B", "-fplugin", "-specs"]),
    (&["man"], &["-P", "-H"]),
    (&["node", "nodejs", "ts-node", "tsx", "mocha", "ruby"], &["-r"]),
    (&["java", "javac"], &["-javaagent:", "-agentpath:", "-agentlib:"]),
    (&["7z", "7za"], &["-si"]),
    (&["mvn", "gradle", "gradlew", "mvnw"], &["-I", "-s"]),
    (&["pytest", "py.test"], &["-p", "-c"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::word::Kind;

    #[test]
    fn options_that_name_programs_are_known_by_what_they_say() {
        for (line, found) in [
            ("wget --use-askpass=./x https://h.example", "--use-askpass ./x"),
            ("wget --use-askpass ./x", "--use-askpass ./x"),
            ("wget -e use_askpass=./x u", "-e use_askpass=./x"),
            ("make URL=https://h.example/x get", "URL https://h.example/x"),
            ("make SHELL=./x -j4 V=1 all", "SHELL ./x"),
            ("tar --to-command=./x -xf a", "--to-command ./x"),
            ("tar --checkpoint-action=exec=./x -xf a", "--checkpoint-action exec=./x"),
            ("tar -I ./x -xf a", "-I ./x"),
            ("rsync --rsh=./x a h:b", "--rsh ./x"),
            ("rsync -e./x a h:b", "-e ./x"),
            ("git clone --upload-pack ./x u", "--upload-pack ./x"),
            ("git clone -u ./x u", "-u ./x"),
            ("go test -exec ./x ./...", "-exec ./x"),
            ("sort --compress-program=./x a", "--compress-program ./x"),
            ("npm test --script-shell=./x", "--script-shell ./x"),
            ("curl -K cfg u", "-K cfg"),
            ("curl --config cfg u", "--config cfg"),
            ("cargo test --config build.x=1", "--config build.x=1"),
            ("zip a.zip a -T -TT ./x", "-TT ./x"),
            // neither programs nor told to be
            ("cargo test --workspace --release -p api", ""),
            ("make -j8 V=1 DEBUG=yes all", ""),
            ("curl -sSfL -o out https://h.example", ""),
            ("pytest -q --maxfail=1 tests/test_a.py", ""),
            ("go test -run TestX ./...", ""),
            ("npm test -- --exec x", ""),
            ("psql --command select", ""),
        ] {
            let words: Vec<Word> =
                line.split(' ').map(|text| Word { text: text.to_owned(), kind: Kind::Literal }).collect();
            let told = programs(&words[0].text, &words);
            let told: Vec<_> = told.iter().map(|(option, value)| format!("{option} {}", value.text)).collect();
            assert_eq!(told.join(", "), found, "{line}");
        }
    }
}
