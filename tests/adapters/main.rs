//! The adapters against the world, or against a false piece of it.

mod objects_s3;
