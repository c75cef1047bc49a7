//! The GPUs of this machine, through NVIDIA's management library.
//!
//! ```text
//!   open -> Session (devices, events) -> one GpuSample a device
//!     |        `-- driver gone, every device silent -- close, Unknown, open again a minute later
//!     `-- no library, no driver, no device: Absent, or Unknown once there was one, or while the kernel has one
//! ```
//! A machine without the driver is not a machine whose driver is broken: the first has no GPUs, of the second nobody
//! knows. Each problem is said once in the log. Not here: verdicts, and waiting.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::gpu::{Halt, Memory, halt};
use super::xid_events;
use crate::adapters::host::process_scope::Tree;
use crate::instance::{GpuSample, Reading};
use crate::market::Cuda;

/// The name under which every driver package installs the library; the name without `.1` is in development packages only.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// What the kernel driver makes once it runs a GPU.
pub const DEVICE: &str = "/dev/nvidiactl";

/// Between two attempts to open the library, or to open it anew because of a device that gives nothing. Opening can take
/// a second with eight GPUs and no persistence daemon; longer, and a repaired driver goes unnoticed for longer.
pub const RETRY_EVERY: Duration = Duration::from_secs(60);

/// The GPUs. Never fails and never panics: what cannot be read is in the reading.
pub(crate) struct Gpus {
    library: PathBuf,
    device: PathBuf,
    retry_every: Duration,
    session: Option<Session>,
    /// Every GPU that was ever seen, in the driver's order.
    known: Vec<Memory>,
    state: State,
    retry_at: Duration,
    said: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Open,
    /// There is nothing to read on this machine.
    Absent(String),
    Unknown(String),
}

impl Gpus {
    pub fn new(library: impl Into<PathBuf>, device: impl Into<PathBuf>, retry_every: Duration) -> Self {
        Gpus {
            library: library.into(),
            device: device.into(),
            retry_every,
            session: None,
            known: Vec::new(),
            state: State::Open,
            retry_at: Duration::ZERO,
            said: None,
        }
    }

    /// Why GPUs are not, or not all, readable; for people, and for whoever asked for GPUs.
    pub fn problem(&self) -> Option<&str> {
        self.said.as_deref()
    }

    pub fn read(&mut self, now: Duration, tree: &Tree) -> Reading<Vec<GpuSample>> {
        self.open_if_due(now);
        let Some(session) = &mut self.session else { return self.closed() };
        match session.read(&mut self.known, now, tree) {
            Ok((samples, None)) => {
                self.retry_at = now + self.retry_every;
                self.say(None);
                Reading::Known(samples)
            }
            Ok((samples, Some(problem))) => {
                self.say(Some(problem));
                Reading::Known(samples)
            }
            Err(error) => {
                self.close(now, State::Unknown(sentence(&error)));
                self.closed()
            }
        }
    }

    /// What the driver of the open library runs; as of the newest reading.
    pub fn cuda(&self) -> Reading<Cuda> {
        match &self.session {
            Some(session) => session.cuda.clone(),
            None if matches!(self.state, State::Absent(_)) => Reading::Absent,
            None => Reading::unknown("the driver does not answer"),
        }
    }

    /// Opens the library when it is not open, and anew when a device has given nothing for a while.
    fn open_if_due(&mut self, now: Duration) {
        let first = self.session.is_none() && self.state == State::Open;
        let due = self.said.is_some() && now >= self.retry_at;
        if !first && !due {
            return;
        }
        // The old one goes first: the library counts how often it was opened and would otherwise keep its state.
        self.session = None;
        self.retry_at = now + self.retry_every;
        match Session::open(&self.library, &self.device, &mut self.known) {
            Ok(session) => {
                self.session = Some(session);
                self.state = State::Open;
            }
            Err(state) => self.close(now, state),
        }
    }

    fn close(&mut self, now: Duration, state: State) {
        self.session = None;
        self.retry_at = now + self.retry_every;
        self.state = match state {
            // It had GPUs: a driver that is gone has broken, it was not never there.
            State::Absent(why) if !self.known.is_empty() => State::Unknown(why),
            state => state,
        };
        if let State::Absent(why) | State::Unknown(why) = self.state.clone() {
            self.say(Some(why));
        }
    }

    fn closed(&self) -> Reading<Vec<GpuSample>> {
        match &self.state {
            State::Open => Reading::unknown("not opened yet"),
            State::Absent(_) => Reading::Absent,
            State::Unknown(why) => Reading::Unknown(why.clone()),
        }
    }

    /// One line when it begins, changes or ends.
    fn say(&mut self, problem: Option<String>) {
        if problem == self.said {
            return;
        }
        match (&problem, &self.state) {
            (Some(why), State::Absent(_)) => tracing::info!("no GPU readings: {why}"),
            (Some(why), _) => tracing::warn!("GPU readings are missing: {why}; the job goes on"),
            (None, _) => tracing::info!("GPU readings are complete again"),
        }
        self.said = problem;
    }
}

/// The opened library. The fields before `_owner` borrow from it and are dropped before it.
struct Session {
    devices: Vec<Result<Device<'static>, Gone>>,
    events: Option<EventSet<'static>>,
    cuda: Reading<Cuda>,
    _owner: Owner,
}

