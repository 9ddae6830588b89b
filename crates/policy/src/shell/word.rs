//! One word of a shell command, with its quotes taken off: what the shell will make of it, as far as that can be told
//! without running anything.
//!
//! Read [`read`] first. It goes over the text once, so that no nesting makes it slow. What it cannot tell it calls
//! [`Kind::Unknown`]; scripts inside substitutions are handed out to be judged on their own, and what they print is
//! [`Kind::Open`]: some commands only say it. What the text before has put into variables it takes for what they stand for, as
//! a [`Kind::Guess`]: such a word can be denied and never allowed.

use super::parameter;
use super::scope::{Scope, Value};
use super::table::PLAIN_VARIABLES;

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
    /// What the text before makes it. Asked about like what is unknown, and denied for what it then would do.
    Guess,
    /// One word, with text in it that the command itself brings: the output of commands that are judged, a variable that only
    /// it can have set. What that says is only known once it runs; no secret of the surroundings is in it.
    Open,
    /// The same, and a shell splits it, and takes it for patterns of names.
    Loose,
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
    /// Variables that hold some number.
    pub(crate) numbers: &'a [String],
    /// What the text before has made known.
    pub(crate) scope: &'a Scope,
    /// What a variable stands for that nothing has set.
    pub(crate) unset: Unset,
}

/// What is made of a variable that nothing in the text has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unset {
    Unknown,
    /// Nothing, as it is where nobody else has set it: for names of commands with letters to spare.
    Nothing,
}

impl Variables<'_> {
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        match name {
            "HOME" => Some(self.home),
            "PWD" => self.here,
            "LONGREIN_HOME" => self.longrein_home,
            // some number
            "PPID" | "UID" | "EUID" | "RANDOM" | "SECONDS" | "LINENO" | "BASHPID" => Some(NUMBER),
            _ => None,
        }
    }

    pub(super) fn bound(&self, name: &str) -> Option<&Word> {
        self.bindings.iter().rev().find(|(bound, _)| bound == name).map(|(_, word)| word)
    }

    /// What this may stand for, from all that is known of it.
    pub(super) fn guess(&self, name: &str) -> Option<Value> {
        if let Some(word) = self.bound(name) {
            return Some(Value::from([word.clone()]));
        }
        if let Some(value) = self.value(name) {
            return Some(Value::from([Word { text: value.to_owned(), kind: Kind::Guess }]));
        }
        let nothing = || (self.unset == Unset::Nothing && self.scope.is_unset(name)).then(|| Value::from([]));
        self.scope.value(name).or_else(nothing)
    }
}

impl Word {
    pub(crate) fn unknown() -> Self {
        Self { text: String::new(), kind: Kind::Unknown }
    }

    /// One that the command itself brings.
    pub(crate) fn open() -> Self {
        Self { text: String::new(), kind: Kind::Open }
    }

    /// Its text, if that can be told, however the shell spells it.
    pub(crate) fn known(&self) -> Option<&str> {
        match self.kind {
            Kind::Literal | Kind::Likely | Kind::Guess => Some(&self.text),
            Kind::Glob | Kind::Open | Kind::Loose | Kind::Unknown => None,
        }
    }

    /// Whether its text is certain only once it runs.
    pub(crate) fn is_open(&self) -> bool {
        match self.kind {
            Kind::Guess | Kind::Open | Kind::Loose | Kind::Unknown => true,
            Kind::Literal | Kind::Likely | Kind::Glob => false,
        }
    }

    /// Whether nothing is known of its text.
    pub(crate) fn is_unknown(&self) -> bool {
        match self.kind {
            Kind::Open | Kind::Loose | Kind::Unknown => true,
            Kind::Literal | Kind::Likely | Kind::Glob | Kind::Guess => false,
        }
    }

