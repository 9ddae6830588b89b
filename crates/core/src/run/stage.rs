//! What a run is doing, with exactly the data that needs. Read [`Stage`] first.

use super::*;

/// What a run is doing, with exactly the data that needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The next thing is a model call, or an end.
    Ready(Ready),
    /// A model call is journaled as sent.
    Thinking(Thinking),
    /// The calls of a reply, each with its own life.
    Acting {
        turn: TurnId,
        actions: BTreeMap<ActionId, Action>,
    },
    /// An answer was accepted in form; the acceptance checks decide. None: not run yet.
    Verifying {
        round: u32,
        accepted: Accepted,
        verdicts: BTreeMap<CheckName, Option<Verdict>>,
        since: Timestamp,
        /// How often they were voided because the workspace moved under them.
        #[serde(default, skip_serializing_if = "is_zero")]
        voided: u32,
        /// Whether verdicts on changed checks count: asked of a person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<Box<Action>>,
    },
    Rest(Box<RunEnded>),
}

fn is_zero(times: &u32) -> bool {
    *times == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ready {
    /// Attempts already made at this turn's call.
    pub attempts: u32,
    /// Failures of it since the last claim, and how many replies of it were malformed.
    pub failures: u32,
    pub malformed: u32,
    /// What the last failure leads to.
    pub after: Option<AfterFailure>,
    /// The last failure in words.
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinking {
    pub attempt: AttemptId,
    pub purpose: Purpose,
    pub reserved: Reservation,
    pub bytes: u64,
    /// Tokens of reply that it asks for, where its event says.
    pub output: Option<u64>,
    pub digest: Digest,
    /// Whether a tail went along.
    pub tail: bool,
    pub failures: u32,
    pub malformed: u32,
}

/// Why nothing new is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Winding {
    pub why: WindingWhy,
    pub since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindingWhy {
    Cancelled,
    /// Time or deadline.
    OutOf(BudgetKind),
    /// A hook said so.
    Hook,
}

/// Where the run stands with the closing call of a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closing {
    NotYet,
    /// A budget was reached: the next call is the closing one, if it fits.
    Owed(BudgetKind),
    /// It was made, or did not fit: the run is exhausted.
    Over(BudgetKind, Option<String>),
}

/// Whether a worker is at it, as far as the journal tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// Not claimed yet, or at rest.
    Idle,
    /// Claimed; if nobody holds the claim, its worker died.
    Claimed,
    Parked,
    Suspended {
        cause: Suspension,
        detail: String,
    },
}

/// A person had the workspace set back to before an action, and nobody has gone on since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetBack {
    pub by: String,
    pub at: Timestamp,
    /// The earliest of what was undone.
    pub to: ActionId,
}

/// A person's yes to verdicts on changed checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waived {
    /// Of the question.
    pub digest: Digest,
    pub by: String,
    /// Programs of checks that may be run as they are now, by the digests of their contents.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, Option<Digest>>,
}

/// For the tail, and for what a server puts around messages and before them.
const AROUND: u64 = 2_000;

/// The last request whose size the provider told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    pub bytes: u64,
    /// Of its input.
    pub tokens: u64,
    pub generation: u32,
    /// Items of the window it held.
    pub items: usize,
    /// Whether a tail went along, which is no part of the next request.
    pub tail: bool,
    pub at: Timestamp,
    pub of: Counts,
    /// Tokens of the reply as far as it goes back: its output, without thinking that does not. 0: not told.
    #[serde(default)]
    pub reply: u64,
}

impl Anchor {
    /// Whether a later count cannot be of the same window, and this one goes on counting. What only grew cannot have become a
    /// tenth smaller: such a count is of something else, as of what was not cached. A share that a rebuild kept is no count,
    /// and may well have been a third too much.
    pub(crate) fn contradicts(&self, later: &Anchor) -> bool {
        let least = match self.of {
            Counts::Reported => self.tokens / 10 * 9,
            Counts::Kept { .. } => self.tokens / 3 * 2,
        };
        self.generation == later.generation && self.items <= later.items && later.tokens < least
    }

