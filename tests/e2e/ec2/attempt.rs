//! An attempt on a machine of the false EC2, without a controller: the job directory is written and the instance launched
//! by the test, the user data and the agent are the real ones.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use lamplighter::controller::Bootstrap;
use lamplighter::job::BOOT;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::machines::{Ec2, patiently};
use super::network::API;
use crate::false_ec2::{Node, encode_base64};

const JOB: &str = "box-222222";

/// Steps, saves when it is asked and every `SAVE_EVERY` steps, resumes, and ends when `/root/go` says with which code.
pub const TRAINER: &str = r#"
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
pub fn agent() -> &'static (Vec<u8>, String) {
    static AGENT: OnceLock<(Vec<u8>, String)> = OnceLock::new();
    AGENT.get_or_init(|| {
        let built = PathBuf::from(env!("CARGO_BIN_EXE_lamp-agent"));
        let folder = tempfile::tempdir().expect("a folder");
        let stripped = folder.path().join("lamp-agent");
        let done = Command::new("strip").arg("-o").arg(&stripped).arg(&built).status().is_ok_and(|status| status.success());
        let bytes = std::fs::read(if done { &stripped } else { &built }).expect("it was built with the test");
        let sum = sum(&bytes);
        (bytes, sum)
    })
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A job whose directory is a bucket of the false EC2.
pub struct Job {
    pub ec2: Ec2,
    bucket: String,
    /// What a machine fetches as the agent.
    sum: String,
}

impl Job {
    /// `None`, with a word, where there are no machines. `change` makes the spec of the test out of a plain one.
    pub fn new(change: impl FnOnce(&mut Value)) -> Option<Self> {
        let ec2 = Ec2::start()?;
        let bucket = ec2.bucket("lamps");
        ec2.profile("lamplighter-box");
        let job = Job { ec2, bucket, sum: String::new() };
        let mut spec = record("spec.json");
        (spec["job"], spec["code"]) = (json!(JOB), Value::Null);
        let settings = &mut spec["spec"];
        (settings["command"], settings["setup"]) = (json!({ "args": ["/bin/sh", "-c", TRAINER] }), Value::Null);
        settings["checkpoint"] = json!({ "path": "ckpt", "interval": "10m", "signal": "SIGUSR1", "grace": "5s" });
        (settings["outputs"], settings["env"]) = (json!([]), json!({}));
        (settings["machine"]["gpus"], settings["machine"]["cuda"]) = (json!("none"), Value::Null);
        settings["limits"] = json!({ "max_runtime": "30m", "budget": null, "deadline": null });
        settings["on"] = json!({ "success": "terminate", "failure": "terminate", "idle": "terminate", "stall": "terminate" });
        settings["retries"] = json!({ "max": 0, "exit_codes": [], "delay": "1s" });
        change(settings);
        job.put("spec.json", spec.to_string().as_bytes());
        let (bytes, _) = agent();
        Some(job.with_agent(bytes))
    }

    /// Machines fetch this instead of the agent.
    pub fn with_agent(mut self, bytes: &[u8]) -> Self {
        assert_eq!(self.ec2.s3("PUT", &format!("/{}/agents/lamp-agent", self.bucket), bytes).0, 200);
        self.sum = sum(bytes);
        self
    }

    fn key(&self, name: &str) -> String {
        format!("/{}/root/jobs/{JOB}/{name}", self.bucket)
    }

    fn put(&self, name: &str, body: &[u8]) {
        assert_eq!(self.ec2.s3("PUT", &self.key(name), body).0, 200, "{name}");
    }

    /// A record of the job directory, if it is there.
    pub fn record(&self, name: &str) -> Option<Value> {
        let (status, body) = self.ec2.s3("GET", &self.key(name), b"");
        (status == 200).then(|| serde_json::from_slice(&body).expect("JSON"))
    }

    pub fn text(&self, name: &str) -> Option<String> {
        let (status, body) = self.ec2.s3("GET", &self.key(name), b"");
        (status == 200).then(|| String::from_utf8(body).expect("text"))
    }

