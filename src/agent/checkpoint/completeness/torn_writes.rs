//! Files that a killed process may have left incomplete, and how long they are doubted.
//!
//! ```text
//!   killed while writing ──> doubted ──rewritten, deleted, marked, or as much written──> trusted
//! ```
//! A restarted process may leave the folder alone for minutes, so a rest proves nothing about the
//! old files. Their checksums would match, so an incomplete checkpoint would stay the newest for
//! ever. Not here: what is complete (that is [`super::folder_watch`]).

use std::collections::BTreeMap;
use std::time::Duration;

use super::complete_set::CompleteSet;
use super::file_names::Places;
use super::folder_diff::{FolderListing, is_in, same_but_logs, stamps, stands, without_logs};
use crate::ports::FileStamp;

#[derive(Debug)]
pub(crate) struct TornFiles {
    /// When the process ended. `None`: unseen.
    pub ended: Option<Duration>,
    /// Files that may be incomplete, with the least that the next save writes in their place.
    files: BTreeMap<String, (FileStamp, u64)>,
    written: u64,
    /// The complete files beside them.
    whole: Option<CompleteSet>,
}

impl TornFiles {
    /// Doubts all files that are not kept, except those `whole` at the end. `None`: there is no
    /// such file.
    pub(crate) fn of(
        seen: &FolderListing,
        kept: &FolderListing,
        ended: Option<Duration>,
        whole: Option<CompleteSet>,
    ) -> Option<TornFiles> {
        let (kept, trusted) =
            (stamps(kept), whole.as_ref().map(|whole| stamps(&whole.picture)).unwrap_or_default());
        let files: BTreeMap<String, (FileStamp, u64)> = without_logs(seen)
            .filter(|file| !is_in(&kept, file) && !is_in(&trusted, file))
            .map(|file| {
                // A file that was just opened is empty.
                let before = kept.get(file.path.as_str()).map_or(0, |kept| kept.bytes);
                (file.path.clone(), (file.stamp, file.stamp.bytes.max(before)))
            })
            .collect();
        (!files.is_empty()).then_some(TornFiles { ended, files, written: 0, whole })
    }

    /// Restores the doubt of an earlier agent. `None`: it had none.
    pub(crate) fn again(files: Vec<(String, FileStamp, u64)>) -> Option<TornFiles> {
        let files: BTreeMap<String, (FileStamp, u64)> =
            files.into_iter().map(|(path, stamp, bytes)| (path, (stamp, bytes))).collect();
        (!files.is_empty()).then_some(TornFiles { ended: None, files, written: 0, whole: None })
    }

    pub(crate) fn files(&self) -> Vec<(String, FileStamp, u64)> {
        self.files.iter().map(|(path, (stamp, bytes))| (path.clone(), *stamp, *bytes)).collect()
    }

    pub(crate) fn was_written_beside(&self) -> bool {
        self.written > 0
    }

    /// A file that changes is trusted again: its writer runs. A file under a unique name never
    /// changes again, so it is doubted until as many bytes were written beside it.
    pub(crate) fn observe(&mut self, before: &FolderListing, after: &FolderListing) {
        let (was, is) = (stamps(before), stamps(after));
        for file in without_logs(after) {
            let old = was.get(file.path.as_str());
            if old == Some(&file.stamp) {
                continue;
            }
            let grown =
                old.filter(|old| old.inode == file.stamp.inode && old.bytes < file.stamp.bytes);
            self.written += file.stamp.bytes - grown.map_or(0, |old| old.bytes);
        }
        self.files.retain(|path, (stamp, _)| is.get(path.as_str()) == Some(stamp));
    }

    pub(crate) fn holds(&self) -> bool {
        self.written
            < self
                .files
                .values()
                .map(|(_, bytes)| *bytes)
                .sum::<u64>()
                .max(u64::from(!self.files.is_empty()))
    }

