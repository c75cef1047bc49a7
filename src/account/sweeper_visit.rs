//! The sweeper's records in the job root: its suspects and the result of its newest visit.
//!
//! A visit is one run of the sweeper. Other modules define what an orphan is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::instance::MachineRef;
use crate::job::{AttemptNo, JobId, RECORD_FORMAT};
use crate::market::{CloudKind, Region};

/// `sweeper/<name>/suspects.json`: orphans after one look, for the second look of a later visit.
/// Overwritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspects {
    pub format: u32,
    pub suspects: Vec<Suspect>,
}

/// A machine that looked like an orphan once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    pub machine: MachineRef,
    /// Time of the first look, by the store's clock.
    pub since: Timestamp,
    pub why: String,
}

/// `sweeper/<name>/visit.json`: the newest visit. Overwritten; the object's own time dates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    pub format: u32,
    pub at: Timestamp,
    /// Version of the sweeper's program.
    pub version: String,
    pub owner: String,
    /// Regions that answered, and our billing machines there.
    pub regions: u32,
    pub machines: u32,
    /// How many of them could be judged as orphan or not. `None`: written by an older program.
    #[serde(default)]
    pub judged: Option<u32>,
    /// The last visit that judged a machine, or found none that bill. `None`: unknown.
    #[serde(default)]
    pub judged_at: Option<Timestamp>,
    /// Orphans at their first look.
    pub suspects: Vec<Suspect>,
    pub ended: Vec<EndedMachine>,
    /// Machines stopped for so long that they seem forgotten, and whose disks still bill.
    #[serde(default)]
    pub kept: Vec<StoppedMachine>,
    /// Machines that should have ended and may still run.
    pub trouble: Vec<Trouble>,
    /// Regions and records that could not be read.
    pub unknown: Vec<Trouble>,
    /// Where this visit looked. If a cloud does not list its regions, the next visit looks there
    /// again.
    #[serde(default)]
    pub places: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub cloud: CloudKind,
    pub region: Region,
}

/// A machine that the sweeper asked the cloud to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedMachine {
    pub machine: MachineRef,
    pub job: JobId,
    pub attempt: AttemptNo,
    pub why: String,
}

/// A machine that is stopped and kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedMachine {
    pub machine: MachineRef,
    pub job: JobId,
    /// The cloud's date of the stop; if it gives none, the last heartbeat.
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

    /// A person should look: the visit saw or judged no machine, or one that should have ended may
    /// still run.
    pub fn is_sick(&self) -> bool {
        self.sees_nobody() || !self.trouble.is_empty()
    }

    /// No region answered, or the visit [is blind](Visit::is_blind).
    pub fn sees_nobody(&self) -> bool {
        self.regions == 0 || self.is_blind()
    }

    /// Our machines bill, but the visit could judge none. A hung one would run until its hard cap.
    pub fn is_blind(&self) -> bool {
        self.machines > 0 && self.judged == Some(0)
    }
}
