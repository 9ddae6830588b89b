//! Budgets: limits, what was spent, what is reserved. Reserved before, settled once after; never refilled by a restart.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A ceiling in the budget's unit, or none because the operator wrote "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    At(u64),
    Unlimited,
}

impl Limit {
    /// What is left after `used`.
    pub fn left(self, used: u64) -> u64 {
        match self {
            Limit::At(limit) => limit.saturating_sub(used),
            Limit::Unlimited => u64::MAX,
        }
    }

    #[must_use]
    pub fn raised(self, by: u64) -> Self {
        match self {
            Limit::At(limit) => Limit::At(limit.saturating_add(by)),
            Limit::Unlimited => Limit::Unlimited,
        }
    }
}

/// The ceilings of a run (`semantics.md` F1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Answered model turns.
    pub turns: Limit,
    /// Attempts at model calls, lost and failed ones too.
    pub model_calls: Limit,
    pub tool_calls: Limit,
    /// All input, cached or not, and output with reasoning, over all attempts.
    pub tokens: Limit,
    /// Micro-dollars.
    pub micros: Limit,
    /// Working time in milliseconds; waits for a person and downtime do not count.
    pub time_ms: Limit,
    /// Wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

/// Turns where the task names none.
pub const DEFAULT_TURNS: u64 = 200;
/// Model calls where the task names none: twice the turns, room for lost and failed attempts.
pub const DEFAULT_MODEL_CALLS: u64 = 400;
/// Tool calls where the task names none.
pub const DEFAULT_TOOL_CALLS: u64 = 2_000;
/// Working time where the task names none: 8 hours.
pub const DEFAULT_TIME_MS: u64 = 8 * 60 * 60 * 1000;

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: Limit::At(DEFAULT_TURNS),
            model_calls: Limit::At(DEFAULT_MODEL_CALLS),
            tool_calls: Limit::At(DEFAULT_TOOL_CALLS),
            tokens: Limit::Unlimited,
            micros: Limit::Unlimited,
            time_ms: Limit::At(DEFAULT_TIME_MS),
            deadline: None,
        }
    }
}

/// Which budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    Turns,
    ModelCalls,
    ToolCalls,
    Tokens,
    Usd,
    Time,
    Deadline,
}

impl fmt::Display for BudgetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BudgetKind::Turns => "turns",
            BudgetKind::ModelCalls => "model_calls",
            BudgetKind::ToolCalls => "tool_calls",
            BudgetKind::Tokens => "tokens",
            BudgetKind::Usd => "usd",
            BudgetKind::Time => "time",
            BudgetKind::Deadline => "deadline",
        })
    }
}

/// How much an operator adds to each budget (`resume --add-…`). A limit that is unlimited stays so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Raise {
    #[serde(skip_serializing_if = "is_zero")]
    pub turns: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub model_calls: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub tool_calls: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub micros: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub time_ms: u64,
}

fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

impl Raise {
    pub fn is_nothing(&self) -> bool {
        self == &Self::default()
    }
}

/// Prices in micro-dollars per million tokens: 0.25 USD per million is 250,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub output: u64,
    /// Of the part of the output that is reasoning. None: as any output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
}

impl Price {
    /// What so much may cost at most, whichever of the buckets it falls into, in micro-dollars.
    pub fn at_most(&self, input: u64, output: u64) -> u64 {
        let input_price = self.input.max(self.cached).max(self.cache_write);
        let dearest = Price { input: input_price, output: self.dearest_output(), reasoning: None, ..*self };
        Usage { input, output, ..Usage::default() }.micros(&dearest)
    }

    /// Of a token of output, whatever kind it is.
    pub fn dearest_output(&self) -> u64 {
        self.reasoning.unwrap_or(0).max(self.output)
    }
}

/// Tokens of one or many model calls. The four buckets are disjoint; reasoning is part of output and shown beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input that was not read from a cache.
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    /// Output, reasoning included.
    pub output: u64,
    pub reasoning: u64,
}

impl Usage {
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.cached).saturating_add(self.cache_write).saturating_add(self.output)
    }

    pub fn add(&mut self, other: &Usage) {
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }

    /// Micro-dollars, rounded up.
    pub fn micros(&self, price: &Price) -> u64 {
        // Part of the output; more than all of it is a provider's slip.
        let reasoning = self.reasoning.min(self.output);
        let sum = u128::from(self.input) * u128::from(price.input)
            + u128::from(self.cached) * u128::from(price.cached)
            + u128::from(self.cache_write) * u128::from(price.cache_write)
            + u128::from(self.output - reasoning) * u128::from(price.output)
            + u128::from(reasoning) * u128::from(price.reasoning.unwrap_or(price.output));
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// What one model call may cost at most, set aside before it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Upper estimate of input tokens.
    pub input: u64,
    /// Output tokens the reply is allowed.
    pub output: u64,
    pub micros: u64,
}

/// What a run has used so far. Only grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub turns: u64,
    pub model_calls: u64,
    pub tool_calls: u64,
    pub usage: Usage,
    pub micros: u64,
    pub time_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_has_its_price_and_no_other() {
        let price =
            Price { input: 1_000_000, cached: 100_000, cache_write: 1_250_000, output: 4_000_000, reasoning: None };
        let usage = Usage { input: 10, cached: 100, cache_write: 20, output: 30, reasoning: 12 };
        assert_eq!(usage.micros(&price), 10 + 10 + 25 + 120);
        let dear = Price { reasoning: Some(8_000_000), ..price };
        assert_eq!(usage.micros(&dear), 10 + 10 + 25 + 18 * 4 + 12 * 8);
        // A provider that reports more reasoning than output is not believed.
        let slip = Usage { reasoning: 1_000, ..usage };
        assert_eq!(slip.micros(&dear), 10 + 10 + 25 + 30 * 8);
        assert_eq!(dear.at_most(130, 30), 163 + 240, "wherever it falls: 162.5, rounded up");
        assert!(dear.at_most(130, 30) >= slip.micros(&dear));
    }
}
