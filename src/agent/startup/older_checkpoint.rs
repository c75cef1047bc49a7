//! Brings an older checkpoint back after a start that failed because of its checkpoint.
//!
//! The agent keeps the intent on disk first. After a crash, the next agent carries it out. Not
//! here: whether to go back (`policy::lifecycle::checkpoint_rollback`).

use std::time::Duration;

use super::attempt::PendingEnd;
use super::fetch_status::Fetching;
use crate::agent::agent::Agent;
use crate::agent::checkpoint::rollback::restore_before;
use crate::agent::checkpoint::save_request::Saved;
use crate::agent::report::attention::Topic;
use crate::agent::report::retry_sender::chain;
use crate::agent::startup::failed_resume::RollbackRecord;
use crate::job::CheckpointNo;
use crate::jobdir::EventDetail;
use crate::policy::Decision;

/// How long the upload of complete files may take before the folder is reset to an older
/// checkpoint.
const SAVED_WITHIN: Duration = Duration::from_secs(30 * 60);

/// The result of a rollback.
pub(crate) enum RollbackResult {
    /// An older checkpoint is back and the command runs again. With a decision, the attempt ends.
    Done(Option<Decision>),
    /// There is no older checkpoint: the failure is judged as any other.
    NoneOlder,
}

impl Agent {
    /// Restores the checkpoint before and restarts the command, or does the usual if there is none.
    pub(crate) async fn go_back(&mut self, before: CheckpointNo) -> RollbackResult {
        let exit = self.ended;
        self.state.ending = Some(PendingEnd::Restart);
        self.state.back_before = Some(before);
        self.keep();
        if let Err(decision) = self.keep_what_is_whole().await {
            return RollbackResult::Done(Some(decision));
        }
        self.stop_workload(Duration::ZERO, None).await;
        let is_back = match self.bring_back().await {
            Ok(is_back) => is_back,
            Err(decision) => {
                // For the outcome. The folder's present content is not a checkpoint.
                self.open_checkpoints();
                self.checkpoints.iter().for_each(|checkpoints| checkpoints.hold(true));
                return RollbackResult::Done(Some(decision));
            }
        };
        if self.checkpoints.is_none() {
            self.open_checkpoints();
        }
        if is_back {
            return RollbackResult::Done(self.start_main().await);
        }
        // As if it had never been tried: a retry, or the end.
        self.state.ending = None;
        self.ended = exit;
        if let Some((checkpoints, ended)) = self.checkpoints.as_ref().zip(exit) {
            checkpoints.workload_ended(ended.exit);
        }
        self.keep();
        RollbackResult::NoneOlder
    }

    /// Saves the complete files that the start found beyond its checkpoint, so that the rollback
    /// loses nothing.
    async fn keep_what_is_whole(&mut self) -> Result<(), Decision> {
        let is_exact = self.state.begun.as_ref().is_none_or(|begun| begun.exact);
        let Some(checkpoints) = self.checkpoints.clone().filter(|_| !is_exact) else {
            return Ok(());
        };
        checkpoints.hold(false);
        let saving =
            async move { checkpoints.save(checkpoints.as_is(), "go_back", SAVED_WITHIN).await };
        let saved = self.patient_fetch(&Fetching::new(self.out.clock.clone()), saving).await?;
        if let Ok(Saved::Failed(why)) = saved {
            self.reporter.attention.attend(Topic::Other, format!("what the checkpoint folder held before an older checkpoint was brought back is not kept: {why}"));
        }
        Ok(())
    }

    /// Carries out the intent, also one of a crashed agent. Returns whether an older checkpoint is
    /// restored.
    pub(crate) async fn bring_back(&mut self) -> Result<bool, Decision> {
        let Some((before, begun)) = self.state.back_before.zip(self.state.begun.clone()) else {
            return Ok(false);
        };
        // Stop watching the present content.
        if let Some(checkpoints) = self.checkpoints.take() {
            checkpoints.end();
        }
        let (out, journal, folder) =
            (self.out.clone(), self.reporter.journal.clone(), self.attempt.checkpoint_dir());
        let (inherited, shipped) = (
            self.attempt.resolved.inherited().map(|from| from.job.clone()),
            self.state.shipped.clone().unwrap_or_default(),
        );
        let fetching = Fetching::new(self.out.clock.clone());
        let (watch, from) = (fetching.clone(), begun.from.clone());
        let work = async move {
            restore_before(
                &out,
                inherited.as_ref(),
                &journal,
                (&folder, &shipped),
                (&from, before),
                &watch,
            )
            .await
        };
        let restored = match self.patient_fetch(&fetching, work).await? {
            Ok(Ok(restored)) => restored,
            Ok(Err(error)) => {
                self.reporter.attention.attend(
                    Topic::Other,
                    format!("no older checkpoint can be brought back: {}", chain(&error)),
                );
                None
            }
            Err(text) => {
                self.reporter.attention.attend(
                    Topic::Other,
                    format!("no older checkpoint can be brought back: {text}"),
                );
                None
            }
        };
        self.state.back_before = None;
        let Some(manifest) = restored else {
            if let Some(begun) = &mut self.state.begun {
                begun.is_last = true;
            }
            self.keep();
            return Ok(false);
        };
        let back = RollbackRecord {
            from: begun.from.number,
            to: manifest.number,
            lived: begun.lived(self.steady_now()),
        };
        let why = back.in_words();
        self.reporter.attention.attend(
            Topic::Other,
            format!("began from checkpoint {}, because {why}", manifest.number.number()),
        );
        self.reporter
            .journal
            .record(EventDetail::Resumed { checkpoint: manifest.summary(), went_back: Some(why) });
        self.state.resumed_from = Some(manifest.summary());
        self.state.went_back.push(back);
        self.keep();
        Ok(true)
    }
}
