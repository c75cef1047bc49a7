//! Bugs that are planted on purpose, one at a time, to test the laws (`just mutants-sim`).
//!
//! Each bug is in a port: the port asks, reads or stores as a product with that bug would. The
//! product stays the same. Only tests and examples have the feature `planted` (`World::planted`),
//! so `lamp simulate` ships without them.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use crate::instance::{InstanceState, InstanceView};
use crate::job::{Plan, Refusal};
use crate::market::Market;
use crate::ports::CloudError;
use crate::sim::kernel::virtual_time::at;
use crate::sim::laws::laws::CANARY;
use crate::sim::world::world::{OWNER, World};

/// How far a cap is wrong.
const TOO_LATE: SignedDuration = SignedDuration::from_hours(10);

/// The tag of the hard cap.
pub const KILL_AT_TAG: &str = "lamplighter:kill-at";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A repeated call has a new token.
    DropToken,
    /// A repeated call has the same token, but another request.
    RequestDrifts,
    /// A machine that Describe does not show yet counts as gone.
    NotFoundIsGone,
    /// A GPU that cannot be read counts as idle.
    UnknownIsIdle,
    /// The manifest is written before the files.
    ManifestFirst,
    /// Wishes are not read.
    LostCancel,
    /// A spot machine is stopped, not terminated.
    StopSpot,
    /// A machine that shuts down counts as terminated.
    DarkIsGone,
    /// A failed Describe counts as an empty one.
    ErrorIsEmpty,
    /// A launch without an answer counts as refused.
    SilenceIsRefusal,
    /// A plan is overwritten, not created.
    OverwritesPlans,
    /// The owner tag and the token of a machine are ignored.
    ForeignIsOurs,
    /// The next attempt is planned while the last machine still shuts down, and the settlement
    /// comes later.
    NextBeforeGone,
    /// The reason of an end is not recorded.
    ReasonUnwritten,
    /// A restarted agent has lost its state.
    AgentForgets,
    /// Billing begins two minutes before the machine.
    BilledTooEarly,
    /// The hard cap is not in the launch.
    NoCap,
    /// The sweeper sees nothing.
    BlindSweeper,
    /// Foreign tags in a reason.
    SecretInReason,
    /// The time of day is used as the steady clock.
    WallForSteady,
    /// A workload that runs is not found again.
    SecondWorkload,
    /// The reason of an end by the user is not read.
    UserEndIsLost,
    /// The files of a checkpoint are not uploaded.
    FilesNotSent,
    /// The power-off does nothing.
    PowerLost,
    /// The hard cap is counted from the agent's start.
    RelativeDeadline,
    /// Work that holds GPU memory counts as work that uses the GPU.
    MemoryIsWork,
    /// The metadata service is not asked for notices.
    NoticesUnread,
    /// Minutes of an interval are read as days.
    RareSaves,
    /// The hard cap of a launch is ten hours too late.
    CapTooLate,
    /// A raised cap is ten hours too late.
    RaisedTooFar,
    /// A rank whose machine rank 0 launched buys another one.
    RankBuysAgain,
    /// The end of a gang is not read.
    GangEndUnread,
    /// It panics at the first machine that Describe shows. The player catches it, not a law.
    Panics,
}

impl Bug {
    /// Those that break a law in the worlds of gangs.
    pub const OF_GANGS: [Bug; 2] = [Bug::RankBuysAgain, Bug::GangEndUnread];

    /// Those that break a law.
    pub const ALL: [Bug; 30] = [
        Bug::DropToken,
        Bug::RequestDrifts,
        Bug::NotFoundIsGone,
        Bug::UnknownIsIdle,
        Bug::ManifestFirst,
        Bug::LostCancel,
        Bug::StopSpot,
        Bug::DarkIsGone,
        Bug::ErrorIsEmpty,
        Bug::SilenceIsRefusal,
        Bug::OverwritesPlans,
        Bug::ForeignIsOurs,
        Bug::NextBeforeGone,
        Bug::ReasonUnwritten,
        Bug::AgentForgets,
        Bug::BilledTooEarly,
        Bug::NoCap,
        Bug::BlindSweeper,
        Bug::SecretInReason,
        Bug::WallForSteady,
        Bug::SecondWorkload,
        Bug::UserEndIsLost,
        Bug::FilesNotSent,
        Bug::PowerLost,
        Bug::RelativeDeadline,
        Bug::MemoryIsWork,
        Bug::NoticesUnread,
        Bug::RareSaves,
        Bug::CapTooLate,
        Bug::RaisedTooFar,
    ];

