//! Writes values as OpenMetrics text, for the agent and for the page.
//!
//! Each scrape fills a new registry: a value that is gone leaves no trace. Not here: which values
//! there are.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub type FloatGauge = Gauge<f64, AtomicU64>;

/// The text of a label. The crate writes it as it is, so a quote would end it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelText(pub String);

impl EncodeLabelValue for LabelText {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        for letter in self.0.chars() {
            match letter {
                '\\' => encoder.write_str("\\\\")?,
                '"' => encoder.write_str("\\\"")?,
                '\n' => encoder.write_str("\\n")?,
                letter => encoder.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Prometheus users expect the singular.
pub fn ratio() -> Unit {
    Unit::Other("ratio".to_owned())
}

pub fn timestamp() -> Unit {
    Unit::Other("timestamp_seconds".to_owned())
}

pub fn secs(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1000.0
}

/// One scrape.
#[derive(Default)]
pub struct Scrape {
    registry: Registry,
}

impl Scrape {
    pub fn one(&mut self, name: &str, help: &str, unit: Option<Unit>, value: f64) {
        let gauge = FloatGauge::default();
        gauge.set(value);
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, gauge),
            None => self.registry.register(name, help, gauge),
        }
    }

    pub fn family<L>(&mut self, name: &str, help: &str, unit: Option<Unit>) -> Family<L, FloatGauge>
    where
        L: EncodeLabelSet + Clone + std::fmt::Debug + Eq + std::hash::Hash + Send + Sync + 'static,
    {
        let family = Family::<L, FloatGauge>::default();
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, family.clone()),
            None => self.registry.register(name, help, family.clone()),
        }
        family
    }

    /// # Errors
    /// None in practice: a text grows in memory.
    pub fn into_text(self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
