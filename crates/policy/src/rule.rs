//! Rules as written: what each one names, and what it matches.

use std::collections::BTreeSet;
use std::fmt;

use longrein_core::ids::ToolName;
use longrein_core::mcp::PREFIX;
use longrein_core::task::Builtin;

use crate::hosts::HostPattern;
use crate::near::{NEAR_MAX, are_close, near};
use crate::path::{Case, PathPattern, name_matches};

/// A rule and what it matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) text: String,
    pub(crate) matches: Matches,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Matches {
    EveryTool,
    /// One tool; of the tools of servers perhaps several, by a pattern: what they offer is not known before they have been
    /// asked.
    Tool(ToolName),
    /// A file tool on these paths.
    Paths(Builtin, PathPattern),
    Commands(CommandPattern),
    /// `web_fetch`, and as far as it forbids whatever reaches these hosts.
    Hosts(HostPattern),
}

/// Which list a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    Allow,
    Ask,
    Deny,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            List::Allow => "allow",
            List::Ask => "ask",
            List::Deny => "deny",
        })
    }
}

/// A rule that cannot be obeyed. The run must not start: a guess would allow or forbid something nobody wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {list} rule \"{rule}\" {fault}")]
pub struct BadRule {
    pub list: List,
    /// Its place in the list, counted from 0.
    pub index: usize,
    pub rule: String,
    pub fault: Fault,
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("cannot be read: write tool, tool(pattern) or *")]
    Unreadable,
    #[error("has a pattern, and only file tools, shell and web_fetch take one; write {tool} or {tool}(*)")]
    Pattern { tool: String },
    #[error("names a tool this run does not have{}", near_names(near))]
    UnknownTool { near: Vec<String> },
    #[error("begins with ~, which is another folder for every user; write the absolute path")]
    Tilde,
    #[error("leads out of the workspace; write the absolute path")]
    Parent,
    #[error(
        "is no pattern of paths: * stands for any part of one name and ** for any number of folders, as in \
         {tool}(src/**); ? [ ] {{ }} \\ are not taken"
    )]
    Path { tool: String },
    #[error(
        "is no pattern of hosts: write web_fetch(docs.rs), web_fetch(*.rust-lang.org), web_fetch(example.org:8443) or \
         web_fetch(https://example.org/docs/**)"
    )]
    Host,
    #[error("{}", example_fault(*.expected, .example, .why))]
    Example { example: String, expected: Expected, why: Option<String> },
    #[error("has no words; write shell for every command, or its words, as in shell(git status *)")]
    NoWords,
    #[error("has a quote that is never closed")]
    Quote,
    #[error("would match no command; write shell({} *)", .meant)]
    Colon { meant: String },
    #[error(
        "joins several commands or has a variable in it; rules are about the plain words of one command, so write one rule for \
         each (quote {sign} if it is meant as a letter)"
    )]
    SeveralCommands { sign: char },
}

/// What an example of a rule was to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Listed under `match`.
    Match,
    /// Listed under `not_match`.
    NoMatch,
}

fn example_fault(expected: Expected, example: &str, why: &Option<String>) -> String {
    let said = match expected {
        Expected::Match => format!("does not match its example \"{example}\""),
        Expected::NoMatch => format!("matches \"{example}\", which it says it does not"),
    };
    match why {
        Some(why) => format!("{said}: {why}"),
        None => said,
    }
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; near it: {}", near.join(", ")) }
}

