//! Shell commands: parsed, not matched as strings. Every simple command counts, wherever it stands.
//!
//! Read [`Policy::command`] first: text in, a verdict and what it would touch out. The text is parsed twice, by
//! brush-parser and by a rougher reading of our own ([`scan`]), and allowed only if both see the same commands and every
//! word of them is literal. What a command is known to do stands in [`table`], [`writers`] and [`unwrap`]; what a path
//! deserves is told by `Policy::touch`.
//!
//! Nothing is run and nothing is expanded that only a shell could expand: that is called unknown and asked about. No
//! length, depth or error skips the deny rules.

mod commands;
mod executed;
mod found;
mod harm;
mod losses;
mod network;
mod options;
mod parse;
mod program;
mod scan;
mod unwrap;
mod walk;
mod word;
mod writers;

pub(crate) mod table;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::hosts;
use crate::path::{self, File};
use crate::rule::{Matches, Rule};
use crate::verdict::{Doubt, Strictness, Verdict, own};
use crate::{Effect, EffectKind, Policy};

pub(crate) use self::executed::Executed;
use self::executed::Source;
use self::harm::flow::Part;
use self::table::{Operand, Purpose, shown};
use self::unwrap::{Inner, Wrapper};
use self::word::{Kind, Variables, Word};
use crate::files::{By, Touch};

/// The folders a command may run in: several where a `cd` may have failed. Empty: it cannot be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Here {
    folders: Vec<String>,
}

impl Here {
    pub(crate) fn at(folder: String) -> Self {
        Self { folders: vec![folder] }
    }

    fn unknown() -> Self {
        Self { folders: Vec::new() }
    }

    fn or(&self, other: &Here) -> Self {
        if self.folders.is_empty() || other.folders.is_empty() {
            return Self::unknown();
        }
        let mut folders = self.folders.clone();
        folders.extend(other.folders.iter().filter(|folder| !self.folders.contains(folder)).cloned());
        if folders.len() > FOLDERS_MAX { Self::unknown() } else { Self { folders } }
    }
}

/// The analysis of one call.
pub(crate) struct Analysis<'a> {
    policy: &'a Policy,
    workspace: &'a str,
    pub(crate) effects: Vec<Effect>,
    /// The strictest so far.
    verdict: Verdict,
    /// Scripts that may still be looked into.
    fuel: usize,
    /// What the command at work is given on standard input, where that is known.
    stdin: Option<String>,
    /// What `find` hands on to the command at work.
    fed: Option<found::Found>,
    /// Variables of loops, with what they stand for this time.
    bindings: Vec<(String, Word)>,
    /// Turns of loops that may still be taken.
    turns: usize,
    /// Files that an earlier command fetched from another machine.
    fetched: Vec<String>,
    /// Folders into which an earlier command brought what lies on another machine.
    cloned: Vec<String>,
    /// What may happen beside the effects that are listed.
    untold: Option<String>,
    /// Files that are run.
    executed: Executed,
    /// What the command at work reads from standard input.
    source: Source,
    /// The same for all that is inside the compound command or script at work.
    around: Source,
    /// A file that the command at work is redirected from.
    redirected: Option<Source>,
    /// Words that were held against the file system.
    looked: usize,
}

/// How far inside other commands a command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Nesting {
    scripts: usize,
    wrappers: usize,
}

impl Policy {
    /// What running this text in a shell deserves.
    pub(crate) fn command(
        &self,
        text: &str,
        folder: String,
        workspace: &str,
        effects: &mut Vec<Effect>,
        executed: &mut Executed,
    ) -> Verdict {
        let mut analysis = Analysis {
            policy: self,
            workspace,
            effects: std::mem::take(effects),
            verdict: Verdict::allow(own::READS_INSIDE),
            fuel: SCRIPTS_MAX,
            stdin: None,
            fed: None,
            bindings: Vec::new(),
            turns: TURNS_MAX,
            fetched: Vec::new(),
            cloned: Vec::new(),
            untold: None,
            executed: Executed::default(),
            source: Source::Told,
            around: Source::Told,
            redirected: None,
            looked: 0,
        };
        if let Some(reason) = suspicious(text) {
            analysis.ask(reason);
        }
        analysis.script(text, &Here::at(folder), 0);
        *effects = analysis.effects;
        *executed = analysis.executed;
        executed.written_before(effects);
        if let Some(untold) = analysis.untold {
            Effect::add(effects, EffectKind::Unknown, &untold);
        }
        analysis.verdict
    }
}

impl<'a> Analysis<'a> {
    fn note(&mut self, verdict: Verdict) {
        let before = std::mem::replace(&mut self.verdict, Verdict::allow(own::DEFAULT));
        // the first that allows names the rule; what is stricter takes its place
        self.verdict = before.and(verdict);
    }

    fn ask(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        self.untold.get_or_insert_with(|| reason.clone());
        self.note(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
    }

    /// A question about how often or whether commands are run that are judged themselves: a rule about every command
    /// answers it.
    fn ask_unless_bare(&mut self, reason: &str) {
        let verdict = match self.bare() {
            Some(rule) => Verdict::allow(&rule.text),
            None => Verdict::new(Strictness::Ask, own::UNREADABLE, reason),
        };
        self.note(verdict);
    }

    /// The rule that allows every command.
    fn bare(&self) -> Option<&'a Rule> {
        self.policy.allow.iter().find(|rule| match &rule.matches {
            Matches::EveryTool => true,
            Matches::Tool(tool) => tool.as_str() == SHELL,
            Matches::Paths(..) | Matches::Hosts(_) | Matches::Commands(_) => false,
        })
    }

    /// Shell text: the call's, or one found inside.
    fn script(&mut self, text: &str, here: &Here, depth: usize) {
        let Some(fuel) = self.fuel.checked_sub(1).filter(|_| depth <= 2 * DEPTH_MAX) else {
            return self.ask("it is nested too deep");
        };
        self.fuel = fuel;
        if depth > DEPTH_MAX {
            self.ask("it is nested too deep");
            return self.search(text, here, depth);
        }
        match parse::parse(text) {
            Ok(program) => {
                let seen = self.walk(&program, here, depth);
                if seen.is_empty() && self.verdict.is_allowed() {
                    self.ask("there is no command in it");
                }
                if self.verdict.is_allowed() && seen != scan::scan(text) {
                    self.ask("it can be read in two ways");
                }
            }
            Err(reason) => {
                self.ask(reason);
                self.search(text, here, depth);
            }
        }
    }

