//! What of the machine hinders the work or its end, and is for people to know: each is told once, and taken back when it is over.
//!
//! Nothing is decided here: the work goes on. What must never live here: a verdict.

use std::time::Duration;

use super::metrics::Metrics;
use crate::agent::run_loop::Agent;
use crate::agent::startup::fetch_status::CANNOT;
use crate::instance::{Reading, Sample};

/// After so long without an answer of the metadata service a person is told. A blip of it is over sooner; later, and whoever
/// reads it has less of the notice that may stand unseen. A look may come three seconds later: it is told within the minute.
const DEAF_AFTER: Duration = Duration::from_secs(55);

const DEAF: &str = "the metadata service does not answer: a notice of the cloud would not be seen; the work goes on";

/// With less than this a machine is not begun on ([`crate::agent::startup::preflight`]): a checkpoint or a log has no room any more. Larger, and
/// a job that fills its disk as it was meant to is told of; smaller, and it is told when what was to be kept is lost already.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// It has room again with this much: what is written and removed in turn is not told of each time.
const ROOM_BYTES_AGAIN: u64 = 2 * ROOM_BYTES_MIN;

const FULL: &str = "the disk of this machine is full, or nearly: output and checkpoints may be lost; the work goes on";

const UNMEASURED: &str = "the measurements of this machine do not reach CloudWatch; the work goes on (`watch.metrics = false` publishes none)";

impl Agent {
    /// `since`: on the steady clock, from when on the metadata service has not answered.
    pub(crate) fn tell_of_silence(&mut self, since: Option<Duration>) {
        match since {
            None => self.attention.retain(|line| line != DEAF),
            Some(since) if self.out.clock.mono().saturating_sub(since) >= DEAF_AFTER => self.attend(DEAF.to_owned()),
            Some(_) => {}
        }
    }

    pub(crate) fn tell_of_room(&mut self, sample: Option<&Sample>) {
        match sample.map(|sample| &sample.disk_free_bytes) {
            Some(Reading::Known(free)) if *free < ROOM_BYTES_MIN => self.attend(FULL.to_owned()),
            Some(Reading::Known(free)) if *free >= ROOM_BYTES_AGAIN => self.attention.retain(|line| line != FULL),
            _ => {}
        }
    }

    /// Whoever drives the job takes the alarm off that would take their silence for the machine's.
    pub(crate) fn tell_of_measurements(&mut self) {
        match self.is_unmeasured() {
            true => self.attend(UNMEASURED.to_owned()),
            false => self.attention.retain(|line| line != UNMEASURED),
        }
    }

    pub(crate) fn is_unmeasured(&self) -> bool {
        self.metrics.as_ref().is_some_and(Metrics::is_unheard)
    }

    /// `None`: it comes, or is here.
    pub(crate) fn tell_of_fetching(&mut self, told: Option<String>) {
        self.attention.retain(|line| !line.starts_with(CANNOT) || told.as_ref() == Some(line));
        if let Some(text) = told {
            self.attend(text);
        }
    }
}
