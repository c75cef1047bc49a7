//! `lamp run` against EC2's API, as the real binary: what is asked, in how many round trips, and what stands in the call.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bench::{Bench, Finish as _, kill};
use super::false_ec2::{Call, FalseEc2, Options, rounds};
use super::jobs::assert_code;

/// A job for a GPU on the spot market.
const JOB: &str = "name = 'far'\ncommand = ['true']\n[machine]\ncloud = 'aws'\ngpus = 'A10G:1'\nmarket = 'spot'\n\
                   [checkpoint]\npath = 'saved'\n[limits]\nmax_runtime = '1h'\n";

/// Everything that a machine needs of an account.
fn account() -> Option<(FalseEc2, BTreeMap<String, String>)> {
    let ec2 = FalseEc2::start(Options::default())?;
    ec2.profile("lamplighter-box");
    ec2.ask("CreateSecurityGroup", &[("GroupName", "lamplighter"), ("GroupDescription", "no way in")]).expect("a group");
    let mut env: BTreeMap<String, String> = ec2.env().into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    env.insert("LAMP_JOB_ROOT".into(), format!("s3://{}/root", ec2.bucket("jobs")));
    Some((ec2, env))
}

fn lamp(bench: &Bench, env: &BTreeMap<String, String>, words: &[&str]) -> std::process::Output {
    bench.lamp(words).envs(env).finish()
}

/// From the first call to the launch.
fn before_the_launch(calls: &[Call]) -> Vec<Call> {
    calls.iter().take_while(|call| call.action != "RunInstances").cloned().collect()
}

#[test]
fn a_warm_launch_waits_for_four_round_trips() {
    let Some((ec2, env)) = account() else { return };
    let bench = Bench::new();
    bench.write("job.toml", JOB);
    let first = lamp(&bench, &env, &["run", "--detach", "job.toml"]);
    assert_code(&first, 0);
    // Whoever drives the first job asks too.
    bench.processes().into_iter().for_each(|pid| kill(pid, "KILL"));
    // So long that what is asked at once overlaps on a busy computer too.
    ec2.latency(Duration::from_millis(800));
    ec2.take_calls();
    let second = lamp(&bench, &env, &["run", "--detach", "job.toml"]);
    assert_code(&second, 0);
    let before = before_the_launch(&ec2.take_calls());
    let told: Vec<String> = before.iter().map(|call| format!("{:.3} {} {}", call.began.as_secs_f64(), call.service, call.action)).collect();
    assert!(rounds(&before) <= 4, "{} in turn:\n{}", rounds(&before), told.join("\n"));
    // Nobody stands behind these machines: what drives the jobs would wait for them.
    bench.processes().into_iter().for_each(|pid| kill(pid, "KILL"));
}
