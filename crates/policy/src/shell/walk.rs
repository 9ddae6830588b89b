//! Over the syntax tree: every simple command, redirection, assignment and substitution in it is judged, in the folder it
//! would run in.

use brush_parser::ast::{
    AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, BinaryPredicate, Command, CommandPrefixOrSuffixItem,
    CompoundCommand, CompoundList, ExtendedTestExpr, ForClauseCommand, IoFileRedirectKind, IoFileRedirectTarget,
    IoRedirect, Pipeline, ProcessSubstitutionKind, Program, SeparatorOperator, SimpleCommand, UnaryPredicate,
};

use super::document::Without;
use super::executed::{self, Source};
use super::harm::{self, flow, flow::Part};
use super::scan::{Direction, Seen};
use super::scope::{Defined, Function};
use super::settings::{self, counts, said, sets};
use super::table::{self, Operand, Purpose, shown};
use super::unwrap::{Inner, is_harmless, unwrap};
use super::word::{self, Kind, Unset, Variables, Word};
use super::{Analysis, Here, Nesting, found, judging, parse, scan};
use crate::path;
use crate::verdict::{Doubt, Strictness, Verdict, own};

mod control;

use control::is_plain_test;

/// What is walked: commands as they were seen, in order, and how deep in scripts.
struct Walk {
    seen: Vec<Seen>,
    depth: usize,
    /// Scripts that made words of the command at work.
    inside: Vec<String>,
}

/// Where the next command runs: after success, and after anything.
pub(super) struct After {
    pub(super) success: Here,
    any: Here,
}

