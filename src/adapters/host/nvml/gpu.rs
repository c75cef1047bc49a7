//! One GPU, read through NVML.
//!
//! A missing number has one of three causes. The device or driver cannot say (`Absent`). This call
//! failed (`Unknown`). The whole device or driver is unreachable ([`Halt`]). Not here: opening the
//! library, and the meaning of a number.

use std::collections::HashSet;
use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, Sampling, TemperatureSensor,
};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use super::health::HealthReader;
use super::utilization::{Utilisation, UtilisationSample};
use crate::adapters::host::kernel_file::process_name;
use crate::adapters::host::process_scope::{ProcessOwner, WorkloadTree};
use crate::instance::{GpuHealth, GpuProcess, GpuSample, Reading};

/// Time between two reads of processes, memory, temperature and clock. The calls for all but the
/// clock take 0.45 ms on an H100, twice as much as one sample. Longer makes `rates` wrong for
/// longer about the GPUs that the workload uses.
const SLOW_EVERY: Duration = Duration::from_secs(5);

/// Time between two reads of the memory error counters: errors are rare and never reset.
const ECC_EVERY: Duration = Duration::from_secs(30);

/// Why a device gives no values.
#[derive(Debug)]
pub(crate) enum Halt {
    /// This device cannot be read; others may work.
    Gpu(String),
    /// This device is lost for good.
    Lost(String),
    Driver(NvmlError),
}

/// Why a device is unreachable.
#[derive(Clone, Debug)]
pub(crate) struct UnreachableDevice {
    pub why: String,
    /// For good.
    pub lost: bool,
}

/// State of one GPU between samples. It survives a lost driver.
#[derive(Debug, Default)]
pub(crate) struct GpuState {
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub xids: Vec<u64>,
    util: Utilisation,
    memory: TimedReading<(u64, u64)>,
    temperature: TimedReading<u32>,
    clock: TimedReading<u32>,
    throttle: TimedReading<Vec<String>>,
    processes: TimedReading<Vec<GpuProcess>>,
    ecc: TimedReading<u64>,
    limit_watts: TimedReading<f64>,
    health: HealthReader,
}

/// Processes of one GPU in a sample, which each heartbeat repeats. Fewer hide ranks of a job that
/// share a GPU; more make the heartbeat of a busy desktop large.
const PROCESSES_MAX: usize = 16;

/// Share of the power limit. An idle card with a program on it draws 0.1 to 0.4 of its limit; below
/// 0.5 many draw that much at 0 %. Higher misses light work that the driver does not count.
const POWER_OF_WORK: f64 = 0.5;

/// Small cards (T4, L4) have limits of 70 W and draw half of that when idle.
const WATTS_OF_WORK_MIN: f64 = 60.0;

/// For drivers that report no limit: two monitors draw nearly as much, and no idle card draws more.
const WATTS_OF_WORK: f64 = 100.0;

/// Time between two reads of the power limit, which the user may change.
const LIMIT_EVERY: Duration = Duration::from_secs(60);

impl GpuState {
    pub fn of(index: u32) -> Self {
        GpuState { index, ..GpuState::default() }
    }

    /// Reads missing names, which never change.
    pub fn identify(&mut self, device: &Device) {
        if self.uuid.is_empty() {
            self.uuid = device.uuid().unwrap_or_default();
        }
        if self.name.is_empty() {
            self.name = device.name().unwrap_or_default();
        }
    }

