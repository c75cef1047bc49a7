//! Layouts of checkpoint folders as people have them, with saves too frequent for a rest.

use std::time::Duration;

use super::script_tests::{Script, has};
use crate::job::ExitStatus;

/// The script saves each `every` seconds, and a file is open for one. Returns the last kept set.
fn save_in_place(script: &mut Script, paths: &[&str], every: u64, saves: u64) -> Vec<String> {
    let mut kept = Vec::new();
    let mut keep = |script: &mut Script| {
        kept = Some(script.kept()).filter(|now| !now.is_empty()).unwrap_or_else(|| kept.clone());
    };
    for _ in 0..saves {
        for path in paths {
            script.open.insert((*path).to_owned());
            script.write(path);
            script.wait(1);
            keep(script);
            script.write(path);
            script.open.remove(*path);
        }
        for _ in paths.len() as u64..every {
            script.train(1);
            keep(script);
        }
    }
    kept
}

/// None was kept: a numbered folder was a run folder only after it had rested for ten seconds.
#[test]
fn file_rewritten_every_few_seconds_in_a_run_folder_is_kept() {
    for path in ["run_2/last.pt", "run_2/weights/last.pt", "2026-11-30/12-00-00/checkpoints/a.ckpt"]
    {
        for every in [3, 5, 8] {
            let mut script = Script::new(true);
            let kept = save_in_place(&mut script, &[path], every, 8);
            assert_eq!(kept, [path], "every {every} s");
            let last = script.kept();
            assert!(last.is_empty(), "the newest was kept already: {last:?}");
        }
    }
}

#[test]
fn pair_rewritten_in_a_run_folder_is_kept_whole() {
    let mut script = Script::new(true);
    let paths = ["run_2/model.pt", "run_2/optimizer.pt"];
    assert_eq!(save_in_place(&mut script, &paths, 6, 8), paths);
    script.open.insert(paths[0].to_owned());
    script.write(paths[0]);
    script.wait(1);
    script.open.clear();
    script.wait(1);
    assert_eq!(script.kept(), [""; 0], "the optimizer is still to come");
}

/// None was kept: a number alone is no series, and the one before was deleted first.
#[test]
fn lone_number_whose_predecessor_is_deleted_first_is_kept() {
    for (folder, gap) in [("", 0), ("", 2), ("out/", 0), ("run_1/", 2)] {
        let (mut script, mut kept) = (Script::new(true), Vec::new());
        for step in 1..=12 {
            script.remove(&format!("{folder}step_{}.pt", step - 1));
            script.wait(gap);
            let path = format!("{folder}step_{step}.pt");
            script.write(&path);
            script.open.insert(path.clone());
            script.wait(1);
            script.write(&path);
            script.open.clear();
            for _ in 0..4 {
                script.train(1);
                kept.extend(script.kept());
            }
        }
        for step in [8, 12] {
            let path = format!("{folder}step_{step}.pt");
            assert!(kept.contains(&path), "{path} after {gap} s without one: {kept:?}");
        }
    }
}

/// Names the new save, deletes the one before, and asserts that it is kept: the first of its kind
/// rests for ten seconds.
fn point_to(script: &mut Script, path: &str, before: &str) {
    script.write("LATEST");
    if !before.is_empty() {
        script.remove(before);
    }
    script.train(if before.is_empty() { 11 } else { 3 });
    let kept = script.kept();
    assert!(has(&kept, path) && has(&kept, "LATEST"), "{path}: {kept:?}");
    script.train(12);
    script.kept();
}

/// Each but the first waited for half a minute: the pointer was there, but not the hash before.
#[test]
fn file_with_a_hash_is_kept_once_its_pointer_is_written() {
    let (mut script, mut before) = (Script::new(true), String::new());
    for hash in ["3fa8b1", "91c0de4", "0a1b2c3d"] {
        let path = format!("ckpt-{hash}.pt");
        script.write(&path);
        script.open.insert(path.clone());
        for _ in 0..3 {
            script.wait(1);
            assert!(!has(&script.kept(), &path), "it is being written");
        }
        script.write(&path);
        script.open.clear();
        script.wait(1);
        let kept = script.kept();
        assert!(!has(&kept, &path), "its pointer is still to come: {kept:?}");
        point_to(&mut script, &path, &before);
        before = path;
    }
}

