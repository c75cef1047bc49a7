//! The newest values of this machine and its job as OpenMetrics, for `--metrics-listen`.
//!
//! ```text
//!   the loop: sample, rates, status ──> the newest of each ──> a scrape ──> text
//! ```
//! GPUs have the names and units of NVIDIA's exporter (DCGM), memory those of node-exporter, so
//! that their dashboards and alerts work. An unknown value is left out, and never zero. Not here:
//! the socket (`adapters::http`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::registry::Unit;

use super::open_metrics::{LabelText, Scrape, ratio, secs, timestamp};
use crate::instance::{GpuSample, Rates, Reading, Sample, Status};

/// The newest values. The loop writes them, and each scrape reads them.
#[derive(Default)]
pub struct ExposedMetrics {
    job: String,
    name: String,
    newest: Mutex<NewestValues>,
}

#[derive(Default)]
struct NewestValues {
    sample: Option<Sample>,
    rates: Option<Rates>,
    quiet_secs: Option<f64>,
    status: Option<Status>,
    hard_end: Option<Timestamp>,
}

/// Not `job`: Prometheus gives each series a label of that name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    job_id: LabelText,
    name: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    job_id: LabelText,
    name: LabelText,
    phase: LabelText,
    verdict: LabelText,
}

/// The labels of NVIDIA's exporter, then ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(non_snake_case, reason = "dashboards know the labels by these names")]
struct GpuLabels {
    gpu: LabelText,
    UUID: LabelText,
    device: LabelText,
    modelName: LabelText,
    job_id: LabelText,
    name: LabelText,
}

/// A value with its name, help and unit.
struct Metric {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    value: Option<f64>,
}

impl Metric {
    fn new(name: &'static str, help: &'static str, value: Option<f64>) -> Self {
        Metric { name, help, unit: None, value }
    }

    fn unit(self, unit: Unit) -> Self {
        Metric { unit: Some(unit), ..self }
    }
}

impl ExposedMetrics {
    pub fn new(job: &str, name: &str) -> Self {
        let (job, name) = (job.to_owned(), name.to_owned());
        ExposedMetrics { job, name, newest: Mutex::default() }
    }

    /// `None`: the sensors did not answer.
    pub fn see_sample(&self, sample: Option<Sample>, rates: Rates, quiet_secs: Option<f64>) {
        let mut newest = self.newest();
        (newest.sample, newest.rates, newest.quiet_secs) = (sample, Some(rates), quiet_secs);
    }

    pub fn see_status(&self, status: Status, hard_end: Option<Timestamp>) {
        let mut newest = self.newest();
        (newest.status, newest.hard_end) = (Some(status), hard_end);
    }

    /// The text of one scrape.
    ///
    /// # Errors
    /// None in practice: a text grows in memory.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let newest = self.newest();
        let mut scrape = Scrape::default();
        if let Some(sample) = &newest.sample {
            self.gpus(&mut scrape, sample);
            self.put(&mut scrape, machine_memory(sample));
            self.put_own(&mut scrape, workload(sample));
        }
        if let Some(rates) = &newest.rates {
            self.put_own(&mut scrape, flows(rates, newest.quiet_secs));
        }
        if let Some(status) = &newest.status {
            self.state(&mut scrape, status);
            self.put_own(&mut scrape, progress(status, newest.hard_end));
        }
        drop(newest);
        scrape.into_text()
    }

    fn newest(&self) -> MutexGuard<'_, NewestValues> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Values of the machine, without a label of the job.
    fn put(&self, scrape: &mut Scrape, metrics: Vec<Metric>) {
        for Metric { name, help, unit, value } in metrics {
            if let Some(value) = value {
                scrape.one(name, help, unit, value);
            }
        }
    }

    fn put_own(&self, scrape: &mut Scrape, metrics: Vec<Metric>) {
        let labels = self.labels();
        for Metric { name, help, unit, value } in metrics {
            if let Some(value) = value {
                scrape.family(name, help, unit).get_or_create(&labels).set(value);
            }
        }
    }

    fn labels(&self) -> JobLabels {
        JobLabels { job_id: LabelText(self.job.clone()), name: LabelText(self.name.clone()) }
    }

    fn state(&self, scrape: &mut Scrape, status: &Status) {
        let JobLabels { job_id, name } = self.labels();
        let verdict = LabelText(status.verdict.clone());
        let labels =
            StateLabels { job_id, name, phase: LabelText(status.phase.word().into()), verdict };
        let help = "1 for the phase of the attempt, with the verdict on its work";
        scrape.family("lamp_agent_state", help, None).get_or_create(&labels).set(1.0);
    }

    fn gpus(&self, scrape: &mut Scrape, sample: &Sample) {
        let Reading::Known(gpus) = &sample.gpus else { return };
        for (name, help, value) in GPU_METRICS {
            let family = scrape.family(name, help, None);
            for gpu in gpus {
                if let Some(value) = value(gpu) {
                    family.get_or_create(&self.gpu_labels(gpu)).set(value);
                }
            }
        }
    }

    fn gpu_labels(&self, gpu: &GpuSample) -> GpuLabels {
        let JobLabels { job_id, name } = self.labels();
        GpuLabels {
            gpu: LabelText(gpu.index.to_string()),
            UUID: LabelText(gpu.uuid.clone()),
            device: LabelText(format!("nvidia{}", gpu.index)),
            modelName: LabelText(gpu.name.clone()),
            job_id,
            name,
        }
    }
}

