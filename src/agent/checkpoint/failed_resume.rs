//! Handles a start that fails because of its checkpoint: what it began from, whether it made
//! progress, and the checkpoint before it.
//!
//! ```text
//!   start ─ note its origin ─ fails ─ policy::lifecycle::checkpoint_rollback ─ keep the intent
//!         ─ restore an older checkpoint ─ start; uploads wait until it makes progress
//! ```
//! Uploads would become the newest checkpoint, so a log beside an old one must wait. Not here:
//! whether to go back.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::persisted_state::is_a_save;
use super::rollback::restore_before;
use super::save_request::Saved;
use crate::agent::report::attention::Topic;
use crate::agent::report::retry_sender::{Outbox, chain};
use crate::agent::run_loop::Agent;
use crate::agent::startup::attempt::{Attempt, Ending};
use crate::agent::startup::fetch_status::Fetching;
use crate::job::{CheckpointNo, CheckpointSummary, EndedBecause};
use crate::jobdir::What;
use crate::market::{Span, elapsed};
use crate::policy::lifecycle::checkpoint_rollback::{StartUp, must_live};
use crate::policy::{Decision, End};

/// Most files of the code in the checkpoint folder. With more, the memory file would be large, so
/// rollback is off.
const SHIPPED_MAX: usize = 1000;

/// How long a look at the folder before a start may take. A hung folder is not waited for.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// How long the upload of complete files may take before the folder is reset to an older
/// checkpoint.
const SAVED_WITHIN: Duration = Duration::from_secs(30 * 60);

/// The state at the beginning of a start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begun {
    from: CheckpointSummary,
    /// The folder held nothing newer.
    exact: bool,
    /// By the monotonic clock.
    at: Timestamp,
    /// Bytes that the checkpoints of this attempt had written by then.
    #[serde(default)]
    written: u64,
    lived: Option<Span>,
    is_going: bool,
    /// There is no older one, or it cannot be restored.
    #[serde(default)]
    is_last: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WentBack {
    pub from: CheckpointNo,
    pub to: CheckpointNo,
    pub lived: Span,
}

impl WentBack {
    /// Reads well after "because".
    pub fn in_words(&self) -> String {
        let lived = Span::from_secs(self.lived.duration().as_secs().max(1));
        format!(
            "the command ended within {lived} of its start from checkpoint {}",
            self.from.number()
        )
    }
}

impl Agent {
    pub(crate) async fn note_beginning(&mut self) {
        self.memory.begun = None;
        let Some(checkpoints) =
            self.checkpoints.clone().filter(|_| self.memory.stage == crate::policy::Stage::Main)
        else {
            return;
        };
        let Some(from) = checkpoints.last() else { return };
        let shipped = self.memory.shipped.clone().unwrap_or_default();
        let exact = self
            .alive_while(self.out.within(LOOK_WITHIN, checkpoints.is_as_kept(&shipped)))
            .await
            .unwrap_or(true);
        self.memory.begun = Some(Begun {
            from,
            exact,
            at: self.steady_now(),
            written: checkpoints.written(),
            lived: None,
            is_going: false,
            is_last: false,
        });
        self.hold_back();
    }

    /// Checks whether the newest start made progress: it reported a step beyond its checkpoint, or
    /// made one.
    pub(crate) fn look_at_start(&mut self) {
        let (now, is_over) = (self.steady_now(), self.ended.is_some());
        if let Some(begun) = self.memory.begun.as_mut().filter(|_| is_over) {
            begun.lived.get_or_insert(Span::from_duration(elapsed(begun.at, now)));
        }
        let Some(begun) = self.memory.begun.as_ref().filter(|begun| !begun.is_going) else {
            return;
        };
        let is_beyond = |step: Option<f64>| {
            step.is_some_and(|step| begun.from.step.is_none_or(|from| step > from))
        };
        let saves = self.checkpoints.as_ref();
        let has_written = || {
            saves.is_some_and(|saves| {
                is_a_save(saves.written().saturating_sub(begun.written), begun.from.bytes)
            })
        };
        let made = |newest: CheckpointSummary| {
            newest.number > begun.from.number
                && newest.step.map_or_else(has_written, |step| is_beyond(Some(step)))
        };
        let is_going =
            is_beyond(self.board.told()) || saves.and_then(|saves| saves.last()).is_some_and(made);
        if is_going && let Some(begun) = &mut self.memory.begun {
            begun.is_going = true;
            self.keep();
        }
        self.hold_back();
    }

    /// After a rollback, holds uploads back until the start has made progress.
    pub(crate) fn hold_back(&self) {
        let Some((checkpoints, begun)) = self.checkpoints.as_ref().zip(self.memory.begun.as_ref())
        else {
            return;
        };
        let longest = self.memory.went_back.iter().map(|back| back.lived).max();
        let is_held = longest
            .is_some_and(|longest| !begun.is_going && self.lived(begun) < must_live(longest));
        checkpoints.hold(is_held);
    }

    /// Releases uploads unless the start failed by itself: other endings do not count against it.
    pub(crate) fn release_at(&self, end: &End) {
        let is_its_own = matches!(end.because, EndedBecause::Failed | EndedBecause::OutOfMemory);
        if let Some(checkpoints) =
            self.checkpoints.as_ref().filter(|_| !is_its_own && self.memory.back_before.is_none())
        {
            checkpoints.hold(false);
        }
    }

