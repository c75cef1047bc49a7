//! Does an unwatched machine end by itself? Plans a trial, judges its end, and dates the proof.
//!
//! ```text
//!   trial ─> spec of a small job ─> (runs like any other job) ─> settled, ending ─> Tried
//!   the newest proof, now ──> ProofState ──> may a machine run unattended?
//! ```
//! The switch under trial must act first. In a trial of the deadline unit, the machine becomes an
//! orphan only after the unit's time. In a trial of a sweep, the unit is set later than the proven
//! times. This module makes no calls.

use std::time::Duration;

use jiff::Timestamp;

use super::doctor::Check;
use crate::account::sweeper::{self, SWEEPER};
use crate::job::{
    AlarmRule, AttemptRecord, Command, EndedBy, Ending, InterruptionsSpec, LimitsSpec, MachineSpec,
    MarketChoice, Proof, Spec, Switch, Trial, Tried, WatchSpec,
};
use crate::market::{CloudKind, GpuRequirement, Span, elapsed};

/// How long a proof holds. Images, roles and the sweeper change in months. A daily proof would cost
/// a cent and ten minutes each time.
pub const HOLDS: Duration = Duration::from_secs(30 * 24 * 3600);

/// A proof from a clock that is slightly ahead counts as of now. A later date makes it invalid.
const AHEAD_MAX: Duration = Duration::from_secs(24 * 3600);

/// The lease of a trial: the shortest that a job file may ask for.
pub const LEASE: Span = Span::from_secs(2 * 60);

/// Time after the lease: three minutes of boot before the unit is armed, one until the unit looks,
/// two for the power-off. Here the lease counts from the launch; on the machine, from the arming.
const DEADLINE_WITHIN: Span = Span::from_secs(6 * 60);

/// Time after the lease: five minutes to the next visit, five more if the second look needs another
/// visit, two for the call.
const SWEEP_WITHIN: Span = Span::from_secs(12 * 60);

/// Time after the switch's deadline until the hard cap, so that the cap is not what ends the
/// machine.
const CAP_AFTER: Duration = Duration::from_secs(5 * 60);

/// Time after the sweep's deadline until the machine powers itself off. That is later than all
/// proven times, and a safety net if the prover, the daemon and the sweeper all fail. Normally 24
/// minutes after boot.
const LAST_RESORT_AFTER: Duration = Duration::from_secs(10 * 60);

/// How long a trial looks for a machine beyond its normal time: the user waits at a terminal.
const TRIES_FOR: Duration = Duration::from_secs(30 * 60);

/// Launch and end are reported to the second, each rounded separately.
const ROUNDING: Duration = Duration::from_secs(2);

/// Small x86 machines, cheapest first in most regions. A new account may have only the micro ones.
pub const TYPES: [&str; 6] =
    ["t3a.nano", "t3.nano", "t3a.micro", "t3.micro", "t2.nano", "t2.micro"];

/// Amazon Linux 2023: small, and in every region. Its systemd (252) is between the versions of
/// Ubuntu 22.04 and 24.04.
pub const IMAGE: &str = "ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64";

/// Size of that image's own disk, in GiB.
const DISK_GIB: u32 = 8;

/// How long a switch has after the lease before the prover ends the machine.
pub fn within(switch: Switch) -> Span {
    match switch {
        Switch::DeadlineUnit => DEADLINE_WITHIN,
        Switch::Sweep => SWEEP_WITHIN,
    }
}

/// The boot time in the machine's tags, after which a sweep may judge it an orphan. `patience` is
/// the job's.
pub fn boot_tag(trial: &Trial, patience: Span) -> Span {
    match trial.switch {
        Switch::DeadlineUnit => patience,
        Switch::Sweep => trial.lease,
    }
}

/// How long after its boot the machine's deadline unit powers it off. It is the switch under trial,
/// or the safety net behind a sweep. Every machine has one. `patience` is the job's.
pub fn armed(trial: &Trial, patience: Span) -> Span {
    match trial.switch {
        Switch::DeadlineUnit => trial.lease,
        Switch::Sweep => Span::from_duration(patience.duration().saturating_add(LAST_RESORT_AFTER)),
    }
}

