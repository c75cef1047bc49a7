//! What of a checkpoint folder belongs together, and what stands for itself. For folders that never rest.
//!
//! ```text
//!   step-100.ckpt  step-200.ckpt          a series: names that differ in their numbers; each number is complete by itself
//!   model.pt  optimizer.pt  latest        everything else: complete together, or not at all
//!   train.log  runs/events.out.tfevents   logs: hold nothing up, and are left out while they are written
//! ```
//! Two files of one checkpoint may never come from two moments, so a doubt makes things belong together: shards and ranks, a
//! number without a neighbour (`resnet50.pt`), and a series whose older members are written again. What must never live
//! here: the file system, and when a snapshot is wanted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::checkpoint_motion::{Begun, Motion, QUIET};
use super::checkpoint_watch::Picture;
use crate::ports::{FileStamp, Tree, TreeFile};

/// What belongs together and has not rested for so long is left out, and the series beside it is kept alone. Sooner, and an
/// optimizer that takes a minute to be written would be left out of its own checkpoint; later, and a machine that is taken
/// early has nothing.
const LEFT_OUT_AFTER: Duration = Duration::from_secs(2 * 60);

/// A set that lost a file is remembered so long as moving, for a writer that deletes and writes anew.
const GONE_FOR: Duration = Duration::from_secs(30);

/// Numbers beside these words count pieces of one checkpoint, not checkpoints.
const PIECES: [&str; 11] = ["rank", "shard", "part", "piece", "worker", "layer", "fsdp", "distcp", "gpu", "expert", "chunk"];

/// The numbers in a name, which order a series.
type Numbers = Vec<u64>;

#[derive(Debug, Default)]
pub(super) struct Sets {
    /// What the top of the folder holds, and logs by their whole path: only what moved since the start.
    entries: BTreeMap<String, Entry>,
    together: Motion,
    /// Names, without their numbers, whose older members were written again: no series.
    pub mixed: BTreeSet<String>,
    /// When the newest number of a series was first seen: what is written since belongs to no save before it.
    pub newest_begun: Option<Begun>,
    /// Of which shapes a number was begun since the folder last rested, and its last change.
    begun_shapes: BTreeSet<String>,
    changed: Duration,
}

#[derive(Debug, Default)]
struct Entry {
    motion: Motion,
    there: bool,
    /// Its last change put one whole file in the place of another.
    whole: bool,
}

/// What is complete in a folder that never rests.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub files: Vec<TreeFile>,
    /// How the newest of it was written.
    pub motion: Motion,
    /// Something that belongs together and is always being written is missing: one of it.
    pub left_out: Option<String>,
}

impl Sets {
    /// `looked`, `now`: the look before, and this one.
    pub(super) fn observe(&mut self, before: &Picture, after: &Picture, (looked, now): (Duration, Duration), step: Option<f64>) {
        let (was, is) = (by_entry(before), by_entry(after));
        if looked.saturating_sub(self.changed) >= QUIET {
            self.begun_shapes.clear();
        }
        self.changed = now;
        if self.begins_another(&was, &is) {
            self.newest_begun = Some((now, step));
        }
        let names: BTreeSet<&str> = was.keys().chain(is.keys()).copied().collect();
        let mut changed = Vec::new();
        for name in names {
            let (old, new) = (was.get(name), is.get(name));
            if old == new {
                continue;
            }
            changed.push(name);
            let whole = old.zip(new).is_some_and(|(old, new)| replaced(old, new));
            let entry = self.entries.entry(name.to_owned()).or_insert_with(|| Entry { motion: Motion::new((now, step)), ..Entry::default() });
            entry.motion.moved((now, step), looked, if whole { Some((now, step)) } else { self.newest_begun });
            (entry.there, entry.whole) = (new.is_some(), whole);
            let rewritten = old.zip(new).is_some_and(|(old, new)| new.iter().any(|file| !old.contains(file)));
            if rewritten && let Some((shape, numbers)) = numbered(name) {
                let older = is.keys().filter_map(|other| numbered(other)).any(|(other, later)| other == shape && later > numbers);
                self.mixed.extend(older.then_some(shape));
            }
        }
        self.entries.retain(|_, entry| entry.there || now.saturating_sub(entry.motion.changed) < GONE_FOR);
        let series = self.series(&is);
        if changed.iter().any(|name| !series.contains_key(*name) && !is_log(name)) {
            self.together.moved((now, step), looked, self.newest_begun);
        }
    }

