//! `[context]`, of a task file or of configuration: how the window is kept. Shares are written as 0.25 and kept in
//! thousandths.

use longrein_core::context::settings::{ContextSpec, Trigger};

use super::error::{Place, TaskFileError};
use super::section::{Section, Value};

/// What one place says of it; None: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextSettings {
    /// When the window is made anew.
    pub trigger: Option<Trigger>,
    /// Kept free for errors of the estimate, in thousandths of the window.
    pub margin: Option<u32>,
    /// After a rebuild at most so much of what may be sent is used, in thousandths.
    pub target: Option<u32>,
    /// Of that, the newest whole turns.
    pub recent: Option<u32>,
}

/// Its keys.
pub const CONTEXT_KEYS: [&str; 4] = ["trigger", "margin", "target", "recent"];

/// The largest share each of them may be, in thousandths.
const MOST: [(&str, u32); 3] = [("margin", 500), ("target", 700), ("recent", 500)];

impl ContextSettings {
    /// Sets a key to a share, or says what it must be.
    pub fn set(&mut self, key: &str, share: f64) -> Result<(), String> {
        let most = MOST.iter().find(|(name, _)| *name == key).map_or(1000, |(_, most)| *most);
        let found = thousandths(share).filter(|share| *share <= most);
        let place = match key {
            "trigger" => {
                let share = found.ok_or_else(|| TRIGGER.to_owned())?;
                self.trigger = Some(Trigger::At(share));
                return Ok(());
            }
            "margin" => &mut self.margin,
            "target" => &mut self.target,
            "recent" => &mut self.recent,
            _ => return Err(format!("there is no such key; near it: {}", CONTEXT_KEYS.join(", "))),
        };
        let most = f64::from(most) / 1000.0;
        *place = Some(found.ok_or_else(|| format!("this must be a share such as 0.10, at most {most}"))?);
        Ok(())
    }

    /// Sets a key to a word, or says what it must be.
    pub fn set_word(&mut self, key: &str, word: &str) -> Result<(), String> {
        match (key, word) {
            ("trigger", "economic") => {
                self.trigger = Some(Trigger::Economic);
                Ok(())
            }
            ("trigger", _) => Err(TRIGGER.to_owned()),
            // No share is a word.
            (_, _) => self.set(key, f64::NAN),
        }
    }

    /// Lays what is said here over the rest; answers which keys were.
    pub(super) fn lay_over(&self, spec: &mut ContextSpec) -> Vec<&'static str> {
        let mut laid = Vec::new();
        if let Some(trigger) = self.trigger {
            spec.trigger = trigger;
            laid.push("trigger");
        }
        let shares = [
            ("margin", self.margin, &mut spec.margin),
            ("target", self.target, &mut spec.target),
            ("recent", self.recent, &mut spec.recent),
        ];
        for (key, share, place) in shares {
            if let Some(share) = share {
                *place = share;
                laid.push(key);
            }
        }
        laid
    }
}

const TRIGGER: &str = "this must be \"economic\" or a share such as 0.80";

/// Whether a program's own settings are within what files may say; else which are not.
pub(crate) fn check(spec: &ContextSpec) -> Result<(), String> {
    let trigger = match spec.trigger {
        Trigger::Economic => None,
        Trigger::At(share) => Some(("trigger", share)),
    };
    let shares = [("margin", spec.margin), ("target", spec.target), ("recent", spec.recent)];
    for (key, share) in trigger.into_iter().chain(shares) {
        let said = ContextSettings::default().set(key, f64::from(share) / 1000.0);
        said.map_err(|problem| format!("context.{key} is {share} thousandths: {problem}"))?;
    }
    Ok(())
}

/// `[context]` of a task file, and the model it names for summaries.
pub(super) fn read(mut table: Section) -> Result<(ContextSettings, Option<(Place, String)>), TaskFileError> {
    let mut settings = ContextSettings::default();
    for key in CONTEXT_KEYS {
        let Some(node) = table.node(key) else { continue };
        let said = match &node.value {
            Value::Text(text) => settings.set_word(key, text),
            Value::Fraction(text) | Value::Whole(text) => settings.set(key, text.parse().unwrap_or(f64::NAN)),
            Value::Truth(_) | Value::Moment(_) | Value::List(_) | Value::Table(_) => settings.set(key, f64::NAN),
        };
        said.map_err(|problem| table.at(key, node.line, problem))?;
    }
    let place = table.place("summary");
    let summary = table.text("summary")?.map(|name| (place, name));
    table.finish()?;
    Ok((settings, summary))
}

/// A share above 0 and up to 1, in thousandths.
fn thousandths(share: f64) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    (share > 0.0 && share <= 1.0).then(|| ((share * 1000.0).round() as u32).max(1))
}
