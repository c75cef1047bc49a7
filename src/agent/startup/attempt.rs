//! Everything that is fixed about the attempt on this machine, and the little that must outlive a crash of the agent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::agent::checkpoint::failed_resume::{Begun, WentBack};
use crate::agent::watch_workload::{Drawers, Rhythm};
use crate::job::{AttemptNo, CheckpointNo, CheckpointSummary, ExitStatus, JobId, Plan, Reason, ResolvedSpec};
use crate::jobdir::layout;
use crate::market::{Span, Usd, UsdPerHour};
use crate::policy::{Afterwards, End, Extension, HardwareFault, Stage};
use crate::ports::Clock;

/// What was agreed before the workload starts. Kept on disk: an agent that comes after a crash needs no store to go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    pub resolved: ResolvedSpec,
    pub no: AttemptNo,
    pub instance: String,
    /// When billing began.
    pub launched: Timestamp,
    pub price: UsdPerHour,
    /// What earlier attempts of the job cost.
    pub spent_before: Usd,
    pub kill_at: Option<Timestamp>,
    pub folders: Folders,
    pub mode: Mode,
}

/// Who is in charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A controller launched this machine for this attempt.
    Launched,
    /// Somebody runs the agent by hand around a command: its folder, its terminal, its checkpoints are the user's own.
    Alone,
}

/// Where things are on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Folders {
    /// The workload's current folder.
    pub work: PathBuf,
    /// The agent's own; survives a crash of the agent and a reboot.
    pub state: PathBuf,
    /// Survives attempts on the same machine: `setup` may keep its downloads here.
    pub cache: PathBuf,
}

/// `agent.json` in the state folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// Code, checkpoint and preflight are done.
    pub prepared: bool,
    pub stage: Stage,
    /// The number of the newest start of a process, setup included; 0 before the first.
    pub start: u32,
    /// How many of the starts were of `setup`.
    #[serde(default)]
    pub setups: u32,
    /// When the setup that runs now was started, by the steady clock.
    #[serde(default)]
    pub setup_since: Option<Timestamp>,
    pub retries_used: u32,
    pub stall_restarts: u32,
    pub drawers: Drawers,
    /// What was learned of the workload's rhythm.
    #[serde(default)]
    pub rhythm: Rhythm,
    pub started: Timestamp,
    pub resumed_from: Option<CheckpointSummary>,
    /// Files that were in the checkpoint folder before a restore: they came with the code. `None`: not known, or too many.
    #[serde(default)]
    pub shipped: Option<Vec<String>>,
    /// The checkpoint that the newest start of the command began from.
    #[serde(default)]
    pub begun: Option<Begun>,
    /// Each time that an older checkpoint was brought back.
    #[serde(default)]
    pub went_back: Vec<WentBack>,
    /// An older checkpoint than this is to be brought back before the next start.
    #[serde(default)]
    pub back_before: Option<CheckpointNo>,
    /// When the command was first started, by the wall clock, which stamps its files.
    #[serde(default)]
    pub main_since: Option<Timestamp>,
    /// When the workload was first seen to work.
    #[serde(default)]
    pub working_since: Option<Timestamp>,
    /// The number of the newest checkpoint of this attempt, and the useful time that it holds.
    #[serde(default)]
    pub saved: Option<(CheckpointNo, Span)>,
    /// The number of the newest request for a checkpoint that was obeyed.
    pub checkpoint_wish: Option<u32>,
    /// The number of the newest request for more time that was seen.
    #[serde(default)]
    pub extended: Option<u32>,
    /// What was granted so far: an agent that comes after a crash, and finds no answer to its questions, keeps it.
    #[serde(default)]
    pub granted: Extension,
    /// The hard end as somebody has raised it.
    #[serde(default)]
    pub kill_at: Option<Timestamp>,
    #[serde(default)]
    pub anchor: Option<Anchor>,
    /// What was being done to the workload when this was written: an agent that comes after a crash goes on with it.
    #[serde(default)]
    pub ending: Option<Ending>,
    /// How the command had ended when the end in `ending` began: a reboot takes it, and what it left as its last word is not believed
    /// then (seed 23000332 of 24 h).
    #[serde(default)]
    pub exit: Option<ExitStatus>,
    /// How many agents came up in the end that is in `ending`, with the one that began it.
    #[serde(default)]
    pub ending_lives: u32,
    /// How many agents in a row died young before this one.
    #[serde(default)]
    pub short_lives: u32,
    /// What is broken of the machine: the driver tells of some faults only once.
    #[serde(default)]
    pub hardware: Option<HardwareFault>,
    /// The machine is kept for a look.
    #[serde(default)]
    pub held: Option<Held>,
}

