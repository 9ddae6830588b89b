//! Every kind of id, each with its own type. Ids are derived, never drawn: only a root run's id is random, and it
//! arrives with its start.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is no id of the kind asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadId {
    pub text: String,
    pub expected: &'static str,
}

impl fmt::Display for BadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not {}", self.text.escape_debug(), self.expected)
    }
}

impl std::error::Error for BadId {}

macro_rules! name {
    ($(#[$doc:meta])* $id:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $id(String);

        impl $id {
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

macro_rules! number {
    ($(#[$doc:meta])* $id:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $id(pub $inner);

        impl $id {
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

macro_rules! lettered {
    ($(#[$doc:meta])* $id:ident, $letter:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $id(pub u32);

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!(concat!($letter, "{}"), self.0))
            }
        }
        impl From<$id> for String {
            fn from(id: $id) -> String {
                id.to_string()
            }
        }
        impl TryFrom<String> for $id {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                text.parse()
            }
        }
        impl FromStr for $id {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                text.strip_prefix($letter)
                    .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0'))
                    .and_then(|digits| digits.parse().ok())
                    .map(Self)
                    .ok_or_else(|| BadId { text: text.to_owned(), expected: $expected })
            }
        }
    };
}

name!(
    /// A run. Root runs get a random or a given id (`[A-Za-z0-9._-]{1,64}`, see [`RunId::parse`]).
    RunId
);
name!(
    /// The name of a tool, as the model calls it.
    ToolName
);
name!(
    /// The name of a fact that tools provide and require.
    FactName
);
name!(
    /// A tree snapshot: the digest of all that a workspace holds, by content. Equal ids mean equal trees.
    TreeId
);
name!(
    /// The name of an acceptance check.
    CheckName
);
name!(
    /// A phase of a program.
    PhaseName
);
name!(
    /// What makes an input unique in its run's inbox; chosen by the sender.
    InputId
);
name!(
    /// `provider/model`, for example `openai/gpt-5-mini`.
    ModelName
);
name!(
    /// A BLAKE3 digest in lower-case hex, 64 characters.
    Digest
);

number!(
    /// The number of an event in its run's journal. The first event is 1; 0 is "before everything".
    Seq(u64)
);
number!(
    /// Grows with every claim of a run; a write under an older one is refused.
    Fence(u64)
);

lettered!(
    /// A turn: `t12`. Counted from 1.
    TurnId,
    't',
    "a turn (t1, t2, …)"
);
lettered!(
    /// An action: `a7`, numbered from 1 in call order over the whole run.
    ActionId,
    'a',
    "an action (a1, a2, …)"
);
lettered!(
    /// A note the model took: `n7` was taken by action `a7`.
    NoteId,
    'n',
    "a note (n1, n2, …)"
);
lettered!(
    /// Evidence: `e7` is what action `a7` brought back.
    EvidenceId,
    'e',
    "evidence (e1, e2, …)"
);

impl RunId {
    /// A run id a person chose: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadId { text: text.to_owned(), expected: "a run id (1 to 64 of A-Z a-z 0-9 . _ -)" })
        }
    }
}

impl ActionId {
    /// The evidence this action brings back when it ends well.
    pub fn evidence(self) -> EvidenceId {
        EvidenceId(self.0)
    }
}

impl EvidenceId {
    pub fn action(self) -> ActionId {
        ActionId(self.0)
    }
}

/// One attempt at a turn's model call: `t12.m2`. Attempts are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    pub turn: TurnId,
    pub attempt: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.m{}", self.turn, self.attempt)
    }
}

impl Digest {
    /// The digest of `parts`, each preceded by its length, so that no two lists of parts collide by concatenation.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().to_hex().to_string())
    }

    /// The digest of some bytes: the address of a blob.
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).to_hex().to_string())
    }
}
