//! Job roots: a folder or an S3 bucket as a store of objects.

pub(crate) mod folder;
pub mod metered;
pub(crate) mod noatime;
pub mod open;
#[cfg(feature = "lamp")]
pub(crate) mod read_threads;
pub(crate) mod s3;
pub(crate) mod s3_download;
pub(crate) mod s3_multipart;
pub(crate) mod s3_upload_source;
pub(crate) mod staged_files;
#[cfg(feature = "lamp")]
pub mod upload_resume;