    /// Looks for what is denied in text that is not parsed. What is found inside quotes and substitutions is searched too.
    fn search(&mut self, text: &str, here: &Here, depth: usize) {
        let mut todo = vec![text.to_owned()];
        let mut budget = SEARCH_MAX;
        let mut judged = BTreeSet::new();
        self.untold.get_or_insert_with(|| "text that is not read as a shell reads it".to_owned());
        while let Some(text) = todo.pop() {
            let commands = scan::scan(&text);
            if text.contains('|') {
                let parts: Vec<Part> = commands.iter().take(PARTS_MAX).map(|seen| self.part(seen, here)).collect();
                if let Some(harm) = harm::flow::pipeline(&parts, false) {
                    self.note(harm.verdict());
                }
            }
            for seen in commands {
                if !judged.insert(seen.clone()) {
                    continue;
                }
                let words = self.words(seen.words.iter().map(String::as_str), here, &mut |script| {
                    if script.len() < budget {
                        budget -= script.len();
                        todo.push(script);
                    }
                });
                for (direction, file) in &seen.redirects {
                    let purpose = if *direction == scan::Direction::In { Purpose::Read } else { Purpose::Write };
                    for word in word::read(file, &self.variables(here)).words {
                        let verdict = self.operand(&Operand { word, purpose }, here);
                        self.note(verdict);
                    }
                }
                let start = words.iter().position(|word| !word.text.contains('=')).unwrap_or_default();
                let nesting = Nesting { scripts: depth.max(DEPTH_MAX), wrappers: 0 };
                let verdict = self.simple(words.get(start..).unwrap_or_default(), here, nesting);
                self.note(verdict);
            }
        }
    }

    /// A command of a pipeline, as far as its words are known.
    fn part(&self, seen: &scan::Seen, here: &Here) -> Part {
        let words = self.words(seen.words.iter().map(String::as_str), here, &mut |_| {});
        let start = words.iter().position(|word| !word.text.contains('=')).unwrap_or_default();
        Part::of(words.get(start..).unwrap_or_default())
    }

    fn variables<'v>(&'v self, here: &'v Here) -> Variables<'v> {
        let here = match here.folders.as_slice() {
            [folder] => Some(folder.as_str()),
            _ => None,
        };
        let surroundings = &self.policy.surroundings;
        Variables {
            home: surroundings.home(),
            longrein_home: surroundings.longrein_home.as_deref(),
            here,
            bindings: &self.bindings,
        }
    }

