//! `lamp doctor --prove` against a false AWS, and who is refused without it. No machine stands
//! behind an instance: its fate is the test's. tests/e2e/ec2/proves.rs has real machines.

use std::process::{Child, Command, Stdio};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::place::{Place, end, signal, wait_until};
use crate::sweep::unanswered_root::{ALL_TRIES, lose_the_spec};
use lamp_test_support::ec2::{FalseEc2, Fault, Options, Seen, State, base64};
use lamp_test_support::imds::FalseImds;

/// Longer than any test is slow: who waits for it has failed.
pub(crate) const NEVER: &str = "30m";

pub(crate) struct Account {
    /// Dropped first: what drives jobs there needs the cloud to be told no.
    pub(crate) place: Place,
    pub(crate) ec2: FalseEc2,
}

impl Account {
    /// As `lamp init aws` makes it, and a job for it.
    pub(crate) fn new() -> Option<Self> {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Option<Self> {
        let ec2 = FalseEc2::start(options)?;
        let account = Account { place: Place::new("true"), ec2 };
        account.place.0.write("w/job.sh", "true\n");
        account.place.0.write(
            "agent-stands-for-one",
            std::fs::read(env!("CARGO_BIN_EXE_lamp-agent")).expect("it was built with the tests"),
        );
        account.place.0.write(
            "job.toml",
            "name = 'alone'\nworkdir = 'w'\ncommand = ['sh', 'job.sh']\n[machine]\ncloud = 'aws'\ngpus = 'none'\ninstance_types = ['m5.large']\n\
             [limits]\nmax_runtime = '1h'\n",
        );
        let made = account.lamp(&["init", "aws", "--yes"]);
        assert_eq!(made.0, 0, "{made:?}");
        Some(account)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.place.0.command(words);
        command
            .envs(self.ec2.env())
            .env("LAMP_AGENT_BINARY", self.place.0.path().join("agent-stands-for-one"));
        command
    }

    pub(crate) fn lamp(&self, words: &[&str]) -> (i32, String, String) {
        let ended = self.place.0.end(&mut self.command(words));
        (ended.code, ended.out, ended.err)
    }

    pub(crate) fn json(&self, words: &[&str]) -> (i32, Value) {
        let (code, out, err) = self.lamp(&[words, &["-o", "json"]].concat());
        (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{err}")))
    }

    pub(crate) fn prove(&self, lease: &str, within: &str) -> Child {
        let words =
            ["doctor", "--prove", "--yes", "--lease", lease, "--within", within, "-o", "json"];
        self.command(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("lamp was built for this test")
    }

    /// The machines of trials, once there are so many.
    pub(crate) fn machines(&self, number: usize) -> Vec<Seen> {
        wait_until("the machines are launched", || {
            Some(self.ec2.instances()).filter(|seen| seen.len() == number)
        })
    }

    /// The agent of a machine, as its first boot starts it.
    pub(crate) fn boot(&self, seen: &Seen, imds: &FalseImds) -> Child {
        imds.is(&seen.id, &seen.kind, &seen.zone, seen.launched);
        imds.tagged(&seen.tags);
        imds.says("meta-data/ami-launch-index", seen.item.at("amiLaunchIndex"));
        let folder = self.place.0.path().join(&seen.id);
        Command::new(env!("CARGO_BIN_EXE_lamp-agent"))
            .args(["boot", "--then", "exit"])
            .envs(self.ec2.env())
            .env("HOME", self.place.0.path().join("home"))
            .env("XDG_STATE_HOME", folder.join("state"))
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .env("LAMP_JOB_ROOT", format!("s3://{}", self.bucket()))
            .env("LAMP_JOB_ROOT_REGION", "us-east-1")
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.listen())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the agent was built for this test")
    }

    fn bucket(&self) -> String {
        format!("lamplighter-{}-us-east-1", self.ec2.account())
    }

    pub(crate) fn object(&self, key: &str) -> Option<Value> {
        let bucket = self.bucket();
        let (status, body) = self.ec2.s3("GET", &format!("/{bucket}/{key}"), b"");
        (status == 200).then(|| serde_json::from_slice(&body).expect("a record"))
    }

    /// Whether an object below `prefix` has this file name.
    pub(crate) fn has_object(&self, prefix: &str, name: &str) -> bool {
        let bucket = self.bucket();
        let list = format!("/{bucket}?list-type=2&prefix={prefix}");
        let (_, body) = self.ec2.s3("GET", &list, b"");
        String::from_utf8_lossy(&body).contains(&format!("/{name}</Key>"))
    }

    pub(crate) fn put(&self, key: &str, value: &Value) {
        let bucket = self.bucket();
        assert_eq!(
            self.ec2.s3("PUT", &format!("/{bucket}/{key}"), value.to_string().as_bytes()).0,
            200
        );
    }

    /// Its launch is refused for good, and something was saved; launches go on being refused.
    pub(crate) fn ended_with_a_checkpoint(&self, file: &str) -> String {
        self.ec2.fault(
            Fault::code("RunInstances", "UnauthorizedOperation").saying("you may not").always(),
        );
        assert_eq!(self.lamp(&["run", "--detach", "--unproven", file]).0, 104);
        let (_, status) = self.json(&["status"]);
        let job = status["jobs"][0]["job"].as_str().expect("a job").to_owned();
        let manifest = json!({"format": 1, "number": 1, "attempt": 1, "created": "2026-11-20T21:11:00Z", "files": [], "save_secs": 0.1, "upload_secs": 0.1});
        self.put(&format!("jobs/{job}/checkpoints/0001/manifest.json"), &manifest);
        job
    }

    pub(crate) fn proof_key(&self) -> String {
        format!("proofs/{}/us-east-1.json", self.ec2.account())
    }

    /// The record that the formats' test keeps, made of this account and so many days ago.
    pub(crate) fn proven(&self, days_ago: i64, passed: bool) {
        let text =
            std::fs::read_to_string(crate::sandbox::repository().join("tests/data/v1/proof.json"))
                .expect("it is kept");
        let mut proof: Value = serde_json::from_str(&text).expect("JSON");
        proof["at"] =
            (Timestamp::now() - SignedDuration::from_hours(24 * days_ago)).to_string().into();
        proof["account"] = self.ec2.account().into();
        proof["region"] = "us-east-1".into();
        proof["passed"] = passed.into();
        self.put(&self.proof_key(), &proof);
    }
}

/// Waits until a machine is so many seconds old, by the cloud's clock.
pub(crate) fn until_older(seen: &Seen, seconds: i64) {
    wait_until("its lease is over", || {
        (Timestamp::now() > seen.launched + SignedDuration::from_secs(seconds)).then_some(())
    });
}

pub(crate) fn document((code, out, err): (i32, Vec<u8>, String)) -> (i32, Value, String) {
    let value = serde_json::from_slice(&out).unwrap_or_else(|error| {
        panic!("{code}: {error}: {}\n{err}", String::from_utf8_lossy(&out))
    });
    (code, value, err)
}

pub(crate) fn user_data(seen: &Seen) -> String {
    String::from_utf8(base64(&seen.user_data).expect("base64")).expect("text")
}

#[test]
fn proof_passes_when_a_machine_powers_off_after_its_lease() {
    let Some(account) = Account::new() else { return };
    let refused = account.lamp(&["run", "--detach", "job.toml"]);
    assert_eq!(refused.0, 111, "{refused:?}");
    for words in [
        "has no proof",
        "nothing was started or billed",
        "`lamp doctor --prove --region us-east-1`",
        "`--unproven`",
        "$0.1",
    ] {
        assert!(refused.2.contains(words), "{words}: {}", refused.2);
    }
    assert!(account.ec2.instances().is_empty());
    let unasked = account.lamp(&["doctor", "--prove"]);
    assert_eq!(
        (
            unasked.0,
            unasked.2.contains("this buys 1 machine in us-east-1, which cost at most $0.0")
        ),
        (102, true),
        "{unasked:?}"
    );
    assert!(
        unasked.2.contains("no sweeper of yours is installed")
            && unasked.2.contains("`lamp init aws --sweeper` installs"),
        "{}",
        unasked.2
    );

    let proving = account.prove("3s", NEVER);
    let machine = account.machines(1).remove(0);
    assert_eq!(machine.kind, "t3.nano", "the cheapest that this cloud sells");
    let tags = &machine.tags;
    assert!(
        tags["lamplighter:job"].starts_with("proof-")
            && tags.contains_key("lamplighter:owner")
            && tags.contains_key("lamplighter:kill-at")
    );
    let (_, status) = account.json(&["status", &tags["lamplighter:job"]]);
    assert_eq!(status["jobs"][0]["driven_here"], true, "{status:#}");
    let script = user_data(&machine);
    assert!(
        script.contains("boot_secs='3'")
            && script.contains("lamp-deadman.timer")
            && !script.contains("curl"),
        "{script}"
    );
    until_older(&machine, 4);
    account.ec2.powered_off(&machine.id);
    let (code, proof, err) = document(end(proving));
    assert_eq!((code, &proof["passed"]), (0, &true.into()), "{proof:#}\n{err}");
    let trial = &proof["trials"][0];
    assert_eq!(
        (&trial["switch"], &trial["ended_by"], &trial["instance"]),
        (&"deadline-unit".into(), &"itself".into(), &machine.id.as_str().into())
    );
    let measured: SignedDuration =
        trial["after_lease"].as_str().expect("a span").parse().expect("a span");
    assert!(measured < SignedDuration::from_mins(5), "{proof:#}");
    let mut kept = account.object(&account.proof_key()).expect("it is recorded");
    kept["good_until"] = proof["good_until"].clone();
    assert_eq!(kept, proof);
    let (_, found) = account.json(&["doctor"]);
    let line = found["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .find(|check| check["check"] == "proof, us-east-1")
        .expect("a line")
        .clone();
    assert_eq!(line["level"], "ok", "{line}");

    let detached = account.lamp(&["run", "--detach", "job.toml"]);
    assert_eq!(detached.0, 0, "{detached:?}");
}

#[test]
fn proof_fails_when_lamp_has_to_end_the_machine() {
    let Some(account) = Account::new() else { return };
    let (code, proof, err) = document(end(account.prove("1s", "2s")));
    assert_eq!(
        (code, &proof["passed"], &proof["good_until"]),
        (109, &false.into(), &Value::Null),
        "{proof:#}\n{err}"
    );
    let trial = &proof["trials"][0];
    assert_eq!(
        (&trial["ended_by"], &trial["proven"]),
        (&"prover".into(), &false.into()),
        "{proof:#}"
    );
    let machine = account.machines(1).remove(0);
    assert!(machine.state.is_gone(), "{machine:?}");
    let refused = account.lamp(&["run", "--detach", "job.toml"]);
    assert_eq!((refused.0, refused.2.contains("and it failed")), (111, true), "{refused:?}");
    // Nor is all well where somebody looks.
    let (code, found) = account.json(&["doctor"]);
    let line = found["checks"]
        .as_array()
        .expect("checks")
        .iter()
        .find(|check| check["check"] == "proof, us-east-1")
        .expect("a line")
        .clone();
    assert_eq!((code, &line["level"]), (100, &"failure".into()), "{line}");
    assert!(
        line["said"].as_str().is_some_and(|said| said.contains("has FAILED: deadline unit: ")),
        "{line}"
    );
    // Its receipt is that of a trial, and says so.
    let receipt = account.lamp(&["receipt", machine.tags["lamplighter:job"].as_str()]);
    assert!(receipt.1.contains("a trial of `lamp doctor --prove`"), "{receipt:?}");
}

/// It is a job like any other: what is left of it carries everything that a sweep needs.
#[test]
fn who_is_killed_in_the_middle_leaves_what_a_sweep_ends() {
    let Some(account) = Account::new() else { return };
    // Time to see its machine and to kill it, before it ends the machine itself; after that the
    // machine is an orphan.
    let mut proving = account.prove("1s", "20s");
    let machine = account.machines(1).remove(0);
    signal(proving.id(), "KILL");
    let _killed = proving.wait();
    assert_eq!(account.object(&account.proof_key()), None);
    wait_until("it is an orphan", || {
        let (_, found) = account.json(&["sweep", "--dry-run"]);
        (found["machines"][0]["instance"] == machine.id.as_str()
            && found["machines"][0]["verdict"] == "orphan")
            .then_some(())
    });
    let swept = account.lamp(&["sweep", "--yes"]);
    assert_eq!(swept.0, 0, "{swept:?}");
    assert!(account.ec2.instance(&machine.id).state.is_gone(), "{swept:?}");
}

#[test]
fn ctrl_c_ends_the_machine_and_proves_nothing() {
    let Some(account) = Account::new() else { return };
    let proving = account.prove(NEVER, NEVER);
    let machine = account.machines(1).remove(0);
    signal(proving.id(), "INT");
    let (code, _, err) = end(proving);
    assert_eq!((code, err.contains("nothing was proven")), (130, true), "{err}");
    assert_eq!(account.ec2.instance(&machine.id).state, State::Terminated);
    assert_eq!(account.object(&account.proof_key()), None);
}

/// A trial that may be there is nobody's to launch: its prover has left.
#[test]
fn trial_that_may_not_have_been_made_is_cancelled() {
    let Some(account) = Account::new() else { return };
    lose_the_spec(&account, ALL_TRIES);
    let (code, _, err) = end(account.prove(NEVER, NEVER));
    assert!(
        code == 103 && err.contains("nobody has answered whether job `proof-"),
        "{code}: {err}"
    );
    assert!(err.contains("it has been cancelled: nothing of it runs or bills"), "{err}");
    let (_, listed) = account.json(&["status"]);
    assert_eq!(
        (listed["jobs"].as_array().map(Vec::len), &listed["jobs"][0]["state"]),
        (Some(1), &"cancelled".into()),
        "{listed:#}\n{err}"
    );
    assert!(account.ec2.instances().is_empty());
}

/// On the second machine a sweep has the first word; its own unit comes after everything that is
/// tried, and never not at all.
#[test]
fn where_somebody_sweeps_a_second_machine_is_left_to_that_alone() {
    let Some(account) = Account::new() else { return };
    let text =
        std::fs::read_to_string(crate::sandbox::repository().join("tests/data/v1/visit.json"))
            .expect("it is kept");
    account.put(
        "sweeper/lamplighter-sweeper-alice/visit.json",
        &serde_json::from_str(&text).expect("JSON"),
    );
    let proving = account.prove("2s", NEVER);
    let machines = account.machines(2);
    let (left, armed): (Vec<&Seen>, Vec<&Seen>) =
        machines.iter().partition(|seen| !user_data(seen).contains("boot_secs='2'"));
    let (left, armed) = (left[0], armed[0]);
    let script = user_data(left);
    assert!(
        script.contains("boot_secs='2402'") && script.contains("enable --now lamp-deadman.timer"),
        "30m, its lease and ten minutes: {script}"
    );
    until_older(armed, 3);
    account.ec2.powered_off(&armed.id);
    // A busy machine may still call it booting.
    wait_until("a sweep that ends it", || {
        let swept = account.lamp(&["sweep", "--yes"]);
        assert_eq!(swept.0, 0, "{swept:?}");
        swept.2.contains(&left.id).then_some(())
    });
    let (code, proof, err) = document(end(proving));
    assert_eq!((code, &proof["passed"]), (0, &true.into()), "{proof:#}\n{err}");
    let ends: Vec<_> = proof["trials"]
        .as_array()
        .expect("trials")
        .iter()
        .map(|trial| (&trial["switch"], &trial["ended_by"]))
        .collect();
    assert_eq!(
        ends,
        [(&"deadline-unit".into(), &"itself".into()), (&"sweep".into(), &"sweep".into())],
        "{proof:#}"
    );
    let said = proof["trials"][1]["said"].as_str().expect("words");
    assert!(said.contains("while that workstation is off"), "this one was by hand: {said}");
}

#[test]
fn detach_with_a_proof_31_days_old_needs_unproven() {
    let Some(account) = Account::new() else { return };
    account.proven(31, true);
    let old = account.lamp(&["run", "--detach", "job.toml"]);
    assert_eq!((old.0, old.2.contains("older than 30 days")), (111, true), "{old:?}");
    account.place.0.write(
        "jobs/night.toml",
        account.place.0.read("job.toml").replace("'w'", "'../w'").replace("'alone'", "'night'"),
    );
    let applied = account.lamp(&["apply", "jobs"]);
    assert_eq!((applied.0, applied.2.contains("older than 30 days")), (111, true), "{applied:?}");
    account.proven(29, false);
    assert_eq!(account.lamp(&["run", "--detach", "job.toml"]).0, 111, "it has failed");
    account.proven(-9, true);
    let ahead = account.lamp(&["run", "--detach", "job.toml"]);
    assert_eq!((ahead.0, ahead.2.contains("in the future")), (111, true), "{ahead:?}");
    // Who only looks is told as well, and what is shown is shown.
    let (looked, shown) = (
        account.lamp(&["run", "--dry-run", "--detach", "job.toml"]),
        account.lamp(&["run", "--dry-run", "job.toml"]),
    );
    assert!(
        looked.0 == shown.0
            && looked.2.contains("`--detach` would be refused: nothing here drives this machine"),
        "{looked:?}"
    );
    assert!(!shown.2.contains("would be refused"), "{shown:?}");
    assert!(account.ec2.instances().is_empty());
    account.proven(29, true);
    assert_eq!(account.lamp(&["apply", "jobs"]).0, 0);
    account.proven(31, true);
    let unproven = account.lamp(&["run", "--detach", "--unproven", "job.toml"]);
    assert_eq!(unproven.0, 0, "{unproven:?}");
    let alone =
        |seen: &Seen| seen.tags.get("lamplighter:job").is_some_and(|job| job.starts_with("alone-"));
    assert!(account.ec2.instances().iter().any(alone), "{unproven:?}");
    // This workstation bills nobody.
    let local = account.lamp(&["run", "--detach", "--cloud", "local", "--", "true"]);
    assert_eq!(local.0, 0, "{local:?}");
}

/// A kernel that hangs cannot power itself off: such a proof lets the job go, and says what it did
/// not try.
#[test]
fn detach_after_a_proof_without_a_sweeper_warns_once() {
    let Some(account) = Account::new() else { return };
    account.proven(1, true);
    let told = |ended: &(i32, String, String)| {
        (ended.0, ended.2.matches("not tried: whether anything ends a machine").count())
    };
    let both = account.lamp(&["run", "--detach", "job.toml"]);
    assert_eq!(told(&both), (0, 0), "both switches were tried: {both:?}");
    let mut proof = account.object(&account.proof_key()).expect("it is there");
    let tried_as = |proof: &Value, by: &str| {
        let mut proof = proof.clone();
        proof["trials"][1]["said"] = format!("the sweep of {by} ended it").into();
        account.put(&account.proof_key(), &proof);
        let ended = account.lamp(&["run", "--detach", "job.toml"]);
        (
            ended.0,
            ended
                .2
                .matches("while your workstation is off; no sweeper of yours in the cloud swept")
                .count(),
        )
    };
    // A daemon's, and that of somebody who shares the job root.
    assert_eq!(
        (tried_as(&proof, "alice@laptop"), tried_as(&proof, "lamplighter-sweeper-bob")),
        ((0, 1), (0, 1))
    );
    proof["trials"].as_array_mut().expect("trials").truncate(1);
    account.put(&account.proof_key(), &proof);
    let one = account.lamp(&["run", "--detach", "job.toml"]);
    assert_eq!(told(&one), (0, 1), "{one:?}");
    assert!(
        one.2.contains("of the proof of us-east-1") && one.2.contains("`lamp init aws --sweeper`"),
        "{one:?}"
    );
}

/// The first machine is planned in one of them, and a refusal or an interruption launches in the
/// other.
#[test]
fn detach_of_a_job_of_two_regions_needs_a_proof_of_both() {
    let Some(account) = Account::new() else { return };
    let both = account
        .place
        .0
        .read("job.toml")
        .replace("[machine]\n", "[machine]\nregions = ['us-east-1', 'us-east-2']\n");
    account.place.0.write("both.toml", both);
    account.proven(1, true);
    let named = |ended: &(i32, String, String)| {
        (
            ended.0,
            ended.2.contains("us-east-2 has no proof"),
            ended.2.contains("us-east-1 has no proof"),
        )
    };
    let refused = account.lamp(&["run", "--detach", "both.toml"]);
    assert_eq!(named(&refused), (111, true, false), "{refused:?}");
    assert!(refused.2.contains("`lamp doctor --prove --region us-east-2` shows it"), "{refused:?}");
    let (_, jobs) = account.json(&["status"]);
    assert_eq!(
        (jobs["jobs"].as_array().map(Vec::len), account.ec2.instances().len()),
        (Some(0), 0),
        "{jobs}"
    );
    // From a checkpoint it may be bought anywhere, too.
    let job = account.ended_with_a_checkpoint("both.toml");
    let refused = account.lamp(&["start", "--detach", &job]);
    assert_eq!(named(&refused), (111, true, false), "{refused:?}");
    let (_, jobs) = account.json(&["status"]);
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
}

#[test]
fn nothing_is_bought_without_a_yes() {
    let Some(account) = Account::new() else { return };
    let (code, _, err) = account.lamp(&["doctor", "--prove", "-o", "json"]);
    assert_eq!((code, err.contains("this call cannot ask")), (102, true), "{err}");
    assert!(account.ec2.instances().is_empty());
    let (_, jobs) = account.json(&["status"]);
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(0), "{jobs}");
}
