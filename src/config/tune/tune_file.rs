//! `[tune]` as it is written, and what it means.
//!
//! Not here: what is wrong with the ranges (`policy::tune::space_check`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::union_values::EnvValue;
use crate::config::values::Dollars;
use crate::job::{
    EarlyStop, Finding, ParamScale, Spec, TuneAlgorithm, TuneGoal, TuneParam, TuneSpec,
};
use crate::policy::tune::space_check;

/// `lamp tune` runs the job many times with other values, and finds the best ones. `lamp run` runs
/// it once, without values.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TuneFile {
    /// `minimize` or `maximize` the metric.
    #[schemars(extend("default" = "minimize", "examples" = ["maximize"]))]
    pub goal: Option<GoalWord>,
    /// A key in the lines of `LAMP_PROGRESS`, or the tag of `cloudml-hypertune`. The last value of
    /// a trial counts.
    #[schemars(extend("default" = "loss", "examples" = ["accuracy"]))]
    pub metric: Option<String>,
    /// How many trials there are. A grid may have fewer.
    #[schemars(extend("default" = 20, "examples" = [50]))]
    pub trials: Option<u32>,
    /// How many trials run at once. More learn less from each other.
    #[schemars(extend("default" = 1, "examples" = [3]))]
    pub parallel: Option<u32>,
    /// The most that all trials cost together. A trial starts if its worst case fits.
    #[schemars(extend("examples" = [20, "$20"]))]
    pub budget: Option<Dollars>,
    /// `grid` tries every combination; `random`; `tpe`, `gp` and `cmaes` by Optuna. `auto` is
    /// `grid` if the combinations are few enough, else `tpe`.
    #[schemars(extend("default" = "auto", "examples" = ["tpe", "random"]))]
    pub algorithm: Option<AlgorithmWord>,
    /// Stop trials that do badly: worse than the `median` at their step, or by `asha` or
    /// `hyperband`; these need Optuna. `pausing-asha` keeps their checkpoints to go on later.
    #[schemars(extend("default" = "off", "examples" = ["median"]))]
    pub early_stop: Option<EarlyStopWord>,
    /// How many failed trials end the tuning. Without it, half of the trials, at least 3.
    #[schemars(extend("examples" = [5]))]
    pub failed: Option<u32>,
    /// An earlier tuning to learn from.
    #[schemars(extend("examples" = ["digits"]))]
    pub resume: Option<String>,
    /// Stop the machine of a trial that succeeded; the next trial starts it without a new setup.
    #[schemars(extend("default" = false, "examples" = [true]))]
    pub reuse: Option<bool>,
    /// The parameters by name.
    #[schemars(extend("examples" = [{"lr": {"type": "float", "min": 1e-5, "max": 0.1, "scale": "log"}}]))]
    pub params: Option<BTreeMap<String, ParamFile>>,
}

