//! How much more a fallback machine may cost, as the user writes it: `2`, `3.5`, `"any"`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A factor on the cost of an hour of work on the cheapest suitable machine. `policy` applies it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FallbackCost {
    /// One or more.
    Times(f64),
    /// Any suitable machine is bought.
    Any,
}

/// Twice. On a scarce day the sizes left cost up to 1.6 times the smallest (g5.xlarge to
/// g5.4xlarge). A dearer region costs 1.2 to 1.6 times the cheapest. With less, a job waits beside
/// acceptable machines. The next size costs 2.4 times, the next GPU 2 to 4, a machine with four
/// GPUs 5.6. With more, the user pays much more than the price that was shown.
pub const USUAL: f64 = 2.0;

/// Why a text is not a factor. The message teaches the syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not how many times as much a fallback may cost, write a number from 1 on, like 2 or 3.5, or \"any\""
)]
pub struct FallbackCostError {
    text: String,
}

impl FallbackCost {
    /// Whether this factor is allowed, with a small margin for rounding.
    pub fn allows(self, times: f64) -> bool {
        match self {
            FallbackCost::Times(most) => times <= most * (1.0 + 1e-9),
            FallbackCost::Any => true,
        }
    }

    /// The larger limit.
    #[must_use]
    pub fn or_wider(self, other: FallbackCost) -> FallbackCost {
        match (self, other) {
            (FallbackCost::Times(one), FallbackCost::Times(other)) => {
                FallbackCost::Times(one.max(other))
            }
            _ => FallbackCost::Any,
        }
    }

    /// Includes a limit that the user allowed later.
    #[must_use]
    pub fn widened(self, since: Option<FallbackCost>) -> FallbackCost {
        since.map_or(self, |wider| self.or_wider(wider))
    }

    /// The smallest limit that allows this factor, in tenths.
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
        if times.is_finite() && times >= 1.0 {
            Ok(FallbackCost::Times(times))
        } else {
            Err(wrong())
        }
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
        assert_eq!(
            FallbackCost::Times(2.0).or_wider(FallbackCost::Times(3.0)),
            FallbackCost::Times(3.0)
        );
        assert_eq!(FallbackCost::Any.or_wider(FallbackCost::Times(3.0)), FallbackCost::Any);
    }
}