    /// The law that must catch it. Other laws may break too.
    pub fn law(self) -> u8 {
        match self {
            Bug::DropToken | Bug::SecondWorkload | Bug::RankBuysAgain => 1,
            Bug::NoCap | Bug::CapTooLate | Bug::RaisedTooFar => 2,
            Bug::BlindSweeper | Bug::PowerLost | Bug::MemoryIsWork => 3,
            Bug::WallForSteady | Bug::RelativeDeadline => 4,
            Bug::ForeignIsOurs => 5,
            Bug::AgentForgets => 6,
            Bug::UnknownIsIdle => 7,
            Bug::NotFoundIsGone | Bug::DarkIsGone | Bug::SilenceIsRefusal => 8,
            Bug::NextBeforeGone => 9,
            Bug::RequestDrifts => 10,
            Bug::ManifestFirst | Bug::FilesNotSent => 11,
            Bug::NoticesUnread | Bug::RareSaves => 12,
            Bug::StopSpot => 13,
            Bug::LostCancel | Bug::UserEndIsLost => 14,
            // The second check by token prevents a wrong settlement, but the end time is still
            // wrong.
            Bug::BilledTooEarly | Bug::ErrorIsEmpty => 15,
            Bug::OverwritesPlans => 16,
            Bug::ReasonUnwritten => 19,
            Bug::SecretInReason => 20,
            Bug::GangEndUnread => 22,
            Bug::Panics => 0,
        }
    }
}

/// The plan that the launch sends.
pub fn asked_for<'a>(world: &World, plan: &'a Plan) -> Cow<'a, Plan> {
    let mut plan = Cow::Borrowed(plan);
    match world.planted() {
        // After a refusal there is no machine to duplicate.
        Some(Bug::DropToken) if world.ec2.knows(&plan.client_token) => {
            plan.to_mut().client_token =
                format!("{}-{}", plan.client_token, world.timeline.now().as_millis())
        }
        Some(Bug::RequestDrifts) if world.ec2.knows(&plan.client_token) => drop(
            plan.to_mut()
                .tags
                .insert("asked-at".into(), world.timeline.now().as_millis().to_string()),
        ),
        // Alone, and with another token.
        Some(Bug::RankBuysAgain) if plan.gang.as_ref().is_some_and(|gang| gang.rank > 0) => {
            let plan = plan.to_mut();
            (plan.gang, plan.client_token) = (None, format!("{}-again", plan.client_token));
        }
        Some(Bug::NoCap) => drop(plan.to_mut().tags.remove(KILL_AT_TAG)),
        Some(Bug::CapTooLate) => {
            let late = |cap: &mut String| {
                *cap = cap
                    .parse()
                    .map_or_else(|_| cap.clone(), |cap: Timestamp| (cap + TOO_LATE).to_string())
            };
            plan.to_mut().tags.get_mut(KILL_AT_TAG).into_iter().for_each(late);
        }
        _ => {}
    }
    plan
}

/// The answer to a launch, as the product reads it.
pub fn launched(world: &World, answer: Result<String, CloudError>) -> Result<String, CloudError> {
    let refused = |refusal| Err(CloudError::NoCapacity { what: "planted".into(), refusal });
    match (world.planted(), &answer) {
        (Some(Bug::SilenceIsRefusal), Err(CloudError::Ambiguous { .. })) => {
            refused(Refusal::Capacity)
        }
        (Some(Bug::NotFoundIsGone), Ok(id))
            if !world.ec2.views(OWNER, Duration::ZERO).iter().any(|view| view.id == *id) =>
        {
            refused(Refusal::Spent)
        }
        _ => answer,
    }
}

