//! Waits before or between starts, and meanwhile reacts to a cancel, a notice or a limit.
//!
//! Not here: what is downloaded, and when it is given up (`fetch_status`).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::agent::Agent;
use super::startup::fetch_status::Fetching;
use super::wake::WakeReason;
use crate::policy::{Decision, SuperviseStep};

/// The time between two looks. More often shows nothing sooner, since the heartbeat is slower; less
/// often leaves stale text.
const FETCH_LOOK: Duration = Duration::from_secs(2);

impl Agent {
    /// Returns the result, or why the download is given up; or the decision that ends the attempt.
    pub(crate) async fn patient_fetch<T>(
        &mut self,
        fetching: &Fetching,
        work: impl Future<Output = T> + Send,
    ) -> Result<Result<T, String>, Decision> {
        let mut work = work.boxed();
        loop {
            let decision = tokio::select! {
                biased;
                fetched = &mut work => {
                    self.reporter.attention.tell_of_fetching(None);
                    return Ok(Ok(fetched));
                }
                decision = self.guard_for(FETCH_LOOK) => decision,
            };
            if let Some(decision) = decision {
                return Err(decision);
            }
            let look = fetching.look();
            self.reporter.attention.tell_of_fetching(look.told);
            if let Some(text) = look.over {
                return Ok(Err(text));
            }
        }
    }

    /// Like [`Agent::guard`], for at most this long.
    pub(crate) async fn guard_for(&mut self, time: Duration) -> Option<Decision> {
        let clock = Arc::clone(&self.out.clock);
        tokio::select! {
            biased;
            decision = self.guard() => Some(decision),
            () = clock.sleep(time) => None,
        }
    }

    /// Watches for urgent events during the preparation. Resolves with the decision that ends the
    /// attempt.
    async fn guard(&mut self) -> Decision {
        loop {
            let wake = self
                .events
                .wait(self.notices.changes(), &*self.out.clock, Duration::from_secs(1), None)
                .await;
            if wake == WakeReason::Tick {
                self.ports.service.alive();
            }
            self.look_at_clock();
            let decision = self.decide();
            if matches!(decision.step, SuperviseStep::End(_)) {
                return decision;
            }
            self.report();
        }
    }
}
