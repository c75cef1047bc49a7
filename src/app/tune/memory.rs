//! The records of a tuning, read once: most of them never change.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::app::record_errors::record_fault;
use crate::app::tune::begin::tuning_name;
use crate::app::{ExitCode, Fault};
use crate::job::{
    Continues, EarlyStop, JobId, JobOutcome, MetricSeries, RECORD_FORMAT, Receipt, ResolvedSpec,
    TrialFate, TrialPaused, TuneSpec, TuneTrial, TuneTrialEnd, Tuning, TuningEnd,
};
use crate::jobdir::{GangDir, JobDir, JobDirError, TuningDir, tunings};
use crate::market::Usd;
use crate::policy::tune::next_trial::TrialStand;
use crate::policy::tune::reuse::ReuseTrial;
use crate::policy::tune::trial_fate::{EndedTrial, end_of_trial};
use crate::wire::StoreHandle;

/// One tuning, and all that is known of its trials.
pub struct TuneMemory {
    pub store: StoreHandle,
    pub dir: TuningDir,
    pub tuning: Tuning,
    pub trials: BTreeMap<u32, KnownTrial>,
    pub end: Option<TuningEnd>,
}

pub struct KnownTrial {
    pub trial: TuneTrial,
    /// Its jobs: the first, and one after each pause. The last one counts now.
    pub jobs: Vec<ResolvedSpec>,
    /// It waits until it is among the best.
    pub paused: Option<TrialPaused>,
    /// The rung that it passed before its last job began.
    pub passed: f64,
    /// The cost of its jobs before the last, and of the last while it is paused.
    pub usd_before: Usd,
    /// The most that its last job can cost; `None`: unlimited.
    most_usd: Option<Usd>,
    /// The metric of its jobs before the last.
    series_before: MetricSeries,
    pub end: Option<TuneTrialEnd>,
    /// Its end is in the job root. A reader only computes it; a driver writes it.
    pub is_end_kept: bool,
    /// The metric so far, of all attempts.
    pub series: MetricSeries,
    /// It was asked to stop early.
    pub is_pruned: bool,
    /// Its job is in the job root.
    pub is_made: bool,
    /// How many reports early stopping has judged.
    pub judged: u64,
    /// With `reuse`, the machine of its ended job.
    pub machine: TrialMachine,
}

/// The machine of an ended trial, by its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrialMachine {
    /// Whether its job may keep one, stopped. `None`: nobody has looked.
    pub keeps: Option<bool>,
    /// Whether it started the machine that it took.
    pub started: bool,
}

impl TuneMemory {
    /// # Errors
    /// Fails when the tuning is missing, or the job root is unreachable.
    pub async fn open(store: &StoreHandle, name: &str) -> Result<Self, Fault> {
        let read = async |name: &str| {
            let dir = TuningDir::new(Arc::clone(store), name);
            let tuning = dir.record().await.map_err(|error| record_fault(&error))?;
            Ok::<_, Fault>(tuning.map(|tuning| (dir, tuning)))
        };
        let mut found = read(name).await?;
        // Its job may have a name that no folder can have.
        if found.is_none() && tuning_name(name) != name {
            found = read(&tuning_name(name)).await?;
        }
        let Some((dir, tuning)) = found else { return Err(not_found(store, name).await) };
        let mut memory = TuneMemory {
            store: Arc::clone(store),
            dir,
            tuning,
            trials: BTreeMap::new(),
            end: None,
        };
        memory.refresh().await?;
        Ok(memory)
    }

    /// Reads what is new.
    ///
    /// # Errors
    /// Fails when the job root does not answer, or a record cannot be read.
    pub async fn refresh(&mut self) -> Result<(), Fault> {
        self.read_news().await.map_err(|error| record_fault(&error))
    }

    async fn read_news(&mut self) -> Result<(), JobDirError> {
        // First: a driver that lets a trial go on reads the end after its record.
        if self.end.is_none() {
            self.end = self.dir.end().await?;
        }
        let from = self.trials.keys().last().map_or(1, |last| last + 1);
        for trial in self.dir.trials_from(from).await? {
            self.trials.insert(trial.number, KnownTrial::new(trial));
        }
        for known in self.trials.values_mut().filter(|known| known.end.is_none()) {
            known.look(&self.store, &self.dir, &self.tuning.tune).await?;
            if self.end.is_some() && known.end.is_none() {
                known.end = known.end_of_paused();
            }
        }
        for known in self.trials.values_mut().filter(|_| self.tuning.tune.reuse) {
            known.look_at_machine(&self.store).await?;
        }
        Ok(())
    }

    /// The trials for the policy, ordered by number.
    pub fn stands(&self) -> Vec<TrialStand> {
        self.trials.values().map(KnownTrial::stand).collect()
    }

