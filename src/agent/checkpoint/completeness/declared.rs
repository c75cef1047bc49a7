//! Which files a mark of the workload covers.
//!
//! ```text
//!   optim-8 written ── mark ── model-9 begun ── the progress file is read, the folder looked at
//!                       └ covers the files written before it: not model-9, which is half written
//! ```
//! The agent reads a mark up to 1.5 seconds after it was made. By then the next save may have
//! begun. Files written after the last line of the progress file came after the mark. But the
//! folder may be on a file server with another clock, so time alone excludes no file for good. A
//! late file that rests is believed: after two seconds if clock skew explains the time, otherwise
//! after [`RESTLESS`]. Not here: what is complete without a mark (that is [`super::folder_watch`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::file_motion::{Motion, QUIET, RESTLESS};
use super::file_names::{FolderPart, Partition, Places, top};
use super::folder_diff::{FolderListing, one_replaced, remaining, stamps, without_logs};
use crate::ports::{FileStamp, TreeFile};

/// A file server's clock may be this far ahead of the machine's.
const SKEW: Duration = Duration::from_millis(500);

/// The files that the workload marked, and how they were written.
#[derive(Debug)]
pub(crate) struct Declared {
    picture: FolderListing,
    pub motion: Motion,
    /// When the mark was seen.
    at: Duration,
    /// Files that seem to be written after the mark.
    after: BTreeMap<String, FileStamp>,
    /// Late files that rest this long are believed. A save with one file this late has a pause
    /// inside.
    rest: Duration,
    /// All late files have exactly the time of the mark. After the workload's exit, no more will
    /// follow.
    is_tied: bool,
    /// The picture without late files and their parts, and whether it contains the marked save.
    sure: FolderListing,
    holds_marked: bool,
}

