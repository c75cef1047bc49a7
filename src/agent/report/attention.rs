//! Reports machine problems to people: each once, and removed when it is over.
//!
//! The work continues. Not here: a verdict.

use std::time::Duration;

use super::journal::Journal;
use crate::instance::{AttentionKind, Reading, Sample};
use crate::jobdir::EventDetail;

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

/// The subject of a sentence for people, by which it is taken back.
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

impl Topic {
    fn kind(&self) -> AttentionKind {
        match self {
            Topic::Verdict(word) if word == "stalled" => AttentionKind::Stalled,
            Topic::Verdict(word) if word == "idle" => AttentionKind::Idle,
            Topic::Stacks => AttentionKind::Stacks,
            _ => AttentionKind::Other,
        }
    }
}

/// A sentence for people, in the status until it is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AttentionItem {
    topic: Topic,
    text: String,
}

/// The sentences for people that hold now. The journal has each of them.
pub(crate) struct AttentionList {
    journal: Journal,
    items: Vec<AttentionItem>,
}

impl AttentionList {
    pub(crate) fn new(journal: Journal) -> Self {
        AttentionList { journal, items: Vec::new() }
    }

    /// Says a sentence once, in the journal and in the status.
    pub(crate) fn attend(&mut self, topic: Topic, text: String) {
        if !self.items.iter().any(|said| said.text == text) {
            self.journal.record(EventDetail::Attention { text: text.clone() });
            self.show(topic, text);
        }
    }

    /// Says a sentence in the status only.
    pub(crate) fn show(&mut self, topic: Topic, text: String) {
        self.items.push(AttentionItem { topic, text });
    }

    pub(crate) fn has_said(&self, topic: &Topic) -> bool {
        self.items.iter().any(|said| said.topic == *topic)
    }

    pub(crate) fn take_back(&mut self, topic: &Topic) {
        self.items.retain(|said| said.topic != *topic);
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = String> + '_ {
        self.items.iter().map(|said| said.text.clone())
    }

    /// The subject of each of them, in the same order.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = AttentionKind> + '_ {
        self.items.iter().map(|said| said.topic.kind())
    }

    /// `since`: when the metadata service stopped answering. `now`: both by the monotonic clock.
    pub(crate) fn tell_of_silence(&mut self, since: Option<Duration>, now: Duration) {
        match since {
            None => self.take_back(&Topic::Metadata),
            Some(since) if now.saturating_sub(since) >= DEAF_AFTER => {
                self.attend(Topic::Metadata, DEAF.to_owned())
            }
            Some(_) => {}
        }
    }

    pub(crate) fn tell_of_room(&mut self, sample: Option<&Sample>) {
        match sample.map(|sample| &sample.disk_free_bytes) {
            Some(Reading::Known(free)) if *free < ROOM_BYTES_MIN => {
                self.attend(Topic::DiskFull, FULL.to_owned())
            }
            Some(Reading::Known(free)) if *free >= ROOM_BYTES_AGAIN => {
                self.take_back(&Topic::DiskFull)
            }
            _ => {}
        }
    }

    /// The controller then removes the alarm that would take missing measurements for a dead
    /// machine.
    pub(crate) fn tell_of_measurements(&mut self, are_lost: bool) {
        match are_lost {
            true => self.attend(Topic::Metrics, UNMEASURED.to_owned()),
            false => self.take_back(&Topic::Metrics),
        }
    }

    /// `None`: the download progresses or is complete.
    pub(crate) fn tell_of_fetching(&mut self, told: Option<String>) {
        self.items.retain(|said| said.topic != Topic::Fetch || told.as_ref() == Some(&said.text));
        if let Some(text) = told {
            self.attend(Topic::Fetch, text);
        }
    }
}
