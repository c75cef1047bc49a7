//! The trace: a line for each change in the world, in order, and the SHA-256 of all lines.

use std::collections::VecDeque;
use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// The most lines that are kept for people. The sum has all lines.
const LINES_KEPT: usize = 400;

/// How the time of a line is written.
struct TraceTime(Duration);

impl fmt::Display for TraceTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0.as_secs();
        write!(
            f,
            "{}:{:02}:{:02}.{:03}",
            secs / 3600,
            secs / 60 % 60,
            secs % 60,
            self.0.subsec_millis()
        )
    }
}

pub struct Trace {
    sum: Sha256,
    line: String,
    lines: VecDeque<String>,
    kept_max: usize,
    count: u64,
}

impl Default for Trace {
    fn default() -> Self {
        Trace {
            sum: Sha256::new(),
            line: String::new(),
            lines: VecDeque::new(),
            kept_max: LINES_KEPT,
            count: 0,
        }
    }
}

impl Trace {
    /// Keeps every line.
    pub fn keep_all(&mut self) {
        self.kept_max = usize::MAX;
    }

    /// `told`: people see this line too.
    pub fn add(&mut self, now: Duration, told: bool, what: fmt::Arguments<'_>) {
        self.line.clear();
        let _ = write!(self.line, "{} {what}", TraceTime(now));
        self.sum.update(self.line.as_bytes());
        self.sum.update(b"\n");
        self.count += 1;
        if told {
            if self.lines.len() == self.kept_max {
                self.lines.pop_front();
            }
            self.lines.push_back(self.line.clone());
        }
    }

    /// A line for the full story. It is not in the sum.
    pub fn aside(&mut self, now: Duration, what: fmt::Arguments<'_>) {
        if self.kept_max == usize::MAX {
            self.lines.push_back(format!("{} {what}", TraceTime(now)));
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Lower-case hex.
    pub fn sha256(&self) -> String {
        hex::encode(self.sum.clone().finalize())
    }
}
