//! Bugs that are planted on purpose, one at a time, to see that the laws catch them
//! (`just mutants-sim`).
//!
//! Each sits where the product meets the world: its port asks, reads or remembers as a product with
//! that bug would. Nothing of the product is changed for it; and `lamp simulate` ships the false
//! world without them: they are there with the feature `planted` alone, which tests and examples
//! have (`World::planted`). Not here: a bug that no hasty change could bring.

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

/// By so much a cap is wrong.
const TOO_LATE: SignedDuration = SignedDuration::from_hours(10);

/// The tag of the hard cap.
pub const KILL_AT_TAG: &str = "lamplighter:kill-at";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A call that is repeated has a token of its own.
    DropToken,
    /// A call that is repeated has the same token, and another request.
    RequestDrifts,
    /// A machine that Describe does not show yet is gone.
    NotFoundIsGone,
    /// A GPU that cannot be seen is an idle one.
    UnknownIsIdle,
    /// The manifest before the files.
    ManifestFirst,
    /// Wishes are not read.
    LostCancel,
    /// A spot machine is stopped, not ended.
    StopSpot,
    /// Shutting down is as good as gone.
    DarkIsGone,
    /// A Describe that fails shows no machines.
    ErrorIsEmpty,
    /// A launch without an answer was refused.
    SilenceIsRefusal,
    /// A plan is written, not created.
    OverwritesPlans,
    /// Whose a machine is, is not looked at: neither its owner nor the token that it came by.
    ForeignIsOurs,
    /// The next attempt is planned while the last machine is on its way out, and what became of
    /// that is written afterwards.
    NextBeforeGone,
    /// Why a machine is ended is written down nowhere.
    ReasonUnwritten,
    /// An agent that comes back remembers nothing.
    AgentForgets,
    /// Billing begins two minutes before the machine.
    BilledTooEarly,
    /// The hard cap is not in the launch.
    NoCap,
    /// The sweeper sees nothing.
    BlindSweeper,
    /// Foreign tags in a reason.
    SecretInReason,
    /// The time of day in place of the steady clock.
    WallForSteady,
    /// A workload that runs is not found again.
    SecondWorkload,
    /// Who ended the machine is not read.
    UserEndIsLost,
    /// A checkpoint's files are not sent.
    FilesNotSent,
    /// The power switch does nothing.
    PowerLost,
    /// The hard cap is counted from the agent's start.
    RelativeDeadline,
    /// Work that holds memory of a GPU counts as work that uses it.
    MemoryIsWork,
    /// The metadata service is not asked for notices.
    NoticesUnread,
    /// Minutes of an interval are read as days.
    RareSaves,
    /// The hard cap of a launch is ten hours too late.
    CapTooLate,
    /// A cap that is raised is raised by ten hours more than was asked for.
    RaisedTooFar,
    /// It panics at the first answer of Describe that shows a machine. No law can see that: whoever
    /// plays the world must.
    Panics,
}

impl Bug {
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

    /// The law that must catch it: another one sees what came of it, or how it was planted.
    pub fn law(self) -> u8 {
        match self {
            Bug::DropToken | Bug::SecondWorkload => 1,
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
            // The second look, by the token, keeps what it does not see from being settled; when
            // that ended is misread all the same.
            Bug::BilledTooEarly | Bug::ErrorIsEmpty => 15,
            Bug::OverwritesPlans => 16,
            Bug::ReasonUnwritten => 19,
            Bug::SecretInReason => 20,
            Bug::Panics => 0,
        }
    }
}

/// The plan as it is asked for.
pub fn asked_for<'a>(world: &World, plan: &'a Plan) -> Cow<'a, Plan> {
    let mut plan = Cow::Borrowed(plan);
    match world.planted() {
        // What was refused has left nothing that could be there twice.
        Some(Bug::DropToken) if world.ec2.knows(&plan.client_token) => {
            plan.to_mut().client_token =
                format!("{}-{}", plan.client_token, world.timeline.now().as_millis())
        }
        Some(Bug::RequestDrifts) if world.ec2.knows(&plan.client_token) => drop(
            plan.to_mut()
                .tags
                .insert("asked-at".into(), world.timeline.now().as_millis().to_string()),
        ),
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

/// What is made of the answer to a launch.
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

/// What is made of an answer of Describe.
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

/// What a hard cap is raised to.
pub fn raised(world: &World, kill_at: Timestamp) -> Timestamp {
    if world.planted() == Some(Bug::RaisedTooFar) { kill_at + TOO_LATE } else { kill_at }
}

/// Whether a machine that is to be ended is stopped.
pub fn stops(world: &World, id: &str) -> bool {
    world.planted() == Some(Bug::StopSpot)
        && world.ec2.with(id, |machine| machine.offer.market) == Some(Market::Spot)
}

/// What reaches the store instead of one object, in order.
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
        // Whoever else writes it down does not do so twice.
        held.retain(|(before, _)| before != key);
        held.push((key.to_owned(), body));
        return Vec::new();
    }
    if !goes {
        return vec![(key.to_owned(), body)];
    }
    std::iter::once((key.to_owned(), body)).chain(held.drain(..)).collect()
}

/// Whether what is listed below a key is seen.
pub fn sees(world: &World, by: &str, prefix: &str) -> bool {
    world.planted() != Some(Bug::LostCancel) || by == "user" || !prefix.contains("/requests/")
}

/// The spec of a job as an agent reads it.
pub fn read(world: &World, key: &str, body: Bytes) -> Bytes {
    if world.planted() != Some(Bug::RareSaves) || !key.ends_with("/spec.json") {
        return body;
    }
    let text =
        String::from_utf8_lossy(&body).replace(r#""interval": "2m""#, r#""interval": "48h""#);
    Bytes::from(text)
}

/// The steady clock of a machine whose time of day is so far off.
pub fn steady(world: &World, wall: impl FnOnce() -> Timestamp) -> Duration {
    match world.planted() {
        // A clock that is set back goes back; a day of room keeps it a length.
        Some(Bug::WallForSteady) => {
            let since = wall().duration_since(at(Duration::ZERO)) + SignedDuration::from_hours(48);
            Duration::try_from(since).unwrap_or_default()
        }
        _ => world.timeline.now(),
    }
}

/// The hard cap as the machine's tags tell it to the agent.
pub fn kill_at(world: &World, set: &str, launched: Timestamp) -> Option<String> {
    let set: Timestamp =
        set.parse().ok().filter(|_| world.planted() == Some(Bug::RelativeDeadline))?;
    Some((world.timeline.wall() + set.duration_since(launched)).to_string())
}
