//! Scale tiers and machine types of the training service, and what each needs of a machine.
//!
//! The table of docs/from-ml-engine.md is this one. Not here: which machine is bought.

use crate::market::{Arch, Catalog, MachineType};

/// The least that a machine must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineNeed {
    pub cpus: u32,
    pub memory_gb: f64,
    pub gpus: Option<GpuNeed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuNeed {
    pub count: u32,
    /// Of each GPU.
    pub memory_gib: u32,
    /// The model that the service had.
    pub was: &'static str,
    /// Models that are as fast or faster, if the file names the model beside a machine type. Empty:
    /// the memory is enough.
    pub models: &'static [&'static str],
}

/// The machines of one role.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierRole {
    pub count: u32,
    pub need: MachineNeed,
}

/// The machines of a scale tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleTier {
    pub master: MachineNeed,
    pub workers: Option<TierRole>,
    pub parameter_servers: Option<TierRole>,
}

/// Why a tier or a type cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    #[error("`{0}` is a machine with a TPU, which only Google has")]
    Tpu(String),
    #[error("`{0}` is no scale tier")]
    UnknownTier(String),
    #[error("`{0}` is no machine type of the training service")]
    UnknownType(String),
    #[error("`{0}` is no accelerator that is known here")]
    UnknownAccelerator(String),
}

impl TierError {
    /// The words to write instead.
    pub fn hint(&self) -> String {
        match self {
            TierError::Tpu(_) => "write a machine with GPUs: scaleTier: CUSTOM with masterType: \
                standard_v100, or BASIC_GPU; the program must then use GPUs"
                .to_owned(),
            TierError::UnknownTier(_) => format!("there are {}", TIERS.join(", ")),
            TierError::UnknownType(_) => {
                let names: Vec<&str> = TYPES.iter().map(|row| row.name).collect();
                format!("there are {}, and n1-standard-8 and the like", names.join(", "))
            }
            TierError::UnknownAccelerator(_) => {
                let names: Vec<String> =
                    ACCELERATORS.iter().map(|row| format!("nvidia-tesla-{}", row.word)).collect();
                format!("there are {}", names.join(", "))
            }
        }
    }
}

pub const TIERS: [&str; 6] =
    ["BASIC", "BASIC_GPU", "BASIC_TPU", "STANDARD_1", "PREMIUM_1", "CUSTOM"];

/// A machine type with a name of its own.
pub struct NamedType {
    pub name: &'static str,
    pub need: MachineNeed,
}

const fn cpu(name: &'static str, cpus: u32, memory_gb: f64) -> NamedType {
    NamedType { name, need: MachineNeed { cpus, memory_gb, gpus: None } }
}

const fn gpu(name: &'static str, count: u32, memory_gib: u32, was: &'static str) -> NamedType {
    let gpus = Some(GpuNeed { count, memory_gib, was, models: &[] });
    NamedType { name, need: MachineNeed { cpus: 0, memory_gb: 0.0, gpus } }
}

/// The types of the service. GPU memory: 12 GB of one K80, 16 GB of a P100 and of a V100.
pub const TYPES: [NamedType; 15] = [
    cpu("standard", 4, 15.0),
    cpu("large_model", 8, 52.0),
    cpu("complex_model_s", 8, 7.2),
    cpu("complex_model_m", 16, 14.4),
    cpu("complex_model_l", 32, 28.8),
    gpu("standard_gpu", 1, 12, "K80"),
    gpu("complex_model_m_gpu", 4, 12, "K80"),
    gpu("complex_model_l_gpu", 8, 12, "K80"),
    gpu("standard_p100", 1, 16, "P100"),
    gpu("complex_model_m_p100", 4, 16, "P100"),
    gpu("standard_v100", 1, 16, "V100"),
    gpu("large_model_v100", 1, 16, "V100"),
    gpu("complex_model_m_v100", 4, 16, "V100"),
    gpu("complex_model_l_v100", 8, 16, "V100"),
    gpu("a2-megagpu-16g", 16, 40, "A100"),
];

struct Accelerator {
    word: &'static str,
    memory_gib: u32,
    was: &'static str,
    /// As `GpuNeed::models`.
    models: &'static [&'static str],
}

