//! The agent's reports: heartbeat, events, samples, metrics; and the requests that it reads.

pub(crate) mod attention;
pub(crate) mod batch;
pub mod heartbeat;
pub mod journal;
pub mod metrics;
pub mod metrics_exposition;
pub mod notice_watch;
pub mod open_metrics;
pub(crate) mod reporter;
pub(crate) mod request_watch;
pub mod retry_sender;
pub mod samples;
pub mod stack_dumps;
