//! The tools whose job files are imported.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceFormat {
    Sky,
    Dstack,
    MlEngine,
}

impl FromStr for SourceFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "sky" | "skypilot" => Ok(SourceFormat::Sky),
            "dstack" => Ok(SourceFormat::Dstack),
            "mlengine" => Ok(SourceFormat::MlEngine),
            _ => Err("write `sky`, `dstack` or `mlengine`".to_owned()),
        }
    }
}

impl SourceFormat {
    /// The word of `lamp import --from`.
    pub fn word(self) -> &'static str {
        match self {
            SourceFormat::Sky => "sky",
            SourceFormat::Dstack => "dstack",
            SourceFormat::MlEngine => "mlengine",
        }
    }
}

impl fmt::Display for SourceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SourceFormat::Sky => "SkyPilot",
            SourceFormat::Dstack => "dstack",
            SourceFormat::MlEngine => "ML Engine",
        })
    }
}
