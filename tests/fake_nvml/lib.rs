//! A small NVML of our own that plays a scripted GPU, so that the agent's real NVML path runs on
//! machines without one.
//!
//! It exports the functions of `libnvidia-ml.so.1` that nvml-wrapper 0.13 looks up for our calls.
//! The script is a text file: `FAKE_NVML_SCRIPT` names it, or it lies beside the library with
//! `.script` after the name. The library checks the file on each call for GPU 0 or without a GPU.
//! So a test can change the GPUs while the agent runs, and other calls need no system calls.
//! Replace it by renaming (`FakeNvml::play` does): a half-written script must not be seen. State is
//! per process *and* per library file: two tests in one process use two copies.
//!
//! One statement a line, `#` begins a comment, later lines win. Times are seconds; `gpu *` means
//! all of them.
//!
//! ```text
//!   gpus 2                        how many there are (1)
//!   driver 550.54.15              its version
//!   cuda 12040                    the newest CUDA that it runs, 12.4
//!   init ok                       or: mismatch, not-loaded, no-permission, unknown, library-not-found
//!   broken uninitialized          every call but init answers so: uninitialized, mismatch, not-loaded, unknown
//!   legacy                        an old driver: memory_v2 and processes_v3 do not exist
//!   time 12.5                     stop the script's clock there; without it, it runs since the script was written
//!   period 0.2                    the driver takes a utilisation sample so often (0.166667)
//!   dry                           the driver takes no samples while the GPU rests, and keeps the old ones
//!   block 5                       every call but init hangs so long, or until the script no longer says so
//!   gpu * util 80                 a constant, or a series that repeats: `100 for 2, 0 for 3`; after `for` is missing,
//!   gpu 0 util 100 for 60, 0      the value stays
//!   gpu 0 memory-util 30          a series as well; without it, half of `util`
//!   gpu 0 power 310.5             W, a series as well
//!   gpu 0 power-limit 450         W; without it the call is not supported
//!   gpu 0 temperature 55          Celsius
//!   gpu 0 memory 1024/81920       MiB used / MiB in all
//!   gpu 0 pids 12,34              compute processes; `pids file:/path` reads the numbers from there on every call
//!   gpu 0 graphics 56             graphics processes
//!   gpu 0 ecc 2                   uncorrected errors
//!   gpu 0 remapped 3,1,0,0        memory rows: corrected, uncorrected, pending, failed
//!   gpu 0 pcie-replays 4          packets sent again
//!   gpu 0 pcie 2e6/1e6            bytes a second, received/sent
//!   gpu 0 xid 79                  one Xid event, delivered once; each further line is one more
//!   gpu 1 fault lost              or: reset-required, unknown; every call on this GPU answers so
//!   gpu 1 unsupported util,power  also: samples (only the buffers), memory, temperature, processes, ecc, events
//! ```
//!
//! Not here: anything that the agent links, or a number that no script asked for.

#![allow(non_snake_case, clippy::missing_safety_doc, reason = "the names and contracts are NVML's")]
#![expect(
    clippy::disallowed_methods,
    reason = "a part of the false world: it has a clock and reads its script"
)]

mod abi;
mod script;
mod stage;

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use abi::*;
use stage::{Stage, stage};

/// Runs one call on one GPU: blocks, fails or answers as the script says.
fn on_gpu(device: Device, what: &str, play: impl FnOnce(&mut Stage, usize) -> Return) -> Return {
    let index = (device as usize).wrapping_sub(1);
    stage::call(index == 0, |stage| {
        if let Some(code) = stage.refusal(index, what) {
            return code;
        }
        play(stage, index)
    })
}

unsafe fn put<T>(to: *mut T, value: T) -> Return {
    if to.is_null() {
        return INVALID_ARGUMENT;
    }
    unsafe { to.write_unaligned(value) };
    SUCCESS
}

unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Return {
    if to.is_null() || (length as usize) <= text.len() {
        return INSUFFICIENT_SIZE;
    }
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
    SUCCESS
}

