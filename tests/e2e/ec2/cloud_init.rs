//! A job from `lamp run` to its receipt on a machine that real cloud-init makes ready: its Ec2 data
//! source reads the user data of RunInstances from the metadata service, and that fetches the real
//! agent from the bucket.
//!
//! The machines of the other stories run their user data by a unit of ours, which takes a fraction
//! of the time. Skipped, with a word, where cloud-init is not unpacked.

use super::desk::{Desk, JOB};
use super::journey::bill_agrees;
use super::machines::Ec2;
use super::story::ITSELF;
use crate::bench::Running;
use lamp_test_support::ec2::{State, base64};

#[test]
fn job_runs_from_the_first_boot_of_an_image_to_its_receipt() {
    let Some(desk) = Ec2::start_with_cloud_init().map(Desk::new) else { return };
    desk.bench.write("job.toml", &JOB.replace("market = 'spot'", "market = 'on-demand'"));
    let mut run = Running::start(&mut desk.lamp(&["run", "--unproven", "job.toml"]));
    let seen = desk.launched(&[]);
    assert_eq!(desk.begins(&seen.id), "1 0");

    // cloud-init did it, by what EC2 told it.
    let told = |path: &str| std::fs::read(desk.ec2.file(&seen.id, path)).unwrap_or_default();
    let instance = std::fs::read_link(desk.ec2.file(&seen.id, "var/lib/cloud/instance"))
        .expect("its first boot");
    assert_eq!(instance.file_name().and_then(|name| name.to_str()), Some(seen.id.as_str()));
    assert!(
        String::from_utf8_lossy(&told("var/lib/cloud/data/previous-datasource"))
            .contains("DataSourceEc2")
    );
    assert_eq!(
        Some(told(&format!("var/lib/cloud/instances/{}/user-data.txt", seen.id))),
        base64(&seen.user_data),
        "what RunInstances was given"
    );
    assert_eq!(desk.ec2.said(&seen.id).matches("lamplighter: the agent is started").count(), 1);
    assert_eq!(told("usr-local/bin/lamp-agent"), desk.agent(), "what is in the bucket");

    desk.go(&seen.id);
    assert!(run.wait().success());
    let ended = desk.ec2.instance(&seen.id);
    assert_eq!((ended.state, ended.reason.as_str()), (State::Terminated, ITSELF));
    let receipt = desk.receipt(&desk.jobs()[0]);
    assert_eq!(
        (&receipt["outcome"], &receipt["attempts"][0]["market"]),
        (&"succeeded".into(), &"on-demand".into()),
        "{receipt:#}"
    );
    assert_eq!(receipt["attempts"].as_array().map(Vec::len), Some(1), "{receipt:#}");
    bill_agrees(&desk, &receipt, &[&seen]);
    let model = desk.bench.find("lamp-outputs", "/model");
    assert!(
        model.len() == 1
            && std::fs::read_to_string(&model[0]).is_ok_and(|text| text.starts_with("trained ")),
        "{model:?}"
    );
    assert_eq!(desk.ec2.instances().len(), 1);
}
