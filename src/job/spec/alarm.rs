//! The alarm of the cloud on a machine, from outside: `heartbeat`, `cpu<=0.3 for 5m`, `off`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::market::Span;

/// When the cloud ends a machine by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmRule {
    Off,
    /// The agent's heartbeat is missing for this long. `None`: not set, see [`AlarmRule::beside`].
    Heartbeat {
        minutes: Option<u32>,
    },
    /// The machine's CPU stays at or below this share, in hundredths of a percent. For a script on
    /// one GPU this is nearly always wrong, but users know it and it needs no agent.
    Cpu {
        hundredths: u32,
        minutes: u32,
    },
}

/// Why a text is no alarm. The message teaches the syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not an alarm, write \"heartbeat\", \"heartbeat for 15m\", \"cpu<=0.3 for 5m\" or \"off\"{because}"
)]
pub struct AlarmError {
    text: String,
    because: &'static str,
}

/// The minimum for an alarm without a time of its own, and the usual lease. Less would end a
/// healthy machine behind a line that is broken for twenty minutes. With a shorter lease the
/// controller ends the machine sooner.
const HEARTBEAT_MINUTES: u32 = 30;

/// CloudWatch looks back a day at most (periods of a minute times their number), the longest lease
/// too. EC2 measures CPU every five minutes.
const MINUTES_MAX: u32 = 24 * 60;
const CPU_MINUTES: u32 = 5;

/// A heartbeat comes once a minute and may be late. With less, a busy network ends the machine.
const HEARTBEAT_MINUTES_MIN: u32 = 5;

impl Default for AlarmRule {
    /// The only switch off the machine that needs neither this workstation nor an installation. The
    /// first heartbeat arms it, so a machine that cannot publish is not ended.
    fn default() -> Self {
        AlarmRule::Heartbeat { minutes: None }
    }
}

impl AlarmRule {
    /// How many minutes a machine with such a lease may be silent; `None`: the rule does not ask.
    pub fn silence(self, lease: Span) -> Option<u32> {
        let AlarmRule::Heartbeat { minutes } = self else { return None };
        Some(minutes.unwrap_or_else(|| {
            let lease = u32::try_from(lease.duration().as_secs().div_ceil(60)).unwrap_or(u32::MAX);
            lease.clamp(HEARTBEAT_MINUTES, MINUTES_MAX)
        }))
    }

    /// The rule for a machine with such a lease. An alarm without a time of its own waits for the
    /// lease: a user may raise the lease because of a bad line.
    #[must_use]
    pub fn beside(self, lease: Span) -> Self {
        self.silence(lease).map_or(self, |minutes| AlarmRule::Heartbeat { minutes: Some(minutes) })
    }
}

impl FromStr for AlarmRule {
    type Err = AlarmError;

    fn from_str(text: &str) -> Result<Self, AlarmError> {
        let wrong = |because| AlarmError { text: text.to_owned(), because };
        let said: String = text.to_ascii_lowercase().split_whitespace().collect();
        let (what, time) =
            said.split_once("for").map_or((said.as_str(), None), |(what, time)| (what, Some(time)));
        let minutes = time
            .map(|time| {
                minutes(time).ok_or_else(|| wrong("; the time is whole minutes, a day at most"))
            })
            .transpose()?;
        match (what, minutes) {
            ("off", None) => Ok(AlarmRule::Off),
            ("heartbeat", Some(minutes)) if minutes < HEARTBEAT_MINUTES_MIN => {
                Err(wrong("; a heartbeat may be minutes late: 5m is the least"))
            }
            ("heartbeat", minutes) => Ok(AlarmRule::Heartbeat { minutes }),
            (what, Some(minutes)) => {
                let percent =
                    what.strip_prefix("cpu<=").map(|percent| percent.trim_end_matches('%'));
                let percent: f64 =
                    percent.and_then(|percent| percent.parse().ok()).ok_or_else(|| wrong(""))?;
                let hundredths = (percent * 100.0).round();
                if !(0.0..=10_000.0).contains(&hundredths) {
                    return Err(wrong("; a percentage is from 0 to 100"));
                }
                if minutes % CPU_MINUTES != 0 || minutes == 0 {
                    return Err(wrong(
                        "; EC2 measures CPU once in five minutes, so the time is a multiple of 5m",
                    ));
                }
                Ok(AlarmRule::Cpu { hundredths: hundredths as u32, minutes })
            }
            _ => Err(wrong("")),
        }
    }
}

/// `5m`, `2h`.
fn minutes(text: &str) -> Option<u32> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u32 = number.parse().ok()?;
    let minutes = match unit {
        "m" => Some(number),
        "h" => number.checked_mul(60),
        _ => None,
    };
    minutes.filter(|minutes| *minutes <= MINUTES_MAX)
}

impl fmt::Display for AlarmRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AlarmRule::Off => f.write_str("off"),
            AlarmRule::Heartbeat { minutes: None } => f.write_str("heartbeat"),
            AlarmRule::Heartbeat { minutes: Some(minutes) } => {
                write!(f, "heartbeat for {minutes}m")
            }
            AlarmRule::Cpu { hundredths, minutes } => {
                write!(f, "cpu<={} for {minutes}m", f64::from(*hundredths) / 100.0)
            }
        }
    }
}

impl Serialize for AlarmRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AlarmRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_read_as_they_are_written() {
        for (text, shown) in [
            ("off", "off"),
            ("heartbeat", "heartbeat"),
            ("Heartbeat for 15m", "heartbeat for 15m"),
            ("cpu<=0.3 for 5m", "cpu<=0.3 for 5m"),
            ("CPU <= 12.5% for 1h", "cpu<=12.5 for 60m"),
        ] {
            let rule: AlarmRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), shown);
            assert_eq!(shown.parse(), Ok(rule), "it reads back");
        }
        for text in [
            "",
            "on",
            "heartbeat for 2m",
            "heartbeat for 5",
            "cpu<=0.3",
            "cpu<=0.3 for 7m",
            "cpu<=101 for 5m",
            "cpu<0.3 for 5m",
            "off for 5m",
            "cpu<=1 for 2d",
        ] {
            let error = text.parse::<AlarmRule>().unwrap_err().to_string();
            assert!(error.contains("cpu<=0.3 for 5m"), "{error}");
        }
    }

    #[test]
    fn alarm_waits_for_the_lease_unless_it_has_its_own_time() {
        for (alarm, lease_secs, watched) in [
            ("heartbeat", 30 * 60, "heartbeat for 30m"),
            ("heartbeat", 2 * 60, "heartbeat for 30m"),
            ("heartbeat", 3 * 3600, "heartbeat for 180m"),
            ("heartbeat", 3 * 3600 + 1, "heartbeat for 181m"),
            // The longest lease is as long as CloudWatch looks back.
            ("heartbeat", 24 * 3600, "heartbeat for 1440m"),
            ("heartbeat", 25 * 3600, "heartbeat for 1440m"),
            ("heartbeat for 15m", 3 * 3600, "heartbeat for 15m"),
            ("cpu<=0.3 for 5m", 3 * 3600, "cpu<=0.3 for 5m"),
            ("off", 3 * 3600, "off"),
        ] {
            let rule: AlarmRule = alarm.parse().unwrap();
            assert_eq!(
                rule.beside(Span::from_secs(lease_secs)).to_string(),
                watched,
                "{alarm} beside {lease_secs} s"
            );
        }
        let longest = crate::job::spec::limits::LEASE_BOUNDS.1;
        assert_eq!(
            AlarmRule::default().silence(longest),
            Some(MINUTES_MAX),
            "no lease outlasts what CloudWatch can watch"
        );
    }
}
