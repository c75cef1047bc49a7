//! The program's own AWS adapter on the false EC2, and a plan to launch there.

use std::sync::Arc;

use jiff::Timestamp;
use lamplighter::adapters::aws::ec2::cloud::AwsCloud;
use lamplighter::adapters::aws::session::AwsSession;
use lamplighter::adapters::aws::settings::AwsSettings;
use lamplighter::instance::{InstanceView, MachineRef, Tags};
use lamplighter::job::{
    AttemptNo, Command, LaunchRequest, MachineSpec, Plan, RECORD_FORMAT, Shutdown, Spec,
};
use lamplighter::market::{Arch, CloudKind, Market, Offer, Region, Span, Usd, UsdPerHour, Zone};
use lamplighter::ports::{Cloud as _, CloudError};

use lamp_test_support::ec2::{FalseEc2, State};
pub use lamp_test_support::ec2::{IMAGE, OWNER};

pub fn region() -> Region {
    Region::new("us-east-1")
}

pub fn session(ec2: &FalseEc2) -> Arc<AwsSession> {
    session_with(ec2, AwsSettings::default())
}

pub fn session_with(ec2: &FalseEc2, settings: AwsSettings) -> Arc<AwsSession> {
    let settings = AwsSettings { endpoint_url: Some(ec2.url().to_owned()), ..settings };
    AwsSession::with_key(settings, region(), "test", "test")
}

pub fn cloud(ec2: &FalseEc2) -> AwsCloud {
    AwsCloud::new(session(ec2))
}

pub fn offer(market: Market) -> Offer {
    Offer {
        cloud: CloudKind::Aws,
        region: region(),
        zone: Zone::new("us-east-1a"),
        instance_type: "g5.xlarge".into(),
        gpus: 1,
        gpu_model: Some("A10G".into()),
        gpu_memory_mib: Some(24 * 1024),
        vcpus: 4,
        arch: Arch::X86_64,
        market,
        price: UsdPerHour::new(Usd::from_micros(1_006_000)),
        extras: UsdPerHour::ZERO,
        on_demand: None,
    }
}

/// A job that asks for one GPU, an image and a disk.
pub fn spec(image: &str, disk_gib: u32) -> Spec {
    let machine = MachineSpec {
        cloud: CloudKind::Aws,
        gpus: "A10G:1".parse().expect("GPUs"),
        image: image.into(),
        disk_gib,
        ..MachineSpec::default()
    };
    Spec {
        gang: None,
        name: "digits".into(),
        command: Command::Shell("true".into()),
        setup: None,
        env: Default::default(),
        secrets: Default::default(),
        tags: Default::default(),
        outputs: vec![],
        machine,
        watch: Default::default(),
        limits: Default::default(),
        checkpoint: None,
        on: Default::default(),
        retries: Default::default(),
        interruptions: Default::default(),
    }
}

/// A plan for a machine of [`OWNER`]; the token names the attempt.
pub fn plan(token: &str, market: Market) -> Plan {
    let attempt = AttemptNo::FIRST;
    let (lease, kill_at) =
        (Span::from_secs(1800), Some("2030-01-01T00:00:00Z".parse().expect("a time")));
    let tags = Tags {
        owner: OWNER.into(),
        job: "digits-222222".parse().expect("an id"),
        attempt,
        lease,
        boot: lamplighter::job::BOOT,
        kill_at,
    };
    Plan {
        format: RECORD_FORMAT,
        job: tags.job.clone(),
        attempt,
        created: Timestamp::now(),
        controller: "test".into(),
        offer: offer(market),
        reasons: vec![],
        rejected: vec![],
        bid: (market == Market::Spot).then(|| UsdPerHour::new(Usd::from_micros(650_000))),
        launch: Some(LaunchRequest {
            image: IMAGE.into(),
            image_name: None,
            root_device: "/dev/sda1".into(),
            disk_gib: 120,
            profile: None,
            security_groups: vec![],
            subnet: None,
            key_name: None,
            shutdown: Shutdown::Terminate,
            alarm: None,
            user_data: "#!/bin/sh\ntrue\n".into(),
        }),
        most_usd: None,
        most_any_usd: None,
        most_job_usd: None,
        client_token: token.into(),
        kill_at,
        lease,
        boot: lamplighter::job::BOOT,
        resume_from: None,
        launch_by: None,
        starts: None,
        gang: None,
        followers: 0,
        tags: tags.to_map(),
    }
}

pub fn machine(id: &str) -> MachineRef {
    MachineRef { cloud: CloudKind::Aws, region: region(), id: id.to_owned() }
}

/// Launches the machine of a plan, and gives its id.
pub async fn launched(cloud: &AwsCloud, token: &str, market: Market) -> String {
    cloud.launch(&plan(token, market)).await.expect("launched")
}

pub async fn views(cloud: &AwsCloud) -> Vec<InstanceView> {
    cloud.describe(OWNER, &region()).await.expect("described")
}

/// An error and its causes in a line.
pub fn chain(error: &CloudError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Which error it is, in a word.
pub fn kind(error: &CloudError) -> String {
    match error {
        CloudError::NoCapacity { refusal, .. } => refusal.to_string(),
        CloudError::Throttled => "throttled".into(),
        CloudError::Denied { .. } => "denied".into(),
        CloudError::Relaunches { .. } => "ended, and may come back".into(),
        CloudError::Ambiguous { .. } => "ambiguous".into(),
        CloudError::Mismatch { .. } => "mismatch".into(),
        CloudError::Unstoppable { .. } => "unstoppable".into(),
        CloudError::Invalid { .. } | CloudError::NoImage { .. } => "invalid".into(),
        CloudError::Unsupported { .. } => "unsupported".into(),
    }
}

pub fn is_going(state: State) -> bool {
    matches!(state, State::ShuttingDown | State::Terminated)
}