type GpuMetric = (&'static str, &'static str, fn(&GpuSample) -> Option<f64>);

/// As NVIDIA's exporter names them, with its units.
const GPU_METRICS: [GpuMetric; 10] = [
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %)", |gpu| known(&gpu.util_percent)),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %)", |gpu| {
        known(&gpu.memory_util_percent)
    }),
    ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB)", |gpu| {
        gpu.memory_used_mib.known().map(|mib| *mib as f64)
    }),
    ("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB)", |gpu| {
        let (used, total) = (gpu.memory_used_mib.known()?, gpu.memory_total_mib.known()?);
        Some(total.saturating_sub(*used) as f64)
    }),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W)", |gpu| known(&gpu.power_watts)),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "Power limit (in W)", |gpu| known(&gpu.power_limit_watts)),
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz)", |gpu| known(&gpu.clock_mhz)),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C)", |gpu| known(&gpu.temperature_celsius)),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Double-bit volatile ECC errors", |gpu| {
        gpu.ecc_uncorrected.known().map(|errors| *errors as f64)
    }),
    ("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered", |gpu| {
        Some(gpu.xids.last().map_or(0.0, |xid| *xid as f64))
    }),
];

fn known(reading: &Reading<f64>) -> Option<f64> {
    reading.known().copied().filter(|value| value.is_finite())
}

/// As node-exporter names them.
fn machine_memory(sample: &Sample) -> Vec<Metric> {
    let memory = sample.machine_memory_bytes.known();
    let total = memory.map(|(_, total)| *total as f64);
    let available = memory.map(|(used, total)| total.saturating_sub(*used) as f64);
    vec![
        Metric::new("node_memory_MemTotal", "Memory of the machine", total).unit(Unit::Bytes),
        Metric::new("node_memory_MemAvailable", "Memory that programs can get", available)
            .unit(Unit::Bytes),
    ]
}

fn workload(sample: &Sample) -> Vec<Metric> {
    let bytes = |reading: &Reading<u64>| reading.known().map(|bytes| *bytes as f64);
    let (memory, free) = (bytes(&sample.tree_memory_bytes), bytes(&sample.disk_free_bytes));
    let processes = sample.tree_processes.known().map(|count| f64::from(*count));
    vec![
        Metric::new("lamp_agent_workload_memory", "Memory of the command's processes", memory)
            .unit(Unit::Bytes),
        Metric::new("lamp_agent_workload_processes", "Processes of the command", processes),
        Metric::new("lamp_agent_workdir_free", "Free space where the workdir is", free)
            .unit(Unit::Bytes),
        Metric::new("lamp_agent_sample", "When the sensors were read", Some(secs(sample.at)))
            .unit(timestamp()),
    ]
}

fn flows(rates: &Rates, quiet_secs: Option<f64>) -> Vec<Metric> {
    let share = |reading: &Reading<f64>| known(reading).map(|percent| percent / 100.0);
    let per_sec = || Unit::Other("bytes_per_second".to_owned());
    let cores = share(&rates.cpu_percent);
    let (disk, net) = (known(&rates.disk_bytes_per_sec), known(&rates.net_bytes_per_sec));
    vec![
        Metric::new("lamp_agent_workload_cpu_cores", "Processor use of the command", cores),
        Metric::new(
            "lamp_agent_machine_cpu",
            "Processor use of the machine, 0 to 1",
            share(&rates.machine_cpu_percent),
        )
        .unit(ratio()),
        Metric::new("lamp_agent_disk", "What the command reads and writes", disk).unit(per_sec()),
        Metric::new("lamp_agent_network", "What is sent and received", net).unit(per_sec()),
        Metric::new("lamp_agent_quiet", "Time in which nothing worked", quiet_secs)
            .unit(Unit::Seconds),
    ]
}

