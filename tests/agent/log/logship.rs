//! The log as the job directory ends up with it, byte for byte.

use std::cell::RefCell;
use std::io::Write;

use lamplighter::agent::activity_counters::ActivityCounters;
use lamplighter::agent::log::handle::{BYTES_MAX_DEFAULT, LogShip};
use lamplighter::agent::log::shipping_state::{LogPace, LogSettings};
use lamplighter::agent::report::journal::Journal;
use lamplighter::ports::Clock;

use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::{simulate, until};

const SEGMENT: usize = 4 << 20;

/// Writes segments as the holder does.
struct Printer<'a> {
    rig: &'a Rig,
    start: u32,
    at: RefCell<(u32, usize)>,
}

impl<'a> Printer<'a> {
    fn new(rig: &'a Rig, start: u32) -> Self {
        let printer = Printer { rig, start, at: RefCell::new((1, 0)) };
        std::fs::create_dir_all(printer.dir().join("log")).unwrap();
        printer
    }

    fn dir(&self) -> std::path::PathBuf {
        self.rig.path(&format!("start-{}", self.start))
    }

    fn print(&self, mut bytes: &[u8]) {
        let mut at = self.at.borrow_mut();
        while !bytes.is_empty() {
            if at.1 == SEGMENT {
                *at = (at.0 + 1, 0);
            }
            let part = &bytes[..bytes.len().min(SEGMENT - at.1)];
            let path = self.dir().join("log").join(format!("{:08}.log", at.0));
            std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .unwrap()
                .write_all(part)
                .unwrap();
            at.1 += part.len();
            bytes = &bytes[part.len()..];
        }
    }

    fn segments(&self) -> usize {
        std::fs::read_dir(self.dir().join("log")).unwrap().count()
    }
}

fn start(rig: &Rig, board: &ActivityCounters, settings: LogSettings) -> LogShip {
    LogShip::start(rig.outbox(), Journal::start(rig.outbox()), board.clone(), settings)
}

fn plain() -> LogSettings {
    LogSettings {
        bytes_max: BYTES_MAX_DEFAULT,
        pattern: None,
        done_line: None,
        pace: LogPace::Followed,
    }
}

/// The log as a reader puts it together.
fn shipped(rig: &Rig) -> Vec<u8> {
    let frames = rig.store.keys("/log/").into_iter().map(|key| rig.store.object(&key).unwrap());
    frames.flat_map(|frame| zstd::decode_all(&frame[..]).unwrap()).collect()
}

/// Bytes that do not compress and do not repeat.
fn noise(bytes: usize) -> Vec<u8> {
    let mut seed = 7u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed.to_be_bytes()
    };
    let mut noise: Vec<u8> = (0..bytes / 8 + 1).flat_map(|_| next()).collect();
    noise.truncate(bytes);
    noise
}

/// Waits until the job directory takes no more of the log.
async fn settled(rig: &Rig) {
    let mut pieces = usize::MAX;
    while rig.store.keys("/log/").len() != pieces {
        pieces = rig.store.keys("/log/").len();
        // Longer than between two looks that nobody asks for.
        rig.clock.sleep(secs(5)).await;
    }
}

#[test]
fn log_line_arrives_within_2_s_and_binary_is_kept_exactly() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let (board, printer) = (ActivityCounters::default(), Printer::new(&rig, 1));
        let ship = start(&rig, &board, plain());
        ship.follow(1, &printer.dir());
        clock.sleep(secs(10)).await;
        printer.print(b"hello\n");
        // At its next tick, a second later at most, the loop sees that something was printed.
        clock.sleep(secs(1)).await;
        ship.look(6);
        until(&clock, "the line is shipped", secs(1), || shipped(&rig) == b"hello\n").await;
        let mut all = b"hello\n".to_vec();
        for part in [noise(5_000_000), vec![b'x'; 10 << 20], b"\xff\xfe\0\n".to_vec()] {
            printer.print(&part);
            all.extend(part);
        }
        settled(&rig).await;
        assert!(shipped(&rig) == all);
        until(&clock, "only the newest segment is left", secs(5), || printer.segments() == 1).await;
        assert_eq!(board.marks().log_bytes, all.len() as u64);
        ship.ended(1);
        assert!(ship.finish(secs(5)).await.is_empty());
    });
}

#[test]
fn store_outage_loses_no_log_and_does_not_hide_progress() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let (board, printer) = (ActivityCounters::default(), Printer::new(&rig, 1));
        let settings = LogSettings {
            pattern: Some(r"step (\d+)".into()),
            done_line: Some("finished".into()),
            ..plain()
        };
        let ship = start(&rig, &board, settings);
        ship.follow(1, &printer.dir());
        rig.store.fault("/log/", Fault::Hang, 1);
        rig.store.fault("/log/", Fault::LostReply, 2);
        rig.store.fault("/log/", Fault::Down, None);
        for step in 0..1200 {
            printer.print(format!("step {step} loss 0.1\n").as_bytes());
            // As the loop does at each tick.
            ship.look(step);
            clock.sleep(secs(1)).await;
        }
        assert_eq!((board.progress().step, board.marks().progress), (Some(1199.0), 1200));
        assert_eq!(board.progress().secs_per_step, Some(1.0));
        printer.print(b"finished\n");
        ship.look(1200);
        until(&clock, "the done line is seen", secs(2), || board.done().is_some()).await;
        rig.store.mend();
        ship.ended(1);
        assert!(ship.finish(secs(30)).await.is_empty());
        let expected: String =
            (0..1200).map(|step| format!("step {step} loss 0.1\n")).collect::<String>()
                + "finished\n";
        assert_eq!(String::from_utf8(shipped(&rig)).unwrap(), expected);
        let first = rig.store.writes("/log/00000001.zst");
        assert!(
            first.len() >= 3 && first.iter().all(|(_, body)| *body == first[0].1),
            "the same bytes under the same key"
        );
    });
}

