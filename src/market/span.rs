//! A duration as people write it: `30s`, `5m`, `2h`, `3d`, `1w` or `1h30m`.
//!
//! A bare integer is refused as ambiguous: SkyPilot reads it as minutes, dstack as seconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in whole milliseconds. Serialised as text with units (`"1h30m"`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema), schema(value_type = String))]
pub struct Span(Duration);

/// Why a text is not a duration. The message teaches the syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    #[error("`{text}` has no unit, write `{text}s` for seconds or `{text}m` for minutes")]
    NoUnit { text: String },
    #[error("`{text}` is not a length of time, write it like 30s, 5m, 2h, 3d, 1w or 1h30m")]
    Syntax { text: String },
    #[error("`{text}` is longer than ten years")]
    TooLong { text: String },
}

/// Ten years: a longer span is probably a typing error, and sums stay far from overflow.
const SECS_MAX: f64 = 10.0 * 366.0 * 86_400.0;

const UNITS: [(&str, f64); 6] =
    [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0), ("w", 604_800.0)];

impl Span {
    pub const ZERO: Span = Span(Duration::ZERO);

    pub const fn from_secs(secs: u64) -> Self {
        Span(Duration::from_secs(secs))
    }

    pub const fn from_duration(duration: Duration) -> Self {
        Span(duration)
    }

    pub const fn duration(self) -> Duration {
        self.0
    }

    pub fn secs_f64(self) -> f64 {
        self.0.as_secs_f64()
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        span.0
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let syntax = || SpanError::Syntax { text: text.to_owned() };
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        if compact.is_empty() {
            return Err(syntax());
        }
        if compact.chars().all(|c| c.is_ascii_digit() || c == '.') {
            return Err(SpanError::NoUnit { text: compact });
        }
        let mut rest = compact.as_str();
        let (mut secs, mut said) = (0.0, Vec::new());
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(syntax)?;
            let number: f64 = rest[..digits].parse().map_err(|_| syntax())?;
            rest = &rest[digits..];
            let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (unit, factor) =
                UNITS.iter().find(|(unit, _)| *unit == &rest[..letters]).ok_or_else(syntax)?;
            // A repeated unit, as in `5m5m`, is a paste error.
            if said.contains(unit) {
                return Err(syntax());
            }
            said.push(unit);
            secs += number * factor;
            rest = &rest[letters..];
        }
        if secs > SECS_MAX {
            return Err(SpanError::TooLong { text: text.to_owned() });
        }
        Ok(Span(Duration::from_millis((secs * 1000.0).round() as u64)))
    }
}

/// The two largest units: `6h 30m`, `45s`, `2d 3h`; below a minute with tenths or milliseconds if
/// needed.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.as_secs();
        if total < 60 {
            return match self.0.subsec_millis() {
                0 => write!(f, "{total}s"),
                millis if total == 0 => write!(f, "{millis}ms"),
                millis => write!(f, "{total}.{}s", millis / 100),
            };
        }
        let parts = [
            (total / 86_400, "d"),
            (total / 3600 % 24, "h"),
            (total / 60 % 60, "m"),
            (total % 60, "s"),
        ];
        let first = parts
            .iter()
            .position(|(n, _)| *n > 0)
            .expect("total is at least 60, so some part is not zero");
        write!(f, "{}{}", parts[first].0, parts[first].1)?;
        match parts.get(first + 1) {
            Some((n, unit)) if *n > 0 => write!(f, " {n}{unit}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:?})", self.0)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let total = self.0.as_millis();
        // Exact, unlike Display: a record must read back unchanged.
        let text = match total {
            t if t % 3_600_000 == 0 && t > 0 => format!("{}h", t / 3_600_000),
            t if t % 60_000 == 0 && t > 0 => format!("{}m", t / 60_000),
            t if t % 1000 == 0 => format!("{}s", t / 1000),
            t => format!("{t}ms"),
        };
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a length of time with its unit, like \"30s\", \"5m\", \"2h\" or \"1h30m\"",
                )
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Span, E> {
                Err(E::custom(SpanError::NoUnit { text: number.to_string() }))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Span, E> {
                Err(E::custom(SpanError::NoUnit { text: number.to_string() }))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Time from one moment to another; zero if `to` is earlier.
pub fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_people_write_them() {
        for (text, secs) in [
            ("30s", 30),
            ("5m", 300),
            ("2h", 7200),
            ("3d", 259_200),
            ("1w", 604_800),
            ("1h30m", 5400),
            ("1h 30m", 5400),
        ] {
            assert_eq!(text.parse::<Span>(), Ok(Span::from_secs(secs)), "{text}");
        }
        assert_eq!("1.5h".parse::<Span>(), Ok(Span::from_secs(5400)));
        assert_eq!("250ms".parse::<Span>().unwrap().duration(), Duration::from_millis(250));
    }

    #[test]
    fn number_without_a_unit_is_refused() {
        let error = "15".parse::<Span>().unwrap_err().to_string();
        assert_eq!(error, "`15` has no unit, write `15s` for seconds or `15m` for minutes");
        for wrong in ["", "m", "5x", "5m3", "-5m", "1e9d", "5 minutes", "5m5m", "1h 2m 1h"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn record_reads_back_exactly() {
        for millis in [0, 1, 999, 1000, 61_000, 5_400_000, 90_061_001] {
            let span = Span::from_duration(Duration::from_millis(millis));
            let text = serde_json::to_string(&span).unwrap();
            assert_eq!(serde_json::from_str::<Span>(&text).unwrap(), span, "{text}");
        }
    }

    #[test]
    fn people_see_two_units() {
        assert_eq!(Span::from_secs(23_400).to_string(), "6h 30m");
        assert_eq!(Span::from_secs(45).to_string(), "45s");
        assert_eq!(Span::from_secs(183_600).to_string(), "2d 3h");
        assert_eq!(Span::from_secs(7200).to_string(), "2h");
    }
}
