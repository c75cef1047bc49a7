//! Checks that the machine is what the job asked for. Pure: uses the first sample, before any
//! download.
//!
//! A GPU that is surely missing is an error, since the job would bill and fail. A GPU that cannot
//! be seen is only a warning, since the driver may still answer the job's library.

use crate::instance::{GpuSample, Reading, Sample};
use crate::job::{Finding, Spec};

/// Too little for any work: even a log and one small checkpoint need more.
const DISK_BYTES_MIN: u64 = 64 << 20;

/// Below this people are told. Environments with PyTorch take 5 GB and more, a plain script none.
const DISK_BYTES_LOW: u64 = 2 << 30;

/// A GPU may report less memory than it is sold with: firmware and ECC take up to a tenth.
const MEMORY_SHARE_MIN: f64 = 0.9;

/// The findings about this machine for this job. An error means: do not start.
pub fn preflight(spec: &Spec, sample: &Sample) -> Vec<Finding> {
    let mut found = Vec::new();
    check_gpus(spec, sample, &mut found);
    check_cuda(spec, sample, &mut found);
    check_disk(sample, &mut found);
    found
}

fn check_gpus(spec: &Spec, sample: &Sample, found: &mut Vec<Finding>) {
    let wanted = &spec.machine.gpus;
    if wanted.count == 0 {
        return;
    }
    let path = "machine.gpus";
    match &sample.gpus {
        Reading::Absent => found.push(
            Finding::error(
                path,
                format!("the job asks for {wanted}, and this machine has no NVIDIA driver"),
            )
            .hint("choose an image with the driver, or gpus = \"none\""),
        ),
        Reading::Unknown(why) => {
            found.push(Finding::warning(
                path,
                format!(
                    "the job asks for {wanted}, and the GPUs of this machine cannot be seen: {why}"
                ),
            ));
        }
        Reading::Known(gpus) => {
            let fitting = gpus.iter().filter(|gpu| fits(gpu, spec)).count();
            if fitting < wanted.count as usize {
                let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
                let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                found.push(Finding::error(
                    path,
                    format!("the job asks for {wanted}, and this machine has {has}"),
                ));
            }
        }
    }
}

/// A library for a newer CUDA than the driver's fails at its first call, after the download and the
/// setup.
fn check_cuda(spec: &Spec, sample: &Sample, found: &mut Vec<Finding>) {
    let Some(wanted) = spec.machine.cuda else { return };
    let path = "machine.cuda";
    match &sample.cuda {
        Reading::Known(runs) if *runs >= wanted => {}
        Reading::Known(runs) => found.push(
            Finding::error(path, format!("the job asks for CUDA {wanted}, and the driver of this machine runs {runs} and older"))
                .hint("choose an image with a newer driver, or libraries that were built for the older CUDA"),
        ),
        Reading::Absent => found.push(
            Finding::error(path, format!("the job asks for CUDA {wanted}, and this machine has no NVIDIA driver"))
                .hint("choose an image with the driver"),
        ),
        Reading::Unknown(why) => {
            found.push(Finding::warning(path, format!("the job asks for CUDA {wanted}, and what the driver runs is not known: {why}")));
        }
    }
}

fn fits(gpu: &GpuSample, spec: &Spec) -> bool {
    let wanted = &spec.machine.gpus;
    let model = wanted.is_model(&gpu.name);
    // Unknown memory is not a reason to refuse.
    let memory = wanted.memory_mib_min.is_none_or(|min| {
        gpu.memory_total_mib.known().is_none_or(|mib| *mib as f64 >= min as f64 * MEMORY_SHARE_MIN)
    });
    model && memory
}

