//! A standalone run of the agent, from the agent's records: no controller planned, priced or
//! settled it.
//!
//! It must never invent a market or a price: the agent does not know what its machine costs, and
//! the output says so.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cost_bound::Limited;
use super::job_summary::Summary;
use super::silence::Silence;
use crate::app::text::local_time;
use crate::instance::Status;
use crate::job::{AttemptNo, EndedBecause, JobState, Outcome, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Span, Usd, elapsed};

/// A heartbeat comes every 15 s. Shorter than a lease, and a laptop that slept would count as lost.
const SILENT_AFTER: Duration = Duration::from_secs(30 * 60);

pub struct AloneRun {
    spec: ResolvedSpec,
    status: Option<Status>,
    outcome: Option<Outcome>,
}

impl AloneRun {
    /// `None`: a controller's job, or no job.
    ///
    /// # Errors
    /// Fails when the store is unreachable, or a record is not understood.
    pub async fn read(dir: &JobDir) -> Result<Option<Self>, JobDirError> {
        match dir.spec().await? {
            Some(spec) if spec.is_alone() => AloneRun::of(dir, spec).await.map(Some),
            _ => Ok(None),
        }
    }

    /// # Errors
    /// As [`AloneRun::read`].
    pub async fn of(dir: &JobDir, spec: ResolvedSpec) -> Result<Self, JobDirError> {
        let outcome = dir.outcome(AttemptNo::FIRST).await?;
        let status = if outcome.is_none() { dir.status(AttemptNo::FIRST).await? } else { None };
        Ok(AloneRun { spec, status, outcome })
    }

    pub fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    fn state(&self) -> JobState {
        match (&self.outcome, &self.status) {
            (Some(outcome), _) => outcome.because.job_outcome().into(),
            (None, Some(status)) => status.phase.into(),
            (None, None) => JobState::Preparing,
        }
    }

    pub fn summary(self, now: Timestamp) -> Summary {
        let silent = self.silence(now).filter(|silence| *silence >= SILENT_AFTER);
        let state = self.state();
        let (outcome, status) = (self.outcome.as_ref(), self.status.as_ref());
        let mut attention: Vec<String> = status
            .map(|status| status.attention.clone())
            .or(outcome.map(|outcome| outcome.losses.clone()))
            .unwrap_or_default();
        if let Some(silence) = silent {
            attention.push(format!(
                "its agent was last heard of {} ago: it was killed, or its machine is out",
                Span::from_secs(silence.as_secs())
            ));
        }
        let last_reason = outcome
            .and_then(|outcome| outcome.reasons.last())
            .or(status.and_then(|status| status.reason.as_ref()));
        Summary {
            job: self.spec.job.to_string(),
            name: self.spec.spec.name.clone(),
            state,
            attempt: Some(AttemptNo::FIRST.number()),
            instance: None,
            machine: None,
            end_asked: None,
            held: None,
            kept_until: None,
            ends: Vec::new(),
            verdict: status
                .filter(|_| state == JobState::Running && silent.is_none())
                .map(|status| status.verdict.clone()),
            alone: true,
            usd: Usd::ZERO,
            usd_unheard: Usd::ZERO,
            usd_estimated: false,
            most_usd: None,
            most_job_usd: None,
            usd_per_hour: None,
            started: outcome.map(|outcome| outcome.started).unwrap_or(self.spec.created),
            ended: outcome.map(|outcome| outcome.ended),
            progress: status.and_then(|status| status.progress.clone()),
            cpu_percent: status.and_then(|status| status.cpu_percent),
            gpus: status.map(|status| status.gpus.clone()).unwrap_or_default(),
            checkpoints: 0,
            heartbeat_seconds: self.silence(now).map(|silence| silence.as_secs_f64()),
            silence: Silence::of(state, silent, SILENT_AFTER),
            reason: last_reason.map(|reason| reason.text.clone()),
            exit_code: outcome.and_then(|outcome| outcome.exit).map(|exit| exit.shell_code()),
            because: outcome.map(|outcome| outcome.because),
            waiting: None,
            waiting_until: None,
            tried_again: None,
            trouble: None,
            driven_here: None,
            kept: Vec::new(),
            discarded: None,
            attention,
            watch_sentences: status.map(Status::watch_sentences).unwrap_or_default(),
            idle_usd: None,
            lost_usd: None,
            gang: None,
            plan: None,
            owner: None,
            moved: None,
            before: None,
            working_since: status.and_then(|status| status.working_since),
            last_checkpoint: status
                .and_then(|status| status.last_checkpoint.as_ref())
                .map(|last| last.created),
            watch_end: None,
            is_quiet: false,
            limited: Limited::Job,
            refusal: None,
        }
    }

    fn silence(&self, now: Timestamp) -> Option<Duration> {
        self.status.as_ref().map(|status| elapsed(status.at, now))
    }

    /// Its receipt with the fields of every receipt; unknown values are `null`. `None`: it has not
    /// ended.
    pub fn receipt(&self) -> Option<Value> {
        let outcome = self.outcome.as_ref()?;
        let exit_code = outcome.exit.map(|exit| exit.shell_code());
        let took = elapsed(outcome.started, outcome.ended);
        let attempt = json!({
            "attempt": outcome.attempt, "instance": null, "instance_type": null, "zone": null, "market": null, "started": outcome.started,
            "ended": outcome.ended, "billed_seconds": null, "usd": null, "ended_because": outcome.because, "exit": outcome.exit,
            "resumed_from": null,
        });
        Some(json!({
            "format": outcome.format, "job": outcome.job, "name": self.spec.spec.name, "outcome": outcome.because.job_outcome(),
            "exit_code": exit_code, "because": outcome.because, "reason": reason(outcome), "started": outcome.started, "ended": outcome.ended,
            "attempts": [attempt], "total_usd": null, "ran_seconds": took.as_secs_f64(), "useful_seconds": outcome.useful.secs_f64(),
            "idle_seconds": outcome.idle.secs_f64(), "checkpoints": 0, "last_checkpoint": null, "losses": outcome.losses, "alone": true,
        }))
    }

    /// The same for people.
    pub fn receipt_text(&self) -> Option<String> {
        let outcome = self.outcome.as_ref()?;
        let mut lines = vec![format!(
            "receipt of {}: {}",
            outcome.job,
            outcome.because.job_outcome().told(Some(outcome.because))
        )];
        lines.push(format!("  {}", reason(outcome)));
        let ended_itself =
            matches!(outcome.because, EndedBecause::Succeeded | EndedBecause::Failed);
        if let Some(exit) = outcome.exit.filter(|_| !ended_itself) {
            lines.push(format!("  {exit}"));
        }
        lines.push(format!(
            "  from {} to {}",
            local_time(outcome.started),
            local_time(outcome.ended)
        ));
        lines.push("  a run of the agent alone: no machine was bought for it, and nobody told it what this one costs".to_owned());
        let span = |span: Span| Span::from_secs(span.secs_f64().round() as u64);
        lines.push(format!("  useful {}, idle {}", span(outcome.useful), span(outcome.idle)));
        lines.extend(outcome.losses.iter().map(|loss| super::summary_text::loss_text(loss)));
        Some(lines.join("\n"))
    }
}

fn reason(outcome: &Outcome) -> String {
    outcome
        .reasons
        .last()
        .map_or_else(|| outcome.because.word().replace('_', " "), |reason| reason.text.clone())
}
