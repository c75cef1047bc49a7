//! Printing: streams, tables, wrapping, local times.

pub(crate) mod log_columns;
pub(crate) mod log_piece;
pub(crate) mod printer;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod unreachable;
pub(crate) mod wrap;
