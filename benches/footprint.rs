//! What the senses cost: processor time a sample and memory, with eight scripted GPUs and a tree of
//! twenty processes.
//!
//! `cargo bench --bench footprint` (release) prints one line a part. Back to back, since the price
//! of a sample does not depend on what lies between two; the clock of what is read only every few
//! seconds is then hardly moving, so those readings are forced with `--every`. No limit is enforced
//! here: a busy machine would fail it for no reason.

#![allow(clippy::disallowed_methods, reason = "measures the real thing")]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lamp_test_support::fake_nvml::{DIPS, FakeNvml};
use lamplighter::adapters::host::sensors::{SensorOptions, system_sensors};
use lamplighter::ports::{Scope, Sensors};

const SAMPLES: u32 = 600;

struct Tree(Child);

impl Tree {
    /// A shell with nineteen children that sleep until it ends.
    fn start() -> Tree {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do sleep 600 & done; wait",
        ]);
        Tree(command.stdin(Stdio::null()).process_group(0).spawn().expect("sh exists"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::KILL,
        );
        let _ = self.0.wait();
    }
}

/// User and system time of this process.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("the kernel counts");
    Duration::from_nanos(
        text.split_ascii_whitespace()
            .next()
            .and_then(|nanos| nanos.parse().ok())
            .expect("the first number"),
    )
}

fn resident_kib(pid: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("we exist");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

fn measure(name: &str, fake: &FakeNvml, scope: &Scope, library: bool, real_time: bool) {
    let nvml_library =
        if library { fake.library().into() } else { "/nowhere/libnvidia-ml.so.1".into() };
    let before = resident_kib("self");
    let mut sensors = system_sensors(&SensorOptions { nvml_library, ..SensorOptions::default() });
    for _ in 0..3 {
        sensors.sample(scope);
    }
    let began = used();
    let samples = if real_time { 60 } else { SAMPLES };
    for _ in 0..samples {
        if real_time {
            std::thread::sleep(Duration::from_secs(1));
        }
        std::hint::black_box(sensors.sample(scope));
    }
    let cost = (used() - began) / samples;
    let grown = resident_kib("self").saturating_sub(before);
    println!(
        "{name:<44} {:>7.3} ms a sample, {:.4} % of a core at 1 Hz, + {grown} KiB",
        cost.as_secs_f64() * 1e3,
        cost.as_secs_f64() * 100.0
    );
}

fn main() {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let fake = FakeNvml::in_dir(dir.path());
    let tree = Tree::start();
    fake.play(&format!("gpus 8\n{}gpu * pids {}\n", DIPS, tree.0.id()));
    let scope =
        Scope { root_pid: Some(tree.0.id()), workdir: dir.path().into(), ..Scope::default() };
    let alone = Scope { workdir: dir.path().into(), ..Scope::default() };
    println!("resident before the first sample: {} KiB", resident_kib("self"));
    measure("machine alone", &fake, &alone, false, false);
    measure("machine and tree of 20", &fake, &scope, false, false);
    measure("machine, tree of 20, 8 GPUs", &fake, &scope, true, false);
    measure("the same, at 1 Hz for 30 s", &fake, &scope, true, true);
    println!("resident after all: {} KiB", resident_kib("self"));
}
