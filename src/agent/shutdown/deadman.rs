//! Writes the files of this machine's dead-man's switch: the deadline on disk, and every 10 s that
//! the agent runs.
//!
//! ```text
//!   user data: 15 minutes ──> lease is held: the machine's hard end ──> raised: the new one
//! ```
//! The switch (`systemd/lamp-deadman.service`) compares the files with the wall clock and works
//! without the agent. It must not depend on the agent later. Not here: a power-off.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::ports::{Clock, Files};

/// How far ahead the deadline is without a hard end. Shorter ends useful work if a disk accepts no
/// writes for that long. Longer lets a machine without agent and sweeper bill for that long
/// (docs/decisions.md, 24).
const AHEAD: SignedDuration = SignedDuration::from_hours(24);

/// How often the deadline is moved: many times within [`AHEAD`].
const RENEW: Duration = Duration::from_secs(10 * 60);

/// The wait after a failed write. A full disk may soon have space again; every second would fill
/// the log.
const AGAIN: Duration = Duration::from_secs(10);

/// The wall clock counts as set if it differs by more than this from the monotonic clock. The
/// switch looks once a minute, and a second of drift between two renewals is normal.
const STEP: SignedDuration = SignedDuration::from_secs(30);

/// How often the agent writes that it runs: many times in the shortest lease (2 min) and between
/// two looks.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

/// The file with the count of boots in the agent's state folder. `systemd/lamp-boot.service` writes
/// it.
pub(crate) const BOOTS: &str = "boots";

#[derive(Clone, Debug)]
pub struct SwitchFiles {
    /// On disk: when the machine must be off, seconds since 1970.
    pub deadline: PathBuf,
    /// In memory, so that a full disk does not look like silence: when the agent last ran, seconds
    /// since 1970, and how many seconds it may be silent.
    pub alive: PathBuf,
}

/// The agent's side of the switch.
pub struct Deadman {
    file: PathBuf,
    alive: PathBuf,
    /// How long a machine may be silent.
    lease: Duration,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    told: Mutex<Option<DeadlineWrite>>,
    said: Mutex<Option<AliveWrite>>,
}

/// The last write of the alive file.
#[derive(Clone, Copy)]
struct AliveWrite {
    mono: Duration,
    wall: Timestamp,
    written: bool,
}

#[derive(Clone, Copy)]
struct DeadlineWrite {
    mono: Duration,
    wall: Timestamp,
    steady: Timestamp,
    hard_end: Option<Timestamp>,
    written: bool,
}

impl Deadman {
    pub fn new(
        paths: SwitchFiles,
        lease: Duration,
        files: Arc<dyn Files>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let SwitchFiles { deadline: file, alive } = paths;
        Deadman { file, alive, lease, files, clock, told: Mutex::default(), said: Mutex::default() }
    }

    /// Called at every tick: writes every 10 s that the agent runs, and at once after the wall
    /// clock was set.
    pub fn say_alive(&self) {
        let (mono, wall) = (self.clock.mono(), self.clock.now());
        let mut said = self.said.lock().expect("it is only compared and set, which cannot panic");
        let is_due = said.is_none_or(|said| {
            mono.saturating_sub(said.mono) >= ALIVE_EVERY
                || wall.duration_since(said.wall).abs() > STEP
        });
        if !is_due {
            return;
        }
        let done = self.files.replace(
            &self.alive,
            format!("{} {}\n", wall.as_second(), self.lease.as_secs()).as_bytes(),
        );
        if let Err(error) = &done
            && said.is_none_or(|said| said.written)
        {
            tracing::warn!(
                "the dead-man's switch is not told that the agent is alive, cannot write {}: {error}",
                self.alive.display()
            );
        }
        *said = Some(AliveWrite { mono, wall, written: done.is_ok() });
    }

    /// Called at every tick: writes the deadline when it changes. It is as far from the wall clock
    /// as the hard end is from `steady`, the agent's own time. So a set wall clock does no harm.
    pub fn renew(&self, hard_end: Option<Timestamp>, steady: Timestamp) {
        let (mono, wall) = (self.clock.mono(), self.clock.now());
        let mut told = self
            .told
            .lock()
            .expect("no code panics while it holds it: it is only compared and set");
        let now = DeadlineWrite { mono, wall, steady, hard_end, written: false };
        if !told.is_none_or(|told| is_due(&told, &now)) {
            return;
        }
        let left = hard_end.map_or(AHEAD, |end| end.duration_since(steady));
        let deadline = wall.as_second().saturating_add(left.as_secs().max(0));
        let done = self.files.replace_durable(&self.file, format!("{deadline}\n").as_bytes());
        if let Err(error) = &done
            && told.is_none_or(|told| told.written)
        {
            tracing::warn!(
                "the dead-man's switch keeps its old deadline, cannot write {}: {error}",
                self.file.display()
            );
        }
        *told = Some(DeadlineWrite { written: done.is_ok(), ..now });
    }
}

fn is_due(told: &DeadlineWrite, now: &DeadlineWrite) -> bool {
    let passed = now.mono.saturating_sub(told.mono);
    if !told.written {
        return passed >= AGAIN;
    }
    let lasted = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
    // The wall clock was set, or the agent has corrected its time.
    let stepped =
        |before: Timestamp, after: Timestamp| (after.duration_since(before) - lasted).abs() > STEP;
    let is_moved = stepped(told.wall, now.wall) || stepped(told.steady, now.steady);
    is_moved || told.hard_end != now.hard_end || (now.hard_end.is_none() && passed >= RENEW)
}
