//! Tests of the checkpoint watch: laws with random writers (scripts are in `script_tests`).
//!
//! Half a save is never kept, and a save that has rested is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::folder_diff::FolderListing;
use super::folder_watch::FolderWatch;
use super::workload_signals::{EarlierSigns, WorkloadSigns};
use crate::ports::{FileStamp, TreeFile};

/// The writes of a script, second by second.
#[derive(Clone, Debug)]
struct Habits {
    /// The seconds that each file of a checkpoint takes, in order, and the pause before the next
    /// checkpoint.
    files: Vec<u64>,
    pause: u64,
    /// Folders (`checkpoint-100/a`), or files with the same number (`a-100.pt`).
    folders: bool,
    /// If there are more checkpoints than this, the script deletes old ones, a file a second.
    keep: usize,
    log: bool,
    restless: bool,
    /// Two files that are rewritten in place: seconds for one, for the other, and of rest.
    pair: Option<(u64, u64, u64)>,
}

fn habits() -> impl Strategy<Value = Habits> {
    let series = (prop::collection::vec(1u64..6, 1..4), 0u64..5, any::<bool>(), 2usize..6);
    let beside = (any::<bool>(), any::<bool>(), prop::option::of((1u64..6, 1u64..6, 0u64..6)));
    (series, beside).prop_map(|((files, pause, folders, keep), (log, restless, pair))| Habits {
        files,
        pause,
        folders,
        keep,
        log,
        restless,
        pair,
    })
}

/// The folder, and which parts of it are really complete.
#[derive(Default)]
struct Folder {
    files: BTreeMap<String, i64>,
    clock: i64,
    /// Complete checkpoints: names and stamps of their files, and since when.
    finished: BTreeMap<u64, (BTreeMap<String, i64>, u64)>,
    /// Stamps of the two files that belong together.
    pairs: Vec<(i64, i64)>,
}

impl Folder {
    fn write(&mut self, name: String) {
        self.clock += 1;
        self.files.insert(name, self.clock);
    }

    fn picture(&self) -> FolderListing {
        let file = |(path, modified): (&String, &i64)| TreeFile {
            path: path.clone(),
            stamp: FileStamp { bytes: 1, modified_nanos: *modified, inode: 7, mode: 0o644 },
        };
        let mut files: Vec<TreeFile> = self.files.iter().map(file).collect();
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Arc::new(files)
    }

    fn second(&mut self, now: u64, habits: &Habits) {
        self.series(now, habits);
        if habits.log {
            self.write("runs/train.log".into());
        }
        if habits.restless {
            self.write("state.bin".into());
        }
        if let Some((one, other, rest)) = habits.pair {
            match now % (one + other + rest) {
                at if at < one => self.write("model.pt".into()),
                at if at < one + other => {
                    self.write("optimizer.pt".into());
                    if at + 1 == one + other {
                        self.pairs.push((self.files["model.pt"], self.files["optimizer.pt"]));
                    }
                }
                _ => {}
            }
        }
    }

    fn series(&mut self, now: u64, habits: &Habits) {
        let save: u64 = habits.files.iter().sum();
        let (round, mut at) = (now / (save + habits.pause), now % (save + habits.pause));
        let number = (round + 1) * 100;
        let name = |file: usize, number: u64| match habits.folders {
            true => format!("checkpoint-{number}/part{file}"),
            false => format!("{}-{number}.pt", ["model", "optimizer", "scheduler"][file]),
        };
        for (file, takes) in habits.files.iter().enumerate() {
            if at < *takes {
                self.write(name(file, number));
                if file + 1 == habits.files.len() && at + 1 == *takes {
                    let files = (0..habits.files.len())
                        .map(|file| (name(file, number), self.files[&name(file, number)]))
                        .collect();
                    self.finished.insert(number, (files, now));
                }
                break;
            }
            at = at.saturating_sub(*takes);
        }
        if self.finished.len() > habits.keep {
            let first =
                self.finished.iter().next().map(|(number, (files, _))| (*number, files.clone()));
            let (oldest, files) = first.expect("there are more than some");
            let one = files.keys().find(|name| self.files.contains_key(*name)).cloned();
            if let Some(one) = one {
                self.files.remove(&one);
            }
            if files.keys().all(|name| !self.files.contains_key(name)) {
                self.finished.remove(&oldest);
            }
        }
    }
}

