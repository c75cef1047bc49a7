//! Keeps what a stalled workload is waiting for, before anything is done about it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::outbox::{Outbox, TRY_SECS_MAX, chain};
use crate::jobdir::{What, layout};
use crate::ports::{Scope, Stacks};

/// Enough for hundreds of threads with their stacks; more is not read by anybody and delays the restart.
const BYTES_MAX: usize = 1024 * 1024;

/// Tries to store the text. A stalled job waits for them, and the store is not what it needs most.
const TRIES: u32 = 3;

const NUMBER: &str = "stacks.json";

#[derive(Default, Serialize, Deserialize)]
struct Number {
    number: u64,
}

/// Writes down what the tree is waiting for, and records it. Gives the key, or `None` when the store did not take it.
pub async fn collect(outbox: &Outbox, journal: &Journal, stacks: &dyn Stacks, scope: &Scope) -> Option<String> {
    let number = outbox.recall::<Number>(NUMBER).unwrap_or_default().number + 1;
    outbox.keep(NUMBER, &Number { number });
    let key = layout::stacks(outbox.dir.job(), outbox.attempt, number);
    let text = Bytes::from(stacks.dump(scope, BYTES_MAX).await);
    let mut why = String::new();
    for _ in 0..TRIES {
        match outbox.within(TRY_SECS_MAX, outbox.dir.store().put_durable(&key, text.clone())).await {
            Some(Ok(())) => {
                journal.record(What::Stacks { key: key.clone() });
                return Some(key);
            }
            Some(Err(error)) => why = chain(&error),
            None => "the store does not answer".clone_into(&mut why),
        }
    }
    journal.record(What::Loss { text: format!("what the processes were waiting for was not kept: {why}") });
    None
}
