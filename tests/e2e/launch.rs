//! `lamp run` against EC2's API, as the real binary: what is asked, in how many round trips, and
//! what stands in the call.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::bench::{Bench, Finish as _, Running, kill, wait_until};
use crate::jobs::assert_code;
use lamp_test_support::ec2::{Call, FalseEc2, Options, rounds};

/// A job for a GPU on the spot market.
const JOB: &str = "name = 'far'\ncommand = ['true']\n[machine]\ncloud = 'aws'\ngpus = 'A10G:1'\nmarket = 'spot'\n\
                   [checkpoint]\npath = 'saved'\n[limits]\nmax_runtime = '1h'\n";

/// Everything that a machine needs of an account.
fn account() -> Option<(FalseEc2, BTreeMap<String, String>)> {
    let ec2 = FalseEc2::start(Options::default())?;
    ec2.profile("lamplighter-box");
    ec2.ask(
        "CreateSecurityGroup",
        &[("GroupName", "lamplighter"), ("GroupDescription", "no way in")],
    )
    .expect("a group");
    let mut env: BTreeMap<String, String> =
        ec2.env().into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    env.insert("LAMP_JOB_ROOT".into(), format!("s3://{}/root", ec2.bucket("jobs")));
    Some((ec2, env))
}

fn lamp(bench: &Bench, env: &BTreeMap<String, String>, words: &[&str]) -> std::process::Output {
    bench.lamp(words).envs(env).finish()
}

/// A job that nobody drives: whoever does asks too. Gives its name.
fn leave_a_job(bench: &Bench, env: &BTreeMap<String, String>) -> String {
    let done = lamp(bench, env, &["run", "--detach", "--unproven", "job.toml"]);
    assert_code(&done, 0);
    bench.processes().into_iter().for_each(|pid| kill(pid, "KILL"));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// From the first call to the launch.
fn before_the_launch(calls: &[Call]) -> Vec<Call> {
    calls.iter().take_while(|call| call.action != "RunInstances").cloned().collect()
}

/// Somebody has shown lately that machines end by themselves, as `lamp doctor --prove` keeps it.
fn prove(ec2: &FalseEc2, env: &BTreeMap<String, String>) {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/v1/proof.json");
    let mut proof: serde_json::Value =
        serde_json::from_slice(&std::fs::read(kept).expect("it is kept")).expect("JSON");
    (proof["at"], proof["region"]) =
        (jiff::Timestamp::now().to_string().into(), "us-east-1".into());
    (proof["account"], proof["passed"]) = (ec2.account().into(), true.into());
    let root = env["LAMP_JOB_ROOT"].trim_start_matches("s3://");
    let put = ec2.s3(
        "PUT",
        &format!("/{root}/proofs/{}/us-east-1.json", ec2.account()),
        proof.to_string().as_bytes(),
    );
    assert_eq!(put.0, 200);
}

/// Whoever leaves the machine to a proof, whoever does without, and whoever stays with it.
#[test]
fn warm_launch_waits_for_four_round_trips() {
    for words in [&["--detach", "--unproven"][..], &["--detach"], &[]] {
        let Some((ec2, env)) = account() else { return };
        let bench = Bench::new();
        bench.write("job.toml", JOB);
        leave_a_job(&bench, &env);
        prove(&ec2, &env);
        // So long that what is asked at once overlaps on a busy computer too.
        ec2.latency(Duration::from_millis(800));
        // What was under way when its process was killed is answered before this is, and counts no
        // more.
        ec2.ask("DescribeRegions", &[]).expect("an answer");
        let begun = ec2.take_calls().iter().map(|call| call.began).max();
        let second =
            Running::start(bench.lamp(&[&["run"], words, &["job.toml"]].concat()).envs(&env));
        wait_until("the launch is asked for", || {
            ec2.calls().iter().any(|call| call.action == "RunInstances").then_some(())
        });
        let calls: Vec<Call> =
            ec2.take_calls().into_iter().filter(|call| Some(call.began) > begun).collect();
        let before = before_the_launch(&calls);
        let told: Vec<String> = before
            .iter()
            .map(|call| format!("{:.3} {} {}", call.began.as_secs_f64(), call.service, call.action))
            .collect();
        assert!(
            rounds(&before) <= 4,
            "{words:?}: {} in turn:\n{}",
            rounds(&before),
            told.join("\n")
        );
        let proven = told.iter().any(|call| call.contains("/proofs/"));
        assert_eq!(proven, words == ["--detach"], "{words:?}:\n{}", told.join("\n"));
        drop(second);
        // Nobody stands behind these machines: what drives the jobs would wait for them.
        bench.processes().into_iter().for_each(|pid| kill(pid, "KILL"));
    }
}

#[test]
fn launch_with_a_save_longer_than_the_notice_needs_late_save() {
    let Some((ec2, env)) = account() else { return };
    let bench = Bench::new();
    bench.write("job.toml", JOB);
    let job = leave_a_job(&bench, &env);
    let manifest = r#"{"format":1,"number":1,"attempt":1,"created":"2026-01-01T00:00:00Z","files":[],"save_secs":40.0,"upload_secs":90.0}"#;
    let root = env["LAMP_JOB_ROOT"].trim_start_matches("s3://");
    let put = ec2.s3(
        "PUT",
        &format!("/{root}/jobs/{job}/checkpoints/0001/manifest.json"),
        manifest.as_bytes(),
    );
    assert_eq!(put.0, 200);
    ec2.take_calls();
    let refused = lamp(&bench, &env, &["run", "--detach", "--unproven", "job.toml"]);
    assert_code(&refused, 102);
    let said = String::from_utf8_lossy(&refused.stderr).replace('\n', " ");
    for word in [
        job.as_str(),
        "longer than the 2m of notice",
        "nothing was started",
        "--late-save",
        "--market on-demand",
    ] {
        assert!(said.contains(word), "no `{word}`:\n{said}");
    }
    assert!(
        ec2.take_calls().iter().all(|call| call.action != "RunInstances"),
        "nothing may be launched"
    );
    assert_code(
        &lamp(&bench, &env, &["run", "--detach", "--unproven", "--late-save", "job.toml"]),
        0,
    );
    bench.processes().into_iter().for_each(|pid| kill(pid, "KILL"));
}
