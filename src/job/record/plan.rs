//! A chosen offer with reasons: the intent that is recorded before the machine is bought.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{AlarmRule, AttemptNo, BOOT, CheckpointNo, JobId, Starts};
use crate::market::{Offer, Span, Usd, UsdPerHour};

/// `attempts/<n>/plan.json`, created only if absent: whoever creates it owns the attempt.
///
/// It holds all that the launch call needs, so that a retry after a crash repeats the same request byte for byte and
/// cannot buy a second machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub format: u32,
    pub job: JobId,
    pub attempt: AttemptNo,
    pub created: Timestamp,
    /// The controller that created it, for people.
    pub controller: String,
    pub offer: Offer,
    /// Why this offer, in sentences.
    pub reasons: Vec<String>,
    #[serde(default)]
    pub rejected: Vec<RejectedOffer>,
    /// The most that an hour of a spot machine may cost.
    #[serde(default)]
    pub bid: Option<UsdPerHour>,
    /// The rest of the launch call, where the cloud wants more than the offer says.
    #[serde(default)]
    pub launch: Option<LaunchRequest>,
    /// The most that this attempt can cost; `None` when nothing bounds its time and it has a price.
    pub most_usd: Option<Usd>,
    /// The most that an attempt can cost that takes any of the other machines that fit in its place. `None`: nothing bounds it,
    /// or the plan is of a version that did not say it.
    #[serde(default)]
    pub most_any_usd: Option<Usd>,
    /// The most that the whole job can cost from this attempt on, with every machine that may follow on it. `None`: nothing bounds
    /// it, or the plan is of a version that did not say it.
    #[serde(default)]
    pub most_job_usd: Option<Usd>,
    /// The idempotency token of the launch call.
    pub client_token: String,
    /// The hard cap on the machine's life, set once.
    #[serde(default)]
    pub kill_at: Option<Timestamp>,
    /// How long the machine may live without a heartbeat.
    pub lease: Span,
    /// How long it may live before its agent has said a word.
    #[serde(default = "boot")]
    pub boot: Span,
    /// The newest complete checkpoint when the plan was made; the agent looks again.
    #[serde(default)]
    pub resume_from: Option<CheckpointNo>,
    /// What its first boot fetches is signed until a boot after this: later, it is planned anew and not launched. `None`: at
    /// any time.
    #[serde(default)]
    pub launch_by: Option<Timestamp>,
    /// The kept machine that is started again; `None`: a new one is launched.
    #[serde(default)]
    pub starts: Option<Starts>,
    /// Tags of the machine.
    pub tags: BTreeMap<String, String>,
}

impl Plan {
    /// The most that the attempt can cost, whichever of the machines that fit it gets in the end; `None`: nothing bounds it.
    pub fn most_whichever(&self) -> Option<Usd> {
        self.most_usd.map(|most| most.max(self.most_any_usd.unwrap_or(most)))
    }
}

/// Of a plan from before it could be said.
fn boot() -> Span {
    BOOT
}

/// What a machine is launched with, beside its offer, tags and token: nothing of the launch call is decided later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRequest {
    /// The image's id, and its name for people.
    pub image: String,
    #[serde(default)]
    pub image_name: Option<String>,
    /// The device of the image's root volume, `/dev/sda1` or `/dev/xvda`.
    pub root_device: String,
    pub disk_gib: u32,
    /// The name of the role that the machine has; it holds no right over any machine.
    #[serde(default)]
    pub profile: Option<String>,
    #[serde(default)]
    pub security_groups: Vec<String>,
    #[serde(default)]
    pub subnet: Option<String>,
    #[serde(default)]
    pub key_name: Option<String>,
    /// What the machine does when it powers itself off. A one-time spot machine can only be terminated.
    pub shutdown: Shutdown,
    /// What the cloud itself watches of it; `None`: nothing.
    #[serde(default)]
    pub alarm: Option<AlarmRule>,
    /// The script of its first boot; holds no secret.
    pub user_data: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shutdown {
    /// The machine is gone, disk and all.
    #[default]
    Terminate,
    /// The disk stays, and is billed.
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedOffer {
    pub offer: Offer,
    pub because: String,
}
