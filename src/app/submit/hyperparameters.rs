//! `hyperparameters` of a training job as a tuning of `lamp tune`.
//!
//! Not here: which values are wrong in any tuning (`policy::tune::space_check`).

use std::collections::BTreeMap;

use super::config_yaml::{HyperparameterSpec, ParameterSpec};
use crate::app::tune::begin::tuning_name;
use crate::job::{
    EarlyStop, Finding, METRIC_TAG, ParamScale, TuneAlgorithm, TuneGoal, TuneParam, TuneSpec,
};
use crate::policy::tune::space_check;

const PATH: &str = "trainingInput.hyperparameters";

/// The service took no longer list of numbers.
const DISCRETE_MAX: usize = 1_000;

/// The tuning that a file asks for, and each mistake with the path of its key.
pub fn tune_spec(file: &HyperparameterSpec) -> (TuneSpec, Vec<Finding>) {
    let mut found = Vec::new();
    let goal = goal(file, &mut found);
    let algorithm = algorithm(file, &mut found);
    let params = params(file, &mut found);
    let early = file.enable_trial_early_stopping.unwrap_or_default();
    let tune = TuneSpec {
        goal,
        metric: file.hyperparameter_metric_tag.clone().unwrap_or_else(|| METRIC_TAG.to_owned()),
        trials: file.max_trials.unwrap_or(1),
        parallel: file.max_parallel_trials.unwrap_or(1),
        budget: None,
        algorithm,
        early_stop: if early { EarlyStop::Median } else { EarlyStop::Off },
        failed: file.max_failed_trials.filter(|most| *most > 0),
        resume: file.resume_previous_job_id.as_deref().map(tuning_name),
        reuse: false,
        params,
    };
    if found.is_empty() {
        let judged = space_check::check_search(&tune);
        found.extend(judged.into_iter().map(|finding| in_service_words(file, finding)));
    }
    (tune, found)
}

fn goal(file: &HyperparameterSpec, found: &mut Vec<Finding>) -> TuneGoal {
    match file.goal.as_deref() {
        None | Some("MAXIMIZE" | "GOAL_TYPE_UNSPECIFIED") => TuneGoal::Maximize,
        Some("MINIMIZE") => TuneGoal::Minimize,
        Some(other) => {
            found.push(unknown(&format!("{PATH}.goal"), other, &["MAXIMIZE", "MINIMIZE"]));
            TuneGoal::Maximize
        }
    }
}

/// The service searched by a Bayesian method without a word. Few combinations are all tried.
fn algorithm(file: &HyperparameterSpec, found: &mut Vec<Finding>) -> TuneAlgorithm {
    match file.algorithm.as_deref() {
        None | Some("ALGORITHM_UNSPECIFIED") => TuneAlgorithm::Auto,
        Some("GRID_SEARCH") => TuneAlgorithm::Grid,
        Some("RANDOM_SEARCH") => TuneAlgorithm::Random,
        Some(other) => {
            let known = ["GRID_SEARCH", "RANDOM_SEARCH", "ALGORITHM_UNSPECIFIED"];
            found.push(unknown(&format!("{PATH}.algorithm"), other, &known));
            TuneAlgorithm::Auto
        }
    }
}

fn unknown(path: &str, word: &str, known: &[&str]) -> Finding {
    let finding = Finding::error(path, format!("is `{word}`, which the service never knew"));
    finding.hint(format!("there are {}", known.join(", ")))
}

fn params(file: &HyperparameterSpec, found: &mut Vec<Finding>) -> BTreeMap<String, TuneParam> {
    let mut params = BTreeMap::new();
    for (at, one) in file.params.iter().enumerate() {
        let path = format!("{PATH}.params[{at}]");
        let Some(name) = &one.parameter_name else {
            let finding = Finding::error(&format!("{path}.parameterName"), "is missing");
            found.push(finding.hint("it is the flag of the program: `lr` becomes `--lr=VALUE`"));
            continue;
        };
        let Some(param) = param(&path, one, found) else { continue };
        if params.insert(name.clone(), param).is_some() {
            let message = format!("is `{name}`, which another parameter has too");
            found.push(Finding::error(&format!("{path}.parameterName"), message));
        }
    }
    params
}