/// The keeping of a machine after the end of the work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    pub since: Timestamp,
    /// What had been granted by then: that was for the work.
    pub granted: Span,
    /// The end, with what was granted since.
    pub until: Timestamp,
}

/// A clock that is kept in time is right to the second; a request takes some.
pub(crate) const BEHIND_MAX: SignedDuration = SignedDuration::from_secs(5);

/// The write of a heartbeat, and the question of when it came, at the most; and what is worth putting right.
pub(crate) const ASKED_FOR: SignedDuration = SignedDuration::from_secs(60);
const AHEAD_MAX: SignedDuration = SignedDuration::from_secs(5 * 60);

/// One moment on both clocks: the wall clock as it was then, carried on by the clock that never steps. A machine whose clock
/// is set by a day reaches no limit by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Anchor {
    pub wall: Timestamp,
    pub mono: Duration,
    /// The life of the machine in which `mono` counts; after another boot it means nothing.
    #[serde(default)]
    pub boot: String,
    /// How long the machine has lived before this boot, as far as its agents saw it by the clock that never steps; and by now, as
    /// it was kept last. No clock that was set says more.
    #[serde(default)]
    pub lived_before: Duration,
    #[serde(default)]
    pub lived: Duration,
}

impl Anchor {
    /// The one that an agent before this one kept, if this machine still lives the same life; else this moment, which is so long
    /// after the launch at least as the machine has lived: a clock that was set back would give it that much more time with its
    /// next reboot (seed 1414 of six hours of the false world).
    pub fn kept_or_now(kept: Option<Anchor>, launched: Timestamp, clock: &dyn Clock) -> Anchor {
        let (wall, mono, boot) = (clock.now(), clock.mono(), clock.boot());
        match kept {
            Some(kept) if kept.boot == boot && kept.mono <= mono => kept,
            kept => {
                let lived = kept.map(|kept| kept.lived).unwrap_or_default();
                let reached = launched.saturating_add(lived).unwrap_or(wall);
                Anchor { wall: wall.max(reached), mono, boot, lived_before: lived, lived }
            }
        }
    }

    /// By the clock of the store, which said at a moment of the steady one that it was not before `at`, and not much later. `None`: they
    /// agree. A clock that is behind gives a machine more time than it has, one that is ahead takes some of it: each reboot has nothing
    /// else to go by (seeds 1414 of six hours and 21006056 of 24 h of the false world).
    pub fn by_the_store(&self, launched: Timestamp, (mono, at): (Duration, Timestamp)) -> Option<Anchor> {
        let carried = self.carried(mono);
        let (behind, ahead) = (at.duration_since(carried), carried.duration_since(at));
        let wall = if behind > BEHIND_MAX {
            self.wall.saturating_add(behind)
        } else if ahead > AHEAD_MAX {
            self.wall.saturating_sub(ahead - ASKED_FOR)
        } else {
            return None;
        };
        // Whatever a store says, nobody has lived for less than was seen.
        let lived = launched.saturating_add(self.lived_before).unwrap_or(self.wall);
        let wall = wall.unwrap_or(self.wall).max(lived);
        (wall != self.wall).then(|| Anchor { wall, ..self.clone() })
    }

    /// As it is kept, for the life after this.
    pub fn by(&self, mono: Duration) -> Anchor {
        Anchor { lived: self.lived_before + mono.saturating_sub(self.mono), ..self.clone() }
    }

    /// What a wall clock would say now that nobody has set since.
    pub fn carried(&self, mono: Duration) -> Timestamp {
        let passed = SignedDuration::try_from(mono.saturating_sub(self.mono));
        passed.ok().and_then(|passed| self.wall.checked_add(passed).ok()).unwrap_or(self.wall)
    }
}

/// A decision that was begun and takes time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ending {
    /// The workload is being ended, to be started again.
    Restart,
    End {
        end: End,
        reason: Reason,
    },
}

impl Attempt {
    pub fn job(&self) -> &JobId {
        &self.resolved.job
    }

    pub fn progress_file(&self) -> PathBuf {
        self.folders.state.join("progress.jsonl")
    }

    pub fn done_file(&self) -> PathBuf {
        match &self.resolved.spec.watch.done_marker {
            Some(marker) => self.folders.work.join(marker),
            None => self.folders.state.join("done"),
        }
    }

