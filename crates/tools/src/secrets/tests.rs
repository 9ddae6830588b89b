//! What is redacted, what is not, and that no cut lets a part through. Secrets are put together here as the tests run, so
//! that nobody who scans this repository finds one.

use std::path::Path;
use std::time::{Duration, Instant};

use longrein_sandbox::Captured;
use proptest::prelude::*;

use super::*;
use crate::output::{readable, unrendered};

fn known() -> Secrets {
    let mut secrets = Secrets::new();
    secrets.know("TOKEN", "hunter2-\"quoted\"");
    secrets.know("PIN", "1234");
    secrets.know("NUMBER", "987654321");
    secrets
}

#[test]
fn known_values_in_every_form() {
    let secrets = known();
    assert_eq!(secrets.redact("a hunter2-\"quoted\" b"), "a [redacted:TOKEN] b");
    assert_eq!(secrets.redact(r#"{"t":"hunter2-\"quoted\""}"#), r#"{"t":"[redacted:TOKEN]"}"#);
    // "hunter2-"quoted"", "u:hunter2-"quoted"" and "us:…" in base64
    for text in ["aHVudGVyMi0icXVvdGVkIg==", "dTpodW50ZXIyLSJxdW90ZWQi", "dXM6aHVudGVyMi0icXVvdGVkIg=="] {
        assert!(secrets.redact(text).contains("[redacted:TOKEN]"), "{text}");
    }
    assert_eq!(secrets.redact("pin 1234"), "pin 1234");
    let mut value: Value =
        serde_json::from_str(r#"{"987654321":[987654321,{"a":"h\u0075nter2-\"quoted\""}]}"#).unwrap();
    assert!(secrets.redact_value(&mut value));
    assert_eq!(value.to_string(), r#"{"[redacted:NUMBER]":["[redacted:NUMBER]",{"a":"[redacted:TOKEN]"}]}"#);
    assert_eq!(secrets.redact("/?t=hunter2-%22quoted%22&x"), "/?t=[redacted:TOKEN]&x");
    let mut lines = Secrets::new();
    lines.know("FILE", "-----FRAME-OF-IT-----\nfirst line of a secret\r\nshort\nlast line of the secret\n");
    assert_eq!(
        lines.redact("  first line of a secret\n -----FRAME-OF-IT-----"),
        "  [redacted:FILE]\n -----FRAME-OF-IT-----"
    );
    assert_eq!(lines.redact("short"), "short");
    // of two that begin alike the longer one is taken out
    let mut two = Secrets::new();
    two.know("SHORT", "abcdef-123");
    two.know("LONG", "abcdef-123456");
    assert_eq!(two.redact("abcdef-123456 abcdef-123"), "[redacted:LONG] [redacted:SHORT]");
}

/// So many characters of an alphabet, no two neighbours alike.
fn random(alphabet: &str, count: usize, seed: usize) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    (0..count).map(|at| alphabet[(at * 7 + seed * 13 + at * at * 3) % alphabet.len()]).collect()
}

const WORD: &str = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8";
const HEX: &str = "0a1b2c3d4e5f6789";
const UPPER: &str = "A2B3C4D5E6F7GHJK";
const BASE64: &str = "aB3+dE5/gH7jK9mN1pQ2sT4vW6yZ8";

fn web_token() -> String {
    // {"alg":"HS256"} and a payload
    ["eyJhbGciOiJIUzI1NiJ9", &format!("eyJ{}", random(WORD, 40, 1)), &random(WORD, 43, 2)].join(".")
}

fn private_key(label: &str, line_end: &str) -> String {
    let lines: Vec<String> = (0..12).map(|line| random(BASE64, 64, line)).collect();
    let (open, close) = (["-----BEG", "IN "].concat(), ["-----E", "ND "].concat());
    format!("{open}{label}-----{line_end}{}{line_end}{close}{label}-----", lines.join(line_end))
}

/// Kinds, what begins them, and what follows.
fn tokens() -> Vec<(&'static str, String)> {
    let word = |kind, prefix: &str, count| (kind, format!("{prefix}{}", random(WORD, count, prefix.len())));
    let hex = |kind, prefix: &str, count| (kind, format!("{prefix}{}", random(HEX, count, prefix.len())));
    vec![
        ("aws-key", format!("AK{}{}", "IA", random(UPPER, 16, 3))),
        ("aws-key", format!("AS{}{}", "IA", random(UPPER, 16, 4))),
        word("api-key", "sk-", 40),
        word("api-key", "sk-ant-api03-", 80),
        word("api-key", "sk-proj-", 60),
        word("github-token", "ghp_", 36),
        word("github-token", "gho_", 36),
        word("github-token", "ghs_", 36),
        word("github-token", "github_pat_", 82),
        word("gitlab-token", "glpat-", 20),
        ("slack-token", format!("xox{}-123456789012-{}", "b", random(WORD, 24, 5))),
        word("slack-token", "xapp-1-", 40),
        (
            "slack-webhook",
            format!(
                "hooks.slack.com/{}/T{}/B{}/{}",
                "services",
                random(UPPER, 8, 1),
                random(UPPER, 8, 2),
                random(WORD, 24, 3)
            ),
        ),
        word("stripe-key", "sk_live_", 24),
        word("stripe-key", "whsec_", 32),
        word("google-key", "AIza", 35),
        word("google-token", "ya29.", 60),
        word("google-secret", "GOCSPX-", 28),
        word("huggingface-token", "hf_", 34),
        word("npm-token", "npm_", 36),
        word("pypi-token", "pypi-AgEIcHlwaS5vcmc", 100),
        hex("digitalocean-token", "dop_v1_", 64),
        hex("shopify-token", "shpat_", 32),
        ("sendgrid-key", format!("SG.{}.{}", random(WORD, 22, 1), random(WORD, 43, 2))),
        hex("databricks-token", "dapi", 32),
        word("vault-token", "hvs.", 90),
        word("docker-token", "dckr_pat_", 27),
        ("age-key", format!("AGE-SECRET-{}-1{}", "KEY", random(UPPER, 58, 1))),
        ("telegram-token", format!("123456789:AA{}", random(WORD, 33, 1))),
        ("private-key", private_key("PRIVATE KEY", "\n")),
        ("private-key", private_key("RSA PRIVATE KEY", "\r\n")),
        ("private-key", private_key("OPENSSH PRIVATE KEY", "\\n")),
        ("private-key", private_key("PGP PRIVATE KEY BLOCK", "\n")),
    ]
}

/// What a secret stands in, with the kind it is taken for.
fn likely() -> Vec<(String, String)> {
    let random = |count| random(WORD, count, 9);
    let base64 = |count| self::random(BASE64, count, 9);
    let put = |before: &str, secret: &str, after: &str, kind: &str| {
        (format!("{before}{secret}{after}"), format!("{before}[redacted:{kind}]{after}"))
    };
    let pair = "dXNlcjpzM2NyZXQtcGFzcw==";
    vec![
        put("", &web_token(), "", "web-token"),
        put("Authorization: Bearer ", &web_token(), "\r\n", "authorization"),
        put("curl -H 'Authorization: token ", &random(40), "' x", "authorization"),
        put("\"authorization\": \"Basic ", pair, "\"", "authorization"),
        put("authorization=", &random(30), "", "authorization"),
        put("> Proxy: Basic ", pair, "", "basic"),
        put("use Bearer ", &random(30), " there", "bearer"),
        put("postgres://app:", "s3cr3t-Pa55", "@db:5432/x", "password"),
        put("https://", &random(40), "@github.com/x", "password"),
        put("DB_PASSWORD=", "correcthorse", "\nA=b", "password"),
        put("export AWS_SECRET_ACCESS_KEY=", &base64(40), "", "password"),
        put("aws_secret_access_key = ", &base64(40), "\n", "password"),
        put("{\"SecretAccessKey\": \"", &base64(40), "\"}", "password"),
        put("{\\\"client_secret\\\":\\\"", &random(30), "\\\"}", "password"),
        put("api_key: '", &random(32), "'", "password"),
        put("spring.datasource.password=", "Tr0ub4dor-3x", "", "password"),
        put("--token ", &random(32), " --x", "password"),
        put("--password=", &random(16), "", "password"),
        put("?access_token=", &random(32), "&x=y", "password"),
        put("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=", &(base64(86) + "=="), ";E=y", "password"),
        put("https://x.blob/y?sv=1&sig=", "aB3%2FdE5gH7jK9mN1pQ2sT4%3D", "&se=2", "signature"),
        put("https://x/y?X-Amz-Signature=", &self::random(HEX, 64, 1), "", "signature"),
        put("machine x.example login me password ", "letmein", "\n", "password"),
        put("machine x.example\n  login me\n  password ", "letmein", "\n", "password"),
        put("default login me password ", "letmein", "", "password"),
    ]
}

#[test]
fn tokens_wherever_they_stand() {
    let none = Secrets::new();
    for (kind, token) in tokens() {
        for (before, after) in
            [("", ""), ("key ", "."), ("a=\"", "\""), ("x\\n", "\\n"), ("\x1b[31m", "\x1b[0m"), ("q%3D", "&")]
        {
            // an escape is a part of the alphabet of some
            let text = format!("{before}{token}{after}");
            let expected = format!("{before}[redacted:{kind}]{after}");
            assert_eq!(none.redact(&text), expected, "{text}");
            assert_eq!(none.redact(&expected), expected);
        }
        assert!(matches!(none.found_in(&Value::String(format!("x {token}"))), Some(Held::Shaped(_))), "{token}");
        let mut value = serde_json::json!({ token.clone(): [token] });
        assert!(none.redact_value(&mut value));
        assert_eq!(value, serde_json::json!({ format!("[redacted:{kind}]"): [format!("[redacted:{kind}]")] }));
    }
}

#[test]
fn secrets_by_where_they_stand() {
    let none = Secrets::new();
    for (text, expected) in likely() {
        assert_eq!(none.redact(&text), expected, "{text}");
        assert_eq!(none.redact(&expected), expected, "what is redacted stays so");
    }
    let mut value =
        serde_json::json!({ "apiKey": random(WORD, 30, 1), "password": "hunter2hunter2", "max_tokens": "12" });
    assert!(none.redact_value(&mut value));
    assert_eq!(
        value,
        serde_json::json!({ "apiKey": "[redacted:password]", "password": "[redacted:password]", "max_tokens": "12" })
    );
}

#[test]
fn a_key_in_an_assignment_goes_as_a_whole() {
    let key = private_key("PRIVATE KEY", "\n");
    let text = format!("PRIVATE_KEY=\"{key}\"\nnext");
    assert_eq!(Secrets::new().redact(&text), "PRIVATE_KEY=\"[redacted:private-key]\"\nnext");
    // in pieces, as source code has it
    let source = key.lines().map(|line| format!("    \"{line}\\n\" +\n")).collect::<String>();
    let redacted = Secrets::new().redact(&source).into_owned();
    assert!(redacted.contains("[redacted:private-key]") && redacted.len() < 100, "{redacted}");
    // found by a search, line by line
    let listed: String = key.lines().enumerate().map(|(at, line)| format!("{}: {line}\n", at + 1)).collect();
    assert!(Secrets::new().redact(&listed).len() < 100);
}

#[test]
fn what_is_no_secret_stays() {
    let none = Secrets::new();
    for innocent in [
        "task-management-of-2024-and-very-long-names",
        "sk-learn is short",
        "sk-a-hyphenated-name-without-digits",
        "-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----",
        "-----BEGIN PRIVATE KEY-----",
        "const BEGIN: &str = \"-----BEGIN PRIVATE KEY-----\";\nconst END: &str = \"-----END PRIVATE KEY-----\";",
        "between -----BEGIN PRIVATE KEY----- and -----END PRIVATE KEY----- stands base64",
        "the bearer of this letter",
        "password = get_password()",
        "password = config.database.password",
        "let token = self.next_token();",
        "token: Option<String>,",
        "PASSWORD=$(cat /run/secrets/db)",
        "PASSWORD=${DB_PASSWORD:-secret}",
        "API_KEY=your_api_key_here",
        "API_KEY=<your key>",
        "SECRET_KEY_FILE=/run/secrets/key",
        "TOKEN_PATH=/var/run/token",
        "MAX_TOKENS=128000",
        "max_tokens=128000 and TOKENIZERS_PARALLELISM=false",
        "--max-tokens 4096",
        "\"next_page_token\": \"CAUQAAbc123DEF456ghi789\"",
        "\"public_key\": \"aB3dE5gH7jK9mN1pQ2sT4vW6\"",
        "cache_key = aB3dE5gH7jK9mN1pQ2sT4vW6",
        "postgres://postgres:postgres@localhost/x",
        "postgres://user:password@localhost/x",
        "format!(\"https://{user}:{pass}@{host}/\")",
        "ssh://git@github.com/x, mail me@example.com",
        "http://127.0.0.1:8080/@x http://[::1]:80/",
        "see https://example.com:443/a@b and 10:30:AA",
        "Authorization: required by the server",
        "Authorization: Bearer ${TOKEN}",
        "Authorization: Bearer <token>",
        "Basic Authentication is old",
        "commit 3f2a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a",
        "550e8400-e29b-41d4-a716-446655440000",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "if (password == other.password) {}",
        "pass: 12 failed: 3",
        "The password is needed. Enter password below",
        "PWD=/home/me/src/project1 OLDPWD=/home/me",
        "npm_config_cache=/home/me/.npm",
        "eyJust a word.and another.one",
        "monkey: aB3dE5gH7jK9mN1pQ2sT",
        "tokens: 12, secret santa, keyboard",
    ] {
        assert_eq!(none.redact(innocent), innocent);
    }
    assert_eq!(none.found_in(&Value::String(format!("AK{}", "IAIOSFODNN7EXAMPLE"))), None, "everybody's example");
}

/// The sources of this repository hold no secrets, but for the literals of tests.
#[test]
fn our_own_sources_stay_as_they_are() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders = vec![crates.to_owned()];
    let (mut files, mut redacted) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|kind| kind != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // tests stand last in a file, or in files of their own
            let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
            let shipped = if is_test { "" } else { text.split("#[cfg(test)]\nmod ").next().unwrap() };
            files += 1;
            if let Cow::Owned(changed) = Secrets::new().redact(shipped) {
                redacted.extend(
                    changed
                        .lines()
                        .filter(|line| line.contains(MARK) && !shipped.contains(*line))
                        .map(|line| format!("{}: {line}", path.display())),
                );
            }
        }
    }
    assert!(files > 100, "{files}");
    assert_eq!(redacted, [] as [String; 0]);
}

