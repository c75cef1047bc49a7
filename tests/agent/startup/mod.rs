//! How an agent starts, and starts again.

pub(crate) mod agent_deaths;
pub(crate) mod alone;
pub(crate) mod boots;
pub(crate) mod crash_loop;
pub(crate) mod fetching;
pub(crate) mod kept_disk;
pub(crate) mod restarts;
pub(crate) mod silent_start;
