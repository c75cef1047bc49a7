//! Servers of the agent. Not here: what they serve.

pub mod metrics_server;
