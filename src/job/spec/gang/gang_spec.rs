//! The part of a spec that makes one job of several machines.
//!
//! `None` in the spec means one machine, and nothing here applies. Not here: the environment of a
//! rank and the command of its engine (`policy::gang`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::gang_member::GangMember;
use super::gang_role::GangRole;
use crate::job::PrimaryRole;
use crate::market::{GpuRequirement, Span};

/// The largest gang. A rank is a machine with its own records, and each is planned by itself. A
/// larger number is more likely a typing error.
pub const NODES_MAX: u32 = 64;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GangSpec {
    pub nodes: NodeCount,
    pub engine: GangEngine,
    /// How long the members of the first epoch wait for each other.
    pub join: Span,
    /// How long survivors wait for the replacement of a lost member.
    pub hold: Span,
    pub done: DoneRule,
    /// How long a finished member waits for the others, unless all must finish.
    pub tail: Span,
    pub saves: GangSaves,
    /// The name of the chief in `TF_CONFIG`.
    #[serde(skip_serializing_if = "PrimaryRole::is_chief")]
    pub chief_name: PrimaryRole,
    /// The jobs by their role; empty: all members are workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleCount>,
    /// Which member this job is. `None`: the gang is not made yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<GangMember>,
}

/// The number of machines: the fewest and the most with which the job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCount {
    pub min: u32,
    pub max: u32,
}

/// The program that starts the processes of a rank, and joins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GangEngine {
    #[default]
    Torchrun,
    Tensorflow,
    Mpi,
    Ray,
    /// Only the environment is set; the command joins the ranks itself.
    Env,
}

/// When the gang has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoneRule {
    #[default]
    All,
    Rank0,
    Any,
}

/// Which ranks write the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GangSaves {
    /// Rank 0 saves, and the others read its checkpoint.
    #[default]
    Rank0,
    /// Each rank saves its own part.
    Each,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleCount {
    pub role: GangRole,
    pub count: u32,
    /// Its machines. `None` in all roles: as `[machine]` says. Else each role has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<RoleMachine>,
}

/// The GPUs and types of the machines of one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleMachine {
    pub gpus: GpuRequirement,
    pub instance_types: Vec<String>,
}

impl Default for GangSpec {
    /// Ten minutes to join: a machine of EC2 boots and runs its setup in less. Twenty minutes to
    /// hold: a dead host is given up after 15, and its replacement boots then. Shorter ends the
    /// gang with its host. Longer pays for machines that do nothing.
    fn default() -> Self {
        GangSpec {
            nodes: NodeCount::exactly(1),
            engine: GangEngine::default(),
            join: Span::from_secs(600),
            hold: Span::from_secs(20 * 60),
            done: DoneRule::default(),
            tail: Span::from_secs(300),
            saves: GangSaves::default(),
            chief_name: PrimaryRole::default(),
            roles: Vec::new(),
            member: None,
        }
    }
}

impl GangSpec {
    /// The role of each rank, in the order of ranks.
    pub fn seats(&self) -> Vec<GangRole> {
        if self.roles.is_empty() {
            return vec![GangRole::Worker; self.nodes.max as usize];
        }
        let mut roles = self.roles.clone();
        roles.sort_by_key(|role| role.role);
        let of = |role: &RoleCount| std::iter::repeat_n(role.role, role.count as usize);
        roles.iter().flat_map(of).collect()
    }

    /// The machine of a role, if it may differ from the one of the job.
    pub fn own_machine(&self, role: GangRole) -> Option<&RoleMachine> {
        self.roles.iter().find(|own| own.role == role)?.machine.as_ref()
    }

    /// Whether the machines of some roles differ.
    pub fn has_several_machines(&self) -> bool {
        self.like_rank_0() < self.seats().len()
    }

    /// How many ranks have the machine of rank 0, with itself.
    pub fn like_rank_0(&self) -> usize {
        let seats = self.seats();
        let first = seats.first().and_then(|role| self.own_machine(*role));
        seats.iter().filter(|role| self.own_machine(**role) == first).count()
    }
}

impl NodeCount {
    pub const fn exactly(nodes: u32) -> Self {
        NodeCount { min: nodes, max: nodes }
    }
}

/// Why a text is no number of machines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of machines: write 4, or \"2..4\" with the fewest first")]
pub struct NodeCountError(String);

impl FromStr for NodeCount {
    type Err = NodeCountError;

    fn from_str(text: &str) -> Result<Self, NodeCountError> {
        let wrong = || NodeCountError(text.to_owned());
        let number = |word: &str| word.trim().parse::<u32>().map_err(|_| wrong());
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (number(min)?, number(max.trim_start_matches('='))?),
            None => (number(text)?, number(text)?),
        };
        if min == 0 || min > max { Err(wrong()) } else { Ok(NodeCount { min, max }) }
    }
}

impl fmt::Display for NodeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.max)
        } else {
            write!(f, "{}..{}", self.min, self.max)
        }
    }
}

impl GangEngine {
    pub const ALL: [GangEngine; 5] = [
        GangEngine::Torchrun,
        GangEngine::Tensorflow,
        GangEngine::Mpi,
        GangEngine::Ray,
        GangEngine::Env,
    ];

    /// Whether the user's command runs on the first machine alone, and the others serve it.
    pub fn runs_on_first(self) -> bool {
        matches!(self, GangEngine::Mpi | GangEngine::Ray)
    }

    pub fn word(self) -> &'static str {
        match self {
            GangEngine::Torchrun => "torchrun",
            GangEngine::Tensorflow => "tensorflow",
            GangEngine::Mpi => "mpi",
            GangEngine::Ray => "ray",
            GangEngine::Env => "env",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_counts_are_read_with_the_fewest_first() {
        assert_eq!("4".parse(), Ok(NodeCount::exactly(4)));
        assert_eq!("2..4".parse(), Ok(NodeCount { min: 2, max: 4 }));
        for wrong in ["4..2", "0", "0..2", "two", "2..", "-1", ""] {
            assert!(wrong.parse::<NodeCount>().is_err(), "{wrong}");
        }
    }

    /// The controller gives up a machine on a dead host after 15 minutes.
    #[test]
    fn default_hold_outlasts_a_dead_host_and_its_replacement() {
        assert!(GangSpec::default().hold >= Span::from_secs((15 + 5) * 60));
    }

    #[test]
    fn seats_follow_the_order_of_roles() {
        let roles = [(GangRole::Ps, 1), (GangRole::Worker, 2), (GangRole::Chief, 1)]
            .map(|(role, count)| RoleCount { role, count, machine: None });
        let gang = GangSpec { roles: roles.into(), ..GangSpec::default() };
        assert_eq!(
            gang.seats(),
            [GangRole::Chief, GangRole::Worker, GangRole::Worker, GangRole::Ps]
        );
        assert!(!gang.has_several_machines());
    }
}
