//! A job with a recorded attempt but no spec: its records were deleted, and its machine does not
//! know.
//!
//! Its agent has the spec in memory, writes new heartbeats and reads requests, so `lamp stop` ends
//! it. No controller relaunches or settles it. A sweep leaves it alone until its hard cap, because
//! another job root may know the job. If its agent is silent, the user ends its machine by id
//! (`account::unknown_job_machines`).

use jiff::Timestamp;

use crate::app::exit_code::ExitCode;
use crate::app::fault::Fault;
use crate::app::text::local_time;
use crate::job::{AttemptNo, Plan};
use crate::jobdir::{JobDir, JobDirError, unless_damaged};

pub struct SpecGone {
    attempt: AttemptNo,
    heard: Option<Timestamp>,
    plan: Option<Plan>,
    is_over: bool,
}

impl SpecGone {
    /// For a job without spec and receipt, as the caller has seen. `None`: it has no attempt.
    ///
    /// # Errors
    /// Fails when the store is unreachable.
    pub async fn of(dir: &JobDir) -> Result<Option<SpecGone>, JobDirError> {
        let Some(attempt) = dir.attempts().await?.pop() else { return Ok(None) };
        let (plan, status) = tokio::join!(dir.plan(attempt), dir.status(attempt));
        let (settled, outcome) = tokio::join!(dir.settled(attempt), dir.outcome(attempt));
        let is_over = unless_damaged(settled)?.is_some() || unless_damaged(outcome)?.is_some();
        Ok(Some(SpecGone {
            attempt,
            heard: unless_damaged(status)?.map(|status| status.at),
            plan: unless_damaged(plan)?,
            is_over,
        }))
    }

    pub fn what(&self, dir: &JobDir) -> String {
        let sign = match (self.heard, &self.plan) {
            (Some(at), _) => format!("its machine last reported at {}", local_time(at)),
            (None, Some(plan)) => {
                format!("{} in {} was planned for it", plan.offer.instance_type, plan.offer.zone)
            }
            (None, None) => "an attempt of it is recorded".to_owned(),
        };
        format!(
            "the spec of job `{}` is gone, and {sign} (attempt {})",
            dir.job(),
            self.attempt.number()
        )
    }

    pub fn meaning(&self) -> String {
        if self.is_over {
            return "that attempt is over; nobody relaunches it, and nobody writes its receipt"
                .to_owned();
        }
        let cap = self.plan.as_ref().and_then(|plan| plan.kill_at);
        let limits = cap.map_or_else(
            || "its own limits end it".to_owned(),
            |at| format!("its own limits end it, at {} at the latest", local_time(at)),
        );
        format!(
            "its machine may run and bill until {limits}; nobody relaunches it, and nobody writes its receipt"
        )
    }

    /// Whether its attempt may still run.
    pub fn may_run(&self) -> bool {
        !self.is_over
    }

    pub fn hint(&self, dir: &JobDir) -> Option<String> {
        let hint = || {
            format!(
                "`lamp stop {0}` asks its agent, which still reads that; where that does not help, `lamp sweep` names its machine, and how to end it",
                dir.job()
            )
        };
        (!self.is_over).then(hint)
    }

    pub fn fault(&self, dir: &JobDir) -> Fault {
        let fault = Fault::new(ExitCode::NOT_FOUND, self.what(dir)).meaning(self.meaning());
        if let Some(hint) = self.hint(dir) { fault.hint(hint) } else { fault }
    }
}
