//! A job's machine in `status`: from the plan while it runs, from the receipt afterwards.

use serde::Serialize;

use crate::app::text::{counted, measure};
use crate::instance::GpuStatus;
use crate::job::{Plan, ReceiptAttempt};
use crate::market::{CloudKind, Market, Region, UsdPerHour, Zone};

/// The field names are an interface (docs/cli-json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct MachineShown {
    pub instance_type: String,
    pub market: Market,
    pub zone: String,
    /// `None`, like the price, for an ended job: its receipt has the cost.
    #[cfg_attr(feature = "web", schema(value_type = Option<String>))]
    pub region: Option<Region>,
    /// With disk and address.
    pub usd_per_hour: Option<UsdPerHour>,
    #[serde(skip)]
    is_here: bool,
}

impl From<&Plan> for MachineShown {
    fn from(plan: &Plan) -> Self {
        let offer = &plan.offer;
        MachineShown {
            instance_type: offer.instance_type.clone(),
            market: offer.market,
            zone: offer.zone.to_string(),
            region: Some(offer.region.clone()),
            usd_per_hour: Some(offer.hourly()),
            is_here: offer.cloud == CloudKind::Local,
        }
    }
}

impl From<&ReceiptAttempt> for MachineShown {
    fn from(attempt: &ReceiptAttempt) -> Self {
        MachineShown {
            instance_type: attempt.instance_type.clone(),
            market: attempt.market,
            zone: attempt.zone.clone(),
            region: None,
            usd_per_hour: None,
            is_here: Zone::is_workstation(&attempt.zone),
        }
    }
}

impl MachineShown {
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// A cell: `g5.xlarge spot us-east-1a $0.43/h`; a narrow one leaves the zone out.
    pub fn cell(&self, narrow: bool) -> String {
        let free = self.usd_per_hour.filter(|price| *price > UsdPerHour::ZERO);
        let price = free.map(|price| price.to_string());
        if self.is_here {
            return ["this workstation".to_owned()]
                .into_iter()
                .chain(price)
                .collect::<Vec<_>>()
                .join(" ");
        }
        let zone = (!narrow).then(|| self.zone.clone());
        let words = [Some(self.instance_type.clone()), Some(self.market.to_string()), zone, price];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    pub fn line(&self) -> String {
        self.cell(false)
    }
}

/// `10.2 GiB of 24 GiB`
pub fn gpu_memory_text(gpu: &GpuStatus) -> String {
    let mib = |mib: u64| measure(mib as f64, "MiB");
    match (gpu.memory_used_mib, gpu.memory_total_mib) {
        (Some(used), Some(total)) => format!("{} of {}", mib(used), mib(total)),
        (Some(used), None) => mib(used),
        _ => "unknown".to_owned(),
    }
}

/// The driver's errors: a lost GPU, Xid errors, memory errors.
pub fn gpu_errors(gpu: &GpuStatus) -> Vec<String> {
    let xids: Vec<String> = gpu.xids.iter().map(ToString::to_string).collect();
    let xids = (!xids.is_empty()).then(|| format!("Xid {}", xids.join(", ")));
    let errors = gpu.ecc_uncorrected.filter(|errors| *errors > 0);
    let errors = errors.map(|errors| counted(errors, "uncorrected memory error"));
    let health = &gpu.health;
    let pending = health.remap_pending == Some(true);
    let pending = pending.then(|| "a memory row is replaced at the next reset".to_owned());
    let failed = health.remap_failed == Some(true);
    let failed = failed.then(|| "a memory row could not be replaced".to_owned());
    let all = gpu.lost.clone().into_iter().chain(xids).chain(errors);
    all.chain(failed).chain(pending).collect()
}

/// Counters that are no error by themselves: `3 memory rows replaced, 4 PCIe replays`
pub fn gpu_counters_text(gpu: &GpuStatus) -> Option<String> {
    let rows = gpu.health.rows_remapped.filter(|rows| *rows > 0);
    let rows = rows.map(|rows| format!("{} replaced", counted(rows, "memory row")));
    let replays = gpu.health.pcie_replays.filter(|replays| *replays > 0);
    let replays = replays.map(|replays| counted(replays, "PCIe replay"));
    let parts: Vec<String> = rows.into_iter().chain(replays).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `in 1.2 GB/s, out 300 MB/s`
pub fn gpu_pcie_text(gpu: &GpuStatus) -> String {
    let health = &gpu.health;
    match (health.pcie_received_bytes_per_sec, health.pcie_sent_bytes_per_sec) {
        (None, None) => "unknown".to_owned(),
        (received, sent) => {
            let rate = |rate: Option<f64>| {
                rate.map_or_else(|| "unknown".to_owned(), |rate| measure(rate, "B/s"))
            };
            format!("in {}, out {}", rate(received), rate(sent))
        }
    }
}

/// `93 W, 31 % of 300 W`
pub fn gpu_power_text(gpu: &GpuStatus) -> String {
    let Some(watts) = gpu.power_watts else { return "unknown".to_owned() };
    match gpu.power_limit_watts.filter(|limit| *limit > 0.0) {
        Some(limit) => format!("{watts:.0} W, {:.0} % of {limit:.0} W", watts / limit * 100.0),
        None => format!("{watts:.0} W, limit unknown"),
    }
}
