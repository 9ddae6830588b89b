//! What a text costs where it will be written: each JSON string around it escapes it once more.

/// So many JSON strings lie around a text. A preview is bounded by what is written in the end, and quotes in JSON in a
/// string in JSON take four bytes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Level(u32);

impl Level {
    /// JSON itself.
    pub(super) const OUTERMOST: Self = Self(0);

    /// What stands in a string written at this level.
    pub(super) fn inside(self) -> Self {
        Self(self.0 + 1)
    }

    /// Whether strings are looked into here for JSON of their own: one level down, and not for ever.
    pub(super) fn opens_strings(self) -> bool {
        self.0 <= 1
    }

    pub(super) fn byte(self, byte: u8) -> usize {
        let Some(around) = self.0.checked_sub(1) else { return 1 };
        match byte {
            b'"' | b'\\' => 2 << around,
            0x08 | b'\t' | b'\n' | 0x0c | b'\r' => (1 << around) + 1,
            0..=0x1f => (1 << around) + 5,
            _ => 1,
        }
    }

    pub(super) fn cost(self, text: &str) -> usize {
        text.bytes().map(|byte| self.byte(byte)).sum()
    }

    /// Looks at no more of the text than the room.
    pub(super) fn fits(self, text: &str, room: usize) -> bool {
        text.len() <= room && self.cost(text) <= room
    }

    /// The longest start that fits.
    pub(super) fn head(self, text: &str, room: usize) -> &str {
        let end = self.reach(text.bytes(), room);
        &text[..text.floor_char_boundary(end)]
    }

    /// The longest end that fits.
    pub(super) fn tail(self, text: &str, room: usize) -> &str {
        let length = self.reach(text.bytes().rev(), room);
        &text[text.ceil_char_boundary(text.len() - length)..]
    }

    fn reach(self, bytes: impl Iterator<Item = u8>, room: usize) -> usize {
        let mut left = room;
        bytes
            .take_while(|byte| {
                let cost = self.byte(*byte);
                let fits = cost <= left;
                left = left.saturating_sub(cost);
                fits
            })
            .count()
    }
}

/// `1234567` as `1,234,567`.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_the_length_once_written() {
        let text = "a\"\\\n\t\r\u{8}\u{c}\u{1}\u{1f}é\u{7f}…/";
        let mut written = text.to_owned();
        let mut level = Level::OUTERMOST;
        for _ in 0..4 {
            assert_eq!(level.cost(text), written.len(), "{written}");
            let quoted = serde_json::to_string(&written).unwrap();
            written = quoted[1..quoted.len() - 1].to_owned();
            level = level.inside();
        }
    }

    #[test]
    fn ends_are_cut_between_characters() {
        let level = Level::OUTERMOST.inside();
        assert_eq!((level.head("ab\n€", 4), level.head("ab\n€", 6), level.head("ab\n€", 7)), ("ab\n", "ab\n", "ab\n€"));
        assert_eq!((level.tail("€\nab", 3), level.tail("€\nab", 4), level.tail("€\nab", 6)), ("ab", "\nab", "\nab"));
        assert_eq!((grouped(0), grouped(999), grouped(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
    }
}
