//! Time. Nothing outside `adapters` asks the operating system for it.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

#[async_trait]
pub trait Clock: Send + Sync {
    /// The wall clock, for records and for deadlines that people wrote. It may step.
    fn now(&self) -> Timestamp;

    /// A clock that never steps and that counts suspend (`CLOCK_BOOTTIME`), for lengths of time.
    fn mono(&self) -> Duration;

    /// Names the life of the machine in which `mono` counts: after a reboot that clock begins anew, and what it said before
    /// means nothing. Empty where nobody can tell.
    fn boot(&self) -> String;

    async fn sleep(&self, time: Duration);
}
