//! The settings of a tuning, every default filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::param::TuneParam;
use crate::market::Usd;

/// The metric of `cloudml-hypertune` and of ML Engine, when a file names none.
pub const METRIC_TAG: &str = "training/hptuning/metric";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneSpec {
    pub goal: TuneGoal,
    pub metric: String,
    /// How many trials count. An interrupted trial does not count.
    pub trials: u32,
    /// How many run at the same time.
    pub parallel: u32,
    /// The most that all trials may cost together.
    #[serde(default)]
    pub budget: Option<Usd>,
    pub algorithm: TuneAlgorithm,
    pub early_stop: EarlyStop,
    /// How many failed trials end the tuning; `None`: half of those that have ended, at least 3.
    #[serde(default)]
    pub failed: Option<u32>,
    /// An earlier tuning whose trials the search learns from.
    #[serde(default)]
    pub resume: Option<String>,
    /// The machine of a trial that succeeded is stopped, and the next trial starts it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reuse: bool,
    pub params: BTreeMap<String, TuneParam>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneGoal {
    #[default]
    Minimize,
    Maximize,
}

/// How the next values are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuneAlgorithm {
    /// Every combination if they are few enough, else `tpe`. A record never has this word.
    #[default]
    Auto,
    /// Every combination, in order.
    Grid,
    Random,
    /// Tree-structured Parzen estimator, by Optuna.
    Tpe,
    /// Gaussian process, by Optuna.
    Gp,
    /// CMA-ES, by Optuna.
    Cmaes,
}

/// Which running trials are stopped because others are better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EarlyStop {
    #[default]
    Off,
    /// Worse than the median of the others at the same step.
    Median,
    /// Successive halving.
    Asha,
    Hyperband,
    /// Successive halving that keeps the checkpoint of a stopped trial. It goes on from there when
    /// it is among the best again.
    PausingAsha,
}

impl TuneGoal {
    /// Whether the first of two values is better. NaN is never better.
    pub fn prefers(self, value: f64, other: f64) -> bool {
        match self {
            TuneGoal::Minimize => value < other,
            TuneGoal::Maximize => value > other,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            TuneGoal::Minimize => "minimize",
            TuneGoal::Maximize => "maximize",
        }
    }
}

impl TuneAlgorithm {
    /// Whether Optuna chooses the values.
    pub fn needs_engine(self) -> bool {
        matches!(self, TuneAlgorithm::Tpe | TuneAlgorithm::Gp | TuneAlgorithm::Cmaes)
    }

    pub fn word(self) -> &'static str {
        match self {
            TuneAlgorithm::Auto => "auto",
            TuneAlgorithm::Grid => "grid",
            TuneAlgorithm::Random => "random",
            TuneAlgorithm::Tpe => "tpe",
            TuneAlgorithm::Gp => "gp",
            TuneAlgorithm::Cmaes => "cmaes",
        }
    }
}

impl EarlyStop {
    pub fn word(self) -> &'static str {
        match self {
            EarlyStop::Off => "off",
            EarlyStop::Median => "median",
            EarlyStop::Asha => "asha",
            EarlyStop::Hyperband => "hyperband",
            EarlyStop::PausingAsha => "pausing-asha",
        }
    }

    /// Whether Optuna decides which trials stop.
    pub fn needs_engine(self) -> bool {
        matches!(self, EarlyStop::Median | EarlyStop::Asha | EarlyStop::Hyperband)
    }
}

impl TuneSpec {
    /// Whether Optuna is needed to choose values or to stop trials.
    pub fn needs_engine(&self) -> bool {
        self.algorithm.needs_engine() || self.early_stop.needs_engine()
    }

    /// The number of combinations; `None`: a parameter is a range of real numbers.
    pub fn combinations(&self) -> Option<u64> {
        self.params
            .values()
            .map(TuneParam::count)
            .try_fold(1_u64, |all, count| Some(all.saturating_mul(count?)))
    }
}
