//! Knowledge of one spot pool, one type in one zone, kept in the job root for later jobs.
//!
//! ```text
//!   spot attempts ─> looks (there while one runs, gone if interrupted or refused) ─> spells
//!   all attempts  ─> start times, from the launch call to work
//! ```
//! Learning is level-triggered: attempts that ended before the newest one are skipped. The same
//! history may be passed again, and by several controllers. This module uses no files.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::capacity_periods::ZoneSpells;
use crate::job::{AttemptRecord, EndedBecause, RECORD_FORMAT, Refusal};
use crate::market::{Market, Offer, Span, elapsed};

/// How many starts are kept. The longest counts, and a slow image of a month ago is forgotten.
const STARTS_KEPT: usize = 5;

/// Time between the looks that a running machine stands for. Beyond half an hour they would teach
/// nothing.
const LOOK_EVERY: Duration = Duration::from_secs(10 * 60);

/// `market/<zone>/<type>.json` in the job root. If two controllers write at once, the later wins,
/// and a few looks are lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    pub format: u32,
    pub zone: String,
    pub instance_type: String,
    /// Time of the newest look. `None`: no look yet.
    pub looked: Option<Timestamp>,
    pub spells: ZoneSpells,
    /// Times from the launch call to work, for the newest machines on both markets.
    pub starts: Vec<Span>,
    /// End of the newest attempt that was learned.
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

    /// Learns from ended attempts, in order; returns whether any was new.
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
            // Only a capacity error counts; a price or quota error shows nothing about capacity.
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

    /// A spot machine ran there during this time.
    pub fn ran(&mut self, from: Timestamp, to: Timestamp) {
        let mut at = from;
        while at < to {
            self.look(at, true);
            at = at.saturating_add(LOOK_EVERY).unwrap_or(to);
        }
        self.look(to, true);
    }

    /// One look; older ones than the newest are skipped.
    fn look(&mut self, at: Timestamp, there: bool) {
        if self.looked.is_some_and(|looked| at < looked) {
            return;
        }
        let since = self.looked.map_or(Duration::ZERO, |looked| elapsed(looked, at));
        self.spells.look(since.as_secs_f64() / 3600.0, Some(there));
        self.looked = Some(at);
    }

    /// Hours since the last look; infinite without one.
    pub fn hours_since_look(&self, now: Timestamp) -> f64 {
        self.looked.map_or(f64::INFINITY, |looked| elapsed(looked, now).as_secs_f64() / 3600.0)
    }
}

/// Time from the launch call to work, for one attempt.
pub fn start_of(record: &AttemptRecord) -> Option<Span> {
    let began = record.settled.outcome.as_ref()?.working_since?;
    Some(Span::from_duration(elapsed(record.plan.created, began)))
}
