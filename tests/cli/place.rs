//! A sandbox in which jobs run, and what a test asks of them.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sandbox::{PATIENCE, Sandbox, heard};

/// A sandbox in which jobs run; at its end nothing of them is left.
pub(super) struct Place(pub(super) Sandbox);

impl Place {
    /// `GO` in the script is the path of a file that the test makes when the job may go on.
    pub(super) fn new(script: &str) -> Place {
        let sandbox = Sandbox::new();
        sandbox.write(
            "job.sh",
            script.replace("GO", &sandbox.path().join("go").display().to_string()),
        );
        Place(sandbox)
    }

    /// Starts `lamp` without waiting for it.
    pub(super) fn start(&self, args: &[&str]) -> Child {
        self.0.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A daemon that has said that it drives, and what it says from then on. A second daemon would
    /// not do to ask whether it does: the first of them to take the lock drives, and nothing ends
    /// it.
    pub(super) fn driving(&self, args: &[&str]) -> (Child, Words) {
        let mut daemon = self.start(args);
        let words = Words::of(daemon.stderr.take());
        words.until("driving the jobs of");
        (daemon, words)
    }

    pub(super) fn status(&self, job: &str) -> Value {
        let (code, value) = self.0.json(&["status", job, "-o", "json"]);
        assert_eq!(code, 0);
        value["jobs"][0].clone()
    }

    /// Waits until the job is in this state.
    pub(super) fn until(&self, job: &str, state: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            // A job that is not there yet is waited for as well.
            if self.0.lamp(&["status", job, "-o", "json"]).code == 0 {
                let status = self.status(job);
                if status["state"] == state {
                    return status;
                }
                assert!(Instant::now() < end, "never {state}: {status}");
            }
            assert!(Instant::now() < end, "job {job} is never there");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn receipt(&self, job: &str) -> Value {
        let (code, receipt) = self.0.json(&["receipt", job, "-o", "json"]);
        assert_eq!(code, 0);
        let sum: f64 = receipt["attempts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|attempt| attempt["usd"].as_f64().unwrap())
            .sum();
        assert!((receipt["total_usd"].as_f64().unwrap() - sum).abs() < 1e-9, "{receipt}");
        receipt
    }

    /// Every process that was started from this sandbox has it as its home.
    pub(super) fn processes(&self) -> Vec<u32> {
        let home = format!("HOME={}/home", self.0.path().display());
        let pids = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let ours = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|bytes| {
                bytes.split(|byte| *byte == 0).any(|entry| entry == home.as_bytes())
            })
        };
        pids.filter(ours).collect()
    }

    pub(super) fn nothing_is_left(&self) {
        let end = Instant::now() + PATIENCE;
        while !self.processes().is_empty() {
            assert!(Instant::now() < end, "left running: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The lines that a program says while it runs. They are taken as they come, so that it waits for
/// nobody.
pub(super) struct Words(Receiver<String>);

impl Words {
    pub(super) fn of(pipe: Option<impl Read + Send + 'static>) -> Words {
        let (tell, told) = channel();
        let lines = BufReader::new(pipe.expect("it is piped")).lines().map_while(Result::ok);
        std::thread::spawn(move || lines.map_while(|line| tell.send(line).ok()).for_each(drop));
        Words(told)
    }

    /// The next line with this in it.
    pub(super) fn until(&self, word: &str) -> String {
        let (end, mut before) = (Instant::now() + PATIENCE, Vec::new());
        loop {
            match self.0.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(word) => return line,
                Ok(line) => before.push(line),
                Err(why) => panic!("`{word}` is not said ({why}), only {before:#?}"),
            }
        }
    }

    /// All that it says from now on, until nobody can say anything there any more.
    pub(super) fn rest(self) -> Vec<String> {
        crate::sandbox::soon(move || self.0.into_iter().collect())
            .expect("somebody holds on to its pipe")
    }
}

/// A program that runs beside the test, and ends with it, however that ends.
#[cfg(feature = "aws")]
pub struct Running(pub Child);

#[cfg(feature = "aws")]
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, "KILL");
        }
    }
}

/// The processes of this place whose words contain all of these.
pub(super) fn pids(place: &Place, words: &[&str]) -> Vec<u32> {
    let said = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
            .unwrap_or_default()
    };
    place
        .processes()
        .into_iter()
        .filter(|pid| words.iter().all(|word| said(pid).contains(word)))
        .collect()
}

pub(super) fn signal(pid: u32, name: &str) {
    let _ = std::process::Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

pub(super) fn end(child: Child) -> (i32, Vec<u8>, String) {
    let output = heard(child);
    (
        output.status.code().unwrap_or(-1),
        output.stdout,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

pub(super) fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
