//! A job from `lamp run` to its receipt, on machines of the false EC2: every program is the real
//! one.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::desk::{Desk, JOB};
use super::machines::{Ec2, patiently, took};
use crate::bench::{Finish as _, Running};
use crate::jobs::text;
use lamp_test_support::ec2::{Fault, Seen, State};

type Journey = Desk<Ec2>;

impl Journey {
    fn start() -> Option<Self> {
        Ec2::start().map(Desk::new)
    }
}

/// How much more than the bill a receipt with `<=` may say: five seconds between two looks at the
/// machine, and what a busy computer needs to start a daemon that looks (16 s were seen). That such
/// a bound is never later than what the machine was allowed is the policy's own test.
const SEEN_LATER: f64 = 60.0;

/// From what a person asks for, or the end of the work, to a machine that bills no more.
const ENDS: Duration = Duration::from_secs(120);

/// The receipt equals the bill of EC2 to the second if EC2 tells the end. Otherwise it is at least
/// the bill, and at most the cost until the next look.
pub fn bill_agrees(journey: &Journey, receipt: &Value, instances: &[&Seen]) {
    for seen in instances {
        let ledger = journey.ec2.ledger(&seen.id).billed_seconds() as f64;
        let attempt = receipt["attempts"]
            .as_array()
            .expect("attempts")
            .iter()
            .find(|attempt| attempt["instance"] == seen.id.as_str());
        let attempt =
            attempt.unwrap_or_else(|| panic!("{} is on no receipt: {receipt:#}", seen.id));
        let (billed, estimated) = (
            attempt["billed_seconds"].as_f64().expect("seconds"),
            attempt["billed_estimated"] == true,
        );
        let more = if estimated { SEEN_LATER } else { 2.0 };
        assert!(
            billed >= ledger - 2.0 && billed <= ledger + more,
            "{billed} on the receipt, {ledger} on the ledger: {receipt:#}"
        );
    }
}

#[test]
fn a_job_runs_on_spot_and_its_receipt_is_ec2s_own() {
    let Some(journey) = Journey::start() else { return };
    // The answer of the launch is lost: there is one machine all the same.
    journey.ec2.fault(Fault::lost("RunInstances"));
    let mut run = Running::start(&mut journey.lamp(&["run", "job.toml"]));
    let seen = journey.launched(&[]);
    assert!(seen.spot && seen.kind == "m5.large" && seen.profile == "lamplighter-box", "{seen:?}");
    for key in ["owner", "job", "attempt", "lease-s", "kill-at"] {
        assert!(seen.tags.contains_key(&format!("lamplighter:{key}")), "no {key}: {:?}", seen.tags);
    }
    assert_eq!(seen.item.at("metadataOptions/httpTokens"), "required");
    assert_eq!(journey.begins(&seen.id), "1 0");
    journey.go(&seen.id);
    assert!(run.wait().success());
    assert_eq!(journey.ec2.instances().len(), 1, "never a second one");
    assert_eq!(journey.ec2.instance(&seen.id).state, State::Terminated);
    let receipt = journey.receipt(&journey.jobs()[0]);
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    // What it has made is at home, whoever is dark by then.
    let model = journey.bench.find("lamp-outputs", "model");
    assert!(
        model
            .iter()
            .any(|model| std::fs::read_to_string(model)
                .is_ok_and(|text| text.starts_with("trained "))),
        "{model:?}"
    );
    bill_agrees(&journey, &receipt, &[&seen]);
    // Its disk went with it, and nothing else of ours is left that costs.
    assert_eq!(journey.ec2.ask("DescribeVolumes", &[]).expect("told").all("volumeId").len(), 0);
}

#[test]
fn interruption_moves_the_job_to_another_machine() {
    let Some(journey) = Journey::start() else { return };
    // The cheapest zone has nothing.
    journey.ec2.fault(
        Fault::code("RunInstances", "InsufficientInstanceCapacity")
            .when("zone", "us-east-1b")
            .always(),
    );
    let job = journey.submit();
    let first = journey.launched(&[]);
    journey.begins(&first.id);
    patiently("it has done some steps", || (journey.step(&first.id) > 5).then_some(()));
    journey.ec2.interrupt(&first.id, Duration::from_secs(15));
    journey.ec2.until(&first.id, State::Terminated);
    let second = journey.launched(&[&first.id]);
    let begun = journey.begins(&second.id);
    let step: u32 = begun
        .rsplit(' ')
        .next()
        .and_then(|step| step.parse().ok())
        .unwrap_or_else(|| panic!("{begun}"));
    assert!(step > 0, "it goes on where it was");
    journey.go(&second.id);
    let receipt = journey.receipt(&job);
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    let ends: Vec<&str> = receipt["attempts"]
        .as_array()
        .expect("attempts")
        .iter()
        .filter_map(|attempt| attempt["ended_because"].as_str())
        .collect();
    assert!(
        ends.ends_with(&["interrupted", "succeeded"]) && ends[0] == "launch_failed",
        "{ends:?}"
    );
    assert!(journey.ec2.ledger(&first.id).free, "EC2 took it back in its first hour");
    let usd = |attempt: usize| receipt["attempts"][attempt]["usd"].as_f64().expect("money");
    assert!(
        usd(ends.len() - 2) < usd(ends.len() - 1) / 2.0,
        "but for its disk and its address: {receipt:#}"
    );
    let refused = journey
        .ec2
        .calls_of("RunInstances")
        .iter()
        .filter(|call| call.code == "InsufficientInstanceCapacity")
        .count();
    // Each of the two programs that drive it, `run` and its driver, may find out for itself.
    assert!((1..=2).contains(&refused), "a zone without capacity is remembered: {refused} calls");
    assert!(first.zone != "us-east-1b" && second.zone != "us-east-1b");
    bill_agrees(&journey, &receipt, &[&first, &second]);
}