    /// Raw words, read; scripts inside them are handed over.
    fn words<'w>(&self, raw: impl Iterator<Item = &'w str>, here: &Here, script: &mut dyn FnMut(String)) -> Vec<Word> {
        let variables = self.variables(here);
        let mut words = Vec::new();
        for raw in raw {
            let reading = word::read(raw, &variables);
            words.extend(reading.words);
            reading.scripts.into_iter().for_each(&mut *script);
        }
        words
    }

    /// One simple command, its assignments and redirections aside.
    fn simple(&mut self, words: &[Word], here: &Here, nesting: Nesting) -> Verdict {
        let Some(first) = words.first() else { return Verdict::allow(own::READS_INSIDE) };
        let Some(name) = first.known() else {
            self.executed.cannot_tell(|| "which program it runs is only known once it runs".to_owned());
            return Verdict::new(Strictness::Ask, own::UNREADABLE, "which program it runs is only known once it runs");
        };
        let base = name.rsplit('/').next().unwrap_or_default();
        self.executes(words, name, base, here);
        let mut verdict = self.forbidden(words, name, base);
        if verdict.strictness == Strictness::Deny {
            return verdict;
        }
        if let Some(harm) = harm::harm(base, words, self.stdin.as_deref()) {
            verdict = verdict.and(self.lifted(harm.verdict(), words, name));
        }
        for host in network::reached(base, words, || command_shown(words)) {
            Effect::add(&mut self.effects, EffectKind::Network, &host);
        }
        if self.runs_fetched(words, name, base, here) {
            let reason = "it runs a file that it has just fetched from another machine, unread";
            return Verdict::new(Strictness::Deny, own::FETCHED, reason);
        }
        if let Some(folder) = self.works_in_cloned(base, here) {
            let reason = format!("it runs what was just brought into {} from another machine, unread", shown(folder));
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::FETCHED, reason));
        }
        if nesting.wrappers == UNWRAP_MAX {
            // whatever is around it, what stands at the end is looked at
            let at = words.iter().position(|word| !word.known().is_some_and(unwrap::is_wrapper)).unwrap_or_default();
            let last = words.get(at..).unwrap_or_default();
            let nesting = Nesting { wrappers: UNWRAP_MAX + 1, ..nesting };
            let verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, "it is nested too deep"));
            return if at == 0 { verdict } else { verdict.and(self.simple(last, here, nesting)) };
        }
        if nesting.wrappers > UNWRAP_MAX {
            return verdict.and(self.plain(words, name, base, here, nesting));
        }
        let inner = match base {
            // what only says its version runs nothing
            "bash" | "zsh" | "uv" | "docker" | "podman" if words.len() == 2 && table::operands(words).is_ok() => {
                Inner::None
            }
            _ => unwrap::unwrap(words),
        };
        if let Inner::Command { wrapper: Wrapper::Adds(_), .. } | Inner::Script { wrapper: Wrapper::Adds(_), .. } =
            &inner
        {
            // with other rights, or elsewhere, it does something else
            self.untold.get_or_insert_with(|| command_shown(words));
            // and what is a program for us may be a file for it
            self.may_execute(words, here);
        }
        let plain = match inner {
            Inner::None => self.plain(words, name, base, here, nesting),
            Inner::Command { at, more, wrapper } => {
                let inner = words.get(at..).unwrap_or_default();
                let inner = match more {
                    true => Cow::Owned(self.with_more(words, inner, here)),
                    false => Cow::Borrowed(inner),
                };
                let nesting = Nesting { wrappers: nesting.wrappers + 1, ..nesting };
                let verdict = self.simple(&inner, here, nesting);
                let verdict = self.wrapped(words, base, at, wrapper, verdict);
                // what the wrapper itself is given: a file of variables, a folder to mount
                let (effects, untold) = (std::mem::take(&mut self.effects), self.untold.take());
                let own = self.mentions(words.get(..at).unwrap_or_default(), base, here);
                (self.effects, self.untold) = (effects, untold);
                if own.strictness == Strictness::Deny { verdict.and(own) } else { verdict }
            }
            // a signal is ignored: nothing is run for it
            Inner::Script { text, .. } if base == "trap" && text.is_empty() => Verdict::allow(own::READS_INSIDE),
            Inner::Script { text, at, wrapper } => {
                let verdict = self.inner_script(&text, here, nesting.scripts + 1);
                self.wrapped(words, base, at, wrapper, verdict)
            }
            Inner::Stdin => {
                let reason = format!("{base} runs whatever it is given on standard input");
                self.untold.get_or_insert_with(|| reason.clone());
                let verdict = Verdict::new(Strictness::Ask, own::UNREADABLE, reason);
                if self.stdin.is_none() {
                    self.executes_input(base, here);
                }
                match self.stdin.take() {
                    Some(text) => verdict.and(self.inner_script(&text, here, nesting.scripts + 1)),
                    None => verdict,
                }
            }
            Inner::Unseen(reason) => {
                self.may_execute(words, here);
                self.untold.get_or_insert_with(|| command_shown(words));
                let verdict = Verdict::new(Strictness::UnlessSpelt, own::UNREADABLE, reason);
                let at = words.len().saturating_sub(1);
                let verdict = self.wrapped(words, base, at, Wrapper::Transparent, verdict);
                // a program that is named, whatever it then does
                let literal = words.iter().all(|word| word.kind == Kind::Literal);
                match self.bare().filter(|_| literal && verdict.strictness == Strictness::UnlessSpelt) {
                    Some(rule) => Verdict::allow(&rule.text),
                    None => verdict,
                }
            }
        };
        let plants = base == "git"
            && words.iter().any(|word| matches!(word.text.as_str(), "config" | "submodule" | "init" | "clone"));
        let forgets = base == "git" && losses::loss(words) == Some(losses::Loss::History);
        verdict.and(if LEAVES.contains(&base) || plants || forgets { plain.beyond() } else { plain })
    }

    /// The verdict on shell text that a command runs.
    fn inner_script(&mut self, text: &str, here: &Here, depth: usize) -> Verdict {
        let outer = std::mem::replace(&mut self.verdict, Verdict::allow(own::READS_INSIDE));
        // another shell does not have the variables of this one
        let bindings = std::mem::take(&mut self.bindings);
        // whatever in it reads standard input first
        let source = std::mem::take(&mut self.source);
        let around = if source == Source::Told { self.around.clone() } else { source.clone() };
        let around = std::mem::replace(&mut self.around, around);
        self.script(text, here, depth);
        (self.bindings, self.source, self.around) = (bindings, source, around);
        std::mem::replace(&mut self.verdict, outer)
    }

    /// What is denied in text that may be run later: the value of a variable, of an alias.
    fn kept_for_later(&mut self, text: &str, here: &Here, depth: usize) {
        if !text.contains(char::is_whitespace) || depth >= DEPTH_MAX {
            return;
        }
        let (effects, untold) = (self.effects.clone(), self.untold.take());
        let verdict = self.inner_script(text, here, depth + 1);
        (self.effects, self.untold) = (effects, untold);
        if verdict.strictness == Strictness::Deny {
            self.note(verdict);
        }
    }

    /// What a wrapper makes of the verdict on what it runs. A rule lifts a question if it spells the words out to `at`.
    fn wrapped(&self, words: &[Word], base: &str, at: usize, wrapper: Wrapper, inner: Verdict) -> Verdict {
        let verdict = match wrapper {
            Wrapper::Transparent => inner,
            Wrapper::Adds(adds) => {
                inner.and(Verdict::new(Strictness::UnlessSpelt, own::DEFAULT, format!("{base} {adds}")))
            }
        };
        if !matches!(verdict.strictness, Strictness::Unless | Strictness::UnlessSpelt) || at == usize::MAX {
            return verdict;
        }
        let spells = |rule: &&Rule| match &rule.matches {
            Matches::Commands(pattern) => pattern.spelt_out() > at && pattern.matches(&texts(words)),
            Matches::EveryTool | Matches::Tool(_) | Matches::Paths(..) | Matches::Hosts(_) => false,
        };
        let literal = words.iter().all(|word| word.kind == Kind::Literal);
        match self.policy.allow.iter().find(spells).filter(|_| literal) {
            Some(rule) => Verdict::allow(&rule.text),
            None => verdict,
        }
    }

    /// What deny and ask rules, and the floors about programs, say of these words.
    fn forbidden(&self, words: &[Word], name: &str, base: &str) -> Verdict {
        let deny = |rule: &str, reason: String| Verdict::new(Strictness::Deny, rule, reason);
        let binary = self.policy.surroundings.binary.as_deref();
        if base == OWN_NAME || binary == Some(name) {
            return deny(own::OWN_FILES, "no run may operate Longrein".to_owned());
        }
        if words.iter().any(|word| word.text.contains("LONGREIN_INSIDE")) && base != "echo" && base != "printf" {
            return deny(own::OWN_FILES, "the mark of a run may not be touched".to_owned());
        }
        let mut variants = vec![texts(words)];
        if let Some(first) = variants[0].first_mut() {
            *first = Some(base);
        }
        if base == "git" {
            variants.extend(without_git_options(words));
        }
        let matching = |rule: &&Rule| match &rule.matches {
            Matches::Commands(pattern) => variants.iter().any(|words| pattern.matches(words)),
            Matches::EveryTool | Matches::Tool(_) | Matches::Paths(..) | Matches::Hosts(_) => false,
        };
        if let Some(rule) = self.policy.deny.iter().find(matching) {
            return deny(&rule.text, format!("the rule \"{}\" denies {}", rule.text, command_shown(words)));
        }
        if let Some(rule) = self.policy.ask.iter().find(matching) {
            let reason = format!("the rule \"{}\" has {} asked first", rule.text, command_shown(words));
            return Verdict::new(Strictness::Ask, &rule.text, reason);
        }
        Verdict::allow(own::READS_INSIDE)
    }

    /// A command that runs no other.
    fn plain(&mut self, words: &[Word], name: &str, base: &str, here: &Here, nesting: Nesting) -> Verdict {
        Effect::add(&mut self.effects, EffectKind::Run, &command_shown(words));
        let mut verdict = self.inline(base, words, here, nesting);
        if base == "find" && nesting.wrappers < UNWRAP_MAX {
            let nesting = Nesting { wrappers: UNWRAP_MAX - 1, ..nesting };
            let found = found::Found::of(words);
            for command in found::commands(words, &found) {
                verdict = verdict.and(self.emptied_by(&command, &found, here));
                verdict = verdict.and(self.simple(&command, here, nesting));
            }
        }
        if let Some(cloned) = harm::flow::cloned_to(words) {
            let all = here.folders.iter().map(|folder| path::absolute(folder, &cloned));
            self.cloned.extend(all);
        }
        for folder in here.folders.iter().filter(|_| !harm::flow::fetched_to(words).is_empty()) {
            let files = harm::flow::fetched_to(words);
            self.fetched.extend(files.iter().map(|file| path::absolute(folder, file)));
        }
        if let Some(word) = words.iter().find(|word| word.kind == Kind::Unknown) {
            let reason = match word.text.is_empty() {
                true => format!("a word of {} is only known once it runs", shown(base)),
                false => format!("a word with {} in it is only known once it runs", shown(&word.text)),
            };
            self.untold.get_or_insert_with(|| reason.clone());
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        if let Some(word) = words.iter().find(|word| word.kind == Kind::Likely) {
            let reason = format!("shells may read a word as {} or otherwise; write it plainly", shown(&word.text));
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        if base == "git" && losses::names_an_alias(words) {
            self.untold.get_or_insert_with(|| command_shown(words));
            let reason = "an alias hides which command git runs; write that command";
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        if CHANGES_THE_SHELL.contains(&base) {
            let reason = format!("{base} changes how later commands are read");
            self.untold.get_or_insert_with(|| reason.clone());
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        if !self.trusts(name) {
            let reason = format!("it runs the program {}", shown(name));
            self.untold.get_or_insert_with(|| command_shown(words));
            verdict = verdict.and(Verdict::new(Strictness::Unless, own::DEFAULT, reason));
        }
        let words_by_base = by_base(words, base);
        let expanded = self.expand(&words_by_base, here);
        match table::operands(&expanded) {
            Ok(operands) => {
                for operand in &operands {
                    verdict = verdict.and(self.operand(operand, here));
                }
                if let Some(reason) = self.trap(base, words, here) {
                    verdict = verdict.and(Verdict::new(Strictness::Unless, own::DEFAULT, reason));
                }
                if operands.iter().any(|operand| operand.purpose == Purpose::ReadBelow) && !matches!(base, "rg" | "ag")
                {
                    verdict = verdict.and(self.reads_hidden(&operands, here));
                }
            }
            Err(_) if base == "cd" && words.len() > 1 => {
                for word in words.iter().skip(1).filter(|word| word.text != "--") {
                    let operand = Operand { word: word.clone(), purpose: Purpose::List };
                    verdict = verdict.and(self.operand(&operand, here));
                }
                if words.iter().skip(1).any(|word| word.text.starts_with('-') && word.text != "--") {
                    verdict =
                        verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, "where cd leads cannot be told"));
                }
            }
            Err(reason) => {
                let touched = writers::touched(&expanded);
                // a link would make another file of what is written next, and a copied folder may hold anything
                let told = touched.is_some() && writers::is_complete(base);
                let plain = told && base != "ln" && !words.iter().skip(1).any(|word| is_recursive(&word.text));
                let doubt = match (plain, base == "git" && losses::keeps_files(words)) {
                    (true, _) => Doubt::Edit,
                    (false, true) => Doubt::Kept,
                    (false, false) => Doubt::Unproven,
                };
                verdict = verdict.and(Verdict::unless(doubt, network::why(base, words, told, reason)));
                if base == "git" {
                    self.lost(words, here);
                }
                if !told {
                    self.untold.get_or_insert_with(|| command_shown(words));
                    for host in hosts::named(&texts(words)) {
                        Effect::add(&mut self.effects, EffectKind::Network, &host);
                    }
                }
                for operand in touched.iter().flatten() {
                    verdict = verdict.and(self.removal(operand, &expanded, base, here));
                }
                verdict = verdict.and(self.options_lead(&expanded, here));
                verdict = verdict.and(self.led_elsewhere(words, base, here));
                if !told {
                    let effects = std::mem::take(&mut self.effects);
                    verdict = verdict.and(self.mentions(&expanded, base, here));
                    self.effects = effects;
                }
                if words.iter().any(|word| word.kind == Kind::Glob) {
                    let reason = "which files a pattern stands for is only known once it runs";
                    verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
                }
            }
        }
        self.lifted(verdict, words, name)
    }

    /// What a git command takes away is a removal, whatever the mode and the rules say of it.
    fn lost(&mut self, words: &[Word], here: &Here) {
        let Some(loss) = losses::loss(words) else { return };
        for folder in &here.folders {
            let folder =
                table::git_folder(words).map_or_else(|| folder.clone(), |inner| path::absolute(folder, &inner.text));
            let lost = match loss {
                losses::Loss::History => path::absolute(&folder, ".git"),
                losses::Loss::Work => folder,
            };
            Effect::add(&mut self.effects, EffectKind::Delete, &lost);
        }
    }

    /// Whether the first word names the program of that name, and not one that lies somewhere else.
    fn trusts(&self, name: &str) -> bool {
        match name.rsplit_once('/') {
            None => true,
            Some((folder, _)) => matches!(folder, "/bin" | "/usr/bin"),
        }
    }

    /// A verdict that is asked about only because no rule allows it, held against the rules that allow. What is allowed
    /// without one may have a rule as well: it counts where nothing of ours does.
    fn lifted(&self, verdict: Verdict, words: &[Word], name: &str) -> Verdict {
        if matches!(verdict.strictness, Strictness::Ask | Strictness::Deny) {
            return verdict;
        }
        let mut seen = texts(words);
        if self.trusts(name)
            && let Some(first) = seen.first_mut()
        {
            *first = name.rsplit('/').next();
        }
        // what lies outside, or is obeyed later, has to stand in the rule as it stands in the command
        let spelt = |rule: &&Rule| match &rule.matches {
            Matches::Commands(pattern) => pattern.spelt_out() == words.len() && pattern.matches(&seen),
            Matches::EveryTool | Matches::Tool(_) | Matches::Paths(..) | Matches::Hosts(_) => false,
        };
        let matching = |rule: &&Rule| match &rule.matches {
            Matches::Commands(pattern) => pattern.matches(&seen),
            Matches::EveryTool => true,
            Matches::Tool(tool) => tool.as_str() == SHELL,
            Matches::Paths(..) | Matches::Hosts(_) => false,
        };
        let rule = match verdict.strictness {
            Strictness::Allow | Strictness::Unless => self.policy.allow.iter().find(matching),
            Strictness::UnlessSpelt | Strictness::DenyUnlessSpelt => self.policy.allow.iter().find(spelt),
            Strictness::Ask | Strictness::Deny => None,
        };
        match rule {
            Some(rule) => Verdict::allow(&rule.text),
            None => verdict,
        }
    }

    /// A path in the hands of a command.
    fn operand(&mut self, operand: &Operand, here: &Here) -> Verdict {
        let Operand { word, purpose } = operand;
        let path = match word.kind {
            Kind::Unknown => {
                let reason = "a path is only known once it runs";
                return Verdict::new(Strictness::Ask, own::UNREADABLE, reason);
            }
            // what is written or removed is something in the folder, not the folder; see `emptied`
            Kind::Glob if matches!(purpose, Purpose::Write | Purpose::Delete) => {
                format!("{}/{}", folder_of_glob(&word.text), word.text.rsplit('/').next().unwrap_or_default())
            }
            Kind::Glob => folder_of_glob(&word.text),
            Kind::Literal | Kind::Likely => word.text.clone(),
        };
        if path == "-" && word.kind != Kind::Glob {
            return Verdict::allow(own::READS_INSIDE);
        }
        let mut verdict = Verdict::allow(own::READS_INSIDE);
        // what stands for a folder with more behind it may stand for a link
        let goes_on =
            word.kind == Kind::Glob && word.text.find(['*', '?', '[']).is_some_and(|at| word.text[at..].contains('/'));
        let last = word.text.rsplit('/').next().unwrap_or_default();
        if word.kind == Kind::Glob
            && (*purpose != Purpose::List || goes_on)
            && !self.stands_for_itself(&word.text, here)
        {
            let reason = format!("which files {} stands for is only known once it runs", shown(&word.text));
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
            if path::SECRET_EXAMPLES.iter().any(|secret| last.starts_with('.') && path::glob_matches(last, secret)) {
                let reason = format!("{} may stand for a file that holds secrets", shown(&word.text));
                verdict = verdict.and(Verdict::new(Strictness::Ask, own::SECRET, reason));
            }
        }
        if here.folders.is_empty() && !path.starts_with('/') {
            if matches!(purpose, Purpose::Read | Purpose::ReadBelow) && path::is_secret(&path) {
                let reason = format!("{} usually holds secrets", shown(&path));
                return Verdict::new(Strictness::Deny, own::SECRET, reason);
            }
            let reason = format!("which folder {} is relative to cannot be told", shown(&path));
            return verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        let root = ["/".to_owned()];
        let folders = if here.folders.is_empty() { root.as_slice() } else { here.folders.as_slice() };
        for folder in folders {
            let touch = Touch {
                by: By::Command,
                purpose: *purpose,
                path: &path,
                resolved: None,
                folder,
                workspace: self.workspace,
            };
            verdict = verdict.and(self.policy.touch(&touch, &mut self.effects));
        }
        verdict
    }

    /// Like `operand`, but knows what is removed with everything in it.
    fn removal(&mut self, operand: &Operand, words: &[Word], base: &str, here: &Here) -> Verdict {
        let verdict = self.operand(operand, here);
        let recursive = matches!(base, "find" | "mv" | "rsync" | "trash" | "rimraf" | "srm")
            || words.iter().skip(1).any(|word| is_recursive(&word.text));
        if operand.purpose == Purpose::Write {
            let all = matches!(base, "chmod" | "chown" | "chgrp") && recursive;
            return if all { verdict.and(self.emptied(operand, here)) } else { verdict };
        }
        if operand.purpose != Purpose::Delete || !(recursive || base == "shred") {
            // a folder is not removed without being asked to remove what is in it
            let only_a_folder = verdict.rule == own::DESTRUCTION;
            return match only_a_folder {
                true => Verdict::new(Strictness::Unless, own::DEFAULT, verdict.reason),
                false => verdict,
            };
        }
        let outside =
            |folder: &String| path::within(self.workspace, &path::absolute(folder, &operand.word.text)).is_none();
        if base == "shred" && here.folders.iter().any(outside) {
            let reason = format!("it overwrites {} outside the workspace", shown(&operand.word.text));
            return Verdict::new(Strictness::Deny, own::DESTRUCTION, reason);
        }
        let inside =
            |folder: &String| path::within(self.workspace, &path::absolute(folder, &operand.word.text)).is_some();
        if base == "find" && found::Found::of(words).is_narrow && here.folders.iter().all(inside) {
            let reason = format!("it removes files below {} and no rule allows it", shown(&operand.word.text));
            return Verdict::new(Strictness::Unless, own::DEFAULT, reason);
        }
        verdict.and(self.emptied(operand, here))
    }

    /// Whether everything in a folder that must not be emptied is changed or removed: the folder, or `FOLDER/*`.
    fn emptied(&self, operand: &Operand, here: &Here) -> Verdict {
        let word = &operand.word;
        let path = match word.kind {
            Kind::Literal | Kind::Likely => word.text.clone(),
            Kind::Glob if matches!(word.text.rsplit('/').next(), Some("*" | ".*" | "[!.]*" | ".[!.]*")) => {
                folder_of_glob(&word.text)
            }
            Kind::Glob => {
                let last = word.text.rsplit('/').next().unwrap_or_default();
                let guarded = [".git", ".longrein", ".ssh", ".gnupg"].iter().any(|name| path::glob_matches(last, name));
                let at_root = folder_of_glob(&word.text) == "/";
                if !(guarded || at_root) {
                    return Verdict::allow(own::DEFAULT);
                }
                let reason = format!("{} may stand for what must not be removed", shown(&word.text));
                return Verdict::new(Strictness::Deny, own::DESTRUCTION, reason);
            }
            Kind::Unknown => return Verdict::allow(own::DEFAULT),
        };
        let is_root = |folder: &String| {
            let path = path::absolute(folder, &path);
            let inside = path::within(self.workspace, &path).is_some_and(|inside| !inside.is_empty());
            self.policy.is_root(&path, self.workspace) || (!inside && path::is_of_the_system(&path))
        };
        if here.folders.iter().any(is_root) {
            let reason = format!("it would remove or change all of {}", shown(&word.text));
            return Verdict::new(Strictness::Deny, own::DESTRUCTION, reason);
        }
        Verdict::allow(own::DEFAULT)
    }

    /// A recursive reader that does not leave hidden files out, on a folder that usually has some with secrets.
    fn reads_hidden(&self, operands: &[Operand], here: &Here) -> Verdict {
        let below = operands.iter().filter(|operand| operand.purpose == Purpose::ReadBelow);
        let is_workspace = |operand: &Operand| {
            here.folders.iter().any(|folder| path::absolute(folder, &operand.word.text) == self.workspace)
        };
        match below.into_iter().any(is_workspace) {
            true => Verdict::new(
                Strictness::Unless,
                own::SECRET,
                "it reads every file of the workspace, hidden ones too; name a folder, or use search_files or rg",
            ),
            false => Verdict::allow(own::READS_INSIDE),
        }
    }

    /// Paths in the words of a command of which it is not known what it does with them.
    fn mentions(&mut self, words: &[Word], base: &str, here: &Here) -> Verdict {
        let mut verdict = Verdict::allow(own::DEFAULT);
        if NAMES_ONLY.contains(&base) {
            return verdict;
        }
        let skipped = usize::from(matches!(base, "grep" | "egrep" | "fgrep" | "rg"));
        let mut operands = 0;
        let mut looked_at = BTreeSet::new();
        let mut glued = BTreeSet::new();
        for word in words.iter().skip(1) {
            let is_operand = !word.text.starts_with('-');
            operands += usize::from(is_operand);
            if word.known().is_none() || (is_operand && operands <= skipped) {
                continue;
            }
            for path in paths_in(&word.text) {
                if looked_at.len() >= MENTIONS_MAX {
                    // nobody reads so many: it is asked about, and only the name of a secret denies it
                    if path::is_secret(path) {
                        let reason = format!("{} usually holds secrets", shown(path));
                        verdict = verdict.and(Verdict::new(Strictness::Deny, own::SECRET, reason));
                    }
                    continue;
                }
                if !looked_at.insert(path) {
                    continue;
                }
                let found = self.read_verdict(path, word.kind, here);
                let outside = found.strictness == Strictness::UnlessSpelt && looks_like_path(path);
                let rule = found.strictness == Strictness::Ask;
                if found.strictness == Strictness::Deny || outside || rule {
                    verdict = verdict.and(found);
                }
                if !writers::leaves_out(&word.text) {
                    verdict = verdict.and(self.may_write(path, here));
                }
            }
            for path in writers::in_word(&word.text) {
                if glued.len() >= GLUED_MAX {
                    verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, MANY_WORDS));
                    break;
                }
                if !glued.insert(path) {
                    continue;
                }
                // most values of options are no paths: only what is forbidden counts
                let found = self.read_verdict(path, word.kind, here);
                let by_rule = found.strictness == Strictness::Ask && !here.folders.is_empty();
                if (found.strictness == Strictness::Deny || by_rule) && !self.is_by_chance(path, &found, here) {
                    verdict = verdict.and(found);
                }
                // `-Isrc/lib` does not mean `/lib`
                let is_cut = path.starts_with(['/', '~']) && path::within(self.workspace, path).is_none();
                if path.contains(['/', '.']) && !is_cut {
                    verdict = verdict.and(self.may_write(path, here));
                }
            }
        }
        if looked_at.len() >= MENTIONS_MAX {
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, MANY_WORDS));
        }
        verdict
    }

    /// What reading this path deserves.
    fn read_verdict(&mut self, path: &str, kind: Kind, here: &Here) -> Verdict {
        let word = Word { text: path.to_owned(), kind };
        self.operand(&Operand { word, purpose: Purpose::Read }, here)
    }

    /// `-Wshadow` names no secret: a mere word in the workspace does not, glued to an option.
    fn is_by_chance(&self, value: &str, found: &Verdict, here: &Here) -> bool {
        let inside = |folder: &String| path::within(self.workspace, folder).is_some();
        found.rule == own::SECRET
            && value.bytes().all(|byte| byte.is_ascii_alphabetic())
            && !here.folders.is_empty()
            && here.folders.iter().all(inside)
    }

    /// Where the options of a command that writes may lead: what must not be written unasked, and outside.
    fn options_lead(&mut self, words: &[Word], here: &Here) -> Verdict {
        let mut verdict = Verdict::allow(own::DEFAULT);
        for (at, operand) in writers::in_options(words).iter().enumerate() {
            if at >= GLUED_MAX {
                verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, MANY_WORDS));
                break;
            }
            let before = std::mem::take(&mut self.effects);
            let found = self.operand(operand, here);
            let effects = std::mem::replace(&mut self.effects, before);
            let counts = match found.strictness {
                Strictness::Deny | Strictness::DenyUnlessSpelt | Strictness::UnlessSpelt => true,
                Strictness::Ask => !here.folders.is_empty(),
                Strictness::Unless | Strictness::Allow => false,
            };
            if counts && !self.is_by_chance(&operand.word.text, &found, here) {
                effects.iter().for_each(|Effect { kind, what }| Effect::add(&mut self.effects, *kind, what));
                verdict = verdict.and(found);
            }
        }
        verdict
    }

    /// What a program in the words, or in what they are given, says it does: only what is denied.
    fn inline(&mut self, base: &str, words: &[Word], here: &Here, nesting: Nesting) -> Verdict {
        let mut verdict = Verdict::allow(own::READS_INSIDE);
        if self.stdin.is_none() && harm::inline::reads_program(base, words) {
            self.executes_input(base, here);
        }
        let given = self.stdin.as_ref().filter(|_| harm::inline::reads_program(base, words));
        let Some(text) = harm::inline::of_words(base, words).or_else(|| given.cloned()) else { return verdict };
        let program = harm::inline::look(&text);
        let effects = std::mem::take(&mut self.effects);
        let untold = self.untold.take();
        let mut denied = Vec::new();
        denied.extend(program.harm.map(harm::Harm::verdict));
        for text in &program.texts {
            let text = match text.strip_prefix('~') {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                    format!("{}{rest}", self.policy.surroundings.home())
                }
                Some(_) | None => text.clone(),
            };
            let is_path = !text.contains(char::is_whitespace) && text.len() <= PATH_MAX && !is_only_an_ending(&text);
            if is_path {
                let kind = if text.contains(['*', '?']) { Kind::Glob } else { Kind::Literal };
                let operand = |purpose| Operand { word: Word { text: text.clone(), kind }, purpose };
                denied.push(self.operand(&operand(Purpose::Read), here));
                if program.removes {
                    denied.push(self.emptied(&operand(Purpose::Delete), here));
                    denied.push(self.operand(&operand(Purpose::Write), here));
                }
                if program.writes {
                    denied.push(self.operand(&operand(Purpose::Write), here));
                }
            }
            if program.runs && text.len() > 1 {
                denied.push(self.inner_script(&text, here, nesting.scripts + 1));
            }
        }
        if program.runs && program.texts.len() > 1 {
            // `["rm", "-rf", "/"]`
            denied.push(self.inner_script(&program.texts.join(" "), here, nesting.scripts + 1));
        }
        (self.effects, self.untold) = (effects, untold);
        let hard = |found: &Verdict| matches!(found.strictness, Strictness::Deny | Strictness::DenyUnlessSpelt);
        for found in denied.into_iter().filter(hard) {
            verdict = verdict.and(found);
        }
        verdict
    }

    /// Whether a command runs a file that an earlier one has brought from another machine.
    fn runs_fetched(&self, words: &[Word], name: &str, base: &str, here: &Here) -> bool {
        if self.fetched.is_empty() {
            return false;
        }
        let is_fetched =
            |file: &str| here.folders.iter().any(|folder| self.fetched.contains(&path::absolute(folder, file)));
        let reads = unwrap::is_shell(base) || harm::inline::is_interpreter(base) || matches!(base, "source" | ".");
        (name.contains('/') && is_fetched(name)) || (reads && words.iter().skip(1).any(|word| is_fetched(&word.text)))
    }

    /// What `xargs` runs: the words it is given, if they are known.
    fn with_more(&mut self, xargs: &[Word], inner: &[Word], here: &Here) -> Vec<Word> {
        let replaces = xargs.iter().any(|word| word.text.starts_with("-I") || word.text.starts_with("-i"));
        let null = xargs.iter().any(|word| matches!(word.text.as_str(), "-0" | "--null" | "-0r" | "-r0"));
        if let Some(text) = self.stdin.take().filter(|_| !replaces) {
            let mut words = unwrap::with_more(inner);
            words.extend(text.split_whitespace().map(|text| Word { text: text.to_owned(), kind: Kind::Likely }));
            return words;
        }
        if let Some(found) = self.fed.take() {
            let verdict = self.emptied_by(inner, &found, here);
            self.note(verdict);
            let files = found.example.filter(|_| null && found.ends_names && !replaces && found::takes_files(inner));
            if let Some(name) = files {
                // several are given at once
                let mut words = inner.to_vec();
                words.extend([name.clone(), name]);
                return words;
            }
        }
        unwrap::with_more(inner)
    }

    /// What a command that is given everything `find` finds deserves, if it removes it.
    fn emptied_by(&mut self, command: &[Word], found: &found::Found, here: &Here) -> Verdict {
        let base = command.first().and_then(Word::known).unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let removes = matches!(base, "rm" | "unlink" | "shred" | "rmdir" | "mv" | "truncate" | "trash" | "srm");
        let mut verdict = Verdict::allow(own::READS_INSIDE);
        let is_outside = |start: &Word| {
            here.folders.iter().any(|folder| {
                let start = path::absolute(folder, &start.text);
                path::within(self.workspace, &start).is_none() && (start == "/" || path::is_of_the_system(&start))
            })
        };
        for start in found.starts.iter().filter(|start| removes && (!found.is_narrow || is_outside(start))) {
            let operand = Operand { word: start.clone(), purpose: Purpose::Delete };
            verdict = verdict.and(self.emptied(&operand, here));
        }
        verdict
    }

    /// Why a program that only reads might still run something that lies in the workspace.
    fn trap(&self, base: &str, words: &[Word], here: &Here) -> Option<String> {
        let world = self.policy.surroundings.world.as_ref();
        here.folders.iter().find_map(|folder| match base {
            "git" => {
                let folder = table::git_folder(words)
                    .map_or_else(|| folder.clone(), |inner| path::absolute(folder, &inner.text));
                crate::git::trap(world, &folder).or_else(|| self.policy.springs_here(self.workspace))
            }
            // rustup obeys a toolchain that lies beside the sources
            "cargo" | "rustc" | "rustfmt" | "rustup" => {
                let parents =
                    std::iter::successors(Some(folder.as_str()), |at| at.rfind('/').and_then(|end| at.get(..end)));
                let named =
                    parents.flat_map(|at| ["rust-toolchain", "rust-toolchain.toml"].map(|name| format!("{at}/{name}")));
                named
                    .filter(|file| match world.file(file) {
                        File::Missing => false,
                        File::Unreadable => true,
                        File::Content(bytes) => String::from_utf8_lossy(&bytes).contains("path"),
                    })
                    .map(|file| format!("{} may name a toolchain of its own", shown(&file)))
                    .next()
            }
            _ => None,
        })
    }

    /// Whether a pattern stands for nothing but itself: its folder has no such names, or cannot be listed by anybody. It is
    /// judged by its letters then.
    fn stands_for_itself(&self, pattern: &str, here: &Here) -> bool {
        let [folder] = here.folders.as_slice() else { return false };
        let (before, last) = pattern.rsplit_once('/').unwrap_or((".", pattern));
        if before.contains(['*', '?', '[', '\\']) || path::may_be_secret(last) || last.contains('[') {
            return false;
        }
        let listed = path::absolute(folder, before);
        let world = self.policy.surroundings.world.as_ref();
        path::within(self.workspace, &listed).is_some()
            && match world.names(&listed) {
                Some(names) => !names.iter().any(|name| path::glob_matches(last, name)),
                None => !world.is_crowded(&listed),
            }
    }

    /// What rules about writing say of a path that may or may not be written.
    fn may_write(&self, path: &str, here: &Here) -> Verdict {
        let mut verdict = Verdict::allow(own::DEFAULT);
        for folder in &here.folders {
            let touch = Touch {
                by: By::Command,
                purpose: Purpose::Write,
                path,
                resolved: None,
                folder,
                workspace: self.workspace,
            };
            let found = self.policy.touch(&touch, &mut Vec::new());
            if matches!(found.strictness, Strictness::Deny | Strictness::Ask) {
                let reason = format!("it may write {}: {}", shown(path), found.reason);
                verdict = verdict.and(Verdict::new(Strictness::UnlessSpelt, &found.rule, reason));
            }
        }
        verdict
    }

    /// Patterns of file names, replaced by the names, where all of them can be told.
    fn expand(&self, words: &[Word], here: &Here) -> Vec<Word> {
        let [folder] = here.folders.as_slice() else { return words.to_vec() };
        let mut expanded = Vec::new();
        for word in words {
            match (word.kind, self.names(&word.text, folder)) {
                (Kind::Glob, Some(names)) => {
                    expanded.extend(names.into_iter().map(|text| Word { text, kind: Kind::Literal }));
                }
                (Kind::Literal | Kind::Likely | Kind::Glob | Kind::Unknown, _) => expanded.push(word.clone()),
            }
        }
        expanded
    }

    /// The names a pattern stands for, if only its last part is one and the folder can be listed.
    fn names(&self, pattern: &str, folder: &str) -> Option<Vec<String>> {
        let (before, last) = match pattern.rsplit_once('/') {
            Some((before, last)) => (format!("{before}/"), last),
            None => (String::new(), pattern),
        };
        if !last.contains(['*', '?', '[']) || before.contains(['*', '?', '[', '\\']) {
            return None;
        }
        let listed = path::absolute(folder, &before);
        path::within(self.workspace, &listed)?;
        let names = self.policy.surroundings.world.names(&listed)?;
        let names: Vec<String> = names
            .into_iter()
            .filter(|name| path::glob_matches(last, name))
            .map(|name| format!("{before}{name}"))
            .collect();
        // without a match the pattern stays as it is
        (!names.is_empty() && names.len() <= NAMES_MAX).then_some(names)
    }
}