    /// The trials whose jobs run.
    pub fn running(&self) -> impl Iterator<Item = &KnownTrial> {
        self.trials.values().filter(|known| known.is_running())
    }

    /// Whether the tuning and all its trials have ended, and their machines are given up.
    pub fn is_over(&self) -> bool {
        let is_over = |known: &KnownTrial| known.end.is_some() && known.machine.keeps != Some(true);
        self.end.is_some() && self.trials.values().all(is_over)
    }

    /// The machines of the trials, for the policy.
    pub fn reuse_trials(&self) -> Vec<ReuseTrial> {
        let number_of = |job: &JobId| {
            let trial = self.trials.values().find(|known| known.job() == job);
            trial.map(|known| known.trial.number)
        };
        let trials = self.trials.values().map(|known| ReuseTrial {
            number: known.trial.number,
            keeps: known.machine.keeps == Some(true),
            took: known.taken_machine().and_then(|from| number_of(&from.job)),
            started: known.end.as_ref().map(|_| known.machine.started),
        });
        trials.collect()
    }

    /// The best complete trial.
    pub fn best(&self) -> Option<&KnownTrial> {
        let goal = self.tuning.tune.goal;
        let complete = self
            .trials
            .values()
            .filter(|known| known.end.as_ref().is_some_and(|end| end.fate == TrialFate::Complete));
        complete.filter(|known| known.value().is_some()).reduce(|best, known| {
            let (value, other) = (known.value(), best.value());
            let is_better =
                value.zip(other).is_some_and(|(value, other)| goal.prefers(value, other));
            if is_better { known } else { best }
        })
    }
}

impl KnownTrial {
    fn new(trial: TuneTrial) -> Self {
        KnownTrial {
            jobs: vec![(*trial.job).clone()],
            paused: None,
            passed: 0.0,
            usd_before: Usd::ZERO,
            most_usd: trial.most_usd,
            series_before: MetricSeries::default(),
            trial,
            end: None,
            is_end_kept: false,
            series: MetricSeries::default(),
            is_pruned: false,
            is_made: false,
            judged: 0,
            machine: TrialMachine::default(),
        }
    }

    /// The ended trial whose machine this one begins on.
    fn taken_machine(&self) -> Option<&Continues> {
        self.trial.job.continues.as_ref().filter(|from| from.only_setup)
    }

    /// Looks whether its ended job keeps a machine, until it keeps none.
    async fn look_at_machine(&mut self, store: &StoreHandle) -> Result<(), JobDirError> {
        if self.end.is_none() || self.machine.keeps == Some(false) {
            return Ok(());
        }
        let job = JobDir::new(Arc::clone(store), self.job().clone());
        if self.machine.keeps.is_none() {
            let mut last = None;
            for attempt in job.attempts().await? {
                last = job.settled(attempt).await?.or(last);
                let instance = last.as_ref().and_then(|settled| settled.instance.as_ref());
                let taken = self.taken_machine().and_then(|from| from.machine.as_ref());
                self.machine.started |=
                    taken.is_some_and(|taken| Some(&taken.instance) == instance);
            }
            // A machine that did not start may carry its job's name.
            let never_started = self.taken_machine().is_some() && !self.machine.started;
            self.machine.keeps = Some(never_started || last.is_some_and(|settled| settled.kept));
        }
        if self.machine.keeps == Some(true) && job.given_up().await?.is_some() {
            self.machine.keeps = Some(false);
        }
        Ok(())
    }

    pub fn is_running(&self) -> bool {
        self.end.is_none() && self.paused.is_none()
    }

    /// Its job by now; of a gang, the job of rank 0.
    pub fn job(&self) -> &JobId {
        &self.spec().job
    }

    /// The jobs of all its ranks, rank 0 first. A trial of one machine has one.
    pub fn rank_jobs(&self) -> Vec<JobId> {
        self.spec().rank_jobs()
    }

    pub fn spec(&self) -> &ResolvedSpec {
        self.jobs.last().expect("a trial has its first job")
    }

    /// The number of its next pause.
    pub fn next_pause(&self) -> u32 {
        self.jobs.len() as u32
    }

    /// The last metric; of a trial that ended, the value that counts.
    pub fn value(&self) -> Option<f64> {
        match &self.end {
            Some(end) => end.value,
            None => self.series.last?.value,
        }
    }

    fn stand(&self) -> TrialStand {
        TrialStand {
            number: self.trial.number,
            fate: self.end.as_ref().map(|end| end.fate),
            usd: self.end.as_ref().map_or(self.usd_before, |end| end.usd),
            most_usd: self.most_usd,
            is_paused: self.paused.is_some(),
            again_of: self.trial.again_of,
        }
    }

