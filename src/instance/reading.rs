//! A number that may be missing, and why.
//!
//! Some tools count a missing `nvidia-smi` as 0 %, that is, as idle. We separate two cases. A
//! signal that this machine lacks ([`Reading::Absent`]) has no effect on a verdict. A signal that
//! could not be read ([`Reading::Unknown`]) stops the idle clock.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// In records: the value itself, `null` for absent, `{"unknown": "why"}` for unknown.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Reading<T> {
    Known(T),
    /// This machine or series lacks it: for example without a GPU.
    #[default]
    Absent,
    /// It exists but could not be read. It must not count as idle or as gone.
    Unknown(String),
}

impl<T> Reading<T> {
    pub fn unknown(why: impl Into<String>) -> Self {
        Reading::Unknown(why.into())
    }

    pub fn known(&self) -> Option<&T> {
        match self {
            Reading::Known(value) => Some(value),
            _ => None,
        }
    }

    pub fn is_unknown(&self) -> bool {
        matches!(self, Reading::Unknown(_))
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Known(value) => Reading::Known(f(value)),
            Reading::Absent => Reading::Absent,
            Reading::Unknown(why) => Reading::Unknown(why),
        }
    }

    pub fn as_ref(&self) -> Reading<&T> {
        match self {
            Reading::Known(value) => Reading::Known(value),
            Reading::Absent => Reading::Absent,
            Reading::Unknown(why) => Reading::Unknown(why.clone()),
        }
    }
}

impl<T: Serialize> Serialize for Reading<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        match self {
            Reading::Known(value) => value.serialize(serializer),
            Reading::Absent => serializer.serialize_none(),
            Reading::Unknown(why) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("unknown", why)?;
                map.end()
            }
        }
    }
}

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        if value.is_null() {
            return Ok(Reading::Absent);
        }
        if let Some(why) = value.get("unknown").and_then(|why| why.as_str()) {
            return Ok(Reading::Unknown(why.to_owned()));
        }
        serde_json::from_value(value).map(Reading::Known).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_kinds_read_back() {
        for reading in [Reading::Known(1.5), Reading::Absent, Reading::unknown("GPU is lost")] {
            let text = serde_json::to_string(&reading).unwrap();
            assert_eq!(serde_json::from_str::<Reading<f64>>(&text).unwrap(), reading, "{text}");
        }
    }
}
