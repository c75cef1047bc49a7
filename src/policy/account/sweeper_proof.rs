//! Whether a proof must try a sweeper: what was found of it in the account and in the job root, and what a sweep by somebody else
//! is then worth.
//!
//! ```text
//!   function, schedule, when the newest visit was recorded ──> Expected ──> is a sweep tried, and what is said of it?
//! ```
//! A sweeper that is installed and has stopped is what a proof is there to find: it is tried whether it comes or not. What must
//! never live here: a call, whether the sweeper is as it should be (`policy::account::sweeper_plan`).

use std::time::Duration;

use jiff::Timestamp;

use crate::account::setup::Found;
use crate::account::sweeper::{FunctionFound, ScheduleFound};
use crate::job::{Switch, Tried};
use crate::market::elapsed;

/// A sweeper comes every five minutes. Less than three of its visits, and one that AWS called late is told of as missing; more, and
/// a daemon's sweep stands in for one that has stopped.
const VISITED_WITHIN: Duration = Duration::from_secs(15 * 60);

/// What can be known of a sweeper before a proof.
#[derive(Clone, Debug)]
pub struct SweeperFacts {
    pub name: String,
    /// The job root of the proof.
    pub job_root: String,
    pub function: Found<FunctionFound>,
    pub schedule: Found<ScheduleFound>,
    /// When its newest visit was recorded in that job root; `None`: it never came.
    pub came: Result<Option<Timestamp>, String>,
}

/// Whether a sweeper should end a machine of this job root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It came just now.
    Comes,
    /// It is installed, or was here once, and does not come: how that is said.
    Missing(String),
    /// It looks after another job root, and never came to this one.
    Elsewhere(String),
    /// The account has never had one, as far as this job root and this region go.
    Nobody,
    /// Why it could not be read whether there is one.
    Unknown(String),
}

impl Expected {
    /// Whether a machine must be left to it.
    pub fn is_tried(&self) -> bool {
        matches!(self, Expected::Comes | Expected::Missing(_))
    }
}

pub fn expected(facts: &SweeperFacts, now: Timestamp) -> Expected {
    let SweeperFacts { name, function, schedule, .. } = facts;
    match &facts.came {
        // Wherever it is installed, that it comes is what counts; and one that came once and is gone is as broken as one that hangs.
        Ok(Some(at)) if elapsed(*at, now) <= VISITED_WITHIN => return Expected::Comes,
        Ok(Some(at)) => return Expected::Missing(format!("{name} has not come since {at:.0}, and should come every five minutes")),
        Ok(None) | Err(_) => {}
    }
    let root = function.there().and_then(|function| function.settings.environment.get("LAMP_JOB_ROOT"));
    let elsewhere = root.filter(|root| root.trim_end_matches('/') != facts.job_root.trim_end_matches('/'));
    let is_installed = function.there().is_some() || schedule.there().is_some();
    match (&facts.came, function, schedule) {
        (Ok(_), ..) if let Some(root) = elsewhere => Expected::Elsewhere(format!("{name} looks after {root}, and not after {}", facts.job_root)),
        (Ok(_), ..) if is_installed => Expected::Missing(format!("{name} is installed, and has not come yet")),
        (Err(why), ..) if is_installed && elsewhere.is_none() => {
            Expected::Missing(format!("{name} is installed, and when it came last cannot be read: {why}"))
        }
        (Err(why), ..) | (_, Found::Unknown(why), _) | (.., Found::Unknown(why)) => Expected::Unknown(why.clone()),
        _ => Expected::Nobody,
    }
}

/// Whether somebody else than this owner's sweeper in the cloud ended the machine of a sweep.
pub fn is_by_another(tried: &Tried, own: &str) -> bool {
    tried.switch == Switch::Sweep && tried.proven && !tried.said.starts_with(own)
}

/// What a sweep by another is worth: nothing, where a sweeper should have come and did not. Its daemon or its user's hand would hide
/// that for as long as the proof holds. `before` and `after` the trial; what could no longer be read has not come.
pub fn stands_in(mut tried: Tried, before: &Expected, after: &Expected) -> Tried {
    let missing = match (before, after) {
        (_, Expected::Missing(missing)) | (Expected::Missing(missing), Expected::Unknown(_)) => missing,
        _ => return tried,
    };
    tried.proven = false;
    tried.said = format!("{}; but {missing}", tried.said);
    tried
}
