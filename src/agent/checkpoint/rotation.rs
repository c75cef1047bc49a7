//! How a file, a set of files or the whole folder changes: last change, first change, at rest or
//! not.
//!
//! Not here: what a rest means (that is [`super::completeness`]).

use std::time::Duration;

/// How long the folder must be unchanged. Writers with longer pauses inside a checkpoint should
/// mark it. Shorter cuts slow writers in half. Longer uses up the time of an interruption notice.
pub(crate) const QUIET: Duration = Duration::from_secs(2);

/// Longer than any pause inside a save: files unchanged for this long are complete, even with fewer
/// names than before. Shorter cuts off saves that gather a large model. Longer keeps a changed set
/// of files late.
pub(crate) const RESTLESS: Duration = Duration::from_secs(30);

/// When something began, and the step reported by then.
pub(crate) type BegunAt = (Duration, Option<f64>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Motion {
    /// The last change, and the first since it rested.
    pub changed: Duration,
    pub begun: Duration,
    /// The end of its last rest.
    rested: Duration,
    /// The step when it began: training may continue during the write.
    pub step: Option<f64>,
    /// Whether it ever changed.
    ever: bool,
}

impl Motion {
    pub(crate) fn new((now, step): BegunAt) -> Self {
        Motion { changed: now, begun: now, rested: now, step, ever: true }
    }

    /// `looked`: the previous look, up to which a rest is known. `not_before`: the earliest start
    /// of the present change, if known from elsewhere.
    pub(crate) fn moved(
        &mut self,
        (now, step): BegunAt,
        looked: Duration,
        not_before: Option<BegunAt>,
    ) {
        if self.rests(looked) {
            (self.begun, self.rested, self.step) = (now, now, step);
        }
        if let Some((begun, step)) = not_before.filter(|(begun, _)| *begun > self.begun) {
            (self.begun, self.step) = (begun, step);
        }
        (self.changed, self.ever) = (now, true);
    }

    pub(crate) fn rests(&self, at: Duration) -> bool {
        self.rests_for(at, QUIET)
    }

    pub(crate) fn rests_for(&self, at: Duration, time: Duration) -> bool {
        !self.ever || at.saturating_sub(self.changed) >= time
    }

    /// Since when it has not rested.
    pub(crate) fn moving_since(&self) -> Duration {
        self.rested
    }

    pub(crate) fn restless(&self, at: Duration, time: Duration) -> bool {
        !self.rests(at) && at.saturating_sub(self.rested) >= time
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::checkpoint::completeness::FolderWatch;
    use crate::agent::checkpoint::folder_diff::FolderListing;
    use crate::agent::checkpoint::workload_signals::{EarlierSigns, WorkloadSigns};
    use crate::ports::{FileStamp, TreeFile};

    fn tree(files: &[&str]) -> FolderListing {
        let stamp = FileStamp { bytes: 1, modified_nanos: 1, inode: 7, mode: 0o644 };
        Arc::new(files.iter().map(|path| TreeFile { path: (*path).into(), stamp }).collect())
    }

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Seed 33001763 of 24 h: the agent hung, and the save of step 20 got a later step.
    #[test]
    fn save_with_unseen_start_has_no_later_step() {
        let mut watch = FolderWatch::new(
            tree(&[]),
            EarlierSigns { marks: Some(false), ..EarlierSigns::default() },
        );
        let told = |step| WorkloadSigns { step: Some(step), ..WorkloadSigns::default() };
        watch.observe(tree(&[]), at(0), told(20.0));
        watch.observe(tree(&["model-20.pt"]), at(15), told(21.0));
        watch.observe(tree(&["model-20.pt"]), at(25), told(21.0));
        assert_eq!(watch.complete(at(25), true, false).map(|ripe| ripe.step), Some(Some(20.0)));
    }

    /// Seed 1116 of the simulation: a full disk, a deleted half save, and its step given to the one
    /// before.
    #[test]
    fn deleted_save_leaves_no_step() {
        let mut watch = FolderWatch::new(
            tree(&[]),
            EarlierSigns { marks: Some(false), ..EarlierSigns::default() },
        );
        let told = |step| WorkloadSigns { step: Some(step), ..WorkloadSigns::default() };
        watch.observe(tree(&[]), at(9), told(20.0));
        watch.observe(tree(&["model-21.pt"]), at(10), told(21.0));
        watch.observe(tree(&["model-21.pt"]), at(39), told(24.0));
        watch.observe(tree(&["model-21.pt", "model-24.pt"]), at(40), told(24.0));
        watch.observe(tree(&["model-21.pt"]), at(41), told(24.0));
        assert_eq!(watch.complete(at(44), true, false).map(|ripe| ripe.step), Some(Some(21.0)));
    }
}
