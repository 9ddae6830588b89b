//! `find`, and what it hands on to other commands.

use super::table::LISTERS;
use super::word::{Kind, Word};
use crate::path::{self, World};

/// What a `find` looks for.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Where it looks.
    pub(super) starts: Vec<Word>,
    /// It looks for some files, not for all.
    pub(super) is_narrow: bool,
    /// A file it may find, where all it finds is like it: no link, no secret by its name, below one folder.
    pub(super) example: Option<Word>,
    /// Some name it may find, where it looks below one folder that is told and follows no links.
    pub(super) named: Option<Word>,
    /// The names it prints end with a NUL.
    pub(super) ends_names: bool,
    /// Patterns of names it looks for, without those it passes over.
    pub(super) names: Vec<String>,
    /// The one pattern of names that all it finds is like, where it looks in folders that are told and follows no links.
    looks_for: Option<String>,
    /// What it finds may be named by a way that the file system no longer has, or by the names in a folder.
    by_other_ways: bool,
}

/// Commands that print the names of files and nothing else, each on a line: `grep -rl`, `git ls-files`, `ls *.rs`.
fn prints_names(words: &[Word]) -> Option<Found> {
    let literal = |word: &Word| matches!(word.kind, Kind::Literal | Kind::Glob);
    let (first, rest) = words.split_first().filter(|_| words.iter().all(literal))?;
    let (options, operands): (Vec<&Word>, Vec<&Word>) = rest.iter().partition(|word| word.text.starts_with('-'));
    let has = |names: &[&str]| options.iter().any(|word| names.contains(&word.text.as_str()));
    let letters = |letters: &str| {
        let short = options.iter().filter(|word| !word.text.starts_with("--"));
        short.flat_map(|word| word.text.chars().skip(1)).any(|letter| letters.contains(letter))
    };
    let long = |plain: &[&str]| {
        options.iter().all(|word| !word.text.starts_with("--") || plain.iter().any(|name| word.text.starts_with(name)))
    };
    let included = |name: &str| options.iter().find_map(|word| word.text.strip_prefix(name).map(str::to_owned));
    let is_quiet = |only: &str| {
        let short = options.iter().filter(|word| !word.text.starts_with("--"));
        short.flat_map(|word| word.text.chars().skip(1)).all(|letter| only.contains(letter))
    };
    match first.known()? {
        "grep" | "egrep" | "fgrep"
            if letters("lL")
                && is_quiet("lLrinwxEFIsv")
                && long(&["--include=", "--exclude=", "--exclude-dir=", "--ignore-case"]) =>
        {
            let (_, files) = operands.split_first()?;
            if !letters("r") {
                return Found::of_operands(files);
            }
            let several = options.iter().filter(|word| word.text.starts_with("--include=")).count() > 1;
            let name = included("--include=").filter(|_| !several).unwrap_or_else(|| "*".to_owned());
            Found::below(files, &name)
        }
        "rg" if letters("l") && is_quiet("linwxFSs") && long(&["--ignore-case", "--fixed-strings"]) => {
            Found::below(operands.split_first()?.1, "*")
        }
        "ls" if is_quiet("1tr") && long(&[]) && !operands.is_empty() => {
            Found::of_operands(&operands).filter(|_| operands.iter().all(|word| word.kind == Kind::Glob))
        }
        "git" if operands.first().is_some_and(|verb| verb.text == "ls-files") && options.is_empty() => {
            let found = match operands.get(1..)? {
                [] => Found::below(&[], "*"),
                // git's own pattern, of names in all folders
                [name] if name.kind == Kind::Literal && name.text.starts_with("*.") && !name.text.contains('/') => {
                    Found::below(&[], &name.text)
                }
                folders
                    if folders
                        .iter()
                        .all(|word| word.kind == Kind::Literal && !word.text.contains(['*', '?', '['])) =>
                {
                    Found::below(folders, "*")
                }
                _ => None,
            };
            found.filter(|_| !has(&["-z"]))
        }
        _ => None,
    }
}

