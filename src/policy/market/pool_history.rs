//! What is known of one pool of spot machines, one type in one zone: kept in the job root, for the jobs that follow.
//!
//! ```text
//!   attempts on the spot market ──> looks (there while one runs, gone when it is taken or refused) ──> spells
//!   attempts on any market      ──> how long a start takes, from the launch call to work
//! ```
//! Learning is level-triggered: what ended before the newest look is known already, so that the same history may be shown
//! again and again, and by several controllers. What must never live here: a file.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::capacity_periods::ZoneSpells;
use crate::job::{AttemptRecord, EndedBecause, RECORD_FORMAT, Refusal};
use crate::market::{Market, Offer, Span, elapsed};

/// So many starts are remembered: the longest of them counts, and an image that was slow a month ago is forgotten.
const STARTS_KEPT: usize = 5;

/// Between two looks that a running machine stands for: two looks further apart than half an hour would say nothing.
const LOOK_EVERY: Duration = Duration::from_secs(10 * 60);

/// `market/<zone>/<type>.json` in the job root. Statistics: of two controllers that write at once the later one wins, and
/// what is lost is a few looks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    pub format: u32,
    pub zone: String,
    pub instance_type: String,
    /// The newest look. `None`: nobody has looked.
    pub looked: Option<Timestamp>,
    pub spells: ZoneSpells,
    /// From the launch call to work, of the newest machines, on either market.
    pub starts: Vec<Span>,
    /// The end of the newest attempt that was learned from.
    pub learned: Option<Timestamp>,
}

impl Pool {
    pub fn new(zone: &str, instance_type: &str) -> Self {
        Pool {
            format: RECORD_FORMAT,
            zone: zone.to_owned(),
            instance_type: instance_type.to_owned(),
            looked: None,
            spells: ZoneSpells::default(),
            starts: Vec::new(),
            learned: None,
        }
    }

    pub fn is_of(&self, offer: &Offer) -> bool {
        self.zone == offer.zone.as_str() && self.instance_type == offer.instance_type
    }

    /// Learns from attempts that are over, in order; says whether there was anything new.
    pub fn learn(&mut self, history: &[AttemptRecord]) -> bool {
        let before = self.learned;
        for record in history {
            if !self.is_of(&record.plan.offer) {
                continue;
            }
            let ended = record.settled.billed_to.unwrap_or(record.plan.created);
            if self.learned.is_some_and(|learned| ended <= learned) {
                continue;
            }
            self.learned = Some(ended);
            if let Some(start) = start_of(record) {
                self.starts.push(start);
                let old = self.starts.len().saturating_sub(STARTS_KEPT);
                self.starts.drain(..old);
            }
            if record.plan.offer.market == Market::Spot {
                self.lived(record, ended);
            }
        }
        self.learned != before
    }

    fn lived(&mut self, record: &AttemptRecord, ended: Timestamp) {
        let settled = &record.settled;
        if !settled.had_machine() {
            // Only for want of capacity: a price or a quota says nothing of it.
            if settled.refusal == Some(Refusal::Capacity) {
                self.look(record.plan.created, false);
            }
            return;
        }
        self.ran(settled.billed_from.unwrap_or(record.plan.created), ended);
        if settled.because == EndedBecause::Interrupted {
            self.look(ended, false);
        }
    }

    /// A spot machine ran there for this time.
    pub fn ran(&mut self, from: Timestamp, to: Timestamp) {
        let mut at = from;
        while at < to {
            self.look(at, true);
            at = at.saturating_add(LOOK_EVERY).unwrap_or(to);
        }
        self.look(to, true);
    }

    /// One look; an older one than the newest says nothing new.
    fn look(&mut self, at: Timestamp, there: bool) {
        if self.looked.is_some_and(|looked| at < looked) {
            return;
        }
        let since = self.looked.map_or(Duration::ZERO, |looked| elapsed(looked, at));
        self.spells.look(since.as_secs_f64() / 3600.0, Some(there));
        self.looked = Some(at);
    }

    /// How long ago somebody looked, hours; for ever when nobody has.
    pub fn hours_since_look(&self, now: Timestamp) -> f64 {
        self.looked.map_or(f64::INFINITY, |looked| elapsed(looked, now).as_secs_f64() / 3600.0)
    }
}

/// From the launch call to work, of one attempt.
pub fn start_of(record: &AttemptRecord) -> Option<Span> {
    let began = record.settled.outcome.as_ref()?.working_since?;
    Some(Span::from_duration(elapsed(record.plan.created, began)))
}
