//! The agent's sensors: a GPU that works when the workload does, and a driver that can be lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::active_faults::WorldFault;
use super::host::Host;
use crate::instance::{GpuHealth, GpuSample, IoCounters, Marks, Reading, Sample};
use crate::ports::{Scope, SensorFeed};
use crate::sim::faults::planted_bugs::Bug;

/// Counts CPU time.
pub struct Senses {
    host: Arc<Host>,
    cpu: Duration,
    at: Duration,
}

impl Senses {
    pub fn new(host: Arc<Host>) -> Self {
        Senses { cpu: Duration::ZERO, at: host.world.timeline.now(), host }
    }
}

#[async_trait]
impl SensorFeed for Senses {
    async fn sample(&mut self, _: &Scope) -> Option<Sample> {
        let host = &self.host;
        let mono = host.world.timeline.now();
        let works = host.state().starts.last().is_some_and(|start| start.is_busy());
        let hangs =
            host.state().starts.last().is_some_and(|start| start.truth().hung_since.is_some());
        if works && !host.world.habit.quiet {
            self.cpu += mono.saturating_sub(self.at);
        }
        self.at = mono;
        let lost = host.world.weather.is(WorldFault::NvmlLost);
        let works = works || host.world.planted() == Some(Bug::MemoryIsWork);
        let gpu = GpuSample {
            index: 0,
            uuid: "GPU-0".into(),
            name: "A10G".into(),
            util_percent: Reading::Known(if works { 93.0 } else { 0.0 }),
            memory_util_percent: Reading::Known(if works { 40.0 } else { 0.0 }),
            memory_used_mib: Reading::Known(9_000),
            memory_total_mib: Reading::Known(23_028),
            // A kernel that waits in a collective is busy, and draws little power.
            power_watts: Reading::Known(match works {
                true if hangs => 110.0,
                true => 240.0,
                false => 60.0,
            }),
            power_limit_watts: Reading::Known(300.0),
            clock_mhz: Reading::Known(1_700.0),
            temperature_celsius: Reading::Known(60.0),
            used_by_workload: Reading::Known(true),
            used_by_others: Reading::Known(false),
            throttled_by: Reading::Known(Vec::new()),
            processes: Vec::new(),
            ecc_uncorrected: Reading::Known(0),
            xids: host.state().xids.clone(),
            health: GpuHealth::default(),
            lost: None,
        };
        let gpus = match lost {
            // A product with this bug reads a lost sensor as zero.
            true if host.world.planted() == Some(Bug::UnknownIsIdle) => {
                Reading::Known(vec![idle(gpu)])
            }
            true => Reading::unknown("NVML: driver/library version mismatch"),
            false if host.lacks_gpu => Reading::Known(Vec::new()),
            false => Reading::Known(vec![gpu]),
        };
        Some(Sample {
            at: host.wall(),
            mono,
            gpus,
            cuda: Reading::Absent,
            tree_cpu: Reading::Known(self.cpu),
            machine_cpu: Reading::Known(self.cpu),
            cores: 4,
            tree_memory_bytes: Reading::Known(1 << 30),
            machine_memory_bytes: Reading::Known((1 << 30, 1 << 34)),
            tree_disk: Reading::Known(IoCounters::default()),
            network: Reading::Absent,
            disk_free_bytes: Reading::Known(1 << 40),
            tree_processes: Reading::Known(3),
            typing: Reading::Absent,
            marks: Marks::default(),
        })
    }
}

fn idle(gpu: GpuSample) -> GpuSample {
    GpuSample {
        util_percent: Reading::Known(0.0),
        memory_util_percent: Reading::Known(0.0),
        power_watts: Reading::Known(0.0),
        ..gpu
    }
}
