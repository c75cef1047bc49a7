//! Money as whole micro-dollars, so that a receipt adds up exactly.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MICROS_PER_USD: i64 = 1_000_000;

/// An amount of money in whole micro-dollars (1 USD = 1,000,000).
///
/// Signed, because differences are amounts too. Serialised as a decimal number of dollars (`1.25`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "web", schema(value_type = f64))]
pub struct Usd(i64);

/// A price in whole micro-dollars per hour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "web", schema(value_type = f64))]
#[serde(transparent)]
pub struct UsdPerHour(Usd);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an amount of dollars, write it like 5, 0.65 or \"$5\"")]
pub struct MoneyError {
    text: String,
}

impl Usd {
    pub const ZERO: Usd = Usd(0);

    pub const fn from_micros(micros: i64) -> Self {
        Usd(micros)
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Rounds to the nearest micro-dollar.
    ///
    /// # Errors
    /// NaN, infinities, and amounts beyond a billion dollars, which are typing errors.
    pub fn from_dollars(dollars: f64) -> Result<Self, MoneyError> {
        if !dollars.is_finite() || dollars.abs() > 1e9 {
            return Err(MoneyError { text: dollars.to_string() });
        }
        Ok(Usd((dollars * MICROS_PER_USD as f64).round() as i64))
    }

    /// Rounds an upper bound up to the last digit that is shown.
    #[must_use]
    pub fn rounded_up(self) -> Self {
        self.up_to(if self.0.abs() < 100_000 { 100 } else { 10_000 })
    }

    /// Rounds up to whole cents, as a person types a budget.
    #[must_use]
    pub fn in_cents(self) -> Self {
        self.up_to(10_000)
    }

    /// Rounds up to EC2's unit for bids, a hundredth of a cent.
    #[must_use]
    pub fn in_hundredths_of_a_cent(self) -> Self {
        self.up_to(100)
    }

    fn up_to(self, step: i64) -> Self {
        Usd(self
            .0
            .div_euclid(step)
            .saturating_add(i64::from(self.0.rem_euclid(step) != 0))
            .saturating_mul(step))
    }

    /// An equal part of it, rounded **down**, so that the parts are no more than the whole.
    #[must_use]
    pub fn divided_by(self, parts: i64) -> Self {
        Usd(self.0.div_euclid(parts.max(1)))
    }

    /// A share of it, 0 to 1, rounded to the nearest micro-dollar.
    #[must_use]
    pub fn part(self, share: f64) -> Self {
        Usd((self.0 as f64 * share).round() as i64)
    }

    pub fn dollars(self) -> f64 {
        self.0 as f64 / MICROS_PER_USD as f64
    }
}

impl UsdPerHour {
    pub const ZERO: UsdPerHour = UsdPerHour(Usd::ZERO);

    pub const fn new(per_hour: Usd) -> Self {
        UsdPerHour(per_hour)
    }

    pub const fn per_hour(self) -> Usd {
        self.0
    }

    /// This price times a factor, rounded **up** to a whole micro-dollar.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        if factor == 1.0 { self } else { UsdPerHour(Usd((self.0.0 as f64 * factor).ceil() as i64)) }
    }

    /// The cost of `time`, rounded **up** to a whole micro-dollar: an estimate must not be too
    /// small.
    pub fn cost_of(self, time: Duration) -> Usd {
        UsdPerHour::cost_of_steps([(self, time)])
    }

    /// The cost with a changing price: each price with its duration. Rounded once, so that
    /// splitting a step does not change the sum.
    pub fn cost_of_steps(steps: impl IntoIterator<Item = (UsdPerHour, Duration)>) -> Usd {
        let micros: i128 = steps
            .into_iter()
            .map(|(price, time)| i128::from(price.0.0) * time.as_millis() as i128)
            .sum();
        let per = 3_600_000_i128;
        let rounded_up = micros.div_euclid(per) + i128::from(micros.rem_euclid(per) != 0);
        Usd(i64::try_from(rounded_up).unwrap_or(i64::MAX))
    }

