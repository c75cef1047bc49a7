//! `lamp tune`: begin, drive, show and stop a hyperparameter tuning.

pub mod drive;
pub mod show;
pub mod table;
pub mod tune;
