//! Files that may lack their end, and how long they are taken for such.
//!
//! ```text
//!   a full disk took less than the save before has ──┐
//!   a signal ended their writer after the last look ─┼─> cut ──> trusted: deleted, written again,
//!   a writer failed, and they are too short ─────────┘          a new start, or a later save
//!   much shorter than before ───────────────────────────> cut ──> trusted after five minutes, or
//!                                                                 if the next save is as short
//! ```
//! Not here: what follows for the parts of the folder (that is [`super::units`]).

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::file_motion::{QUIET, RESTLESS};
use super::file_names::{FolderPart, Partition, Places, is_log, shape_of};
use super::folder_diff::{FolderListing, stamps, without_logs};
use crate::job::ExitStatus;
use crate::ports::{FileStamp, TreeFile};

/// With less free space a write ends early. More doubts saves that fit.
const FULL_BYTES: u64 = 1 << 20;

/// A file with less than this share of its smallest predecessor lacks its end. More doubts saves
/// that differ by what they compress.
const SHARE_SAVED: f64 = 0.9;

/// A worker that is killed below a living launcher leaves a short file, and nothing tells of its
/// death. Sooner keeps that file as the newest save. Later delays a model that became smaller.
const SMALL_FOR: Duration = Duration::from_secs(5 * 60);

/// Smaller files, such as settings, change their size at will.
const SMALL_MIN_BYTES: u64 = 64 << 10;

/// A small file that stood for so long was a whole save, if the next one is as small. Sooner takes
/// a writer that dies twice for two saves. Later keeps no save of a script that saves as often.
const SMALL_STOOD: Duration = Duration::from_secs(10);

/// A shell exits with 128 and the number of the signal that killed its child.
const KILLED_CODE: i32 = 128 + 9;

#[derive(Debug, Default)]
pub(crate) struct CutFiles {
    files: BTreeMap<String, CutFile>,
    paths: BTreeSet<String>,
    sizes: KeptSizes,
    /// The sizes of small files that stood for [`SMALL_STOOD`], by shape.
    stood: HashMap<String, u64>,
    /// When another file changed last.
    changed: Duration,
    life: u64,
}

#[derive(Debug)]
struct CutFile {
    stamp: FileStamp,
    since: Duration,
    by: CutBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutBy {
    FullDisk,
    End,
    /// Nothing is known but its size.
    Size,
}

/// Sizes in the newest manifest, for a comparison with the next save.
#[derive(Debug, Default)]
struct KeptSizes {
    smallest: HashMap<String, u64>,
    /// Bytes of the largest part.
    save: u64,
}

/// One look, compared with the one before.
pub(crate) struct CutLook<'a> {
    pub before: &'a FolderListing,
    pub after: &'a FolderListing,
    pub now: Duration,
    pub free_bytes: Option<u64>,
    /// The workload ended since the look before.
    pub died: Option<ExitStatus>,
    pub life: u64,
    pub places: &'a Places,
}

impl CutFiles {
    /// A manifest with these files is written.
    pub(crate) fn keep(&mut self, kept: &FolderListing, places: &Places) {
        let partition = Partition::new(kept.iter().map(|file| file.path.as_str()), places);
        let mut parts: HashMap<FolderPart, u64> = HashMap::new();
        let mut sizes = KeptSizes::default();
        for file in without_logs(kept) {
            *parts.entry(partition.part_of(&file.path)).or_default() += file.stamp.bytes;
            let smallest = sizes.smallest.entry(shape_of(&file.path)).or_insert(u64::MAX);
            *smallest = file.stamp.bytes.min(*smallest);
        }
        sizes.save = parts.into_values().max().unwrap_or(0);
        self.sizes = sizes;
        self.stood.clear();
    }

    pub(crate) fn observe(&mut self, kept: &FolderListing, look: &CutLook<'_>) {
        let free = look.free_bytes;
        let is_full = free.is_some_and(|free| free < FULL_BYTES);
        // The deletion of an old save makes room again.
        let is_nearly_full =
            free.is_some_and(|free| free < FULL_BYTES.max(self.sizes.save.saturating_mul(2)));
        if look.life != self.life {
            self.files.clear();
            self.stood.clear();
        }
        let has_stood =
            |cut: &CutFile| cut.by == CutBy::Size && look.now >= cut.since + SMALL_STOOD;
        for (path, cut) in self.files.iter().filter(|(_, cut)| has_stood(cut)) {
            self.stood.insert(shape_of(path), cut.stamp.bytes);
        }
        self.life = look.life;
        let failed = look.died.filter(|exit| !exit.success());
        let changed = look.before != look.after;
        if changed || failed.is_some() {
            self.compare(kept, look, (is_full, is_nearly_full), failed);
        }
        if !is_nearly_full {
            self.forget_passed_over(look);
        }
        // A writer that succeeded has written all of it.
        let has_succeeded = look.died.is_some_and(|exit| exit.success());
        self.files.retain(|_, cut| {
            cut.by != CutBy::Size || !has_succeeded && look.now < cut.since + SMALL_FOR
        });
        if self.paths.len() != self.files.len() || changed {
            self.paths = self.files.keys().cloned().collect();
        }
    }

