use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Base64 of bytes that look random, and are the same every time.
fn base64(bytes: usize, start: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let noise = (0..bytes).scan(7_u32, |state, _| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(state.to_be_bytes()[0])
    });
    let data: Vec<u8> = start.iter().copied().chain(noise.skip(start.len())).collect();
    data.chunks(3)
        .flat_map(|group| {
            let bits = group.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - group.len()));
            (0..4).map(move |at| {
                let index = usize::try_from((bits >> (18 - 6 * at)) & 63).unwrap();
                if at > group.len() { '=' } else { char::from(ALPHABET[index]) }
            })
        })
        .collect()
}

fn wrapped(base64: &str, width: usize) -> String {
    base64.as_bytes().chunks(width).map(|line| format!("{}\n", str::from_utf8(line).unwrap())).collect()
}

fn cleaned(text: &str) -> String {
    text_of(text, Cleaning::Data)
}

fn text_of(text: &str, cleaning: Cleaning) -> String {
    let json = serde_json::to_string(text).unwrap();
    serde_json::from_str(&super::json(&json, cleaning)).unwrap()
}

#[test]
fn base64_becomes_a_reference() {
    let png = base64(30_000, b"\x89PNG\r\n\x1a\n");
    let noise = base64(1_000, b"");
    for (text, shown) in [
        (png.clone(), "[image image/png, 30,000 bytes]".to_owned()),
        (format!("before {noise} after"), "before [data, 1,000 bytes] after".to_owned()),
        (format!("key={noise}\n"), "key=[data, 1,000 bytes]\n".to_owned()),
        (
            format!("<img src=\"data:image/gif;base64,{}\">", base64(35, b"GIF89a")),
            "<img src=\"[image image/gif, 35 bytes]\">".to_owned(),
        ),
        (
            format!("url(data:font/woff2;charset=utf-8;base64,{noise})"),
            "url([data font/woff2, 1,000 bytes])".to_owned(),
        ),
        (
            format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", wrapped(&noise, 64)),
            "-----BEGIN CERTIFICATE-----\n[data, 1,000 bytes on 21 lines]\n-----END CERTIFICATE-----\n".to_owned(),
        ),
        (
            format!("a:\n{}Done.\n", wrapped(&base64(57 * 9, b""), 76)),
            "a:\n[data, 513 bytes on 9 lines]\nDone.\n".to_owned(),
        ),
        (format!("{noise}\nok\n{noise}"), "[data, 1,000 bytes]\nok\n[data, 1,000 bytes]".to_owned()),
    ] {
        assert_eq!(cleaned(&text), shown);
        assert_eq!(cleaned(&shown), shown);
    }
    assert_eq!(lines_taken("[data, 1 bytes on 21 lines] x [data, 1 bytes on 3 lines] rain on 7"), 22);
}

#[test]
fn words_paths_and_digests_stay() {
    let path =
        "/home/user/projects/myProject/nodeModules/someLibrary/distFiles/componentNames/".repeat(9).replace('.', "/");
    let list: String = (0..500).map(|number| format!("{number}\n")).collect();
    let words = "configuration\nEnvironment\nbase64\n".repeat(40);
    let hex = "0123456789abcdef".repeat(40);
    let integrity = format!("sha512-{}", base64(64, b""));
    for text in [path, list, words, hex, integrity, "x".repeat(5_000), "AbC1".repeat(40), "-".repeat(900)] {
        assert_eq!(cleaned(&text), text);
    }
}

