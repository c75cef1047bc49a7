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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tune(budget: Option<f64>) -> TuneSpec {
        let spec = json!({ "goal": "minimize", "metric": "loss", "trials": 30, "parallel": 3,
            "budget": budget, "algorithm": "random", "early_stop": "off", "params": {} });
        serde_json::from_value(spec).unwrap()
    }

    fn usd(dollars: f64) -> Option<Usd> {
        Usd::from_dollars(dollars).ok()
    }

    #[test]
    fn budget_and_number_of_trials_bound_the_cost() {
        let open = TuningCost::of(&tune(None), usd(1.5));
        assert_eq!((open.most_usd, open.starts_nothing()), (usd(45.0), false));
        assert!(open.sentence().contains("$45.00 for all"), "{}", open.sentence());
        let bound = TuningCost::of(&tune(Some(20.0)), usd(1.5));
        assert_eq!((bound.most_usd, bound.starts_nothing()), (usd(20.0), false));
        let small = TuningCost::of(&tune(Some(1.0)), usd(1.5));
        assert!(small.starts_nothing());
        let unlimited = TuningCost::of(&tune(None), None);
        assert_eq!((unlimited.most_usd, unlimited.starts_nothing()), (None, false));
    }
}
