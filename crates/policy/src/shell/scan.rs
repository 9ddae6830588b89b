//! A second, rougher reading of shell text: where one command ends and the next begins, without a grammar.
//!
//! It serves twice. Text that cannot be parsed, or must not be (too long, too deep), is searched for what is denied: a
//! shell runs the lines before a syntax error, so an error must not hide them. And a command is allowed only if the
//! parser and this reading agree on its words. It goes over the text once and cannot fail.

use super::word::enclosed;

/// A simple command as it seems.
#[derive(Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    /// As written, reserved words at the start left out.
    pub(crate) words: Vec<String>,
    /// Where it reads from and writes to, as written.
    pub(crate) redirects: Vec<(Direction, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    In,
    Out,
}

/// Every command in the text, in order.
pub(crate) fn scan(text: &str) -> Vec<Seen> {
    let mut scanner =
        Scanner { text, at: 0, word: None, target: None, command: Seen::default(), commands: Vec::new(), misses: 0 };
    while let Some(letter) = scanner.next() {
        scanner.take(letter);
    }
    scanner.end_command();
    scanner.commands
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    word: Option<String>,
    /// Set after a redirection: the next word is its file.
    target: Option<Direction>,
    command: Seen,
    commands: Vec<Seen>,
    /// Quotes and brackets whose end was looked for in vain. Each look goes to the end of the text.
    misses: usize,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest().chars().next()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    /// How far it is to an end that `look` looks for in what follows.
    fn length(&mut self, look: impl Fn(&str) -> Option<usize>) -> Option<usize> {
        if self.misses >= MISSES_MAX {
            return None;
        }
        let length = look(self.rest());
        self.misses += usize::from(length.is_none());
        length
    }

    fn push(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    /// Takes `length` bytes of what follows into the word.
    fn push_next(&mut self, length: usize) {
        let text = self.rest().get(..length).unwrap_or_default().to_owned();
        self.at += text.len();
        self.push(&text);
    }

    fn take(&mut self, letter: char) {
        match letter {
            '\\' => match self.next() {
                Some('\n') => {}
                Some(next) => {
                    self.push("\\");
                    self.push(next.encode_utf8(&mut [0; 4]));
                }
                None => self.push("\\"),
            },
            '\'' | '"' => {
                let closed = match letter {
                    '\'' => self.length(|rest| rest.find('\'').map(|end| end + 1)),
                    _ => self.length(closing_quote),
                };
                // a quote that is never closed hides nothing
                if let Some(length) = closed {
                    self.push(letter.encode_utf8(&mut [0; 4]));
                    self.push_next(length);
                }
            }
            '`' => match self.length(|rest| rest.find('`').map(|end| end + 1)) {
                Some(length) => {
                    self.push("`");
                    self.push_next(length);
                }
                None => self.end_command(),
            },
            '$' if self.rest().starts_with('\'') => {
                let length = self.length(closing_ansi_c).unwrap_or_default();
                self.push("$");
                self.push_next(length);
            }
            '$' if self.rest().starts_with(['(', '{']) => {
                let (open, close) = if self.rest().starts_with('(') { ('(', ')') } else { ('{', '}') };
                match self.length(|rest| enclosed(rest, open, close).map(|inside| inside.len() + 2)) {
                    Some(length) => {
                        self.push("$");
                        self.push_next(length);
                    }
                    None => {
                        self.at += 1;
                        self.end_command();
                    }
                }
            }
            // behind `<(a)` it is a letter of a word
            '#' if self.word.is_none() && !self.text.get(..self.at - 1).is_some_and(|before| before.ends_with(')')) => {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            }
            // `x=(a b)`, which is no command in any shell
            '(' if self.command.words.is_empty() && self.word.as_ref().is_some_and(|word| word.ends_with('=')) => {
                let from = self.text.get(self.at - 1..).filter(|_| self.misses < MISSES_MAX).unwrap_or_default();
                match enclosed(from, '(', ')').map(str::len) {
                    Some(inside) => {
                        self.push("(");
                        self.push_next(inside + 1);
                    }
                    None => {
                        self.misses += 1;
                        self.end_command();
                    }
                }
            }
            ' ' | '\t' => self.end_word(),
            '\n' | ';' | '|' | '(' | ')' => self.end_command(),
            '&' if self.rest().starts_with('>') => self.end_word(),
            '&' => self.end_command(),
            '<' | '>' => {
                // a number before it names a descriptor
                if self.word.as_ref().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
                    self.word = None;
                }
                self.end_word();
                while self.rest().starts_with(['<', '>', '&', '|']) {
                    self.at += 1;
                }
                self.target = Some(if letter == '<' { Direction::In } else { Direction::Out });
            }
            letter => self.push(letter.encode_utf8(&mut [0; 4])),
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        match self.target.take() {
            Some(direction) => self.command.redirects.push((direction, word)),
            // behind it stands a pattern
            None if word == "in" && matches!(self.command.words.as_slice(), [case, _] if case == "case") => {
                self.command.words.push(word);
                self.end_command();
            }
            None if self.command.words.is_empty() && RESERVED.contains(&word.as_str()) => {}
            None => self.command.words.push(word),
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.target = None;
        let command = std::mem::take(&mut self.command);
        if command != Seen::default() {
            self.commands.push(command);
        }
    }
}

/// How far it is to the end of a double-quoted text, the quote included.
fn closing_quote(text: &str) -> Option<usize> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some(at + 1),
            '\\' => {
                letters.next();
            }
            // quotes inside a substitution are its own
            '$' if text.get(at + 1..).is_some_and(|rest| rest.starts_with('(')) => {
                let inside = enclosed(text.get(at + 1..)?, '(', ')')?.len();
                let end = at + 1 + inside + 2;
                while letters.offset() < end {
                    letters.next()?;
                }
            }
            _ => {}
        }
    }
    None
}