impl Analysis<'_> {
    /// Judges all of it; the commands as they were seen.
    pub(super) fn walk(&mut self, program: &Program, here: &Here, depth: usize) -> Vec<Seen> {
        let mut walk = Walk { seen: Vec::new(), depth, inside: Vec::new() };
        let mut here = here.clone();
        for list in &program.complete_commands {
            here = self.list(list, &here, &mut walk);
        }
        self.left = Some(here);
        walk.seen
    }

    /// The verdict on what a function does that is called here.
    pub(super) fn called(&mut self, function: &Function, here: &Here, depth: usize) -> Verdict {
        let outer = std::mem::replace(&mut self.verdict, Verdict::allow(own::READS_INSIDE));
        // its commands were counted where it is defined
        let mut walk = Walk { seen: Vec::new(), depth, inside: Vec::new() };
        self.callers += 1;
        let here = self.compound(&function.body.0, here, &mut walk);
        self.callers -= 1;
        for redirect in function.body.1.iter().flat_map(|list| &list.0) {
            self.redirect(redirect, &here, &mut walk, &mut Seen::default());
        }
        self.left = Some(here);
        std::mem::replace(&mut self.verdict, outer)
    }

    fn list(&mut self, list: &CompoundList, here: &Here, walk: &mut Walk) -> Here {
        let mut here = here.clone();
        for item in &list.0 {
            let scope = self.scope.clone();
            match item.1 {
                SeparatorOperator::Sequence => here = self.and_or(&item.0, &here, walk),
                // in the background, `cd` is of a shell of its own
                SeparatorOperator::Async => {
                    self.aside(|analysis| analysis.and_or(&item.0, &here, walk));
                    self.scope = scope;
                }
            }
        }
        here
    }

    fn and_or(&mut self, list: &AndOrList, here: &Here, walk: &mut Walk) -> Here {
        let mut after = self.pipeline(&list.first, here, walk);
        for next in &list.additional {
            match next {
                AndOr::And(pipeline) => {
                    let next = self.aside(|analysis| analysis.pipeline(pipeline, &after.success, walk));
                    after = After { any: after.any.or(&next.any), success: next.success };
                }
                AndOr::Or(pipeline) => {
                    // it may not come to it
                    let scope = self.scope.clone();
                    let next = self.aside(|analysis| analysis.pipeline(pipeline, &after.any, walk));
                    self.scope = scope.or(&self.scope);
                    after = After { success: after.success.or(&next.success), any: after.any.or(&next.any) };
                }
            }
        }
        after.any
    }

    fn pipeline(&mut self, pipeline: &Pipeline, here: &Here, walk: &mut Walk) -> After {
        let same = || After { success: here.clone(), any: here.clone() };
        if let [Command::Simple(_)] = pipeline.seq.as_slice() {
            self.together(pipeline, here);
        }
        if let [command] = pipeline.seq.as_slice() {
            let after = self.one(command, here, walk);
            return if pipeline.bang { After { success: after.any.clone(), any: after.any } } else { after };
        }
        if pipeline.seq.is_empty() {
            self.ask("there is no command in it");
        }
        self.piped += 1;
        let mut given = None;
        let mut fed = None;
        let mut source = self.around.clone();
        for command in &pipeline.seq {
            // each part is of a shell of its own
            (self.stdin, self.fed, self.source) = (given.take(), fed.take(), source);
            let around = std::mem::replace(&mut self.around, self.source.clone());
            let scope = self.scope.clone();
            let fed_on = self.fed.clone();
            self.aside(|analysis| analysis.one(command, here, walk));
            (self.around, self.scope) = (around, scope);
            given = self.printed(command, here);
            fed = self.feeds(command, fed_on, here);
            source = self.poured(command, here);
        }
        (self.stdin, self.fed, self.source) = (None, None, Source::Told);
        self.piped -= 1;
        self.together(pipeline, here);
        same()
    }

    /// What the parts of a pipeline do with each other.
    fn together(&mut self, pipeline: &Pipeline, here: &Here) {
        if self.callers > 0 && self.called_left == 0 {
            return;
        }
        let mut parts = Vec::new();
        let mut written = false;
        for command in &pipeline.seq {
            // what a group does counts for all of the group
            let seen = scan::scan(&command.to_string());
            written = seen.iter().any(|seen| {
                seen.redirects.iter().any(|(direction, file)| *direction == Direction::Out && !file.starts_with('&'))
            });
            parts.extend(seen.iter().take(PARTS_MAX).map(|seen| self.part(seen, here)));
        }
        if let Some(harm) = flow::pipeline(&parts, written) {
            self.note(harm.verdict());
        }
    }

    /// Where what a command prints comes from.
    fn poured(&self, command: &Command, here: &Here) -> Source {
        let Command::Simple(simple) = command else { return Source::Unknown };
        let seen = scan::scan(&simple.to_string());
        let [seen] = seen.as_slice() else { return Source::Unknown };
        let words = self.words(seen.words.iter().map(String::as_str), here, &mut |_| {});
        match words.split_first() {
            Some((name, files)) if name.known() == Some("cat") && seen.redirects.is_empty() && !files.is_empty() => {
                let is_file = |word: &&Word| !word.text.starts_with('-');
                let told = files.iter().filter(is_file).cloned().collect::<Vec<_>>();
                if files.iter().any(|word| word.text == "-") { Source::Unknown } else { Source::Files(told) }
            }
            // its text stands in the command
            Some((name, _)) if matches!(name.known(), Some("echo" | "printf")) => {
                if words.iter().all(|word| word.kind == Kind::Literal) { Source::Told } else { Source::Unknown }
            }
            Some(_) | None => Source::Unknown,
        }
    }

    /// The names of files that a command hands on, its own or those it is given.
    fn feeds(&self, command: &Command, given: Option<found::Found>, here: &Here) -> Option<found::Found> {
        let Command::Simple(simple) = command else { return None };
        let seen = scan::scan(&simple.to_string());
        let [seen] = seen.as_slice() else { return None };
        let words = self.words(seen.words.iter().map(String::as_str), here, &mut |_| {});
        if seen.redirects.iter().any(|(direction, _)| *direction == Direction::In) {
            return None;
        }
        let given = given.filter(|given| !given.ends_names && found::keeps_lines(&words));
        found::Found::handed_on(&words).or(given)
    }

    /// A file like all those whose names `$(find src -name '*.rs')` puts in.
    fn put_in_names(&self, raw: &str, here: &Here) -> Option<Word> {
        let script = raw.strip_prefix("$(")?.strip_suffix(')')?;
        let is_all = word::enclosed(raw.get(1..)?, '(', ')') == Some(script);
        // each look goes over the whole text
        if !is_all || self.fuel == 0 || self.text.is_empty() || sets(&self.text, "IFS") > 0 {
            return None;
        }
        let program = parse::parse(script).ok()?;
        let [list] = program.complete_commands.as_slice() else { return None };
        let [item] = list.0.as_slice() else { return None };
        if !item.0.additional.is_empty() || !matches!(item.1, SeparatorOperator::Sequence) {
            return None;
        }
        let pipeline = &item.0.first;
        let found = pipeline.seq.iter().fold(None, |found, command| self.feeds(command, found, here))?;
        self.looked_at(&found, here, found::Splits::ForPatterns).filter(|_| !found.ends_names)
    }

    /// What may not be run, or is of a shell of its own.
    fn aside<T>(&mut self, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.aside += 1;
        let walked = walk(self);
        self.aside -= 1;
        walked
    }

    fn one(&mut self, command: &Command, here: &Here, walk: &mut Walk) -> After {
        let same = || After { success: here.clone(), any: here.clone() };
        match command {
            Command::Simple(simple) => self.simple_command(simple, here, walk),
            Command::Compound(compound, redirects) => {
                // it is read by whatever in it reads first
                let is_given = redirects.iter().flat_map(|list| &list.0).any(|redirect| match redirect {
                    IoRedirect::File(_, IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput, _) => true,
                    IoRedirect::File(..)
                    | IoRedirect::OutputAndError(..)
                    | IoRedirect::HereString(..)
                    | IoRedirect::HereDocument(..) => false,
                });
                let outer = self.around.clone();
                if is_given {
                    self.around = Source::Unknown;
                }
                let after = self.aside(|analysis| analysis.compound(compound, here, walk));
                self.around = outer;
                let mut seen = Seen::default();
                for redirect in redirects.iter().flat_map(|list| &list.0) {
                    self.redirect(redirect, here, walk, &mut seen);
                }
                if seen != Seen::default() {
                    walk.seen.push(seen);
                }
                After { success: after.clone(), any: after }
            }
            Command::Function(function) => {
                let name = &function.fname.value;
                walk.seen.push(Seen { words: vec![name.clone()], redirects: Vec::new() });
                let is_straight = self.aside == 0 && walk.depth == 0 && self.callers == 0;
                let is_new = self.scope.function(name).is_none() && self.scope.alias(name).is_none();
                let is_own = table::is_no_command(name) && !super::CHANGES_THE_SHELL.contains(&name.as_str());
                let defined = if is_straight && is_new && is_own { Defined::Plainly } else { Defined::Perhaps };
                if defined == Defined::Perhaps {
                    self.ask("it defines a function, which may stand for any command");
                }
                // what it does is judged where it is called, with what it is given
                let outer_verdict = std::mem::replace(&mut self.verdict, Verdict::allow(own::READS_INSIDE));
                let untold = self.untold.clone();
                let body = function.body.0.to_string();
                let calls_itself =
                    scan::scan(&body).iter().any(|seen| seen.words.first() == Some(&function.fname.value));
                if calls_itself && body.contains(['|', '&']) {
                    self.note(Verdict::new(Strictness::Deny, own::EXHAUSTION, "it starts processes without end"));
                }
                // where it is called, and with what, is another question: see `called`
                let place = if self.scripts.is_some() { here.clone() } else { Here::unknown() };
                let outer = self.scope.clone();
                let judging = self.executed.judging.clone();
                self.scope.give(None);
                self.aside(|analysis| analysis.compound(&function.body.0, &place, walk));
                for redirect in function.body.1.iter().flat_map(|list| &list.0) {
                    self.redirect(redirect, &place, walk, &mut Seen::default());
                }
                self.scope = outer;
                self.executed.judging = judging;
                let found = std::mem::replace(&mut self.verdict, outer_verdict);
                match defined {
                    Defined::Plainly if found.strictness <= Strictness::Ask => self.untold = untold,
                    Defined::Plainly | Defined::Perhaps => self.note(found),
                }
                self.scope.define(name, &function.body, defined);
                same()
            }
            Command::ExtendedTest(test, redirects) => {
                self.executed.judging.is_judged = true;
                if !is_plain_test(&test.expr, &self.numbers) {
                    self.ask("it tests with [[ ]], which not every shell reads so");
                }
                let from = walk.seen.len();
                let mut raw = vec![vec!["[[".to_owned()]];
                self.extended_test(&test.expr, here, walk, &mut raw);
                raw.last_mut().expect("it begins with one").push("]]".to_owned());
                let seen = raw.into_iter().filter(|words| !words.is_empty());
                let seen = seen.map(|words| Seen { words, redirects: Vec::new() });
                walk.seen.splice(from..from, seen);
                for redirect in redirects.iter().flat_map(|list| &list.0) {
                    self.redirect(redirect, here, walk, &mut Seen::default());
                }
                same()
            }
        }
    }

    /// The words a raw one stands for. Scripts that make it are judged, and it is asked about them.
    fn words_of(&mut self, raw: &str, here: &Here, walk: &mut Walk) -> Vec<Word> {
        let mut scripts = Vec::new();
        let words = self.words(std::iter::once(raw), here, &mut |script| scripts.push(script));
        if words.is_empty() {
            self.ask(VANISHES);
        }
        for script in scripts {
            // what it prints is a word of which nothing is known, for whatever is given that word
            self.put_in(&script, here, walk);
            walk.inside.push(script);
        }
        words
    }

    /// Scripts in text that is no word: a here-document, arithmetic.
    fn inner_scripts(&mut self, text: &str, here: &Here, walk: &mut Walk) {
        let scripts = word::scripts_in(text, &self.variables(here));
        for script in scripts {
            self.substituted(&script, here, walk);
        }
    }

    fn substituted(&mut self, script: &str, here: &Here, walk: &Walk) {
        self.ask("it puts in the output of another command");
        self.put_in(script, here, walk);
    }

    /// A substitution among the words of a command.
    fn put_in(&mut self, script: &str, here: &Here, walk: &Walk) {
        let scope = self.scope.clone();
        self.script(script, here, walk.depth + 1);
        self.scope = scope;
    }

    fn simple_command(&mut self, simple: &SimpleCommand, here: &Here, walk: &mut Walk) -> After {
        if self.callers > 0 {
            let Some(left) = self.called_left.checked_sub(1) else {
                self.ask("it calls functions very often");
                return After { success: Here::unknown(), any: Here::unknown() };
            };
            self.called_left = left;
        }
        let mut seen = Seen::default();
        let mut words = Vec::new();
        let mut named = Vec::new();
        let mut given = None;
        let piped = std::mem::take(&mut self.source);
        let mut source = if piped == Source::Told { self.around.clone() } else { piped };
        let outer = std::mem::take(&mut walk.inside);
        let mut set = Vec::new();
        let sets_for = match (&simple.word_or_name, &simple.suffix) {
            (None, None) => SetsFor::Text,
            (Some(name), _) if name.value == "read" => SetsFor::Read,
            (Some(_), _) | (None, Some(_)) => SetsFor::Command,
        };
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        for item in prefix {
            match item {
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, raw) => {
                    seen.words.push(raw.value.clone());
                    set.push(self.assignment(assignment, sets_for, here, walk));
                }
                CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                    given = self.redirect(redirect, here, walk, &mut seen).or(given);
                    source = self.redirected.take().unwrap_or(source);
                }
                CommandPrefixOrSuffixItem::Word(raw) => {
                    seen.words.push(raw.value.clone());
                    words.extend(self.words_of(&raw.value, here, walk));
                }
                CommandPrefixOrSuffixItem::ProcessSubstitution(_, group) => {
                    self.ask("it runs another command as a file");
                    self.list(&group.list, here, walk);
                }
            }
        }
        if let Some(raw) = &simple.word_or_name {
            seen.words.push(raw.value.clone());
            let name = self.words_of(&raw.value, here, walk);
            words.extend(self.spelt_with_nothing(&raw.value, here, &name).unwrap_or(name));
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                // after the command's name an assignment is a word like any other
                CommandPrefixOrSuffixItem::Word(raw) | CommandPrefixOrSuffixItem::AssignmentWord(_, raw) => {
                    seen.words.push(raw.value.clone());
                    let found = self.words_of(&raw.value, here, walk);
                    if found.iter().any(|word| word.kind == Kind::Loose) && found::takes_files(&words) {
                        named.extend(self.put_in_names(&raw.value, here).map(|name| (words.len(), name)));
                    }
                    words.extend(found);
                }
                CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                    let copies = words.first().and_then(Word::known).is_some_and(|name| matches!(name, "cat" | "tee"));
                    self.copies = copies && self.piped == 0;
                    given = self.redirect(redirect, here, walk, &mut seen).or(given);
                    self.copies = false;
                    source = self.redirected.take().unwrap_or(source);
                }
                CommandPrefixOrSuffixItem::ProcessSubstitution(kind, group) => {
                    // read as the rougher reading reads it: what stands before, the commands inside, what stands behind
                    if seen != Seen::default() {
                        walk.seen.push(std::mem::take(&mut seen));
                    }
                    let (stdin, fed) = (self.stdin.take(), self.fed.take());
                    match kind {
                        ProcessSubstitutionKind::Read => {
                            words.push(Word { text: STREAM.to_owned(), kind: Kind::Literal })
                        }
                        ProcessSubstitutionKind::Write => {
                            self.ask("it runs another command as a file");
                            words.push(Word::unknown());
                        }
                    }
                    self.list(&group.list, here, walk);
                    given = self.printed_by(&group.list, here).or(given);
                    (self.stdin, self.fed) = (stdin, fed);
                    walk.inside.push(group.list.to_string());
                }
            }
        }
        // several are given at once
        if !found::writes(&words) {
            for (at, name) in named.into_iter().rev() {
                words.splice(at..=at, [name.clone(), name]);
            }
        }
        // what the text itself sets, or anybody may know, is said whatever it is
        let said =
            words.iter().any(|word| word.kind == Kind::Guess).then(|| said(&words, &simple.to_string())).flatten();
        words = said.unwrap_or(words);
        if seen != Seen::default() {
            walk.seen.push(seen.clone());
        }
        self.source = source;
        if given.is_some() {
            (self.stdin, self.source) = (given, Source::Told);
        }
        if words.first().and_then(Word::known) == Some("alias") {
            for word in words.iter().skip(1) {
                self.kept_for_later(word.text.split_once('=').map_or("", |(_, text)| text), here, walk.depth);
            }
        }
        let read = self.stdin.clone().filter(|_| words.iter().any(|word| word.text == "read"));
        // what stands before a command is set for it alone
        let before = (!words.is_empty() && !set.is_empty()).then(|| self.scope.clone());
        let is_straight = sets_for == SetsFor::Text && self.aside == 0 && walk.depth == 0 && self.callers == 0;
        for (name, value) in set {
            if is_straight && self.is_set_once(&name) {
                match value.as_slice() {
                    [word] if word.kind == Kind::Literal => self.bindings.push((name.clone(), word.clone())),
                    [_] if word::is_own(&name) && seen.words.iter().any(|word| counts(word, &name)) => {
                        self.numbers.push(name.clone());
                    }
                    _ => {}
                }
            }
            self.scope.set(&name, value);
        }
        self.left = None;
        let inside = std::mem::replace(&mut walk.inside, outer);
        self.brought_in(simple, &words, &inside, here);
        let verdict = self.simple(&words, here, Nesting { scripts: walk.depth, wrappers: 0 });
        (self.stdin, self.fed, self.source) = (None, None, Source::Told);
        self.note(verdict);
        self.scope = before.unwrap_or_else(|| std::mem::take(&mut self.scope));
        self.changes_variables(&words, read.as_deref());
        self.keep_written(simple, here);
        self.after(&words, here)
    }

    /// Whether the text names this variable once, but for where it is read: nothing else in it can set it.
    fn is_set_once(&self, name: &str) -> bool {
        let plain = word::is_own(name) || !steers(name) && !executed::leads(name);
        plain && sets(&self.text, name) == 1 && sets(&self.text, "IFS") == 0
    }

    /// The name of a command with letters in it that come to nothing: `r${x}m`, where nothing has set `x`.
    fn spelt_with_nothing(&mut self, raw: &str, here: &Here, found: &[Word]) -> Option<Vec<Word>> {
        if !found.iter().any(Word::is_unknown) {
            return None;
        }
        let words = word::read(raw, &Variables { unset: Unset::Nothing, ..self.variables(here) }).words;
        if words.is_empty() {
            self.ask(VANISHES);
        }
        words.iter().all(|word| word.kind == Kind::Guess).then_some(words)
    }

    /// `NAME=value`, as one word.
    pub(super) fn set(&mut self, word: &Word) {
        match word.text.split_once('=') {
            Some((name, value)) if word.known().is_some() => {
                self.scope.set(name, vec![Word { text: value.to_owned(), kind: Kind::Guess }]);
            }
            Some((name, _)) => self.scope.blur(name),
            None => {}
        }
    }

    /// What a command leaves in variables of the shell. `given`: what it reads, where that is told.
    pub(super) fn changes_variables(&mut self, words: &[Word], given: Option<&str>) {
        let Some((name, rest)) = built_in(words) else { return };
        let guess = |text: &str| Word { text: text.to_owned(), kind: Kind::Guess };
        let names = || rest.iter().filter(|word| !word.text.starts_with('-')).map(|word| word.text.clone());
        match name {
            "export" | "declare" | "typeset" | "local" | "readonly" => rest.iter().for_each(|word| self.set(word)),
            "read" => {
                let plain = table::reads_plainly(rest);
                let mut left = given.map(str::trim);
                let all: Vec<String> = names().collect();
                for (at, name) in all.iter().enumerate() {
                    let (field, rest) = match left {
                        Some(text) if at + 1 < all.len() => text.split_once(char::is_whitespace).unwrap_or((text, "")),
                        Some(text) => (text, ""),
                        None => {
                            self.scope.set(name, vec![if plain { Word::open() } else { Word::unknown() }]);
                            continue;
                        }
                    };
                    left = Some(rest.trim_start());
                    self.scope.set(name, vec![guess(field)]);
                }
            }
            "printf" => {
                let mut rest = rest.iter().map(|word| word.text.as_str());
                if let (Some("-v"), Some(name)) = (rest.next(), rest.next()) {
                    let texts: Vec<&str> = rest.collect();
                    match texts.split_first() {
                        Some((format, [])) if !format.contains(['%', '\\']) => {
                            self.scope.set(name, vec![guess(format)]);
                        }
                        Some((&"%s", texts)) => self.scope.set(name, vec![guess(&texts.concat())]),
                        Some(_) | None => self.scope.blur(name),
                    }
                }
            }
            "unset" => names().for_each(|name| self.scope.blur(&name)),
            "set" => {
                let from = rest.iter().position(|word| word.text == "--").map(|at| at + 1);
                let from = from.or_else(|| rest.iter().position(|word| !word.text.starts_with(['-', '+'])));
                if let Some(given) = from.and_then(|from| rest.get(from..)) {
                    self.scope.give(Some(given.to_vec()));
                }
            }
            "shift" if rest.is_empty() => self.scope.shift(),
            "shift" => self.scope.give(None),
            "alias" => {
                for (name, words) in rest.iter().filter_map(|word| word.text.split_once('=')) {
                    self.scope.name(name, words);
                }
            }
            "hash" => {
                if let [option, path, name] = rest
                    && option.text == "-p"
                {
                    self.scope.name(&name.text, &path.text);
                }
            }
            "mapfile" | "readarray" | "getopts" | "let" => self.scope.forget(),
            "source" | "." if self.scripts.is_none() => self.scope.forget(),
            _ => {}
        }
    }

    /// What a command does with what substitutions and variables put into its words.
    fn brought_in(&mut self, simple: &SimpleCommand, words: &[Word], inside: &[String], here: &Here) {
        if !inside.is_empty() {
            let parts: Vec<Part> = inside
                .iter()
                .flat_map(|script| scan::scan(script))
                .take(PARTS_MAX)
                .map(|seen| self.part(&seen, here))
                .collect();
            if let Some(harm) = flow::substituted(words, &parts) {
                self.note(harm.verdict());
            }
        }
        let says =
            matches!(words.first().and_then(Word::known), Some("echo" | "printf")) && words.iter().any(Word::is_open);
        // and so do these of the text they are given
        let shows = matches!(words.first().and_then(Word::known), Some("cat" | "tee" | "base64" | "xxd" | "od"));
        if (says || shows)
            && let Some(name) = harm::secrets::expands_a_secret(&simple.to_string())
        {
            let reason = format!("the variable {} usually holds a secret", shown(name));
            self.note(Verdict::new(Strictness::Deny, own::SECRET, reason));
        }
    }

    /// Where the shell is after a command.
    pub(super) fn after(&mut self, words: &[Word], here: &Here) -> After {
        let same = || After { success: here.clone(), any: here.clone() };
        let left = self.left.take();
        let Some((name, rest)) = built_in(words) else { return same() };
        match name {
            "cd" | "pushd" => {
                let operands: Vec<&Word> = rest.iter().filter(|word| word.text != "--").collect();
                let success = match operands.as_slice() {
                    [folder]
                        if matches!(folder.kind, Kind::Literal | Kind::Likely | Kind::Guess)
                            && !folder.text.starts_with('-') =>
                    {
                        let moved = here.folders.iter().map(|from| path::absolute(from, &folder.text));
                        Here { folders: moved.collect() }
                    }
                    // it changes places with a folder from before
                    [] if name == "pushd" => Here::unknown(),
                    [] => Here::at(self.policy.surroundings.home().to_owned()),
                    _ => Here::unknown(),
                };
                After { any: here.or(&success), success }
            }
            // these may hide a `cd`, and are asked about in any case
            "source" | "." if matches!(rest, [file] if super::is_activation(file)) => same(),
            "eval" | "source" | "." | "popd" => {
                let after = left.filter(|_| name != "popd").unwrap_or_else(Here::unknown);
                After { success: after.clone(), any: after }
            }
            name if self.scope.function(name).is_some() => {
                let after = left.unwrap_or_else(Here::unknown);
                After { success: after.clone(), any: after }
            }
            _ => same(),
        }
    }

    /// What it sets, and to what.
    fn assignment(
        &mut self,
        assignment: &Assignment,
        sets_for: SetsFor,
        here: &Here,
        walk: &mut Walk,
    ) -> (String, Vec<Word>) {
        let name = match &assignment.name {
            AssignmentName::VariableName(name) => name.as_str(),
            AssignmentName::ArrayElementName(name, index) => {
                self.inner_scripts(index, here, walk);
                name.as_str()
            }
        };
        if executed::leads(name) {
            self.executed.cannot_tell(|| format!("the variable {} decides which program runs", shown(name)));
        }
        if name.starts_with("LONGREIN_") {
            self.note(Verdict::new(Strictness::Deny, own::OWN_FILES, "no run may set Longrein's variables"));
        }
        let values: Vec<&str> = match &assignment.value {
            AssignmentValue::Scalar(value) => vec![value.value.as_str()],
            AssignmentValue::Array(values) => values.iter().map(|(_, value)| value.value.as_str()).collect(),
        };
        let is_list =
            matches!(&assignment.value, AssignmentValue::Array(values) if values.iter().all(|(at, _)| at.is_none()));
        let is_own_list = is_list && sets_for == SetsFor::Text && word::is_own(name);
        let mut plain = (is_own_list || matches!(assignment.value, AssignmentValue::Scalar(_))) && !assignment.append;
        let mut set = Vec::new();
        for value in values {
            let words = self.words_of(value, here, walk);
            let harmless = |word: &Word| match sets_for {
                SetsFor::Text if word::is_own(name) => {
                    matches!(word.kind, Kind::Literal | Kind::Likely | Kind::Guess | Kind::Open | Kind::Loose)
                }
                SetsFor::Read if name == "IFS" => word.kind == Kind::Literal,
                SetsFor::Text | SetsFor::Read | SetsFor::Command => {
                    word.kind == Kind::Literal && is_harmless(name, &word.text)
                }
            };
            plain &= !words.is_empty() && words.iter().all(harmless);
            for word in &words {
                self.kept_for_later(&word.text, here, walk.depth);
            }
            set.extend(words);
        }
        let literal = !assignment.append && matches!(set.as_slice(), [word] if word.kind == Kind::Literal);
        if !plain {
            let reason = format!("it sets the variable {}", shown(name));
            let inside = matches!(set.as_slice(), [word] if leads_to_sources(name, &word.text));
            match literal && (inside || !executed::leads(name) && !steers(name)) {
                // a program it is for is held by what holds the program
                true => self.note(Verdict::unless(Doubt::Unproven, reason)),
                false => self.ask(reason),
            }
        }
        let before = || self.scope.value(name).map(|value| value.to_vec());
        let set = match (&assignment.name, &assignment.value, assignment.append) {
            (AssignmentName::VariableName(_), AssignmentValue::Array(_), false) => set,
            (AssignmentName::VariableName(_), AssignmentValue::Array(_), true) => {
                before().map_or_else(|| vec![Word::unknown()], |before| [before, set].concat())
            }
            // a value is not split where it is set
            (AssignmentName::VariableName(_), AssignmentValue::Scalar(_), false) => vec![joined(&set)],
            (AssignmentName::VariableName(_), AssignmentValue::Scalar(_), true) => {
                let before = before().map_or_else(Word::unknown, |before| joined(&before));
                let added = joined(&set);
                vec![Word { text: format!("{}{}", before.text, added.text), kind: before.kind.max(added.kind) }]
            }
            (AssignmentName::ArrayElementName(..), _, _) => vec![Word::unknown()],
        };
        (name.to_owned(), set)
    }

    /// The text that standard input gets, if it is told here.
    fn redirect(&mut self, redirect: &IoRedirect, here: &Here, walk: &mut Walk, seen: &mut Seen) -> Option<String> {
        match redirect {
            IoRedirect::File(_, kind, target) => {
                let purpose = match kind {
                    IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput => Purpose::Read,
                    IoFileRedirectKind::Write
                    | IoFileRedirectKind::Append
                    | IoFileRedirectKind::ReadAndWrite
                    | IoFileRedirectKind::Clobber
                    | IoFileRedirectKind::DuplicateOutput => Purpose::Write,
                };
                match target {
                    IoFileRedirectTarget::Filename(raw) => {
                        if purpose == Purpose::Read {
                            let words = self.words(std::iter::once(raw.value.as_str()), here, &mut |_| {});
                            self.redirected = Some(Source::Files(words));
                        }
                        self.file(&raw.value, purpose, direction(kind), here, walk, seen)
                    }
                    IoFileRedirectTarget::Duplicate(raw) => {
                        let is_descriptor = raw.value == "-"
                            || raw.value.trim_end_matches('-').bytes().all(|byte| byte.is_ascii_digit());
                        if is_descriptor {
                            seen.redirects.push((direction(kind), raw.value.clone()));
                        } else {
                            self.file(&raw.value, purpose, direction(kind), here, walk, seen);
                        }
                    }
                    IoFileRedirectTarget::Fd(_) => {}
                    IoFileRedirectTarget::ProcessSubstitution(_, group) => {
                        self.redirected = Some(Source::Unknown);
                        self.ask("it runs another command as a file");
                        self.list(&group.list, here, walk);
                    }
                }
                None
            }
            IoRedirect::OutputAndError(raw, _) => {
                self.file(&raw.value, Purpose::Write, Direction::Out, here, walk, seen);
                None
            }
            IoRedirect::HereString(_, raw) => {
                seen.redirects.push((Direction::In, raw.value.clone()));
                let words = self.words_of(&raw.value, here, walk);
                let copies = self.copies;
                let is_told = |word: &Word| match word.kind {
                    Kind::Literal => true,
                    // it is copied, whatever it says
                    Kind::Likely | Kind::Guess | Kind::Open | Kind::Loose => copies,
                    Kind::Glob | Kind::Unknown => false,
                };
                if !words.iter().all(is_told) {
                    self.ask("the text it is given is only known once it runs");
                }
                let body = Without::body(&self.documents, &raw.value);
                body.or_else(|| words.first().and_then(Word::known)).map(str::to_owned)
            }
            IoRedirect::HereDocument(_, document) => {
                self.ask("it is given a text of several lines");
                if document.requires_expansion {
                    self.inner_scripts(&document.doc.value, here, walk);
                }
                Some(document.doc.value.clone())
            }
        }
    }

    fn file(
        &mut self,
        raw: &str,
        purpose: Purpose,
        direction: Direction,
        here: &Here,
        walk: &mut Walk,
        seen: &mut Seen,
    ) {
        seen.redirects.push((direction, raw.to_owned()));
        let words = self.words_of(raw, here, walk);
        if words.len() != 1 {
            self.ask("it is redirected to several files");
        }
        for word in words {
            if word.kind == Kind::Likely {
                self.ask(format!("shells may read a file as {} or otherwise; write it plainly", shown(&word.text)));
            }
            let operand = Operand { word, purpose };
            let verdict = self.operand(&operand, here);
            // the rules about commands are about their words; only one about every command covers its files
            match self.bare() {
                Some(rule) if verdict.strictness == Strictness::Unless => self.note(Verdict::allow(&rule.text)),
                Some(_) | None => self.note(verdict),
            }
        }
    }

    /// Keeps what a command writes into a file, where its words say so: a later one may run it.
    fn keep_written(&mut self, simple: &SimpleCommand, here: &Here) {
        let files = simple.suffix.iter().flat_map(|suffix| &suffix.0).filter_map(|item| match item {
            CommandPrefixOrSuffixItem::IoRedirect(IoRedirect::File(
                _,
                IoFileRedirectKind::Write | IoFileRedirectKind::Append | IoFileRedirectKind::Clobber,
                IoFileRedirectTarget::Filename(raw),
            )) => Some(raw.value.as_str()),
            CommandPrefixOrSuffixItem::IoRedirect(_)
            | CommandPrefixOrSuffixItem::Word(_)
            | CommandPrefixOrSuffixItem::AssignmentWord(..)
            | CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
        });
        let files = self.words(files, here, &mut |_| {});
        if files.is_empty() || self.written.len() >= WRITTEN_MAX {
            return;
        }
        let Some(text) = self.printed(&Command::Simple(simple.clone()), here) else { return };
        for (file, folder) in
            files.iter().filter_map(Word::known).flat_map(|file| here.folders.iter().map(move |at| (file, at)))
        {
            self.written.push((path::absolute(folder, file), text.clone()));
        }
    }

    /// The same of a list of one command.
    fn printed_by(&self, list: &CompoundList, here: &Here) -> Option<String> {
        let [item] = list.0.as_slice() else { return None };
        let [command] = item.0.first.seq.as_slice() else { return None };
        item.0.additional.is_empty().then(|| self.printed(command, here))?
    }

    /// The text below a command that hands it on.
    fn handed_on(&self, simple: &SimpleCommand) -> Option<String> {
        let items = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        items.chain(simple.suffix.iter().flat_map(|suffix| &suffix.0)).find_map(|item| match item {
            CommandPrefixOrSuffixItem::IoRedirect(IoRedirect::HereString(_, raw)) => {
                Without::body(&self.documents, &raw.value).map(str::to_owned)
            }
            CommandPrefixOrSuffixItem::IoRedirect(_)
            | CommandPrefixOrSuffixItem::Word(_)
            | CommandPrefixOrSuffixItem::AssignmentWord(..)
            | CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
        })
    }

    /// What a command prints, where its words say so.
    fn printed(&self, command: &Command, here: &Here) -> Option<String> {
        let Command::Simple(simple) = command else { return None };
        let raw = simple.word_or_name.iter().map(|raw| raw.value.as_str());
        let suffix = simple.suffix.iter().flat_map(|suffix| &suffix.0).filter_map(|item| match item {
            CommandPrefixOrSuffixItem::Word(raw) | CommandPrefixOrSuffixItem::AssignmentWord(_, raw) => {
                Some(raw.value.as_str())
            }
            CommandPrefixOrSuffixItem::IoRedirect(_) | CommandPrefixOrSuffixItem::ProcessSubstitution(..) => None,
        });
        let words = self.words(raw.chain(suffix), here, &mut |_| {});
        if !matches!(unwrap(&words), Inner::None) {
            return None;
        }
        match words.first().and_then(Word::known) {
            // it hands on what it is given
            Some("cat") if words.iter().skip(1).all(|word| word.text == "-") => self.handed_on(simple),
            Some("tee") => self.handed_on(simple),
            Some("echo" | "printf") => {
                let text = words.iter().skip(1).map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
                Some(text.replace("\\n", "\n"))
            }
            Some(_) | None => None,
        }
    }
}