fn by_base(words: &[Word], base: &str) -> Vec<Word> {
    let mut words = words.to_vec();
    if let Some(first) = words.first_mut() {
        base.clone_into(&mut first.text);
    }
    words
}

fn texts(words: &[Word]) -> Vec<Option<&str>> {
    words.iter().map(Word::known).collect()
}

/// `git -C x push` as `git push`, for rules that forbid.
fn without_git_options(words: &[Word]) -> Option<Vec<Option<&str>>> {
    let mut at = 1;
    while let Some(text) = words.get(at).and_then(Word::known).filter(|text| text.starts_with('-')) {
        at +=
            1 + usize::from(matches!(text, "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--exec-path"));
    }
    let rest = words.get(at..)?;
    (at > 1).then(|| std::iter::once(Some("git")).chain(texts(rest)).collect())
}

fn is_recursive(option: &str) -> bool {
    let letters = option.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    letters.is_some_and(|letters| letters.contains(['r', 'R'])) || option == "--recursive"
}

/// The folder in which the first pattern of a path is looked for.
fn folder_of_glob(pattern: &str) -> String {
    let first = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    let before = pattern.get(..first).unwrap_or_default().replace('\\', "");
    match before.rfind('/') {
        Some(0) => "/".to_owned(),
        Some(end) => before.get(..end).unwrap_or_default().to_owned(),
        None => ".".to_owned(),
    }
}

