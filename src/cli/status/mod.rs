//! Commands that show jobs: `status`, `receipt`, `explain`, and the words for attempts, machines
//! and ends.

pub(crate) mod explain;
pub(crate) mod other_job_root;
pub(crate) mod receipt;
pub(crate) mod status;
pub(crate) mod undriven_jobs;
pub(crate) mod watch;