    pub fn read(
        &mut self,
        device: &Device,
        now: Duration,
        tree: &WorkloadTree,
    ) -> Result<GpuSample, Halt> {
        let (util_percent, memory_util_percent) = self.utilisation(device, now)?;
        let memory = self.memory.at(now, SLOW_EVERY, || memory(device))?;
        let temperature = self
            .temperature
            .at(now, SLOW_EVERY, || reading(device.temperature(TemperatureSensor::Gpu)))?;
        let clock = self.clock.at(now, SLOW_EVERY, || reading(device.clock_info(Clock::SM)))?;
        let throttled_by = self.throttle.at(now, SLOW_EVERY, || {
            Ok(reading(device.current_throttle_reasons())?.map(throttle_words))
        })?;
        let processes = self.processes(device, now, tree)?;
        let ecc = self.ecc.at(now, ECC_EVERY, || {
            reading(device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile))
        })?;
        let health = match self.health.at(device, now) {
            Ok(health) => health,
            Err(error) => halt(error).map(|_| GpuHealth::default())?,
        };
        Ok(GpuSample {
            index: self.index,
            uuid: self.uuid.clone(),
            name: self.name.clone(),
            util_percent,
            memory_util_percent,
            memory_used_mib: memory.as_ref().map(|(used, _)| used >> 20),
            memory_total_mib: memory.map(|(_, total)| total >> 20),
            power_watts: reading(device.power_usage())?
                .map(|milliwatts| f64::from(milliwatts) / 1000.0),
            power_limit_watts: self.limit(device, now)?,
            clock_mhz: clock.map(f64::from),
            temperature_celsius: temperature.map(f64::from),
            used_by_workload: held_by(&processes, tree, ProcessOwner::Workload),
            used_by_others: held_by(&processes, tree, ProcessOwner::Other),
            throttled_by,
            processes: with_owner(&processes, tree),
            ecc_uncorrected: ecc,
            xids: self.xids.clone(),
            health,
            lost: None,
        })
    }

    /// Some drivers report 0 % always (WSL2, virtual GPUs). With high power draw this becomes
    /// *unknown*, unless the driver also reports no processes.
    pub fn doubt_zero(&mut self, sample: &mut GpuSample, device: &Device, now: Duration) {
        let is_zero = |reading: &Reading<f64>| reading.known().is_none_or(|percent| *percent < 0.5);
        let is_empty = sample.used_by_workload == Reading::Known(false)
            && sample.used_by_others == Reading::Known(false);
        let says_zero = sample.util_percent.known().is_some()
            && is_zero(&sample.util_percent)
            && is_zero(&sample.memory_util_percent);
        let Some(watts) = sample.power_watts.known().copied().filter(|_| says_zero && !is_empty)
        else {
            return;
        };
        let limit = self.limit(device, now);
        let limit =
            limit.ok().and_then(|limit| limit.known().copied()).filter(|limit| *limit > 0.0);
        let at_work =
            limit.map_or(WATTS_OF_WORK, |limit| (limit * POWER_OF_WORK).max(WATTS_OF_WORK_MIN));
        if watts >= at_work {
            sample.util_percent = Reading::unknown(format!("the driver says 0 % at {watts:.0} W"));
        }
    }

    fn limit(&mut self, device: &Device, now: Duration) -> Result<Reading<f64>, Halt> {
        self.limit_watts.at(now, LIMIT_EVERY, || {
            Ok(reading(device.enforced_power_limit())?.map(|limit| f64::from(limit) / 1000.0))
        })
    }

    /// A sample of a device that gives no values.
    pub fn unknown(&self, why: &str, lost: bool) -> GpuSample {
        GpuSample {
            index: self.index,
            uuid: self.uuid.clone(),
            name: self.name.clone(),
            util_percent: Reading::unknown(why),
            memory_util_percent: Reading::unknown(why),
            memory_used_mib: Reading::unknown(why),
            memory_total_mib: Reading::unknown(why),
            power_watts: Reading::unknown(why),
            power_limit_watts: Reading::unknown(why),
            clock_mhz: Reading::unknown(why),
            temperature_celsius: Reading::unknown(why),
            used_by_workload: Reading::unknown(why),
            used_by_others: Reading::unknown(why),
            throttled_by: Reading::unknown(why),
            processes: Vec::new(),
            ecc_uncorrected: Reading::unknown(why),
            xids: self.xids.clone(),
            health: GpuHealth::default(),
            lost: lost.then(|| why.to_owned()),
        }
    }

    /// Computing: from the driver's buffer, see [`Utilisation`]. Memory traffic: the driver's
    /// latest value, the mean of its own last period. A second buffer would double the cost, only
    /// to see work that copies and never computes.
    fn utilisation(
        &mut self,
        device: &Device,
        now: Duration,
    ) -> Result<(Reading<f64>, Reading<f64>), Halt> {
        let latest = reading(device.utilization_rates())?;
        let computes = latest.as_ref().map(|latest| f64::from(latest.gpu));
        let traffic = latest.as_ref().map(|latest| f64::from(latest.memory));
        let known = computes.known().copied();
        if self.util.is_due(now, known) {
            let entries = match device.samples(Sampling::GpuUtilization, self.util.last_seen()) {
                Ok(entries) => entries,
                Err(NvmlError::NotFound) => Vec::new(),
                // Without a buffer, the latest value is used.
                Err(error) => halt(error).map(|_| Vec::new())?,
            };
            let entries = entries.iter().map(|entry| UtilisationSample {
                at_micros: entry.timestamp,
                percent: number(&entry.value),
            });
            self.util.read(now, entries, known);
        }
        Ok((self.util.mean().map_or(computes, Reading::Known), traffic))
    }

    /// The processes on this GPU. A number without a process makes the list stale.
    fn processes(
        &mut self,
        device: &Device,
        now: Duration,
        tree: &WorkloadTree,
    ) -> Result<Reading<Vec<GpuProcess>>, Halt> {
        if let Some((_, Reading::Known(found))) = &self.processes.0
            && found.iter().any(|one| tree.owner(one.pid) == ProcessOwner::Hidden)
        {
            self.processes = TimedReading(None);
        }
        self.processes.at(now, SLOW_EVERY, || processes(device))
    }
}

