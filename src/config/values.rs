//! The words of the job file: each type reads one kind of value and its `expecting` teaches the
//! syntax.
//!
//! The same types parse flags (`FromStr`) and keys (`Deserialize`), so that `--idle 15` and
//! `idle = 15` fail with the same sentence. A number is read as the text that the user typed. Not
//! here: a default.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use super::schema_patterns;
use crate::job::{
    AlarmRule, DoneRule, GangEngine, GangSaves, ListenAddress, MarketChoice, NodeCount,
    PrimaryRole, Reaction, SecretSource,
};
use crate::market::{
    CloudKind, Cuda, FallbackCost, GpuRequirement, PriceRule, Span, Usd, UsdPerHour,
};

/// Why a text is not the word that was expected. The message is complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WordError(String);

impl WordError {
    fn of(error: impl fmt::Display) -> Self {
        WordError(error.to_string())
    }

    fn not_one_of(text: &str, what: &str, words: &[&str]) -> Self {
        let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let guess = super::key_suggest::closest(text, words.iter().copied())
            .map(|word| format!(", did you mean `{word}`?"))
            .unwrap_or_default();
        WordError(format!("`{text}` is not {what}, write one of {list}{guess}"))
    }
}

macro_rules! word {
    ($(#[$doc:meta])* $name:ident($inner:ty), $parse:path, expecting $expecting:literal, schema $schema:tt) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name(pub $inner);

        impl FromStr for $name {
            type Err = WordError;
            fn from_str(text: &str) -> Result<Self, WordError> {
                $parse(text.trim()).map($name)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(WordVisitor { expecting: $expecting, kind: std::marker::PhantomData })
            }
        }

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

struct WordVisitor<T> {
    expecting: &'static str,
    kind: std::marker::PhantomData<T>,
}

impl<T: FromStr<Err = WordError>> serde::de::Visitor<'_> for WordVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }
    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }
}

word!(
    /// Where a secret is read.
    SecretWord(SecretSource), parse_secret,
    expecting "where a secret is read: \"env\", \"env:NAME\", \"file:PATH\", \"ssm:NAME\" or \"secretsmanager:NAME\"",
    schema {"type": "string", "pattern": schema_patterns::SECRET}
);
word!(
    /// A length of time with its unit.
    SpanWord(Span), parse_span,
    expecting "a length of time with its unit, like \"30s\", \"5m\", \"2h\" or \"1h30m\"",
    schema {"type": "string", "pattern": schema_patterns::SPAN}
);
word!(
    /// A length of time with its unit, or `off`.
    SpanOrOff(Option<Span>), parse_span_or_off,
    expecting "a length of time with its unit, like \"15m\", or \"off\"",
    schema {"type": "string", "pattern": schema_patterns::SPAN_OR_OFF}
);
word!(
    /// The alarm of the cloud on a machine.
    AlarmWord(AlarmRule), parse_alarm,
    expecting "\"heartbeat\", \"heartbeat for 15m\", \"cpu<=0.3 for 5m\" or \"off\"",
    schema {"type": "string", "pattern": schema_patterns::ALARM}
);
word!(
    /// An address to listen on.
    ListenWord(ListenAddress), parse_listen,
    expecting "a port like 9400, or an address like \"127.0.0.1:9400\"",
    schema {"type": ["integer", "string"], "pattern": schema_patterns::LISTEN}
);
word!(
    /// A number of machines, or the fewest and the most.
    NodesWord(NodeCount), parse_nodes,
    expecting "a number of machines, like 4, or \"2..4\" with the fewest first",
    schema {"type": ["integer", "string"], "pattern": schema_patterns::NODES}
);
word!(
    /// The engine that joins the ranks of a gang.
    EngineWord(GangEngine), parse_engine,
    expecting "\"torchrun\", \"tensorflow\", \"mpi\", \"ray\" or \"env\"",
    schema {"type": "string", "enum": ["torchrun", "tensorflow", "mpi", "ray", "env"]}
);
word!(
    /// When a gang has finished.
    DoneWord(DoneRule), parse_done,
    expecting "\"all\", \"rank0\" or \"any\"",
    schema {"type": "string", "enum": ["all", "rank0", "any"]}
);
word!(
    /// The name of the first program of TensorFlow.
    ChiefNameWord(PrimaryRole), parse_chief_name,
    expecting "\"chief\" or \"master\"",
    schema {"type": "string", "enum": ["chief", "master"]}
);
word!(
    /// Which ranks save.
    SavesWord(GangSaves), parse_saves,
    expecting "\"rank0\" or \"each\"",
    schema {"type": "string", "enum": ["rank0", "each"]}
);
word!(
    /// An amount of dollars.
    Dollars(Usd), parse_dollars,
    expecting "an amount of dollars, like 5, 0.65 or \"$5\"",
    schema {"type": ["number", "string"], "pattern": schema_patterns::DOLLARS}
);
word!(
    /// Dollars for an hour of a machine.
    Hourly(UsdPerHour), parse_hourly,
    expecting "dollars per hour, like 0.25 or \"$0.25\"",
    schema {"type": ["number", "string"], "pattern": schema_patterns::HOURLY}
);
word!(
    /// The most a spot machine may cost an hour.
    Price(PriceRule), parse_price,
    expecting "a price per hour: 0.65, \"80% of on-demand\", \"p95 of 14d\" or \"auto\"",
    schema {"type": ["number", "string"], "pattern": schema_patterns::PRICE}
);
word!(
    /// How many times as much a fallback may cost.
    FallbackCostWord(FallbackCost), parse_fallback_cost,
    expecting "a number from 1 on, like 2 or 3.5, or \"any\"",
    schema {"type": ["number", "string"], "pattern": schema_patterns::FALLBACK_COST}
);
word!(
    /// A version of CUDA. Better in quotes: as a number, 12.10 is 12.1.
    CudaWord(Cuda), parse_cuda,
    expecting "a version of CUDA, like \"12.4\"",
    schema {"type": ["string", "number"], "pattern": schema_patterns::CUDA}
);
word!(
    /// Which GPUs.
    Gpus(GpuRequirement), parse_gpus,
    expecting "GPUs, like \"A10G:1\", \"H100:8\", \"at least 24GiB\", \"2 x 24GiB\" or \"none\"",
    schema {"type": "string", "pattern": schema_patterns::GPUS}
);
word!(
    /// The size of a disk, whole GiB.
    DiskGib(u32), parse_disk,
    expecting "a size with its unit, like \"100GiB\" or \"1TiB\"",
    schema {"type": "string", "pattern": schema_patterns::DISK}
);
word!(
    /// A number of bytes.
    Bytes(u64), parse_bytes,
    expecting "a size with its unit, like \"200MiB\" or \"2GiB\"",
    schema {"type": "string", "pattern": schema_patterns::BYTES}
);
word!(
    /// Bytes per second.
    Rate(f64), parse_rate,
    expecting "a rate with its unit, like \"100kB/s\"",
    schema {"type": "string", "pattern": schema_patterns::RATE}
);
word!(
    /// A market.
    MarketWord(MarketChoice), parse_market,
    expecting "\"on-demand\", \"spot\" or \"auto\"",
    schema {"type": "string", "enum": MARKETS}
);
word!(
    /// A cloud.
    CloudWord(CloudKind), parse_cloud,
    expecting "\"local\" or \"aws\"",
    schema {"type": "string", "enum": CLOUDS}
);
word!(
    /// The reaction to an end.
    ReactionWord(Reaction), parse_reaction,
    expecting "\"terminate\", \"stop\", \"keep 2h\" or \"notify\"",
    schema {"type": "string", "pattern": schema_patterns::REACTION}
);
word!(
    /// A moment.
    Moment(Timestamp), parse_moment,
    expecting "a date and time, like \"2026-11-21T18:00:00Z\", \"2026-11-21 18:00\" or \"2026-11-21T18:00[Europe/Berlin]\"",
    schema {"type": "string", "pattern": schema_patterns::MOMENT}
);
word!(
    /// A number, or `unlimited`.
    CountOrUnlimited(u32), parse_count,
    expecting "a whole number from 0 on, or \"unlimited\"",
    schema {"type": ["integer", "string"], "pattern": schema_patterns::COUNT_OR_UNLIMITED}
);

const MARKETS: [&str; 3] = ["on-demand", "spot", "auto"];
const CLOUDS: [&str; 2] = ["local", "aws"];

fn parse_secret(text: &str) -> Result<SecretSource, WordError> {
    text.parse().map_err(WordError::of)
}

fn parse_nodes(text: &str) -> Result<NodeCount, WordError> {
    text.parse().map_err(WordError::of)
}

fn parse_engine(text: &str) -> Result<GangEngine, WordError> {
    let words = GangEngine::ALL.map(GangEngine::word);
    let found = GangEngine::ALL.into_iter().find(|engine| engine.word() == text);
    found.ok_or_else(|| WordError::not_one_of(text, "an engine", &words))
}

fn parse_done(text: &str) -> Result<DoneRule, WordError> {
    match text {
        "all" => Ok(DoneRule::All),
        "rank0" => Ok(DoneRule::Rank0),
        "any" => Ok(DoneRule::Any),
        _ => Err(WordError::not_one_of(text, "when a gang is done", &["all", "rank0", "any"])),
    }
}

fn parse_chief_name(text: &str) -> Result<PrimaryRole, WordError> {
    match text {
        "chief" => Ok(PrimaryRole::Chief),
        "master" => Ok(PrimaryRole::Master),
        _ => Err(WordError::not_one_of(text, "a name of the chief", &["chief", "master"])),
    }
}

fn parse_saves(text: &str) -> Result<GangSaves, WordError> {
    match text {
        "rank0" => Ok(GangSaves::Rank0),
        "each" => Ok(GangSaves::Each),
        _ => Err(WordError::not_one_of(text, "who saves", &["rank0", "each"])),
    }
}

fn parse_span(text: &str) -> Result<Span, WordError> {
    text.parse().map_err(WordError::of)
}

fn parse_span_or_off(text: &str) -> Result<Option<Span>, WordError> {
    if text == "off" { Ok(None) } else { parse_span(text).map(Some) }
}

fn parse_dollars(text: &str) -> Result<Usd, WordError> {
    text.parse().map_err(WordError::of)
}

fn parse_hourly(text: &str) -> Result<UsdPerHour, WordError> {
    let price = parse_dollars(text.trim_end_matches("/h"))?;
    if price < Usd::ZERO {
        Err(WordError(format!("`{text}` is less than nothing")))
    } else {
        Ok(UsdPerHour::new(price))
    }
}

fn parse_price(text: &str) -> Result<PriceRule, WordError> {
    text.parse().map_err(WordError::of)
}

fn parse_fallback_cost(text: &str) -> Result<FallbackCost, WordError> {
    text.parse().map_err(WordError::of)
}

fn parse_cuda(text: &str) -> Result<Cuda, WordError> {
    text.parse().map_err(WordError::of)
}

fn parse_gpus(text: &str) -> Result<GpuRequirement, WordError> {
    text.parse().map_err(WordError::of)
}

fn parse_disk(text: &str) -> Result<u32, WordError> {
    let bytes = parse_bytes(text)?;
    let gib = bytes.div_ceil(1 << 30);
    u32::try_from(gib).map_err(|_| WordError(format!("`{text}` is larger than any disk")))
}

fn parse_bytes(text: &str) -> Result<u64, WordError> {
    const UNITS: [(&str, f64); 10] = [
        ("KiB", 1024.0),
        ("MiB", 1048576.0),
        ("GiB", 1073741824.0),
        ("TiB", 1099511627776.0),
        ("kB", 1e3),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("B", 1.0),
    ];
    if number_of(text).is_some() {
        return Err(WordError(format!("`{text}` has no unit, write `{text}MiB` or `{text}GiB`")));
    }
    let (digits, factor) = UNITS
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))
        .ok_or_else(|| {
            WordError(format!("`{text}` is not a size, write it like 200MiB, 2GiB or 1TiB"))
        })?;
    let number = number_of(digits).ok_or_else(|| {
        WordError(format!("`{text}` is not a size, write it like 200MiB, 2GiB or 1TiB"))
    })?;
    Ok((number * factor) as u64)
}

