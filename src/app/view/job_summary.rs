//! One job: what `status` shows and `-o json` promises (docs/cli-json.md). Not here: reading it
//! (`summary_reader`).

use jiff::Timestamp;
use serde::Serialize;

use super::cost_bound::Limited;
use super::discarded::DiscardedShown;
use super::kept_machines::KeptThing;
use super::machine::MachineShown;
use super::next_end::{Countdown, EndAsked, Held, WatchEnd};
use super::silence::Silence;
use crate::instance::GpuStatus;
use crate::job::{EndedBecause, JobOutcome, JobState, Plan, Progress, Refusal};
use crate::market::{Usd, UsdPerHour};

/// The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Summary {
    pub job: String,
    pub name: String,
    pub state: JobState,
    pub attempt: Option<u32>,
    pub instance: Option<String>,
    /// The machine of that attempt: planned, or running.
    pub machine: Option<MachineShown>,
    /// A request to end, before its agent or controller has seen it.
    pub end_asked: Option<EndAsked>,
    /// Its machine is kept after its end.
    pub held: Option<Held>,
    /// A person keeps it: until then it does not end as idle or stalled.
    pub kept_until: Option<Timestamp>,
    /// Each end that it is heading for, the nearest first.
    pub ends: Vec<Countdown>,
    /// `busy`, `idle`, `stalled`, `unknown` or `starting`; null when no agent watches.
    pub verdict: Option<String>,
    /// A standalone run of the agent: its price is unknown, and `usd` is 0.
    pub alone: bool,
    /// The cost so far; for a running machine, up to now.
    pub usd: Usd,
    /// The possible further cost of a machine that has not reported, if it exists.
    pub usd_unheard: Usd,
    /// The exact end of a machine is unknown: `usd` goes up to its last sign. With a receipt it is
    /// the most.
    pub usd_estimated: bool,
    /// The highest cost of the attempts so far, and of the next one if it waits for a machine.
    /// Null: unlimited.
    pub most_usd: Option<Usd>,
    /// The highest cost of the whole job, with all machines that may follow. Null: unlimited.
    pub most_job_usd: Option<Usd>,
    pub usd_per_hour: Option<UsdPerHour>,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    pub progress: Option<Progress>,
    pub cpu_percent: Option<f64>,
    pub gpus: Vec<GpuStatus>,
    pub checkpoints: u32,
    /// Seconds since the agent's last report, by this workstation's clock.
    pub heartbeat_seconds: Option<f64>,
    /// Its agent is silent: the machine's values are from its last heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence: Option<Silence>,
    pub reason: Option<String>,
    pub exit_code: Option<i32>,
    /// The receipt's word for its end: `idle`, `setup_failed`; null before the end.
    pub because: Option<EndedBecause>,
    /// Why nothing is launched now: a cap, a cheaper machine, no capacity; and when it is launched
    /// anyway.
    pub waiting: Option<String>,
    pub waiting_until: Option<Timestamp>,
    /// When a launch is tried again, after no machine was available.
    pub tried_again: Option<Timestamp>,
    /// Its current problem, by its controller (`attention.json`); also the last of `attention`.
    pub trouble: Option<String>,
    /// Whether a process of this workstation drives it. `null` if none should: it has ended, runs
    /// standalone, or is another workstation's.
    pub driven_here: Option<bool>,
    /// Cloud resources that an ended job still keeps, and their monthly cost.
    pub kept: Vec<KeptThing>,
    /// Stored data that was deleted. Read only for a single job: a list would cost a read for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discarded: Option<DiscardedShown>,
    pub attention: Vec<String>,
    /// The sentences of `attention` about a stall or an idle machine. Only the verdict says whether
    /// they still hold.
    #[serde(skip)]
    pub watch_sentences: Vec<String>,
    /// The shares of `usd` for idle time, and for work that interruptions lost. `None`: unknown, or
    /// it has ended.
    #[serde(skip)]
    pub idle_usd: Option<Usd>,
    #[serde(skip)]
    pub lost_usd: Option<Usd>,
    /// The ranks of a job of several machines. The money and the rate above count all ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangShown>,
    /// For the last attempt of an unfinished job.
    #[serde(skip)]
    pub plan: Option<Plan>,
    /// The owner in its spec, while there is no plan.
    #[serde(skip)]
    pub owner: Option<String>,
    /// Where it is now and why, for an attempt after others.
    #[serde(skip)]
    pub moved: Option<String>,
    #[serde(skip)]
    pub before: Option<String>,
    /// When the workload of its last attempt was first seen working.
    #[serde(skip)]
    pub working_since: Option<Timestamp>,
    /// When its newest checkpoint was saved.
    #[serde(skip)]
    pub last_checkpoint: Option<Timestamp>,
    /// The end that its present silence would bring.
    #[serde(skip)]
    pub watch_end: Option<WatchEnd>,
    /// It stands still, whether or not that ends it.
    #[serde(skip)]
    pub is_quiet: bool,
    #[serde(skip)]
    pub limited: Limited,
    /// Why its last launch was refused, if that is its last attempt.
    #[serde(skip)]
    pub refusal: Option<Refusal>,
}