/// What in a word may be a path: all of it, and what follows `=`, `@`, `:` or `file://`.
fn paths_in(word: &str) -> impl Iterator<Item = &str> {
    let after = |sign: char| word.split_once(sign).map(|(_, rest)| rest);
    let file = word.strip_prefix("file://");
    let nested = after('=').and_then(|rest| rest.strip_prefix('@'));
    let all = (!word.starts_with('-')).then_some(word);
    let before = word.split_once(':').map(|(path, _)| path).filter(|path| path.starts_with(['/', '.', '~']));
    [all, after('='), after('@'), after(':'), before, file, nested]
        .into_iter()
        .flatten()
        .filter(|path| !path.is_empty())
}

fn looks_like_path(word: &str) -> bool {
    (word.starts_with('/') && !word.starts_with("//"))
        || word.split('/').any(|part| part == "..")
        || word.starts_with("~/")
}

/// Letters that show as something else, or as nothing, or that shells and terminals obey.
pub(crate) fn suspicious(text: &str) -> Option<String> {
    let odd = text.chars().find(|letter| match letter {
        '\n' | '\t' => false,
        letter if letter.is_control() => true,
        letter if letter.is_ascii() => false,
        letter if letter.is_whitespace() => true,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{feff}' | '\u{ad}' | '\u{180e}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        _ => false,
    })?;
    Some(format!("it contains the character {}, which does not show as what it is", odd.escape_unicode()))
}

