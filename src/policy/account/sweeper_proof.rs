//! Whether a proof must try the sweeper, and the value of a sweep by another program.
//!
//! ```text
//!   function, schedule, time of the newest visit ─> Expected ─> is a sweep tried? what is
//!                                                               reported?
//! ```
//! A proof must find a sweeper that is installed but has stopped. Such a sweeper is therefore tried
//! too. `policy::account::sweeper_plan` judges its settings. This module makes no calls.

use std::time::Duration;

use jiff::Timestamp;

use crate::account::lookup::Found;
use crate::account::sweeper::{FunctionFound, ScheduleFound};
use crate::job::{Switch, Tried};
use crate::market::elapsed;

/// Three visits, at one every five minutes. With less, one late call by AWS counts as missing. With
/// more, a daemon's sweep hides a stopped sweeper.
const VISITED_WITHIN: Duration = Duration::from_secs(15 * 60);

#[derive(Clone, Debug)]
pub struct SweeperFacts {
    pub name: String,
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
    /// It is installed or was here before, but does not come; the text for the user.
    Missing(String),
    /// It serves another job root and never came to this one.
    Elsewhere(String),
    /// This job root and region show no sweeper.
    Nobody,
    Unknown(String),
}

impl Expected {
    /// Whether the proof must leave a machine to it.
    pub fn is_tried(&self) -> bool {
        matches!(self, Expected::Comes | Expected::Missing(_))
    }
}

pub fn expected(facts: &SweeperFacts, now: Timestamp) -> Expected {
    let SweeperFacts { name, function, schedule, .. } = facts;
    match &facts.came {
        // A recent visit counts wherever it is installed. A sweeper that came once and is gone
        // counts as broken.
        Ok(Some(at)) if elapsed(*at, now) <= VISITED_WITHIN => return Expected::Comes,
        Ok(Some(at)) => {
            return Expected::Missing(format!(
                "{name} has not come since {at:.0}, and should come every five minutes"
            ));
        }
        Ok(None) | Err(_) => {}
    }
    let root =
        function.there().and_then(|function| function.settings.environment.get("LAMP_JOB_ROOT"));
    let elsewhere =
        root.filter(|root| root.trim_end_matches('/') != facts.job_root.trim_end_matches('/'));
    let is_installed = function.there().is_some() || schedule.there().is_some();
    match (&facts.came, function, schedule) {
        (Ok(_), ..) if let Some(root) = elsewhere => Expected::Elsewhere(format!(
            "{name} looks after {root}, and not after {}",
            facts.job_root
        )),
        (Ok(_), ..) if is_installed => {
            Expected::Missing(format!("{name} is installed, and has not come yet"))
        }
        (Err(why), ..) if is_installed && elsewhere.is_none() => Expected::Missing(format!(
            "{name} is installed, and when it came last cannot be read: {why}"
        )),
        (Err(why), ..) | (_, Found::Unknown(why), _) | (.., Found::Unknown(why)) => {
            Expected::Unknown(why.clone())
        }
        _ => Expected::Nobody,
    }
}

/// Whether another program than this owner's sweeper, of the name `own`, ended the machine of a
/// sweep.
pub fn is_by_another(tried: &Tried, own: &str) -> bool {
    tried.switch == Switch::Sweep && tried.proven && tried.sweeper() != Some(own)
}

/// A sweep by another program proves nothing if the owner's sweeper was due and missing. It would
/// hide that for as long as the proof holds. `before` and `after` the trial; an unreadable state
/// counts as missing if it was missing before.
pub fn stands_in(mut tried: Tried, before: &Expected, after: &Expected) -> Tried {
    let missing = match (before, after) {
        (_, Expected::Missing(missing)) | (Expected::Missing(missing), Expected::Unknown(_)) => {
            missing
        }
        _ => return tried,
    };
    tried.proven = false;
    tried.said = format!("{}; but {missing}", tried.said);
    tried
}
