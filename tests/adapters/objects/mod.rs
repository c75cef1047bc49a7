//! Uploads to a bucket.

pub(crate) mod objects_given_up;
pub(crate) mod objects_packed;
pub(crate) mod objects_s3;