#[test]
fn marks_are_told() {
    let found: Vec<&str> =
        marks("a [redacted:x y] [redacted:] [redacted:api-key] [redacted:A_1] b [redacted: no").collect();
    assert_eq!(found, ["[redacted:api-key]", "[redacted:A_1]"]);
}

/// Time grows with the text and not faster, whatever it holds.
#[test]
fn hostile_texts_take_linear_time() {
    let none = Secrets::new();
    // so that the automaton is there
    let _ = none.redact("");
    let (begin, jwt) = (["-----BEG", "IN PRIVATE KEY-----\n"].concat(), "eyJhbGciOiJIUzI1NiJ9.");
    let units = [
        "sk-",
        "sk-a",
        "token=",
        "token=a1b2",
        "PASSWORD=a",
        "://a:b",
        "://",
        &begin,
        jwt,
        "key: \"",
        "Bearer x",
        "eyJ",
        ":AA",
        "authorization: ",
        "-----END ",
        "&sig=a",
        "xoxb-a-",
    ];
    let time = |unit: &str, bytes: usize| {
        let text = unit.repeat(bytes / unit.len());
        let took = (0..2).map(|_| {
            let began = Instant::now();
            let _ = none.redact(&text);
            began.elapsed()
        });
        took.min().unwrap()
    };
    for unit in units.into_iter().chain(["an ordinary line of text, with nothing in it\n"]) {
        // Eight times the text; a square would be 64 times the time. On a busy machine a measurement may be of something
        // else, so that it takes five bad ones to tell.
        let is_linear = || {
            let (small, large) = (time(unit, 16 << 10), time(unit, 128 << 10));
            large < (small + Duration::from_millis(3)) * 24
        };
        assert!((0..5).any(|_| is_linear()), "{unit:?}");
    }
}

