//! The program that a machine runs, for each kind of machine.

use std::path::PathBuf;

use crate::market::Arch;

/// A program on this workstation that a machine can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFile {
    pub path: PathBuf,
    /// Lower-case hex; the machine starts nothing else.
    pub sha256: String,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[error("there is no agent for {arch} machines: {why}")]
pub struct AgentsError {
    pub arch: Arch,
    pub why: String,
}

pub trait Agents: Send + Sync {
    /// # Errors
    /// When none was built for such machines.
    fn find(&self, arch: Arch) -> Result<AgentFile, AgentsError>;
}
