//! Changes between two samples, in units for people. The watching policies see only these.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{GpuSample, GpuStatus, IoCounters, Reading, Sample};
use crate::job::GpuSelection;

/// One interval. It is recorded, so that every verdict can be replayed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// End of the interval, in seconds since the workload (or the series) began. Never decreases.
    pub t_secs: f64,
    /// Length of the interval in seconds; 0 for the first of a series.
    pub interval_secs: f64,
    /// The busiest counted GPU, in percent, integrated over the interval (over at most ten seconds
    /// while it works).
    pub gpu_percent: Reading<f64>,
    /// Busiest device memory: percent of the time with traffic.
    pub gpu_memory_percent: Reading<f64>,
    /// Device memory in use, summed over the counted GPUs.
    pub gpu_memory_used_mib: Reading<f64>,
    pub gpu_power_watts: Reading<f64>,
    /// The workload's tree, percent of **one** core (400 = four cores busy).
    pub cpu_percent: Reading<f64>,
    /// Lower bound in percent of one core: the main process alone, or a share of all cores if their
    /// number was not recorded. Only recordings by other tools have it. It can prove work, not
    /// idleness.
    pub cpu_percent_min: Reading<f64>,
    /// The whole machine, percent of **all** cores.
    pub machine_cpu_percent: Reading<f64>,
    /// CPU outside the workload's tree over the last minute, percent of **one** core. Only on
    /// machines launched for the job: elsewhere it may belong to other users.
    pub rest_cpu_percent: Reading<f64>,
    /// Read plus written by the tree.
    pub disk_bytes_per_sec: Reading<f64>,
    /// Sent plus received, without the agent's own traffic.
    pub net_bytes_per_sec: Reading<f64>,
    pub log_bytes: Reading<f64>,
    pub progress_marks: Reading<f64>,
    pub step: Option<f64>,
    pub checkpoint_marks: Reading<f64>,
    /// Seconds since a user last typed; absent if no user is logged in.
    pub typing_secs: Reading<f64>,
    /// The received part of `net_bytes_per_sec`. It and the next six are for people: no policy
    /// uses them, and records of older agents lack them.
    #[serde(skip_serializing_if = "Reading::is_absent")]
    pub net_received_bytes_per_sec: Reading<f64>,
    /// The summed power limits of the counted GPUs.
    #[serde(skip_serializing_if = "Reading::is_absent")]
    pub gpu_power_limit_watts: Reading<f64>,
    /// The temperature of the hottest counted GPU.
    #[serde(skip_serializing_if = "Reading::is_absent")]
    pub gpu_temperature_celsius: Reading<f64>,
    /// The clock of the cores, of the slowest counted GPU.
    #[serde(skip_serializing_if = "Reading::is_absent")]
    pub gpu_clock_mhz: Reading<f64>,
    /// The memory of the workload's tree.
    #[serde(skip_serializing_if = "Reading::is_absent")]
    pub memory_bytes: Reading<f64>,
    /// The share of the machine's memory that programs cannot get now.
    #[serde(skip_serializing_if = "Reading::is_absent")]
    pub machine_memory_percent: Reading<f64>,
    /// Free bytes of the file system of the workdir.
    #[serde(skip_serializing_if = "Reading::is_absent")]
    pub disk_free_bytes: Reading<f64>,
    /// Each GPU of the machine, every few seconds, for people. The other values are of all counted
    /// GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuStatus>,
    /// Wall clock at the end of the interval, for people.
    pub at: Option<Timestamp>,
}

