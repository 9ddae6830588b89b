//! `find`, and what it hands on to other commands.

use super::word::{Kind, Word};
use crate::path;

/// What a `find` looks for.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Where it looks.
    pub(super) starts: Vec<Word>,
    /// It looks for some files, not for all.
    pub(super) is_narrow: bool,
    /// A file it may find, where all it finds is like it: no link, no secret by its name, below one folder.
    pub(super) example: Option<Word>,
    /// The names it prints end with a NUL.
    pub(super) ends_names: bool,
}

impl Found {
    pub(super) fn of(words: &[Word]) -> Self {
        let rest = words.get(1..).unwrap_or_default();
        let options = rest
            .iter()
            .take_while(|word| matches!(word.text.as_str(), "-H" | "-P" | "-L" | "-O1" | "-O2" | "-O3"))
            .count();
        let is_test =
            |word: &&Word| !word.text.starts_with('-') && !matches!(word.text.as_str(), "(" | "!" | ")" | ",");
        let mut starts: Vec<Word> = rest.iter().skip(options).take_while(is_test).cloned().collect();
        let tests = rest.get(options + starts.len()..).unwrap_or_default();
        if starts.is_empty() {
            starts.push(Word { text: ".".to_owned(), kind: Kind::Literal });
        }
        // up to what it runs: words behind that are not its own
        let own =
            tests.iter().take_while(|word| !matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir"));
        let own: Vec<&str> = own.map(|word| word.text.as_str()).collect();
        let value = |name: &str| own.iter().position(|test| *test == name).and_then(|at| own.get(at + 1)).copied();
        let all = |pattern: &str| pattern.chars().all(|letter| matches!(letter, '*' | '.' | '/' | '?'));
        let narrows = |name: &&str| {
            matches!(
                *name,
                "-newer"
                    | "-size"
                    | "-empty"
                    | "-user"
                    | "-group"
                    | "-perm"
                    | "-inum"
                    | "-nouser"
                    | "-regex"
                    | "-iregex"
                    | "-lname"
            ) || (name.len() > 5 && name.starts_with('-') && (name.ends_with("time") || name.ends_with("min")))
                || (matches!(*name, "-name" | "-iname" | "-path" | "-ipath" | "-wholename")
                    && !value(name).is_some_and(all))
        };
        let chooses = own.iter().any(|test| matches!(*test, "-o" | "-or" | "," | "!" | "-not" | "-follow" | "-L"));
        let follows = rest.iter().take(options).any(|word| word.text == "-L");
        let example = match (starts.as_slice(), value("-name"), value("-type")) {
            ([start], Some(name), Some("f"))
                if start.kind == Kind::Literal
                    && !chooses
                    && !follows
                    && !path::may_be_secret(name)
                    && !name.contains(['[', '\\', '/']) =>
            {
                let name = name.replace(['*', '?'], "x");
                Some(Word { text: format!("{}/{name}", start.text), kind: Kind::Literal })
            }
            _ => None,
        };
        Self { starts, is_narrow: own.iter().any(narrows), example, ends_names: own.contains(&"-print0") }
    }
}

/// The commands that `find` runs, with what it finds in their words.
pub(super) fn commands(words: &[Word], found: &Found) -> Vec<Vec<Word>> {
    let mut commands = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            // elsewhere a relative path means something else
            let example = found.example.as_ref().filter(|_| word.text == "-exec");
            let command: Vec<Word> =
                words.by_ref().take_while(|word| !matches!(word.text.as_str(), ";" | "+")).cloned().collect();
            let before = command.iter().position(|word| word.text.contains("{}")).unwrap_or(command.len());
            let example = example.filter(|_| takes_files(command.get(..before).unwrap_or_default()));
            let named = |word: &Word| match (word.text.contains("{}"), example) {
                (false, _) => vec![word.clone()],
                // several may be given at once
                (true, Some(example)) if word.text == "{}" => vec![example.clone(), example.clone()],
                (true, _) => vec![Word::unknown()],
            };
            commands.push(command.iter().flat_map(named).collect());
        }
    }
    commands
}

/// Whether a further word of this command would be a file, and not a program, a pattern or a command, which names of files
/// must not become.
pub(super) fn takes_files(command: &[Word]) -> bool {
    let base = command.first().and_then(Word::known).unwrap_or_default();
    let has_operand = command.iter().skip(1).any(|word| word.kind == Kind::Literal && !word.text.starts_with('-'));
    match base {
        "cat" | "head" | "tail" | "wc" | "ls" | "stat" | "file" | "nl" | "tac" | "sort" | "md5sum" | "sha1sum"
        | "sha256sum" | "sha512sum" | "cksum" | "du" | "basename" | "dirname" | "realpath" | "readlink" | "echo"
        | "strings" | "hexdump" | "od" => true,
        "grep" | "egrep" | "fgrep" | "sed" | "awk" | "jq" | "rg" => has_operand,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(line: &str) -> Found {
        let words: Vec<Word> =
            line.split(' ').map(|text| Word { text: text.to_owned(), kind: Kind::Literal }).collect();
        Found::of(&words)
    }

    #[test]
    fn what_find_looks_for_is_read() {
        for (line, starts, is_narrow, example) in [
            ("find", ".", false, None),
            ("find . -type f", ".", false, None),
            ("find / ~ -name *", "/ ~", false, None),
            ("find src -type f -name *.rs", "src", true, Some("src/x.rs")),
            ("find src -name *.rs", "src", true, None),
            ("find -L src -type f -name *.rs", "src", true, None),
            ("find src -type f -name *.rs -o -name x", "src", true, None),
            ("find src -type f -name .env", "src", true, None),
            ("find src -type f -name config -exec cat {} ;", "src", true, None),
            ("find a b -type f -name *.rs", "a b", true, None),
            ("find . -mtime +3", ".", true, None),
            ("find . -exec rm -name x ;", ".", false, None),
        ] {
            let found = find(line);
            let shown: Vec<&str> = found.starts.iter().map(|word| word.text.as_str()).collect();
            assert_eq!(shown.join(" "), starts, "{line}");
            assert_eq!(found.is_narrow, is_narrow, "{line}");
            assert_eq!(found.example.as_ref().map(|word| word.text.as_str()), example, "{line}");
        }
    }
}
