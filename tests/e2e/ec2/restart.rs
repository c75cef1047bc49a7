//! `lamp start` on EC2: the disk is kept, and the machine that boots from it again is real.

use serde_json::Value;

use super::desk::{Desk, JOB};
use super::machines::{Ec2, patiently};
use crate::false_ec2::State;
use crate::jobs::assert_code;

#[test]
fn a_kept_machine_is_started_again_and_goes_on_from_its_checkpoint() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    desk.bench.write(
        "job.toml",
        &format!("env = {{ SAVE_EVERY = '5' }}\n{}[on]\nfailure = 'stop'\n", JOB.replace("market = 'spot'", "market = 'on-demand'")),
    );
    let begins = |id: &str| std::fs::read_to_string(desk.ec2.file(id, "root/begins")).unwrap_or_default();
    let old = desk.submit();
    let first = desk.launched(&[]);
    let checkpoints = || {
        let status = desk.lamp(&["status", &old, "-o", "json"]).output().ok()?;
        serde_json::from_slice::<Value>(&status.stdout).ok()?["jobs"][0]["checkpoints"].as_u64()
    };
    patiently("a checkpoint is complete", || checkpoints().filter(|count| *count > 0));
    std::fs::write(desk.ec2.file(&first.id, "root/go"), "3").expect("the disk is there");
    desk.ec2.until(&first.id, State::Stopped);
    let receipt = desk.receipt(&old);
    assert_eq!(receipt["outcome"], "failed", "{receipt:#}");
    std::fs::write(desk.ec2.file(&first.id, "root/work-was-kept"), "").expect("the disk is there");
    std::fs::remove_file(desk.ec2.file(&first.id, "root/go")).expect("the disk is there");

    let plan = desk.must(&["start", &old, "--dry-run", "-o", "json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    assert_eq!((plan["instance"].as_str(), plan["continues"].as_str()), (Some(first.id.as_str()), Some(old.as_str())), "{plan:#}");
    assert!(plan["checkpoint"]["checkpoint"]["number"].as_u64() >= Some(1) && plan["most_usd"].as_f64() > Some(0.0), "{plan:#}");
    assert_eq!(desk.ec2.instance(&first.id).state, State::Stopped, "a dry run starts nothing");
    desk.must(&["start", "--detach", "--unproven", &old]);
    let begun = patiently("the trainer begins again", || begins(&first.id).lines().nth(1).map(str::to_owned));
    let (attempt, step) = begun.split_once(' ').expect("two numbers");
    assert!(attempt == "1" && step.parse::<u32>().is_ok_and(|step| step > 0), "it goes on where it was: {begun}");
    let running = desk.ec2.instance(&first.id);
    assert_eq!(running.tags.get("lamplighter:job").map(String::as_str), plan["job"].as_str(), "it carries the new job's name");
    std::fs::write(desk.ec2.file(&first.id, "root/go"), "0").expect("the disk is there");
    let next = plan["job"].as_str().expect("an id");
    let second = desk.receipt(next);
    assert_eq!((&second["outcome"], &second["attempts"][0]["instance"]), (&Value::from("succeeded"), &Value::from(first.id.as_str())), "{second:#}");
    desk.ec2.until(&first.id, State::Terminated);
    assert_eq!(desk.ec2.instances().len(), 1, "one machine for two jobs");
    let billed = |receipt: &Value| receipt["attempts"][0]["billed_seconds"].as_f64().expect("billed");
    let ledger = desk.ec2.ledger(&first.id).billed_seconds() as f64;
    assert!(
        (billed(&receipt) + billed(&second) - ledger).abs() <= 40.0,
        "{} and {} on the receipts, {ledger} on the ledger",
        billed(&receipt),
        billed(&second)
    );
    let again = desk.lamp(&["start", next]).output().expect("it runs");
    assert_code(&again, 102);
}
