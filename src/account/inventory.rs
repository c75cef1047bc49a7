//! What else stands in an account: what our machines left behind, and machines that are not ours.

use jiff::Timestamp;
use serde::Serialize;

use crate::job::JobId;
use crate::market::{Cloud, Market, Region, Usd, UsdPerHour};

/// Something of ours that bills or stays although no machine needs it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residue {
    #[serde(skip)]
    pub cloud: Cloud,
    pub region: Region,
    /// `volume`, `address`, `network interface`, `spot request`, `alarm`.
    pub kind: String,
    pub id: String,
    /// What it says of itself: its size, its state, the job it was made for.
    pub detail: String,
    pub usd_per_month: Usd,
    /// It carries the owner tag that was asked for.
    pub ours: bool,
    /// A machine was stopped to keep it: it bills, and is no waste.
    pub kept: bool,
    /// The job whose machine it came with, where it says so.
    pub job: Option<JobId>,
}

impl Residue {
    /// Whether it may go.
    pub fn is_removable(&self) -> bool {
        self.ours && !self.kept
    }
}

/// A machine of the account that no `lamp` launched: one with GPUs, or one that says it is ours and is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForeignMachine {
    pub region: Region,
    pub id: String,
    pub name: Option<String>,
    pub instance_type: String,
    pub market: Market,
    pub launched: Timestamp,
    /// The on-demand price, which is the most that a spot machine costs; `None`: unknown.
    pub usd_per_hour: Option<UsdPerHour>,
    /// The mean of the last 24 hours, as the cloud measured it; `None`: nobody measured.
    pub cpu_percent: Option<f64>,
    /// The same of its busiest GPU, where an agent on the machine publishes it: no cloud measures a GPU from outside.
    pub gpu_percent: Option<f64>,
    /// Why it is none of ours although it carries an owner tag of ours: somebody has put it there, or taken others away.
    pub odd: Option<String>,
}
