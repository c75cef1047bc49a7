//! A number that may be missing, and why.
//!
//! Some tools count a missing `nvidia-smi` as 0 %, that is, as idle. We separate two cases. A
//! signal that this machine lacks ([`Reading::Absent`]) has no effect on a verdict. A signal that
//! could not be read ([`Reading::Unknown`]) stops the idle clock.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeOwned, Error, IntoDeserializer as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

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

    pub fn is_absent(&self) -> bool {
        matches!(self, Reading::Absent)
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

impl<'de, T: DeserializeOwned> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadingVisitor(PhantomData))
    }
}

/// Reads a number without a tree in between: a week of samples has ten million of them.
struct ReadingVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for ReadingVisitor<T> {
    type Value = Reading<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, null, or {\"unknown\": \"why\"}")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Known)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Known)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Known)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Known)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Known)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Reading::Absent)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Reading::Absent)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let value = Value::deserialize(MapAccessDeserializer::new(map))?;
        if let Some(why) = value.get("unknown").and_then(Value::as_str) {
            return Ok(Reading::Unknown(why.to_owned()));
        }
        serde_json::from_value(value).map(Reading::Known).map_err(Error::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        T::deserialize(SeqAccessDeserializer::new(seq)).map(Reading::Known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_kinds_read_back() {
        for reading in [Reading::Known(1.5), Reading::Absent, Reading::unknown("GPU is lost")] {
            let text = serde_json::to_string(&reading).unwrap();
            assert_eq!(serde_json::from_str::<Reading<f64>>(&text).unwrap(), reading, "{text}");
        }
    }

    #[test]
    fn values_of_every_shape_read_back() {
        let of = |text: &str| serde_json::from_str::<Reading<Value>>(text).unwrap();
        for text in ["1", "-1", "1.5", "true", r#""word""#, "[1,2]", r#"{"used":1}"#] {
            assert_eq!(of(text), Reading::Known(serde_json::from_str(text).unwrap()), "{text}");
        }
        assert_eq!(serde_json::from_str::<Reading<f64>>("7").unwrap(), Reading::Known(7.0));
        assert!(serde_json::from_str::<Reading<f64>>(r#""7""#).is_err());
    }
}
