//! Measurements for people and alarms outside the machine, one batch a minute.
//!
//! Not here: a decision that waits for it. A batch that cannot be published is lost.

use async_trait::async_trait;

/// One measurement over the interval that ends now. The receiver adds the time: the machine's clock
/// may be wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Datum {
    pub name: &'static str,
    pub unit: Unit,
    pub stat: Stat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Percent,
    Mebibytes,
    Seconds,
    Count,
    /// For units that the receiver has no word for, such as watts.
    Plain,
}

/// A summary of many samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stat {
    pub count: f64,
    pub sum: f64,
    pub least: f64,
    pub most: f64,
}

#[derive(Debug, thiserror::Error)]
#[error("the measurements are not published")]
pub struct MeterError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

#[async_trait]
pub trait Meter: Send + Sync {
    /// Publishes a batch of this machine once, without retries.
    async fn publish(&self, instance: &str, data: &[Datum]) -> Result<(), MeterError>;
}

impl Stat {
    pub fn one(value: f64) -> Self {
        Stat { count: 1.0, sum: value, least: value, most: value }
    }

    #[must_use]
    pub fn and(self, value: f64) -> Self {
        Stat {
            count: self.count + 1.0,
            sum: self.sum + value,
            least: self.least.min(value),
            most: self.most.max(value),
        }
    }
}
