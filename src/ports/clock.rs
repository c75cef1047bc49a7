//! Time. Only `adapters` asks the operating system for it.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

#[async_trait]
pub trait Clock: Send + Sync {
    /// The wall clock, for records and for deadlines that people wrote. It may jump.
    fn now(&self) -> Timestamp;

    /// A monotonic clock that counts suspend (`CLOCK_BOOTTIME`), for durations.
    fn mono(&self) -> Duration;

    /// The id of the boot: after a reboot, older values of `mono` mean
    /// nothing. Empty if it cannot be read.
    fn boot(&self) -> String;

    async fn sleep(&self, time: Duration);
}
