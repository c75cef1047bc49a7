//! The user's request: the job file as types, and its checks.

pub(crate) mod alarm;
pub(crate) mod check;
pub(crate) mod check_fit;
pub(crate) mod check_market;
pub(crate) mod check_script;
pub(crate) mod check_secrets;
pub(crate) mod finding;
pub(crate) mod gang;
pub(crate) mod glob;
pub(crate) mod image;
pub(crate) mod launcher;
pub(crate) mod limits;
pub(crate) mod notify;
pub(crate) mod schedule;
pub(crate) mod script;
pub(crate) mod secret;
pub(crate) mod shell;
pub(crate) mod signal;
pub(crate) mod spec;
pub(crate) mod user_tags;
