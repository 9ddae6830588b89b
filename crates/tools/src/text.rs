//! What a program printed as a person at a terminal would have read it: decoded as what it evidently is, lines that were
//! redrawn in their last state, no escape sequence and no control character but line ends and tabs.
//!
//! It is no terminal: what programs draw by moving up and down stays in the order printed.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// How an output is encoded. Every program of a pipeline writes as it likes; the start of what they print decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Utf8,
    Utf16Le,
    Utf16Be,
}

/// UTF-16 without a byte order mark is told by so many bytes.
const SAMPLE_BYTES: usize = 512;

impl Encoding {
    /// By the byte order mark, or because every other byte is zero, as it is in UTF-16 of Western text.
    pub(crate) fn of(start: &[u8]) -> Self {
        match start {
            [0xff, 0xfe, ..] => return Self::Utf16Le,
            [0xfe, 0xff, ..] => return Self::Utf16Be,
            _ => {}
        }
        let (pairs, _) = start[..start.len().min(SAMPLE_BYTES)].as_chunks::<2>();
        let most = |fits: fn(&[u8; 2]) -> bool| {
            pairs.len() >= 2 && pairs.iter().filter(|pair| fits(pair)).count() * 10 >= pairs.len() * 9
        };
        if most(|pair| pair[0] != 0 && pair[1] == 0) {
            Self::Utf16Le
        } else if most(|pair| pair[0] == 0 && pair[1] != 0) {
            Self::Utf16Be
        } else {
            Self::Utf8
        }
    }

    /// Without the byte order mark; what is invalid becomes U+FFFD.
    pub(crate) fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        let utf16 = |unit: fn([u8; 2]) -> u16| {
            let (pairs, _) = bytes.as_chunks::<2>();
            char::decode_utf16(pairs.iter().map(|pair| unit(*pair)))
                .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
                .skip_while(|c| *c == BYTE_ORDER_MARK)
                .collect()
        };
        match self {
            Self::Utf8 => String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)),
            Self::Utf16Le => Cow::Owned(utf16(u16::from_le_bytes)),
            Self::Utf16Be => Cow::Owned(utf16(u16::from_be_bytes)),
        }
    }

    /// How many bytes make a unit.
    pub(crate) fn unit(self) -> u64 {
        match self {
            Self::Utf8 => 1,
            Self::Utf16Le | Self::Utf16Be => 2,
        }
    }
}

const BYTE_ORDER_MARK: char = '\u{feff}';

/// What becomes of a line that is written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Redrawn {
    /// Its last state is kept: a progress bar is one line.
    Last,
    /// All of its states are kept, one after the other.
    All,
}

/// As it would stand on the screen.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if text.bytes().all(is_plain) { Cow::Borrowed(text) } else { Cow::Owned(draw(text, Redrawn::Last)) }
}

/// Every character that was printed, written over or not.
pub(crate) fn printed(text: &str) -> Cow<'_, str> {
    if text.bytes().all(is_plain) { Cow::Borrowed(text) } else { Cow::Owned(draw(text, Redrawn::All)) }
}

/// Whether a byte of UTF-8 surely belongs to no control character: those from U+0080 on begin with 0xc2.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\t' | b' '..=b'~' | 0x80..=0xc1 | 0xc3..)
}

fn draw(text: &str, redrawn: Redrawn) -> String {
    let mut screen = Screen { out: String::with_capacity(text.len()), line: 0, at_start: false, redrawn };
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => escape(&mut screen, &mut rest),
            '\u{9b}' => control_sequence(&mut screen, &mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut screen, &mut rest),
            '\n' => screen.end_line(),
            '\r' => screen.at_start = true,
            '\u{8}' => screen.step_back(),
            '\t' => screen.write(c),
            c if c.is_control() => {}
            c => screen.write(c),
        }
    }
    screen.out
}

struct Screen {
    out: String,
    /// Where the current line begins.
    line: usize,
    /// The next character is written over the line.
    at_start: bool,
    redrawn: Redrawn,
}

impl Screen {
    fn write(&mut self, c: char) {
        if std::mem::take(&mut self.at_start) {
            self.clear_line();
        }
        self.out.push(c);
    }

    fn end_line(&mut self) {
        self.at_start = false;
        self.out.push('\n');
        self.line = self.out.len();
    }

    fn clear_line(&mut self) {
        match self.redrawn {
            Redrawn::Last => self.out.truncate(self.line),
            Redrawn::All => {}
        }
    }

    fn step_back(&mut self) {
        let is_within = !self.at_start && self.out.len() > self.line;
        if self.redrawn == Redrawn::Last && is_within {
            self.out.pop();
        }
    }
}

/// What follows an ESC (ECMA-48).
fn escape(screen: &mut Screen, rest: &mut Peekable<Chars<'_>>) {
    let is_sequence = |c: &char| matches!(c, ' '..='~');
    match rest.next_if(is_sequence) {
        Some('[') => control_sequence(screen, rest),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(screen, rest),
        // a character set or the like: intermediates, then one final character
        Some(' '..='/') => {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
        }
        Some(_) | None => {}
    }
}

/// Colours, cursor movements and the like go. Two of them redraw a line: "to the first column" and "erase the line".
fn control_sequence(screen: &mut Screen, rest: &mut Peekable<Chars<'_>>) {
    let mut parameters = String::new();
    while let Some(c) = rest.next_if(|c| matches!(c, ' '..='?')) {
        // longer than any that means something here
        if parameters.len() < 4 {
            parameters.push(c);
        }
    }
    match (rest.next_if(|c| matches!(c, '@'..='~')), parameters.as_str()) {
        (Some('G'), "" | "0" | "1") => screen.at_start = true,
        (Some('K'), "2") => screen.clear_line(),
        (Some(_) | None, _) => {}
    }
}

