//! One GPU, read through NVML.
//!
//! Three ways of not getting a number are told apart for each call: the device or the driver cannot say (`Absent`), this
//! call failed (`Unknown`), or the whole device, or the whole driver, is out of reach ([`Halt`]). What must never live
//! here: opening the library, and what a number means.

use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, Sampling, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, Utilization};

use super::host_tree::{Owner, Tree};
use super::nvml_util::{Cursor, Entry};
use crate::instance::{GpuSample, Reading};

/// Between two listings of the processes on a GPU. They come and go with the workload's processes, and two calls for each
/// GPU are a third of the price of a sample. Longer, and `rates` mistakes for longer which GPUs the workload holds.
const PROCESSES_EVERY: Duration = Duration::from_secs(5);

/// Between two looks at the counters of memory errors: rare, and never taken back.
const ECC_EVERY: Duration = Duration::from_secs(30);

/// Why a device gives nothing at all.
#[derive(Debug)]
pub(super) enum Halt {
    /// This device cannot be read; others may work.
    Gpu(String),
    /// This device is gone for good.
    Lost(String),
    /// The driver.
    Driver(NvmlError),
}

/// What is remembered of one GPU between samples, also over a lost driver.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub index: u32,
    pub uuid: String,
    pub name: String,
    pub xids: Vec<u64>,
    util: Cursor,
    memory_util: Cursor,
    processes: Option<(Duration, Reading<Vec<u32>>)>,
    ecc: Option<(Duration, Reading<u64>)>,
}

impl Memory {
    pub fn of(index: u32) -> Self {
        Memory { index, ..Memory::default() }
    }

    /// Who it is, as far as that is not yet known; the names never change.
    pub fn identify(&mut self, device: &Device) {
        if self.uuid.is_empty() {
            self.uuid = device.uuid().unwrap_or_default();
        }
        if self.name.is_empty() {
            self.name = device.name().unwrap_or_default();
        }
    }

    pub fn read(&mut self, device: &Device, now: Duration, tree: &Tree) -> Result<GpuSample, Halt> {
        let (util_percent, memory_util_percent) = self.utilisation(device)?;
        let memory = memory(device)?;
        let processes = self.processes(device, now, tree)?;
        Ok(GpuSample {
            index: self.index,
            uuid: self.uuid.clone(),
            name: self.name.clone(),
            util_percent,
            memory_util_percent,
            memory_used_mib: memory.as_ref().map(|(used, _)| used >> 20),
            memory_total_mib: memory.map(|(_, total)| total >> 20),
            power_watts: reading(device.power_usage())?.map(|milliwatts| f64::from(milliwatts) / 1000.0),
            temperature_celsius: reading(device.temperature(TemperatureSensor::Gpu))?.map(f64::from),
            used_by_workload: held_by(&processes, tree, Owner::Workload),
            used_by_others: held_by(&processes, tree, Owner::Other),
            ecc_uncorrected: self.ecc(device, now)?,
            xids: self.xids.clone(),
            lost: None,
        })
    }

    /// A sample of a device that gives nothing.
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
            temperature_celsius: Reading::unknown(why),
            used_by_workload: Reading::unknown(why),
            used_by_others: Reading::unknown(why),
            ecc_uncorrected: Reading::unknown(why),
            xids: self.xids.clone(),
            lost: lost.then(|| why.to_owned()),
        }
    }

    /// From the buffers; where these have nothing newer, the driver's latest value. A driver that measures once a second
    /// has nothing newer at every other reading, and some stop measuring while the GPU rests: so that means neither idle
    /// nor unknown. The latest value is the mean of the driver's own last period, and still stands.
    fn utilisation(&mut self, device: &Device) -> Result<(Reading<f64>, Reading<f64>), Halt> {
        let util = integrated(device, Sampling::GpuUtilization, &mut self.util)?;
        let memory = integrated(device, Sampling::MemoryUtilization, &mut self.memory_util)?;
        if let (Some(util), Some(memory)) = (util, memory) {
            return Ok((Reading::Known(util), Reading::Known(memory)));
        }
        let latest = reading(device.utilization_rates())?;
        if let Reading::Known(Utilization { gpu, memory: traffic }) = &latest {
            if util.is_none() {
                self.util.nothing_but(f64::from(*gpu));
            }
            if memory.is_none() {
                self.memory_util.nothing_but(f64::from(*traffic));
            }
        }
        let or_latest = |mean: Option<f64>, pick: fn(&Utilization) -> u32| match mean {
            Some(mean) => Reading::Known(mean),
            None => latest.as_ref().map(|latest| f64::from(pick(latest))),
        };
        Ok((or_latest(util, |latest| latest.gpu), or_latest(memory, |latest| latest.memory)))
    }

    /// The processes on this GPU. A number that nobody has any more makes the list stale at once.
    fn processes(&mut self, device: &Device, now: Duration, tree: &Tree) -> Result<Reading<Vec<u32>>, Halt> {
        if let Some((at, Reading::Known(pids))) = &self.processes
            && now.saturating_sub(*at) < PROCESSES_EVERY
            && pids.iter().all(|pid| tree.owner(*pid) != Owner::Hidden)
        {
            return Ok(Reading::Known(pids.clone()));
        }
        let found = processes(device)?;
        self.processes = Some((now, found.clone()));
        Ok(found)
    }

    fn ecc(&mut self, device: &Device, now: Duration) -> Result<Reading<u64>, Halt> {
        if let Some((at, reading)) = &self.ecc
            && now.saturating_sub(*at) < ECC_EVERY
        {
            return Ok(reading.clone());
        }
        let found = reading(device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile))?;
        self.ecc = Some((now, found.clone()));
        Ok(found)
    }
}

