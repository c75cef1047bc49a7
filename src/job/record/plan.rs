//! A chosen offer with reasons: the intent, recorded before the machine is bought.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{AlarmRule, AttemptNo, BOOT, CheckpointNo, JobId};
use crate::market::{Offer, Span, Usd, UsdPerHour};

/// `attempts/<n>/plan.json`, created only if absent: its creator owns the attempt.
///
/// It holds the whole launch call. A retry after a crash repeats the same request byte for byte,
/// and cannot buy a second machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Plan {
    pub format: u32,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub job: JobId,
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    pub attempt: AttemptNo,
    pub created: Timestamp,
    /// The controller that created it, for people.
    pub controller: String,
    pub offer: Offer,
    /// Why this offer, in sentences.
    pub reasons: Vec<String>,
    #[serde(default)]
    pub rejected: Vec<RejectedOffer>,
    /// The highest hourly price of a spot machine.
    #[serde(default)]
    pub bid: Option<UsdPerHour>,
    /// The rest of the launch call, if the cloud needs more than the offer.
    #[serde(default)]
    pub launch: Option<LaunchRequest>,
    /// The most that this attempt can cost; `None`: it has a price and no limit on its time.
    pub most_usd: Option<Usd>,
    /// The most that the attempt can cost on any other machine that fits. `None`: unlimited, or an
    /// older version wrote the plan.
    #[serde(default)]
    pub most_any_usd: Option<Usd>,
    /// The most that the job can cost from this attempt on, with every later machine. `None`:
    /// unlimited, or an older version wrote the plan.
    #[serde(default)]
    pub most_job_usd: Option<Usd>,
    /// The idempotency token of the launch call.
    pub client_token: String,
    /// The hard end of the machine, set once.
    #[serde(default)]
    pub kill_at: Option<Timestamp>,
    /// How long the machine may run without a heartbeat.
    pub lease: Span,
    /// How long it may run before its agent's first heartbeat.
    #[serde(default = "boot")]
    pub boot: Span,
    /// The newest complete checkpoint when the plan was made; the agent looks again.
    #[serde(default)]
    #[cfg_attr(feature = "web", schema(value_type = Option<u32>))]
    pub resume_from: Option<CheckpointNo>,
    /// The signed URLs of the first boot may expire after this: a later launch needs a new plan.
    /// `None`: any time.
    #[serde(default)]
    pub launch_by: Option<Timestamp>,
    /// The kept machine to start again; `None`: a new machine is launched.
    #[serde(default)]
    pub starts: Option<Starts>,
    /// One call launches the machines of all ranks; `None`: this machine alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangLaunch>,
    /// How many machines of its kind are bought after it for other ranks, by calls of their own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub followers: u32,
    /// Tags of the machine: ours and the user's.
    pub tags: BTreeMap<String, String>,
}

impl Plan {
    /// The tags that mark the machine as ours.
    pub fn own_tags(&self) -> impl Iterator<Item = (&String, &String)> {
        self.tags.iter().filter(|(key, _)| key.starts_with(OWN_TAGS))
    }

    /// The tags that the user gave the job.
    pub fn user_tags(&self) -> BTreeMap<String, String> {
        let user = self.tags.iter().filter(|(key, _)| !key.starts_with(OWN_TAGS));
        user.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// How many machines its launch buys at most.
    pub fn machines(&self) -> u32 {
        self.gang.as_ref().map_or(1, |gang| gang.ranks)
    }

    /// How many machines begin with its launch: the caps must have room for all.
    pub fn machines_to_come(&self) -> u32 {
        self.machines().saturating_add(self.followers)
    }

    /// The most that the attempt can cost on any machine that fits it; `None`: unlimited.
    pub fn most_whichever(&self) -> Option<Usd> {
        self.most_usd.map(|most| most.max(self.most_any_usd.unwrap_or(most)))
    }
}

/// As `instance::TAG_PREFIX`, which is a layer above.
const OWN_TAGS: &str = "lamplighter:";

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// For plans of a version without this field.
fn boot() -> Span {
    BOOT
}

/// The machine that a plan starts instead of launching one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Starts {
    /// The machine's last job; the machine carries this job's name until its start.
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub job: JobId,
    pub instance: String,
    /// When the machine was launched first.
    pub launched: Timestamp,
    /// Only the setup on its disk counts: a new machine serves as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_setup: bool,
}

/// The part of a plan in a launch of several machines. Only the plan of rank 0 buys: the plans of
/// the other ranks have its token and find their machines by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct GangLaunch {
    /// The job of rank 0.
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub leader: JobId,
    /// The place of this machine in the launch, from 0.
    pub rank: u32,
    /// How many machines the call launches at most.
    pub ranks: u32,
    /// How many at least; with fewer, it launches none. `None`: all of them or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fewest: Option<u32>,
}

impl GangLaunch {
    /// How many machines the call launches at least.
    pub fn at_least(&self) -> u32 {
        self.fewest.unwrap_or(self.ranks)
    }
}

/// The launch call beside offer, tags and token: nothing of it is decided later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct LaunchRequest {
    /// The image's id; its name, for people.
    pub image: String,
    #[serde(default)]
    pub image_name: Option<String>,
    /// The device of the image's root volume, `/dev/sda1` or `/dev/xvda`.
    pub root_device: String,
    pub disk_gib: u32,
    /// The machine's role; it gives no permission over any machine.
    #[serde(default)]
    pub profile: Option<String>,
    #[serde(default)]
    pub security_groups: Vec<String>,
    #[serde(default)]
    pub subnet: Option<String>,
    #[serde(default)]
    pub key_name: Option<String>,
    /// The effect of a power-off from within. A one-time spot machine can only be terminated.
    pub shutdown: Shutdown,
    /// The cloud's alarm on the machine; `None`: no alarm.
    #[serde(default)]
    #[cfg_attr(feature = "web", schema(value_type = Option<String>))]
    pub alarm: Option<AlarmRule>,
    /// The script of its first boot; holds no secret.
    pub user_data: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Shutdown {
    /// The machine is terminated and its disk deleted.
    #[default]
    Terminate,
    /// The disk stays, and is billed.
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct RejectedOffer {
    pub offer: Offer,
    pub because: String,
}
