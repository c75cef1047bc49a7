//! How a file, a set of files or the whole folder changes: last change, first change, at rest or
//! not.
//!
//! Not here: what a rest means (that is [`super::folder_watch`]).

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::file_names::{FolderPart, Partition, is_log, shape_of, without_hash};
use super::folder_diff::{FolderListing, lists};
use crate::ports::FileStamp;

/// How long the folder must be unchanged. Writers with longer pauses inside a checkpoint should
/// mark it. Shorter cuts slow writers in half. Longer uses up the time of an interruption notice.
pub(crate) const QUIET: Duration = Duration::from_secs(2);

/// Longer than any pause inside a save: files unchanged for this long are complete, even with fewer
/// names than before. Shorter cuts off saves that gather a large model. Longer keeps a changed set
/// of files late.
pub(crate) const RESTLESS: Duration = Duration::from_secs(30);

/// A file that stayed open and grew this often, each time after a rest, is no part of a save that
/// begins then. Fewer are pauses of a writer.
const PULSES: u32 = 3;

/// Such a rest, as far as looks saw it. Writers with longer pauses inside a save are rare. Looks
/// ask which files are open for half a minute after a change.
const PULSE_REST: Duration = Duration::from_secs(20);

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

/// An open file that stays the same for this long belongs to no save under way.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// Files that only grow or stay open, and the saves that began meanwhile. Also files that no
/// listing shows: their names say that they are unfinished.
#[derive(Debug, Default)]
pub(crate) struct GrowingFiles(HashMap<String, GrowingFile>);

#[derive(Debug, Default)]
struct GrowingFile {
    /// When it was first seen to grow or to be open.
    since: Duration,
    /// The saves since it began to grow, each once, and how often one of these began again.
    begun: BTreeSet<String>,
    rounds: u32,
    /// When it grew last, and the last look that saw it open and at rest since.
    grown: Duration,
    quiet: Option<Duration>,
    /// How often it grew after such a rest since it was opened.
    pulses: u32,
    is_log: bool,
    /// It was changed in its middle, as a database is: a copy of it may be torn.
    is_rewritten: bool,
}

impl GrowingFile {
    /// It still grows or is still open.
    fn looked(&mut self) {
        self.is_log |= self.rounds >= 2;
    }

    fn changed(&mut self, has_grown: bool, now: Duration) {
        let has_rested =
            self.quiet.is_some_and(|quiet| quiet.saturating_sub(self.grown) >= PULSE_REST);
        self.pulses = if has_grown { self.pulses + u32::from(has_rested) } else { 0 };
        (self.grown, self.quiet) = (now, None);
    }
}

