//! The fixed facts of this machine's attempt, and the state that survives a crash of the agent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::agent::startup::failed_resume::{RollbackRecord, StartRecord};
use crate::agent::watch_workload::{LearnedCadence, TimeAccounting};
use crate::job::{
    AttemptNo, CheckpointNo, CheckpointSummary, ExitStatus, JobId, Plan, Reason, ResolvedSpec,
};
use crate::jobdir::layout;
use crate::market::{Span, Usd, UsdPerHour};
use crate::policy::{Afterwards, End, Extension, HardwareFault, WorkloadStage};
use crate::ports::Clock;

/// The terms of the attempt. Kept on disk, so that a restarted agent needs no store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    pub resolved: ResolvedSpec,
    pub no: AttemptNo,
    pub instance: String,
    /// When billing began.
    pub launched: Timestamp,
    pub price: UsdPerHour,
    /// The cost of earlier attempts of the job.
    pub spent_before: Usd,
    pub kill_at: Option<Timestamp>,
    pub folders: Folders,
    pub mode: Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A controller launched this machine for this attempt.
    Launched,
    /// A user runs the agent by hand around a command, with the user's own folder and terminal.
    Alone,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Folders {
    /// The workload's current folder.
    pub work: PathBuf,
    /// The agent's own; survives a crash of the agent and a reboot.
    pub state: PathBuf,
    /// Survives attempts on the same machine: `setup` may keep its downloads here.
    pub cache: PathBuf,
}

/// The name of the agent's state in the state folder.
pub const AGENT_STATE_FILE: &str = "agent.json";

/// The state that survives a crash of the agent: [`AGENT_STATE_FILE`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentState {
    /// Code, checkpoint and preflight are done.
    pub prepared: bool,
    /// The setup of an earlier trial is on the disk, and does not run again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub setup_kept: bool,
    pub stage: WorkloadStage,
    /// The number of the newest start of a process, setup included; 0 before the first.
    pub start: u32,
    /// How many of the starts were of `setup`.
    #[serde(default)]
    pub setups: u32,
    /// When the running setup started, by the agent's steady time.
    #[serde(default)]
    pub setup_since: Option<Timestamp>,
    pub retries_used: u32,
    pub stall_restarts: u32,
    #[serde(rename = "drawers")]
    pub time: TimeAccounting,
    /// The learned cadence of the workload.
    #[serde(rename = "rhythm", default)]
    pub cadence: LearnedCadence,
    pub started: Timestamp,
    pub resumed_from: Option<CheckpointSummary>,
    /// Files in the checkpoint folder before a restore: they came with the code. `None`: unknown,
    /// or too many.
    #[serde(default)]
    pub shipped: Option<Vec<String>>,
    #[serde(default)]
    pub begun: Option<StartRecord>,
    /// Each rollback to an older checkpoint.
    #[serde(default)]
    pub went_back: Vec<RollbackRecord>,
    /// A checkpoint older than this must be restored before the next start.
    #[serde(default)]
    pub back_before: Option<CheckpointNo>,
    /// When the command first started, by the wall clock, which also stamps its files.
    #[serde(default)]
    pub main_since: Option<Timestamp>,
    /// When the workload was first seen working.
    #[serde(default)]
    pub working_since: Option<Timestamp>,
    /// The number of the newest checkpoint of this attempt, and the useful time that it holds.
    #[serde(default)]
    pub saved: Option<(CheckpointNo, Span)>,
    /// The newest request for a checkpoint that was carried out.
    pub checkpoint_wish: Option<u32>,
    /// The newest request for more time that was seen.
    #[serde(default)]
    pub extended: Option<u32>,
    /// The time and budget granted so far: a restarted agent keeps them if the store does not
    /// answer.
    #[serde(default)]
    pub granted: Extension,
    /// The hard end as the user has raised it.
    #[serde(default)]
    pub kill_at: Option<Timestamp>,
    #[serde(default)]
    pub anchor: Option<ClockAnchor>,
    /// The end or restart in progress: a restarted agent continues it.
    #[serde(default)]
    pub ending: Option<PendingEnd>,
    /// How the command had ended when the end in `ending` began: a reboot would lose it.
    #[serde(default)]
    pub exit: Option<ExitStatus>,
    /// How many agents have worked on the end in `ending`, including the first.
    #[serde(default)]
    pub ending_lives: u32,
    /// How many agents in a row had a short run before this one.
    #[serde(default)]
    pub short_lives: u32,
    /// The machine's hardware fault: the driver reports some faults only once.
    #[serde(default)]
    pub hardware: Option<HardwareFault>,
    /// The machine is held for inspection.
    #[serde(default)]
    pub held: Option<HeldMachine>,
}

