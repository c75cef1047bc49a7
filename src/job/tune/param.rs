//! A hyperparameter: its range, and a value of it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// The values that a parameter may have.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum TuneParam {
    Float {
        min: f64,
        max: f64,
        #[serde(default)]
        scale: ParamScale,
    },
    Int {
        min: i64,
        max: i64,
        #[serde(default)]
        scale: ParamScale,
    },
    /// Words without an order.
    Categorical { values: Vec<String> },
    /// Numbers with an order.
    Discrete { values: Vec<f64> },
}

/// Where in a range values are tried most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParamScale {
    #[default]
    Linear,
    /// More at the lower end, for example for a learning rate.
    Log,
    /// More at the upper end, for example for a momentum.
    ReverseLog,
}

/// One value, as the command gets it.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    Int(i64),
    Float(f64),
    Text(String),
}

impl TuneParam {
    /// The number of values; `None`: a range of real numbers.
    pub fn count(&self) -> Option<u64> {
        match self {
            TuneParam::Float { .. } => None,
            TuneParam::Int { min, max, .. } => Some(max.abs_diff(*min).saturating_add(1)),
            TuneParam::Categorical { values } => Some(values.len() as u64),
            TuneParam::Discrete { values } => Some(values.len() as u64),
        }
    }
}

/// Python, C and shells read these digits. A plain number of 300 digits would also be right.
impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamValue::Int(number) => write!(f, "{number}"),
            ParamValue::Float(number) if *number == 0.0 => f.write_str("0.0"),
            ParamValue::Float(number) if !(1e-4..1e15).contains(&number.abs()) => {
                write!(f, "{number:e}")
            }
            ParamValue::Float(number) => write!(f, "{number:?}"),
            ParamValue::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for ParamValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ParamValue::Int(number) => serializer.serialize_i64(*number),
            ParamValue::Float(number) => serializer.serialize_f64(*number),
            ParamValue::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for ParamValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ParamValueVisitor)
    }
}

struct ParamValueVisitor;

impl Visitor<'_> for ParamValueVisitor {
    type Value = ParamValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_i64<E>(self, number: i64) -> Result<ParamValue, E> {
        Ok(ParamValue::Int(number))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<ParamValue, E> {
        i64::try_from(number).map(ParamValue::Int).map_err(E::custom)
    }

    fn visit_f64<E>(self, number: f64) -> Result<ParamValue, E> {
        Ok(ParamValue::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<ParamValue, E> {
        Ok(ParamValue::Text(text.to_owned()))
    }

    fn visit_bool<E: serde::de::Error>(self, truth: bool) -> Result<ParamValue, E> {
        Err(E::custom(format_args!("`{truth}` is neither a number nor a text")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_reads_in_python_and_survives_json() {
        for (value, shown) in [
            (ParamValue::Int(-3), "-3"),
            (ParamValue::Float(0.25), "0.25"),
            (ParamValue::Float(3.0), "3.0"),
            (ParamValue::Float(-1e-7), "-1e-7"),
            (ParamValue::Float(1e300), "1e300"),
            (ParamValue::Float(0.0), "0.0"),
            (ParamValue::Text("relu".into()), "relu"),
        ] {
            assert_eq!(value.to_string(), shown);
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(serde_json::from_str::<ParamValue>(&text).unwrap(), value, "{text}");
        }
    }
}