/// Models that are sold and train as fast as a V100, or faster.
const FASTER_THAN_V100: &[&str] = &["V100", "A10G", "L40S", "A100", "H100", "H200", "B200", "B300"];
const FASTER_THAN_T4: &[&str] =
    &["T4", "L4", "V100", "A10G", "L40S", "A100", "H100", "H200", "B200", "B300"];
const FASTER_THAN_A100: &[&str] = &["A100", "H100", "H200", "B200", "B300"];

const ACCELERATORS: [Accelerator; 6] = [
    Accelerator { word: "k80", memory_gib: 12, was: "K80", models: FASTER_THAN_T4 },
    Accelerator { word: "p100", memory_gib: 16, was: "P100", models: FASTER_THAN_V100 },
    Accelerator { word: "v100", memory_gib: 16, was: "V100", models: FASTER_THAN_V100 },
    Accelerator { word: "p4", memory_gib: 8, was: "P4", models: FASTER_THAN_T4 },
    Accelerator { word: "t4", memory_gib: 16, was: "T4", models: FASTER_THAN_T4 },
    Accelerator { word: "a100", memory_gib: 40, was: "A100", models: FASTER_THAN_A100 },
];

/// `basic-gpu` of a flag and `BASIC_GPU` of a file are the same.
pub fn tier_name(word: &str) -> String {
    word.to_ascii_uppercase().replace('-', "_")
}

/// The machines of a tier. `None`: CUSTOM, whose types the job names.
///
/// # Errors
/// Fails for a TPU and for an unknown tier.
pub fn tier(word: &str) -> Result<Option<ScaleTier>, TierError> {
    let alone = |master| ScaleTier { master, workers: None, parameter_servers: None };
    let plain = |cpus, memory_gb| MachineNeed { cpus, memory_gb, gpus: None };
    let gang = |workers, highcpu: MachineNeed, servers, server: MachineNeed| ScaleTier {
        master: highcpu,
        workers: Some(TierRole { count: workers, need: highcpu }),
        parameter_servers: Some(TierRole { count: servers, need: server }),
    };
    let gpus = Some(GpuNeed { count: 1, memory_gib: 12, was: "K80", models: &[] });
    Ok(match tier_name(word).as_str() {
        "BASIC" | "SCALE_TIER_UNSPECIFIED" => Some(alone(plain(4, 15.0))),
        "BASIC_GPU" => Some(alone(MachineNeed { gpus, ..plain(8, 30.0) })),
        "STANDARD_1" => Some(gang(4, plain(8, 7.2), 3, plain(4, 15.0))),
        "PREMIUM_1" => Some(gang(19, plain(16, 14.4), 11, plain(8, 52.0))),
        "CUSTOM" => None,
        "BASIC_TPU" => return Err(TierError::Tpu(word.to_owned())),
        _ => return Err(TierError::UnknownTier(word.to_owned())),
    })
}

/// The hardware of a machine type.
///
/// # Errors
/// Fails for a TPU and for an unknown type.
pub fn machine_type(name: &str) -> Result<MachineNeed, TierError> {
    if name.contains("tpu") {
        return Err(TierError::Tpu(name.to_owned()));
    }
    if let Some(row) = TYPES.iter().find(|row| row.name == name) {
        return Ok(row.need);
    }
    compute_engine(name).ok_or_else(|| TierError::UnknownType(name.to_owned()))
}

/// `n1-standard-8`: family, kind and number of CPUs.
fn compute_engine(name: &str) -> Option<MachineNeed> {
    let mut parts = name.split('-');
    let (family, kind, size) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    if (family, kind) == ("a2", "highgpu") {
        let count = size.strip_suffix('g')?.parse().ok().filter(|count| (1..=8).contains(count))?;
        let gpus = Some(GpuNeed { count, memory_gib: 40, was: "A100", models: &[] });
        return Some(MachineNeed { cpus: 12 * count, memory_gb: 85.0 * f64::from(count), gpus });
    }
    let cpus: u32 = size.parse().ok().filter(|cpus| (1..=224).contains(cpus))?;
    let gb_a_cpu = match (family, kind) {
        ("n1", "standard") => 3.75,
        ("n1", "highmem") => 6.5,
        ("n1", "highcpu") => 0.9,
        ("n2" | "e2" | "c2", "standard") => 4.0,
        ("n2" | "e2", "highmem") => 8.0,
        ("n2" | "e2", "highcpu") => 1.0,
        _ => return None,
    };
    Some(MachineNeed { cpus, memory_gb: gb_a_cpu * f64::from(cpus), gpus: None })
}

