//! The end of a machine: its author and its date. A controller records its own ends, and looks for
//! others' ends if the cloud only says "by a user".
//!
//! ```text
//!   terminate ──> ending.json ──> TerminateInstances
//!   not shown ──> found by its token, if its tags are gone
//!   gone, "by a user" ──> ending.json, else the outcome, else its alarm ──> billing::settlement
//! ```

use std::time::Duration;

use super::settler::Settler;
use crate::controller::act_result::{ActEffect, ActError};
use crate::controller::job_memory::JobMemory;
use crate::controller::observe::Observed;
use crate::instance::{InstanceState, InstanceView, MachineRef};
use crate::job::{AttemptNo, Ending, RECORD_FORMAT};
use crate::jobdir::{JobDir, JobDirError, layout};
use crate::policy::lifecycle::machine_owner::is_kept_for;
use crate::policy::lifecycle::reconcile::{
    AlarmSeen, AttemptFacts, CloudAnswer, EndEvidence, Unshown, patience,
};
use crate::policy::may_be_by_an_alarm;
use crate::ports::{Clock, CloudError, PowerOff, chain};

/// A machine is settled after it was missing for a minute. No earlier look needs its end.
const MISSED: Duration = Duration::from_secs(60);

/// A store that does not tell the time gets so long. Then this workstation's clock must do.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

impl Settler {
    /// Records why this controller ends the machine of an attempt: once, before the first call.
    pub(crate) async fn intend_to_end(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        observed: &Observed,
        attempt: AttemptNo,
        why: &str,
    ) -> Result<(), ActError> {
        let memory = memory.attempts.entry(attempt).or_default();
        if memory.ending_recorded {
            return Ok(());
        }
        let facts = observed.attempts.iter().find(|facts| facts.plan.attempt == attempt);
        let (heard, stood) = (
            facts.and_then(|facts| Some(facts.status.as_ref()?.at)),
            facts.and_then(|facts| facts.watched.stood),
        );
        let ending = Ending {
            format: RECORD_FORMAT,
            at: self.clock.now(),
            by: self.name.clone(),
            why: why.to_owned(),
            heard,
            stood,
            swept_by: None,
        };
        let _theirs_is_as_good = dir.create_ending(attempt, &ending).await?;
        memory.ending_recorded = true;
        Ok(())
    }

    /// Whether a silent machine was heard since the look. After a partition as long as its lease it
    /// may return at any moment (seed 8001928 of 24 h). Asked before the record of the end, and
    /// again after it (seed 14004959 of 24 h).
    pub(crate) async fn has_spoken(
        &self,
        dir: &JobDir,
        observed: &Observed,
        ends: Option<AttemptNo>,
    ) -> Result<bool, ActError> {
        let Some(facts) = observed.attempts.iter().find(|facts| Some(facts.plan.attempt) == ends)
        else {
            return Ok(false);
        };
        if facts.watched.silent_for <= patience(facts) {
            return Ok(false);
        }
        let there =
            |key: String| async move { self.store.head(&key).await.map_err(JobDirError::from) };
        // The first record is a lease, and a heartbeat follows.
        if !(facts.status.is_some() || facts.lease.is_some())
            && there(layout::lease(dir.job(), facts.plan.attempt)).await?.is_some()
        {
            return Ok(true);
        }
        let beat = there(layout::status(dir.job(), facts.plan.attempt)).await?;
        Ok(beat.is_some_and(|beat| Some(beat.modified) != facts.watched.heard_at))
    }

    /// Terminates a machine, or stops it if its disk is kept. If the machine was heard again, or
    /// the cloud's answer is old, nothing is done: after a sleep of the workstation it may be
    /// another attempt's machine. Both are checked before and after the records.
    pub(crate) async fn power_off(
        &self,
        dir: &JobDir,
        memory: &mut JobMemory,
        observed: &Observed,
        (machine, how): (&MachineRef, PowerOff),
        (ends, why): (Option<AttemptNo>, &str),
    ) -> Result<ActEffect, ActError> {
        if self.has_spoken(dir, observed, ends).await? || memory.answers_are_old(self.clock.mono())
        {
            return Ok(ActEffect::Changed);
        }
        let doing = if how == PowerOff::Stop { "stopping" } else { "terminating" };
        tracing::warn!(job = %dir.job(), %machine, "{doing}: {why}");
        if let Some(attempt) = ends {
            self.intend_to_end(dir, memory, observed, attempt, why).await?;
        }
        if self.has_spoken(dir, observed, ends).await? || memory.answers_are_old(self.clock.mono())
        {
            return Ok(ActEffect::Changed);
        }
        let cloud = self.clouds.get(machine.cloud)?;
        let stopped = match how {
            PowerOff::Stop => cloud.stop(machine).await,
            PowerOff::Terminate => cloud.terminate(machine).await,
        };
        match (stopped, ends) {
            (Err(CloudError::Unstoppable { what }), Some(attempt)) => {
                match Self::cannot_stop(dir, memory, (machine, attempt), &what) {
                    None => Ok(ActEffect::Changed),
                    Some(text) => Err(ActError::Unstoppable(text)),
                }
            }
            (stopped, _) => Ok(stopped.map(|()| ActEffect::Waiting)?),
        }
    }