/// Several machines that work as one, as their newest heartbeats tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct GangShown {
    /// `busy`, `idle`, `hung`, `straggler` or `unknown`; null when no rank runs.
    pub verdict: Option<String>,
    /// A sentence for a person: why the gang does not work well.
    pub reason: Option<String>,
    pub ranks: Vec<RankShown>,
}

/// One machine of a gang.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct RankShown {
    pub rank: u32,
    /// Its own job, for `lamp explain` and `lamp receipt`.
    pub job: String,
    pub state: JobState,
    pub attempt: Option<u32>,
    pub verdict: Option<String>,
    pub step: Option<f64>,
    pub gpu_percent: Option<f64>,
    pub cpu_percent: Option<f64>,
    pub usd: Usd,
    pub heartbeat_seconds: Option<f64>,
}

impl RankShown {
    /// `rank 1: running, busy, step 40, CPU 97%, $0.01`
    pub fn line(&self) -> String {
        let verdict = self.verdict.iter().map(|verdict| format!(", {verdict}"));
        let step = self.step.iter().map(|step| format!(", step {step}"));
        let usage = match (self.gpu_percent, self.cpu_percent) {
            (Some(gpu), _) => Some(format!(", GPU {gpu:.0}%")),
            (None, Some(cpu)) => Some(format!(", CPU {cpu:.0}%")),
            (None, None) => None,
        };
        let parts: String = verdict.chain(step).chain(usage).collect();
        format!("rank {}: {}{parts}, {}", self.rank, self.state.word(), self.usd)
    }
}

impl Summary {
    /// The state for people: `idle`, `budget` or `setup failed` if the command did not fail.
    pub fn state_told(&self) -> String {
        let told = |because: EndedBecause| JobOutcome::Failed.told(Some(because));
        self.because
            .filter(|_| matches!(self.state, JobState::Failed | JobState::Ended))
            .map_or_else(|| self.state.word().to_owned(), told)
    }

    /// Whether only a person can end its wait: the account's quotas are used up.
    pub fn waits_for_quota(&self) -> bool {
        self.waiting.is_some() && matches!(self.refusal, Some(Refusal::Quota | Refusal::Disks))
    }

    /// Whether a machine is requested or boots, and its agent has not reported.
    pub fn is_unheard(&self) -> bool {
        self.state == JobState::Provisioning && self.instance.is_none() && self.waiting.is_none()
    }
}

#[cfg(test)]
impl Summary {
    /// A busy first attempt of which little is known, for tests.
    pub fn example(state: JobState) -> Summary {
        Summary {
            job: "example-222222".into(),
            name: "example".into(),
            state,
            attempt: Some(1),
            instance: None,
            machine: None,
            end_asked: None,
            held: None,
            kept_until: None,
            ends: Vec::new(),
            verdict: Some("busy".into()),
            alone: false,
            usd: Usd::ZERO,
            usd_unheard: Usd::ZERO,
            usd_estimated: false,
            most_usd: None,
            most_job_usd: None,
            usd_per_hour: None,
            started: Timestamp::UNIX_EPOCH,
            ended: None,
            progress: None,
            cpu_percent: None,
            gpus: Vec::new(),
            checkpoints: 0,
            working_since: None,
            last_checkpoint: None,
            heartbeat_seconds: None,
            silence: None,
            reason: None,
            exit_code: None,
            because: None,
            waiting: None,
            waiting_until: None,
            tried_again: None,
            trouble: None,
            driven_here: None,
            kept: Vec::new(),
            discarded: None,
            attention: Vec::new(),
            watch_sentences: Vec::new(),
            idle_usd: None,
            lost_usd: None,
            gang: None,
            plan: None,
            owner: None,
            moved: None,
            before: None,
            watch_end: None,
            is_quiet: false,
            limited: Limited::Job,
            refusal: None,
        }
    }
}
