//! Tells the user about a job.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;

use crate::job::{EventKind, JobId, Receipt};
use crate::market::Usd;

/// The message, as the user's command receives it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notification {
    pub format: u32,
    pub job: JobId,
    pub name: String,
    pub at: Timestamp,
    /// The word of an [`EventKind`]. `attention`: a person should look. `ended`: the job is over
    /// and nothing bills.
    pub kind: &'static str,
    pub text: String,
    /// The command that the user types next, if it changes anything.
    pub command: Option<String>,
    /// The cost of the job so far: exact for `ended`, otherwise about.
    pub usd: Option<Usd>,
    /// Only with `ended`.
    pub receipt: Option<Receipt>,
}

#[derive(Debug, thiserror::Error)]
#[error("a message was not sent: {what}")]
pub struct NotifierError {
    pub what: String,
}

#[async_trait]
pub trait Notifier: Send + Sync {
    /// Whether the user wants messages of this kind. Other kinds are neither recorded nor sent.
    fn wants(&self, kind: EventKind) -> bool {
        matches!(kind, EventKind::Attention | EventKind::Ended)
    }

    /// Tells, within a bounded time. A failure is logged, and never repeated later: people ignore
    /// repeated messages.
    async fn tell(&self, notification: &Notification) -> Result<(), NotifierError>;
}
