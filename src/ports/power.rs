//! The switch of the machine.

use async_trait::async_trait;

/// What should be left of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// Nothing.
    Terminate,
    /// Its disk.
    Stop,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot power off: {what}")]
pub struct PowerError {
    pub what: String,
}

#[async_trait]
pub trait Power: Send + Sync {
    /// Puts the machine out, escalating until it works. On the local cloud it ends the attempt and touches nothing else.
    ///
    /// Does not return on success on a real machine.
    async fn off(&self, how: PowerOff, why: &str) -> Result<(), PowerError>;
}
