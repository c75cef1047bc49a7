//! Follows the parts of a checkpoint folder, each by itself, from look to look.
//!
//! Not here: when a part is complete (that is [`super::checkpoint_unit`]), marks (that is
//! [`super::declared`]), the file system.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::checkpoint_unit::{CheckpointUnit, FIRST, KnownKinds, NewestWrites, UnitSurroundings};
use super::cut_files::parts_of;
use super::file_motion::{BegunAt, GrowingFiles, Motion};
use super::file_names::{
    FolderPart, NameNumbers, Partition, Places, held, is_log, join, kind_of, numbered, shape_of,
    split,
};
use super::folder_diff::{
    FolderListing, by_part, inside_parts, kinds_inside, latest, lists, replaced, stamps,
};
use super::inner_saves::{CERTAIN, InnerLook, InnerSaves};
use crate::ports::{FileStamp, TreeFile};

/// A common file that changes for this long without a rest (a database) is left out, and the rest
/// is judged without it. Sooner would leave out an optimizer that takes a minute.
pub(super) const LEFT_OUT_AFTER: Duration = Duration::from_secs(2 * 60);

/// A part without files is remembered this long, for a writer that deletes and writes again.
const GONE_FOR: Duration = Duration::from_secs(30);

/// Kinds of deleted files that are remembered. More grows without end where each name is new.
const DELETED_MAX: usize = 1000;

type PartFiles<'a> = BTreeMap<FolderPart, Vec<&'a TreeFile>>;

/// After this long without a change, a reported step is from training: lines are read a second
/// late.
const STEP_AFTER: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookContext<'a> {
    /// The files that the workload has open for writing. `None`: unknown.
    pub open: Option<&'a BTreeSet<String>>,
    /// The newest step from any source.
    pub step: Option<f64>,
    /// The step at the previous look: a save that began since then holds it.
    pub earlier: Option<f64>,
    pub life: u64,
    /// The files that may lack their end.
    pub cut: Option<&'a BTreeSet<String>>,
}

#[derive(Debug, Default)]
pub(crate) struct Units {
    pub places: Places,
    pub(super) parts: BTreeMap<FolderPart, CheckpointUnit>,
    pub(super) kinds: KnownKinds,
    /// How each common file changes: whether it is always being written.
    pub(super) files: HashMap<String, Motion>,
    /// Files that only grow or stay open, and the saves that began meanwhile.
    pub(super) growing: GrowingFiles,
    /// The saves inside numbered folders.
    inner: InnerSaves,
    /// The last number of each kind of file that was deleted.
    deleted: HashMap<String, NameNumbers>,
    /// The parts with a file that may lack its end.
    cut: BTreeSet<FolderPart>,
    /// When the newest save began: later writes do not belong to older saves.
    pub newest_begun: Option<BegunAt>,
    pub(super) life: u64,
    is_open_known: bool,
}

impl Units {
    /// Starts from the newest manifest, which is complete.
    pub(crate) fn of_kept(kept: &FolderListing) -> Self {
        let mut units = Units::default();
        let places = Places::default();
        let partition = Partition::new(kept.iter().map(|file| file.path.as_str()), &places);
        for (part, files) in by_part(kept, &partition) {
            if let FolderPart::Numbered { parent, .. } = part {
                units.kinds.learn(parent, held(&files));
            }
        }
        units
    }

