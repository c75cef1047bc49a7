//! If a command fails in its start-up: is the previous checkpoint tried?
//!
//! ```text
//!   from 7 ─ fails before a step or checkpoint ─> from 6 ─ the same ─> from 5 ─ the same ─> ends
//! ```
//! Each checkpoint file matches what was saved. But the script may have been stopped during its
//! save, or have saved something it cannot load. Progress after the start shows that the checkpoint
//! is good.

use crate::job::{CheckpointNo, ExitStatus};
use crate::market::Span;

/// Rollbacks per attempt. The newest checkpoint may be incomplete, and the one before it for the
/// same cause. If a third fails too, the checkpoints are not the cause, and each start costs a
/// start-up.
pub const GOES_BACK_MAX: u32 = 2;

/// Length of a start-up: imports, data and a large model take minutes. With more, a script without
/// steps that fails in its work goes back for nothing and repeats an interval of work.
const START_UP: Span = Span::from_secs(600);

/// How long a start from an older checkpoint must run before its saves are kept: at least a minute,
/// and three times as long as the failed starts. With less, a log file could make the old
/// checkpoint the newest. With more, saves of a script without steps are delayed.
const LIVES: Span = Span::from_secs(60);
const LIVES_TIMES: u32 = 3;

/// Exit codes for a missing or non-executable command: not the checkpoint's fault.
const NO_COMMAND: [i32; 2] = [126, 127];

/// SIGHUP, SIGINT, SIGKILL and SIGTERM: the process was stopped from outside. A shell reports 128
/// plus the number.
const BY_SOMEBODY: [i32; 4] = [1, 2, 9, 15];

#[derive(Clone, Debug, PartialEq)]
pub struct StartUp {
    /// The newest complete checkpoint at the start.
    pub from: CheckpointNo,
    /// The folder held exactly this checkpoint and nothing newer.
    pub exact: bool,
    pub lived: Span,
    /// It reported a step beyond its checkpoint, or completed a new one.
    pub is_going: bool,
    /// Earlier rollbacks in this attempt.
    pub times: u32,
    /// There is no older checkpoint, or it cannot be restored.
    pub is_last: bool,
}

impl StartUp {
    /// Whether the checkpoint may have caused this failure.
    pub fn died_of_it(&self, exit: ExitStatus) -> bool {
        !self.is_going && self.lived < START_UP && fails_by_itself(exit)
    }

    pub fn goes_back(&self, exit: ExitStatus) -> bool {
        self.died_of_it(exit) && self.times < GOES_BACK_MAX && !self.is_last
    }

    /// The next checkpoint to try is older than this.
    pub fn before(&self) -> CheckpointNo {
        if self.exact { self.from } else { self.from.next() }
    }
}

/// How long a start must run before its saves count; `longest` is the longest failed start before
/// it.
pub fn must_live(longest: Span) -> Span {
    Span::from_secs(longest.duration().as_secs().saturating_mul(LIVES_TIMES.into()))
        .max(LIVES)
        .min(START_UP)
}

fn fails_by_itself(exit: ExitStatus) -> bool {
    match (exit.code, exit.signal) {
        _ if exit.oom || exit.success() => false,
        (Some(code), _) => !NO_COMMAND.contains(&code) && !BY_SOMEBODY.contains(&(code - 128)),
        (None, Some(signal)) => !BY_SOMEBODY.contains(&signal),
        (None, None) => false,
    }
}
