//! The GPUs of this machine, through NVIDIA's management library.
//!
//! ```text
//!   open -> Session (devices, events) -> one GpuSample a device
//!     |        `-- driver gone, every device silent -- close, Unknown, open again a minute later
//!     `-- library, driver and device missing: Absent, or Unknown if there was one before
//! ```
//! A machine without the driver has no GPUs. On a machine with a broken driver they are unknown.
//! Each problem is logged once. Not here: verdicts, and waiting.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::gpu::{GpuState, Halt, UnreachableDevice, halt};
use super::xid_events;
use crate::adapters::host::process_scope::WorkloadTree;
use crate::instance::{GpuSample, Reading};
use crate::market::Cuda;

/// Every driver package installs the library under this name. The name without `.1` exists only in
/// development packages.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// The kernel driver makes this device when it runs a GPU.
pub const DEVICE: &str = "/dev/nvidiactl";

/// Time between two attempts to open the library. Opening can take a second with eight GPUs and no
/// persistence daemon. Longer notices a repaired driver later.
pub const RETRY_EVERY: Duration = Duration::from_secs(60);

/// The GPUs. It never fails or panics: each failure is in its reading.
pub(crate) struct Gpus {
    library: PathBuf,
    device: PathBuf,
    retry_every: Duration,
    session: Option<NvmlSession>,
    /// Every GPU seen so far, in the driver's order.
    known: Vec<GpuState>,
    state: NvmlState,
    retry_at: Duration,
    said: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum NvmlState {
    Open,
    /// This machine has nothing to read.
    Absent(String),
    Unknown(String),
}

impl Gpus {
    pub fn new(
        library: impl Into<PathBuf>,
        device: impl Into<PathBuf>,
        retry_every: Duration,
    ) -> Self {
        Gpus {
            library: library.into(),
            device: device.into(),
            retry_every,
            session: None,
            known: Vec::new(),
            state: NvmlState::Open,
            retry_at: Duration::ZERO,
            said: None,
        }
    }

    /// Why some or all GPUs are unreadable.
    pub fn problem(&self) -> Option<&str> {
        self.said.as_deref()
    }

    pub fn read(&mut self, now: Duration, tree: &WorkloadTree) -> Reading<Vec<GpuSample>> {
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
                self.close(now, NvmlState::Unknown(sentence(&error)));
                self.closed()
            }
        }
    }

    /// The driver's CUDA version, as of the newest reading.
    pub fn cuda(&self) -> Reading<Cuda> {
        match &self.session {
            Some(session) => session.cuda.clone(),
            None if matches!(self.state, NvmlState::Absent(_)) => Reading::Absent,
            None => Reading::unknown("the driver does not answer"),
        }
    }

    /// Opens the library if it is closed, or again if a device has given no values for a while.
    fn open_if_due(&mut self, now: Duration) {
        let first = self.session.is_none() && self.state == NvmlState::Open;
        let due = self.said.is_some() && now >= self.retry_at;
        if !first && !due {
            return;
        }
        // The old session is closed first: the library counts its users and would keep its state.
        self.session = None;
        self.retry_at = now + self.retry_every;
        match NvmlSession::open(&self.library, &self.device, &mut self.known) {
            Ok(session) => {
                self.session = Some(session);
                self.state = NvmlState::Open;
            }
            Err(state) => self.close(now, state),
        }
    }

    fn close(&mut self, now: Duration, state: NvmlState) {
        self.session = None;
        self.retry_at = now + self.retry_every;
        self.state = match state {
            // The machine had GPUs, so a missing driver is a fault.
            NvmlState::Absent(why) if !self.known.is_empty() => NvmlState::Unknown(why),
            state => state,
        };
        if let NvmlState::Absent(why) | NvmlState::Unknown(why) = self.state.clone() {
            self.say(Some(why));
        }
    }

    fn closed(&self) -> Reading<Vec<GpuSample>> {
        match &self.state {
            NvmlState::Open => Reading::unknown("not opened yet"),
            NvmlState::Absent(_) => Reading::Absent,
            NvmlState::Unknown(why) => Reading::Unknown(why.clone()),
        }
    }

    /// Logs a problem when it begins, changes or ends.
    fn say(&mut self, problem: Option<String>) {
        if problem == self.said {
            return;
        }
        match (&problem, &self.state) {
            (Some(why), NvmlState::Absent(_)) => tracing::info!("no GPU readings: {why}"),
            (Some(why), _) => tracing::warn!("GPU readings are missing: {why}; the job goes on"),
            (None, _) => tracing::info!("GPU readings are complete again"),
        }
        self.said = problem;
    }
}

/// The opened library. Fields before `_owner` borrow from it and are dropped first.
struct NvmlSession {
    devices: Vec<Result<Device<'static>, UnreachableDevice>>,
    events: Option<EventSet<'static>>,
    cuda: Reading<Cuda>,
    _owner: LibraryOwner,
}

