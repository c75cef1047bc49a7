//! Replaced memory rows and PCIe counters of one GPU, in one call to the driver.
//!
//! `nvmlDeviceGetPcieThroughput` is not used: it blocks for 20 ms on each call.

use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;

use crate::instance::GpuHealth;
use crate::market::Cuda;

/// These counters are for people, and move slowly.
const EVERY: Duration = Duration::from_secs(30);

const FIELDS: [u32; 7] = [
    field_id::NVML_FI_DEV_REMAPPED_COR,
    field_id::NVML_FI_DEV_REMAPPED_UNC,
    field_id::NVML_FI_DEV_REMAPPED_PENDING,
    field_id::NVML_FI_DEV_REMAPPED_FAILURE,
    field_id::NVML_FI_DEV_PCIE_REPLAY_COUNTER,
    field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
    field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
];

/// The last answer, with the counters that a rate needs.
#[derive(Debug, Default)]
pub(super) struct HealthReader {
    read: Option<Duration>,
    received: Option<u64>,
    sent: Option<u64>,
    known: GpuHealth,
}

impl HealthReader {
    /// # Errors
    /// When the whole call fails. It is repeated after [`EVERY`].
    pub fn at(&mut self, device: &Device, now: Duration) -> Result<GpuHealth, NvmlError> {
        let since = self.read.map(|read| now.saturating_sub(read));
        if since.is_none_or(|since| since >= EVERY) {
            self.read = Some(now);
            if self.known.driver.is_none() {
                self.known.driver = device.nvml().sys_driver_version().ok();
                let cuda = device.nvml().sys_cuda_driver_version().ok();
                self.known.cuda = cuda.map(|number| Cuda::of_driver(number).to_string());
            }
            // After a failed call, the time since the counters is unknown.
            let before = (self.received.take(), self.sent.take());
            let values = read(device)?;
            let [corrected, uncorrected, pending, failed, replays, received, sent] = values;
            let rate = |then: Option<u64>, now: Option<u64>| per_sec(then, now, since);
            self.known = GpuHealth {
                driver: self.known.driver.take(),
                cuda: self.known.cuda.take(),
                rows_remapped: corrected.zip(uncorrected).map(|(one, other)| one + other),
                remap_pending: pending.map(|pending| pending > 0),
                remap_failed: failed.map(|failed| failed > 0),
                pcie_replays: replays,
                pcie_received_bytes_per_sec: rate(before.0, received),
                pcie_sent_bytes_per_sec: rate(before.1, sent),
            };
            (self.received, self.sent) = (received, sent);
        }
        Ok(self.known.clone())
    }
}

/// A counter that has wrapped has no rate until its next reading.
fn per_sec(then: Option<u64>, now: Option<u64>, since: Option<Duration>) -> Option<f64> {
    let secs = since?.as_secs_f64();
    let more = now?.checked_sub(then?)?;
    (secs > 0.0).then(|| more as f64 / secs)
}

/// `None`: this GPU or this driver does not tell the value.
fn read(device: &Device) -> Result<[Option<u64>; FIELDS.len()], NvmlError> {
    let mut values = [None; FIELDS.len()];
    let found = device.field_values_for(&FIELDS.map(FieldId))?;
    for (value, found) in values.iter_mut().zip(found) {
        *value = found.ok().and_then(|field| whole(&field.value.ok()?));
    }
    Ok(values)
}

fn whole(value: &SampleValue) -> Option<u64> {
    match *value {
        SampleValue::U32(value) => Some(u64::from(value)),
        SampleValue::U64(value) => Some(value),
        SampleValue::I64(value) => u64::try_from(value).ok(),
        SampleValue::F64(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_needs_two_readings_and_no_wrap() {
        let half = Some(Duration::from_secs(30));
        assert_eq!(per_sec(Some(100), Some(3100), half), Some(100.0));
        assert_eq!(per_sec(Some(3100), Some(100), half), None, "it has wrapped");
        assert_eq!(per_sec(None, Some(100), half), None);
        assert_eq!(per_sec(Some(1), Some(2), None), None);
    }
}
