//! Reads the words of commands that only read: every option that is harmless, and what each operand is.
//!
//! Read [`operands`] first; the commands stand in [`commands`](super::commands). An option that is not there makes the command
//! unknown, an abbreviation of one too; what is unknown is asked about.

use super::commands::{COMMANDS, FIND_TABLE, GIT, Role, VERSIONS};
use super::program;
use super::unwrap::{self, Inner};
use super::word::{Kind, Word, is_own};
use crate::path::{SECRET_EXAMPLES, glob_matches, may_be_secret};

/// A path that a command is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) word: Word,
    pub(crate) purpose: Purpose,
}

/// What a command does with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Looks at names, sizes, times.
    List,
    /// Reads the content.
    Read,
    /// Reads the content of everything below.
    ReadBelow,
    /// Writes, creates or changes it.
    Write,
    /// Removes it, with everything below it.
    Delete,
}

/// The paths a read-only command touches; or why it is not known to be one. What cannot be told of a word is for the
/// caller to ask about.
pub(crate) fn operands(words: &[Word]) -> Result<Vec<Operand>, String> {
    let name = words.first().and_then(Word::known).unwrap_or_default();
    let rest = words.get(1..).unwrap_or_default();
    if says_version(words) || tells_of_the_shell(name, rest) {
        return Ok(Vec::new());
    }
    match name {
        "find" => return find(words),
        "git" => return git(words),
        "test" | "[" => return test(words),
        "sed" => return sed(words),
        "echo" | "printf" => return print(words),
        _ => {}
    }
    if name == "ps" {
        return processes(rest);
    }
    if name == "printenv" && !rest.is_empty() && rest.iter().all(|word| PLAIN_VARIABLES.contains(&word.text.as_str())) {
        return Ok(Vec::new());
    }
    let tarred = bundled(name, rest);
    let Some((_, options, role)) = COMMANDS.iter().find(|(known, _, _)| *known == name) else {
        return Err(format!("it is not known what {} does", shown(name)));
    };
    let Parsed { mut paths, operands, options, .. } = parse(name, options, tarred.as_deref().unwrap_or(rest))?;
    let purpose = |purpose: Purpose| move |word: Word| Operand { word, purpose };
    match role {
        Role::None if operands.is_empty() => {}
        Role::None => return Err(format!("{name} is not known to take operands")),
        // a page that lies there is one of strangers
        Role::Text if name == "man" && operands.iter().any(|word| word.text.contains('/')) => {
            return Err("man is given a file".to_owned());
        }
        Role::Text => {}
        // a folder's own name, whatever lies in it
        Role::List if name == "ls" && (options.contains("d") || options.contains("directory")) => {
            paths.extend(operands.into_iter().map(|word| Operand { word: without_end(&word), purpose: Purpose::List }));
        }
        Role::List => paths.extend(operands.into_iter().map(purpose(Purpose::List))),
        // these take more words, and options, from `@FILE`
        Role::Read
            if matches!(name, "strings" | "nm" | "size" | "readelf" | "objdump")
                && rest.iter().any(|word| word.text.starts_with('@')) =>
        {
            return Err(format!("{name} takes more words from a file"));
        }
        // what less and more are given after `+` they do
        Role::Read if operands.iter().any(|word| word.text.starts_with('+')) && matches!(name, "less" | "more") => {
            return Err(format!("{name} is given commands of its own"));
        }
        Role::Read => paths.extend(operands.into_iter().map(purpose(Purpose::Read))),
        Role::Compare => {
            let below = options.contains("r") || options.contains("recursive");
            let how = if below { Purpose::ReadBelow } else { Purpose::Read };
            paths.extend(operands.into_iter().map(purpose(how)));
        }
        Role::Names => {
            paths.extend(operands.into_iter().skip(1).map(purpose(Purpose::List)));
            if paths.is_empty() {
                paths
                    .push(Operand { word: Word { text: ".".to_owned(), kind: Kind::Literal }, purpose: Purpose::List });
            }
        }
        Role::ReadIf(needed) if operands.is_empty() || needed.iter().any(|option| options.contains(*option)) => {
            paths.extend(operands.into_iter().map(purpose(Purpose::Read)));
        }
        Role::ReadIf(_) | Role::ArchiveIf(_) if !needed_is_given(role, &options) => {
            return Err(format!("{name} would write, called so"));
        }
        Role::ReadIf(_) => return Err(format!("{name} would write, called so")),
        Role::ArchiveIf(_) => {
            if name == "unzip" {
                paths.extend(operands.into_iter().take(1).map(purpose(Purpose::Read)));
            }
            // `HOST:FILE` is fetched
            if paths.iter().any(|operand| operand.word.text.contains(':')) {
                return Err(format!("{name} may fetch its archive from another machine"));
            }
        }
        Role::Program(only_prints) => {
            let mut operands = operands.into_iter();
            let mut program = operands.next();
            if name == "yq"
                && program.as_ref().is_some_and(|word| matches!(word.text.as_str(), "e" | "eval" | "ea" | "eval-all"))
            {
                program = operands.next();
            }
            let Some(program) = program else { return Err(format!("{name} without a program")) };
            if program.kind != Kind::Literal || !only_prints(&program.text) {
                return Err(format!("its program may write, run or read something else: {}", shown(&program.text)));
            }
            let assigns =
                |word: &Word| name.ends_with("awk") && word.text.split_once('=').is_some_and(|(name, _)| is_name(name));
            paths.extend(operands.filter(|word| !assigns(word)).map(purpose(Purpose::Read)));
        }
        Role::ReadOne if operands.len() > 1 => return Err(format!("{name} writes to its second operand")),
        Role::ReadOne => paths.extend(operands.into_iter().map(purpose(Purpose::Read))),
        Role::Format if operands.iter().all(|word| word.text.starts_with('+')) => {}
        Role::Format => return Err(format!("{name} sets something when it is given an operand without +")),
        Role::Search => {
            let has_pattern = ["e", "regexp", "f", "file", "files", "type-list"].iter().any(|n| options.contains(*n));
            let below = matches!(name, "rg" | "ag") || ["r", "recursive"].iter().any(|n| options.contains(*n));
            let purpose = if below { Purpose::ReadBelow } else { Purpose::Read };
            let files = operands.into_iter().skip(usize::from(!has_pattern));
            let from = paths.len();
            paths.extend(files.map(|word| Operand { word, purpose }));
            if paths.len() == from && below {
                paths.push(Operand { word: Word { text: ".".to_owned(), kind: Kind::Literal }, purpose });
            }
        }
    }
    Ok(paths)
}

