//! What the text before has made known of the shell that reads a word: its variables, what it was given, its functions.
//!
//! Read [`Scope`] first. All of it is a guess: another shell, a turn of a loop or a program may have it otherwise. So a word
//! made of it is a [`Kind::Guess`](super::word::Kind): asked about like one of which nothing is known, and denied for what
//! it would do. Where two ways lead to a place, only what both know is known there.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use brush_parser::ast::FunctionBody;

use super::word::{Kind, Word};

/// A variable's value: one word, or the members of an array.
pub(super) type Value = Rc<[Word]>;

#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// `$0`: a script as it was called.
    zero: Option<String>,
    /// The file that is being read, as it was called: `$BASH_SOURCE`.
    source: Option<String>,
    /// `$1` and so on. None: they cannot be told.
    given: Option<Value>,
    variables: Rc<BTreeMap<String, Value>>,
    /// Variables that are not listed may have been set all the same.
    others_may_be_set: bool,
    functions: Rc<BTreeMap<String, Rc<Function>>>,
    /// Other names of commands, with the words they stand for.
    aliases: Rc<BTreeMap<String, String>>,
    /// Letters that values may still put into words.
    letters: Rc<Cell<usize>>,
}

#[derive(Debug, Clone)]
pub(super) struct Function {
    pub(super) body: FunctionBody,
    /// Whether the name stands for this one wherever it is known.
    pub(super) defined: Defined,
    /// The file it stands in.
    source: Option<String>,
}

/// How sure it is that a function is what its name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defined {
    /// Once, before, and under no condition.
    Plainly,
    /// Perhaps, or by several.
    Perhaps,
}

impl Default for Scope {
    /// A shell that was given text and nothing else.
    fn default() -> Self {
        Self {
            zero: None,
            source: None,
            given: Some(Rc::from([])),
            variables: Rc::default(),
            others_may_be_set: false,
            functions: Rc::default(),
            aliases: Rc::default(),
            letters: Rc::new(Cell::new(LETTERS_MAX)),
        }
    }
}

impl Scope {
    /// What this stands for: the name of a variable, a number, `@` or `*`.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        let one = |text: &str| Value::from([Word { text: text.to_owned(), kind: Kind::Guess }]);
        match name {
            "0" => return self.zero.as_deref().map(one),
            "@" | "*" => return self.given.clone(),
            "BASH_SOURCE" => return self.source.as_deref().or(self.zero.as_deref()).map(one),
            _ => {}
        }
        if let Ok(at) = name.parse::<usize>() {
            return self.given.as_ref()?.get(at.checked_sub(1)?).map(|word| Value::from([word.clone()]));
        }
        let usual = || USUALLY.iter().find(|(known, _)| *known == name).map(|(_, value)| one(value));
        self.variables.get(name).cloned().or_else(usual)
    }

    /// Whether nothing has set this variable, as far as the text tells.
    pub(super) fn is_unset(&self, name: &str) -> bool {
        !self.others_may_be_set
            && !self.variables.contains_key(name)
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    }

    /// Takes so many letters from what values may put into words; whether there were as many left.
    pub(super) fn spend(&self, letters: usize) -> bool {
        let left = self.letters.get().checked_sub(letters);
        left.inspect(|left| self.letters.set(*left)).is_some()
    }

    pub(super) fn set(&mut self, name: &str, value: Vec<Word>) {
        let letters: usize = value.iter().map(|word| word.text.len()).sum();
        let strangest = value.iter().map(|word| word.kind).max().unwrap_or(Kind::Guess);
        let value = match strangest {
            Kind::Literal | Kind::Likely | Kind::Glob | Kind::Guess if letters <= VALUE_MAX => value,
            // what is read of it later is split then
            Kind::Open | Kind::Loose => vec![Word::open()],
            Kind::Literal | Kind::Likely | Kind::Glob | Kind::Guess | Kind::Unknown => vec![Word::unknown()],
        };
        if self.variables.len() >= VARIABLES_MAX && !self.variables.contains_key(name) {
            return self.forget();
        }
        Rc::make_mut(&mut self.variables).insert(name.to_owned(), Value::from(value));
    }

    /// It has a value of which nothing is known.
    pub(super) fn blur(&mut self, name: &str) {
        self.set(name, vec![Word::unknown()]);
    }

    /// Any variable may be set to anything.
    pub(super) fn forget(&mut self) {
        self.variables = Rc::default();
        self.others_may_be_set = true;
    }

    /// What a variable or the arguments were given: `set -- a b`, `shift`.
    pub(super) fn give(&mut self, given: Option<Vec<Word>>) {
        self.given = given.map(Value::from);
    }

    pub(super) fn shift(&mut self) {
        self.given = self.given.as_ref().map(|given| Value::from(given.get(1..).unwrap_or_default()));
    }

    pub(super) fn define(&mut self, name: &str, body: &FunctionBody, defined: Defined) {
        let function = Function { body: body.clone(), defined, source: self.source.clone() };
        Rc::make_mut(&mut self.functions).insert(name.to_owned(), Rc::new(function));
    }

    pub(super) fn function(&self, name: &str) -> Option<Rc<Function>> {
        self.functions.get(name).cloned()
    }

    /// Where this name stands for a program.
    pub(super) fn without_function(&self, name: &str) -> Self {
        let mut without = self.clone();
        Rc::make_mut(&mut without.functions).remove(name);
        without
    }

    pub(super) fn name(&mut self, alias: &str, words: &str) {
        if words.len() <= VALUE_MAX && self.aliases.len() < VARIABLES_MAX {
            Rc::make_mut(&mut self.aliases).insert(alias.to_owned(), words.to_owned());
        }
    }

    pub(super) fn alias(&self, name: &str) -> Option<&str> {
        self.aliases.get(name).map(String::as_str)
    }

    /// Inside a function that is called with these words; None: it is only defined.
    pub(super) fn inside(&self, function: &Function, given: Option<&[Word]>) -> Self {
        Self { given: given.map(Value::from), source: function.source.clone(), ..self.clone() }
    }

    /// Inside a file that the same shell reads.
    pub(super) fn sourcing(&self, file: &str) -> Self {
        Self { source: Some(file.to_owned()), ..self.clone() }
    }

    /// Of a shell that is started with a script or a text, and has the variables of this one.
    pub(super) fn started(&self, zero: Option<&str>, given: &[Word]) -> Self {
        Self {
            zero: zero.map(str::to_owned),
            source: zero.map(str::to_owned),
            given: Some(Value::from(given)),
            ..self.clone()
        }
    }

    /// Back from a function or a file: what was given and where it stands are those of before.
    pub(super) fn back_in(self, outer: &Scope) -> Self {
        Self { given: outer.given.clone(), source: outer.source.clone(), ..self }
    }

    /// Where it may have gone one way or the other.
    pub(super) fn or(&self, other: &Scope) -> Self {
        let mut both = other.clone();
        both.others_may_be_set |= self.others_may_be_set;
        if !Rc::ptr_eq(&self.variables, &other.variables) {
            let names = self.variables.keys().chain(other.variables.keys());
            let unsure = |name: &&String| self.variables.get(*name) != other.variables.get(*name);
            for name in names.filter(unsure) {
                both.blur(name);
            }
        }
        if self.given != other.given {
            both.given = None;
        }
        if !Rc::ptr_eq(&self.functions, &other.functions) {
            let same = |name: &String, function: &Rc<Function>| {
                [self, other].iter().all(|scope| scope.functions.get(name).is_some_and(|it| Rc::ptr_eq(it, function)))
            };
            let all = self.functions.iter().chain(other.functions.iter());
            let all = all.map(|(name, function)| match same(name, function) {
                true => (name.clone(), Rc::clone(function)),
                false => (name.clone(), Rc::new(Function { defined: Defined::Perhaps, ..Function::clone(function) })),
            });
            both.functions = Rc::new(all.collect());
        }
        both
    }
}