/// A value that is reused for a while. Unknown values are read again at once.
#[derive(Debug)]
struct TimedReading<T>(Option<(Duration, Reading<T>)>);

impl<T> Default for TimedReading<T> {
    fn default() -> Self {
        TimedReading(None)
    }
}

impl<T: Clone> TimedReading<T> {
    fn at(
        &mut self,
        now: Duration,
        every: Duration,
        ask: impl FnOnce() -> Result<Reading<T>, Halt>,
    ) -> Result<Reading<T>, Halt> {
        if let Some((at, found)) = &self.0
            && now.saturating_sub(*at) < every
            && !found.is_unknown()
        {
            return Ok(found.clone());
        }
        let found = ask()?;
        self.0 = Some((now, found.clone()));
        Ok(found)
    }
}

/// Classifies a call's result.
pub(crate) fn reading<T>(result: Result<T, NvmlError>) -> Result<Reading<T>, Halt> {
    match result {
        Ok(value) => Ok(Reading::Known(value)),
        Err(error) if is_not_offered(&error) => Ok(Reading::Absent),
        Err(error) => halt(error).map(|error| Reading::Unknown(error.to_string())),
    }
}

/// Returns the error if it concerns only this call.
pub(crate) fn halt(error: NvmlError) -> Result<NvmlError, Halt> {
    match error {
        NvmlError::GpuLost => Err(Halt::Lost("GPU is lost".into())),
        NvmlError::ResetRequired => Err(Halt::Lost("GPU needs a reset".into())),
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch => {
            Err(Halt::Driver(error))
        }
        error => Ok(error),
    }
}

/// MIG slices, virtual GPUs, consumer cards and old drivers each lack some calls.
fn is_not_offered(error: &NvmlError) -> bool {
    matches!(error, NvmlError::NotSupported) || is_older_driver(error)
}

fn is_older_driver(error: &NvmlError) -> bool {
    const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    matches!(
        error,
        NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::UnexpectedVariant(ARGUMENT_VERSION_MISMATCH)
    )
}

fn number(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(value) => value,
        SampleValue::U32(value) => f64::from(value),
        SampleValue::U64(value) => value as f64,
        SampleValue::I64(value) => value as f64,
    }
}

/// (used, total) in bytes. Drivers before 510 need the first version of the call, which the wrapper
/// lacks.
fn memory(device: &Device) -> Result<Reading<(u64, u64)>, Halt> {
    match device.memory_info() {
        Err(error) if is_older_driver(&error) => reading(memory_legacy(device)),
        other => reading(other.map(|memory| (memory.used, memory.total))),
    }
}

fn memory_legacy(device: &Device) -> Result<(u64, u64), NvmlError> {
    let call = device
        .nvml()
        .lib()
        .nvmlDeviceGetMemoryInfo
        .as_ref()
        .map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    // SAFETY: the handle belongs to this loaded library. The structure is plain numbers, valid as
    // zero, and the call fills it.
    unsafe {
        let mut memory = std::mem::zeroed();
        nvml_try(call(device.handle(), &mut memory))?;
        Ok((memory.used, memory.total))
    }
}

/// Compute and graphics processes. If the driver does not list them, the answer is *unknown*
/// instead of *none*.
fn processes(device: &Device) -> Result<Reading<Vec<GpuProcess>>, Halt> {
    let compute = modern_or_legacy(device.running_compute_processes(), || {
        device.running_compute_processes_v2()
    });
    let mut found: Vec<GpuProcess> = match reading(compute)? {
        Reading::Known(processes) => processes.iter().map(on_gpu).collect(),
        Reading::Absent => return Ok(Reading::unknown("the driver does not list processes")),
        Reading::Unknown(why) => return Ok(Reading::Unknown(why)),
    };
    let graphics = modern_or_legacy(device.running_graphics_processes(), || {
        device.running_graphics_processes_v2()
    });
    if let Reading::Known(processes) = reading(graphics)? {
        found.extend(processes.iter().map(on_gpu));
    }
    Ok(Reading::Known(found))
}

