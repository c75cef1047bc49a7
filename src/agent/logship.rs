//! SIGNATURES, being filled in.
use std::path::Path;
use std::time::Duration;

use super::journal::Journal;
use super::marks::Board;
use super::outbox::Outbox;

pub struct LogSettings {
    /// Raw bytes shipped per attempt; beyond it the head and the last 4 MiB are kept.
    pub bytes_max: u64,
    /// `watch.log_pattern`.
    pub pattern: Option<String>,
    /// A line of the log that says: done.
    pub done_line: Option<String>,
}

/// Ships the workload's output. Cheap to clone.
#[derive(Clone)]
pub struct LogShip {}

impl LogShip {
    /// Gives also what is wrong with the pattern, if it is not a regular expression (it is then ignored).
    pub fn start(_outbox: Outbox, _journal: Journal, _board: Board, _settings: LogSettings) -> Self {
        todo!()
    }
    /// Follow this start of the workload (`Launch::dir`) after what came before. Idempotent, also after an agent restart.
    pub fn follow(&self, _start: u32, _dir: &Path) {}
    /// The start has ended and its holder has written everything.
    pub fn ended(&self, _start: u32) {}
    /// Ships the rest; gives what was lost, as sentences for the outcome.
    pub async fn finish(&self, _within: Duration) -> Vec<String> {
        todo!()
    }
}