    /// `looked`, `now`: the previous look, and this one. `kept`: the files already kept.
    pub(crate) fn observe(
        &mut self,
        (before, after): (&FolderListing, &FolderListing),
        kept: &FolderListing,
        (looked, now): (Duration, Duration),
        step: Option<f64>,
        beside: LookContext<'_>,
    ) {
        // Usually nothing has changed, and a folder may hold 200,000 files.
        if before != after {
            let (was, is) = (stamps(before), stamps(after));
            let paths = || {
                let gone = before.iter().filter(|file| !is.contains_key(file.path.as_str()));
                after.iter().chain(gone).map(|file| file.path.as_str())
            };
            let known = self.places.clone();
            let mut partition = Partition::new(paths(), &known);
            let begun =
                self.find_places((before, after), (&was, &partition), beside.open, (looked, now));
            let places = self.places.clone();
            if places != known {
                partition = Partition::new(paths(), &places);
            }
            let was_here = (&was, &partition);
            self.growing.observe((before, after), was_here, beside.open, (begun, now));
            self.move_parts(
                (before, after),
                (&was, &stamps(kept), &partition),
                (looked, now),
                step,
                beside,
            );
        }
        self.life = beside.life;
        self.look_beside(after, now, beside);
        self.cut.clear();
        if let Some(cut) = beside.cut.filter(|cut| !cut.is_empty()) {
            let places = self.places.clone();
            let partition = Partition::new(after.iter().map(|file| file.path.as_str()), &places);
            let is_save = |path: &&String| !self.growing.has(path);
            self.cut = parts_of(cut.iter().filter(is_save), &partition);
        }
        self.settle(now);
    }

    /// Parts that are complete by now show which names the next must have.
    fn settle(&mut self, now: Duration) {
        let newest = self.newest();
        let is_new = |(part, unit): &(&FolderPart, &CheckpointUnit)| {
            matches!(part, FolderPart::Numbered { .. })
                && !unit.is_learned
                && self.is_whole(part, unit, now, &newest)
        };
        let whole: Vec<FolderPart> =
            self.parts.iter().filter(is_new).map(|(part, _)| part.clone()).collect();
        for part in whole {
            let unit = self.parts.get_mut(&part).expect("it was just found");
            (unit.was_whole, unit.is_learned) = (true, true);
            let held = unit.held.clone();
            if let FolderPart::Numbered { parent, .. } = part {
                self.kinds.learn(parent, held);
            }
        }
    }

