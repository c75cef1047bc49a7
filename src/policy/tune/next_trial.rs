//! Whether a tuning starts another trial now, waits, or ends.

use crate::job::{TrialFate, TuneAlgorithm, TuneSpec, TuningEndedBecause};
use crate::market::Usd;

/// A trial as far as it matters for the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialStand {
    pub number: u32,
    /// `None`: it has not ended.
    pub fate: Option<TrialFate>,
    /// The cost of its jobs that have ended.
    pub usd: Usd,
    /// The most that its running job can cost; `None`: unlimited.
    pub most_usd: Option<Usd>,
    /// It waits at a rung without a job.
    pub is_paused: bool,
    pub again_of: Option<u32>,
}

impl TrialStand {
    fn is_running(&self) -> bool {
        self.fate.is_none() && !self.is_paused
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum NextTrial {
    Start {
        number: u32,
        values: TrialValues,
    },
    /// Until a running trial ends.
    Wait,
    /// No more trials. Running ones go on.
    End {
        because: TuningEndedBecause,
        reason: String,
    },
}

/// Where the values of the next trial come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialValues {
    /// The combination of this number, from 0.
    Grid(u64),
    Random,
    /// Optuna chooses.
    Engine,
    /// The values of an interrupted trial.
    Again(u32),
}

/// Whether the worst case of one more trial fits the budget.
#[derive(Clone, Debug, PartialEq)]
pub enum BudgetVerdict {
    Fits,
    /// A running trial may cost less than its worst case.
    Waits,
    Exhausted {
        reason: String,
    },
}

/// Trials that fail from the first on are a mistake in the program: this many show it. Fewer would
/// end a tuning after two bad values.
const FAILED_MIN: usize = 3;

/// The next act. `trials`: all of them, ordered by number.
pub fn next_trial(spec: &TuneSpec, trials: &[TrialStand]) -> NextTrial {
    let running = trials.iter().filter(|trial| trial.is_running()).count();
    let failed = count(trials, TrialFate::Failed);
    let unended = trials.iter().filter(|trial| trial.fate.is_none()).count();
    let ended = trials.len() - unended - count(trials, TrialFate::Interrupted);
    if let Some(limit) = failed_limit(spec, failed, ended) {
        let reason = format!("{failed} of {ended} trials failed, and {limit} end the tuning");
        return NextTrial::End { because: TuningEndedBecause::Failed, reason };
    }
    let interrupted = count(trials, TrialFate::Interrupted);
    if interrupted > spec.trials as usize {
        let reason = format!("{interrupted} trials were interrupted for good, more than it has");
        return NextTrial::End { because: TuningEndedBecause::Interrupted, reason };
    }
    let wanted = wanted_trials(spec);
    if trials.len() - interrupted >= wanted as usize {
        return match running {
            0 => {
                let reason = format!("all {wanted} trials have ended");
                NextTrial::End { because: TuningEndedBecause::Done, reason }
            }
            _ => NextTrial::Wait,
        };
    }
    if running >= spec.parallel as usize {
        return NextTrial::Wait;
    }
    let number = trials.last().map_or(1, |last| last.number + 1);
    NextTrial::Start { number, values: values_of_next(spec, trials) }
}

/// How many trials may still start, if none is interrupted.
pub fn trials_to_start(spec: &TuneSpec, trials: &[TrialStand]) -> usize {
    let counted = trials.len() - count(trials, TrialFate::Interrupted);
    (wanted_trials(spec) as usize).saturating_sub(counted)
}

/// How many trials there are in all: a grid may have fewer combinations.
pub fn wanted_trials(spec: &TuneSpec) -> u32 {
    let combinations =
        spec.combinations().filter(|_| spec.algorithm == TuneAlgorithm::Grid).unwrap_or(u64::MAX);
    u32::try_from(combinations).unwrap_or(u32::MAX).min(spec.trials)
}

fn count(trials: &[TrialStand], fate: TrialFate) -> usize {
    trials.iter().filter(|trial| trial.fate == Some(fate)).count()
}

/// The limit that is reached, if it is.
fn failed_limit(spec: &TuneSpec, failed: usize, ended: usize) -> Option<usize> {
    let limit =
        spec.failed.map_or_else(|| FAILED_MIN.max(ended.div_ceil(2)), |limit| limit as usize);
    (failed >= limit).then_some(limit)
}

fn values_of_next(spec: &TuneSpec, trials: &[TrialStand]) -> TrialValues {
    let is_repeated = |number: u32| trials.iter().any(|trial| trial.again_of == Some(number));
    let interrupted = trials
        .iter()
        .find(|trial| trial.fate == Some(TrialFate::Interrupted) && !is_repeated(trial.number));
    match (interrupted, spec.algorithm) {
        (Some(trial), _) => TrialValues::Again(trial.number),
        (None, TuneAlgorithm::Grid) => {
            let before = trials.iter().filter(|trial| trial.again_of.is_none()).count();
            TrialValues::Grid(before as u64)
        }
        (None, TuneAlgorithm::Random) => TrialValues::Random,
        (None, _) => TrialValues::Engine,
    }
}

/// The cost of all ended trials, and the most of the running ones; `None`: unlimited.
pub fn committed(trials: &[TrialStand]) -> Option<Usd> {
    trials
        .iter()
        .map(|trial| match trial.is_running() {
            true => Some(trial.usd + trial.most_usd?),
            false => Some(trial.usd),
        })
        .try_fold(Usd::ZERO, |sum, usd| Some(sum + usd?))
}

/// `next_most`: the most that the next trial can cost; `None`: unlimited.
pub fn fits_budget(
    spec: &TuneSpec,
    trials: &[TrialStand],
    next_most: Option<Usd>,
) -> BudgetVerdict {
    let Some(budget) = spec.budget else { return BudgetVerdict::Fits };
    let others = committed(trials);
    let with_next = others.zip(next_most).map(|(others, next)| others + next);
    if with_next.is_some_and(|usd| usd <= budget) {
        return BudgetVerdict::Fits;
    }
    if trials.iter().any(TrialStand::is_running) {
        return BudgetVerdict::Waits;
    }
    let next = next_most.map_or("without a limit".to_owned(), |usd| format!("up to {usd}"));
    let others = others.map_or("no known sum".to_owned(), |usd| usd.to_string());
    let reason = format!(
        "the next trial can cost {next}, and with {others} for the others that is above the budget of {budget}"
    );
    BudgetVerdict::Exhausted { reason }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::job::{EarlyStop, TuneGoal, TuneParam};

    fn spec(trials: u32, parallel: u32, algorithm: TuneAlgorithm) -> TuneSpec {
        let values = (0..5).map(|n| n.to_string()).collect();
        TuneSpec {
            goal: TuneGoal::Minimize,
            metric: "loss".into(),
            trials,
            parallel,
            budget: Some(Usd::from_dollars(10.0).unwrap()),
            algorithm,
            early_stop: EarlyStop::Off,
            failed: None,
            resume: None,
            reuse: false,
            params: BTreeMap::from([("x".to_owned(), TuneParam::Categorical { values })]),
        }
    }

    fn trials(fates: &[Option<TrialFate>]) -> Vec<TrialStand> {
        let usd = |dollars| Usd::from_dollars(dollars).unwrap();
        (1..)
            .zip(fates)
            .map(|(number, fate)| TrialStand {
                number,
                fate: *fate,
                usd: usd(if fate.is_some() { 1.0 } else { 0.0 }),
                most_usd: Some(usd(3.0)),
                is_paused: false,
                again_of: None,
            })
            .collect()
    }

    const DONE: Option<TrialFate> = Some(TrialFate::Complete);
    const FAILED: Option<TrialFate> = Some(TrialFate::Failed);
    const LOST: Option<TrialFate> = Some(TrialFate::Interrupted);

    fn start(number: u32, values: TrialValues) -> NextTrial {
        NextTrial::Start { number, values }
    }

    fn ends(next: &NextTrial) -> Option<TuningEndedBecause> {
        match next {
            NextTrial::End { because, .. } => Some(*because),
            _ => None,
        }
    }

    #[test]
    fn trials_start_until_enough_run_or_have_ended() {
        let random = spec(3, 2, TuneAlgorithm::Random);
        assert_eq!(next_trial(&random, &[]), start(1, TrialValues::Random));
        let two = next_trial(&random, &trials(&[None, None]));
        assert!(matches!(two, NextTrial::Wait), "{two:?}");
        assert_eq!(next_trial(&random, &trials(&[None, DONE])), start(3, TrialValues::Random));
        let last = next_trial(&random, &trials(&[DONE, DONE, None]));
        assert!(matches!(last, NextTrial::Wait), "it may still be interrupted: {last:?}");
        let over = next_trial(&random, &trials(&[DONE, DONE, DONE]));
        assert_eq!(ends(&over), Some(TuningEndedBecause::Done));
    }

    #[test]
    fn grid_ends_with_its_combinations() {
        let grid = spec(100, 2, TuneAlgorithm::Grid);
        assert_eq!(next_trial(&grid, &trials(&[DONE; 4])), start(5, TrialValues::Grid(4)));
        let over = next_trial(&grid, &trials(&[DONE; 5]));
        assert_eq!(ends(&over), Some(TuningEndedBecause::Done));
    }

    #[test]
    fn interrupted_trial_is_repeated_once_and_does_not_count() {
        let grid = spec(5, 1, TuneAlgorithm::Grid);
        let mut all = trials(&[DONE, LOST]);
        assert_eq!(next_trial(&grid, &all), start(3, TrialValues::Again(2)));
        all.extend(
            trials(&[DONE, DONE, DONE])
                .pop()
                .map(|again| TrialStand { again_of: Some(2), ..again }),
        );
        assert_eq!(next_trial(&grid, &all), start(4, TrialValues::Grid(2)));
    }

    #[test]
    fn failures_end_it_when_half_of_the_trials_fail() {
        let mut random = spec(30, 3, TuneAlgorithm::Random);
        let two = next_trial(&random, &trials(&[FAILED, FAILED]));
        assert_eq!(two, start(3, TrialValues::Random));
        let three = next_trial(&random, &trials(&[FAILED, FAILED, FAILED, None]));
        assert_eq!(ends(&three), Some(TuningEndedBecause::Failed));
        let few = [DONE, DONE, DONE, DONE, FAILED, FAILED, FAILED];
        assert_eq!(next_trial(&random, &trials(&few)), start(8, TrialValues::Random));
        random.failed = Some(1);
        let first = next_trial(&random, &trials(&[FAILED]));
        assert_eq!(ends(&first), Some(TuningEndedBecause::Failed));
    }

    #[test]
    fn budget_counts_the_worst_case_of_all_that_run() {
        let spec = spec(30, 3, TuneAlgorithm::Random);
        let three = Some(Usd::from_dollars(3.0).unwrap());
        assert_eq!(fits_budget(&spec, &trials(&[DONE, None, None]), three), BudgetVerdict::Fits);
        let full = fits_budget(&spec, &trials(&[DONE, DONE, None, None]), three);
        assert!(matches!(full, BudgetVerdict::Waits), "1 + 1 + 3 + 3 + 3: {full:?}");
        let over = fits_budget(&spec, &trials(&[DONE; 8]), three);
        assert!(matches!(over, BudgetVerdict::Exhausted { .. }), "{over:?}");
        let unlimited = fits_budget(&spec, &[], None);
        assert!(matches!(unlimited, BudgetVerdict::Exhausted { .. }), "{unlimited:?}");
    }
}
