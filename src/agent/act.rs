//! Act: carries out a step. Every choice is already made.

use super::agent::Agent;
use super::checkpoint::save_request::Saved;
use super::report::stack_dumps;
use super::startup::attempt::PendingEnd;
use super::startup::older_checkpoint::RollbackResult;
use crate::agent::report::attention::Topic;
use crate::agent::report::retry_sender::chain;
use crate::job::{AttemptPhase, Reason};
use crate::jobdir::EventDetail;
use crate::market::Span;
use crate::policy::{Decision, SERVICE, SuperviseStep};
use crate::ports::Signal;

impl Agent {
    pub(crate) async fn act(&mut self, decision: Option<Decision>) -> Option<Decision> {
        let mut decision = decision?;
        loop {
            // The policy may have skipped its `Stacks` step between two samples. Record them before
            // the restart.
            if decision.reason.policy == "stall"
                && matches!(decision.step, SuperviseStep::Restart { .. } | SuperviseStep::End(_))
            {
                self.record_stacks(&decision.reason).await;
            }
            match decision.step.clone() {
                SuperviseStep::End(_) => return Some(decision),
                SuperviseStep::Continue => {}
                SuperviseStep::Save { asked_by } => self.begin_save(asked_by),
                SuperviseStep::Notify => self.reporter.tell(&decision.reason),
                SuperviseStep::Stacks => self.record_stacks(&decision.reason).await,
                SuperviseStep::GoBack { before } => match Box::pin(self.go_back(before)).await {
                    RollbackResult::Done(decision) => return decision,
                    RollbackResult::NoneOlder => {
                        decision = self.decide();
                        continue;
                    }
                },
                SuperviseStep::Restart { after } => return self.restart(&decision, after).await,
            }
            self.obey_checkpoint_wish();
            return None;
        }
    }

    async fn record_stacks(&mut self, reason: &Reason) {
        if self.warned_of_stacks(reason) {
            return;
        }
        let scope = self.scope();
        self.alive_while(stack_dumps::collect(
            &self.out,
            &self.reporter.journal,
            &*self.ports.stacks,
            &scope,
        ))
        .await;
    }

    /// One stack dump per stall is enough.
    fn warned_of_stacks(&mut self, reason: &Reason) -> bool {
        if self.reporter.attention.has_said(&Topic::Stacks) {
            return true;
        }
        self.reporter.tell(reason);
        let text = "stalled: what the processes wait for was written down".to_owned();
        self.reporter.attention.show(Topic::Stacks, text);
        false
    }

    /// Asks the workload for a checkpoint, unless a save is in progress. The upload runs beside the
    /// loop. Without a signal to ask by, the newest complete checkpoint is uploaded at once.
    pub(crate) fn begin_save(&mut self, asked_by: &'static str) {
        let Some((checkpoints, spec)) =
            self.checkpoints.clone().zip(self.attempt.resolved.spec.checkpoint.clone())
        else {
            return;
        };
        // A signal that ends the workload is only for its end.
        let signal =
            spec.signal.as_deref().and_then(Signal::from_name).filter(|signal| signal.asks());
        let Some((signal, workload)) = signal.zip(self.workload.clone()) else {
            checkpoints.upload_soon(asked_by);
            return;
        };
        let joined = self.saves.is_under_way();
        self.notices.save_asked(self.out.clock.now(), joined);
        if joined {
            return;
        }
        let (journal, saves, within) =
            (self.reporter.journal.clone(), self.saves.begin(), spec.grace.duration());
        tokio::spawn(async move {
            // Look at the folder first: later changes are then known to be the answer to the
            // signal.
            let ask = checkpoints.ask().await;
            let asked = workload.ask(signal);
            if let (Ok(processes), Some(signal)) = (&asked, spec.signal) {
                journal.record(EventDetail::Asked {
                    by: asked_by.into(),
                    signal,
                    processes: *processes,
                });
            }
            let saved = match asked {
                Ok(0) => Saved::NoHandler,
                Ok(_) => checkpoints.save(ask, asked_by, within).await,
                Err(error) => Saved::Failed(chain(&error)),
            };
            if saves.is_closed() {
                // Another save replaced this one and reports its own result.
                return;
            }
            if let Saved::Failed(why) = &saved {
                let text = format!(
                    "the workload was asked to save ({asked_by}), and no complete checkpoint came: {why}"
                );
                journal.record(EventDetail::Attention { text });
            }
            saves.send_replace(Some(saved));
        });
    }

    fn obey_checkpoint_wish(&mut self) {
        let wished = self.requests.wishes.borrow().checkpoint;
        // A request during a save is served after it, to include the work since.
        let may_ask = self.reporter.phase == AttemptPhase::Running && !self.saves.is_under_way();
        if may_ask && wished > self.state.checkpoint_wish {
            self.state.checkpoint_wish = wished;
            self.keep();
            self.begin_save("request");
        }
    }

    async fn restart(&mut self, decision: &Decision, after: Span) -> Option<Decision> {
        match decision.reason.policy.as_str() {
            "stall" => self.state.stall_restarts += 1,
            SERVICE => {}
            _ => self.state.retries_used += 1,
        }
        // Before the first signal: a workload that answers it with exit code 0 has not succeeded.
        self.state.ending = Some(PendingEnd::Restart);
        self.keep();
        self.stop_workload(self.attempt.resolved.spec.watch.term_grace.duration(), None).await;
        // The delay may be long. A notice, a request or a limit interrupts it, and no restart
        // follows.
        if let Some(decision) = self.guard_for(after.duration()).await {
            return Some(decision);
        }
        self.reporter.attention.take_back(&Topic::Verdict("stalled".into()));
        self.reporter.attention.take_back(&Topic::Stacks);
        // The stopped command may be the setup.
        self.proceed().await
    }
}
