//! The cost of some hours of the planned machines, at the present price.

use std::time::Duration;

use serde::Serialize;

use crate::market::{Usd, UsdPerHour};

/// The field names are an interface.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct HoursCost {
    pub hours: f64,
    pub machines: usize,
    pub usd: Usd,
    /// The price of one machine. If they differ, of all together.
    #[serde(skip)]
    rate: UsdPerHour,
    #[serde(skip)]
    is_mixed: bool,
}

/// Machines of one price.
#[derive(Clone, Copy, Debug)]
pub struct PricedMachines {
    pub count: usize,
    pub rate: UsdPerHour,
}

impl HoursCost {
    /// `None`: no number of hours was asked for. `one`: the price of the planned machine. `gang`:
    /// its kinds of machines; none for one machine alone.
    pub fn of(one: UsdPerHour, gang: &[PricedMachines], hours: Option<f64>) -> Option<Self> {
        let hours = hours?;
        let alone = [PricedMachines { count: 1, rate: one }];
        let kinds = if gang.is_empty() { &alone[..] } else { gang };
        let time = Duration::from_secs_f64(hours * 3600.0);
        let sum = |one: &dyn Fn(UsdPerHour) -> Usd| -> Usd {
            kinds.iter().flat_map(|kind| std::iter::repeat_n(one(kind.rate), kind.count)).sum()
        };
        let is_mixed = kinds.iter().any(|kind| kind.rate != kinds[0].rate);
        let rate = match is_mixed {
            true => UsdPerHour::new(sum(&UsdPerHour::per_hour)),
            false => kinds[0].rate,
        };
        let machines = kinds.iter().map(|kind| kind.count).sum();
        let usd = sum(&|rate| rate.cost_of(time));
        Some(HoursCost { hours, machines, usd, rate, is_mixed })
    }

    pub fn sentence(&self) -> String {
        let machines = match self.machines {
            1 => String::new(),
            machines => format!(" of {machines} machines"),
        };
        let together = if self.is_mixed { " together" } else { "" };
        format!(
            "{} hours{machines} at ${:.4}/h{together} cost {}",
            self.hours,
            self.rate.per_hour().dollars(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_cost_the_price_of_each_kind_of_machine() {
        let rate = |usd: &str| UsdPerHour::new(usd.parse().unwrap());
        let said = |gang: &[PricedMachines]| {
            HoursCost::of(rate("$2"), gang, Some(10.0)).map(|cost| cost.sentence()).unwrap()
        };
        assert_eq!(said(&[]), "10 hours at $2.0000/h cost $20.00");
        let of = |count, usd| PricedMachines { count, rate: rate(usd) };
        assert_eq!(said(&[of(3, "$2")]), "10 hours of 3 machines at $2.0000/h cost $60.00");
        assert_eq!(
            said(&[of(1, "$2"), of(2, "$0.5")]),
            "10 hours of 3 machines at $3.0000/h together cost $30.00"
        );
        assert!(HoursCost::of(rate("$2"), &[], None).is_none());
    }
}