    /// Whether a number appeared that no member of a series had, of a kind that had begun another since the last rest: what is
    /// of another kind, written late, belongs to the checkpoint before it.
    fn begins_another(&mut self, was: &BTreeMap<&str, Vec<&TreeFile>>, is: &BTreeMap<&str, Vec<&TreeFile>>) -> bool {
        let series = self.series(is);
        let known = |name: &str| was.contains_key(name) || self.entries.contains_key(name);
        let (old, new): (Vec<_>, Vec<_>) = series.iter().partition(|(name, _)| known(name));
        let shape = |name: &str| numbered(name).map(|(shape, _)| shape);
        let another = |name: &str, numbers: &Numbers| {
            old.iter().all(|(_, known)| *known != numbers) && shape(name).is_some_and(|shape| self.begun_shapes.contains(&shape))
        };
        let begins = new.iter().any(|(name, numbers)| another(name, numbers));
        let shapes: Vec<String> = is.keys().filter(|name| !known(name)).filter_map(|name| shape(name)).collect();
        self.begun_shapes.extend(shapes);
        begins
    }

    fn series<'a>(&'a self, is: &BTreeMap<&'a str, Vec<&TreeFile>>) -> BTreeMap<&'a str, Numbers> {
        series(is.keys().copied().chain(self.entries.keys().map(String::as_str)), &self.mixed)
    }

    /// What of a picture is complete, judged at `until`: now, or when the workload ended.
    pub(super) fn snapshot(&self, picture: &Picture, until: Duration, with_logs: bool) -> Option<Snapshot> {
        let is = by_entry(picture);
        let series = self.series(&is);
        let rests = |name: &str| self.entries.get(name).is_none_or(|entry| entry.motion.rests(until));
        let moving: BTreeSet<&Numbers> = series.iter().filter(|(name, _)| !rests(name)).map(|(_, numbers)| numbers).collect();
        let together = self.together_rests(&series, &is, until);
        if !together && !self.together.restless(until, LEFT_OUT_AFTER) {
            return None;
        }
        let part = |name: &str| match series.get(name) {
            Some(numbers) => !moving.contains(numbers),
            None if is_log(name) => with_logs && rests(name),
            None => together,
        };
        let names: Vec<&str> = is.keys().copied().filter(|name| part(name)).collect();
        let newest = names.iter().filter(|name| !is_log(name)).map(|name| self.entries.get(*name).map(|entry| entry.motion));
        let motion = newest.max_by_key(|motion| motion.map(|motion| motion.changed))?.unwrap_or_default();
        let kept: BTreeSet<&str> = names.into_iter().collect();
        let files = picture.iter().filter(|file| kept.contains(entry_of(&file.path))).cloned().collect();
        let left_out = is.keys().find(|name| !together && !series.contains_key(*name) && !is_log(name)).map(|name| (*name).to_owned());
        Some(Snapshot { files, motion, left_out })
    }

    fn together_rests(&self, series: &BTreeMap<&str, Numbers>, is: &BTreeMap<&str, Vec<&TreeFile>>, until: Duration) -> bool {
        let belongs = |name: &str| !series.contains_key(name) && !is_log(name);
        let mut moving = self.entries.iter().filter(|(name, entry)| belongs(name) && !entry.motion.rests(until));
        match (moving.next(), moving.next()) {
            (None, _) => true,
            // An only file that is renamed into place was whole when it got there.
            (Some((_, entry)), None) => entry.whole && is.keys().filter(|name| belongs(name)).count() == 1,
            _ => false,
        }
    }

    /// The step at which what a file belongs to began to be written, where that was seen.
    pub(super) fn step_of(&self, path: &str) -> Option<f64> {
        self.entries.get(entry_of(path))?.motion.step
    }

    /// Whether a file, or what it belongs to, has been written on for so long without a rest.
    pub(super) fn is_restless(&self, path: &str, at: Duration, time: Duration) -> bool {
        self.entries.get(entry_of(path)).is_some_and(|entry| entry.motion.restless(at, time))
    }

    /// Whether there is a series of which the older members will be kept one day.
    pub(super) fn has_series(&self, picture: &Picture) -> bool {
        !self.series(&by_entry(picture)).is_empty()
    }
}

