//! Shell text to a syntax tree, by brush-parser, kept away from what it cannot bear.
//!
//! Read [`parse`]. The parser recurses, tries alternatives again and again, and panics on some numbers. Each limit below
//! stands before one of these; text beyond a limit is not parsed, which is told to whoever asked.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use brush_parser::ast::Program;
use brush_parser::{ParserOptions, parse_tokens, uncached_tokenize_str};

/// The tree; or why there is none, in words for people.
pub(super) fn parse(text: &str) -> Result<Program, String> {
    within_limits(text)?;
    // as `bash -c` and `sh -c` have it: no extended patterns
    let options = ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() };
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        let tokens = uncached_tokenize_str(text, &options.tokenizer_options()).map_err(|error| error.to_string())?;
        parse_tokens(&tokens, &options).map_err(|error| error.to_string())
    }));
    match parsed {
        Ok(Ok(program)) => Ok(program),
        Ok(Err(error)) => {
            let first = error.lines().next().unwrap_or_default();
            Err(format!(
                "it is no shell command that can be read: {}",
                first.chars().take(ERROR_MAX).collect::<String>()
            ))
        }
        Err(_) => Err("it is no shell command that can be read".to_owned()),
    }
}

fn within_limits(text: &str) -> Result<(), String> {
    if text.len() > TEXT_MAX {
        return Err(format!("it is longer than {} KiB", TEXT_MAX / 1024));
    }
    if text.contains('\0') {
        return Err("it contains a NUL, at which a command ends".to_owned());
    }
    // brackets count wherever they stand, in most quotes too: what is too much for the parser is never too little here
    let text = &*without_quoted_words(text);
    let (mut round, mut curly, mut words, mut cases) = (0_usize, 0_usize, 0_usize, 0_usize);
    for letter in text.chars() {
        match letter {
            '(' => round += 1,
            ')' => round = round.saturating_sub(1),
            '{' => curly += 1,
            '}' => curly = curly.saturating_sub(1),
            _ => {}
        }
        if round > ROUND_MAX || curly > CURLY_MAX {
            return Err("it is nested too deep".to_owned());
        }
    }
    for word in text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
        words += usize::from(COMPOUND.contains(&word));
        cases += usize::from(word == "case");
    }
    if words > COMPOUND_MAX || cases > CASE_MAX {
        return Err("it has too many loops and conditions in it".to_owned());
    }
    if text.matches('`').count() > BACKTICKS_MAX {
        return Err("it has too many backticks".to_owned());
    }
    let joined = text.replace("\\\n", "");
    if has_long_descriptor(&joined) {
        return Err("it redirects a descriptor that no process has".to_owned());
    }
    if has_index(&joined) {
        return Err("it uses the index of an array".to_owned());
    }
    Ok(())
}

/// The text with words that stand in single quotes as a whole left out: no parser looks into them. Where it is not plain what
/// quotes what, the text as it is.
fn without_quoted_words(text: &str) -> Cow<'_, str> {
    let unplain = ["$'", "$((", "((", "`", "<<", "${"];
    if !text.contains('\'') || unplain.iter().any(|sign| text.contains(sign)) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut letters = text.chars();
    let mut before = ' ';
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                kept.push(letter);
                kept.extend(letters.next());
            }
            '#' if before.is_whitespace() || before == ';' => return Cow::Borrowed(text),
            '"' => {
                kept.push(letter);
                loop {
                    match letters.next() {
                        Some('$') if letters.as_str().starts_with('(') => return Cow::Borrowed(text),
                        Some('\\') => kept.extend(std::iter::once('\\').chain(letters.next())),
                        Some('"') => break kept.push('"'),
                        Some(inside) => kept.push(inside),
                        None => return Cow::Borrowed(text),
                    }
                }
            }
            '\'' => {
                let rest = letters.as_str();
                let Some((inside, after)) = rest.split_once('\'') else { return Cow::Borrowed(text) };
                let whole = before.is_whitespace()
                    && after
                        .chars()
                        .next()
                        .is_none_or(|next| next.is_whitespace() || matches!(next, ';' | '|' | '&' | ')'));
                kept.push_str("''");
                if !whole {
                    kept.push_str(inside);
                }
                letters = after.chars();
            }
            letter => kept.push(letter),
        }
        before = letter;
    }
    Cow::Owned(kept)
}

