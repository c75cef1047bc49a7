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
pub enum PowerError {
    #[error("cannot power off: {what}")]
    StillOn { what: String },
    /// The user's own command for the end.
    #[error("the command of `--then` failed: `{command}` {how}")]
    Then { command: String, how: String },
}

#[async_trait]
pub trait Power: Send + Sync {
    /// Puts the machine out, escalating until it works. On the local cloud it ends the attempt and touches nothing else.
    ///
    /// Does not return on success on a real machine.
    async fn off(&self, how: PowerOff, why: &str) -> Result<(), PowerError>;
}
