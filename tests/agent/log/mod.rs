//! The log of the command, and a full disk.

pub(crate) mod full_disk;
pub(crate) mod log_age;
pub(crate) mod logship;
