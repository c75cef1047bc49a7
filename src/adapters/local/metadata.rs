//! The metadata of a machine of the local cloud, read from its folder.

use async_trait::async_trait;

use super::machine_folder::LocalFolder;
use crate::instance::{Notice, Tags};
use crate::ports::{Identity, Metadata, MetadataError};

pub struct LocalMetadata {
    folder: LocalFolder,
}

impl LocalMetadata {
    pub fn new(folder: LocalFolder) -> Self {
        LocalMetadata { folder }
    }
}

#[async_trait]
impl Metadata for LocalMetadata {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        let record = self.folder.instance().map_err(|cause| unavailable("instance", cause))?;
        let raised = self.folder.kill_at().map_err(|cause| unavailable("kill-at", cause))?;
        let mut tags = record.tags;
        // On EC2 too, a raised cap changes the tag.
        if let Some(raised) = raised
            && let Ok(mut ours) = Tags::from_map(&tags)
        {
            ours.kill_at = ours.kill_at.max(Some(raised.at));
            tags.extend(ours.to_map());
        }
        Ok(Identity { instance: record.instance, tags, launched: record.launched })
    }

    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        self.folder.notices().map_err(|cause| unavailable("notices", cause))
    }
}

fn unavailable(what: &str, cause: std::io::Error) -> MetadataError {
    MetadataError::Unavailable { what: what.to_owned(), cause: cause.into() }
}
