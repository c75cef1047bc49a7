//! The adapters against the world, or against a false piece of it.

#[cfg(feature = "lamp")]
mod local_cloud;
mod objects_s3;
