//! What the kernel says of processes and of this machine.

use std::time::Duration;

/// The kernel counts processor time in these, whatever its own tick is (`USER_HZ`).
const TICKS_PER_SEC: f64 = 100.0;

pub fn say_where() {
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!("{cores} cores, {model}, Linux {}", read("/proc/sys/kernel/osrelease").trim());
    say_load("before");
}

pub fn say_load(when: &str) {
    let load = read("/proc/loadavg");
    println!("load average {when}: {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The fields of `/proc/PID/stat` after the name, the state being the first.
fn stat(pid: &str) -> Vec<String> {
    let text = read(&format!("/proc/{pid}/stat"));
    text.rsplit(')').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn ticks(stat: &[String], fields: [usize; 2]) -> Duration {
    let sum: f64 = fields
        .iter()
        .map(|field| stat.get(*field).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0))
        .sum();
    Duration::from_secs_f64(sum / TICKS_PER_SEC)
}

/// User and system time of a process, its ended threads included.
pub fn used(pid: u32) -> Duration {
    ticks(&stat(&pid.to_string()), [11, 12])
}

/// User and system time of our children that have ended and been waited for.
pub fn used_by_children() -> Duration {
    ticks(&stat("self"), [13, 14])
}

pub fn parent_of(pid: u32) -> Option<u32> {
    stat(&pid.to_string()).get(1)?.parse().ok()
}

/// A line of `/proc/PID/status` or `smaps_rollup` in KiB.
pub fn kib(pid: u32, file: &str, key: &str) -> u64 {
    let text = read(&format!("/proc/{pid}/{file}"));
    let line =
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::to_owned));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// How often the threads of a process went to sleep by themselves: each is a wake to come.
pub fn wakes(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .map(|thread| {
            kib(
                pid,
                &format!("task/{}/status", thread.file_name().to_string_lossy()),
                "voluntary_ctxt_switches",
            )
        })
        .sum()
}

/// The value below which this share of the sorted values lies.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    sorted[((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len()) - 1]
}

/// `name: n, p50, p99, most` in milliseconds.
pub fn say_spread(name: &str, millis: &mut [f64]) {
    millis.sort_by(f64::total_cmp);
    let at = |share| quantile(millis, share);
    println!(
        "{name:<52} n {:>3}  p50 {:>8.1} ms  p90 {:>8.1} ms  p99 {:>8.1} ms  most {:>8.1} ms",
        millis.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}