/// Whether a command does no more than say, cut or compare texts, whatever the text is that the command itself brings into its
/// words. No option of these does more.
pub(crate) fn only_says(words: &[Word]) -> bool {
    let Some((name, rest)) = words.split_first() else { return false };
    let literal = |at: usize| rest.get(at).filter(|word| word.kind == Kind::Literal).map(|word| word.text.as_str());
    let brought = rest.iter().all(|word| word.kind != Kind::Unknown);
    brought
        && match name.known().unwrap_or_default() {
            "echo" | "true" | "false" | ":" | "basename" | "dirname" | "seq" | "expr" | "factor" | "tr" | "which" => {
                true
            }
            // a first word that begins so may set a variable
            "printf" => literal(0).is_some_and(|format| !format.starts_with('-')),
            "command" => matches!(literal(0), Some("-v" | "-V")),
            name @ ("test" | "[") => {
                let end = rest.len().saturating_sub(usize::from(name == "["));
                let whole = rest.iter().all(|word| matches!(word.kind, Kind::Literal | Kind::Likely | Kind::Open));
                let first = usize::from(literal(0) == Some("!"));
                whole
                    && match (end.saturating_sub(first), literal(first), literal(first + 1)) {
                        (1, ..) | (2, Some("-n" | "-z"), _) => true,
                        (3, _, Some(sign)) => COMPARES.contains(&sign),
                        _ => false,
                    }
            }
            _ => false,
        }
}

/// Whether it is a program that builds, tests or looks through a project, told what to do by a literal word, and given text
/// that the command itself brings.
pub(crate) fn is_of_a_project(words: &[Word]) -> bool {
    const TOLD: [&str; 12] =
        ["cargo", "npm", "yarn", "pnpm", "go", "make", "dotnet", "mix", "deno", "bun", "gradle", "mvn"];
    const LOOKS: [&str; 18] = [
        "pytest",
        "mypy",
        "ruff",
        "black",
        "flake8",
        "isort",
        "pylint",
        "eslint",
        "prettier",
        "tsc",
        "jest",
        "vitest",
        "rustfmt",
        "gofmt",
        "shellcheck",
        "shfmt",
        "gcc",
        "g++",
    ];
    let Some((name, rest)) = words.split_first() else { return false };
    let told = rest.first().is_some_and(|first| first.kind == Kind::Literal && !first.text.starts_with('-'));
    let module = matches!(rest, [m, module, ..] if m.text == "-m" && module.kind == Kind::Literal);
    let brought = rest.iter().all(|word| word.kind != Kind::Unknown);
    brought
        && match name.known().unwrap_or_default() {
            "make" => rest.iter().filter(|word| word.is_unknown()).all(|word| word.text.starts_with("-j")),
            "python" | "python3" => module,
            name => LOOKS.contains(&name) || TOLD.contains(&name) && told,
        }
}

