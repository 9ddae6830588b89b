//! What common commands write, remove or copy, as far as their words say so: for rules and floors about paths. A command
//! that is not here may still write; it is asked about in any case.

use super::table::{Operand, Purpose};
use super::word::{Kind, Word};

/// The paths a command names, with what it does to them. None: it is not known here.
pub(crate) fn touched(words: &[Word]) -> Option<Vec<Operand>> {
    let name = words.first().and_then(Word::known)?;
    let name = name.rsplit('/').next().unwrap_or_default();
    let rest = words.get(1..).unwrap_or_default();
    Some(match name {
        "rm" | "unlink" | "shred" | "rmdir" => all(operands(rest), Purpose::Delete),
        "mkdir" | "touch" | "tee" | "truncate" | "mkfifo" | "mknod" | "fallocate" => all(
            operands(&without_values(rest, &["-s", "-l", "-m", "-o", "-d", "-t", "-r", "--size", "--mode"])),
            Purpose::Write,
        ),
        "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" => {
            all(operands(rest).into_iter().skip(1).collect(), Purpose::Write)
        }
        "rsync"
            if rest.iter().any(|word| word.text.starts_with("--del") || word.text.starts_with("--remove-source")) =>
        {
            let words = without_values(rest, &["-e", "--rsh", "--exclude", "--include", "--filter", "-f"]);
            let target = operands(&words).pop();
            sources_and_target(rest, Purpose::Read)
                .into_iter()
                .chain(target.map(|word| Operand { word, purpose: Purpose::Delete }))
                .collect()
        }
        "cp" | "install" | "rsync" | "scp" => sources_and_target(rest, Purpose::Read),
        "ln" => sources_and_target(rest, Purpose::Read),
        // what is moved can be read under another name
        "mv" => {
            let moved = sources_and_target(rest, Purpose::Delete);
            let gone = moved.iter().filter(|operand| operand.purpose == Purpose::Delete);
            let read: Vec<Operand> =
                gone.map(|operand| Operand { word: operand.word.clone(), purpose: Purpose::Read }).collect();
            moved.into_iter().chain(read).collect()
        }
        "dd" => rest.iter().filter_map(dd).collect(),
        "sed" if rest.iter().any(|word| is_in_place(&word.text)) => {
            let given = rest.iter().any(|word| word.text.starts_with("-e") || word.text.starts_with("--expression"));
            all(operands(rest).into_iter().skip(usize::from(!given)).collect(), Purpose::Write)
        }
        "find" => {
            let deletes = rest.iter().any(|word| word.text == "-delete");
            let purpose = if deletes { Purpose::Delete } else { Purpose::List };
            let starts =
                rest.iter().take_while(|word| !word.text.starts_with('-') && !matches!(word.text.as_str(), "(" | "!"));
            let mut found: Vec<Operand> = starts.map(|word| Operand { word: word.clone(), purpose }).collect();
            if found.is_empty() && deletes {
                found.push(Operand { word: Word { text: ".".to_owned(), kind: Kind::Literal }, purpose });
            }
            found
        }
        "git" => git(rest)?,
        "sort" | "shuf" | "tree" | "gcc" | "cc" | "clang" => valued(rest, &["-o", "--output"]),
        "curl" => valued(rest, &["-o", "--output", "--output-dir", "-D", "--dump-header", "-c", "--cookie-jar"]),
        "wget" => valued(
            rest,
            &["-O", "--output-document", "-P", "--directory-prefix", "-o", "--output-file", "-a", "--append-output"],
        ),
        "patch" => valued(rest, &["-o", "--output", "-r", "--reject-file", "-d", "--directory"]),
        "tar" => tar(rest),
        "unzip" => valued(rest, &["-d"]),
        _ => return None,
    })
}