/// Variables that shells begin with.
const USUALLY: [(&str, &str); 3] = [("IFS", " "), ("PATH", "/usr/bin:/bin"), ("SHELL", "/bin/sh")];
/// Variables of one text that are followed.
const VARIABLES_MAX: usize = 32;
/// A longer value is not followed.
const VALUE_MAX: usize = 512;
/// Letters that values put into words, all in all: a name of two letters may stand for a thousand.
const LETTERS_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Word> {
        text.split(' ').map(|text| Word { text: text.to_owned(), kind: Kind::Literal }).collect()
    }

    fn texts(scope: &Scope, name: &str) -> Option<String> {
        let value = scope.value(name)?;
        value.iter().map(|word| word.known().map(str::to_owned)).collect::<Option<Vec<_>>>().map(|all| all.join(" "))
    }

    #[test]
    fn only_what_both_ways_know_is_known_where_they_meet() {
        let mut before = Scope::default();
        before.set("a", words("1"));
        before.set("b", words("2"));
        let mut after = before.clone();
        after.set("b", words("3"));
        after.set("c", words("4"));
        after.give(Some(words("x y")));
        assert_eq!(texts(&after, "@").as_deref(), Some("x y"));
        assert_eq!(texts(&after, "2").as_deref(), Some("y"));
        let both = before.or(&after);
        assert_eq!(texts(&both, "a").as_deref(), Some("1"));
        for name in ["b", "c", "@", "1"] {
            assert_eq!(texts(&both, name), None, "{name}");
        }
        assert!(both.is_unset("d") && !both.is_unset("c") && !both.is_unset("HOME"));
    }

    #[test]
    fn what_is_followed_has_bounds() {
        let mut scope = Scope::default();
        scope.set("long", words(&"x".repeat(VALUE_MAX + 1)));
        assert_eq!(texts(&scope, "long"), None);
        for at in 0..VARIABLES_MAX {
            scope.set(&format!("v{at}"), words("x"));
        }
        assert!(texts(&scope, "v0").is_none() && !scope.is_unset("y"), "too many: any of them may be anything");
        assert!(scope.spend(LETTERS_MAX) && !scope.spend(1));
    }
}
