//! What is left of a call's arguments when the details are taken out that a model changes without meaning anything: case,
//! spaces, times, random ids, and counts of its own tries. Other numbers stay: page 2 is not page 1, though both may be empty.

/// Names of arguments that only count or tell calls apart.
const COUNTS: [&str; 18] = [
    "attempt",
    "attempts",
    "try",
    "tries",
    "retry",
    "retries",
    "retry_count",
    "counter",
    "iteration",
    "nonce",
    "request_id",
    "req_id",
    "trace_id",
    "call_id",
    "timestamp",
    "time",
    "ts",
    "now",
];

/// Arguments, as JSON, without such details.
pub(super) fn without_details(args: &str) -> String {
    let mut shape = String::with_capacity(args.len());
    let mut name = String::new();
    let mut rest = args;
    while let Some(c) = rest.chars().next() {
        let run = rest.find(|c: char| !is_of_run(c)).unwrap_or(rest.len());
        // Between a name and its value it is no part of a time.
        if run == 0 || c == ':' {
            shape.extend(c.to_lowercase());
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(run);
        let word = word.to_lowercase();
        let is_name = after.starts_with("\":");
        let counts = COUNTS.contains(&name.as_str()) && word.contains(|c: char| c.is_ascii_digit());
        if !is_name && (counts || is_volatile(&word)) {
            shape.push('#');
        } else {
            shape.push_str(&word);
        }
        if is_name {
            name = word;
        }
        rest = after;
    }
    without_spaces(&shape)
}

/// What times, numbers, ids and names are written with.
fn is_of_run(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '+' | '_' | '-')
}

/// A point in time, or an id that was drawn at random.
fn is_volatile(word: &str) -> bool {
    // Digits as 9, so that a form can be compared.
    let form: String = word.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    let is_moment =
        form.starts_with("9999-99-99t99:99") || ["99:99:99", "9:99:99"].iter().any(|time| form.starts_with(time));
    let whole = word.split('.').next().unwrap_or_default();
    let is_epoch = (10..=19).contains(&whole.len())
        && whole.starts_with('1')
        && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit()) && text.contains(|c: char| c.is_ascii_digit());
    let is_uuid = word.len() == 36 && word.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && hex(&word.replace('-', ""));
    is_moment || is_epoch || is_uuid || (word.len() >= 16 && hex(word))
}

/// The result of a command without the time it took. None: it is no such result.
pub(super) fn without_duration(result: &str) -> Option<String> {
    let (before, after) = result.split_once("\"duration_ms\":")?;
    Some(format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit())))
}

/// A message of an error, with all words alike that have a digit in them.
pub(super) fn without_numbers(text: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, ':' | '.' | '+' | '_' | '-');
    let mut shape = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end.max(c.len_utf8()));
        shape.push_str(if word.contains(char::is_numeric) { "#" } else { word });
        rest = after;
    }
    without_spaces(&shape.to_lowercase())
}

/// A text without what spaces may differ in. Line breaks in a JSON text are written out, and are spaces too.
pub(super) fn without_spaces(text: &str) -> String {
    let plain = text.replace("\\n", " ").replace("\\t", " ").replace("\\r", " ");
    let words: Vec<_> = plain.split_whitespace().collect();
    // Beside a quotation mark a space is the start or the end of a text.
    words.join(" ").replace(" \"", "\"").replace("\" ", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(one: &str, other: &str) -> bool {
        without_details(one) == without_details(other)
    }

    #[test]
    fn how_long_a_command_took_is_no_news() {
        let ran = |took: &str| format!(r#"{{"status":0,"duration_ms":{took},"output":"42"}}"#);
        assert_eq!(without_duration(&ran("7")), without_duration(&ran("1234")));
        assert_ne!(without_duration(&ran("7")), without_duration(&ran("7").replace("42", "43")));
        assert_eq!(without_duration(r#"{"rows":7}"#), None);
    }

    #[test]
    fn times_ids_tries_case_and_spaces_make_no_difference() {
        for (one, other) in [
            (r#"{"at":"2026-01-02T03:04:05Z"}"#, r#"{"at":"2027-11-22T13:14:15.678+01:00"}"#),
            (r#"{"at":1767225600}"#, r#"{"at":1767225661.5}"#),
            (r#"{"at":"2026-01-02 03:04:05"}"#, r#"{"at":"2026-01-02 13:14:15"}"#),
            (r#"{"k":"0b2ffe00-77aa-4c1d-9c3d-aaaabbbb0001"}"#, r#"{"k":"9b2ffe00-77aa-4c1d-9c3d-ffffbbbb0002"}"#),
            (r#"{"attempt":1,"path":"a"}"#, r#"{"attempt":22,"path":"a"}"#),
            (r#"{"q":"Find  it"}"#, r#"{"q":" find it\n"}"#),
        ] {
            assert!(alike(one, other), "{one} {other}: {}", without_details(one));
        }
    }

    #[test]
    fn what_is_asked_for_does() {
        for (one, other) in [
            (r#"{"page":1}"#, r#"{"page":2}"#),
            (r#"{"window":"minute 000001"}"#, r#"{"window":"minute 000002"}"#),
            (r#"{"day":"2026-01-01"}"#, r#"{"day":"2026-01-02"}"#),
            (r#"{"order":"A-100"}"#, r#"{"order":"A-101"}"#),
            (r#"{"q":"find it"}"#, r#"{"q":"find them"}"#),
            (r#"{"path":"a1.rs"}"#, r#"{"path":"a2.rs"}"#),
        ] {
            assert!(!alike(one, other), "{one} {other}");
        }
    }

    #[test]
    fn messages_differ_by_words_and_commands_by_more_than_spaces() {
        assert_eq!(without_numbers("No order A-17 at 10:02"), without_numbers("No  order B-18 at 11:03"));
        assert_ne!(without_numbers("No order 17"), without_numbers("No invoice 17"));
        assert_eq!(without_spaces(r#"{"c":"make  test "}"#), without_spaces(r#"{"c":"make test\n"}"#));
        assert_ne!(without_spaces(r#"{"n":1}"#), without_spaces(r#"{"n":2}"#));
    }
}
