//! The workspace's files, and Rust text without its comments and strings.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Folders that are not ours to judge: what is built, what git keeps, what an example leaves behind.
const LEFT_OUT: &[&str] = &["target", ".git", "state"];

/// Every file of the workspace, relative to `root`, in a fixed order.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            let left_out = LEFT_OUT.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && !left_out {
                folders.push(entry.path());
            } else if kind.is_file() && !left_out {
                found.push(entry.path().strip_prefix(root).expect("it was found under root").to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// `text` with comments, strings and character literals blanked; lines stay where they are.
pub(crate) fn code(text: &str) -> String {
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    while let Some(first) = rest.chars().next() {
        let after_word = code.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let blank = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if rest.starts_with('"') {
            quoted(rest)
        } else if first == 'r' && !after_word {
            raw_string(rest)
        } else if first == '\'' {
            character(rest)
        } else {
            0
        };
        let taken = if blank == 0 { first.len_utf8() } else { blank };
        if blank == 0 {
            code.push(first);
        } else {
            code.extend(rest[..blank].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = &rest[taken..];
    }
    code
}

/// Length of the block comment that begins here. They nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of the string that begins here.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of the raw string that begins here; 0: none does.
fn raw_string(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    let open = 1 + hashes;
    if !text[open..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    text[open + 1..].find(&close).map_or(text.len(), |at| open + 1 + at + close.len())
}

/// Length of the character that begins here; 0: it is a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            text.char_indices().skip(3).find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            Some(_) | None => 0,
        },
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        for (text, left) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x \" y") + 'z'"#, "f(        ) +    "),
            ("r#\"in \"it\"\"# out", "             out"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            (r"'\'' '\n' '\u{7f}' x", "                   x"),
            ("for r in var { }", "for r in var { }"),
            ("\"two\nlines\" end", "    \n       end"),
        ] {
            assert_eq!(code(text), left, "{text}");
        }
    }
}