fn number(path: &str) -> Option<u64> {
    let digits: String = path.split('/').next()?.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// No kept part is incomplete.
fn whole(kept: &FolderListing, folder: &Folder, habits: &Habits) -> Result<(), TestCaseError> {
    let held: BTreeMap<&str, i64> =
        kept.iter().map(|file| (file.path.as_str(), file.stamp.modified_nanos)).collect();
    for path in held.keys() {
        let Some(number) = number(path) else { continue };
        let Some((finished, _)) = folder.finished.get(&number) else {
            return Err(TestCaseError::fail(format!(
                "{path} is of a checkpoint that is not finished: {habits:?}"
            )));
        };
        for (name, stamp) in finished {
            prop_assert_eq!(
                held.get(name.as_str()),
                Some(stamp),
                "{} of {} in {:?}: {:?}",
                name,
                number,
                held,
                habits
            );
        }
    }
    let pair = (held.get("model.pt").copied(), held.get("optimizer.pt").copied());
    match pair {
        (None, None) => {}
        (Some(model), Some(optimizer)) => {
            prop_assert!(folder.pairs.contains(&(model, optimizer)), "{pair:?}: {habits:?}")
        }
        _ => prop_assert!(false, "half of a pair: {pair:?}: {habits:?}"),
    }
    Ok(())
}

proptest! {
    // Each case simulates some minutes of a script.
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn nothing_half_written_is_ever_kept_and_what_has_rested_is(habits in habits()) {
        let (mut folder, mut watch) = (Folder::default(), FolderWatch::new(FolderListing::default(), EarlierSigns::default()));
        let mut kept = FolderListing::default();
        for now in 0..400u64 {
            folder.second(now, &habits);
            watch.observe(folder.picture(), Duration::from_secs(now), WorkloadSigns::default());
            if let Some(ripe) = watch.complete(Duration::from_secs(now), true, false) {
                whole(&ripe.picture, &folder, &habits)?;
                kept = Arc::clone(&ripe.picture);
                watch.keep(ripe.picture);
            }
            // Time for the newest to rest, for the pair to rest once, and to detect that the folder
            // never rests.
            let rest = 33 + habits.pair.map_or(0, |(one, other, rest)| one + other + rest);
            let old = folder.finished.iter().rev().skip_while(|(_, (_, since))| now - since < rest).map(|(number, _)| *number);
            let being_cleared = folder.finished.len() > habits.keep;
            if now > 200 && let Some(newest) = old.into_iter().next() && !(being_cleared && folder.finished.len() == 1) {
                let names = kept.iter().filter_map(|file| number(&file.path)).max();
                let clear = folder.finished[&newest].0.keys().all(|name| folder.files.contains_key(name));
                prop_assert!(!clear || names >= Some(newest), "second {}: {:?} is newest of what is kept, {} has rested: {:?}", now, names, newest, habits);
            }
        }
    }

    #[test]
    fn kill_keeps_no_half_written_save(habits in habits(), killed in 5u64..200) {
        let (mut folder, mut watch) = (Folder::default(), FolderWatch::new(FolderListing::default(), EarlierSigns::default()));
        let dead = crate::job::ExitStatus { signal: Some(9), ..Default::default() };
        for now in 0..killed + 10 {
            if now <= killed {
                folder.second(now, &habits);
            }
            let ended = (now > killed).then_some((dead, Duration::from_secs(killed + 1)));
            watch.observe(folder.picture(), Duration::from_secs(now), WorkloadSigns { ended, ..WorkloadSigns::default() });
            if let Some(ripe) = watch.complete(Duration::from_secs(now), true, false) {
                whole(&ripe.picture, &folder, &habits)?;
            }
        }
    }
}

/// Seed 96000713 of 24 h: the progress line after the mark had the time of the last file, so this
/// save was not certain yet. The previous save was then kept with this one's step, although it was
/// no save.
#[test]
fn save_before_marked_one_keeps_its_own_step() {
    let file = |path: String, modified_nanos| TreeFile {
        path,
        stamp: FileStamp { bytes: 1, modified_nanos, inode: 7, mode: 0o644 },
    };
    let save = |number: &i64| {
        [
            file(format!("model-{number}.pt"), number * 10),
            file(format!("optim-{number}.pt"), number * 10 + 2),
        ]
    };
    let saves = |numbers: &[i64]| -> FolderListing {
        let mut files: Vec<TreeFile> = numbers.iter().flat_map(save).collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Arc::new(files)
    };
    let at = Duration::from_secs;
    let told = |marks, by, step| WorkloadSigns {
        marks,
        has_marked: true,
        marked_by: Some(by),
        marked_step: Some(step),
        step: Some(step),
        ..WorkloadSigns::default()
    };
    for (kept, is_news) in [(saves(&[6, 7]), true), (saves(&[7, 8]), false)] {
        let mut watch = FolderWatch::new(
            saves(&[6, 7]),
            EarlierSigns { marks: Some(true), ..EarlierSigns::default() },
        );
        watch.observe(
            saves(&[6, 7]),
            at(79),
            WorkloadSigns { marks: 0, marked_by: None, ..told(0, 0, 8.0) },
        );
        watch.observe(saves(&[7, 8]), at(83), told(1, 83, 8.0));
        watch.keep(kept);
        let ripe = |watch: &FolderWatch, secs| {
            watch.complete(at(secs), true, false).map(|ripe| (ripe.picture, ripe.step))
        };
        let eight = is_news.then(|| (saves(&[8]), Some(8.0)));
        watch.observe(
            saves(&[8, 9]),
            at(93),
            WorkloadSigns { step: Some(9.0), ..told(1, 83, 8.0) },
        );
        assert_eq!(ripe(&watch, 93), eight);
        watch.observe(saves(&[8, 9]), at(93), told(2, 91, 9.0));
        assert_eq!(ripe(&watch, 93), eight);
        assert_eq!(ripe(&watch, 95), Some((saves(&[8, 9]), Some(9.0))), "it rests");
    }
}

/// The newest save was bad and was deleted: the job continues from the previous one, with its step.
#[test]
fn deleted_newest_save_is_not_resumed_from() {
    let file = |number: &i64| TreeFile {
        path: format!("step-{number}.pt"),
        stamp: FileStamp {
            bytes: 1,
            modified_nanos: number * 10,
            inode: *number as u64,
            mode: 0o644,
        },
    };
    let saves = |numbers: &[i64]| -> FolderListing { Arc::new(numbers.iter().map(file).collect()) };
    let at = Duration::from_secs;
    let told = |marks, by, step| WorkloadSigns {
        marks,
        has_marked: true,
        marked_by: Some(by),
        marked_step: Some(step),
        step: Some(step),
        ..WorkloadSigns::default()
    };
    let mut watch =
        FolderWatch::new(saves(&[]), EarlierSigns { marks: Some(true), ..EarlierSigns::default() });
    watch.observe(saves(&[]), at(69), WorkloadSigns { marked_by: None, ..told(0, 0, 7.0) });
    watch.observe(saves(&[7]), at(71), told(1, 71, 7.0));
    watch.keep(saves(&[7]));
    watch.observe(saves(&[7, 8]), at(81), told(2, 81, 8.0));
    watch.keep(saves(&[7, 8]));
    assert!(watch.complete(at(82), true, false).is_none());
    watch.observe(saves(&[7]), at(83), told(2, 81, 8.0));
    let ripe = watch.complete(at(83), true, false).expect("the seventh");
    assert_eq!((&ripe.picture, ripe.step, ripe.is_marked), (&saves(&[7]), Some(7.0), false));
    assert!(!ripe.adds_to(&saves(&[7, 8])), "it holds no save up");
    watch.keep(saves(&[7]));
    // A script that keeps one save deletes the old one after the new one is written. That is
    // different.
    watch.observe(saves(&[9]), at(91), told(3, 91, 9.0));
    let ripe = watch.complete(at(91), true, false).expect("the ninth");
    assert_eq!((&ripe.picture, ripe.step, ripe.is_marked), (&saves(&[9]), Some(9.0), true));
}