fn param(path: &str, one: &ParameterSpec, found: &mut Vec<Finding>) -> Option<TuneParam> {
    let scale = scale(path, one, found)?;
    let key = |key: &str| format!("{path}.{key}");
    match one.kind.as_deref() {
        Some("DOUBLE") => {
            let (min, max) = range(path, one, found)?;
            Some(TuneParam::Float { min, max, scale })
        }
        Some("INTEGER") => {
            let (min, max) = range(path, one, found)?;
            for (key_of, value) in [("minValue", min), ("maxValue", max)] {
                if value.fract() != 0.0 {
                    let message = format!("is {value}, and an INTEGER has whole numbers");
                    found.push(Finding::error(&key(key_of), message));
                    return None;
                }
            }
            Some(TuneParam::Int { min: min as i64, max: max as i64, scale })
        }
        Some("CATEGORICAL") => match &one.categorical_values {
            Some(values) => Some(TuneParam::Categorical { values: values.clone() }),
            None => missing(&key("categoricalValues"), "a CATEGORICAL has them", found),
        },
        Some("DISCRETE") => match &one.discrete_values {
            Some(values) if values.len() > DISCRETE_MAX => {
                let message = format!("has {} values, above {DISCRETE_MAX}", values.len());
                found.push(Finding::error(&key("discreteValues"), message));
                None
            }
            Some(values) if values.windows(2).any(|pair| pair[0] > pair[1]) => {
                found.push(
                    Finding::error(&key("discreteValues"), "are not in ascending order")
                        .hint("write the smallest first, as the service asked for"),
                );
                None
            }
            Some(values) => Some(TuneParam::Discrete { values: values.clone() }),
            None => missing(&key("discreteValues"), "a DISCRETE has them", found),
        },
        Some(other) => {
            let known = ["DOUBLE", "INTEGER", "CATEGORICAL", "DISCRETE"];
            found.push(unknown(&key("type"), other, &known));
            None
        }
        None => missing(&key("type"), "write DOUBLE, INTEGER, CATEGORICAL or DISCRETE", found),
    }
}

/// Keys of parameters whose type has no use for them.
pub fn unused_keys(file: &HyperparameterSpec) -> Vec<String> {
    let mut unused = Vec::new();
    for (at, one) in file.params.iter().enumerate() {
        let kind = one.kind.as_deref();
        let has_range = matches!(kind, Some("DOUBLE" | "INTEGER"));
        let has_scale = one.scale_type.as_deref().is_some_and(|scale| scale != "NONE");
        let given = [
            ("minValue", one.min_value.is_some() && !has_range),
            ("maxValue", one.max_value.is_some() && !has_range),
            ("scaleType", has_scale && !has_range),
            ("categoricalValues", one.categorical_values.is_some() && kind != Some("CATEGORICAL")),
            ("discreteValues", one.discrete_values.is_some() && kind != Some("DISCRETE")),
        ];
        let given = given.iter().filter(|(_, is_given)| *is_given);
        unused.extend(given.map(|(key, _)| format!("hyperparameters.params[{at}].{key}")));
    }
    unused
}

fn range(path: &str, one: &ParameterSpec, found: &mut Vec<Finding>) -> Option<(f64, f64)> {
    let hint = "a DOUBLE or INTEGER has `minValue` and `maxValue`";
    if one.min_value.is_none() {
        missing::<f64>(&format!("{path}.minValue"), hint, found);
    }
    if one.max_value.is_none() {
        missing::<f64>(&format!("{path}.maxValue"), hint, found);
    }
    one.min_value.zip(one.max_value)
}