    /// The same word, as if it were no guess.
    pub(crate) fn taken_for_sure(&self) -> Self {
        let kind = match self.kind {
            Kind::Guess if self.text.contains(['*', '?', '[']) => Kind::Glob,
            Kind::Guess => Kind::Likely,
            kind @ (Kind::Literal | Kind::Likely | Kind::Glob | Kind::Open | Kind::Loose | Kind::Unknown) => kind,
        };
        Self { text: self.text.clone(), kind }
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
    /// Text that the command itself brings, in quotes.
    Open,
    /// The same without quotes.
    Loose,
    /// Known only once it runs.
    Opaque,
    /// Here a value was split: another word begins.
    Break,
}

/// Reads the raw text of one word.
pub(crate) fn read(raw: &str, variables: &Variables<'_>) -> Reading {
    let mut reader = Reader::new(raw, variables);
    reader.tilde();
    reader.unquoted();
    let Reader { pieces, scripts, certain, guessed, vanished, .. } = reader;
    if pieces.is_empty() && vanished {
        return Reading { words: Vec::new(), scripts };
    }
    let expanded = braces(&pieces);
    // where braces mean nothing, as to some shells, such a word is one odd name
    let is_plain_list = expanded.len() > 1
        && !expanded.iter().any(Vec::is_empty)
        && raw.chars().all(|letter| is_plain(letter) || matches!(letter, '{' | '}'));
    let certainty = match (guessed, certain && (expanded.len() == 1 || is_plain_list)) {
        (true, _) => Kind::Guess,
        (false, false) => Kind::Likely,
        (false, true) => Kind::Literal,
    };
    let words = match expanded.is_empty() {
        true => vec![Word::unknown()],
        false => expanded.iter().flat_map(|pieces| split(pieces)).map(|pieces| word(pieces, certainty)).collect(),
    };
    Reading { words, scripts }
}

/// The scripts in the text of a here-document, where only `$`, backticks and `\` mean something.
pub(crate) fn scripts_in(text: &str, variables: &Variables<'_>) -> Vec<String> {
    let mut reader = Reader::new(text, variables);
    reader.double_quoted(Until::End);
    reader.scripts
}

/// The words that values with blanks in them make of one.
fn split(pieces: &[Piece]) -> impl Iterator<Item = &[Piece]> {
    let is_whole = !pieces.contains(&Piece::Break);
    pieces.split(|piece| *piece == Piece::Break).filter(move |part| is_whole || !part.is_empty())
}

/// `certainty`: what it is if it is neither a pattern nor unknown.
fn word(pieces: &[Piece], certainty: Kind) -> Word {
    let opens = pieces.iter().position(|piece| *piece == Piece::Bare('['));
    let class = opens.is_some_and(|opens| pieces.iter().skip(opens).any(|piece| *piece == Piece::Bare(']')));
    let is_glob = class || pieces.iter().any(|piece| matches!(piece, Piece::Bare('*' | '?')));
    let has = |piece: Piece| pieces.contains(&piece);
    let kind = match (certainty, is_glob) {
        _ if has(Piece::Opaque) => Kind::Unknown,
        _ if has(Piece::Loose) || has(Piece::Open) && is_glob => Kind::Loose,
        _ if has(Piece::Open) => Kind::Open,
        (Kind::Guess, _) => Kind::Guess,
        (_, true) => Kind::Glob,
        (certainty, false) => certainty,
    };
    let mut text = String::with_capacity(pieces.len());
    for piece in pieces {
        match piece {
            Piece::Bare(letter) => text.push(*letter),
            Piece::Quoted(letter) => {
                if is_glob && kind != Kind::Guess && matches!(letter, '*' | '?' | '[' | ']' | '\\') {
                    text.push('\\');
                }
                text.push(*letter);
            }
            Piece::Open | Piece::Loose | Piece::Opaque | Piece::Break => {}
        }
    }
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

/// What stands for the revision that git names: `$(git merge-base main HEAD)`, `$(git rev-parse HEAD)`. It prints a number, or the
/// word it was given.
fn revision(script: &str) -> Option<&str> {
    let words: Vec<&str> = script.split_ascii_whitespace().collect();
    let plain = |word: &&str| {
        !word.starts_with(['-', '/', '.', '~'])
            && !word.contains("..")
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._~^@-".contains(letter))
    };
    match words.as_slice() {
        ["git", "merge-base", one, other] if plain(one) && plain(other) => Some("HEAD"),
        ["git", "rev-parse", revision] | ["git", "rev-parse", "--short" | "--verify", revision] if plain(revision) => {
            Some(revision)
        }
        _ => None,
    }
}

/// Whether only the text itself can have set this variable: no program is given one of that name, and no shell has one.
pub(super) fn is_own(name: &str) -> bool {
    const OF_SHELLS: [&str; 7] = ["auto_resume", "histchars", "path", "fpath", "cdpath", "manpath", "argv"];
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !name.ends_with("proxy")
        && !OF_SHELLS.contains(&name)
}

/// Of `#x}` and `#x[@]}`, how long it is.
fn length_of_value(inside: &str) -> Option<usize> {
    let (name, _) = inside.strip_prefix('#')?.split_once('}')?;
    let plain = name.strip_suffix("[@]").or_else(|| name.strip_suffix("[*]")).unwrap_or(name);
    is_own(plain).then_some(name.len() + "#}".len())
}

/// Whether a script that is put in stands where every shell would see it stand, and prints what others say: the commands in
/// it are judged, and no text of its own can make a pattern.
fn is_told(script: &str, quoting: Quoting) -> bool {
    let says = ["echo", "printf"].iter().any(|name| script.trim_start().starts_with(name));
    let hidden = script.contains('#') || script.contains("<<") || script.contains("case ") || script.starts_with('(');
    !(hidden || says && quoting == Quoting::Bare && script.contains(['*', '?', '[', '\\']))
}

/// Whether it is what stands in `$((end - start))`, where all names are of numbers: another value is computed in turn.
fn is_of_numbers(inside: &str, variables: &Variables<'_>) -> bool {
    let Some(text) = inside.strip_prefix('(').and_then(|inside| inside.strip_suffix(')')) else { return false };
    let plain = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_ +-*/%()".contains(letter));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let in_turn = |name: &str| {
        variables
            .bound(name)
            .is_some_and(|word| word.kind == Kind::Literal && !word.text.is_empty() && digits(&word.text))
    };
    let known = |name: &str| digits(name) || variables.numbers.iter().any(|number| number == name) || in_turn(name);
    // `++` sets what stands beside it
    let sets = ["++", "--"].iter().any(|sign| text.contains(sign));
    plain && !sets && text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').all(known)
}

/// How several values stand in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joins {
    Apart,
    Together,
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
    /// Whether it is made of what the text before says.
    guessed: bool,
    /// Whether something in it came to nothing.
    vanished: bool,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, variables: &'a Variables<'a>) -> Self {
        let (pieces, scripts) = (Vec::new(), Vec::new());
        Self { text, at: 0, variables, pieces, scripts, certain: true, guessed: false, vanished: false }
    }

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
                    // to a shell that does not know these quotes it is one word as well
                    self.certain &= self.rest().starts_with("\\t'") || self.rest().starts_with("\\n'");
                    self.ansi_c();
                }
                '$' if self.rest().starts_with('"') => {
                    self.at += 1;
                    self.certain = false;
                    self.double_quoted(Until::Quote);
                }
                '$' => self.dollar(Quoting::Bare),
                '`' => self.backticks(Quoting::Bare),
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
                '`' => self.backticks(Quoting::Double),
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
                self.guess(std::slice::from_ref(word), quoting, Joins::Apart);
            }
            Kind::Literal => self.quoted(&word.text.clone()),
            // some name of that shape
            Kind::Glob => self.pieces.extend(word.text.chars().map(Piece::Bare)),
            Kind::Likely | Kind::Guess => self.guess(std::slice::from_ref(word), quoting, Joins::Apart),
            Kind::Open | Kind::Loose => self.open(quoting),
            Kind::Unknown => self.pieces.push(Piece::Opaque),
        }
    }

    /// Puts in text that is not known.
    fn open(&mut self, quoting: Quoting) {
        self.pieces.push(match quoting {
            Quoting::Bare => Piece::Loose,
            Quoting::Double => Piece::Open,
        });
    }

    /// Puts in what something may stand for.
    fn guess(&mut self, words: &[Word], quoting: Quoting, joins: Joins) {
        self.guessed = true;
        self.vanished |=
            words.is_empty() || (quoting == Quoting::Bare && words.iter().all(|word| word.text.is_empty()));
        for (at, word) in words.iter().enumerate() {
            if at > 0 {
                self.pieces.push(match joins {
                    Joins::Apart => Piece::Break,
                    Joins::Together => Piece::Quoted(' '),
                });
            }
            if matches!(word.kind, Kind::Open | Kind::Loose) {
                self.open(quoting);
                continue;
            }
            if word.kind == Kind::Unknown || !self.variables.scope.spend(word.text.len() + 1) {
                self.pieces.push(Piece::Opaque);
                continue;
            }
            let separators = self.variables.scope.value("IFS").unwrap_or_default();
            let splits =
                |letter: char| letter.is_whitespace() || separators.iter().any(|word| word.text.contains(letter));
            let piece = |letter: char| match quoting {
                Quoting::Bare if splits(letter) => Piece::Break,
                Quoting::Bare | Quoting::Double => Piece::Quoted(letter),
            };
            self.pieces.extend(word.text.chars().map(piece));
        }
    }

    /// After `$`.
    fn dollar(&mut self, quoting: Quoting) {
        let rest = self.rest();
        match rest.chars().next() {
            Some('(') => {
                let inside = enclosed(rest, '(', ')');
                if let Some(inside) = inside.filter(|inside| is_of_numbers(inside, self.variables)) {
                    self.at += inside.len() + 2;
                    return self.known_value(NUMBER);
                }
                let is_closed = inside.is_some();
                let (script, taken) = match inside {
                    Some(inside) => (inside.to_owned(), inside.len() + 2),
                    None => (rest.get(1..).unwrap_or_default().to_owned(), rest.len()),
                };
                // `$((…))` is arithmetic, where substitutions count as well; read as a script it says no less
                self.at += taken;
                // what it prints may be known, and is asked about all the same
                match is_closed {
                    true => self.printed(&script, quoting),
                    false => self.pieces.push(Piece::Opaque),
                }
                self.scripts.push(script);
            }
            Some('{') => {
                if let Some((taken, value, joins)) = parameter::expansion(rest, self.variables) {
                    self.at += taken;
                    return self.guess(&value, quoting, joins);
                }
                let inside = rest.get(1..).unwrap_or_default();
                if let Some(taken) = length_of_value(inside) {
                    self.at += taken + 1;
                    return self.known_value(NUMBER);
                }
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
                    (Some(name), None) if is_own(&name) || PLAIN_VARIABLES.contains(&name.as_str()) => {
                        self.at += name.len() + 2;
                        self.guessed_value(&name, quoting);
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
                    None => self.guessed_value(&name, quoting),
                }
            }
            Some('#' | '?' | '$' | '!') => {
                self.at += 1;
                self.known_value(NUMBER);
            }
            Some(sign @ ('0'..='9' | '@' | '*')) => {
                self.at += 1;
                let name = sign.to_string();
                match self.variables.bound(&name).cloned() {
                    Some(word) => self.bound_value(&word, quoting),
                    None => self.guessed_value(&name, quoting),
                }
            }
            Some('-') => {
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

    fn guessed_value(&mut self, name: &str, quoting: Quoting) {
        if self.variables.numbers.iter().any(|number| number == name) {
            let value = self.variables.guess(name);
            let digits = value.as_deref().and_then(|value| value.first()?.known().map(str::to_owned));
            let digits = digits.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
            return self.known_value(digits.as_deref().unwrap_or(NUMBER));
        }
        match self.variables.guess(name) {
            Some(value) => self.guess(&value, quoting, if name == "*" { Joins::Together } else { Joins::Apart }),
            None if is_own(name) || PLAIN_VARIABLES.contains(&name) => self.open(quoting),
            None => self.pieces.push(Piece::Opaque),
        }
    }

    /// Puts in what a substitution prints.
    fn printed(&mut self, script: &str, quoting: Quoting) {
        if let Some(text) = revision(script) {
            return self.quoted(text);
        }
        if let Some(text) = self.plainly_printed(script) {
            return self.known_value(&text);
        }
        match parameter::printed(script, self.variables) {
            Some(text) => self.guess(&[Word { text, kind: Kind::Guess }], quoting, Joins::Apart),
            None if is_told(script, quoting) => self.open(quoting),
            None => self.pieces.push(Piece::Opaque),
        }
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
    fn backticks(&mut self, quoting: Quoting) {
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
        self.printed(&script, quoting);
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
                        match numbers(inside) {
                            Some(members) => {
                                let (before, after) = (word.get(..open), word.get(at + 1..));
                                return Braces::List {
                                    before: before.unwrap_or_default(),
                                    members,
                                    after: after.unwrap_or_default(),
                                };
                            }
                            None => return Braces::Sequence,
                        }
                    }
                    break;
                }
                Piece::Bare(',') if depth == 0 => members.push(Vec::new()),
                piece @ (Piece::Bare(_)
                | Piece::Quoted(_)
                | Piece::Open
                | Piece::Loose
                | Piece::Opaque
                | Piece::Break) => {
                    match piece {
                        Piece::Bare('{') => depth += 1,
                        Piece::Bare('}') => depth -= 1,
                        Piece::Bare(_)
                        | Piece::Quoted(_)
                        | Piece::Open
                        | Piece::Loose
                        | Piece::Opaque
                        | Piece::Break => {}
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

/// The numbers of `1..9`, where there are few.
fn numbers(inside: &[Piece]) -> Option<Vec<Vec<Piece>>> {
    let text: Option<String> =
        inside.iter().map(|piece| if let Piece::Bare(letter) = piece { Some(*letter) } else { None }).collect();
    let text = text?;
    let (first, last) = text.split_once("..")?;
    let number = |text: &str| {
        let plain = text.len() <= 4 && (text == "0" || !text.starts_with('0'));
        text.parse::<usize>().ok().filter(|_| plain && text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let (first, last) = (number(first)?, number(last)?);
    let all: Vec<usize> = if first <= last { (first..=last).collect() } else { (last..=first).rev().collect() };
    let as_pieces = |number: usize| number.to_string().chars().map(Piece::Bare).collect();
    (all.len() > 1 && all.len() <= SEQUENCE_MAX).then(|| all.into_iter().map(as_pieces).collect())
}

/// A sequence with more numbers is not told apart.
const SEQUENCE_MAX: usize = 64;
/// More words than this from one word's braces are not told apart.
const BRACE_STEPS_MAX: usize = 256;
/// Braces in a word longer than this are not looked into: every step copies it.
const BRACE_WORD_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// A word as `kind text`, several by ` | `, scripts in `$()`.
    fn check(raw: &str) -> String {
        let mut scope = Scope::default().started(Some("t/run.sh"), &[]);
        let literal = |text: &str| Word { text: text.to_owned(), kind: Kind::Literal };
        scope.set("v", vec![literal("a /b")]);
        scope.set("list", vec![literal("x"), literal("y z")]);
        let variables = Variables {
            home: "/home/me",
            longrein_home: Some("/lr"),
            here: Some("/w"),
            bindings: &[],
            numbers: &[],
            scope: &scope,
            unset: Unset::Unknown,
        };
        let Reading { words, scripts } = read(raw, &variables);
        let words = words.iter().map(|word| match word.kind {
            Kind::Literal => word.text.clone(),
            Kind::Likely => format!("likely {}", word.text),
            Kind::Glob => format!("glob {}", word.text),
            Kind::Guess => format!("guess {}", word.text),
            Kind::Open => format!("open {}", word.text),
            Kind::Loose => format!("loose {}", word.text),
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
            ("$x", "loose "),
            ("\"a$x\"", "open a"),
            ("\"$X\"", "unknown"),
            ("${x}", "loose "),
            ("$http_proxy", "unknown"),
            ("a$IFS", "guess a"),
            ("a${IFS}b", "guess a | guess b"),
            ("\"a${IFS}b\"", "guess a b"),
            ("${HOME:0:1}", "guess /"),
            ("$v", "guess a | guess /b"),
            ("x\"$v\"y", "guess xa /by"),
            ("${v%/*}", "guess a"),
            ("\"${v##*/}\"", "guess b"),
            ("${v:-c}", "guess a | guess /b"),
            ("${x:-/c}", "guess /c"),
            ("${x:-$(id)}", "unknown $(id)"),
            ("${v/a/$(id)}", "unknown $(id)"),
            ("\"${list[@]}\"", "guess x | guess y z"),
            ("${list[1]}", "guess y | guess z"),
            ("\"$@\"", ""),
            ("r$@m", "guess rm"),
            ("$0", "guess t/run.sh"),
            ("\"${0%/*}\"/x", "guess t/x"),
            ("\"$(dirname \"$0\")\"/x", "guess t/x $(dirname \"$0\")"),
            (
                "$(cd \"$(dirname \"${BASH_SOURCE[0]}\")/..\" > /dev/null && pwd)",
                "guess /w $(cd \"$(dirname \"${BASH_SOURCE[0]}\")/..\" > /dev/null && pwd)",
            ),
            ("$(basename $0 .sh)", "guess run $(basename $0 .sh)"),
            ("`dirname $0`", "guess t $(dirname $0)"),
            ("$", "$"),
            ("a$", "a$"),
            ("$%", "$%"),
            ("$1", "unknown"),
            ("$(rm -rf /)", "loose  $(rm -rf /)"),
            ("\"$(a)\"", "open  $(a)"),
            ("$(a # )", "unknown $(a # )"),
            ("$(echo '/*')", "guess /* $(echo '/*')"),
            ("$(git merge-base main HEAD)..x", "HEAD..x $(git merge-base main HEAD)"),
            ("$(git rev-parse --git-dir)", "loose  $(git rev-parse --git-dir)"),
            ("$((1 + 2))", "likely 0"),
            ("$((a + 2))", "unknown $((a + 2))"),
            ("$'\\t'", "\t"),
            ("\"$(echo \")\")\"", "guess ) $(echo \")\")"),
            ("`a \\`b\\``", "loose  $(a `b`)"),
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
            ("{a,b}", "a | b"),
            ("{a,'b'}", "likely a | likely b"),
            ("x{a,b{1,2}}y", "xay | xb1y | xb2y"),
            ("{a,}", "likely a | likely "),
            ("{}", "{}"),
            ("{a}", "{a}"),
            ("{a,b", "{a,b"),
            ("'{a,b}'", "{a,b}"),
            ("{1..3}", "1 | 2 | 3"),
            ("{3..1}x", "3x | 2x | 1x"),
            ("{01..3}", "unknown"),
            ("{1..999}", "unknown"),
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
