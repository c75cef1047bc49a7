//! What the false cloud does to machines, and to the calls of a controller.

use std::time::Duration;

use jiff::Timestamp;
use lamplighter::instance::{InstanceState, InstanceView, Status, Tags};
use lamplighter::job::{AttemptPhase, EndedBecause, Plan};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{Market, Region, Span};
use lamplighter::ports::Clock;

use crate::cloud::FakeCloud;
use crate::dir_of;

/// Of an agent that is silent for longer, a controller would take the machine away.
const HEARD_SECS: u64 = 600;

/// Between two heartbeats of an agent whose controller goes by what they say.
const BEAT_SECS: u64 = 15;

pub const UNMEASURED_AFTER: u64 = 300;

impl FakeCloud {
    /// The work of an agent that is heard of all the while.
    pub(super) async fn works(&self, plan: &Plan, instance: &str, started: Timestamp, secs: u64) {
        for beat in 1..=secs / HEARD_SECS {
            self.clock.sleep(Duration::from_secs(HEARD_SECS)).await;
            self.beat(plan, instance, started, 1 + beat).await;
        }
        self.clock.sleep(Duration::from_secs(secs % HEARD_SECS)).await;
    }

    /// Hears of nothing, and beats.
    pub(super) async fn goes_on(&self, plan: &Plan, instance: &str, started: Timestamp) {
        let mut beat = 1;
        while self.running().iter().any(|id| id == instance) {
            self.clock.sleep(Duration::from_secs(30)).await;
            beat += 1;
            self.beat(plan, instance, started, beat).await;
        }
    }

    /// Beats, and says for so long that its measurements arrive nowhere; then for five minutes that
    /// they do, or nothing.
    pub(super) async fn is_unmeasured(
        &self,
        plan: &Plan,
        instance: &str,
        started: Timestamp,
        (secs, falls_silent): (u64, bool),
    ) {
        for beat in 1..=(UNMEASURED_AFTER + secs + if falls_silent { 0 } else { 300 }) / BEAT_SECS {
            self.clock.sleep(Duration::from_secs(BEAT_SECS)).await;
            let unmeasured =
                (UNMEASURED_AFTER..UNMEASURED_AFTER + secs).contains(&(beat * BEAT_SECS));
            let status = Status { unmeasured, ..self.status(instance, started, 1 + beat) };
            dir_of(&self.dir, plan).put_status(plan.attempt, &status, false).await.unwrap();
        }
        if !falls_silent {
            self.outcome(plan, instance, started, EndedBecause::Succeeded, Some(0)).await;
            self.end(instance, "Client.InstanceInitiatedShutdown: done");
        }
    }

    /// Says that it is at its end.
    pub(super) async fn drains(&self, plan: &Plan, instance: &str, started: Timestamp, beat: u64) {
        let status =
            Status { phase: AttemptPhase::Draining, ..self.status(instance, started, beat) };
        dir_of(&self.dir, plan).put_status(plan.attempt, &status, false).await.unwrap();
    }
}

/// What becomes of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Life {
    /// The workload ends with this code after so many seconds, and the agent puts the machine out.
    Ends { secs: u64, code: i32 },
    /// As [`Life::Ends`], and the machine is stopped and kept.
    Stops { secs: u64, code: i32 },
    /// The power is cut after so many seconds; the agent had written a checkpoint.
    Taken { secs: u64 },
    /// The power is cut before the agent has said anything.
    TakenYoung { secs: u64 },
    /// After five minutes its measurements arrive nowhere, for so many seconds; then they do again
    /// and it ends well, or its agent has fallen silent.
    Unmeasured { secs: u64, falls_silent: bool },
    /// It runs, and no agent ever says a word.
    NeverSpeaks,
    /// The agent falls silent after its first words, and the machine runs on.
    FallsSilent,
    /// The agent writes its outcome, and the power-off does not work.
    NeverDark,
    /// Somebody ends it in the cloud's own console.
    EndedByHand { secs: u64 },
    /// It trains until it is told to end.
    Endless,
    /// It trains and beats, and is told of nothing.
    Deaf,
    /// It starts for so long, then works at what all machines of the job work at together, saving
    /// every ten minutes; on the spot market it is taken when there is no capacity.
    Works { start_secs: u64 },
    /// As [`Life::Endless`]; then it saves for so many seconds, and its power-off does not work.
    SavesLong { secs: u64 },
}

/// What a call of the controller meets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CloudFault {
    /// Nothing is done.
    Down,
    /// It is done, and the reply is lost.
    LostReply,
    NoCapacity,
    Invalid,
    Denied,
    /// The session is over: nobody knows who asks.
    SignedOut,
    Quota,
    Verifying,
    Disks,
    /// Nothing is done, for there were too many calls.
    Throttled,
    /// It is done by another request of the same token; and whether the cloud shows its machine
    /// already.
    Mismatch {
        shown: bool,
    },
}

pub fn tags_of(dir: &JobDir) -> Tags {
    let (lease, boot) = (Span::from_secs(1800), lamplighter::job::BOOT);
    Tags {
        owner: "me".into(),
        job: dir.job().clone(),
        attempt: lamplighter::job::AttemptNo::FIRST,
        lease,
        boot,
        kill_at: None,
    }
}

/// A machine that was launched just now.
pub fn view(id: &str, tags: Tags, token: &str, now: Timestamp) -> InstanceView {
    InstanceView {
        id: id.into(),
        cloud: Default::default(),
        region: Region::new("local"),
        instance_type: "t".into(),
        market: Market::Spot,
        state: InstanceState::Running,
        tags,
        client_token: Some(token.into()),
        launched: now,
        ended: None,
        state_reason: None,
    }
}
