//! A workstation with an account in the false EC2: what a user has, and what a test asks of it.

use std::ops::Deref;
use std::process::{Command, Output};

use serde_json::Value;

use super::attempt::{TRAINER, agent};
use super::machines::{Ec2, patiently};
use super::network::API;
use crate::bench::{Bench, Finish as _};
use crate::false_ec2::{FalseEc2, Node, Seen};
use crate::jobs::{assert_code, text};

pub struct Desk<C> {
    /// Dropped first: it waits for the programs, and they need their cloud to end.
    pub bench: Bench,
    pub ec2: C,
    bucket: String,
    /// Of the job root in the bucket; ends with a slash, or is empty.
    prefix: &'static str,
}

/// The trainer, saving every second, on the cheapest spot machine.
pub const JOB: &str = "name = 'toy'\nworkdir = 'w'\ncommand = ['sh', 'job.sh']\n\
    [machine]\ncloud = 'aws'\ngpus = 'none'\ninstance_types = ['m5.large']\nmarket = 'spot'\n\
    [limits]\nmax_runtime = '20m'\n\
    [checkpoint]\npath = 'ckpt'\ninterval = '1s'\nsignal = 'SIGUSR1'\ngrace = '5s'\n";

impl<C: Deref<Target = FalseEc2>> Desk<C> {
    pub fn new(ec2: C) -> Self {
        ec2.profile("lamplighter-box");
        let group = [("GroupName", "lamplighter"), ("GroupDescription", "no way in")];
        ec2.ask("CreateSecurityGroup", &group).expect("a group");
        let bucket = ec2.bucket("jobs");
        Self::with_root(ec2, bucket, "root/")
    }

    /// The same with an account in which there is nothing yet: `lamp init aws` is to make it ready.
    pub fn in_a_new_account(ec2: C) -> Self {
        let bucket = format!("lamplighter-{}-us-east-1", ec2.account());
        Self::with_root(ec2, bucket, "")
    }

    fn with_root(ec2: C, bucket: String, prefix: &'static str) -> Self {
        let bench = Bench::new();
        bench.write("config.toml", &format!("[aws]\nbox_endpoint_url = '{API}'\n"));
        bench.write("w/job.sh", TRAINER);
        bench.write("job.toml", JOB);
        std::fs::write(bench.file("lamp-agent"), &agent().0).expect("writable");
        ec2.take_calls();
        Desk { bench, ec2, bucket, prefix }
    }

    pub fn lamp(&self, words: &[&str]) -> Command {
        let mut command = self.bench.command(env!("CARGO_BIN_EXE_lamp"));
        command.env("LAMP_CONFIG", self.bench.file("config.toml"));
        if !self.prefix.is_empty() {
            command.env("LAMP_JOB_ROOT", format!("s3://{}/{}", self.bucket, self.prefix.trim_end_matches('/')));
        }
        command.env("LAMP_AGENT_BINARY", self.bench.file("lamp-agent")).env("LAMP_OWNER", "me");
        command.envs(self.ec2.env()).args(words);
        command
    }

    /// Runs a verb to its end, and succeeds.
    pub fn must(&self, words: &[&str]) -> Output {
        let out = self.lamp(words).finish();
        assert_code(&out, 0);
        out
    }

    /// Submits; a process of its own drives the job. Gives its id.
    pub fn submit(&self) -> String {
        self.submit_file("job.toml")
    }

    pub fn submit_file(&self, file: &str) -> String {
        text(&self.must(&["run", "--detach", file]).stdout).trim().to_owned()
    }

    /// The workstation is gone: whatever drives jobs there is killed.
    pub fn dies(&self) {
        for pid in self.bench.processes() {
            crate::bench::kill(pid, "KILL");
        }
    }

    /// The next instance that is none of these.
    pub fn launched(&self, known: &[&str]) -> Seen {
        patiently("an instance is launched", || self.ec2.instances().into_iter().find(|seen| !known.contains(&seen.id.as_str())))
    }

    pub fn receipt(&self, job: &str) -> Value {
        let (key, mut last) = (format!("/{}/{}jobs/{job}/receipt.json", self.bucket, self.prefix), String::new());
        patiently(&format!("the job has a receipt {last}"), || {
            let (status, body) = self.ec2.s3("GET", &key, b"");
            last = text(&body);
            (status == 200).then(|| serde_json::from_slice(&body).expect("JSON"))
        })
    }

    /// Whether a checkpoint of the job is complete.
    pub fn has_checkpoint(&self, job: &str) -> bool {
        let (_, body) = self.ec2.s3("GET", &format!("/{}?list-type=2&prefix={}jobs/{job}/checkpoints/", self.bucket, self.prefix), b"");
        Node::parse(&text(&body)).all("Key").into_iter().any(|key| key.text.ends_with("/manifest.json"))
    }

    pub fn jobs(&self) -> Vec<String> {
        let (_, body) = self.ec2.s3("GET", &format!("/{}?list-type=2&prefix={}jobs/", self.bucket, self.prefix), b"");
        let listed = Node::parse(&text(&body));
        let mut jobs: Vec<String> =
            listed.all("Key").into_iter().filter_map(|key| Some(key.text.strip_prefix(self.prefix)?.split('/').nth(1)?.to_owned())).collect();
        jobs.dedup();
        jobs
    }
}

impl Desk<Ec2> {
    /// Waits until the trainer on this machine has begun; gives `ATTEMPT STEP`.
    pub fn begins(&self, id: &str) -> String {
        let begins = || std::fs::read_to_string(self.ec2.file(id, "root/begins")).ok()?.lines().last().map(str::to_owned);
        patiently("the trainer begins", begins)
    }

    pub fn step(&self, id: &str) -> u32 {
        std::fs::read_to_string(self.ec2.file(id, "root/step")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    }

    pub fn go(&self, id: &str) {
        std::fs::write(self.ec2.file(id, "root/go"), "0").expect("the disk is there");
    }
}