    /// The names below a folder of the job directory.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let prefix = format!("root/jobs/{JOB}/{folder}/");
        let (_, body) = self.ec2.s3("GET", &format!("/{}?list-type=2&prefix={prefix}", self.bucket), b"");
        let listed = Node::parse(&String::from_utf8(body).expect("XML"));
        let mut names: Vec<String> = listed.all("Key").into_iter().map(|key| key.text.trim_start_matches(&prefix).to_owned()).collect();
        names.sort();
        names
    }

    pub fn events(&self, attempt: u32) -> Vec<Value> {
        let folder = format!("attempts/{attempt:04}/events");
        let files = self.names(&folder).into_iter().filter(|name| name.ends_with(".jsonl"));
        let texts = files.filter_map(|name| self.text(&format!("{folder}/{name}"))).collect::<String>();
        texts.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    pub fn until_event(&self, attempt: u32, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        patiently(what, || self.events(attempt).into_iter().find(&is_it))
    }

    pub fn outcome(&self, attempt: u32) -> Option<Value> {
        self.record(&format!("attempts/{attempt:04}/outcome.json"))
    }

    /// The newest checkpoint that is complete.
    pub fn checkpoint(&self) -> Option<u64> {
        self.names("checkpoints").iter().filter_map(|name| name.strip_suffix("/manifest.json")?.parse().ok()).max()
    }

    pub fn user_data(&self) -> String {
        let signed = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=x%2F20260101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20260101T000000Z\
                      &X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=0";
        let (root, url) = (format!("s3://{}/root", self.bucket), format!("{API}/{}/agents/lamp-agent?{signed}", self.bucket));
        let bootstrap =
            Bootstrap { job_root: &root, region: "us-east-1", agent_url: &url, agent_sha256: &self.sum, box_endpoint_url: Some(API), boot: BOOT };
        bootstrap.user_data().expect("short enough")
    }

    /// Launches an attempt on spot; gives the instance.
    pub fn launch(&self, attempt: u32, resume_from: Option<u64>) -> String {
        self.launch_with(attempt, resume_from, &self.user_data())
    }

    pub fn launch_with(&self, attempt: u32, resume_from: Option<u64>, user_data: &str) -> String {
        let mut plan = record("plan.json");
        (plan["job"], plan["attempt"], plan["resume_from"]) = (json!(JOB), json!(attempt), json!(resume_from));
        plan["created"] = json!(jiff::Timestamp::now().to_string());
        plan["kill_at"] = json!((jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string());
        self.put(&format!("attempts/{attempt:04}/plan.json"), plan.to_string().as_bytes());
        let (data, number) = (encode_base64(user_data.as_bytes()), format!("{attempt:04}"));
        let tags = [("owner", "me"), ("job", JOB), ("attempt", &number), ("lease-s", "1800")];
        let mut params: Vec<(String, &str)> = vec![("TagSpecification.1.ResourceType".into(), "instance")];
        for (n, (_, value)) in tags.iter().enumerate() {
            params.push((format!("TagSpecification.1.Tag.{}.Value", n + 1), value));
        }
        let keys = tags.map(|(key, _)| format!("lamplighter:{key}"));
        params.extend(keys.iter().enumerate().map(|(n, key)| (format!("TagSpecification.1.Tag.{}.Key", n + 1), key.as_str())));
        let fixed = [
            ("ImageId", "ami-0d15ea5e000000022"),
            ("InstanceType", "g5.xlarge"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("UserData", &data),
            ("MetadataOptions.HttpTokens", "required"),
            ("MetadataOptions.InstanceMetadataTags", "enabled"),
            ("InstanceInitiatedShutdownBehavior", "terminate"),
            ("IamInstanceProfile.Name", "lamplighter-box"),
            ("InstanceMarketOptions.MarketType", "spot"),
        ];
        params.extend(fixed.map(|(key, value)| (key.to_owned(), value)));
        let params: Vec<(&str, &str)> = params.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        self.ec2.ask("RunInstances", &params).expect("launched").all("instanceId")[0].text.clone()
    }

    /// Tells the trainer to end so.
    pub fn go(&self, id: &str, code: u8) {
        std::fs::write(self.ec2.file(id, "root/go"), code.to_string()).expect("the disk is there");
    }

    /// `ATTEMPT STEP` of each start of the trainer on this machine.
    pub fn begins(&self, id: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.ec2.file(id, "root/begins")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How far the trainer on this machine is.
    pub fn step(&self, id: &str) -> Option<u32> {
        std::fs::read_to_string(self.ec2.file(id, "root/step")).ok()?.trim().parse().ok()
    }

    pub fn until_it_works(&self, attempt: u32) {
        self.until_event(attempt, "the workload is started", |event| event["kind"] == "workload_started");
    }
}

fn record(name: &str) -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1").join(name);
    serde_json::from_slice(&std::fs::read(path).expect("there")).expect("JSON")
}