/// The parser takes digits before `<` and `>` for a number of 32 bits without looking.
fn has_long_descriptor(text: &str) -> bool {
    let mut digits = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' => digits += 1,
            b'<' | b'>' if digits > DESCRIPTOR_DIGITS_MAX => return true,
            _ => digits = 0,
        }
    }
    false
}

/// Every word that begins like `name[` is tried as an assignment to an array, whose index is parsed without bounds.
fn has_index(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().any(|(at, byte)| {
        let named = at > 0 && bytes.get(at - 1).is_some_and(|before| before.is_ascii_alphanumeric() || *before == b'_');
        let inside = bytes.iter().skip(at + 1).take_while(|byte| !matches!(byte, b']' | b' ' | b'\n' | b'\t'));
        *byte == b'['
            && named
            && inside.enumerate().any(|(length, byte)| {
                length > INDEX_MAX || matches!(byte, b'$' | b'`' | b'(' | b'[' | b'{' | b'"' | b'\'' | b'~' | b'\\')
            })
    })
}

/// The kernel's limit on one argument.
const TEXT_MAX: usize = 128 * 1024;
/// The parser tries `((` as arithmetic first and again as two groups, which doubles the work with each.
const ROUND_MAX: usize = 5;
/// It recurses, and a stack has an end.
const CURLY_MAX: usize = 24;
const COMPOUND_MAX: usize = 24;
/// The last branch of a `case` is parsed twice, and so is a `case` in it.
const CASE_MAX: usize = 2;
const BACKTICKS_MAX: usize = 64;
const DESCRIPTOR_DIGITS_MAX: usize = 8;
const INDEX_MAX: usize = 64;
const ERROR_MAX: usize = 120;
const COMPOUND: [&str; 8] = ["if", "for", "while", "until", "case", "select", "function", "coproc"];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> String {
        match parse(text) {
            Ok(program) => program.to_string(),
            Err(reason) => format!("error: {reason}"),
        }
    }

    #[test]
    fn what_the_parser_cannot_bear_does_not_reach_it() {
        for (text, said) in [
            ("99999999999>x".to_owned(), "descriptor"),
            ("9999\\\n9999999>x".to_owned(), "descriptor"),
            ("a[${x:-~99999999999999999999999}]=1".to_owned(), "index"),
            ("a[\"$(\"$(".to_owned(), "index"),
            ("(".repeat(10_000), "too deep"),
            ("{ ".repeat(10_000), "too deep"),
            ("$(".repeat(10_000), "too deep"),
            ("if a; then ".repeat(10_000), "too many loops"),
            ("case a in a) ".repeat(10), "too many loops"),
            ("`".repeat(10_000), "too many backticks"),
            ("a".repeat(200_000), "longer than"),
            ("ls ;; pwd".to_owned(), "no shell command"),
            ("{ ls".to_owned(), "no shell command"),
            ("echo 'a".to_owned(), "no shell command"),
            ("a\0b".to_owned(), "NUL"),
        ] {
            let found = check(&text);
            assert!(found.starts_with("error: ") && found.contains(said), "{said}: {found}");
        }
        assert_eq!(check("ls a[0-9]").trim(), "ls a[0-9]");
    }

    #[test]
    fn the_deepest_text_that_is_parsed_fits_a_small_stack_and_a_short_time() {
        let deep = [
            format!("{}ls;{}", "{ ".repeat(CURLY_MAX), " }".repeat(CURLY_MAX)),
            format!("{}ls; pwd{}", "( ".repeat(ROUND_MAX), " )".repeat(ROUND_MAX)),
            format!("{}a;b", "( ".repeat(ROUND_MAX)),
            format!("{}{}", "(".repeat(ROUND_MAX), "a ".repeat(40_000)),
            format!("{}{}", "if a; then ".repeat(COMPOUND_MAX), "a; ".repeat(30_000)),
            format!("{}{}", "case a in a) ".repeat(CASE_MAX), "a; ".repeat(30_000)),
            format!("{}{}ls;{}", "{ ".repeat(CURLY_MAX), "if a; then ".repeat(COMPOUND_MAX), " }".repeat(CURLY_MAX)),
        ];
        let mut all = std::time::Duration::ZERO;
        for text in deep {
            let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
            let head: String = text.chars().take(20).collect();
            let work = move || {
                drop(parse(&text));
                crate::shell::tests::worked()
            };
            let taken = thread.spawn(work).unwrap().join().unwrap();
            eprintln!("{head} {taken:?}");
            all += taken;
        }
        assert!(all.as_secs() < 20, "{all:?}");
    }
}
