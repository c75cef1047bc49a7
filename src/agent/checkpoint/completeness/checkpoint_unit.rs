//! One part of a checkpoint folder: what was written to it, and whether it is complete.
//!
//! ```text
//!   no file of it is open for writing, and
//!     it has every name of the checkpoint before it          -> complete (*)
//!     it is the first of its kind: training went on, or 10 s -> complete
//!     it lacks a name: the next was begun, or 30 s           -> complete
//!   its writer was killed before that                        -> never by waiting
//!   (*) at once, or after 2 s if open files are unknown
//! ```
//! Scripts pause inside a save: the optimizer may follow seconds after the weights. So a rest
//! proves little, and a comparison with the previous save proves much.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::file_motion::{GrowingFiles, Motion, QUIET, RESTLESS};
use super::file_names::{FolderPart, NameCounts, count, without_hash};
use crate::ports::TreeFile;

/// The first checkpoint of its kind must rest this long, unless training goes on. Shorter keeps
/// half a save (seconds between weights and optimizer are common). Longer may lose the first save
/// of a short-lived machine.
pub(crate) const FIRST: Duration = Duration::from_secs(10);

/// By folder and by start of the workload.
pub(crate) type NewestWrites = HashMap<String, HashMap<u64, Duration>>;

#[derive(Debug, Default)]
pub(crate) struct CheckpointUnit {
    pub motion: Motion,
    /// Its files now, without logs, and the newest of them.
    pub held: NameCounts,
    pub newest: Option<String>,
    /// The files written since it was last complete.
    pub written: BTreeSet<String>,
    /// The newest number that appeared during its write. `is_apart`: it was still written during
    /// the next save.
    pub ended_by: Option<(FolderPart, Duration)>,
    pub is_apart: bool,
    /// The names that the previous save wrote, if the same names are written again.
    pub expected: Option<NameCounts>,
    pub there: bool,
    pub open: bool,
    /// It was complete before.
    pub was_whole: bool,
    /// Its names are known as complete: nothing was written since.
    pub is_learned: bool,
    /// Its files are being deleted.
    pub is_leaving: bool,
    /// Its last change replaced its only file by rename.
    pub is_replaced: bool,
    pub life: u64,
    /// The step shortly after its last change, and whether a newer one was reported since.
    pub step_then: Option<f64>,
    pub has_stepped: bool,
}

/// The names in complete numbered parts, by folder: newest last, one entry for each kind.
#[derive(Debug, Default)]
pub(crate) struct KnownKinds {
    whole: BTreeMap<String, Vec<NameCounts>>,
    rotated: BTreeMap<String, Rotation>,
}

/// Numbers of a folder that came one after another while older ones were deleted.
#[derive(Debug, Default)]
struct Rotation {
    names: BTreeMap<String, u32>,
    times: u32,
    has_deleted: bool,
    /// The names of the number that was deleted last, if nothing wrote it then.
    left: Option<NameCounts>,
}

impl KnownKinds {
    pub(crate) fn learn(&mut self, parent: String, held: NameCounts) {
        let kinds = self.whole.entry(parent).or_default();
        kinds.retain(|other| !other.shares(&held));
        kinds.push(held);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// A number of this folder was deleted. `left`: its names, if nothing wrote it.
    pub(crate) fn rotates(&mut self, parent: &str, left: Option<NameCounts>) {
        let rotation = self.rotated.entry(parent.to_owned()).or_default();
        (rotation.has_deleted, rotation.left) = (true, left);
    }

    /// The names of the number that was deleted last.
    pub(crate) fn left(&self, parent: &str) -> Option<NameCounts> {
        self.rotated.get(parent)?.left.clone()
    }

    pub(crate) fn has_rotated(&self, parent: &str) -> bool {
        self.rotated.get(parent).is_some_and(|rotation| rotation.has_deleted)
    }

    /// A number was left alone, and the next one came. As often as that with a deletion and the
    /// same names, it was whole.
    pub(crate) fn came(&mut self, parent: &str, held: NameCounts, often: u32) {
        let Some(rotation) = self.rotated.get_mut(parent).filter(|known| known.has_deleted) else {
            return;
        };
        rotation.has_deleted = false;
        if rotation.names == held.names {
            rotation.times += 1;
        } else {
            (rotation.names, rotation.times) = (held.names.clone(), 1);
        }
        let is_known =
            self.whole.get(parent).is_some_and(|kinds| kinds.iter().any(|kind| kind.shares(&held)));
        if rotation.times >= often && !is_known {
            self.learn(parent.to_owned(), held);
        }
    }

    /// The newest complete part with names like these.
    fn like(&self, part: &FolderPart, held: &NameCounts) -> Option<&NameCounts> {
        let FolderPart::Numbered { parent, .. } = part else { return None };
        self.whole.get(parent)?.iter().rev().find(|kind| kind.shares(held))
    }
}

/// Facts about the folder that decide with a part whether it is complete.
pub(crate) struct UnitSurroundings<'a> {
    pub kinds: &'a KnownKinds,
    pub newest: &'a NewestWrites,
    pub growing: &'a GrowingFiles,
    pub life: u64,
    pub is_open_known: bool,
}

