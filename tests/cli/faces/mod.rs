//! Output for people and for programs.

pub(crate) mod documents;
pub(crate) mod first_hour;
pub(crate) mod machine_output;
#[cfg(feature = "mcp")]
pub(crate) mod mcp;
pub(crate) mod messages;
pub(crate) mod newcomer;
pub(crate) mod terminal;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod unreadable;
#[cfg(feature = "aws")]
pub(crate) mod usage_mistakes;
pub(crate) mod words;