    /// For a machine that cannot be stopped: the decision is made again. If it is still to be
    /// stopped, its disk has the only copy of the work, and the user must decide. Gives the message
    /// for the user.
    fn cannot_stop(
        dir: &JobDir,
        memory: &mut JobMemory,
        (machine, attempt): (&MachineRef, AttemptNo),
        what: &str,
    ) -> Option<String> {
        let memory = memory.attempts.entry(attempt).or_default();
        if !std::mem::replace(&mut memory.watched.unstoppable, true) {
            return None;
        }
        let price = memory
            .plan
            .as_ref()
            .map_or_else(String::new, |plan| format!(" {}", plan.offer.hourly()));
        Some(format!(
            "{machine} in {} runs on and bills{price}: {what}; what its disk holds is not all in the job root, so that nothing ends it unasked: \
             `lamp cancel {}` does, and its disk goes with it",
            machine.region,
            dir.job()
        ))
    }

    /// Looks for a machine that is not shown: it may run, or may have ended. `None`: the answer
    /// stands.
    pub(crate) async fn looked_for(
        &self,
        observed: &Observed,
        answer: &CloudAnswer,
    ) -> Option<CloudAnswer> {
        let CloudAnswer::Known(views) = answer else { return None };
        let plan = &observed.attempts.iter().find(|attempt| attempt.settled.is_none())?.plan;
        let shown =
            views.iter().any(|view| view.client_token.as_deref() == Some(&plan.client_token));
        if shown || self.clouds.belongs_elsewhere(plan).is_some() {
            return None;
        }
        let found = self.clouds.get(plan.offer.cloud).ok()?.confirm_missing(plan).await;
        found.map_or_else(
            |error| Some(CloudAnswer::Unknown(chain(&error))),
            |ended| Some(CloudAnswer::Known(views.iter().cloned().chain([ended?]).collect())),
        )
    }

    /// Dates the end of a machine that is no longer shown, or whose stop is undated, as after a
    /// power-off on EC2. `Some`: the store does not tell the time yet.
    pub(crate) async fn date_unshown(
        &self,
        dir: &JobDir,
        observed: &mut Observed,
        answer: &CloudAnswer,
    ) -> Option<CloudAnswer> {
        let CloudAnswer::Known(views) = answer else { return None };
        let open = observed.attempts.iter_mut().find(|attempt| attempt.settled.is_none())?;
        let is_its = |view: &&InstanceView| {
            view.client_token.as_deref() == Some(&open.plan.client_token)
                || is_kept_for(&open.plan, view)
        };
        let (due, since) = match views.iter().find(is_its) {
            None => (open.watched.missing_for >= MISSED, open.watched.missing_for),
            // A kept machine has no end before its start.
            Some(view)
                if open
                    .plan
                    .starts
                    .as_ref()
                    .is_some_and(|starts| starts.launched == view.launched) =>
            {
                return None;
            }
            Some(view) => (
                view.state.is_out() && view.ended.is_none(),
                open.watched.dark_for.unwrap_or_default(),
            ),
        };
        if self.store.is_folder() || !due {
            return None;
        }
        let [plan, outcome, ending] = [layout::plan, layout::outcome, layout::ending]
            .map(|path| path(dir.job(), open.plan.attempt));
        match tokio::join!(self.clock.store_now(), self.store.head(&plan), self.store.head(&outcome), self.store.head(&ending)) {
            (Some(now), Ok(plan), Ok(outcome), Ok(ending)) => {
                let [planned, outcome, ending] = [plan, outcome, ending].map(|found| found.map(|meta| meta.modified));
                open.watched.unshown = Some(Unshown { now, planned, outcome, ending });
            }
            _ if since > PATIENCE => {}
            _ => return Some(CloudAnswer::Unknown("the cloud does not say when the machine ended, and the job root not what time it is".into())),
        }
        None
    }

    /// Looks who ended the machine of the open attempt, and when it stopped, if the cloud does not
    /// say it. After an error nothing is settled.
    pub(crate) async fn look_who_ended(
        &self,
        dir: &JobDir,
        observed: &mut Observed,
        answer: &CloudAnswer,
    ) -> Result<(), ActError> {
        let CloudAnswer::Known(views) = answer else { return Ok(()) };
        let Some(open) = observed.attempts.iter_mut().find(|attempt| attempt.settled.is_none())
        else {
            return Ok(());
        };
        let token = Some(open.plan.client_token.as_str());
        let Some(view) = views.iter().find(|view| {
            view.client_token.as_deref() == token && *view.tags.owner == *self.clouds.owner
        }) else {
            return Ok(());
        };
        if !matches!(view.state, InstanceState::Terminated | InstanceState::Stopped)
            || !may_be_by_an_alarm(view)
        {
            return Ok(());
        }
        let ending = dir.ending(open.plan.attempt).await?;
        let alarm = if ending.is_some() || open.outcome.is_some() {
            AlarmSeen::Unknown
        } else {
            self.alarm_of(open, &view.machine()).await?
        };
        open.watched.ended = EndEvidence { ending, alarm };
        Ok(())
    }

    async fn alarm_of(
        &self,
        attempt: &AttemptFacts,
        machine: &MachineRef,
    ) -> Result<AlarmSeen, CloudError> {
        if attempt.plan.launch.as_ref().is_none_or(|launch| launch.alarm.is_none()) {
            return Ok(AlarmSeen::Quiet);
        }
        match self.clouds.get(machine.cloud)?.alarmed(machine).await {
            Ok(rang) => Ok(rang.map_or(AlarmSeen::Quiet, AlarmSeen::RangAt)),
            Err(error @ (CloudError::Throttled | CloudError::Ambiguous { .. })) => Err(error),
            Err(error) => {
                tracing::warn!(%machine, "whether its alarm has ended it is not known: {}", chain(&error));
                Ok(AlarmSeen::Unknown)
            }
        }
    }
}
