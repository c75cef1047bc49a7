//! The numbers and structures of `nvml.h` that our calls use. Not here: behaviour.

use std::ffi::{c_uint, c_ulonglong, c_void};

pub type Return = c_uint;
pub type Device = *mut c_void;

pub const SUCCESS: Return = 0;
pub const UNINITIALIZED: Return = 1;
pub const INVALID_ARGUMENT: Return = 2;
pub const NOT_SUPPORTED: Return = 3;
pub const NO_PERMISSION: Return = 4;
pub const NOT_FOUND: Return = 6;
pub const INSUFFICIENT_SIZE: Return = 7;
pub const DRIVER_NOT_LOADED: Return = 9;
pub const TIMEOUT: Return = 10;
pub const LIBRARY_NOT_FOUND: Return = 12;
pub const FUNCTION_NOT_FOUND: Return = 13;
pub const GPU_IS_LOST: Return = 15;
pub const RESET_REQUIRED: Return = 16;
pub const LIB_RM_VERSION_MISMATCH: Return = 18;
pub const UNKNOWN: Return = 999;

pub const SAMPLES_UTIL: c_uint = 1;
pub const SAMPLES_MEMORY_UTIL: c_uint = 2;
pub const VALUE_UNSIGNED_INT: c_uint = 1;
pub const ECC_UNCORRECTED: c_uint = 1;
pub const VALUE_UNSIGNED_LONG_LONG: c_uint = 3;
pub const FIELD_PCIE_REPLAYS: c_uint = 94;
pub const FIELD_REMAPPED: c_uint = 142;
pub const FIELD_REMAP_FAILED: c_uint = 145;
pub const FIELD_PCIE_SENT: c_uint = 197;
pub const FIELD_PCIE_RECEIVED: c_uint = 198;
pub const EVENT_XID: c_ulonglong = 8;

#[repr(C)]
pub struct Utilization {
    pub gpu: c_uint,
    pub memory: c_uint,
}

#[repr(C)]
pub struct Sample {
    pub timestamp: c_ulonglong,
    /// A union of eight bytes. An unsigned int uses the first four.
    pub value: c_uint,
    pub rest: c_uint,
}

#[repr(C)]
pub struct Memory {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

#[repr(C)]
pub struct MemoryV2 {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

#[repr(C)]
pub struct FieldValue {
    pub id: c_uint,
    pub scope: c_uint,
    pub timestamp: i64,
    pub latency_micros: i64,
    pub value_type: c_uint,
    pub code: Return,
    /// A union of eight bytes.
    pub value: c_ulonglong,
}

#[repr(C)]
pub struct Process {
    pub pid: c_uint,
    pub used_gpu_memory: c_ulonglong,
    pub gpu_instance: c_uint,
    pub compute_instance: c_uint,
}

#[repr(C)]
pub struct Event {
    pub device: Device,
    pub kind: c_ulonglong,
    pub data: c_ulonglong,
    pub gpu_instance: c_uint,
    pub compute_instance: c_uint,
}

impl Process {
    pub fn of(pid: u32) -> Self {
        Process {
            pid,
            used_gpu_memory: 1 << 30,
            gpu_instance: c_uint::MAX,
            compute_instance: c_uint::MAX,
        }
    }
}

impl Event {
    pub fn xid(device: Device, xid: u64) -> Self {
        Event {
            device,
            kind: EVENT_XID,
            data: xid,
            gpu_instance: c_uint::MAX,
            compute_instance: c_uint::MAX,
        }
    }
}
