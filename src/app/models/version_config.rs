//! The file of `versions create --config`: a version of ML Engine as YAML or JSON.

use std::collections::BTreeMap;

use crate::app::exit_code::ExitCode;
use crate::app::fault::Fault;
use crate::app::import::yaml_node::{YamlNode, YamlValue, documents};
use crate::config::{closest, did_you_mean};

/// The keys of a version file that lamp uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionConfig {
    pub origin: Option<String>,
    pub framework: Option<String>,
    pub runtime_version: Option<String>,
    pub python_version: Option<String>,
    pub description: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Keys of ML Engine without a meaning here.
    pub ignored: Vec<String>,
}

const USED: [&str; 6] =
    ["deploymentUri", "framework", "runtimeVersion", "pythonVersion", "description", "labels"];

const IGNORED: [&str; 10] = [
    "name",
    "machineType",
    "acceleratorConfig",
    "manualScaling",
    "autoScaling",
    "serviceAccount",
    "requestLoggingConfig",
    "explanationConfig",
    "isDefault",
    "etag",
];

/// # Errors
/// When it is not YAML, or has an unknown key.
pub fn version_config(text: &str) -> Result<VersionConfig, Fault> {
    let wrong = |what: String| Fault::new(ExitCode::FINDINGS, what);
    let documents = documents(text).map_err(|error| wrong(format!("it is no YAML: {error}")))?;
    let Some(document) = documents.first() else { return Ok(VersionConfig::default()) };
    let YamlValue::Map(pairs) = &document.value else {
        return Err(wrong("it is no map of keys".to_owned()));
    };
    let mut config = VersionConfig::default();
    for (key, node) in pairs {
        take(&mut config, key, node)?;
    }
    Ok(config)
}

fn take(config: &mut VersionConfig, key: &str, node: &YamlNode) -> Result<(), Fault> {
    let text = || match &node.value {
        YamlValue::Text(text) => Ok(Some(text.clone())),
        YamlValue::Null => Ok(None),
        _ => {
            let what = format!("line {}: `{key}` is a text", node.line);
            Err(Fault::new(ExitCode::FINDINGS, what))
        }
    };
    match key {
        "deploymentUri" => config.origin = text()?,
        "framework" => config.framework = text()?,
        "runtimeVersion" => config.runtime_version = text()?,
        "pythonVersion" => config.python_version = text()?,
        "description" => config.description = text()?,
        "labels" => config.labels = labels(node),
        known if IGNORED.contains(&known) => config.ignored.push(key.to_owned()),
        _ => return Err(unknown(key, node.line)),
    }
    Ok(())
}

fn labels(node: &YamlNode) -> BTreeMap<String, String> {
    let YamlValue::Map(pairs) = &node.value else { return BTreeMap::new() };
    let label = |(key, node): &(String, YamlNode)| match &node.value {
        YamlValue::Text(text) => Some((key.clone(), text.clone())),
        _ => None,
    };
    pairs.iter().filter_map(label).collect()
}

fn unknown(key: &str, line: usize) -> Fault {
    let fault =
        Fault::new(ExitCode::FINDINGS, format!("line {line}: `{key}` is no key of a version"));
    match closest(key, USED.into_iter().chain(IGNORED)) {
        Some(meant) => fault.hint(did_you_mean(meant)),
        None => fault.hint(format!("the keys are {}", USED.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_of_ml_engine_is_read_and_a_wrong_key_is_named() {
        let text = "deploymentUri: ./model\nruntimeVersion: '1.8'\nframework: SCIKIT_LEARN\nmachineType: n1-standard-4\nlabels: {team: a}\n";
        let config = version_config(text).unwrap();
        assert_eq!(config.origin.as_deref(), Some("./model"));
        assert_eq!(config.runtime_version.as_deref(), Some("1.8"));
        assert_eq!(config.ignored, ["machineType"]);
        assert_eq!(config.labels["team"], "a");
        let fault = version_config("description: x\nframwork: xgboost\n").unwrap_err();
        assert!(fault.what.starts_with("line 2: `framwork`"), "{fault:?}");
        assert_eq!(fault.hint.as_deref(), Some("did you mean `framework`?"));
    }
}
