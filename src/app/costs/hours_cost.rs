//! The cost of some hours of the planned machines, at the present price.

use std::time::Duration;

use serde::Serialize;

use crate::job::{Plan, Spec};
use crate::market::Usd;

/// The field names are an interface.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct HoursCost {
    pub hours: f64,
    pub machines: usize,
    pub usd: Usd,
}

impl HoursCost {
    /// `None`: no number of hours was asked for.
    pub fn of(spec: &Spec, plan: &Plan, hours: Option<f64>) -> Option<Self> {
        let hours = hours?;
        let machines = spec.gang.as_ref().map_or(1, |gang| gang.seats().len());
        let one = plan.offer.hourly().cost_of(Duration::from_secs_f64(hours * 3600.0));
        Some(HoursCost { hours, machines, usd: std::iter::repeat_n(one, machines).sum() })
    }

    pub fn sentence(&self, plan: &Plan) -> String {
        let machines = match self.machines {
            1 => String::new(),
            machines => format!(" of {machines} machines"),
        };
        format!(
            "{} hours{machines} at ${:.4}/h cost {}",
            self.hours,
            plan.offer.hourly().per_hour().dollars(),
            self.usd.rounded_up()
        )
    }
}

/// A year has fewer hours than ten thousand.
const HOURS_MAX: f64 = 1_000_000.0;

/// # Errors
/// When it is no number of hours.
pub fn hours_of_work(text: &str) -> Result<f64, String> {
    let hours: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    if hours > 0.0 && hours <= HOURS_MAX {
        Ok(hours)
    } else {
        Err("write more than 0 hours, and at most a million".into())
    }
}
