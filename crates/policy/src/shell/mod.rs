//! Shell commands: parsed, not matched as strings. Every simple command counts, wherever it stands.
//!
//! Read [`Policy::command`] first: text in, a verdict and what it would touch out. The text is parsed twice, by
//! brush-parser and by a rougher reading of our own ([`scan`]), and allowed only if both see the same commands and every
//! word of them is literal. What a command is known to do stands in [`table`], [`writers`] and [`unwrap`]; what a path
//! deserves is told by [`paths`] and `Policy::touch`, what rules say by [`rules`], and which files are run by [`executed`]. What
//! the text itself puts into variables and functions is followed by [`scope`], to deny by; to allow, only a variable counts that
//! is set once, in plain sight.
//!
//! Nothing is run and nothing is expanded that only a shell could expand: that is called unknown and asked about. No
//! length, depth or error skips the deny rules.

mod carried;
mod commands;
mod document;
mod executed;
mod found;
mod harm;
mod judging;
mod losses;
mod network;
mod options;
mod parameter;
mod parse;
mod paths;
mod program;
mod rules;
mod scan;
mod scope;
mod scripts;
mod settings;
mod unwrap;
mod walk;
mod word;
mod writers;

pub(crate) mod table;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::hosts;
use crate::path::{self, File};
use crate::verdict::{Doubt, Strictness, Verdict, own};
use crate::{Effect, EffectKind, Policy};

pub(crate) use self::executed::Executed;
use self::executed::Source;
pub use self::executed::{RunAs, RunBy};
use self::harm::flow::Part;
use self::paths::is_recursive;
use self::rules::texts;
use self::scope::{Defined, Scope};
use self::scripts::Scripts;
use self::table::{Operand, Purpose, shown};
use self::unwrap::{Inner, Wrapper};
use self::word::{Kind, Unset, Variables, Word};

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

    /// Where something runs that is sent to this folder from here.
    fn moved(&self, folder: &Word) -> Self {
        match folder.known() {
            Some(folder) => Self { folders: self.folders.iter().map(|from| path::absolute(from, folder)).collect() },
            None => Self::unknown(),
        }
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
    /// Files that an earlier command wrote, with what it wrote.
    written: Vec<(String, String)>,
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
    /// The text of the call, where no other text is run in the same shell.
    text: String,
    /// Variables that hold a number, whatever it is.
    numbers: Vec<String>,
    /// How deep in what may not be run, or is of a shell of its own.
    aside: usize,
    /// How deep in pipelines: what a command prints there others are given.
    piped: usize,
    /// The command at work hands on what it is given, to a person or into a file.
    copies: bool,
    /// Texts that stand line by line below the command that is given them, each with a word in its place.
    documents: Vec<String>,
    /// Words that were held against the file system.
    looked: usize,
    /// What the text so far has made known of the shell.
    scope: Scope,
    /// Functions at work around the command at work.
    callers: usize,
    /// Commands that may still be judged within functions that are called.
    called_left: usize,
    /// Where the function or text has left the shell that the command at work has run.
    left: Option<Here>,
    /// Scripts that are run, where those are looked into. None: what is run is told and not read.
    scripts: Option<Scripts>,
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
        let mut analysis = Analysis::new(self, workspace);
        analysis.effects = std::mem::take(effects);
        if let Some(reason) = suspicious(text) {
            analysis.ask(reason);
        }
        let document::Without { text, bodies } = document::without_documents(text);
        analysis.documents = bodies;
        let takes_in = |seen: &scan::Seen| {
            seen.words.iter().any(|word| matches!(word.as_str(), "eval" | "source" | "." | "trap" | "alias"))
        };
        if !scan::scan(&text).iter().any(takes_in) {
            analysis.text = text.clone().into_owned();
            analysis.numbers = settings::numbers(&text);
        }
        analysis.script(&text, &Here::at(folder), 0);
        *effects = analysis.effects;
        *executed = analysis.executed;
        executed.written_before(effects);
        if let Some(untold) = analysis.untold {
            Effect::add(effects, EffectKind::Unknown, &untold);
        }
        analysis.verdict
    }
}

