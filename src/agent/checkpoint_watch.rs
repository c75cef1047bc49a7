//! When is a checkpoint complete? Pure bookkeeping over what the folder looked like, second by second.
//!
//! ```text
//!   same as kept ──change──> being written ──quiet 2 s, or a mark, or the process exited──> complete ──manifest──> kept
//! ```
//! A workload that marks its checkpoints (`{"checkpoint": ...}` in the progress file) is believed, and silence then says
//! nothing. Without marks, two quiet seconds count. In a folder that never rests, an only file that is replaced
//! as a whole (renamed into place) counts after a while. A process that was killed by a signal may have died while writing: what
//! changed last is then not trusted.

use std::sync::Arc;
use std::time::Duration;

use crate::job::ExitStatus;
use crate::ports::{Tree, TreeFile};

/// How long the folder must be unchanged. Writers that pause longer between two files of one checkpoint should mark it;
/// shorter would cut those in half that flush slowly, longer eats the time of an interruption notice.
pub(super) const QUIET: Duration = Duration::from_secs(2);

/// After so long without two quiet seconds, an only file that was renamed into place counts: a script that saves every second
/// would else never have a checkpoint. Sooner gains nothing: the others are kept after two seconds.
const RESTLESS: Duration = Duration::from_secs(30);

/// The files of the folder at one moment.
pub(super) type Picture = Arc<Vec<TreeFile>>;

/// What the workload last said and did, beside the folder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// Explicit marks so far, and the step at the newest.
    pub marks: u64,
    pub marked_step: Option<f64>,
    /// The newest step of all.
    pub step: Option<f64>,
    pub ended: Option<(ExitStatus, Duration)>,
}

#[derive(Debug, Default)]
pub(super) struct FolderWatch {
    /// What the newest manifest holds.
    kept: Picture,
    seen: Option<Picture>,
    /// When a difference was last seen, and the step at that moment.
    changed: Duration,
    step: Option<f64>,
    /// When the folder first differed from what is kept.
    dirty_since: Option<Duration>,
    /// The last change: the only file was replaced by another as a whole.
    replaced: bool,
    marks: u64,
    /// The picture that the workload declared complete.
    declared: Option<Picture>,
    ended: Option<(ExitStatus, Duration)>,
}

impl FolderWatch {
    /// `kept`: what is known to be in the job directory already.
    pub(super) fn new(kept: Picture) -> Self {
        FolderWatch { seen: Some(Arc::clone(&kept)), kept, ..FolderWatch::default() }
    }

    /// Takes in what the folder looks like now; says whether it changed since the last look.
    pub(super) fn observe(&mut self, picture: Picture, now: Duration, signs: Signs) -> bool {
        let changed = self.seen.as_ref() != Some(&picture);
        if changed {
            self.changed = now;
            self.step = signs.step;
            self.replaced = self.seen.as_ref().is_some_and(|before| one_was_replaced(before, &picture));
        }
        self.dirty_since = if picture == self.kept { None } else { self.dirty_since.or(Some(now)) };
        if signs.marks > self.marks {
            self.marks = signs.marks;
            self.declared = Some(Arc::clone(&picture));
            self.step = signs.marked_step.or(self.step);
        }
        self.ended = signs.ended;
        self.seen = Some(picture);
        changed
    }

    /// The manifest of this picture is written.
    pub(super) fn keep(&mut self, picture: Picture, now: Duration) {
        self.dirty_since = if self.seen.as_ref() == Some(&picture) { None } else { Some(now) };
        self.kept = picture;
    }

    /// What is complete and not yet kept.
    pub(super) fn complete(&self, now: Duration) -> Option<&Picture> {
        let picture = self.seen.as_ref().filter(|picture| !picture.is_empty() && **picture != self.kept)?;
        let declared = self.declared.as_ref() == Some(picture);
        let quiet_until = self.ended.map_or(now, |(_, ended)| ended);
        let quiet = self.marks == 0 && quiet_until.saturating_sub(self.changed) >= QUIET;
        let restless = self.dirty_since.is_some_and(|since| now.saturating_sub(since) >= RESTLESS);
        // What was renamed into place is whole, also when its writer was killed a moment later.
        let whole = self.marks == 0 && self.replaced && (restless || self.ended.is_some());
        let exited = self.ended.is_some_and(|(exit, _)| exit.code.is_some() && !exit.oom);
        (declared || quiet || whole || exited).then_some(picture)
    }