/// A parameter and its range.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParamFile {
    /// `float`, `int`, `categorical` (words) or `discrete` (numbers).
    #[serde(rename = "type")]
    #[schemars(extend("default" = "float", "examples" = ["int"]))]
    pub kind: Option<ParamTypeWord>,
    /// The least value of a `float` or `int`.
    #[schemars(extend("examples" = [0.001]))]
    pub min: Option<f64>,
    /// The greatest value.
    #[schemars(extend("examples" = [0.1]))]
    pub max: Option<f64>,
    /// The values of a `categorical` or `discrete`.
    #[schemars(extend("examples" = [["relu", "tanh"], [16, 32, 64]]))]
    pub values: Option<Vec<EnvValue>>,
    /// `linear`, `log` or `reverse-log`: where most values are tried.
    #[schemars(extend("default" = "linear", "examples" = ["log"]))]
    pub scale: Option<ScaleWord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GoalWord {
    Minimize,
    Maximize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmWord {
    Auto,
    Grid,
    Random,
    Tpe,
    Gp,
    Cmaes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EarlyStopWord {
    Off,
    Median,
    Asha,
    Hyperband,
    PausingAsha,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ParamTypeWord {
    Float,
    Int,
    Categorical,
    Discrete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleWord {
    Linear,
    Log,
    ReverseLog,
}

/// Without a number in the file. ML Engine makes one trial; that many find nothing.
const TRIALS: u32 = 20;

/// The tuning of a job, and what is wrong with it.
pub fn resolve(file: &TuneFile, spec: &Spec) -> (TuneSpec, Vec<Finding>) {
    let mut found = Vec::new();
    let params = file.params.iter().flatten();
    let params = params
        .filter_map(|(name, param)| Some((name.clone(), read_param(name, param, &mut found)?)))
        .collect();
    let mut tune = TuneSpec {
        goal: goal(file.goal),
        metric: file.metric.clone().unwrap_or_else(|| "loss".to_owned()),
        trials: file.trials.unwrap_or(TRIALS),
        parallel: file.parallel.unwrap_or(1),
        budget: file.budget.as_ref().map(|word| word.0),
        algorithm: algorithm(file.algorithm),
        early_stop: early_stop(file.early_stop),
        failed: file.failed,
        resume: file.resume.clone(),
        reuse: file.reuse.unwrap_or_default(),
        params,
    };
    if tune.algorithm == TuneAlgorithm::Auto {
        let is_small = tune.combinations().is_some_and(|all| all <= u64::from(tune.trials));
        tune.algorithm = if is_small { TuneAlgorithm::Grid } else { TuneAlgorithm::Tpe };
    }
    let is_unread = !found.is_empty();
    let judged = space_check::check(&tune, spec).into_iter();
    // An unreadable parameter is reported already.
    found.extend(judged.filter(|finding| !(is_unread && finding.path == "tune.params")));
    (tune, found)
}

fn goal(word: Option<GoalWord>) -> TuneGoal {
    match word {
        None | Some(GoalWord::Minimize) => TuneGoal::Minimize,
        Some(GoalWord::Maximize) => TuneGoal::Maximize,
    }
}

fn algorithm(word: Option<AlgorithmWord>) -> TuneAlgorithm {
    match word {
        None | Some(AlgorithmWord::Auto) => TuneAlgorithm::Auto,
        Some(AlgorithmWord::Grid) => TuneAlgorithm::Grid,
        Some(AlgorithmWord::Random) => TuneAlgorithm::Random,
        Some(AlgorithmWord::Tpe) => TuneAlgorithm::Tpe,
        Some(AlgorithmWord::Gp) => TuneAlgorithm::Gp,
        Some(AlgorithmWord::Cmaes) => TuneAlgorithm::Cmaes,
    }
}

fn early_stop(word: Option<EarlyStopWord>) -> EarlyStop {
    match word {
        None | Some(EarlyStopWord::Off) => EarlyStop::Off,
        Some(EarlyStopWord::Median) => EarlyStop::Median,
        Some(EarlyStopWord::Asha) => EarlyStop::Asha,
        Some(EarlyStopWord::Hyperband) => EarlyStop::Hyperband,
        Some(EarlyStopWord::PausingAsha) => EarlyStop::PausingAsha,
    }
}

fn read_param(name: &str, file: &ParamFile, found: &mut Vec<Finding>) -> Option<TuneParam> {
    let path = |key: &str| format!("tune.params.{name}.{key}");
    let before = found.len();
    let kind = file.kind.unwrap_or(ParamTypeWord::Float);
    let is_range = matches!(kind, ParamTypeWord::Float | ParamTypeWord::Int);
    let mut missing = |key: &str, hint: &str| {
        found.push(Finding::error(&path(key), "is missing").hint(hint));
    };
    if is_range {
        for (key, value) in [("min", file.min), ("max", file.max)] {
            if value.is_none() {
                missing(key, "a `float` or `int` has `min` and `max`");
            }
        }
    } else if file.values.is_none() {
        missing("values", "a `categorical` or `discrete` has `values`, like [16, 32, 64]");
    }
    let strangers = [
        ("min", !is_range && file.min.is_some()),
        ("max", !is_range && file.max.is_some()),
        ("scale", !is_range && file.scale.is_some()),
        ("values", is_range && file.values.is_some()),
    ];
    for (key, _) in strangers.into_iter().filter(|(_, is_said)| *is_said) {
        found.push(Finding::error(&path(key), "does not belong to this `type`"));
    }
    if found.len() > before {
        return None;
    }
    let scale = match file.scale {
        None | Some(ScaleWord::Linear) => ParamScale::Linear,
        Some(ScaleWord::Log) => ParamScale::Log,
        Some(ScaleWord::ReverseLog) => ParamScale::ReverseLog,
    };
    let (min, max) = (file.min.unwrap_or_default(), file.max.unwrap_or_default());
    let words = || file.values.iter().flatten().map(|word| word.0.clone());
    match kind {
        ParamTypeWord::Float => Some(TuneParam::Float { min, max, scale }),
        ParamTypeWord::Int => {
            let min = whole(&path("min"), min, found);
            let max = whole(&path("max"), max, found);
            Some(TuneParam::Int { min: min?, max: max?, scale })
        }
        ParamTypeWord::Categorical => Some(TuneParam::Categorical { values: words().collect() }),
        ParamTypeWord::Discrete => {
            let numbers = words().map(|word| number(&path("values"), &word, found));
            let numbers: Vec<Option<f64>> = numbers.collect();
            Some(TuneParam::Discrete { values: numbers.into_iter().collect::<Option<_>>()? })
        }
    }
}

/// Larger whole numbers are not exact as floats, and TOML gives floats here.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

fn whole(path: &str, value: f64, found: &mut Vec<Finding>) -> Option<i64> {
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        return Some(value as i64);
    }
    found.push(Finding::error(path, format!("is {value}, and an `int` has whole numbers")));
    None
}

fn number(path: &str, word: &str, found: &mut Vec<Finding>) -> Option<f64> {
    let number = word.parse().ok();
    if number.is_none() {
        let finding = Finding::error(path, format!("has `{word}`, and `discrete` has numbers"));
        found.push(finding.hint("`type = \"categorical\"` has words"));
    }
    number
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::decode::decode;
    use crate::config::document::Source;
    use crate::config::job_file::JobFile;

    fn read(text: &str) -> (TuneSpec, Vec<String>) {
        let source = Source::parse(Path::new("job.toml"), text).unwrap();
        let (file, found) = decode::<JobFile>(&source);
        assert!(found.is_empty(), "{found:?}");
        let mut spec: Spec =
            serde_json::from_str(r#"{"name": "x", "command": {"args": ["true"]}}"#).unwrap();
        if let Some(command) = file.command {
            spec.command = command.0;
        }
        let (tune, found) = resolve(&file.tune.unwrap(), &spec);
        (tune, found.iter().map(|one| format!("{} {}", one.path, one.message)).collect())
    }

    #[test]
    fn table_becomes_a_space_and_auto_is_decided() {
        let (tune, found) = read(
            "[tune]\nmetric = 'accuracy'\ngoal = 'maximize'\nbudget = '$5'\n\
             [tune.params.lr]\nmin = 1e-5\nmax = 0.1\nscale = 'log'\n\
             [tune.params.units]\ntype = 'int'\nmin = 16\nmax = 256\n\
             [tune.params.act]\ntype = 'categorical'\nvalues = ['relu', 3, true]\n\
             [limits]\nbudget = 1\n",
        );
        assert_eq!(found, ["tune.budget needs a limit of each trial"], "the spec here has none");
        assert_eq!((tune.algorithm, tune.trials, tune.parallel), (TuneAlgorithm::Tpe, 20, 1));
        let values = vec!["relu".to_owned(), "3".into(), "true".into()];
        assert_eq!(tune.params["act"], TuneParam::Categorical { values });
        let scale = ParamScale::Linear;
        assert_eq!(tune.params["units"], TuneParam::Int { min: 16, max: 256, scale });
        let (tune, found) = read(
            "[tune.params.n]\ntype = 'discrete'\nvalues = [16, 32.5]\n[tune.params.m]\ntype = 'int'\nmin=1\nmax=10\n",
        );
        assert_eq!((found, tune.algorithm), (Vec::new(), TuneAlgorithm::Grid), "20 combinations");
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let (_, found) = read(
            "command = 'python t.py | tee log'\n[tune]\nalgorithm = 'grid'\ntrials = 0\nfailed = 0\n\
             [tune.params.lr]\nmin = 0\nmax = 0.1\nscale = 'log'\n\
             [tune.params.'9x']\nmin = 1\nmax = 0.1\n\
             [tune.params.none]\n[tune.params.n]\ntype = 'int'\nmin = 0.5\nmax = 3\n\
             [tune.params.d]\ntype = 'discrete'\nvalues = ['a']\n\
             [tune.params.e]\ntype = 'categorical'\nvalues = []\nmin = 3\n\
             [tune.params.LR]\ntype = 'categorical'\nvalues = ['a', 'a']\n",
        );
        for part in [
            "tune.trials is not between",
            "tune.failed is 0",
            "tune.params.lr.scale needs a `min` above 0",
            "tune.params.9x is no name",
            "tune.params.9x.min is 1, above `max`, 0.1",
            "tune.params.none.min is missing",
            "tune.params.none.max is missing",
            "tune.params.n.min is 0.5, and an `int` has whole numbers",
            "tune.params.d.values has `a`, and `discrete` has numbers",
            "tune.params.e.min does not belong",
            "tune.params.LR.values has a value twice",
            "tune.params.lr has the variable `LAMP_PARAM_LR`, as `LR` has",
            "tune.algorithm is `grid`, and a parameter is a range of floats",
            "command does not say where the values of a trial go",
        ] {
            assert!(found.iter().any(|one| one.starts_with(part)), "{part}: {found:#?}");
        }
    }
}
