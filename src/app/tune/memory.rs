//! The records of a tuning, read once: most of them never change.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::app::record_errors::record_fault;
use crate::app::{ExitCode, Fault};
use crate::job::{MetricSeries, TrialFate, TuneTrial, TuneTrialEnd, Tuning, TuningEnd};
use crate::jobdir::{JobDir, JobDirError, TuningDir, tunings};
use crate::market::Usd;
use crate::policy::tune::next_trial::TrialStand;
use crate::policy::tune::trial_fate::end_of_trial;
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
}

impl TuneMemory {
    /// # Errors
    /// Fails when the tuning is missing, or the job root is unreachable.
    pub async fn open(store: &StoreHandle, name: &str) -> Result<Self, Fault> {
        let dir = TuningDir::new(Arc::clone(store), name);
        let tuning = dir.record().await.map_err(|error| record_fault(&error))?;
        let tuning = match tuning {
            Some(tuning) => tuning,
            None => return Err(not_found(store, name).await),
        };
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
        let from = self.trials.keys().last().map_or(1, |last| last + 1);
        for trial in self.dir.trials_from(from).await? {
            self.trials.insert(trial.number, KnownTrial::new(trial));
        }
        let metric = &self.tuning.tune.metric;
        for known in self.trials.values_mut().filter(|known| known.end.is_none()) {
            known.look(&self.store, &self.dir, metric).await?;
        }
        if self.end.is_none() {
            self.end = self.dir.end().await?;
        }
        Ok(())
    }

    /// The trials for the policy, ordered by number.
    pub fn stands(&self) -> Vec<TrialStand> {
        self.trials.values().map(KnownTrial::stand).collect()
    }

    pub fn running(&self) -> impl Iterator<Item = &KnownTrial> {
        self.trials.values().filter(|known| known.end.is_none())
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
            trial,
            end: None,
            is_end_kept: false,
            series: MetricSeries::default(),
            is_pruned: false,
            is_made: false,
            judged: 0,
        }
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
            usd: self.end.as_ref().map_or(Usd::ZERO, |end| end.usd),
            most_usd: self.trial.most_usd,
            again_of: self.trial.again_of,
        }
    }

    /// Looks at a trial that had not ended. Its end follows from the receipt of its job.
    async fn look(
        &mut self,
        store: &StoreHandle,
        dir: &TuningDir,
        metric: &str,
    ) -> Result<(), JobDirError> {
        let number = self.trial.number;
        self.end = dir.trial_end(number).await?;
        if let Some(end) = &self.end {
            self.is_end_kept = true;
            self.series = end.series.clone();
            return Ok(());
        }
        let job = JobDir::new(Arc::clone(store), self.trial.job.job.clone());
        let receipt = job.receipt().await?;
        self.series = series_of(&job).await?;
        if let Some(receipt) = receipt {
            let pruned = dir.pruned(number).await?;
            self.is_made = true;
            let end = end_of_trial(number, metric, &receipt, pruned.as_ref(), self.series.clone());
            self.end = Some(end);
        }
        Ok(())
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
