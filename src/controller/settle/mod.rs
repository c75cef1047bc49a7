//! From the end of an instance to its bill: end records, receipts, kept machines, leftovers.

pub(crate) mod alarm_state;
pub(crate) mod end_record;
pub(crate) mod heartbeat_streak;
pub(crate) mod host_health;
pub(crate) mod leftovers;
pub(crate) mod release_kept;
pub(crate) mod settler;
pub(crate) mod silent_hosts;
