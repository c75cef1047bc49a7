//! The progress file as workloads really write it.

use std::io::Write;

use lamplighter::agent::activity_counters::ActivityCounters;
use lamplighter::agent::log::progress_tail::ProgressTail;
use lamplighter::agent::report::journal::Journal;
use lamplighter::ports::Clock;

use crate::{Rig, secs};
use lamp_test_support::virtual_clock::simulate;

fn append(rig: &Rig, text: impl AsRef<[u8]>) {
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(rig.path("progress.jsonl"))
        .unwrap();
    file.write_all(text.as_ref()).unwrap();
}

fn tail(rig: &Rig, board: &ActivityCounters, journal: &Journal) -> ProgressTail {
    let (path, done) = (rig.path("progress.jsonl"), rig.path("done"));
    ProgressTail::new(
        rig.files.clone(),
        rig.clock.clone(),
        board.clone(),
        journal.clone(),
        path,
        Some(done),
    )
}

#[test]
fn steps_give_a_pace_and_the_median_outvotes_a_pause() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let (board, journal) = (ActivityCounters::default(), Journal::start(rig.outbox()));
        let tail = tail(&rig, &board, &journal);
        tail.poll();
        for step in 1..=20 {
            append(&rig, format!("{{\"step\": {step}, \"total\": 100, \"loss\": 0.5}}\n"));
            tail.poll();
            clock.sleep(secs(if step == 10 { 600 } else { 3 })).await;
        }
        let progress = board.progress();
        assert_eq!(
            (progress.step, progress.total, progress.secs_per_step),
            (Some(20.0), Some(100.0), Some(3.0))
        );
        assert_eq!(board.marks().progress, 20);
    });
}

#[test]
fn broken_lines_are_signs_of_life_and_said_once() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let (board, journal) = (ActivityCounters::default(), Journal::start(rig.outbox()));
        let tail = tail(&rig, &board, &journal);
        tail.poll();
        append(&rig, b"step 3\n\n{\"step\": \"x\"}\n\xff\xfe\n{\"step\": 4");
        tail.poll();
        assert_eq!(
            (board.marks().progress, board.progress().step),
            (3, None),
            "half a line waits for its end"
        );
        append(&rig, "}\n");
        append(&rig, vec![b'x'; 10 << 20]);
        for _ in 0..12 {
            tail.poll();
        }
        append(&rig, "\n{\"step\": 5, \"checkpoint\": \"a\", \"done\": true}\n");
        tail.poll();
        assert_eq!(board.progress().step, Some(5.0));
        assert_eq!(board.done(), Some(clock.mono()));
        assert!(journal.flush(secs(5)).await);
        let said = rig.attention().await;
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("`step 3`") && said[1].contains("cannot be taken: `step: \"x\"`"),
            "{said:?}"
        );
    });
}

/// A rank of a gang writes it between two engines.
#[test]
fn next_epoch_forgets_that_the_work_was_done() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let (board, journal) = (ActivityCounters::default(), Journal::start(rig.outbox()));
        let tail = tail(&rig, &board, &journal);
        tail.poll();
        append(&rig, "{\"step\": 5, \"done\": true}\n{\"step\":");
        append(&rig, "\n{\"gang_epoch\": 2}\n");
        tail.poll();
        assert_eq!((board.done(), board.progress().step), (None, Some(5.0)));
        assert_eq!(board.marks().progress, 2, "it is no sign of the workload");
        append(&rig, "{\"step\": 1}\n");
        tail.poll();
        assert_eq!(board.progress().step, Some(1.0));
    });
}

#[test]
fn file_that_begins_anew_and_a_step_that_goes_back() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let (board, journal) = (ActivityCounters::default(), Journal::start(rig.outbox()));
        append(&rig, "{\"step\": 100, \"checkpoint\": \"old\"}\n");
        let tail = tail(&rig, &board, &journal);
        tail.poll();
        assert_eq!(board.progress().step, Some(100.0), "what was there before counts");
        std::fs::write(rig.path("progress.jsonl"), "{\"step\": 7}\n").unwrap();
        // As the loop does at each tick.
        for _ in 0..2 {
            clock.sleep(secs(1)).await;
            tail.poll();
        }
        append(&rig, "{\"step\": 8}\n");
        // As the loop does at each tick.
        for _ in 0..2 {
            clock.sleep(secs(1)).await;
            tail.poll();
        }
        let progress = board.progress();
        assert_eq!(progress.step, Some(8.0));
        let pace = progress.secs_per_step.unwrap();
        assert!((1.5..=3.0).contains(&pace), "as exact as the polls: {pace}");
        assert_eq!(board.done(), None);
        std::fs::write(rig.path("done"), "").unwrap();
        tail.poll();
        let done = board.done();
        clock.sleep(secs(60)).await;
        tail.poll();
        assert_eq!(board.done(), done, "the first moment stands");
    });
}

/// A line without a step came after the newest step, and moved its time behind a save.
#[test]
fn later_line_without_a_step_keeps_the_time_of_the_newest_step() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let (board, journal) = (ActivityCounters::default(), Journal::start(rig.outbox()));
        let tail = tail(&rig, &board, &journal);
        tail.poll();
        let write_at = |text: &str, second: u64| {
            append(&rig, text);
            let file = std::fs::File::options().append(true).open(rig.path("progress.jsonl"));
            let time = std::time::UNIX_EPOCH + secs(second);
            file.unwrap().set_modified(time).unwrap();
            tail.poll();
        };
        write_at("{\"step\": 1}\n", 100);
        let told = board.reports();
        assert_eq!(told, (1, Some(100_000_000_000)));
        write_at("{\"loss\": 0.5}\n", 200);
        assert_eq!(board.reports(), told);
        write_at("{\"step\": 2}\n", 300);
        assert_eq!(board.reports(), (2, Some(300_000_000_000)));
    });
}
