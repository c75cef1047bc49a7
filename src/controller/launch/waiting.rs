//! Launches that wait: for a cap, for capacity, for a price, for the user.

use std::time::Duration;

use jiff::Timestamp;
use tracing::{info, warn};

use super::launcher::JobLauncher;
use super::spending_cap;
use crate::controller::job_memory::{HeldBack, JobMemory};
use crate::controller::observe::Observed;
use crate::job::{Plan, RECORD_FORMAT, Reason, ResolvedSpec, Waiting};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::elapsed;
use crate::policy::lifecycle::reconcile::history;
use crate::policy::lifecycle::relaunch;
use crate::policy::purchase::fallback_limit::TooDear;
use crate::policy::purchase::spending_cap::Caps;
use crate::ports::{Clock, chain};

/// Between two looks while the job waits for a cheap machine. A refusal is forgotten after three
/// minutes.
pub(super) const WAIT_LOOK: Duration = Duration::from_secs(60);

/// The policy of a reason that comes from a cap.
const CAP: &str = "cap";

impl JobLauncher {
    /// Whether one of these caps holds this plan back; then it is recorded why.
    pub(crate) async fn hold_back(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        plan: &Plan,
        caps: &Caps,
    ) -> Result<bool, JobDirError> {
        let reason = self.caps.cap_of(caps, plan).await?;
        self.caps.tell_jobs_over().await;
        let held = reason.is_some();
        match reason {
            Some(reason) => self.wait_for(dir, memory, reason, None, spending_cap::LOOK).await,
            None => memory.held_back = None,
        }
        Ok(held)
    }

    /// Records why a job waits, once for each sentence.
    pub(crate) async fn wait_for(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        reason: Reason,
        until: Option<Timestamp>,
        look: Duration,
    ) {
        let before = memory.held_back.take().map(|held| held.why);
        if before.as_ref() != Some(&reason.text) {
            info!(job = %dir.job(), "not launched: {}", reason.text);
            let waiting = Waiting {
                format: RECORD_FORMAT,
                at: reason.at,
                by: self.name.clone(),
                why: reason.text.clone(),
                until,
                due: None,
                seen: None,
            };
            if let Err(error) = dir.put_waiting(&waiting).await {
                warn!(job = %dir.job(), "cannot record why it waits: {}", chain(&error));
            }
        }
        let (until, is_cap) = (self.clock.mono() + look, reason.policy == CAP);
        memory.held_back = Some(HeldBack { until, why: reason.text, is_cap });
    }

    /// Every place has refused lately. The records say which and when to ask again, so nothing more
    /// is written.
    pub(super) fn wait_for_capacity(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        waits: String,
        again: Timestamp,
    ) {
        let wait = elapsed(self.clock.now(), again).min(WAIT_LOOK);
        // A launch that was planned since then has cleared it.
        if memory.held_back.is_none() {
            info!(job = %dir.job(), "waits for {waits}");
        }
        let until = self.clock.mono() + wait;
        memory.held_back = Some(HeldBack { until, why: waits, is_cap: false });
    }

    /// No machine within the limits is free, and the free ones cost more than the user was told.
    pub(super) async fn wait_for_permission(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        because: &[String],
        dear: &TooDear,
    ) {
        let (history, now) = (history(&observed.attempts), self.clock.now());
        let none = relaunch::found_none(&history)
            .or_else(|| because.first().cloned())
            .map(|none| format!("{none}; "))
            .unwrap_or_default();
        let (dearer, enough) = (dear.sentence(), dear.enough());
        let text = format!(
            "a machine within its `fallback_cost`: {none}{dearer}; `lamp extend {} --fallback-cost {enough}` allows it",
            dir.job()
        );
        let again = relaunch::scarcity(&spec.spec, &history, now)
            .map(|(_, again)| elapsed(now, again))
            .filter(|wait| *wait > Duration::ZERO);
        let look = again.map_or(WAIT_LOOK, |again| again.min(WAIT_LOOK));
        self.wait_for(dir, memory, Reason::new(now, "placement", "wait", text), None, look).await;
    }
}
