//! What the members of a gang write down: who is there, who works with whom, and why it ended.

pub(crate) mod membership;
