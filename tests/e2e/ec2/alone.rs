//! From user data to power-off, with nobody watching: whatever happens to the machine, it ends, and what was saved is there.

use std::time::Duration;

use serde_json::json;

use super::attempt::Job;
use super::machines::patiently;
use crate::false_ec2::State;
use crate::false_imds::Reply;

fn no_change(_: &mut serde_json::Value) {}

#[test]
fn a_machine_does_its_work_and_puts_itself_out() {
    let Some(job) = Job::new(no_change) else { return };
    let id = job.launch(1, None);
    job.until_it_works(1);
    // The agent dies; the work does not.
    job.ec2.run(&id, &["systemctl", "kill", "--signal=SIGKILL", "lamp-agent"]);
    job.until_event(1, "the agent is back and finds its workload", |event| event["kind"] == "agent" && event["reattached"] == true);
    job.go(&id, 0);
    let ended = job.ec2.until(&id, State::Terminated);
    assert_eq!(ended.reason, "Client.InstanceInitiatedShutdown");
    let outcome = job.outcome(1).expect("the last thing before the power goes");
    assert_eq!((&outcome["because"], &outcome["exit"]["code"]), (&json!("succeeded"), &json!(0)), "{outcome}");
    assert!(job.text("outputs/lamp-output/model").is_some_and(|model| model.starts_with("trained ")), "{:?}", job.names("outputs"));
    assert_eq!(job.begins(&id), ["1 0"]);
    let lease = job.record("attempts/0001/lease.json").expect("the agent took it");
    assert_eq!(lease["instance"], json!(id), "{lease}");
}

#[test]
fn what_fails_and_what_idles_bills_no_longer() {
    let idle = json!({ "window": "2s", "gpu_percent": 1.0, "cpu_percent": 50.0, "io_bytes_per_sec": 100_000.0, "grace": "0s" });
    let quiet = "while [ ! -e /root/go ]; do sleep 0.5; done; exit $(cat /root/go)";
    let Some(job) = Job::new(|spec| {
        spec["watch"]["idle"] = idle;
        spec["command"] = json!({ "args": ["/bin/sh", "-c", quiet] });
    }) else {
        return;
    };
    // Nothing happens on the first one. On the second the command fails at once.
    let idles = job.launch(1, None);
    job.ec2.until(&idles, State::Terminated);
    assert_eq!(job.outcome(1).expect("told")["because"], "idle", "{:?}", job.outcome(1));
    let fails = job.launch(2, None);
    patiently("it has a machine", || job.ec2.file(&fails, "root").is_dir().then_some(()));
    job.go(&fails, 7);
    job.ec2.until(&fails, State::Terminated);
    let outcome = job.outcome(2).expect("told");
    assert_eq!((&outcome["because"], &outcome["exit"]["code"]), (&json!("failed"), &json!(7)), "{outcome}");
}

#[test]
fn a_machine_without_a_working_agent_is_off_soon() {
    let Some(job) = Job::new(no_change) else { return };
    let job = job.with_agent(b"#!/bin/sh\nexit 1\n");
    let broken = job.launch(1, None);
    // And one that can fetch nothing: only the switch is left, which is armed before. Its time is cut short here.
    let script = job.user_data().replace("boot_secs='900'", "boot_secs='4'").replace("169.254.169.253", "192.0.2.1");
    assert!(script.contains("boot_secs='4'"));
    let cut_off = job.launch_with(2, None, &script);
    for (id, said) in [(&broken, "does not run on this image"), (&cut_off, "the agent could not be fetched")] {
        let ended = job.ec2.until(id, State::Terminated);
        assert_eq!(ended.reason, "Client.InstanceInitiatedShutdown");
        assert!(job.ec2.said(id).contains(said), "{}", job.ec2.said(id));
    }
    assert!(job.record("attempts/0001/lease.json").is_none());
}

