//! What a machine can learn of itself: who it is, and whether the cloud is about to take it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::instance::Notice;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub instance: String,
    /// As the cloud keeps them; `instance::Tags::from_map` reads ours.
    pub tags: BTreeMap<String, String>,
    pub launched: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// Not answering, answering nonsense, or refusing the token after a refresh. Never the same as "no notice".
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

    /// All notices that stand now; empty means that there is none, an error that nobody knows.
    async fn notices(&self) -> Result<Vec<Notice>, MetadataError>;
}