/// Whether `read`, given these words, does no more than to put a line into variables that only the text itself has.
pub(crate) fn reads_plainly(rest: &[Word]) -> bool {
    let names = rest.iter().skip_while(|word| word.text == "-r");
    rest.iter().all(|word| word.kind == Kind::Literal)
        && names.clone().next().is_some()
        && names.clone().all(|name| is_own(&name.text))
}

/// Whether `export`, given these words, sets no more than variables that change nothing but how texts look.
pub(crate) fn exports_plainly(rest: &[Word]) -> bool {
    let plain = |word: &Word| {
        let set = word.text.split_once('=').filter(|_| word.kind == Kind::Literal);
        set.is_some_and(|(name, value)| unwrap::is_harmless(name, value))
    };
    !rest.is_empty() && rest.iter().all(plain)
}

/// Whether it compares whole folders, through links too.
pub(crate) fn follows_links_below(words: &[Word]) -> bool {
    let Some((name, rest)) = words.split_first() else { return false };
    let compares = COMMANDS
        .iter()
        .find(|(known, _, role)| matches!(role, Role::Compare) && name.known().is_some_and(|name| name == *known));
    let parsed = compares.and_then(|(_, options, _)| parse("diff", options, rest).ok());
    parsed.is_some_and(|Parsed { options, .. }| {
        (options.contains("r") || options.contains("recursive")) && !options.contains("no-dereference")
    })
}

/// Whether nothing is known of a command that is called so, and no shell has one: the name may be that of a function.
pub(crate) fn is_no_command(name: &str) -> bool {
    let words = [Word { text: name.to_owned(), kind: Kind::Literal }];
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(plain)
        && !name.starts_with("command_not_found")
        && !OF_SHELLS.contains(&name)
        && !matches!(name, "git" | "sed" | "ps" | "printenv")
        && COMMANDS.iter().all(|(known, _, _)| *known != name)
        && VERSIONS.iter().all(|(known, _)| *known != name)
        && matches!(unwrap::unwrap(&words), Inner::None)
        && !unwrap::is_wrapper(name)
}

/// Whether it says which version it is, or how it is called, and does nothing else.
pub(crate) fn says_version(words: &[Word]) -> bool {
    let Some((first, rest)) = words.split_first().filter(|(_, rest)| rest.len() <= VERSION_WORDS_MAX) else {
        return false;
    };
    let name = first.known().unwrap_or_default();
    let name = name.strip_prefix("/usr/bin/").or_else(|| name.strip_prefix("/bin/")).unwrap_or(name);
    let rest: Vec<&str> =
        rest.iter().filter(|word| word.kind == Kind::Literal).map(|word| word.text.as_str()).collect();
    let said = rest.join(" ");
    rest.len() + 1 == words.len()
        && (VERSIONS.iter().any(|(known, options)| *known == name && options.contains(&said.as_str()))
            || (matches!(rest.as_slice(), ["--help" | "--version"])
                && COMMANDS.iter().any(|(known, _, _)| *known == name)))
}

/// Built-in commands that say how the shell stands, and the like.
fn tells_of_the_shell(name: &str, rest: &[Word]) -> bool {
    let args: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
    let literal = rest.iter().all(|word| word.kind == Kind::Literal);
    literal
        && match (name, args.as_slice()) {
            ("read", _) => reads_plainly(rest),
            ("export", _) => exports_plainly(rest),
            ("umask" | "alias" | "jobs", []) | ("ulimit", ["-a"]) | ("stty", ["size"]) => true,
            ("set", args) => !args.is_empty(),
            ("tput", ["cols" | "lines" | "colors"]) => true,
            ("go", ["env"]) => true,
            ("go", ["env", names @ ..]) => {
                names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()))
            }
            _ => false,
        }
}

/// Whether `rg` and `ag` are told not to leave hidden files out.
pub(crate) fn reads_hidden(words: &[Word]) -> bool {
    words.iter().skip(1).take_while(|word| word.text != "--").any(|word| {
        matches!(word.text.as_str(), "--hidden" | "--unrestricted" | "--no-ignore")
            || word.text.strip_prefix('-').is_some_and(|letters| {
                !letters.starts_with('-') && letters.contains(['u', '.']) && letters.len() <= HIDDEN_LETTERS_MAX
            })
    })
}

