//! Commands that hold others: loops, branches, tests. Whatever they run is judged, as often as it may run.

use super::*;

impl Analysis<'_> {
    /// The folder afterwards.
    pub(super) fn compound(&mut self, compound: &CompoundCommand, here: &Here, walk: &mut Walk) -> Here {
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
    pub(super) fn extended_test(
        &mut self,
        test: &ExtendedTestExpr,
        here: &Here,
        walk: &mut Walk,
        raw: &mut Vec<Vec<String>>,
    ) {
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
        if raw.strip_prefix(['\'', '"']).is_some_and(super::super::carried::has_index) {
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
}

/// What a test does with its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compares {
    Texts,
    /// It looks for a file, or computes.
    Nothing,
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

/// Whether every shell would do no more than test files and compare texts.
pub(super) fn is_plain_test(test: &ExtendedTestExpr, numbers: &[String]) -> bool {
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
