//! One word of a shell command, with its quotes taken off: what the shell will make of it, as far as that can be told
//! without running anything.
//!
//! Read [`read`] first. It goes over the text once, so that no nesting makes it slow. What it cannot tell it calls
//! [`Kind::Unknown`] and never guesses; scripts inside substitutions are handed out to be judged on their own.

/// A word after quoting and expansion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    /// For `Glob`, the pattern, quoted wildcards escaped by `\`. For `Unknown`, the parts that are known.
    pub(crate) text: String,
    pub(crate) kind: Kind,
}

/// How far a word is known. Only `Literal` words can be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Every shell reads it so.
    Literal,
    /// One shell reads it so, or it stands for a variable whose usual value is known: `$'…'`, `{a,b}`, `~`, `$HOME`.
    Likely,
    /// Stands for the names of files.
    Glob,
    /// Only known once it runs.
    Unknown,
}

/// What a word became.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Usually one; several where braces make several.
    pub(crate) words: Vec<Word>,
    /// Shell text that is run to make the word.
    pub(crate) scripts: Vec<String>,
}

/// Values the shell is known to start with.
#[derive(Debug, Clone)]
pub(crate) struct Variables<'a> {
    pub(crate) home: &'a str,
    pub(crate) longrein_home: Option<&'a str>,
    /// The folder the command runs in, where that is one.
    pub(crate) here: Option<&'a str>,
    /// Variables of loops, the innermost last, with the word they stand for.
    pub(crate) bindings: &'a [(String, Word)],
}

impl Variables<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        match name {
            "HOME" => Some(self.home),
            "PWD" => self.here,
            "LONGREIN_HOME" => self.longrein_home,
            // some number
            "PPID" | "UID" | "EUID" | "RANDOM" | "SECONDS" | "LINENO" | "BASHPID" => Some(NUMBER),
            _ => None,
        }
    }

    fn bound(&self, name: &str) -> Option<&Word> {
        self.bindings.iter().rev().find(|(bound, _)| bound == name).map(|(_, word)| word)
    }
}

impl Word {
    pub(crate) fn unknown() -> Self {
        Self { text: String::new(), kind: Kind::Unknown }
    }

    /// Its text, if that can be told, however the shell spells it.
    pub(crate) fn known(&self) -> Option<&str> {
        match self.kind {
            Kind::Literal | Kind::Likely => Some(&self.text),
            Kind::Glob | Kind::Unknown => None,
        }
    }
}

/// Stands for a number that only a shell knows.
const NUMBER: &str = "0";

/// One character of a word on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// Means what it means to the shell.
    Bare(char),
    Quoted(char),
    /// Known only once it runs.
    Opaque,
}

/// Reads the raw text of one word.
pub(crate) fn read(raw: &str, variables: &Variables<'_>) -> Reading {
    let mut reader = Reader { text: raw, at: 0, variables, pieces: Vec::new(), scripts: Vec::new(), certain: true };
    reader.tilde();
    reader.unquoted();
    let Reader { pieces, scripts, mut certain, .. } = reader;
    let expanded = braces(&pieces);
    certain &= expanded.len() == 1;
    let words = match expanded.is_empty() {
        true => vec![Word::unknown()],
        false => expanded.iter().map(|pieces| word(pieces, certain)).collect(),
    };
    Reading { words, scripts }
}

/// The scripts in the text of a here-document, where only `$`, backticks and `\` mean something.
pub(crate) fn scripts_in(text: &str, variables: &Variables<'_>) -> Vec<String> {
    let mut reader = Reader { text, at: 0, variables, pieces: Vec::new(), scripts: Vec::new(), certain: true };
    reader.double_quoted(Until::End);
    reader.scripts
}

fn word(pieces: &[Piece], certain: bool) -> Word {
    let opaque = pieces.contains(&Piece::Opaque);
    let opens = pieces.iter().position(|piece| *piece == Piece::Bare('['));
    let class = opens.is_some_and(|opens| pieces.iter().skip(opens).any(|piece| *piece == Piece::Bare(']')));
    let is_glob = class || pieces.iter().any(|piece| matches!(piece, Piece::Bare('*' | '?')));
    let mut text = String::with_capacity(pieces.len());
    for piece in pieces {
        match piece {
            Piece::Bare(letter) => text.push(*letter),
            Piece::Quoted(letter) => {
                if is_glob && matches!(letter, '*' | '?' | '[' | ']' | '\\') {
                    text.push('\\');
                }
                text.push(*letter);
            }
            Piece::Opaque => {}
        }
    }
    let kind = match (opaque, is_glob, certain) {
        (true, _, _) => Kind::Unknown,
        (false, true, _) => Kind::Glob,
        (false, false, true) => Kind::Literal,
        (false, false, false) => Kind::Likely,
    };
    Word { text, kind }
}