    /// Common files that a save long after them did not write: none will, and they hold up all.
    fn forget_passed_over(&mut self, look: &CutLook<'_>) {
        let later = self.changed;
        if self.files.values().all(|cut| later < cut.since + RESTLESS) {
            return;
        }
        let partition =
            Partition::new(look.after.iter().map(|file| file.path.as_str()), look.places);
        self.files.retain(|path, cut| {
            later < cut.since + RESTLESS || partition.part_of(path) != FolderPart::Common
        });
    }

    fn compare(
        &mut self,
        kept: &FolderListing,
        look: &CutLook<'_>,
        (is_full, is_nearly_full): (bool, bool),
        failed: Option<ExitStatus>,
    ) {
        let is_killed =
            failed.is_some_and(|exit| !exit.is_in_order() || exit.code == Some(KILLED_CODE));
        // A folder may hold 200,000 files: an index is made only if it is asked.
        if !self.files.is_empty() {
            let is = stamps(look.after);
            self.files.retain(|path, cut| is.get(path.as_str()) == Some(&cut.stamp));
        }
        let (was, kept) = (stamps(look.before), LazyCell::new(|| stamps(kept)));
        for file in without_logs(look.after) {
            let old = was.get(file.path.as_str());
            let is_new = old != Some(&file.stamp);
            let is_short = || self.sizes.is_short(file, is_full);
            // A rename takes no time.
            let is_renamed = || old.is_some_and(|old| old.inode != file.stamp.inode);
            let is_unkept = || kept.get(file.path.as_str()) != Some(&file.stamp);
            let by = if is_new && is_nearly_full && is_short() {
                Some(CutBy::FullDisk)
            } else if is_new && is_killed && (!is_renamed() || is_short())
                || failed.is_some() && is_unkept() && is_short()
            {
                Some(CutBy::End)
            } else if is_new && self.sizes.is_small(file) && !self.stood_as_small(file) {
                Some(CutBy::Size)
            } else {
                None
            };
            if let Some(by) = by {
                let cut = CutFile { stamp: file.stamp, since: look.now, by };
                self.files.entry(file.path.clone()).or_insert(cut);
            } else if is_new {
                self.changed = look.now;
            }
        }
    }

    /// Whether a save before this one was as small.
    fn stood_as_small(&self, file: &TreeFile) -> bool {
        let stood = self.stood.get(&shape_of(&file.path));
        stood.is_some_and(|bytes| file.stamp.bytes as f64 >= SHARE_SAVED * *bytes as f64)
    }

    pub(crate) fn paths(&self) -> &BTreeSet<String> {
        &self.paths
    }

    /// A file that a full disk cut and no process writes now.
    pub(crate) fn told(&self, now: Duration, open: Option<&BTreeSet<String>>) -> Option<&str> {
        let open = open?;
        let is_over =
            |cut: &CutFile| cut.by == CutBy::FullDisk && now.saturating_sub(cut.since) >= QUIET;
        let mut over =
            self.files.iter().filter(|(path, cut)| is_over(cut) && !open.contains(*path));
        over.next().map(|(path, _)| path.as_str())
    }
}

impl KeptSizes {
    fn is_short(&self, file: &TreeFile, is_full: bool) -> bool {
        let bytes = file.stamp.bytes;
        match self.smallest.get(&shape_of(&file.path)) {
            // A save that grows may be cut above the size of the one before.
            Some(smallest) if is_full => bytes != *smallest,
            Some(smallest) => (bytes as f64) < SHARE_SAVED * *smallest as f64,
            None => is_full && bytes == 0,
        }
    }

    fn is_small(&self, file: &TreeFile) -> bool {
        let smallest = self.smallest.get(&shape_of(&file.path));
        smallest.is_some_and(|smallest| *smallest >= SMALL_MIN_BYTES) && self.is_short(file, false)
    }
}

/// The parts that have a file of these. Logs are in none.
pub(crate) fn parts_of<'a>(
    paths: impl Iterator<Item = &'a String>,
    partition: &Partition<'_>,
) -> BTreeSet<FolderPart> {
    paths.filter(|path| !is_log(path)).map(|path| partition.part_of(path)).collect()
}
