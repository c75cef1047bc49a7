//! The next step of an attempt or a job: reconcile, relaunch, missing machines, requests.

pub(crate) mod act;
pub(crate) mod attempt_facts;
pub(crate) mod attempt_view;
pub mod checkpoint_rollback;
pub mod continuation;
pub mod discardable;
pub mod forgotten_disk;
pub mod machine_owner;
pub(crate) mod missing_machine;
pub(crate) mod observations;
pub mod orphan;
pub mod reconcile;
pub mod relaunch;
pub(crate) mod requests;
pub(crate) mod stopped_time;
pub(crate) mod visible_machine;
