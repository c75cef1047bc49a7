//! Facts about the machine itself: its identity, and whether it will be interrupted.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::instance::Notice;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub instance: String,
    /// As the cloud stores them. `instance::Tags::from_map` reads lamp's own.
    pub tags: BTreeMap<String, String>,
    pub launched: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// No answer, a broken answer, or a refused token after a refresh. It differs from "no
    /// notice".
    #[error("the metadata service does not answer `{what}`")]
    Unavailable {
        what: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

#[async_trait]
pub trait Metadata: Send + Sync {
    async fn identity(&self) -> Result<Identity, MetadataError>;

    /// All notices that hold now. Empty: there are none. An error: unknown.
    async fn notices(&self) -> Result<Vec<Notice>, MetadataError>;
}
