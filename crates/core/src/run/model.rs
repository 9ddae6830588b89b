//! What model calls make of a run: replies, failures, what they cost.

use super::*;
use crate::context::window::Refused;
use crate::image;
use crate::outcome::Wired;

impl Run {
    /// Calls go to this model from now on. What was counted and found out of the one before says nothing of it.
    pub(crate) fn take_model(&mut self, model: &ModelSpec) {
        self.model = model.clone();
        self.anchor = None;
        self.doubted = None;
        self.window.served = Served::default();
        self.window.guessed = None;
        self.window.overflows = 0;
        self.window.answered = 0;
        self.window.refused = None;
    }

    pub(super) fn spend(&mut self, usage: &Usage, micros: u64) {
        self.spent.usage.add(usage);
        self.spent.micros = self.spent.micros.saturating_add(micros);
    }

    pub(super) fn replied(&mut self, replied: &ModelReplied) {
        self.barren_claims = 0;
        self.spend(&replied.usage, replied.micros);
        let turn = self.turn();
        if self.task.context.summary.is_some() {
            self.summaries.turn_began(turn, self.head);
        }
        let (purpose, bytes, tail) = match &self.stage {
            Stage::Thinking(thinking) => (thinking.purpose, thinking.bytes, thinking.tail),
            Stage::Ready(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => {
                (Purpose::Work, 0, false)
            }
        };
        match (replied.settled, purpose) {
            (Settled::Reported, Purpose::Work) => {
                let tokens = replied.usage.tokens().saturating_sub(replied.usage.output);
                let (generation, items) = (self.window.generation, self.window.items.len());
                let of = Counts::Reported;
                let goes_back = replied.reply.wired.as_ref().and_then(Wired::owed_back).is_some();
                let thought = if goes_back { 0 } else { replied.usage.reasoning };
                let reply = replied.usage.output.saturating_sub(thought);
                let anchor = Anchor { bytes, tokens, generation, items, tail, at: self.at, of, reply };
                self.take_count(anchor);
            }
            (Settled::Estimated, _) | (_, Purpose::Closing) => {}
        }
        self.window.overflows = 0;
        self.window.answered = 0;
        self.window.refused = None;
        if !self.task.routes.is_empty() {
            self.routing.replied(replied.usage.tokens().saturating_sub(replied.usage.output));
        }
        self.spent.turns += 1;
        self.stage = Stage::Ready(Ready::default());
        let reply = &replied.reply;
        let owed = reply.wired.as_ref().and_then(Wired::owed_back);
        match purpose {
            Purpose::Work if !reply.calls.is_empty() => {
                self.stage = Stage::Acting { turn, actions: BTreeMap::new() };
                let text = if self.drops_prose() { String::new() } else { reply.text.clone() };
                // The calls join the text when they are proposed, in the same batch.
                // Without its text, what came with it is no whole any more.
                let wired = owed.filter(|_| text == reply.text);
                self.say(turn, Item::Assistant { text, calls: Vec::new(), wired });
                self.arguments_of(reply);
                self.phase_acts();
            }
            Purpose::Work => {
                self.say(turn, Item::Assistant { text: reply.text.clone(), calls: Vec::new(), wired: owed });
                self.phase_replied(&reply.text);
                self.show_pending();
            }
            Purpose::Closing => {
                let remark = (!reply.text.is_empty()).then(|| reply.text.clone());
                if let Some(text) = &remark {
                    self.say(turn, Item::Assistant { text: text.clone(), calls: Vec::new(), wired: owed });
                }
                self.show_pending();
                let raised = self.closing == Closing::NotYet && self.limits.turns.left(self.spent.turns) > 0;
                if raised {
                    self.tell(observe::note("The budget was raised meanwhile. Go on."));
                    return;
                }
                let budget = match self.closing {
                    Closing::Owed(budget) | Closing::Over(budget, _) => budget,
                    Closing::NotYet => BudgetKind::Turns,
                };
                self.closing = Closing::Over(budget, remark);
            }
        }
    }

    /// One count against another: what cannot be is not taken until a second one bears it out.
    fn take_count(&mut self, count: Anchor) {
        let is_less = self.anchor.is_some_and(|before| before.contradicts(&count));
        let is_more = match self.anchor {
            Some(before) => before.is_outgrown_by(&count, self.grown_since(&before)),
            None => count.is_beyond_its_bytes(),
        };
        let is_borne_out = self.doubted.is_some_and(|first| first.is_borne_out_by(&count));
        if !(is_less || is_more) || is_borne_out {
            self.anchor = Some(count);
            self.doubted = None;
            return;
        }
        let images = image::of_items(self.window.items.iter()).filter(|_| self.model.takes_images());
        let pictures = images.map(|image| image.sent_bytes()).sum();
        self.doubted = Some(count).filter(|count| count.could_be_whole(pictures));
    }

    /// Bytes of what stands in the window and an anchor has not counted.
    fn grown_since(&self, anchor: &Anchor) -> u64 {
        let header = match anchor.of {
            Counts::Reported => None,
            Counts::Kept { but } => self.window.items.get(but),
        };
        header.into_iter().chain(self.window.items.iter().skip(anchor.items)).map(|item| window::length(item)).sum()
    }

    pub(super) fn model_failed(&mut self, failed: &ModelFailed) {
        self.spend(&failed.usage, failed.micros);
        let (failures, malformed) = match &self.stage {
            Stage::Thinking(thinking) => (thinking.failures, thinking.malformed),
            Stage::Ready(_) | Stage::Acting { .. } | Stage::Verifying { .. } | Stage::Rest(_) => (0, 0),
        };
        let (failures, malformed) = match failed.class {
            crate::outcome::ModelErrorClass::Malformed => (failures, malformed + 1),
            crate::outcome::ModelErrorClass::Lost => (failures, malformed),
            crate::outcome::ModelErrorClass::Transient
            | crate::outcome::ModelErrorClass::RateLimited
            | crate::outcome::ModelErrorClass::Overloaded
            | crate::outcome::ModelErrorClass::Quota
            | crate::outcome::ModelErrorClass::Authentication
            | crate::outcome::ModelErrorClass::BadRequest
            | crate::outcome::ModelErrorClass::ContextExhausted
            | crate::outcome::ModelErrorClass::ContentRefused
            | crate::outcome::ModelErrorClass::Script => (failures + 1, malformed),
        };
        if failed.class == crate::outcome::ModelErrorClass::ContextExhausted {
            self.overflowed(failed);
        }
        if let Some(told) = &failed.told {
            self.tell(observe::note(told));
        }
        self.stage = Stage::Ready(Ready {
            attempts: failed.attempt.attempt,
            failures,
            malformed,
            after: Some(failed.next),
            detail: match failed.next {
                AfterFailure::Retry { .. } => failed.message.clone(),
                AfterFailure::Suspend | AfterFailure::Fail(_) | AfterFailure::ContextExhausted => {
                    route::in_words(self, &failed.message)
                }
            },
        });
        match failed.next {
            AfterFailure::Retry { .. } => {}
            AfterFailure::Suspend | AfterFailure::Fail(_) | AfterFailure::ContextExhausted => route::gave_up(self),
        }
        self.show_pending();
    }

    /// Something too long was sent: what the provider said of its limits counts from now on.
    pub(super) fn overflowed(&mut self, failed: &ModelFailed) {
        let limit = self.window_limit();
        self.window.overflows += 1;
        if let Stage::Thinking(thinking) = &self.stage {
            self.window.refused = Some(Refused {
                digest: thinking.digest.clone(),
                bytes: thinking.bytes,
                output: thinking.output,
                generation: self.window.generation,
            });
            // Its count of what it refused is as good as one of what it took.
            if let Some(tokens) = failed.served.and_then(|served| served.prompt) {
                self.anchor = Some(Anchor {
                    bytes: thinking.bytes,
                    tokens,
                    generation: self.window.generation,
                    items: self.window.items.len(),
                    tail: thinking.tail,
                    at: self.at,
                    of: Counts::Reported,
                    reply: 0,
                });
            }
        }
        let told: Served = failed.served.unwrap_or_default();
        let served = &mut self.window.served;
        served.output = told.output.or(served.output);
        served.bytes = told.bytes.or(served.bytes);
        match (told.limit, told.output.or(told.bytes)) {
            (Some(told), _) => served.limit = Some(told.min(limit)),
            (None, Some(_)) => {}
            // It did not say: less than was thought, in this run.
            (None, None) => self.window.guessed = Some(limit - limit / 4),
        }
    }
}