/// A machine held after the end of the work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldMachine {
    pub since: Timestamp,
    /// The time granted before: that was for the work.
    pub granted: Span,
    /// The end, with the time granted since.
    pub until: Timestamp,
}

/// A synchronised clock is right to the second, and a request takes some.
pub(crate) const BEHIND_MAX: SignedDuration = SignedDuration::from_secs(5);

/// The longest time for a heartbeat's write and the question for its date. Below: the lead that is
/// corrected.
pub(crate) const ASKED_FOR: SignedDuration = SignedDuration::from_secs(60);
const AHEAD_MAX: SignedDuration = SignedDuration::from_secs(5 * 60);

/// The wall clock at one moment, continued by the monotonic clock: a set clock does not reach a
/// limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockAnchor {
    pub wall: Timestamp,
    pub mono: Duration,
    /// The boot of `mono`. After another boot `mono` means nothing.
    #[serde(default)]
    pub boot: String,
    /// How long the machine ran before this boot, by the monotonic clock; and until now, as last
    /// kept.
    #[serde(default)]
    pub lived_before: Duration,
    #[serde(default)]
    pub lived: Duration,
}

impl ClockAnchor {
    /// The anchor of an earlier agent in this boot; otherwise this moment, at least as long after
    /// the launch as the machine ran. A clock that was set back would otherwise give it more time
    /// with each reboot.
    pub fn kept_or_now(
        kept: Option<ClockAnchor>,
        launched: Timestamp,
        clock: &dyn Clock,
    ) -> ClockAnchor {
        let (wall, mono, boot) = (clock.now(), clock.mono(), clock.boot());
        match kept {
            Some(kept) if kept.boot == boot && kept.mono <= mono => kept,
            kept => {
                let lived = kept.map(|kept| kept.lived).unwrap_or_default();
                let reached = launched.saturating_add(lived).unwrap_or(wall);
                ClockAnchor { wall: wall.max(reached), mono, boot, lived_before: lived, lived }
            }
        }
    }

    /// Corrects by the store's clock: at the moment `mono` it was at least `at`, and not much
    /// later. `None`: they agree. A clock that is behind gives a machine too much time, one that is
    /// ahead too little. After a reboot there is nothing else to compare with.
    pub fn by_the_store(
        &self,
        launched: Timestamp,
        (mono, at): (Duration, Timestamp),
    ) -> Option<ClockAnchor> {
        let carried = self.carried(mono);
        let (behind, ahead) = (at.duration_since(carried), carried.duration_since(at));
        let wall = if behind > BEHIND_MAX {
            self.wall.saturating_add(behind)
        } else if ahead > AHEAD_MAX {
            self.wall.saturating_sub(ahead - ASKED_FOR)
        } else {
            return None;
        };
        // Whatever the store says, the machine ran at least as long as its agents measured.
        let lived = launched.saturating_add(self.lived_before).unwrap_or(self.wall);
        let wall = wall.unwrap_or(self.wall).max(lived);
        (wall != self.wall).then(|| ClockAnchor { wall, ..self.clone() })
    }

