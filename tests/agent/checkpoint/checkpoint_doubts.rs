//! What is half is never kept: a process that was killed, a mark of before, a save in the middle of
//! another.

use std::sync::atomic::Ordering;

use lamplighter::agent::checkpoint::save_request::Saved;
use lamplighter::agent::log::progress_tail::ProgressTail;
use lamplighter::ports::Clock;

use crate::checkpoint::checkpoints::{EXIT, KILLED, Watched, write};
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{simulate, until};

/// What was half at a killing has rested for long when the next process has come so far.
#[test]
fn half_a_save_is_not_kept_once_the_script_was_started_again() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.write("model.pt", "step 1, the whole");
        watched.complete(1).await;
        clock.sleep(secs(700)).await;
        watched.write("model.pt", "step 2");
        watched.checkpoints.workload_ended(KILLED);
        watched.checkpoints.workload_started(None);
        clock.sleep(secs(900)).await;
        assert_eq!(watched.checkpoints.count(), 1, "half of it");
        watched.write("model.pt", "step 2, the whole");
        let manifest = watched.complete(2).await;
        assert_eq!(watched.read(&manifest, "model.pt"), "step 2, the whole");
    });
}

#[test]
fn half_a_save_after_a_reboot_is_not_kept_and_the_end_says_so() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.write("model.pt", "step 1, the whole");
        watched.complete(1).await;
        let Watched { rig, checkpoints, .. } = watched;
        drop(checkpoints);
        write(&rig, "ckpt", "model.pt", "step 2");
        let watched = Watched::after_a_reboot(rig);
        clock.sleep(secs(900)).await;
        assert_eq!(watched.checkpoints.count(), 1, "half of it");
        let asked = clock.mono();
        let saved =
            watched.checkpoints.save(watched.checkpoints.as_is(), "the end", secs(600)).await;
        assert!(
            matches!(&saved, Saved::Failed(why) if why.contains("may be half of a checkpoint")),
            "{saved:?}"
        );
        assert!(clock.mono() - asked < secs(5));
        watched.write("model.pt", "step 2, the whole");
        let manifest = watched.complete(2).await;
        assert_eq!(watched.read(&manifest, "model.pt"), "step 2, the whole");
    });
}

/// Seeds 1317 and 1438 of pairs: the newest of a series was written when the workload was killed,
/// an older one had been cleared away, and what was left of the series was kept once more: that was
/// the answer, and nobody was told of the loss.
#[test]
fn save_of_a_series_fails_while_its_newest_file_may_be_half() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        for step in [100, 200] {
            watched.write(&format!("step-{step}.pt"), &format!("step {step}"));
        }
        watched.complete(1).await;
        // Within the interval: nothing is uploaded before it is asked for.
        clock.sleep(secs(100)).await;
        watched.write("step-300.pt", "step 300");
        std::fs::remove_file(watched.rig.path("ckpt/step-100.pt")).unwrap();
        clock.sleep(secs(1)).await;
        watched.checkpoints.workload_ended(KILLED);
        let saved =
            watched.checkpoints.save(watched.checkpoints.as_is(), "the end", secs(600)).await;
        assert!(
            matches!(&saved, Saved::Failed(why) if why.contains("may be half of a checkpoint")),
            "{saved:?}"
        );
    });
}

/// Seeds 92003063 and 92003332 of 24 h: the disk was full, so that no agent after it knew of the
/// newest checkpoint. Its newest save was doubted, the rest was kept once more, and the next
/// machine went on from that.
#[test]
fn unknown_newest_checkpoint_is_not_replaced_by_an_older_save() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        for step in [100, 200] {
            watched.write(&format!("step-{step}.pt"), &format!("step {step}"));
        }
        watched.complete(1).await;
        clock.sleep(secs(700)).await;
        watched.rig.files.full.store(true, Ordering::Relaxed);
        watched.write("step-300.pt", "step 300");
        std::fs::remove_file(watched.rig.path("ckpt/step-100.pt")).unwrap();
        let newest = watched.complete(2).await;
        let Watched { rig, checkpoints, .. } = watched;
        drop(checkpoints);
        let watched = Watched::again(rig);
        watched.checkpoints.workload_ended(KILLED);
        let saved =
            watched.checkpoints.save(watched.checkpoints.as_is(), "the end", secs(60)).await;
        assert!(
            matches!(&saved, Saved::Failed(why) if why.contains("may be half of a checkpoint")),
            "it cannot know: {saved:?}"
        );
        let numbers = watched.rig.dir().checkpoint_numbers().await.unwrap();
        assert_eq!(
            numbers.last(),
            Some(&newest.number),
            "nothing is kept that is older than what is: {saved:?}"
        );
        assert_eq!(watched.checkpoints.last(), Some(newest.summary()));
    });
}

