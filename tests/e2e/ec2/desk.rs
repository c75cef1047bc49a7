//! A workstation with an account in the false EC2: what a user has, and what a test asks of it.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

use super::machines::{Ec2, patiently};
use super::network::API;
use crate::bench::{Bench, Finish as _};
use crate::jobs::{assert_code, text};
use lamp_test_support::ec2::{FalseEc2, Node, Seen};

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

/// Steps, saves when it is asked and every `SAVE_EVERY` steps, resumes, and ends when `/root/go`
/// says with which code.
const TRAINER: &str = r#"
n=0; [ ! -e "$LAMP_CHECKPOINT_DIR/state" ] || n=$(cat "$LAMP_CHECKPOINT_DIR/state")
save() { mkdir -p "$LAMP_CHECKPOINT_DIR"; echo $n > "$LAMP_CHECKPOINT_DIR/state.new"; mv "$LAMP_CHECKPOINT_DIR/state.new" "$LAMP_CHECKPOINT_DIR/state"
         echo "{\"checkpoint\": \"state\", \"step\": $n}" >> "$LAMP_PROGRESS"; }
trap save USR1
echo "$LAMP_ATTEMPT $n" >> /root/begins
while [ ! -e /root/go ]; do
    n=$((n + 1)); echo $n > /root/step; echo "step $n"; echo "{\"step\": $n}" >> "$LAMP_PROGRESS"; sleep 0.2
    [ $((n % ${SAVE_EVERY:-1000000})) != 0 ] || save
done
mkdir -p "$LAMP_OUTPUT_DIR"; echo "trained $n" > "$LAMP_OUTPUT_DIR/model"
exit $(cat /root/go)"#;

/// The agent as it would ship: without its debug information, which is most of it.
fn agent() -> &'static [u8] {
    static AGENT: OnceLock<Vec<u8>> = OnceLock::new();
    AGENT.get_or_init(|| {
        let built = PathBuf::from(env!("CARGO_BIN_EXE_lamp-agent"));
        let folder = tempfile::tempdir().expect("a folder");
        let stripped = folder.path().join("lamp-agent");
        let done = Command::new("strip")
            .arg("-o")
            .arg(&stripped)
            .arg(&built)
            .status()
            .is_ok_and(|status| status.success());
        std::fs::read(if done { &stripped } else { &built }).expect("it was built with the test")
    })
}

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
        std::fs::write(bench.file("lamp-agent"), agent()).expect("writable");
        ec2.take_calls();
        Desk { bench, ec2, bucket, prefix }
    }

    /// The agent that machines of this desk fetch.
    pub fn agent(&self) -> &'static [u8] {
        agent()
    }

    pub fn lamp(&self, words: &[&str]) -> Command {
        let mut command = self.bench.command(env!("CARGO_BIN_EXE_lamp"));
        command.env("LAMP_CONFIG", self.bench.file("config.toml"));
        if !self.prefix.is_empty() {
            command.env(
                "LAMP_JOB_ROOT",
                format!("s3://{}/{}", self.bucket, self.prefix.trim_end_matches('/')),
            );
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
        text(&self.must(&["run", "--detach", "--unproven", file]).stdout).trim().to_owned()
    }

    /// The workstation is gone: whatever drives jobs there is killed.
    pub fn dies(&self) {
        for pid in self.bench.processes() {
            crate::bench::kill(pid, "KILL");
        }
    }

    /// The next instance that is none of these.
    pub fn launched(&self, known: &[&str]) -> Seen {
        patiently("an instance is launched", || {
            self.ec2.instances().into_iter().find(|seen| !known.contains(&seen.id.as_str()))
        })
    }

    pub fn receipt(&self, job: &str) -> Value {
        let (key, mut last) =
            (format!("/{}/{}jobs/{job}/receipt.json", self.bucket, self.prefix), String::new());
        patiently(&format!("the job has a receipt {last}"), || {
            let (status, body) = self.ec2.s3("GET", &key, b"");
            last = text(&body);
            (status == 200).then(|| serde_json::from_slice(&body).expect("JSON"))
        })
    }

    /// The newest checkpoint of the job that is complete.
    pub fn checkpoint(&self, job: &str) -> Option<u64> {
        self.names(job, "checkpoints")
            .iter()
            .filter_map(|name| name.strip_suffix("/manifest.json")?.parse().ok())
            .max()
    }

    /// Whether there is one.
    pub fn has_checkpoint(&self, job: &str) -> bool {
        self.checkpoint(job).is_some()
    }

    /// The names below a folder of the job's directory.
    fn names(&self, job: &str, folder: &str) -> Vec<String> {
        let prefix = format!("{}jobs/{job}/{folder}/", self.prefix);
        let (_, body) =
            self.ec2.s3("GET", &format!("/{}?list-type=2&prefix={prefix}", self.bucket), b"");
        let listed = Node::parse(&text(&body));
        listed
            .all("Key")
            .into_iter()
            .filter_map(|key| key.text.strip_prefix(&prefix).map(str::to_owned))
            .collect()
    }

    /// Waits for an event of an attempt.
    pub fn until_event(
        &self,
        job: &str,
        attempt: u32,
        what: &str,
        is_it: impl Fn(&Value) -> bool,
    ) -> Value {
        let folder = format!("attempts/{attempt:04}/events");
        patiently(what, || {
            let files =
                self.names(job, &folder).into_iter().filter(|name| name.ends_with(".jsonl"));
            let texts = files.map(|name| {
                text(
                    &self
                        .ec2
                        .s3(
                            "GET",
                            &format!("/{}/{}jobs/{job}/{folder}/{name}", self.bucket, self.prefix),
                            b"",
                        )
                        .1,
                )
            });
            texts
                .collect::<String>()
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .find(&is_it)
        })
    }

    pub fn jobs(&self) -> Vec<String> {
        let (_, body) = self.ec2.s3(
            "GET",
            &format!("/{}?list-type=2&prefix={}jobs/", self.bucket, self.prefix),
            b"",
        );
        let listed = Node::parse(&text(&body));
        let mut jobs: Vec<String> = listed
            .all("Key")
            .into_iter()
            .filter_map(|key| {
                Some(key.text.strip_prefix(self.prefix)?.split('/').nth(1)?.to_owned())
            })
            .collect();
        jobs.dedup();
        jobs
    }
}

impl Desk<Ec2> {
    /// `ATTEMPT STEP` of each start of the trainer on this machine.
    pub fn begun(&self, id: &str) -> Vec<String> {
        let begun = std::fs::read_to_string(self.ec2.file(id, "root/begins")).unwrap_or_default();
        begun.lines().map(str::to_owned).collect()
    }

    /// Waits until the trainer on this machine has begun; gives the last of them.
    pub fn begins(&self, id: &str) -> String {
        patiently("the trainer begins", || self.begun(id).pop())
    }

    pub fn step(&self, id: &str) -> u32 {
        std::fs::read_to_string(self.ec2.file(id, "root/step"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or_default()
    }

    /// Tells the trainer to end well.
    pub fn go(&self, id: &str) {
        self.goes(id, 0);
    }

    /// Tells the trainer to end so.
    pub fn goes(&self, id: &str, code: u8) {
        std::fs::write(self.ec2.file(id, "root/go"), code.to_string()).expect("the disk is there");
    }
}