/// The job of a trial: the smallest machine without an agent, a single attempt, and a deadline for
/// the launch. `within` is the switch's time, or a test's.
pub fn spec(
    trial: &Trial,
    within: Span,
    created: Timestamp,
    region: &str,
    types: &[String],
) -> Spec {
    let patience = trial.lease.duration() + within.duration();
    let machine = MachineSpec {
        cloud: CloudKind::Aws,
        gpus: GpuRequirement::NONE,
        instance_types: types.to_vec(),
        regions: vec![region.to_owned()],
        image: IMAGE.to_owned(),
        disk_gib: DISK_GIB,
        market: MarketChoice::OnDemand,
        ..MachineSpec::default()
    };
    let limits = LimitsSpec {
        max_runtime: Some(Span::from_duration(patience + CAP_AFTER)),
        deadline: Some(
            created.saturating_add(patience.saturating_add(TRIES_FOR)).unwrap_or(Timestamp::MAX),
        ),
        boot: Span::from_duration(patience),
        ..LimitsSpec::default()
    };
    Spec {
        name: "proof".into(),
        command: Command::Args(vec!["true".into()]),
        setup: None,
        env: Default::default(),
        secrets: Default::default(),
        tags: Default::default(),
        outputs: Vec::new(),
        machine,
        watch: WatchSpec { metrics: false, alarm: AlarmRule::Off, ..WatchSpec::default() },
        limits,
        checkpoint: None,
        on: Default::default(),
        retries: Default::default(),
        interruptions: InterruptionsSpec { max: 0 },
        gang: None,
    }
}

/// Judges the end of a trial. `ending`: our own record of ending the machine.
///
/// `None`: no machine was launched.
pub fn judge(
    trial: &Trial,
    within: Span,
    record: &AttemptRecord,
    ending: Option<&Ending>,
) -> Option<Tried> {
    let (plan, settled) = (&record.plan, &record.settled);
    let (instance, from, to) =
        (settled.instance.clone()?, settled.billed_from?, settled.billed_to?);
    let reason = settled.cloud_reason.as_deref().unwrap_or_default();
    let lived = elapsed(from, to);
    let after_lease = lived.saturating_sub(trial.lease.duration());
    let ended_by = match ending {
        Some(ending) if ending.sweeper().is_some() => EndedBy::Sweep,
        Some(_) => EndedBy::Prover,
        None if reason.starts_with("Client.InstanceInitiatedShutdown") => EndedBy::Itself,
        None if reason.starts_with("Client.User") => EndedBy::Somebody,
        None => EndedBy::Cloud,
    };
    let kept = lived + ROUNDING >= trial.lease.duration();
    let in_time = after_lease <= within.duration();
    let (proven, said) = match (trial.switch, ended_by) {
        (Switch::DeadlineUnit, EndedBy::Itself) if kept && in_time => (
            true,
            "its deadline unit powered it off, and the cloud terminated it for that".to_owned(),
        ),
        (Switch::DeadlineUnit, EndedBy::Itself) if !kept => {
            (false, format!("it powered itself off before its lease was over: {reason}"))
        }
        (Switch::DeadlineUnit, EndedBy::Itself) => {
            (false, "it powered itself off, but too late".to_owned())
        }
        (Switch::Sweep, EndedBy::Sweep) => {
            let late = if in_time { "" } else { ", but too late" };
            (
                in_time,
                ending
                    .map(|ending| format!("{} ended it{late}{}", ending.by, of_whom(ending)))
                    .unwrap_or_default(),
            )
        }
        (_, EndedBy::Prover) => (
            false,
            format!(
                "it did not end by itself, and was ended ({})",
                ending.map_or("nobody said why", |ending| &ending.why)
            ),
        ),
        (Switch::DeadlineUnit, EndedBy::Sweep) => {
            (false, "its deadline unit did not end it, and a sweep did".to_owned())
        }
        (Switch::Sweep, EndedBy::Itself) => {
            (false, "no sweep ended it: it powered itself off".to_owned())
        }
        (_, EndedBy::Somebody) => (
            false,
            "somebody asked the cloud to end it, and nothing of ours has recorded that".to_owned(),
        ),
        (_, EndedBy::Cloud) => (
            false,
            format!(
                "the cloud ended it: {}",
                if reason.is_empty() { "no reason given" } else { reason }
            ),
        ),
    };
    let launch = plan.launch.as_ref();
    Some(Tried {
        switch: trial.switch,
        proven,
        job: plan.job.clone(),
        instance,
        instance_type: plan.offer.instance_type.clone(),
        zone: plan.offer.zone.to_string(),
        image: launch
            .map(|launch| launch.image_name.clone().unwrap_or_else(|| launch.image.clone()))
            .unwrap_or_default(),
        lease: trial.lease,
        within,
        lived: whole_seconds(lived),
        after_lease: whole_seconds(after_lease),
        ended_by,
        swept_by: ending.and_then(Ending::sweeper).map(str::to_owned),
        said,
        usd: settled.usd,
    })
}

