//! What the sweeper in the cloud leaves in the job root: whom it suspects, and what its newest visit came to.
//!
//! A visit is one round of the sweeper. What must never live here: an opinion about what an orphan is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::instance::MachineRef;
use crate::job::{AttemptNo, JobId, RECORD_FORMAT};
use crate::market::{Cloud, Region};

/// `sweeper/<name>/suspects.json`: orphans by one look, for the second look of a later visit. Overwritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspects {
    pub format: u32,
    pub suspects: Vec<Suspect>,
}

/// A machine that was an orphan by one look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    pub machine: MachineRef,
    /// The first look, by the store's clock.
    pub since: Timestamp,
    pub why: String,
}

/// `sweeper/<name>/visit.json`: the newest visit. Overwritten; the object's own time says when it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    pub format: u32,
    pub at: Timestamp,
    /// Of the program that came.
    pub version: String,
    pub owner: String,
    /// Places that answered, and machines of ours that bill there.
    pub regions: u32,
    pub machines: u32,
    /// How many of them could be told from an orphan, or for one. `None`: the program is older than the question.
    #[serde(default)]
    pub judged: Option<u32>,
    /// When a visit last was none that judged nothing though machines of ours billed. `None`: nobody knows.
    #[serde(default)]
    pub judged_at: Option<Timestamp>,
    /// Orphans by their first look.
    pub suspects: Vec<Suspect>,
    pub ended: Vec<Ended>,
    /// Machines that have stood still for so long that they seem forgotten, and whose disks bill on.
    #[serde(default)]
    pub kept: Vec<Standing>,
    /// Machines that should have ended and may run on.
    pub trouble: Vec<Trouble>,
    /// What could not be seen.
    pub unknown: Vec<Trouble>,
    /// Where this visit looked, for the one after it: a cloud that does not say which regions there are is still looked at there.
    #[serde(default)]
    pub places: Vec<Place>,
}

/// A region of a cloud.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub cloud: Cloud,
    pub region: Region,
}

/// A machine whose end was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub machine: MachineRef,
    pub job: JobId,
    pub attempt: AttemptNo,
    pub why: String,
}

/// A machine that is stopped and kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    pub machine: MachineRef,
    pub job: JobId,
    /// Since when, by the cloud; or when its agent was heard last, where the cloud does not say.
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    pub what: String,
    pub why: String,
}

impl Visit {
    pub fn new(at: Timestamp, version: &str, owner: &str) -> Self {
        Visit {
            format: RECORD_FORMAT,
            at,
            version: version.to_owned(),
            owner: owner.to_owned(),
            regions: 0,
            machines: 0,
            judged: Some(0),
            judged_at: None,
            suspects: Vec::new(),
            ended: Vec::new(),
            kept: Vec::new(),
            trouble: Vec::new(),
            unknown: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Somebody should look: nothing was seen at all, no machine could be judged, or one that should have ended may run on.
    pub fn is_sick(&self) -> bool {
        self.sees_nobody() || !self.trouble.is_empty()
    }

    /// No region answered, or it [is blind](Visit::is_blind).
    pub fn sees_nobody(&self) -> bool {
        self.regions == 0 || self.is_blind()
    }

    /// Machines of ours bill, and of none could it be said whether it is an orphan: a hung one would live to its hard cap.
    pub fn is_blind(&self) -> bool {
        self.machines > 0 && self.judged == Some(0)
    }
}
