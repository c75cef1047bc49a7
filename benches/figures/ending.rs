//! How soon the machine goes out after the work has ended, and how soon the workload hears of the
//! cloud's notice.
//!
//! The workload writes the time as its last act; its own way out (a process that ends) is thus part
//! of the figure. The power-off action is `--then` of a stand-alone run, whose command writes the
//! time (two processes that start are part of the figure), or `poweroff.json` of a machine of the
//! local cloud, by the time in its inode.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::json;

use super::Asked;
use super::machine::say_spread;
use super::place::{Place, Running, nanos, nanos_in, spec, wait_for};

pub fn measure(asked: &Asked) {
    let runs = asked.runs.unwrap_or(100);
    let spread = |measure: fn(&Asked, usize) -> Option<f64>| -> Vec<f64> {
        (0..runs).filter_map(|run| measure(asked, run)).collect()
    };
    say_spread("exit -> next command of a shell, for comparison", &mut spread(shell));
    say_spread("exit -> --then command, stand-alone", &mut spread(alone));
    say_spread("exit -> poweroff.json, launched (events, log, outcome)", &mut spread(launched));
    say_spread("notice.json -> the workload's signal handler", &mut spread(notice));
}

/// Not always at the same distance from the agent's tick.
fn length(run: usize) -> String {
    format!("{:.3}", 0.5 + (run * 137 % 1000) as f64 / 1000.0)
}

/// What people do without us: `train; poweroff`. The least that the same processes take on this
/// machine now.
fn shell(_: &Asked, run: usize) -> Option<f64> {
    let place = Place::new();
    let script =
        format!("sh -c 'sleep {}; date +%s%N > exit'; sh -c 'date +%s%N > then'", length(run));
    place.command(Path::new("sh")).args(["-c", &script]).status().ok()?;
    millis(nanos_in(&place.file("exit"))?, nanos_in(&place.file("then"))?)
}

fn alone(asked: &Asked, run: usize) -> Option<f64> {
    let place = Place::new();
    let script = format!("sleep {}; date +%s%N > exit", length(run));
    let mut command = place.command(&asked.agent);
    command.args(["run", "--then", "date +%s%N > then", "--", "sh", "-c", &script]);
    command.spawn().ok()?.wait().ok()?;
    millis(nanos_in(&place.file("exit"))?, nanos_in(&place.file("then"))?)
}

fn launched(asked: &Asked, run: usize) -> Option<f64> {
    let place = Place::new();
    let exit = place.file("exit");
    let script = format!("echo hello; sleep {}; date +%s%N > {}", length(run), exit.display());
    let machine = place.machine(&spec("figures-222222", &script));
    let _agent = boot(&place, asked, &machine);
    let off = wait_for(|| changed(&machine.join("poweroff.json")))?;
    millis(nanos_in(&exit)?, off)
}

fn notice(asked: &Asked, run: usize) -> Option<f64> {
    let place = Place::new();
    let (ready, told) = (place.file("ready"), place.file("told"));
    // The shell runs its handler when `wait` is interrupted, not when a program in the foreground
    // has ended.
    let script = format!(
        "trap 'date +%s%N > {}' USR1; : > {}; while :; do sleep 60 & wait $!; kill $!; done",
        told.display(),
        ready.display()
    );
    let mut spec = spec("figures-222222", &script);
    spec["spec"]["checkpoint"] =
        json!({"path": "checkpoints", "interval": "10m", "signal": "SIGUSR1", "grace": "5s"});
    let machine = place.machine(&spec);
    let _agent = boot(&place, asked, &machine);
    wait_for(|| ready.exists().then_some(()))?;
    std::thread::sleep(std::time::Duration::from_millis(500 + (run as u64 * 137) % 1000));
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(120);
    let given = nanos();
    place.write(
        "machine/notice.json",
        &json!([{"kind": "interruption", "at": at.to_string(), "detail": "terminate"}]),
    );
    millis(given, wait_for(|| nanos_in(&told))?)
}

fn boot(place: &Place, asked: &Asked, machine: &Path) -> Running {
    Running::start(place.command(&asked.agent).arg("boot").arg("--local").arg(machine))
}

fn changed(path: &Path) -> Option<u128> {
    let found = std::fs::metadata(path).ok()?;
    Some(
        u128::try_from(found.mtime()).ok()? * 1_000_000_000
            + u128::try_from(found.mtime_nsec()).ok()?,
    )
}

fn millis(from: u128, to: u128) -> Option<f64> {
    // The time in an inode is that of the kernel's last tick, so it may lie a few milliseconds
    // back.
    Some(to.saturating_sub(from) as f64 / 1e6)
}