    pub(super) fn dirty(&self) -> bool {
        self.dirty_since.is_some() && self.seen.as_ref().is_some_and(|picture| !picture.is_empty())
    }

    /// Since when something waits to be complete in a folder that never rests and is not written in whole files.
    pub(super) fn never_rests(&self, now: Duration) -> bool {
        let long = self.dirty_since.is_some_and(|since| now.saturating_sub(since) >= RESTLESS * 2);
        long && self.marks == 0 && self.ended.is_none() && !self.replaced && self.complete(now).is_none()
    }

    pub(super) fn seen(&self) -> Option<&Picture> {
        self.seen.as_ref()
    }

    pub(super) fn ended(&self) -> bool {
        self.ended.is_some()
    }

    /// From the asking, or the first change, to the last change.
    pub(super) fn save_time(&self, asked: Option<Duration>) -> Duration {
        let begun = asked.or(self.dirty_since).unwrap_or(self.changed);
        let time = self.changed.saturating_sub(begun);
        // A renaming takes no time; the rest is how long we waited for a pause.
        if asked.is_none() && self.replaced && time >= RESTLESS { Duration::ZERO } else { time }
    }

    /// The step that the folder is thought to hold.
    pub(super) fn step(&self) -> Option<f64> {
        self.step
    }
}

/// The files that belong to a checkpoint: not those that their names call unfinished.
pub(super) fn picture(tree: Tree) -> Picture {
    Arc::new(tree.files.into_iter().filter(|file| !file.path.split('/').any(unfinished)).collect())
}

/// The folder holds one file, and it is another file under the same name: it was whole when it got it. Of several, one may be
/// of the new checkpoint and one of the old.
fn one_was_replaced(before: &Picture, after: &Picture) -> bool {
    let ([one], [other]) = (before.as_slice(), after.as_slice()) else { return false };
    one.path == other.path && one.stamp.inode != other.stamp.inode
}

