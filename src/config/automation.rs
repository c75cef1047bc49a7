//! `[schedule]` of the job file and `[caps]` of the user's configuration: as they are written, and
//! what they mean.
//!
//! Not here: when a schedule is due, or whether a cap holds (`policy`).

use std::fmt;

use jiff::Timestamp;
use jiff::civil::Time;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::schema_patterns;
use super::union_values::strings;
use super::values::{Dollars, Hourly};
use crate::job::{CatchUp, Finding, MarketChoice, Overlap, ScheduleSpec, Spec};
use crate::policy::purchase::spending_cap::Caps;
use crate::policy::schedule::calendar::{self, CalendarError};

/// A daemon runs the job again and again after `lamp apply`. `lamp run` runs it once, now.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleFile {
    /// Minute, hour, day of month, month, day of week. Without it: once.
    #[schemars(extend("pattern" = schema_patterns::CRON, "examples" = ["0 22 * * *", "*/30 9-17 * * MON-FRI", "0 3 1 * *"]))]
    pub cron: Option<String>,
    /// IANA zone of `cron` and `only_between`. Without it, this workstation's.
    #[schemars(extend("examples" = ["Europe/Berlin", "UTC"]))]
    pub timezone: Option<String>,
    /// Runs begin between these times of day, also over midnight; others wait.
    #[schemars(extend("examples" = [["22:00", "06:00"]]))]
    pub only_between: Option<HoursWord>,
    /// Runs begin below this spot price, in dollars an hour; others wait. Needs `market` `spot` or
    /// `auto`.
    #[schemars(extend("examples" = [0.5]))]
    pub only_while_spot_under: Option<Hourly>,
    /// A run that is due before the last one ended: `skip` omits it, `queue` delays it.
    #[schemars(extend("default" = "skip", "examples" = ["queue"]))]
    pub overlap: Option<OverlapWord>,
    /// Runs missed without a daemon: `latest` runs the last one late, `none` skips them.
    #[schemars(extend("default" = "latest", "examples" = ["none"]))]
    pub catch_up: Option<CatchUpWord>,
}

/// Two times of day; how many there are is told by `resolve`, in the words of this program.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(with = "[String; 2]")]
pub struct HoursWord(Vec<String>);

impl<'de> Deserialize<'de> for HoursWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hours;
        impl<'de> Visitor<'de> for Hours {
            type Value = HoursWord;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(r#"two times of day, like ["22:00", "06:00"]"#)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, hours: A) -> Result<HoursWord, A::Error> {
                strings(hours).map(HoursWord)
            }
        }
        deserializer.deserialize_seq(Hours)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OverlapWord {
    Skip,
    Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CatchUpWord {
    Latest,
    None,
}

/// Limits on the cost of all jobs of this user in one job root. Each job root is counted by itself.
/// They are checked before each launch, and never end a running machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CapsFile {
    /// The most that all machines that run at one moment may cost an hour.
    #[schemars(extend("examples" = [10]))]
    pub usd_per_hour: Option<Hourly>,
    /// The most that may be spent in any 24 hours, counting what runs for one hour more.
    #[schemars(extend("examples" = [50]))]
    pub usd_per_day: Option<Dollars>,
}

impl CapsFile {
    pub fn caps(&self) -> Caps {
        Caps {
            usd_per_hour: self.usd_per_hour.as_ref().map(|word| word.0),
            usd_per_day: self.usd_per_day.as_ref().map(|word| word.0),
        }
    }
}

/// The money that coding agents may spend through `lamp mcp`. Only a person writes this table: no
/// tool of the server changes it. Without it, its tools start no job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PurseFile {
    /// The most that jobs of coding agents may cost. A job counts with the most that it can cost,
    /// and with its cost until 24 hours after its end. `0` allows jobs that cost nothing.
    #[schemars(extend("examples" = [20]))]
    pub usd_per_day: Option<Dollars>,
}