/// How far it is to the end of `'…'` in which `\'` is a quote, both quotes included.
fn closing_ansi_c(text: &str) -> Option<usize> {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\'' => return Some(at + 1),
            '\\' => {
                letters.next();
            }
            _ => {}
        }
    }
    None
}

/// Words that begin or end a compound command and are no command themselves.
const RESERVED: [&str; 15] =
    ["!", "{", "}", "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac", "time", "coproc"];

/// After so many, text is taken to close nothing.
const MISSES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> String {
        let commands = scan(text).into_iter().map(|seen| {
            let mut shown = seen.words.join(" ");
            for (direction, file) in seen.redirects {
                shown.push_str(if direction == Direction::In { " <" } else { " >" });
                shown.push_str(&file);
            }
            shown
        });
        commands.collect::<Vec<_>>().join(" / ")
    }

    #[test]
    fn commands_are_told_apart_whatever_joins_them() {
        for (text, seen) in [
            ("a; b && c || d | e |& f & g\nh", "a / b / c / d / e / f / g / h"),
            ("( a ) { b; }", "a / b"),
            ("! a; time b; if c; then d; fi", "a / b / c / d"),
            ("a 'b; c' \"d; e\" f\\;g", "a 'b; c' \"d; e\" f\\;g"),
            ("a $(b; c) `d; e` ${f;g}", "a $(b; c) `d; e` ${f;g}"),
            ("a \"$(b \")\")\"; c", "a \"$(b \")\")\" / c"),
            ("a # b; c\nd#e", "a / d#e"),
            ("a <(b)#c & d", "a / b / #c / d"),
            ("a > b 2>c <d &>e >&f >|g", "a >b >c <d >e >f >g"),
            ("a\\\nb", "ab"),
            ("case $x in a|b) c;; (d) e ;; esac | f", "case $x in / a / b / c / d / e / f"),
            ("a 'b; rm", "a b / rm"),
            ("a $(rm -rf", "a / rm -rf"),
            ("a `rm", "a / rm"),
            ("a $'b\\'; c'; d", "a $'b\\'; c' / d"),
            ("", ""),
        ] {
            assert_eq!(check(text), seen, "{text}");
        }
    }
}
