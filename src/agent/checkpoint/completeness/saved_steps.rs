//! Which step the files of the checkpoint folder hold.
//!
//! A step counts only if it was certainly reported before the save began. A later one would name
//! work that the save lacks. Not here: whether the files are complete (that is
//! [`super::folder_watch`]).

use std::collections::HashMap;
use std::time::Duration;

use super::file_motion::QUIET;
use super::file_names::Partition;
use super::folder_diff::{FolderListing, stamps, without_logs, written_first};
use super::units::Units;
use super::workload_signals::WorkloadSigns;

#[derive(Debug, Default)]
pub(crate) struct SavedSteps {
    /// For each file: the step at which the writing of its part began.
    by_file: HashMap<String, Option<f64>>,
    /// The newest step at the last look, and the number of reports by then.
    reported: Option<f64>,
    reports: u64,
}

impl SavedSteps {
    /// The newest step at the last look. A workload that reports steps may also mark its
    /// checkpoints.
    pub(crate) fn reported(&self) -> Option<f64> {
        self.reported
    }

    /// A step that the new files hold for certain. `gap`: the time since the last look.
    ///
    /// The newest one is certain if it was written before the files, and is the only one since the
    /// last look: a save that began before it may end after it. Otherwise it is the one at the last
    /// look.
    pub(crate) fn held_by(
        &self,
        (before, after): (&FolderListing, &FolderListing),
        gap: Option<Duration>,
        signs: &WorkloadSigns,
    ) -> Option<f64> {
        // The files of the first look were written unseen: only a mark tells their step.
        let Some(gap) = gap else { return signs.marked_step };
        let is_recent = gap <= QUIET && signs.reports <= self.reports + 1;
        // With equal times, either may be the first: file systems count in ticks of milliseconds.
        let is_before = || {
            signs.told_by.is_some_and(|told| {
                written_first(before, after).is_some_and(|written| told < written)
            })
        };
        if self.reported == signs.step || is_recent && is_before() {
            return signs.step;
        }
        self.reported.zip(signs.step).map(|(before, now)| before.min(now))
    }

    /// New files get the step of their part.
    pub(crate) fn assign(
        &mut self,
        (before, after): (&FolderListing, &FolderListing),
        units: &Units,
    ) {
        let (was, is) = (stamps(before), stamps(after));
        self.by_file.retain(|path, _| is.contains_key(path.as_str()));
        let partition = Partition::new(after.iter().map(|file| file.path.as_str()), &units.places);
        for file in
            without_logs(after).filter(|file| was.get(file.path.as_str()) != Some(&file.stamp))
        {
            self.by_file.insert(file.path.clone(), units.step_of(&file.path, &partition));
        }
    }

    /// The newest step among these files. A save that was deleted again does not count.
    pub(crate) fn newest(&self, picture: &FolderListing) -> Option<f64> {
        picture.iter().filter_map(|file| *self.by_file.get(&file.path)?).max_by(f64::total_cmp)
    }

    /// The look is over.
    pub(crate) fn looked(&mut self, signs: &WorkloadSigns) {
        (self.reported, self.reports) = (signs.step, signs.reports);
    }
}
