//! A job whose calls the cloud throttles makes them rarer, by itself: its next look may come in two
//! seconds, and a thousand jobs that ask again at each look are what is throttled.
//!
//! Each kind of act has its own pace, so that a launch which may not be tried yet holds back no
//! end. Not here: how long a pause is (`backoff`).

use std::time::Duration;

use tracing::debug;

use crate::controller::act::{ActError, Done};
use crate::controller::drive::Controller;
use crate::controller::job_memory::JobMemory;
use crate::controller::observe::Observed;
use crate::controller::retry_delay::backoff;
use crate::job::{Reason, ResolvedSpec};
use crate::jobdir::JobDir;
use crate::policy::lifecycle::reconcile::Act;
use crate::ports::CloudError;

/// The acts of one kind that were throttled in a row.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    kind: &'static str,
    failures: u32,
    /// On the steady clock.
    until: Duration,
}

/// What is paced together; `None`: it calls no cloud, or keeps its own pace.
fn kind(act: &Act) -> Option<&'static str> {
    match act {
        Act::CreatePlan { .. } | Act::Launch { .. } => Some("launch"),
        Act::Terminate { .. } => Some("terminate"),
        Act::Stop { .. } => Some("stop"),
        Act::RaiseKillAt { .. } => Some("raise"),
        Act::Interrupt { .. } => Some("interrupt"),
        Act::Guard { .. } | Act::Settle(_) | Act::WriteReceipt(_) | Act::Wait { .. } => None,
    }
}

impl Controller {
    /// Does an act, unless it is to be tried later.
    pub(crate) async fn act_at_its_pace(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
        act: &Act,
    ) -> Result<Done, ActError> {
        let under_way = observed.attempts.iter().any(|attempt| attempt.settled.is_none());
        if let Act::Wait { until: Some(until), why } = act
            && under_way
        {
            let reason = Reason::new(self.clock.now(), "reconcile", "wait", why.clone());
            self.wait_for(dir, memory, reason, Some(*until), Duration::ZERO).await;
        }
        let Some(kind) = kind(act) else { return self.act(dir, spec, memory, observed, act).await };
        let before = memory.pace.filter(|pace| pace.kind == kind);
        if before.is_some_and(|pace| self.clock.mono() < pace.until) {
            return Ok(Done::Waiting);
        }
        let done = self.act(dir, spec, memory, observed, act).await;
        match &done {
            Err(ActError::Cloud(CloudError::Throttled)) => {
                let failures = before.map_or(0, |pace| pace.failures);
                let pause = backoff(&format!("{} {}", self.name, dir.job()), failures);
                debug!(job = %dir.job(), kind, "throttled; again in {pause:?}");
                memory.pace = Some(Pace {
                    kind,
                    failures: failures.saturating_add(1),
                    until: self.clock.mono() + pause,
                });
                if kind == "launch" {
                    let text = "the cloud, which takes no more calls of this account just now and is asked again within a minute";
                    self.wait_for(
                        dir,
                        memory,
                        Reason::new(self.clock.now(), "pace", "throttled", text),
                        None,
                        Duration::ZERO,
                    )
                    .await;
                }
            }
            Ok(_) if before.is_some() => {
                memory.pace = None;
                if kind == "launch" && memory.was_launched() {
                    let text = "the first word of its machine, which was launched";
                    self.wait_for(
                        dir,
                        memory,
                        Reason::new(self.clock.now(), "pace", "launched", text),
                        None,
                        Duration::ZERO,
                    )
                    .await;
                }
            }
            _ => {}
        }
        done
    }
}
