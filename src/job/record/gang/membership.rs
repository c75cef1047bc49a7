//! The records of a gang, below `gang/` in the job directory of rank 0.
//!
//! ```text
//!   gang/0003/member-1.json    a rank is ready            written once by that rank
//!   gang/0003/formation.json   who works together         written once, by the lowest rank there
//!   gang/0003/start-1.json     how a rank starts (MPI)    written once, by the first machine
//!   gang/0003/done-1.json      a rank finished            written once by that rank
//!   gang/0003/lost-1.json      a rank was lost            written once, by the first to notice
//!   gang/0003/over.json        the epoch is over          written once, by the first to notice
//!   gang/end.json              the gang is over           written once, by the first to notice
//! ```
//! An epoch is one set of machines that work together. The next one starts from a checkpoint.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{AttemptNo, CheckpointNo, JobId};

/// One rank that is ready to work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangReady {
    pub format: u32,
    pub rank: u32,
    pub job: JobId,
    pub attempt: AttemptNo,
    pub instance: String,
    /// Differs in each start of the rank's program.
    pub start: String,
    /// An IP address. Names may not resolve on the other machines.
    pub host: String,
    /// The network interface of this address; `None`: unknown.
    #[serde(default)]
    pub interface: Option<String>,
    /// A port that was free a moment before.
    pub port: u16,
    /// `None`: unknown.
    #[serde(default)]
    pub gpus: Option<u32>,
    /// Its own newest complete checkpoint, which the epoch begins from; `None`: it has none.
    #[serde(default)]
    pub checkpoint: Option<CheckpointNo>,
    pub at: Timestamp,
}

/// The ranks that work together in an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Formation {
    pub format: u32,
    pub epoch: u32,
    pub at: Timestamp,
    /// The rank that wrote it.
    pub by: u32,
    /// Ties the processes of this epoch together.
    pub rendezvous: String,
    /// In the order of ranks.
    pub members: Vec<GangReady>,
}

/// Why an epoch is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EpochCause {
    /// A rank failed.
    Failed,
    /// A rank sends no heartbeat, or began again on another machine.
    Lost,
    /// The machine of a rank is interrupted.
    Interrupted,
    /// The agent of a rank ended it.
    Stopped,
    /// A rank came to an epoch that runs without it.
    Joined,
    /// An engine could not begin, and the next epoch tries again.
    Unstarted,
    /// The work is done.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochOver {
    pub format: u32,
    pub epoch: u32,
    pub at: Timestamp,
    /// The rank that it is about.
    pub rank: u32,
    pub because: EpochCause,
    /// The exit code of this rank, if it failed.
    #[serde(default)]
    pub exit: Option<i32>,
    pub text: String,
}

/// A rank that finished, or was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMark {
    pub format: u32,
    pub rank: u32,
    pub at: Timestamp,
}

/// The command that a rank runs for the engine of the first machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStart {
    pub format: u32,
    pub rank: u32,
    /// For a shell.
    pub command: String,
    pub at: Timestamp,
}

/// Why a gang is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GangEndCause {
    Done,
    Failed,
    /// A member did not come in time.
    Incomplete,
    /// More interruptions than `interruptions.max`.
    Interrupted,
    /// A member's job has ended, so the gang cannot be complete again.
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangEnd {
    pub format: u32,
    pub at: Timestamp,
    pub rank: u32,
    pub because: GangEndCause,
    /// The exit code of the first rank that failed.
    #[serde(default)]
    pub exit: Option<i32>,
    /// The ranks that were missing.
    #[serde(default)]
    pub missing: Vec<u32>,
    pub text: String,
}

/// All that is known of one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochRecord {
    pub formation: Option<Formation>,
    pub over: Option<EpochOver>,
    pub lost: Vec<u32>,
}

impl Formation {
    /// The position of a rank among those that work, from 0. `None`: it is not among them.
    pub fn node_of(&self, rank: u32) -> Option<u32> {
        let found = self.members.iter().position(|member| member.rank == rank)?;
        u32::try_from(found).ok()
    }

    pub fn member(&self, rank: u32) -> Option<&GangReady> {
        self.members.iter().find(|member| member.rank == rank)
    }

    pub fn master(&self) -> &GangReady {
        &self.members[0]
    }
}

impl EpochCause {
    /// Whether it counts as an interruption and not as a failure.
    pub fn is_interruption(self) -> bool {
        matches!(self, EpochCause::Lost | EpochCause::Interrupted | EpochCause::Stopped)
    }
}