/// What of a picture is still as it was, by whole sets; `None` when what belongs together has changed.
pub(super) fn remaining(picture: &Picture, seen: &Picture, mixed: &BTreeSet<String>) -> Option<Vec<TreeFile>> {
    let (was, is) = (by_entry(picture), by_entry(seen));
    let series = series(was.keys().chain(is.keys()).copied(), mixed);
    let sets = |entries: &BTreeMap<&str, Vec<&TreeFile>>| {
        let mut sets: BTreeMap<Option<Numbers>, Vec<TreeFile>> = BTreeMap::new();
        for (name, files) in entries.iter().filter(|(name, _)| !is_log(name)) {
            sets.entry(series.get(name).cloned()).or_default().extend(files.iter().map(|file| (*file).clone()));
        }
        sets
    };
    let (was, is) = (sets(&was), sets(&is));
    if was.get(&None).is_some_and(|together| is.get(&None) != Some(together)) {
        return None;
    }
    let mut files: Vec<TreeFile> = was.into_iter().filter(|(set, files)| is.get(set) == Some(files)).flat_map(|(_, files)| files).collect();
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Some(files)
}

/// Whether nothing of a picture has changed but its logs.
pub(super) fn stands(picture: &Picture, seen: &Picture, mixed: &BTreeSet<String>) -> bool {
    remaining(picture, seen, mixed).is_some_and(|files| files.iter().eq(without_logs(picture)))
}

pub(super) fn same_but_logs(one: &Picture, other: &Picture) -> bool {
    without_logs(one).eq(without_logs(other))
}

/// Whether a picture holds something that an earlier one does not.
pub(super) fn has_news(picture: &Picture, before: &Picture) -> bool {
    let before = stamps(before);
    without_logs(picture).any(|file| before.get(file.path.as_str()) != Some(&file.stamp))
}

/// Whether nothing is new, and the newest of before was taken away: a job is to go on from the one before it. (The oldest is cleared away
/// at every save.)
pub(super) fn goes_back(picture: &Picture, before: &Picture) -> bool {
    let newest = without_logs(before).max_by_key(|file| file.stamp.modified_nanos);
    newest.is_some_and(|newest| picture.iter().all(|file| file.path != newest.path)) && !has_news(picture, before)
}

pub(super) fn without_logs(picture: &Picture) -> impl Iterator<Item = &TreeFile> {
    picture.iter().filter(|file| !is_log(&file.path))
}

/// For looking a file up: a folder may hold ten thousand.
pub(super) fn stamps(picture: &Picture) -> HashMap<&str, FileStamp> {
    picture.iter().map(|file| (file.path.as_str(), file.stamp)).collect()
}

/// Something is written a second time, or under another number: a save after another.
pub(super) fn saves_again(before: &Picture, after: &Picture) -> bool {
    let was = stamps(before);
    let shape = |path: &str| numbered(top(path)).map(|(shape, _)| shape);
    let shapes: BTreeSet<String> = without_logs(before).filter_map(|file| shape(&file.path)).collect();
    let tops: BTreeSet<&str> = before.iter().map(|file| top(&file.path)).collect();
    without_logs(after).any(|file| match was.get(file.path.as_str()) {
        Some(stamp) => *stamp != file.stamp,
        None => !tops.contains(top(&file.path)) && shape(&file.path).is_some_and(|shape| shapes.contains(&shape)),
    })
}

/// The folder holds one file beside logs, and another has taken its place.
pub(super) fn one_replaced(before: &Picture, after: &Picture) -> bool {
    replaced(&without_logs(before).collect::<Vec<_>>(), &without_logs(after).collect::<Vec<_>>())
}

/// One file in the place of another: it was whole when it got its name.
fn replaced(old: &[&TreeFile], new: &[&TreeFile]) -> bool {
    let ([old], [new]) = (old, new) else { return false };
    old.path == new.path && old.stamp.inode != new.stamp.inode
}

fn by_entry(picture: &Picture) -> BTreeMap<&str, Vec<&TreeFile>> {
    let mut entries: BTreeMap<&str, Vec<&TreeFile>> = BTreeMap::new();
    for file in picture.iter() {
        entries.entry(entry_of(&file.path)).or_default().push(file);
    }
    entries
}

/// What a file belongs to, by its name alone: the numbers in it, or the name without any.
pub(super) fn set_of(path: &str) -> (Numbers, &str) {
    numbered(top(path)).map_or_else(|| (Numbers::new(), top(path)), |(_, numbers)| (numbers, ""))
}

pub(super) fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

fn entry_of(path: &str) -> &str {
    if is_log(path) { path } else { top(path) }
}

/// By the name alone; inside of a folder with a number, it is part of that checkpoint.
pub(super) fn is_log(path: &str) -> bool {
    let (top, name) = (top(path), path.rsplit('/').next().unwrap_or(path));
    let named = [".log", ".jsonl", ".csv"].iter().any(|end| name.ends_with(end)) || name.contains(".tfevents.");
    named && (top == path || !top.bytes().any(|byte| byte.is_ascii_digit()))
}

