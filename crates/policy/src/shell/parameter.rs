//! What `${x%/*}` and `$(dirname "$0")` stand for, where the text before says what `x` and `$0` are.
//!
//! Read [`expansion`] and [`printed`]. Both answer only for what they know by heart, in short texts; with a substitution inside
//! a parameter nothing is guessed, so that no nesting is read twice.

use super::scan;
use super::scope::Value;
use super::word::{self, Joins, Kind, Variables, Word, enclosed};
use crate::path;

/// Of text that begins with `{`, as it stands behind a `$`: how long the expansion is, and the words it may stand for. None:
/// that cannot be told.
pub(super) fn expansion(text: &str, variables: &Variables<'_>) -> Option<(usize, Vec<Word>, Joins)> {
    let most = text.char_indices().take(TEXT_MAX).last().map_or(0, |(at, letter)| at + letter.len_utf8());
    let inside = enclosed(text.get(..most)?, '{', '}')?;
    let (name, rest) = name_of(inside.strip_prefix('!').unwrap_or(inside))?;
    // plain variables of which a shell is sure are read elsewhere
    if rest.is_empty()
        && !inside.starts_with('!')
        && (variables.bound(name).is_some() || variables.value(name).is_some())
    {
        return None;
    }
    if rest.contains(['$', '`', '\\', '\'', '"']) {
        return None;
    }
    let value = match inside.starts_with('!') {
        false => variables.guess(name),
        true => variables.guess(variables.guess(name)?.first()?.known()?),
    };
    let joins = if name == "*" || rest.starts_with("[*]") { Joins::Together } else { Joins::Apart };
    let (value, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some(("@" | "*", rest)) => (value, rest),
        Some((index, rest)) => {
            let at: usize = index.parse().ok()?;
            (value.and_then(|value| value.get(at).map(|word| Value::from([word.clone()]))), rest)
        }
        None if matches!(name, "@" | "*") => (value, rest),
        // of an array a name alone is the first
        None => (value.map(|value| Value::from(value.get(..1).unwrap_or_default())), rest),
    };
    let letters = value.iter().flat_map(|value| value.iter()).map(|word| word.text.len()).sum();
    if !rest.is_empty() && !variables.scope.spend(letters) {
        return None;
    }
    let words = changed(value.as_deref(), rest)?;
    Some((inside.len() + 2, words, joins))
}

fn name_of(text: &str) -> Option<(&str, &str)> {
    let length = match text.chars().next()? {
        '@' | '*' => 1,
        first if first.is_ascii_alphanumeric() || first == '_' => {
            text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
        }
        _ => return None,
    };
    text.split_at_checked(length)
}

/// A value after what stands behind the name: `%/*`, `:-x`, `:0:1`. None stands for a variable of which nothing is known.
fn changed(value: Option<&[Word]>, rest: &str) -> Option<Vec<Word>> {
    let guess = |text: String| Word { text, kind: Kind::Guess };
    let is_something = value.is_some_and(|value| value.iter().any(|word| !word.text.is_empty() || word.is_unknown()));
    let without_colon = rest.strip_prefix(':').unwrap_or(rest);
    // nobody else may have set it: then it is what stands here
    if let Some(instead) = without_colon.strip_prefix(['-', '=']) {
        return match value.filter(|_| is_something) {
            Some(value) => Some(value.to_vec()),
            None => Some(vec![guess(instead.to_owned())]),
        };
    }
    if let Some(instead) = without_colon.strip_prefix('+') {
        return Some(vec![guess(if value.is_some() && !is_something { String::new() } else { instead.to_owned() })]);
    }
    let value = value?;
    if rest.is_empty() || without_colon.starts_with('?') {
        return Some(value.to_vec());
    }
    let change = change(rest)?;
    let words = value.iter().map(|word| match word.known() {
        Some(text) => guess(change(text)),
        None => word.clone(),
    });
    Some(words.collect())
}

type Change<'a> = Box<dyn Fn(&str) -> String + 'a>;

