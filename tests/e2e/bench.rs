//! A folder, two programs, and a broom.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a condition may take before the test gives up: longer than a machine with ten compilers
/// on it needs. Only a test that fails waits for so long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A test's own place. When it is dropped, every process that mentions it in its environment is
/// killed.
pub struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Bench {
            dir: tempfile::Builder::new()
                .prefix("lamp-e2e-")
                .tempdir()
                .expect("the test can have a folder"),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::create_dir_all(path.parent().expect("a file below the folder has one"))
            .expect("the folder can be written");
        std::fs::write(&path, text).expect("the folder can be written");
        path
    }

    /// `lamp-agent`, in this folder, with records, state and cache in it.
    pub fn agent(&self) -> Command {
        self.command(env!("CARGO_BIN_EXE_lamp-agent"))
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("XDG_STATE_HOME", self.file("state"))
            .env("XDG_CACHE_HOME", self.file("cache"))
            .env("XDG_CONFIG_HOME", self.file("config"))
            .env("E2E_BENCH", self.path())
            .env_remove("RUST_BACKTRACE")
            .env_remove("LAMP_CONFIG")
            .env_remove("LAMP_OWNER")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    /// Every file below a folder whose name ends so, in order.
    pub fn find(&self, folder: &str, ending: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.file(folder), &mut found);
        found.retain(|path| path.to_string_lossy().ends_with(ending));
        found.sort();
        found
    }

    /// The one JSON file with this name below a folder.
    pub fn json(&self, folder: &str, name: &str) -> serde_json::Value {
        let found = self.find(folder, name);
        assert_eq!(found.len(), 1, "one `{name}` below {folder}: {found:?}");
        serde_json::from_slice(&std::fs::read(&found[0]).expect("it was just listed"))
            .expect("records are JSON")
    }

    /// Processes of this test that still run, without those of the test itself.
    pub fn processes(&self) -> Vec<u32> {
        let mark = format!("E2E_BENCH={}", self.path().display());
        let holds = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        let pids = std::fs::read_dir("/proc")
            .expect("/proc is there")
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(holds).filter(|pid| !is_zombie(*pid)).collect()
    }
}

impl Drop for Bench {
    /// Whatever the test was about, nothing of it may be left running.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            wait_until("every process of the test is gone", || {
                self.processes().is_empty().then_some(())
            });
        }
        for _ in 0..10 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for pid in left {
                kill(pid, "KILL");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { walk(&path, found) } else { found.push(path) }
    }
}

fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

pub fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists() && !is_zombie(pid)
}

pub fn kill(pid: u32, signal: &str) {
    let done = Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .stderr(Stdio::null())
        .status();
    done.expect("`kill` is installed");
}

/// Waits until something is so, and fails with these words if it never is.
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Is a machine on? `Err`: how it went off since it was asked last.
pub fn is_on(running: &mut Option<Child>) -> Result<bool, ExitStatus> {
    let Some(child) = running.as_mut() else { return Ok(false) };
    match child.try_wait().expect("it is our child") {
        None => Ok(true),
        Some(status) => {
            *running = None;
            Err(status)
        }
    }
}

/// A program that runs beside the test; killed when dropped.
pub struct Running {
    child: Child,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Running { child: command.spawn().expect("the program can be started") }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_until("the program ends", || self.child.try_wait().expect("it is our child"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already ended in most tests.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Runs a program to its end, never longer than [`PATIENCE`].
pub trait Finish {
    fn finish(&mut self) -> Output;
}

impl Finish for Command {
    fn finish(&mut self) -> Output {
        let (mut out, mut err) = (spool(), spool());
        let copy = |file: &std::fs::File| file.try_clone().expect("a file handle can be copied");
        let mut running = Running::start(self.stdout(copy(&out)).stderr(copy(&err)));
        let status = running.wait();
        Output { status, stdout: read_all(&mut out), stderr: read_all(&mut err) }
    }
}

fn spool() -> std::fs::File {
    tempfile::tempfile().expect("the test can have a file")
}

fn read_all(file: &mut std::fs::File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("a file can be read from its start");
    file.read_to_end(&mut bytes).expect("a file can be read");
    bytes
}
