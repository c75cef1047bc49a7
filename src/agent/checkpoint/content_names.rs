//! The file names of a checkpoint, used to compare two checkpoints of one kind.
//!
//! Not here: when one is complete (that is [`super::units`]).

use std::collections::BTreeMap;

use super::file_names::shape_of;
use crate::ports::TreeFile;

/// The names of a checkpoint with `#` for numbers, the count of each, and the name written last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Held {
    pub names: BTreeMap<String, u32>,
    pub last: Option<String>,
}

impl Held {
    /// Whether any name is in both: then they are of one kind.
    pub(crate) fn shares(&self, other: &Held) -> bool {
        self.names.keys().any(|name| other.names.contains_key(name))
    }

    pub(crate) fn has_all_of(&self, other: &Held, but: impl Fn(&str) -> bool) -> bool {
        other.names.iter().all(|(name, number)| {
            self.names.get(name).is_some_and(|has| has >= number) || but(name)
        })
    }
}

pub(crate) fn held(files: &[&TreeFile]) -> Held {
    let mut names = BTreeMap::new();
    files.iter().for_each(|file| *names.entry(shape_of(&file.path)).or_default() += 1);
    let last =
        files.iter().max_by_key(|file| file.stamp.modified_nanos).map(|file| shape_of(&file.path));
    Held { names, last }
}

pub(crate) fn count<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name.to_owned()).or_default() += 1);
    counts
}
