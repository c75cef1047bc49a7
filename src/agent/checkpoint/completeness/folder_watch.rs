//! Decides when a checkpoint is complete, from what the folder looked like second by second.
//!
//! ```text
//!   kept ──change──> being written ──parts, a mark, or process exit──> complete ──manifest──> kept
//! ```
//! If a workload marks its checkpoints (`{"checkpoint": ...}` in the progress file), only marks
//! count, not pauses. Without marks, each part of the folder is judged by itself
//! (`checkpoint::units`). A process that a signal killed may have been writing. So its newest
//! change is not trusted, even if the next process leaves it unchanged (`checkpoint::torn_writes`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::complete_set::CompleteSet;
use super::cut_files::{CutFiles, CutLook};
use super::declared::Declared;
use super::file_motion::{Motion, RESTLESS};
use super::file_names::{Partition, Places, is_log, is_settings};
use super::folder_diff::{
    FolderListing, goes_back, has_grown, has_news_but, holds_what_stands, one_replaced,
    same_but_logs, without_logs,
};
use super::saved_steps::SavedSteps;
use super::torn_writes::TornFiles;
use super::unit_snapshot::WriterEnd;
use super::units::{LookContext, Units};
use super::workload_signals::MarkHabit;
use super::workload_signals::{EarlierSigns, WorkloadSigns};
use crate::job::ExitStatus;
use crate::ports::{FileStamp, TreeFile};

/// A wrapper exits with this plus the signal's number if its child was killed.
const SIGNALLED: i32 = 128;

/// The agent tells after this time that it found no complete numbered checkpoint. Sooner tells of a
/// large one that is still being written. Later loses more work without a word.
const FIRST_NUMBERED: Duration = Duration::from_secs(2 * 60);

/// Settings are smaller. More takes a small model in such a file for settings.
const SETTINGS_MAX_BYTES: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct FolderWatch {
    kept: FolderListing,
    seen: Option<FolderListing>,
    looked: Option<Duration>,
    /// The files that were open for writing at that time.
    open: Option<BTreeSet<String>>,
    /// How the whole folder changes, and each part.
    motion: Motion,
    units: Units,
    marks: u64,
    habit: MarkHabit,
    /// A process of the workload ended unseen.
    unseen_end: bool,
    declared: Option<Declared>,
    steps: SavedSteps,
    prints_steps: bool,
    ended: Option<(ExitStatus, Duration)>,
    killed: Option<Duration>,
    doubt: Option<TornFiles>,
    cut: CutFiles,
}

impl FolderWatch {
    /// `kept`: the files that are already in the job directory.
    pub(crate) fn new(kept: FolderListing, before: EarlierSigns) -> Self {
        let EarlierSigns { marks, unseen_end } = before;
        let units = Units::of_kept(&kept);
        let mut cut = CutFiles::default();
        cut.keep(&kept, &units.places);
        FolderWatch {
            cut,
            seen: Some(Arc::clone(&kept)),
            kept,
            units,
            habit: MarkHabit::of(marks),
            unseen_end,
            ..FolderWatch::default()
        }
    }

    /// Takes over the doubt of an earlier agent. How much was written since then is unknown.
    pub(crate) fn doubting(self, files: Vec<(String, FileStamp, u64)>) -> Self {
        FolderWatch { doubt: TornFiles::again(files), ..self }
    }

