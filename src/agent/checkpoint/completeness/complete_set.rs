//! A complete checkpoint that is not yet kept.
//!
//! Not here: when it is complete (that is [`super::folder_watch`]).

use std::collections::BTreeSet;
use std::time::Duration;

use super::file_motion::Motion;
use super::folder_diff::{FolderListing, has_news_but, stamps};

#[derive(Clone, Debug)]
pub(crate) struct CompleteSet {
    pub picture: FolderListing,
    /// The step that it probably holds.
    pub step: Option<f64>,
    /// The newest mark covers it.
    pub is_marked: bool,
    pub begun: Duration,
    pub changed: Duration,
    /// A file that is always being written and therefore left out.
    pub left_out: Option<String>,
    /// Files that are logs by what they do, not by their names.
    pub side: BTreeSet<String>,
}

/// A save is larger than this share of the checkpoint before it, which may hold several saves.
/// Smaller counts a script's settings file as a save. Larger may not count a save beside many
/// others.
const SETTINGS_SHARE: u64 = 50;

/// Whether this many new bytes are a checkpoint after, or beside, one of `bytes`.
pub(crate) fn is_a_save(new: u64, bytes: u64) -> bool {
    new > bytes / SETTINGS_SHARE
}

impl CompleteSet {
    pub(crate) fn new(picture: FolderListing, motion: Motion) -> Self {
        CompleteSet {
            picture,
            step: motion.step,
            is_marked: false,
            begun: motion.begun,
            changed: motion.changed,
            left_out: None,
            side: BTreeSet::new(),
        }
    }

    /// From the request, or the first change, to the last change.
    pub(crate) fn save_time(&self, asked: Option<Duration>) -> Duration {
        self.changed.saturating_sub(asked.unwrap_or(self.begun))
    }

    /// Whether it holds a file, even a log, that an earlier picture did not.
    pub(crate) fn adds_to(&self, before: &FolderListing) -> bool {
        let before = stamps(before);
        self.picture.iter().any(|file| before.get(file.path.as_str()) != Some(&file.stamp))
    }

    /// The same, without logs.
    pub(crate) fn newer_than(&self, before: &FolderListing) -> bool {
        has_news_but(&self.picture, before, |path| self.side.contains(path))
    }
}