/// What a command touches that edits or writes files and does nothing beside: `sed -i` with a script that only prints, `sort
/// -o`. None: it is no such command.
pub(crate) fn edits(words: &[Word]) -> Option<Vec<Operand>> {
    let name = words.first().and_then(Word::known)?;
    let rest = words.get(1..).unwrap_or_default();
    match name {
        "sed" => {
            let plain = without_in_place(words);
            let files = sed(&plain).ok().filter(|files| plain != words && !files.is_empty())?;
            Some(files.into_iter().map(|operand| Operand { purpose: Purpose::Write, ..operand }).collect())
        }
        "sort" => {
            let (_, options, _) = COMMANDS.iter().find(|(known, _, _)| *known == name)?;
            let Parsed { operands, values, paths, .. } = parse(name, &format!("{options} o: output:"), rest).ok()?;
            let written = values.into_iter().filter(|(name, _)| matches!(name.as_str(), "o" | "output"));
            let written = written.map(|(_, word)| Operand { word, purpose: Purpose::Write });
            let read = operands.into_iter().map(|word| Operand { word, purpose: Purpose::Read });
            Some(paths.into_iter().chain(written).chain(read).collect())
        }
        _ => None,
    }
}

/// `sed -i`, `sed -i.bak`, `sed -Ei`: without the `i`.
fn without_in_place(words: &[Word]) -> Vec<Word> {
    let mut kept = Vec::new();
    for word in words {
        let text = word.text.as_str();
        let plain = |end: &str| {
            end.is_empty() || (end.starts_with(['.', '~']) && end.bytes().skip(1).all(|byte| byte.is_ascii_lowercase()))
        };
        let letters = text.strip_prefix('-').filter(|rest| !rest.starts_with('-') && word.kind == Kind::Literal);
        match letters.and_then(|letters| letters.split_once('i')) {
            _ if text == "--in-place" => {}
            _ if text.strip_prefix("--in-place=").is_some_and(plain) => {}
            Some(("", end)) if plain(end) => {}
            Some((before, "")) if before.bytes().all(|letter| b"nErsz".contains(&letter)) => {
                kept.push(Word { text: format!("-{before}"), kind: word.kind });
            }
            Some(_) | None => kept.push(word.clone()),
        }
    }
    kept
}

fn needed_is_given(role: &Role, options: &std::collections::BTreeSet<String>) -> bool {
    match role {
        Role::ReadIf(needed) | Role::ArchiveIf(needed) => needed.iter().any(|option| options.contains(*option)),
        Role::None
        | Role::Text
        | Role::List
        | Role::Read
        | Role::ReadOne
        | Role::Format
        | Role::Search
        | Role::Program(_)
        | Role::Compare
        | Role::Names => true,
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.starts_with(|first: char| first.is_ascii_digit())
}

/// The words of `tar tzf x` as `tar -tzf x`.
fn bundled(name: &str, words: &[Word]) -> Option<Vec<Word>> {
    // only where the archive is what follows: `tar tfv x` takes its values in another order
    let plain = |text: &str| !text.starts_with('-') && text.find('f').is_none_or(|at| at + 1 == text.len());
    let first = words.first().filter(|first| name == "tar" && plain(&first.text))?;
    let mut words = words.to_vec();
    words[0] = Word { text: format!("-{}", first.text), kind: first.kind };
    Some(words)
}

/// What the words after a command's name are, if all of them are known.
#[derive(Default)]
struct Parsed {
    /// Values of options that are paths.
    paths: Vec<Operand>,
    operands: Vec<Word>,
    /// Names of the options that were given.
    options: std::collections::BTreeSet<String>,
    /// Options with the text they were given.
    values: Vec<(String, Word)>,
}

/// What an option takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Text,
    Path,
    /// A pattern of file names that are searched.
    Glob,
    /// Text, only after `=`.
    Attached,
    /// Two words.
    Two,
}

/// What an option of a table takes. None: it is not in it.
fn option(table: &str, name: &str) -> Option<Takes> {
    table.split_ascii_whitespace().find_map(|entry| {
        let (entry, takes) = match entry.char_indices().next_back() {
            Some((at, ':')) if at > 0 => (entry.get(..at)?, Takes::Text),
            Some((at, '<')) if at > 0 => (entry.get(..at)?, Takes::Path),
            Some((at, '~')) if at > 0 => (entry.get(..at)?, Takes::Glob),
            Some((at, '=')) if at > 0 => (entry.get(..at)?, Takes::Attached),
            Some((at, '%')) if at > 0 => (entry.get(..at)?, Takes::Two),
            _ => (entry, Takes::Nothing),
        };
        (entry == name).then_some(takes)
    })
}