/// The schedule of a job, and what is wrong with it.
pub fn resolve(file: &ScheduleFile, spec: &Spec, now: Timestamp) -> (ScheduleSpec, Vec<Finding>) {
    let mut found = Vec::new();
    let resolved = ScheduleSpec {
        cron: file.cron.clone(),
        timezone: file.timezone.clone().unwrap_or_else(timezone_here),
        only_between: file.only_between.as_ref().and_then(|hours| read_hours(&hours.0, &mut found)),
        only_while_spot_under: file.only_while_spot_under.as_ref().map(|word| word.0),
        overlap: match file.overlap {
            None | Some(OverlapWord::Skip) => Overlap::Skip,
            Some(OverlapWord::Queue) => Overlap::Queue,
        },
        catch_up: match file.catch_up {
            None | Some(CatchUpWord::Latest) => CatchUp::Latest,
            Some(CatchUpWord::None) => CatchUp::None,
        },
    };
    let mut judged = calendar::check(&resolved, now);
    if let Err(error @ CalendarError::Zone { .. }) = &judged {
        found.push(
            Finding::error("schedule.timezone", error.to_string())
                .hint("write it like \"Europe/Berlin\" or \"UTC\""),
        );
        // The other mistakes do not depend on the zone.
        judged = calendar::check(&ScheduleSpec { timezone: "UTC".into(), ..resolved.clone() }, now);
    }
    match judged {
        Ok(calendar) if calendar.is_never_in_its_hours(now) => {
            let finding = Finding::warning(
                "schedule.only_between",
                "is never when `cron` is due: each run waits until its hours begin",
            );
            found.push(finding.hint("let `cron` be due within them, or leave one of the two out"));
        }
        Ok(_) | Err(CalendarError::Zone { .. }) => {}
        Err(
            error @ (CalendarError::Cron { .. }
            | CalendarError::CronField { .. }
            | CalendarError::Never { .. }),
        ) => {
            let hint = "minute, hour, day of the month, month, day of the week: \"0 22 * * *\" is every evening at ten";
            found.push(Finding::error("schedule.cron", error.to_string()).hint(hint));
        }
    }
    if resolved.only_while_spot_under.is_some() && spec.machine.market == MarketChoice::OnDemand {
        let finding = Finding::error(
            "schedule.only_while_spot_under",
            "is about the spot market, and the job buys on-demand",
        );
        found.push(finding.hint("say machine.market = \"spot\" or \"auto\""));
    }
    if spec.limits.deadline.is_some() && resolved.cron.is_some() {
        let finding =
            Finding::error("limits.deadline", "is one moment, and the job is run again and again");
        found.push(finding.hint("`limits.max_runtime` bounds each run"));
    }
    if spec.gang.is_some() {
        let finding = Finding::warning("schedule", "cannot start a job of several machines yet");
        found.push(finding.hint("`lamp run` starts it now; `lamp apply` refuses it"));
    }
    (resolved, found)
}

fn read_hours(hours: &[String], found: &mut Vec<Finding>) -> Option<(Time, Time)> {
    let [from, to] = hours else {
        let finding = Finding::error(
            "schedule.only_between",
            format!("is two times of day, and {} stand there", hours.len()),
        );
        found.push(finding.hint("write it like [\"22:00\", \"06:00\"]"));
        return None;
    };
    let mut read = |text: &String| match text.parse::<Time>() {
        Ok(time) if text.len() <= "22:00:00".len() => Some(time),
        _ => {
            found.push(Finding::error(
                "schedule.only_between",
                format!("`{text}` is not a time of day, write it like \"22:00\""),
            ));
            None
        }
    };
    let (from, to) = (read(from), read(to));
    let hours = from.zip(to)?;
    if hours.0 == hours.1 {
        found.push(
            Finding::error("schedule.only_between", "begins and ends at the same time")
                .hint("leave it out: then every time will do"),
        );
        return None;
    }
    Some(hours)
}

/// A zone without a name is one that another workstation would not understand.
fn timezone_here() -> String {
    jiff::tz::TimeZone::system().iana_name().unwrap_or("UTC").to_owned()
}
