//! The instance types of a region, and the zones that sell them.

use std::time::Duration;

use aws_sdk_ec2::types::{
    ArchitectureType, Filter, InstanceTypeInfo, LocationType, UsageClassType,
};
use serde::{Deserialize, Serialize};

use super::errors::meaning;
use crate::adapters::aws::disk_cache::{Ec2Cache, question};
use crate::adapters::aws::session::AwsSession;
use crate::market::{Arch, MachineType, Region, Zone};
use crate::ports::CloudError;

/// A new type appears a few times a year, so a day's delay is fine.
const TYPES_HOLD: Duration = Duration::from_secs(24 * 3600);

/// The families with a GPU begin with these letters; other accelerators have other letters.
const GPU_FAMILIES: [&str; 2] = ["g*", "p*"];

/// The most values that EC2 takes in one filter.
const VALUES_MAX: usize = 200;

/// A type in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeInZone {
    pub instance_type: String,
    pub zone: Zone,
}

/// The types of these names; without names, all types with a GPU. A name that EC2 does not know is
/// missing in the answer.
///
/// # Errors
/// If EC2 does not answer.
pub async fn types(
    session: &AwsSession,
    cache: &Ec2Cache,
    region: &Region,
    named: &[String],
) -> Result<Vec<MachineType>, CloudError> {
    let wanted: Vec<String> =
        if named.is_empty() { GPU_FAMILIES.map(str::to_owned).to_vec() } else { named.to_vec() };
    let key = format!("types-{}", question(&wanted));
    if let Some(kept) = cache.get(&key, TYPES_HOLD) {
        return Ok(kept);
    }
    let filter = Filter::builder().name("instance-type").set_values(Some(wanted)).build();
    let asked = session.ec2(region).await.describe_instance_types().filters(filter);
    let all: Result<Vec<InstanceTypeInfo>, _> =
        asked.into_paginator().items().send().collect().await;
    let all =
        all.map_err(|error| meaning(&format!("list the instance types of {region}"), error))?;
    let types: Vec<MachineType> = all.iter().filter_map(machine_type).collect();
    cache.put(&key, &types);
    Ok(types)
}

fn machine_type(info: &InstanceTypeInfo) -> Option<MachineType> {
    let unsigned =
        |number: Option<i32>| u32::try_from(number.unwrap_or_default()).unwrap_or_default();
    let gpu = info.gpu_info().and_then(|gpus| gpus.gpus().first());
    let speaks = |arch: ArchitectureType| {
        info.processor_info().is_some_and(|cpu| cpu.supported_architectures().contains(&arch))
    };
    let arch = match (speaks(ArchitectureType::X8664), speaks(ArchitectureType::Arm64)) {
        (true, _) => Arch::X86_64,
        (false, true) => Arch::Arm64,
        // A Mac, or a kind that is newer than this program.
        (false, false) => return None,
    };
    let sold = |class: &UsageClassType| info.supported_usage_classes().contains(class);
    Some(MachineType {
        name: info.instance_type()?.as_str().to_owned(),
        gpus: unsigned(gpu.and_then(|gpu| gpu.count())),
        gpu_model: gpu.and_then(|gpu| gpu.name()).map(str::to_owned),
        gpu_maker: gpu.and_then(|gpu| gpu.manufacturer()).map(str::to_owned),
        gpu_memory_mib: gpu
            .and_then(|gpu| gpu.memory_info()?.size_in_mib())
            .and_then(|mib| u64::try_from(mib).ok()),
        vcpus: unsigned(info.v_cpu_info().and_then(|vcpus| vcpus.default_v_cpus())),
        memory_mib: info
            .memory_info()
            .and_then(|memory| u64::try_from(memory.size_in_mib()?).ok())
            .unwrap_or_default(),
        arch,
        on_demand: sold(&UsageClassType::OnDemand),
        spot: sold(&UsageClassType::Spot),
    })
}