    /// Files that may be incomplete, with the least that must be rewritten: for the next agent.
    pub(crate) fn doubted(&self) -> Vec<(String, FileStamp, u64)> {
        self.doubt.as_ref().filter(|doubt| doubt.holds()).map(TornFiles::files).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn observe(
        &mut self,
        picture: FolderListing,
        now: Duration,
        signs: WorkloadSigns,
    ) -> bool {
        self.observe_open(picture, now, signs, None)
    }

    /// The same, with the files that the workload has open for writing. `None`: unknown.
    pub(crate) fn observe_open(
        &mut self,
        picture: FolderListing,
        now: Duration,
        signs: WorkloadSigns,
        open: Option<&BTreeSet<String>>,
    ) -> bool {
        let before = self.seen.take().unwrap_or_default();
        let changed = before != picture;
        let rested = self.looked.is_some_and(|looked| self.motion.rests(looked));
        self.habit.observe(
            (&before, &picture),
            (rested, self.motion.rests_for(now, RESTLESS)),
            &signs,
        );
        let gap = self.looked.map(|looked| now.saturating_sub(looked));
        let step = self.steps.held_by((&before, &picture), gap, &signs);
        let looked = self.looked.unwrap_or(now);
        // An ended process has no open files: use the last look's.
        let open = if signs.ended.is_some() { self.open.take() } else { open.cloned() };
        let earlier = self.steps.reported().zip(step).map(|(before, now)| before.min(now));
        let cut = CutLook {
            before: &before,
            after: &picture,
            now,
            free_bytes: signs.free_bytes,
            died: signs.ended.filter(|_| self.ended.is_none()).map(|(exit, _)| exit),
            life: signs.life,
            places: &self.units.places,
        };
        self.cut.observe(&self.kept, &cut);
        let beside = LookContext {
            open: open.as_ref(),
            step: signs.any_step,
            earlier,
            life: signs.life,
            cut: Some(self.cut.paths()),
        };
        self.units.observe((&before, &picture), &self.kept, (looked, now), step, beside);
        self.open = open;
        if changed {
            // A rename takes no time.
            let whole = one_replaced(&before, &picture).then_some((now, step));
            let is_side = |path: &str| self.units.is_noisy(path);
            let is_moved = has_news_but(&picture, &before, is_side)
                || has_news_but(&before, &picture, is_side);
            if is_moved {
                self.motion.moved((now, step), looked, whole.or(self.units.newest_begun));
            }
            self.steps.assign((&before, &picture), &self.units);
            if let Some(doubt) = &mut self.doubt {
                // Files found by the first look do not count as written since.
                doubt.observe(if self.looked.is_some() { &before } else { &picture }, &picture);
            }
        }
        if signs.marks > self.marks {
            self.marks = signs.marks;
            self.motion.step = signs.marked_step.or(self.motion.step);
            // A killed process's half save is not covered by the next process's first mark, which
            // may only say where it resumes.
            if !self.doubt.as_ref().is_some_and(TornFiles::holds) {
                let partition = Partition::new(
                    picture.iter().map(|file| file.path.as_str()),
                    &self.units.places,
                );
                let units = &self.units;
                let is_restless = |path: &str| units.is_restless(path, &partition, now, RESTLESS);
                let before = self.declared.take().map(Declared::into_believed);
                let known = (&self.kept, before.as_ref());
                self.declared = Some(Declared::new(
                    &picture,
                    known,
                    (signs.marked_by, is_restless),
                    (self.motion, now),
                    &self.units.places,
                ));
                self.doubt = None;
            }
        } else if let Some(declared) = self.declared.as_mut().filter(|_| changed) {
            declared.observe(&picture);
        }
        self.steps.looked(&signs);
        self.prints_steps = signs.prints_steps;
        let is_first = self.looked.is_none();
        (self.ended, self.looked, self.seen) = (signs.ended, Some(now), Some(Arc::clone(&picture)));
        if let Some(at) = signs.killed.filter(|at| self.killed != Some(*at)) {
            self.killed = Some(at);
            self.doubt = TornFiles::of(
                &picture,
                &self.kept,
                Some(at),
                self.trusted(at, false, (false, true)),
            );
        } else if is_first && self.unseen_end && !one_replaced(&before, &picture) {
            self.doubt = TornFiles::of(&picture, &self.kept, None, None);
        }
        changed
    }

    /// The manifest of this picture is written.
    pub(crate) fn keep(&mut self, picture: FolderListing) {
        self.cut.keep(&picture, &self.units.places);
        self.kept = picture;
    }

    /// The complete files that are not yet kept. `with_logs`: include idle logs. `is_asked`: a
    /// caller waits.
    pub(crate) fn complete(
        &self,
        now: Duration,
        with_logs: bool,
        is_asked: bool,
    ) -> Option<CompleteSet> {
        if let Some(doubt) = self.doubt.as_ref().filter(|_| self.is_in_doubt()) {
            return doubt.whole(self.seen.as_ref()?, &self.kept, &self.units.places).cloned();
        }
        let exited = self.ended.is_some_and(|(exit, _)| exit.success());
        self.trusted(self.ended.map_or(now, |(_, ended)| ended), exited, (with_logs, is_asked))
    }

    /// Whether an ended process may have left half a save. Its final writes are judged by its own
    /// end. A clean exit after another write means that the files are complete.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let Some(doubt) = self.doubt.as_ref().filter(|doubt| doubt.holds()) else { return false };
        match self.ended {
            Some((_, at)) if doubt.ended == Some(at) => false,
            Some((exit, _)) => !(exit.is_in_order() && doubt.was_written_beside()),
            None => true,
        }
    }