/// Reads one rule. `tools` are those of the run; built-in tools may be named whether they are offered or not.
pub(crate) fn parse(text: &str, tools: &BTreeSet<&str>) -> Result<Matches, Fault> {
    let (name, pattern) = match text.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').ok_or(Fault::Unreadable)?.trim()),
        None => (text, "*"),
    };
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if name.starts_with(PREFIX) {
        let is_pattern = name.bytes().all(|byte| is_word(byte) || byte == b'*');
        return match (is_pattern, pattern) {
            (false, _) => Err(Fault::Unreadable),
            (true, "*") => Ok(Matches::Tool(ToolName::new(name))),
            (true, _) => Err(Fault::Pattern { tool: name.to_owned() }),
        };
    }
    if name != "*" && (name.is_empty() || !name.bytes().all(is_word)) {
        return Err(Fault::Unreadable);
    }
    if pattern.is_empty() {
        return Err(Fault::Unreadable);
    }
    if name == "*" {
        return if pattern == "*" { Ok(Matches::EveryTool) } else { Err(Fault::Unreadable) };
    }
    let builtin = Builtin::ALL.into_iter().find(|builtin| builtin.as_str() == name);
    if builtin.is_none() && !tools.contains(name) {
        let meant = |builtin: &&str| {
            let name = name.to_ascii_lowercase();
            are_close(&name, builtin)
                || builtin.split('_').any(|part| part == name)
                || (**builtin == *"shell" && matches!(name.as_str(), "bash" | "sh" | "command" | "exec"))
        };
        let builtins = Builtin::ALL.map(Builtin::as_str).into_iter().filter(meant);
        let known = builtins.map(str::to_owned).chain(near(name, tools.iter().copied()));
        return Err(Fault::UnknownTool { near: known.take(NEAR_MAX).collect() });
    }
    if pattern == "*" {
        return Ok(Matches::Tool(ToolName::new(name)));
    }
    match builtin {
        Some(
            builtin @ (Builtin::ReadFile
            | Builtin::WriteFile
            | Builtin::EditFile
            | Builtin::ListFiles
            | Builtin::SearchFiles),
        ) => Ok(Matches::Paths(builtin, path_pattern(name, pattern)?)),
        Some(Builtin::Shell) => Ok(Matches::Commands(CommandPattern::parse(pattern)?)),
        Some(Builtin::WebFetch) => Ok(Matches::Hosts(HostPattern::parse(pattern).ok_or(Fault::Host)?)),
        Some(Builtin::Ask | Builtin::Recall | Builtin::Note) | None => Err(Fault::Pattern { tool: name.to_owned() }),
    }
}

/// `*` stands for any text.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn path_pattern(tool: &str, pattern: &str) -> Result<PathPattern, Fault> {
    if pattern.starts_with('~') {
        return Err(Fault::Tilde);
    }
    if pattern.split('/').any(|part| part == "..") {
        return Err(Fault::Parent);
    }
    PathPattern::parse(pattern).ok_or(Fault::Path { tool: tool.to_owned() })
}

/// Whether the colon may be one of the names a runner of scripts has: `npm run test:*`.
fn names_scripts(words: &str) -> bool {
    let runner = words.split_whitespace().next().unwrap_or_default();
    words.contains(' ') && SCRIPT_RUNNERS.contains(&runner)
}

/// Programs whose arguments are names of scripts or targets, in which colons are usual.
const SCRIPT_RUNNERS: [&str; 14] =
    ["npm", "pnpm", "yarn", "bun", "deno", "nx", "turbo", "make", "just", "task", "rake", "mix", "gradle", "composer"];

/// The words of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandPattern {
    words: Vec<PatternWord>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternWord {
    /// `*` on its own: any number of words, none too.
    Rest,
    /// One word: these texts, with anything between them.
    Word(Vec<String>),
}