/// The entries that belong to a series, which takes two of it.
fn series<'a>(names: impl Iterator<Item = &'a str>, mixed: &BTreeSet<String>) -> BTreeMap<&'a str, Numbers> {
    let mut shapes: BTreeMap<String, BTreeMap<&str, Numbers>> = BTreeMap::new();
    for name in names.filter(|name| !is_log(name)) {
        if let Some((shape, numbers)) = numbered(name) {
            shapes.entry(shape).or_default().insert(name, numbers);
        }
    }
    let several = |members: &BTreeMap<&str, Numbers>| members.values().collect::<BTreeSet<_>>().len() > 1;
    shapes.into_iter().filter(|(shape, members)| several(members) && !mixed.contains(shape)).flat_map(|(_, members)| members).collect()
}

/// A name without its numbers, and the numbers.
fn numbered(name: &str) -> Option<(String, Numbers)> {
    let (mut shape, mut numbers, mut rest) = (String::new(), Numbers::new(), name);
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let digits = rest[at..].bytes().take_while(u8::is_ascii_digit).count();
        shape.push_str(&rest[..at]);
        // `-00002-of-00005` is a piece of one checkpoint; its two numbers stay in the shape.
        let after = &rest[at + digits..];
        let of = after.strip_prefix("-of-").map(|total| total.bytes().take_while(u8::is_ascii_digit).count()).filter(|digits| *digits > 0);
        if let Some(total) = of {
            shape.push_str(&rest[at..at + digits + "-of-".len() + total]);
            rest = &after["-of-".len() + total..];
            continue;
        }
        shape.push('#');
        numbers.push(rest[at..at + digits].parse().unwrap_or(u64::MAX));
        rest = after;
    }
    shape.push_str(rest);
    let lower = shape.to_ascii_lowercase();
    (!numbers.is_empty() && !PIECES.iter().any(|word| lower.contains(word))).then_some((shape, numbers))
}

/// The files that belong to a checkpoint: not those that their names call unfinished.
pub(super) fn picture(tree: Tree) -> Picture {
    Arc::new(tree.files.into_iter().filter(|file| !file.path.split('/').any(unfinished)).collect())
}

fn unfinished(name: &str) -> bool {
    [".tmp", ".part", "~"].iter().any(|end| name.ends_with(end)) || name.starts_with(".tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<String> {
        series(names.iter().copied(), &BTreeSet::new()).into_keys().map(str::to_owned).collect()
    }

    #[test]
    fn names_that_differ_in_their_numbers_are_a_series_and_pieces_are_none() {
        for series in [
            ["checkpoint-500", "checkpoint-1000"],
            ["step-100.ckpt", "step-200.ckpt"],
            ["epoch=3-step=400.ckpt", "epoch=4-step=500.ckpt"],
            ["model.ckpt-10.data-00000-of-00002", "model.ckpt-20.data-00000-of-00002"],
        ] {
            assert_eq!(named(&series).len(), 2, "{series:?}");
        }
        for together in [
            ["model.pt", "optimizer.pt"],
            ["resnet50.pt", "optimizer.pt"],
            ["rank0.pt", "rank1.pt"],
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
            ["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"],
            ["train-1.log", "train-2.log"],
        ] {
            assert_eq!(named(&together), Vec::<String>::new(), "{together:?}");
        }
        assert_eq!(numbered("model-100.pt").unwrap().1, numbered("optim-0100.pt").unwrap().1, "the same checkpoint");
    }

    #[test]
    fn a_log_is_one_by_its_name_unless_it_is_inside_of_a_checkpoint() {
        for log in ["train.log", "runs/Nov21/events.out.tfevents.17.host", "metrics.csv", "train-20261121.log"] {
            assert!(is_log(log), "{log}");
        }
        for part in ["checkpoint-500/trainer.log", "state.json", "model.pt", "logs"] {
            assert!(!is_log(part), "{part}");
        }
    }

    #[test]
    fn unfinished_names_do_not_count() {
        let names = ["a.tmp", "a.part", "a~", ".tmpXYZ", "x/.tmp-1/model.pt", "kept.pt"];
        let stamp = FileStamp { bytes: 1, modified_nanos: 1, inode: 7, mode: 0o644 };
        let files = names.map(|name| TreeFile { path: name.into(), stamp }).to_vec();
        let picture = picture(Tree { files, ..Tree::default() });
        assert_eq!(picture.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["kept.pt"]);
    }
}