    /// Whether a later count of the same window says more than can have been added, which was so many bytes: no tokenizer makes
    /// more tokens than bytes.
    pub(crate) fn is_outgrown_by(&self, later: &Anchor, grown: u64) -> bool {
        let most = match self.of {
            Counts::Reported => self.tokens,
            Counts::Kept { .. } => self.tokens.saturating_mul(3) / 2,
        };
        self.generation == later.generation
            && self.items <= later.items
            && later.tokens > most.saturating_add(grown).saturating_add(AROUND)
    }

    /// Whether it says more than the whole request can have been.
    pub(crate) fn is_beyond_its_bytes(&self) -> bool {
        self.bytes > 0 && self.tokens > self.bytes.saturating_add(AROUND)
    }

    /// Whether it can be of all that was sent, of which so many bytes were pictures: not of what was not cached alone.
    pub(crate) fn could_be_whole(&self, pictures: u64) -> bool {
        /// Bytes of a token, where texts are as thin as they get: no tokenizer has more on average.
        const BYTES_PER_TOKEN: u64 = 8;
        self.tokens.saturating_mul(BYTES_PER_TOKEN) >= self.bytes.saturating_sub(pictures)
    }

    /// Whether a later count says the same: what was added since has no more tokens than bytes.
    pub(crate) fn is_borne_out_by(&self, later: &Anchor) -> bool {
        let grown = later.bytes.saturating_sub(self.bytes);
        self.generation == later.generation
            && self.items <= later.items
            && !self.contradicts(later)
            && later.tokens <= self.tokens.saturating_add(grown)
    }
}

/// Whose count an anchor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counts {
    /// The provider's, of a whole request.
    Reported,
    /// What a rebuild kept, in proportion to the provider's last count: all of the items but the one at this place, which is
    /// new.
    Kept { but: usize },
}

/// What an action brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub tool: ToolName,
    /// The event that brought it.
    pub seq: Seq,
    /// None: its turn has left the window, and it is read from the journal when it is needed.
    pub content: Option<Content>,
    /// Index into [`Run::epochs`].
    pub epoch: usize,
    pub holds: Holds,
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_s_count_outweighs_the_share_that_a_rebuild_kept() {
        let anchor = |tokens, items, of| Anchor {
            bytes: 0,
            tokens,
            generation: 2,
            items,
            tail: false,
            at: Timestamp(1),
            of,
            reply: 0,
        };
        let reported = |tokens| anchor(tokens, 5, Counts::Reported);
        let kept = anchor(3_900, 5, Counts::Kept { but: 1 });
        assert!(!kept.contradicts(&reported(3_188)), "it is what the server has counted");
        assert!(kept.contradicts(&reported(700)), "it is of what was not cached");
        assert!(reported(3_900).contradicts(&reported(3_188)), "what only grew is no smaller");
        assert!(!reported(3_900).contradicts(&reported(3_600)));
        assert!(!reported(3_900).contradicts(&Anchor { generation: 3, ..reported(700) }), "it is another window");
    }

    #[test]
    fn a_count_is_borne_out_by_one_that_fits_what_was_added() {
        let count = |tokens, bytes| {
            let of = Counts::Reported;
            Anchor { bytes, tokens, generation: 2, items: 5, tail: false, at: Timestamp(1), of, reply: 0 }
        };
        let first = count(8_000, 30_000);
        assert!(first.could_be_whole(0) && !count(600, 30_000).could_be_whole(0));
        assert!(count(1_600, 230_000).could_be_whole(220_000), "pictures have tokens of their own");
        assert!(first.is_borne_out_by(&count(8_300, 31_000)) && first.is_borne_out_by(&count(7_900, 30_000)));
        assert!(!first.is_borne_out_by(&count(12_000, 31_000)), "a thousand bytes are no four thousand tokens");
        assert!(!first.is_borne_out_by(&count(4_000, 31_000)), "what only grew is no smaller");
        assert!(
            first.is_outgrown_by(&count(24_000, 32_000), 2_000),
            "two thousand bytes are no sixteen thousand tokens"
        );
        assert!(!first.is_outgrown_by(&count(24_000, 50_000), 20_000), "twenty thousand may be");
        assert!(count(13_130, 4_814).is_beyond_its_bytes() && !count(5_500, 4_814).is_beyond_its_bytes());
    }
}