impl GrowingFiles {
    /// Compares two looks. `open`: the files that the workload has open for writing, if known.
    /// `begun`: saves inside numbered folders.
    pub(crate) fn observe(
        &mut self,
        (before, after): (&FolderListing, &FolderListing),
        (was, partition): (&HashMap<&str, FileStamp>, &Partition<'_>),
        open: Option<&BTreeSet<String>>,
        (mut begun, now): (BTreeSet<String>, Duration),
    ) {
        let old = LazyCell::new(|| -> HashSet<FolderPart> {
            before.iter().map(|file| partition.part_of(&file.path)).collect()
        });
        let new = || GrowingFile { since: now, grown: now, ..GrowingFile::default() };
        // Also without a change: a library may keep its lines, and hide its scratch files.
        for path in open.into_iter().flatten().filter(|path| !is_log(path)) {
            self.0.entry(path.clone()).or_insert_with(new).looked();
        }
        let mut is_another = false;
        // Signs that a save has begun: a name that is rewritten, or a new number.
        for file in after.iter().filter(|file| !is_log(&file.path)) {
            let stamp = was.get(file.path.as_str());
            if stamp == Some(&file.stamp) {
                continue;
            }
            is_another |= stamp.is_none();
            let has_grown = stamp.is_some_and(|stamp| {
                stamp.inode == file.stamp.inode && stamp.bytes < file.stamp.bytes
            });
            if has_grown || stamp.is_some() && open.is_some_and(|open| open.contains(&file.path)) {
                let growing = self.0.entry(file.path.clone()).or_insert_with(new);
                growing.is_rewritten |= !has_grown;
                growing.changed(has_grown, now);
                growing.looked();
                continue;
            }
            self.0.remove(&file.path);
            match partition.part_of(&file.path) {
                FolderPart::Common if stamp.is_some() => {
                    begun.insert(file.path.clone());
                }
                part @ FolderPart::Numbered { .. } if !old.contains(&part) => {
                    begun.insert(shape_of(&file.path));
                }
                _ => {}
            }
        }
        if is_another || !begun.is_empty() {
            self.0.values_mut().for_each(|growing| growing.is_log |= growing.pulses >= PULSES);
        }
        for growing in self.0.values_mut().filter(|_| !begun.is_empty()) {
            if growing.begun.is_disjoint(&begun) {
                growing.begun.extend(begun.iter().cloned());
            } else {
                (growing.rounds, growing.begun) = (growing.rounds + 1, begun.clone());
            }
        }
        // Deleted files are forgotten.
        self.0.retain(|path, _| lists(after, path) || open.is_some_and(|open| open.contains(path)));
    }

    /// A look, also one without a change: which of them stay open.
    pub(crate) fn look(&mut self, open: &BTreeSet<String>, now: Duration) {
        for (path, growing) in &mut self.0 {
            if !open.contains(path) {
                (growing.quiet, growing.pulses) = (None, 0);
            } else if now > growing.grown {
                growing.quiet = Some(now);
            }
        }
    }

    /// The files that are logs.
    pub(crate) fn logs(&self) -> BTreeSet<String> {
        let logs = self.0.iter().filter(|(_, growing)| growing.is_log);
        logs.map(|(path, _)| path.clone()).collect()
    }

    /// The logs that only grew: a copy of one is whole up to its end.
    pub(crate) fn appended(&self) -> BTreeSet<String> {
        let mut logs = self.logs();
        logs.retain(|path| self.0.get(path).is_some_and(|growing| !growing.is_rewritten));
        logs
    }

    /// Whether an open file is no log, and has grown lately.
    pub(crate) fn is_written(&self, path: &str, now: Duration) -> bool {
        self.0.get(path).is_none_or(|growing| {
            !growing.is_log && now.saturating_sub(growing.grown) < WRITTEN_WITHIN
        })
    }

    /// Since when a file grows or is open.
    pub(crate) fn since(&self, path: &str) -> Option<Duration> {
        self.0.get(path).map(|growing| growing.since)
    }

    /// The same for a name whose hashes are `@`.
    pub(crate) fn has_like(&self, name: &str) -> bool {
        let is_like = |path: &str| path == name || name.contains('@') && without_hash(path) == name;
        self.0.iter().any(|(path, growing)| growing.is_log && is_like(path))
    }

    /// Whether a file grew or stayed open over two saves: then it is a log. No file of a save is
    /// still growing while the next two begin.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.get(path).is_some_and(|growing| growing.is_log)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::checkpoint::completeness::folder_watch::FolderWatch;
    use crate::agent::checkpoint::completeness::workload_signals::{EarlierSigns, WorkloadSigns};
    use crate::ports::TreeFile;

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
        let told = |step: f64| WorkloadSigns {
            step: Some(step),
            reports: step as u64,
            told_by: Some(0),
            ..WorkloadSigns::default()
        };
        watch.observe(tree(&[]), at(9), told(20.0));
        watch.observe(tree(&["model-21.pt"]), at(10), told(21.0));
        watch.observe(tree(&["model-21.pt"]), at(39), told(24.0));
        watch.observe(tree(&["model-21.pt", "model-24.pt"]), at(40), told(24.0));
        watch.observe(tree(&["model-21.pt"]), at(41), told(24.0));
        assert_eq!(watch.complete(at(44), true, false).map(|ripe| ripe.step), Some(Some(21.0)));
    }
}
