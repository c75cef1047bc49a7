//! The file of `--config`: a Job of the training service, with all its fields.
//!
//! A number may be written as text, as the service took it. Not here: what a field means.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use crate::app::import::{YamlNode, YamlValue, yaml_documents};
use crate::config::{closest, did_you_mean};
use crate::job::Finding;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TrainingFile {
    pub job_id: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub training_input: TrainingInput,
}

/// `trainingInput`: the 26 fields of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TrainingInput {
    pub scale_tier: Option<String>,
    pub master_type: Option<String>,
    pub worker_type: Option<String>,
    pub parameter_server_type: Option<String>,
    pub evaluator_type: Option<String>,
    #[serde(deserialize_with = "number")]
    pub worker_count: Option<u32>,
    #[serde(deserialize_with = "number")]
    pub parameter_server_count: Option<u32>,
    #[serde(deserialize_with = "number")]
    pub evaluator_count: Option<u32>,
    pub master_config: Option<ReplicaConfig>,
    pub worker_config: Option<ReplicaConfig>,
    pub parameter_server_config: Option<ReplicaConfig>,
    pub evaluator_config: Option<ReplicaConfig>,
    pub package_uris: Option<Vec<String>>,
    pub python_module: Option<String>,
    pub args: Option<Vec<String>>,
    pub region: Option<String>,
    pub job_dir: Option<String>,
    pub runtime_version: Option<String>,
    pub python_version: Option<String>,
    pub hyperparameters: Option<HyperparameterSpec>,
    pub scheduling: Option<SchedulingConfig>,
    pub network: Option<String>,
    pub service_account: Option<String>,
    pub encryption_config: Option<Value>,
    #[serde(deserialize_with = "truth")]
    pub enable_web_access: Option<bool>,
    #[serde(deserialize_with = "truth")]
    pub use_chief_in_tf_config: Option<bool>,
}

/// The settings of the machines of one role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReplicaConfig {
    pub image_uri: Option<String>,
    pub accelerator_config: Option<AcceleratorConfig>,
    pub container_command: Option<Vec<String>>,
    pub container_args: Option<Vec<String>>,
    pub disk_config: Option<Value>,
    pub tpu_tf_version: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AcceleratorConfig {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(deserialize_with = "number")]
    pub count: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SchedulingConfig {
    /// Seconds, as `604800s`.
    pub max_running_time: Option<String>,
    pub max_wait_time: Option<String>,
    #[serde(deserialize_with = "number")]
    pub priority: Option<u32>,
}

/// A search over parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HyperparameterSpec {
    /// `MAXIMIZE`, the default, or `MINIMIZE`.
    pub goal: Option<String>,
    /// The service took `training/hptuning/metric` without it.
    pub hyperparameter_metric_tag: Option<String>,
    #[serde(deserialize_with = "number")]
    pub max_trials: Option<u32>,
    #[serde(deserialize_with = "number")]
    pub max_parallel_trials: Option<u32>,
    /// 0: the service decides.
    #[serde(deserialize_with = "number")]
    pub max_failed_trials: Option<u32>,
    #[serde(deserialize_with = "truth")]
    pub enable_trial_early_stopping: Option<bool>,
    /// `ALGORITHM_UNSPECIFIED` is Bayesian; `GRID_SEARCH`, `RANDOM_SEARCH`.
    pub algorithm: Option<String>,
    pub resume_previous_job_id: Option<String>,
    pub params: Vec<ParameterSpec>,
}

/// One parameter of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ParameterSpec {
    pub parameter_name: Option<String>,
    /// `DOUBLE`, `INTEGER`, `CATEGORICAL` or `DISCRETE`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(deserialize_with = "number")]
    pub min_value: Option<f64>,
    #[serde(deserialize_with = "number")]
    pub max_value: Option<f64>,
    pub categorical_values: Option<Vec<String>>,
    #[serde(deserialize_with = "numbers")]
    pub discrete_values: Option<Vec<f64>>,
    /// `UNIT_LINEAR_SCALE`, `UNIT_LOG_SCALE` or `UNIT_REVERSE_LOG_SCALE`.
    pub scale_type: Option<String>,
}

/// A number that may be written as text.
fn number<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
{
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| de::Error::custom(NotANumber(text)))
}

fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<f64>>, D::Error> {
    let Some(texts) = Option::<Vec<String>>::deserialize(deserializer)? else { return Ok(None) };
    let read = texts.into_iter().map(|text| {
        text.trim().parse::<f64>().map_err(|_| de::Error::custom(NotANumber(text.clone())))
    });
    read.collect::<Result<Vec<f64>, D::Error>>().map(Some)
}

struct NotANumber(String);

impl fmt::Display for NotANumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is `{}`, and a number from 0 on is expected", self.0)
    }
}

