//! What several test binaries share.

pub mod counting_store;
pub mod faulty_store;
pub mod fleet;
pub mod inline_files;
pub mod looking;
pub mod virtual_clock;
