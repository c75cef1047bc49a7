//! SIGNATURES, being filled in.
use std::time::Duration;

use super::outbox::Outbox;
use crate::instance::Rates;

/// Ships `Rates` in batches of a minute. Cheap to clone.
#[derive(Clone)]
pub struct Samples {}

impl Samples {
    pub fn start(_outbox: Outbox) -> Self {
        todo!()
    }
    pub fn push(&self, _rates: Rates) {}
    /// Ships the rest; gives what was lost, as sentences for the outcome.
    pub async fn finish(&self, _within: Duration) -> Vec<String> {
        todo!()
    }
}
