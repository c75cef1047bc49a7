//! A bench for real workloads behind real holders: the fixture that the `workload_*` tests share.
//!
//! Whatever a test does, its processes are gone afterwards: [`Bench`] kills by the mark that each
//! start leaves in the environment of everything it starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lamplighter::adapters::host::process_tree::{ProcessRef, with_environment};
use lamplighter::adapters::workload::holder::start::HolderProgram;
use lamplighter::adapters::workload::process::ChildWorkloads;
use lamplighter::ports::{Launch, Workload, Workloads};
use rustix::process::Signal;
use tempfile::TempDir;

/// Far longer than anything here takes on a busy machine; only a failing test waits as long.
pub const LONG: Duration = Duration::from_secs(300);

pub struct Bench {
    pub folder: TempDir,
    pub launch: Launch,
    pub program: HolderProgram,
}

impl Bench {
    /// A start of `sh -c SCRIPT`.
    pub fn of_script(script: &str) -> Self {
        Bench::of(&["/bin/sh", "-c", script])
    }

    pub fn of(argv: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let cwd = folder.path().join("work");
        fs::create_dir(&cwd).expect("a folder");
        let launch = Launch {
            name: "test-222222-0001-1".into(),
            argv: argv.iter().map(|part| (*part).to_owned()).collect(),
            cwd,
            env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            dir: folder.path().join("start"),
            log_bytes_max: 64 << 20,
            echo: false,
            terminal: true,
        };
        let program = HolderProgram {
            exe: env!("CARGO_BIN_EXE_lamp-agent").into(),
            leading: vec![],
            machine_pid: None,
            environment: None,
        };
        Bench { folder, launch, program }
    }

    pub fn workloads(&self) -> ChildWorkloads {
        ChildWorkloads::new(self.program.clone())
    }

    pub async fn start(&self) -> Box<dyn Workload> {
        self.workloads().start(&self.launch).await.expect("it starts")
    }

    pub async fn attach(&self) -> Box<dyn Workload> {
        self.workloads()
            .attach(&self.launch.dir)
            .await
            .expect("it can be read")
            .expect("it was started")
    }

    pub fn dir(&self) -> &Path {
        &self.launch.dir
    }

    /// A file in the working directory of the workload.
    pub fn file(&self, name: &str) -> PathBuf {
        self.launch.cwd.join(name)
    }

    pub async fn until_file(&self, name: &str) {
        until(&format!("`{name}` is there"), || self.file(name).exists()).await;
    }

    /// Everything alive that this start brought into the world.
    pub fn alive(&self) -> Vec<ProcessRef> {
        let Ok(mark) = fs::canonicalize(self.dir()) else { return Vec::new() };
        let mark = mark.to_str().expect("a plain path").to_owned();
        with_environment("LAMP_WORKLOAD", &mark)
            .into_iter()
            .filter(|process| process.alive())
            .collect()
    }

    pub fn holder(&self) -> ProcessRef {
        let started: serde_json::Value =
            serde_json::from_slice(&fs::read(self.dir().join("started.json")).expect("started"))
                .expect("json");
        serde_json::from_value(started["holder"].clone()).expect("a process")
    }

    /// The output on disk, in order.
    pub fn output(&self) -> Vec<u8> {
        segments(self.dir()).iter().flat_map(|path| fs::read(path).expect("a segment")).collect()
    }

    pub fn has_exit_record(&self) -> bool {
        self.dir().join("exit.json").exists()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.dir().join("started.json").exists() {
            let _ = self.holder().signal(Signal::KILL);
        }
        let end = Instant::now() + LONG;
        while !self.alive().is_empty() && Instant::now() < end {
            for process in self.alive() {
                let _ = process.signal(Signal::KILL);
            }
            std::thread::yield_now();
        }
    }
}

/// The log segments of a state folder, oldest first.
pub fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir.join("log"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "not within {LONG:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A future that must not take for ever.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future)
        .await
        .unwrap_or_else(|_| panic!("not within {LONG:?}: {what}"))
}
