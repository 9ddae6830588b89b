//! Whom a person has named in this run: a word of theirs, whole, makes a host, a recipient or a command their own choice.

/// Whether this stands in what people typed, as a whole: not as a part of another name, and not with more after it that
/// would make it another name.
pub(crate) fn is_said(said: &[&str], target: &str) -> bool {
    !target.is_empty() && target.len() <= TARGET_MAX && said.iter().any(|text| stands_in(text, target))
}

/// Whether a person has named this command: all of its words, one after the other. One plain word is no command: people say
/// "deploy" without meaning a program.
pub(crate) fn is_command_said(said: &[&str], command: &str) -> bool {
    let plain = |letter: char| letter.is_alphanumeric();
    (!command.chars().all(plain)) && !command.contains('…') && is_said(said, command)
}

fn stands_in(text: &str, target: &str) -> bool {
    let mut from = 0;
    while let Some(at) = find(text, target, from) {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + target.len()..).unwrap_or_default();
        if before.is_none_or(|letter| !joins(letter)) && ends(after) {
            return true;
        }
        from = at + target.len().max(1);
    }
    false
}

/// Case does not count in hosts and addresses; for the rest a person would not mean another by it.
fn find(text: &str, target: &str, from: usize) -> Option<usize> {
    let (text, target) = (text.as_bytes(), target.as_bytes());
    let last = text.len().checked_sub(target.len())?;
    let first = *target.first()?;
    (from..=last).find(|at| {
        text.get(*at).is_some_and(|byte| byte.eq_ignore_ascii_case(&first))
            && text.get(*at..at + target.len()).is_some_and(|part| part.eq_ignore_ascii_case(target))
    })
}

/// Letters that make one name of what stands on both sides.
fn joins(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | '@' | '+' | '%' | '=')
}

/// Whether a name is over here: a dot may end a sentence.
fn ends(after: &str) -> bool {
    let mut letters = after.chars();
    match letters.next() {
        None => true,
        Some('.' | '-' | '%' | '=' | '+') => letters.next().is_none_or(|next| !joins(next) && next != '/'),
        Some(letter) => !joins(letter),
    }
}

/// Nobody types a longer name, and looking for it in a long text would take its time.
const TARGET_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_name_is_named() {
        for (said, target, is) in [
            ("look at docs.rs", "docs.rs", true),
            ("look at docs.rs.", "docs.rs", true),
            ("see https://docs.rs/tokio, please", "docs.rs", true),
            ("see https://docs.rs/tokio, please", "https://docs.rs/tokio", true),
            ("see https://docs.rs/tokio?x=1", "https://docs.rs/tokio", true),
            ("Docs.RS", "docs.rs", true),
            ("(docs.rs)", "docs.rs", true),
            ("notdocs.rs", "docs.rs", false),
            ("api.docs.rs", "docs.rs", false),
            ("docs.rs.evil.example", "docs.rs", false),
            ("docs.rs-evil.example", "docs.rs", false),
            ("mail bob@docs.rs", "docs.rs", false),
            ("mail bob@docs.rs", "bob@docs.rs", true),
            ("", "docs.rs", false),
            ("pay 12.50 to anna", "12.50", true),
            ("pay 12.50 to anna", "12", false),
            ("pay 12.50 to anna", "ann", false),
            ("grüße an jörg", "jörg", true),
            ("x", "", false),
        ] {
            assert_eq!(is_said(&[said], target), is, "{said} {target}");
        }
        for (said, command, is) in [
            ("then run `git push origin main`", "git push origin main", true),
            ("then run git push", "git push origin main", false),
            ("then git push origin main-2", "git push origin main", false),
            ("deploy it", "deploy", false),
            ("run ./deploy", "./deploy", true),
        ] {
            assert_eq!(is_command_said(&[said], command), is, "{said} {command}");
        }
    }
}