fn unfinished(name: &str) -> bool {
    [".tmp", ".part", "~"].iter().any(|end| name.ends_with(end)) || name.starts_with(".tmp")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::FileStamp;

    fn tree(files: &[(&str, i64)]) -> Picture {
        let file = |(path, modified): &(&str, i64)| TreeFile {
            path: (*path).into(),
            stamp: FileStamp { bytes: 1, modified_nanos: *modified, inode: 7, mode: 0o644 },
        };
        picture(Tree { files: files.iter().map(file).collect(), ..Tree::default() })
    }

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn ended(exit: ExitStatus, secs: u64) -> Signs {
        Signs { ended: Some((exit, at(secs))), ..Signs::default() }
    }

    #[test]
    fn two_quiet_seconds_make_it_complete_and_a_change_begins_anew() {
        let mut watch = FolderWatch::new(tree(&[]));
        watch.observe(tree(&[]), at(0), Signs::default());
        assert!(watch.observe(tree(&[("a", 1)]), at(10), Signs { step: Some(4.0), ..Signs::default() }));
        assert_eq!(watch.complete(at(11)), None);
        assert!(watch.observe(tree(&[("a", 2)]), at(11), Signs { step: Some(5.0), ..Signs::default() }));
        assert_eq!(watch.complete(at(12)), None);
        assert!(!watch.observe(tree(&[("a", 2)]), at(13), Signs { step: Some(9.0), ..Signs::default() }));
        assert_eq!(watch.complete(at(13)), Some(&tree(&[("a", 2)])));
        assert_eq!((watch.save_time(None), watch.step()), (at(1), Some(5.0)));
        watch.keep(tree(&[("a", 2)]), at(14));
        assert_eq!((watch.complete(at(99)), watch.dirty()), (None, false));
    }

    #[test]
    fn a_workload_that_marks_is_believed_and_its_silence_is_not() {
        let mut watch = FolderWatch::new(tree(&[]));
        watch.observe(tree(&[("a", 1)]), at(1), Signs { marks: 1, marked_step: Some(3.0), ..Signs::default() });
        assert_eq!(watch.complete(at(1)), Some(&tree(&[("a", 1)])));
        assert_eq!(watch.step(), Some(3.0));
        watch.observe(tree(&[("a", 1), ("b", 2)]), at(2), Signs { marks: 1, ..Signs::default() });
        watch.observe(tree(&[("a", 1), ("b", 2)]), at(60), Signs { marks: 1, ..Signs::default() });
        assert_eq!(watch.complete(at(60)), None, "half of the next checkpoint, however long it takes");
    }

    #[test]
    fn an_exit_completes_and_a_killing_does_not() {
        let exit = ExitStatus { code: Some(1), ..ExitStatus::default() };
        let killed = ExitStatus { signal: Some(9), ..ExitStatus::default() };
        for (end, trusted) in [(exit, true), (killed, false), (ExitStatus { oom: true, ..exit }, false)] {
            let mut watch = FolderWatch::new(tree(&[]));
            watch.observe(tree(&[("a", 1)]), at(10), ended(end, 11));
            assert_eq!(watch.complete(at(60)).is_some(), trusted, "{end}");
        }
        let mut settled = FolderWatch::new(tree(&[]));
        settled.observe(tree(&[("a", 1)]), at(10), Signs::default());
        settled.observe(tree(&[("a", 1)]), at(20), ended(killed, 19));
        assert!(settled.complete(at(20)).is_some(), "it was quiet before it was killed");
    }

    #[test]
    fn a_folder_that_never_rests_is_kept_when_its_files_are_replaced_whole() {
        let file = |inode: u64, modified: i64| TreeFile {
            path: "state".into(),
            stamp: FileStamp { bytes: 1, modified_nanos: modified, inode, mode: 0o644 },
        };
        let play = |picture: &dyn Fn(u64) -> Picture| {
            let mut watch = FolderWatch::new(tree(&[]));
            watch.observe(tree(&[]), at(0), Signs::default());
            for second in 1..=61 {
                watch.observe(picture(second), at(second), Signs::default());
            }
            (watch.complete(at(61)).cloned(), watch.never_rests(at(61)))
        };
        let renamed = |second: u64| Arc::new(vec![file(second, second as i64)]);
        assert_eq!(play(&renamed), (Some(renamed(61)), false));
        // Written in place: half of it may be the old one.
        let overwritten = |second: u64| Arc::new(vec![file(7, second as i64)]);
        assert_eq!(play(&overwritten), (None, true));
        let mut killed = FolderWatch::new(renamed(1));
        killed.observe(renamed(2), at(2), ended(ExitStatus { signal: Some(9), ..ExitStatus::default() }, 3));
        assert_eq!(killed.complete(at(4)), Some(&renamed(2)), "it was whole before its writer died");
        let two = |second: u64| Arc::new(vec![TreeFile { path: "a".into(), ..file(1000 + second, second as i64) }, file(second, second as i64)]);
        assert_eq!(play(&two), (None, true), "of two, one may be the new and one the old");
        let mut young = FolderWatch::new(tree(&[]));
        for second in 1..=20 {
            young.observe(renamed(second), at(second), Signs::default());
        }
        assert_eq!((young.complete(at(20)), young.never_rests(at(20))), (None, false));
    }

    #[test]
    fn unfinished_names_do_not_count() {
        let names = ["a.tmp", "a.part", "a~", ".tmpXYZ", "x/.tmp-1/model.pt", "kept.pt"];
        let picture = tree(&names.map(|name| (name, 1)));
        assert_eq!(picture.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["kept.pt"]);
    }
}