fn missing<T>(path: &str, hint: &str, found: &mut Vec<Finding>) -> Option<T> {
    found.push(Finding::error(path, "is missing").hint(hint));
    None
}

fn scale(path: &str, one: &ParameterSpec, found: &mut Vec<Finding>) -> Option<ParamScale> {
    match one.scale_type.as_deref() {
        None | Some("NONE" | "UNIT_LINEAR_SCALE") => Some(ParamScale::Linear),
        Some("UNIT_LOG_SCALE") => Some(ParamScale::Log),
        Some("UNIT_REVERSE_LOG_SCALE") => Some(ParamScale::ReverseLog),
        Some(other) => {
            let known = ["UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"];
            found.push(unknown(&format!("{path}.scaleType"), other, &known));
            None
        }
    }
}

/// A mistake of a tuning, with the path that the file has.
fn in_service_words(file: &HyperparameterSpec, finding: Finding) -> Finding {
    let (key, hint) = match finding.path.as_str() {
        "tune.metric" => ("hyperparameterMetricTag".to_owned(), None),
        "tune.trials" => ("maxTrials".to_owned(), None),
        "tune.parallel" => ("maxParallelTrials".to_owned(), None),
        "tune.algorithm" => {
            ("algorithm".to_owned(), Some("make it DISCRETE, or choose RANDOM_SEARCH"))
        }
        "tune.params" => ("params".to_owned(), Some("name a parameter, its type and its range")),
        path => key_of_param(file, path),
    };
    let path = format!("{PATH}.{key}");
    let finding = Finding { path, hint: None, ..finding };
    match hint {
        Some(hint) => finding.hint(hint),
        None => finding,
    }
}

/// `tune.params.lr.min` is `params[0].minValue`.
fn key_of_param(file: &HyperparameterSpec, path: &str) -> (String, Option<&'static str>) {
    let below = path.strip_prefix("tune.params.").unwrap_or(path);
    let at = file.params.iter().position(|one| {
        one.parameter_name.as_deref().is_some_and(|name| {
            below == name || below.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
        })
    });
    let Some(at) = at else { return ("params".to_owned(), None) };
    let one = &file.params[at];
    let rest = below.strip_prefix(one.parameter_name.as_deref().unwrap_or_default());
    let (key, hint) = match rest.unwrap_or_default() {
        ".min" => ("minValue", None),
        ".max" => ("maxValue", None),
        ".scale" => {
            ("scaleType", Some("write `scaleType: UNIT_LINEAR_SCALE`, or a `minValue` above 0"))
        }
        ".values" if one.discrete_values.is_some() => ("discreteValues", None),
        ".values" => ("categoricalValues", None),
        _ => ("parameterName", Some("use letters, digits, `_`, `-` and `.`, a letter first")),
    };
    (format!("params[{at}].{key}"), hint)
}

#[cfg(test)]
mod tests {
    use super::super::config_yaml;
    use super::*;

    fn of(lines: &str) -> (TuneSpec, Vec<String>) {
        let (file, found) = config_yaml::read(&format!(
            "trainingInput:\n  hyperparameters:\n{}",
            lines.lines().map(|line| format!("    {line}\n")).collect::<String>()
        ));
        assert_eq!(found, []);
        let (tune, found) = tune_spec(&file.training_input.hyperparameters.unwrap());
        (tune, found.iter().map(|one| format!("{} {}", one.path, one.message)).collect())
    }