#[test]
fn binaries_become_a_reference() {
    let noise: Vec<u8> = (0..2_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let with = |start: &[u8]| String::from_utf8_lossy(&[start, &noise].concat()).into_owned();
    let all = |text: &str| text_of(text, Cleaning::DataAndControl);
    assert!(all(&with(b"")).starts_with("[binary, about 1,"));
    assert_eq!(cleaned(&with(b"")), with(b""), "it may be text in another encoding");
    assert!(cleaned(&with(&[0; 200])).starts_with("[binary, about "));
    assert!(cleaned(&with(b"%PDF-1.7\n")).starts_with("[binary application/pdf, about 1,"));
    assert!(cleaned(&with(b"\x89PNG\r\n\x1a\n")).starts_with("[image image/png, "));
    let wide: String = "a log of forty characters, read wrongly\n".repeat(9).chars().flat_map(|c| [c, '\0']).collect();
    assert_eq!(cleaned(&wide), wide);
    assert_eq!(all(&wide), wide.replace('\0', ""));
    let latin = "Gr\u{fffd}\u{fffd}e aus M\u{fffd}nchen, sch\u{fffd}n hier ".repeat(9);
    assert_eq!(cleaned(&latin), latin);
}

#[test]
fn blocks_of_data_become_a_reference_however_small() {
    let png = base64(60, b"\x89PNG\r\n\x1a\n");
    let shown = "[image image/png, 60 bytes]";
    for (block, expected) in [
        (json!({ "type": "image", "data": png, "mimeType": "image/png" }), json!(shown)),
        (json!({ "data": png, "type": "image" }), json!(shown)),
        (
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": png } }),
            json!({ "type": "image", "source": shown }),
        ),
        (
            json!({ "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{png}") } }),
            json!({ "type": "image_url", "image_url": { "url": shown } }),
        ),
        (
            json!({ "content": [{ "type": "text", "text": "hi" }, { "type": "audio", "data": png, "mimeType": "audio/wav" }, 7] }),
            json!({ "content": [{ "type": "text", "text": "hi" }, "[audio audio/wav, 60 bytes]", 7] }),
        ),
        (
            json!({ "type": "resource", "resource": { "uri": "f:///a", "mimeType": "application/pdf", "blob": png } }),
            json!({ "type": "resource", "resource": "[data application/pdf, 60 bytes]" }),
        ),
    ] {
        let raw = block.to_string();
        assert_eq!(super::json(&raw, Cleaning::Data), expected.to_string());
        assert!(matches!(super::json(&expected.to_string(), Cleaning::Data), Cow::Borrowed(_)));
    }
    for other in [
        json!({ "type": "text", "data": "hello", "mimeType": "text/plain" }),
        json!({ "type": "image", "data": "a picture of a cat, in words" }),
        json!({ "type": "text", "data": "aGVsbG8gd29ybGQ=", "mimeType": "text/plain" }),
        json!({ "type": ["image"], "data": 7 }),
    ] {
        assert!(matches!(super::json(&other.to_string(), Cleaning::Data), Cow::Borrowed(_)), "{other}");
    }
}

#[test]
fn control_goes_where_it_is_asked_to() {
    let raw = r#"{"a":"\u001b[31mred\u001b[0m\u0000","b":"\ud800 half","c":"\t\n\"\\ \ud83d\ude00"}"#;
    assert!(matches!(json(raw, Cleaning::Data), Cow::Borrowed(_)));
    let clean = json(raw, Cleaning::DataAndControl);
    assert_eq!(clean, "{\"a\":\"red\",\"b\":\"\u{fffd} half\",\"c\":\"\\t\\n\\\"\\\\ \\ud83d\\ude00\"}");
    assert!(matches!(json(&clean, Cleaning::DataAndControl), Cow::Borrowed(_)));
}

proptest! {
    #[test]
    fn nothing_of_a_run_is_left(
        before in "[ -~\n]{0,80}", bytes in 200_usize..2_000, after in "[ -~\n]{0,80}", width in 0_usize..3
    ) {
        let run = base64(bytes, b"");
        let run = match width {
            0 => run,
            1 => wrapped(&run, 64),
            _ => wrapped(&run, 76),
        };
        let clean = cleaned(&format!("{before} {run} {after}"));
        prop_assert!(clean.len() <= before.len() + after.len() + 2 * 78 + 60, "{}", clean);
    }

    #[test]
    fn cleaning_twice_is_cleaning_once(text in "([A-Za-z0-9+/=_-]{1,90}|[ \n\r\\x00\\x1b\"]|;base64,|data:a/b|é|\u{fffd}){0,60}") {
        for cleaning in [Cleaning::Data, Cleaning::DataAndControl] {
            let raw = quoted(&text);
            let once = json(&raw, cleaning).into_owned();
            prop_assert!(super::super::scan::is_json(&once));
            prop_assert_eq!(&*json(&once, cleaning), once.as_str());
        }
    }
}