    pub fn notice_file(&self) -> PathBuf {
        self.folders.state.join("notice.json")
    }

    pub fn host_file(&self) -> PathBuf {
        self.folders.state.join("hostfile")
    }

    pub fn output_dir(&self) -> PathBuf {
        match self.mode {
            Mode::Launched => self.folders.work.join(layout::OUTPUT_DIR),
            Mode::Alone => self.folders.work.clone(),
        }
    }

    pub fn checkpoint_dir(&self) -> PathBuf {
        let path = self.resolved.spec.checkpoint.as_ref().map_or("checkpoints", |checkpoint| checkpoint.path.as_str());
        self.folders.work.join(path)
    }

    /// State of one start of a process: its records and its log.
    pub fn start_dir(&self, start: u32) -> PathBuf {
        start_dir(&self.folders.state, start)
    }

    /// What the machine has cost so far, and the job.
    pub fn spent(&self, now: Timestamp) -> (Usd, Usd) {
        let billed = now.duration_since(self.launched);
        let here = self.price.cost_of(std::time::Duration::try_from(billed).unwrap_or_default());
        (here, here + self.spent_before)
    }
}

impl Memory {
    /// Whether its machine was on its way to be terminated. One that is only stopped may have been started again since, for another.
    pub fn is_terminating(&self) -> bool {
        matches!(&self.ending, Some(Ending::End { end, .. }) if end.then == Afterwards::Terminate)
    }

    pub fn new(started: Timestamp) -> Self {
        Memory {
            prepared: false,
            stage: Stage::Setup,
            start: 0,
            setups: 0,
            setup_since: None,
            retries_used: 0,
            stall_restarts: 0,
            drawers: Drawers::default(),
            rhythm: Rhythm::default(),
            started,
            resumed_from: None,
            shipped: None,
            begun: None,
            went_back: Vec::new(),
            back_before: None,
            main_since: None,
            working_since: None,
            saved: None,
            checkpoint_wish: None,
            extended: None,
            granted: Extension::default(),
            kill_at: None,
            anchor: None,
            ending: None,
            exit: None,
            ending_lives: 0,
            short_lives: 0,
            hardware: None,
            held: None,
        }
    }

    /// How often the command was started: its first start is the first, also after a `setup`.
    pub fn starts(&self) -> u32 {
        self.start.saturating_sub(self.setups)
    }

    /// The newest start, in the words of the log.
    pub fn start_name(&self) -> String {
        match self.stage {
            Stage::Setup => SETUP.to_owned(),
            _ => format!("start {} of the workload", self.starts()),
        }
    }
}

/// The name of a setup's start in the log.
pub(crate) const SETUP: &str = "setup";

/// The folder of one start below the agent's state.
pub fn start_dir(state: &Path, start: u32) -> PathBuf {
    state.join("starts").join(format!("{start:04}"))
}

/// The numbers of a plan that the agent obeys.
pub fn terms(plan: Option<&Plan>) -> (UsdPerHour, Option<Timestamp>) {
    plan.map_or((UsdPerHour::ZERO, None), |plan| (plan.offer.hourly(), plan.kill_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAUNCHED: Timestamp = Timestamp::UNIX_EPOCH;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    /// A boot at `wall` by the machine's clock, an hour after the launch by what its agents saw; the store dates its first heartbeat, ten
    /// seconds later by the steady clock, at `dated`. What the machine goes by then.
    fn put_right(wall: i64, dated: i64) -> Option<i64> {
        let lived = Duration::from_secs(3600);
        let anchor = Anchor { wall: at(wall), mono: Duration::from_secs(40), boot: "2".into(), lived_before: lived, lived };
        let mono = Duration::from_secs(50);
        anchor.by_the_store(LAUNCHED, (mono, at(dated))).map(|anchor| anchor.carried(mono).as_second())
    }

    #[test]
    fn a_boot_by_a_clock_that_was_wrong_goes_by_the_stores() {
        assert_eq!(put_right(7200, 7210), None);
        assert_eq!(put_right(7200, 7200), None, "a heartbeat took ten seconds");
        assert_eq!(put_right(7200, 10_810), Some(10_810), "an hour behind");
        assert_eq!(put_right(10_800, 7210), Some(7270), "an hour ahead, and nobody gets a second more for it");
        assert_eq!(put_right(10_800, 0), Some(3610), "it has lived for an hour, whatever a store says");
    }
}
