//! What is left of a call's arguments when the details are taken out that a model changes without meaning anything: case,
//! spaces, and every word with a digit in it (counters, times, ids).

/// A text whose words with a digit in them are all alike.
pub(super) fn without_details(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars() {
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
            continue;
        }
        end_word(&mut word, &mut shape);
        if !c.is_whitespace() {
            shape.push(c);
        } else if !shape.ends_with(' ') {
            shape.push(' ');
        }
    }
    end_word(&mut word, &mut shape);
    without_spaces(&shape)
}

/// What stands between the parts of times, versions and ids.
const SEPARATORS: [char; 5] = ['-', ':', '.', '+', '_'];

fn end_word(word: &mut String, shape: &mut String) {
    if word.chars().any(char::is_numeric) {
        // A time or an id of several parts is one.
        if shape.strip_suffix(SEPARATORS).is_some_and(|before| before.ends_with('#')) {
            shape.pop();
        } else {
            shape.push('#');
        }
    } else {
        shape.push_str(word);
    }
    word.clear();
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
    fn details_make_no_difference_and_words_do() {
        assert!(alike(r#"{"at":"2026-01-02T03:04:05Z"}"#, r#"{"at":"2027-11-22T13:14:15.678Z"}"#));
        assert!(alike(r#"{"id":"0b2f-77aa1"}"#, r#"{"id":"9c3d-11bb2"}"#));
        assert!(alike(r#"{"n":1}"#, r#"{"n":23}"#));
        assert!(alike(r#"{"q":"Find  it"}"#, r#"{"q":" find it\n"}"#));
        assert!(!alike(r#"{"q":"find it"}"#, r#"{"q":"find them"}"#));
        assert!(!alike(r#"{"path":"a.rs"}"#, r#"{"path":"b.rs"}"#));
    }

    #[test]
    fn spaces_alone_are_taken_out_where_numbers_count() {
        assert_eq!(without_spaces("{\"c\":\"make  test \"}"), without_spaces("{\"c\":\"make test\\n\"}"));
        assert_ne!(without_spaces(r#"{"n":1}"#), without_spaces(r#"{"n":2}"#));
    }
}
