//! What a text says of its own variables: how often it may set one, which hold a number, and which may be said aloud.
//!
//! All of it looks at letters, wherever they stand: what may set a variable counts as setting it.

use super::table;
use super::word::{self, Kind, Word};

/// The words of a command that only says them, with what the text itself makes of them left open. None: it does more, or says
/// what may be a secret.
pub(super) fn said(words: &[Word], text: &str) -> Option<Vec<Word>> {
    let base = words.first().and_then(Word::known)?;
    let is_said = |name: &str| word::is_own(name) || table::PLAIN_VARIABLES.contains(&name);
    let mut expansions = text.split('$').skip(1);
    let names = |word: &Word| word.kind == Kind::Guess && word.text.contains(['*', '?', '[']);
    let plain = !words.iter().any(names)
        && expansions.all(|rest| {
            let name = tokens(rest.trim_start_matches('{').trim_start_matches('#'))
                .next()
                .filter(|(before, ..)| before.is_none());
            let of_a_function =
                rest.trim_start_matches('{').starts_with(|sign: char| sign.is_ascii_digit() || "@*".contains(sign));
            rest.starts_with('(') || of_a_function || name.is_some_and(|(_, name, _)| is_said(name))
        });
    let said = words
        .iter()
        .map(|word| if word.kind == Kind::Guess { Word { kind: Kind::Open, ..word.clone() } } else { word.clone() });
    let said: Vec<Word> = said.collect();
    (plain && !matches!(base, "test" | "[") && table::only_says(&said)).then_some(said)
}

/// Whether it is `NAME=$(date +%s)` or another number that a command counts.
pub(super) fn counts(assignment: &str, name: &str) -> bool {
    let script = assignment
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix("=$("))
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or_default();
    let last = script.rsplit('|').next().unwrap_or_default().trim();
    let of_input = last.strip_prefix("wc -l").is_some_and(|rest| {
        let file = rest.trim_start().strip_prefix('<').unwrap_or_default().trim();
        rest.is_empty() && last.len() < script.len() || file.bytes().all(is_of_path) && !file.is_empty()
    });
    matches!(script, "date +%s" | "date +%s%N" | "nproc" | "id -u") || of_input
}

/// The variables of a text that hold a number whenever they hold anything: each time one is set, it is to digits, to what is
/// computed, or to what a command counts.
pub(super) fn numbers(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let reduced = without_arithmetic(text, &mut names);
    let set = tokens(&reduced).filter(|(_, _, after)| after.starts_with('=')).map(|(_, name, _)| name.to_owned());
    names.extend(set);
    names.sort_unstable();
    names.dedup();
    names.truncate(NAMES_MAX);
    names.retain(|name| {
        word::is_own(name) && {
            let rest = without_numbers(&reduced, name);
            sets(&rest, name) == 0 && sets(&rest, "IFS") == 0
        }
    });
    names
}

/// The text without what is computed plainly in it: `$((i + 1))` as `0`, `((i++))` as `:`. What is computed sets variables to
/// numbers and to nothing else. `names`: those that are set in it.
fn without_arithmetic(text: &str, names: &mut Vec<String>) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("((") {
        let (before, inside) = rest.split_at(at);
        let (inside, after) = inside.get(2..).and_then(|inside| inside.split_once("))")).unwrap_or_default();
        if !inside.is_empty() && inside.split(';').all(is_plain_arithmetic) {
            let sets = |after: &str| after.trim_start().strip_prefix('=').is_some_and(|rest| !rest.starts_with('='));
            names.extend(tokens(inside).filter(|(.., after)| sets(after)).map(|(_, token, _)| token.to_owned()));
            match before.strip_suffix('$') {
                Some(before) => kept.extend([before, "0"]),
                None => kept.extend([before, ":"]),
            }
            rest = after;
        } else {
            kept.extend([before, "(("]);
            rest = rest.get(at + 2..).unwrap_or_default();
        }
    }
    kept.push_str(rest);
    kept
}