fn change(rest: &str) -> Option<Change<'_>> {
    Some(match rest.chars().next()? {
        '%' => {
            let pattern = rest.trim_start_matches('%');
            let greedy = rest.starts_with("%%");
            Box::new(move |text| cut(text, pattern, End::Last, greedy))
        }
        '#' => {
            let pattern = rest.trim_start_matches('#');
            let greedy = rest.starts_with("##");
            Box::new(move |text| cut(text, pattern, End::First, greedy))
        }
        '/' => {
            let all = rest.starts_with("//");
            let (from, to) = rest.trim_start_matches('/').split_once('/').unwrap_or((rest.trim_start_matches('/'), ""));
            if from.is_empty() || from.contains(['*', '?', '[', '#', '%']) {
                return None;
            }
            Box::new(move |text| if all { text.replace(from, to) } else { text.replacen(from, to, 1) })
        }
        ',' => Box::new(|text| text.to_lowercase()),
        '^' => Box::new(|text| text.to_uppercase()),
        ':' => {
            let (from, length) = rest.get(1..)?.split_once(':').map_or((rest.get(1..)?, None), |(a, b)| (a, Some(b)));
            let from: usize = from.trim().parse().ok()?;
            let length: usize = length.map_or(Some(usize::MAX), |length| length.trim().parse().ok())?;
            Box::new(move |text| text.chars().skip(from).take(length).collect())
        }
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// The text without what a pattern matches at this end.
fn cut(text: &str, pattern: &str, end: End, greedy: bool) -> String {
    let places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    // as shells compare here, a star stands for a dot and a slash too
    let matches = |part: &str| path::glob_matches(&format!("x{pattern}"), &format!("x{part}"));
    let parts = places.map(|at| match end {
        End::First => (text.get(..at).unwrap_or_default(), text.get(at..).unwrap_or_default()),
        End::Last => (text.get(at..).unwrap_or_default(), text.get(..at).unwrap_or_default()),
    });
    let mut found = parts.filter(|(part, _)| matches(part)).map(|(_, rest)| rest);
    // from the first letter on parts grow at the first end, and shrink at the last
    let kept = if (end == End::First) == greedy { found.next_back() } else { found.next() };
    kept.unwrap_or(text).to_owned()
}

/// What a substitution prints that only works with names: `dirname "$0"`, `cd "$x" && pwd`.
pub(super) fn printed(script: &str, variables: &Variables<'_>) -> Option<String> {
    if script.len() > TEXT_MAX || script.contains(['|', '\n']) || !variables.scope.spend(script.len()) {
        return None;
    }
    let mut here = variables.here.map(str::to_owned);
    let mut printed = String::new();
    for seen in scan::scan(script) {
        if seen.redirects.iter().any(|(_, file)| !matches!(file.as_str(), "/dev/null" | "1" | "2" | "&1" | "&2")) {
            return None;
        }
        let mut words = Vec::new();
        for raw in &seen.words {
            let at = Variables { here: here.as_deref(), ..variables.clone() };
            words.extend(word::read(raw, &at).words.iter().map(Word::known).map(|text| text.map(str::to_owned)));
        }
        let words: Vec<String> = words.into_iter().collect::<Option<_>>()?;
        let mut texts: Vec<&str> = words.iter().map(String::as_str).collect();
        texts.retain(|text| !matches!(*text, "--" | "-P" | "-L" | "-e" | "-f" | "-m" | "-n"));
        let absolute = |path: &str| match (path.starts_with('/'), &here) {
            (false, None) => None,
            (true, _) => Some(path::absolute("/", path)),
            (false, Some(here)) => Some(path::absolute(here, path)),
        };
        match texts.as_slice() {
            ["cd", folder] => here = Some(absolute(folder)?),
            ["pwd"] => printed.push_str(here.as_deref()?),
            ["true" | ":"] => {}
            ["dirname", path] => printed.push_str(folder_of(path)),
            ["basename", path, ending @ ..] => {
                let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                let ending = ending.first().copied().unwrap_or_default();
                printed.push_str(name.strip_suffix(ending).filter(|rest| !rest.is_empty()).unwrap_or(name));
            }
            ["realpath" | "readlink", path] => printed.push_str(&absolute(path)?),
            ["echo", texts @ ..] | ["printf", "%s" | "%s\\n", texts @ ..] => printed.push_str(&texts.join(" ")),
            _ => return None,
        }
    }
    Some(printed)
}

fn folder_of(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None if path.starts_with('/') => "/",
        None => ".",
    }
}

/// A longer text is not looked into.
const TEXT_MAX: usize = 256;
