//! Rulings: what the gate says of one call.

use serde::{Deserialize, Serialize};

/// Allow, ask or deny, with the rule that said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    Allow { rule: String },
    Ask { rule: String, reason: String },
    Deny { rule: String, reason: String },
}

impl Ruling {
    pub fn rule(&self) -> &str {
        match self {
            Ruling::Allow { rule } | Ruling::Ask { rule, .. } | Ruling::Deny { rule, .. } => rule,
        }
    }

    /// Why it is not simply allowed. None: it is.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Ruling::Allow { .. } => None,
            Ruling::Ask { reason, .. } | Ruling::Deny { reason, .. } => Some(reason),
        }
    }
}

/// Whether a call only looks, as far as the gate and its tool can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearing {
    /// It changes nothing anywhere.
    Looks,
    /// It changes something, or that cannot be ruled out.
    Acts,
}

/// What a call of a shadow run would have been: how it was ruled on, and what it would have done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadowed {
    pub ruling: Ruling,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
}

/// Which earlier answers of a person answer a question as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// A yes to every call that does the very same.
    Remembered,
    /// None: only a yes to this one call, because of what the run has read since.
    Fresh,
}

/// One thing a call would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    pub kind: EffectKind,
    /// An absolute path; for `Run`, a command; for `Network`, a host or URL, or the command that reaches out where it does
    /// not say to whom; for `Unknown`, what cannot be told.
    pub what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    Read,
    Write,
    Delete,
    Run,
    /// Reaches another machine.
    Network,
    /// Something that cannot be told before it is run.
    Unknown,
}

impl EffectKind {
    pub fn as_str(self) -> &'static str {
        match self {
            EffectKind::Read => "read",
            EffectKind::Write => "write",
            EffectKind::Delete => "delete",
            EffectKind::Run => "run",
            EffectKind::Network => "network",
            EffectKind::Unknown => "unknown",
        }
    }
}

impl Effect {
    /// Adds it once, and no more than a person would read.
    pub fn add(effects: &mut Vec<Effect>, kind: EffectKind, what: &str) {
        let effect = Effect { kind, what: what.trim_matches('"').to_owned() };
        if effects.contains(&effect) {
            return;
        }
        match effects.len() {
            listed if listed < EFFECTS_MAX => effects.push(effect),
            // what is not listed must not look like nothing
            EFFECTS_MAX => effects.push(Effect { kind: EffectKind::Unknown, what: "and more".to_owned() }),
            _ => {}
        }
    }
}

/// Effects beyond these are not listed: a list as long as this may leave something out.
pub const EFFECTS_MAX: usize = 64;
