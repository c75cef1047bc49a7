//! Facts for the tests of `reconcile`: records at one moment.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lamplighter::instance::{InstanceState, InstanceView, Status, Tags};
use lamplighter::job::{
    AttemptNo, AttemptPhase, Command, EndedBecause, LaunchRequest, LimitsSpec, MachineSpec,
    Outcome, Plan, RECORD_FORMAT, Request, ResolvedSpec, Settled, Spec, Wish,
};
use lamplighter::market::{self, Arch, Market, Offer, Region, Span, Usd, UsdPerHour, Zone};
use lamplighter::policy::lifecycle::reconcile::{
    Act, AttemptFacts, CheckpointSummaries, CloudAnswer, JobFacts, Watched, reconcile,
};

pub const OWNER: &str = "me";

pub fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

pub fn ago(secs: u64) -> Timestamp {
    now() - Duration::from_secs(secs)
}

pub fn spec() -> ResolvedSpec {
    ResolvedSpec {
        format: RECORD_FORMAT,
        job: "digits-222222".parse().unwrap(),
        created: ago(100_000),
        written_by: "test".into(),
        spec: Spec {
            gang: None,
            name: "digits".into(),
            command: Command::Shell("true".into()),
            setup: None,
            env: Default::default(),
            secrets: Default::default(),
            tags: Default::default(),
            outputs: vec![],
            machine: MachineSpec::default(),
            watch: Default::default(),
            limits: LimitsSpec::default(),
            checkpoint: None,
            on: Default::default(),
            retries: Default::default(),
            interruptions: Default::default(),
        },
        code: None,
        origins: Default::default(),
        applied: None,
        owner: None,
        continues: None,
        trial: None,
        tuned: None,
    }
}

/// The same, of a job that buys machines: nobody is sold one without a limit.
pub fn buys() -> ResolvedSpec {
    let mut spec = spec();
    spec.spec.limits.max_runtime = Some(Span::from_secs(7 * 24 * 3600));
    spec
}

pub fn plan(cloud: market::CloudKind, number: u32, age_secs: u64) -> Plan {
    let attempt = AttemptNo::new(number);
    Plan {
        format: RECORD_FORMAT,
        job: spec().job,
        attempt,
        created: ago(age_secs),
        controller: "test".into(),
        offer: Offer {
            cloud,
            region: Region::new("r"),
            zone: Zone::new("z"),
            instance_type: "t".into(),
            gpus: 0,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus: 0,
            arch: Arch::X86_64,
            market: Market::Spot,
            price: UsdPerHour::new("$1".parse().unwrap()),
            extras: UsdPerHour::ZERO,
            on_demand: None,
        },
        reasons: vec!["x".into()],
        rejected: vec![],
        bid: None,
        launch: None,
        most_usd: None,
        most_any_usd: None,
        most_job_usd: None,
        client_token: format!("token-{number}"),
        kill_at: None,
        lease: Span::from_secs(1800),
        boot: lamplighter::job::BOOT,
        resume_from: None,
        launch_by: None,
        starts: None,
        gang: None,
        followers: 0,
        tags: Default::default(),
    }
}

pub fn attempt(number: u32, age_secs: u64) -> AttemptFacts {
    AttemptFacts {
        plan: plan(market::CloudKind::Aws, number, age_secs).into(),
        lease: None,
        status: None,
        outcome: None,
        settled: None,
        journal: CheckpointSummaries::default(),
        watched: Watched::default(),
    }
}

/// What a plan asks EC2 for, with this alarm.
pub fn launch_request(alarm: &str) -> LaunchRequest {
    LaunchRequest {
        image: "ami-1".into(),
        image_name: None,
        root_device: "/dev/sda1".into(),
        disk_gib: 1,
        profile: None,
        security_groups: vec![],
        subnet: None,
        key_name: None,
        shutdown: Default::default(),
        alarm: Some(alarm.parse().unwrap()),
        user_data: String::new(),
    }
}

/// A plan that was to be launched until this long ago, and whose machine nobody was shown for so
/// long.
pub fn signed_until(attempt: AttemptFacts, secs: i64, missing: u64) -> AttemptFacts {
    let watched =
        Watched { missing_for: Duration::from_secs(missing), unclear: true, ..attempt.watched };
    let mut attempt = AttemptFacts { watched, ..attempt };
    Arc::make_mut(&mut attempt.plan).launch_by = Some(now() - SignedDuration::from_secs(secs));
    attempt
}

