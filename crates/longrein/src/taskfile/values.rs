//! Values as people write them: spans of time, amounts of money, whole numbers, limits. Each error says what to write.

use std::time::Duration;

use longrein_core::budget::{BudgetKind, Limit};
use longrein_core::time::{self, Timestamp, millis};

/// `500ms`, `30s`, `10m`, `1h30m`, `2d`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    time::span(text)
        .ok_or_else(|| format!("\"{text}\" is no span of time; write for example \"30s\", \"10m\" or \"1h30m\""))
}

/// Dollars to whole micro-dollars, exactly: `0.50`, `12`, at most six decimals.
pub(crate) fn micros(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text} is no amount in dollars; write for example 0.50 (not negative, at most six decimals)");
    let plain: String = text.trim().chars().filter(|letter| *letter != '_').collect();
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > 6 {
        return Err(wrong());
    }
    let fraction: u64 = format!("{fraction:0<6}").parse().map_err(|_| wrong())?;
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    whole.checked_mul(1_000_000).and_then(|whole| whole.checked_add(fraction)).ok_or_else(wrong)
}

/// `200`, `200_000`. Not `1e6`, not `-1`, not `1.0`.
pub(crate) fn whole(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text} is no whole number; write for example 200_000 (not negative, no point, no exponent)");
    let text = text.trim();
    let underscores = text.starts_with('_') || text.ends_with('_') || text.contains("__");
    let plain: String = text.chars().filter(|letter| *letter != '_').collect();
    if underscores || plain.is_empty() || !plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    plain.parse().map_err(|_| wrong())
}

/// A point in time, RFC 3339.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let at: jiff::Timestamp = text
        .parse()
        .map_err(|_| format!("\"{text}\" is no point in time; write for example \"2030-01-31T18:00:00Z\""))?;
    u64::try_from(at.as_millisecond()).map(Timestamp).map_err(|_| format!("\"{text}\" is before 1970"))
}

/// A limit as a text: `unlimited`, or an amount in the unit of its kind.
pub(crate) fn limit(kind: BudgetKind, text: &str) -> Result<Limit, String> {
    if text == UNLIMITED {
        return Ok(Limit::Unlimited);
    }
    let amount = match kind {
        BudgetKind::Turns | BudgetKind::ModelCalls | BudgetKind::ToolCalls | BudgetKind::Tokens => whole(text)?,
        BudgetKind::Usd => micros(text)?,
        BudgetKind::Time if text == "0" => 0,
        BudgetKind::Time => millis(span(text)?),
        BudgetKind::Deadline => moment(text)?.0,
    };
    Ok(Limit::At(amount))
}

/// No limit: must be written.
pub(crate) const UNLIMITED: &str = "unlimited";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (text, wanted) in
            [("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("0s", 0)]
        {
            assert_eq!(span(text), Ok(Duration::from_millis(wanted)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1.5h", "1 h", "10x", "99999999999999999999d", "999999999999999d", "é"] {
            assert!(span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn money_is_exact() {
        for (text, wanted) in
            [("0.50", 500_000), ("0", 0), ("12", 12_000_000), ("0.000001", 1), ("1.1000000", 1_100_000)]
        {
            assert_eq!(micros(text), Ok(wanted), "{text}");
        }
        for text in ["", "-1", "nan", "inf", "1e2", "0.0000001", ".5", "5.", "99999999999999999"] {
            assert!(micros(text).is_err(), "{text}");
        }
    }

    #[test]
    fn whole_numbers() {
        assert_eq!(whole("200_000"), Ok(200_000));
        for text in ["", "-1", "1e6", "1.0", "_1", "1_", "1__0", "x", "99999999999999999999"] {
            assert!(whole(text).is_err(), "{text}");
        }
    }
}