    #[test]
    fn search_of_the_service_keeps_each_of_its_words() {
        let (tune, found) = of(
            "goal: MINIMIZE\nhyperparameterMetricTag: loss\nmaxTrials: '12'\nmaxParallelTrials: 3\n\
             maxFailedTrials: 4\nenableTrialEarlyStopping: true\nalgorithm: RANDOM_SEARCH\n\
             resumePreviousJobId: First_Try\nparams:\n\
             - parameterName: lr\n  type: DOUBLE\n  minValue: 1e-5\n  maxValue: 0.1\n  scaleType: UNIT_LOG_SCALE\n\
             - parameterName: units\n  type: INTEGER\n  minValue: 8\n  maxValue: 64\n  scaleType: UNIT_LINEAR_SCALE\n\
             - parameterName: opt\n  type: CATEGORICAL\n  categoricalValues: [adam, sgd]\n\
             - parameterName: batch\n  type: DISCRETE\n  discreteValues: [16, 32]\n",
        );
        assert_eq!(found, [""; 0]);
        assert_eq!((tune.goal, tune.metric.as_str()), (TuneGoal::Minimize, "loss"));
        assert_eq!((tune.trials, tune.parallel, tune.failed), (12, 3, Some(4)));
        assert_eq!((tune.algorithm, tune.early_stop), (TuneAlgorithm::Random, EarlyStop::Median));
        assert_eq!(tune.resume.as_deref(), Some("first-try"));
        assert_eq!(
            tune.params["lr"],
            TuneParam::Float { min: 1e-5, max: 0.1, scale: ParamScale::Log }
        );
        assert_eq!(
            tune.params["units"],
            TuneParam::Int { min: 8, max: 64, scale: ParamScale::Linear }
        );
        assert_eq!(tune.params["batch"], TuneParam::Discrete { values: vec![16.0, 32.0] });
        assert_eq!(tune.params.len(), 4);
    }

    #[test]
    fn search_without_words_has_the_defaults_of_the_service() {
        let (tune, found) =
            of("params:\n- {parameterName: a, type: INTEGER, minValue: 1, maxValue: 3}\n");
        assert_eq!(found, [""; 0]);
        assert_eq!((tune.goal, tune.metric.as_str()), (TuneGoal::Maximize, METRIC_TAG));
        assert_eq!((tune.trials, tune.parallel, tune.failed), (1, 1, None));
        assert_eq!((tune.algorithm, tune.early_stop), (TuneAlgorithm::Auto, EarlyStop::Off));
    }

    #[test]
    fn mistakes_of_a_search_have_the_path_of_their_key() {
        let (_, found) = of("goal: BEST\nalgorithm: HYPER\nparams:\n\
             - {type: DOUBLE}\n\
             - {parameterName: a, type: DOUBLE}\n\
             - {parameterName: b, type: REAL}\n\
             - {parameterName: c, type: INTEGER, minValue: 0.5, maxValue: 2}\n\
             - {parameterName: d, type: CATEGORICAL}\n\
             - {parameterName: e, type: DOUBLE, scaleType: LOG}\n");
        let paths: Vec<&str> = found.iter().filter_map(|one| one.split(' ').next()).collect();
        assert_eq!(
            paths,
            [
                "goal",
                "algorithm",
                "params[0].parameterName",
                "params[1].minValue",
                "params[1].maxValue",
                "params[2].type",
                "params[3].minValue",
                "params[4].categoricalValues",
                "params[5].scaleType",
            ]
            .map(|key| format!("{PATH}.{key}"))
        );
        let (_, found) =
            of("params:\n- {parameterName: a, type: DISCRETE, discreteValues: [32, 16]}\n");
        let said = format!("{PATH}.params[0].discreteValues are not in ascending order");
        assert_eq!(found, [said]);
        let (_, found) = of("maxTrials: 0\nparams:\n\
             - {parameterName: a, type: DOUBLE, minValue: 0, maxValue: 1, scaleType: UNIT_LOG_SCALE}\n\
             - {parameterName: b, type: INTEGER, minValue: 3, maxValue: 1}\n\
             - {parameterName: c, type: DISCRETE, discreteValues: [1, 1]}\n");
        for path in
            ["maxTrials", "params[0].scaleType", "params[1].minValue", "params[2].discreteValues"]
        {
            let path = format!("{PATH}.{path} ");
            assert_eq!(found.iter().filter(|one| one.starts_with(&path)).count(), 1, "{found:?}");
        }
    }
}
