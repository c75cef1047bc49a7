//! The records of the members of a gang: who is ready, who works together, why it ended.

pub(crate) mod membership;