/// Whether every path such a command touches is told here, and how.
pub(crate) fn is_complete(base: &str) -> bool {
    const COMPLETE: [&str; 18] = [
        "rm",
        "unlink",
        "shred",
        "rmdir",
        "mkdir",
        "touch",
        "tee",
        "truncate",
        "mkfifo",
        "fallocate",
        "chmod",
        "chown",
        "chgrp",
        "cp",
        "mv",
        "ln",
        "install",
        "dd",
    ];
    COMPLETE.contains(&base)
}

/// What may be a path within the options of a command that writes: `-rtDIR`, `--target=DIR`. Which letter takes a value is
/// looked up only where a mere name might be cut to an absolute path (`-czfout/x` to `/x`); it counts only where it leads to
/// something that must not be written unasked.
pub(crate) fn in_options(words: &[Word]) -> Vec<Operand> {
    let name = words.first().and_then(Word::known).unwrap_or_default();
    let (purpose, valued) = match name.rsplit('/').next().unwrap_or_default() {
        "cp" | "mv" | "ln" | "install" => (Purpose::Write, "t"),
        "rsync" | "scp" => (Purpose::Write, "T"),
        "patch" => (Purpose::Write, "odr"),
        "curl" => (Purpose::Write, "oDc"),
        "wget" => (Purpose::Write, "OoaP"),
        "tar" => (Purpose::Write, "fC"),
        "unzip" => (Purpose::Write, "d"),
        "sort" | "shuf" | "tree" | "gcc" | "cc" | "clang" => (Purpose::Write, "o"),
        // where it works, not what it writes
        "make" | "gmake" => (Purpose::Read, "CfI"),
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    for word in words.iter().skip(1).take_while(|word| word.text != "--").filter(|word| word.known().is_some()) {
        let value = word.text.strip_prefix("--").and_then(|long| long.split_once('='));
        let value = value.map(|(_, value)| value).filter(|value| !value.is_empty() && !leaves_out(&word.text));
        let leads = |value: &&str| {
            let letters = word.text.get(1..word.text.len() - value.len()).unwrap_or_default();
            !value.starts_with(['/', '~'])
                || letters.find(|letter| valued.contains(letter)).map(|at| at + 1) == Some(letters.len())
        };
        let texts = glued(&word.text).filter(leads).chain(value);
        found.extend(texts.map(|text| Operand { word: Word { text: text.to_owned(), kind: word.kind }, purpose }));
    }
    found
}

/// Whether it is a long option that names what is not to be touched, or a pattern.
pub(crate) fn leaves_out(option: &str) -> bool {
    const LEAVES_OUT: [&str; 7] = ["exclude", "include", "filter", "ignore", "reject", "accept", "suffix"];
    option.strip_prefix("--").is_some_and(|name| LEAVES_OUT.iter().any(|start| name.starts_with(start)))
}

/// What may be a path in a word of option letters: `-Tfile`, `-vFOLDER:PLACE`.
pub(crate) fn in_word(word: &str) -> impl Iterator<Item = &str> {
    glued(word).flat_map(|value| {
        let before = value.split_once(':').map(|(path, _)| path).filter(|path| !path.is_empty());
        [Some(value), before].into_iter().flatten()
    })
}

/// What may be the value within `-abcVALUE`: whatever follows the first letters. No letter of an option begins a path.
fn glued(word: &str) -> impl Iterator<Item = &str> {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')).unwrap_or_default();
    letters
        .char_indices()
        .take(LETTERS_MAX)
        .take_while(|(_, letter)| !matches!(letter, '.' | '/' | '~'))
        .filter_map(|(at, letter)| letters.get(at + letter.len_utf8()..))
        .filter(|rest| !rest.is_empty())
}

/// `curl -fsSLko` has six.
const LETTERS_MAX: usize = 10;
fn all(words: Vec<Word>, purpose: Purpose) -> Vec<Operand> {
    words.into_iter().map(|word| Operand { word, purpose }).collect()
}

/// Words that are no options.
fn operands(words: &[Word]) -> Vec<Word> {
    let mut only_operands = false;
    let mut found = Vec::new();
    for word in words {
        if !only_operands && word.text == "--" {
            only_operands = true;
        } else if only_operands || !word.text.starts_with('-') || word.text == "-" {
            found.push(word.clone());
        }
    }
    found
}

fn without_values(words: &[Word], valued: &[&str]) -> Vec<Word> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        kept.push(word.clone());
        if valued.contains(&word.text.as_str()) {
            words.next();
        }
    }
    kept
}

