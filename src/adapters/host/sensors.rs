//! All senses together: one sample of the machine and of the workload in it.
//!
//! ```text
//!   Scope -> host (tree, processors, memory, disk) -> Tree -> nvml (GPUs, by tree) -.
//!            network, typing -------------------------------------------------------+-> Sample
//! ```
//! Not here: how anything is read, and waiting; a call that hangs is `sensor_thread`'s business.

#![expect(clippy::disallowed_methods, reason = "a sample carries the wall clock of the moment it was taken")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::keyboard_activity::Typing;
use super::network::Network;
use super::nvml::library::{self, Gpus};
use super::resources::HostSensors;
use super::system_clock::since_boot;
use crate::instance::{Marks, Sample};
use crate::ports::{Scope, Sensors};

/// Where to look.
#[derive(Clone, Debug)]
pub struct SensorOptions {
    /// NVIDIA's library, by path, or by name for the loader to find.
    pub nvml_library: PathBuf,
    /// The device of NVIDIA's kernel driver: where it is, there are GPUs, whatever the library says.
    pub nvidia_device: PathBuf,
    /// Between two attempts to open it.
    pub nvml_retry_every: Duration,
}

impl Default for SensorOptions {
    fn default() -> Self {
        SensorOptions { nvml_library: library::LIBRARY.into(), nvidia_device: library::DEVICE.into(), nvml_retry_every: library::RETRY_EVERY }
    }
}

/// The senses of this machine.
pub fn system_sensors(options: &SensorOptions) -> SystemSensors {
    SystemSensors {
        host: HostSensors::new(),
        gpus: Gpus::new(&options.nvml_library, &options.nvidia_device, options.nvml_retry_every),
        network: Network::new(),
        typing: Typing::new("/"),
        problem: GpuProblem::default(),
    }
}

pub struct SystemSensors {
    host: HostSensors,
    gpus: Gpus,
    network: Network,
    typing: Typing,
    problem: GpuProblem,
}

/// Why GPUs cannot be read, if so, as of the newest sample. A clone stays up to date when the sensors have gone to a
/// thread of their own.
#[derive(Clone, Debug, Default)]
pub struct GpuProblem(Arc<Mutex<Option<String>>>);

impl GpuProblem {
    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, problem: Option<&str>) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.as_deref() != problem {
            *now = problem.map(str::to_owned);
        }
    }
}

impl SystemSensors {
    /// Why not all GPUs are in the samples, if so: no library, no driver, a lost GPU. `None` before the first sample.
    pub fn gpu_problem(&self) -> Option<String> {
        self.problem.get()
    }

    /// The same, for whoever gives the sensors away.
    pub fn gpu_problem_watch(&self) -> GpuProblem {
        self.problem.clone()
    }
}

impl Sensors for SystemSensors {
    fn sample(&mut self, scope: &Scope) -> Sample {
        // The time first and the driver last: it is the one that may be slow, and counters must fit their time.
        let (at, mono) = (Timestamp::now(), since_boot());
        let host = self.host.read(scope, mono);
        let network = self.network.read(scope.own_network_bytes);
        let typing = self.typing.read(mono);
        let gpus = self.gpus.read(mono, self.host.tree());
        self.problem.set(self.gpus.problem());
        let cuda = self.gpus.cuda();
        Sample {
            at,
            mono,
            gpus,
            cuda,
            tree_cpu: host.tree_cpu,
            machine_cpu: host.machine_cpu,
            cores: host.cores,
            tree_memory_bytes: host.tree_memory_bytes,
            machine_memory_bytes: host.machine_memory_bytes,
            tree_disk: host.tree_disk,
            network,
            disk_free_bytes: host.disk_free_bytes,
            tree_processes: host.tree_processes,
            typing,
            marks: Marks::default(),
        }
    }
}
