//! The one offer of the local cloud, and the residue of its stopped machines.

use std::path::Path;

use crate::account::Residue;
use crate::instance::{InstanceState, InstanceView};
use crate::job::{MachineSpec, MarketChoice};
use crate::market::{self, Arch, Market, Offer, Region, Usd, UsdPerHour, Zone};

/// All machines have one price. A job that asks for spot gets a machine that can be interrupted.
pub fn offer(zone: Zone, machine: &MachineSpec) -> Offer {
    let market = if machine.market == MarketChoice::Spot { Market::Spot } else { Market::OnDemand };
    Offer {
        cloud: market::CloudKind::Local,
        region: Region::new("local"),
        zone,
        instance_type: "workstation".into(),
        gpus: gpu_count(),
        gpu_model: None,
        gpu_memory_mib: None,
        vcpus: std::thread::available_parallelism()
            .map_or(0, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
        arch: Arch::default(),
        market,
        price: machine.usd_per_hour,
        extras: UsdPerHour::ZERO,
        on_demand: None,
    }
}

/// The work folder of a stopped machine, its disk; `None`: the machine is not stopped.
pub(crate) fn kept_disk(view: &InstanceView, machines: &Path) -> Option<Residue> {
    (view.state == InstanceState::Stopped).then(|| Residue {
        cloud: market::CloudKind::Local,
        region: view.region.clone(),
        kind: "folder".into(),
        id: machines.join(&view.id).join("work").display().to_string(),
        detail: format!("kept by the stopped {}", view.id),
        usd_per_month: Usd::ZERO,
        ours: true,
        kept: true,
        job: Some(view.tags.job.clone()),
    })
}

/// Counts the GPU devices in `/dev`, without a call to the driver.
fn gpu_count() -> u32 {
    let named = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    u32::try_from(entries.filter(|entry| entry.file_name().to_str().is_some_and(named)).count())
        .unwrap_or(0)
}