/// Where a `$` stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoting {
    Bare,
    Double,
}

/// Whether no shell would split a value at this letter, or take it for a pattern.
fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '.' | '_' | '/' | '-' | '+' | '@' | '%' | ',' | ':' | '=')
}

/// Where double-quoted reading stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Quote,
    End,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    variables: &'a Variables<'a>,
    pieces: Vec<Piece>,
    scripts: Vec<String>,
    /// Whether every shell would read it so.
    certain: bool,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest().chars().next()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    fn quoted(&mut self, text: &str) {
        self.pieces.extend(text.chars().map(Piece::Quoted));
    }

    fn tilde(&mut self) {
        let Some(rest) = self.rest().strip_prefix('~') else { return };
        let name: String =
            rest.chars().take_while(|letter| letter.is_ascii_alphanumeric() || "._-+".contains(*letter)).collect();
        if !matches!(rest.get(name.len()..).and_then(|after| after.chars().next()), None | Some('/')) {
            return;
        }
        self.at += 1 + name.len();
        self.certain = false;
        let folder = match name.as_str() {
            "" => self.variables.home.to_owned(),
            "root" => "/root".to_owned(),
            "+" => match self.variables.here {
                Some(here) => here.to_owned(),
                None => return self.pieces.push(Piece::Opaque),
            },
            name if name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') => {
                format!("/home/{name}")
            }
            _ => return self.pieces.push(Piece::Opaque),
        };
        self.quoted(&folder);
    }

    fn unquoted(&mut self) {
        while let Some(letter) = self.next() {
            match letter {
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(letter) => self.pieces.push(Piece::Quoted(letter)),
                    None => self.pieces.push(Piece::Opaque),
                },
                '\'' => match self.rest().find('\'') {
                    Some(end) => {
                        let inside = self.rest().get(..end).unwrap_or_default().to_owned();
                        self.quoted(&inside);
                        self.at += end + 1;
                    }
                    None => self.unclosed(),
                },
                '"' => self.double_quoted(Until::Quote),
                '$' if self.rest().starts_with('\'') => {
                    self.at += 1;
                    self.certain = false;
                    self.ansi_c();
                }
                '$' if self.rest().starts_with('"') => {
                    self.at += 1;
                    self.certain = false;
                    self.double_quoted(Until::Quote);
                }
                '$' => self.dollar(Quoting::Bare),
                '`' => self.backticks(),
                letter => self.pieces.push(Piece::Bare(letter)),
            }
        }
    }

    fn double_quoted(&mut self, until: Until) {
        while let Some(letter) = self.next() {
            match letter {
                '"' if until == Until::Quote => return,
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(letter @ ('$' | '`' | '"' | '\\')) => self.pieces.push(Piece::Quoted(letter)),
                    Some(letter) => self.pieces.extend([Piece::Quoted('\\'), Piece::Quoted(letter)]),
                    None => self.pieces.push(Piece::Quoted('\\')),
                },
                '$' => {
                    self.dollar(Quoting::Double);
                }
                '`' => self.backticks(),
                letter => self.pieces.push(Piece::Quoted(letter)),
            }
        }
        if until == Until::Quote {
            self.pieces.push(Piece::Opaque);
        }
    }

    /// After a quote that is never closed: the rest cannot be told.
    fn unclosed(&mut self) {
        self.pieces.push(Piece::Opaque);
        self.at = self.text.len();
    }

    /// What a loop's variable stands for this time.
    fn bound_value(&mut self, word: &Word, quoting: Quoting) {
        match word.kind {
            // a shell would split it
            Kind::Literal if quoting == Quoting::Bare && !word.text.chars().all(is_plain) => {
                self.pieces.push(Piece::Opaque)
            }
            Kind::Literal => self.quoted(&word.text.clone()),
            // some name of that shape
            Kind::Glob => self.pieces.extend(word.text.chars().map(Piece::Bare)),
            Kind::Likely | Kind::Unknown => self.pieces.push(Piece::Opaque),
        }
    }

    /// After `$`.
    fn dollar(&mut self, quoting: Quoting) {
        let rest = self.rest();
        match rest.chars().next() {
            Some('(') => {
                let inside = enclosed(rest, '(', ')');
                let (script, taken) = match inside {
                    Some(inside) => (inside.to_owned(), inside.len() + 2),
                    None => (rest.get(1..).unwrap_or_default().to_owned(), rest.len()),
                };
                // `$((…))` is arithmetic, where substitutions count as well; read as a script it says no less
                self.at += taken;
                match self.plainly_printed(&script) {
                    // what it prints is known, and asked about all the same
                    Some(text) => self.known_value(&text),
                    None => self.pieces.push(Piece::Opaque),
                }
                self.scripts.push(script);
            }
            Some('{') => {
                let inside = rest.get(1..).unwrap_or_default();
                let length = inside.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
                let (name, after) = inside.split_at(length);
                let name = after.starts_with('}').then(|| name.to_owned());
                if let Some(word) = name.as_deref().and_then(|name| self.variables.bound(name)).cloned() {
                    self.at += name.map_or(0, |name| name.len()) + 2;
                    return self.bound_value(&word, quoting);
                }
                let value = name.as_deref().and_then(|name| self.variables.value(name)).map(str::to_owned);
                match (name, value) {
                    (Some(name), Some(value)) => {
                        self.at += name.len() + 2;
                        self.known_value(&value);
                    }
                    // what is inside is read on as if it stood outside: scripts in it are found, and nothing is nested
                    _ => {
                        self.at += 1;
                        self.pieces.push(Piece::Opaque);
                    }
                }
            }
            Some('[') => {
                self.at += 1;
                self.pieces.push(Piece::Opaque);
            }
            Some(first) if first.is_ascii_alphabetic() || first == '_' => {
                let name: String =
                    rest.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect();
                self.at += name.len();
                if let Some(word) = self.variables.bound(&name).cloned() {
                    return self.bound_value(&word, quoting);
                }
                match self.variables.value(&name).map(str::to_owned) {
                    Some(value) => self.known_value(&value),
                    None => self.pieces.push(Piece::Opaque),
                }
            }
            Some('#' | '?' | '$' | '!') => {
                self.at += 1;
                self.known_value(NUMBER);
            }
            Some('0'..='9' | '@' | '*' | '-') => {
                self.at += 1;
                self.pieces.push(Piece::Opaque);
            }
            Some(_) | None => self.pieces.push(Piece::Quoted('$')),
        }
    }

    fn known_value(&mut self, value: &str) {
        self.certain = false;
        self.quoted(value);
    }

    /// What `$(pwd)` and `$(echo TEXT)` put in.
    fn plainly_printed(&self, script: &str) -> Option<String> {
        let mut words = script.split_ascii_whitespace();
        let text = match (words.next()?, words.next(), words.next()) {
            ("pwd", None, None) => self.variables.here?.to_owned(),
            ("echo", Some(text), None) if text.chars().all(is_plain) => text.to_owned(),
            ("printf", Some("%s"), Some(text)) if text.chars().all(is_plain) && words.next().is_none() => {
                text.to_owned()
            }
            _ => return None,
        };
        Some(text)
    }

    /// After a backtick.
    fn backticks(&mut self) {
        let mut script = String::new();
        while let Some(letter) = self.next() {
            match letter {
                '`' => break,
                '\\' => match self.next() {
                    Some(letter @ ('$' | '`' | '\\')) => script.push(letter),
                    Some(letter) => script.extend(['\\', letter]),
                    None => {}
                },
                letter => script.push(letter),
            }
        }
        match self.plainly_printed(&script) {
            Some(text) => self.known_value(&text),
            None => self.pieces.push(Piece::Opaque),
        }
        self.scripts.push(script);
    }

    /// After `$'`.
    fn ansi_c(&mut self) {
        loop {
            let Some(letter) = self.next() else { return self.pieces.push(Piece::Opaque) };
            let piece = match letter {
                '\'' => return,
                '\\' => match self.next() {
                    Some('n') => Piece::Quoted('\n'),
                    Some('t') => Piece::Quoted('\t'),
                    Some('r') => Piece::Quoted('\r'),
                    Some('a') => Piece::Quoted('\u{7}'),
                    Some('b') => Piece::Quoted('\u{8}'),
                    Some('e' | 'E') => Piece::Quoted('\u{1b}'),
                    Some('f') => Piece::Quoted('\u{c}'),
                    Some('v') => Piece::Quoted('\u{b}'),
                    Some('x') => self.code(16, 2, 0),
                    Some('u') => self.code(16, 4, 0),
                    Some('U') => self.code(16, 8, 0),
                    Some(digit @ '0'..='7') => self.code(8, 2, digit.to_digit(8).unwrap_or_default()),
                    Some(letter @ ('\\' | '\'' | '"' | '?')) => Piece::Quoted(letter),
                    Some(_) | None => Piece::Opaque,
                },
                letter => Piece::Quoted(letter),
            };
            self.pieces.push(piece);
        }
    }

    fn code(&mut self, radix: u32, digits_max: usize, first: u32) -> Piece {
        let mut code = first;
        for _ in 0..digits_max {
            let Some(digit) = self.rest().chars().next().and_then(|letter| letter.to_digit(radix)) else { break };
            code = code * radix + digit;
            self.at += 1;
        }
        match char::from_u32(code) {
            Some('\0') | None => Piece::Opaque,
            Some(letter) => Piece::Quoted(letter),
        }
    }
}