/// Whether a command hands on some of the lines it is given, each as it is.
pub(super) fn keeps_lines(words: &[Word]) -> bool {
    let Some((first, rest)) = words.split_first().filter(|_| words.iter().all(|word| word.kind == Kind::Literal))
    else {
        return false;
    };
    let only = |letters: &str| {
        let options = rest.iter().filter(|word| word.text.starts_with('-'));
        options
            .flat_map(|word| word.text.chars().skip(1))
            .all(|letter| letters.contains(letter) || letter.is_ascii_digit())
    };
    let operands = rest.iter().filter(|word| !word.text.starts_with('-'));
    match first.known().unwrap_or_default() {
        "head" | "tail" | "shuf" => {
            only("n") && operands.clone().all(|word| word.text.bytes().all(|byte| byte.is_ascii_digit()))
        }
        "sort" | "uniq" => only("rnuVfd") && operands.count() == 0,
        "grep" | "egrep" | "fgrep" => only("vEFiwxP") && operands.count() == 1,
        _ => false,
    }
}

impl Found {
    /// What a command hands on, if those are names of files.
    pub(super) fn handed_on(words: &[Word]) -> Option<Self> {
        match words.first().and_then(Word::known)? {
            "find" => Some(Self::of(words)),
            _ => prints_names(words),
        }
    }

    /// Names like this one in these folders and all below them.
    pub(super) fn below(folders: &[&Word], name: &str) -> Option<Self> {
        let here = Word { text: ".".to_owned(), kind: Kind::Literal };
        let starts: Vec<Word> = match folders {
            [] => vec![here],
            folders => folders.iter().map(|folder| (*folder).clone()).collect(),
        };
        let told = starts.iter().all(|start| start.kind == Kind::Literal) && !name.contains(['[', '\\', '{', '/']);
        told.then(|| Self {
            starts,
            is_narrow: true,
            example: None,
            named: None,
            ends_names: false,
            names: vec![name.to_owned()],
            looks_for: Some(name.to_owned()),
            by_other_ways: true,
        })
    }

