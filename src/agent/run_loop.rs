//! The loop: wake, observe, decide, act.
//!
//! `startup` runs before it, `shutdown` after it. Not here: a wait for the store (the senders do
//! that), or a second place that decides.

use std::time::Duration;

use super::agent::{Agent, Finish};
use super::shutdown::drain::{Drained, ShutdownSequence};
use super::timers::TICK;
use crate::job::AttemptPhase;
use crate::policy::{LimitLevel, SuperviseStep, WorkloadStage};

/// The time between two samples of a workload that has long been busy, with no verdict, limit,
/// notice or end near. Nearly all hours are so, and each tick costs the same. NVML's buffers cover
/// the gap, and events still wake the loop. Slower would break the five seconds of `lamp logs -f`,
/// since the log is read at the tick.
const TICK_STEADY: Duration = Duration::from_secs(3);

/// A workload is watched closely for this long first: short experiments have ended by then.
const STEADY_AFTER: Duration = Duration::from_secs(10 * 60);

impl Agent {
    /// Runs until power-off. On a real machine it does not return.
    pub async fn run(mut self) -> Finish {
        let mut decision = self.begin().await;
        loop {
            if let Some(SuperviseStep::End(end)) =
                decision.as_ref().map(|decision| decision.step.clone())
            {
                let reason = decision.take().expect("it was just read").reason;
                match ShutdownSequence::new(&mut self, end, reason).run().await {
                    Drained::Over(finish) => return finish,
                    Drained::NoticeWasVoid => {
                        self.state.ending = None;
                        decision = self.proceed().await;
                    }
                }
                continue;
            }
            if self.ended.is_some_and(|ended| ended.exit.success())
                && self.state.stage == WorkloadStage::Setup
            {
                self.note_setup().await;
                decision = self.start_main().await;
                continue;
            }
            let every = self.tick();
            let wake = self
                .events
                .wait(
                    self.notices.changes(),
                    &*self.out.clock,
                    every,
                    self.workload.as_deref().filter(|_| self.ended.is_none()),
                )
                .await;
            self.observe(wake).await;
            decision = Some(self.decide());
            decision = self.act(decision).await;
            self.report();
        }
    }

    /// How long until the next tick, if nothing wakes the loop sooner.
    fn tick(&self) -> Duration {
        let busy = self
            .watching
            .busy_since
            .is_some_and(|since| self.out.clock.mono().saturating_sub(since) >= STEADY_AFTER);
        let far = self.limit_level == LimitLevel::Far
            && self.notices.notice().is_none()
            && self.wish().is_none()
            && self.moves().is_none();
        let runs = self.reporter.phase == AttemptPhase::Running
            && self.state.stage == WorkloadStage::Main
            && self.ended.is_none();
        if busy && far && runs && self.board.done().is_none() { TICK_STEADY } else { TICK }
    }
}
