//! Watches the second attempt of a rehearsal until it is known whether its script went on.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::rehearsal::Evidence;
use super::rehearsal_again::PAST_ITS_START_SECS;
use super::rehearse::Stage;
use crate::job::{AttemptNo, CheckpointNo, Manifest, checkpoint_step};
use crate::jobdir::{Event, JobDirError, What};
use crate::wire::FileRead;

/// A second attempt that has told and shown nothing for so long after its start will not do so. Long enough for a slow import; with
/// steps of minutes, set it against --to-end.
pub const FIRST_STEP_WITHIN: Duration = Duration::from_secs(10 * 60);

/// A script that could say its step has as long for its first one. What it read and how it fared is then taken instead.
const TOLD_WITHIN_SECS: f64 = 120.0;

/// The files of the checkpoint as the script found them, by path: whether one was read is told by comparison.
type Found = BTreeMap<String, FileRead>;

impl Stage<'_> {
    /// Waits until the second attempt has shown where it went on, has ended, or has run long without a sign.
    pub(super) async fn goes_on(&self, attempt: AttemptNo, evidence: &mut Evidence, within: Duration) -> Result<(), JobDirError> {
        let mut found = None;
        let until = self.context.clock.mono() + within;
        let running = self.runs(attempt, FIRST_STEP_WITHIN, async || self.look_at_files(attempt, evidence, &mut found).await).await?;
        loop {
            evidence.second = self.dir.events(attempt).await?;
            self.look_at_files(attempt, evidence, &mut found).await?;
            self.look_at_steps(attempt, evidence).await?;
            self.look_at_saves(attempt, evidence).await?;
            self.look_at_end(attempt, evidence).await?;
            let waited = self.context.clock.mono() >= until;
            if self.is_known(evidence) || !running || waited || self.over(attempt).await? {
                return Ok(());
            }
            self.pause().await;
        }
    }

    fn is_known(&self, evidence: &Evidence) -> bool {
        let again = &evidence.again;
        let is_told = again.step.is_some() && again.is_told;
        let is_past = again.ran_secs >= if self.tells_steps() { TOLD_WITHIN_SECS } else { PAST_ITS_START_SECS };
        let has_read = again.read.is_some_and(|(read, _)| read > 0);
        let saved = again.saved.as_ref().is_some_and(|(_, step)| step.is_some() && again.from.is_some() || again.read.is_some());
        is_told || again.ended.is_some() || has_read && is_past || saved && !(self.tells_steps() && !is_past)
    }

    /// Whether the script says its step, as far as the job knows.
    fn tells_steps(&self) -> bool {
        self.log_pattern
    }

    async fn look_at_steps(&self, attempt: AttemptNo, evidence: &mut Evidence) -> Result<(), JobDirError> {
        if let Some((first, _)) = self.steps(attempt).await? {
            (evidence.again.step, evidence.again.is_told) = (Some(first), true);
        } else if evidence.again.step.is_none() {
            // Steps that come from the log are only in the heartbeat.
            let progress = self.dir.status(attempt).await?.and_then(|status| status.progress);
            evidence.again.step = progress.and_then(|progress| progress.step);
            evidence.again.is_told = self.log_pattern;
        }
        Ok(())
    }

    async fn look_at_saves(&self, attempt: AttemptNo, evidence: &mut Evidence) -> Result<(), JobDirError> {
        let Some(resumed) = resumed(&evidence.second) else { return Ok(()) };
        let own = evidence.second.iter().find_map(|event| match &event.what {
            What::Checkpoint { checkpoint, .. } if checkpoint.attempt == attempt => Some(checkpoint.number),
            _ => None,
        });
        if evidence.again.saved.is_some() {
            return Ok(());
        }
        let Some(before) = self.dir.manifest(resumed).await? else { return Ok(()) };
        evidence.again.from = step_of(&before, None);
        if let Some(number) = own {
            let step = self.dir.manifest(number).await?.and_then(|own| step_of(&own, Some(&before)));
            evidence.again.saved = Some((number, step));
        }
        Ok(())
    }

    async fn look_at_end(&self, attempt: AttemptNo, evidence: &mut Evidence) -> Result<(), JobDirError> {
        let Some(started) = started(&evidence.second) else { return Ok(()) };
        let ended = evidence.second.iter().find_map(|event| match &event.what {
            What::WorkloadEnded { exit, .. } => Some((event.at, *exit)),
            _ => None,
        });
        let now = ended.map_or_else(|| self.context.clock.now(), |(at, _)| at);
        evidence.again.ran_secs = now.duration_since(started).as_secs_f64();
        let is_over = ended.is_some() || self.over(attempt).await?;
        evidence.again.ended = is_over.then(|| ended.map_or((false, "its machine is gone".into()), |(_, exit)| (exit.is_in_order(), exit.to_string())));
        Ok(())
    }

    /// What the script has read of the files that were put there for it. Nobody else reads them before the first of its own saves.
    async fn look_at_files(&self, attempt: AttemptNo, evidence: &mut Evidence, found: &mut Option<Found>) -> Result<(), JobDirError> {
        if evidence.again.read.is_some_and(|(read, files)| read == files) || evidence.again.saved.is_some() {
            return Ok(());
        }
        let Some(spec) = evidence.checkpoint.as_ref() else { return Ok(()) };
        let Some(lease) = self.dir.lease(attempt).await? else { return Ok(()) };
        let Some(files) = self.workstation.reads(&lease.instance, &spec.path).filter(|files| !files.is_empty()) else { return Ok(()) };
        let Some(started) = started(&self.dir.events(attempt).await?) else {
            *found = Some(files.into_iter().map(|file| (file.path.clone(), file)).collect());
            return Ok(());
        };
        let before = found.get_or_insert_with(|| files.iter().map(|file| (file.path.clone(), file.clone())).collect());
        let is_read = |file: &&FileRead| file.read_at >= started && before.get(&file.path).is_some_and(|known| known.inode == file.inode);
        let read = files.iter().filter(is_read).count();
        evidence.again.read = Some((evidence.again.read.map_or(read, |(known, _)| known.max(read)), before.len()));
        Ok(())
    }
}

