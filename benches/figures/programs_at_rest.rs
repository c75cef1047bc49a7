//! Programs at rest: memory, processor time and wakes over some minutes, scaled to an hour.

use std::process::Command;
use std::time::{Duration, Instant};

use super::Asked;
use super::listing::finished_jobs;
use super::machine::{kib, parent_of, used, wakes};
use super::place::{Place, Running, pids, spec, wait_for};
use lamp_test_support::fake_nvml::{DIPS, FakeNvml};

/// Prints a line and writes its progress each second, as a training script does, beside a tree of
/// some processes.
const TRAINS: &str = "for i in 1 2 3 4; do sleep 100000 & done; i=0; while :; do i=$((i+1)); echo \"step $i loss 0.5\"; \
                      [ -z \"$LAMP_PROGRESS\" ] || echo \"{\\\"step\\\": $i}\" >> \"$LAMP_PROGRESS\"; sleep 1; done";
/// Says nothing at all.
const SILENT: &str = "for i in 1 2 3 4; do sleep 100000 & done; wait";

/// After this the start is over: code, setup, the first samples, threads that come and go.
const SETTLED: Duration = Duration::from_secs(15);

pub fn agents(asked: &Asked) {
    let secs = asked.secs.unwrap_or(300);
    let size = std::fs::metadata(&asked.agent).map_or(0, |found| found.len());
    println!("lamp-agent: {:.2} MB", size as f64 / 1e6);
    let (alone, silent, launched) = (Place::new(), Place::new(), Place::new());
    let command = |place: &Place| {
        let mut command: Command = place.command(&asked.agent);
        if !asked.real_driver {
            let gpu = FakeNvml::in_dir(place.path());
            gpu.play(&format!("gpus 8\n{DIPS}"));
            command.env("LAMP_NVML_LIBRARY", gpu.library());
        }
        command
    };
    let run = |place: &Place, script: &str| {
        let words =
            ["run", "--gpus", "all", "--idle", "1h", "--stall", "1h", "--", "sh", "-c", script];
        Running::start(command(place).args(words))
    };
    let machine = launched.machine(&spec("figures-222222", TRAINS));
    let mut boot = command(&launched);
    boot.arg("boot").arg("--local").arg(machine);
    let programs = [
        ("stand-alone, a line a second", run(&alone, TRAINS)),
        ("stand-alone, silent", run(&silent, SILENT)),
        ("launched, a line a second", Running::start(&mut boot)),
    ];
    let mut watched = Vec::new();
    for (name, agent) in &programs {
        watched.push((format!("agent, {name}"), agent.pid()));
        if let Some(holder) = wait_for(|| holder_of(agent.pid())) {
            watched.push((format!("holder, {name}"), holder));
        }
    }
    over_time(&watched, Duration::from_secs(secs));
}

/// The process that the agent started and that is called so.
fn holder_of(agent: u32) -> Option<u32> {
    let named = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.trim() == "lamp-holder")
    };
    let session = |pid: u32| std::fs::read(format!("/proc/{pid}/environ")).ok();
    let ours = session(agent)?
        .split(|byte| *byte == 0)
        .find(|entry| entry.starts_with(b"LAMP_FIGURES="))
        .map(<[u8]>::to_vec)?;
    let marked = |pid: &u32| {
        session(*pid).is_some_and(|all| all.split(|byte| *byte == 0).any(|entry| entry == ours))
    };
    pids().find(|pid| named(pid) && marked(pid) && parent_of(*pid).is_some())
}

pub fn daemon(asked: &Asked) {
    let place = Place::new();
    finished_jobs(&place, 1000);
    let root = format!("file://{}", place.file("root").display());
    let daemon = Running::start(place.command(&asked.lamp).args(["--job-root", &root, "daemon"]));
    over_time(
        &[("lamp daemon, 1000 finished jobs".into(), daemon.pid())],
        Duration::from_secs(asked.secs.unwrap_or(300)),
    );
}

fn over_time(watched: &[(String, u32)], time: Duration) {
    std::thread::sleep(SETTLED);
    let began = Instant::now();
    let before: Vec<(Duration, u64)> =
        watched.iter().map(|(_, pid)| (used(*pid), wakes(*pid))).collect();
    std::thread::sleep(time);
    let secs = began.elapsed().as_secs_f64();
    println!("over {secs:.0} s, after {} s to settle:", SETTLED.as_secs());
    for ((name, pid), (cpu, woken)) in watched.iter().zip(before) {
        let cpu = (used(*pid) - cpu).as_secs_f64();
        println!(
            "{name:<40} {:>6.2} CPU s an hour ({:.4} % of a core), {:>5.1} wakes a second, resident {:>5.1} MiB (own {:.1}, most {:.1}, anonymous {:.1})",
            cpu * 3600.0 / secs,
            cpu * 100.0 / secs,
            wakes(*pid).saturating_sub(woken) as f64 / secs,
            kib(*pid, "status", "VmRSS") as f64 / 1024.0,
            kib(*pid, "smaps_rollup", "Pss") as f64 / 1024.0,
            kib(*pid, "status", "VmHWM") as f64 / 1024.0,
            kib(*pid, "status", "RssAnon") as f64 / 1024.0,
        );
    }
}
