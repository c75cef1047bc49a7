//! A folder for one measurement, and everything in it: records as real jobs leave them, and
//! processes that end with it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Place {
            dir: tempfile::Builder::new()
                .prefix("lamp-figures-")
                .tempdir()
                .expect("a folder can be made"),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A program with its state, cache and records in this folder.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .env("HOME", self.path())
            .env("LAMP_FIGURES", self.path())
            .env("NO_COLOR", "1");
        for (variable, folder) in [
            ("XDG_STATE_HOME", "state"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_CONFIG_HOME", "config"),
        ] {
            command.env(variable, self.file(folder));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub fn write(&self, name: &str, value: &Value) {
        let path = self.file(name);
        std::fs::create_dir_all(path.parent().expect("it lies in our folder"))
            .expect("our folder can be written");
        let new = path.with_extension("new");
        std::fs::write(&new, value.to_string()).expect("our folder can be written");
        std::fs::rename(new, path).expect("our folder can be written");
    }

    /// A machine of the local cloud with a job to run, as the controller leaves it before the
    /// machine boots. Gives the machine's folder, for `lamp-agent boot --local`.
    pub fn machine(&self, spec: &Value) -> PathBuf {
        let job = spec["job"].as_str().expect("an id");
        self.write(&format!("root/jobs/{job}/spec.json"), spec);
        let instance = json!({
            "instance": "i-local-000000000001", "launched": now_text(), "client_token": "figures",
            "job_root": format!("file://{}", self.file("root").display()), "boot_id": "", "usd_per_hour": 1.0, "agent": [],
            "tags": {"lamplighter:owner": "figures", "lamplighter:job": job, "lamplighter:attempt": "0001", "lamplighter:lease-s": "1800"},
        });
        self.write("machine/instance.json", &instance);
        self.file("machine")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mark = format!("LAMP_FIGURES={}", self.path().display());
        for _ in 0..10 {
            let ours: Vec<u32> = pids().filter(|pid| environment_holds(*pid, &mark)).collect();
            if ours.is_empty() {
                return;
            }
            for pid in ours {
                let _gone = Command::new("kill")
                    .args(["-KILL", &pid.to_string()])
                    .stderr(Stdio::null())
                    .status();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

pub fn pids() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn environment_holds(pid: u32, mark: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
}

/// Killed when dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Running(command.spawn().expect("the program is built"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A spec for a machine of ours; `command` is for the shell.
pub fn spec(job: &str, command: &str) -> Value {
    json!({
        "format": 1, "job": job, "created": now_text(), "written_by": "figures", "code": null, "origins": {},
        "spec": {"name": "figures", "command": {"shell": command}},
    })
}

pub fn now_text() -> String {
    jiff::Timestamp::now().to_string()
}

/// Nanoseconds since 1970, as `date +%s%N` prints them.
pub fn nanos() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_nanos()
}

/// What `date +%s%N > file` wrote, once it is whole.
pub fn nanos_in(path: &Path) -> Option<u128> {
    let text = std::fs::read_to_string(path).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}

/// Looks every few milliseconds until something is there; `None` after a minute.
pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
