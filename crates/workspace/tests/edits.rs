//! Edits: every byte outside what is replaced stays as it was.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use longrein_workspace::{Argument, EDIT_MAX_BYTES, EditError, Edited, Encoding, How, Matches, apply};
use proptest::prelude::*;

fn one(bytes: &[u8], old: &str, new: &str) -> Result<Edited, EditError> {
    apply(bytes, old, new, Matches::One)
}

#[track_caller]
fn check(before: &[u8], old: &str, new: &str, after: &[u8], how: How) {
    let edited = one(before, old, new).unwrap();
    assert_eq!(edited.bytes.escape_ascii().to_string(), after.escape_ascii().to_string());
    assert_eq!(edited.how, how);
}

fn utf16le(text: &str) -> Vec<u8> {
    [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
}

fn utf16be(text: &str) -> Vec<u8> {
    [0xfe, 0xff].into_iter().chain(text.encode_utf16().flat_map(u16::to_be_bytes)).collect()
}

#[test]
fn lines_are_found_however_they_end_and_the_new_ones_end_alike() {
    check(b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n", How::Newlines);
    check(b"a\nb\nc", "a\r\nb", "x\r\ny", b"x\ny\nc", How::Newlines);
    check(b"a\rb\rc\r", "a\nb", "x\ny\nz", b"x\ry\rz\rc\r", How::Newlines);
    // a piece of two lines, not whole ones
    check(b"one two\r\nthree four\r\n", "two\nthree", "2\n3\n", b"one 2\r\n3\r\n four\r\n", How::Newlines);
    // mixed: as the replaced lines end
    check(b"a\nb\r\nc\r\nd\n", "b\nc", "x\ny\nz", b"a\nx\r\ny\r\nz\r\nd\n", How::Newlines);
    check(b"a\nb\nc\r\n", "a\nb", "x\ny", b"x\ny\nc\r\n", How::Exact);
}

#[test]
fn a_line_added_to_a_file_ends_as_its_lines_do() {
    check(b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n", How::Exact);
    check(b"a\r\nb", "b", "b\nc", b"a\r\nb\r\nc", How::Exact);
    check(b"a\rb\r", "b", "b\nc", b"a\rb\rc\r", How::Exact);
    check(&utf16le("a\r\nb\r\n"), "b", "b\nc", &utf16le("a\r\nb\r\nc\r\n"), How::Exact);
}

#[test]
fn a_newline_that_starts_what_is_replaced_is_taken_whole() {
    for file in [|text: &str| text.as_bytes().to_vec(), utf16le, utf16be] {
        let before = file("one\r\ntwo\r\nthree\r\n");
        check(&before, "\ntwo", "\nTWO", &file("one\r\nTWO\r\nthree\r\n"), How::Newlines);
        check(&before, "\ntwo", "", &file("one\r\nthree\r\n"), How::Newlines);
        let all = apply(&before, "\n", "\n\n", Matches::All).unwrap();
        assert_eq!((all.bytes, all.count), (file("one\r\n\r\ntwo\r\n\r\nthree\r\n\r\n"), 3));
        // where carriage returns are spelled too
        check(&before, "\ntwo\r\nt", "\nT", &file("one\r\nThree\r\n"), How::Newlines);
    }
}

#[test]
fn places_that_read_the_same_are_the_same_however_their_lines_end() {
    let file = b"k\nx\nz\r\nk\r\nx\r\n";
    let error = one(file, "k\nx", "K\nX").unwrap_err();
    assert_eq!(error, EditError::Several { count: 2, lines: vec![1, 4], how: How::Newlines });
    let all = apply(file, "k\nx", "K\nX", Matches::All).unwrap();
    assert_eq!((all.bytes.as_slice(), all.count), (&b"K\nX\nz\r\nK\r\nX\r\n"[..], 2));
    // who spells carriage returns means them
    check(file, "k\r\nx", "K\r\nX", b"k\nx\nz\r\nK\r\nX\r\n", How::Exact);
}

#[test]
fn newlines_can_be_changed_by_saying_so() {
    check(b"a\nb\r\n", "a\nb\n", "a\r\nb\r\n", b"a\r\nb\r\n", How::Newlines);
    check(b"a\r\nb\r\n", "a\r\nb\r\n", "a\nb\n", b"a\nb\n", How::Exact);
    check(b"a\nb\n", "a\nb\n", "a\r\nb\r\n", b"a\r\nb\r\n", How::Exact);
}

#[test]
fn a_final_newline_is_neither_added_nor_lost() {
    check(b"a\nb", "b", "c", b"a\nc", How::Exact);
    check(b"a\nb\n", "b", "c", b"a\nc\n", How::Exact);
    check(b"a\nb", "b\n", "c\n", b"a\nc", How::Whitespace);
}

#[test]
fn byte_order_marks_and_utf16_stay() {
    check("\u{feff}a b".as_bytes(), "a", "ä", "\u{feff}ä b".as_bytes(), How::Exact);
    for file in [utf16le, utf16be] {
        check(&file("grün\r\nblau\r\n"), "blau", "weiß 🦀", &file("grün\r\nweiß 🦀\r\n"), How::Exact);
        check(&file("a\r\nb\r\n"), "a\nb\n", "c\n", &file("c\r\n"), How::Newlines);
    }
    // what is no text stays too: a lone surrogate, and half a unit at the end
    let odd = |word: &str| [&utf16le(word)[..], &[0x00, 0xd8, 0x41]].concat();
    check(&odd("word "), "word", "other", &odd("other "), How::Exact);
}

#[test]
fn a_match_in_utf16_starts_at_a_unit() {
    // the bytes of "a" (61 00) stand across two units of "愀\u{100}" too (00 61 | 00 01)
    check(&utf16le("愀Ā a"), "a", "b", &utf16le("愀Ā b"), How::Exact);
}

#[test]
fn ascii_can_be_edited_whatever_the_bytes_around_it_are() {
    let all: Vec<u8> = (1..=255).collect();
    let file = |word: &str| [&all, word.as_bytes(), &all].concat();
    check(&file("hello world"), "hello", "goodbye", &file("goodbye world"), How::Exact);
    check(b"caf\xe9\nna\xefve\n", "\nna", "\nNA", b"caf\xe9\nNA\xefve\n", How::Exact);
    // Shift_JIS: the second byte of 表 is a backslash
    let sjis = |word: &str| [b"\x95\x5c = ", word.as_bytes(), b"\n"].concat();
    check(&sjis("one"), "one", "two", &sjis("two"), How::Exact);
}

#[test]
fn what_an_unknown_encoding_would_have_to_say_is_refused() {
    assert_eq!(one(b"caf\xe9 x", "x", "\u{fc}"), Err(EditError::NotAscii { found: 'ü', argument: Argument::New }));
    assert_eq!(one(b"caf\xe9 x", "caf\u{e9}", "tea"), Err(EditError::NotAscii { found: 'é', argument: Argument::Old }));
    // the only backslash is half of a character
    let error = one(b"\x95\x5c = 1\n", "\\ = 1", "2").unwrap_err();
    assert!(matches!(error, EditError::InsideCharacter { line: 1, encoding: "Shift_JIS" }), "{error:?}");
}

#[test]
fn what_cannot_be_an_edit_says_so() {
    assert_eq!(one(b"abc", "", "x"), Err(EditError::EmptyOld));
    assert_eq!(one(b"abc", "a", "a"), Err(EditError::Same));
    assert_eq!(one(b"a\r\nb", "a\nb", "a\r\nb"), Err(EditError::Same), "but for newlines, it says that already");
    assert!(matches!(one(b"\x7fELF\0\0a", "a", "b"), Err(EditError::Unreadable(_))));
    assert!(matches!(one(b"\xff\xfe\0\0a\0\0\0", "a", "b"), Err(EditError::Unreadable(_))));
    let large = vec![b'a'; usize::try_from(EDIT_MAX_BYTES).unwrap() + 1];
    assert!(matches!(one(&large, "b", "c"), Err(EditError::TooLarge { .. })));
}

#[test]
fn several_places_are_named_and_all_can_be_asked_for() {
    let file = b"x = 1\ny = 2\nx = 1\n";
    let error = one(file, "x = 1", "x = 2").unwrap_err();
    assert_eq!(error, EditError::Several { count: 2, lines: vec![1, 3], how: How::Exact });
    let all = apply(file, "x = 1", "x = 2", Matches::All).unwrap();
    assert_eq!((all.bytes.as_slice(), all.count), (&b"x = 2\ny = 2\nx = 2\n"[..], 2));
    let crlf = apply(b"a\r\nb\r\na\r\nb\r\n", "a\nb\n", "c\n", Matches::All).unwrap();
    assert_eq!((crlf.bytes.as_slice(), crlf.count), (&b"c\r\nc\r\n"[..], 2));
    let error = one(b"a\r\nb\r\na\r\nb\r\n", "a\nb\n", "c\n").unwrap_err();
    assert_eq!(error, EditError::Several { count: 2, lines: vec![1, 3], how: How::Newlines });
}

#[test]
fn white_space_is_overlooked_only_where_one_place_is_meant() {
    check(b"fn f() {   \n    g();\n}\n", "fn f() {\n    g();\n", "fn h() {\n", b"fn h() {\n}\n", How::Whitespace);
    // further in than written: so is the new text
    check(
        b"mod m {\n    fn f() {\n        g();\n    }\n}\n",
        "fn f() {\n    g();\n}\n",
        "fn f() {\n    if x {\n        g();\n    }\n}\n",
        b"mod m {\n    fn f() {\n        if x {\n            g();\n        }\n    }\n}\n",
        How::Whitespace,
    );
    // tabs where spaces were written
    check(
        b"all:\n\tcc a.c\n\tcc b.c\n",
        "all:\n    cc a.c\n    cc b.c",
        "all:\n    cc a.c\n    cc c.c",
        b"all:\n\tcc a.c\n\tcc c.c\n",
        How::Whitespace,
    );
    let error = apply(b"  a  b\n\ta b\n", "a b\n", "c\n", Matches::All);
    assert!(error.is_ok(), "the exact one wins: {error:?}");
    let error = apply(b"a  b\n\ta   b\n", "a b\n", "c\n", Matches::All).unwrap_err();
    assert_eq!(error, EditError::Several { count: 2, lines: vec![1, 2], how: How::Whitespace });
}

#[test]
fn where_the_indentation_of_the_new_lines_does_not_follow_nothing_is_guessed() {
    // a depth nobody has shown, in a file of tabs
    let error = one(b"if a:\n\tb()\n", "if a:\n    b()", "if a:\n    if c:\n        b()").unwrap_err();
    assert!(matches!(error, EditError::NotFound { .. }), "{error:?}");
    assert!(matches!(one(b"a\n\n\nb\n", " \n \n", "x\n"), Err(EditError::NotFound { .. })), "blank lines are anywhere");
}

#[test]
fn a_text_that_is_not_there_brings_the_lines_nearest_to_it() {
    let file = b"fn alpha() {}\nfn beta(x: u32) -> u32 { x + 1 }\nfn gamma() {}\n";
    let EditError::NotFound { nearest } = one(file, "fn beta(x: u64) -> u64 { x + 1 }", "").unwrap_err() else {
        panic!("it is not there")
    };
    assert_eq!(nearest[0].lines, (2, 2));
    assert_eq!(nearest[0].excerpt, "2: fn beta(x: u32) -> u32 { x + 1 }");
    assert_eq!(one(b"abc\n", "nothing like that", ""), Err(EditError::NotFound { nearest: Vec::new() }));
}

/// Pieces that are text in every encoding tried here, and troublesome.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab]{0,3}",
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("\r".to_owned()),
        Just("  \t".to_owned()),
        Just("é".to_owned()),
        Just("🦀".to_owned()),
        Just("愀Ā".to_owned()),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..12).prop_map(|pieces| pieces.concat())
}

fn encoded(text: &str, how: u8) -> Vec<u8> {
    match how {
        0 => text.as_bytes().to_vec(),
        1 => format!("\u{feff}{text}").into_bytes(),
        2 => utf16le(text),
        _ => utf16be(text),
    }
}

fn decoded(bytes: &[u8], how: u8) -> String {
    let units = |of: fn([u8; 2]) -> u16| bytes[2..].as_chunks().0.iter().copied().map(of).collect::<Vec<_>>();
    match how {
        0 => String::from_utf8(bytes.to_vec()).unwrap(),
        1 => String::from_utf8(bytes[3..].to_vec()).unwrap(),
        2 => String::from_utf16(&units(u16::from_le_bytes)).unwrap(),
        _ => String::from_utf16(&units(u16::from_be_bytes)).unwrap(),
    }
}

/// That everything outside the regions an edit names is as it was.
fn outside_is_equal(before: &[u8], edited: &Edited) -> Result<(), TestCaseError> {
    let mut rest = edited.bytes.as_slice();
    let mut from = 0;
    for (index, region) in edited.replaced.iter().enumerate() {
        let kept = &before[from..region.start];
        prop_assert!(rest.starts_with(kept));
        // the next kept stretch is where the replaced one ended in the new bytes; all replacements have the same length
        let kept_all: usize = before.len() - edited.replaced.iter().map(|region| region.len()).sum::<usize>();
        let inserted = (edited.bytes.len() - kept_all) / edited.replaced.len();
        rest = &rest[kept.len()..];
        prop_assert!(rest.len() >= inserted, "replacement {index} is whole");
        rest = &rest[inserted..];
        from = region.end;
    }
    prop_assert_eq!(rest, &before[from..]);
    Ok(())
}

/// Lines and how each of them ends: all with the same, or with LF and CRLF.
fn lines() -> impl Strategy<Value = Vec<(String, &'static str)>> {
    let endings = prop_oneof![Just(vec!["\n"]), Just(vec!["\r\n"]), Just(vec!["\r"]), Just(vec!["\n", "\r\n"]),];
    endings.prop_flat_map(|endings| prop::collection::vec(("[ab é🦀]{0,2}", prop::sample::select(endings)), 1..8))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn an_edit_of_the_file_is_the_edit_of_its_text_as_it_is_read(
        lines in lines(), from in any::<prop::sample::Index>(), length in 1usize..9, new in "[ab\n]{0,4}",
        how in 0u8..4, all in any::<bool>(),
    ) {
        let written: String = lines.iter().flat_map(|(line, newline)| [line.as_str(), newline]).collect();
        let read: String = lines.iter().flat_map(|(line, _)| [line.as_str(), "\n"]).collect();
        let old: String = read.chars().skip(from.index(read.chars().count())).take(length).collect();
        let file = encoded(&written, how);
        let places = read.matches(&old).count();
        let edited = match apply(&file, &old, &new, if all { Matches::All } else { Matches::One }) {
            Ok(edited) => edited,
            Err(EditError::Same) => {
                prop_assert_eq!(old, new);
                return Ok(());
            }
            Err(EditError::Several { count, .. }) => {
                prop_assert!(!all && places > 1);
                prop_assert_eq!(count, places);
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(edited.count, places);
        prop_assert!(all || places == 1);
        let text = decoded(&edited.bytes, how);
        let kinds: Vec<&str> = lines.iter().map(|(_, newline)| *newline).collect();
        let as_read = if kinds.contains(&"\r") { text.replace('\r', "\n") } else { text.replace("\r\n", "\n") };
        prop_assert_eq!(as_read, read.replace(&old, &new));
        // no kind of newline that the file had not
        let rest = text.replace("\r\n", "");
        prop_assert!(rest.len() == text.len() || kinds.contains(&"\r\n"));
        prop_assert!(!rest.contains('\n') || kinds.contains(&"\n"));
        prop_assert!(!rest.contains('\r') || kinds.contains(&"\r"));
    }

    #[test]
    fn an_edit_changes_nothing_outside_it(
        before in text(), old in text(), after in text(), new in text(), how in 0u8..4, loose in any::<bool>(),
    ) {
        let file = encoded(&format!("{before}{old}{after}"), how);
        // as a model would write it, which saw line feeds only
        let old = if loose { old.replace("\r\n", "\n") } else { old };
        match one(&file, &old, &new) {
            Ok(edited) => {
                outside_is_equal(&file, &edited)?;
                prop_assert_eq!(edited.count, 1);
                if how == 1 {
                    let mark = "\u{feff}".as_bytes();
                    prop_assert!(edited.bytes.starts_with(mark));
                }
            }
            // spelled so, it starts with half of a newline
            Err(EditError::NotFound { .. }) if before.ends_with('\r') && old.starts_with('\n') => {}
            Err(EditError::NotFound { .. }) => prop_assert!(loose, "what is there is found"),
            Err(EditError::EmptyOld) => prop_assert!(old.is_empty()),
            Err(EditError::Same | EditError::Several { .. }) => {}
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn all_replaces_every_place_and_nothing_else(pieces in prop::collection::vec(piece(), 1..12), how in 0u8..4) {
        let file = encoded(&pieces.join("WORD"), how);
        if let Ok(edited) = apply(&file, "WORD", "ü", Matches::All) {
            prop_assert_eq!(edited.count, pieces.len() - 1);
            prop_assert_eq!(edited.bytes, encoded(&pieces.join("ü"), how));
        }
    }

    #[test]
    fn any_bytes_take_an_ascii_edit_or_are_left_alone(
        before in prop::collection::vec(any::<u8>(), 0..40), after in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let file = [&before[..], b" word ", &after].concat();
        match one(&file, " word ", " other ") {
            Ok(edited) => prop_assert_eq!(edited.bytes, [&before[..], b" other ", &after].concat()),
            Err(EditError::Unreadable(_)) => prop_assert!(file.contains(&0)),
            // UTF-16 by its mark, or half a character of a double-byte encoding before the space
            Err(EditError::NotFound { .. }) => prop_assert!(file.starts_with(b"\xff\xfe") || file.starts_with(b"\xfe\xff")),
            Err(EditError::InsideCharacter { .. }) => prop_assert!(before.last().is_some_and(|last| *last >= 0x80)),
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn nothing_makes_it_panic(file in prop::collection::vec(any::<u8>(), 0..60), old in ".{0,8}", new in ".{0,8}") {
        if let Ok(edited) = one(&file, &old, &new) {
            outside_is_equal(&file, &edited)?;
            prop_assert!(edited.encoding != Encoding::Unknown8Bit || new.is_ascii());
        }
    }
}