    fn trusted(
        &self,
        until: Duration,
        exited: bool,
        (with_logs, is_asked): (bool, bool),
    ) -> Option<CompleteSet> {
        // Usually nothing is new, and a folder may hold 200,000 files.
        let seen =
            self.seen.as_ref().filter(|picture| !picture.is_empty() && ***picture != *self.kept)?;
        if !is_asked && self.has_settings_alone(seen) {
            return None;
        }
        // A journal or a file of results may be all that the script saves.
        let has_logs_alone = |picture: &FolderListing| without_logs(picture).next().is_none();
        if is_asked && !self.marks() && has_logs_alone(seen) && has_logs_alone(&self.kept) {
            let step = self.steps.newest(seen);
            return Some(CompleteSet { step, ..CompleteSet::new(Arc::clone(seen), self.motion) });
        }
        // Either a restarted agent missed the mark, or the save is not finished: but no save pauses
        // this long.
        let quiet = self.marks() && self.marks == 0 && self.motion.rests_for(until, RESTLESS);
        let ended_itself =
            self.ended.is_some_and(|(exit, _)| exit.is_in_order() && exit.code < Some(SIGNALLED))
                && self.killed.is_none();
        let declared = self
            .declared
            .as_ref()
            .is_some_and(|declared| declared.believed(until, ended_itself) == seen);
        if declared || quiet || exited {
            let fit = if declared { Some(Arc::clone(seen)) } else { self.units.without_cut(seen) };
            let seen = &fit?;
            let same =
                if with_logs { **seen == *self.kept } else { same_but_logs(seen, &self.kept) };
            let picture = if with_logs {
                Arc::clone(seen)
            } else {
                Arc::new(without_logs(seen).cloned().collect())
            };
            // Files that were started since and deleted again are not part of the marked save.
            let of_mark = self.declared.as_ref().filter(|_| declared);
            let is_its = of_mark.filter(|mark| mark.is_of_marked_step(until, ended_itself));
            let step = is_its.map_or_else(|| self.steps.newest(&picture), |mark| mark.motion.step);
            let motion = of_mark.map_or(self.motion, |mark| mark.motion);
            return (!same && !picture.is_empty()).then(|| CompleteSet {
                step,
                is_marked: is_its.is_some(),
                ..CompleteSet::new(picture, motion)
            });
        }
        let marks = self.marks();
        let (files, motion, left_out, is_all) = if marks {
            let declared = self.declared.as_ref()?;
            (declared.still(seen, &self.units.places, until)?, declared.motion, None, false)
        } else {
            self.by_units(seen, until, (with_logs, is_asked))?
        };
        let picture = Arc::new(files);
        // The disk decides: the picture lacks unfinished parts, but these were not deleted.
        let goes_back = goes_back(seen, &self.kept);
        let is_marked = marks
            && !goes_back
            && self.declared.as_ref().is_some_and(|mark| mark.is_of_marked_step(until, false));
        let step = if is_marked { motion.step } else { self.steps.newest(&picture) };
        // Deleting the oldest save is not a new save. At the workload's end it is recorded, unless
        // more is missing.
        let is_told = || {
            goes_back || is_all || self.ended() && holds_what_stands(&picture, (&self.kept, seen))
        };
        let is_another =
            self.has_saved(&picture) || !same_but_logs(&picture, &self.kept) && is_told();
        (is_another && !picture.is_empty()).then(|| CompleteSet {
            step,
            is_marked,
            left_out,
            side: self.units.side_files(),
            ..CompleteSet::new(picture, motion)
        })
    }