fn truth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" => Ok(Some(true)),
        "false" | "no" => Ok(Some(false)),
        _ => Err(de::Error::custom(format!("is `{text}`, and true or false is expected"))),
    }
}

/// A file has few keys, so more mistakes mean that it is another kind of file.
const MISTAKES_MAX: usize = 20;

/// The file, and each mistake in it with its path and line.
pub fn read(text: &str) -> (TrainingFile, Vec<Finding>) {
    let documents = match yaml_documents(text) {
        Ok(documents) => documents,
        Err(error) => {
            return (
                TrainingFile::default(),
                vec![Finding::error("", format!("is no YAML: {error}"))],
            );
        }
    };
    let Some(root) = documents.first() else { return (TrainingFile::default(), Vec::new()) };
    let (file, mut found) = decode(root);
    found.sort_by_key(|one| one.line);
    (file, found)
}

/// Serde stops at the first mistake. So each is noted and removed, and the rest is read again.
fn decode(root: &YamlNode) -> (TrainingFile, Vec<Finding>) {
    let mut value = value_of(root);
    let mut found = Vec::new();
    while found.len() < MISTAKES_MAX {
        let error = match serde_path_to_error::deserialize::<_, TrainingFile>(&value) {
            Ok(file) => return (file, found),
            Err(error) => error,
        };
        let message = error.inner().to_string();
        let mut path = error.path().to_string();
        if let Some(name) = unknown_field(&message)
            && path.rsplit('.').next() != Some(name)
        {
            path = if path == "." { name.to_owned() } else { format!("{path}.{name}") };
        }
        found.push(finding(&path, &message).at_line(line_of(root, &path)));
        if !remove(&mut value, &path) {
            break;
        }
    }
    (TrainingFile::default(), found)
}

fn finding(path: &str, message: &str) -> Finding {
    let Some(name) = unknown_field(message) else {
        return Finding::error(path, message.replace("invalid type: ", "is of another kind: "));
    };
    let known: Vec<&str> =
        message.split('`').skip(3).step_by(2).filter(|word| !word.is_empty()).collect();
    let finding = Finding::error(path, "is no field of the training service");
    match closest(name, known.iter().copied()) {
        Some(meant) => finding.hint(did_you_mean(meant)),
        None if !known.is_empty() => finding.hint(format!("there are {}", known.join(", "))),
        None => finding,
    }
}

