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
use super::declared::Declared;
use super::file_motion::{Motion, RESTLESS};
use super::file_names::{Partition, Places};
use super::folder_diff::{
    FolderListing, goes_back, has_grown, has_news, holds_what_stands, one_replaced, same_but_logs,
    without_logs,
};
use super::saved_steps::SavedSteps;
use super::torn_writes::TornFiles;
use super::units::{LookContext, Units, WriterEnd};
use super::workload_signals::MarkHabit;
use super::workload_signals::{EarlierSigns, WorkloadSigns};
use crate::job::ExitStatus;
use crate::ports::{FileStamp, TreeFile};

/// A wrapper exits with this plus the signal's number if its child was killed.
const SIGNALLED: i32 = 128;

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
}

impl FolderWatch {
    /// `kept`: the files that are already in the job directory.
    pub(crate) fn new(kept: FolderListing, before: EarlierSigns) -> Self {
        let EarlierSigns { marks, unseen_end } = before;
        let units = Units::of_kept(&kept);
        FolderWatch {
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
        let beside =
            LookContext { open: open.as_ref(), step: signs.any_step, earlier, life: signs.life };
        self.units.observe((&before, &picture), &self.kept, (looked, now), step, beside);
        self.open = open;
        if changed {
            // A rename takes no time.
            let whole = one_replaced(&before, &picture).then_some((now, step));
            if !same_but_logs(&before, &picture) {
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
            has_news(&picture, &self.kept) || !same_but_logs(&picture, &self.kept) && is_told();
        (is_another && !picture.is_empty()).then(|| CompleteSet {
            step,
            is_marked,
            left_out,
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

    /// For the last look of a try, which has no watch.
    pub(crate) fn places(&self) -> Places {
        self.units.places.clone()
    }

    pub(crate) fn dirty(&self) -> bool {
        self.seen.as_ref().is_some_and(|picture| has_news(picture, &self.kept))
    }

    /// Whether the folder changes all the time and nothing in it can be judged complete.
    pub(crate) fn never_rests(&self, now: Duration) -> bool {
        let Some(seen) = self.seen.as_ref() else { return false };
        !self.marks()
            && self.ended.is_none()
            && self.motion.restless(now, RESTLESS * 2)
            && without_logs(seen).next().is_some()
            && self.units.snapshot(seen, now, false, WriterEnd::No).is_none()
            && !self.units.has_numbered(seen)
    }

    pub(crate) fn seen(&self) -> Option<&FolderListing> {
        self.seen.as_ref()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::checkpoint::folder_diff::picture;
    use crate::ports::Tree;

    fn tree(files: &[(&str, i64)]) -> FolderListing {
        let file = |(path, modified): &(&str, i64)| TreeFile {
            path: (*path).into(),
            stamp: FileStamp { bytes: 1, modified_nanos: *modified, inode: 7, mode: 0o644 },
        };
        picture(Tree { files: files.iter().map(file).collect(), ..Tree::default() })
    }

    fn complete(watch: &FolderWatch, secs: u64) -> Option<FolderListing> {
        watch.complete(at(secs), true, false).map(|ripe| ripe.picture)
    }

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn ended(exit: ExitStatus, secs: u64) -> WorkloadSigns {
        let killed = (!exit.is_in_order()).then(|| at(secs));
        WorkloadSigns { ended: Some((exit, at(secs))), killed, ..WorkloadSigns::default() }
    }

    #[test]
    fn quiet_folder_completes_and_change_restarts_wait() {
        let mut watch = FolderWatch::new(
            tree(&[]),
            EarlierSigns { marks: Some(false), ..EarlierSigns::default() },
        );
        watch.observe(tree(&[]), at(9), WorkloadSigns::default());
        assert!(watch.observe(
            tree(&[("a", 1)]),
            at(10),
            WorkloadSigns {
                step: Some(4.0),
                reports: 1,
                told_by: Some(0),
                ..WorkloadSigns::default()
            }
        ));
        assert_eq!(complete(&watch, 11), None);
        assert!(watch.observe(
            tree(&[("a", 2)]),
            at(11),
            WorkloadSigns { step: Some(5.0), ..WorkloadSigns::default() }
        ));
        assert_eq!(complete(&watch, 12), None);
        assert!(!watch.observe(
            tree(&[("a", 2)]),
            at(13),
            WorkloadSigns { step: Some(9.0), any_step: Some(9.0), ..WorkloadSigns::default() }
        ));
        assert_eq!(
            complete(&watch, 13),
            None,
            "its writer may pause: nothing like it was seen before"
        );
        watch.observe(
            tree(&[("a", 2)]),
            at(14),
            WorkloadSigns { step: Some(9.0), any_step: Some(10.0), ..WorkloadSigns::default() },
        );
        let ripe = watch.complete(at(14), true, false).expect("the training goes on");
        assert_eq!(
            (&ripe.picture, ripe.save_time(None), ripe.step),
            (&tree(&[("a", 2)]), at(1), Some(4.0)),
            "the step when it began to be written"
        );
        watch.keep(tree(&[("a", 2)]));
        assert_eq!((complete(&watch, 99), watch.dirty()), (None, false));
    }

    /// A script with four steps a second, whose save of step 60 was called step 62.
    #[test]
    fn save_is_never_called_by_a_step_that_it_does_not_hold() {
        let saved_at = 1_000;
        // The reports since the last look, the time of the newest, and the step of the save.
        for (reports, told_by, held) in [
            (4, Some(saved_at + 500), 58.0),
            (4, Some(saved_at), 58.0),
            (1, Some(saved_at + 1), 58.0),
            (1, Some(saved_at), 58.0),
            (1, None, 58.0),
            (1, Some(saved_at - 300), 62.0),
        ] {
            let mut watch = FolderWatch::new(
                tree(&[]),
                EarlierSigns { marks: Some(false), ..EarlierSigns::default() },
            );
            let look = WorkloadSigns { step: Some(58.0), reports: 58, ..WorkloadSigns::default() };
            watch.observe(tree(&[]), at(14), look);
            let signs = WorkloadSigns { step: Some(62.0), reports: 58 + reports, told_by, ..look };
            (15..30).for_each(|secs| {
                watch.observe(tree(&[("a", saved_at)]), at(secs), signs);
            });
            let step = watch.complete(at(45), true, false).map(|ripe| ripe.step);
            assert_eq!(step, Some(Some(held)), "{reports} reports, the newest by {told_by:?}");
        }
    }

    #[test]
    fn close_saves_of_series_stay_separate() {
        for pointer in [false, true] {
            let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
            let mut files: Vec<(String, i64)> = Vec::new();
            watch.observe(tree(&[]), at(0), WorkloadSigns::default());
            for (number, secs) in (1_i64..).zip((3..20).step_by(3)) {
                for (piece, later) in [("model", 0), ("optimizer", 1)] {
                    files.push((format!("{piece}-{number}.pt"), number));
                    if pointer {
                        files.retain(|(name, _)| name != "latest");
                        files.push(("latest".into(), number * 10 + later));
                    }
                    let now: Vec<(&str, i64)> =
                        files.iter().map(|(name, stamp)| (name.as_str(), *stamp)).collect();
                    watch.observe(tree(&now), at(secs + later as u64), WorkloadSigns::default());
                }
            }
            let ripe = watch.complete(at(30), true, false).expect("it rested at last");
            assert_eq!(ripe.save_time(None), at(1), "with a pointer to the newest: {pointer}");
        }
    }

    #[test]
    fn files_beside_long_save_belong_to_it() {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        watch.observe(
            tree(&[("meta-1.json", 1), ("model-100.pt", 1)]),
            at(0),
            WorkloadSigns::default(),
        );
        watch.observe(
            tree(&[("meta-1.json", 1), ("model-100.pt", 1)]),
            at(50),
            WorkloadSigns::default(),
        );
        for secs in 100..=160 {
            watch.observe(
                tree(&[("meta-1.json", 1), ("model-100.pt", 1), ("model-200.pt", secs)]),
                at(secs as u64),
                WorkloadSigns::default(),
            );
        }
        let all = tree(&[
            ("meta-1.json", 1),
            ("meta-2.json", 1),
            ("model-100.pt", 1),
            ("model-200.pt", 160),
        ]);
        watch.observe(all, at(161), WorkloadSigns::default());
        assert_eq!(watch.complete(at(163), true, false).expect("it rests").save_time(None), at(60));
    }

    /// scikit-learn with joblib: one file, rewritten in place each second, and steps that are only
    /// printed.
    #[test]
    fn file_rewritten_each_second_is_kept_with_its_step() {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        let none = BTreeSet::new();
        let look = |watch: &mut FolderWatch, secs: u64, prints_steps| {
            let signs = WorkloadSigns {
                step: Some(secs as f64),
                any_step: Some(secs as f64),
                prints_steps,
                ..WorkloadSigns::default()
            };
            watch.observe_open(
                tree(&[("model.joblib", secs as i64)]),
                at(secs),
                signs,
                Some(&none),
            );
            watch.complete(at(secs), true, false)
        };
        look(&mut watch, 1, true);
        assert!(
            look(&mut watch, 2, true).is_some(),
            "it is written again, so the one before was whole, and nothing is open"
        );
        let ripe = (3..=45)
            .map(|secs| look(&mut watch, secs, true))
            .last()
            .flatten()
            .expect("it is whole each time");
        assert_eq!(
            (ripe.step, ripe.save_time(None)),
            (Some(44.0), Duration::ZERO),
            "the step at the look before its last writing"
        );
        let mut may_mark = FolderWatch::new(tree(&[]), EarlierSigns::default());
        assert!(
            (1..=45).all(|secs| look(&mut may_mark, secs, false).is_none()),
            "its mark may come"
        );
    }

    /// 60,000 numbered files: comparing all pairs would take longer than the job.
    #[test]
    fn crowded_folder_is_judged_by_one_walk_over_it() {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        let names: Vec<String> =
            (0..60_000).map(|number| format!("shard_{}/c{number}", number / 500)).collect();
        for (secs, part) in (1..).zip([20_000, 40_000, 60_000, 60_000]) {
            let files: Vec<(&str, i64)> =
                names[..part].iter().map(|name| (name.as_str(), 1)).collect();
            watch.observe(tree(&files), at(secs), WorkloadSigns::default());
        }
        let exit = ExitStatus { code: Some(0), ..ExitStatus::default() };
        let all: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        watch.observe(tree(&all), at(5), ended(exit, 5));
        assert_eq!(complete(&watch, 5).map(|picture| picture.len()), Some(60_000));
    }

    /// Seed 243 of the simulation, with a folder for each start as Lightning makes it. The last
    /// save of the first start was deleted, and then no save was kept.
    #[test]
    fn second_start_saves_survive_deletion_of_first() {
        let pair = |run: u64, step: u64| {
            ["model", "optim"].map(|part| format!("version_{run}/checkpoints/{part}-{step}.pt"))
        };
        let mut there: Vec<String> = [pair(1, 680), pair(1, 720)].concat();
        there.extend([1, 2].map(|run| format!("version_{run}/hparams.yaml")));
        let look = |watch: &mut FolderWatch, secs: u64, there: &mut Vec<String>| {
            there.sort();
            let files: Vec<(&str, i64)> = there.iter().map(|path| (path.as_str(), 1)).collect();
            let step = Some(secs as f64 / 10.0);
            watch.observe_open(
                tree(&files),
                at(secs),
                WorkloadSigns { step, any_step: step, life: 1, ..WorkloadSigns::default() },
                Some(&BTreeSet::new()),
            );
            let ripe = watch.complete(at(secs), true, false)?;
            watch.keep(Arc::clone(&ripe.picture));
            Some(ripe.picture)
        };
        let mut watch = FolderWatch::new(
            tree(&[]),
            EarlierSigns { marks: Some(false), ..EarlierSigns::default() },
        );
        (1..40).for_each(|secs| drop(look(&mut watch, secs, &mut there)));
        for (secs, step) in (1..).map(|save| save * 100).zip([760, 800, 840, 880]) {
            there.extend(pair(2, step));
            let mut kept: Vec<FolderListing> =
                look(&mut watch, secs, &mut there).into_iter().collect();
            let oldest = if step <= 800 { pair(1, step - 80) } else { pair(2, step - 80) };
            there.retain(|path| !oldest.contains(path));
            kept.extend(
                (secs + 1..secs + 40).filter_map(|secs| look(&mut watch, secs, &mut there)),
            );
            let has = |picture: &FolderListing| {
                pair(2, step).iter().all(|path| picture.iter().any(|file| file.path == *path))
            };
            assert!(kept.iter().any(has), "step {step}: {kept:?}");
        }
    }

    #[test]
    fn clean_exit_completes_save_and_kill_does_not() {
        let exit = ExitStatus { code: Some(1), ..ExitStatus::default() };
        let killed = ExitStatus { signal: Some(9), ..ExitStatus::default() };
        for (end, trusted) in
            [(exit, true), (killed, false), (ExitStatus { oom: true, ..exit }, false)]
        {
            let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
            watch.observe(tree(&[("a", 1)]), at(10), ended(end, 11));
            assert_eq!(complete(&watch, 60).is_some(), trusted, "{end}");
        }
        let mut settled = FolderWatch::new(tree(&[]), EarlierSigns::default());
        settled.observe(tree(&[("a", 1)]), at(10), WorkloadSigns::default());
        settled.observe(tree(&[("a", 1)]), at(22), ended(killed, 21));
        assert!(complete(&settled, 22).is_some(), "it was quiet before it was killed");
    }

    #[test]
    fn restless_folder_is_kept_if_files_are_renamed() {
        let file = |inode: u64, modified: i64| TreeFile {
            path: "state".into(),
            stamp: FileStamp { bytes: 1, modified_nanos: modified, inode, mode: 0o644 },
        };
        let play = |picture: &dyn Fn(u64) -> FolderListing| {
            let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
            watch.observe(tree(&[]), at(0), WorkloadSigns::default());
            for second in 1..=61 {
                watch.observe(picture(second), at(second), WorkloadSigns::default());
            }
            (complete(&watch, 61), watch.never_rests(at(61)))
        };
        let renamed = |second: u64| Arc::new(vec![file(second, second as i64)]);
        assert_eq!(play(&renamed), (Some(renamed(61)), false));
        // Written in place: half of it may be the old content.
        let overwritten = |second: u64| Arc::new(vec![file(7, second as i64)]);
        assert_eq!(play(&overwritten), (None, true));
        let mut killed = FolderWatch::new(renamed(1), EarlierSigns::default());
        killed.observe(
            renamed(2),
            at(2),
            ended(ExitStatus { signal: Some(9), ..ExitStatus::default() }, 3),
        );
        assert_eq!(complete(&killed, 4), Some(renamed(2)), "it was whole before its writer died");
        let two = |second: u64| {
            Arc::new(vec![
                TreeFile { path: "a".into(), ..file(1000 + second, second as i64) },
                file(second, second as i64),
            ])
        };
        assert_eq!(play(&two), (None, true), "of two, one may be the new and one the old");
        let mut young = FolderWatch::new(tree(&[]), EarlierSigns::default());
        for second in 1..=20 {
            young.observe(renamed(second), at(second), WorkloadSigns::default());
        }
        assert_eq!(
            (complete(&young, 20), young.never_rests(at(20))),
            (Some(renamed(20)), false),
            "a renaming is a statement"
        );
    }
}
