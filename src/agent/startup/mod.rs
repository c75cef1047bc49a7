//! From boot to the running workload: lease, checks, code, environment, setup.

pub(crate) mod attempt;
pub mod boot;
pub mod cli;
pub(crate) mod crash_loop;
pub mod environment;
pub(crate) mod failed_resume;
pub mod fetch_status;
pub(crate) mod kept_setup;
pub(crate) mod last_starts;
pub(crate) mod older_checkpoint;
pub mod preflight;
pub(crate) mod prepare;
pub(crate) mod resume_progress;
pub mod standalone;
