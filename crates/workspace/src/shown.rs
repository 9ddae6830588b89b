//! Names and text as people and models are shown them.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path in printable form: what is not UTF-8, and every control character, stands as `\xNN` or `\u{…}`.
pub fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("a string takes everything");
        }
    }
    text
}

/// How many bytes a text takes inside a JSON string. Caps on results are counted in these.
pub fn json_bytes(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            other => other.len_utf8(),
        })
        .sum()
}

/// The start of `text` in at most `max_bytes`, cut at a character.
pub(crate) fn head(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn what_cannot_be_printed_is_escaped() {
        assert_eq!(shown(Path::new(OsStr::from_bytes(b"a\xff\n\xc3\xa9"))), "a\\xff\\né");
    }
}
