//! Values that may be written in two shapes: a text or a list. Each visitor teaches both.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::job::{Command, GpuSelection, SecretSource};

/// `command`: a list is executed as it is, a string by the shell.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandWord(pub Command);

/// `setup`: a script, or a list of lines. Each line must succeed.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptWord(pub String);

/// `watch.gpus`: `workload`, `all`, or indices.
#[derive(Clone, Debug, PartialEq)]
pub struct GpusWatched(pub GpuSelection);

/// A value of `env`: text, or a number or truth as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvValue(pub String);

macro_rules! schema_of {
    ($name:ident, $schema:tt) => {
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

schema_of!(CommandWord, {"type": ["string", "array"], "items": {"type": "string"}});
schema_of!(ScriptWord, {"type": ["string", "array"], "items": {"type": "string"}});
schema_of!(GpusWatched, {"type": ["string", "array"], "items": {"type": "integer", "minimum": 0}});
schema_of!(EnvValue, {"type": ["string", "number", "boolean"]});

/// A shell takes a carriage return for a letter of the word before it; in JSON a program may have
/// written one.
fn unix_lines(script: &str) -> String {
    script.replace("\r\n", "\n").trim_end_matches('\r').to_owned()
}

pub(crate) fn strings<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Vec<String>, A::Error> {
    let mut texts = Vec::new();
    while let Some(text) = list.next_element()? {
        texts.push(text);
    }
    Ok(texts)
}

impl<'de> Deserialize<'de> for CommandWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = CommandWord;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a command, like [\"python\", \"train.py\"], or a string for the shell")
            }
            fn visit_str<E: Error>(self, script: &str) -> Result<CommandWord, E> {
                Ok(CommandWord(Command::Shell(unix_lines(script))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<CommandWord, A::Error> {
                strings(list).map(|args| CommandWord(Command::Args(args)))
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

impl<'de> Deserialize<'de> for ScriptWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = ScriptWord;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a shell script, or a list of its lines")
            }
            fn visit_str<E: Error>(self, script: &str) -> Result<ScriptWord, E> {
                Ok(ScriptWord(unix_lines(script)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<ScriptWord, A::Error> {
                // A list of lines reads as "do these": going on after one that failed would train
                // with half an environment.
                strings(list)
                    .map(|lines| ScriptWord(unix_lines(&format!("set -e\n{}\n", lines.join("\n")))))
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

impl<'de> Deserialize<'de> for GpusWatched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shapes;
        impl<'de> Visitor<'de> for Shapes {
            type Value = GpusWatched;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"workload\", \"all\" or a list of GPU indices, like [0, 1]")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<GpusWatched, E> {
                match text {
                    "workload" => Ok(GpusWatched(GpuSelection::Workload)),
                    "all" => Ok(GpusWatched(GpuSelection::All)),
                    _ => Err(E::custom(format!(
                        "`{text}` is not \"workload\", \"all\" or a list of GPU indices, like [0, 1]"
                    ))),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<GpusWatched, A::Error> {
                let mut indices = Vec::new();
                while let Some(index) = list.next_element()? {
                    indices.push(index);
                }
                if indices.is_empty() {
                    Err(A::Error::custom("an empty list watches nothing, write \"all\""))
                } else {
                    Ok(GpusWatched(GpuSelection::Indices(indices)))
                }
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

impl<'de> Deserialize<'de> for EnvValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shapes;
        impl Visitor<'_> for Shapes {
            type Value = EnvValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true or false")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<EnvValue, E> {
                Ok(EnvValue(text.to_owned()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<EnvValue, E> {
                Ok(EnvValue(number.to_string()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<EnvValue, E> {
                Ok(EnvValue(number.to_string()))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<EnvValue, E> {
                Ok(EnvValue(number.to_string()))
            }
            fn visit_bool<E: Error>(self, truth: bool) -> Result<EnvValue, E> {
                Ok(EnvValue(truth.to_string()))
            }
        }
        deserializer.deserialize_any(Shapes)
    }
}

/// `--secret NAME` or `--secret NAME=PLACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPair {
    pub name: String,
    pub source: SecretSource,
}

impl FromStr for SecretPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, source) = text.split_once('=').unwrap_or((text, "env"));
        let source =
            source.parse().map_err(|error| format!("{name}: what stands behind `=` {error}"))?;
        Ok(SecretPair { name: name.to_owned(), source })
    }
}

/// `--env NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvPair {
    pub name: String,
    pub value: String,
}

impl FromStr for EnvPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => {
                Ok(EnvPair { name: name.to_owned(), value: value.to_owned() })
            }
            _ => Err(format!("`{text}` is not NAME=VALUE")),
        }
    }
}