/// What stands between an opening bracket, with which `text` begins, and the one that closes it. Quotes hide brackets.
pub(crate) fn enclosed(text: &str, open: char, close: char) -> Option<&str> {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match (quote, letter) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => {
                letters.next();
            }
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, letter) if letter == open => depth += 1,
            (None, letter) if letter == close => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return text.get(1..at);
                }
            }
            (None, _) => {}
        }
    }
    None
}

/// The words that brace lists stand for. Empty: too many to tell, or a sequence such as `{1..9}`.
fn braces(pieces: &[Piece]) -> Vec<Vec<Piece>> {
    let mut done = Vec::new();
    let mut open = vec![pieces.to_vec()];
    let mut steps = 0_usize;
    while let Some(word) = open.pop() {
        steps += 1;
        if steps > BRACE_STEPS_MAX || word.len() > BRACE_WORD_MAX && word.contains(&Piece::Bare('{')) {
            return Vec::new();
        }
        match first_list(&word) {
            Braces::None => done.push(word),
            Braces::Sequence => return Vec::new(),
            Braces::List { before, members, after } => {
                // the last first, so that the first comes off the stack first
                for member in members.iter().rev() {
                    open.push([before, member.as_slice(), after].concat());
                }
            }
        }
    }
    done
}

enum Braces<'a> {
    None,
    Sequence,
    List { before: &'a [Piece], members: Vec<Vec<Piece>>, after: &'a [Piece] },
}