fn parse(command: &str, table: &str, words: &[Word]) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    let mut words = words.iter();
    let unknown = |option: &str| format!("the option {} of {command} is not known to be harmless", shown(option));
    while let Some(word) = words.next() {
        match word.kind {
            Kind::Glob if word.text.starts_with(['*', '?', '[', '-']) && !LISTERS.contains(&command) => {
                return Err(format!("{} may stand for a name that is read as an option", shown(&word.text)));
            }
            Kind::Glob | Kind::Open | Kind::Loose | Kind::Unknown => {
                parsed.operands.push(word.clone());
                continue;
            }
            Kind::Literal | Kind::Likely | Kind::Guess => {}
        }
        let text = word.text.as_str();
        if text == "--" {
            parsed.operands.extend(words.cloned());
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(Word { text: value.to_owned(), kind: Kind::Literal })),
                None => (long, None),
            };
            let takes = option(table, name).filter(|_| name.len() > 1).ok_or_else(|| unknown(text))?;
            parsed.options.insert(name.to_owned());
            match (takes, value) {
                (Takes::Nothing | Takes::Attached, None) => {}
                (Takes::Attached, Some(value)) => parsed.values.push((name.to_owned(), value)),
                (Takes::Nothing | Takes::Two, Some(_)) => return Err(unknown(text)),
                (Takes::Two, None) => {
                    words.nth(1).ok_or_else(|| unknown(text))?;
                }
                (takes, Some(value)) => parsed.value(name, takes, value)?,
                (takes, None) => parsed.value(name, takes, words.next().cloned().ok_or_else(|| unknown(text))?)?,
            }
        } else if let Some(cluster) = text.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            if cluster.bytes().all(|byte| byte.is_ascii_digit()) && option(table, "#").is_some() {
                continue;
            }
            for (at, letter) in cluster.char_indices() {
                let name = letter.to_string();
                let takes = option(table, &name).ok_or_else(|| unknown(text))?;
                parsed.options.insert(name.clone());
                match takes {
                    Takes::Nothing => continue,
                    // what follows in the same word is its value
                    Takes::Attached => break,
                    Takes::Two => return Err(unknown(text)),
                    Takes::Text | Takes::Path | Takes::Glob => {}
                }
                let rest = cluster.get(at + letter.len_utf8()..).unwrap_or_default();
                let value = match rest {
                    "" => words.next().cloned().ok_or_else(|| unknown(text))?,
                    rest => Word { text: rest.to_owned(), kind: Kind::Literal },
                };
                parsed.value(&name, takes, value)?;
                break;
            }
        } else {
            parsed.operands.push(word.clone());
        }
    }
    Ok(parsed)
}

impl Parsed {
    fn value(&mut self, name: &str, takes: Takes, word: Word) -> Result<(), String> {
        match takes {
            Takes::Path => self.paths.push(Operand { word, purpose: Purpose::Read }),
            Takes::Glob => {
                let name = word.text.rsplit('/').next().unwrap_or_default();
                let may_be_secret = SECRET_EXAMPLES
                    .iter()
                    .any(|secret| glob_matches(name, secret) || glob_matches(&name.replacen('*', ".*", 1), secret));
                if !word.text.starts_with('!') && (may_be_secret || name.contains(['{', '['])) {
                    return Err(format!("{} may stand for a file that holds secrets", shown(&word.text)));
                }
            }
            Takes::Text => self.values.push((name.to_owned(), word)),
            Takes::Nothing | Takes::Attached | Takes::Two => {}
        }
        Ok(())
    }
}

/// `find`: where to look, then tests and actions. Those that run, write or remove are not in the table.
fn find(words: &[Word]) -> Result<Vec<Operand>, String> {
    let mut found = Vec::new();
    let mut words = words.iter().skip(1).peekable();
    let mut in_paths = true;
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if in_paths && !text.starts_with('-') && !matches!(text, "(" | "!" | ")" | ",") {
            found.push(Operand { word: word.clone(), purpose: Purpose::List });
            continue;
        }
        if in_paths && matches!(text, "-H" | "-P" | "-O1" | "-O2" | "-O3") {
            continue;
        }
        in_paths = false;
        let entry = FIND_TABLE.iter().find(|(name, _)| *name == text);
        match entry.map(|(_, takes)| *takes) {
            Some(FindTakes::Nothing) => {}
            Some(FindTakes::Text) => {
                words.next().ok_or("find ends in the middle of a test")?;
            }
            Some(FindTakes::Path) => {
                let path = words.next().ok_or("find ends in the middle of a test")?;
                found.push(Operand { word: path.clone(), purpose: Purpose::List });
            }
            // what it runs is judged on its own
            None if text == "-exec" => {
                for word in words.by_ref() {
                    if word.text == ";" || (word.text == "+") {
                        break;
                    }
                }
            }
            None => return Err(format!("{} of find is not known to be harmless", shown(text))),
        }
    }
    if found.is_empty() {
        found.push(Operand { word: Word { text: ".".to_owned(), kind: Kind::Literal }, purpose: Purpose::List });
    }
    Ok(found)
}