/// Up to the string terminator, or the bell that stands for it. An unterminated one hides no more than its line.
fn skip_string(screen: &mut Screen, rest: &mut Peekable<Chars<'_>>) {
    while let Some(c) = rest.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                // anything but the terminator breaks the string off and is a sequence of its own
                if rest.next_if_eq(&'\\').is_none() {
                    escape(screen, rest);
                }
                return;
            }
            _ => {}
        }
    }
}

/// The code unit of JSON's `\uXXXX` at the start of a text.
pub(crate) fn code_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    // the parser takes a sign, JSON does not
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

/// JSON with escapes of half a surrogate pair replaced: programs that cut an emoji in two write them, and no reader takes
/// them.
pub(crate) fn whole_pairs(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match (code_unit(rest), rest.get(6..).and_then(code_unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(0xD800..=0xDFFF), _) => {
                out.push('\u{fffd}');
                rest = &rest[6..];
                continue;
            }
            // the second of the two may be a backslash, and begins nothing
            (_, _) => rest.char_indices().nth(2).map_or(rest.len(), |(end, _)| end),
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_pairs_are_replaced_and_nothing_else() {
        for (json, whole) in [
            (r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\ud83d\ude00"}"#),
            (r#"{"a":"x\ud83d"}"#, "{\"a\":\"x\u{fffd}\"}"),
            (r#""\uDE00\ud83d\ud83d\ude00""#, "\"\u{fffd}\u{fffd}\\ud83d\\ude00\""),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, "\"\\\\\u{fffd}\""),
            (r#""\u00e9\ud8""#, r#""\u00e9\ud8""#),
            ("\\ud83d\\", "\u{fffd}\\"),
        ] {
            assert_eq!(whole_pairs(json), whole, "{json}");
        }
    }

    #[test]
    fn what_a_terminal_would_show() {
        for (printed, shown) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\x1b[1;31mred\x1b[0m \x1b[38:2::1:2:3mx", "red x"),
            ("\x1b]0;title\x07x\x1b]52;c;AAAA\x1b\\y\x1b(Bz", "xyz"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\!", "link!"),
            ("\x1b]0;never closed\nnext", "\nnext"),
            ("\x1b]0;broken off\x1b[31mred", "red"),
            ("\x1bPq#0\x1b\\a\x1b_k\x1b\\b\u{9b}31mc\u{9d}0;t\u{9c}d\u{85}e", "abcde"),
            ("\x1b[12", ""),
            ("a\x1b\nb", "a\nb"),
            ("a\x1b[\nb", "a\nb"),
            ("a\0b\x07c\x7fd\x0ce", "abcde"),
            ("one\r\ntwo\r\n", "one\ntwo\n"),
            ("10%\r50%\r100%\n", "100%\n"),
            ("10%\r50%\r100%\r\ndone", "100%\ndone"),
            ("50%\r", "50%"),
            ("Building 1/2\r\x1b[KDone", "Done"),
            ("\x1b[2K\x1b[1Gstep 1\x1b[2K\x1b[1Gstep 2\n", "step 2\n"),
            ("N\x08Na\x08am\x08me", "Name"),
            ("|\x08/\x08-\x08\\\x08ok\n\x08\x08x", "ok\nx"),
        ] {
            assert_eq!(plain(printed), shown, "{printed:?}");
        }
        assert_eq!(printed("10%\r\x1b[1m50%x\x08y\n"), "10%50%xy\n");
    }

    #[test]
    fn encodings() {
        let utf16 = |text: &str, unit: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(unit).collect::<Vec<u8>>();
        let text = "Grüße, wörld: ok\r\n";
        for (bytes, encoding) in [
            (text.as_bytes().to_vec(), Encoding::Utf8),
            (format!("\u{feff}{text}").into_bytes(), Encoding::Utf8),
            (utf16(&format!("\u{feff}{text}"), u16::to_le_bytes), Encoding::Utf16Le),
            (utf16(&format!("\u{feff}{text}"), u16::to_be_bytes), Encoding::Utf16Be),
            (utf16(text, u16::to_le_bytes), Encoding::Utf16Le),
            (utf16(text, u16::to_be_bytes), Encoding::Utf16Be),
        ] {
            assert_eq!(Encoding::of(&bytes), encoding);
            assert_eq!(encoding.decode(&bytes), text);
        }
        for other in [&b""[..], b"\0", b"a\0", b"\0\0\0\0\0\0", b"name=x\0other=y\0", b"\x83\x65\x83\x58\x83\x67"] {
            assert_eq!(Encoding::of(other), Encoding::Utf8, "{other:?}");
        }
        assert_eq!(Encoding::Utf16Le.decode(b"\x00\xd8a\0b"), "\u{fffd}a");
    }

    /// Bytes as programs print them, and as nothing should.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            prop::sample::select(vec![
                "\x1b",
                "\x1b[",
                "\x1b]",
                "\x1b]0;",
                "[2K",
                "m",
                "\x07",
                "\x1b\\",
                "\r",
                "\n",
                "\r\n",
                "\x08",
                "\u{9b}",
                "\u{9d}",
                "text",
                "é",
                "\u{fffd}",
                "\0",
                "1;31",
                "<longrein",
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
        ];
        prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn nothing_but_text_is_left(bytes in output()) {
            let text = Encoding::of(&bytes).decode(&bytes).into_owned();
            let shown = plain(&text).into_owned();
            prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{shown:?}");
            prop_assert_eq!(plain(&shown), shown.as_str());
            prop_assert!(shown.len() <= printed(&text).len());
        }
    }
}