/// The answer of Describe, as the product reads it.
pub fn described(
    world: &World,
    by: &str,
    answer: Result<Vec<InstanceView>, CloudError>,
) -> Result<Vec<InstanceView>, CloudError> {
    let Some(bug) = world.planted() else { return answer };
    if bug == Bug::ErrorIsEmpty {
        return Ok(answer.unwrap_or_default());
    }
    let mut views = answer?;
    if bug == Bug::ForeignIsOurs {
        let foreign = world.ec2.views("somebody else", Duration::ZERO);
        views.extend(foreign.into_iter().map(|view| InstanceView { client_token: None, ..view }));
    }
    for view in &mut views {
        match bug {
            Bug::DarkIsGone | Bug::NextBeforeGone
                if !view.state.bills() && view.state != InstanceState::Stopped =>
            {
                view.state = InstanceState::Terminated
            }
            Bug::ForeignIsOurs => view.tags.owner = OWNER.into(),
            Bug::Panics => panic!("planted"),
            Bug::BilledTooEarly => view.launched -= SignedDuration::from_mins(2),
            Bug::SecretInReason => {
                view.state_reason.iter_mut().for_each(|reason| reason.push_str(CANARY))
            }
            Bug::UserEndIsLost => {
                view.state_reason =
                    view.state_reason.take().filter(|reason| !reason.starts_with("Client.User"))
            }
            _ => {}
        }
    }
    if bug == Bug::BlindSweeper && by == "sweeper" {
        views.clear();
    }
    Ok(views)
}

/// The hard cap that the product sets.
pub fn raised(world: &World, kill_at: Timestamp) -> Timestamp {
    if world.planted() == Some(Bug::RaisedTooFar) { kill_at + TOO_LATE } else { kill_at }
}

/// Whether the product stops a machine in place of terminating it.
pub fn stops(world: &World, id: &str) -> bool {
    world.planted() == Some(Bug::StopSpot)
        && world.ec2.with(id, |machine| machine.offer.market) == Some(Market::Spot)
}

/// The writes that replace one write, in order.
pub fn written(world: &World, key: &str, body: Bytes) -> Vec<(String, Bytes)> {
    let (waits, goes) = match world.planted() {
        Some(Bug::ManifestFirst) => (
            key.contains("/checkpoints/") && !key.ends_with("manifest.json"),
            key.ends_with("/manifest.json"),
        ),
        Some(Bug::NextBeforeGone) => (
            key.ends_with("/settled.json"),
            key.ends_with("/plan.json") || key.ends_with("/receipt.json"),
        ),
        Some(Bug::ReasonUnwritten) if key.ends_with("/ending.json") => return Vec::new(),
        _ => (false, false),
    };
    let mut held = world.held_back();
    if waits {
        // A second writer replaces the held write.
        held.retain(|(before, _)| before != key);
        held.push((key.to_owned(), body));
        return Vec::new();
    }
    if !goes {
        return vec![(key.to_owned(), body)];
    }
    std::iter::once((key.to_owned(), body)).chain(held.drain(..)).collect()
}

/// Whether the product sees the objects below a key.
pub fn sees(world: &World, by: &str, prefix: &str) -> bool {
    world.planted() != Some(Bug::LostCancel) || by == "user" || !prefix.contains("/requests/")
}

/// A record as the product reads it. `None`: it does not.
pub fn read(world: &World, key: &str, body: Bytes) -> Option<Bytes> {
    match world.planted() {
        Some(Bug::RareSaves) if key.ends_with("/spec.json") => {
            let text = String::from_utf8_lossy(&body)
                .replace(r#""interval": "2m""#, r#""interval": "48h""#);
            Some(Bytes::from(text))
        }
        Some(Bug::GangEndUnread) if key.ends_with("/gang/end.json") => None,
        _ => Some(body),
    }
}

/// The steady clock of a machine.
pub fn steady(world: &World, wall: impl FnOnce() -> Timestamp) -> Duration {
    match world.planted() {
        // A clock that is set back goes back. Two days more keep the result positive.
        Some(Bug::WallForSteady) => {
            let since = wall().duration_since(at(Duration::ZERO)) + SignedDuration::from_hours(48);
            Duration::try_from(since).unwrap_or_default()
        }
        _ => world.timeline.now(),
    }
}

/// The hard cap that the agent reads from the machine's tags.
pub fn kill_at(world: &World, set: &str, launched: Timestamp) -> Option<String> {
    let set: Timestamp =
        set.parse().ok().filter(|_| world.planted() == Some(Bug::RelativeDeadline))?;
    Some((world.timeline.wall() + set.duration_since(launched)).to_string())
}
