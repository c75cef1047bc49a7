//! One daemon over ten thousand machines: the shipped controller over a false bucket and a false
//! region, in this process.
//!
//! Time is made: the daemon's pause between two ticks is when all agents write a heartbeat, and
//! costs nothing. What is measured is a tick: the processor time of this process, which copies the
//! false world's answers too, and the calls that a real bucket and a real region would take (a call
//! for a thousand names or machines). Reading real answers, which are XML and JSON from a socket,
//! is not in it.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use lamplighter::controller::Controller;
use lamplighter::market::{self, Zone};
use lamplighter::ports::{Clock, Cloud};
use tokio::sync::Notify;

use super::machine::{kib, quantile};
use lamp_test_support::fleet::{Fleet, FleetCloud, OWNER, job, sums};

/// Ticks that nothing but heartbeats precedes; the names of all jobs are listed in one or two of
/// them.
const QUIET_TICKS: usize = 30;

/// Open and ended jobs.
const FLEETS: &[(usize, usize)] = &[(10, 0), (10, 10_000), (100, 0), (1_000, 0), (10_000, 0)];

/// Each in a process of its own, for its memory.
pub fn measure() {
    println!(
        "{:>6} {:>6}  {:<34} {:>9} {:>9} {:>10} {:>10} {:>8}",
        "open", "ended", "", "store", "cloud", "CPU ms", "most", "MiB"
    );
    let program = std::env::current_exe().expect("we know our own path");
    for (open, ended) in FLEETS {
        let done = Command::new(&program)
            .args(["fleet-one", &open.to_string(), &ended.to_string()])
            .status();
        assert!(done.is_ok_and(|status| status.success()), "a fleet of {open} could not be driven");
    }
}

/// One tick: what it cost.
struct Cost {
    store: usize,
    cloud: usize,
    cpu: Duration,
    resident_kib: u64,
}

/// Jumps at each sleep, after whatever the world does in the meantime.
struct SteppedClock {
    now: Mutex<Duration>,
    step: Mutex<Option<Box<dyn FnMut() -> bool + Send>>>,
    over: Notify,
}

#[async_trait]
impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        "2026-11-20T21:00:00Z".parse::<Timestamp>().expect("a time") + self.mono()
    }

    fn mono(&self) -> Duration {
        *self.now.lock().expect("one thread")
    }

    fn boot(&self) -> String {
        String::new()
    }

    async fn sleep(&self, time: Duration) {
        *self.now.lock().expect("one thread") += time;
        let goes_on = self.step.lock().expect("one thread").as_mut().is_none_or(|step| step());
        if !goes_on {
            self.over.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

pub fn one(words: &[String]) {
    let number =
        |index: usize| words.get(index).and_then(|word| word.parse().ok()).expect("two numbers");
    let (open, ended): (usize, usize) = (number(0), number(1));
    let clock = Arc::new(SteppedClock {
        now: Mutex::default(),
        step: Mutex::new(None),
        over: Notify::new(),
    });
    let fleet = Fleet::new(clock.clone(), open, ended);
    let before = kib(std::process::id(), "status", "VmRSS");
    let costs: Arc<Mutex<Vec<Cost>>> = Arc::default();
    let ending = (open / 100).max(1);
    let step = {
        let (fleet, costs) = (fleet.clone(), costs.clone());
        let mut began = cpu();
        move || {
            let used = cpu() - began;
            let (store, cloud) = sums(&fleet.take());
            let mut costs = costs.lock().expect("one thread");
            costs.push(Cost {
                store,
                cloud,
                cpu: used,
                resident_kib: kib(std::process::id(), "status", "VmRSS"),
            });
            if costs.len() == 2 + QUIET_TICKS {
                (0..ending).for_each(|number| fleet.end(&job(number)));
            }
            fleet.beat();
            began = cpu();
            costs.len() < QUIET_TICKS + 3
        }
    };
    *clock.step.lock().expect("one thread") = Some(Box::new(step));
    let cloud = Arc::new(FleetCloud(fleet.clone())) as Arc<dyn Cloud>;
    let controller = Controller::new(
        fleet.clone(),
        [(market::CloudKind::Aws, cloud)].into(),
        clock.clone(),
        OWNER.into(),
        "figures".into(),
        Zone::new("here"),
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        tokio::select! {
            () = controller.drive_all(&[], |_| {}) => {}
            () = clock.over.notified() => {}
        }
    });
    let costs = costs.lock().expect("one thread");
    let line = |what: String, costs: &[Cost]| {
        let spread = |value: fn(&Cost) -> f64| {
            let mut values: Vec<f64> = costs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            (quantile(&values, 0.5), quantile(&values, 1.0))
        };
        let millis = spread(|cost| cost.cpu.as_secs_f64() * 1e3);
        let (store, cloud) =
            (spread(|cost| cost.store as f64).0, spread(|cost| cost.cloud as f64).0);
        let mib =
            costs.iter().map(|cost| cost.resident_kib).max().unwrap_or_default() as f64 / 1024.0;
        println!(
            "{open:>6} {ended:>6}  {what:<34} {store:>9} {cloud:>9} {:>10.1} {:>10.1} {mib:>8.1}",
            millis.0, millis.1
        );
    };
    line("the first tick: all is read".into(), &costs[..1]);
    line("the second: alarms are armed".into(), &costs[1..2]);
    line(format!("{QUIET_TICKS} ticks, every heartbeat new"), &costs[2..2 + QUIET_TICKS]);
    line(format!("{ending} machines end, to the receipts"), &costs[2 + QUIET_TICKS..]);
    let peak = kib(std::process::id(), "status", "VmHWM");
    println!(
        "{:>15}resident {:.1} MiB before the daemon (the false world), {:.1} at most",
        "",
        before as f64 / 1024.0,
        peak as f64 / 1024.0
    );
}

/// Processor time of the thread that does everything here.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts");
    Duration::from_nanos(
        text.split_ascii_whitespace()
            .next()
            .and_then(|nanos| nanos.parse().ok())
            .expect("the first number"),
    )
}
