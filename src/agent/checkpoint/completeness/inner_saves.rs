//! Counts the saves that come inside a numbered folder. They show that it is the folder of a run.
//!
//! ```text
//!   exp1/weights/epoch_3.pt comes ──the folder rested, or epoch_1.pt goes──> certain: 3 are enough
//!                                 └─one number a look, and nothing is open─> 10 are needed
//!   exp1/weights/last.pt is written again ──the folder rested──────────────> certain
//! ```
//! A checkpoint of many numbered pieces looks alike: but its pieces come without a rest, several at
//! a time or one that is open, and none goes. Not here: what follows (that is [`super::units`]).

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::file_motion::{GrowingFiles, QUIET};
use super::file_names::{FolderPart, NameNumbers, Partition, is_log, shape_of, split};
use super::folder_diff::{FolderListing, KindsInside, kinds_inside, lists};
use crate::ports::FileStamp;

/// Certain saves that show a run folder. Fewer takes two slow pieces of a checkpoint for saves.
/// More loses the saves of a short-lived machine.
pub(super) const CERTAIN: u32 = 3;

/// The same where none is certain: a script saves every second and deletes nothing. Fewer takes the
/// pieces of a large checkpoint for saves. More keeps the first save later.
const LIKELY: u32 = 10;

#[derive(Debug, Default)]
pub(crate) struct InnerSaves(BTreeMap<FolderPart, SaveCount>);

#[derive(Debug, Default)]
struct SaveCount {
    /// When the newest numbered file came.
    came: Duration,
    /// The last change, without files that were busy before the newest number came.
    moved: Duration,
    certain: u32,
    likely: u32,
    /// How often a file was written again after a rest, since a new one came.
    again: u32,
}

/// The new files of one numbered folder in a look.
#[derive(Default)]
struct NewInside {
    numbers: BTreeSet<NameNumbers>,
    /// The kinds that had another number before, and the shapes of their new names.
    kinds: HashSet<String>,
    shapes: BTreeSet<String>,
    rotates: bool,
    /// A file that was there has changed, and another came.
    again: bool,
    has_new_file: bool,
}

/// One look, compared with the one before.
pub(super) struct InnerLook<'a, 'p> {
    pub before: &'a FolderListing,
    pub after: &'a FolderListing,
    pub was: &'a HashMap<&'a str, FileStamp>,
    pub partition: &'a Partition<'p>,
    pub open: Option<&'a BTreeSet<String>>,
    pub growing: &'a GrowingFiles,
    pub looked: Duration,
    pub now: Duration,
}

impl InnerSaves {
    /// Returns the shapes of the certain saves: they have begun now. `inside`: the numbers that
    /// each part had before.
    pub(super) fn observe<F: FnOnce() -> KindsInside>(
        &mut self,
        look: &InnerLook<'_, '_>,
        inside: &LazyCell<KindsInside, F>,
    ) -> BTreeSet<String> {
        let (mut new, mut moved) = (BTreeMap::<FolderPart, NewInside>::new(), BTreeSet::new());
        for file in look.after.iter().filter(|file| {
            !is_log(&file.path) && look.was.get(file.path.as_str()) != Some(&file.stamp)
        }) {
            let part = look.partition.part_of(&file.path);
            let FolderPart::Numbered { parent, .. } = &part else { continue };
            if split(&file.path).0 == parent {
                continue;
            }
            if !look.was.contains_key(file.path.as_str()) {
                new.entry(part.clone()).or_default().has_new_file = true;
                for (kind, numbers) in kinds_inside(parent, &file.path) {
                    let known = inside.get(&part).and_then(|kinds| kinds.get(&kind));
                    let new = new.entry(part.clone()).or_default();
                    if known.is_some_and(|known| !known.contains(&numbers)) {
                        new.kinds.insert(kind);
                        new.shapes.insert(shape_of(&file.path));
                    }
                    new.numbers.insert(numbers);
                }
            } else if !self.is_busy(&part, &file.path, look.growing) {
                new.entry(part.clone()).or_default().again = true;
            }
            if !self.is_busy(&part, &file.path, look.growing) {
                moved.insert(part);
            }
        }
        self.forget_gone(look, &mut new);
        let open: BTreeSet<FolderPart> = look
            .open
            .into_iter()
            .flatten()
            .filter(|path| !is_log(path))
            .map(|path| (look.partition.part_of(path), path))
            .filter(|(part, path)| !self.is_busy(part, path, look.growing))
            .map(|(part, _)| part)
            .filter(|part| *part != FolderPart::Common)
            .collect();
        let mut begun = BTreeSet::new();
        for (part, new) in new {
            let count = self.0.entry(part.clone()).or_default();
            let rested = count.moved < look.looked;
            // A write that pauses looks like a rest, unless its file is known to be closed.
            let is_closed = look.open.is_some() || count.moved + QUIET <= look.looked;
            // The pieces of a checkpoint come one by one, and its index is written after each.
            count.again = if new.has_new_file {
                0
            } else {
                count.again + u32::from(new.again && rested && is_closed)
            };
            if new.numbers.is_empty() {
                continue;
            }
            if open.contains(&part) {
                count.likely = 0;
            } else if look.open.is_some() && !new.kinds.is_empty() && new.numbers.len() == 1 {
                count.likely += 1;
            }
            if !new.kinds.is_empty() && (rested || new.rotates) {
                count.certain += 1;
                begun.extend(new.shapes);
            }
            count.came = look.now;
        }
        for part in moved.into_iter().chain(open) {
            self.0.entry(part).or_default().moved = look.now;
        }
        begun
    }

    /// Whether several saves were made in this numbered folder.
    pub(super) fn is_run(&self, part: &FolderPart) -> bool {
        self.0.get(part).is_some_and(|count| {
            count.certain.max(count.again) >= CERTAIN || count.likely >= LIKELY
        })
    }

    /// Whether a file grew or was open before the newest number came: it is no file of that save.
    fn is_busy(&self, part: &FolderPart, path: &str, growing: &GrowingFiles) -> bool {
        let came = self.0.get(part).map(|count| count.came);
        came.is_some_and(|came| growing.since(path).is_some_and(|since| since < came))
    }

    /// Notes which kinds lost a number, and forgets parts without files.
    fn forget_gone(&mut self, look: &InnerLook<'_, '_>, new: &mut BTreeMap<FolderPart, NewInside>) {
        if self.0.is_empty() {
            return;
        }
        let mut gone = look.before.iter().filter(|file| !lists(look.after, &file.path)).peekable();
        if gone.peek().is_none() {
            return;
        }
        for file in gone {
            let part = look.partition.part_of(&file.path);
            let FolderPart::Numbered { parent, .. } = &part else { continue };
            if let Some(new) = new.get_mut(&part) {
                new.rotates |=
                    kinds_inside(parent, &file.path).any(|(kind, _)| new.kinds.contains(&kind));
            }
        }
        let there: HashSet<FolderPart> =
            look.after.iter().map(|file| look.partition.part_of(&file.path)).collect();
        self.0.retain(|part, _| there.contains(part));
    }
}