impl Declared {
    /// `kept`, `declared`: the kept files, and the previous mark's. `marked_by`: when the mark was
    /// made at the latest, nanoseconds since 1970 by the file system. `is_restless`: a file that is
    /// always being written.
    pub(crate) fn new(
        picture: &FolderListing,
        (kept, declared): (&FolderListing, Option<&FolderListing>),
        (marked_by, is_restless): (Option<i64>, impl Fn(&str) -> bool),
        (motion, now): (Motion, Duration),
        places: &Places,
    ) -> Self {
        let partition = Partition::new(picture.iter().map(|file| file.path.as_str()), places);
        // Each common file is its own set.
        let set_of = |path: &'_ str| match partition.set_of(path) {
            FolderPart::Common => (FolderPart::Common, path.to_owned()),
            numbered @ FolderPart::Numbered { .. } => (numbered, String::new()),
        };
        let (was, known) = (stamps(kept), declared.map(stamps).unwrap_or_default());
        let is_new = |file: &&TreeFile| {
            [&was, &known].iter().all(|known| known.get(file.path.as_str()) != Some(&file.stamp))
        };
        let is_after = |file: &TreeFile| marked_by.is_some_and(|by| file.stamp.modified_nanos > by);
        let is_before = |file: &TreeFile| marked_by.is_none_or(|by| file.stamp.modified_nanos < by);
        // If one file replaces a single other by rename, it is complete, whatever its time.
        let is_whole = one_replaced(kept, picture);
        let new: Vec<&TreeFile> =
            without_logs(picture).filter(|file| is_new(file) && !is_restless(&file.path)).collect();
        // A file with exactly the mark's time came before it if other files of its save did. (Seed
        // 36003486 of 24 h: a script that marks at its start, and saves.)
        let sooner: BTreeSet<_> =
            new.iter().filter(|file| is_before(file)).map(|file| set_of(&file.path)).collect();
        let belongs = |file: &TreeFile| {
            let set = set_of(&file.path);
            !sooner.is_empty() && (set.0 == FolderPart::Common || sooner.contains(&set))
        };
        let is_late =
            |file: &TreeFile| !is_whole && (is_after(file) || !is_before(file) && !belongs(file));
        let (late, early): (Vec<&TreeFile>, Vec<&TreeFile>) =
            new.into_iter().partition(|file| is_late(file));
        let sets: BTreeSet<_> = late.iter().map(|file| set_of(&file.path)).collect();
        // Files without a number belong together: if one was overwritten, the mark covers none.
        let is_over_written = late.iter().any(|file| {
            set_of(&file.path).0 == FolderPart::Common && was.contains_key(file.path.as_str())
        });
        let is_sure = |file: &&TreeFile| {
            let set = set_of(&file.path);
            let is_late = sets.contains(&set) || (is_over_written && set.0 == FolderPart::Common);
            !is_late
        };
        let sure = if late.is_empty() {
            Arc::clone(picture)
        } else {
            Arc::new(picture.iter().filter(is_sure).cloned().collect())
        };
        let skew = i64::try_from(SKEW.as_nanos()).unwrap_or(i64::MAX);
        let is_explained = |file: &&TreeFile| {
            marked_by.is_none_or(|by| file.stamp.modified_nanos.saturating_sub(by) <= skew)
        };
        // Each mark covers new, complete files. If some came in time, another number is another
        // save.
        let marked: BTreeSet<_> = early.iter().map(|file| set_of(&file.path)).collect();
        // A covered file that came in time shows that the clocks agree: late files belong to the
        // next save.
        let is_another = !marked.is_empty()
            && sets.iter().any(|set| set.0 == FolderPart::Common || !marked.contains(set));
        let rest = if late.iter().all(is_explained) && !is_another { QUIET } else { RESTLESS };
        let is_tied = !late.is_empty() && !is_another && !late.iter().any(|file| is_after(file));
        let holds_marked = late.is_empty() || !early.is_empty() && early.iter().all(is_sure);
        let after = late.into_iter().map(|file| (file.path.clone(), file.stamp)).collect();
        Declared {
            picture: Arc::clone(picture),
            motion,
            at: now,
            after,
            rest,
            is_tied,
            sure,
            holds_marked,
        }
    }

    /// Whether the believed files are from the marked step, and not only from a save before it.
    pub(crate) fn is_of_marked_step(&self, until: Duration, exited: bool) -> bool {
        self.holds_marked || !Arc::ptr_eq(self.believed(until, exited), &self.sure)
    }

    pub(crate) fn into_believed(self) -> FolderListing {
        if self.after.is_empty() { self.picture } else { self.sure }
    }

    /// A late file that keeps changing was incomplete at the mark.
    pub(crate) fn observe(&mut self, seen: &FolderListing) {
        let is = stamps(seen);
        if self.after.iter().any(|(path, stamp)| is.get(path.as_str()) != Some(stamp)) {
            self.picture = Arc::clone(&self.sure);
            self.after.clear();
        }
    }

    /// `exited`: the workload exited by itself, with any code.
    pub(crate) fn believed(&self, until: Duration, exited: bool) -> &FolderListing {
        let rests = until.saturating_sub(self.at) >= self.rest || exited && self.is_tied;
        if self.after.is_empty() || rests { &self.picture } else { &self.sure }
    }

    pub(crate) fn still(
        &self,
        seen: &FolderListing,
        places: &Places,
        until: Duration,
    ) -> Option<Vec<TreeFile>> {
        let declared = self.believed(until, false);
        // An older save may have been deleted. The marked one must be complete.
        let files = remaining(declared, seen, places)?;
        let mut gone = without_logs(declared).filter(|file| !files.contains(file));
        let cleared =
            gone.all(|file| !seen.iter().any(|other| top(&other.path) == top(&file.path)));
        (cleared && !files.is_empty()).then_some(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::checkpoint::completeness::folder_watch::FolderWatch;
    use crate::agent::checkpoint::completeness::workload_signals::{EarlierSigns, WorkloadSigns};
    use crate::job::ExitStatus;

    /// Names, modification and inode.
    fn tree(files: &[(&str, i64, u64)]) -> FolderListing {
        let stamp =
            |modified_nanos, inode| FileStamp { bytes: 1, modified_nanos, inode, mode: 0o644 };
        Arc::new(
            files
                .iter()
                .map(|(path, modified, inode)| TreeFile {
                    path: (*path).into(),
                    stamp: stamp(*modified, *inode),
                })
                .collect(),
        )
    }

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn complete(watch: &FolderWatch, secs: u64) -> Option<FolderListing> {
        watch.complete(at(secs), true, false).map(|ripe| ripe.picture)
    }

    fn marked(marks: u64, by: i64) -> WorkloadSigns {
        WorkloadSigns {
            marks,
            has_marked: true,
            marked_by: Some(by),
            step: Some(3.0),
            ..WorkloadSigns::default()
        }
    }

    const EIGHT: [(&str, i64, u64); 2] = [("model-8.pt", 80, 8), ("optim-8.pt", 82, 9)];

    /// Seed 1119 of the simulation: the next save had begun when the mark was read, and half of it
    /// was kept.
    #[test]
    fn mark_excludes_files_begun_after_it() {
        for [model, optim, next] in [
            ["model-8.pt", "optim-8.pt", "model-9.pt"],
            ["step-8/model", "step-8/optim", "step-9/model"],
        ] {
            let eight = [(model, 80, 8), (optim, 82, 9)];
            let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
            watch.observe(tree(&eight), at(82), marked(0, 0));
            watch.observe(tree(&[eight[0], eight[1], (next, 84, 10)]), at(84), marked(1, 83));
            assert_eq!(complete(&watch, 84), Some(tree(&eight)));
            watch.keep(tree(&eight));
            let on = tree(&[eight[0], eight[1], (next, 85, 10)]);
            watch.observe(Arc::clone(&on), at(85), marked(1, 83));
            watch.observe(on, at(100), marked(1, 83));
            assert_eq!(complete(&watch, 100), None, "{next} is half, however long it rests");
        }
    }

    #[test]
    fn file_rewritten_after_mark_waits_for_next_mark() {
        let before = tree(&[("model.pt", 10, 1), ("optim.pt", 11, 2)]);
        let mut watch = FolderWatch::new(Arc::clone(&before), EarlierSigns::default());
        let torn = tree(&[("model.pt", 14, 1), ("optim.pt", 12, 2)]);
        watch.observe(Arc::clone(&torn), at(14), marked(1, 13));
        assert_eq!(complete(&watch, 14), None);
        let whole = tree(&[("model.pt", 15, 1), ("optim.pt", 16, 2)]);
        watch.observe(Arc::clone(&whole), at(16), marked(1, 13));
        assert_eq!(complete(&watch, 60), None);
        watch.observe(Arc::clone(&whole), at(61), marked(2, 17));
        assert_eq!(complete(&watch, 61), Some(whole));
    }

    #[test]
    fn files_soon_after_complete_save_are_next_save() {
        let (second, tenth) = (1_000_000_000, 100_000_000);
        let files = [
            ("model-8.pt", 80 * second, 8),
            ("model-9.pt", 83 * second + 3 * tenth, 10),
            ("optim-8.pt", 82 * second, 9),
        ];
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        for secs in [84, 90, 100] {
            watch.observe(tree(&files), at(secs), marked(1, 83 * second));
            assert_eq!(complete(&watch, secs), Some(tree(&[files[0], files[2]])), "{secs}");
        }
    }

    /// Seed 36003486 of 24 h: after a reboot a script marks which checkpoint it resumes from. In
    /// the same clock tick it begins its first save, whose files have a pause between them.
    #[test]
    fn file_with_time_of_mark_is_covered_after_rest() {
        let (half, more) = (tree(&[("model-0.pt", 80, 8)]), tree(&[("model-0.pt", 95, 8)]));
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        watch.observe(Arc::clone(&half), at(80), marked(1, 80));
        assert_eq!(complete(&watch, 81), None, "it may have been begun after the mark");
        assert_eq!(
            watch.complete(at(81), true, true).map(|ripe| ripe.picture),
            None,
            "also for a requested save"
        );
        watch.observe(Arc::clone(&more), at(81), marked(1, 80));
        assert_eq!(complete(&watch, 100), None, "it was");
        let mut whole = FolderWatch::new(tree(&[]), EarlierSigns::default());
        whole.observe(Arc::clone(&half), at(80), marked(1, 80));
        whole.observe(Arc::clone(&half), at(82), marked(1, 80));
        assert_eq!(complete(&whole, 82), Some(half));
        let mut pair = FolderWatch::new(tree(&[]), EarlierSigns::default());
        pair.observe(tree(&EIGHT), at(82), marked(1, 82));
        assert_eq!(complete(&pair, 82), Some(tree(&EIGHT)), "its model came before");
        let next = tree(&[EIGHT[0], EIGHT[1], ("model-9.pt", 83, 10)]);
        let mut begun = FolderWatch::new(tree(&[]), EarlierSigns::default());
        begun.observe(next, at(83), marked(1, 83));
        assert_eq!(complete(&begun, 100), Some(tree(&EIGHT)), "that is of another number");
    }

    /// A script saves, marks, and fails. Save and mark have one time: the file system counts in
    /// ticks of 4 ms.
    #[test]
    fn file_with_time_of_mark_is_kept_after_failure() {
        for (code, signal, kept) in [
            (Some(3), None, true),
            (Some(0), None, true),
            (Some(137), None, false),
            (None, Some(9), false),
        ] {
            let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
            watch.observe(tree(&[("model.pt", 80, 1)]), at(80), marked(1, 80));
            let ended = WorkloadSigns {
                ended: Some((ExitStatus { code, signal, oom: false }, at(81))),
                ..marked(1, 80)
            };
            watch.observe(tree(&[("model.pt", 80, 1)]), at(81), ended);
            assert_eq!(complete(&watch, 81).is_some(), kept, "{code:?} {signal:?}");
        }
    }

    /// Its arguments file was copied with tomorrow's date.
    #[test]
    fn old_file_with_future_date_does_not_delay_mark() {
        let hour = 3_600_000_000_000;
        let arguments = ("args.json", 20 * hour, 1);
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        let save = |number: i64| tree(&[arguments, ("model.pt", number * 20, 2)]);
        watch.observe(save(4), at(80), marked(1, 80));
        assert_eq!(complete(&watch, 80), None, "it is new, and may be of another clock");
        watch.observe(save(4), at(110), marked(1, 80));
        assert_eq!(complete(&watch, 110), Some(save(4)));
        watch.keep(save(4));
        watch.observe(save(6), at(120), marked(2, 121));
        assert_eq!(complete(&watch, 120), Some(save(6)));
    }

    #[test]
    fn folder_with_other_clock_is_trusted_after_rest() {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        watch.observe(tree(&EIGHT), at(82), marked(1, 50));
        assert_eq!(complete(&watch, 82), None);
        watch.observe(tree(&EIGHT), at(84), marked(1, 50));
        assert_eq!(complete(&watch, 84), Some(tree(&EIGHT)));
    }

    #[test]
    fn file_renamed_after_mark_is_complete() {
        let mut watch = FolderWatch::new(tree(&[("model.pt", 10, 1)]), EarlierSigns::default());
        watch.observe(tree(&[("model.pt", 14, 2)]), at(14), marked(1, 13));
        assert_eq!(complete(&watch, 14), Some(tree(&[("model.pt", 14, 2)])));
    }

    /// For example a database of metrics beside the saves.
    #[test]
    fn restless_file_does_not_delay_marks() {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        for secs in 0..40 {
            watch.observe(tree(&[("metrics.db", secs, 1)]), at(secs.unsigned_abs()), marked(0, 0));
        }
        let saved = tree(&[("metrics.db", 40, 1), ("model.pt", 38, 2)]);
        watch.observe(Arc::clone(&saved), at(40), marked(1, 39));
        assert_eq!(complete(&watch, 40), Some(saved));
    }

    #[test]
    fn pointer_written_after_mark_loses_no_checkpoint() {
        let (seven, eight) = (("step-7.ckpt", 70, 7), ("step-8.ckpt", 80, 8));
        let kept = tree(&[("latest", 71, 1), seven]);
        let mut watch = FolderWatch::new(kept, EarlierSigns::default());
        watch.observe(tree(&[("latest", 71, 1), seven, eight]), at(80), marked(0, 0));
        let pointed = tree(&[("latest", 84, 1), seven, eight]);
        watch.observe(Arc::clone(&pointed), at(84), marked(1, 83));
        assert_eq!(complete(&watch, 84), Some(tree(&[seven, eight])));
        let killed = crate::job::ExitStatus { signal: Some(9), ..Default::default() };
        let dead =
            WorkloadSigns { ended: Some((killed, at(85))), killed: Some(at(85)), ..marked(1, 83) };
        watch.observe(Arc::clone(&pointed), at(85), dead);
        watch.observe(pointed, at(90), dead);
        assert_eq!(complete(&watch, 90), Some(tree(&[seven, eight])));
    }

    /// Save 9 has renamed its model but not yet its optimizer.
    #[test]
    fn mark_excludes_half_renamed_pair() {
        let kept = tree(&[("model.pt", 10, 1), ("optim.pt", 11, 2)]);
        let mut watch = FolderWatch::new(kept, EarlierSigns::default());
        watch.observe(tree(&[("model.pt", 20, 3), ("optim.pt", 21, 4)]), at(21), marked(0, 0));
        watch.observe(tree(&[("model.pt", 24, 5), ("optim.pt", 21, 4)]), at(24), marked(1, 22));
        assert_eq!(complete(&watch, 24), None);
    }

    /// Seed 33000128 of 24 h: a marked save waited for its interval, and got the step of a deleted
    /// save.
    #[test]
    fn marked_save_keeps_step_after_later_deletion() {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        watch.observe(
            tree(&EIGHT),
            at(82),
            WorkloadSigns { marked_step: Some(8.0), ..marked(1, 83) },
        );
        let told =
            |step| WorkloadSigns { step: Some(step), marked_step: Some(8.0), ..marked(1, 83) };
        watch.observe(tree(&[EIGHT[0], EIGHT[1], ("model-9.pt", 190, 10)]), at(190), told(9.0));
        watch.observe(tree(&EIGHT), at(200), told(9.0));
        let ripe = watch.complete(at(200), true, false).unwrap();
        assert_eq!(
            (ripe.picture.clone(), ripe.step, ripe.save_time(None)),
            (tree(&EIGHT), Some(8.0), at(0))
        );
    }

    /// The script pauses for twenty seconds between model and optimizer.
    #[test]
    fn pause_in_next_save_is_not_clock_skew() {
        let second = 1_000_000_000;
        let (model, next) = (("model-8.pt", 80 * second, 8), ("model-9.pt", 84 * second, 10));
        let optim = ("optim-8.pt", 82 * second, 9);
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        for secs in [84, 90, 100] {
            watch.observe(tree(&[model, optim, next]), at(secs), marked(1, 83 * second));
            assert_eq!(complete(&watch, secs), Some(tree(&[model, optim])), "{secs}");
        }
    }

    #[test]
    fn second_save_without_mark_means_no_marks() {
        let told =
            |step: u32| WorkloadSigns { step: Some(f64::from(step)), ..WorkloadSigns::default() };
        for numbered in [false, true] {
            let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
            watch.observe(tree(&[]), at(0), told(0));
            let save = |number: i64| {
                if numbered {
                    (format!("model-{number}.pt"), number, 5)
                } else {
                    ("model.pt".to_owned(), number, 5)
                }
            };
            let one = [save(1)];
            let two = if numbered { vec![save(1), save(2)] } else { vec![save(2)] };
            let picture = |files: &[(String, i64, u64)]| {
                tree(
                    &files
                        .iter()
                        .map(|(path, at, inode)| (path.as_str(), *at, *inode))
                        .collect::<Vec<_>>(),
                )
            };
            watch.observe(picture(&one), at(20), told(1));
            watch.observe(picture(&one), at(30), told(1));
            assert_eq!(complete(&watch, 30), None, "its mark may come");
            watch.observe(picture(&two), at(40), told(2));
            watch.observe(picture(&two), at(43), told(2));
            assert_eq!(complete(&watch, 43), Some(picture(&two)), "numbered: {numbered}");
            assert_eq!(watch.known_marks(), Some(false));
        }
    }

    #[test]
    fn files_before_first_step_are_not_unmarked_save() {
        let told = |step| WorkloadSigns { step: Some(step), ..WorkloadSigns::default() };
        let arguments = ("args.json", 1, 1);
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        watch.observe(tree(&[]), at(0), WorkloadSigns::default());
        watch.observe(tree(&[arguments]), at(1), WorkloadSigns::default());
        watch.observe(tree(&[arguments]), at(40), WorkloadSigns::default());
        watch.keep(tree(&[arguments]));
        for secs in [41, 50, 51] {
            watch.observe(tree(&[arguments]), at(secs), told(1.0));
        }
        let half = tree(&[("args.json", 52, 1), ("model.pt", 52, 2)]);
        watch.observe(Arc::clone(&half), at(52), told(2.0));
        watch.observe(half, at(57), told(2.0));
        assert_eq!(
            (complete(&watch, 57), watch.known_marks()),
            (None, None),
            "its optimizer comes after a pause, and then its mark"
        );
    }

    /// Seed 275 of the simulation: half of the first save was kept, because marks were not known
    /// yet.
    #[test]
    fn first_save_of_reporting_script_may_be_marked() {
        let told = WorkloadSigns { step: Some(3.0), ..WorkloadSigns::default() };
        let (model, both) =
            (tree(&[("model.pt", 1, 1)]), tree(&[("model.pt", 1, 1), ("optimizer.pt", 1, 2)]));
        let first = |marks| {
            let mut watch =
                FolderWatch::new(tree(&[]), EarlierSigns { marks, ..EarlierSigns::default() });
            watch.observe(tree(&[]), at(0), told);
            watch.observe(Arc::clone(&model), at(10), told);
            watch.observe(Arc::clone(&model), at(30), told);
            watch
        };
        let mut watch = first(None);
        assert_eq!(complete(&watch, 30), None, "the optimizer is still to come");
        assert!(
            watch.complete(at(30), true, true).is_some(),
            "a save is requested, and there may never be more"
        );
        assert_eq!(watch.known_marks(), None, "it stays unknown whether the script marks");
        watch.observe(Arc::clone(&both), at(35), marked(1, 2));
        assert_eq!(complete(&watch, 35), Some(both));
        assert!(complete(&first(None), 40).is_some(), "it makes none");
        assert!(complete(&first(Some(false)), 20).is_some(), "that it makes none is known");
        assert_eq!(
            complete(&first(Some(true)), 30),
            None,
            "a machine before this one has seen its marks"
        );
    }

    #[test]
    fn marks_are_trusted_and_silence_is_not() {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        watch.observe(
            tree(&[("a", 1, 7)]),
            at(1),
            WorkloadSigns { marks: 1, marked_step: Some(3.0), ..WorkloadSigns::default() },
        );
        let ripe = watch.complete(at(1), true, false).unwrap();
        assert_eq!((ripe.picture, ripe.step), (tree(&[("a", 1, 7)]), Some(3.0)));
        watch.observe(
            tree(&[("a", 1, 7), ("b", 2, 7)]),
            at(2),
            WorkloadSigns { marks: 1, ..WorkloadSigns::default() },
        );
        watch.observe(
            tree(&[("a", 1, 7), ("b", 2, 7)]),
            at(60),
            WorkloadSigns { marks: 1, ..WorkloadSigns::default() },
        );
        assert_eq!(
            complete(&watch, 60),
            None,
            "half of the next checkpoint, however long it takes"
        );
    }

    /// Seed 386 of the simulation: after a reboot, an agent gave an old save the step of the newest
    /// line.
    #[test]
    fn unseen_files_have_step_of_mark_or_none() {
        for marked_step in [None, Some(60.0)] {
            let mut watch = FolderWatch::new(tree(&[("a", 1, 7)]), EarlierSigns::default());
            let signs = WorkloadSigns {
                step: Some(64.0),
                marked_step,
                has_marked: marked_step.is_some(),
                ..WorkloadSigns::default()
            };
            assert!(watch.observe(tree(&[("a", 2, 7)]), at(10), signs));
            watch.observe(tree(&[("a", 2, 7)]), at(41), signs);
            assert_eq!(
                watch.complete(at(41), true, false).map(|ripe| ripe.step),
                Some(marked_step)
            );
        }
    }
}
