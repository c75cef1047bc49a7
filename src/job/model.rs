//! A trained model in the job root, and its versions: the records of `lamp models`.
//!
//! Not here: what a folder holds (`app::models::model_format`), and the server that predicts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a model or of a version: a letter, then letters, digits, `_` and `-`. It is a path
/// segment of the job root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName(String);

/// As in Cloud ML Engine, so that names move here unchanged.
const NAME_LEN_MAX: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name: a letter comes first, then letters, digits, `_` and `-`, 128 at most")]
pub struct ModelNameError(String);

impl ModelName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ModelName {
    type Err = ModelNameError;

    fn from_str(text: &str) -> Result<Self, ModelNameError> {
        let begins = text.starts_with(|first: char| first.is_ascii_alphabetic());
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        if begins && text.len() <= NAME_LEN_MAX && text.chars().all(is_plain) {
            Ok(ModelName(text.to_owned()))
        } else {
            Err(ModelNameError(text.to_owned()))
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for ModelName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ModelName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// `models/<model>/model.json`: written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRecord {
    pub format: u32,
    pub model: ModelName,
    pub created: Timestamp,
    /// The owner that made it.
    pub by: String,
    /// The version of the program that made it.
    pub written_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// `models/<model>/default.json`: the version that answers when none is named. Overwritten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DefaultVersion {
    pub format: u32,
    pub version: ModelName,
    pub at: Timestamp,
    pub by: String,
}

/// `models/<model>/versions/<version>.json`: written once, after all its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelVersion {
    pub format: u32,
    pub model: ModelName,
    pub version: ModelName,
    pub created: Timestamp,
    /// The owner that made it.
    pub by: String,
    /// The version of the program that made it.
    pub written_by: String,
    /// Where the files came from, for people.
    pub origin: String,
    pub framework: ModelFramework,
    /// The command that serves it. `None`: MLflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve: Option<ServeCommand>,
    /// The environment as the user described it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Names the upload: its files are below `models/<model>/files/<version>/<upload>/`.
    pub upload: String,
    /// The files with their sums, ordered by path.
    pub files: Vec<ModelFile>,
}

impl ModelVersion {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFile {
    /// Below the folder of the model.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// The program that wrote a model folder, which decides what can load it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelFramework {
    /// `saved_model.pb`.
    Tensorflow,
    /// `model.keras`, `model.h5`.
    Keras,
    /// `model.joblib`, `model.pkl`.
    ScikitLearn,
    /// `model.bst`, `model.json`, `model.ubj`.
    Xgboost,
    /// `MLmodel`.
    Mlflow,
    /// Only the command of the user knows.
    Custom,
}

impl ModelFramework {
    pub const ALL: [ModelFramework; 6] = [
        ModelFramework::Tensorflow,
        ModelFramework::Keras,
        ModelFramework::ScikitLearn,
        ModelFramework::Xgboost,
        ModelFramework::Mlflow,
        ModelFramework::Custom,
    ];

    pub fn word(self) -> &'static str {
        match self {
            ModelFramework::Tensorflow => "tensorflow",
            ModelFramework::Keras => "keras",
            ModelFramework::ScikitLearn => "scikit-learn",
            ModelFramework::Xgboost => "xgboost",
            ModelFramework::Mlflow => "mlflow",
            ModelFramework::Custom => "custom",
        }
    }
}

impl fmt::Display for ModelFramework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no framework: tensorflow, keras, scikit-learn, xgboost, mlflow and custom are known"
)]
pub struct ModelFrameworkError(String);

impl FromStr for ModelFramework {
    type Err = ModelFrameworkError;

    fn from_str(text: &str) -> Result<Self, ModelFrameworkError> {
        let plain = text.to_lowercase().replace('_', "-");
        let plain = if plain == "sklearn" { "scikit-learn" } else { &plain };
        ModelFramework::ALL
            .into_iter()
            .find(|framework| framework.word() == plain)
            .ok_or_else(|| ModelFrameworkError(text.to_owned()))
    }
}

/// A server of the user's own: a line for `sh`, and where it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeCommand {
    /// With `{port}` and `{model}`.
    pub line: String,
    /// It is ready when this path answers, other than with 503.
    pub health_route: String,
    /// Gets `{"instances": [...]}` by POST.
    pub predict_route: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_path_segments() {
        for good in ["mnist", "Mnist_v1", "v1", "a-b", &"m".repeat(128)] {
            assert!(good.parse::<ModelName>().is_ok(), "{good}");
        }
        for bad in ["", "1", "-a", "_a", "a/b", "..", "a.b", "ä", "a b", &"m".repeat(129)] {
            assert!(bad.parse::<ModelName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn framework_is_read_as_gcloud_writes_it() {
        for framework in ModelFramework::ALL {
            assert_eq!(framework.word().parse(), Ok(framework));
            let record = serde_json::to_value(framework).unwrap();
            assert_eq!(record, framework.word());
        }
        assert_eq!("SCIKIT_LEARN".parse(), Ok(ModelFramework::ScikitLearn));
        assert_eq!("TENSORFLOW".parse(), Ok(ModelFramework::Tensorflow));
        assert!("caffe".parse::<ModelFramework>().is_err());
    }
}