fn number_of(digits: &str) -> Option<f64> {
    digits.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

fn parse_rate(text: &str) -> Result<f64, WordError> {
    if number_of(text).is_some() {
        return Err(WordError(format!("`{text}` has no unit, write `{text}kB/s` or `{text}MB/s`")));
    }
    let wrong = || WordError(format!("`{text}` is not a rate, write it like \"100kB/s\""));
    let size = text.strip_suffix("/s").ok_or_else(wrong)?;
    parse_bytes(size.trim()).map(|bytes| bytes as f64).map_err(|_| wrong())
}

fn parse_market(text: &str) -> Result<MarketChoice, WordError> {
    match text {
        "on-demand" => Ok(MarketChoice::OnDemand),
        "spot" => Ok(MarketChoice::Spot),
        "auto" => Ok(MarketChoice::Auto),
        _ => Err(WordError::not_one_of(text, "a market", &MARKETS)),
    }
}

fn parse_cloud(text: &str) -> Result<CloudKind, WordError> {
    match text {
        "local" => Ok(CloudKind::Local),
        "aws" => Ok(CloudKind::Aws),
        _ => Err(WordError::not_one_of(text, "a cloud", &CLOUDS)),
    }
}

fn parse_reaction(text: &str) -> Result<Reaction, WordError> {
    if let Some(time) = text.strip_prefix("keep ") {
        return parse_span(time.trim()).map(Reaction::Keep);
    }
    match text {
        "terminate" => Ok(Reaction::Terminate),
        "stop" => Ok(Reaction::Stop),
        "notify" => Ok(Reaction::Notify),
        "keep" => Err(WordError("`keep` needs a time, write it like \"keep 2h\"".into())),
        _ => Err(WordError::not_one_of(
            text,
            "something to do",
            &["terminate", "stop", "keep 2h", "notify"],
        )),
    }
}

fn parse_listen(text: &str) -> Result<ListenAddress, WordError> {
    text.parse().map_err(WordError::of)
}

fn parse_alarm(text: &str) -> Result<AlarmRule, WordError> {
    text.parse().map_err(WordError::of)
}

/// With a zone or an offset it means the same everywhere; without, it is the workstation's local
/// time.
fn parse_moment(text: &str) -> Result<Timestamp, WordError> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    if let Ok(moment) = text.parse::<jiff::Zoned>() {
        return Ok(moment.timestamp());
    }
    let wrong = || {
        WordError(format!(
            "`{text}` is not a date and time, write it like \"2026-11-21T18:00:00Z\" or \"2026-11-21 18:00\" for your local time"
        ))
    };
    let has_time = text.len() > "2026-11-21".len();
    let local: jiff::civil::DateTime = text.parse().map_err(|_| wrong())?;
    if !has_time {
        return Err(wrong());
    }
    local.to_zoned(jiff::tz::TimeZone::system()).map(|zoned| zoned.timestamp()).map_err(|_| wrong())
}

