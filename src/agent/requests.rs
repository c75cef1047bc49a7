//! The wishes that people leave in the job directory, looked for again and again.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::journal::Journal;
use super::outbox::{Outbox, Task, chain};
use super::wake::to_next;
use crate::job::{Request, Wish};
use crate::jobdir::What;
use crate::policy::Wishes;

/// Two seconds on a local disk, five over the network: a person who types `lamp stop` waits this long, and each look is
/// one listing.
const EVERY_LOCAL: Duration = Duration::from_secs(2);
const EVERY_REMOTE: Duration = Duration::from_secs(5);

/// What was asked for so far. Stays as it was while the store does not answer: a wish is never un-wished.
pub type Requests = Wishes;

/// The looking task; it ends with this handle.
pub struct RequestWatch {
    pub wishes: watch::Receiver<Requests>,
    _task: Task,
}

impl RequestWatch {
    pub fn start(outbox: Outbox, journal: Journal) -> Self {
        let (sender, receiver) = watch::channel(Wishes::default());
        let every = if outbox.dir.store().url().starts_with("file:") { EVERY_LOCAL } else { EVERY_REMOTE };
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
                        complained = false;
                    }
                    Err(error) if !complained => {
                        tracing::warn!("cannot look for requests: {}", chain(&error));
                        complained = true;
                    }
                    Err(_) => {}
                }
                outbox.clock.sleep(to_next(outbox.clock.mono(), every)).await;
            }
        });
        RequestWatch { wishes: receiver, _task: task }
    }
}

/// `wishes.json`: the newest request that the journal knows.
const NOTED: &str = "wishes.json";

#[derive(Default, Serialize, Deserialize)]
struct Noted {
    number: u32,
}

/// Writes down what is seen for the first time. A rehearsed interruption is a matter between the controller and the cloud.
fn note(outbox: &Outbox, journal: &Journal, requests: &[Request]) {
    let noted = outbox.recall::<Noted>(NOTED).unwrap_or_default().number;
    let new = requests.iter().filter(|request| request.number > noted);
    let mut newest = noted;
    for request in new {
        newest = newest.max(request.number);
        if !matches!(request.wish, Wish::Interrupt { .. }) {
            journal.record(What::Wish { number: request.number, by: request.by.clone(), text: request.wish.to_string() });
        }
    }
    if newest > noted {
        outbox.keep(NOTED, &Noted { number: newest });
    }
}