fn captured(text: &[u8], head: usize, tail: usize) -> Captured {
    Captured {
        head: text[..head].to_vec(),
        tail: text[text.len() - tail..].to_vec(),
        bytes: text.len() as u64,
        line_ends_left_out: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No part of a secret survives, wherever the output was cut. A part is told by eight characters.
    #[test]
    fn no_secret_survives_any_cut(
        which in any::<prop::sample::Index>(),
        filler in prop::sample::select(vec!["plain words here\n", "x", "a, b; c ", "é\n", "\x1b[1mbold\x1b[0m\n"]),
        (before, after) in (0_usize..3000, 0_usize..3000),
        (head, tail) in (0.0..1.0, 0.0..1.0),
    ) {
        let all: Vec<String> = tokens().into_iter().map(|(_, token)| token).chain([web_token()]).collect();
        let secret = which.get(&all);
        let text = format!("{}\n {secret} \n{}", filler.repeat(before / filler.len()), filler.repeat(after / filler.len()));
        let bytes = text.as_bytes();
        let head = (bytes.len() as f64 * head) as usize;
        let tail = ((bytes.len() - head) as f64 * tail) as usize;
        let secrets = Secrets::new();
        let captured = captured(bytes, head, tail);
        for shown in [Some(readable(&captured, &secrets)), unrendered(&captured, &secrets)].into_iter().flatten() {
            for part in secret.as_bytes().windows(24).step_by(5) {
                let part = std::str::from_utf8(part).unwrap();
                // the frame of a key is no secret
                if part.contains("---") || part.contains("KEY") {
                    continue;
                }
                prop_assert!(!shown.contains(part), "{part} in {shown}");
            }
        }
    }

    #[test]
    fn any_text_is_survived_and_redacted_once(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "password", "=", ":", "\"", "\\", " ", "é", "token", "://", "@", "user:pa55word1x", "eyJhbGciOiJIUzI1NiJ9", ".", "sk-",
            "aB3dE5gH7jK9mN1pQ2sT", "Bearer ", "Basic ", "\n", "-----BEGIN ", "PRIVATE KEY", "-----", "-----END ", "\\n", "AAAA",
            "authorization", "Private-Lines: 1\n", "sig=", "&", "KEY", "_", "machine a login b password c", "--",
        ]), 0..40)
    ) {
        let text = pieces.concat();
        let secrets = Secrets::new();
        let once = secrets.redact(&text).into_owned();
        let twice = secrets.redact(&once).into_owned();
        prop_assert!(twice.len() <= once.len() + 200);
        let _ = secrets.redact_after_cut(&text);
        let _ = secrets.found_in(&Value::String(text));
    }
}