    /// The names that one pattern stands for.
    fn of_operands(operands: &[&Word]) -> Option<Self> {
        let [operand] = operands else { return None };
        let (folder, name) = operand.text.rsplit_once('/').unwrap_or((".", &operand.text));
        let folder = Word { text: folder.to_owned(), kind: Kind::Literal };
        let plain =
            operand.kind == Kind::Glob && !folder.text.contains(['*', '?', '[', '\\']) && !folder.text.is_empty();
        Self::below(&[&folder], name).filter(|_| plain)
    }

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
        let named = match starts.as_slice() {
            [start] if start.kind == Kind::Literal && !follows && !own.contains(&"-follow") => {
                Some(Word { text: format!("{}/x", start.text), kind: Kind::Literal })
            }
            _ => None,
        };
        let groups = own.split(|test| matches!(*test, "-o" | "-or" | ","));
        let names = groups.filter(|group| !group.contains(&"-prune")).flat_map(|group| {
            let is_not = |at: usize| {
                at.checked_sub(1).and_then(|at| group.get(at)).is_some_and(|not| matches!(*not, "!" | "-not"))
            };
            group.iter().enumerate().filter_map(move |(at, test)| {
                let by_name = matches!(*test, "-name" | "-iname" | "-path" | "-ipath" | "-wholename") && !is_not(at);
                by_name.then(|| group.get(at + 1).copied()).flatten()
            })
        });
        let names: Vec<String> = names.map(|name| name.rsplit('/').next().unwrap_or_default().to_owned()).collect();
        let told = !chooses && !follows && starts.iter().all(|start| start.kind == Kind::Literal);
        let looks_for = match (names.as_slice(), own.contains(&"-name")) {
            ([name], true) if !name.contains(['[', '\\']) => Some(name.clone()),
            ([], false) if !own.iter().any(|test| test.ends_with("name") || test.ends_with("path")) => {
                Some("*".to_owned())
            }
            _ => None,
        };
        let looks_for = looks_for.filter(|_| told);
        let ends_names = own.contains(&"-print0");
        let is_narrow = own.iter().any(narrows);
        Self { starts, is_narrow, example, named, ends_names, names, looks_for, by_other_ways: false }
    }

    /// What `fd` looks for and hands on: a pattern, then folders.
    pub(super) fn of_fd(words: &[Word]) -> Self {
        let own: Vec<&Word> = words.iter().skip(1).take_while(|word| !is_exec_of_fd(&word.text)).collect();
        const VALUED: [&str; 12] =
            ["-t", "-e", "-d", "-E", "-S", "-c", "-j", "--type", "--extension", "--max-depth", "--exclude", "--size"];
        let is_value =
            |at: usize| at > 0 && own.get(at - 1).is_some_and(|before| VALUED.contains(&before.text.as_str()));
        let operands = own.iter().enumerate().filter(|(at, word)| !word.text.starts_with('-') && !is_value(*at));
        let mut operands = operands.map(|(_, word)| (*word).clone());
        let pattern = operands.next();
        let mut starts: Vec<Word> = operands.collect();
        if starts.is_empty() {
            starts.push(Word { text: ".".to_owned(), kind: Kind::Literal });
        }
        let pattern = pattern.map(|word| word.text.replace(['^', '$', '\\'], "")).filter(|text| text != ".");
        let names: Vec<String> = pattern.into_iter().collect();
        Self {
            starts,
            is_narrow: !names.is_empty(),
            example: None,
            named: None,
            ends_names: false,
            names,
            looks_for: None,
            by_other_ways: false,
        }
    }

    /// The first of its names that is one of files which usually hold secrets.
    pub(super) fn secret(&self) -> Option<&str> {
        let is_secret = |name: &&String| ["", "x"].iter().any(|rest| path::is_secret(&name.replace(['*', '?'], rest)));
        self.names.iter().find(is_secret).map(String::as_str)
    }

    /// Whether one of its names is that of a folder that guards the run, or of git's.
    pub(super) fn guarded(&self) -> Option<&str> {
        self.names.iter().find(|name| path::is_protected(name)).map(String::as_str)
    }

    /// The files that it finds now, within bounds. None are told where it chooses by more than a name.
    pub(super) fn files(&self, world: &dyn World, folder: &str) -> Vec<String> {
        let Some(pattern) = self.looks_for.as_deref() else { return Vec::new() };
        let mut todo: Vec<String> = self.starts.iter().map(|start| path::absolute(folder, &start.text)).collect();
        let mut files = Vec::new();
        let mut left = LOOKS_MAX;
        while let Some(at) = todo.pop() {
            for name in world.names(&at).unwrap_or_default() {
                let Some(fewer) = left.checked_sub(1) else { return files };
                left = fewer;
                let file = format!("{at}/{name}");
                let is_found = path::glob_matches(&format!("x{pattern}"), &format!("x{name}"));
                if is_found && files.len() < FILES_MAX && world.names(&file).is_none() {
                    files.push(file);
                } else if world.link(&file).is_none() {
                    todo.push(file);
                }
            }
        }
        files.sort_unstable();
        files
    }

    /// What it finds, as patterns.
    pub(super) fn patterns(&self, folder: &str) -> Vec<String> {
        let Some(pattern) = self.looks_for.as_deref() else { return Vec::new() };
        self.starts.iter().map(|start| format!("{}/**/{pattern}", path::absolute(folder, &start.text))).collect()
    }

    /// A file like all it finds, from looking: no link, no secret, no name that would be read as several words. None: it
    /// cannot be told, or there are very many files.
    pub(super) fn looked_at(&self, world: &dyn World, workspace: &str, folder: &str, splits: Splits) -> Option<Word> {
        let pattern = self.looks_for.as_deref()?;
        let mut left = LOOKS_MAX;
        let mut todo = Vec::new();
        for start in &self.starts {
            let start = path::absolute(folder, &start.text);
            path::within(workspace, &start)?;
            if !splits.leaves(&start) {
                return None;
            }
            // where nothing can be listed its name alone tells; a folder is read with all in it by `grep -r` too
            let tells_nothing = if pattern == "*" { start == workspace } else { path::may_be_secret(pattern) };
            if world.names(&start).is_none() && tells_nothing {
                return None;
            }
            todo.push(start);
        }
        while let Some(at) = todo.pop() {
            let Some(names) = world.names(&at) else {
                if world.is_crowded(&at) {
                    return None;
                }
                continue;
            };
            for name in names {
                left = usize::checked_sub(left, 1)?;
                let file = format!("{at}/{name}");
                if !splits.leaves(&name) {
                    return None;
                }
                // as find compares, a star stands for a dot too
                let is_found = path::glob_matches(&format!("x{pattern}"), &format!("x{name}"));
                let is_link = world.link(&file).is_some();
                if is_found && (is_link || path::is_secret(&file) || name.starts_with('-')) {
                    return None;
                }
                if self.by_other_ways && (is_link || is_found && pattern != "*" && world.names(&file).is_some()) {
                    return None;
                }
                if !is_link {
                    todo.push(file);
                }
            }
        }
        let name = pattern.replace(['*', '?'], "x");
        let start = self.starts.first()?;
        Some(Word { text: format!("{}/{name}", start.text), kind: Kind::Literal })
    }
}

