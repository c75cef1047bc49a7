//! The next step of an attempt or a job: reconcile, relaunch, missing machines, requests.

pub(crate) mod act;
pub(crate) mod alarm_arming;
pub(crate) mod attempt_facts;
pub(crate) mod attempt_view;
pub mod checkpoint_rollback;
pub mod continuation;
pub mod discardable;
pub mod forgotten_disk;
pub(crate) mod ignored_stop;
pub mod machine_owner;
pub(crate) mod missing_machine;
pub(crate) mod observations;
pub mod orphan;
pub mod reconcile;
pub mod relaunch;
pub(crate) mod requests;
pub(crate) mod stopped_machine;
pub(crate) mod stopped_time;
