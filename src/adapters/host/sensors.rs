//! All sensors together: one sample of the machine and of its workload.
//!
//! ```text
//!   Scope -> host (tree, processors, memory, disk) -> Tree -> nvml (GPUs, by tree) -.
//!            network, typing -------------------------------------------------------+-> Sample
//! ```
//! Not here: how a value is read, and waiting (`sensor_thread` handles a call that hangs).

#![expect(
    clippy::disallowed_methods,
    reason = "a sample carries the wall clock of the moment it was taken"
)]

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

/// Paths of the GPU driver, and how often to retry.
#[derive(Clone, Debug)]
pub struct SensorOptions {
    /// NVIDIA's library: a path, or a name for the loader.
    pub nvml_library: PathBuf,
    /// The device of NVIDIA's kernel driver. If it exists there are GPUs, whatever the library
    /// says.
    pub nvidia_device: PathBuf,
    /// Time between two attempts to open the library.
    pub nvml_retry_every: Duration,
}

impl Default for SensorOptions {
    fn default() -> Self {
        SensorOptions {
            nvml_library: library::LIBRARY.into(),
            nvidia_device: library::DEVICE.into(),
            nvml_retry_every: library::RETRY_EVERY,
        }
    }
}

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

/// Why GPUs cannot be read, as of the newest sample. A clone stays current after the sensors moved
/// to their thread.
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
    /// Why GPUs are missing from the samples: a missing library or driver, or a lost GPU. `None`
    /// before the first sample.
    pub fn gpu_problem(&self) -> Option<String> {
        self.problem.get()
    }

    /// The same, to keep when the sensors move to another thread.
    pub fn gpu_problem_watch(&self) -> GpuProblem {
        self.problem.clone()
    }
}

impl Sensors for SystemSensors {
    fn sample(&mut self, scope: &Scope) -> Sample {
        // The time first and the driver last: the driver may be slow, and counters must match their
        // time.
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
