//! The job of a rehearsal, as its records show it.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::cli::Context;
use crate::job::{AttemptNo, AttemptPhase, Discarded, RECORD_FORMAT, StoredKind};
use crate::jobdir::{EventDetail, JobDir, JobDirError};
use crate::wire::Workstation;

const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) struct RehearsedJob<'a> {
    pub context: &'a Context,
    pub workstation: Workstation,
    pub dir: JobDir,
    /// The job has `watch.log_pattern`.
    pub log_pattern: bool,
}

impl RehearsedJob<'_> {
    /// Waits until the workload of an attempt runs; false when the job ended before, or the time is
    /// up.
    pub(crate) async fn runs(
        &self,
        attempt: AttemptNo,
        within: Duration,
        mut meanwhile: impl AsyncFnMut() -> Result<(), JobDirError>,
    ) -> Result<bool, JobDirError> {
        let until = self.context.clock.mono().saturating_add(within);
        loop {
            meanwhile().await?;
            let started = self
                .dir
                .events(attempt)
                .await?
                .iter()
                .any(|event| matches!(event.what, EventDetail::WorkloadStarted { .. }));
            let phase = self.dir.status(attempt).await?.map(|status| status.phase);
            if started && phase == Some(AttemptPhase::Running) {
                return Ok(true);
            }
            if self.over(attempt).await? || self.context.clock.mono() >= until {
                return Ok(started && phase == Some(AttemptPhase::Running));
            }
            self.pause().await;
        }
    }

    /// The first and the last step of an attempt, from the workload's own file: the heartbeat is
    /// too old.
    pub(crate) async fn steps(
        &self,
        attempt: AttemptNo,
    ) -> Result<Option<(f64, f64)>, JobDirError> {
        Ok(self.dir.lease(attempt).await?.and_then(|lease| self.workstation.steps(&lease.instance)))
    }

    pub(crate) async fn over(&self, attempt: AttemptNo) -> Result<bool, JobDirError> {
        Ok(self.dir.receipt().await?.is_some()
            || self.dir.settled(attempt).await?.is_some()
            || self.dir.outcome(attempt).await?.is_some())
    }

    pub(crate) async fn pause(&self) {
        self.context.clock.sleep(LOOK_EVERY).await;
    }
}

/// Removes what the rehearsal stored. Its measurements stay in the events, and the log stays: it
/// shows what the script found in the second attempt.
pub(crate) async fn clear_stored(context: &Context, workstation: &Workstation, dir: &JobDir) {
    let goes = |kind: StoredKind| kind != StoredKind::Logs;
    let Ok(stored) = dir.stored().await else { return };
    let stored: Vec<_> = stored.into_iter().filter(|(kind, _)| goes(*kind)).collect();
    let kinds = stored.iter().map(|(kind, _)| *kind).collect();
    let gone = Discarded {
        format: RECORD_FORMAT,
        at: context.clock.now(),
        by: workstation.name.clone(),
        kinds,
    };
    let cleared = async {
        dir.try_to_delete().await?;
        dir.mean_to_discard(gone).await?;
        dir.delete_stored(&stored, &AtomicU64::new(0)).await
    };
    if let Err(error) = cleared.await {
        context.printer.warn(format!("what the rehearsal stored is not all removed: {error}"));
        context.printer.hint(format!("`lamp discard {}` removes it", dir.job()));
    }
}