impl Default for Rates {
    fn default() -> Self {
        Rates {
            t_secs: 0.0,
            interval_secs: 0.0,
            gpu_percent: Reading::Absent,
            gpu_memory_percent: Reading::Absent,
            gpu_memory_used_mib: Reading::Absent,
            gpu_power_watts: Reading::Absent,
            cpu_percent: Reading::Absent,
            cpu_percent_min: Reading::Absent,
            machine_cpu_percent: Reading::Absent,
            rest_cpu_percent: Reading::Absent,
            disk_bytes_per_sec: Reading::Absent,
            net_bytes_per_sec: Reading::Absent,
            log_bytes: Reading::Absent,
            progress_marks: Reading::Absent,
            step: None,
            checkpoint_marks: Reading::Absent,
            typing_secs: Reading::Absent,
            net_received_bytes_per_sec: Reading::Absent,
            gpu_power_limit_watts: Reading::Absent,
            gpu_temperature_celsius: Reading::Absent,
            gpu_clock_mhz: Reading::Absent,
            memory_bytes: Reading::Absent,
            machine_memory_percent: Reading::Absent,
            disk_free_bytes: Reading::Absent,
            gpus: Vec::new(),
            at: None,
        }
    }
}

/// The rates between two samples. The series began at the sample `began`.
pub fn rates(began: &Sample, previous: &Sample, now: &Sample, selection: &GpuSelection) -> Rates {
    let interval = now.mono.saturating_sub(previous.mono).as_secs_f64();
    let gpus = counted(&now.gpus, selection);
    let cpu = difference(&previous.tree_cpu, &now.tree_cpu, |then, now| {
        now.saturating_sub(*then).as_secs_f64()
    });
    let machine = difference(&previous.machine_cpu, &now.machine_cpu, |then, now| {
        now.saturating_sub(*then).as_secs_f64()
    });
    let io = |then: &IoCounters, now: &IoCounters| {
        (now.read_bytes.saturating_sub(then.read_bytes)
            + now.written_bytes.saturating_sub(then.written_bytes)) as f64
    };
    let grown = |then: u64, now: u64| Reading::Known(now.saturating_sub(then) as f64);
    Rates {
        t_secs: now.mono.saturating_sub(began.mono).as_secs_f64(),
        interval_secs: interval,
        gpu_percent: busiest(&gpus, |gpu| &gpu.util_percent),
        gpu_memory_percent: busiest(&gpus, |gpu| &gpu.memory_util_percent),
        gpu_memory_used_mib: total(&gpus, |gpu| gpu.memory_used_mib.clone().map(|mib| mib as f64)),
        gpu_power_watts: total(&gpus, |gpu| gpu.power_watts.clone()),
        cpu_percent: per_sec(cpu, interval).map(|cores| cores * 100.0),
        cpu_percent_min: Reading::Absent,
        machine_cpu_percent: per_sec(machine, interval)
            .map(|cores| cores * 100.0 / f64::from(now.cores.max(1))),
        rest_cpu_percent: Reading::Absent,
        disk_bytes_per_sec: per_sec(difference(&previous.tree_disk, &now.tree_disk, io), interval),
        net_bytes_per_sec: per_sec(difference(&previous.network, &now.network, io), interval),
        log_bytes: grown(previous.marks.log_bytes, now.marks.log_bytes),
        progress_marks: grown(previous.marks.progress, now.marks.progress),
        step: now.marks.step,
        checkpoint_marks: grown(previous.marks.checkpoints, now.marks.checkpoints),
        typing_secs: match &now.typing {
            Reading::Known(Some(since)) => Reading::Known(since.as_secs_f64()),
            Reading::Known(None) | Reading::Absent => Reading::Absent,
            Reading::Unknown(why) => Reading::Unknown(why.clone()),
        },
        net_received_bytes_per_sec: per_sec(
            difference(&previous.network, &now.network, |then, now| {
                now.read_bytes.saturating_sub(then.read_bytes) as f64
            }),
            interval,
        ),
        gpu_power_limit_watts: total(&gpus, |gpu| gpu.power_limit_watts.clone()),
        gpu_temperature_celsius: busiest(&gpus, |gpu| &gpu.temperature_celsius),
        gpu_clock_mhz: slowest(&gpus),
        memory_bytes: now.tree_memory_bytes.clone().map(|bytes| bytes as f64),
        machine_memory_percent: now
            .machine_memory_bytes
            .clone()
            .map(|(used, total)| used as f64 * 100.0 / total.max(1) as f64),
        disk_free_bytes: now.disk_free_bytes.clone().map(|bytes| bytes as f64),
        gpus: Vec::new(),
        at: Some(now.at),
    }
}