pub fn view(number: u32, owner: &str, state: InstanceState, reason: Option<&str>) -> InstanceView {
    let tags = Tags {
        owner: owner.into(),
        job: spec().job,
        attempt: AttemptNo::new(number),
        lease: Span::from_secs(1800),
        boot: lamplighter::job::BOOT,
        kill_at: None,
    };
    InstanceView {
        id: format!("i-{number}-{owner}"),
        cloud: market::CloudKind::Aws,
        region: Region::new("r"),
        instance_type: "t".into(),
        market: Market::Spot,
        state,
        tags,
        client_token: Some(format!("token-{number}")),
        launched: ago(600),
        ended: state.is_terminated().then(|| ago(60)),
        state_reason: reason.map(str::to_owned),
    }
}

pub fn status(phase: AttemptPhase, at: Timestamp) -> Status {
    Status {
        metric: None,
        format: RECORD_FORMAT,
        instance: "i".into(),
        sequence: 1,
        at,
        phase,
        started: ago(590),
        verdict: "busy".into(),
        reason: None,
        progress: None,
        gpus: vec![],
        cpu_percent: None,
        memory_bytes: None,
        useful: Span::from_secs(100),
        idle: Span::from_secs(5),
        last_checkpoint: None,
        checkpoints: 2,
        working_since: None,
        saved: Span::ZERO,
        notice: None,
        starts: 1,
        held_until: None,
        unmeasured: false,
        keeps: true,
        doubts: false,
        attention_kinds: Vec::new(),
        attention: vec![],
        exit: None,
    }
}

pub fn outcome(number: u32, because: EndedBecause) -> Outcome {
    Outcome {
        metric: None,
        format: RECORD_FORMAT,
        job: spec().job,
        attempt: AttemptNo::new(number),
        instance: "i".into(),
        started: ago(590),
        ended: ago(60),
        because,
        exit: None,
        reasons: vec![],
        useful: Span::from_secs(100),
        idle: Span::ZERO,
        unknown: Span::ZERO,
        last_checkpoint: None,
        checkpoints: 0,
        resumed_from: None,
        went_back: None,
        progress: None,
        working_since: None,
        saved: Span::ZERO,
        losses: vec![],
    }
}

pub fn settled(number: u32, because: EndedBecause) -> Settled {
    Settled {
        format: RECORD_FORMAT,
        attempt: AttemptNo::new(number),
        instance: Some("i".into()),
        because,
        billed_from: Some(ago(600)),
        billed_estimated: false,
        billed_to: Some(ago(60)),
        billed: Span::from_secs(540),
        usd: Usd::from_micros(150_000),
        refusal: None,
        cloud_reason: None,
        outcome: Some(outcome(number, because)),
        kept: false,
        plan_too_old: false,
    }
}

pub fn wish(wish: Wish, age_secs: u64) -> Request {
    Request { format: RECORD_FORMAT, number: 1, at: ago(age_secs), by: "somebody".into(), wish }
}

pub fn acts(attempts: &[AttemptFacts], requests: &[Request], cloud: CloudAnswer) -> Vec<Act> {
    let spec = spec();
    reconcile(&JobFacts {
        spec: &spec,
        attempts,
        requests,
        cloud: &cloud,
        newest_checkpoint: None,
        owner: OWNER,
        here: "z",
        now: now(),
    })
}

pub fn word(act: &Act) -> &'static str {
    match act {
        Act::CreatePlan { .. } => "plan",
        Act::Launch { .. } => "launch",
        Act::RaiseKillAt { .. } => "raise",
        Act::Terminate { .. } => "terminate",
        Act::Stop { .. } => "stop",
        Act::Interrupt { .. } => "interrupt",
        Act::Guard { .. } => "guard",
        Act::Settle(_) => "settle",
        Act::WriteReceipt(_) => "receipt",
        Act::Wait { .. } => "wait",
    }
}

pub fn words(
    attempts: &[AttemptFacts],
    requests: &[Request],
    cloud: CloudAnswer,
) -> Vec<&'static str> {
    acts(attempts, requests, cloud).iter().map(word).collect()
}

pub fn known(views: &[InstanceView]) -> CloudAnswer {
    CloudAnswer::Known(views.to_vec())
}

pub fn unknown() -> CloudAnswer {
    CloudAnswer::Unknown("an outage".into())
}
