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
            let name = tokens(rest.trim_start_matches('{')).next().filter(|(before, ..)| before.is_none());
            rest.starts_with('(') || name.is_some_and(|(_, name, _)| is_said(name))
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
    matches!(script, "date +%s" | "date +%s%N" | "nproc" | "id -u") || script.ends_with("| wc -l")
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