/// Why there is no way to a device.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    why: String,
    /// For good.
    lost: bool,
}

/// Owns the library behind the borrows of a session.
struct Owner(*mut Nvml);

// SAFETY: `Nvml` may be sent, and this pointer is the only way to it but for the session's own borrows, which go with it.
unsafe impl Send for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `open`; every borrow is in a field that is dropped earlier.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl Owner {
    fn nvml(&self) -> &'static Nvml {
        // SAFETY: alive until `Owner` is dropped; whoever holds the result is dropped before (see `Session`).
        unsafe { &*self.0 }
    }
}

impl Session {
    fn open(library: &Path, kernels: &Path, known: &mut Vec<Memory>) -> Result<Session, State> {
        let unopened = |error: &NvmlError| unopened(error, kernels);
        let nvml = Nvml::builder().lib_path(library.as_os_str()).init().map_err(|error| unopened(&error))?;
        let owner = Owner(Box::into_raw(Box::new(nvml)));
        let nvml = owner.nvml();
        let count = nvml.device_count().map_err(|error| unopened(&error))?;
        if count == 0 {
            return Err(State::Absent("the NVIDIA driver sees no GPU".into()));
        }
        let mut devices = Vec::new();
        for index in 0..count {
            let device = match nvml.device_by_index(index) {
                Ok(device) => Ok(device),
                Err(error) => match halt(error) {
                    Ok(error) => Err(Gone { why: error.to_string(), lost: false }),
                    Err(Halt::Gpu(why)) => Err(Gone { why, lost: false }),
                    Err(Halt::Lost(why)) => Err(Gone { why, lost: true }),
                    Err(Halt::Driver(error)) => return Err(unopened(&error)),
                },
            };
            if known.len() <= index as usize {
                known.push(Memory::of(index));
            }
            devices.push(device);
        }
        // A GPU that the driver no longer counts has not ceased to be the job's.
        devices.resize_with(known.len(), || Err(Gone { why: "GPU is no longer there".into(), lost: true }));
        for (memory, device) in known.iter_mut().zip(&devices) {
            if let Ok(device) = device {
                memory.identify(device);
            }
        }
        let events = xid_events::listen(nvml, devices.iter().flatten());
        let cuda = nvml.sys_cuda_driver_version().map_or_else(|error| Reading::Unknown(sentence(&error)), |number| Reading::Known(version(number)));
        Ok(Session { devices, events, cuda, _owner: owner })
    }

    /// The samples, and what is wrong with some of them. An error: the driver is gone.
    fn read(&mut self, known: &mut [Memory], now: Duration, tree: &Tree) -> Result<(Vec<GpuSample>, Option<String>), NvmlError> {
        if self.events.as_ref().is_some_and(|events| xid_events::collect(events, &self.devices, known).is_err()) {
            self.events = None;
        }
        let mut problem = None;
        let mut samples = Vec::with_capacity(known.len());
        for (memory, device) in known.iter_mut().zip(&self.devices) {
            let read = match device {
                Ok(device) => memory.read(device, now, tree),
                Err(Gone { why, lost: true }) => Err(Halt::Lost(why.clone())),
                Err(Gone { why, lost: false }) => Err(Halt::Gpu(why.clone())),
            };
            let mut sample = match read {
                Ok(sample) => sample,
                Err(Halt::Gpu(why)) => memory.unknown(&why, false),
                Err(Halt::Lost(why)) => memory.unknown(&why, true),
                Err(Halt::Driver(error)) => return Err(error),
            };
            if let Reading::Unknown(why) = &sample.util_percent {
                problem.get_or_insert_with(|| format!("GPU {}: {why}", memory.index));
            }
            // No reading is missing here, and opening the library anew would bring none.
            if let Ok(device) = device {
                memory.doubt_zero(&mut sample, device, now);
            }
            samples.push(sample);
        }
        Ok((samples, problem))
    }
}

/// 12040 is CUDA 12.4.
fn version(number: i32) -> Cuda {
    let number = number.unsigned_abs();
    Cuda { major: number / 1000, minor: number % 1000 / 10 }
}

/// No library and no driver are a machine without GPUs. Anything else is a machine of which nobody knows: also where the kernel's
/// driver has its device, and the library alone is missing (a container without the driver's `utility` part).
fn unopened(error: &NvmlError, kernels: &Path) -> State {
    let text = sentence(error);
    let is_nothing = match error {
        NvmlError::LibloadingError(cause) => cause.to_string().contains("No such file"),
        NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound => true,
        _ => false,
    };
    match is_nothing {
        true if kernels.exists() => State::Unknown(format!("{} is there, but {text}", kernels.display())),
        true => State::Absent(text),
        false => State::Unknown(text),
    }
}

fn sentence(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(cause) => format!("NVIDIA's library cannot be loaded: {cause}"),
        NvmlError::DriverNotLoaded => "the NVIDIA driver is not loaded".into(),
        NvmlError::LibRmVersionMismatch => "NVIDIA's driver and library are of different versions; a reboot usually mends it".into(),
        NvmlError::NoPermission => "no permission to talk to the NVIDIA driver".into(),
        error => format!("the NVIDIA driver does not answer: {error}"),
    }
}