    /// How long `budget` lasts at this price; `None` if the machine is free.
    pub fn time_for(self, budget: Usd) -> Option<Duration> {
        if self.0.0 <= 0 {
            return None;
        }
        let millis = i128::from(budget.0.max(0)) * 3_600_000 / i128::from(self.0.0);
        Some(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
    }
}

impl FromStr for Usd {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let wrong = || MoneyError { text: text.to_owned() };
        let number = text.trim().trim_start_matches('$').trim_end_matches("USD").trim();
        let dollars: f64 = number.parse().map_err(|_| wrong())?;
        Usd::from_dollars(dollars).map_err(|_| wrong())
    }
}

/// Dollars and cents; four digits if cents would hide the amount (`$0.0042`).
impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.dollars().abs();
        if magnitude != 0.0 && magnitude < 0.1 {
            write!(f, "{sign}${magnitude:.4}")
        } else {
            write!(f, "{sign}${magnitude:.2}")
        }
    }
}

impl fmt::Display for UsdPerHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/h", self.0)
    }
}

impl fmt::Debug for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Usd({})", self.dollars())
    }
}

impl fmt::Debug for UsdPerHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UsdPerHour({})", self.0.dollars())
    }
}

impl Add for Usd {
    type Output = Usd;
    fn add(self, other: Usd) -> Usd {
        Usd(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Usd {
    fn add_assign(&mut self, other: Usd) {
        *self = *self + other;
    }
}

impl Sub for Usd {
    type Output = Usd;
    fn sub(self, other: Usd) -> Usd {
        Usd(self.0.saturating_sub(other.0))
    }
}

impl Sum for Usd {
    fn sum<I: Iterator<Item = Usd>>(amounts: I) -> Usd {
        amounts.fold(Usd::ZERO, |total, amount| total + amount)
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Usd::from_dollars(dollars).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_rounded_up_to_a_whole_micro_dollar() {
        let price = UsdPerHour::new(Usd::from_micros(1));
        assert_eq!(price.cost_of(Duration::from_millis(1)), Usd::from_micros(1));
        assert_eq!(price.cost_of(Duration::ZERO), Usd::ZERO);
        let a10g = UsdPerHour::new(Usd::from_dollars(1.006).unwrap());
        assert_eq!(a10g.cost_of(Duration::from_secs(3600)), Usd::from_dollars(1.006).unwrap());
    }

    #[test]
    fn budget_lasts_as_long_as_its_price_says() {
        let price = UsdPerHour::new("$2".parse().unwrap());
        assert_eq!(price.time_for("$1".parse().unwrap()), Some(Duration::from_secs(1800)));
        assert_eq!(UsdPerHour::ZERO.time_for(Usd::from_micros(5)), None);
    }

    #[test]
    fn bound_is_never_shown_below_itself() {
        let shown = |micros: i64| Usd::from_micros(micros).rounded_up().to_string();
        assert_eq!(
            [
                shown(2_163_147),
                shown(2_160_000),
                shown(9_999_999),
                shown(16_269),
                shown(99_999),
                shown(0)
            ],
            ["$2.17", "$2.16", "$10.00", "$0.0163", "$0.10", "$0.00"]
        );
    }

    #[test]
    fn what_is_typed_is_in_whole_cents_and_never_too_little() {
        let cents = |text: &str| text.parse::<Usd>().unwrap().in_cents();
        assert_eq!(
            (cents("0.8"), cents("0.800001")),
            ("0.8".parse().unwrap(), "0.81".parse().unwrap())
        );
    }

    #[test]
    fn amounts_read_as_people_write_them() {
        assert_eq!("$5".parse::<Usd>().unwrap().to_string(), "$5.00");
        assert_eq!("0.0042".parse::<Usd>().unwrap().to_string(), "$0.0042");
        assert!("five".parse::<Usd>().is_err());
        assert!("NaN".parse::<Usd>().is_err());
    }
}