#[derive(Clone, Copy)]
pub(super) enum FindTakes {
    Nothing,
    Text,
    Path,
}

/// `git` subcommands that only read. Which programs of the repository they would run is for whoever starts them to
/// prevent (hooks, fsmonitor, pager, external diff); see the documentation of the policy.
fn git(words: &[Word]) -> Result<Vec<Operand>, String> {
    let mut rest = words.get(1..).unwrap_or_default();
    let mut folder: Option<Word> = None;
    while let Some((first, after)) = rest.split_first() {
        match (first.known(), after.split_first()) {
            (Some("--no-pager" | "-P" | "--no-optional-locks" | "--literal-pathspecs"), _) => rest = after,
            (Some("-C"), Some((inner, after))) if inner.kind == Kind::Literal && !inner.text.is_empty() => {
                folder = Some(below(folder.as_ref(), inner));
                rest = after;
            }
            _ => break,
        }
    }
    let Some((subcommand, arguments)) = rest.split_first() else {
        return Err("git without a subcommand".to_owned());
    };
    let name = subcommand.known().unwrap_or_default();
    let Some((_, options, operands)) = GIT.iter().find(|(known, _, _)| *known == name) else {
        return Err(format!("git {} is not known to only read", shown(name)));
    };
    // paths after `--` are no revisions, and the other way round
    let parsed = parse(&format!("git {name}"), options, arguments)?;
    let mut paths = parsed.paths;
    match operands {
        GitOperands::Setting => {
            let given: Vec<&str> = parsed.operands.iter().map(|word| word.text.as_str()).collect();
            let key = match given.as_slice() {
                [key] | ["get", key] => *key,
                _ => return Err("git config may change a setting".to_owned()),
            };
            let plain =
                ["user.", "core.", "init.", "branch.", "color.", "pull.", "push.", "merge.", "rebase.", "diff."];
            if !plain.iter().any(|start| key.to_lowercase().starts_with(start)) {
                return Err(format!("the setting {} may hold a secret", shown(key)));
            }
        }
        GitOperands::Reflog => {
            let shows = |word: &Word| !matches!(word.text.as_str(), "expire" | "delete" | "drop" | "exists" | "write");
            if !parsed.operands.iter().all(shows) {
                return Err("git reflog may forget something".to_owned());
            }
        }
        GitOperands::Stash => match parsed.operands.split_first() {
            Some((first, [])) if matches!(first.text.as_str(), "list" | "show") => {}
            Some((first, [_])) if first.text == "show" => {}
            Some(_) | None => return Err("git stash changes the workspace".to_owned()),
        },
        GitOperands::Remote => match parsed.operands.as_slice() {
            [] => {}
            [verb, _] if verb.text == "get-url" => {}
            _ => return Err("git remote may change something".to_owned()),
        },
        GitOperands::None if parsed.operands.is_empty() => {}
        GitOperands::None => return Err(format!("git {name} with operands may change something")),
        GitOperands::Listed
            if parsed.operands.is_empty()
                || ["list", "contains", "merged", "no-merged", "points-at"]
                    .iter()
                    .any(|o| parsed.options.contains(*o))
                || (name == "tag" && parsed.options.contains("l")) => {}
        GitOperands::Listed => return Err(format!("git {name} with operands may change something")),
        GitOperands::Exactly(allowed) => {
            let given: Vec<&str> = parsed.operands.iter().map(|word| word.text.as_str()).collect();
            if given != *allowed {
                return Err(format!("git {name} {} is not known to only read", shown(&given.join(" "))));
            }
        }
        GitOperands::Revisions => {
            let greps = name == "grep";
            // what is not tracked is read too: hidden files, ignored ones
            let untracked = ["untracked", "no-index", "no-exclude-standard"];
            let below = greps && untracked.iter().any(|option| parsed.options.contains(*option));
            let purpose = if below { Purpose::ReadBelow } else { Purpose::Read };
            let pattern = usize::from(greps && !parsed.options.contains("e"));
            for word in parsed.operands.into_iter().skip(pattern) {
                let text = tracked_path(&word.text);
                let last = text.rsplit('/').next().unwrap_or_default();
                if last.starts_with('.') && last.contains(['*', '?', '[']) && may_be_secret(last) {
                    return Err(format!("{} may stand for a file that holds secrets", shown(text)));
                }
                paths.push(Operand { word: Word { text: text.to_owned(), kind: word.kind }, purpose });
            }
            if below && paths.is_empty() {
                paths.push(Operand { word: Word { text: ".".to_owned(), kind: Kind::Literal }, purpose });
            }
        }
    }
    // `%G?` has a signature checked, by a program that the repository may name
    let formats = parsed.values.iter().map(|(_, value)| value);
    if formats.chain(arguments).any(|word| word.text.contains("%G") || word.text.contains("%(signature")) {
        return Err("it has signatures checked by a program of the repository's choice".to_owned());
    }
    if let Some(folder) = folder {
        for operand in &mut paths {
            operand.word = below(Some(&folder), &operand.word);
        }
        paths.push(Operand { word: folder, purpose: Purpose::List });
    }
    Ok(paths)
}