/// What variables are set for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SetsFor {
    /// For what follows in the text.
    Text,
    /// For one `read`, which splits a line by them.
    Read,
    /// For one command, which is given them.
    Command,
}

/// Whether `export` sets variables that only programs look at, each to a literal.
pub(super) fn exports_for_programs(words: &[Word]) -> bool {
    let plain = |word: &Word| {
        word.kind == Kind::Literal
            && word.text.split_once('=').is_some_and(|(name, _)| {
                let of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                !name.is_empty() && name.bytes().all(of_name) && !executed::leads(name) && !steers(name)
            })
    };
    words.len() > 1 && words.iter().skip(1).all(plain)
}

/// Whether a variable has programs of one language load what lies in the folders named, which are below the folder they are
/// run in.
fn leads_to_sources(name: &str, folders: &str) -> bool {
    matches!(name, "PYTHONPATH" | "NODE_PATH" | "RUBYLIB" | "PERL5LIB")
        && folders
            .split(':')
            .all(|folder| !folder.starts_with(['/', '~']) && !folder.split('/').any(|part| part == ".."))
}

/// Whether a variable decides what words, folders and programs are, for a shell or for git.
fn steers(name: &str) -> bool {
    const STEERS: [&str; 12] = [
        "IFS",
        "HOME",
        "CDPATH",
        "SHELL",
        "PS4",
        "GLOBIGNORE",
        "SHELLOPTS",
        "BASHOPTS",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "TZDIR",
    ];
    let begins = ["GIT_", "LD_", "DYLD_", "BASH_", "LESS", "SSH_", "XDG_", "PROMPT"];
    STEERS.contains(&name)
        || begins.iter().any(|begin| name.starts_with(begin))
        || ["_PAGER", "_EDITOR", "_CONFIG_PATH", "_COMMAND", "_WRAPPER", "_RUNNER"]
            .iter()
            .any(|end| name.ends_with(end))
        || name.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// The name of a command that changes the shell it stands in, and its words.
fn built_in(words: &[Word]) -> Option<(&str, &[Word])> {
    let mut words = words;
    while let Some((first, rest)) = words.split_first() {
        match first.known()? {
            "command" | "builtin" => words = rest,
            name => return Some((name, rest)),
        }
    }
    None
}

/// Parts of one value as one word.
fn joined(words: &[Word]) -> Word {
    match words {
        [word] => word.clone(),
        [] => Word { text: String::new(), kind: Kind::Guess },
        words => {
            let kind = words.iter().map(|word| word.kind).max().unwrap_or(Kind::Unknown);
            Word { text: words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" "), kind }
        }
    }
}

fn direction(kind: &IoFileRedirectKind) -> Direction {
    match kind {
        IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput | IoFileRedirectKind::ReadAndWrite => {
            Direction::In
        }
        IoFileRedirectKind::Write
        | IoFileRedirectKind::Append
        | IoFileRedirectKind::Clobber
        | IoFileRedirectKind::DuplicateOutput => Direction::Out,
    }
}

/// A word that leaves nothing behind, and so no word to ask about.
const VANISHES: &str = "whether a word of it is there at all is only known once it runs";
/// What a process that is read as a file stands as among the words: as standard input does.
const STREAM: &str = "-";
/// Files that are written in one text and looked into where they are run.
const WRITTEN_MAX: usize = 16;
/// Commands of a pipeline that are looked at together.
const PARTS_MAX: usize = 64;
