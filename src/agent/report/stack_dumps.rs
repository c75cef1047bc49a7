//! Keeps what a stalled workload waits for, before the agent acts on the stall.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::retry_sender::{Outbox, chain};
use crate::jobdir::{EventDetail, layout};
use crate::ports::{Scope, Stacks};

/// Enough for hundreds of threads with their stacks. More is not read and delays the restart.
const BYTES_MAX: usize = 1024 * 1024;

/// The time for everything: the stalled job needs its restart more than the dump. Shorter fails on
/// a busy machine with hundreds of threads. Longer delays the restart if `/proc` of a stuck process
/// hangs.
const WITHIN: Duration = Duration::from_secs(15);

/// One try to store the text; several fit.
const TRY_MAX: Duration = Duration::from_secs(5);

/// The wait after a refusal.
const AGAIN: Duration = Duration::from_secs(2);

const NUMBER: &str = "stacks.json";

#[derive(Default, Serialize, Deserialize)]
struct Number {
    number: u64,
}

/// Records what the process tree waits for. `None`: there was no answer in time, or
/// the store refused it.
pub async fn collect(
    outbox: &Outbox,
    journal: &Journal,
    stacks: &dyn Stacks,
    scope: &Scope,
) -> Option<String> {
    let number = outbox.recall::<Number>(NUMBER).unwrap_or_default().number + 1;
    outbox.keep(NUMBER, &Number { number });
    let key = layout::stacks(outbox.dir.job(), outbox.attempt, number);
    let until = outbox.clock.mono() + WITHIN;
    let left = || until.saturating_sub(outbox.clock.mono());
    let lost = |why: String| {
        journal.record(EventDetail::Loss {
            text: format!("what the processes were waiting for was not kept: {why}"),
        });
    };
    let Some(text) = outbox.within(WITHIN, stacks.dump(scope, BYTES_MAX)).await.map(Bytes::from)
    else {
        lost(format!("it could not be read within {} s", WITHIN.as_secs()));
        return None;
    };
    let mut why = "there was no time left to store it".to_owned();
    while !left().is_zero() {
        match outbox
            .within(TRY_MAX.min(left()), outbox.dir.store().put_durable(&key, text.clone()))
            .await
        {
            Some(Ok(())) => {
                journal.record(EventDetail::Stacks { key: key.clone() });
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