    fn lived(&self, begun: &Begun) -> Span {
        begun.lived.unwrap_or_else(|| Span::from_duration(elapsed(begun.at, self.steady_now())))
    }

    pub(crate) fn start_up(&self) -> Option<StartUp> {
        // Without knowing which files came with the code, no rollback is possible.
        let begun = self.memory.begun.as_ref().filter(|_| self.memory.shipped.is_some())?;
        Some(StartUp {
            from: begun.from.number,
            exact: begun.exact,
            lived: self.lived(begun),
            is_going: begun.is_going,
            times: u32::try_from(self.memory.went_back.len()).unwrap_or(u32::MAX),
            is_last: begun.is_last,
        })
    }

    /// Restores the checkpoint before and restarts the command, or does the usual if there is none.
    pub(crate) async fn go_back(&mut self, before: CheckpointNo) -> Option<Decision> {
        let exit = self.ended;
        self.memory.ending = Some(Ending::Restart);
        self.memory.back_before = Some(before);
        self.keep();
        if let Err(decision) = self.keep_what_is_whole().await {
            return Some(decision);
        }
        self.stop_workload(Duration::ZERO, None).await;
        let is_back = match self.bring_back().await {
            Ok(is_back) => is_back,
            Err(decision) => {
                // For the outcome. The folder's present content is not a checkpoint.
                self.open_checkpoints();
                self.checkpoints.iter().for_each(|checkpoints| checkpoints.hold(true));
                return Some(decision);
            }
        };
        if self.checkpoints.is_none() {
            self.open_checkpoints();
        }
        if is_back {
            return self.start_main().await;
        }
        // As if it had never been tried: a retry, or the end.
        self.memory.ending = None;
        self.ended = exit;
        if let Some((checkpoints, ended)) = self.checkpoints.as_ref().zip(exit) {
            checkpoints.workload_ended(ended.exit);
        }
        self.keep();
        let decision = self.decide();
        Box::pin(self.act(Some(decision))).await
    }

    /// Saves the complete files that the start found beyond its checkpoint, so that the rollback
    /// loses nothing.
    async fn keep_what_is_whole(&mut self) -> Result<(), Decision> {
        let is_exact = self.memory.begun.as_ref().is_none_or(|begun| begun.exact);
        let Some(checkpoints) = self.checkpoints.clone().filter(|_| !is_exact) else {
            return Ok(());
        };
        checkpoints.hold(false);
        let saving =
            async move { checkpoints.save(checkpoints.as_is(), "go_back", SAVED_WITHIN).await };
        let saved = self.patient_fetch(&Fetching::new(self.out.clock.clone()), saving).await?;
        if let Ok(Saved::Failed(why)) = saved {
            self.attend(Topic::Other, format!("what the checkpoint folder held before an older checkpoint was brought back is not kept: {why}"));
        }
        Ok(())
    }

    /// Carries out the intent, also one of a crashed agent. Returns whether an older checkpoint is
    /// restored.
    pub(crate) async fn bring_back(&mut self) -> Result<bool, Decision> {
        let Some((before, begun)) = self.memory.back_before.zip(self.memory.begun.clone()) else {
            return Ok(false);
        };
        // Stop watching the present content.
        if let Some(checkpoints) = self.checkpoints.take() {
            checkpoints.end();
        }
        let (out, journal, folder) =
            (self.out.clone(), self.journal.clone(), self.attempt.checkpoint_dir());
        let (inherited, shipped) = (
            self.attempt.resolved.inherited().map(|from| from.job.clone()),
            self.memory.shipped.clone().unwrap_or_default(),
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
                self.attend(
                    Topic::Other,
                    format!("no older checkpoint can be brought back: {}", chain(&error)),
                );
                None
            }
            Err(text) => {
                self.attend(
                    Topic::Other,
                    format!("no older checkpoint can be brought back: {text}"),
                );
                None
            }
        };
        self.memory.back_before = None;
        let Some(manifest) = restored else {
            if let Some(begun) = &mut self.memory.begun {
                begun.is_last = true;
            }
            self.keep();
            return Ok(false);
        };
        let back =
            WentBack { from: begun.from.number, to: manifest.number, lived: self.lived(&begun) };
        let why = back.in_words();
        self.attend(
            Topic::Other,
            format!("began from checkpoint {}, because {why}", manifest.number.number()),
        );
        self.journal.record(What::Resumed { checkpoint: manifest.summary(), went_back: Some(why) });
        self.memory.resumed_from = Some(manifest.summary());
        self.memory.went_back.push(back);
        self.keep();
        Ok(true)
    }
}

/// The files that came with the code, before any restore. On a kept disk all files are the job's.
pub(crate) async fn shipped(out: &Outbox, attempt: &Attempt, is_kept: bool) -> Option<Vec<String>> {
    if is_kept {
        return Some(Vec::new());
    }
    let tree = out
        .files
        .walk_aside(&attempt.checkpoint_dir(), SHIPPED_MAX)
        .await
        .ok()
        .filter(|tree| !tree.truncated)?;
    Some(tree.files.into_iter().map(|file| file.path).collect())
}