    /// Looks at a trial that had not ended. Its end follows from the receipts of all its ranks.
    async fn look(
        &mut self,
        store: &StoreHandle,
        dir: &TuningDir,
        tune: &TuneSpec,
    ) -> Result<(), JobDirError> {
        let number = self.trial.number;
        if let Some(end) = dir.trial_end(number).await? {
            // Its jobs, for those who look at it.
            let may_have_paused = tune.early_stop == EarlyStop::PausingAsha;
            while may_have_paused && self.look_for_resumed(dir).await? {}
            self.is_end_kept = true;
            self.series = end.series.clone();
            self.paused = None;
            self.end = Some(end);
            return Ok(());
        }
        loop {
            if self.paused.is_some() && !self.look_for_resumed(dir).await? {
                return Ok(());
            }
            let job = JobDir::new(Arc::clone(store), self.job().clone());
            let receipt = job.receipt().await?;
            self.series = self.series_before.clone();
            self.series.join(&series_of(&job).await?);
            let Some(receipt) = receipt else { return Ok(()) };
            // Another rank may still bill. Its job is driven until then.
            let Some(others) = self.other_receipts(store).await? else { return Ok(()) };
            self.is_made = true;
            let may_pause = tune.early_stop == EarlyStop::PausingAsha;
            let was_stopped = receipt.outcome == JobOutcome::Stopped;
            if may_pause && was_stopped {
                self.paused = dir.paused(number, self.next_pause()).await?;
            }
            if self.paused.is_some() {
                self.usd_before += receipt.total_usd;
                continue;
            }
            let pruned = dir.pruned(number).await?;
            let gang = match self.spec().member() {
                Some(_) => GangDir::new(Arc::clone(store), self.job().clone()).end().await?,
                None => None,
            };
            let (receipt, others, gang, pruned) =
                (&receipt, &others, gang.as_ref(), pruned.as_ref());
            let ended = EndedTrial { receipt, others, gang, pruned };
            let mut end = end_of_trial(number, &tune.metric, &ended, self.series.clone());
            end.usd += self.usd_before;
            self.end = Some(end);
            return Ok(());
        }
    }

    /// The receipts of the ranks beside rank 0. `None`: one has not ended.
    async fn other_receipts(
        &self,
        store: &StoreHandle,
    ) -> Result<Option<Vec<Receipt>>, JobDirError> {
        let mut receipts = Vec::new();
        for job in self.rank_jobs().into_iter().skip(1) {
            match JobDir::new(Arc::clone(store), job).receipt().await? {
                Some(receipt) => receipts.push(receipt),
                None => return Ok(None),
            }
        }
        Ok(Some(receipts))
    }

    /// Whether a paused trial goes on.
    async fn look_for_resumed(&mut self, dir: &TuningDir) -> Result<bool, JobDirError> {
        let Some(resumed) = dir.resumed(self.trial.number, self.next_pause()).await? else {
            return Ok(false);
        };
        (self.paused, self.is_pruned) = (None, false);
        self.series_before = self.series.clone();
        self.passed = resumed.passed;
        self.most_usd = resumed.most_usd;
        self.is_made = false;
        self.jobs.push(*resumed.job);
        Ok(true)
    }

    /// The end of a paused trial when no more trials go on.
    fn end_of_paused(&self) -> Option<TuneTrialEnd> {
        let paused = self.paused.as_ref()?;
        Some(TuneTrialEnd {
            format: RECORD_FORMAT,
            number: self.trial.number,
            ended: paused.at,
            fate: TrialFate::Pruned,
            value: self.value(),
            series: self.series.clone(),
            usd: self.usd_before,
            reason: paused.reason.clone(),
        })
    }
}

/// The metric of all attempts of a job.
async fn series_of(job: &JobDir) -> Result<MetricSeries, JobDirError> {
    let mut series = MetricSeries::default();
    for attempt in job.attempts().await? {
        let outcome = job.outcome(attempt).await?.and_then(|outcome| outcome.metric);
        let reported = match outcome {
            Some(metric) => Some(metric),
            None => job.status(attempt).await?.and_then(|status| status.metric),
        };
        if let Some(reported) = reported {
            series.join(&reported);
        }
    }
    Ok(series)
}

async fn not_found(store: &StoreHandle, name: &str) -> Fault {
    let fault = Fault::new(ExitCode::NOT_FOUND, format!("no tuning `{name}` in {}", store.url()));
    let names = tunings(store).await.unwrap_or_default();
    let names: Vec<&str> = names.iter().map(TuningDir::name).collect();
    match crate::config::closest(name, names.iter().copied()) {
        Some(near) => fault.hint(crate::config::did_you_mean(near)),
        None => fault.hint("`lamp tune list` lists them; `lamp tune JOB.toml` begins one"),
    }
}
