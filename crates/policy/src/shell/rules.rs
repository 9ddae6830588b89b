//! What the rules of a run say of the words of a command: which forbid it, and which allow what is asked about.

use super::unwrap::Wrapper;
use super::word::{Kind, Word};
use super::{Analysis, SHELL, command_shown};
use crate::rule::{Matches, Rule};
use crate::verdict::{Strictness, Verdict, own};

impl<'a> Analysis<'a> {
    /// The rule that allows every command.
    pub(super) fn bare(&self) -> Option<&'a Rule> {
        self.policy.allow.iter().find(|rule| match &rule.matches {
            Matches::EveryTool => true,
            Matches::Tool(tool) => tool.as_str() == SHELL,
            Matches::Paths(..) | Matches::Hosts(_) | Matches::Commands(_) => false,
        })
    }

    /// What a wrapper makes of the verdict on what it runs. A rule lifts a question if it spells the words out to `at`.
    pub(super) fn wrapped(&self, words: &[Word], base: &str, at: usize, wrapper: Wrapper, inner: Verdict) -> Verdict {
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
    pub(super) fn forbidden(&self, words: &[Word], name: &str, base: &str) -> Verdict {
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

    /// Whether the first word names the program of that name, and not one that lies somewhere else.
    pub(super) fn trusts(&self, name: &str) -> bool {
        match name.rsplit_once('/') {
            None => true,
            Some((folder, _)) => matches!(folder, "/bin" | "/usr/bin"),
        }
    }

    /// A verdict that is asked about only because no rule allows it, held against the rules that allow. What is allowed
    /// without one may have a rule as well: it counts where nothing of ours does.
    pub(super) fn lifted(&self, verdict: Verdict, words: &[Word], name: &str) -> Verdict {
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
            Strictness::Ask | Strictness::DenyUnlessTyped | Strictness::Deny => None,
        };
        match rule {
            Some(rule) => Verdict::allow(&rule.text),
            None => verdict,
        }
    }
}

pub(super) fn texts(words: &[Word]) -> Vec<Option<&str>> {
    words.iter().map(Word::known).collect()
}

/// `git -C x push` as `git push`, for rules that forbid.
pub(super) fn without_git_options(words: &[Word]) -> Option<Vec<Option<&str>>> {
    let mut at = 1;
    while let Some(text) = words.get(at).and_then(Word::known).filter(|text| text.starts_with('-')) {
        at +=
            1 + usize::from(matches!(text, "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--exec-path"));
    }
    let rest = words.get(at..)?;
    (at > 1).then(|| std::iter::once(Some("git")).chain(texts(rest)).collect())
}

const OWN_NAME: &str = "longrein";
