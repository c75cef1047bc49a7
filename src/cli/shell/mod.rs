//! Around every command: arguments, context, faults, exit codes, Ctrl-C, logging.

pub(crate) mod args;
pub(crate) mod completions;
pub(crate) mod confirm;
pub(crate) mod context;
pub(crate) mod ctrl_c;
pub(crate) mod deadline_arg;
pub(crate) mod flags;
pub(crate) mod foreign_commands;
pub(crate) mod job_root;
pub(crate) mod logging;
pub(crate) mod main;
pub(crate) mod man;
pub(crate) mod manual_text;
pub(crate) mod schema;
pub(crate) mod slow_notice;
pub(crate) mod terminal;
