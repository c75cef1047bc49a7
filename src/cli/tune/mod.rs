//! `lamp tune`: begin, drive, show and stop a hyperparameter tuning.

pub mod drive;
pub mod launch_check;
pub mod plots;
pub mod show;
pub mod table;
pub mod tune;
pub mod tuning_daemon;