/// Whether `xargs` takes this letter as it stands.
fn is_of_one_word(letter: char) -> bool {
    !letter.is_whitespace() && !matches!(letter, '\'' | '"' | '\\')
}

/// Whether names are handed on as they are, or as the words they make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Splits {
    Never,
    AtSpace,
    /// The same, and the words are taken for patterns of names.
    ForPatterns,
}

impl Splits {
    /// Whether a name stays one word, and itself.
    fn leaves(self, name: &str) -> bool {
        match self {
            Splits::Never => true,
            Splits::AtSpace => name.chars().all(is_of_one_word),
            Splits::ForPatterns => {
                name.chars().all(|letter| is_of_one_word(letter) && !matches!(letter, '*' | '?' | '['))
            }
        }
    }
}

fn is_exec_of_fd(text: &str) -> bool {
    matches!(text, "-x" | "-X" | "--exec" | "--exec-batch")
}

/// The command that `fd` runs, with a word for what it finds.
pub(super) fn command_of_fd(words: &[Word]) -> Option<Vec<Word>> {
    let at = words.iter().position(|word| is_exec_of_fd(&word.text))?;
    let command = words.get(at + 1..)?.iter().take_while(|word| word.text != ";");
    let mut command: Vec<Word> =
        command.map(|word| if word.text.contains('{') { Word::unknown() } else { word.clone() }).collect();
    if !command.iter().any(Word::is_unknown) {
        command.push(Word::unknown());
    }
    Some(command)
}

/// Whether a command tells no more of a file than that it is there.
pub(super) fn only_names(command: &[Word]) -> bool {
    let base = command.first().and_then(Word::known).unwrap_or_default().rsplit('/').next().unwrap_or_default();
    matches!(
        base,
        "" | "ls"
            | "stat"
            | "echo"
            | "printf"
            | "basename"
            | "dirname"
            | "realpath"
            | "readlink"
            | "du"
            | "test"
            | "rm"
            | "unlink"
            | "rmdir"
            | "touch"
            | "chmod"
            | "chown"
            | "file"
            | "shred"
            | "trash"
            | "true"
            | "git"
    )
}

/// The commands that `find` runs, with what it finds in their words. `named`: enough for those that only list.
pub(super) fn commands(words: &[Word], example: Option<&Word>, named: Option<&Word>) -> Vec<Vec<Word>> {
    let mut commands = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            // elsewhere a relative path means something else
            let example = example.filter(|_| word.text == "-exec");
            let command: Vec<Word> =
                words.by_ref().take_while(|word| !matches!(word.text.as_str(), ";" | "+")).cloned().collect();
            let before = command.iter().position(|word| word.text.contains("{}")).unwrap_or(command.len());
            let before = command.get(..before).unwrap_or_default();
            let lists = word.text == "-exec"
                && before.first().and_then(Word::known).is_some_and(|base| LISTERS.contains(&base));
            let example = example.or(named.filter(|_| lists)).filter(|_| takes_files(before) && !writes(before));
            let named = |word: &Word| match (word.text.contains("{}"), example) {
                (false, _) => vec![word.clone()],
                // several may be given at once
                (true, Some(example)) if word.text == "{}" => vec![example.clone(), example.clone()],
                (true, _) => vec![Word::open()],
            };
            commands.push(command.iter().flat_map(named).collect());
        }
    }
    commands
}

/// The commands that `find` runs for this file.
pub(super) fn commands_with(words: &[Word], file: &str) -> Vec<Vec<Word>> {
    let mut commands = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if matches!(word.text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            let command = words.by_ref().take_while(|word| !matches!(word.text.as_str(), ";" | "+"));
            let named = |word: &Word| Word { text: word.text.replace("{}", file), kind: word.kind };
            commands.push(command.map(named).collect());
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

/// Whether a command that takes files changes them.
pub(super) fn writes(command: &[Word]) -> bool {
    let base = command.first().and_then(Word::known).unwrap_or_default();
    let mut options = command.iter().skip(1).filter(|word| word.text.starts_with('-'));
    match base {
        "sed" | "awk" => options.any(|word| word.text.contains('i')),
        "sort" => options.any(|word| word.text.contains('o')),
        _ => false,
    }
}

/// Files of one command that are looked into.
pub(super) const FILES_MAX: usize = 64;
/// Files and folders that are looked at for one command.
const LOOKS_MAX: usize = 1024;

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
