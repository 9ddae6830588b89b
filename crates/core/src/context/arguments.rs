//! A call's arguments in less room: what is short stays whole, long texts lose their middle. So it can still be told to whom
//! it went, how much it was and under which id.

use std::borrow::Cow;

/// A text that is this short is never cut while there is a longer one: an address, an id, a digest.
const TEXT_MIN: usize = 64;
/// How a place begins where something is left out.
const LEFT_OUT: &str = "[… ";

/// Arguments as JSON, in at most `limit` bytes.
pub(crate) fn shortened(args: &str, limit: usize) -> Cow<'_, str> {
    if args.len() <= limit {
        return Cow::Borrowed(args);
    }
    let mut most = limit;
    loop {
        most = (most * 3 / 4).max(TEXT_MIN);
        let text = with_texts_of(args, most);
        if text.len() <= limit {
            return Cow::Owned(text);
        }
        if most == TEXT_MIN {
            return Cow::Owned(without_middle(&text, limit));
        }
    }
}

/// Whether something of them was left out.
pub(crate) fn is_cut(args: &str) -> bool {
    args.contains(LEFT_OUT)
}

/// JSON as it is, but with no text longer than `most`: numbers and everything else keep their bytes.
fn with_texts_of(json: &str, most: usize) -> String {
    let bytes = json.as_bytes();
    let mut text = String::with_capacity(json.len().min(most * 4));
    let (mut at, mut copied) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        if byte != b'"' {
            at += 1;
            continue;
        }
        let start = at;
        at = string_end(bytes, start);
        let string = &json[start..at];
        if string.len() > most
            && let Ok(words) = serde_json::from_str::<String>(string)
        {
            text.push_str(&json[copied..start]);
            text.push_str(&serde_json::to_string(&without_middle(&words, most)).expect("a text is JSON"));
            copied = at;
        }
    }
    text.push_str(&json[copied..]);
    text
}

/// The index behind the closing quote of the string that begins at `start`; the end if there is none.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => return at,
            b'\\' => at += 1,
            _ => {}
        }
    }
    bytes.len()
}

/// Start and end of a text, with a word between on what is missing.
fn without_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(format!("{LEFT_OUT}{} bytes …]", text.len()).len());
    let head = text.floor_char_boundary(room * 3 / 5);
    let tail = text.ceil_char_boundary(text.len() - room * 2 / 5);
    format!("{}{LEFT_OUT}{} bytes …]{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_stays_whole() {
        let body = "Dear \"customer\",\n".repeat(80);
        let args = serde_json::json!({ "body": body, "amount": 12.5, "to": "alice@example.org", "z": ["x", body] });
        let args = args.to_string();
        for limit in [300, 400, 1_000, 2_000] {
            let short = shortened(&args, limit);
            assert!(short.len() <= limit && is_cut(&short), "{limit}: {short}");
            let read: serde_json::Value = serde_json::from_str(&short).expect("it is JSON still");
            assert_eq!(
                (&read["to"], &read["amount"], &read["z"][0]),
                (&"alice@example.org".into(), &12.5.into(), &"x".into())
            );
            assert!(read["body"].as_str().is_some_and(|body| body.starts_with("Dear \"") && body.ends_with("r\",\n")));
        }
        assert_eq!(shortened(&args, args.len()), args);
        let number = format!("{{\"id\":12345678901234567890123,\"x\":\"{}\"}}", "é".repeat(200));
        assert!(shortened(&number, 150).starts_with("{\"id\":12345678901234567890123,\"x\":\"é"));
    }

    #[test]
    fn it_is_never_longer_than_it_may_be() {
        let many = format!("[{}]", vec!["\"漢字\""; 300].join(","));
        for limit in [40, 100, 240] {
            for args in [many.as_str(), "\"cut", &"é".repeat(999), r#"{"half":"\ud83c"#] {
                assert!(shortened(args, limit).len() <= limit, "{limit}: {args}");
            }
        }
    }
}
