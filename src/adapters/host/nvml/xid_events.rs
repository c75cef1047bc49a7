//! The driver's critical errors (Xid numbers), as they happen.
//!
//! Xid 79 (GPU off the bus) or 48 (double-bit error) says more than any counter. A policy decides
//! which of them matter. Not here: waiting.

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};

use super::gpu::{GpuState, UnreachableDevice};

/// Newest events kept per GPU. A storm of events must not grow the samples.
const XIDS_KEPT_MAX: usize = 16;

/// Events taken per sample; the driver keeps the rest for the next.
const TAKEN_MAX: usize = 64;

/// One set for all devices that offer Xid events; `None`: no device does.
pub(crate) fn listen<'a>(
    nvml: &'static Nvml,
    devices: impl Iterator<Item = &'a Device<'static>>,
) -> Option<EventSet<'static>> {
    let wanted = EventTypes::CRITICAL_XID_ERROR;
    let mut willing: Vec<&Device> = devices
        .filter(|device| device.supported_event_types().is_ok_and(|types| types.contains(wanted)))
        .collect();
    // A device that refuses consumes the set, so the others are registered again without it.
    'without: while !willing.is_empty() {
        let mut set = nvml.create_event_set().ok()?;
        for (at, device) in willing.iter().enumerate() {
            match device.register_events(wanted, set) {
                Ok(registered) => set = registered,
                Err(_) => {
                    willing.remove(at);
                    continue 'without;
                }
            }
        }
        return Some(set);
    }
    None
}

/// Adds the events to their GPUs; `devices` and `known` have the same order. An error: the set is
/// unusable.
pub(crate) fn collect(
    events: &EventSet,
    devices: &[Result<Device, UnreachableDevice>],
    known: &mut [GpuState],
) -> Result<(), NvmlError> {
    for _ in 0..TAKEN_MAX {
        let event = match events.wait(0) {
            Ok(event) => event,
            Err(NvmlError::Timeout) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(xid) = event.event_data else { continue };
        let xid = match xid {
            XidError::Value(xid) => xid,
            XidError::Unknown => 999,
        };
        let index = devices
            .iter()
            .position(|device| device.as_ref().is_ok_and(|device| is_same(device, &event.device)));
        let Some(memory) = index.and_then(|index| known.get_mut(index)) else { continue };
        tracing::warn!("GPU {}: Xid {xid}", memory.index);
        memory.xids.push(xid);
        let surplus = memory.xids.len().saturating_sub(XIDS_KEPT_MAX);
        memory.xids.drain(..surplus);
    }
    Ok(())
}

/// Compares handles: a GPU off the bus (Xid 79) no longer gives its index.
fn is_same(one: &Device, other: &Device) -> bool {
    // SAFETY: the handles are only compared.
    unsafe { one.handle() == other.handle() }
}
