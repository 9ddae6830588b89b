//! Reading: ranges, limits, encodings, and one digest for what was seen.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;

use longrein_core::ids::Digest;
use longrein_workspace::{Encoding, Error, Lines, Newline, Newlines, Place, Range, ReadLimits, Root, json_bytes};
use proptest::prelude::*;

const WIDE: ReadLimits = ReadLimits { max_bytes: 1 << 20, max_lines: 100_000, max_line_bytes: 100_000 };

fn read(bytes: &[u8], range: Range, limits: ReadLimits) -> Result<Lines, Error> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), bytes).unwrap();
    Root::open(dir.path()).unwrap().read_lines(&Place::Inside("f".into()), range, limits)
}

fn range(from: u64, to: u64) -> Range {
    Range { from, to: Some(to) }
}

#[test]
fn a_range_of_lines_is_read_and_what_is_around_it_is_said() {
    let lines = read(b"a\nb\nc\nd", range(2, 3), WIDE).unwrap();
    assert_eq!((lines.text.as_str(), lines.from, lines.to, lines.total_lines), ("b\nc\n", 2, 3, 4));
    assert_eq!((lines.left_out, lines.final_newline, lines.bytes), (0, false, 7));
    assert_eq!(lines.digest, Digest::of(b"a\nb\nc\nd"));
    let past = read(b"a\n", range(5, 9), WIDE).unwrap();
    assert_eq!((past.text.as_str(), past.total_lines, past.to), ("", 1, 4));
    let empty = read(b"", Range::ALL, WIDE).unwrap();
    assert_eq!((empty.text.as_str(), empty.total_lines, empty.newlines), ("", 0, Newlines::None));
}

#[test]
fn limits_cut_and_say_so() {
    let file = "0123456789\n".repeat(100);
    let few = read(file.as_bytes(), Range::ALL, ReadLimits { max_lines: 3, ..WIDE }).unwrap();
    assert_eq!((few.to, few.left_out, few.total_lines), (3, 97, 100));
    let small = read(file.as_bytes(), range(11, 90), ReadLimits { max_bytes: 36, ..WIDE }).unwrap();
    assert_eq!((small.from, small.to, small.left_out), (11, 13, 77));
    let long = "é".repeat(3 << 20);
    let cut = read(long.as_bytes(), Range::ALL, ReadLimits { max_line_bytes: 101, ..WIDE }).unwrap();
    assert_eq!(cut.text, format!("{} [… {} bytes in this line …]", "é".repeat(50), long.len()));
    assert_eq!((cut.cut_lines, cut.left_out, cut.total_lines), (1, 0, 1));
}

#[test]
fn every_kind_of_newline_is_shown_as_one_and_named() {
    for (file, newlines) in [
        (&b"a\nb\n"[..], Newlines::All(Newline::Lf)),
        (b"a\r\nb\r\n", Newlines::All(Newline::CrLf)),
        (b"a\rb\r", Newlines::All(Newline::Cr)),
        (b"a\r\nb\n", Newlines::Mixed),
    ] {
        let lines = read(file, Range::ALL, WIDE).unwrap();
        assert_eq!((lines.text.as_str(), lines.newlines, lines.total_lines), ("a\nb\n", newlines, 2));
        assert!(lines.final_newline);
    }
    let progress = read(b"10%\r20%\ndone\n", Range::ALL, WIDE).unwrap();
    assert_eq!((progress.text.as_str(), progress.total_lines), ("10%\r20%\ndone\n", 2), "a lone CR is no newline here");
}

#[test]
fn encodings_are_told_and_binary_is_refused() {
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain("ä\r\n🦀".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let lines = read(&utf16, Range::ALL, WIDE).unwrap();
    assert_eq!((lines.text.as_str(), lines.encoding), ("ä\n🦀", Encoding::Utf16Le));
    let bom = read("\u{feff}a".as_bytes(), Range::ALL, WIDE).unwrap();
    assert_eq!((bom.text.as_str(), bom.encoding), ("a", Encoding::Utf8 { bom: true }));
    let latin = read(b"caf\xe9\n", Range::ALL, WIDE).unwrap();
    assert_eq!((latin.text.as_str(), latin.encoding), ("caf\u{fffd}\n", Encoding::Unknown8Bit));
    for binary in [&b"\x89PNG\r\n\0"[..], &[vec![b'a'; 200_000], vec![0]].concat(), b"\xff\xfe\0\0a\0\0\0"] {
        assert!(matches!(read(binary, Range::ALL, WIDE), Err(Error::Unreadable { .. })));
    }
}

#[test]
fn a_file_as_large_as_a_disk_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    fs::File::create(dir.path().join("f")).unwrap().set_len(1 << 40).unwrap();
    let root = Root::open(dir.path()).unwrap();
    let place = Place::Inside("f".into());
    assert!(matches!(root.read_lines(&place, Range::ALL, WIDE), Err(Error::TooLarge { .. })));
    assert!(matches!(root.read_whole(&place, 1000), Err(Error::TooLarge { .. })));
}

/// What reading means, without chunks, streams and limits.
fn simple(text: &str, range: Range) -> (String, u64) {
    let text = if text.contains('\n') { text.replace("\r\n", "\n") } else { text.replace('\r', "\n") };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let wanted = lines.iter().zip(1..).filter(|(_, n)| *n >= range.from && range.to.is_none_or(|to| *n <= to));
    (wanted.map(|(line, _)| *line).collect(), lines.len() as u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn reading_is_what_it_says(
        pieces in prop::collection::vec(prop_oneof!["[a-zé🦀]{0,4}", Just("\n".to_owned()), Just("\r\n".to_owned()), Just("\r".to_owned())], 0..30),
        from in 1u64..8, length in 0u64..8, utf16 in any::<bool>(),
    ) {
        let text = pieces.concat();
        let range = Range { from, to: Some(from + length) };
        let bytes: Vec<u8> = if utf16 {
            [0xfe, 0xff].into_iter().chain(text.encode_utf16().flat_map(u16::to_be_bytes)).collect()
        } else {
            text.clone().into_bytes()
        };
        let lines = read(&bytes, range, WIDE).unwrap();
        let (expected, total) = simple(&text, range);
        prop_assert_eq!(&lines.text, &expected);
        prop_assert_eq!(lines.total_lines, total);
        prop_assert_eq!(lines.digest, Digest::of(&bytes));
    }

    #[test]
    fn no_limit_is_ever_passed(
        bytes in prop::collection::vec(1u8..=255, 0..3000), max_bytes in 0usize..400, max_lines in 0u64..9,
        max_line_bytes in 0usize..60,
    ) {
        let limits = ReadLimits { max_bytes, max_lines, max_line_bytes };
        if let Ok(lines) = read(&bytes, Range::ALL, limits) {
            prop_assert!(json_bytes(&lines.text) <= max_bytes);
            prop_assert!(lines.to <= max_lines);
            prop_assert_eq!(lines.to + lines.left_out, lines.total_lines);
        }
    }

    #[test]
    fn the_length_in_json_is_the_length_in_json(text in any::<String>()) {
        let quoted = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(json_bytes(&text), quoted.len() - 2, "{}", quoted);
    }
}
