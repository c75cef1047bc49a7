//! Power control of the machine.

use async_trait::async_trait;

/// The part of the machine that should remain.
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
    /// The user's own command at the end of a job failed.
    #[error("the command of `--then` failed: `{command}` {how}")]
    Then { command: String, how: String },
}

#[async_trait]
pub trait Power: Send + Sync {
    /// Powers off, with stronger methods until one works; a real machine does not return. On the
    /// local cloud it only ends the attempt.
    async fn off(&self, how: PowerOff, why: &str) -> Result<(), PowerError>;
}
