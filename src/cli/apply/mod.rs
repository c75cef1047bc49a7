//! `lamp apply` and `lamp schedules`: jobs from the files of a directory.

pub(crate) mod apply;
pub(crate) mod caps_cost;
pub(crate) mod caps_view;
pub(crate) mod cost;
pub(crate) mod execute;
pub(crate) mod job_files;
pub(crate) mod ready_file;
pub(crate) mod schedules;
pub(crate) mod shortfall;
