//! Other things in an account: leftovers of our machines, and machines that are not ours.

use jiff::Timestamp;
use serde::Serialize;

use crate::job::JobId;
use crate::market::{CloudKind, Market, Region, Usd, UsdPerHour};

/// Our resource that bills or remains although no machine needs it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residue {
    #[serde(skip)]
    pub cloud: CloudKind,
    pub region: Region,
    /// `volume`, `address`, `network interface`, `spot request`, `alarm`.
    pub kind: String,
    pub id: String,
    /// Its size, its state, the job that it was made for.
    pub detail: String,
    pub usd_per_month: Usd,
    /// It carries the owner tag in question.
    pub ours: bool,
    /// It belongs to a machine that was stopped to keep it: it bills, but it is needed.
    pub kept: bool,
    /// The job of its machine, if it is tagged.
    pub job: Option<JobId>,
}

impl Residue {
    pub fn is_removable(&self) -> bool {
        self.ours && !self.kept
    }
}

/// A machine that no `lamp` launched: it has GPUs, or it carries our owner tag by mistake.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForeignMachine {
    pub region: Region,
    pub id: String,
    pub name: Option<String>,
    pub instance_type: String,
    pub market: Market,
    pub launched: Timestamp,
    /// The on-demand price, an upper bound for a spot machine; `None`: unknown.
    pub usd_per_hour: Option<UsdPerHour>,
    /// The cloud's mean over the last 24 hours; `None`: not measured.
    pub cpu_percent: Option<f64>,
    /// The same for its busiest GPU, if an agent on the machine publishes it: no cloud measures
    /// GPUs.
    pub gpu_percent: Option<f64>,
    /// Why it is not ours although it carries our owner tag: tags were added or removed by hand.
    pub odd: Option<String>,
}
