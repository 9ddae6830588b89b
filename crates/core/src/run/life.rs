//! What claims, messages, checks and ends make of a run.

use super::*;
use crate::image::ImageRef;

impl Run {
    /// Goes on from another run's history. What that run left open is its own business; what it knew of the workspace may
    /// be true no more.
    pub(super) fn forked(&mut self, forked: &RunForked) {
        self.started = self.at;
        self.limits = forked.limits.clone();
        self.winding = None;
        self.closing = Closing::NotYet;
        self.activity = Activity::Idle;
        self.barren_claims = 0;
        self.open.clear();
        self.allowed.clear();
        self.leave_children();
        self.forget_refusals();
        self.repeats.forked();
        self.finish = Finish::default();
        self.begin_epoch();
        let task = Arc::clone(&self.task);
        let is_of_workspace =
            |tool: &ToolName| task.tool(tool).is_some_and(|tool| tool.effect == EffectClass::Workspace);
        Arc::make_mut(&mut self.evidence).retain(|_, evidence| !is_of_workspace(&evidence.tool));
        let evidence = &self.evidence;
        self.facts.retain(|_, id| evidence.contains_key(id));
        self.seen.clear();
        self.memory.inherited();
        self.first_tree.clone_from(&forked.first_tree);
        self.summaries.drop_duties();
        self.judging.awaited = None;
        let attempts = self.ready().map(|ready| ready.attempts).unwrap_or_default();
        self.stage = Stage::Ready(Ready { attempts, ..Ready::default() });
        self.course_heard();
        self.show_pending();
        self.tell(observe::note(&format!(
            "You go on here from event {} of run {}. Files may have changed since: look at them again before you rely on \
             what you read or wrote earlier.",
            forked.at, forked.from
        )));
    }

    pub(super) fn claimed(&mut self, fence: Fence) {
        self.set_back = None;
        let died = self.activity == Activity::Claimed && !matches!(self.stage, Stage::Rest(_));
        if died {
            self.recoveries += 1;
            // While children are out, what is achieved stands in their journals, and they count for themselves.
            if !crate::children::are_open(self) {
                self.barren_claims += 1;
            }
        } else {
            self.barren_claims = 1;
        }
        if matches!(self.activity, Activity::Suspended { .. }) {
            // Whoever goes on has seen to it that the judge can be reached.
            self.judging.judged();
        }
        self.fence = fence;
        self.activity = Activity::Claimed;
        self.lose_started();
        self.look_at_children_again();
        match &mut self.stage {
            Stage::Verifying { verdicts, .. } => verdicts.values_mut().for_each(|verdict| *verdict = None),
            Stage::Ready(ready) => {
                ready.failures = 0;
                if ready.after == Some(AfterFailure::Suspend) {
                    ready.after = None;
                }
            }
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Rest(_) => {}
        }
        self.course_claimed();
    }

    /// Turns every running action into a lost one (`semantics.md` C1).
    pub(super) fn lose_started(&mut self) {
        let at = self.at;
        let mut wrote = false;
        if let Stage::Acting { actions, .. } = &mut self.stage {
            for action in actions.values_mut() {
                if let Life::Started { at: started, .. } = action.life {
                    wrote |= action.effect != EffectClass::Read;
                    action.life = Life::Lost(Doubt { started, since: at, probes: 0, retry_at: None });
                }
            }
        }
        if wrote {
            self.begin_epoch();
        }
    }

    pub(super) fn message(&mut self, seq: Seq, text: &str, images: &[ImageRef]) {
        let item = observe::message(&message_id(seq), text, images);
        self.memory.message(seq, Arc::new(item.clone()));
        self.begin_counting_anew();
        let part = Part::Message(seq);
        match &self.stage {
            Stage::Thinking(_) | Stage::Acting { .. } => self.pending.push((part, item)),
            Stage::Ready(_) => {
                self.course_heard();
                self.window.push(part, Arc::new(item));
            }
            Stage::Verifying { .. } | Stage::Rest(_) => {
                self.forget_refusals();
                self.stage = Stage::Ready(Ready::default());
                self.course_heard();
                self.show_pending();
                self.window.push(part, Arc::new(item));
            }
        }
    }

    /// Leaves a rest that is not `done` or `cancelled`, with a word to the model on why.
    pub(super) fn reopen(&mut self, why: &str) {
        let reopens = match &self.stage {
            Stage::Rest(ended) => match ended.end {
                End::Exhausted(_) | End::Failed(_) | End::ContextExhausted => true,
                End::Done(_) | End::Cancelled => false,
            },
            Stage::Ready(ready) => {
                // A failure that another model or more budget may mend.
                let stuck = ready.after.is_some();
                if stuck {
                    self.stage = Stage::Ready(Ready { attempts: ready.attempts, ..Ready::default() });
                }
                false
            }
            Stage::Thinking(_) | Stage::Acting { .. } | Stage::Verifying { .. } => false,
        };
        if reopens {
            self.forget_refusals();
            self.begin_counting_anew();
            self.window.barren = 0;
            self.memory.progress += 1;
            self.window.overflows = 0;
            self.window.answered = 0;
            self.stage = Stage::Ready(Ready::default());
            self.course_heard();
            self.show_pending();
            self.tell(observe::note(why));
        }
    }

