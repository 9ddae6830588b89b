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

/// Whether a person has picked out this one among others: by an address, a path or a number with letters (`inv-7`), by a name
/// with a capital letter within a sentence, or in quotes. A plain word or number of theirs may stand there for anything:
/// "the 3 newest mails" names no order 3, and nobody called "the".
pub(crate) fn is_picked(said: &[&str], target: &str) -> bool {
    let letters = target.chars().filter(|letter| letter.is_alphabetic()).count();
    let digits = target.chars().filter(char::is_ascii_digit).count();
    let is_joined = target.char_indices().any(|(at, letter)| {
        matches!(letter, '@' | '.' | '/' | ':' | '-' | '_' | '#') && at > 0 && at + letter.len_utf8() < target.len()
    });
    let is_special = letters > 0 && target.len() >= 4 && (is_joined || digits > 0);
    is_said(said, target) && (is_special || letters > 1 && said.iter().any(|text| is_marked(text, target)))
}

/// Whether it stands in quotes somewhere, or with a capital letter where no sentence begins.
fn is_marked(text: &str, target: &str) -> bool {
    let mut from = 0;
    while let Some(at) = find(text, target, from) {
        let end = at + target.len();
        let (Some(before), Some(here), Some(after)) = (text.get(..at), text.get(at..end), text.get(end..)) else {
            break;
        };
        let quotes = |letter: Option<char>| letter.is_some_and(|letter| "\"'`“”‘’«»„".contains(letter));
        let is_quoted = quotes(before.chars().next_back()) && quotes(after.chars().next());
        let is_capital = here.chars().next().is_some_and(char::is_uppercase);
        let is_within = before.trim_end().chars().next_back().is_some_and(|last| last.is_alphanumeric() || last == ',');
        let is_whole = before.chars().next_back().is_none_or(|letter| !joins(letter)) && ends(after);
        if is_whole && (is_quoted || is_capital && is_within) {
            return true;
        }
        from = end;
    }
    false
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
    fn a_word_of_the_goal_picks_nobody_out() {
        for (said, target, is) in [
            ("Summarize the 5 newest mails.", "5", false),
            ("Summarize the 5 newest mails.", "the", false),
            ("Is any of the 3 items out of stock? Cancel nothing.", "cancel", false),
            ("Is any of the 3 items out of stock? Cancel nothing.", "Cancel", false),
            ("a", "a", false),
            ("pay 12.50 to Anna", "Anna", true),
            ("pay 12.50 to Anna", "12.50", false),
            ("pay 12.50 to acme", "acme", false),
            ("pay 12.50 to \"acme\"", "acme", true),
            ("pay invoice inv-7", "inv-7", true),
            ("cancel reservation EHGLP3", "EHGLP3", true),
            ("mail bob@docs.rs", "bob@docs.rs", true),
            ("write to src/a.rs", "src/a.rs", true),
            ("the 1.5 of it", "1.5", false),
            ("ask Ümit, please", "Ümit", true),
            ("look. Post it", "Post", false),
        ] {
            assert_eq!(is_picked(&[said], target), is, "{said} {target}");
        }
    }

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
