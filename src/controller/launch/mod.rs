//! From a submitted job to a launched instance: caps, plan, code, user data, launch.

pub mod agent_shipping;
pub(crate) mod continue_job;
pub(crate) mod cost_ledger;
pub(crate) mod current_caps;
pub(crate) mod dry_run;
pub(crate) mod first_launch;
pub(crate) mod gang_launch;
pub(crate) mod launch_certainty;
pub(crate) mod launchable;
pub(crate) mod launcher;
pub(crate) mod market_memory;
pub(crate) mod market_watch;
pub(crate) mod next_attempt;
pub(crate) mod plan;
pub(crate) mod scheduled_runs;
pub(crate) mod spending_cap;
pub(crate) mod submit;
pub mod user_data;
pub(crate) mod waiting;