/// The path in `REVISION:PATH`, a file of another time, and in `:(magic)PATH`.
fn tracked_path(word: &str) -> &str {
    let path = word.rsplit_once(':').map_or(word, |(_, path)| path);
    match path.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((magic, path)) if !magic.contains("exclude") => path,
        Some(_) | None => path,
    }
}

/// The folders that `-C` names, as one path.
pub(crate) fn git_folder(words: &[Word]) -> Option<Word> {
    let mut folder = None;
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next().filter(|word| word.text.starts_with('-')) {
        if word.text == "-C" {
            folder = words.next().map(|inner| below(folder.as_ref(), inner));
        }
    }
    folder
}

/// A path, relative to a folder if there is one.
fn below(folder: Option<&Word>, path: &Word) -> Word {
    match folder {
        Some(folder) if !path.text.starts_with('/') => {
            Word { text: format!("{}/{}", folder.text, path.text), kind: folder.kind.max(path.kind) }
        }
        Some(_) | None => path.clone(),
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum GitOperands {
    None,
    /// Only with `--list`.
    Listed,
    Exactly(&'static [&'static str]),
    /// The name of one setting that holds no secret and is read.
    Setting,
    /// Nothing, or where one of them is.
    Remote,
    /// A list of what the branch was.
    Reflog,
    /// `list`, or `show` and one of them.
    Stash,
    /// Revisions and paths.
    Revisions,
}

/// `ps`, which shows what processes are called, and not what variables they have.
fn processes(rest: &[Word]) -> Result<Vec<Operand>, String> {
    let unknown = |word: &Word| Err(format!("what ps shows for {} is not known", shown(&word.text)));
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        if word.kind != Kind::Literal {
            return unknown(word);
        }
        let text = word.text.as_str();
        if let Some(long) = text.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or_default();
            match name {
                "forest" | "headers" | "no-headers" | "no-heading" | "deselect" => {}
                "sort" | "format" | "pid" | "ppid" | "cols" | "columns" | "width" | "user" | "User" => {
                    let value = if long.contains('=') { Some(word) } else { words.next() };
                    if value.is_none_or(|value| value.kind != Kind::Literal || value.text.contains("env")) {
                        return unknown(word);
                    }
                }
                _ => return unknown(word),
            }
            continue;
        }
        let (letters, dashed) = text.strip_prefix('-').map_or((text, false), |letters| (letters, true));
        if letters.bytes().all(|letter| letter.is_ascii_digit() || letter == b',') {
            continue;
        }
        // without a dash `e` shows variables, and some read `-aux` as `aux`
        let known = if dashed && !letters.contains(['x', 'a']) { "AdefFHjlLMNTwy" } else { "aAfFhHjlLmrsSuvwxy" };
        let before = letters.trim_end_matches(['o', 'O', 'p', 'C', 'U', 'G', 't', 'k']);
        if letters.len() - before.len() > 1 || !before.chars().all(|letter| known.contains(letter)) {
            return unknown(word);
        }
        let shows = |value: &Word| value.kind == Kind::Literal && !value.text.contains("env");
        if letters.len() > before.len() && !words.next().is_some_and(shows) {
            return unknown(word);
        }
    }
    Ok(Vec::new())
}

