//! How an attempt ends.

pub(crate) mod deadman;
pub(crate) mod ends;
pub(crate) mod hangs;
pub(crate) mod notices;
pub(crate) mod person_at_work;
pub(crate) mod short_notice;