/// GPUs beside a machine: `nvidia-tesla-k80` of a flag, `NVIDIA_TESLA_K80` of a file.
///
/// # Errors
/// Fails for a TPU and for an unknown model.
pub fn accelerator(kind: &str, count: u32) -> Result<GpuNeed, TierError> {
    let word = kind.to_ascii_lowercase().replace('_', "-");
    if word.starts_with("tpu") {
        return Err(TierError::Tpu(kind.to_owned()));
    }
    let short = word.trim_start_matches("nvidia-").trim_start_matches("tesla-");
    let row = ACCELERATORS.iter().find(|row| row.word == short);
    let row = row.ok_or_else(|| TierError::UnknownAccelerator(kind.to_owned()))?;
    Ok(GpuNeed { count, memory_gib: row.memory_gib, was: row.was, models: row.models })
}

impl MachineNeed {
    /// The hardware in words.
    pub fn words(&self) -> String {
        match self.gpus {
            Some(gpus) => {
                let beside = self.beside_gpus().map(|beside| format!(" beside {beside}"));
                let beside = beside.unwrap_or_default();
                format!("{} {} of {} GB{beside}", gpus.count, gpus.was, gpus.memory_gib)
            }
            None => format!("{} CPUs and {} GB", self.cpus, self.memory_gb),
        }
    }

    /// The CPUs and the memory of a machine type with GPUs beside it, in words.
    pub fn beside_gpus(&self) -> Option<String> {
        let has_type = self.gpus.is_some_and(|gpus| !gpus.models.is_empty()) && self.cpus > 0;
        has_type.then(|| format!("{} CPUs and {} GB", self.cpus, self.memory_gb))
    }

    /// `gpus` of a job file.
    pub fn gpus_word(&self) -> Option<String> {
        let gpus = self.gpus?;
        Some(match gpus.count {
            1 => format!("at least {}GiB", gpus.memory_gib),
            count => format!("{count} x {}GiB", gpus.memory_gib),
        })
    }

    /// Types of EC2 that have at least so much. Empty: any with the GPUs.
    pub fn instance_types(&self) -> Vec<String> {
        if let Some(gpus) = self.gpus {
            let types = Catalog::shipped().types().iter();
            let types = types.filter(|kind| self.is_met_by(kind, gpus));
            return types.map(|kind| kind.name.clone()).collect();
        }
        let wanted = |gib_a_cpu: f64| {
            let by_memory = (self.memory_gb / gib_a_cpu).ceil() as u32;
            SIZES.iter().find(|size| size.cpus >= self.cpus.max(by_memory).max(2))
        };
        let cpus = f64::from(self.cpus.max(1));
        let (letter, gib_a_cpu) = match self.memory_gb / cpus {
            ratio if ratio <= 2.0 => ('c', 2.0),
            ratio if ratio <= 4.0 => ('m', 4.0),
            _ => ('r', 8.0),
        };
        let size = wanted(gib_a_cpu).unwrap_or(&SIZES[SIZES.len() - 1]);
        GENERATIONS.iter().map(|generation| format!("{letter}{generation}.{}", size.name)).collect()
    }
}

impl MachineNeed {
    /// Google's machines were x86-64. It counted 10^9 bytes as a GB.
    fn is_met_by(&self, kind: &MachineType, gpus: GpuNeed) -> bool {
        let model = kind.gpu_model.as_deref().unwrap_or_default();
        let mib = self.memory_gb * 1000.0 / 1.048_576;
        gpus.models.contains(&model)
            && kind.arch == Arch::X86_64
            && kind.gpus >= gpus.count
            && kind.vcpus >= self.cpus
            && kind.memory_mib as f64 >= mib
    }
}

struct InstanceSize {
    cpus: u32,
    name: &'static str,
}

/// Sizes that the families c, m and r of these generations all have.
const SIZES: [InstanceSize; 9] = [
    InstanceSize { cpus: 2, name: "large" },
    InstanceSize { cpus: 4, name: "xlarge" },
    InstanceSize { cpus: 8, name: "2xlarge" },
    InstanceSize { cpus: 16, name: "4xlarge" },
    InstanceSize { cpus: 32, name: "8xlarge" },
    InstanceSize { cpus: 48, name: "12xlarge" },
    InstanceSize { cpus: 64, name: "16xlarge" },
    InstanceSize { cpus: 96, name: "24xlarge" },
    InstanceSize { cpus: 128, name: "32xlarge" },
];

