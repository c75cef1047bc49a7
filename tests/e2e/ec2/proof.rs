//! The rig itself, with nothing of the program under test in it: is a machine what EC2 says it is?

use std::time::Duration;

use super::machines::Ec2;
use super::network::API;
use lamp_test_support::ec2::{Fault, State, encode_base64};

fn launch(ec2: &Ec2, script: &str, more: &[(&str, &str)]) -> String {
    let data = encode_base64(format!("#!/bin/sh\n{script}\n").as_bytes());
    let mut params = vec![
        ("ImageId", "ami-0d15ea5e000000022"),
        ("InstanceType", "g5.xlarge"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
    ];
    params.extend([
        ("UserData", data.as_str()),
        ("TagSpecification.1.ResourceType", "instance"),
        ("MetadataOptions.InstanceMetadataTags", "enabled"),
    ]);
    params.extend([
        ("TagSpecification.1.Tag.1.Key", "lamplighter:job"),
        ("TagSpecification.1.Tag.1.Value", "a-job"),
    ]);
    params.extend_from_slice(more);
    let made = ec2.ask("RunInstances", &params).expect("launched");
    made.all("instanceId")[0].text.clone()
}

/// S3 takes nothing from strangers, and moto no object with the type that curl gives it.
const SIGNED: &str = "--aws-sigv4 aws:amz:us-east-1:s3 --user x:y -H Content-Type:text/plain";

const TERMINATES: (&str, &str) = ("InstanceInitiatedShutdownBehavior", "terminate");
const SPOT: (&str, &str) = ("InstanceMarketOptions.MarketType", "spot");

/// Reads its metadata, writes to the cloud's S3, and ends.
fn tells(bucket: &str, then: &str) -> String {
    format!(
        "imds=http://169.254.169.254/latest; token=$(curl -sSf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $imds/api/token)
         get() {{ curl -sS -H \"X-aws-ec2-metadata-token: $token\" $imds/meta-data/$1; }}
         put() {{ curl -sSf {SIGNED} -X PUT --data-binary \"$2\" {API}/{bucket}/$1; }}
         put id \"$(get instance-id)\"; put job \"$(get tags/instance/lamplighter:job)\"
         put nowhere \"$(curl -sS --max-time 2 http://198.51.100.1/ 2>&1; echo $?)\"
         put notice \"$(get spot/instance-action | head -c 15)\"; put user \"$(id -u)\"
         {then}"
    )
}

fn object(ec2: &Ec2, bucket: &str, name: &str) -> Option<String> {
    let (status, body) = ec2.s3("GET", &format!("/{bucket}/{name}"), b"");
    (status == 200).then(|| String::from_utf8(body).expect("text"))
}

#[test]
fn instance_runs_its_user_data_and_its_own_power_off_ends_it() {
    let Some(ec2) = Ec2::start() else { return };
    let bucket = ec2.bucket("proof");
    let id = launch(&ec2, &tells(&bucket, "systemctl poweroff"), &[TERMINATES]);
    let kept = launch(&ec2, "echo x >> /root/boots; systemctl poweroff", &[]);
    let ended = ec2.until(&id, State::Terminated);
    assert_eq!(ended.reason, "Client.InstanceInitiatedShutdown");
    let told = |name: &str| object(&ec2, &bucket, name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((told("id"), told("job"), told("user")), (id.clone(), "a-job".into(), "0".into()));
    assert!(told("nowhere").ends_with('7'), "no route: {}", told("nowhere"));
    assert!(told("notice").starts_with("<html>"), "no notice: {}", told("notice"));
    let ledger = ec2.ledger(&id);
    assert!(
        ledger.spans.len() == 1
            && ledger.running() > Duration::ZERO
            && ledger.billed_seconds() >= 60,
        "{ledger:?}"
    );

    // Its shutdown behaviour is to stop; the disk stays, and user data runs once in a life.
    ec2.until(&kept, State::Stopped);
    assert_eq!(ec2.instance(&kept).reason, "Client.InstanceInitiatedShutdown");
    ec2.ask("StartInstances", &[("InstanceId.1", &kept)]).expect("it is stopped");
    ec2.until(&kept, State::Running);
    crate::bench::wait_until("it is up again", || (ec2.boots(&kept) == 2).then_some(()));
    assert_eq!(
        std::fs::read_to_string(ec2.file(&kept, "root/boots")).expect("written in its first life"),
        "x\n"
    );
    ec2.ask("TerminateInstances", &[("InstanceId.1", &kept)]).expect("ours");
    let ended = ec2.until(&kept, State::Terminated);
    assert_eq!(
        (ended.reason.as_str(), ec2.ledger(&kept).spans.len()),
        ("Client.UserInitiatedShutdown", 2)
    );
    assert!(ec2.ledger(&kept).billed_seconds() >= 120);
}

#[test]
fn interruption_is_in_the_metadata_before_the_power_is_cut() {
    let Some(ec2) = Ec2::start() else { return };
    let bucket = ec2.bucket("spot");
    // Reports the notice, ignores it, and would report that it lived on.
    let watch = format!(
        "systemd-run --unit watch sh -c 'while :; do token=$(curl -sS -X PUT -H \"X-aws-ec2-metadata-token-ttl-seconds: 60\" http://169.254.169.254/latest/api/token); \
         curl -sSf -H \"X-aws-ec2-metadata-token: $token\" http://169.254.169.254/latest/meta-data/spot/instance-action -o /root/notice && \
         curl -sSf {SIGNED} -X PUT --data-binary @/root/notice {API}/{bucket}/notice; date +%%s >> /root/alive; sleep 0.2; done'"
    );
    let id = launch(&ec2, &watch, &[SPOT]);
    crate::bench::wait_until("it works", || ec2.file(&id, "root/alive").exists().then_some(()));
    ec2.interrupt(&id, Duration::from_secs(15));
    let notice =
        crate::bench::wait_until("it has read the notice", || object(&ec2, &bucket, "notice"));
    assert!(
        notice.contains("\"action\":\"terminate\"") && notice.contains("\"time\":\"20"),
        "{notice}"
    );
    assert_eq!(ec2.instance(&id).state, State::Running);
    let ended = ec2.until(&id, State::Terminated);
    assert_eq!(ended.reason, "Server.SpotInstanceTermination");
    assert!(ec2.ledger(&id).free, "EC2 took it back in its first hour");
}

#[test]
fn pulled_plug_bills_on_and_a_partition_cuts_only_the_api() {
    let Some(ec2) = Ec2::start() else { return };
    let bucket = ec2.bucket("plug");
    let script = format!(
        "while :; do curl -sS --max-time 1 {SIGNED} -X PUT --data-binary \"$(date +%s%N)\" {API}/{bucket}/beat; sleep 0.1; done"
    );
    let id = launch(&ec2, &script, &[TERMINATES]);
    let beat = || object(&ec2, &bucket, "beat");
    let beats_after = |old: Option<String>| {
        crate::bench::wait_until("it beats", || beat().filter(|new| Some(new) != old.as_ref()))
    };
    let first = beats_after(None);
    ec2.partition(&id, true);
    let imds = ec2.imds(&id);
    crate::bench::wait_until("it notices", || ec2.said(&id).contains("curl: (").then_some(()));
    let last = beat();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(beat(), last, "nothing comes through");
    ec2.run(&id, &["curl", "-sS", "--max-time", "2", "http://169.254.169.254/latest/meta-data"]);
    assert!(imds.asked("meta-data") >= 1, "its metadata it can reach");
    ec2.partition(&id, false);
    beats_after(last);

    assert_ne!(first, beats_after(None));
    ec2.plug(&id);
    // A request that is under way still arrives.
    let last = crate::bench::wait_until("it is dark", || {
        let before = beat();
        std::thread::sleep(Duration::from_millis(500));
        (beat() == before).then_some(before)
    });
    let before = ec2.ledger(&id).running();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(
        (beat(), ec2.instance(&id).state),
        (last, State::Running),
        "dark, and EC2 says that it runs"
    );
    assert!(ec2.ledger(&id).running() > before);
    // The cloud can end it all the same.
    ec2.fault(Fault::lost("TerminateInstances"));
    assert!(ec2.ask("TerminateInstances", &[("InstanceId.1", &id)]).is_err(), "nobody hears of it");
    ec2.until(&id, State::Terminated);
}

#[test]
fn reboot_is_no_end_and_a_stop_is_a_requested_shutdown() {
    let Some(ec2) = Ec2::start() else { return };
    let script = "printf '[Service]\\nExecStart=/bin/true\\nExecStop=/bin/touch /root/stopped\\nRemainAfterExit=yes\\nType=oneshot\\n[Install]\\nWantedBy=multi-user.target\\n' \
                  > /etc/systemd/system/mark.service; systemctl enable mark.service; systemctl start --no-block mark.service; touch /root/ready";
    let id = launch(&ec2, script, &[]);
    crate::bench::wait_until("it is ready", || ec2.file(&id, "root/ready").exists().then_some(()));
    ec2.run(&id, &["systemctl", "reboot"]);
    crate::bench::wait_until("it is up again", || (ec2.boots(&id) == 2).then_some(()));
    assert_eq!((ec2.instance(&id).state, ec2.ledger(&id).spans.len()), (State::Running, 1));
    crate::bench::wait_until("it was shut down in order", || {
        ec2.file(&id, "root/stopped").exists().then_some(())
    });
    std::fs::remove_file(ec2.file(&id, "root/stopped")).expect("there");
    ec2.ask("StopInstances", &[("InstanceId.1", &id)]).expect("it may be stopped");
    ec2.until(&id, State::Stopped);
    assert_eq!(ec2.instance(&id).reason, "Client.UserInitiatedShutdown");
}
