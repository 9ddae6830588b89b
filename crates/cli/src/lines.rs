//! Text in lines of a terminal: broken between words, cut where there is no room, blanks kept as they are.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Narrower than this nothing can be laid out; a line may then be cut by the terminal.
pub(crate) const WIDTH_MIN: usize = 20;

/// What stands for the end of a line where several are shown as one.
const LINE_END: &str = " ⏎ ";

/// A text as one line: blanks as they are, ends of lines visible.
pub(crate) fn one_line(text: &str) -> String {
    let lines = text.trim().lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(LINE_END).replace('\t', " ")
}

/// The beginning of one line that fits into `width` cells, with a sign that there is more.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let line = one_line(text);
    if line.width() <= width {
        return line;
    }
    let mut fitting = String::new();
    let mut used = 1;
    for c in line.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        fitting.push(c);
    }
    format!("{fitting}…")
}

/// The end of a text in one line that fits into `width` cells, with a sign that there is more before it.
pub(crate) fn end_of(text: &str, width: usize) -> String {
    let line = one_line(text);
    if line.width() <= width {
        return line;
    }
    let (mut start, mut used) = (line.len(), 1);
    for (at, c) in line.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        start = at;
    }
    format!("…{}", &line[start..])
}

/// Text in lines of at most `width` cells, broken between words where that works; at most `most` lines.
pub(crate) fn wrap(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines().filter(|paragraph| !paragraph.trim().is_empty()) {
        lines.extend(broken(paragraph, Room { first: width, further: width }, Long::Broken, most));
        if lines.len() > most {
            break;
        }
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = fit(&format!("{last} …"), width);
            if !last.ends_with('…') {
                last.push('…');
            }
        }
    }
    lines
}

/// One line of a listing in lines of at most `width` cells, all but the first set in by `indent`. A path or an address that
/// is longer stays whole, so that it can be copied.
pub(crate) fn hung(line: &str, indent: usize, width: usize) -> Vec<String> {
    let width = width.max(WIDTH_MIN);
    let indent = indent.min(width / 2);
    let room = Room { first: width, further: width - indent };
    let set_in = |(place, line): (usize, String)| if place == 0 { line } else { format!("{:indent$}{line}", "") };
    broken(line, room, Long::PathsWhole, usize::MAX).into_iter().enumerate().map(set_in).collect()
}

/// Cells of the first line and of those after it.
#[derive(Clone, Copy)]
struct Room {
    first: usize,
    further: usize,
}

/// What becomes of a word that is longer than a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Long {
    Broken,
    PathsWhole,
}

/// One paragraph in lines, no more of them than tells that there are more than `most`. The blanks between two words stay where
/// the line goes on, and go where it ends.
fn broken(paragraph: &str, room: Room, long: Long, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut rest = paragraph.trim_end();
    while !rest.is_empty() && lines.len() <= most {
        let here = |lines: &Vec<String>| if lines.is_empty() { room.first } else { room.further };
        let (blanks, from) = rest.split_at(rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len()));
        let (word, after) = from.split_at(from.find(char::is_whitespace).unwrap_or(from.len()));
        rest = after;
        let blanks = blanks.chars().count();
        if line.is_empty() {
            // what is set in too far to leave room for words is set in less
            line.extend(std::iter::repeat_n(' ', blanks.min(room.first / 2)));
        } else if line.width() + blanks + word.width() <= here(&lines) {
            line.extend(std::iter::repeat_n(' ', blanks));
        } else {
            lines.push(std::mem::take(&mut line));
        }
        if long == Long::PathsWhole && is_copied(word) {
            line.push_str(word);
            continue;
        }
        for c in word.chars() {
            if !line.is_empty() && line.width() + c.width().unwrap_or(0) > here(&lines) {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.push(line);
    lines
}

/// Whether somebody may want to copy a word: a path, or an address.
fn is_copied(word: &str) -> bool {
    word.contains('/') && !word.contains(['"', '{'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 6] = [
        "short",
        "a few words that go over the end of a line, and a-word-that-is-longer-than-any-line-could-ever-be-here",
        "漢字は二つの幅を取る。漢字は二つの幅を取る。",
        "one\n\n  two\tthree\n",
        "e\u{301}e\u{301}e\u{301} 👩‍👩‍👧‍👦👩‍👩‍👧‍👦 ok",
        "                                        far from the edge",
    ];

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for text in TEXTS {
            for width in WIDTH_MIN..90 {
                for most in 1..5 {
                    let lines = wrap(text, width, most);
                    assert!(lines.len() <= most, "{lines:?}");
                    assert!(lines.iter().all(|line| line.width() <= width), "{width}: {lines:?}");
                }
                assert!(fit(text, width).width() <= width, "{width}: {text}");
                for line in text.lines() {
                    let lines = hung(line, 11, width);
                    assert!(lines.iter().all(|line| line.width() <= width), "{width}: {lines:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_but_blanks_at_breaks_is_lost() {
        let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        for text in TEXTS.iter().flat_map(|text| text.lines()) {
            for width in WIDTH_MIN..90 {
                assert_eq!(bare(&hung(text, 5, width).concat()), bare(text), "{width}");
            }
        }
    }

    #[test]
    fn what_is_left_out_is_said() {
        assert_eq!(wrap("one two three four", 5, 2), ["one", "two …"]);
        assert_eq!(wrap("one two", 7, 2), ["one two"]);
        assert_eq!(fit("one two", 5), "one …");
    }

    #[test]
    fn blanks_are_not_eaten_and_line_ends_are_seen() {
        assert_eq!(one_line("if x:\n    y  =  1\n\n"), "if x: ⏎     y  =  1");
        assert_eq!(wrap("a   b", 10, 1), ["a   b"]);
        assert_eq!(fit("a   b", 10), "a   b");
    }

    #[test]
    fn a_listing_hangs_and_a_path_in_it_can_be_copied() {
        assert_eq!(hung("goal       one two three four", 11, 22), ["goal       one two", "           three four"]);
        let path = "/a/path/that/is/longer/than/any/of/these/lines";
        assert_eq!(
            hung(&format!("store      {path}, sound"), 11, 30),
            ["store".to_owned(), format!("           {path},"), "           sound".to_owned(),]
        );
    }
}
