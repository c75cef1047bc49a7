//! The checkpoint records of this machine, which survive a crash of the agent: the files of the
//! newest checkpoint, the contents that are in the store, and what saves cost.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use super::completeness::complete_set::is_a_save;
use super::completeness::folder_diff::{FolderListing, without_logs};
use crate::job::{CheckpointNo, CheckpointSummary};
use crate::ports::{FileStamp, TreeFile};

pub(crate) const STATE_FILE: &str = "checkpoints.json";

/// The number of costs for the percentile.
const COSTS_MAX: usize = 100;

/// State for a restarted agent.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct CheckpointState {
    /// The files of the newest manifest of this machine, or of the restored one.
    pub files: Vec<(String, FileStamp)>,
    pub contents: Arc<Contents>,
    pub last: Option<CheckpointSummary>,
    pub count: u32,
    /// Whether the workload marks its checkpoints. `None` until its first one.
    #[serde(default)]
    pub marks: Option<bool>,
    /// Files that an ended process may have left incomplete, with the least that must be rewritten.
    #[serde(default)]
    pub doubted: Vec<(String, FileStamp, u64)>,
    /// The files of the newest save that can never be sent.
    #[serde(default)]
    pub left_out: UnsendableFiles,
    /// Save, quiet time and upload together, in seconds.
    pub costs: Vec<f64>,
    /// Seconds of the uploads alone.
    #[serde(default)]
    pub uploads: Vec<f64>,
    /// New bytes of each checkpoint of this attempt over the one before, summed, without logs.
    #[serde(default)]
    pub written: u64,
    /// The cached 95th percentile, since every tick asks for it.
    #[serde(skip)]
    pub secs_p95: Option<f64>,
}

impl CheckpointState {
    /// The files of the folder before the first start: they are no checkpoint.
    pub(crate) fn found(picture: &FolderListing) -> Self {
        CheckpointState {
            files: picture.iter().map(|file| (file.path.clone(), file.stamp)).collect(),
            ..CheckpointState::default()
        }
    }

    /// Records the seconds of a save in total, and of its upload.
    pub(crate) fn took(&mut self, cost: f64, upload: f64) {
        for (costs, cost) in [(&mut self.costs, cost), (&mut self.uploads, upload)] {
            if costs.len() == COSTS_MAX {
                costs.remove(0);
            }
            costs.push(cost);
        }
        self.secs_p95 = None;
    }

    pub(crate) fn holds(&mut self, picture: &FolderListing) {
        self.written = self.written.saturating_add(self.beyond(picture));
        self.contents.retain(picture);
        self.files = picture.iter().map(|file| (file.path.clone(), file.stamp)).collect();
    }

    /// Bytes of files that the newest checkpoint lacks, logs excluded.
    fn beyond(&self, picture: &FolderListing) -> u64 {
        let before: HashMap<&str, FileStamp> =
            self.files.iter().map(|(path, stamp)| (path.as_str(), *stamp)).collect();
        without_logs(picture)
            .filter(|file| before.get(file.path.as_str()) != Some(&file.stamp))
            .map(|file| file.stamp.bytes)
            .sum()
    }

    /// Whether the new bytes are so many that this must be a save.
    pub(crate) fn is_a_save(&self, picture: &FolderListing) -> bool {
        self.last.as_ref().is_none_or(|last| is_a_save(self.beyond(picture), last.bytes))
    }

    pub(crate) fn picture(&self) -> FolderListing {
        Arc::new(
            self.files
                .iter()
                .map(|(path, stamp)| TreeFile { path: path.clone(), stamp: *stamp })
                .collect(),
        )
    }
}

pub(crate) fn p95(costs: &[f64]) -> Option<f64> {
    let mut costs = costs.to_vec();
    costs.sort_unstable_by(f64::total_cmp);
    let index = (costs.len() * 95).div_ceil(100).checked_sub(1)?;
    costs.get(index).copied()
}

/// Identifies a file with its content, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ContentIdentity {
    inode: u64,
    bytes: u64,
    modified_nanos: i64,
}

