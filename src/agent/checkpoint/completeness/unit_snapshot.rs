//! The files of a folder that are complete now, from the parts that are.
//!
//! Common files wait for each other. A numbered part that is not complete holds up the others only
//! if they may need it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::complete_set::is_a_save;
use super::file_motion::{Motion, RESTLESS};
use super::file_names::{FolderPart, Partition, is_log};
use super::folder_diff::{FolderListing, by_part};
use super::units::{LEFT_OUT_AFTER, Units};
use crate::ports::TreeFile;

#[derive(Debug)]
pub(crate) struct CompleteUnits {
    pub files: Vec<TreeFile>,
    /// How the newest of them was written.
    pub motion: Motion,
    /// A common file that is always being written and therefore missing; one of possibly several.
    pub left_out: Option<String>,
    /// Only logs are missing.
    pub is_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterEnd {
    No,
    InOrder,
    Killed,
}

impl Units {
    /// The complete files of a picture, judged at `until`: now, or when the workload ended.
    pub(crate) fn snapshot(
        &self,
        picture: &FolderListing,
        until: Duration,
        with_logs: bool,
        end: WriterEnd,
    ) -> Option<CompleteUnits> {
        let has_ended = end == WriterEnd::InOrder;
        let partition = Partition::new(picture.iter().map(|file| file.path.as_str()), &self.places);
        let parts = by_part(picture, &partition);
        let newest = self.newest();
        let is_whole = |part: &FolderPart| {
            self.parts.get(part).is_none_or(|unit| {
                self.is_whole(part, unit, until, &newest)
                    || has_ended && !self.is_cut(part) && unit.may_be_whole(part, &self.kinds)
            })
        };
        // A common file that never rests is left out, and one that only grows is a log.
        let common = parts.get(&FolderPart::Common).map(Vec::as_slice).unwrap_or_default();
        let judged = |path: &str| !self.growing.has(path) && !self.is_left_out(path, until);
        let is_left_out = self
            .parts
            .get(&FolderPart::Common)
            .is_some_and(|unit| unit.motion.restless(until, LEFT_OUT_AFTER));
        if !is_left_out
            && !is_whole(&FolderPart::Common)
            && common.iter().any(|file| judged(&file.path))
        {
            return None;
        }
        let mut kept: BTreeSet<&FolderPart> = BTreeSet::new();
        let mut is_all = true;
        let common_changed = common
            .iter()
            .filter(|file| judged(&file.path))
            .filter_map(|file| self.files.get(&file.path))
            .map(|motion| motion.changed)
            .max();
        for part in parts.keys().filter(|part| matches!(part, FolderPart::Numbered { .. })) {
            if is_whole(part) {
                kept.insert(part);
                continue;
            }
            is_all = false;
            let unit = self.parts.get(part)?;
            let rest = until.saturating_sub(unit.motion.changed);
            let waits = !has_ended && unit.life == self.life && rest < RESTLESS && !unit.is_leaving;
            // It was complete and is rewritten, or a pointer may name it, or it ends the save of
            // the common files.
            let is_named = common_changed.is_some_and(|changed| changed >= unit.motion.changed);
            let ends_common = || {
                self.parts.get(&FolderPart::Common).is_some_and(|common| {
                    common.ended_by.as_ref().is_some_and(|(last, _)| last == part)
                })
            };
            // The pointer would lead to nothing.
            if self.is_cut(part) && self.is_named(part, common_changed) {
                return None;
            }
            if waits && (unit.was_whole || is_named || ends_common()) {
                return None;
            }
        }
        let is_log = |path: &str| is_log(path) || self.growing.has(path);
        let takes = |file: &&TreeFile| match partition.part_of(&file.path) {
            _ if is_log(&file.path) => with_logs,
            FolderPart::Common => judged(&file.path),
            part => kept.contains(&part),
        };
        let files: Vec<TreeFile> = picture.iter().filter(takes).cloned().collect();
        let motion = files
            .iter()
            .filter(|file| !is_log(&file.path))
            .map(|file| self.parts.get(&partition.part_of(&file.path)).map(|unit| unit.motion));
        let motion =
            motion.max_by_key(|motion| motion.map(|motion| motion.changed))?.unwrap_or_default();
        let left_out = common
            .iter()
            .find(|file| !self.growing.has(&file.path) && self.is_left_out(&file.path, until))
            .map(|file| file.path.clone());
        let bytes = |files: &mut dyn Iterator<Item = &TreeFile>| -> u64 {
            files.filter(|file| !is_log(&file.path)).map(|file| file.stamp.bytes).sum()
        };
        // Settings beside unfinished weights are no checkpoint.
        if kept.is_empty()
            && (is_left_out
                || !is_all && !is_a_save(bytes(&mut files.iter()), bytes(&mut picture.iter())))
        {
            return None;
        }
        let is_all = is_all && left_out.is_none();
        Some(CompleteUnits { files, motion, left_out, is_all })
    }
}
