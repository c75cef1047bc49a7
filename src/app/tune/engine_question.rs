//! Questions to Optuna: the whole history of a tuning, as one JSON object.

use std::path::Path;

use serde_json::{Value, json};

use super::memory::{KnownTrial, TuneMemory};
use crate::app::{ExitCode, Fault};
use crate::job::{MetricSeries, ParamValue, ParamValues, TrialFate, TuneParam};
use crate::policy::tune::random::rounded;
use crate::wire::{EngineError, TuneEngine};

/// One trial, as Optuna learns from it.
pub struct PastTrial {
    pub value: Value,
}

impl PastTrial {
    pub fn of(known: &KnownTrial) -> Self {
        let state = match &known.end {
            Some(end) => end.fate.word(),
            // As far as it came, it was not among the best.
            None if known.paused.is_some() => TrialFate::Pruned.word(),
            None => "running",
        };
        PastTrial {
            value: json!({
                "number": known.trial.number,
                "state": state,
                "params": known.trial.params,
                "value": known.value(),
                "points": points(&known.series),
            }),
        }
    }

    /// A trial of an earlier tuning: it ended there, and has no number here.
    pub fn of_earlier(known: &KnownTrial) -> Option<Self> {
        let end = known.end.as_ref()?;
        let PastTrial { mut value } = PastTrial::of(known);
        value["number"] = json!(-i64::from(end.number));
        Some(PastTrial { value })
    }
}

fn points(series: &MetricSeries) -> Vec<(f64, Option<f64>)> {
    series.points.iter().map(|point| (point.step, point.value)).collect()
}

/// The common part of all questions of a tuning.
pub fn question(memory: &TuneMemory, act: &str, past: Vec<PastTrial>) -> Value {
    let tune = &memory.tuning.tune;
    json!({
        "do": act,
        "tuning": memory.tuning.name,
        "goal": tune.goal,
        "algorithm": tune.algorithm,
        "early_stop": tune.early_stop,
        "params": tune.params,
        "trials": past.into_iter().map(|trial| trial.value).collect::<Vec<_>>(),
    })
}

/// How much each parameter matters, by Optuna: each between 0 and 1.
///
/// # Errors
/// When no Python has Optuna, or it refuses.
pub async fn importance(
    memory: &TuneMemory,
    engine: &mut TuneEngine,
) -> Result<Value, EngineError> {
    let past = memory.trials.values().map(PastTrial::of).collect();
    let answer = engine.answer(&question(memory, "importance", past)).await?;
    Ok(answer["importance"].clone())
}

/// Writes the trials as a journal of Optuna, which `optuna-dashboard` shows.
///
/// # Errors
/// As [`importance`].
pub async fn export(
    memory: &TuneMemory,
    engine: &mut TuneEngine,
    file: &Path,
) -> Result<(), EngineError> {
    let past = memory.trials.values().map(PastTrial::of).collect();
    let mut asked = question(memory, "export", past);
    asked["file"] = json!(file);
    engine.answer(&asked).await.map(drop)
}

/// The values in an answer. `None`: one is missing, or of another kind.
pub fn chosen(memory: &TuneMemory, answer: &Value) -> Option<ParamValues> {
    let params = memory.tuning.tune.params.iter();
    params
        .map(|(name, param)| Some((name.clone(), read_value(param, &answer["params"][name])?)))
        .collect()
}

fn read_value(param: &TuneParam, value: &Value) -> Option<ParamValue> {
    match param {
        TuneParam::Int { .. } => value.as_i64().map(ParamValue::Int),
        TuneParam::Float { min, max, .. } => {
            value.as_f64().map(|value| ParamValue::Float(rounded(value, *min, *max)))
        }
        TuneParam::Discrete { .. } => value.as_f64().map(ParamValue::Float),
        TuneParam::Categorical { .. } => value.as_str().map(|text| ParamValue::Text(text.into())),
    }
}

/// A failure of Optuna, and its meaning for a tuning.
pub fn engine_fault(error: &EngineError) -> Fault {
    let fault = Fault::from_error(ExitCode::REFUSED, error)
        .meaning("no further trial is started; running ones go on");
    match error {
        EngineError::NoOptuna { .. } => fault.hint(
            "`lamp tune setup` makes a Python environment with Optuna; `algorithm = \"random\"` or `\"grid\"` in [tune] needs none",
        ),
        EngineError::NoModule { module } => fault.hint(format!(
            "install `{module}` beside Optuna, or choose `algorithm = \"tpe\"` in [tune]"
        )),
        EngineError::Setup { .. } => fault.hint(
            "it needs `python3` with `venv` (Debian: apt install python3-venv) and a package index",
        ),
        EngineError::Refused(_) | EngineError::Silent(_) => {
            fault.hint("run it again: it goes on where it was")
        }
    }
}
