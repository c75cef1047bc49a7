//! How much dearer a machine may be that is bought in place of another, as the user says it: `2`, `3.5`, `"any"`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A factor on what an hour of work costs on the cheapest machine that would do. What it is held to is the work of `policy`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FallbackCost {
    /// One or more.
    Times(f64),
    /// Whatever fits is bought.
    Any,
}

/// Twice. The sizes of one GPU machine that a scarce day leaves go up to 1.6 times the smallest (g5.xlarge to g5.4xlarge), and
/// a dearer region is 1.2 to 1.6 times the cheapest: less, and a job would wait beside machines that anybody would take. The
/// next size is at 2.4, the next GPU at 2 to 4 and a machine with four of them at 5.6: more, and somebody who was shown a dollar
/// an hour pays what nobody showed.
pub const USUAL: f64 = 2.0;

/// Why a text is no such factor. The message teaches the syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not how many times as much a fallback may cost, write a number from 1 on, like 2 or 3.5, or \"any\"")]
pub struct FallbackCostError {
    text: String,
}

impl FallbackCost {
    /// Whether so many times as much may be paid. A hair over is rounding.
    pub fn allows(self, times: f64) -> bool {
        match self {
            FallbackCost::Times(most) => times <= most * (1.0 + 1e-9),
            FallbackCost::Any => true,
        }
    }

    /// The wider of both.
    #[must_use]
    pub fn or_wider(self, other: FallbackCost) -> FallbackCost {
        match (self, other) {
            (FallbackCost::Times(one), FallbackCost::Times(other)) => FallbackCost::Times(one.max(other)),
            _ => FallbackCost::Any,
        }
    }

    /// With what was allowed since, where something was.
    #[must_use]
    pub fn widened(self, since: Option<FallbackCost>) -> FallbackCost {
        since.map_or(self, |wider| self.or_wider(wider))
    }

    /// The least that allows so many times as much, in tenths as it is written.
    pub fn enough_for(times: f64) -> FallbackCost {
        FallbackCost::Times((times * 10.0 - 1e-6).ceil() / 10.0)
    }
}

impl Default for FallbackCost {
    fn default() -> Self {
        FallbackCost::Times(USUAL)
    }
}

impl fmt::Display for FallbackCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FallbackCost::Times(times) => write!(f, "{times}"),
            FallbackCost::Any => f.write_str("any"),
        }
    }
}

impl FromStr for FallbackCost {
    type Err = FallbackCostError;

    fn from_str(text: &str) -> Result<Self, FallbackCostError> {
        let wrong = || FallbackCostError { text: text.to_owned() };
        if text.trim() == "any" {
            return Ok(FallbackCost::Any);
        }
        let times: f64 = text.trim().trim_end_matches('x').parse().map_err(|_| wrong())?;
        if times.is_finite() && times >= 1.0 { Ok(FallbackCost::Times(times)) } else { Err(wrong()) }
    }
}

impl Serialize for FallbackCost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            FallbackCost::Times(times) => serializer.serialize_f64(*times),
            FallbackCost::Any => serializer.serialize_str("any"),
        }
    }
}

impl<'de> Deserialize<'de> for FallbackCost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = FallbackCost;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 1 on, or \"any\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FallbackCost, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<FallbackCost, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<FallbackCost, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<FallbackCost, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_people_write_it_and_back() {
        assert_eq!("2".parse(), Ok(FallbackCost::Times(2.0)));
        assert_eq!("3.5x".parse(), Ok(FallbackCost::Times(3.5)));
        assert_eq!(" any ".parse(), Ok(FallbackCost::Any));
        for wrong in ["", "0.9", "-2", "NaN", "inf", "twice"] {
            assert!(wrong.parse::<FallbackCost>().is_err(), "{wrong}");
        }
        for cost in [FallbackCost::Times(2.0), FallbackCost::Times(5.7), FallbackCost::Any] {
            let text = serde_json::to_string(&cost).unwrap();
            assert_eq!(serde_json::from_str::<FallbackCost>(&text).unwrap(), cost);
        }
    }

    #[test]
    fn what_is_said_to_be_enough_is_enough() {
        for times in [2.01, 2.1, 5.638_170_974_155_07, 100.0 / 3.0] {
            let enough = FallbackCost::enough_for(times);
            assert!(enough.allows(times), "{enough} for {times}");
        }
        assert_eq!(FallbackCost::enough_for(5.638), FallbackCost::Times(5.7));
        assert_eq!(FallbackCost::Times(2.0).or_wider(FallbackCost::Times(3.0)), FallbackCost::Times(3.0));
        assert_eq!(FallbackCost::Any.or_wider(FallbackCost::Times(3.0)), FallbackCost::Any);
    }
}
