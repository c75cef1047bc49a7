//! What the agent tells the dead-man's switch.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use lamplighter::agent::shutdown::deadman::{Deadman, SwitchFiles};
use lamplighter::ports::Clock;

use lamp_test_support::inline_files::InlineFiles;

/// Two clocks, set by hand.
struct HandClock(Mutex<(Timestamp, Duration)>);

#[async_trait]
impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        self.0.lock().unwrap().0
    }

    fn mono(&self) -> Duration {
        self.0.lock().unwrap().1
    }

    fn boot(&self) -> String {
        String::new()
    }

    async fn sleep(&self, _: Duration) {
        unreachable!("nobody waits here")
    }
}

struct Bench {
    folder: tempfile::TempDir,
    files: Arc<InlineFiles>,
    clock: Arc<HandClock>,
    deadman: Deadman,
}

const START: i64 = 1_800_000_000;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(START + secs).unwrap()
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (files, clock) = (
            Arc::new(InlineFiles::default()),
            Arc::new(HandClock(Mutex::new((at(0), Duration::ZERO)))),
        );
        let paths = SwitchFiles {
            deadline: folder.path().join("lamplighter/deadline"),
            alive: folder.path().join("run/alive"),
        };
        let deadman = Deadman::new(paths, Duration::from_secs(1800), files.clone(), clock.clone());
        Bench { folder, files, clock, deadman }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("lamplighter/deadline")
    }

    /// When the agent last said that it is alive, in seconds after the start, and how long a
    /// silence may last.
    fn alive(&self) -> (i64, i64) {
        let text = std::fs::read_to_string(self.folder.path().join("run/alive")).unwrap();
        let (said, lease) = text.strip_suffix('\n').unwrap().split_once(' ').unwrap();
        (said.parse::<i64>().unwrap() - START, lease.parse().unwrap())
    }

    /// Lets so many seconds pass, each with its tick, and gives the deadline after them, in seconds
    /// after the start.
    fn pass(&self, secs: i64, hard_end: Option<i64>) -> Option<i64> {
        for _ in 0..secs.max(1) {
            if secs > 0 {
                let mut clock = self.clock.0.lock().unwrap();
                clock.0 += SignedDuration::from_secs(1);
                clock.1 += Duration::from_secs(1);
            }
            // As the agent counts it: from the start, by the clock that never steps.
            let steady = at(0) + SignedDuration::try_from(self.clock.mono()).unwrap();
            self.deadman.say_alive();
            self.deadman.renew(hard_end.map(at), steady);
        }
        let text = std::fs::read_to_string(self.file()).ok()?;
        Some(text.strip_suffix('\n').unwrap().parse::<i64>().unwrap() - START)
    }

    fn set_the_wall_clock(&self, secs: i64) {
        self.clock.0.lock().unwrap().0 += SignedDuration::from_secs(secs);
    }
}

#[test]
fn it_is_the_machines_hard_end_and_follows_when_that_is_raised() {
    let bench = Bench::new();
    assert_eq!(bench.pass(0, Some(7200)), Some(7200), "at the first tick");
    let first = std::fs::metadata(bench.file()).unwrap().modified().unwrap();
    assert_eq!(bench.pass(3600, Some(7200)), Some(7200));
    assert_eq!(
        std::fs::metadata(bench.file()).unwrap().modified().unwrap(),
        first,
        "not written anew for nothing"
    );
    assert_eq!(bench.pass(1, Some(9000)), Some(9000), "it was raised");
    assert_eq!(
        bench.pass(1, Some(3000)),
        Some(3601 + 1),
        "it has passed: now, and not in the past"
    );
}

/// A wall clock that is set by a day must not fire the switch, which knows nothing else.
#[test]
fn a_clock_that_is_set_takes_the_deadline_with_it() {
    let bench = Bench::new();
    assert_eq!(bench.pass(100, Some(7200)), Some(7200));
    bench.set_the_wall_clock(86_400);
    assert_eq!(bench.pass(1, Some(7200)), Some(7200 + 86_400));
    bench.set_the_wall_clock(-2 * 86_400);
    assert_eq!(bench.pass(1, Some(7200)), Some(7200 - 86_400));
}

#[test]
fn without_a_hard_end_it_stays_a_day_ahead() {
    let bench = Bench::new();
    assert_eq!(bench.pass(0, None), Some(86_400));
    assert_eq!(bench.pass(599, None), Some(86_400));
    assert_eq!(bench.pass(1, None), Some(86_400 + 600));
}

#[test]
fn full_disk_keeps_the_old_one_and_is_tried_again() {
    let bench = Bench::new();
    assert_eq!(bench.pass(0, Some(7200)), Some(7200));
    bench.files.full.store(true, Ordering::Relaxed);
    assert_eq!(bench.pass(1, Some(9000)), Some(7200));
    bench.files.full.store(false, Ordering::Relaxed);
    assert_eq!(bench.pass(9, Some(9000)), Some(7200), "not every second");
    assert_eq!(bench.pass(1, Some(9000)), Some(9000));
}

#[test]
fn switch_hears_of_agent_each_10_s_and_when_the_clock_is_set() {
    let bench = Bench::new();
    bench.pass(0, None);
    assert_eq!(bench.alive(), (0, 1800));
    bench.pass(9, None);
    assert_eq!(bench.alive(), (0, 1800), "not every second");
    bench.pass(1, None);
    assert_eq!(bench.alive(), (10, 1800));
    bench.set_the_wall_clock(86_400);
    bench.pass(1, None);
    assert_eq!(bench.alive(), (86_411, 1800), "it would look like a silence");
    bench.set_the_wall_clock(-2 * 86_400);
    bench.pass(1, None);
    assert_eq!(bench.alive(), (12 - 86_400, 1800), "it would hide one");
    bench.files.full.store(true, Ordering::Relaxed);
    bench.pass(20, None);
    bench.files.full.store(false, Ordering::Relaxed);
    bench.pass(10, None);
    assert_eq!(bench.alive(), (42 - 86_400, 1800), "what failed is tried again");
}
