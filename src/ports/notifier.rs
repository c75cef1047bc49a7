//! Tells the user about a job.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;

use crate::job::{JobId, Receipt};

/// The message, as the user's command receives it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notification {
    pub format: u32,
    pub job: JobId,
    pub name: String,
    pub at: Timestamp,
    /// `attention`: a person should look. `ended`: the job is over and nothing bills.
    pub kind: &'static str,
    pub text: String,
    /// Only with `ended`.
    pub receipt: Option<Receipt>,
}

#[derive(Debug, thiserror::Error)]
#[error("nobody was told: {what}")]
pub struct NotifierError {
    pub what: String,
}

#[async_trait]
pub trait Notifier: Send + Sync {
    /// Tells, within a bounded time. A failure is logged, without a retry: people ignore repeated
    /// messages.
    async fn tell(&self, notification: &Notification) -> Result<(), NotifierError>;
}