/// The limit of a sweep that did not come from the sweeper in the cloud.
fn of_whom(ending: &Ending) -> &'static str {
    if ending.sweeper().is_some_and(|name| name.starts_with(SWEEPER)) {
        ", with no workstation in it"
    } else {
        ": a daemon or a sweep by hand, which ends nothing while that workstation is off"
    }
}

/// The gaps of a proof for this owner; `None`: every switch was tried, with the owner's own
/// sweeper. A daemon sweeps only while its workstation runs. Another owner's sweeper protects only
/// their machines.
pub fn not_tried(proof: &Proof, owner: &str) -> Option<String> {
    let sweeps: Vec<&Tried> =
        proof.trials.iter().filter(|tried| tried.switch == Switch::Sweep).collect();
    let own = sweeper::name(owner);
    let less = if sweeps.is_empty() {
        "not tried: whether anything ends a machine that cannot power itself off, as when its kernel hangs"
    } else if sweeps.iter().any(|tried| tried.sweeper() == Some(own.as_str())) {
        return None;
    } else {
        "not tried: whether anything ends a machine whose kernel hangs while your workstation is off; no sweeper of yours in the cloud swept"
    };
    let unknown = proof
        .sweeper_unknown
        .as_ref()
        .map(|why| format!("; nor is it known whether a sweeper is installed: {why}"));
    Some(format!("{less}{}", unknown.unwrap_or_default()))
}

/// Rounds up, so that a bound never looks better than it was.
fn whole_seconds(time: Duration) -> Span {
    Span::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProofState<'a> {
    None,
    /// The newest failed, so older ones do not count.
    Failed(&'a Proof),
    Old(&'a Proof),
    /// Dated in the future: a clock was wrong.
    Ahead(&'a Proof),
    Good(&'a Proof),
}

pub fn standing(newest: Option<&Proof>, now: Timestamp) -> ProofState<'_> {
    let Some(proof) = newest else { return ProofState::None };
    match proof {
        proof if !proof.passed => ProofState::Failed(proof),
        proof if elapsed(now, proof.at) > AHEAD_MAX => ProofState::Ahead(proof),
        proof if elapsed(proof.at, now) > HOLDS => ProofState::Old(proof),
        proof => ProofState::Good(proof),
    }
}

impl ProofState<'_> {
    pub fn is_good(&self) -> bool {
        matches!(self, ProofState::Good(_))
    }

    /// Continues the text "in REGION": why no machine there may run unattended.
    pub fn words(&self) -> String {
        match self {
            ProofState::None => "has no proof".to_owned(),
            ProofState::Failed(proof) => format!("has a proof of {:.0}, and it failed", proof.at),
            ProofState::Old(proof) => format!(
                "has a proof of {:.0}, which is older than {} days",
                proof.at,
                HOLDS.as_secs() / 86_400
            ),
            ProofState::Ahead(proof) => {
                format!("has a proof of {:.0}, which is in the future", proof.at)
            }
            ProofState::Good(proof) => format!("has a proof of {:.0}", proof.at),
        }
    }
}

/// The line of `lamp doctor`. A missing proof is only a warning; a detached launch requires one.
pub fn check(region: &str, owner: &str, found: Result<&[Proof], &String>, now: Timestamp) -> Check {
    let name = format!("proof, {region}");
    let proofs = match found {
        Ok(proofs) => proofs,
        Err(why) => return Check::unseen(name, why),
    };
    match standing(proofs.iter().find(|proof| proof.region == region), now) {
        ProofState::Good(proof) => {
            let switches: Vec<String> =
                proof.trials.iter().map(|tried| tried.switch.to_string()).collect();
            let less = not_tried(proof, owner).map(|less| format!("; {less}")).unwrap_or_default();
            Check::ok(
                name,
                format!(
                    "machines end by themselves ({}), proven on {:.0}{less}",
                    switches.join(", "),
                    proof.at
                ),
            )
        }
        ProofState::Failed(proof) => {
            let failed = proof
                .trials
                .iter()
                .filter(|tried| !tried.proven)
                .map(|tried| format!("{}: {}", tried.switch, tried.said));
            let said = format!(
                "the newest, of {:.0}, has FAILED: {}",
                proof.at,
                failed.collect::<Vec<_>>().join("; ")
            );
            Check::failure(name, said)
                .fix(format!("mend that, then `lamp doctor --prove --region {region}`; detached launches there are refused until then"))
        }
        other => Check::warning(
            name,
            format!(
                "that a machine ends when nobody watches it is not shown: {region} {}",
                other.words()
            ),
        )
        .fix(format!("`lamp doctor --prove --region {region}`, for about a cent and ten minutes")),
    }
}

pub fn good_until(proof: &Proof) -> Timestamp {
    proof.at.saturating_add(HOLDS).unwrap_or(Timestamp::MAX)
}