/// 18 manifests had empty files, because the script caught the error of each save.
#[test]
fn save_on_a_full_disk_is_not_kept_if_it_is_shorter() {
    for path in ["model.pt", "step-#.pt", "checkpoint-#/model.pt"] {
        let mut script = Script::new(true);
        let name = |step: u32| path.replace('#', &step.to_string());
        for step in 1..=3 {
            script.write_bytes(&name(step), 1000);
            script.train(12);
            assert!(has(&script.kept(), &name(step)), "{path}");
        }
        script.signs.free_bytes = Some(0);
        for (step, bytes) in [(4, 300), (5, 0)] {
            script.write_bytes(&name(step), bytes);
            script.train(40);
            let kept = script.kept();
            assert!(!has(&kept, &name(step)), "{path}, {bytes} bytes: {kept:?}");
            assert!(script.watch.short_file(Duration::from_secs(script.now)).is_some(), "{path}");
        }
        script.signs.free_bytes = Some(1 << 30);
        script.write_bytes(&name(6), 900);
        script.train(12);
        let kept = script.kept();
        assert!(has(&kept, &name(6)), "there is room again: {kept:?}");
        assert!(path == "model.pt" || !has(&kept, &name(5)), "{kept:?}");
    }
}

/// The last look before the death says that no file was open: it was before the write.
#[test]
fn save_begun_and_killed_between_two_looks_is_not_kept() {
    for path in ["model.pt", "run_2/last.pt", "step_#.pt"] {
        let mut script = Script::new(true);
        let name = |step: u32| path.replace('#', &step.to_string());
        for step in 1..=8 {
            script.write_bytes(&name(step), 1000);
            script.train(4);
            script.kept();
        }
        script.write_bytes(&name(9), 300);
        script.dies(ExitStatus { signal: Some(15), ..ExitStatus::default() });
        let kept = script.kept();
        assert!(!kept.contains(&name(9)), "{path}: {kept:?}");
    }
}

#[test]
fn torn_file_of_a_killed_writer_delays_no_later_save() {
    let mut script = Script::new(true);
    for hash in ["3fa8b1", "91c0de4"] {
        script.write_bytes(&format!("ckpt-{hash}.pt"), 1000);
        script.write("LATEST");
        script.train(12);
        script.kept();
    }
    script.write_bytes("ckpt-0a1b2c.pt", 300);
    script.dies(ExitStatus { signal: Some(9), ..ExitStatus::default() });
    assert!(!has(&script.kept(), "ckpt-0a1b2c.pt"));
    script.signs.ended = None;
    script.signs.life += 1;
    for hash in ["aa11bb", "cc22dd", "ee33ff"] {
        script.write_bytes(&format!("ckpt-{hash}.pt"), 1000);
        script.write("LATEST");
        script.train(12);
        script.kept();
    }
    script.write_bytes("ckpt-0b1c2d.pt", 1000);
    script.write("LATEST");
    script.train(12);
    assert!(has(&script.kept(), "ckpt-0b1c2d.pt"));
}

#[test]
fn empty_file_of_a_full_disk_delays_no_later_save() {
    let mut script = Script::new(true);
    for (number, hash) in ["3fa8b1", "91c0de4", "0a1b2c", "aa11bb", "cc22dd"].iter().enumerate() {
        let is_full = number == 2;
        script.signs.free_bytes = Some(if is_full { 0 } else { 1 << 30 });
        script.write_bytes(&format!("ckpt-{hash}.pt"), if is_full { 0 } else { 1000 });
        if !is_full {
            script.write("LATEST");
        }
        script.train(40);
        let kept = script.kept();
        assert_eq!(has(&kept, &format!("ckpt-{hash}.pt")), !is_full, "{hash}: {kept:?}");
    }
}

#[test]
fn pointer_is_not_kept_without_the_short_save_that_it_names() {
    let mut script = Script::new(true);
    for step in 1..=6 {
        let is_full = step == 4;
        script.signs.free_bytes = Some(if is_full { 0 } else { 1 << 30 });
        script
            .write_bytes(&format!("checkpoint-{step}/model.pt"), if is_full { 300 } else { 1000 });
        script.wait(1);
        script.write("latest");
        script.train(45);
        let kept = script.kept();
        let is_whole = has(&kept, &format!("checkpoint-{step}/")) && has(&kept, "latest");
        assert_eq!(is_whole, !is_full, "{step}: {kept:?}");
        assert!(!is_full || kept.is_empty(), "the pointer would lead to nothing: {kept:?}");
    }
}

