//! The most a spot machine may cost an hour, as the user writes it: `0.65`, `"80% of on-demand"`,
//! `"p95 of 14d"`, `"auto"`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Span, Usd};

/// A rule for a bid. `policy` evaluates it against a price history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PriceRule {
    /// A fixed price in dollars per hour.
    Fixed(Usd),
    /// A share of the on-demand price, in percent: (0, 1000].
    PercentOfOnDemand(f64),
    /// A time-weighted quantile of the price history: the percentile in [0, 100], the window back
    /// from now.
    Quantile { percentile: f64, window: Span },
    /// Chosen from the history by the built-in rule.
    Auto,
}

/// Why a text is not a price rule. The message teaches the syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriceRuleError {
    #[error(
        "`{text}` is not a price, write 0.65, \"80% of on-demand\", \"p95 of 14d\" or \"auto\""
    )]
    Unknown { text: String },
    #[error(
        "`{text}` looks back further than EC2 keeps prices, which is 90 days: write \"p95 of 90d\" at most"
    )]
    TooFar { text: String },
}

/// How long EC2 keeps prices.
const KEPT: Span = Span::from_secs(90 * 86_400);

impl PriceRule {
    /// How much history the rule needs; `None`: none.
    pub fn looks_back(self) -> Option<Span> {
        match self {
            PriceRule::Quantile { window, .. } => Some(window),
            PriceRule::Fixed(_) | PriceRule::PercentOfOnDemand(_) | PriceRule::Auto => None,
        }
    }
}

impl FromStr for PriceRule {
    type Err = PriceRuleError;

    /// Syntax for people. A record of an older version may look back further (`of_record`).
    fn from_str(text: &str) -> Result<Self, PriceRuleError> {
        match PriceRule::of_record(text)? {
            PriceRule::Quantile { window, .. } if window > KEPT => {
                Err(PriceRuleError::TooFar { text: text.to_owned() })
            }
            rule => Ok(rule),
        }
    }
}

impl PriceRule {
    fn of_record(text: &str) -> Result<Self, PriceRuleError> {
        let wrong = || PriceRuleError::Unknown { text: text.to_owned() };
        let text_trimmed = text.trim();
        if text_trimmed == "auto" {
            return Ok(PriceRule::Auto);
        }
        if let Some((percent, rest)) = text_trimmed.split_once('%') {
            let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
            let sane =
                percent > 0.0 && percent <= 1000.0 && matches!(rest.trim(), "of on-demand" | "");
            return if sane { Ok(PriceRule::PercentOfOnDemand(percent)) } else { Err(wrong()) };
        }
        if let Some((percentile, window)) =
            text_trimmed.strip_prefix('p').and_then(|rest| rest.split_once(" of "))
        {
            let percentile: f64 = percentile.trim().parse().map_err(|_| wrong())?;
            let window: Span = window.parse().map_err(|_| wrong())?;
            let sane = (0.0..=100.0).contains(&percentile) && window > Span::ZERO;
            return if sane {
                Ok(PriceRule::Quantile { percentile, window })
            } else {
                Err(wrong())
            };
        }
        let price: Usd = text_trimmed.parse().map_err(|_| wrong())?;
        if price > Usd::ZERO { Ok(PriceRule::Fixed(price)) } else { Err(wrong()) }
    }
}

impl fmt::Display for PriceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PriceRule::Fixed(price) => write!(f, "{}", price.dollars()),
            PriceRule::PercentOfOnDemand(percent) => write!(f, "{percent}% of on-demand"),
            PriceRule::Quantile { percentile, window } => {
                let secs = window.duration().as_secs();
                write!(f, "p{percentile} of {secs}s")
            }
            PriceRule::Auto => f.write_str("auto"),
        }
    }
}

impl Serialize for PriceRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PriceRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = PriceRule;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a price per hour: 0.65, \"80% of on-demand\", \"p95 of 14d\" or \"auto\"",
                )
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PriceRule, E> {
                PriceRule::of_record(text).map_err(E::custom)
            }
            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<PriceRule, E> {
                PriceRule::of_record(&number.to_string()).map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<PriceRule, E> {
                PriceRule::of_record(&number.to_string()).map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<PriceRule, E> {
                PriceRule::of_record(&number.to_string()).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_read_as_people_write_them() {
        assert_eq!("auto".parse(), Ok(PriceRule::Auto));
        assert_eq!("0.65".parse(), Ok(PriceRule::Fixed(Usd::from_micros(650_000))));
        assert_eq!("80% of on-demand".parse(), Ok(PriceRule::PercentOfOnDemand(80.0)));
        assert_eq!(
            "p95 of 14d".parse(),
            Ok(PriceRule::Quantile { percentile: 95.0, window: Span::from_secs(14 * 86_400) })
        );
        for wrong in [
            "",
            "cheap",
            "-1",
            "0",
            "p101 of 1d",
            "p95 of 0s",
            "p95 of 91d",
            "0% of on-demand",
            "80% of spot",
        ] {
            assert!(wrong.parse::<PriceRule>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_record_reads_back() {
        for rule in ["auto", "0.65", "80% of on-demand", "p95 of 14d"] {
            let rule: PriceRule = rule.parse().unwrap();
            let text = serde_json::to_string(&rule).unwrap();
            assert_eq!(serde_json::from_str::<PriceRule>(&text).unwrap(), rule);
        }
    }
}
