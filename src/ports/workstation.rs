//! The agent program for each kind of machine.

use std::fmt;
use std::path::PathBuf;

use crate::market::Arch;

/// A program on this workstation that a machine can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFile {
    pub path: PathBuf,
    /// Lower-case hex. The machine starts only this program.
    pub sha256: String,
    pub bytes: u64,
    /// The oldest GNU C library that it runs with. `None`: the file does not say.
    pub glibc: Option<Glibc>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glibc(pub u32, pub u32);

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("there is no agent for {arch} machines: {why}")]
pub struct AgentsError {
    pub arch: Arch,
    pub why: String,
}

pub trait Agents: Send + Sync {
    /// # Errors
    /// When none was built for this architecture.
    fn find(&self, arch: Arch) -> Result<AgentFile, AgentsError>;
}
