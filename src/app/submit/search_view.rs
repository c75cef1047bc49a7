//! A tuning as the training service described it: one job, with its trials as output.

use serde_json::{Value, json};

use super::training_state::TrainingState;
use crate::app::Fault;
use crate::app::record_errors::record_fault;
use crate::app::tune::begin::tuning_name;
use crate::app::tune::memory::{KnownTrial, TuneMemory};
use crate::app::tune::view::TuneView;
use crate::job::{
    EarlyStop, ParamScale, TrialFate, TuneAlgorithm, TuneParam, TuneSpec, TuningEndedBecause,
};
use crate::jobdir::TuningDir;
use crate::wire::StoreHandle;

/// The trials of a tuning, the best first.
#[derive(Clone, Debug)]
pub struct SearchOutput {
    pub input: Value,
    pub metric: String,
    pub ended: u32,
    pub trials: Vec<Value>,
}

/// The tuning of that name, as the user or the job root writes it.
///
/// # Errors
/// Fails when the job root does not answer.
pub async fn find_tuning(store: &StoreHandle, name: &str) -> Result<Option<TuneMemory>, Fault> {
    let dir = TuningDir::new(store.clone(), &tuning_name(name));
    let record = dir.record().await.map_err(|error| record_fault(&error))?;
    match record.filter(|tuning| tuning.spec.name == name || tuning.name == name) {
        Some(tuning) => TuneMemory::open(store, &tuning.name).await.map(Some),
        None => Ok(None),
    }
}

/// The state of a tuning in the words of the service.
pub fn state_of(view: &TuneView) -> TrainingState {
    let because = view.ended.as_ref().map(|end| end.because);
    match because {
        None if view.trials.is_empty() => TrainingState::Queued,
        Some(TuningEndedBecause::UserStopped) if view.is_over() => TrainingState::Cancelled,
        Some(TuningEndedBecause::UserStopped) => TrainingState::Cancelling,
        Some(TuningEndedBecause::Done | TuningEndedBecause::Budget)
            if view.is_over() && view.best.is_some() =>
        {
            TrainingState::Succeeded
        }
        Some(_) if view.is_over() => TrainingState::Failed,
        _ => TrainingState::Running,
    }
}

impl SearchOutput {
    pub fn of(memory: &TuneMemory, view: &TuneView, input: Value) -> Self {
        let rows = view.trials.iter();
        let trials = rows.filter_map(|row| Some(trial(memory.trials.get(&row.number)?)));
        SearchOutput {
            input,
            metric: view.metric.clone(),
            ended: view.counts.ended(),
            trials: trials.collect(),
        }
    }

    pub fn document(&self) -> Value {
        json!({
            "isHyperparameterTuningJob": true,
            "hyperparameterMetricTag": self.metric,
            "completedTrialCount": self.ended.to_string(),
            "trials": self.trials,
        })
    }
}

/// Whole numbers of 64 bits are texts there.
fn trial(known: &KnownTrial) -> Value {
    let values = known.trial.params.iter().map(|(name, value)| (name.clone(), value.to_string()));
    let mut document = json!({
        "trialId": known.trial.number.to_string(),
        "state": trial_state(known).word(),
        "hyperparameters": values.collect::<std::collections::BTreeMap<_, _>>(),
        "startTime": known.trial.decided,
    });
    if let Some(end) = &known.end {
        document["endTime"] = json!(end.ended);
        if end.fate == TrialFate::Pruned {
            document["isTrialStoppedEarly"] = json!(true);
        }
    }
    if let (Some(value), Some(last)) = (known.value(), known.series.last) {
        let step = format!("{:.0}", last.step);
        document["finalMetric"] = json!({ "trainingStep": step, "objectiveValue": value });
    }
    document
}

fn trial_state(known: &KnownTrial) -> TrainingState {
    let Some(end) = &known.end else { return TrainingState::Running };
    match end.fate {
        TrialFate::Complete => TrainingState::Succeeded,
        TrialFate::Pruned if end.value.is_some() => TrainingState::Succeeded,
        TrialFate::Stopped => TrainingState::Cancelled,
        TrialFate::Pruned | TrialFate::Failed | TrialFate::Interrupted => TrainingState::Failed,
    }
}

/// The search as `config.yaml` has it.
pub fn search_input(tune: &TuneSpec) -> Value {
    let mut input = json!({
        "goal": tune.goal.word().to_uppercase(),
        "hyperparameterMetricTag": tune.metric,
        "maxTrials": tune.trials,
        "maxParallelTrials": tune.parallel,
        "params": tune.params.iter().map(|(name, param)| param_input(name, param)).collect::<Vec<_>>(),
    });
    match tune.algorithm {
        TuneAlgorithm::Grid => input["algorithm"] = json!("GRID_SEARCH"),
        TuneAlgorithm::Random => input["algorithm"] = json!("RANDOM_SEARCH"),
        _ => {}
    }
    if tune.early_stop != EarlyStop::Off {
        input["enableTrialEarlyStopping"] = json!(true);
    }
    if let Some(failed) = tune.failed {
        input["maxFailedTrials"] = json!(failed);
    }
    if let Some(resume) = &tune.resume {
        input["resumePreviousJobId"] = json!(resume);
    }
    input
}

fn param_input(name: &str, param: &TuneParam) -> Value {
    match param {
        TuneParam::Float { min, max, scale } => json!({ "parameterName": name, "type": "DOUBLE",
            "minValue": min, "maxValue": max, "scaleType": scale_word(*scale) }),
        TuneParam::Int { min, max, scale } => json!({ "parameterName": name, "type": "INTEGER",
            "minValue": min, "maxValue": max, "scaleType": scale_word(*scale) }),
        TuneParam::Categorical { values } => {
            json!({ "parameterName": name, "type": "CATEGORICAL", "categoricalValues": values })
        }
        TuneParam::Discrete { values } => {
            json!({ "parameterName": name, "type": "DISCRETE", "discreteValues": values })
        }
    }
}

fn scale_word(scale: ParamScale) -> &'static str {
    match scale {
        ParamScale::Linear => "UNIT_LINEAR_SCALE",
        ParamScale::Log => "UNIT_LOG_SCALE",
        ParamScale::ReverseLog => "UNIT_REVERSE_LOG_SCALE",
    }
}

#[cfg(test)]
mod tests {
    use super::super::config_yaml::HyperparameterSpec;
    use super::super::hyperparameters::tune_spec;
    use super::*;

    #[test]
    fn search_is_described_as_it_was_asked_for() {
        let asked = json!({ "goal": "MINIMIZE", "hyperparameterMetricTag": "loss",
            "maxTrials": 4, "maxParallelTrials": 2, "algorithm": "RANDOM_SEARCH",
            "enableTrialEarlyStopping": true, "maxFailedTrials": 3, "resumePreviousJobId": "one",
            "params": [
                { "parameterName": "lr", "type": "DOUBLE", "minValue": 0.5, "maxValue": 2.5,
                    "scaleType": "UNIT_LOG_SCALE" },
                { "parameterName": "opt", "type": "CATEGORICAL", "categoricalValues": ["a", "b"] },
            ] });
        // The file has each scalar as a text.
        let text = serde_json::to_string(&json!({ "trainingInput": { "hyperparameters": asked } }));
        let (file, found) = super::super::config_yaml::read(&text.unwrap());
        assert_eq!(found, []);
        let file: HyperparameterSpec = file.training_input.hyperparameters.unwrap();
        assert_eq!(search_input(&tune_spec(&file).0), asked);
    }
}
