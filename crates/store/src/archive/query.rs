//! What a query means. Any text is one: it is cut into words, as texts are, and nothing in it is an operator.

use std::borrow::Cow;

/// The most of a query that is looked at. Longer ones are pasted texts, whose beginning says what they are.
const QUERY_MAX_BYTES: usize = 4 * 1024;
/// The most words of a query that are looked for.
const WORDS_MAX: usize = 16;

/// A query, taken apart.
#[derive(Debug)]
pub(crate) struct Query {
    /// Distinct, in their order.
    pub(crate) words: Vec<Word>,
    /// All of it in lower case, for what has no words.
    pub(crate) written: String,
}

/// One word to look for, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Of a script without spaces: any stretch of a text can be the word.
    pub(crate) unspaced: bool,
}

impl Query {
    pub(crate) fn of(text: &str) -> Self {
        let mut end = text.len().min(QUERY_MAX_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        // Half a word is none of the query's, unless it is all there is.
        let whole = if end < text.len() { text[..end].rfind(char::is_whitespace).filter(|at| *at > 0) } else { None };
        let text = text[..whole.unwrap_or(end)].trim();
        let mut words: Vec<Word> = Vec::new();
        let mut last_end = usize::MAX;
        for token in tokens(text) {
            let lower = token.text.to_lowercase();
            match words.last_mut() {
                Some(last) if last.unspaced && token.unspaced && last_end == token.start => last.text.push_str(&lower),
                Some(_) | None => words.push(Word { text: lower, unspaced: token.unspaced }),
            }
            last_end = token.start + token.text.len();
        }
        let mut distinct: Vec<Word> = Vec::new();
        for word in words {
            if distinct.len() < WORDS_MAX && !distinct.contains(&word) {
                distinct.push(word);
            }
        }
        Self { words: distinct, written: text.to_lowercase() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty()
    }
}

/// A word of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) start: usize,
    pub(crate) text: &'a str,
    /// One character of a script without spaces.
    pub(crate) unspaced: bool,
}

/// Runs of letters and digits; each character of a script without spaces alone.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(char::is_alphanumeric)?;
        let first = text[start..].chars().next()?;
        if is_unspaced(first) {
            at = start + first.len_utf8();
            return Some(Token { start, text: &text[start..at], unspaced: true });
        }
        let ends = |c: char| !c.is_alphanumeric() || is_unspaced(c);
        at = text[start..].find(ends).map_or(text.len(), |length| start + length);
        Some(Token { start, text: &text[start..at], unspaced: false })
    })
}

/// A text with every character of a script without spaces set apart, so that an index of words finds any stretch of them.
pub(crate) fn spaced(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.chars().any(is_unspaced) {
        return Cow::Borrowed(text);
    }
    let mut apart = String::with_capacity(text.len() * 4 / 3);
    for c in text.chars() {
        if is_unspaced(c) {
            apart.push(' ');
            apart.push(c);
            apart.push(' ');
        } else {
            apart.push(c);
        }
    }
    Cow::Owned(apart)
}

/// Whether words of the character's script are written without spaces between them, or grow endings (Hangul).
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{0E00}'..='\u{0EFF}' // Thai, Lao
        | '\u{1000}'..='\u{109F}' // Myanmar
        | '\u{1780}'..='\u{17FF}' // Khmer
        | '\u{3040}'..='\u{30FF}' | '\u{31F0}'..='\u{31FF}' | '\u{FF66}'..='\u{FF9F}' // Kana
        | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{323AF}' // Han
        | '\u{AC00}'..='\u{D7AF}' // Hangul
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, words: &[&str]) {
        let found = Query::of(query);
        assert_eq!(found.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>(), words, "{query}");
    }

    #[test]
    fn a_query_is_its_words() {
        check("Port of staging-db_2?", &["port", "of", "staging", "db", "2"]);
        check("a A a", &["a"]);
        check("NEAR(\"x\" OR y*) AND NOT z^2 {col}: -q", &["near", "x", "or", "y", "and", "not", "z", "2", "col", "q"]);
        check("数据库 error端口", &["数据库", "error", "端口"]);
        check("ÉCOLE", &["école"]);
        check("\0🎉 … \u{202e}", &[]);
        check(&"word ".repeat(1_000_000), &["word"]);
        check(&"é".repeat(1_000_000), &["é".repeat(QUERY_MAX_BYTES / 2).as_str()]);
        assert_eq!(Query::of(&(0..1000).map(|n| format!("w{n} ")).collect::<String>()).words.len(), WORDS_MAX);
    }

    #[test]
    fn scripts_without_spaces_are_set_apart() {
        assert_eq!(spaced("plain é"), "plain é");
        assert_eq!(spaced("a数据b").split_whitespace().collect::<Vec<_>>(), ["a", "数", "据", "b"]);
    }
}
