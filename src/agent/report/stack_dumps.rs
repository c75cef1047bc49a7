//! Keeps what a stalled workload is waiting for, before anything is done about it.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::retry_sender::{Outbox, chain};
use crate::jobdir::{What, layout};
use crate::ports::{Scope, Stacks};

/// Enough for hundreds of threads with their stacks; more is not read by anybody and delays the restart.
const BYTES_MAX: usize = 1024 * 1024;

/// All of it may take so long: the stalled job waits, and needs its restart more than the picture. Shorter, and a busy machine with
/// hundreds of threads has none; longer, and whoever is stuck in the kernel, whose `/proc` may never answer, holds up the ladder.
const WITHIN: Duration = Duration::from_secs(15);

/// One try to store the text: some of them fit.
const TRY_MAX: Duration = Duration::from_secs(5);

/// After a refusal.
const AGAIN: Duration = Duration::from_secs(2);

const NUMBER: &str = "stacks.json";

#[derive(Default, Serialize, Deserialize)]
struct Number {
    number: u64,
}

/// Writes down what the tree is waiting for, and records it. Gives the key, or `None` when the tree did not answer in time or the store
/// did not take it: whoever asked goes on without.
pub async fn collect(outbox: &Outbox, journal: &Journal, stacks: &dyn Stacks, scope: &Scope) -> Option<String> {
    let number = outbox.recall::<Number>(NUMBER).unwrap_or_default().number + 1;
    outbox.keep(NUMBER, &Number { number });
    let key = layout::stacks(outbox.dir.job(), outbox.attempt, number);
    let until = outbox.clock.mono() + WITHIN;
    let left = || until.saturating_sub(outbox.clock.mono());
    let lost = |why: String| {
        journal.record(What::Loss { text: format!("what the processes were waiting for was not kept: {why}") });
    };
    let Some(text) = outbox.within(WITHIN, stacks.dump(scope, BYTES_MAX)).await.map(Bytes::from) else {
        lost(format!("it could not be read within {} s", WITHIN.as_secs()));
        return None;
    };
    let mut why = "there was no time left to store it".to_owned();
    while !left().is_zero() {
        match outbox.within(TRY_MAX.min(left()), outbox.dir.store().put_durable(&key, text.clone())).await {
            Some(Ok(())) => {
                journal.record(What::Stacks { key: key.clone() });
                return Some(key);
            }
            Some(Err(error)) => {
                why = chain(&error);
                outbox.clock.sleep(AGAIN.min(left())).await;
            }
            None => "the store does not answer".clone_into(&mut why),
        }
    }
    lost(why);
    None
}