fn started(events: &[Event]) -> Option<Timestamp> {
    events.iter().find(|event| matches!(event.what, What::WorkloadStarted { .. })).map(|event| event.at)
}

fn resumed(events: &[Event]) -> Option<CheckpointNo> {
    events.iter().find_map(|event| match &event.what {
        What::Resumed { checkpoint } => Some(checkpoint.number),
        _ => None,
    })
}

/// The step that a checkpoint's files are named by; of those alone that another does not hold in the same way.
fn step_of(manifest: &Manifest, less: Option<&Manifest>) -> Option<f64> {
    let is_old = |path: &str, sha256: &str| less.is_some_and(|less| less.files.iter().any(|file| file.path == path && file.sha256 == sha256));
    let new = manifest.files.iter().filter(|file| !is_old(&file.path, &file.sha256));
    checkpoint_step(new.map(|file| file.path.as_str()), &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{CheckpointFile, RECORD_FORMAT};

    #[test]
    fn the_step_of_a_save_is_that_of_its_new_files() {
        let manifest = |files: &[(&str, &str)]| Manifest {
            format: RECORD_FORMAT,
            number: CheckpointNo::FIRST,
            attempt: AttemptNo::FIRST,
            created: "2026-01-01T00:00:00Z".parse().unwrap(),
            step: None,
            files: files
                .iter()
                .map(|(path, sha256)| CheckpointFile { path: (*path).into(), bytes: 1, sha256: (*sha256).into(), key: "k".into(), mode: None })
                .collect(),
            save_secs: 0.0,
            upload_secs: 0.0,
            marks: None,
            silent_secs: None,
            asked_by: None,
        };
        let first = manifest(&[("checkpoint-100/trainer_state.json", "a"), ("checkpoint-150/trainer_state.json", "b")]);
        let second = manifest(&[("checkpoint-150/trainer_state.json", "b"), ("checkpoint-50/trainer_state.json", "c")]);
        assert_eq!((step_of(&first, None), step_of(&second, Some(&first))), (Some(150.0), Some(50.0)));
    }
}