fn check_disk(sample: &Sample, found: &mut Vec<Finding>) {
    let Reading::Known(free) = sample.disk_free_bytes else { return };
    let gib = free as f64 / f64::from(1 << 30);
    if free < DISK_BYTES_MIN {
        found.push(
            Finding::error(
                "machine.disk",
                format!("only {:.0} MiB of the disk are free", gib * 1024.0),
            )
            .hint("ask for a larger disk"),
        );
    } else if free < DISK_BYTES_LOW {
        found.push(Finding::warning(
            "machine.disk",
            format!("only {gib:.1} GiB of the disk are free"),
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::instance::{GpuHealth, Marks};
    use crate::job::{Command, LimitsSpec, MachineSpec, Severity};

    fn gpu(name: &str, mib: Reading<u64>) -> GpuSample {
        GpuSample {
            index: 0,
            uuid: String::new(),
            name: name.into(),
            util_percent: Reading::Absent,
            memory_util_percent: Reading::Absent,
            memory_used_mib: Reading::Absent,
            memory_total_mib: mib,
            power_watts: Reading::Absent,
            power_limit_watts: Reading::Absent,
            clock_mhz: Reading::Absent,
            temperature_celsius: Reading::Absent,
            used_by_workload: Reading::Absent,
            used_by_others: Reading::Absent,
            throttled_by: Reading::Absent,
            processes: Vec::new(),
            ecc_uncorrected: Reading::Absent,
            xids: Vec::new(),
            health: GpuHealth::default(),
            lost: None,
        }
    }

    fn sample(gpus: Reading<Vec<GpuSample>>, free: u64) -> Sample {
        Sample {
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
            mono: Duration::ZERO,
            gpus,
            cuda: Reading::Absent,
            tree_cpu: Reading::Absent,
            machine_cpu: Reading::Absent,
            cores: 1,
            tree_memory_bytes: Reading::Absent,
            machine_memory_bytes: Reading::Absent,
            tree_disk: Reading::Absent,
            network: Reading::Absent,
            disk_free_bytes: Reading::Known(free),
            tree_processes: Reading::Absent,
            typing: Reading::Absent,
            marks: Marks::default(),
        }
    }

    fn spec(gpus: &str) -> Spec {
        Spec {
            name: "j".into(),
            command: Command::Args(vec!["true".into()]),
            setup: None,
            env: Default::default(),
            secrets: Default::default(),
            tags: Default::default(),
            outputs: Vec::new(),
            machine: MachineSpec { gpus: gpus.parse().unwrap(), ..MachineSpec::default() },
            watch: Default::default(),
            limits: LimitsSpec::default(),
            checkpoint: None,
            on: Default::default(),
            retries: Default::default(),
            interruptions: Default::default(),
            gang: None,
        }
    }

    fn verdict(gpus: &str, has: Reading<Vec<GpuSample>>) -> Option<Severity> {
        preflight(&spec(gpus), &sample(has, 100 << 30)).iter().map(|finding| finding.severity).max()
    }

    #[test]
    fn missing_gpu_is_error_and_unreadable_gpu_is_not() {
        let a10g = || gpu("NVIDIA A10G", Reading::Known(23_028));
        let known = |gpus| Reading::Known(gpus);
        for (wanted, has, expected) in [
            ("none", Reading::Absent, None),
            ("A10G:1", known(vec![a10g()]), None),
            ("A10:1", known(vec![a10g()]), Some(Severity::Error)),
            ("A10G:2", known(vec![a10g()]), Some(Severity::Error)),
            ("A10G:2", known(vec![a10g(), a10g()]), None),
            ("at least 24GiB", known(vec![a10g()]), None),
            ("at least 40GiB", known(vec![a10g()]), Some(Severity::Error)),
            ("at least 40GiB", known(vec![gpu("NVIDIA X", Reading::unknown("lost"))]), None),
            (
                "A100-80GB:1",
                known(vec![gpu("NVIDIA A100-SXM4-80GB", Reading::Known(81_920))]),
                None,
            ),
            ("RTX4090", known(vec![gpu("NVIDIA GeForce RTX 4090", Reading::Absent)]), None),
            (
                "RTX4090",
                known(vec![gpu("NVIDIA GeForce RTX 4090D", Reading::Absent)]),
                Some(Severity::Error),
            ),
            ("H100:1", known(vec![]), Some(Severity::Error)),
            ("H100:1", Reading::Absent, Some(Severity::Error)),
            ("H100:1", Reading::unknown("driver/library mismatch"), Some(Severity::Warning)),
        ] {
            assert_eq!(verdict(wanted, has.clone()), expected, "{wanted} on {has:?}");
        }
    }

    #[test]
    fn too_old_driver_is_error() {
        let cuda = |text: &str| text.parse().unwrap();
        for (wanted, runs, expected) in [
            (None, Reading::Absent, None),
            (Some("12.4"), Reading::Known(cuda("12.4")), None),
            (Some("12.4"), Reading::Known(cuda("12.10")), None),
            (Some("12.4"), Reading::Known(cuda("12.2")), Some(Severity::Error)),
            (Some("12.4"), Reading::Absent, Some(Severity::Error)),
            (Some("12.4"), Reading::unknown("library mismatch"), Some(Severity::Warning)),
        ] {
            let spec = Spec {
                machine: MachineSpec { cuda: wanted.map(cuda), ..MachineSpec::default() },
                ..spec("none")
            };
            let found = preflight(
                &spec,
                &Sample { cuda: runs.clone(), ..sample(Reading::Absent, 100 << 30) },
            );
            assert_eq!(
                found.first().map(|finding| finding.severity),
                expected,
                "{wanted:?} on {runs:?}"
            );
        }
    }

    #[test]
    fn full_disk_is_found_before_work() {
        let severity = |free| {
            preflight(&spec("none"), &sample(Reading::Absent, free))
                .first()
                .map(|finding| finding.severity)
        };
        assert_eq!(
            (severity(1 << 20), severity(1 << 30), severity(100 << 30)),
            (Some(Severity::Error), Some(Severity::Warning), None)
        );
    }
}
