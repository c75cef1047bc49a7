//! One after the other, of all processes of this workstation that may launch.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;

/// Held until it is dropped.
pub type Turn = Box<dyn Any + Send>;

#[async_trait]
pub trait Turns: Send + Sync {
    /// Waits for no longer than this; `None`: another process still has the turn. Where nobody can tell, nobody is waited for.
    async fn take(&self, patience: Duration) -> Option<Turn>;
}