fn progress(status: &Status, hard_end: Option<Timestamp>) -> Vec<Metric> {
    let (step, total) =
        status.progress.as_ref().map_or((None, None), |progress| (progress.step, progress.total));
    let saved = status.last_checkpoint.as_ref().map(|newest| secs(newest.created));
    let duration = |span: crate::market::Span| Some(span.secs_f64());
    vec![
        Metric::new(
            "lamp_agent_useful",
            "Time in which the command worked",
            duration(status.useful),
        )
        .unit(Unit::Seconds),
        Metric::new("lamp_agent_idle", "Time in which it did not", duration(status.idle))
            .unit(Unit::Seconds),
        Metric::new("lamp_agent_step", "The newest step", step.filter(|step| step.is_finite())),
        Metric::new("lamp_agent_steps", "The last step", total.filter(|total| total.is_finite())),
        Metric::new(
            "lamp_agent_checkpoints",
            "Complete checkpoints",
            Some(f64::from(status.checkpoints)),
        ),
        Metric::new("lamp_agent_checkpoint", "When the newest checkpoint was made", saved)
            .unit(timestamp()),
        Metric::new("lamp_agent_starts", "Starts of the command", Some(f64::from(status.starts))),
        Metric::new(
            "lamp_agent_attention",
            "Messages that a person should read",
            Some(status.attention.len() as f64),
        ),
        Metric::new(
            "lamp_agent_hard_end",
            "When the machine ends at the latest",
            hard_end.map(secs),
        )
        .unit(timestamp()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::{GpuHealth, Marks};

    fn sample() -> Sample {
        let gpu = GpuSample {
            index: 1,
            uuid: "GPU-1".into(),
            name: "NVIDIA A10G".into(),
            util_percent: Reading::Known(50.0),
            memory_util_percent: Reading::unknown("lost"),
            memory_used_mib: Reading::Known(1024),
            memory_total_mib: Reading::Known(23_028),
            power_watts: Reading::Known(150.0),
            power_limit_watts: Reading::Known(300.0),
            clock_mhz: Reading::Absent,
            temperature_celsius: Reading::Known(60.0),
            used_by_workload: Reading::Absent,
            used_by_others: Reading::Absent,
            throttled_by: Reading::Absent,
            processes: Vec::new(),
            ecc_uncorrected: Reading::Absent,
            xids: vec![31, 79],
            health: GpuHealth::default(),
            lost: None,
        };
        Sample {
            at: Timestamp::UNIX_EPOCH,
            mono: std::time::Duration::ZERO,
            gpus: Reading::Known(vec![gpu]),
            cuda: Reading::Absent,
            tree_cpu: Reading::Absent,
            machine_cpu: Reading::Absent,
            cores: 4,
            tree_memory_bytes: Reading::Known(7),
            machine_memory_bytes: Reading::Known((1, 3)),
            tree_disk: Reading::Absent,
            network: Reading::Absent,
            disk_free_bytes: Reading::Absent,
            tree_processes: Reading::Known(2),
            typing: Reading::Absent,
            marks: Marks::default(),
        }
    }

    #[test]
    fn gpus_have_the_names_of_dcgm_and_unknown_values_are_left_out() {
        let exposed = ExposedMetrics::new("digits-222222", "a \"b\"");
        assert_eq!(exposed.text().unwrap(), "# EOF\n", "nothing is known yet");
        exposed.see_sample(Some(sample()), Rates::default(), Some(12.0));
        let text = exposed.text().unwrap();
        let labels = r#"{gpu="1",UUID="GPU-1",device="nvidia1",modelName="NVIDIA A10G",job_id="digits-222222",name="a \"b\""}"#;
        for line in [
            format!("DCGM_FI_DEV_GPU_UTIL{labels} 50.0"),
            format!("DCGM_FI_DEV_FB_FREE{labels} 22004.0"),
            format!("DCGM_FI_DEV_XID_ERRORS{labels} 79.0"),
            "# UNIT node_memory_MemAvailable_bytes bytes".to_owned(),
            "node_memory_MemAvailable_bytes 2.0".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert!(text.contains("lamp_agent_quiet_seconds{job_id=\"digits-222222\","), "{text}");
        assert!(!text.contains("DCGM_FI_DEV_SM_CLOCK{"), "{text}");
        assert!(!text.contains("DCGM_FI_DEV_MEM_COPY_UTIL{"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