#[test]
fn empty_file_stays_out_when_the_next_number_makes_a_series() {
    let mut script = Script::new(true);
    script.write("config.json");
    script.train(15);
    script.kept();
    script.signs.free_bytes = Some(0);
    script.write_bytes("step_1.pt", 0);
    script.train(15);
    script.signs.free_bytes = Some(1 << 30);
    for step in 2..=4 {
        script.write_bytes(&format!("step_{step}.pt"), 1000);
        script.train(12);
        let kept = script.kept();
        assert!(!kept.contains(&"step_1.pt".into()) || step > 3, "{step}: {kept:?}");
        assert!(kept.contains(&format!("step_{step}.pt")), "{step}: {kept:?}");
    }
}

#[test]
fn deletion_over_two_looks_teaches_no_half_of_a_save() {
    let mut script = Script::new(true);
    for step in 1..=10 {
        if step > 1 {
            script.remove(&format!("optim_{}.pt", step - 1));
            script.wait(1);
            script.remove(&format!("model_{}.pt", step - 1));
            script.wait(1);
        }
        script.write(&format!("model_{step}.pt"));
        script.train(1);
        let kept = script.kept();
        let model = format!("model_{step}.pt");
        assert!(!kept.contains(&model), "its optimizer is still to come: {kept:?}");
        script.write(&format!("optim_{step}.pt"));
        script.train(3);
        script.kept();
    }
}

#[test]
fn index_rewritten_after_each_shard_makes_no_run_folder() {
    let mut script = Script::new(true);
    for shard in 1..=8 {
        script.wait(3);
        script.write(&format!("checkpoint-500/model-{shard:05}-of-00008.safetensors"));
        script.wait(1);
        script.write("checkpoint-500/index.json");
        script.wait(1);
        assert_eq!(script.kept(), [""; 0], "after {shard} of 8");
    }
    script.train(12);
    assert_eq!(script.kept().len(), 9);
}

#[test]
fn last_save_of_a_handler_may_be_a_little_smaller() {
    for (bytes, is_kept) in [(950, true), (300, false)] {
        let mut script = Script::new(true);
        for step in 1..=5 {
            script.write_bytes(&format!("step_{step}.joblib"), 1000);
            script.train(12);
            script.kept();
        }
        script.write_bytes("step_6.joblib", bytes);
        script.dies(ExitStatus { code: Some(143), ..ExitStatus::default() });
        assert_eq!(has(&script.kept(), "step_6.joblib"), is_kept, "{bytes}");
    }
}

/// A worker dies below a living launcher: its half file was the newest checkpoint.
#[test]
fn half_file_of_a_worker_is_not_kept_at_once() {
    let mut script = Script::new(true);
    for _ in 0..4 {
        script.write_bytes("last.pt", 200_000);
        script.train(12);
        script.kept();
    }
    script.write_bytes("last.pt", 100_000);
    for _ in 0..60 {
        script.train(1);
        assert_eq!(script.kept(), [""; 0], "half of it");
    }
    script.write_bytes("last.pt", 200_000);
    script.train(12);
    assert_eq!(script.kept(), ["last.pt"]);
    script.write_bytes("last.pt", 100_000);
    script.train(320);
    assert_eq!(script.kept(), ["last.pt"], "the model became smaller");
}

/// Nothing was kept any more after the optimizer was dropped from the saves.
#[test]
fn saves_that_became_smaller_are_kept_from_the_second_on() {
    for rotates in [false, true] {
        let mut script = Script::new(true);
        let path =
            |save: u64| if rotates { format!("checkpoint-{save}/m.pt") } else { "last.pt".into() };
        let mut last = Vec::new();
        for save in 1..=8 {
            let bytes = if save < 5 { 200_000 } else { 170_000 + save };
            script.write_bytes(&path(save), bytes);
            if rotates && save > 2 {
                script.remove(&path(save - 2));
            }
            script.train(60);
            last = script.kept();
            assert!(save == 5 || has(&last, &path(save)), "save {save}: {last:?}");
        }
        assert!(has(&last, &path(8)), "{last:?}");
    }
}

