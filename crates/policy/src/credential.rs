//! What looks like a credential wherever it stands: texts that no call may carry out.

/// What kind it is, or None. Sure forms only: a hash or a random id is no credential.
pub(crate) fn found_in(text: &str) -> Option<&'static str> {
    if text.len() > LOOKED_AT_MAX {
        let mut end = LOOKED_AT_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        return found_in(text.get(..end).unwrap_or_default());
    }
    if text.contains("-----BEGIN ") && text.contains("PRIVATE KEY") {
        return Some("a private key");
    }
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    for part in text.split(|letter: char| !letter.is_ascii() || !word(letter as u8)) {
        if let Some((_, kind, _)) = TOKENS.iter().find(|(prefix, _, least)| {
            part.strip_prefix(prefix).is_some_and(|rest| rest.len() >= *least && is_random(rest))
        }) {
            return Some(kind);
        }
        let jwt = part.starts_with("eyJ") && part.len() >= 40 && part.matches('.').count() == 2;
        if jwt {
            return Some("a signed token");
        }
    }
    assigned(text)
}

/// `NAME_SECRET=value` and its like, in upper case as variables are.
fn assigned(text: &str) -> Option<&'static str> {
    for (at, sign) in text.char_indices().filter(|(_, letter)| matches!(letter, '=' | ':')) {
        let before = text.get(..at).unwrap_or_default().trim_end_matches(['"', '\'', ' ']);
        let start =
            before.rfind(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').map_or(0, |at| at + 1);
        // what lies before may begin with a letter of several bytes: then there is no name
        let Some(name) = before.get(start..) else { continue };
        let is_variable =
            name.len() >= 5 && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        if !is_variable || !SECRET_NAMES.iter().any(|part| name.contains(part)) {
            continue;
        }
        let value = text.get(at + sign.len_utf8()..).unwrap_or_default().trim_start_matches([' ', '"', '\'']);
        let value =
            value.split(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '&' | ',')).next();
        if value.is_some_and(|value| value.len() >= 8 && !value.starts_with(['$', '<', '{', '*'])) {
            return Some("a variable that holds a secret");
        }
    }
    None
}

/// Whether letters look drawn and not written.
fn is_random(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit()) || text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Whether a text looks as if it had been encoded: base64, hex or the like. None of the words people write.
pub(crate) fn is_encoded(text: &str) -> bool {
    let text = text.trim_end_matches('=');
    let length = text.len();
    let alphabet = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'_' | b'-'));
    if length < ENCODED_MIN || !alphabet {
        return false;
    }
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    // words joined by dashes are short; what is encoded has a long stretch of mixed letters
    text.split(['-', '_']).any(|part| {
        let cases = part.bytes().any(|byte| byte.is_ascii_uppercase()) && part.bytes().any(|b| b.is_ascii_lowercase());
        let digits = part.bytes().any(|byte| byte.is_ascii_digit());
        part.len() >= ENCODED_MIN && (hex || (cases && digits) || part.len() >= 2 * ENCODED_MIN)
    }) || (length >= 2 * ENCODED_MIN && !text.contains(['-', '_']))
}

const LOOKED_AT_MAX: usize = 256 * 1024;
const ENCODED_MIN: usize = 16;
/// How tokens of well-known services begin, what they are, and how many letters follow at least.
const TOKENS: [(&str, &str, usize); 18] = [
    ("AKIA", "an access key of AWS", 12),
    ("ASIA", "an access key of AWS", 12),
    ("ghp_", "a token of GitHub", 20),
    ("gho_", "a token of GitHub", 20),
    ("ghs_", "a token of GitHub", 20),
    ("ghu_", "a token of GitHub", 20),
    ("github_pat_", "a token of GitHub", 20),
    ("glpat-", "a token of GitLab", 16),
    ("xoxb-", "a token of Slack", 10),
    ("xoxp-", "a token of Slack", 10),
    ("xoxa-", "a token of Slack", 10),
    ("sk_live_", "a key of Stripe", 10),
    ("rk_live_", "a key of Stripe", 10),
    ("sk-", "a key of a model provider", 20),
    ("AIza", "a key of Google", 30),
    ("npm_", "a token of npm", 30),
    ("pypi-AgEI", "a token of PyPI", 20),
    ("hf_", "a token of Hugging Face", 30),
];
const SECRET_NAMES: [&str; 7] = ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "API_KEY", "PRIVATE_KEY", "ACCESS_KEY"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_known_by_their_form() {
        // put together here, so that no scanner of sources takes them for real
        let joined = |parts: &[&str]| parts.concat();
        for text in [
            joined(&["AKIA", "IOSFODNN7EXAMPLE"]),
            joined(&["see ghp", "_abcdefghij0123456789ABCDEFGHIJ012345"]),
            joined(&["-----BEGIN OPENSSH ", "PRIVATE KEY-----\nx"]),
            joined(&["AWS_SECRET_ACCESS", "_KEY=wJalrXUtnFEMI/EXAMPLE"]),
            joined(&["\"DB_PASS", "WORD\": \"correcthorse\""]),
            joined(&["eyJhbGciOiJIUzI1NiJ9", ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghij"]),
        ] {
            assert!(found_in(&text).is_some(), "{text}");
        }
        for text in [
            "password = get_password()",
            "set TOKEN=$TOKEN first",
            "sk-learn is a library",
            "the secret of success: patience",
            "d3b07384d113edec49eaa6238ad5ff00",
            "é=x",
            "PASSWORD=short",
            "",
        ] {
            assert_eq!(found_in(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_encoded_is_no_word() {
        for text in ["QUtJQUlPU0ZPRE5ON0VYQU1QTEUQ", "c2VjcmV0LWRhdGEtaW4tbmFtZQ", "d3b07384d113edec49eaa6238ad5ff00"] {
            assert!(is_encoded(text), "{text}");
        }
        for text in
            ["index.html", "getting-started-with-rust", "tokio", "internationalization", "struct.HashMap.html", ""]
        {
            assert!(!is_encoded(text), "{text}");
        }
    }
}