/// The answer of one save is none to another: the final checkpoint of a series was lost, and nobody
/// was told.
#[test]
fn save_during_the_upload_of_another_has_its_own_answer() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        for step in [100, 200] {
            watched.write(&format!("step-{step}.pt"), &format!("step {step}"));
            clock.sleep(secs(10)).await;
        }
        watched.rig.store.fault("/files/step-300", Fault::Slow(secs(60)), None);
        clock.sleep(secs(700)).await;
        let ask = watched.checkpoints.ask().await;
        watched.write("step-300.pt", "step 300");
        let earlier = watched.checkpoints.clone();
        let earlier = tokio::spawn(async move { earlier.save(ask, "notice", secs(300)).await });
        clock.sleep(secs(20)).await;
        watched.write("step-400.pt", "step 400");
        watched.checkpoints.workload_ended(EXIT);
        let saved =
            watched.checkpoints.save(watched.checkpoints.as_is(), "the end", secs(300)).await;
        let Saved::Complete(last) = saved else { panic!("{saved:?}") };
        let manifest = watched.rig.dir().manifest(last.number).await.unwrap().unwrap();
        assert_eq!(watched.read(&manifest, "step-400.pt"), "step 400");
        assert!(matches!(earlier.await.unwrap(), Saved::Failed(_)), "a newer one took its place");
    });
}

/// What a rebalance is for would come an interval later.
#[test]
fn save_that_ran_out_of_time_is_retried_before_the_interval() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("/files/", Fault::Slow(secs(50)), None);
        let ask = watched.checkpoints.ask().await;
        watched.write("a.pt", "one");
        let saved = watched.checkpoints.save(ask, "notice", secs(40)).await;
        assert!(
            matches!(&saved, Saved::Failed(why) if why.contains("when the time was up")),
            "{saved:?}"
        );
        until(&clock, "the next try", secs(200), || watched.checkpoints.last().is_some()).await;
    });
}

/// Seed 33000455 of 24 h of the false world: the next save began with the line that followed the
/// mark, at the same time by the clock of the file system, whose tick is some milliseconds.
#[test]
fn save_begun_with_the_line_after_a_mark_is_not_marked_by_it() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        let (rig, board) = (&watched.rig, watched.board.clone());
        let progress = rig.path("progress.jsonl");
        let tail = ProgressTail::new(
            rig.files.clone(),
            clock.clone(),
            board,
            watched.journal.clone(),
            progress.clone(),
            None,
        );
        let at = |path: &std::path::Path, secs| {
            let file = std::fs::File::options().append(true).open(path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + crate::secs(secs)).unwrap();
        };
        std::fs::write(&progress, "{\"step\": 1}\n").unwrap();
        tail.poll();
        for (name, secs) in [("model-1.pt", 10), ("optim-1.pt", 11), ("model-2.pt", 12)] {
            watched.write(name, name);
            at(&rig.path("ckpt").join(name), secs);
        }
        std::fs::write(&progress, "{\"step\": 1}\n{\"checkpoint\": \"one\"}\n{\"step\": 2}\n")
            .unwrap();
        at(&progress, 12);
        tail.poll();
        let manifest = watched.complete(1).await;
        let kept: Vec<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(kept, ["model-1.pt", "optim-1.pt"], "and no half of the second");
    });
}

