//! A job from its file to its outputs.

pub(crate) mod apply;
pub(crate) mod attention;
pub(crate) mod daemon_messages;
pub(crate) mod daemon_service;
pub(crate) mod discard;
pub(crate) mod estimated;
pub(crate) mod job_requests;
pub(crate) mod logs;
pub(crate) mod outputs;
pub(crate) mod refusals;
pub(crate) mod rehearsals;
#[cfg(feature = "aws")]
pub(crate) mod resumed_upload;
pub(crate) mod secrets;
pub(crate) mod ssh;
pub(crate) mod start;
pub(crate) mod stop_all;