fn unknown_field(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// Each scalar becomes a text, so that `3.5` and `"3.5"` are the same.
fn value_of(node: &YamlNode) -> Value {
    match &node.value {
        YamlValue::Null => Value::Null,
        YamlValue::Text(text) => Value::String(text.clone()),
        YamlValue::List(items) => Value::Array(items.iter().map(value_of).collect()),
        YamlValue::Map(pairs) => {
            Value::Object(pairs.iter().map(|(key, node)| (key.clone(), value_of(node))).collect())
        }
    }
}

/// `trainingInput.hyperparameters.params[0].type` as steps.
fn steps(path: &str) -> Vec<String> {
    path.replace('[', ".").replace(']', "").split('.').map(str::to_owned).collect()
}

fn line_of(root: &YamlNode, path: &str) -> Option<usize> {
    let found = steps(path).iter().try_fold(root, |node, step| match step.parse::<usize>() {
        Ok(index) => node.items().get(index),
        Err(_) => node.get(step),
    });
    found.map(|node| node.line)
}

fn remove(value: &mut Value, path: &str) -> bool {
    let steps = steps(path);
    let Some((last, above)) = steps.split_last() else { return false };
    let holder = above.iter().try_fold(value, |value, step| match step.parse::<usize>() {
        Ok(index) => value.get_mut(index),
        Err(_) => value.get_mut(step),
    });
    match (holder, last.parse::<usize>()) {
        (Some(Value::Object(table)), _) => table.remove(last).is_some(),
        (Some(Value::Array(list)), Ok(index)) if index < list.len() => {
            list.remove(index);
            true
        }
        _ => false,
    }
}

impl TrainingFile {
    /// The flags of the command line come before the file.
    #[must_use]
    pub fn under(self, flags: TrainingFile) -> TrainingFile {
        let mut labels = self.labels;
        labels.extend(flags.labels);
        TrainingFile {
            job_id: flags.job_id.or(self.job_id),
            labels,
            training_input: self.training_input.under(flags.training_input),
        }
    }
}

impl TrainingInput {
    fn under(self, flags: TrainingInput) -> TrainingInput {
        TrainingInput {
            scale_tier: flags.scale_tier.or(self.scale_tier),
            master_type: flags.master_type.or(self.master_type),
            worker_type: flags.worker_type.or(self.worker_type),
            parameter_server_type: flags.parameter_server_type.or(self.parameter_server_type),
            evaluator_type: flags.evaluator_type.or(self.evaluator_type),
            worker_count: flags.worker_count.or(self.worker_count),
            parameter_server_count: flags.parameter_server_count.or(self.parameter_server_count),
            evaluator_count: flags.evaluator_count.or(self.evaluator_count),
            master_config: flags.master_config.or(self.master_config),
            worker_config: flags.worker_config.or(self.worker_config),
            parameter_server_config: flags.parameter_server_config.or(self.parameter_server_config),
            evaluator_config: flags.evaluator_config.or(self.evaluator_config),
            package_uris: flags.package_uris.or(self.package_uris),
            python_module: flags.python_module.or(self.python_module),
            args: flags.args.or(self.args),
            region: flags.region.or(self.region),
            job_dir: flags.job_dir.or(self.job_dir),
            runtime_version: flags.runtime_version.or(self.runtime_version),
            python_version: flags.python_version.or(self.python_version),
            hyperparameters: flags.hyperparameters.or(self.hyperparameters),
            scheduling: flags.scheduling.or(self.scheduling),
            network: flags.network.or(self.network),
            service_account: flags.service_account.or(self.service_account),
            encryption_config: flags.encryption_config.or(self.encryption_config),
            enable_web_access: flags.enable_web_access.or(self.enable_web_access),
            use_chief_in_tf_config: flags.use_chief_in_tf_config.or(self.use_chief_in_tf_config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIRD: &str = "trainingInput:\n  pythonVersion: \"3.5\"\n  scaleTier: CUSTOM\n  masterType: standard_p100\n  workerType: standard_p100\n  parameterServerType: large_model\n  workerCount: 0\n  parameterServerCount: 0\n";

    #[test]
    fn config_reads_a_number_as_number_or_text() {
        let (file, found) = read(THIRD);
        assert_eq!(found, []);
        assert_eq!(file.training_input.worker_count, Some(0));
        assert_eq!(file.training_input.python_version.as_deref(), Some("3.5"));
        let (file, found) = read("trainingInput:\n  workerCount: '9'\n  pythonVersion: 3.7\n");
        assert_eq!((file.training_input.worker_count, found), (Some(9), Vec::new()));
        assert_eq!(file.training_input.python_version.as_deref(), Some("3.7"));
    }

    #[test]
    fn config_reads_json_too() {
        let (file, found) =
            read(r#"{"labels": {"a": "b"}, "trainingInput": {"args": ["--x", "1"]}}"#);
        assert_eq!(found, []);
        assert_eq!(file.labels["a"], "b");
        assert_eq!(file.training_input.args, Some(vec!["--x".to_owned(), "1".to_owned()]));
    }

    #[test]
    fn config_names_each_mistake_with_path_and_line() {
        let text = "trainingInput:\n  scaleTier: CUSTOM\n  masterTyp: standard\n  workerCount: many\n  hyperparameters:\n    params:\n    - parameterName: lr\n      tipe: DOUBLE\n";
        let (file, found) = read(text);
        let told: Vec<String> = found
            .iter()
            .map(|one| {
                format!(
                    "{} {} {}",
                    one.line.unwrap_or(0),
                    one.path,
                    one.hint.as_deref().unwrap_or("-")
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "3 trainingInput.masterTyp did you mean `masterType`?",
                "4 trainingInput.workerCount -",
                "8 trainingInput.hyperparameters.params[0].tipe did you mean `type`?",
            ]
        );
        assert_eq!(file.training_input.scale_tier.as_deref(), Some("CUSTOM"));
    }

    #[test]
    fn flags_win_over_the_file() {
        let (file, _) = read(THIRD);
        let flags = TrainingFile {
            training_input: TrainingInput {
                master_type: Some("standard".into()),
                ..TrainingInput::default()
            },
            ..TrainingFile::default()
        };
        let both = file.under(flags).training_input;
        assert_eq!(both.master_type.as_deref(), Some("standard"));
        assert_eq!(both.worker_type.as_deref(), Some("standard_p100"));
    }

    #[test]
    fn config_knows_the_26_fields() {
        let text = serde_json::to_value(TrainingInput::default()).unwrap();
        assert_eq!(text.as_object().unwrap().len(), 26);
    }

    #[test]
    fn config_reads_a_search() {
        let text = "trainingInput:\n  hyperparameters:\n    goal: MINIMIZE\n    maxTrials: 30\n    params:\n    - parameterName: lr\n      type: DOUBLE\n      minValue: 0.0001\n      maxValue: 1e-1\n      scaleType: UNIT_LOG_SCALE\n    - parameterName: units\n      type: DISCRETE\n      discreteValues: [16, 32]\n";
        let (file, found) = read(text);
        assert_eq!(found, []);
        let search = file.training_input.hyperparameters.unwrap();
        assert_eq!((search.max_trials, search.goal.as_deref()), (Some(30), Some("MINIMIZE")));
        assert_eq!(search.params[0].max_value, Some(0.1));
        assert_eq!(search.params[1].discrete_values, Some(vec![16.0, 32.0]));
    }
}