    /// A person has had a say: what came before is no circle any more, and no half-done end.
    pub(super) fn begin_counting_anew(&mut self) {
        self.repeats = Repeats::default();
        self.finish = Finish::default();
    }

    pub(super) fn forget_refusals(&mut self) {
        self.answer_refusals = 0;
        self.failed_rounds = 0;
        self.failed_checks.clear();
        self.hooks.stop_blocks = 0;
    }

    pub(super) fn check_finished(&mut self, finished: &CheckFinished) {
        self.barren_claims = 0;
        self.judging.judged();
        self.bring(&finished.brings);
        if finished.phase.is_some() {
            self.phase_checked(finished);
            return self.wrecked(finished);
        }
        if finished.verdict.proof.unrestored.is_some() && matches!(self.stage, Stage::Verifying { .. }) {
            return self.wrecked(finished);
        }
        let Stage::Verifying { verdicts, .. } = &mut self.stage else { return };
        if let Some(tree) = &finished.verdict.proof.tree {
            self.first_tree.get_or_insert_with(|| tree.clone());
        }
        verdicts.insert(finished.check.clone(), Some(finished.verdict.clone()));
        if verdicts.values().any(Option::is_none) {
            return;
        }
        let judged: Vec<_> =
            verdicts.iter().filter_map(|(name, verdict)| Some((name.clone(), verdict.clone()?))).collect();
        self.memory.judged(judged.into_iter());
        let failed: Vec<_> = verdicts
            .iter()
            .filter_map(|(name, verdict)| verdict.as_ref().map(|verdict| (name.clone(), verdict.clone())))
            .filter(|(_, verdict)| verdict.finding == Finding::Failed)
            .collect();
        if failed.is_empty() {
            self.look_at_question_again();
            return;
        }
        self.failed_rounds += 1;
        self.stage = Stage::Ready(Ready::default());
        let mut text = String::from("Your work was not accepted. These checks failed:");
        for (name, verdict) in &failed {
            let status = verdict.exit_status.map_or("no exit status".to_owned(), |status| format!("exit {status}"));
            let evidence = crate::payload::text_of(&verdict.evidence);
            text.push_str(&format!("\n- {name} ({status}):\n{}", evidence.trim_end()));
        }
        text.push_str("\nMend what is wrong, then answer again.");
        let item = observe::note(&text.replace("<longrein", "&lt;longrein").replace("</longrein", "&lt;/longrein"));
        self.tell(item);
        self.show_pending();
    }

    /// A check has left a workspace that is not the work, and it cannot be set back: nothing can be proven about it any more.
    fn wrecked(&mut self, finished: &CheckFinished) {
        let Some(why) = &finished.verdict.proof.unrestored else { return };
        self.stage = Stage::Ready(Ready {
            after: Some(AfterFailure::Fail(crate::event::Failure::Checks)),
            detail: format!("the check {}: {why}", finished.check),
            ..Ready::default()
        });
    }

    pub(super) fn ended(&mut self, ended: &RunEnded) {
        if let Stage::Acting { actions, .. } = &mut self.stage {
            for action in actions.values_mut() {
                let never_ran = match action.life {
                    Life::Queued | Life::Held { .. } => !action.in_doubt,
                    Life::Started { .. }
                    | Life::Lost(_)
                    | Life::Doubtful(..)
                    | Life::Unknown(_)
                    | Life::Checking(_)
                    | Life::Undoing(..)
                    | Life::Compensating(..)
                    | Life::Ended(_) => false,
                };
                if let Life::Undoing(error, _) | Life::Compensating(error, _) = &action.life {
                    action.life = Life::Ended(Ended::Error(checked::kept_though(error, "the run was brought to rest")));
                } else if never_ran {
                    let error = ToolError::new(class::CANCELLED, "Not run: the run was brought to rest before.");
                    action.life = Life::Ended(Ended::Refused(error));
                } else if !matches!(action.life, Life::Ended(_) | Life::Unknown(_)) {
                    let error =
                        ToolError::new(class::UNKNOWN_OUTCOME, "The run was brought to rest before it was known.");
                    // A person is asked about the world only: the files can be looked at (`semantics.md` D7).
                    action.life = match action.effect {
                        EffectClass::Read | EffectClass::Workspace => Life::Ended(Ended::Error(error)),
                        EffectClass::External => Life::Unknown(error),
                    };
                }
            }
            self.close_turn();
        }
        if matches!(ended.end, End::Done(_)) {
            self.memory.answered();
        }
        self.summaries.drop_duties();
        self.judging.awaited = None;
        self.hooks.stop = None;
        self.hooks.end = listening(&self.task, HookEvent::End, None);
        self.stage = Stage::Rest(Box::new(ended.clone()));
        self.winding = None;
        self.activity = Activity::Idle;
    }
}
