//! A machine type, and whether it satisfies a requirement.

use serde::{Deserialize, Serialize};

use super::{Arch, GpuRequirement};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineType {
    pub name: String,
    /// Whole GPUs; 0 with a model means a fraction of one.
    pub gpus: u32,
    pub gpu_model: Option<String>,
    /// The maker of its GPUs, if known.
    pub gpu_maker: Option<String>,
    /// Memory of each GPU.
    pub gpu_memory_mib: Option<u64>,
    pub vcpus: u32,
    pub memory_mib: u64,
    pub arch: Arch,
    /// The markets that sell it.
    pub on_demand: bool,
    pub spot: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    Fits,
    /// A near miss, with the reason to show.
    No(String),
    /// Another kind of machine; no reason is shown.
    Other,
}

/// The maker whose driver the images contain and the agent reads.
const USUAL_MAKER: &str = "NVIDIA";

/// Makers count 10^9 bytes as a GB, we count 1024³ as a GiB, and firmware takes a little: a GPU "of
/// 24 GiB" has 22888 MiB on EC2.
const MEMORY_SHARE_MIN: f64 = 0.9;

impl MachineType {
    /// Whether it satisfies a requirement. `named`: the only types allowed; empty allows all.
    pub fn fit(&self, wanted: &GpuRequirement, named: &[String]) -> Fit {
        let is_named = named.contains(&self.name);
        if !named.is_empty() && !is_named {
            return Fit::Other;
        }
        let no =
            |has: String| Fit::No(format!("{} has {has}, and the job needs {wanted}", self.name));
        let Some(model) = &self.gpu_model else {
            return if wanted.count == 0 { Fit::Fits } else { no("no GPU".into()) };
        };
        if wanted.count == 0 {
            return if is_named { Fit::Fits } else { Fit::Other };
        }
        if !wanted.is_model(&self.full_model(model)) {
            return if is_named { no(format!("GPUs of model {model}")) } else { Fit::Other };
        }
        // Unless the user named the type, too little memory is not a near miss.
        if !self.has_memory(wanted) && wanted.model.is_none() && !is_named {
            return Fit::Other;
        }
        if self.gpus == 0 {
            return no(format!("a fraction of a {model}"));
        }
        if self.gpus < wanted.count {
            return no(if self.gpus == 1 { "1 GPU".into() } else { format!("{} GPUs", self.gpus) });
        }
        if !self.has_memory(wanted) {
            return no(format!("{} MiB on each GPU", self.gpu_memory_mib.unwrap_or_default()));
        }
        if let Some(maker) = self
            .gpu_maker
            .as_deref()
            .filter(|maker| !is_named && !maker.eq_ignore_ascii_case(USUAL_MAKER))
        {
            return Fit::No(format!(
                "{} has GPUs of {maker}, which CUDA does not know; name it in `instance_types` to have it",
                self.name
            ));
        }
        if self.arch == Arch::Arm64 && !is_named && wanted.model.is_none() {
            return Fit::No(format!(
                "{} speaks arm64; name it in `instance_types` to have it",
                self.name
            ));
        }
        Fit::Fits
    }

    /// The model with its memory, as people write it: `A100 80GB`.
    fn full_model(&self, model: &str) -> String {
        let Some(mib) = self.gpu_memory_mib else { return model.to_owned() };
        let decimal = (mib as f64 * 1.048_576 / 1000.0).round();
        format!("{model} {}GB {decimal}GB", mib / 1024)
    }

    fn has_memory(&self, wanted: &GpuRequirement) -> bool {
        wanted.memory_mib_min.is_none_or(|min| {
            self.gpu_memory_mib.is_some_and(|mib| mib as f64 >= min as f64 * MEMORY_SHARE_MIN)
        })
    }
}

/// If no GPU on offer has enough memory, names the largest one.
pub fn none_so_large<'a>(
    types: impl Iterator<Item = &'a MachineType>,
    wanted: &GpuRequirement,
    place: &str,
) -> Option<String> {
    wanted.memory_mib_min?;
    let largest = types.filter(|kind| kind.gpus > 0).max_by(|one, other| {
        let memory = one.gpu_memory_mib.cmp(&other.gpu_memory_mib);
        memory.then_with(|| other.gpus.cmp(&one.gpus)).then_with(|| other.name.cmp(&one.name))
    })?;
    let gib = largest.gpu_memory_mib.filter(|_| !largest.has_memory(wanted))? / 1024;
    Some(format!(
        "the largest GPU on offer in {place} has {gib} GiB ({}), and the job needs {wanted}",
        largest.name
    ))
}

/// Whether a name ends in an EC2 size: `xlarge`, `48xlarge`, `metal`, `metal-24xl`. Other names are
/// never types, however new.
pub fn has_a_size(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_metal = |rest: &str| {
        rest.is_empty()
            || rest
                .strip_prefix('-')
                .and_then(|rest| rest.strip_suffix("xl"))
                .is_some_and(is_number)
    };
    name.split_once('.').is_some_and(|(family, size)| {
        let is_size = ["nano", "micro", "small", "medium", "large", "xlarge"].contains(&size)
            || size.strip_suffix("xlarge").is_some_and(is_number)
            || size.strip_prefix("metal").is_some_and(is_metal);
        !family.is_empty() && is_size
    })
}