#[test]
fn what_a_model_writes_is_without_known_values_however_it_escapes_them() {
    let mut secrets = Secrets::new();
    secrets.know("TOKEN", "hunter2-\"é/😀-hunter2");
    secrets.know("PIN", "48151623");
    let value = "hunter2-\"é/😀-hunter2";
    let json = |text: &str| serde_json::to_string(text).unwrap();
    let by_units = |text: &str| text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
    for said in [
        value.to_owned(),
        json(value),
        json(&json(value)),
        json(&json(&json(value))),
        by_units(value),
        value.replace('"', "\\\"").replace('/', "\\/"),
        format!("{{\"a\":\"{}\",\"a\":\"x\"}}", by_units(value)),
        format!("{{\"a\":\"{}", by_units(value)),
        format!("{value}{value}"),
    ] {
        let unsaid = secrets.unsaid(&format!("é\\ {said} \\")).unwrap_or_else(|| panic!("{said}"));
        assert!(unsaid.starts_with("é\\ ") && unsaid.ends_with(" \\"), "{said}: {unsaid}");
        assert_eq!(secrets.marked_in(&unsaid), Some("TOKEN"), "{said}");
        assert!(!unsaid.contains("hunter2") && !unsaid.contains("0068"), "{said}: {unsaid}");
        assert_eq!(secrets.unsaid(&unsaid), None, "{said}");
    }
    assert_eq!(secrets.unsaid(r#"{"pin":48151623}"#).as_deref(), Some(r#"{"pin":[redacted:PIN]}"#));
    // A shape alone is no known value, and ordinary text is left as it is.
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    for said in ["", "hunter2", "\\u00", "\\", "\\ud83d\\u0041", "[redacted:password] \\n", &token] {
        assert_eq!((secrets.unsaid(said), secrets.marked_in(said)), (None, None), "{said}");
    }
    assert_eq!(Secrets::new().unsaid(value), None);
}

/// A text as somebody hears it who is told piece by piece.
fn heard(secrets: &Secrets, pieces: &[&str]) -> String {
    let (mut held, mut out) = (String::new(), String::new());
    for piece in pieces {
        held.push_str(piece);
        let rest = held.split_off(secrets.unfinished(&held));
        let ready = std::mem::replace(&mut held, rest);
        out.push_str(&secrets.unsaid(&ready).unwrap_or(ready));
    }
    out + &secrets.unsaid(&held).unwrap_or(held)
}

#[test]
fn a_secret_cut_anywhere_is_marked_as_in_the_whole() {
    let mut secrets = Secrets::new();
    secrets.know("KEY", "hunter2\"hunter2");
    secrets.know("LONG", "hunter2\"hunter2 and more");
    secrets.know("OTHER", "2hunted🦀fox");
    let value = "hunter2\"hunter2";
    let quoted = serde_json::to_string(value).unwrap();
    let texts = [
        format!("it is {value}, not {value} and less, nor {value} and more."),
        format!("{{\"key\":{quoted},\"again\":{}}}", serde_json::to_string(&quoted).unwrap()),
        "hunter2\\u0022hunte\\u0072\\u0032 hunter hunter2hunted🦀fox hunter2hunted\\ud83e\\udd80fox".to_owned(),
        r"\\\\\\\\ a path C:\users\hunter2\".to_owned(),
        "nothing of it, but h hu hun hunt \\ and \\u00".to_owned(),
    ];
    for text in &texts {
        let whole = secrets.unsaid(text).unwrap_or_else(|| text.clone());
        let places: Vec<_> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        for first in &places {
            for second in places.iter().filter(|second| first <= *second) {
                let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                assert_eq!(heard(&secrets, &pieces), whole, "{pieces:?}");
            }
        }
        let single: Vec<_> = places.windows(2).map(|at| &text[at[0]..at[1]]).collect();
        assert_eq!(heard(&secrets, &single), whole);
    }
}

#[test]
fn what_cannot_be_a_secret_is_not_held_back() {
    let mut secrets = Secrets::new();
    assert_eq!(secrets.unfinished("anything"), 8);
    secrets.know("KEY", "correct horse battery");
    for (text, shown) in [("Hello", 5), ("Hello c", 6), ("Hello cor", 6), ("Hello cow", 9), ("correct horse ", 0)] {
        assert_eq!(secrets.unfinished(text), shown, "{text}");
    }
}