/// Found by seed 28001301 of the false world: a mark that was made while nobody looked was taken
/// for one of what was being written when the store answered again.
#[test]
fn mark_from_an_outage_does_not_cover_the_save_being_written() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        let (rig, board) = (&watched.rig, watched.board.clone());
        let progress = rig.path("progress.jsonl");
        let tail = ProgressTail::new(
            rig.files.clone(),
            clock.clone(),
            board,
            watched.journal.clone(),
            progress.clone(),
            None,
        );
        rig.store.fault("", Fault::Down, None);
        let mut said = String::new();
        for step in 1..=3 {
            for part in ["model.pt", "optimizer.pt"] {
                watched.write(part, &format!("step {step}"));
            }
            said += &format!("{{\"step\": {step}}}\n{{\"checkpoint\": \"step-{step}\"}}\n");
            std::fs::write(&progress, &said).unwrap();
            tail.poll();
            clock.sleep(secs(200)).await;
        }
        // The first half of a save, and the store comes back before the second.
        watched.write("model.pt", "step 4");
        clock.sleep(secs(30)).await;
        rig.store.mend();
        clock.sleep(secs(120)).await;
        assert_eq!(watched.checkpoints.last(), None, "half of a save");
        watched.write("optimizer.pt", "step 4");
        said += "{\"step\": 4}\n{\"checkpoint\": \"step-4\"}\n";
        std::fs::write(&progress, &said).unwrap();
        tail.poll();
        until(&clock, "the whole of it", secs(30), || watched.checkpoints.last().is_some()).await;
        let manifest =
            rig.dir().manifest(watched.checkpoints.last().unwrap().number).await.unwrap().unwrap();
        assert_eq!(manifest.step, Some(4.0));
        assert_eq!(
            ["model.pt", "optimizer.pt"].map(|part| watched.read(&manifest, part)),
            ["step 4", "step 4"]
        );
    });
}

/// A progress file of hours takes a new agent several looks to read, and the marks in it are of
/// before, however late they are read.
#[test]
fn marks_of_a_long_progress_file_are_old_for_a_new_agent() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        let (rig, progress) = (&watched.rig, watched.rig.path("progress.jsonl"));
        let line = |step: u64| {
            format!(
                "{{\"step\": {step}, \"checkpoint\": \"step-{step}\", \"message\": \"{}\"}}\n",
                "x".repeat(60)
            )
        };
        let mut said: String = (1..=30_000).map(line).collect();
        assert!(said.len() > 3 << 20);
        std::fs::write(&progress, &said).unwrap();
        let tail = ProgressTail::new(
            rig.files.clone(),
            clock.clone(),
            watched.board.clone(),
            watched.journal.clone(),
            progress.clone(),
            None,
        );
        for second in 0..20 {
            watched.write("model.pt", &"x".repeat(100 + second));
            tail.poll();
            clock.sleep(secs(1)).await;
        }
        assert_eq!(
            (watched.checkpoints.last(), watched.board.progress().step),
            (None, Some(30_000.0))
        );
        said += &line(30_001);
        std::fs::write(&progress, &said).unwrap();
        tail.poll();
        assert_eq!(watched.complete(1).await.step, Some(30_001.0));
    });
}

#[test]
fn save_out_of_time_says_numbers_and_leaves_no_manifest() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        watched.rig.store.fault("b.pt", Fault::Hang, None);
        watched.write("a.pt", &"x".repeat(1_000_000));
        watched.write("b.pt", &"y".repeat(2_000_000));
        let saved = watched.checkpoints.save(watched.checkpoints.as_is(), "notice", secs(30)).await;
        assert_eq!(saved, Saved::Failed("1.0 of 3.0 MB were uploaded when the time was up".into()));
        assert!(watched.rig.store.keys("manifest.json").is_empty());
        // The store answers again: what was sent is not sent again.
        watched.rig.store.mend();
        let saved = watched.checkpoints.save(watched.checkpoints.as_is(), "notice", secs(30)).await;
        assert!(matches!(saved, Saved::Complete(_)), "{saved:?}");
        assert_eq!(watched.rig.store.writes("a.pt").len(), 1);
    });
}

/// A script clears its oldest save away, gathers for some seconds what it has to save, and writes
/// it.
#[test]
fn rest_of_a_kept_save_does_not_delay_the_next_by_an_interval() {
    simulate(async |clock| {
        let watched = Watched::new(Rig::new(clock.clone()));
        for step in [100, 200] {
            watched.write(&format!("step-{step}.pt"), &format!("step {step}"));
        }
        watched.complete(1).await;
        clock.sleep(secs(700)).await;
        std::fs::remove_file(watched.rig.path("ckpt/step-100.pt")).unwrap();
        clock.sleep(secs(10)).await;
        watched.write("step-300.pt", "step 300");
        clock.sleep(secs(10)).await;
        let newest = watched.checkpoints.last().unwrap().number;
        let manifest = watched.rig.dir().manifest(newest).await.unwrap().unwrap();
        assert_eq!(watched.read(&manifest, "step-300.pt"), "step 300");
    });
}
