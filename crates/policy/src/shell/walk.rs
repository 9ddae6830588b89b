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

    /// The folder afterwards.
    fn compound(&mut self, compound: &CompoundCommand, here: &Here, walk: &mut Walk) -> Here {
        match compound {
            CompoundCommand::BraceGroup(group) => self.list(&group.list, here, walk),
            CompoundCommand::Subshell(group) => {
                let scope = self.scope.clone();
                self.list(&group.list, here, walk);
                self.scope = scope;
                here.clone()
            }
            CompoundCommand::IfClause(clause) => {
                let tested = self.list(&clause.condition, here, walk);
                let scope = self.scope.clone();
                let mut after = self.list(&clause.then, &tested, walk).or(&tested);
                let mut known = scope.or(&self.scope);
                for other in clause.elses.iter().flatten() {
                    self.scope = scope.clone();
                    let from = match &other.condition {
                        Some(condition) => self.list(condition, &tested, walk),
                        None => tested.clone(),
                    };
                    after = after.or(&self.list(&other.body, &from, walk));
                    known = known.or(&self.scope);
                }
                self.scope = known;
                after
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                let of_lines = matches!(compound, CompoundCommand::WhileClause(_)) && reads_a_line(&clause.0);
                if !of_lines && !self.counts(&clause.0, &clause.1.list) {
                    self.ask_unless_bare("it repeats commands until something changes");
                }
                self.never_waits(&clause.1.list);
                // the second time round it may start anywhere the first time ended
                let scope = self.scope.clone();
                let once = self.list(&clause.0, here, walk);
                let once = self.list(&clause.1.list, &once, walk);
                self.scope = scope.or(&self.scope);
                if once == *here { once } else { Here::unknown() }
            }
            CompoundCommand::ForClause(clause) => self.for_each(clause, here, walk),
            CompoundCommand::ArithmeticForClause(clause) => {
                self.never_waits(&clause.body.list);
                let parts = [&clause.initializer, &clause.condition, &clause.updater];
                let told: Vec<&str> = parts.into_iter().flatten().map(|part| part.value.as_str()).collect();
                // a loop without a condition has no end
                let has_end = clause.condition.as_ref().is_some_and(|part| !part.value.trim().is_empty());
                let plain = told.iter().all(|part| settings::computes_plainly(part, &self.numbers));
                if !plain || !has_end {
                    self.ask("it repeats commands");
                }
                walk.seen.extend(scan::scan(&format!("for (({}))", told.join(";"))));
                told.iter().for_each(|part| self.inner_scripts(part, here, walk));
                let scope = self.scope.clone();
                let once = self.list(&clause.body.list, here, walk);
                self.scope = scope.or(&self.scope);
                if !plain {
                    self.scope.forget();
                }
                if once == *here { once } else { Here::unknown() }
            }
            CompoundCommand::CaseClause(clause) => {
                self.executed.judging.is_judged |= !judging::is_given(&clause.value.value);
                let words = ["case", clause.value.value.as_str(), "in"].map(str::to_owned).to_vec();
                walk.seen.push(Seen { words, redirects: Vec::new() });
                self.held_against(&clause.value.value, here, walk);
                let mut after = here.clone();
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        let words = vec![pattern.value.clone()];
                        walk.seen.push(Seen { words, redirects: Vec::new() });
                        self.held_against(&pattern.value, here, walk);
                    }
                    if let Some(list) = &case.cmd {
                        let scope = self.scope.clone();
                        after = after.or(&self.list(list, &after.clone(), walk));
                        self.scope = scope.or(&self.scope);
                    }
                }
                after
            }
            CompoundCommand::Coprocess(process) => {
                self.ask("it starts a process beside it");
                let scope = self.scope.clone();
                self.one(&process.body, here, walk);
                self.scope = scope;
                here.clone()
            }
            CompoundCommand::Arithmetic(arithmetic) => {
                // `( (rm x) )` is taken for arithmetic by the parser, and by no shell; and by some shells no arithmetic is
                let seen = scan::scan(&format!("(({}))", arithmetic.expr.value));
                let is_no_command =
                    |name: &String| name.len() == 1 || !name.bytes().all(|byte| byte.is_ascii_alphabetic());
                let plain = settings::computes_plainly(&arithmetic.expr.value, &self.numbers)
                    && seen
                        .iter()
                        .all(|seen| seen.redirects.is_empty() && seen.words.first().is_some_and(is_no_command));
                if !plain {
                    self.ask("it computes with (( )), or groups commands twice");
                }
                walk.seen.extend(seen);
                self.executed.judging.is_judged = true;
                if !plain {
                    self.inner_scripts(&arithmetic.expr.value, here, walk);
                    self.search(&arithmetic.expr.value, here, walk.depth);
                    self.scope.forget();
                }
                here.clone()
            }
        }
    }

    /// Whether a loop ends when a number that it counts has come far enough: `while [ "$i" -lt 3 ]; do …; i=$((i+1)); done`.
    fn counts(&self, condition: &CompoundList, body: &CompoundList) -> bool {
        let [item] = condition.0.as_slice() else { return false };
        let [tested] = item.0.first.seq.as_slice() else { return false };
        let (tested, body) = (tested.to_string(), body.to_string());
        let is_test = ["[ ", "[[ ", "test ", "(("].iter().any(|begin| tested.starts_with(begin));
        let is_counted = |name: &String| settings::names(&tested, name) && settings::counts_on(&body, name);
        is_test && item.0.additional.is_empty() && self.numbers.iter().any(is_counted)
    }

    /// A word of `case`, which is compared whatever it says.
    fn held_against(&mut self, raw: &str, here: &Here, walk: &mut Walk) {
        for word in self.words_of(raw, here, walk) {
            match word.kind {
                Kind::Literal | Kind::Likely | Kind::Glob | Kind::Guess | Kind::Open | Kind::Loose => {}
                Kind::Unknown => self.ask("a word of case is only known once it runs"),
            }
        }
    }

    /// A loop that starts processes and waits for none of them.
    fn never_waits(&mut self, body: &CompoundList) {
        if body.0.iter().any(|item| matches!(item.1, SeparatorOperator::Async)) {
            self.note(Verdict::new(Strictness::Deny, own::EXHAUSTION, "it starts processes without end"));
        }
    }

    /// A loop over words: each turn is judged with what its variable stands for, where all of that is known.
    fn for_each(&mut self, clause: &ForClauseCommand, here: &Here, walk: &mut Walk) -> Here {
        let mut seen = Seen { words: vec!["for".to_owned(), clause.variable_name.clone()], redirects: Vec::new() };
        let mut values = Vec::new();
        if let Some(raw) = &clause.values {
            seen.words.push("in".to_owned());
            for raw in raw {
                seen.words.push(raw.value.clone());
                values.extend(self.words_of(&raw.value, here, walk));
            }
        }
        walk.seen.push(seen);
        let patterns = values.clone();
        let values = self.expand(&values, here);
        let plain_name =
            clause.variable_name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        let known = |word: &Word| match word.kind {
            Kind::Literal => true,
            Kind::Glob => self.stands_for_itself(&word.text, here),
            Kind::Likely | Kind::Guess | Kind::Open | Kind::Loose | Kind::Unknown => false,
        };
        // in a turn it may be set to something else
        let is_reset = sets(&clause.body.list.to_string(), &clause.variable_name) > 0;
        let plain_name = plain_name && !is_reset;
        let all_known = plain_name && !values.is_empty() && values.len() <= self.turns && values.iter().all(known);
        let strangest = values.iter().map(|word| word.kind).max();
        // each turn is judged with a word of which nothing is known
        let brought = plain_name && strangest.is_some_and(|kind| matches!(kind, Kind::Open | Kind::Loose));
        if !all_known && !brought {
            self.ask_unless_bare("it repeats commands with a variable in them");
        }
        let mut after = here.clone();
        let turns = values.into_iter().take(self.turns.max(1)).map(Some).chain([None]);
        let turns: Vec<Option<Word>> = match (all_known, is_reset) {
            (true, _) => turns.filter(Option::is_some).collect(),
            (false, false) => turns.collect(),
            (false, true) => turns.filter(Option::is_none).collect(),
        };
        let before = self.scope.clone();
        for (turn, value) in turns.into_iter().enumerate() {
            self.turns = self.turns.saturating_sub(1);
            let other = if brought { Word::open() } else { Word::unknown() };
            self.bindings.push((clause.variable_name.clone(), value.unwrap_or(other)));
            // the commands are the same each time; they are counted once
            let mut again = Walk { seen: Vec::new(), depth: walk.depth, inside: Vec::new() };
            let once = self.list(&clause.body.list, here, if turn == 0 { &mut *walk } else { &mut again });
            self.bindings.pop();
            if once != *here {
                self.ask("where a turn of its loop begins cannot be told");
                after = Here::unknown();
            }
        }
        self.scope = before.or(&self.scope);
        self.scope.blur(&clause.variable_name);
        patterns.iter().for_each(|pattern| self.runs_pattern(pattern, here));
        after
    }

    /// Judges the words of a test, and tells how it is written, as the rougher reading reads it: what joins two tests joins two
    /// commands there.
    fn extended_test(&mut self, test: &ExtendedTestExpr, here: &Here, walk: &mut Walk, raw: &mut Vec<Vec<String>>) {
        match test {
            ExtendedTestExpr::And(one, other) | ExtendedTestExpr::Or(one, other) => {
                self.extended_test(one, here, walk, raw);
                raw.push(Vec::new());
                self.extended_test(other, here, walk, raw);
            }
            ExtendedTestExpr::Parenthesized(inner) => {
                raw.push(Vec::new());
                self.extended_test(inner, here, walk, raw);
                raw.push(Vec::new());
            }
            ExtendedTestExpr::Not(inner) => {
                // a reserved word where a command begins
                if let Some(words) = raw.last_mut().filter(|words| !words.is_empty()) {
                    words.push("!".to_owned());
                }
                self.extended_test(inner, here, walk, raw);
            }
            ExtendedTestExpr::UnaryTest(predicate, word) => {
                let written = [predicate.to_string(), word.value.clone()];
                raw.last_mut().expect("it begins with one").extend(written);
                let of_texts =
                    matches!(predicate, UnaryPredicate::StringHasNonZeroLength | UnaryPredicate::StringHasZeroLength);
                let compares = if of_texts { Compares::Texts } else { Compares::Nothing };
                self.tested(&word.value, compares, here, walk);
            }
            ExtendedTestExpr::BinaryTest(predicate, one, other) => {
                let written = [one.value.clone(), predicate.to_string(), other.value.clone()];
                raw.last_mut().expect("it begins with one").extend(written);
                let of_texts = matches!(
                    predicate,
                    BinaryPredicate::StringExactlyMatchesPattern
                        | BinaryPredicate::StringDoesNotExactlyMatchPattern
                        | BinaryPredicate::StringMatchesRegex
                        | BinaryPredicate::StringExactlyMatchesString
                        | BinaryPredicate::StringDoesNotExactlyMatchString
                        | BinaryPredicate::StringContainsSubstring
                );
                let of_numbers = [one, other].iter().all(|word| settings::is_number(&word.value, &self.numbers));
                let compares = if of_texts || of_numbers { Compares::Texts } else { Compares::Nothing };
                self.tested(&one.value, compares, here, walk);
                self.tested(&other.value, compares, here, walk);
            }
        }
    }

    fn tested(&mut self, raw: &str, compares: Compares, here: &Here, walk: &mut Walk) {
        if raw.strip_prefix(['\'', '"']).is_some_and(super::carried::has_index) {
            // an index is computed, quotes or not
            self.inner_scripts(raw, here, walk);
        }
        for word in self.words_of(raw, here, walk) {
            match word.kind {
                Kind::Literal => {
                    let verdict = self.operand(&Operand { word, purpose: Purpose::List }, here);
                    // a text that is compared is no path
                    if raw.contains('/') {
                        self.note(verdict);
                    }
                }
                // whatever it says is compared, or is a pattern that texts are held against
                Kind::Likely | Kind::Glob | Kind::Guess | Kind::Open | Kind::Loose if compares == Compares::Texts => {}
                Kind::Likely | Kind::Glob | Kind::Guess | Kind::Open | Kind::Loose | Kind::Unknown => {
                    self.ask("a word of [[ ]] is only known once it runs")
                }
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

/// What a test does with its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compares {
    Texts,
    /// It looks for a file, or computes.
    Nothing,
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

/// Whether it is one `read`, which ends a loop with the last line it is given.
fn reads_a_line(condition: &CompoundList) -> bool {
    let [item] = condition.0.as_slice() else { return false };
    let Pipeline { seq, bang: false, .. } = &item.0.first else { return false };
    match (seq.as_slice(), item.0.additional.is_empty(), &item.1) {
        ([Command::Simple(simple)], true, SeparatorOperator::Sequence) => {
            let from_elsewhere = simple.suffix.iter().flat_map(|suffix| &suffix.0).any(|item| match item {
                CommandPrefixOrSuffixItem::IoRedirect(_) | CommandPrefixOrSuffixItem::ProcessSubstitution(..) => true,
                CommandPrefixOrSuffixItem::Word(_) | CommandPrefixOrSuffixItem::AssignmentWord(..) => false,
            });
            simple.word_or_name.as_ref().is_some_and(|name| name.value == "read") && !from_elsewhere
        }
        _ => false,
    }
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

/// Whether every shell would do no more than test files and compare texts.
fn is_plain_test(test: &ExtendedTestExpr, numbers: &[String]) -> bool {
    match test {
        // a shell without `[[` finds no such command, and runs what stands behind `||`: that must be no command either
        ExtendedTestExpr::Or(one, other) => {
            is_plain_test(one, numbers)
                && is_plain_test(other, numbers)
                && matches!(first_of(other), ExtendedTestExpr::UnaryTest(..))
        }
        ExtendedTestExpr::And(one, other) => is_plain_test(one, numbers) && is_plain_test(other, numbers),
        ExtendedTestExpr::Parenthesized(inner) | ExtendedTestExpr::Not(inner) => is_plain_test(inner, numbers),
        ExtendedTestExpr::UnaryTest(predicate, _) => !matches!(
            predicate,
            UnaryPredicate::ShellVariableIsSetAndAssigned
                | UnaryPredicate::ShellVariableIsSetAndNameRef
                | UnaryPredicate::ShellOptionEnabled
        ),
        ExtendedTestExpr::BinaryTest(predicate, one, other) => {
            let number = |text: &str| settings::is_number(text, numbers);
            match predicate {
                BinaryPredicate::LeftSortsBeforeRight | BinaryPredicate::LeftSortsAfterRight => false,
                // words are computed, substitutions in them too
                BinaryPredicate::ArithmeticEqualTo
                | BinaryPredicate::ArithmeticNotEqualTo
                | BinaryPredicate::ArithmeticLessThan
                | BinaryPredicate::ArithmeticLessThanOrEqualTo
                | BinaryPredicate::ArithmeticGreaterThan
                | BinaryPredicate::ArithmeticGreaterThanOrEqualTo => number(&one.value) && number(&other.value),
                BinaryPredicate::FilesReferToSameDeviceAndInodeNumbers
                | BinaryPredicate::LeftFileIsNewerOrExistsWhenRightDoesNot
                | BinaryPredicate::LeftFileIsOlderOrDoesNotExistWhenRightDoes
                | BinaryPredicate::StringExactlyMatchesPattern
                | BinaryPredicate::StringDoesNotExactlyMatchPattern
                | BinaryPredicate::StringMatchesRegex
                | BinaryPredicate::StringExactlyMatchesString
                | BinaryPredicate::StringDoesNotExactlyMatchString
                | BinaryPredicate::StringContainsSubstring => true,
            }
        }
    }
}

/// The test that stands first in another.
fn first_of(test: &ExtendedTestExpr) -> &ExtendedTestExpr {
    match test {
        ExtendedTestExpr::And(one, _) | ExtendedTestExpr::Or(one, _) => first_of(one),
        ExtendedTestExpr::Parenthesized(inner) | ExtendedTestExpr::Not(inner) => first_of(inner),
        ExtendedTestExpr::UnaryTest(..) | ExtendedTestExpr::BinaryTest(..) => test,
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
