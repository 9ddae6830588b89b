//! At the boundary: what comes in, what is shown.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

#[track_caller]
fn shown(content: &Value, bytes_max: usize) -> Value {
    previewed(&content.to_string(), bytes_max)
}

#[track_caller]
fn previewed(raw: &str, bytes_max: usize) -> Value {
    let shown = bounded(raw, bytes_max);
    serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

/// What must hold of every preview.
#[track_caller]
fn bounded(raw: &str, bytes_max: usize) -> String {
    let content = Payload::parse(raw).unwrap();
    let shown = preview(&content, bytes_max);
    assert!(shown.as_str().len() <= bytes_max, "{} > {bytes_max}: {shown:?}", shown.as_str().len());
    assert_eq!(preview(&shown, bytes_max), shown, "a preview's own preview is itself");
    let clean = data::json(raw, Cleaning::DataAndControl);
    if !clean.trim_start().starts_with('{') && clean.len() > bytes_max {
        assert!(shown.as_str().starts_with('"'), "{shown:?}");
    }
    shown.as_str().to_owned()
}

#[test]
fn what_fits_is_shown_as_it_is() {
    for raw in ["\"\"", "\"x\"", "0", "null", "[]", "{}", r#"{"a":[1,2.50,1e400]}"#, "\"two\\nlines\"", "[\"a\",{}]"] {
        assert_eq!(bounded(raw, 160), raw);
    }
    assert_eq!(bounded(r#""\u001b[1mbold\u001b[0m\u0000""#, 160), "\"bold\"");
}

#[test]
fn a_result_of_the_shell_keeps_its_keys() {
    let output: String = (0..9_000).map(|n| format!("compiling unit {n}\n")).collect();
    let output = output + "error[E0308]: mismatched types\n" + &"note\n".repeat(900);
    let result =
        json!({ "stdout": output, "stderr": "warning: x\n".repeat(900), "exit_status": 101, "duration_ms": 12 });
    let shown = shown(&result, 4_000);
    let keys: Vec<_> = shown.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["stdout", "stderr", "exit_status", "duration_ms"]);
    assert_eq!((&shown["exit_status"], &shown["duration_ms"]), (&json!(101), &json!(12)));
    let stdout = shown["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("compiling unit 0\n") && stdout.ends_with("note\n"), "{stdout}");
    assert!(stdout.contains("\n9,001: error[E0308]: mismatched types\n"), "{stdout}");
    assert!(stdout.len() > 1_200 && shown["stderr"].as_str().unwrap().contains(" bytes left out, lines "), "{shown}");
}

#[test]
fn scalars_that_tell_survive_everything_else() {
    let mut result = Map::new();
    for n in 0..500 {
        result.insert(format!("key{n}"), json!("x".repeat(400)));
    }
    result.insert("error".to_owned(), json!("disk full"));
    result.insert("exit_status".to_owned(), json!(7));
    let shown = shown(&Value::Object(result), 1_000);
    assert_eq!((&shown["error"], &shown["exit_status"]), (&json!("disk full"), &json!(7)));
    assert!(shown["key0"].is_string() && shown["…"].as_str().unwrap().contains("of 502 keys left out"), "{shown}");
}

#[test]
fn a_list_of_records_shows_its_shape() {
    let records: Vec<Value> = (0..5_000)
        .map(|n| {
            let status = if n % 10 == 0 { "failed" } else { "ok" };
            let mut record = json!({ "id": n, "name": format!("record {n}"), "status": status, "tags": ["a", "b"] });
            if n % 2 == 0 {
                record["note"] = Value::Null;
            }
            record
        })
        .collect();
    let list = json!(records);
    let as_array = shown(&list, 2_000);
    let as_text = shown(&json!(list.to_string()), 2_000);
    let lines = records.iter().map(|record| format!("{record}\n")).collect::<String>();
    let as_lines = shown(&json!(lines), 2_000);
    let pretty = shown(&json!(serde_json::to_string_pretty(&list).unwrap()), 2_000);
    assert_eq!(as_array, as_text);
    assert_eq!(as_array, pretty);
    for (shown, title) in [(&as_array, "[array of 5,000 elements, "), (&as_lines, "[5,000 lines of JSON, ")] {
        let text = shown.as_str().unwrap();
        assert!(text.starts_with(title), "{text}");
        for part in [
            "\n{\"id\":0,\"name\":\"record 0\",\"status\":\"failed\",",
            " left out …]\n",
            "\n{\"id\":4999,\"name\":\"record 4999\"",
            "\n[fields of 5,000 objects]\n",
            "\nid: number; 0 to 4999\n",
            "\nname: string\n",
            "\nstatus: string; \"failed\" ×500, \"ok\" ×4,500\n",
            "\ntags: array; [\"a\",\"b\"] ×5,000\n",
            "\nnote: null in 2,500; null ×2,500",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

#[test]
fn lists_within_objects_are_described_or_sampled() {
    let result = json!({ "items": (0..900).map(|n| json!({ "n": n, "text": "word ".repeat(20) })).collect::<Vec<_>>(), "next": "p2" });
    let shown_large = shown(&result, 3_000);
    let items = shown_large["items"].as_str().unwrap();
    assert!(items.starts_with("[array of 900 elements, ") && items.contains("\nn: number; 0 to 899\n"), "{items}");
    assert_eq!(shown_large["next"], "p2");
    let shown_small = shown(&result, 260);
    let items = shown_small["items"].as_array().unwrap();
    assert!(
        items.iter().any(|item| item.as_str().is_some_and(|text| text.contains("of 900 elements left out"))),
        "{shown_small}"
    );
    assert_eq!(shown_small["next"], "p2");
}

#[test]
fn numbers_and_mixed_lists() {
    let numbers: Vec<u32> = (0..9_000).collect();
    let shown_numbers = shown(&json!(numbers), 500);
    let text = shown_numbers.as_str().unwrap();
    assert!(text.contains("[values] number; 0 to 8999"), "{text}");
    let mixed: Vec<Value> = (0..900).map(|n| if n % 2 == 0 { json!({ "a": n }) } else { json!("x") }).collect();
    let shown_mixed = shown(&json!(mixed), 500);
    let text = shown_mixed.as_str().unwrap();
    assert!(
        text.contains("[values] object ×450, string ×450") && text.contains("[fields of 450 objects]\na: number"),
        "{text}"
    );
}

#[test]
fn pages_are_read() {
    let page = format!(
        "<!doctype html><html><script>{}</script><body>{}",
        "x".repeat(9_000),
        "<p>Read <a href=\"/y\">this</a>.</p>\n".repeat(900)
    );
    let shown = shown(&json!(page), 1_000);
    let text = shown.as_str().unwrap();
    assert!(text.starts_with("[a web page as text, ") && text.contains("Read this.\nRead this.\n"), "{text}");
    assert!(!text.contains("xxx") && !text.contains("lines "), "{text}");
}

#[test]
fn data_is_never_shown() {
    let noise: String = (0..9_000_u32)
        .map(|n| char::from(b"Ab3dEfG7iJkL9nOp+QrStU5w"[(n.wrapping_mul(2_654_435_761) >> 20) as usize % 24]))
        .collect();
    for content in [
        json!(noise),
        json!({ "text": format!("before {noise} after"), "exit_status": 0 }),
        json!([{ "type": "image", "mimeType": "image/png", "data": noise }]),
        json!({ "deep": [[[{ "url": format!("data:image/png;base64,{noise}") }]]] }),
    ] {
        for bytes_max in [160, 1_000, 100_000] {
            let text = shown(&content, bytes_max).to_string();
            assert!(!text.contains(&noise[100..140]) && text.contains(" bytes]"), "{text}");
        }
        let clean = cleaned(&Payload::of(&content).unwrap()).unwrap();
        assert!(clean.as_str().len() < 200 && cleaned(&clean).is_none(), "{clean:?}");
    }
    for small in [json!("text"), json!({ "a": [1, null, "\u{1b}[31mred"] }), json!(0)] {
        assert_eq!(cleaned(&Payload::of(&small).unwrap()), None);
    }
}

#[test]
fn what_no_reader_expects() {
    let deep = 100_000;
    let number = "9".repeat(1_000_000);
    let duplicates = format!("{{{}\"a\":1}}", "\"a\":\"first\",".repeat(50_000));
    for raw in [
        format!("{}{}", "[".repeat(deep), "]".repeat(deep)),
        format!("{}1{}", "{\"a\":".repeat(deep), "}".repeat(deep)),
        format!("{}1{}", "{\"type\":\"image\",\"data\":\"AAAAAAAAAAAA\",\"a\":".repeat(9_000), "}".repeat(9_000)),
        format!("[{}1{},2]", "[{\"a\":".repeat(deep), "}]".repeat(deep)),
        serde_json::to_string(&format!("{}{}", "[".repeat(deep), "]".repeat(deep))).unwrap(),
        number.clone(),
        format!("-{number}e-{number}"),
        format!("[{number},{number},1,2,3]"),
        format!("{{\"n\":{number}}}"),
        duplicates.clone(),
        format!("{{\"{}\":1}}", "k".repeat(1_000_000)),
        format!("\"{}\"", "\\ud800".repeat(60_000)),
        format!("{{\"a\":\"{}\"}}", "\\udfff\\u0000".repeat(100_000)),
        format!("\"{}\"", "\\u0001".repeat(100_000)),
        format!("\"{}\"", "\\\\\\\"".repeat(100_000)),
        format!("\"{}\"", "<a \\\"".repeat(60_000)),
        format!("[{}0]", "{},[],\"\",".repeat(100_000)),
        format!("{{{}\"z\":0}}", (0..100_000).map(|n| format!("\"{n}\":{n},")).collect::<String>()),
        format!(" {{ \"a\" :\n [ {} 1 ] }} ", "1 ,\n".repeat(100_000)),
    ] {
        for bytes_max in [2, 30, 160, 8_192] {
            bounded(&raw, bytes_max);
        }
    }
    assert_eq!(previewed(&duplicates, 160), json!({ "a": 1 }));
}

/// Ten times as much takes about ten times as long. Bounds are wide: other work is going on.
#[test]
fn growth_is_linear() {
    let line = "2026-01-02 03:04:05 INFO worker 17: request finished in 12 ms, status 200\n";
    let record = "{\"id\":12345,\"name\":\"some name\",\"ok\":true,\"tags\":[\"a\",\"b\"],\"at\":\"2026-01-02\"},";
    let page = "<div class=\"a\"><p>Some words <a href='x'>linked</a></p></div>\n";
    let hostile = "<a \">&#<!-- </script <script data:;base64,A\n";
    for (name, piece, wrap) in [
        ("lines", line, ("", "")),
        ("one line", "some words, ", ("", "")),
        ("records", record, ("[", "0]")),
        ("page", page, ("<!doctype html>", "")),
        ("hostile page", hostile, ("<!doctype html>", "")),
        ("base64", "QUJDRGVmZ2hpSktMTU5PUFFSU1RVVldYWVphYmNkZWZn", ("", "")),
        ("nearly base64", "QUJDRGVmZ2hpSktMTU5PUFFSU1RVVldYWVphYmNkZWZn\nx ", ("", "")),
        ("nested", "{\"type\":\"a\",\"data\":\"AAAABBBB\",\"b\":[[", ("", "")),
    ] {
        let took = |bytes: usize| {
            let text = format!("{}{}{}", wrap.0, piece.repeat(bytes / piece.len()), wrap.1);
            let content = Payload::string(&text);
            let fastest = (0..2).map(|_| {
                let began = Instant::now();
                preview(&content, 8_192);
                began.elapsed()
            });
            fastest.min().unwrap_or_default()
        };
        let (small, large) = (took(100_000), took(1_000_000));
        eprintln!("{name}: {small:?}, {large:?}");
        assert!(large < small * 40 + Duration::from_millis(50), "{name}: {small:?} then {large:?}");
    }
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        "[a-z ]{0,40}\n",
        prop::sample::select(vec![
            "error: x\n",
            "\u{1b}[31m",
            "\0",
            "\u{fffd}",
            "\"",
            "\\",
            "<p>",
            "<!doctype html>",
            "{\"a\":1}\n",
            "[1,2]",
            "data:a/b;base64,",
        ])
        .prop_map(str::to_owned),
        ("[a-zA-Z0-9+/\u{fffd}]{1,9}", 1_usize..90).prop_map(|(piece, times)| piece.repeat(times)),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 200, 12, |inner| {
        let key = prop_oneof![
            "[a-z]{1,6}",
            any::<String>(),
            prop::sample::select(vec!["type", "data", "mimeType", "error", "status", "…"]).prop_map(str::to_owned),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..12).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_value_is_bounded(value in value(), bytes_max in prop_oneof![2_usize..200, 200_usize..4_000]) {
        let raw = value.to_string();
        let shown = previewed(&raw, bytes_max);
        if let (Value::Object(all), true) = (&value, bytes_max >= 160) {
            let is_block = shown.is_string();
            let kept = shown.as_object();
            prop_assert!(is_block || kept.is_some_and(|kept| kept.keys().all(|key| key == "…" || all.contains_key(key))), "{shown}");
        }
    }

    #[test]
    fn json_in_text_is_bounded(value in value(), indented in any::<bool>(), bytes_max in 160_usize..3_000) {
        let text = if indented { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
        bounded(&json!(text).to_string(), bytes_max);
        bounded(&json!({ "output": text, "exit_status": 3 }).to_string(), bytes_max);
    }
}

#[test]
fn a_smaller_preview_of_the_whole_names_its_lines() {
    let output: String = (1..=3_000).map(|n| format!("row {n} of the dump\n")).collect();
    let whole = Payload::of(&json!({ "status": 0, "output_lines": 3_000, "output": output })).unwrap();
    for max in [16_384, 1_323] {
        let shown = preview(&whole, max);
        let (_, note) = shown.as_str().split_once("left out, lines ").expect("a gap");
        let (note, after) = note.split_once(" …]\\nrow ").expect("its end");
        let next: usize = after.split(' ').next().unwrap().parse().unwrap();
        assert!(note.ends_with(&format!("–{}", super::cost::grouped(next - 1))), "{max}: {note} before {next}");
    }
}
