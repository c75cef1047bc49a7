//! The role of a member: which part of the training it does.

use serde::{Deserialize, Serialize};

/// The part of a member in the training. The order is the order of ranks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum GangRole {
    Chief,
    Head,
    #[default]
    Worker,
    Ps,
    Evaluator,
}

impl GangRole {
    pub fn word(self) -> &'static str {
        match self {
            GangRole::Chief => "chief",
            GangRole::Head => "head",
            GangRole::Worker => "worker",
            GangRole::Ps => "ps",
            GangRole::Evaluator => "evaluator",
        }
    }
}