fn sources_and_target(words: &[Word], source: Purpose) -> Vec<Operand> {
    let target = valued(words, &["-t", "--target-directory"]);
    let words =
        without_values(words, &["-t", "--target-directory", "-m", "--mode", "-o", "-g", "-S", "--suffix", "-e"]);
    let mut sources = operands(&words);
    let last = if target.is_empty() { sources.pop() } else { None };
    let targets: Vec<Word> = last.into_iter().chain(target.into_iter().map(|operand| operand.word)).collect();
    let mut found = all(sources.clone(), source);
    for target in targets {
        // a folder gets files of the sources' names
        for source in &sources {
            let name = source.text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            let kind = source.kind.max(target.kind);
            let word = Word { text: format!("{}/{name}", target.text), kind };
            if matches!(kind, Kind::Literal | Kind::Likely | Kind::Guess) {
                found.push(Operand { word, purpose: Purpose::Write });
            }
        }
        found.push(Operand { word: target, purpose: Purpose::Write });
    }
    found
}

/// Values of options, apart or attached.
fn valued(words: &[Word], names: &[&str]) -> Vec<Operand> {
    let mut found = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let attached = names.iter().find_map(|name| {
            let rest = word.text.strip_prefix(name)?;
            match name.starts_with("--") {
                true => rest.strip_prefix('='),
                false => (!rest.is_empty() && !word.text.starts_with("--")).then_some(rest),
            }
        });
        let value = match attached {
            Some(text) => Some(Word { text: text.to_owned(), kind: word.kind }),
            None if names.contains(&word.text.as_str()) => words.next().cloned(),
            None => None,
        };
        found.extend(value.map(|word| Operand { word, purpose: Purpose::Write }));
    }
    found
}

fn dd(word: &Word) -> Option<Operand> {
    let (name, value) = word.text.split_once('=')?;
    let purpose = match name {
        "of" => Purpose::Write,
        "if" => Purpose::Read,
        _ => return None,
    };
    Some(Operand { word: Word { text: value.to_owned(), kind: word.kind }, purpose })
}

/// Where an archive is written, or unpacked.
fn tar(words: &[Word]) -> Vec<Operand> {
    let mut found = valued(words, &["-C", "--directory", "--file"]);
    let bundle = words.iter().position(|word| !word.text.starts_with("--") && word.text.ends_with('f'));
    if let Some(at) = bundle.filter(|at| words.get(*at).is_some_and(|word| word.text.contains(['c', 'r', 'u', 'A']))) {
        found.extend(words.get(at + 1).cloned().map(|word| Operand { word, purpose: Purpose::Write }));
    }
    found
}

fn is_in_place(option: &str) -> bool {
    option.starts_with("--in-place")
        || (option.starts_with('-')
            && !option.starts_with("--")
            && option.split('.').next().is_some_and(|o| o.contains('i')))
}

fn git(words: &[Word]) -> Option<Vec<Operand>> {
    let subcommand = words.iter().position(|word| !word.text.starts_with('-'))?;
    let rest = words.get(subcommand + 1..).unwrap_or_default();
    Some(match words.get(subcommand)?.text.as_str() {
        "rm" => all(operands(rest), Purpose::Delete),
        "mv" => all(operands(rest), Purpose::Write),
        "restore" => all(operands(rest), Purpose::Write),
        "checkout" => {
            let files = rest.iter().position(|word| word.text == "--")?;
            all(rest.get(files + 1..).unwrap_or_default().to_vec(), Purpose::Write)
        }
        "diff" | "log" | "show" | "format-patch" | "archive" => valued(rest, &["--output", "-o"]),
        _ => return None,
    })
}