fn parse_count(text: &str) -> Result<u32, WordError> {
    if text == "unlimited" {
        return Ok(u32::MAX);
    }
    text.parse().map_err(|_| {
        WordError(format!("`{text}` is not a whole number from 0 on, or \"unlimited\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_read_as_people_write_them() {
        assert_eq!("100GiB".parse(), Ok(DiskGib(100)));
        assert_eq!("1TiB".parse(), Ok(DiskGib(1024)));
        assert_eq!("100GB".parse(), Ok(DiskGib(94)));
        assert_eq!("100kB/s".parse(), Ok(Rate(100_000.0)));
        assert_eq!(
            "2500".parse::<Rate>().unwrap_err().to_string(),
            "`2500` has no unit, write `2500kB/s` or `2500MB/s`"
        );
        assert_eq!(
            "100".parse::<DiskGib>().unwrap_err().to_string(),
            "`100` has no unit, write `100MiB` or `100GiB`"
        );
        for wrong in ["", "GiB", "-1GiB", "1 gigabyte", "1e99TiB"] {
            assert!(wrong.parse::<DiskGib>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn choices_say_what_was_probably_meant() {
        let error = "on_demand".parse::<MarketWord>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`on_demand` is not a market, write one of `on-demand`, `spot`, `auto`, did you mean `on-demand`?"
        );
        assert_eq!("keep 2h".parse(), Ok(ReactionWord(Reaction::Keep(Span::from_secs(7200)))));
        assert_eq!(
            "keep".parse::<ReactionWord>().unwrap_err().to_string(),
            "`keep` needs a time, write it like \"keep 2h\""
        );
        assert_eq!(
            "keep 2".parse::<ReactionWord>().unwrap_err().to_string(),
            "`2` has no unit, write `2s` for seconds or `2m` for minutes"
        );
    }

    #[test]
    fn moments_with_a_zone_mean_the_same_everywhere() {
        let noon: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        for text in
            ["2026-11-21T12:00:00Z", "2026-11-21T13:00:00+01:00", "2026-11-21T13:00[Europe/Berlin]"]
        {
            assert_eq!(text.parse(), Ok(Moment(noon)), "{text}");
        }
        assert!("2026-11-21 18:00".parse::<Moment>().is_ok());
        for wrong in ["tomorrow", "18:00", "2026-11-21", "2026-13-01 00:00"] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn off_and_unlimited_are_words() {
        assert_eq!("off".parse(), Ok(SpanOrOff(None)));
        assert_eq!("15m".parse(), Ok(SpanOrOff(Some(Span::from_secs(900)))));
        assert_eq!("unlimited".parse(), Ok(CountOrUnlimited(u32::MAX)));
        assert!("-1".parse::<CountOrUnlimited>().is_err());
    }
}