#[test]
fn restarted_agent_neither_repeats_nor_skips() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let printer = Printer::new(&rig, 1);
        let mut all = Vec::new();
        for round in 0..6 {
            let ship = start(&rig, &ActivityCounters::default(), plain());
            ship.follow(1, &printer.dir());
            let text = noise(700_000 + round);
            printer.print(&text);
            all.extend(text);
            if round % 2 == 0 {
                rig.store.fault("/log/", Fault::LostReply, None);
            }
            clock.sleep(secs(3)).await;
            drop(ship);
            // It died in the middle of a line.
            append(&rig.outbox().state.join("log.json"), b"{\"follows\":[{\"sta");
            rig.store.mend();
        }
        let ship = start(&rig, &ActivityCounters::default(), plain());
        ship.follow(1, &printer.dir());
        ship.ended(1);
        assert!(ship.finish(secs(10)).await.is_empty());
        assert!(shipped(&rig) == all);
    });
}

#[test]
fn log_beyond_its_bound_keeps_head_and_end_and_tells_the_gap() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let printer = Printer::new(&rig, 1);
        let ship = start(
            &rig,
            &ActivityCounters::default(),
            LogSettings { bytes_max: 8 << 20, ..plain() },
        );
        ship.follow(1, &printer.dir());
        let all = noise(30 << 20);
        for part in all.chunks(2 << 20) {
            printer.print(part);
            clock.sleep(secs(2)).await;
        }
        assert!(printer.segments() <= 3, "the holder has room: {}", printer.segments());
        ship.ended(1);
        let losses = ship.finish(secs(10)).await;
        let log = shipped(&rig);
        let (head, tail) = (8 << 20, 4 << 20);
        let left_out = all.len() - head - tail;
        let line = format!("\n[lamp: {left_out} bytes of output were left out here]\n");
        assert_eq!(
            losses,
            [format!(
                "{left_out} bytes in the middle of the log were left out: it is longer than its bound"
            )]
        );
        assert!(log[..head] == all[..head]);
        assert_eq!(&log[head..head + line.len()], line.as_bytes());
        assert!(log[head + line.len()..] == all[all.len() - tail..]);
    });
}

#[test]
fn several_starts_are_one_log_with_a_line_between() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let ship = start(&rig, &ActivityCounters::default(), plain());
        for start in 1..=3 {
            let printer = Printer::new(&rig, start);
            ship.follow(start, &printer.dir());
            ship.follow(start, &printer.dir());
            printer.print(format!("output {start}\n").as_bytes());
            clock.sleep(secs(if start == 2 { 0 } else { 5 })).await;
            ship.ended(start);
        }
        assert!(ship.finish(secs(10)).await.is_empty());
        let log = String::from_utf8(shipped(&rig)).unwrap();
        assert_eq!(
            log,
            "output 1\n\n[lamp: start 2 of the workload]\noutput 2\n\n[lamp: start 3 of the workload]\noutput 3\n"
        );
    });
}

#[test]
fn flood_is_shipped_at_a_bounded_rate() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let printer = Printer::new(&rig, 1);
        let (board, text) = (ActivityCounters::default(), b"a line of a flood\n".repeat(100_000));
        for _ in 0..30 {
            printer.print(&text);
        }
        let ship =
            start(&rig, &board, LogSettings { pattern: Some(r"^step (\d+)".into()), ..plain() });
        ship.follow(1, &printer.dir());
        let begun = clock.mono();
        let bytes = text.len() as u64 * 30;
        until(&clock, "the flood is shipped", secs(30), || {
            board.marks().log_bytes == bytes && printer.segments() == 1
        })
        .await;
        let rate = bytes as f64 / (clock.mono() - begun).as_secs_f64() / 1e6;
        assert!(rate < 40.0, "{rate} MB/s");
    });
}

#[test]
fn finish_ends_at_its_deadline_and_says_what_is_missing() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let printer = Printer::new(&rig, 1);
        let ship = start(&rig, &ActivityCounters::default(), plain());
        ship.follow(1, &printer.dir());
        rig.store.fault("/log/", Fault::Denied, None);
        printer.print(&vec![b'x'; 5 << 20]);
        ship.ended(1);
        let begun = clock.mono();
        let losses = ship.finish(secs(5)).await;
        assert_eq!(clock.mono() - begun, secs(5));
        assert_eq!(
            losses,
            [
                "the end of the log was not kept, about 5242880 bytes: the store did not take it in time"
            ]
        );
        // Nothing was printed at all: nothing to wait for.
        let empty = start(&Rig::new(clock.clone()), &ActivityCounters::default(), plain());
        assert!(empty.finish(secs(5)).await.is_empty());
    });
}

fn append(path: &std::path::Path, bytes: &[u8]) {
    use std::io::Write as _;
    std::fs::OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(bytes))
        .expect("the state is there");
}