impl ContentIdentity {
    pub(crate) fn of(stamp: FileStamp) -> Self {
        ContentIdentity {
            inode: stamp.inode,
            bytes: stamp.bytes,
            modified_nanos: stamp.modified_nanos,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub key: String,
    pub sha256: String,
    /// The stored size, if it differs from the file's: a log that grew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// A power failure may still remove it from the store.
    #[serde(skip)]
    may_be_lost: bool,
}

/// The files that no try can send, each with the reason.
pub(crate) type UnsendableFiles = BTreeMap<String, String>;

pub(crate) fn not_kept(path: &str) -> String {
    format!("`{path}` of the checkpoints is not kept")
}

/// The content of this machine's files that is in the store.
#[derive(Debug, Default)]
pub(crate) struct Contents(Mutex<HashMap<ContentIdentity, Stored>>);

impl Contents {
    pub(crate) fn add(&self, stamp: FileStamp, key: String, sha256: String) {
        self.insert(stamp, Stored { key, sha256, bytes: None, may_be_lost: false });
    }

    /// `may_be_lost`: a power failure may lose it until [`Contents::are_durable`].
    pub(crate) fn add_sent(
        &self,
        stamp: FileStamp,
        key: String,
        (sha256, bytes): (String, u64),
        may_be_lost: bool,
    ) {
        let bytes = Some(bytes).filter(|bytes| *bytes != stamp.bytes);
        self.insert(stamp, Stored { key, sha256, bytes, may_be_lost });
    }

    fn insert(&self, stamp: FileStamp, stored: Stored) {
        self.lock().insert(ContentIdentity::of(stamp), stored);
    }

    pub(crate) fn may_be_lost(&self) -> bool {
        self.lock().values().any(|stored| stored.may_be_lost)
    }

    pub(crate) fn are_durable(&self) {
        self.lock().values_mut().for_each(|stored| stored.may_be_lost = false);
    }

    /// The store failed to keep them: they must be sent again.
    pub(crate) fn forget_lost(&self) {
        self.lock().retain(|_, stored| !stored.may_be_lost);
    }

    /// Forgets files that are no longer in the folder.
    pub(crate) fn retain(&self, picture: &FolderListing) {
        let there: HashSet<ContentIdentity> =
            picture.iter().map(|file| ContentIdentity::of(file.stamp)).collect();
        self.lock().retain(|identity, _| there.contains(identity));
    }

    /// The newest checkpoint number, complete or torn, with any of this content.
    pub(crate) fn newest(&self) -> Option<CheckpointNo> {
        let number = |stored: &Stored| {
            stored.key.strip_prefix("checkpoints/")?.split('/').next()?.parse().ok()
        };
        self.lock().values().filter_map(number).max()
    }

    pub(crate) fn has(&self, stamp: FileStamp) -> bool {
        self.lock().contains_key(&ContentIdentity::of(stamp))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<ContentIdentity, Stored>> {
        self.0
            .lock()
            .expect("no code panics while it holds the contents: they are only inserted and read")
    }
}

/// A list in the state folder, since JSON keys must be text. It never names what a power failure
/// may lose.
impl Serialize for Contents {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.lock().iter().filter(|(_, stored)| !stored.may_be_lost))
    }
}

impl<'de> Deserialize<'de> for Contents {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Vec::<(ContentIdentity, Stored)>::deserialize(deserializer)?;
        Ok(Contents(Mutex::new(entries.into_iter().collect())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next agent would list a file that the power cut took.
    #[test]
    fn record_never_names_what_power_failure_may_lose() {
        let contents = Contents::default();
        let stamp = |inode| FileStamp { bytes: 1, modified_nanos: 1, inode, mode: 0o644 };
        for (inode, may_be_lost) in [(1, false), (2, true)] {
            contents.add_sent(stamp(inode), "key".into(), ("sum".into(), 1), may_be_lost);
        }
        let recalled = || -> Contents {
            let text = serde_json::to_string(&contents).expect("it is plain");
            serde_json::from_str(&text).expect("it was just written")
        };
        let has = |contents: &Contents| [1, 2].map(|inode| contents.has(stamp(inode)));
        assert_eq!((has(&contents), has(&recalled())), ([true, true], [true, false]));
        contents.are_durable();
        assert_eq!(has(&recalled()), [true, true]);
        assert!(!recalled().may_be_lost());
    }
}