    /// The complete files, although others are in doubt.
    pub(crate) fn whole(
        &self,
        seen: &FolderListing,
        kept: &FolderListing,
        places: &Places,
    ) -> Option<&CompleteSet> {
        self.whole.as_ref().filter(|whole| {
            stands(&whole.picture, seen, places) && !same_but_logs(&whole.picture, kept)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::checkpoint::completeness::folder_watch::FolderWatch;
    use crate::agent::checkpoint::completeness::workload_signals::{EarlierSigns, WorkloadSigns};
    use crate::job::ExitStatus;
    use crate::ports::TreeFile;

    const KILLED: ExitStatus = ExitStatus { code: None, signal: Some(9), oom: false };

    /// Names, bytes and modification; written in place.
    fn tree(files: &[(&str, u64, i64)]) -> FolderListing {
        let stamp =
            |bytes, modified_nanos| FileStamp { bytes, modified_nanos, inode: 7, mode: 0o644 };
        Arc::new(
            files
                .iter()
                .map(|(path, bytes, modified)| TreeFile {
                    path: (*path).into(),
                    stamp: stamp(*bytes, *modified),
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

    /// The process is killed at 100 s, after three of eight bytes of a save, and is started again.
    fn killed_in_a_save(files: &[(&str, u64, i64)]) -> FolderWatch {
        let mut watch = FolderWatch::new(tree(&[("model.pt", 8, 1)]), EarlierSigns::default());
        watch.observe(tree(&[("model.pt", 8, 1)]), at(1), WorkloadSigns::default());
        watch.observe(tree(files), at(100), WorkloadSigns::default());
        watch.observe(
            tree(files),
            at(101),
            WorkloadSigns {
                ended: Some((KILLED, at(101))),
                killed: Some(at(101)),
                ..WorkloadSigns::default()
            },
        );
        assert_eq!(complete(&watch, 101), None);
        watch.observe(tree(files), at(102), AFTER);
        watch
    }

    const AFTER: WorkloadSigns = WorkloadSigns {
        killed: Some(Duration::from_secs(101)),
        marks: 0,
        marked_step: None,
        step: None,
        reports: 0,
        told_by: None,
        any_step: None,
        prints_steps: false,
        life: 1,
        marked_by: None,
        has_marked: false,
        ended: None,
        free_bytes: None,
    };

    #[test]
    fn half_save_stays_incomplete_after_restart() {
        let half = [("model.pt", 3, 100)];
        let mut watch = killed_in_a_save(&half);
        for secs in [105, 200, 2000] {
            watch.observe(tree(&half), at(secs), AFTER);
            assert_eq!(complete(&watch, secs), None, "{secs}");
        }
        // Its start writes a small file and a log.
        let beside = [("args.json", 1, 150), ("model.pt", 3, 100), ("train.log", 90, 150)];
        watch.observe(tree(&beside), at(2001), AFTER);
        watch.observe(tree(&beside), at(2100), AFTER);
        assert_eq!(complete(&watch, 2100), None);
        let whole = [("args.json", 1, 150), ("model.pt", 8, 2200), ("train.log", 90, 150)];
        watch.observe(tree(&whole), at(2200), AFTER);
        // It lacks a name that the start wrote, so that it must rest for half a minute.
        watch.observe(tree(&whole), at(2231), AFTER);
        assert_eq!(complete(&watch, 2231), Some(tree(&whole)));
    }

    /// The next process may start before the agent looks.
    #[test]
    fn kill_between_two_looks_is_noticed() {
        let half = [("model.pt", 3, 100)];
        let mut watch = FolderWatch::new(tree(&[("model.pt", 8, 1)]), EarlierSigns::default());
        watch.observe(tree(&half), at(100), WorkloadSigns::default());
        watch.observe(tree(&half), at(102), AFTER);
        watch.observe(tree(&half), at(200), AFTER);
        assert_eq!(complete(&watch, 200), None);
    }

    #[test]
    fn leftover_file_does_not_delay_saves_for_ever() {
        let left = [("model.pt", 8, 1), ("x8f3", 5, 100)];
        let mut watch = killed_in_a_save(&left);
        let next = [("model.pt", 8, 300), ("x8f3", 5, 100)];
        watch.observe(tree(&next), at(300), AFTER);
        watch.observe(tree(&next), at(311), AFTER);
        assert_eq!(complete(&watch, 311), Some(tree(&next)));
    }

    #[test]
    fn empty_file_of_begun_save_is_doubted() {
        let mut watch = killed_in_a_save(&[("model.pt", 0, 100)]);
        let beside = [("args.json", 1, 150), ("model.pt", 0, 100)];
        watch.observe(tree(&beside), at(150), AFTER);
        watch.observe(tree(&beside), at(200), AFTER);
        assert_eq!(complete(&watch, 200), None);
    }

    #[test]
    fn mark_or_clean_exit_after_save_ends_doubt() {
        let half = [("model.pt", 3, 100)];
        let mut marked = killed_in_a_save(&half);
        marked.observe(tree(&half), at(300), WorkloadSigns { marks: 1, ..AFTER });
        assert_eq!(
            complete(&marked, 300),
            None,
            "it says at its start what it goes on from, and has written nothing"
        );
        let whole = [("model.pt", 8, 400)];
        marked.observe(tree(&whole), at(400), WorkloadSigns { marks: 1, ..AFTER });
        marked.observe(tree(&whole), at(401), WorkloadSigns { marks: 2, ..AFTER });
        assert_eq!(complete(&marked, 401), Some(tree(&whole)), "the workload says so");
        let exit =
            |at_secs| Some((ExitStatus { code: Some(0), ..ExitStatus::default() }, at(at_secs)));
        let mut idle = killed_in_a_save(&half);
        idle.observe(tree(&half), at(300), WorkloadSigns { ended: exit(300), ..AFTER });
        assert_eq!(complete(&idle, 300), None, "nothing was saved since");
        let mut saved = killed_in_a_save(&half);
        let other = [("final.pt", 1, 300), ("model.pt", 3, 100)];
        saved.observe(tree(&other), at(300), WorkloadSigns { ended: exit(300), ..AFTER });
        assert_eq!(complete(&saved, 300), Some(tree(&other)));
    }

    #[test]
    fn series_keeps_complete_saves_without_half_one() {
        let before = [("step-100.pt", 8, 50)];
        let half = [("step-100.pt", 8, 50), ("step-200.pt", 3, 100)];
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        watch.observe(tree(&[]), at(1), WorkloadSigns::default());
        watch.observe(tree(&before), at(50), WorkloadSigns::default());
        watch.observe(tree(&before), at(60), WorkloadSigns::default());
        watch.observe(tree(&half), at(100), WorkloadSigns::default());
        watch.observe(
            tree(&half),
            at(101),
            WorkloadSigns { ended: Some((KILLED, at(101))), ..AFTER },
        );
        assert_eq!(complete(&watch, 101), Some(tree(&before)));
        watch.observe(tree(&half), at(102), AFTER);
        watch.observe(tree(&half), at(900), AFTER);
        assert_eq!(complete(&watch, 900), Some(tree(&before)));
        watch.keep(tree(&before));
        assert_eq!(complete(&watch, 901), None);
    }

    /// The next agent finds a running process, and half a save of the previous one.
    #[test]
    fn restarted_agent_keeps_doubts() {
        let (whole, half) =
            (tree(&[("step-1.pt", 8, 1)]), [("step-1.pt", 8, 1), ("step-2.pt", 3, 100)]);
        let mut before = killed_in_a_save(&half);
        before.keep(Arc::clone(&whole));
        let mut watch = FolderWatch::new(whole, EarlierSigns::default()).doubting(before.doubted());
        for secs in [10, 60, 600] {
            watch.observe(tree(&half), at(secs), WorkloadSigns::default());
            assert_eq!(complete(&watch, secs), None, "{secs}");
        }
        let next = [half[0], half[1], ("step-3.pt", 12, 700)];
        watch.observe(tree(&next), at(700), WorkloadSigns::default());
        assert_eq!(watch.doubted(), []);
        let again = FolderWatch::new(tree(&[]), EarlierSigns::default()).doubting(watch.doubted());
        assert!(!again.is_in_doubt());
    }

    #[test]
    fn files_of_unseen_end_are_doubted_unless_renamed() {
        let kept = tree(&[("model.pt", 8, 1)]);
        let unwatched = EarlierSigns { unseen_end: true, ..EarlierSigns::default() };
        let mut watch = FolderWatch::new(Arc::clone(&kept), unwatched);
        for secs in [10, 60, 600] {
            watch.observe(tree(&[("model.pt", 3, 100)]), at(secs), WorkloadSigns::default());
            assert_eq!(complete(&watch, secs), None);
        }
        let renamed = Arc::new(
            kept.iter()
                .map(|file| TreeFile {
                    stamp: FileStamp { inode: 8, ..file.stamp },
                    ..file.clone()
                })
                .collect::<Vec<_>>(),
        );
        let mut watch = FolderWatch::new(Arc::clone(&kept), unwatched);
        watch.observe(Arc::clone(&renamed), at(10), WorkloadSigns::default());
        watch.observe(Arc::clone(&renamed), at(13), WorkloadSigns::default());
        assert_eq!(complete(&watch, 13), Some(renamed));
        let mut watch = FolderWatch::new(kept, EarlierSigns::default());
        watch.observe(tree(&[("model.pt", 8, 100)]), at(10), WorkloadSigns::default());
        watch.observe(tree(&[("model.pt", 8, 100)]), at(21), WorkloadSigns::default());
        assert!(complete(&watch, 21).is_some(), "the agent sees that the running process rests");
    }

    #[test]
    fn restarted_agent_waits_for_marks_of_marking_script() {
        for (marks, has_marked) in [(Some(true), false), (None, true)] {
            let mut watch =
                FolderWatch::new(tree(&[]), EarlierSigns { marks, ..EarlierSigns::default() });
            let signs = WorkloadSigns { has_marked, ..WorkloadSigns::default() };
            watch.observe(tree(&[("model.pt", 8, 100)]), at(100), signs);
            watch.observe(tree(&[("model.pt", 8, 100)]), at(110), signs);
            assert_eq!(complete(&watch, 110), None, "the optimizer is still to come");
            let both = [("model.pt", 8, 100), ("optimizer.pt", 8, 115)];
            watch.observe(tree(&both), at(115), WorkloadSigns { marks: 1, ..signs });
            assert_eq!(complete(&watch, 115), Some(tree(&both)));
        }
        let mut watch = FolderWatch::new(
            tree(&[]),
            EarlierSigns { marks: Some(true), ..EarlierSigns::default() },
        );
        watch.observe(tree(&[("model.pt", 8, 100)]), at(100), WorkloadSigns::default());
        watch.observe(tree(&[("model.pt", 8, 100)]), at(131), WorkloadSigns::default());
        assert!(complete(&watch, 131).is_some(), "its mark was made before");
    }
}