/// Batch inference resumes from its results, and Optuna from its journal.
#[test]
fn folder_of_logs_alone_is_kept_when_a_save_is_asked_for() {
    let mut script = Script::new(true);
    for _ in 0..5 {
        script.append("results.jsonl");
        script.train(20);
        assert_eq!(script.kept(), [""; 0], "a log alone is no checkpoint");
    }
    script.append("results.jsonl");
    assert_eq!(script.kept_as_asked(), ["results.jsonl"]);
}

/// The first two saves were not kept, which was two hours of work.
#[test]
fn log_without_a_name_of_logs_delays_no_first_save() {
    let mut script = Script::new(true);
    script.open.insert("history.bin".into());
    for _ in 0..5 {
        script.append("history.bin");
        script.train(60);
    }
    script.open.insert("epoch-1.pt".into());
    script.write("epoch-1.pt");
    script.train(1);
    script.open.remove("epoch-1.pt");
    script.train(15);
    let kept = script.kept();
    assert!(has(&kept, "epoch-1.pt"), "{kept:?}");
}

/// Files that are closed between their saves, or written for half an hour, are no logs.
#[test]
fn file_rewritten_in_place_is_kept_however_often_it_grew() {
    for every in [20, 60, 600, 1800] {
        for secs in [0, 3] {
            let mut script = Script::new(true);
            for save in 1..=6 {
                script.write_bytes("last.pt", 1);
                if secs > 0 {
                    script.open.insert("last.pt".into());
                }
                for part in 1..=secs {
                    script.write_bytes("last.pt", 100 * part + save);
                    script.train(1);
                }
                script.open.clear();
                script.write_bytes("last.pt", 1000 + save);
                script.train(every);
                let kept = script.kept();
                assert_eq!(kept, ["last.pt"], "save {save} of {secs} s, each {every} s");
            }
        }
    }
    let mut script = Script::new(true);
    script.open.insert("last.pt".into());
    for part in 0..120 {
        script.append("last.pt");
        script.train(if part % 10 == 9 { 40 } else { 15 });
        assert_eq!(script.kept(), [""; 0], "it is still being written");
    }
}

/// A copied configuration was checkpoint 1 of a job that had saved nothing.
#[test]
fn settings_alone_are_no_checkpoint() {
    let mut script = Script::new(true);
    for path in [".hydra/config.bin", "config.yaml", "README.md", "train.log"] {
        script.write(path);
    }
    script.train(40);
    assert_eq!(script.kept(), [""; 0]);
    script.write("model.pt");
    script.train(40);
    assert!(has(&script.kept(), "config.yaml"), "with a save they are kept");
    // A small script may save in such a file: it is written again, large, or there at the end.
    let mut script = Script::new(true);
    for _ in 0..2 {
        script.write("state.yaml");
        script.train(40);
    }
    assert_eq!(script.kept(), ["state.yaml"]);
    let mut script = Script::new(true);
    script.write_bytes("population.toml", 100_000);
    script.train(40);
    assert_eq!(script.kept(), ["population.toml"]);
    let mut script = Script::new(true);
    script.write("state.yaml");
    script.dies(ExitStatus { code: Some(0), ..ExitStatus::default() });
    assert_eq!(script.kept(), ["state.yaml"]);
}

/// A kill held up whole saves because a file that is written each second may lack its end.
#[test]
fn log_cut_by_a_kill_holds_up_no_save() {
    let mut script = Script::new(true);
    script.open.insert("history.bin".into());
    for _ in 0..6 {
        script.append("history.bin");
        script.train(40);
    }
    script.write("epoch-1.pt");
    script.train(15);
    script.append("history.bin");
    script.dies(ExitStatus { signal: Some(9), ..ExitStatus::default() });
    assert!(has(&script.kept(), "epoch-1.pt"));
}

#[test]
fn file_named_by_a_uuid_is_kept_once_its_pointer_is_written() {
    let (mut script, mut before) = (Script::new(true), String::new());
    let names = [
        "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
        "6fa459ea-ee8a-3ca4-894e-db77e160355e",
        "00000000-aaaa-4bbb-8ccc-123456789012",
    ];
    for name in names {
        let path = format!("model_{name}.pt");
        script.write(&path);
        script.wait(1);
        point_to(&mut script, &path, &before);
        before = path;
    }
}
