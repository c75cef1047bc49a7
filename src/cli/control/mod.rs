//! Commands that act on a job: `stop`, `cancel`, `extend`, `discard`, `logs`, `outputs`, `ssh`,
//! `daemon`, `web`, `top`, `mcp`, and `notify`, which tells of jobs.

pub(crate) mod daemon;
#[cfg(feature = "web")]
pub(crate) mod daemon_page;
pub(crate) mod discard;
pub(crate) mod extend;
pub(crate) mod logs;
#[cfg(feature = "mcp")]
pub(crate) mod mcp;
pub(crate) mod notify;
pub(crate) mod outputs;
pub(crate) mod rank_logs;
pub(crate) mod ssh;
pub(crate) mod stop;
#[cfg(feature = "top")]
pub(crate) mod top;
#[cfg(feature = "web")]
pub(crate) mod web;
