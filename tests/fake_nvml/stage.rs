//! The state of the play: the script as last read, its clock, and pending events.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::abi::*;
use crate::script::Script;

/// With a stopped clock, the moment that the script calls 0; any will do that leaves room before
/// it.
const STOPPED_ORIGIN_MICROS: u64 = 1_700_000_000_000_000;

/// As many samples as a driver keeps, about.
const SAMPLES_MAX: u64 = 120;

pub struct Stage {
    pub script: Script,
    pub initialized: bool,
    pub registered: HashSet<usize>,
    path: PathBuf,
    seen: Option<(u64, i64, i64, u64)>,
    origin_micros: u64,
    delivered: Vec<usize>,
}

static STAGE: LazyLock<Mutex<Stage>> = LazyLock::new(|| Mutex::new(Stage::new()));

/// A test that panicked elsewhere does not matter here.
pub fn stage() -> MutexGuard<'static, Stage> {
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every call but init and shutdown: hangs, fails or plays, by the script of this moment if it
/// should `look`. The lock is not held while it hangs.
pub fn call(look: bool, play: impl FnOnce(&mut Stage) -> Return) -> Return {
    let began = Instant::now();
    loop {
        let mut stage = stage();
        if look || stage.script.block > 0.0 {
            stage.look();
        }
        if stage.script.block > began.elapsed().as_secs_f64() {
            drop(stage);
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        if !stage.initialized {
            return UNINITIALIZED;
        }
        return if stage.script.broken == SUCCESS { play(&mut stage) } else { stage.script.broken };
    }
}

impl Stage {
    fn new() -> Self {
        let path =
            std::env::var_os("FAKE_NVML_SCRIPT").map_or_else(beside_the_library, PathBuf::from);
        Stage {
            script: Script::default(),
            initialized: false,
            registered: HashSet::new(),
            path,
            seen: None,
            origin_micros: STOPPED_ORIGIN_MICROS,
            delivered: Vec::new(),
        }
    }

    /// Reads the script again if it is another file than last time.
    pub fn look(&mut self) {
        let Ok(meta) = std::fs::metadata(&self.path) else { return };
        let seen = Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()));
        if seen == self.seen {
            return;
        }
        let Ok(text) = std::fs::read_to_string(&self.path) else { return };
        self.script = Script::parse(&text).unwrap_or_else(|why| {
            eprintln!("fake NVML: {}: {why}", self.path.display());
            std::process::abort();
        });
        self.seen = seen;
        self.origin_micros = match self.script.time {
            Some(_) => STOPPED_ORIGIN_MICROS,
            None => meta.mtime() as u64 * 1_000_000 + meta.mtime_nsec() as u64 / 1000,
        };
    }

    /// The script's clock.
    pub fn seconds(&self) -> f64 {
        self.script.time.unwrap_or_else(|| {
            let now =
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
            now.saturating_sub(self.origin_micros) as f64 / 1e6
        })
    }

    /// Why this call on this GPU gives nothing, if so.
    pub fn refusal(&self, index: usize, what: &str) -> Option<Return> {
        let Some(gpu) = self.script.gpus.get(index) else { return Some(INVALID_ARGUMENT) };
        if gpu.fault != SUCCESS {
            return Some(gpu.fault);
        }
        gpu.refuses(what).then_some(NOT_SUPPORTED)
    }

    /// The driver's buffer after a moment. A sample says what went on in the period that it ends.
    pub fn samples(&self, index: usize, memory: bool, last_seen: u64) -> Vec<Sample> {
        let period = (self.script.period * 1e6) as u64;
        let now = self.origin_micros + (self.seconds() * 1e6) as u64;
        let newest = now / period;
        let kept = if self.script.dry {
            self.origin_micros / period
        } else {
            newest.saturating_sub(SAMPLES_MAX)
        };
        let first = (last_seen / period + 1).max(kept + 1);
        let gpu = &self.script.gpus[index];
        let sample = |number: u64| {
            let middle = ((number * period) as f64 - self.origin_micros as f64) / 1e6
                - self.script.period / 2.0;
            let value = if memory { gpu.memory_util_at(middle) } else { gpu.util.at(middle) };
            Sample { timestamp: number * period, value: value as c_uint, rest: 0 }
        };
        (first..=newest)
            .map(sample)
            .filter(|sample| !(self.script.dry && sample.value == 0))
            .collect()
    }

    /// The next Xid line that was not yet delivered, of a GPU whose events are wanted.
    pub fn next_xid(&mut self) -> Option<(usize, u64)> {
        self.delivered.resize(self.script.gpus.len().max(self.delivered.len()), 0);
        for (index, gpu) in self.script.gpus.iter().enumerate() {
            if self.registered.contains(&index)
                && let Some(xid) = gpu.xids.get(self.delivered[index])
            {
                self.delivered[index] += 1;
                return Some((index, *xid));
            }
        }
        None
    }
}

#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// The library's own path with `.script` after it.
fn beside_the_library() -> PathBuf {
    let mut info = DlInfo {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    // SAFETY: the address is one of this library's, the structure is glibc's `Dl_info`, and its
    // string is valid as long as the library.
    let file = unsafe {
        if dladdr(beside_the_library as *const c_void, &mut info) == 0 || info.file.is_null() {
            return PathBuf::from("fake_nvml.script");
        }
        CStr::from_ptr(info.file)
    };
    PathBuf::from(format!("{}.script", file.to_string_lossy()))
}
