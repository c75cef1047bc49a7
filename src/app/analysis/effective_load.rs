//! The power of the GPUs as a share of their full power, beside how busy the driver calls them.
//!
//! The driver counts a waiting kernel as busy, and a waiting kernel draws little power.

use serde::Serialize;

/// The power that counts as 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PowerScale {
    /// The limit that the driver enforces, in the samples.
    Limit,
    /// The highest power of this attempt. Older agents recorded no limit.
    HighestSeen,
}

/// The means of the last minutes. The field names are an interface.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct EffectiveLoad {
    /// The utilisation of the busiest GPU.
    pub busy_percent: f64,
    /// The power of all counted GPUs together, as a share of `scale_watts`.
    pub power_percent: f64,
    pub watts: f64,
    pub scale_watts: f64,
    pub scale: PowerScale,
    /// How long the means are.
    pub minutes: u32,
}

/// A GPU at more than this is called busy by everyone.
const BUSY_PERCENT: f64 = 70.0;

/// A training job draws more than half of its limit. At less than 40 % a GPU mostly waits. Higher
/// blames jobs that are limited by memory; lower misses slow data loaders.
const WAITS_PERCENT: f64 = 40.0;

/// A GPU that the driver calls unused draws less than half of its limit.
const WORKS_PERCENT: f64 = 60.0;

/// The driver's word for a GPU that does nothing much.
const QUIET_PERCENT: f64 = 20.0;

/// The readings behind an [`EffectiveLoad`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadReadings {
    pub busy_percent: Option<f64>,
    pub watts: Option<f64>,
    pub limit_watts: Option<f64>,
    pub highest_watts: Option<f64>,
    pub minutes: u32,
}

impl EffectiveLoad {
    /// `None`: utilisation or power is unknown.
    pub fn of(readings: &LoadReadings) -> Option<EffectiveLoad> {
        let limit = readings.limit_watts.filter(|watts| *watts > 0.0);
        let (scale_watts, scale) = match limit {
            Some(limit) => (limit, PowerScale::Limit),
            None => (readings.highest_watts.filter(|watts| *watts > 0.0)?, PowerScale::HighestSeen),
        };
        let watts = readings.watts?;
        Some(EffectiveLoad {
            busy_percent: readings.busy_percent?,
            power_percent: watts / scale_watts * 100.0,
            watts,
            scale_watts,
            scale,
            minutes: readings.minutes,
        })
    }

    /// `GPU: 97 % busy, 212 W, 71 % of its power limit of 300 W (mean of 10 minutes)`
    pub fn text(&self, gpus: u32) -> String {
        let (busy, share) = (self.busy_percent, self.power_percent);
        let who = if gpus > 1 { "busiest GPU" } else { "GPU" };
        let all = if gpus > 1 { format!("; all {gpus} GPUs draw ") } else { ", ".to_owned() };
        let of = match (self.scale, gpus > 1) {
            (PowerScale::Limit, false) => "its power limit",
            (PowerScale::Limit, true) => "their power limits",
            (PowerScale::HighestSeen, _) => "the highest power seen in this attempt",
        };
        let minutes = match self.minutes {
            1 => "minute".to_owned(),
            minutes => format!("{minutes} minutes"),
        };
        format!(
            "{who}: {busy:.0} % busy{all}{:.0} W, {share:.0} % of {of}, {:.0} W (mean of the last {minutes})",
            self.watts, self.scale_watts
        )
    }

    /// One sentence where utilisation and power disagree.
    pub fn disagreement(&self, gpus: u32) -> Option<String> {
        let (busy, share) = (self.busy_percent, self.power_percent);
        if busy >= BUSY_PERCENT && share < WAITS_PERCENT {
            let waits = match gpus {
                0 | 1 => "it probably waits, perhaps for data",
                _ => "most GPUs probably wait, perhaps for data or for each other",
            };
            return Some(format!("{busy:.0} % busy at {share:.0} % of its power: {waits}"));
        }
        let works = busy <= QUIET_PERCENT && share >= WORKS_PERCENT;
        (works && self.scale == PowerScale::Limit).then(|| {
            format!(
                "{busy:.0} % busy at {share:.0} % of its power: the driver probably does not count its work"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(busy: f64, watts: f64, limit: Option<f64>) -> EffectiveLoad {
        EffectiveLoad::of(&LoadReadings {
            busy_percent: Some(busy),
            watts: Some(watts),
            limit_watts: limit,
            highest_watts: Some(400.0),
            minutes: 10,
        })
        .expect("all is known")
    }

    #[test]
    fn busy_gpu_that_draws_little_is_told() {
        let waits = load(100.0, 93.0, Some(300.0));
        assert_eq!(
            waits.disagreement(1).as_deref(),
            Some("100 % busy at 31 % of its power: it probably waits, perhaps for data")
        );
        assert!(waits.disagreement(8).expect("a line").contains("most GPUs"));
        assert_eq!(load(100.0, 280.0, Some(300.0)).disagreement(1), None);
        assert_eq!(load(50.0, 93.0, Some(300.0)).disagreement(1), None);
        let uncounted = load(0.0, 250.0, Some(300.0)).disagreement(1).expect("a line");
        assert!(uncounted.contains("does not count"), "{uncounted}");
        assert_eq!(load(0.0, 390.0, None).disagreement(1), None, "the highest seen is no limit");
    }

    #[test]
    fn scale_is_told_and_missing_readings_give_none() {
        assert_eq!(
            load(97.0, 150.0, None).text(1),
            "GPU: 97 % busy, 150 W, 38 % of the highest power seen in this attempt, 400 W \
             (mean of the last 10 minutes)"
        );
        assert!(
            load(97.0, 150.0, Some(300.0)).text(8).contains("all 8 GPUs draw 150 W, 50 % of their")
        );
        assert_eq!(EffectiveLoad::of(&LoadReadings::default()), None);
        let unlimited =
            LoadReadings { busy_percent: Some(1.0), watts: Some(1.0), ..Default::default() };
        assert_eq!(EffectiveLoad::of(&unlimited), None);
    }
}