/// The GPUs that count. With `Workload`, those that the workload holds. While that is unknown or
/// empty, all of them: other users' work can then delay a verdict but not cause one.
fn counted<'a>(
    gpus: &'a Reading<Vec<GpuSample>>,
    selection: &GpuSelection,
) -> Reading<Vec<&'a GpuSample>> {
    gpus.as_ref().map(|gpus| match selection {
        GpuSelection::All => gpus.iter().collect(),
        GpuSelection::Indices(indices) => {
            gpus.iter().filter(|gpu| indices.contains(&gpu.index)).collect()
        }
        GpuSelection::Workload => {
            let unknown = gpus.iter().any(|gpu| gpu.used_by_workload.is_unknown());
            let held: Vec<&GpuSample> =
                gpus.iter().filter(|gpu| gpu.used_by_workload == Reading::Known(true)).collect();
            if unknown || held.is_empty() { gpus.iter().collect() } else { held }
        }
    })
}

/// The largest value; unknown if any is unknown.
fn busiest(
    gpus: &Reading<Vec<&GpuSample>>,
    value: impl Fn(&GpuSample) -> &Reading<f64>,
) -> Reading<f64> {
    match gpus {
        Reading::Known(gpus) => fold(gpus.iter().map(|gpu| value(gpu).clone()), 0.0, f64::max),
        Reading::Absent => Reading::Absent,
        Reading::Unknown(why) => Reading::Unknown(why.clone()),
    }
}

/// The lowest clock; unknown if any is unknown.
fn slowest(gpus: &Reading<Vec<&GpuSample>>) -> Reading<f64> {
    match gpus {
        Reading::Known(gpus) => {
            fold(gpus.iter().map(|gpu| gpu.clock_mhz.clone()), f64::INFINITY, f64::min)
        }
        Reading::Absent => Reading::Absent,
        Reading::Unknown(why) => Reading::Unknown(why.clone()),
    }
}

fn total(
    gpus: &Reading<Vec<&GpuSample>>,
    value: impl Fn(&GpuSample) -> Reading<f64>,
) -> Reading<f64> {
    match gpus {
        // The sum of an empty iterator is -0.0; start from the same value.
        Reading::Known(gpus) => {
            fold(gpus.iter().map(|gpu| value(gpu)), -0.0, |sum, value| sum + value)
        }
        Reading::Absent => Reading::Absent,
        Reading::Unknown(why) => Reading::Unknown(why.clone()),
    }
}

fn fold(
    readings: impl Iterator<Item = Reading<f64>>,
    begin: f64,
    join: impl Fn(f64, f64) -> f64,
) -> Reading<f64> {
    let mut all = None;
    for reading in readings {
        match reading {
            Reading::Known(value) => all = Some(join(all.unwrap_or(begin), value)),
            Reading::Absent => {}
            Reading::Unknown(why) => return Reading::Unknown(why),
        }
    }
    all.map_or(Reading::Absent, Reading::Known)
}

fn difference<T, U>(
    then: &Reading<T>,
    now: &Reading<T>,
    subtract: impl Fn(&T, &T) -> U,
) -> Reading<U> {
    match (then, now) {
        (Reading::Known(then), Reading::Known(now)) => Reading::Known(subtract(then, now)),
        (Reading::Unknown(why), _) | (_, Reading::Unknown(why)) => Reading::Unknown(why.clone()),
        _ => Reading::Absent,
    }
}

fn per_sec(amount: Reading<f64>, interval: f64) -> Reading<f64> {
    if interval <= 0.0 {
        return match amount {
            Reading::Known(_) => Reading::unknown("no time has passed"),
            other => other,
        };
    }
    amount.map(|amount| amount / interval)
}
