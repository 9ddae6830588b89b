//! How long a refusal asks us to wait, where its body says so instead of a header.

use std::time::Duration;

use serde_json::Value;

use crate::http::whole_seconds;

/// By the fields of an error: Google's `RetryInfo`, a count of seconds, or the headers of whoever a router asked.
pub(crate) fn in_fields(error: &Value) -> Option<u64> {
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let delay = details.filter_map(|detail| detail.get("retryDelay")?.as_str()).find_map(span);
    let count =
        || ["retry_after", "retry_after_seconds", "retry_after_s"].into_iter().find_map(|key| error.get(key)?.as_f64());
    let headers = || error.get("metadata")?.get("headers")?.as_object();
    let header = |name: &str| {
        let value = headers()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?.1;
        value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
    };
    let told = || count().or_else(|| header("retry-after")).or_else(|| header("x-ratelimit-reset").map(until));
    delay.map(|delay| delay.as_secs_f64()).or_else(told).and_then(whole_seconds)
}

/// By its words: `try again in 1m3.5s`, `retry after 60 seconds`.
pub(crate) fn in_words(text: &str) -> Option<u64> {
    let small = text.to_lowercase();
    PHRASES.iter().find_map(|phrase| {
        let rest = &small[small.find(phrase)? + phrase.len()..];
        let mut words = rest.split_whitespace().map(|word| word.trim_end_matches(['.', ',', ';', ')', '!']));
        let first = words.next()?;
        let worded = || {
            let number: f64 = first.parse().ok()?;
            let unit = words.next()?;
            let (_, worth) = UNITS.iter().find(|(name, _)| unit.starts_with(name))?;
            Some(number * worth)
        };
        let seconds = span(first).map(|span| span.as_secs_f64()).or_else(worded)?;
        whole_seconds(seconds)
    })
}

const PHRASES: [&str; 5] =
    ["try again in ", "retry in ", "try again after ", "retry after ", "retry your request after "];

const UNITS: [(&str, f64); 6] =
    [("millisecond", 0.001), ("ms", 0.001), ("sec", 1.0), ("s", 1.0), ("min", 60.0), ("hour", 3600.0)];

/// The seconds until a time, given in seconds or thousandths of them since 1970; a small number is the seconds themselves.
fn until(time: f64) -> f64 {
    const YEARS_30_S: f64 = 1e9;
    #[expect(clippy::cast_precision_loss, reason = "a time has fewer digits")]
    let now = jiff::Timestamp::now().as_millisecond() as f64 / 1000.0;
    let time = if time > YEARS_30_S * 100.0 { time / 1000.0 } else { time };
    if time > YEARS_30_S { (time - now).max(0.0) } else { time }
}

/// A span as OpenAI, Groq and Google write it: `20ms`, `1s`, `6m0s`, `2m59.56s`, `1h2m`.
pub(crate) fn span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let (unit, after) = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)]
            .into_iter()
            .find_map(|(unit, worth)| Some((worth, rest[end..].strip_prefix(unit)?)))?;
        seconds += number * unit;
        rest = after;
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok())?
}
