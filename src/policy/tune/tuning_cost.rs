//! The most that all trials of a tuning can cost together.

use serde::Serialize;

use super::next_trial::wanted_trials;
use crate::job::TuneSpec;
use crate::market::Usd;

/// The field names are an interface (docs/cli-json.md).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct TuningCost {
    pub trials: u32,
    pub parallel: u32,
    /// The most of one trial. Null: unlimited.
    pub trial_usd: Option<Usd>,
    /// The most of all trials, each once, or the budget if that is less. Null: unlimited.
    pub most_usd: Option<Usd>,
    pub budget: Option<Usd>,
}

impl TuningCost {
    /// `trial_usd`: the most that one trial can cost; `None`: unlimited.
    pub fn of(tune: &TuneSpec, trial_usd: Option<Usd>) -> Self {
        let trials = wanted_trials(tune);
        let all: Option<Usd> = trial_usd.map(|usd| std::iter::repeat_n(usd, trials as usize).sum());
        TuningCost {
            trials,
            parallel: tune.parallel.min(trials),
            trial_usd,
            most_usd: all.into_iter().chain(tune.budget).min(),
            budget: tune.budget,
        }
    }

    /// Whether the budget is too small for the first trial.
    pub fn starts_nothing(&self) -> bool {
        self.budget.is_some_and(|budget| self.trial_usd.is_none_or(|usd| usd > budget))
    }

    /// A line of `lamp plan`.
    pub fn for_plan(&self) -> String {
        format!("`lamp tune`: {}", self.sentence())
    }

    pub fn sentence(&self) -> String {
        let TuningCost { trials, parallel, trial_usd, most_usd, budget } = self;
        let count = format!("{trials} trials, {parallel} at a time");
        let Some(each) = trial_usd else {
            return format!("{count}; nothing bounds what they can cost");
        };
        let each = format!("{count}, of at most {} each", each.rounded_up());
        match (budget, most_usd) {
            (Some(budget), _) => format!("{each}; the budget of all is {budget}"),
            (None, Some(all)) => {
                let all = all.rounded_up();
                format!("{each}, {all} for all; one that is tried again costs as much again")
            }
            (None, None) => each,
        }
    }
}