fn on_gpu(process: &ProcessInfo) -> GpuProcess {
    let memory_mib = match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes >> 20),
        UsedGpuMemory::Unavailable => None,
    };
    let name = process_name(process.pid);
    GpuProcess { pid: process.pid, name, memory_mib, of_workload: None }
}

/// The processes with their owners: the workload's first, then by memory.
fn with_owner(processes: &Reading<Vec<GpuProcess>>, tree: &WorkloadTree) -> Vec<GpuProcess> {
    let owned = |process: &GpuProcess| {
        let of_workload = match tree.owner(process.pid) {
            ProcessOwner::Workload => Some(true),
            ProcessOwner::Hidden => None,
            _ => Some(false),
        };
        GpuProcess { of_workload, ..process.clone() }
    };
    let mut all: Vec<GpuProcess> = processes.known().into_iter().flatten().map(owned).collect();
    all.sort_by_key(|one| std::cmp::Reverse((one.of_workload == Some(true), one.memory_mib)));
    // A process that computes and draws is in both lists, with two sizes.
    let mut seen = HashSet::new();
    all.retain(|one| seen.insert(one.pid));
    all.truncate(PROCESSES_MAX);
    all
}

/// What slows the clock. An idle GPU, and clocks that the user or the display set, are no problem.
fn throttle_words(reasons: ThrottleReasons) -> Vec<String> {
    let all = [
        (ThrottleReasons::SW_POWER_CAP, "power limit"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "heat"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat, by the hardware"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power supply"),
        (ThrottleReasons::HW_SLOWDOWN, "hardware"),
        (ThrottleReasons::SYNC_BOOST, "another GPU of its group"),
    ];
    let named = all.into_iter().filter(|(reason, _)| reasons.contains(*reason));
    named.map(|(_, word)| word.to_owned()).collect()
}

type Processes = Result<Vec<ProcessInfo>, NvmlError>;

fn modern_or_legacy(modern: Processes, legacy: impl FnOnce() -> Processes) -> Processes {
    match modern {
        Err(error) if is_older_driver(&error) => legacy(),
        other => other,
    }
}

/// Whether one of them belongs to `owner`. A hidden process makes a "no" unknown.
fn held_by(
    processes: &Reading<Vec<GpuProcess>>,
    tree: &WorkloadTree,
    owner: ProcessOwner,
) -> Reading<bool> {
    let found = match processes {
        Reading::Known(found) => found,
        Reading::Absent => return Reading::Absent,
        Reading::Unknown(why) => return Reading::Unknown(why.clone()),
    };
    let mut hidden = None;
    for pid in found.iter().map(|one| one.pid) {
        match tree.owner(pid) {
            whose if whose == owner => return Reading::Known(true),
            ProcessOwner::Hidden => hidden = Some(pid),
            _ => {}
        }
    }
    match hidden {
        Some(pid) => Reading::Unknown(format!("process {pid} on the GPU is not visible here")),
        None => Reading::Known(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A renderer is in the lists of compute and of graphics, with two sizes and others between.
    #[test]
    fn process_is_listed_once_and_at_most_sixteen_are() {
        let process = |pid: u32, memory_mib: u64| GpuProcess {
            pid,
            name: None,
            memory_mib: Some(memory_mib),
            of_workload: None,
        };
        let mut found = vec![process(4_000_001, 900), process(4_000_001, 100)];
        found.extend((0..40).map(|at| process(4_100_000 + at, 500)));
        let shown = with_owner(&Reading::Known(found), &WorkloadTree::default());
        let of_renderer: Vec<Option<u64>> =
            shown.iter().filter(|one| one.pid == 4_000_001).map(|one| one.memory_mib).collect();
        assert_eq!((of_renderer, shown.len()), (vec![Some(900)], PROCESSES_MAX));
        let two = [process(4_000_001, 900), process(4_000_002, 500), process(4_000_001, 100)];
        assert_eq!(with_owner(&Reading::Known(two.to_vec()), &WorkloadTree::default()).len(), 2);
    }
}
