//! One job of several on one desk, and what its test asks of it.

use serde_json::Value;

use super::desk::Desk;
use super::journey::bill_agrees;
use super::machines::{Ec2, patiently};
use crate::bench::Finish as _;
use crate::jobs::text;
use lamp_test_support::ec2::{Seen, State};

/// How a machine ends that put itself out.
pub const ITSELF: &str = "Client.InstanceInitiatedShutdown";

/// For a job file: it saves every second or so, whoever asks.
pub const SAVES: &str = "[env]\nSAVE_EVERY = '5'\n";

pub struct Story<'a> {
    pub desk: &'a Desk<Ec2>,
    pub job: String,
}

impl<'a> Story<'a> {
    /// Begins with `lamp run --detach`: this job file, and machines that fetch this program as the
    /// agent.
    pub fn begin_with(desk: &'a Desk<Ec2>, name: &str, job: &str, agent: &str) -> Self {
        let file = format!("{name}.toml");
        desk.bench.write(&file, &job.replace("'toy'", &format!("'{name}'")));
        let mut run = desk.lamp(&["run", "--detach", "--unproven", &file]);
        let out = run.env("LAMP_AGENT_BINARY", desk.bench.file(agent)).finish();
        assert!(out.status.success(), "{name}: {}", text(&out.stderr));
        Story { desk, job: text(&out.stdout).trim().to_owned() }
    }

    pub fn begin(desk: &'a Desk<Ec2>, name: &str, job: &str) -> Self {
        Self::begin_with(desk, name, job, "lamp-agent")
    }

    /// The machines that were launched for it so far.
    pub fn machines(&self) -> Vec<Seen> {
        let ours = |seen: &Seen| seen.tags.get("lamplighter:job") == Some(&self.job);
        self.desk.ec2.instances().into_iter().filter(ours).collect()
    }

    /// The machine of an attempt, as soon as it is launched.
    pub fn machine(&self, attempt: &str) -> Seen {
        let its =
            |seen: &Seen| seen.tags.get("lamplighter:attempt").is_some_and(|tag| tag == attempt);
        patiently(&format!("{} is launched, attempt {attempt}", self.job), || {
            self.machines().into_iter().find(its)
        })
    }

    /// `STEP` at which the trainer of this attempt began.
    pub fn begins(&self, attempt: u32, machine: &Seen) -> u32 {
        let begun = self.desk.begins(&machine.id);
        let step = begun.strip_prefix(&format!("{attempt} ")).and_then(|step| step.parse().ok());
        step.unwrap_or_else(|| panic!("{}: {begun}", self.job))
    }

    /// The processes that drive this job here, and no other.
    pub fn drivers(&self) -> Vec<u32> {
        let mine = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&self.job))
        };
        self.desk.bench.processes().into_iter().filter(mine).collect()
    }

    /// The machine is off, and this is why; then `lamp receipt` tells it, and what the job cost.
    pub fn ends(&self, machines: &[&Seen], last: &str, outcome: &str) -> Value {
        let machine = machines.last().expect("at least one");
        let ended = self.desk.ec2.until(&machine.id, State::Terminated);
        assert_eq!(ended.reason, last, "{}", self.job);
        self.desk.receipt(&self.job);
        let told = self.desk.must(&["receipt", &self.job, "-o", "json"]);
        let receipt: Value = serde_json::from_slice(&told.stdout).expect("JSON");
        assert_eq!(receipt["outcome"], outcome, "{receipt:#}");
        assert_eq!(
            receipt["attempts"].as_array().map(Vec::len),
            Some(machines.len()),
            "{receipt:#}"
        );
        bill_agrees(self.desk, &receipt, machines);
        receipt
    }
}
