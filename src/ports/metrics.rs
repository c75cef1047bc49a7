//! Measurements for people and alarms outside of the machine, a batch a minute.
//!
//! What must never live here: a decision that waits for it; what is not published is lost and missed by nobody here.

use async_trait::async_trait;

/// One measurement over the interval that ends now. It has no time of its own: whoever keeps it dates it when it arrives, since the
/// clock of the machine may be wrong.
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
    /// What has no word there: watts.
    Plain,
}

/// What many samples say together.
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
    /// Publishes a batch of this machine, once: a lost answer is not asked for again.
    async fn publish(&self, instance: &str, data: &[Datum]) -> Result<(), MeterError>;
}

impl Stat {
    pub fn one(value: f64) -> Self {
        Stat { count: 1.0, sum: value, least: value, most: value }
    }

    #[must_use]
    pub fn and(self, value: f64) -> Self {
        Stat { count: self.count + 1.0, sum: self.sum + value, least: self.least.min(value), most: self.most.max(value) }
    }
}
