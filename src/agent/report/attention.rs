//! What of the machine hinders the work or its end, and is for people to know: each is told once, and taken back when it is over.
//!
//! Nothing is decided here: the work goes on. What must never live here: a verdict.

use std::time::Duration;

use super::metrics::Metrics;
use crate::agent::run_loop::Agent;
use crate::instance::{Reading, Sample};
use crate::jobdir::What;

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

/// What a sentence for people is about: one that is over is taken back by this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// The word of a verdict, as `stalled`.
    Verdict(String),
    /// The stacks of a stalled workload are written down.
    Stacks,
    SaveCadence,
    NearLimit,
    Metadata,
    DiskFull,
    Metrics,
    Fetch,
    /// The workload of the agent before this one cannot be found.
    UnseenWorkload,
    /// The start of the workload cannot be written down.
    UnwrittenStart,
    Other,
}

/// A sentence for people, in the status until it is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attention {
    pub topic: Topic,
    pub text: String,
}

impl Agent {
    /// Says a sentence once, in the journal and in the status.
    pub(crate) fn attend(&mut self, topic: Topic, text: String) {
        if !self.attention.iter().any(|said| said.text == text) {
            self.journal.record(What::Attention { text: text.clone() });
            self.attention.push(Attention { topic, text });
        }
    }

    pub(crate) fn has_said(&self, topic: &Topic) -> bool {
        self.attention.iter().any(|said| said.topic == *topic)
    }

    pub(crate) fn take_back(&mut self, topic: &Topic) {
        self.attention.retain(|said| said.topic != *topic);
    }

    /// `since`: on the steady clock, from when on the metadata service has not answered.
    pub(crate) fn tell_of_silence(&mut self, since: Option<Duration>) {
        match since {
            None => self.take_back(&Topic::Metadata),
            Some(since) if self.out.clock.mono().saturating_sub(since) >= DEAF_AFTER => self.attend(Topic::Metadata, DEAF.to_owned()),
            Some(_) => {}
        }
    }

    pub(crate) fn tell_of_room(&mut self, sample: Option<&Sample>) {
        match sample.map(|sample| &sample.disk_free_bytes) {
            Some(Reading::Known(free)) if *free < ROOM_BYTES_MIN => self.attend(Topic::DiskFull, FULL.to_owned()),
            Some(Reading::Known(free)) if *free >= ROOM_BYTES_AGAIN => self.take_back(&Topic::DiskFull),
            _ => {}
        }
    }

    /// Whoever drives the job takes the alarm off that would take their silence for the machine's.
    pub(crate) fn tell_of_measurements(&mut self) {
        match self.is_unmeasured() {
            true => self.attend(Topic::Metrics, UNMEASURED.to_owned()),
            false => self.take_back(&Topic::Metrics),
        }
    }

    pub(crate) fn is_unmeasured(&self) -> bool {
        self.metrics.as_ref().is_some_and(Metrics::is_unheard)
    }

    /// `None`: it comes, or is here.
    pub(crate) fn tell_of_fetching(&mut self, told: Option<String>) {
        self.attention.retain(|said| said.topic != Topic::Fetch || told.as_ref() == Some(&said.text));
        if let Some(text) = told {
            self.attend(Topic::Fetch, text);
        }
    }
}