/// The first brace list of a word.
fn first_list(word: &[Piece]) -> Braces<'_> {
    let opens = word.iter().enumerate().filter(|(_, piece)| **piece == Piece::Bare('{')).map(|(at, _)| at);
    for open in opens {
        let mut depth = 0_usize;
        let mut members = vec![Vec::new()];
        for (at, piece) in word.iter().enumerate().skip(open + 1) {
            match piece {
                Piece::Bare('}') if depth == 0 => {
                    let inside = word.get(open + 1..at).unwrap_or_default();
                    if members.len() > 1 {
                        let (before, after) = (word.get(..open), word.get(at + 1..));
                        return Braces::List {
                            before: before.unwrap_or_default(),
                            members,
                            after: after.unwrap_or_default(),
                        };
                    }
                    if inside.windows(2).any(|two| two == [Piece::Bare('.'), Piece::Bare('.')]) {
                        return Braces::Sequence;
                    }
                    break;
                }
                Piece::Bare(',') if depth == 0 => members.push(Vec::new()),
                piece @ (Piece::Bare(_) | Piece::Quoted(_) | Piece::Opaque) => {
                    match piece {
                        Piece::Bare('{') => depth += 1,
                        Piece::Bare('}') => depth -= 1,
                        Piece::Bare(_) | Piece::Quoted(_) | Piece::Opaque => {}
                    }
                    if let Some(member) = members.last_mut() {
                        member.push(*piece);
                    }
                }
            }
        }
    }
    Braces::None
}