/// S3 of one region does not answer for a bucket of another.
#[test]
fn machine_in_another_region_than_its_bucket_runs_its_job() {
    let Some(journey) = Journey::start() else { return };
    let group = [("GroupName", "lamplighter"), ("GroupDescription", "no way in")];
    journey.ec2.ask_in("us-east-2", "CreateSecurityGroup", &group).expect("a group");
    journey.bench.write(
        "far.toml",
        &JOB.replace("market = 'spot'", "market = 'on-demand'\nregions = ['us-east-2']"),
    );
    let job = journey.submit_file("far.toml");
    let seen = journey.launched(&[]);
    assert!(seen.zone.starts_with("us-east-2"), "{seen:?}");
    assert_eq!(journey.begins(&seen.id), "1 0");
    journey.go(&seen.id);
    let receipt = journey.receipt(&job);
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    bill_agrees(&journey, &receipt, &[&seen]);
}

#[test]
fn machine_ends_its_job_unwatched_and_is_settled_later() {
    let Some(journey) = Journey::start() else { return };
    let job = journey.submit();
    let seen = journey.launched(&[]);
    journey.begins(&seen.id);
    journey.dies();
    journey.go(&seen.id);
    let done = Instant::now();
    let ended = journey.ec2.until(&seen.id, State::Terminated);
    took("end of the work, with nobody watching, to terminated", done, ENDS);
    assert_eq!(ended.reason, "Client.InstanceInitiatedShutdown");
    let mut daemon = Running::start(&mut journey.lamp(&["daemon", "--job", &job, "--until-done"]));
    let receipt = journey.receipt(&job);
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    assert!(daemon.wait().success());
    bill_agrees(&journey, &receipt, &[&seen]);
}

/// As docs/aws.md tells it: from an account with nothing in it to the first receipt, and back.
#[test]
fn from_a_new_account_to_a_receipt_and_back() {
    let Some(journey) = Ec2::start().map(Desk::in_a_new_account) else { return };
    let before = journey.lamp(&["plan", "job.toml"]).finish();
    assert_eq!(before.status.code(), Some(102), "{}", text(&before.stderr));
    assert!(text(&before.stderr).contains("lamp init aws"), "{}", text(&before.stderr));
    journey.must(&["init", "aws", "--yes"]);
    let prices: Value = serde_json::from_slice(
        &journey.must(&["prices", "--type", "m5.large", "-o", "json"]).stdout,
    )
    .expect("JSON");
    assert!(prices.to_string().contains("m5.large"), "{prices:#}");
    let config = std::fs::read_to_string(journey.bench.file("config.toml")).expect("there");
    assert!(
        config.contains("job_root = \"s3://lamplighter-") && config.contains("box_endpoint_url"),
        "{config}"
    );
    let plan = text(&journey.must(&["plan", "job.toml"]).stdout);
    assert!(plan.contains("m5.large"), "{plan}");

    let doctor = journey.lamp(&["doctor", "-o", "json"]).finish();
    let checks: Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    let failed: Vec<&Value> = checks["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .filter(|check| check["level"] == "failure")
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");

    let mut run = Running::start(&mut journey.lamp(&["run", "job.toml"]));
    let seen = journey.launched(&[]);
    journey.begins(&seen.id);
    journey.go(&seen.id);
    assert!(run.wait().success());
    let job = &journey.jobs()[0];
    let receipt = journey.receipt(job);
    assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    bill_agrees(&journey, &receipt, &[&seen]);
    let shown = text(&journey.must(&["receipt", job]).stdout);
    // EC2 does not say when it ended: who looked in the very second knows all the same.
    let at_most = receipt["attempts"][0]["billed_estimated"] == true;
    assert!(shown.contains("succeeded") && shown.contains("<= ") == at_most, "{shown}");
    journey.must(&["sweep"]);
    assert_eq!(journey.ec2.instances().len(), 1);

    journey.must(&["uninit", "aws", "--yes"]);
    let role = journey.ec2.ask_query(
        ("iam", "2010-05-08"),
        "us-east-1",
        "GetRole",
        &[("RoleName", "lamplighter-box")],
    );
    assert_eq!(role.unwrap_err().1, "NoSuchEntity");
    assert_eq!(journey.jobs().len(), 1, "a bucket with jobs stays");
    let config = std::fs::read_to_string(journey.bench.file("config.toml")).expect("there");
    assert!(!config.contains("security_group") && config.contains("box_endpoint_url"), "{config}");
}