impl CommandPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let mut words = Vec::new();
        let mut letters = text.chars().peekable();
        // the word at work: its texts around `*`, and whether it has begun
        let mut word: Option<Vec<String>> = None;
        let mut quoted = false;
        let push = |word: &mut Option<Vec<String>>, letter: char| {
            if let Some(last) = word.get_or_insert_with(|| vec![String::new()]).last_mut() {
                last.push(letter);
            }
        };
        loop {
            match letters.next() {
                None | Some(' ' | '\t' | '\n') => {
                    if let Some(texts) = word.take() {
                        let is_rest = !quoted && texts.len() == 2 && texts.iter().all(String::is_empty);
                        words.push(if is_rest { PatternWord::Rest } else { PatternWord::Word(texts) });
                    }
                    quoted = false;
                    if letters.peek().is_none() {
                        break;
                    }
                }
                Some('*') => word.get_or_insert_with(|| vec![String::new()]).push(String::new()),
                Some('\\') => push(&mut word, letters.next().ok_or(Fault::Quote)?),
                Some(quote @ ('\'' | '"')) => {
                    quoted = true;
                    word.get_or_insert_with(|| vec![String::new()]);
                    loop {
                        match letters.next().ok_or(Fault::Quote)? {
                            letter if letter == quote => break,
                            '\\' if quote == '"' => push(&mut word, letters.next().ok_or(Fault::Quote)?),
                            letter => push(&mut word, letter),
                        }
                    }
                }
                Some(sign @ ('|' | '&' | ';' | '<' | '>' | '`' | '$')) => return Err(Fault::SeveralCommands { sign }),
                Some(letter) => push(&mut word, letter),
            }
        }
        if words.is_empty() {
            return Err(Fault::NoWords);
        }
        if let Some(PatternWord::Word(texts)) = words.last()
            && texts.len() == 2
            && let Some(meant) = text.strip_suffix(":*").filter(|meant| !meant.contains('*') && !names_scripts(meant))
        {
            return Err(Fault::Colon { meant: meant.to_owned() });
        }
        Ok(Self { words })
    }

    /// Whether it matches these words. None stands for a word that cannot be told: only `*` matches it.
    pub(crate) fn matches(&self, words: &[Option<&str>]) -> bool {
        let mut open = vec![false; self.words.len() + 1];
        open[0] = true;
        let skip = |open: &mut Vec<bool>| {
            for (at, word) in self.words.iter().enumerate() {
                if open[at] && *word == PatternWord::Rest {
                    open[at + 1] = true;
                }
            }
        };
        skip(&mut open);
        for word in words {
            let mut next = vec![false; self.words.len() + 1];
            for (at, wanted) in self.words.iter().enumerate().filter(|(at, _)| open[*at]) {
                match (wanted, word) {
                    (PatternWord::Rest, _) => next[at] = true,
                    (PatternWord::Word(texts), Some(word)) => {
                        next[at + 1] |= name_matches(texts, word, Case::Matters);
                    }
                    (PatternWord::Word(_), None) => {}
                }
            }
            skip(&mut next);
            // `*` at the end takes whatever is left
            if next[self.words.len()] && self.words.last() == Some(&PatternWord::Rest) {
                return true;
            }
            open = next;
        }
        open[self.words.len()]
    }

    /// Its words, if it is about one command only: nothing in it stands for anything else.
    pub(crate) fn words(&self) -> Option<Vec<&str>> {
        let mut words = Vec::new();
        for word in &self.words {
            match word {
                PatternWord::Word(texts) if texts.len() == 1 => words.extend(texts.iter().map(String::as_str)),
                PatternWord::Word(_) | PatternWord::Rest => return None,
            }
        }
        Some(words)
    }

    /// How many words it spells out from the start.
    pub(crate) fn spelt_out(&self) -> usize {
        let is_plain = |word: &&PatternWord| matches!(word, PatternWord::Word(texts) if texts.len() == 1);
        self.words.iter().take_while(is_plain).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_words_of_one_command() {
        for (pattern, command, matches) in [
            ("git status *", "git status", true),
            ("git status *", "git status --short -b", true),
            ("git status *", "git stash", false),
            ("git status", "git status --short", false),
            ("git * --stat", "git diff --stat", true),
            ("git * --stat", "git diff --stat x", false),
            ("npm run test:*", "npm run test:unit", true),
            ("npm run test:*", "npm run test:unit x", false),
            ("npm run *", "npm run", true),
            ("'a b' c", "a_b c", false),
            ("a\\* b", "a* b", true),
            ("a\\* b", "ax b", false),
            ("'*' b", "x b", false),
            ("git push *", "git push ?", true),
            ("git push x", "git push ?", false),
        ] {
            let pattern = CommandPattern::parse(pattern).unwrap();
            let words: Vec<_> = command.split(' ').map(|word| (word != "?").then_some(word)).collect();
            assert_eq!(pattern.matches(&words), matches, "{pattern:?} {command}");
        }
        assert!(CommandPattern::parse("'a b' \"c\\\"d\"").unwrap().matches(&[Some("a b"), Some("c\"d")]));
    }
}
