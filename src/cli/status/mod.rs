//! Commands that show jobs: `status`, `receipt`, `costs`, `explain`, and the words for attempts,
//! machines and ends.

pub(crate) mod costs;
pub(crate) mod driverless_jobs;
pub(crate) mod explain;
pub(crate) mod other_job_root;
pub(crate) mod receipt;
pub(crate) mod samples;
#[cfg(feature = "web")]
pub(crate) mod share;
pub(crate) mod status;
pub(crate) mod watch;