/// What a text has run, and the scripts that it runs in turn.
pub(crate) fn run_by(policy: &Policy, text: &str, folder: &str, workspace: &str) -> RunBy {
    let mut analysis = Analysis::new(policy, workspace);
    analysis.with_scripts(text, &Here::at(folder.to_owned()));
    let Executed { files, patterns, .. } = analysis.executed;
    RunBy { files, patterns }
}

impl<'a> Analysis<'a> {
    fn new(policy: &'a Policy, workspace: &'a str) -> Self {
        Self {
            policy,
            workspace,
            effects: Vec::new(),
            verdict: Verdict::allow(own::READS_INSIDE),
            fuel: SCRIPTS_MAX,
            stdin: None,
            fed: None,
            bindings: Vec::new(),
            turns: TURNS_MAX,
            fetched: Vec::new(),
            written: Vec::new(),
            cloned: Vec::new(),
            untold: None,
            executed: Executed::default(),
            source: Source::Told,
            around: Source::Told,
            redirected: None,
            text: String::new(),
            numbers: Vec::new(),
            aside: 0,
            piped: 0,
            copies: false,
            documents: Vec::new(),
            looked: 0,
            scope: Scope::default(),
            callers: 0,
            called_left: CALLED_MAX,
            left: None,
            scripts: None,
        }
    }

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
                // who would be given these is not known
                for document in std::mem::take(&mut self.documents) {
                    self.search(&document, here, depth);
                }
            }
        }
    }

    /// Looks for what is denied in text that is not parsed. What is found inside quotes and substitutions is searched too.
    fn search(&mut self, text: &str, here: &Here, depth: usize) {
        let mut todo = vec![text.to_owned()];
        let mut budget = SEARCH_MAX;
        let mut judged = BTreeSet::new();
        let mut here = here.clone();
        self.untold.get_or_insert_with(|| "text that is not read as a shell reads it".to_owned());
        while let Some(text) = todo.pop() {
            let commands = scan::scan(&text);
            if text.contains('|') {
                let parts: Vec<Part> = commands.iter().take(PARTS_MAX).map(|seen| self.part(seen, &here)).collect();
                if let Some(harm) = harm::flow::pipeline(&parts, false) {
                    self.note(harm.verdict());
                }
            }
            for seen in commands {
                if !judged.insert(seen.clone()) {
                    continue;
                }
                let words = self.words(seen.words.iter().map(String::as_str), &here, &mut |script| {
                    if script.len() < budget {
                        budget -= script.len();
                        todo.push(script);
                    }
                });
                for (direction, file) in &seen.redirects {
                    let purpose = if *direction == scan::Direction::In { Purpose::Read } else { Purpose::Write };
                    for word in word::read(file, &self.variables(&here)).words {
                        let verdict = self.operand(&Operand { word, purpose }, &here);
                        self.note(verdict);
                    }
                }
                let start = words.iter().position(|word| !word.text.contains('=')).unwrap_or(words.len());
                let nesting = Nesting { scripts: depth.max(DEPTH_MAX), wrappers: 0 };
                let (set, command) = words.split_at(start);
                let verdict = self.simple(command, &here, nesting);
                self.note(verdict);
                if command.is_empty() {
                    set.iter().for_each(|word| self.set(word));
                }
                self.changes_variables(command, None);
                // it may have been taken or not
                let after = here.or(&self.after(command, &here).success);
                if !after.folders.is_empty() {
                    here = after;
                }
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
            numbers: &self.numbers,
            scope: &self.scope,
            unset: Unset::Unknown,
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
        // a wrapper would run a program of that name
        let function = self.scope.function(name).filter(|function| function.defined == Defined::Plainly);
        if nesting.wrappers == 0 && first.kind == Kind::Literal && function.is_some() {
            return self.plainly_called(words, name, here, nesting);
        }
        self.executes(words, name, base, here, nesting);
        let mut verdict = self.forbidden(words, name, base);
        if verdict.strictness == Strictness::Deny {
            return verdict;
        }
        if let Some(word) = words.iter().find(|word| word.kind == Kind::Guess) {
            let reason = format!("a word that may be {} is only known once it runs", shown(&word.text));
            self.untold.get_or_insert_with(|| reason.clone());
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        verdict = verdict.and(self.stands_for(words, name, here, nesting));
        if let Some(harm) = harm::harm(base, words, self.stdin.as_deref()) {
            verdict = verdict.and(self.lifted(harm.verdict(), words, name));
        }
        verdict = verdict.and(self.carries(base, words, here, nesting));
        let reached = if table::says_version(words) {
            Vec::new()
        } else {
            network::reached(base, words, || command_shown(words))
        };
        for host in reached {
            Effect::add(&mut self.effects, EffectKind::Network, &host);
        }
        if self.runs_fetched(words, name, base, here) {
            let reason = "it runs a file that it has just fetched from another machine, unread";
            return Verdict::new(Strictness::Deny, own::FETCHED, reason);
        }
        for text in self.written_and_run(words, name, base, here) {
            let denied = self.inner_script(&text, here, nesting.scripts + 1);
            verdict =
                verdict.and(if denied.strictness == Strictness::Deny { denied } else { Verdict::allow(own::DEFAULT) });
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
        // text that is only known once it runs, in what is unwrapped or beside it
        let around = match &inner {
            Inner::Command { at, .. } => words.get(..*at).unwrap_or_default(),
            Inner::Script { .. } => words,
            Inner::None | Inner::Stdin | Inner::Unseen(_) => &[],
        };
        if around.iter().any(Word::is_unknown) {
            let reason = format!("what {base} runs is only known once it runs");
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        let plain = match inner {
            Inner::None => self.plain(words, name, base, here, nesting),
            Inner::Command { at, more, wrapper } => {
                let inner = words.get(at..).unwrap_or_default();
                if more {
                    self.runs_what_is_fed(inner, here, Nesting { wrappers: nesting.wrappers + 1, ..nesting });
                }
                let inner = match more {
                    true => Cow::Owned(self.with_more(words, inner, here)),
                    false => Cow::Borrowed(inner),
                };
                let nesting = Nesting { wrappers: nesting.wrappers + 1, ..nesting };
                let outer = self.scope.clone();
                let folder =
                    unwrap::folder_of_env(words.get(..at).unwrap_or_default()).map(|folder| here.moved(&folder));
                let here = folder.as_ref().unwrap_or(here);
                if base == "env" {
                    words.iter().take(at).skip(1).for_each(|word| self.set(word));
                }
                let verdict = self.simple(&inner, here, nesting);
                self.scope = outer;
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
                let outer = self.scope.clone();
                if unwrap::is_shell(base) {
                    let given = words.get(at.saturating_add(1)..).unwrap_or_default();
                    let zero = given.first().and_then(Word::known);
                    self.scope = outer.started(zero, given.get(1..).unwrap_or_default());
                }
                let verdict = match base {
                    "eval" => self.evaluated(&text, here, nesting.scripts + 1),
                    _ => self.inner_script(&text, here, nesting.scripts + 1),
                };
                if base != "eval" {
                    self.scope = outer;
                }
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
                let strictness = match words.iter().any(Word::is_open) {
                    true => Strictness::Ask,
                    false => Strictness::UnlessSpelt,
                };
                let verdict = Verdict::new(strictness, own::UNREADABLE, reason);
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
        let scope = self.scope.clone();
        // another shell does not have the variables of this one's loops
        let (bindings, numbers) = (std::mem::take(&mut self.bindings), std::mem::take(&mut self.numbers));
        let verdict = self.evaluated(text, here, depth);
        (self.bindings, self.numbers, self.scope) = (bindings, numbers, scope);
        verdict
    }

    /// The same of text that this shell runs itself: what it sets stays.
    fn evaluated(&mut self, text: &str, here: &Here, depth: usize) -> Verdict {
        let outer = std::mem::replace(&mut self.verdict, Verdict::allow(own::READS_INSIDE));
        // whatever in it reads standard input first
        let source = std::mem::take(&mut self.source);
        let around = if source == Source::Told { self.around.clone() } else { source.clone() };
        let around = std::mem::replace(&mut self.around, around);
        self.script(text, here, depth);
        (self.source, self.around) = (source, around);
        std::mem::replace(&mut self.verdict, outer)
    }

    /// The verdict on the function or the words that this name stands for in the text.
    fn stands_for(&mut self, words: &[Word], name: &str, here: &Here, nesting: Nesting) -> Verdict {
        let mut verdict = Verdict::allow(own::READS_INSIDE);
        if nesting.wrappers < UNWRAP_MAX
            && let Some(alias) = self.scope.alias(name).map(str::to_owned)
        {
            let named = alias.split_whitespace().map(|text| Word { text: text.to_owned(), kind: Kind::Guess });
            let all: Vec<Word> = named.chain(words.iter().skip(1).cloned()).collect();
            if all.first().is_some_and(|first| first.text != name) {
                verdict = verdict.and(self.simple(&all, here, Nesting { wrappers: nesting.wrappers + 1, ..nesting }));
            }
        }
        if let Some(function) = self.scope.function(name) {
            if nesting.scripts >= DEPTH_MAX || self.called_left == 0 {
                return verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, "it is nested too deep"));
            }
            let outer = self.scope.clone();
            self.scope = outer.inside(&function, Some(words.get(1..).unwrap_or_default()));
            let bound = self.bindings.clone();
            self.bindings.retain(|(name, _)| !name.starts_with(|first: char| first.is_ascii_digit()));
            self.bindings.extend(parameters(&function.body.to_string(), words));
            verdict = verdict.and(self.called(&function, here, nesting.scripts + 1));
            self.bindings = bound;
            self.scope = std::mem::take(&mut self.scope).back_in(&outer);
        }
        verdict
    }

    /// A call of a function that the name is sure to stand for. As a program of that name, only what is denied counts.
    fn plainly_called(&mut self, words: &[Word], name: &str, here: &Here, nesting: Nesting) -> Verdict {
        let outer = self.scope.clone();
        self.scope = outer.without_function(name);
        let untold = self.untold.clone();
        let program = self.simple(words, here, Nesting { wrappers: nesting.wrappers + 1, ..nesting });
        (self.scope, self.untold) = (outer, untold);
        let called = self.stands_for(words, name, here, nesting);
        if program.strictness > Strictness::Ask { called.and(program) } else { called }
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

    /// A command that runs no other.
    fn plain(&mut self, words: &[Word], name: &str, base: &str, here: &Here, nesting: Nesting) -> Verdict {
        Effect::add(&mut self.effects, EffectKind::Run, &command_shown(words));
        self.judges(words, name, base);
        let mut verdict = self.inline(base, words, here, nesting);
        if base == "find" && nesting.wrappers < UNWRAP_MAX {
            let nesting = Nesting { wrappers: UNWRAP_MAX - 1, ..nesting };
            let found = found::Found::of(words);
            self.runs_what_is_found(words, &found, here, nesting);
            let example = found.example.clone().or_else(|| self.looked_at(&found, here, found::Splits::Never));
            for command in found::commands(words, example.as_ref(), found.named.as_ref()) {
                verdict = verdict.and(self.emptied_by(&command, &found, here));
                verdict = verdict.and(self.simple(&command, here, nesting));
            }
        }
        if matches!(base, "fd" | "fdfind") && nesting.wrappers < UNWRAP_MAX {
            let nesting = Nesting { wrappers: UNWRAP_MAX - 1, ..nesting };
            let found = found::Found::of_fd(words);
            if let Some(command) = found::command_of_fd(words) {
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
        if let Some(word) = words.iter().find(|word| word.is_unknown() && !table::only_says(words)) {
            let reason = match word.text.is_empty() {
                true => format!("a word of {} is only known once it runs", shown(base)),
                false => format!("a word with {} in it is only known once it runs", shown(&word.text)),
            };
            self.untold.get_or_insert_with(|| reason.clone());
            // a program that nobody can look into anyway does what it does with text that the command brings itself
            let strictness = if table::is_of_a_project(words) { Strictness::UnlessSpelt } else { Strictness::Ask };
            verdict = verdict.and(Verdict::new(strictness, own::UNREADABLE, reason));
        }
        let only_said = matches!(base, "test" | "[") || table::only_says(words);
        if let Some(word) = words.iter().find(|word| word.kind == Kind::Likely && !only_said) {
            let reason = format!("shells may read a word as {} or otherwise; write it plainly", shown(&word.text));
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        if base == "git" && losses::names_an_alias(words) {
            self.untold.get_or_insert_with(|| command_shown(words));
            let reason = "an alias hides which command git runs; write that command";
            verdict = verdict.and(Verdict::new(Strictness::Ask, own::UNREADABLE, reason));
        }
        if matches!(base, "source" | ".")
            && words.get(1).is_some_and(|word| word.text == "-")
            && let Some(text) = self.stdin.clone()
        {
            verdict = verdict.and(self.inner_script(&text, here, nesting.scripts + 1));
        }
        // it sets up a place for the programs of one project, and leads nowhere else
        let sets_up = matches!(base, "source" | ".") && matches!(words, [_, file] if is_activation(file));
        let sets = base == "printf" && words.iter().skip(1).take(1).any(|word| word.text.starts_with("-v"));
        if sets || CHANGES_THE_SHELL.contains(&base) && !is_only_strict(base, words) {
            let reason = format!("{base} changes how later commands are read");
            self.untold.get_or_insert_with(|| reason.clone());
            verdict = verdict.and(match (sets_up, base == "export" && walk::exports_for_programs(words)) {
                (true, _) => Verdict::new(Strictness::UnlessSpelt, own::UNREADABLE, reason),
                // a program it is for is held by what holds the program
                (false, true) => {
                    Verdict { strictness: Strictness::UnlessSpelt, ..Verdict::unless(Doubt::Unproven, reason) }
                }
                (false, false) => Verdict::new(Strictness::Ask, own::UNREADABLE, reason),
            });
        }
        if !self.trusts(name) {
            let reason = format!("it runs the program {}", shown(name));
            self.untold.get_or_insert_with(|| command_shown(words));
            verdict = verdict.and(Verdict::new(Strictness::Unless, own::DEFAULT, reason));
        }
        let words_by_base = by_base(words, base);
        let expanded = self.expand(&words_by_base, here);
        let readable = self.without_idle_patterns(&expanded, here);
        match table::operands(&readable) {
            Ok(operands) => {
                for operand in &operands {
                    verdict = verdict.and(self.operand(operand, here));
                }
                if table::follows_links_below(&readable) && !self.has_no_links(&operands, here) {
                    let reason =
                        format!("{base} follows links below the folders it compares; give it --no-dereference");
                    verdict = verdict.and(Verdict::new(Strictness::Unless, own::DEFAULT, reason));
                }
                if let Some(reason) = self.trap(base, words, here) {
                    verdict = verdict.and(Verdict::new(Strictness::Unless, own::DEFAULT, reason));
                }
                // names of the kinds that are looked for hold no secrets, else it is no reader
                let mut included = words.iter().filter_map(|word| word.text.strip_prefix("--include=")).peekable();
                let by_name = included.peek().is_some()
                    && included.all(|name| !path::may_be_secret(name) && !name.contains(['{', '[', '\\']));
                let leaves_out = matches!(base, "rg" | "ag") && !table::reads_hidden(&readable) || by_name;
                if operands.iter().any(|operand| operand.purpose == Purpose::ReadBelow) && !leaves_out {
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
                let edited = table::edits(&expanded);
                let is_edit = edited.is_some();
                let touched = edited.or_else(|| writers::touched(&expanded));
                // a link would make another file of what is written next, and a copied folder may hold anything
                let told = touched.is_some() && (writers::is_complete(base) || is_edit);
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
                    let verdict_of_names = match readable.iter().any(|word| word.kind == Kind::Glob) {
                        true => Verdict::new(Strictness::Ask, own::UNREADABLE, reason),
                        // the names of now were judged; a rule that means them spells them out
                        false => Verdict::new(Strictness::UnlessSpelt, own::DEFAULT, reason),
                    };
                    verdict = verdict.and(verdict_of_names);
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

    /// What an earlier command wrote into files that a command runs as shell text.
    fn written_and_run(&self, words: &[Word], name: &str, base: &str, here: &Here) -> Vec<String> {
        let reads = unwrap::is_shell(base) || matches!(base, "source" | ".");
        let is_it =
            |file: &str, written: &str| here.folders.iter().any(|folder| path::absolute(folder, file) == written);
        let runs = |written: &str| {
            (name.contains('/') && is_it(name, written))
                || (reads && words.iter().skip(1).any(|word| is_it(&word.text, written)))
        };
        self.written.iter().filter(|(file, _)| runs(file)).map(|(_, text)| text.clone()).collect()
    }

    /// What `xargs` runs: the words it is given, if they are known.
    fn with_more(&mut self, xargs: &[Word], inner: &[Word], here: &Here) -> Vec<Word> {
        let own = xargs.get(..xargs.len().saturating_sub(inner.len())).unwrap_or_default();
        let null = own.iter().any(|word| matches!(word.text.as_str(), "-0" | "--null" | "-0r" | "-r0"));
        // at what else it may split names, and where it may stop, is not followed
        let other = ["-d", "-E", "-e", "-L", "-l", "--d", "--e", "--m"];
        let plain = own.iter().all(|word| !other.iter().any(|option| word.text.starts_with(option)));
        if let Some(file) = unwrap::file_of_xargs(own) {
            self.executed.cannot_tell(|| format!("{} tells what further words it is given", shown(&file.text)));
            // nothing else is read; what the text has written there may be enough to deny it
            let is_it = |written: &str| here.folders.iter().any(|folder| path::absolute(folder, &file.text) == written);
            self.stdin = self.written.iter().find(|(written, _)| is_it(written)).map(|(_, text)| text.clone());
            self.fed = None;
        }
        let mark = unwrap::mark_of_xargs(own);
        let replaces = mark.is_some();
        if let Some(mark) = &mark
            && let Some(line) = self.stdin.as_deref().map(str::trim).filter(|text| !text.contains('\n'))
        {
            let named = |word: &Word| match word.text.contains(mark) {
                true => Word { text: word.text.replace(mark, line), kind: Kind::Guess },
                false => word.clone(),
            };
            let words = inner.iter().map(named).collect();
            self.stdin = None;
            return words;
        }
        if let Some(mark) = &mark {
            // each line is put where the mark stands
            let before = inner.iter().position(|word| word.text.contains(mark)).unwrap_or(inner.len());
            let takes_files = found::takes_files(inner.get(..before).unwrap_or_default());
            let example = match self.fed.take() {
                Some(found) => {
                    let verdict = self.emptied_by(inner, &found, here);
                    self.note(verdict);
                    let plain = takes_files && plain && !null && !found.ends_names && !found::writes(inner);
                    self.looked_at(&found, here, found::Splits::AtSpace).filter(|_| plain)
                }
                None => None,
            };
            let named = |word: &Word| match (word.text.contains(mark), &example) {
                (true, Some(example)) if word.text == *mark => example.clone(),
                (true, _) => Word::open(),
                (false, _) => word.clone(),
            };
            self.stdin = None;
            return inner.iter().map(named).collect();
        }
        if let Some(text) = self.stdin.take().filter(|_| !replaces) {
            let mut words = unwrap::with_more(inner);
            words.extend(text.split_whitespace().map(|text| Word { text: text.to_owned(), kind: Kind::Likely }));
            return words;
        }
        if let Some(found) = self.fed.take() {
            let verdict = self.emptied_by(inner, &found, here);
            self.note(verdict);
            let by_look = || self.looked_at(&found, here, found::Splits::AtSpace).filter(|_| plain);
            let files = match null && found.ends_names {
                true => found.example.clone().or_else(by_look),
                false if null || found.ends_names => None,
                false => by_look(),
            };
            let files = files.filter(|_| !replaces && found::takes_files(inner));
            if files.is_some() && found::writes(inner) {
                // what is written is judged name by name: others may obey one of them
                let written = by_look().and(self.all_found(&found, here));
                return written.map_or_else(|| unwrap::with_more(inner), |written| [inner.to_vec(), written].concat());
            }
            if let Some(name) = files {
                // several are given at once
                let mut words = inner.to_vec();
                words.extend([name.clone(), name]);
                return words;
            }
        }
        unwrap::with_more(inner)
    }

    /// Whether nothing below these folders is a link or a file that usually holds secrets.
    fn has_no_links(&self, operands: &[Operand], here: &Here) -> bool {
        let all: Vec<&Word> = operands.iter().map(|operand| &operand.word).collect();
        let world = self.policy.surroundings.world.as_ref();
        let listed =
            |word: &&Word| here.folders.iter().all(|folder| world.names(&path::absolute(folder, &word.text)).is_some());
        let found = found::Found::below(&all, "*").filter(|_| all.iter().all(listed));
        found.is_some_and(|found| self.looked_at(&found, here, found::Splits::Never).is_some())
    }

    /// Every file that is found now. None: there is none, or there are many.
    fn all_found(&self, found: &found::Found, here: &Here) -> Option<Vec<Word>> {
        let [folder] = here.folders.as_slice() else { return None };
        let files = found.files(self.policy.surroundings.world.as_ref(), folder);
        let told = !files.is_empty() && files.len() < found::FILES_MAX;
        told.then(|| files.into_iter().map(|text| Word { text, kind: Kind::Literal }).collect())
    }

    /// A file like all that a `find` finds, from looking at what lies there.
    fn looked_at(&self, found: &found::Found, here: &Here, splits: found::Splits) -> Option<Word> {
        let [folder] = here.folders.as_slice() else { return None };
        found.looked_at(self.policy.surroundings.world.as_ref(), self.workspace, folder, splits)
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
}

/// `set -euo pipefail` ends a script sooner, `umask` alone tells, and `read line` puts a line where only the text itself looks:
/// none changes what later commands mean.
fn is_only_strict(base: &str, words: &[Word]) -> bool {
    let args: Vec<&str> = words.iter().skip(1).map(|word| word.text.as_str()).collect();
    let literal = words.iter().all(|word| word.kind == Kind::Literal);
    let strict = |arg: &&str| {
        matches!(*arg, "pipefail" | "errexit" | "nounset" | "xtrace")
            || arg
                .strip_prefix(['-', '+'])
                .is_some_and(|letters| !letters.is_empty() && letters.bytes().all(|letter| b"euxo".contains(&letter)))
    };
    literal
        && match base {
            "set" => !args.is_empty() && args.iter().all(strict),
            "umask" | "alias" => args.is_empty(),
            "ulimit" => args == ["-a"],
            "read" => table::reads_plainly(words.get(1..).unwrap_or_default()),
            "export" => table::exports_plainly(words.get(1..).unwrap_or_default()),
            _ => false,
        }
}

/// `.venv/bin/activate`, below the folder it is run in.
fn is_activation(file: &Word) -> bool {
    file.kind == Kind::Literal
        && file.text.ends_with("/bin/activate")
        && !file.text.starts_with(['/', '-'])
        && !file.text.split('/').any(|part| part == "..")
}

/// What `$1` and so on stand for in a function that is called with these words, as far as they are told and nothing in it
/// changes that. For the rest what the text before says is a guess.
fn parameters(body: &str, words: &[Word]) -> Vec<(String, Word)> {
    const CHANGES: [&str; 6] = ["shift", "set", "getopts", "eval", "source", "function"];
    let takes_in = |seen: &scan::Seen| seen.words.first().is_some_and(|first| first == ".");
    if CHANGES.iter().any(|name| settings::names(body, name))
        || body.contains("()")
        || scan::scan(body).iter().any(takes_in)
    {
        return Vec::new();
    }
    // behind a word that may be several, or none, each may be any
    let told = words.iter().skip(1).take(PARAMETERS_MAX).take_while(|word| match word.kind {
        Kind::Literal | Kind::Open => true,
        Kind::Likely | Kind::Guess | Kind::Glob | Kind::Loose | Kind::Unknown => false,
    });
    told.enumerate().map(|(at, word)| ((at + 1).to_string(), word.clone())).collect()
}

fn by_base(words: &[Word], base: &str) -> Vec<Word> {
    let mut words = words.to_vec();
    if let Some(first) = words.first_mut() {
        base.clone_into(&mut first.text);
    }
    words
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
    let text = words.iter().map(|word| if word.is_unknown() { "…" } else { word.text.as_str() });
    shown(&text.take(SHOWN_WORDS_MAX).collect::<Vec<_>>().join(" "))
}

const SHELL: &str = "shell";
/// Words of a function that are followed one by one.
const PARAMETERS_MAX: usize = 9;
/// A `cd` that may fail doubles the folders; more than this are not told apart.
const FOLDERS_MAX: usize = 8;
/// Scripts inside scripts.
const DEPTH_MAX: usize = 8;
/// Wrappers around wrappers.
const UNWRAP_MAX: usize = 8;
/// Commands that are judged again within functions that are called: where they are defined each was judged once.
const CALLED_MAX: usize = 256;
/// Scripts of one call that are looked into.
const SCRIPTS_MAX: usize = 256;
/// Bytes of scripts within unparsed text that are searched.
const SEARCH_MAX: usize = 4 * 1024 * 1024;
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

#[cfg(test)]
mod tests;
