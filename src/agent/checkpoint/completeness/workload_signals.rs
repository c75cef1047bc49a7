//! Facts about the workload beside its checkpoint folder: its marks, its steps, its ends.
//!
//! Not here: what follows for a checkpoint (that is [`super::folder_watch`]).

use std::sync::Arc;
use std::time::Duration;

use super::folder_diff::{FolderListing, saves_again, stamps};
use crate::job::ExitStatus;
use crate::ports::ClockLead;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkloadSigns {
    /// Explicit marks so far, and the step at the newest.
    pub marks: u64,
    pub marked_step: Option<f64>,
    /// The newest step that its process reported in the progress file.
    pub step: Option<f64>,
    /// The number of these reports, and the time by which the newest was written: nanoseconds
    /// since 1970, by the file system.
    pub reports: u64,
    pub told_by: Option<i64>,
    /// The newest step from any source, also from what it prints.
    pub any_step: Option<f64>,
    /// Its steps are known only from its output: the progress file is empty, so the job makes no
    /// marks.
    pub prints_steps: bool,
    /// Which start of the workload this is, as far as this agent has seen.
    pub life: u64,
    /// The newest mark was made by this time of the file system, nanoseconds since 1970.
    pub marked_by: Option<i64>,
    /// Whether it has ever marked one, however long ago.
    pub has_marked: bool,
    pub ended: Option<(ExitStatus, Duration)>,
    /// When the newest killed process ended; another may have started since.
    pub killed: Option<Duration>,
    /// The free bytes of its disk. `None`: unknown.
    pub free_bytes: Option<u64>,
}

impl WorkloadSigns {
    /// The times of the progress file in the clock of the checkpoint folder. A step was reported at
    /// the latest then, and a mark covers at the least what is older. `None`: the clocks are not
    /// known, so no time tells which came first.
    pub(crate) fn by_clock_of_folder(self, lead: Option<ClockLead>) -> Self {
        WorkloadSigns {
            told_by: self.told_by.zip(lead).map(|(at, lead)| at.saturating_add(lead.most_nanos)),
            marked_by: self
                .marked_by
                .map(|at| at.saturating_add(lead.unwrap_or_default().least_nanos)),
            ..self
        }
    }
}

/// Facts from before this agent started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EarlierSigns {
    /// Whether the workload marks its checkpoints. `None` until its first one.
    pub marks: Option<bool>,
    /// A process of the workload ended unseen.
    pub unseen_end: bool,
}

/// Learns whether the workload marks its checkpoints. A marking script makes the mark before its
/// next save, and within half a minute. Files from before its first step are not a save.
#[derive(Debug, Default)]
pub(crate) struct MarkHabit {
    pub marks: Option<bool>,
    told_at: Option<FolderListing>,
    has_moved: bool,
}

impl MarkHabit {
    pub(crate) fn of(marks: Option<bool>) -> Self {
        MarkHabit { marks, ..MarkHabit::default() }
    }

    /// `rested`: for two seconds before this look; `rests`: for half a minute by now.
    pub(crate) fn observe(
        &mut self,
        (before, after): (&FolderListing, &FolderListing),
        (rested, rests): (bool, bool),
        signs: &WorkloadSigns,
    ) {
        let changed = before != after;
        if self.marks.is_none()
            && self.has_moved
            && (rests || changed && rested && saves_again(&self.since_told(before), after))
        {
            self.marks = Some(false);
        }
        match &self.told_at {
            Some(_) => self.has_moved |= changed,
            None => self.told_at = signs.step.map(|_| Arc::clone(after)),
        }
        if signs.marks > 0 || signs.has_marked {
            self.marks = Some(true);
        }
    }

    fn since_told(&self, picture: &FolderListing) -> FolderListing {
        let told = self.told_at.as_ref().map(stamps).unwrap_or_default();
        Arc::new(
            picture
                .iter()
                .filter(|file| told.get(file.path.as_str()) != Some(&file.stamp))
                .cloned()
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file server whose clock is a second ahead: a save begun before the report looked newer.
    #[test]
    fn times_of_report_and_mark_are_in_clock_of_folder() {
        let signs =
            WorkloadSigns { told_by: Some(50), marked_by: Some(60), ..WorkloadSigns::default() };
        let times = |lead| {
            let signs = signs.by_clock_of_folder(lead);
            (signs.told_by, signs.marked_by)
        };
        assert_eq!(times(Some(ClockLead::default())), (Some(50), Some(60)));
        let ahead = ClockLead::between(1000, 3000, 1100);
        assert_eq!(times(Some(ahead)), (Some(2050), Some(1960)), "each by what is certain");
        let behind = ClockLead::between(1000, 500, 1100);
        assert_eq!(times(Some(behind)), (Some(-450), Some(-540)));
        assert_eq!(times(None), (None, Some(60)));
        assert_eq!(ClockLead::between(1000, 1050, 1100), ClockLead::default(), "one clock");
    }
}