/// Intel and AMD machines of x86-64, as Google's were. Several, so that one is in stock.
const GENERATIONS: [&str; 3] = ["6i", "6a", "7i"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_have_the_machines_of_the_service() {
        let basic = tier("basic").unwrap().unwrap();
        assert_eq!((basic.master.cpus, basic.master.memory_gb), (4, 15.0));
        assert_eq!(
            tier("BASIC_GPU").unwrap().unwrap().master.gpus_word().unwrap(),
            "at least 12GiB"
        );
        let standard = tier("standard-1").unwrap().unwrap();
        let count = |role: Option<TierRole>| role.map_or(0, |role| role.count);
        assert_eq!((count(standard.workers), count(standard.parameter_servers)), (4, 3));
        let premium = tier("PREMIUM_1").unwrap().unwrap();
        assert_eq!((count(premium.workers), count(premium.parameter_servers)), (19, 11));
        assert_eq!(tier("custom"), Ok(None));
    }

    #[test]
    fn tpus_and_unknown_names_are_refused_with_a_way_out() {
        for error in [
            tier("BASIC_TPU").unwrap_err(),
            machine_type("cloud_tpu").unwrap_err(),
            accelerator("TPU_V2", 8).unwrap_err(),
        ] {
            assert!(matches!(error, TierError::Tpu(_)), "{error:?}");
            assert!(error.hint().contains("standard_v100"));
        }
        assert!(tier("STANDARD_2").unwrap_err().hint().contains("STANDARD_1"));
        assert!(machine_type("standart").unwrap_err().hint().contains("complex_model_m_gpu"));
        assert!(accelerator("nvidia-tesla-x", 1).unwrap_err().hint().contains("v100"));
    }

    #[test]
    fn machine_types_become_gpus_or_instance_types() {
        let cases = [
            ("standard", None, "m6i.xlarge"),
            ("large_model", None, "r6i.2xlarge"),
            ("complex_model_s", None, "c6i.2xlarge"),
            ("complex_model_l", None, "c6i.8xlarge"),
            ("n1-standard-8", None, "m6i.2xlarge"),
            ("n1-highmem-8", None, "r6i.2xlarge"),
            ("n1-highcpu-16", None, "c6i.4xlarge"),
            ("standard_p100", Some("at least 16GiB"), ""),
            ("complex_model_m_gpu", Some("4 x 12GiB"), ""),
            ("complex_model_l_v100", Some("8 x 16GiB"), ""),
            ("a2-highgpu-2g", Some("2 x 40GiB"), ""),
        ];
        for (name, gpus, first) in cases {
            let need = machine_type(name).unwrap();
            assert_eq!(need.gpus_word().as_deref(), gpus, "{name}");
            let types = need.instance_types();
            assert_eq!(types.first().map(String::as_str).unwrap_or_default(), first, "{name}");
        }
    }

    #[test]
    fn accelerator_keeps_model_cpus_and_memory() {
        let beside = |kind: &str, gpus: &str, count: u32| {
            let gpus = Some(accelerator(gpus, count).unwrap());
            MachineNeed { gpus, ..machine_type(kind).unwrap() }
        };
        let need = beside("n1-highmem-64", "nvidia-tesla-v100", 1);
        let types = need.instance_types();
        assert!(!types.is_empty());
        for name in &types {
            let kind = Catalog::shipped().machine_type(name).unwrap();
            assert!(kind.vcpus >= 64 && kind.memory_mib >= 390 * 1024, "{name}");
            assert!(!["T4", "L4"].contains(&kind.gpu_model.as_deref().unwrap()), "{name}");
        }
        assert_eq!(need.words(), "1 V100 of 16 GB beside 64 CPUs and 416 GB");
        let small = beside("n1-standard-4", "NVIDIA_TESLA_T4", 1).instance_types();
        assert!(small.contains(&"g4dn.xlarge".to_owned()), "{small:?}");
        assert!(machine_type("standard_v100").unwrap().instance_types().is_empty());
    }
}