/// NVML's way with lists: with too little room it says how much it needs, an empty list is a
/// success.
unsafe fn put_list<T>(count: *mut c_uint, to: *mut T, items: Vec<T>) -> Return {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    let room = unsafe { count.read() } as usize;
    unsafe { count.write(items.len() as c_uint) };
    if items.is_empty() {
        return SUCCESS;
    }
    if to.is_null() || room < items.len() {
        return INSUFFICIENT_SIZE;
    }
    for (at, item) in items.into_iter().enumerate() {
        unsafe { to.add(at).write(item) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Return {
    let mut stage = stage();
    stage.look();
    let code = stage.script.init;
    if code == SUCCESS {
        stage.initialized = true;
    }
    code
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Return {
    stage().initialized = false;
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(
    version: *mut c_char,
    length: c_uint,
) -> Return {
    stage::call(true, |stage| unsafe { put_text(version, length, &stage.script.driver) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> Return {
    stage::call(true, |stage| unsafe { put(version, stage.script.cuda) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> Return {
    stage::call(true, |stage| unsafe { put(count, stage.script.gpus.len() as c_uint) })
}

/// A handle is the index and one, so that it is never null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut Device,
) -> Return {
    let handle = (index as usize + 1) as Device;
    on_gpu(handle, "handle", |_, _| unsafe { put(device, handle) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetIndex(device: Device, index: *mut c_uint) -> Return {
    on_gpu(device, "index", |_, at| unsafe { put(index, at as c_uint) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(
    device: Device,
    name: *mut c_char,
    length: c_uint,
) -> Return {
    on_gpu(device, "name", |_, _| unsafe { put_text(name, length, "Fake GPU") })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(
    device: Device,
    uuid: *mut c_char,
    length: c_uint,
) -> Return {
    on_gpu(device, "uuid", |_, at| unsafe { put_text(uuid, length, &format!("GPU-fake-{at}")) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: Device,
    rates: *mut Utilization,
) -> Return {
    on_gpu(device, "util", |stage, at| {
        let now = stage.seconds();
        let gpu = &stage.script.gpus[at];
        unsafe {
            put(
                rates,
                Utilization {
                    gpu: gpu.util.at(now) as c_uint,
                    memory: gpu.memory_util_at(now) as c_uint,
                },
            )
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSamples(
    device: Device,
    kind: c_uint,
    last_seen: c_ulonglong,
    value_type: *mut c_uint,
    count: *mut c_uint,
    samples: *mut Sample,
) -> Return {
    let what = match kind {
        SAMPLES_UTIL => "util",
        SAMPLES_MEMORY_UTIL => "memory-util",
        _ => return NOT_SUPPORTED,
    };
    on_gpu(device, what, |stage, at| {
        if stage.script.gpus[at].refuses("samples") {
            return NOT_SUPPORTED;
        }
        let found = stage.samples(at, kind == SAMPLES_MEMORY_UTIL, last_seen);
        if found.is_empty() {
            return NOT_FOUND;
        }
        unsafe {
            put(value_type, VALUE_UNSIGNED_INT);
            if samples.is_null() {
                return put(count, found.len() as c_uint);
            }
            put_list(count, samples, found)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, memory: *mut Memory) -> Return {
    on_gpu(device, "memory", |stage, at| {
        let (used, total) = stage.script.gpus[at].memory_bytes();
        unsafe { put(memory, Memory { total, free: total - used, used }) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: Device,
    memory: *mut MemoryV2,
) -> Return {
    on_gpu(device, "memory", |stage, at| {
        if stage.script.legacy {
            return FUNCTION_NOT_FOUND;
        }
        let (used, total) = stage.script.gpus[at].memory_bytes();
        unsafe {
            put(
                memory,
                MemoryV2 {
                    version: (*memory).version,
                    total,
                    reserved: 0,
                    free: total - used,
                    used,
                },
            )
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(
    device: Device,
    milliwatts: *mut c_uint,
) -> Return {
    on_gpu(device, "power", |stage, at| {
        let watts = stage.script.gpus[at].power.at(stage.seconds());
        unsafe { put(milliwatts, (watts * 1000.0) as c_uint) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(
    device: Device,
    milliwatts: *mut c_uint,
) -> Return {
    on_gpu(device, "power", |stage, at| match stage.script.gpus[at].power_limit {
        Some(watts) => unsafe { put(milliwatts, watts * 1000) },
        None => NOT_SUPPORTED,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    _sensor: c_uint,
    celsius: *mut c_uint,
) -> Return {
    on_gpu(device, "temperature", |stage, at| unsafe {
        put(celsius, stage.script.gpus[at].temperature)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Device,
    kind: c_uint,
    _counter: c_uint,
    errors: *mut c_ulonglong,
) -> Return {
    on_gpu(device, "ecc", |stage, at| {
        let count = if kind == ECC_UNCORRECTED { stage.script.gpus[at].ecc } else { 0 };
        unsafe { put(errors, count) }
    })
}

/// Each field has an answer of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: Device,
    count: c_int,
    values: *mut FieldValue,
) -> Return {
    on_gpu(device, "fields", |stage, at| {
        if values.is_null() {
            return INVALID_ARGUMENT;
        }
        let seconds = stage.seconds();
        for place in 0..usize::try_from(count).unwrap_or_default() {
            let field = unsafe { &mut *values.add(place) };
            let found = stage.script.gpus[at].field(field.id, seconds);
            field.value_type = VALUE_UNSIGNED_LONG_LONG;
            field.code = if found.is_some() { SUCCESS } else { NOT_SUPPORTED };
            field.value = found.unwrap_or_default();
        }
        SUCCESS
    })
}

unsafe fn processes(
    device: Device,
    modern: bool,
    graphics: bool,
    count: *mut c_uint,
    infos: *mut Process,
) -> Return {
    on_gpu(device, "processes", |stage, at| {
        if modern && stage.script.legacy {
            return FUNCTION_NOT_FOUND;
        }
        let gpu = &stage.script.gpus[at];
        let pids = if graphics { &gpu.graphics } else { &gpu.compute };
        let list = pids.now().into_iter().map(Process::of).collect();
        unsafe { put_list(count, infos, list) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v2(
    device: Device,
    count: *mut c_uint,
    infos: *mut Process,
) -> Return {
    unsafe { processes(device, false, false, count, infos) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    infos: *mut Process,
) -> Return {
    unsafe { processes(device, true, false, count, infos) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v2(
    device: Device,
    count: *mut c_uint,
    infos: *mut Process,
) -> Return {
    unsafe { processes(device, false, true, count, infos) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    infos: *mut Process,
) -> Return {
    unsafe { processes(device, true, true, count, infos) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(set: *mut *mut c_void) -> Return {
    stage::call(true, |_| unsafe { put(set, std::ptr::dangling_mut::<c_void>()) })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(_set: *mut c_void) -> Return {
    stage().registered.clear();
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(
    device: Device,
    types: *mut c_ulonglong,
) -> Return {
    on_gpu(device, "index", |stage, at| {
        let supported = if stage.script.gpus[at].refuses("events") { 0 } else { EVENT_XID };
        unsafe { put(types, supported) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(
    device: Device,
    types: c_ulonglong,
    _set: *mut c_void,
) -> Return {
    on_gpu(device, "events", |stage, at| {
        if types & EVENT_XID != 0 {
            stage.registered.insert(at);
        }
        SUCCESS
    })
}

/// Never waits: our agent asks with a timeout of zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(
    _set: *mut c_void,
    event: *mut Event,
    _timeout_ms: c_uint,
) -> Return {
    stage::call(true, |stage| match stage.next_xid() {
        Some((at, xid)) => unsafe { put(event, Event::xid((at + 1) as Device, xid)) },
        None => TIMEOUT,
    })
}
