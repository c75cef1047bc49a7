//! Instances that no job needs: found and terminated.

pub(crate) mod foreign_news;
pub(crate) mod forgotten_disks;
pub(crate) mod lambda_visit;
pub(crate) mod periodic;
pub(crate) mod sweeper;
