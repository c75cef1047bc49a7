//! A piece of the log of a workload, for people or for programs.

use crate::cli::Context;
use crate::job::AttemptNo;

/// A piece for programs.
pub fn as_object(attempt: AttemptNo, bytes: &[u8]) -> serde_json::Value {
    serde_json::json!({ "attempt": attempt.number(), "log": String::from_utf8_lossy(bytes) })
}

/// Prints a piece of the log as it arrives. Programs get one object a line whatever `-o` says,
/// since there is no end yet.
pub fn print_piece(context: &Context, attempt: AttemptNo, bytes: &[u8]) {
    if context.is_machine_output() {
        context.printer.line(as_object(attempt, bytes));
    } else {
        context.printer.bytes(bytes);
    }
}