/// `test` and `[`: nothing is read but whether files are there.
fn test(words: &[Word]) -> Result<Vec<Operand>, String> {
    // whatever it says, it is compared
    if words.iter().any(Word::is_unknown) && only_says(words) {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    let mut is_text = false;
    for word in words.iter().skip(1) {
        // what is only compared with nothing is no path
        if std::mem::replace(&mut is_text, matches!(word.text.as_str(), "-n" | "-z")) && !word.text.contains(['$', '`'])
        {
            continue;
        }
        // `-v 'a[$(id)]'` and `-eq` evaluate their words as arithmetic, substitutions too
        let compares = matches!(word.text.as_str(), "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge");
        let numbers = words.iter().skip(1).all(|word| {
            word.text.starts_with('-') || word.text == "]" || word.text.bytes().all(|byte| byte.is_ascii_digit())
        });
        if matches!(word.text.as_str(), "-v" | "-R") || (compares && !numbers) || word.text.contains(['$', '`']) {
            return Err("the test evaluates its words".to_owned());
        }
        if !word.text.starts_with('-') && !matches!(word.text.as_str(), "]" | "!" | "=" | "!=" | "==" | "(" | ")") {
            paths.push(Operand { word: word.clone(), purpose: Purpose::List });
        }
    }
    Ok(paths)
}

/// `echo` and `printf`: names only where a pattern stands for some.
fn print(words: &[Word]) -> Result<Vec<Operand>, String> {
    let is_printf = words.first().is_some_and(|word| word.text == "printf");
    if is_printf && words.get(1).is_some_and(|word| word.text.starts_with('-') && word.text != "--") {
        return Err("printf with an option may set a variable".to_owned());
    }
    let patterns = words.iter().skip(1).filter(|word| word.kind == Kind::Glob);
    Ok(patterns.map(|word| Operand { word: without_end(word), purpose: Purpose::List }).collect())
}

/// `a/*/` as `a/*`.
fn without_end(word: &Word) -> Word {
    let text = word.text.strip_suffix('/').filter(|text| !text.is_empty()).unwrap_or(&word.text);
    Word { text: text.to_owned(), kind: word.kind }
}

/// `sed` with scripts that only print.
fn sed(words: &[Word]) -> Result<Vec<Operand>, String> {
    let options =
        "n quiet silent E r regexp-extended s separate e: expression: z null-data u unbuffered l: line-length:";
    let Parsed { mut paths, operands, values, .. } = parse("sed", options, words.get(1..).unwrap_or_default())?;
    let given: Vec<&Word> = values
        .iter()
        .filter(|(name, _)| matches!(name.as_str(), "e" | "expression"))
        .map(|(_, script)| script)
        .collect();
    let (scripts, files) = match (given.is_empty(), operands.split_first()) {
        (true, Some((script, files))) => (vec![script], files),
        (true, None) => return Err("sed without a script".to_owned()),
        (false, _) => (given, operands.as_slice()),
    };
    // each `-e` is a line of one script
    let script = scripts.iter().map(|script| script.text.as_str()).collect::<Vec<_>>().join("\n");
    let literal = scripts.iter().all(|script| script.kind == Kind::Literal);
    if !literal || !program::sed_only_prints(&script) {
        return Err("this script of sed may write or run something".to_owned());
    }
    paths.extend(files.iter().map(|word| Operand { word: word.clone(), purpose: Purpose::Read }));
    Ok(paths)
}

/// A word for people: short, and without letters that show as something else.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).flat_map(visible).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    format!("\"{shown}\"")
}

fn visible(letter: char) -> Vec<char> {
    let hidden = letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    if hidden { letter.escape_unicode().collect() } else { vec![letter] }
}

const SHOWN_MAX: usize = 60;
/// What asks for a version is short.
const VERSION_WORDS_MAX: usize = 3;
/// A cluster of letters that is longer is the value of one.
const HIDDEN_LETTERS_MAX: usize = 4;
/// Commands that are of the shell, beside those that stand elsewhere.
const OF_SHELLS: [&str; 26] = [
    "cd", "exit", "return", "break", "continue", "shift", "eval", "exec", "trap", "wait", "jobs", "fg", "bg", "kill",
    "times", "let", "getopts", "builtin", "caller", "compgen", "complete", "dirs", "disown", "history", "logout",
    "suspend",
];
/// Commands of which no option does more than list, whatever file is called like one.
pub(super) const LISTERS: [&str; 7] = ["ls", "stat", "du", "realpath", "readlink", "basename", "dirname"];
/// What `test` compares two texts or two numbers by, and computes neither.
const COMPARES: [&str; 9] = ["=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
/// Variables that tell nothing anybody would hide.
pub(super) const PLAIN_VARIABLES: [&str; 12] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "LANG", "TERM", "TZ", "LC_ALL", "EDITOR", "TMPDIR"];