/// Whether this is a whole physical machine: `g4dn.metal`, `i4i.metal-24xl`.
pub fn is_bare_metal(name: &str) -> bool {
    name.split_once('.').is_some_and(|(_, size)| size == "metal" || size.starts_with("metal-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::Catalog;

    fn fitting(wanted: &str, named: &[&str]) -> Vec<String> {
        let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
        let wanted = wanted.parse().unwrap();
        Catalog::shipped()
            .types()
            .iter()
            .filter(|kind| kind.fit(&wanted, &named) == Fit::Fits)
            .map(|kind| kind.name.clone())
            .collect()
    }

    #[test]
    fn model_a_count_and_a_memory_choose_types() {
        let a10g = fitting("A10G:1", &[]);
        assert!(
            a10g.contains(&"g5.xlarge".to_owned())
                && a10g.iter().all(|name| name.starts_with("g5.")),
            "{a10g:?}"
        );
        assert_eq!(fitting("a10g:8", &[]), ["g5.48xlarge"]);
        assert_eq!(fitting("A100-80GB:8", &[]), ["p4de.24xlarge"]);
        assert_eq!(fitting("A100-40GB:8", &[]), ["p4d.24xlarge"]);
        assert!(
            fitting("L4:1", &[])
                .iter()
                .all(|name| !name.starts_with("g6e") && !name.contains("6f")),
            "L40S and fractions are no L4"
        );
        assert!(fitting("at least 24GiB", &[]).contains(&"g5.xlarge".to_owned()));
        assert!(!fitting("at least 24GiB", &[]).iter().any(|name| name.starts_with("g4dn")));
        assert_eq!(fitting("T4:1", &["g4dn.xlarge", "g5.xlarge"]), ["g4dn.xlarge"]);
        assert_eq!(fitting("none", &["g6f.xlarge"]), ["g6f.xlarge"]);
        assert!(fitting("A10", &[]).is_empty());
        let small = fitting("at least 8GiB", &[]);
        assert!(
            small.contains(&"g4dn.xlarge".to_owned())
                && !small.iter().any(|name| name.starts_with("g4ad")),
            "{small:?}"
        );
    }

    #[test]
    fn what_is_close_says_why_not() {
        let kind = |name: &str| Catalog::shipped().machine_type(name).unwrap().clone();
        let no = |name: &str, wanted: &str, named: &[String]| match kind(name)
            .fit(&wanted.parse().unwrap(), named)
        {
            Fit::No(because) => because,
            other => panic!("{other:?}"),
        };
        assert_eq!(no("g5.xlarge", "A10G:4", &[]), "g5.xlarge has 1 GPU, and the job needs A10G:4");
        assert_eq!(
            no("g6f.xlarge", "L4:1", &[]),
            "g6f.xlarge has a fraction of a L4, and the job needs L4:1"
        );
        assert_eq!(
            no("g5g.xlarge", "at least 16GiB", &[]),
            "g5g.xlarge speaks arm64; name it in `instance_types` to have it"
        );
        assert_eq!(
            no("g5.xlarge", "T4", &["g5.xlarge".into()]),
            "g5.xlarge has GPUs of model A10G, and the job needs T4:1"
        );
        let amd = "g4ad.xlarge has GPUs of AMD, which CUDA does not know; name it in `instance_types` to have it";
        assert_eq!(no("g4ad.xlarge", "at least 8GiB", &[]), amd);
        assert_eq!(
            kind("g4ad.xlarge").fit(&"at least 8GiB".parse().unwrap(), &["g4ad.xlarge".into()]),
            Fit::Fits
        );
        assert_eq!(kind("g5g.xlarge").fit(&"T4g:1".parse().unwrap(), &[]), Fit::Fits);
        assert_eq!(
            kind("g6f.xlarge").fit(&"at least 500GiB".parse().unwrap(), &[]),
            Fit::Other,
            "its fraction is not what is in the way"
        );
    }

    #[test]
    fn name_without_a_size_is_no_type_however_new() {
        for kind in Catalog::shipped().types().iter().map(|kind| kind.name.as_str()).chain([
            "t9.nano",
            "u7i-12tb.224xlarge",
            "c8g.metal-48xl",
        ]) {
            assert!(has_a_size(kind), "{kind}");
        }
        for slip in
            ["g5.xlrge", "g5", "g5.", ".xlarge", "g5.12xlarg", "g5.metal-xl", "g5.*", "g5 xlarge"]
        {
            assert!(!has_a_size(slip), "{slip}");
        }
    }

    #[test]
    fn where_no_gpu_is_large_enough_the_largest_is_named() {
        let types = || {
            ["g5.xlarge", "p5.48xlarge", "p5.4xlarge", "g6f.xlarge"]
                .map(|name| Catalog::shipped().machine_type(name).unwrap().clone())
        };
        let said =
            |wanted: &str| none_so_large(types().iter(), &wanted.parse().unwrap(), "us-east-1");
        assert_eq!(
            said("at least 500GiB").unwrap(),
            "the largest GPU on offer in us-east-1 has 80 GiB (p5.4xlarge), and the job needs 1 x 500GiB"
        );
        assert_eq!((said("at least 80GiB"), said("H100:1")), (None, None));
    }
}