    /// Finds numbered folders without checkpoints, and numbered files without a series, from the
    /// changes. Returns the saves that began inside numbered folders.
    fn find_places(
        &mut self,
        (before, after): (&FolderListing, &FolderListing),
        (was, partition): (&HashMap<&str, FileStamp>, &Partition<'_>),
        open: Option<&BTreeSet<String>>,
        (looked, now): (Duration, Duration),
    ) -> BTreeSet<String> {
        // A look may find 60,000 new files: each index is made once, and only if a file needs it.
        let (mut found, mut inner) = (self.places.clone(), std::mem::take(&mut self.inner));
        let mut deleted = std::mem::take(&mut self.deleted);
        let (newest, latest, inside) = (
            LazyCell::new(|| self.newest()),
            LazyCell::new(|| latest(after)),
            LazyCell::new(|| inside_parts(before, partition)),
        );
        let growing = &self.growing;
        let look = InnerLook { before, after, was, partition, open, growing, looked, now };
        let begun = inner.observe(&look, &inside);
        if deleted.len() >= DELETED_MAX {
            deleted.clear();
        }
        deleted.extend(
            before
                .iter()
                .filter(|file| !lists(after, &file.path))
                .filter_map(|file| kind_of(&file.path))
                .take(DELETED_MAX),
        );
        for file in after
            .iter()
            .filter(|file| !is_log(&file.path) && was.get(file.path.as_str()) != Some(&file.stamp))
        {
            // The one before was deleted first: there is never a second number beside this one.
            if !was.contains_key(file.path.as_str())
                && let Some((kind, numbers)) = kind_of(&file.path)
                && deleted.get(&kind).is_some_and(|before| *before != numbers)
            {
                found.series.insert(kind);
            }
            let part = partition.part_of(&file.path);
            let FolderPart::Numbered { parent, .. } = &part else { continue };
            let (folder, name) = split(&file.path);
            let is_rewritten = was.contains_key(file.path.as_str());
            if folder == parent {
                // An older number was rewritten although a later one exists: this kind is not a
                // series of checkpoints.
                if is_rewritten
                    && let Some((shape, numbers)) = numbered(name)
                    && latest.get(&join(parent, &shape)).is_some_and(|latest| *latest > numbers)
                {
                    found.files.insert(join(parent, &shape));
                }
                continue;
            }
            let was_whole = || {
                self.parts.get(&part).is_none_or(|unit| self.is_whole(&part, unit, looked, &newest))
            };
            let is_another = |(kind, numbers): (String, NameNumbers)| {
                inside
                    .get(&part)
                    .and_then(|kinds| kinds.get(&kind))
                    .is_some_and(|known| !known.contains(&numbers))
            };
            if inner.is_run(&part) || self.rested(&part, looked) {
                let is_of_run = kinds_inside(parent, &file.path).any(is_another);
                if is_of_run || is_rewritten && (inner.is_run(&part) || was_whole()) {
                    found.add_folders_of(&file.path, is_of_run);
                }
            }
        }
        drop((newest, latest, inside));
        (self.places, self.inner, self.deleted) = (found, inner, deleted);
        begun
    }

    /// Whether no file of a part was being written at the previous look.
    fn rested(&self, part: &FolderPart, looked: Duration) -> bool {
        self.parts.get(part).is_none_or(|unit| {
            unit.motion.rests(looked)
                || self.is_open_known && !unit.open && unit.motion.changed < looked
        })
    }

    fn move_parts(
        &mut self,
        (before, after): (&FolderListing, &FolderListing),
        (was, kept, partition): (
            &HashMap<&str, FileStamp>,
            &HashMap<&str, FileStamp>,
            &Partition<'_>,
        ),
        (looked, now): (Duration, Duration),
        step: Option<f64>,
        beside: LookContext<'_>,
    ) {
        let (old, new) = (by_part(before, partition), by_part(after, partition));
        let newest = self.newest();
        let whole: BTreeSet<FolderPart> = self
            .parts
            .iter()
            .filter(|(part, unit)| self.is_whole(part, unit, looked, &newest))
            .map(|(part, _)| part.clone())
            .collect();
        self.parts.retain(|part, unit| {
            // A run folder that became a place is no part any more.
            unit.there &= old.contains_key(part) || new.contains_key(part);
            old.contains_key(part)
                || new.contains_key(part)
                || now.saturating_sub(unit.motion.changed) < GONE_FOR
        });
        self.divide(&old, partition, &whole);
        self.learn_rotated((&old, &new), beside.open);
        let begins = new.keys().any(|part| {
            matches!(part, FolderPart::Numbered { .. })
                && !old.contains_key(part)
                && !self.parts.contains_key(part)
        });
        if begins && !old.is_empty() {
            self.newest_begun =
                self.begins_another(&new, &old).then_some((now, step)).or(self.newest_begun);
        }
        let parts: BTreeSet<&FolderPart> = old.keys().chain(new.keys()).collect();
        for part in parts {
            let (is, was_there) = (new.get(part), old.get(part));
            if is == was_there {
                continue;
            }
            let empty = Vec::new();
            let (is, had) = (is.unwrap_or(&empty), was_there.unwrap_or(&empty));
            let changed: Vec<&&TreeFile> =
                is.iter().filter(|file| was.get(file.path.as_str()) != Some(&file.stamp)).collect();
            self.move_part(
                part,
                (is, had, &changed),
                (whole.contains(part), kept),
                (looked, now),
                (step, beside),
            );
        }
        self.find_end(
            new.keys().rfind(|part| **part != FolderPart::Common && !old.contains_key(*part)),
            whole.contains(&FolderPart::Common),
            now,
        );
    }

    /// A script that deletes old numbers may let none rest. The number before the newest is whole
    /// by then, if no process writes it: three in a row teach the names of their kind.
    fn learn_rotated(
        &mut self,
        (old, new): (&PartFiles<'_>, &PartFiles<'_>),
        open: Option<&BTreeSet<String>>,
    ) {
        let is_open = |part: &FolderPart, files: &[&TreeFile]| {
            self.parts.get(part).is_some_and(|unit| unit.open)
                || open.is_none_or(|open| files.iter().any(|file| open.contains(&file.path)))
        };
        for (part, files) in old.iter().filter(|(part, _)| !new.contains_key(*part)) {
            if let FolderPart::Numbered { parent, .. } = part {
                // A part of it may be deleted already.
                let is_leaving = self.parts.get(part).is_some_and(|unit| unit.is_leaving);
                let left = (!is_leaving && !is_open(part, files)).then(|| held(files));
                self.kinds.rotates(parent, left);
            }
        }
        let begun: BTreeSet<&str> = new
            .keys()
            .filter(|part| !old.contains_key(*part) && !self.parts.contains_key(*part))
            .filter_map(FolderPart::parent)
            .filter(|parent| self.kinds.has_rotated(parent))
            .collect();
        if open.is_none() || begun.is_empty() {
            return;
        }
        let mut newest: BTreeMap<&str, (Duration, &FolderPart)> = BTreeMap::new();
        for part in old.keys() {
            let (parent, unit) = (part.parent(), self.parts.get(part));
            if let (Some(parent), Some(unit)) = (parent.filter(|of| begun.contains(of)), unit) {
                let candidate = (unit.motion.begun, part);
                let newest = newest.entry(parent).or_insert(candidate);
                *newest = candidate.max(*newest);
            }
        }
        for parent in begun {
            let whole = match newest.get(parent) {
                Some((_, part)) => {
                    let files = &old[*part];
                    let is_left = !is_open(part, files);
                    (is_left && new.get(*part).is_none_or(|now| now == files)).then(|| held(files))
                }
                // The only one was deleted at an earlier look.
                None => self.kinds.left(parent),
            };
            if let Some(whole) = whole {
                self.kinds.came(parent, whole, CERTAIN);
            }
        }
    }

    /// A number that appears while common files are written belongs to their save, unless they are
    /// independent.
    fn find_end(&mut self, came: Option<&FolderPart>, was_whole: bool, now: Duration) {
        let Some(common) = self.parts.get(&FolderPart::Common) else { return };
        let (begun, is_moving) = (
            common.motion.begun,
            !was_whole && !common.written.is_empty() && !common.motion.restless(now, FIRST),
        );
        let is_apart = common.ended_by.as_ref().is_some_and(|(part, came)| {
            *came < begun
                && self.parts.get(part).is_some_and(|unit| {
                    unit.motion.changed == now && unit.there && !unit.is_leaving
                })
        });
        let common = self.parts.get_mut(&FolderPart::Common).expect("it was just found");
        common.is_apart |= is_apart;
        if common.is_apart {
            common.ended_by = None;
        } else if let Some(part) = came.filter(|_| is_moving) {
            common.ended_by = Some((part.clone(), now));
        }
    }

    /// Splits a part after a number appeared, or after a folder turned out to be a place.
    fn divide(
        &mut self,
        old: &BTreeMap<FolderPart, Vec<&TreeFile>>,
        partition: &Partition<'_>,
        whole: &BTreeSet<FolderPart>,
    ) {
        let mut came = Vec::new();
        let written: LazyCell<HashMap<&str, &FolderPart>, _> = LazyCell::new(|| {
            self.parts
                .iter()
                .flat_map(|(part, unit)| unit.written.iter().map(move |path| (path.as_str(), part)))
                .collect()
        });
        for (part, files) in old.iter().filter(|(part, _)| {
            matches!(part, FolderPart::Numbered { .. }) && !self.parts.contains_key(part)
        }) {
            let from = files.iter().find_map(|file| written.get(file.path.as_str()).copied());
            let Some((from, unit)) = from.and_then(|from| self.parts.get_key_value(from)) else {
                continue;
            };
            if whole.contains(from) {
                came.push((part.clone(), None, held(files)));
                continue;
            }
            let motion = files
                .iter()
                .filter_map(|file| self.files.get(&file.path))
                .max_by_key(|motion| motion.changed)
                .copied()
                .unwrap_or(unit.motion);
            came.push((
                part.clone(),
                Some(CheckpointUnit {
                    motion,
                    life: unit.life,
                    there: true,
                    open: unit.open,
                    held: held(files),
                    ..CheckpointUnit::default()
                }),
                held(files),
            ));
        }
        for (part, unit, held) in came {
            match (unit, &part) {
                (Some(unit), _) => drop(self.parts.insert(part, unit)),
                (None, FolderPart::Numbered { parent, .. }) => {
                    self.kinds.learn(parent.clone(), held)
                }
                (None, FolderPart::Common) => {}
            }
        }
        for (part, unit) in &mut self.parts {
            unit.written.retain(|path| partition.part_of(path) == *part);
            if let Some(expected) = unit.expected.as_mut().filter(|_| *part == FolderPart::Common) {
                expected.names.retain(|path, _| partition.part_of(path) == FolderPart::Common);
                expected.last =
                    expected.last.take().filter(|last| expected.names.contains_key(last));
            }
        }
    }

    fn move_part(
        &mut self,
        part: &FolderPart,
        (is, had, changed): (&[&TreeFile], &[&TreeFile], &[&&TreeFile]),
        (was_whole, kept): (bool, &HashMap<&str, FileStamp>),
        (looked, now): (Duration, Duration),
        (step, beside): (Option<f64>, LookContext<'_>),
    ) {
        let is_known = self.parts.contains_key(part);
        // Never seen to change: it was complete if the newest manifest holds it, or it was there at
        // the first look.
        let is_kept = !is_known
            && !had.is_empty()
            && had.iter().all(|file| kept.get(file.path.as_str()) == Some(&file.stamp));
        if (was_whole || is_kept)
            && let FolderPart::Numbered { parent, .. } = part
        {
            self.kinds.learn(parent.clone(), held(had));
        }
        let newest_begun = self.newest_begun;
        let is_alone = self.parts.keys().all(|other| other == part);
        let noisy: BTreeSet<&str> =
            is.iter().map(|file| file.path.as_str()).filter(|path| self.is_noisy(path)).collect();
        let is_calm = |path: &str| !noisy.contains(path);
        let unit = self.parts.entry(part.clone()).or_insert_with(|| CheckpointUnit {
            motion: Motion::new((now, step)),
            ..CheckpointUnit::default()
        });
        let had_names: BTreeSet<&str> = had.iter().map(|file| file.path.as_str()).collect();
        let is_again = changed.iter().any(|file| unit.written.contains(&file.path));
        let rested = match beside.open {
            Some(_) => !unit.open,
            None => unit.motion.rests(looked),
        };
        // A rewrite of the same name after a rest begins another save. The previous save had all
        // its files.
        let is_another = is_again && rested && !changed.is_empty() && *part == FolderPart::Common;
        if was_whole || is_kept || is_another {
            unit.was_whole |= was_whole || is_kept;
            unit.closes(had);
        }
        let begun = is_another.then_some((now, beside.earlier));
        unit.is_learned &= changed.is_empty();
        unit.is_leaving = changed.is_empty() && is.len() < had.len();
        unit.held = held(is);
        unit.there = !is.is_empty();
        let moved: Vec<&&TreeFile> =
            changed.iter().filter(|file| is_calm(&file.path)).copied().collect();
        if !moved.is_empty() || changed.is_empty() {
            let is_whole = replaced(had, is);
            unit.is_replaced = is_whole && is.len() == 1;
            unit.motion.moved(
                (now, step),
                looked,
                if is_whole { Some((now, step)) } else { begun.or(newest_begun) },
            );
            unit.written.extend(moved.iter().map(|file| file.path.clone()));
            unit.newest = is
                .iter()
                .filter(|file| is_calm(&file.path))
                .max_by_key(|file| file.stamp.modified_nanos)
                .map(|file| file.path.clone());
            (unit.life, unit.step_then, unit.has_stepped) = (beside.life, None, false);
        }
        if *part == FolderPart::Common {
            // With numbered parts beside them, common files do not tell when the newest save began.
            self.newest_begun = begun.filter(|_| is_alone).or(newest_begun);
            for file in changed {
                let new = || Motion::new((now, step));
                self.files
                    .entry(file.path.clone())
                    .and_modify(|motion| motion.moved((now, step), looked, None))
                    .or_insert_with(new);
            }
            let there: BTreeSet<&str> = is.iter().map(|file| file.path.as_str()).collect();
            self.files.retain(|path, _| {
                there.contains(path.as_str()) || !had_names.contains(path.as_str())
            });
        }
    }

    /// Whether a number appeared whose kind had an unfinished older one: later writes belong to it.
    fn begins_another(
        &self,
        new: &BTreeMap<FolderPart, Vec<&TreeFile>>,
        old: &BTreeMap<FolderPart, Vec<&TreeFile>>,
    ) -> bool {
        let kind = |files: &[&TreeFile]| -> BTreeSet<String> {
            files.iter().map(|file| shape_of(&file.path)).collect()
        };
        let moving = |part: &FolderPart| self.parts.get(part).is_some_and(|unit| !unit.was_whole);
        let known: BTreeSet<String> = old
            .iter()
            .filter(|(part, _)| moving(part))
            .flat_map(|(_, files)| kind(files))
            .collect();
        let fresh = |part: &FolderPart| {
            matches!(part, FolderPart::Numbered { .. }) && !old.contains_key(part)
        };
        new.iter()
            .filter(|(part, _)| fresh(part))
            .any(|(_, files)| !kind(files).is_disjoint(&known))
    }

    /// Records which parts have open files, and whether training went on after each.
    fn look_beside(&mut self, after: &FolderListing, now: Duration, beside: LookContext<'_>) {
        self.is_open_known = beside.open.is_some();
        if let Some(open) = beside.open {
            self.growing.look(open, now);
            let places = self.places.clone();
            let partition = Partition::new(after.iter().map(|file| file.path.as_str()), &places);
            let counts = |path: &&String| {
                !is_log(path) && !self.growing.has(path) && !self.is_left_out(path, now)
            };
            let open: BTreeSet<FolderPart> =
                open.iter().filter(counts).map(|path| partition.part_of(path)).collect();
            self.parts.iter_mut().for_each(|(part, unit)| unit.open = open.contains(part));
        }
        for unit in self
            .parts
            .values_mut()
            .filter(|unit| now.saturating_sub(unit.motion.changed) >= STEP_AFTER)
        {
            unit.has_stepped |=
                unit.step_then.is_some_and(|then| beside.step.is_some_and(|step| step > then));
            unit.step_then = unit.step_then.or(beside.step);
        }
    }

    pub(super) fn is_whole(
        &self,
        part: &FolderPart,
        unit: &CheckpointUnit,
        at: Duration,
        newest: &NewestWrites,
    ) -> bool {
        if self.is_cut(part) {
            return false;
        }
        let beside = UnitSurroundings {
            kinds: &self.kinds,
            newest,
            growing: &self.growing,
            life: self.life,
            is_open_known: self.is_open_known,
        };
        unit.is_whole(part, at, &beside)
    }

    /// When the newest numbered part below each folder began, for each start of the workload.
    pub(super) fn newest(&self) -> NewestWrites {
        let mut newest = NewestWrites::default();
        for (part, unit) in &self.parts {
            let FolderPart::Numbered { parent, .. } = part else { continue };
            if !newest.contains_key(parent) {
                newest.insert(parent.clone(), HashMap::new());
            }
            let begun = newest
                .get_mut(parent)
                .expect("it was just put there")
                .entry(unit.life)
                .or_default();
            *begun = unit.motion.begun.max(*begun);
        }
        newest
    }

    /// Whether a common file is among those that are always being written.
    pub(super) fn is_left_out(&self, path: &str, at: Duration) -> bool {
        let together = self
            .parts
            .get(&FolderPart::Common)
            .map(|unit| unit.motion)
            .filter(|motion| motion.restless(at, LEFT_OUT_AFTER));
        let is_among = |motion: &Motion| {
            together.is_some_and(|together| motion.changed >= together.moving_since())
        };
        self.files.get(path).is_some_and(is_among)
    }

    /// The files that are logs by what they do.
    pub(crate) fn side_files(&self) -> BTreeSet<String> {
        self.growing.logs()
    }

    pub(crate) fn appended_files(&self) -> BTreeSet<String> {
        self.growing.appended()
    }

    /// Whether a common file tells nothing about saves: it only grows, or stays open over saves.
    pub(crate) fn is_noisy(&self, path: &str) -> bool {
        self.growing.has(path)
    }

    /// Whether a part has a file that may lack its end.
    pub(super) fn is_cut(&self, part: &FolderPart) -> bool {
        self.cut.contains(part)
    }

    /// Whether a pointer may name this part: it is the newest, and common files were written after
    /// it. `common`: their last change.
    pub(super) fn is_named(&self, part: &FolderPart, common: Option<Duration>) -> bool {
        let (Some(parent), Some(unit)) = (part.parent(), self.parts.get(part)) else {
            return false;
        };
        let newest = self.newest();
        let newest = newest.get(parent).and_then(|begun| begun.get(&unit.life));
        newest.is_some_and(|newest| unit.motion.begun >= *newest)
            && common.is_some_and(|common| common >= unit.motion.changed)
    }

    /// A picture without the parts that may lack their end. `None`: the rest needs them.
    pub(crate) fn without_cut(&self, picture: &FolderListing) -> Option<FolderListing> {
        if self.cut.is_empty() {
            return Some(Arc::clone(picture));
        }
        let common = self.parts.get(&FolderPart::Common).map(|unit| unit.motion.changed);
        let needs = |part: &FolderPart| *part == FolderPart::Common || self.is_named(part, common);
        if self.cut.iter().any(needs) {
            return None;
        }
        let partition = Partition::new(picture.iter().map(|file| file.path.as_str()), &self.places);
        let is_fit = |file: &&TreeFile| !self.is_cut(&partition.part_of(&file.path));
        Some(Arc::new(picture.iter().filter(is_fit).cloned().collect()))
    }

    /// The step at which the writing of a file's part began, if that was seen.
    pub(crate) fn step_of(&self, path: &str, partition: &Partition<'_>) -> Option<f64> {
        self.parts.get(&partition.part_of(path))?.motion.step
    }

    /// Whether a file or its part has been changing this long without a rest.
    pub(crate) fn is_restless(
        &self,
        path: &str,
        partition: &Partition<'_>,
        at: Duration,
        time: Duration,
    ) -> bool {
        if self.growing.has(path) {
            return true;
        }
        match partition.part_of(path) {
            FolderPart::Common => {
                self.files.get(path).is_some_and(|motion| motion.restless(at, time))
            }
            part => self.parts.get(&part).is_some_and(|unit| unit.motion.restless(at, time)),
        }
    }

    /// Whether a common file was written again after a rest.
    pub(crate) fn has_saved_again(&self) -> bool {
        self.parts.get(&FolderPart::Common).is_some_and(|unit| unit.expected.is_some())
    }

    /// Whether any numbered part was ever complete.
    pub(crate) fn knows_a_kind(&self) -> bool {
        !self.kinds.is_empty()
    }

    /// Whether there are numbered parts, whose older ones will be kept eventually.
    pub(crate) fn has_numbered(&self, picture: &FolderListing) -> bool {
        let partition = Partition::new(picture.iter().map(|file| file.path.as_str()), &self.places);
        picture.iter().any(|file| partition.part_of(&file.path) != FolderPart::Common)
    }
}
