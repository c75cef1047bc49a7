//! The trial in the spec of its job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::param::ParamValue;

/// The values of one trial, by the name of the parameter.
pub type ParamValues = BTreeMap<String, ParamValue>;

/// In a job's spec: the trial that it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedTrial {
    pub tuning: String,
    pub number: u32,
    /// The metric that the agent reads.
    pub metric: String,
    pub params: ParamValues,
}
