//! Polls the requests that users leave in the job directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::journal::Journal;
use super::retry_sender::{Outbox, Task, chain};
use crate::agent::timers::to_next;
use crate::job::{Request, Wish};
use crate::jobdir::EventDetail;
use crate::policy::Wishes;

/// Poll intervals: a user who types `lamp stop` waits this long, and each poll is one listing.
const EVERY_LOCAL: Duration = Duration::from_secs(2);
const EVERY_REMOTE: Duration = Duration::from_secs(5);

/// How long a limit waits for the first read. A bucket answers in a tenth of a second. With a store
/// that is down, longer costs more on every machine that has reached its limit.
const FIRST_READ_MAX: Duration = Duration::from_secs(60);

/// A rank asks its own agent for time by a request. After a silence of the store it needs some
/// looks to do so, and the agent some to read it.
const ANSWERS_FOR: Duration = Duration::from_secs(60);

/// The requests so far. Unchanged while the store does not answer: requests are never withdrawn.
pub type Requests = Wishes;

/// The polling task, which ends with this handle.
pub struct RequestWatch {
    pub wishes: watch::Receiver<Requests>,
    began: Duration,
    was_read: Arc<AtomicBool>,
    /// Since when each look was answered, by the monotonic clock. `None`: the last look was not.
    answered_since: watch::Receiver<Option<Duration>>,
    _task: Task,
}

impl RequestWatch {
    pub fn start(outbox: Outbox, journal: Journal) -> Self {
        let (sender, receiver) = watch::channel(Wishes::default());
        let (began, was_read) = (outbox.clock.mono(), Arc::new(AtomicBool::new(false)));
        let read = Arc::clone(&was_read);
        let (answered, answered_since) = watch::channel(None);
        let every = if outbox.dir.store().is_folder() { EVERY_LOCAL } else { EVERY_REMOTE };
        let task = Task::spawn(async move {
            let mut complained = false;
            loop {
                match outbox.dir.requests().await {
                    Ok(requests) => {
                        note(&outbox, &journal, &requests);
                        let now = Wishes::of(&requests);
                        sender.send_if_modified(|before| {
                            let changed = *before != now;
                            *before = now;
                            changed
                        });
                        read.store(true, Ordering::Relaxed);
                        answered.send_modify(|since: &mut Option<Duration>| {
                            since.get_or_insert(outbox.clock.mono());
                        });
                        complained = false;
                    }
                    Err(error) => {
                        answered.send_replace(None);
                        if !complained {
                            tracing::warn!("cannot look for requests: {}", chain(&error));
                        }
                        complained = true;
                    }
                }
                outbox.clock.sleep(to_next(outbox.clock.mono(), every)).await;
            }
        });
        RequestWatch { wishes: receiver, began, was_read, answered_since, _task: task }
    }

    /// Whether extensions of the limits are known, or will not come soon. `now`: by the monotonic
    /// clock.
    pub fn are_known(&self, now: Duration) -> bool {
        self.was_read.load(Ordering::Relaxed) || self.were_waited_for(now)
    }

    /// Whether the store has answered for long enough that the newest requests are known. `now`: by
    /// the monotonic clock.
    pub fn are_current(&self, now: Duration) -> bool {
        self.answered_since.borrow().is_some_and(|since| now.saturating_sub(since) >= ANSWERS_FOR)
    }

    /// Whether a limit has waited long enough for the store's first answer.
    pub fn were_waited_for(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) > FIRST_READ_MAX
    }
}

/// `wishes.json`: the newest request that is in the journal.
const NOTED: &str = "wishes.json";

#[derive(Default, Serialize, Deserialize)]
struct Noted {
    number: u32,
}

/// Records new requests. A rehearsed interruption only concerns the controller and the cloud.
fn note(outbox: &Outbox, journal: &Journal, requests: &[Request]) {
    let noted = outbox.recall::<Noted>(NOTED).unwrap_or_default().number;
    let new = requests.iter().filter(|request| request.number > noted);
    let mut newest = noted;
    for request in new {
        newest = newest.max(request.number);
        if !matches!(request.wish, Wish::Interrupt { .. }) {
            journal.record(EventDetail::Wish {
                number: request.number,
                by: request.by.clone(),
                text: request.wish.to_string(),
            });
        }
    }
    if newest > noted {
        outbox.keep(NOTED, &Noted { number: newest });
    }
}
