//! Checkpoint folders that are always being written: what has rested is kept, and where nothing can
//! be, a person is told.

use std::sync::atomic::Ordering;

use lamplighter::agent::checkpoint::save_request::Saved;
use lamplighter::job::{CheckpointNo, Manifest};
use lamplighter::ports::Clock;

use crate::checkpoint::checkpoints::Watched;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

/// What today's trainers leave: numbered folders next to each other, a log beside them, and never a
/// quiet moment.
#[test]
fn restless_folder_keeps_rested_checkpoints_despite_its_log() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("/files/", Fault::Slow(secs(5)), None);
        let train = async {
            for second in 0..100u64 {
                watched.write("train.log", &format!("line {second}"));
                let (folder, file) = (
                    format!("checkpoint-{}", (second / 10 + 1) * 100),
                    if second % 10 < 5 { "model.bin" } else { "optimizer.bin" },
                );
                // Two seconds of rest would be a moment for the folder as it is.
                watched.write(&format!("{folder}/{file}"), &format!("{second}"));
                clock.sleep(secs(1)).await;
            }
        };
        train.await;
        // The store is slow and does not hold files, so that the log has torn the first try.
        let manifest = watched.complete(2).await;
        let names = |manifest: &Manifest| {
            manifest.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            names(&manifest),
            ["checkpoint-100/model.bin", "checkpoint-100/optimizer.bin"],
            "the second was being written"
        );
        assert_eq!(watched.read(&manifest, "checkpoint-100/optimizer.bin"), "9");
        let manifest = watched.complete(3).await;
        assert_eq!(names(&manifest).len(), 2 * 10 + 1, "all ten, and the log that rests");
        watched.journal.flush(secs(5)).await;
        assert_eq!(watched.rig.attention().await, Vec::<String>::new());
    });
}

#[test]
fn pair_that_is_always_written_is_not_kept_and_a_person_is_told() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        for second in 0..90 {
            watched.write(
                if second % 6 < 3 { "model.pt" } else { "optimizer.pt" },
                &format!("{second}"),
            );
            clock.sleep(secs(1)).await;
        }
        assert_eq!(watched.checkpoints.last(), None);
        watched.journal.flush(secs(5)).await;
        assert_eq!(watched.rig.attention().await, [lamplighter::job::NEVER_RESTS]);
        let saved =
            watched.checkpoints.save(watched.checkpoints.ask().await, "notice", secs(10)).await;
        assert!(!matches!(saved, Saved::Complete(_)), "{saved:?}");
    });
}

/// neptune-client#1888: the script keeps its two newest saves, and an upload takes longer than each
/// of them is there.
#[test]
fn script_that_keeps_two_saves_is_saved_on_a_slow_line() {
    const FILES: [&str; 3] = ["model.safetensors", "optimizer.pt", "trainer_state.json"];
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.files.stages.store(true, Ordering::Relaxed);
        watched.rig.store.fault("/files/", Fault::Slow(secs(25)), None);
        for second in 0..1500usize {
            let (save, after) = (second / 10, second % 10);
            if let Some(file) = FILES.get(after) {
                watched.write(&format!("checkpoint-{}/{file}", save * 10), &format!("{save}"));
            } else if after == FILES.len() && save >= 2 {
                let oldest = watched.rig.path(&format!("ckpt/checkpoint-{}", (save - 2) * 10));
                std::fs::remove_dir_all(oldest).unwrap();
            }
            clock.sleep(secs(1)).await;
        }
        let newest = watched.checkpoints.last().expect("a complete checkpoint").number;
        let mut whole = 0;
        for number in (1..=newest.number()).map(CheckpointNo::new) {
            let Some(manifest) = watched.rig.dir().manifest(number).await.unwrap() else {
                continue;
            };
            let read = |path: &str| watched.read(&manifest, path).parse::<usize>().unwrap();
            let save = manifest.files.iter().map(|file| read(&file.path)).max().unwrap();
            for file in FILES {
                let path = format!("checkpoint-{}/{file}", save * 10);
                assert_eq!(read(&path), save, "{manifest:?}");
            }
            whole += 1;
        }
        assert!(whole >= 2, "{whole} complete checkpoints in 25 minutes");
    });
}

/// Stock trainers say nothing of steps; their files do.
#[test]
fn unreported_step_is_read_from_files() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.write("checkpoint-50/model.safetensors", "weights");
        watched.write(
            "checkpoint-50/trainer_state.json",
            "{\"epoch\": 1.0, \"global_step\": 50, \"log_history\": []}",
        );
        assert_eq!(watched.complete(1).await.step, Some(50.0));
    });
}