/// Owns the library that a session borrows.
struct LibraryOwner(*mut Nvml);

// SAFETY: `Nvml` is `Send`, and only this pointer and the session's borrows reach it; they move
// together.
unsafe impl Send for LibraryOwner {}

impl Drop for LibraryOwner {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw` in `open`; every borrow is in a field that is dropped
        // earlier.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl LibraryOwner {
    fn nvml(&self) -> &'static Nvml {
        // SAFETY: valid until `LibraryOwner` is dropped; each borrower is dropped before it (see
        // `NvmlSession`).
        unsafe { &*self.0 }
    }
}

impl NvmlSession {
    fn open(
        library: &Path,
        kernels: &Path,
        known: &mut Vec<GpuState>,
    ) -> Result<NvmlSession, NvmlState> {
        let unopened = |error: &NvmlError| unopened(error, kernels);
        let nvml = Nvml::builder()
            .lib_path(library.as_os_str())
            .init()
            .map_err(|error| unopened(&error))?;
        let owner = LibraryOwner(Box::into_raw(Box::new(nvml)));
        let nvml = owner.nvml();
        let count = nvml.device_count().map_err(|error| unopened(&error))?;
        if count == 0 {
            return Err(NvmlState::Absent("the NVIDIA driver sees no GPU".into()));
        }
        let mut devices = Vec::new();
        for index in 0..count {
            let device = match nvml.device_by_index(index) {
                Ok(device) => Ok(device),
                Err(error) => match halt(error) {
                    Ok(error) => Err(UnreachableDevice { why: error.to_string(), lost: false }),
                    Err(Halt::Gpu(why)) => Err(UnreachableDevice { why, lost: false }),
                    Err(Halt::Lost(why)) => Err(UnreachableDevice { why, lost: true }),
                    Err(Halt::Driver(error)) => return Err(unopened(&error)),
                },
            };
            if known.len() <= index as usize {
                known.push(GpuState::of(index));
            }
            devices.push(device);
        }
        // A GPU that the driver no longer counts stays known, as lost.
        devices.resize_with(known.len(), || {
            Err(UnreachableDevice { why: "GPU is no longer there".into(), lost: true })
        });
        for (memory, device) in known.iter_mut().zip(&devices) {
            if let Ok(device) = device {
                memory.identify(device);
            }
        }
        let events = xid_events::listen(nvml, devices.iter().flatten());
        let cuda = nvml.sys_cuda_driver_version().map_or_else(
            |error| Reading::Unknown(sentence(&error)),
            |number| Reading::Known(Cuda::of_driver(number)),
        );
        Ok(NvmlSession { devices, events, cuda, _owner: owner })
    }

    /// The samples, and a problem with some of them. An error: the driver is gone.
    fn read(
        &mut self,
        known: &mut [GpuState],
        now: Duration,
        tree: &WorkloadTree,
    ) -> Result<(Vec<GpuSample>, Option<String>), NvmlError> {
        if self
            .events
            .as_ref()
            .is_some_and(|events| xid_events::collect(events, &self.devices, known).is_err())
        {
            self.events = None;
        }
        let mut problem = None;
        let mut samples = Vec::with_capacity(known.len());
        for (memory, device) in known.iter_mut().zip(&self.devices) {
            let read = match device {
                Ok(device) => memory.read(device, now, tree),
                Err(UnreachableDevice { why, lost: true }) => Err(Halt::Lost(why.clone())),
                Err(UnreachableDevice { why, lost: false }) => Err(Halt::Gpu(why.clone())),
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
            // After the problem check: this doubt is no missing reading, so opening the library
            // again would not help.
            if let Ok(device) = device {
                memory.doubt_zero(&mut sample, device, now);
            }
            samples.push(sample);
        }
        Ok((samples, problem))
    }
}

/// Without library and driver there are no GPUs. Anything else is unknown. So is a kernel device
/// without the library: a container without the driver's `utility` part.
fn unopened(error: &NvmlError, kernels: &Path) -> NvmlState {
    let text = sentence(error);
    let is_nothing = match error {
        NvmlError::LibloadingError(cause) => cause.to_string().contains("No such file"),
        NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound => true,
        _ => false,
    };
    match is_nothing {
        true if kernels.exists() => {
            NvmlState::Unknown(format!("{} is there, but {text}", kernels.display()))
        }
        true => NvmlState::Absent(text),
        false => NvmlState::Unknown(text),
    }
}

fn sentence(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(cause) => format!("NVIDIA's library cannot be loaded: {cause}"),
        NvmlError::DriverNotLoaded => "the NVIDIA driver is not loaded".into(),
        NvmlError::LibRmVersionMismatch => {
            "NVIDIA's driver and library are of different versions; a reboot usually mends it"
                .into()
        }
        NvmlError::NoPermission => "no permission to talk to the NVIDIA driver".into(),
        error => format!("the NVIDIA driver does not answer: {error}"),
    }
}