/// The zones that sell these types.
///
/// # Errors
/// When EC2 does not answer.
pub async fn zones(
    session: &AwsSession,
    cache: &Ec2Cache,
    region: &Region,
    types: &[String],
) -> Result<Vec<TypeInZone>, CloudError> {
    let key = format!("zones-{}", question(types));
    if let Some(kept) = cache.get(&key, TYPES_HOLD) {
        return Ok(kept);
    }
    let client = session.ec2(region).await;
    let mut all = Vec::new();
    for some in types.chunks(VALUES_MAX) {
        let filter =
            Filter::builder().name("instance-type").set_values(Some(some.to_vec())).build();
        let asked = client
            .describe_instance_type_offerings()
            .location_type(LocationType::AvailabilityZone)
            .filters(filter);
        let offered: Result<Vec<_>, _> = asked.into_paginator().items().send().collect().await;
        let offered = offered
            .map_err(|error| meaning(&format!("ask where {region} sells instance types"), error))?;
        let sold = |one: &aws_sdk_ec2::types::InstanceTypeOffering| {
            Some(TypeInZone {
                instance_type: one.instance_type()?.as_str().to_owned(),
                zone: Zone::new(one.location()?),
            })
        };
        all.extend(
            offered.iter().filter_map(sold).filter(|sold| is_of_the_region(&sold.zone, region)),
        );
    }
    all.sort_by(|a, b| (&a.instance_type, &a.zone).cmp(&(&b.instance_type, &b.zone)));
    cache.put(&key, &all);
    Ok(all)
}

/// Whether a zone such as `us-west-2b` is an ordinary one of `us-west-2`. Local Zones
/// (`us-west-2-lax-1a`) and Wavelength Zones are not offered: they have other on-demand prices than
/// the region's list.
fn is_of_the_region(zone: &Zone, region: &Region) -> bool {
    matches!(zone.as_str().strip_prefix(region.as_str()).map(str::as_bytes), Some([b'a'..=b'z']))
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{
        GpuDeviceInfo, GpuDeviceMemoryInfo, GpuInfo, InstanceType, ProcessorInfo,
    };

    use super::*;
    use crate::market::Fit;

    #[test]
    fn local_zone_has_prices_of_its_own_and_is_not_the_regions() {
        let region = Region::new("us-west-2");
        let of_it = |zone: &str| is_of_the_region(&Zone::new(zone), &region);
        assert!(of_it("us-west-2a") && of_it("us-west-2d"));
        for other in
            ["us-west-2-lax-1a", "us-west-2-wl1-den-wlz-1", "us-west-2", "us-west-1a", "usw2-az1"]
        {
            assert!(!of_it(other), "{other}");
        }
    }

    #[test]
    fn another_makers_gpu_is_not_bought_unasked() {
        let of = |name: &str, maker: &str, model: &str| {
            let memory = GpuDeviceMemoryInfo::builder().size_in_mib(16 * 1024).build();
            let gpu = GpuDeviceInfo::builder()
                .name(model)
                .manufacturer(maker)
                .count(1)
                .memory_info(memory)
                .build();
            let cpu =
                ProcessorInfo::builder().supported_architectures(ArchitectureType::X8664).build();
            let info = InstanceTypeInfo::builder()
                .instance_type(InstanceType::from(name))
                .processor_info(cpu);
            machine_type(&info.gpu_info(GpuInfo::builder().gpus(gpu).build()).build()).unwrap()
        };
        let wanted = "at least 8GiB".parse().unwrap();
        let (amd, nvidia) =
            (of("g4ad.xlarge", "AMD", "Radeon Pro V520"), of("g4dn.xlarge", "NVIDIA", "T4"));
        assert!(matches!(amd.fit(&wanted, &[]), Fit::No(because) if because.contains("AMD")));
        assert_eq!(nvidia.fit(&wanted, &[]), Fit::Fits);
        assert_eq!(amd.fit(&wanted, &["g4ad.xlarge".to_owned()]), Fit::Fits);
    }
}
