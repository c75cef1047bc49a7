//! `[gang]` as it is written: how several machines work as one job.
//!
//! The doc comments are the documentation of each key, as in `job_file`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::values::{ChiefNameWord, DoneWord, EngineWord, Gpus, SavesWord, SpanWord};

/// How several machines work as one job. `nodes` says how many; roles say it in its place.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GangFile {
    /// The engine that joins the ranks: `torchrun`, `tensorflow`, `mpi` (Open MPI), `ray`, or
    /// `env`, which only sets the environment.
    #[schemars(extend("default" = "torchrun", "examples" = ["env"]))]
    pub engine: Option<EngineWord>,
    /// How long the members wait for each other at the start. Then the gang ends, or runs with the
    /// fewest machines that `nodes` allows.
    #[schemars(extend("default" = "10m", "examples" = ["5m"]))]
    pub join: Option<SpanWord>,
    /// How long the others wait, billing, for the replacement of a lost member.
    #[schemars(extend("default" = "20m", "examples" = ["30m"]))]
    pub hold: Option<SpanWord>,
    /// When the job has finished: `all` ranks, `rank0`, or `any` rank. With `ps` or `evaluator`,
    /// the default is `rank0`.
    #[schemars(extend("default" = "all", "examples" = ["rank0"]))]
    pub done: Option<DoneWord>,
    /// How long a finished rank waits for the others, unless `done` is `all`.
    #[schemars(extend("default" = "5m", "examples" = ["1m"]))]
    pub tail: Option<SpanWord>,
    /// The ranks that write checkpoints: `rank0`, which the others then read, or `each` its part.
    #[schemars(extend("default" = "rank0", "examples" = ["each"]))]
    pub saves: Option<SavesWord>,
    /// The name of the chief in `TF_CONFIG`: `chief`, or `master` for TensorFlow 1.
    #[schemars(extend("default" = "chief", "examples" = ["master"]))]
    pub chief_name: Option<ChiefNameWord>,
    /// The chief of TensorFlow.
    pub chief: Option<RoleFile>,
    /// The rank that the others join.
    pub head: Option<RoleFile>,
    /// The ranks that train.
    pub worker: Option<RoleFile>,
    /// Parameter servers of TensorFlow.
    pub ps: Option<RoleFile>,
    /// The evaluator of TensorFlow, which is in no cluster.
    pub evaluator: Option<RoleFile>,
}

/// The machines of one role.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RoleFile {
    /// How many machines have this role.
    #[schemars(extend("default" = 1, "examples" = [2]))]
    pub count: Option<u32>,
    /// The GPUs of its machines, if they differ from `machine.gpus`.
    #[schemars(extend("examples" = ["A10G:1"]))]
    pub gpus: Option<Gpus>,
    /// The types of its machines, if they differ from `machine.instance_types`.
    #[schemars(extend("examples" = [["r6i.2xlarge"]]))]
    pub instance_types: Option<Vec<String>>,
}

impl RoleFile {
    pub fn has_own_machine(&self) -> bool {
        self.gpus.is_some() || self.instance_types.is_some()
    }
}