impl CheckpointUnit {
    /// The names that it wrote, for a comparison with another save.
    fn written_names(&self) -> BTreeMap<String, u32> {
        count(self.written.iter().map(|path| without_hash(path)))
    }

    /// A save is over: the next is compared with it.
    pub(crate) fn closes(&mut self, had: &[&TreeFile]) {
        if !self.written.is_empty() {
            let written = had.iter().filter(|file| self.written.contains(&file.path));
            let last = written
                .max_by_key(|file| file.stamp.modified_nanos)
                .map(|file| without_hash(&file.path));
            self.expected = Some(NameCounts { names: self.written_names(), last });
        }
        self.written.clear();
    }

    /// Whether it is complete, as far as the looks show.
    pub(crate) fn is_whole(
        &self,
        part: &FolderPart,
        at: Duration,
        beside: &UnitSurroundings<'_>,
    ) -> bool {
        let rest = at.saturating_sub(self.motion.changed);
        // Waiting is useless for files of an earlier start: its process cannot finish them.
        let is_alive = self.life == beside.life;
        // A checkpoint that loses files is being deleted. Common files are what remains.
        let is_leaving = self.is_leaving && (*part != FolderPart::Common || rest < QUIET);
        if self.open || !self.there || is_leaving {
            return false;
        }
        if self.is_replaced {
            return true;
        }
        let expected = match part {
            FolderPart::Common => self.expected.as_ref().filter(|expected| {
                self.written.iter().any(|path| expected.names.contains_key(&without_hash(path)))
            }),
            FolderPart::Numbered { .. } => beside.kinds.like(part, &self.held),
        };
        let of_common;
        let written = match part {
            FolderPart::Common if expected.is_some() => {
                of_common = NameCounts {
                    names: self.written_names(),
                    last: self.newest.as_deref().map(without_hash),
                };
                &of_common
            }
            FolderPart::Common | FolderPart::Numbered { .. } => &self.held,
        };
        let next_begun = || {
            let FolderPart::Numbered { parent, .. } = part else { return false };
            beside
                .newest
                .get(parent)
                .and_then(|begun| begun.get(&self.life))
                .is_some_and(|begun| *begun > self.motion.changed)
        };
        match expected {
            Some(expected)
                if written.has_all_of(expected, |name| {
                    *part == FolderPart::Common && beside.growing.has_like(name)
                }) =>
            {
                rest >= QUIET
                    || beside.is_open_known
                        && expected.last.is_some()
                        && written.last == expected.last
            }
            Some(_) => rest >= RESTLESS && is_alive || rest >= QUIET && next_begun(),
            None => {
                rest >= FIRST && is_alive || rest >= QUIET && (self.has_stepped || next_begun())
            }
        }
    }

    /// After a clean exit it is complete, unless it lacks a name that the previous one had.
    pub(crate) fn may_be_whole(&self, part: &FolderPart, kinds: &KnownKinds) -> bool {
        if *part == FolderPart::Common {
            return true;
        }
        let kind = kinds.like(part, &self.held);
        !self.is_leaving && kind.is_none_or(|kind| self.held.has_all_of(kind, |_| false))
    }
}