/// The text without `NAME=0`, and without `NAME=$(wc -l < x)`.
fn without_numbers(text: &str, name: &str) -> String {
    let assignment = format!("{name}=");
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(&assignment) {
        let (before, found) = rest.split_at(at);
        kept.push_str(before);
        let value = found.get(assignment.len()..).unwrap_or_default();
        let digits = value.bytes().take_while(u8::is_ascii_digit).count();
        let script = value.strip_prefix('$').and_then(|value| word::enclosed(value, '(', ')'));
        let counted = script.filter(|script| counts(&format!("{name}=$({script})"), name));
        let length = counted.map_or(digits, |script| script.len() + "$()".len());
        let ends = value.get(length..).unwrap_or_default();
        let is_whole = length > 0 && (ends.is_empty() || ends.starts_with([' ', '\t', '\n', ';', '&', '|', ')']));
        let begins = kept.is_empty() || kept.ends_with([' ', '\t', '\n', ';', '&', '|', '(']);
        if is_whole && begins {
            rest = ends;
        } else {
            kept.push_str(&assignment);
            rest = value;
        }
    }
    kept.push_str(rest);
    kept
}

/// Whether it is arithmetic of names and numbers: nothing is put in, and no array has an index.
fn is_plain_arithmetic(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_ +-*/%<>=!&|?:,".contains(letter))
}

/// The same, where all names hold numbers: another value would be computed in turn.
pub(super) fn computes_plainly(text: &str, numbers: &[String]) -> bool {
    is_plain_arithmetic(text)
        && tokens(text).all(|(_, token, _)| {
            token.bytes().all(|byte| byte.is_ascii_digit()) || numbers.iter().any(|number| number == token)
        })
}

/// Whether a word of a test is digits, a variable that holds a number, or what a command counts.
pub(super) fn is_number(raw: &str, numbers: &[String]) -> bool {
    let raw = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or(raw);
    let name = raw.strip_prefix('$').unwrap_or_default();
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    raw.bytes().all(|byte| byte.is_ascii_digit())
        || numbers.iter().any(|number| number == name)
        || counts(&format!("n={raw}"), "n")
}

/// Whether a text has this name in it.
pub(super) fn names(text: &str, name: &str) -> bool {
    tokens(text).any(|(_, token, _)| token == name)
}

/// Whether a text computes a number from itself.
pub(super) fn counts_on(text: &str, name: &str) -> bool {
    let computed = |from: &str| from.split_once("))").is_some_and(|(inside, _)| names(inside, name));
    text.split(&format!("{name}=$((")).skip(1).any(computed)
        || text.split("((").skip(1).any(|from| {
            let inside = from.split_once("))").map_or("", |(inside, _)| inside);
            ["++", "--", "+=", "-="].iter().any(|sign| inside.contains(sign)) && names(inside, name)
        })
}

/// Names of one text that are looked at.
const NAMES_MAX: usize = 32;

fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._/-".contains(&byte)
}

/// How often a text may set this variable.
pub(super) fn sets(text: &str, name: &str) -> usize {
    // with one of these a name alone may be set; others that do so are asked about
    let by_name =
        ["read", "for", "select", "unset", "let", "getopts", "mapfile", "readarray", "declare", "typeset", "local"];
    let by_name = tokens(text).any(|(_, token, _)| by_name.contains(&token)) || text.contains("printf -v");
    let computes = text.contains("((");
    let may_set = |before: Option<char>, after: &str| {
        let assigned = after.starts_with(['=', '[']) || after.starts_with("+=");
        // `x += 1`, `++x`
        let after = after.trim_start().trim_start_matches(['+', '-', '*', '/', '%', '&', '|', '^', '<', '>']);
        assigned || by_name || computes && (matches!(before, Some('+' | '-')) || after.starts_with('='))
    };
    let named = tokens(text).filter(|(before, token, _)| *token == name && !matches!(before, Some('$' | '{' | '-')));
    let counted = if computes {
        text.matches(&format!("{name}++")).count() + text.matches(&format!("{name}--")).count()
    } else {
        0
    };
    counted + named.filter(|(before, _, after)| may_set(*before, after)).count()
}

/// The names and numbers of a text, each with the letter before it and what comes after.
fn tokens(text: &str) -> impl Iterator<Item = (Option<char>, &str, &str)> {
    let (mut rest, mut before) = (text, None);
    std::iter::from_fn(move || {
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let from = rest.find(is_of_name)?;
        before = rest.get(..from).and_then(|skipped| skipped.chars().next_back()).or(before.filter(|_| from == 0));
        let begun = rest.get(from..)?;
        let (token, after) = begun.split_at(begun.find(|letter| !is_of_name(letter)).unwrap_or(begun.len()));
        rest = after;
        Some((before.take(), token, after))
    })
}
