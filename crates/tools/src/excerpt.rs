//! What of a long output the model is shown: whole lines of its start and its end, and how much lies between.

use std::borrow::Cow;
use std::fmt::Write as _;

use longrein_core::payload::head_and_tail;

/// The start of an output says what it is, its end what went wrong. Together about 4,000 tokens.
const HEAD_MAX_BYTES: usize = 6 * 1024;
const TAIL_MAX_BYTES: usize = 10 * 1024;

/// Longer lines are shown with their middle left out: one line of a minified file must not push out all others.
const LINE_MAX_BYTES: usize = 2 * 1024;

/// `text` may have been cut in its middle before; `lines` is how many were printed in all.
pub(crate) fn excerpt(text: &str, lines: u64) -> String {
    let (mut shown, mut at, mut count) = (String::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        let fits = clipped(line);
        if shown.len() + fits.len() > HEAD_MAX_BYTES {
            break;
        }
        shown.push_str(&fits);
        at += line.len();
        count += 1;
    }
    let (mut tail, mut tail_bytes) = (Vec::new(), 0);
    for line in text[at..].split_inclusive('\n').rev() {
        let fits = clipped(line);
        if tail_bytes + fits.len() > TAIL_MAX_BYTES {
            break;
        }
        tail_bytes += fits.len();
        at += line.len();
        count += 1;
        tail.push(fits);
    }
    if at < text.len() {
        let left_out = lines.saturating_sub(count);
        writeln!(shown, "[… {left_out} of {lines} lines left out: ask for less with grep, head, tail or sed -n …]")
            .expect("a string takes everything");
    }
    shown.extend(tail.into_iter().rev());
    shown
}

fn clipped(line: &str) -> Cow<'_, str> {
    let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
    if content.len() <= LINE_MAX_BYTES {
        return Cow::Borrowed(line);
    }
    Cow::Owned(head_and_tail(content, LINE_MAX_BYTES) + end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn start_and_end_in_whole_lines() {
        let text: String = (1..=100_000).map(|n| format!("line {n}\n")).collect();
        let shown = excerpt(&text, 100_000);
        assert!(shown.starts_with("line 1\nline 2\n") && shown.ends_with("line 99999\nline 100000\n"));
        let gap = shown.lines().position(|line| line.starts_with('[')).unwrap();
        let left_out = 100_000 - (shown.lines().count() - 1);
        assert_eq!(
            shown.lines().nth(gap).unwrap(),
            format!("[… {left_out} of 100000 lines left out: ask for less with grep, head, tail or sed -n …]")
        );
    }

    #[test]
    fn one_long_line_leaves_room_for_others() {
        let text = format!("first\n{}\nlast", "é".repeat(1_500_000));
        let shown = excerpt(&text, 3);
        assert!(shown.starts_with("first\né") && shown.ends_with("é\nlast"), "{shown}");
        assert!(shown.contains("bytes left out") && shown.len() < 2 * LINE_MAX_BYTES);
    }

    proptest! {
        #[test]
        fn never_more_than_its_bound(
            pieces in prop::collection::vec(("[a-zé\n]{0,9}", 0_usize..900), 0..40)
        ) {
            let text: String = pieces.iter().map(|(piece, times)| piece.repeat(*times)).collect();
            let lines = text.split_inclusive('\n').count() as u64;
            let shown = excerpt(&text, lines);
            prop_assert!(shown.len() <= HEAD_MAX_BYTES + TAIL_MAX_BYTES + 200);
            if !shown.contains('…') {
                prop_assert_eq!(shown, text);
            }
        }
    }
}