/// More words than this from one word's braces are not told apart.
const BRACE_STEPS_MAX: usize = 256;
/// Braces in a word longer than this are not looked into: every step copies it.
const BRACE_WORD_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// A word as `kind text`, several by ` | `, scripts in `$()`.
    fn check(raw: &str) -> String {
        let variables = Variables { home: "/home/me", longrein_home: Some("/lr"), here: Some("/w"), bindings: &[] };
        let Reading { words, scripts } = read(raw, &variables);
        let words = words.iter().map(|word| match word.kind {
            Kind::Literal => word.text.clone(),
            Kind::Likely => format!("likely {}", word.text),
            Kind::Glob => format!("glob {}", word.text),
            Kind::Unknown => "unknown".to_owned(),
        });
        let mut shown = words.collect::<Vec<_>>().join(" | ");
        for script in scripts {
            shown.push_str(&format!(" $({script})"));
        }
        shown
    }

    #[test]
    fn every_spelling_of_a_word_is_read_as_the_shell_reads_it() {
        for (raw, read) in [
            ("rm", "rm"),
            (r"\rm", "rm"),
            (r"r\m", "rm"),
            ("r\\\nm", "rm"),
            ("'r'm", "rm"),
            ("r\"m\"", "rm"),
            ("\"a\\b\\\"\\$\"", "a\\b\"$"),
            ("''", ""),
            ("a'b c'd", "ab cd"),
            ("$'\\x72m'", "likely rm"),
            ("$'\\162m\\u0041'", "likely rmA"),
            ("$'a\\x00b'", "unknown"),
            ("$\"rm\"", "likely rm"),
            ("~", "likely /home/me"),
            ("~/x", "likely /home/me/x"),
            ("~root", "likely /root"),
            ("~ada", "likely /home/ada"),
            ("~+/x", "likely /w/x"),
            ("~-", "unknown"),
            ("~2", "unknown"),
            ("a~", "a~"),
            ("'~'", "~"),
            ("\"~\"/x", "~/x"),
            ("$HOME/x", "likely /home/me/x"),
            ("\"${HOME}\"", "likely /home/me"),
            ("$LONGREIN_HOME", "likely /lr"),
            ("$PWD", "likely /w"),
            ("$x", "unknown"),
            ("a$IFS", "unknown"),
            ("${HOME:0:1}", "unknown"),
            ("$", "$"),
            ("a$", "a$"),
            ("$%", "$%"),
            ("$1", "unknown"),
            ("$(rm -rf /)", "unknown $(rm -rf /)"),
            ("\"$(echo \")\")\"", "unknown $(echo \")\")"),
            ("`a \\`b\\``", "unknown $(a `b`)"),
            ("${x:-$(id)}", "unknown $(id)"),
            ("$((1+$(id)))", "unknown $((1+$(id)))"),
            ("$[1+`id`]", "unknown $(id)"),
            ("'$(id)'", "$(id)"),
            ("*.rs", "glob *.rs"),
            ("'*'.rs", "*.rs"),
            ("'*'*", "glob \\**"),
            ("a?", "glob a?"),
            ("[a]", "glob [a]"),
            ("[", "["),
            ("]a[", "]a["),
            ("{a,b}", "likely a | likely b"),
            ("x{a,b{1,2}}y", "likely xay | likely xb1y | likely xb2y"),
            ("{a,}", "likely a | likely "),
            ("{}", "{}"),
            ("{a}", "{a}"),
            ("{a,b", "{a,b"),
            ("'{a,b}'", "{a,b}"),
            ("{1..3}", "unknown"),
            ("\"a", "unknown"),
            ("'a", "unknown"),
            ("a\\", "unknown"),
            ("$(a", "unknown $(a)"),
        ] {
            assert_eq!(check(raw), read, "{raw}");
        }
    }

    #[test]
    fn very_many_braces_are_given_up_on() {
        assert_eq!(check(&"{a,b}".repeat(40)), "unknown");
        assert_eq!(check(&"{a,".repeat(5_000)), "unknown");
    }
}