    /// The anchor to keep, for the next boot.
    pub fn by(&self, mono: Duration) -> ClockAnchor {
        ClockAnchor { lived: self.lived_before + mono.saturating_sub(self.mono), ..self.clone() }
    }

    /// The wall clock now, as if it was never set.
    pub fn carried(&self, mono: Duration) -> Timestamp {
        let passed = SignedDuration::try_from(mono.saturating_sub(self.mono));
        passed.ok().and_then(|passed| self.wall.checked_add(passed).ok()).unwrap_or(self.wall)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PendingEnd {
    /// The workload is being stopped, to be started again.
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

    /// The file that `cloudml-hypertune` writes. It needs a folder of its own.
    pub fn hypertune_file(&self) -> PathBuf {
        self.folders.state.join("hypertune").join("output.metrics")
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
        let path = self
            .resolved
            .spec
            .checkpoint
            .as_ref()
            .map_or("checkpoints", |checkpoint| checkpoint.path.as_str());
        self.folders.work.join(path)
    }

    /// The folder of one start: its records and its log.
    pub fn start_dir(&self, start: u32) -> PathBuf {
        start_dir(&self.folders.state, start)
    }

    /// The cost of the machine so far, and of the job.
    pub fn spent(&self, now: Timestamp) -> (Usd, Usd) {
        let billed = now.duration_since(self.launched);
        let here = self.price.cost_of(std::time::Duration::try_from(billed).unwrap_or_default());
        (here, here + self.spent_before)
    }
}

impl AgentState {
    /// Whether its machine was terminating. A stopped machine may have started again for another
    /// attempt.
    pub fn is_terminating(&self) -> bool {
        matches!(&self.ending, Some(PendingEnd::End { end, .. }) if end.then == Afterwards::Terminate)
    }

    pub fn new(started: Timestamp) -> Self {
        AgentState {
            prepared: false,
            setup_kept: false,
            stage: WorkloadStage::Setup,
            start: 0,
            setups: 0,
            setup_since: None,
            retries_used: 0,
            stall_restarts: 0,
            time: TimeAccounting::default(),
            cadence: LearnedCadence::default(),
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

    /// The useful time of this attempt that its newest checkpoint holds.
    pub fn saved_work(&self) -> Span {
        self.saved.map_or(Span::ZERO, |(_, saved)| saved)
    }

    /// How often the command was started, without `setup`.
    pub fn starts(&self) -> u32 {
        self.start.saturating_sub(self.setups)
    }

    pub fn start_name(&self) -> String {
        match self.stage {
            WorkloadStage::Setup => SETUP.to_owned(),
            _ => format!("start {} of the workload", self.starts()),
        }
    }
}

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

    /// A boot at `wall` by the machine's clock, an hour after the launch as its agents measured.
    /// Ten seconds later on the monotonic clock, the store dates its first heartbeat at `dated`.
    /// Returns the corrected time.
    fn put_right(wall: i64, dated: i64) -> Option<i64> {
        let lived = Duration::from_secs(3600);
        let anchor = ClockAnchor {
            wall: at(wall),
            mono: Duration::from_secs(40),
            boot: "2".into(),
            lived_before: lived,
            lived,
        };
        let mono = Duration::from_secs(50);
        anchor
            .by_the_store(LAUNCHED, (mono, at(dated)))
            .map(|anchor| anchor.carried(mono).as_second())
    }

    #[test]
    fn wrong_boot_clock_is_corrected_by_store_clock() {
        assert_eq!(put_right(7200, 7210), None);
        assert_eq!(put_right(7200, 7200), None, "a heartbeat took ten seconds");
        assert_eq!(put_right(7200, 10_810), Some(10_810), "an hour behind");
        assert_eq!(
            put_right(10_800, 7210),
            Some(7270),
            "an hour ahead: the machine gets no more time for it"
        );
        assert_eq!(
            put_right(10_800, 0),
            Some(3610),
            "it has lived for an hour, whatever a store says"
        );
    }
}