/// Sorts what a call said.
pub(super) fn reading<T>(result: Result<T, NvmlError>) -> Result<Reading<T>, Halt> {
    match result {
        Ok(value) => Ok(Reading::Known(value)),
        Err(error) if is_not_offered(&error) => Ok(Reading::Absent),
        Err(error) => halt(error).map(|error| Reading::Unknown(error.to_string())),
    }
}

/// Gives the error back if it concerns this one call only.
pub(super) fn halt(error: NvmlError) -> Result<NvmlError, Halt> {
    match error {
        NvmlError::GpuLost => Err(Halt::Lost("GPU is lost".into())),
        NvmlError::ResetRequired => Err(Halt::Lost("GPU needs a reset".into())),
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch => Err(Halt::Driver(error)),
        error => Ok(error),
    }
}

/// MIG slices, virtual GPUs, consumer cards and old drivers each lack some calls.
fn is_not_offered(error: &NvmlError) -> bool {
    matches!(error, NvmlError::NotSupported) || is_older_driver(error)
}

fn is_older_driver(error: &NvmlError) -> bool {
    const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    matches!(error, NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound | NvmlError::UnexpectedVariant(ARGUMENT_VERSION_MISMATCH))
}

/// `None`: nothing newer, or no buffer.
fn integrated(device: &Device, kind: Sampling, cursor: &mut Cursor) -> Result<Option<f64>, Halt> {
    match device.samples(kind, cursor.last_seen()) {
        Ok(entries) => Ok(cursor.mean(entries.iter().map(|entry| Entry { at_micros: entry.timestamp, percent: number(&entry.value) }))),
        Err(NvmlError::NotFound) => Ok(None),
        Err(error) => halt(error).map(|_| None),
    }
}

fn number(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(value) => value,
        SampleValue::U32(value) => f64::from(value),
        SampleValue::U64(value) => value as f64,
        SampleValue::I64(value) => value as f64,
    }
}

/// (used, total) in bytes. The first version of the call, which the wrapper does not offer, is for drivers before 510.
fn memory(device: &Device) -> Result<Reading<(u64, u64)>, Halt> {
    match device.memory_info() {
        Err(error) if is_older_driver(&error) => reading(memory_legacy(device)),
        other => reading(other.map(|memory| (memory.used, memory.total))),
    }
}

fn memory_legacy(device: &Device) -> Result<(u64, u64), NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref().map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    // SAFETY: the handle belongs to this library and is alive; the structure is plain numbers, for which zero is a value,
    // and is filled by the call.
    unsafe {
        let mut memory = std::mem::zeroed();
        nvml_try(call(device.handle(), &mut memory))?;
        Ok((memory.used, memory.total))
    }
}

/// Computing or drawing. Where the driver does not list them nobody knows who holds the GPU, which is not "nobody".
fn processes(device: &Device) -> Result<Reading<Vec<u32>>, Halt> {
    let compute = modern_or_legacy(device.running_compute_processes(), || device.running_compute_processes_v2());
    let mut pids: Vec<u32> = match reading(compute)? {
        Reading::Known(processes) => processes.iter().map(|process| process.pid).collect(),
        Reading::Absent => return Ok(Reading::unknown("the driver does not list processes")),
        Reading::Unknown(why) => return Ok(Reading::Unknown(why)),
    };
    let graphics = modern_or_legacy(device.running_graphics_processes(), || device.running_graphics_processes_v2());
    if let Reading::Known(processes) = reading(graphics)? {
        pids.extend(processes.iter().map(|process| process.pid));
    }
    Ok(Reading::Known(pids))
}

type Processes = Result<Vec<ProcessInfo>, NvmlError>;

fn modern_or_legacy(modern: Processes, legacy: impl FnOnce() -> Processes) -> Processes {
    match modern {
        Err(error) if is_older_driver(&error) => legacy(),
        other => other,
    }
}

/// Whether one of them belongs to `owner`. A process that is not visible here may be anybody's.
fn held_by(processes: &Reading<Vec<u32>>, tree: &Tree, owner: Owner) -> Reading<bool> {
    let pids = match processes {
        Reading::Known(pids) => pids,
        Reading::Absent => return Reading::Absent,
        Reading::Unknown(why) => return Reading::Unknown(why.clone()),
    };
    let mut hidden = None;
    for pid in pids {
        match tree.owner(*pid) {
            found if found == owner => return Reading::Known(true),
            Owner::Hidden => hidden = Some(pid),
            _ => {}
        }
    }
    match hidden {
        Some(pid) => Reading::Unknown(format!("process {pid} on the GPU is not visible here")),
        None => Reading::Known(false),
    }
}
