//! The checkpoint that a start resumes from: opens its folder, notes what the start began from, and
//! looks whether it gets beyond.
//!
//! After a rollback, uploads would become the newest checkpoint, so a log beside an old one must
//! wait until the start has made progress.

use std::time::Duration;

use futures::FutureExt;

use super::attempt::Mode;
use super::boot::is_work_kept;
use crate::agent::agent::Agent;
use crate::agent::checkpoint::handle::Checkpoints;
use crate::agent::startup::failed_resume::StartRecord;
use crate::job::EndedBecause;
use crate::policy::lifecycle::checkpoint_rollback::{StartUp, must_live};
use crate::policy::{End, WorkloadStage};

/// How long a look at the folder before a start may take. A hung folder is not waited for.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

impl Agent {
    pub(crate) fn open_checkpoints(&mut self) {
        let attempt = &self.attempt;
        let Some(spec) =
            attempt.resolved.spec.checkpoint.as_ref().filter(|_| attempt.mode == Mode::Launched)
        else {
            return;
        };
        let folder = attempt.checkpoint_dir();
        // An ended workload may have left half a save, also if an earlier agent ended it.
        let over = self
            .workload
            .as_ref()
            .and_then(|workload| workload.ended().now_or_never())
            .map(|ended| ended.exit);
        let gone = self.state.start > 0 && (self.workload.is_none() || over.is_some());
        let exit = over.or(self.ended.map(|ended| ended.exit)).or(self.state.exit);
        // On a kept disk, the end of the previous job's workload is unknown.
        let of_another = self.state.start == 0 && is_work_kept(&self.out, attempt);
        let unseen_end = of_another || gone && !exit.is_some_and(|exit| exit.is_in_order());
        let checkpoints = Checkpoints::start(
            self.out.clone(),
            self.reporter.journal.clone(),
            self.board.clone(),
            spec,
            folder,
            unseen_end,
        );
        if self.workload.is_some() && !gone {
            checkpoints.workload_started(self.workload.clone());
        }
        self.checkpoints = Some(checkpoints);
        self.hold_back();
    }

    pub(crate) async fn note_beginning(&mut self) {
        self.state.begun = None;
        let Some(checkpoints) =
            self.checkpoints.clone().filter(|_| self.state.stage == WorkloadStage::Main)
        else {
            return;
        };
        let Some(from) = checkpoints.last() else { return };
        let shipped = self.state.shipped.clone().unwrap_or_default();
        let exact = self
            .alive_while(self.out.within(LOOK_WITHIN, checkpoints.is_as_kept(&shipped)))
            .await
            .unwrap_or(true);
        self.state.begun = Some(StartRecord {
            from,
            exact,
            at: self.steady_now(),
            written: checkpoints.written(),
            lived: None,
            is_going: false,
            first_step: None,
            is_last: false,
        });
        self.hold_back();
    }

    /// Checks whether the newest start made progress.
    pub(crate) fn look_at_start(&mut self) {
        let now = self.steady_now();
        let Some(begun) = &mut self.state.begun else { return };
        if self.ended.is_some() {
            begun.ends(now);
        }
        if begun.is_going {
            return;
        }
        let step = self.board.live_step();
        let told = step.filter(|_| self.board.has_own_steps());
        if begun.has_progress(told, step, self.checkpoints.as_ref()) {
            begun.is_going = true;
            self.keep();
        }
        self.hold_back();
    }

    /// After a rollback, holds uploads back until the start has made progress.
    pub(crate) fn hold_back(&self) {
        let Some((checkpoints, begun)) = self.checkpoints.as_ref().zip(self.state.begun.as_ref())
        else {
            return;
        };
        let longest = self.state.went_back.iter().map(|back| back.lived).max();
        let is_held = longest.is_some_and(|longest| {
            !begun.is_going && begun.lived(self.steady_now()) < must_live(longest)
        });
        checkpoints.hold(is_held);
    }

    /// Releases uploads unless the start failed by itself: other endings do not count against it.
    pub(crate) fn release_at(&self, end: &End) {
        let is_its_own = matches!(end.because, EndedBecause::Failed | EndedBecause::OutOfMemory);
        if let Some(checkpoints) =
            self.checkpoints.as_ref().filter(|_| !is_its_own && self.state.back_before.is_none())
        {
            checkpoints.hold(false);
        }
    }

    pub(crate) fn start_up(&self) -> Option<StartUp> {
        // Without knowing which files came with the code, no rollback is possible.
        let begun = self.state.begun.as_ref().filter(|_| self.state.shipped.is_some())?;
        Some(StartUp {
            from: begun.from.number,
            exact: begun.exact,
            lived: begun.lived(self.steady_now()),
            is_going: begun.is_going,
            times: u32::try_from(self.state.went_back.len()).unwrap_or(u32::MAX),
            is_last: begun.is_last,
        })
    }
}