    /// The parts that are complete: files, motion, what is left out, and whether that is all.
    fn by_units(
        &self,
        seen: &FolderListing,
        until: Duration,
        (with_logs, is_asked): (bool, bool),
    ) -> Option<(Vec<TreeFile>, Motion, Option<String>, bool)> {
        // For its first save, a mark may still come, and until then the save may be half.
        let may_mark =
            self.habit.marks.is_none() && self.steps.reported().is_some() && !self.prints_steps;
        if may_mark && !is_asked && !self.motion.rests_for(until, RESTLESS) && !self.ended() {
            return None;
        }
        let end = match self.ended {
            None => WriterEnd::No,
            Some((exit, _)) if exit.is_in_order() => WriterEnd::InOrder,
            Some(_) => WriterEnd::Killed,
        };
        let snapshot = self.units.snapshot(seen, until, with_logs, end)?;
        Some((snapshot.files, snapshot.motion, snapshot.left_out, snapshot.is_all))
    }

    /// Whether the folder has more files of a picture that is being uploaded: it was not complete.
    pub(crate) fn has_grown(&self, picture: &FolderListing) -> bool {
        self.seen.as_ref().is_some_and(|seen| has_grown(picture, seen, &self.units.places))
    }

    /// Whether a file of the folder may be open for writing.
    pub(crate) fn may_be_moving(&self, picture: &FolderListing, now: Duration) -> bool {
        self.seen.as_ref() != Some(picture) || !self.motion.rests_for(now, RESTLESS)
    }

    /// Whether one of the open files is of a save: no log, and still written.
    pub(crate) fn is_in_save(&self, open: &BTreeSet<String>, now: Duration) -> bool {
        let is_written = |path: &String| !is_log(path) && self.units.growing.is_written(path, now);
        open.iter().any(is_written)
    }

    /// For the last look of a try, which has no watch.
    pub(crate) fn places(&self) -> Places {
        self.units.places.clone()
    }

    /// Logs by what they do: only their present content counts.
    pub(crate) fn appended_files(&self) -> BTreeSet<String> {
        self.units.appended_files()
    }

    pub(crate) fn dirty(&self) -> bool {
        self.seen.as_ref().is_some_and(|picture| self.has_saved(picture))
    }

    /// Whether nothing is kept, and the folder has settings alone: no checkpoint while the script
    /// works. One that writes them again saves in them.
    fn has_settings_alone(&self, picture: &FolderListing) -> bool {
        let bytes = || without_logs(picture).map(|file| file.stamp.bytes).sum::<u64>();
        self.kept.is_empty()
            && !self.marks()
            && !self.ended()
            && !self.units.has_saved_again()
            && without_logs(picture).all(|file| is_settings(&file.path))
            && bytes() <= SETTINGS_MAX_BYTES
    }

    /// Whether a picture has more than the kept one, logs excluded.
    fn has_saved(&self, picture: &FolderListing) -> bool {
        !self.has_settings_alone(picture)
            && has_news_but(picture, &self.kept, |path| self.units.is_noisy(path))
    }

    /// Whether something was written since, logs excluded.
    pub(crate) fn has_changed(&self, before: &FolderListing) -> bool {
        let is_side = |path: &str| self.units.is_noisy(path);
        self.seen.as_ref().is_some_and(|seen| has_news_but(seen, before, is_side))
    }

    /// Whether the folder changes all the time and nothing in it can be judged complete.
    pub(crate) fn never_rests(&self, now: Duration) -> bool {
        let Some(seen) = self.seen.as_ref() else { return false };
        !self.marks()
            && self.ended.is_none()
            && self.motion.restless(now, RESTLESS * 2)
            && without_logs(seen).next().is_some()
            && self.units.snapshot(seen, now, false, WriterEnd::No).is_none()
            && (!self.units.has_numbered(seen)
                || self.motion.restless(now, FIRST_NUMBERED) && !self.units.knows_a_kind())
    }

    /// A file that was written on a full disk and is therefore not kept.
    pub(crate) fn short_file(&self, now: Duration) -> Option<&str> {
        self.cut.told(now, self.open.as_ref()).filter(|_| !self.marks())
    }

    pub(crate) fn known_marks(&self) -> Option<bool> {
        self.habit.marks
    }

    fn marks(&self) -> bool {
        self.habit.marks == Some(true)
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.is_some()
    }
}
