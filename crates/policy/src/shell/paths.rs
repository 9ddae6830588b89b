//! Paths in the hands of a command: what each word that is one deserves, alone and with everything below it.

use std::collections::BTreeSet;

use super::table::{Operand, Purpose, shown};
use super::word::{Kind, Word};
use super::{Analysis, Here, found, writers};
use crate::Effect;
use crate::files::{By, Touch};
use crate::path;
use crate::verdict::{Strictness, Verdict, own};

impl Analysis<'_> {
    /// A path in the hands of a command.
    pub(super) fn operand(&mut self, operand: &Operand, here: &Here) -> Verdict {
        let Operand { word, purpose } = operand;
        let unknown = || Verdict::new(Strictness::Ask, own::UNREADABLE, "a path is only known once it runs");
        let path = match word.kind {
            Kind::Open | Kind::Loose | Kind::Unknown => return unknown(),
            Kind::Guess => {
                let guessed = Operand { word: word.taken_for_sure(), purpose: *purpose };
                return self.operand(&guessed, here).and(unknown());
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
        if matches!(purpose, Purpose::Read | Purpose::ReadBelow)
            && let Some(denied) = stands_for_a_secret(word)
        {
            return denied;
        }
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
    pub(super) fn removal(&mut self, operand: &Operand, words: &[Word], base: &str, here: &Here) -> Verdict {
        let verdict = self.operand(operand, here);
        let recursive = matches!(base, "find" | "mv" | "rsync" | "trash" | "rimraf" | "srm")
            || words.iter().skip(1).any(|word| is_recursive(&word.text));
        if operand.purpose == Purpose::Write {
            let all = matches!(base, "chmod" | "chown" | "chgrp" | "chattr" | "setfacl") && recursive;
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
    pub(super) fn emptied(&self, operand: &Operand, here: &Here) -> Verdict {
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
            Kind::Guess => {
                let guessed = Operand { word: word.taken_for_sure(), purpose: operand.purpose };
                return self.emptied(&guessed, here);
            }
            Kind::Open | Kind::Loose | Kind::Unknown => return Verdict::allow(own::DEFAULT),
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

    /// What a command that is given everything `find` finds deserves, if it removes it.
    pub(super) fn emptied_by(&mut self, command: &[Word], found: &found::Found, here: &Here) -> Verdict {
        let base = command.first().and_then(Word::known).unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let removes = matches!(base, "rm" | "unlink" | "shred" | "rmdir" | "mv" | "truncate" | "trash" | "srm");
        let mut verdict = Verdict::allow(own::READS_INSIDE);
        if let Some(name) = found.guarded().filter(|_| removes) {
            let reason = format!("it removes whatever is called {}", shown(name));
            return Verdict::new(Strictness::Deny, own::DESTRUCTION, reason);
        }
        if let Some(name) = found.secret().filter(|_| !found::only_names(command)) {
            let reason = format!("it looks for {}, which usually holds secrets, and reads it", shown(name));
            return Verdict::new(Strictness::Deny, own::SECRET, reason);
        }
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

    /// A recursive reader that does not leave hidden files out, on a folder that usually has some with secrets.
    pub(super) fn reads_hidden(&self, operands: &[Operand], here: &Here) -> Verdict {
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
    pub(super) fn mentions(&mut self, words: &[Word], base: &str, here: &Here) -> Verdict {
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
            let is_skipped = is_operand && operands <= skipped;
            if let Some(denied) = stands_for_a_secret(word).filter(|_| is_operand && !is_skipped) {
                verdict = verdict.and(denied);
            }
            if word.known().is_none() || is_skipped {
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
    pub(super) fn read_verdict(&mut self, path: &str, kind: Kind, here: &Here) -> Verdict {
        let word = Word { text: path.to_owned(), kind };
        self.operand(&Operand { word, purpose: Purpose::Read }, here)
    }

    /// `-Wshadow` names no secret: a mere word in the workspace does not, glued to an option.
    pub(super) fn is_by_chance(&self, value: &str, found: &Verdict, here: &Here) -> bool {
        let inside = |folder: &String| path::within(self.workspace, folder).is_some();
        found.rule == own::SECRET
            && value.bytes().all(|byte| byte.is_ascii_alphabetic())
            && !here.folders.is_empty()
            && here.folders.iter().all(inside)
    }

    /// Where the options of a command that writes may lead: what must not be written unasked, and outside.
    pub(super) fn options_lead(&mut self, words: &[Word], here: &Here) -> Verdict {
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
                Strictness::Deny
                | Strictness::DenyUnlessSpelt
                | Strictness::DenyUnlessTyped
                | Strictness::UnlessSpelt => true,
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

    /// Whether a pattern stands for nothing but itself: its folder has no such names, or cannot be listed by anybody. It is
    /// judged by its letters then.
    pub(super) fn stands_for_itself(&self, pattern: &str, here: &Here) -> bool {
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

    /// The words, with patterns that no name of their folder matches as what a shell makes of them: themselves.
    pub(super) fn without_idle_patterns(&self, words: &[Word], here: &Here) -> Vec<Word> {
        let idle = |word: &Word| match word.kind {
            Kind::Glob if self.stands_for_itself(&word.text, here) => {
                Word { text: word.text.replace('\\', ""), kind: Kind::Literal }
            }
            Kind::Literal | Kind::Likely | Kind::Glob | Kind::Guess | Kind::Open | Kind::Loose | Kind::Unknown => {
                word.clone()
            }
        };
        words.iter().map(idle).collect()
    }

    /// What rules about writing say of a path that may or may not be written.
    pub(super) fn may_write(&self, path: &str, here: &Here) -> Verdict {
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
    pub(super) fn expand(&self, words: &[Word], here: &Here) -> Vec<Word> {
        let [folder] = here.folders.as_slice() else { return words.to_vec() };
        let mut expanded = Vec::new();
        for word in words {
            match self.names(&word.text, folder).filter(|_| word.kind == Kind::Glob) {
                Some(names) => expanded.extend(names.into_iter().map(|text| Word { text, kind: Kind::Literal })),
                None => expanded.push(word.clone()),
            }
        }
        expanded
    }

    /// The names a pattern stands for, if all folders it leads through can be listed. What lies behind a link it may lead
    /// through is named as well; where the link leads is judged with the name.
    pub(super) fn names(&self, pattern: &str, folder: &str) -> Option<Vec<String>> {
        if !pattern.contains(['*', '?', '[']) {
            return None;
        }
        let world = self.policy.surroundings.world.as_ref();
        let mut names = vec![String::new()];
        let mut listed = 0_usize;
        let mut parts = pattern.split('/').peekable();
        while let Some(part) = parts.next() {
            let end = if parts.peek().is_some() { "/" } else { "" };
            if !part.contains(['*', '?', '[']) {
                let part = part.replace('\\', "");
                names.iter_mut().for_each(|name| name.push_str(&format!("{part}{end}")));
                continue;
            }
            let mut found = Vec::new();
            for before in &names {
                listed += 1;
                let at = path::absolute(folder, before);
                path::within(self.workspace, &at)?;
                if world.link(&at).is_some() {
                    return None;
                }
                // a file has no names in it
                let inside = match world.names(&at) {
                    Some(inside) => inside,
                    None if listed > 1 && !world.is_crowded(&at) => continue,
                    None => return None,
                };
                let matching = inside.iter().filter(|name| path::glob_matches(part, name));
                found.extend(matching.map(|name| format!("{before}{name}{end}")));
                if found.len() > NAMES_MAX || listed > FOLDERS_LISTED_MAX {
                    return None;
                }
            }
            names = found;
        }
        // without a match the pattern stays as it is
        (!names.is_empty()).then_some(names)
    }
}

/// A pattern whose names usually hold secrets, whatever stands for its stars.
fn stands_for_a_secret(word: &Word) -> Option<Verdict> {
    // a class of one letter is that letter
    let mut last = word.text.rsplit('/').next().unwrap_or_default().to_owned();
    while let Some(at) = last.find('[').filter(|at| last.is_ascii() && last.as_bytes().get(at + 2) == Some(&b']')) {
        last.remove(at + 2);
        last.remove(at);
    }
    let is_secret = word.kind == Kind::Glob && ["", "x"].iter().any(|rest| path::is_secret(&last.replace('*', rest)));
    let reason = || format!("{} usually holds secrets", shown(&word.text));
    is_secret.then(|| Verdict::new(Strictness::Deny, own::SECRET, reason()))
}

pub(super) fn is_recursive(option: &str) -> bool {
    let letters = option.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    // GNU takes any beginning that is no other option's
    let is_long = option.len() > "--r".len() && "--recursive".starts_with(option);
    letters.is_some_and(|letters| letters.contains(['r', 'R'])) || is_long
}

/// The folder in which the first pattern of a path is looked for.
pub(super) fn folder_of_glob(pattern: &str) -> String {
    let first = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    let before = pattern.get(..first).unwrap_or_default().replace('\\', "");
    match before.rfind('/') {
        Some(0) => "/".to_owned(),
        Some(end) => before.get(..end).unwrap_or_default().to_owned(),
        None => ".".to_owned(),
    }
}

/// What in a word may be a path: all of it, and what follows `=`, `@`, `:` or `file://`.
pub(super) fn paths_in(word: &str) -> impl Iterator<Item = &str> {
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

pub(super) fn looks_like_path(word: &str) -> bool {
    (word.starts_with('/') && !word.starts_with("//"))
        || word.split('/').any(|part| part == "..")
        || word.starts_with("~/")
}

/// A pattern that stands for more names than this is not expanded.
const NAMES_MAX: usize = 1024;
/// Folders that are listed for one pattern.
const FOLDERS_LISTED_MAX: usize = 256;
/// Different words of one command that are looked at as paths.
const MENTIONS_MAX: usize = 4096;
/// Different parts of the option words of one command that are looked at as paths.
const GLUED_MAX: usize = 4 * MENTIONS_MAX;
const MANY_WORDS: &str = "it has too many words to look at";
/// Commands that do not read the files they are given.
const NAMES_ONLY: [&str; 4] = ["echo", "printf", "test", "["];