#[test]
fn a_notice_saves_the_work_and_the_next_machine_goes_on() {
    let Some(job) = Job::new(no_change) else { return };
    let first = job.launch(1, None);
    job.until_it_works(1);
    patiently("it has done some steps", || job.step(&first).filter(|step| *step > 3));
    job.ec2.interrupt(&first, Duration::from_secs(15));
    let saved = patiently("a checkpoint because of the notice", || job.checkpoint());
    let ended = job.ec2.until(&first, State::Terminated);
    assert_eq!(ended.reason, "Server.SpotInstanceTermination");
    assert!(job.outcome(1).is_none(), "the cloud ends it, not the agent: {:?}", job.outcome(1));

    let second = job.launch(2, job.checkpoint());
    job.until_event(2, "it resumes", |event| event["kind"] == "resumed");
    patiently("the trainer begins", || (!job.begins(&second).is_empty()).then_some(()));
    let begin = &job.begins(&second)[0];
    let step: u32 = begin.strip_prefix("2 ").and_then(|step| step.parse().ok()).unwrap_or_else(|| panic!("{begin}"));
    assert!(step > 0, "from checkpoint {saved}");
    job.go(&second, 0);
    job.ec2.until(&second, State::Terminated);
    assert_eq!(job.outcome(2).expect("told")["because"], "succeeded");
}

#[test]
fn five_seconds_of_notice_or_none_cost_one_interval() {
    let Some(job) = Job::new(|spec| {
        spec["checkpoint"]["interval"] = json!("1s");
        spec["env"] = json!({ "SAVE_EVERY": "5" });
    }) else {
        return;
    };
    let first = job.launch(1, None);
    let saved = patiently("a checkpoint is complete", || job.checkpoint());
    job.ec2.interrupt(&first, Duration::from_secs(5));
    job.ec2.until(&first, State::Terminated);
    let known = job.checkpoint().expect("it was there");
    assert!(known >= saved);

    let second = job.launch(2, Some(known));
    let newer = patiently("a newer checkpoint is complete", || job.checkpoint().filter(|newer| *newer > known));
    job.ec2.plug(&second);
    assert_eq!(job.ec2.instance(&second).state, State::Running, "EC2 knows nothing");
    assert!(job.outcome(2).is_none());
    job.ec2.ask("TerminateInstances", &[("InstanceId.1", &second)]).expect("ours");

    let third = job.launch(3, Some(newer));
    patiently("the trainer begins", || (!job.begins(&third).is_empty()).then_some(()));
    let steps = |id: &str| -> u32 { job.begins(id)[0].split(' ').nth(1).expect("a step").parse().expect("a number") };
    assert!(steps(&third) > steps(&second) && steps(&second) > 0, "{:?} {:?}", job.begins(&second), job.begins(&third));
    job.go(&third, 0);
    job.ec2.until(&third, State::Terminated);
}

#[test]
fn neither_a_partition_nor_a_storm_nor_a_reboot_ends_the_work() {
    let Some(job) = Job::new(|spec| {
        spec["checkpoint"]["interval"] = json!("1s");
        spec["env"] = json!({ "SAVE_EVERY": "5" });
    }) else {
        return;
    };
    let id = job.launch(1, None);
    job.until_it_works(1);
    let imds = job.ec2.imds(&id);
    let asked = |path| imds.asked(path);
    // The metadata service refuses its own tokens, then answers nothing but errors.
    imds.refuses_tokens(true);
    let before = asked("api/token");
    patiently("it has asked anew", || (asked("api/token") > before + 2).then_some(()));
    imds.refuses_tokens(false);
    imds.storm(Some(Reply::Text(503, "busy".into())));
    let before = asked(crate::false_imds::ACTION);
    patiently("it goes on asking", || (asked(crate::false_imds::ACTION) > before + 2).then_some(()));
    imds.storm(None);

    // The API is gone; the work goes on, and what it saved meanwhile arrives afterwards.
    patiently("a checkpoint is complete", || job.checkpoint());
    job.ec2.partition(&id, true);
    let (old, step) = (job.checkpoint(), job.step(&id).expect("it has begun"));
    patiently("it works on and saves", || job.step(&id).filter(|now| *now > step + 11));
    assert_eq!(job.checkpoint(), old, "nothing comes through");
    job.ec2.partition(&id, false);
    patiently("a newer one arrives", || (job.checkpoint() > old).then_some(()));
    assert_eq!(job.begins(&id).len(), 1, "it was never restarted: {:?}", job.begins(&id));

    job.ec2.run(&id, &["systemctl", "reboot"]);
    patiently("the trainer goes on where it was", || (job.begins(&id).len() == 2).then_some(()));
    assert_ne!(job.begins(&id)[1], "1 0", "the same attempt, from what it had saved");
    job.go(&id, 0);
    let ended = job.ec2.until(&id, State::Terminated);
    assert_eq!(ended.reason, "Client.InstanceInitiatedShutdown");
    assert_eq!(job.outcome(1).expect("told")["because"], "succeeded");
    assert_eq!(job.ec2.ledger(&id).spans.len(), 1);
}
