//! The fake NVML for tests.
//!
//! ```ignore
//! let gpu = FakeNvml::in_dir(dir.path());      // a copy of the library, with its script beside it
//! gpu.play("gpus 2\ngpu * util 100");          // see tests/fake_nvml/lib.rs for the language
//! command.env("LAMP_NVML_LIBRARY", gpu.library());
//! gpu.play(LOST);                              // at any time, also while the agent runs
//! ```
//!
//! `cargo test` and nextest build the library as the example `fake_nvml`; `cargo test --test one`
//! does not, and then this module calls `rustc` itself. Not here: expectations.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Training at full load.
pub const BUSY: &str = "gpu * util 97\ngpu * memory-util 60\ngpu * power 350\ngpu * temperature 68\ngpu * memory 40000/81920\n";
/// Nothing runs.
pub const IDLE: &str = "gpu * util 0\ngpu * power 60\ngpu * temperature 34\n";
/// Training that waits for its data every few seconds: no single reading is worth a verdict.
pub const DIPS: &str =
    "gpu * util 95 for 2, 0 for 2\ngpu * power 300 for 2, 90 for 2\ngpu * memory 40000/81920\n";
/// A collective that never ends: utilisation says 100, the power says that nothing happens.
pub const HANG: &str =
    "gpu * util 100\ngpu * memory-util 0\ngpu * power 75\ngpu * memory 40000/81920\n";
/// The (first) GPU fell off the bus.
pub const LOST: &str = "gpu 0 fault lost\n";
/// The driver was upgraded under a running machine.
pub const MISMATCH: &str = "init mismatch\nbroken mismatch\n";

pub struct FakeNvml {
    library: PathBuf,
}

impl FakeNvml {
    /// A copy of its own in this folder, which plays one idle GPU until told otherwise. Each copy
    /// has its own state.
    pub fn in_dir(dir: &Path) -> FakeNvml {
        let library = dir.join("libnvidia-ml.so.1");
        std::fs::copy(fake_nvml(), &library)
            .expect("the library can be copied into the test's folder");
        let fake = FakeNvml { library };
        fake.play(IDLE);
        fake
    }

    /// For `LAMP_NVML_LIBRARY`, or the constructor of the sensors.
    pub fn library(&self) -> &Path {
        &self.library
    }

    pub fn script(&self) -> PathBuf {
        PathBuf::from(format!("{}.script", self.library.display()))
    }

    /// Replaces the script in one step; the next call of NVML plays it.
    pub fn play(&self, script: &str) {
        let new = self.library.with_extension("new");
        std::fs::write(&new, script).expect("the test's folder can be written");
        std::fs::rename(&new, self.script()).expect("the test's folder can be written");
    }
}

/// The built library.
pub fn fake_nvml() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built_by_cargo().unwrap_or_else(build)).clone()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fake_nvml")
}

fn newest_source() -> SystemTime {
    let times = ["lib.rs", "abi.rs", "script.rs", "stage.rs"]
        .map(|name| sources().join(name).metadata().and_then(|meta| meta.modified()));
    times
        .into_iter()
        .map(|time| time.expect("the sources are there"))
        .max()
        .expect("there are four")
}

/// `target/<profile>`: a test runs from `deps/` below it.
fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let deps = exe.parent().expect("it lies in a folder");
    if deps.ends_with("deps") {
        deps.parent().expect("deps lies in the profile's folder").to_owned()
    } else {
        deps.to_owned()
    }
}

/// Cargo's own, unless the sources have changed since.
fn built_by_cargo() -> Option<PathBuf> {
    let path = profile_dir().join("examples/libfake_nvml.so");
    let built = path.metadata().ok()?.modified().ok()?;
    (built >= newest_source()).then_some(path)
}

/// Several test processes may get here at once: each builds under a name of its own, the rename is
/// atomic.
fn build() -> PathBuf {
    let done = profile_dir().join("libfake_nvml-by-hand.so");
    if done.metadata().and_then(|meta| meta.modified()).is_ok_and(|built| built >= newest_source())
    {
        return done;
    }
    let mine = profile_dir().join(format!("libfake_nvml-{}.so", std::process::id()));
    let rustc = option_env!("RUSTC").unwrap_or("rustc");
    let built = Command::new(rustc)
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "--crate-name",
            "fake_nvml",
            "-C",
            "strip=symbols",
            "-o",
        ])
        .arg(&mine)
        .arg(sources().join("lib.rs"))
        .status()
        .expect("rustc can be run");
    assert!(built.success(), "rustc could not build the fake NVML");
    std::fs::rename(&mine, &done).expect("the profile's folder can be written");
    done
}
