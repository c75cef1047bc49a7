//! A command that dies within its start-up: is it tried from the checkpoint before?
//!
//! ```text
//!   began from 7 ── fails, no step and no checkpoint since ──> from 6 ── the same ──> from 5 ── the same ──> as any failure
//! ```
//! Each file of a checkpoint has the content that was saved; but the script may have been ended while it saved, or have saved what it
//! cannot load. A start that got going shows that its checkpoint is good. What must never live here: the folder, the store.

use crate::job::{CheckpointNo, ExitStatus};
use crate::market::Span;

/// So often in an attempt. The newest may be torn, and the one before it by the same fault; a third that fails as well is not to blame.
/// More starts cost the time of a start-up each.
pub const GOES_BACK_MAX: u32 = 2;

/// A start-up: imports, data and a large model need minutes. Longer, and a script that says nothing of its steps, and fails at its work, goes
/// back for nothing and does an interval of work once more.
const START_UP: Span = Span::from_secs(600);

/// How long a start from an older checkpoint must live before what it leaves is kept, at least; and how many times longer than those that
/// died. Shorter, and a log that it wrote makes the old one the newest; longer puts off a save of a script that tells no steps.
const LIVES: Span = Span::from_secs(60);
const LIVES_TIMES: u32 = 3;

/// A command that is not there, or cannot be executed: no checkpoint is to blame.
const NO_COMMAND: [i32; 2] = [126, 127];

/// SIGHUP, SIGINT, SIGKILL and SIGTERM: somebody ended it. A shell reports them as 128 and the number.
const BY_SOMEBODY: [i32; 4] = [1, 2, 9, 15];

/// What is known of the newest start of the command.
#[derive(Clone, Debug, PartialEq)]
pub struct StartUp {
    /// The newest complete checkpoint then.
    pub from: CheckpointNo,
    /// The folder held this one and nothing newer.
    pub exact: bool,
    pub lived: Span,
    /// It has told a step beyond its checkpoint, or a new one is complete.
    pub is_going: bool,
    /// How often this attempt went back before.
    pub times: u32,
    /// There is no older one, or it cannot be brought back.
    pub is_last: bool,
}

impl StartUp {
    /// Whether a start that ended so may have died of its checkpoint.
    pub fn died_of_it(&self, exit: ExitStatus) -> bool {
        !self.is_going && self.lived < START_UP && fails_by_itself(exit)
    }

    pub fn goes_back(&self, exit: ExitStatus) -> bool {
        self.died_of_it(exit) && self.times < GOES_BACK_MAX && !self.is_last
    }

    /// What is tried next is older than this.
    pub fn before(&self) -> CheckpointNo {
        if self.exact { self.from } else { self.from.next() }
    }
}

/// How long a start must live before what it leaves counts, where those before it died after `longest` at the latest.
pub fn must_live(longest: Span) -> Span {
    Span::from_secs(longest.duration().as_secs().saturating_mul(LIVES_TIMES.into())).max(LIVES).min(START_UP)
}

fn fails_by_itself(exit: ExitStatus) -> bool {
    match (exit.code, exit.signal) {
        _ if exit.oom || exit.success() => false,
        (Some(code), _) => !NO_COMMAND.contains(&code) && !BY_SOMEBODY.contains(&(code - 128)),
        (None, Some(signal)) => !BY_SOMEBODY.contains(&signal),
        (None, None) => false,
    }
}
