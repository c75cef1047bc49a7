//! SIGNATURES, being filled in.
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::instance::Notice;
use crate::ports::{Clock, Metadata};

#[derive(Clone, Debug, PartialEq, Default)]
pub struct NoticeFacts {
    /// The notices of the last good answer.
    pub notices: Vec<Notice>,
    /// When that answer came, by the steady clock; `None`: never yet.
    pub answered: Option<Duration>,
    /// Failed polls since then.
    pub failures: u32,
}

/// Polls once a second; dropping it ends that. A change wakes the receivers.
pub struct NoticeWatch {}

impl NoticeWatch {
    pub fn start(_metadata: Arc<dyn Metadata>, _clock: Arc<dyn Clock>) -> Self {
        todo!()
    }
    pub fn subscribe(&self) -> watch::Receiver<NoticeFacts> {
        todo!()
    }
}
