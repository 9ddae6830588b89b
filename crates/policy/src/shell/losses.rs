//! git commands that take something away: history that nothing brings back, or work that was never committed. git keeps
//! what most commands replace (the reflog has it); these are the others.

use super::Word;

/// What is gone afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Names, logs or objects of the repository.
    History,
    /// Changes of files that git does not have.
    Work,
}

/// The subcommand and what follows it. `words` begin with `git`.
fn parts(words: &[Word]) -> Option<(&str, Vec<&str>)> {
    let mut rest = words.iter().skip(1).map(|word| word.text.as_str());
    loop {
        match rest.next()? {
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--exec-path" => drop(rest.next()),
            option if option.starts_with('-') => {}
            subcommand => return Some((subcommand, rest.collect())),
        }
    }
}

/// Whether it writes git's own data and no file of the working tree: what is recorded can be looked at before it leaves.
pub(super) fn keeps_files(words: &[Word]) -> bool {
    let plain = words.get(1).is_some_and(|word| !word.text.starts_with('-'));
    let keeps = |subcommand| matches!(subcommand, "add" | "commit" | "tag" | "branch" | "notes" | "reset" | "restore");
    plain && loss(words).is_none() && parts(words).is_some_and(|(subcommand, _)| keeps(subcommand))
}

/// What this git command takes away.
pub(super) fn loss(words: &[Word]) -> Option<Loss> {
    let (subcommand, args) = parts(words)?;
    // git takes every beginning of a long option that is no other's
    let long = |names: &[&str]| {
        let given =
            args.iter().filter_map(|arg| arg.strip_prefix("--")).map(|arg| arg.split('=').next().unwrap_or(arg));
        given.filter(|given| given.len() > 1).any(|given| names.iter().any(|name| name.starts_with(given)))
    };
    let short = |letters: &[char]| {
        args.iter()
            .any(|arg| arg.strip_prefix('-').is_some_and(|rest| !rest.starts_with('-') && rest.contains(letters)))
    };
    let says = |verbs: &[&str]| args.iter().any(|arg| verbs.contains(arg));
    let (history, work) = match subcommand {
        "prune" | "filter-branch" | "filter-repo" | "replace" => (true, false),
        "gc" | "maintenance" => {
            (long(&["prune", "cruft"]) || words.iter().any(|word| word.text.contains("xpire")), false)
        }
        "repack" => (long(&["cruft-expiration", "unpack-unreachable"]) || short(&['d']) && short(&['a']), false),
        "reflog" => (says(&["expire", "delete", "drop"]), false),
        "update-ref" => (long(&["delete", "stdin"]) || short(&['d']), false),
        "symbolic-ref" => (long(&["delete"]) || short(&['d']), false),
        "branch" => (long(&["delete"]) || short(&['d', 'D', 'M']), false),
        "tag" => (long(&["delete", "force"]) || short(&['d', 'f']), false),
        "stash" => (says(&["drop", "clear"]), false),
        "notes" => (says(&["remove", "prune"]), false),
        "lfs" => (says(&["prune"]), false),
        "worktree" => (false, says(&["remove", "prune"])),
        "clean" => (false, !long(&["dry-run"]) && !short(&['n'])),
        "reset" => (false, long(&["hard", "merge", "keep"])),
        "checkout" => (false, long(&["force", "ours", "theirs"]) || short(&['f']) || says(&["--", "."])),
        "switch" => (false, long(&["force", "discard-changes"]) || short(&['f'])),
        "restore" => (false, !(long(&["staged"]) || short(&['S'])) || long(&["worktree"]) || short(&['W'])),
        "read-tree" => (false, long(&["reset"]) || short(&['u'])),
        "checkout-index" => (false, long(&["force"]) || short(&['f'])),
        _ => (false, false),
    };
    match (history, work) {
        (true, _) => Some(Loss::History),
        (false, true) => Some(Loss::Work),
        (false, false) => None,
    }
}

/// Whether it brings an alias of its own, and so may be any git command, or any program.
pub(super) fn names_an_alias(words: &[Word]) -> bool {
    let mut settings = words.windows(2).filter(|pair| matches!(pair[0].text.as_str(), "-c" | "--config-env"));
    let alias = |setting: &str| setting.to_ascii_lowercase().starts_with("alias.");
    settings.any(|pair| alias(&pair[1].text))
        || words.iter().any(|word| word.text.strip_prefix("--config-env=").is_some_and(alias))
}
