//! Reports machine problems to people: each once, and removed when it is over.
//!
//! The work continues. Not here: a verdict.

use std::time::Duration;

use super::metrics::Metrics;
use crate::agent::run_loop::Agent;
use crate::agent::startup::fetch_status::CANNOT;
use crate::instance::{Reading, Sample};

/// People are told after this long without an answer of the metadata service. Short outages end
/// sooner. Longer leaves less of an unseen notice. A tick later, it is still within the minute.
const DEAF_AFTER: Duration = Duration::from_secs(55);

const DEAF: &str = "the metadata service does not answer: a notice of the cloud would not be seen; the work goes on";

/// With less free space a machine is not used ([`crate::agent::startup::preflight`]), since a
/// checkpoint or a log no longer fits. Larger would report jobs that fill the disk as intended.
/// Smaller reports only after data is lost.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// The report is removed with this much space, so that write-and-delete cycles do not repeat it.
const ROOM_BYTES_AGAIN: u64 = 2 * ROOM_BYTES_MIN;

const FULL: &str = "the disk of this machine is full, or nearly: output and checkpoints may be lost; the work goes on";

const UNMEASURED: &str = "the measurements of this machine do not reach CloudWatch; the work goes on (`watch.metrics = false` publishes none)";

impl Agent {
    /// `since`: when the metadata service stopped answering, by the monotonic clock.
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

    /// The controller then removes the alarm that would take missing measurements for a dead
    /// machine.
    pub(crate) fn tell_of_measurements(&mut self) {
        match self.is_unmeasured() {
            true => self.attend(UNMEASURED.to_owned()),
            false => self.attention.retain(|line| line != UNMEASURED),
        }
    }

    pub(crate) fn is_unmeasured(&self) -> bool {
        self.metrics.as_ref().is_some_and(Metrics::is_unheard)
    }

    /// `None`: the download progresses or is complete.
    pub(crate) fn tell_of_fetching(&mut self, told: Option<String>) {
        self.attention.retain(|line| !line.starts_with(CANNOT) || told.as_ref() == Some(line));
        if let Some(text) = told {
            self.attend(text);
        }
    }
}
