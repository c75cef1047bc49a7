//! The lock that makes processes of this workstation launch one after the other.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;

/// The lock is held until this is dropped.
pub type Turn = Box<dyn Any + Send>;

#[async_trait]
pub trait Turns: Send + Sync {
    /// Waits at most this long. `None`: another process still holds the lock. Returns at once where
    /// no lock can be taken.
    async fn take(&self, patience: Duration) -> Option<Turn>;
}
