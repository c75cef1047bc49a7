//! Tests of the folder watch: which files it keeps, second by second.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::folder_diff::{FolderListing, picture};
use super::folder_watch::FolderWatch;
use super::workload_signals::{EarlierSigns, WorkloadSigns};
use crate::job::ExitStatus;
use crate::ports::{FileStamp, Tree, TreeFile};

fn tree(files: &[(&str, i64)]) -> FolderListing {
    let file = |(path, modified): &(&str, i64)| TreeFile {
        path: (*path).into(),
        stamp: FileStamp { bytes: 1, modified_nanos: *modified, inode: 7, mode: 0o644 },
    };
    picture(Tree { files: files.iter().map(file).collect(), ..Tree::default() })
}

fn complete(watch: &FolderWatch, secs: u64) -> Option<FolderListing> {
    watch.complete(at(secs), true, false).map(|ripe| ripe.picture)
}

fn at(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ended(exit: ExitStatus, secs: u64) -> WorkloadSigns {
    let killed = (!exit.is_in_order()).then(|| at(secs));
    WorkloadSigns { ended: Some((exit, at(secs))), killed, ..WorkloadSigns::default() }
}

#[test]
fn quiet_folder_completes_and_change_restarts_wait() {
    let mut watch =
        FolderWatch::new(tree(&[]), EarlierSigns { marks: Some(false), ..EarlierSigns::default() });
    watch.observe(tree(&[]), at(9), WorkloadSigns::default());
    assert!(watch.observe(
        tree(&[("a", 1)]),
        at(10),
        WorkloadSigns { step: Some(4.0), reports: 1, told_by: Some(0), ..WorkloadSigns::default() }
    ));
    assert_eq!(complete(&watch, 11), None);
    assert!(watch.observe(
        tree(&[("a", 2)]),
        at(11),
        WorkloadSigns { step: Some(5.0), ..WorkloadSigns::default() }
    ));
    assert_eq!(complete(&watch, 12), None);
    assert!(!watch.observe(
        tree(&[("a", 2)]),
        at(13),
        WorkloadSigns { step: Some(9.0), any_step: Some(9.0), ..WorkloadSigns::default() }
    ));
    assert_eq!(complete(&watch, 13), None, "its writer may pause: nothing like it was seen before");
    watch.observe(
        tree(&[("a", 2)]),
        at(14),
        WorkloadSigns { step: Some(9.0), any_step: Some(10.0), ..WorkloadSigns::default() },
    );
    let ripe = watch.complete(at(14), true, false).expect("the training goes on");
    assert_eq!(
        (&ripe.picture, ripe.save_time(None), ripe.step),
        (&tree(&[("a", 2)]), at(1), Some(4.0)),
        "the step when it began to be written"
    );
    watch.keep(tree(&[("a", 2)]));
    assert_eq!((complete(&watch, 99), watch.dirty()), (None, false));
}

/// A script with four steps a second, whose save of step 60 was called step 62.
#[test]
fn save_is_never_called_by_a_step_that_it_does_not_hold() {
    let saved_at = 1_000;
    // The reports since the last look, the time of the newest, and the step of the save.
    for (reports, told_by, held) in [
        (4, Some(saved_at + 500), 58.0),
        (4, Some(saved_at), 58.0),
        (1, Some(saved_at + 1), 58.0),
        (1, Some(saved_at), 58.0),
        (1, None, 58.0),
        (1, Some(saved_at - 300), 62.0),
    ] {
        let mut watch = FolderWatch::new(
            tree(&[]),
            EarlierSigns { marks: Some(false), ..EarlierSigns::default() },
        );
        let look = WorkloadSigns { step: Some(58.0), reports: 58, ..WorkloadSigns::default() };
        watch.observe(tree(&[]), at(14), look);
        let signs = WorkloadSigns { step: Some(62.0), reports: 58 + reports, told_by, ..look };
        (15..30).for_each(|secs| {
            watch.observe(tree(&[("a", saved_at)]), at(secs), signs);
        });
        let step = watch.complete(at(45), true, false).map(|ripe| ripe.step);
        assert_eq!(step, Some(Some(held)), "{reports} reports, the newest by {told_by:?}");
    }
}

#[test]
fn close_saves_of_series_stay_separate() {
    for pointer in [false, true] {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        let mut files: Vec<(String, i64)> = Vec::new();
        watch.observe(tree(&[]), at(0), WorkloadSigns::default());
        for (number, secs) in (1_i64..).zip((3..20).step_by(3)) {
            for (piece, later) in [("model", 0), ("optimizer", 1)] {
                files.push((format!("{piece}-{number}.pt"), number));
                if pointer {
                    files.retain(|(name, _)| name != "latest");
                    files.push(("latest".into(), number * 10 + later));
                }
                let now: Vec<(&str, i64)> =
                    files.iter().map(|(name, stamp)| (name.as_str(), *stamp)).collect();
                watch.observe(tree(&now), at(secs + later as u64), WorkloadSigns::default());
            }
        }
        let ripe = watch.complete(at(30), true, false).expect("it rested at last");
        assert_eq!(ripe.save_time(None), at(1), "with a pointer to the newest: {pointer}");
    }
}

#[test]
fn files_beside_long_save_belong_to_it() {
    let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
    watch.observe(
        tree(&[("meta-1.json", 1), ("model-100.pt", 1)]),
        at(0),
        WorkloadSigns::default(),
    );
    watch.observe(
        tree(&[("meta-1.json", 1), ("model-100.pt", 1)]),
        at(50),
        WorkloadSigns::default(),
    );
    for secs in 100..=160 {
        watch.observe(
            tree(&[("meta-1.json", 1), ("model-100.pt", 1), ("model-200.pt", secs)]),
            at(secs as u64),
            WorkloadSigns::default(),
        );
    }
    let all =
        tree(&[("meta-1.json", 1), ("meta-2.json", 1), ("model-100.pt", 1), ("model-200.pt", 160)]);
    watch.observe(all, at(161), WorkloadSigns::default());
    assert_eq!(watch.complete(at(163), true, false).expect("it rests").save_time(None), at(60));
}

/// scikit-learn with joblib: one file, rewritten in place each second, and steps that are only
/// printed.
#[test]
fn file_rewritten_each_second_is_kept_with_its_step() {
    let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
    let none = BTreeSet::new();
    let look = |watch: &mut FolderWatch, secs: u64, prints_steps| {
        let signs = WorkloadSigns {
            step: Some(secs as f64),
            any_step: Some(secs as f64),
            prints_steps,
            ..WorkloadSigns::default()
        };
        watch.observe_open(tree(&[("model.joblib", secs as i64)]), at(secs), signs, Some(&none));
        watch.complete(at(secs), true, false)
    };
    look(&mut watch, 1, true);
    assert!(
        look(&mut watch, 2, true).is_some(),
        "it is written again, so the one before was whole, and nothing is open"
    );
    let ripe = (3..=45)
        .map(|secs| look(&mut watch, secs, true))
        .last()
        .flatten()
        .expect("it is whole each time");
    assert_eq!(
        (ripe.step, ripe.save_time(None)),
        (Some(44.0), Duration::ZERO),
        "the step at the look before its last writing"
    );
    let mut may_mark = FolderWatch::new(tree(&[]), EarlierSigns::default());
    assert!((1..=45).all(|secs| look(&mut may_mark, secs, false).is_none()), "its mark may come");
}

/// 60,000 numbered files: comparing all pairs would take longer than the job.
#[test]
fn crowded_folder_is_judged_by_one_walk_over_it() {
    let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
    let names: Vec<String> =
        (0..60_000).map(|number| format!("shard_{}/c{number}", number / 500)).collect();
    for (secs, part) in (1..).zip([20_000, 40_000, 60_000, 60_000]) {
        let files: Vec<(&str, i64)> = names[..part].iter().map(|name| (name.as_str(), 1)).collect();
        watch.observe(tree(&files), at(secs), WorkloadSigns::default());
    }
    let exit = ExitStatus { code: Some(0), ..ExitStatus::default() };
    let all: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    watch.observe(tree(&all), at(5), ended(exit, 5));
    assert_eq!(complete(&watch, 5).map(|picture| picture.len()), Some(60_000));
}

/// Seed 243 of the simulation, with a folder for each start as Lightning makes it. The last
/// save of the first start was deleted, and then no save was kept.
#[test]
fn second_start_saves_survive_deletion_of_first() {
    let pair = |run: u64, step: u64| {
        ["model", "optim"].map(|part| format!("version_{run}/checkpoints/{part}-{step}.pt"))
    };
    let mut there: Vec<String> = [pair(1, 680), pair(1, 720)].concat();
    there.extend([1, 2].map(|run| format!("version_{run}/hparams.yaml")));
    let look = |watch: &mut FolderWatch, secs: u64, there: &mut Vec<String>| {
        there.sort();
        let files: Vec<(&str, i64)> = there.iter().map(|path| (path.as_str(), 1)).collect();
        let step = Some(secs as f64 / 10.0);
        watch.observe_open(
            tree(&files),
            at(secs),
            WorkloadSigns { step, any_step: step, life: 1, ..WorkloadSigns::default() },
            Some(&BTreeSet::new()),
        );
        let ripe = watch.complete(at(secs), true, false)?;
        watch.keep(Arc::clone(&ripe.picture));
        Some(ripe.picture)
    };
    let mut watch =
        FolderWatch::new(tree(&[]), EarlierSigns { marks: Some(false), ..EarlierSigns::default() });
    (1..40).for_each(|secs| drop(look(&mut watch, secs, &mut there)));
    for (secs, step) in (1..).map(|save| save * 100).zip([760, 800, 840, 880]) {
        there.extend(pair(2, step));
        let mut kept: Vec<FolderListing> = look(&mut watch, secs, &mut there).into_iter().collect();
        let oldest = if step <= 800 { pair(1, step - 80) } else { pair(2, step - 80) };
        there.retain(|path| !oldest.contains(path));
        kept.extend((secs + 1..secs + 40).filter_map(|secs| look(&mut watch, secs, &mut there)));
        let has = |picture: &FolderListing| {
            pair(2, step).iter().all(|path| picture.iter().any(|file| file.path == *path))
        };
        assert!(kept.iter().any(has), "step {step}: {kept:?}");
    }
}

#[test]
fn clean_exit_completes_save_and_kill_does_not() {
    let exit = ExitStatus { code: Some(1), ..ExitStatus::default() };
    let killed = ExitStatus { signal: Some(9), ..ExitStatus::default() };
    for (end, trusted) in [(exit, true), (killed, false), (ExitStatus { oom: true, ..exit }, false)]
    {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        watch.observe(tree(&[("a", 1)]), at(10), ended(end, 11));
        assert_eq!(complete(&watch, 60).is_some(), trusted, "{end}");
    }
    let mut settled = FolderWatch::new(tree(&[]), EarlierSigns::default());
    settled.observe(tree(&[("a", 1)]), at(10), WorkloadSigns::default());
    settled.observe(tree(&[("a", 1)]), at(22), ended(killed, 21));
    assert!(complete(&settled, 22).is_some(), "it was quiet before it was killed");
}

#[test]
fn restless_folder_is_kept_if_files_are_renamed() {
    let file = |inode: u64, modified: i64| TreeFile {
        path: "state".into(),
        stamp: FileStamp { bytes: 1, modified_nanos: modified, inode, mode: 0o644 },
    };
    let play = |picture: &dyn Fn(u64) -> FolderListing| {
        let mut watch = FolderWatch::new(tree(&[]), EarlierSigns::default());
        watch.observe(tree(&[]), at(0), WorkloadSigns::default());
        for second in 1..=61 {
            watch.observe(picture(second), at(second), WorkloadSigns::default());
        }
        (complete(&watch, 61), watch.never_rests(at(61)))
    };
    let renamed = |second: u64| Arc::new(vec![file(second, second as i64)]);
    assert_eq!(play(&renamed), (Some(renamed(61)), false));
    // Written in place: half of it may be the old content.
    let overwritten = |second: u64| Arc::new(vec![file(7, second as i64)]);
    assert_eq!(play(&overwritten), (None, true));
    let mut killed = FolderWatch::new(renamed(1), EarlierSigns::default());
    killed.observe(
        renamed(2),
        at(2),
        ended(ExitStatus { signal: Some(9), ..ExitStatus::default() }, 3),
    );
    assert_eq!(complete(&killed, 4), Some(renamed(2)), "it was whole before its writer died");
    let two = |second: u64| {
        Arc::new(vec![
            TreeFile { path: "a".into(), ..file(1000 + second, second as i64) },
            file(second, second as i64),
        ])
    };
    assert_eq!(play(&two), (None, true), "of two, one may be the new and one the old");
    let mut young = FolderWatch::new(tree(&[]), EarlierSigns::default());
    for second in 1..=20 {
        young.observe(renamed(second), at(second), WorkloadSigns::default());
    }
    assert_eq!(
        (complete(&young, 20), young.never_rests(at(20))),
        (Some(renamed(20)), false),
        "a renaming is a statement"
    );
}