/// `.pem` alone is what names are compared with.
fn is_only_an_ending(text: &str) -> bool {
    text.starts_with('.')
        && text != ".env"
        && !text.contains('/')
        && text.bytes().filter(|byte| *byte == b'.').count() == 1
}

fn command_shown(words: &[Word]) -> String {
    let text = words.iter().map(|word| if word.kind == Kind::Unknown { "…" } else { word.text.as_str() });
    shown(&text.take(SHOWN_WORDS_MAX).collect::<Vec<_>>().join(" "))
}

const OWN_NAME: &str = "longrein";
const SHELL: &str = "shell";
/// A `cd` that may fail doubles the folders; more than this are not told apart.
const FOLDERS_MAX: usize = 8;
/// Scripts inside scripts.
const DEPTH_MAX: usize = 8;
/// Wrappers around wrappers.
const UNWRAP_MAX: usize = 8;
/// Scripts of one call that are looked into.
const SCRIPTS_MAX: usize = 256;
/// Bytes of scripts within unparsed text that are searched.
const SEARCH_MAX: usize = 4 * 1024 * 1024;
/// A pattern that stands for more names than this is not expanded.
const NAMES_MAX: usize = 1024;
/// Different words of one command that are looked at as paths.
const MENTIONS_MAX: usize = 4096;
/// Different parts of the option words of one command that are looked at as paths.
const GLUED_MAX: usize = 4 * MENTIONS_MAX;
const MANY_WORDS: &str = "it has too many words to look at";
const SHOWN_WORDS_MAX: usize = 12;
/// Turns of all loops of a call that are looked at one by one.
const TURNS_MAX: usize = 128;
/// Parts of unparsed text that are looked at together.
const PARTS_MAX: usize = 64;
/// Texts of a program that are longer are no paths.
const PATH_MAX: usize = 512;

/// Built-in commands after which words mean something else.
const CHANGES_THE_SHELL: [&str; 21] = [
    "alias",
    "unalias",
    "hash",
    "enable",
    "shopt",
    "set",
    "source",
    ".",
    "export",
    "declare",
    "typeset",
    "local",
    "readonly",
    "unset",
    "umask",
    "ulimit",
    "read",
    "mapfile",
    "readarray",
    "pushd",
    "popd",
];
/// Commands that have something done with other rights, elsewhere or later: where no sandbox of ours is.
const LEAVES: [&str; 24] = [
    "sudo",
    "doas",
    "pkexec",
    "su",
    "runuser",
    "setpriv",
    "chroot",
    "nsenter",
    "unshare",
    "newgrp",
    "sg",
    "ssh",
    "docker",
    "podman",
    "nerdctl",
    "kubectl",
    "machinectl",
    "systemctl",
    "systemd-run",
    "launchctl",
    "dbus-send",
    "at",
    "batch",
    "crontab",
];
/// Commands that do not read the files they are given.
const NAMES_ONLY: [&str; 4] = ["echo", "printf", "test", "["];

#[cfg(test)]
mod tests;
