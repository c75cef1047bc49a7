//! Tells once of each GPU machine of the account that Lamplighter did not launch.
//!
//! ```text
//!   an hour ──> every region ──> no record `told/foreign-<hash>.json` ──> one message
//! ```
//! Nothing is asked if no channel wants it. Such a machine is never ended.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tracing::{debug, warn};

use super::sweeper::{OrphanSweeper, READS_IN_FLIGHT};
use crate::account::ForeignMachine;
use crate::controller::cloud_answers::CloudRegion;
use crate::controller::notify::notifier::JobNotifier;
use crate::job::{EventKind, JobId, RECORD_FORMAT};
use crate::jobdir::{encode, layout};
use crate::market::{Span, elapsed};
use crate::ports::{Clock, Created, Notification};

/// A forgotten machine bills for days, and an hour of it is cheap. More often asks EC2 for nothing.
const EACH: Duration = Duration::from_secs(60 * 60);

/// A longer look is given up until the next sweep: meanwhile the jobs need their ticks.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// The machines that a message names. A chat cuts a longer text.
const NAMED_MAX: usize = 10;

/// A daemon's memory of foreign machines.
#[derive(Default)]
pub(crate) struct ForeignMemory {
    due: Option<Duration>,
    told: BTreeSet<String>,
}

impl OrphanSweeper {
    /// Looks and tells, if a look is due. `places`: the regions of the last sweep.
    pub(crate) async fn tell_foreign_when_due(
        &self,
        memory: &mut ForeignMemory,
        places: &BTreeSet<CloudRegion>,
        notifier: &JobNotifier,
    ) {
        let now = self.clock.mono();
        let rests = memory.due.is_some_and(|due| now < due);
        if rests || places.is_empty() || !notifier.is_wanted(EventKind::Foreign) {
            return;
        }
        memory.due = Some(now + EACH);
        let Some((found, unknown)) = self.clock.bounded(LOOK_MAX, self.foreign(places)).await
        else {
            let secs = LOOK_MAX.as_secs();
            warn!("looking for machines of others took more than {secs} s; again in 5 min");
            // The next sweep is in 5 minutes.
            memory.due = None;
            return;
        };
        for (place, why) in unknown {
            debug!("{place} does not say which other machines it has: {why}");
        }
        // Without a bound: a cut between the records and the message would lose the message.
        let new = self.not_told(memory, found).await;
        if !new.is_empty() {
            notifier.send(notification(&new, self.clock.now()));
        }
    }

    /// The machines whose record is new. Several daemons may look: one of them creates it.
    async fn not_told(
        &self,
        memory: &mut ForeignMemory,
        found: Vec<ForeignMachine>,
    ) -> Vec<ForeignMachine> {
        let unknown = found.into_iter().filter(|machine| !memory.told.contains(&machine.id));
        let tried: Vec<(ForeignMachine, bool)> = stream::iter(unknown.collect::<Vec<_>>())
            .map(|machine| async move {
                let is_new = self.mark_told(&machine).await?;
                Some((machine, is_new))
            })
            .buffered(READS_IN_FLIGHT)
            .filter_map(std::future::ready)
            .collect()
            .await;
        memory.told.extend(tried.iter().map(|(machine, _)| machine.id.clone()));
        tried.into_iter().filter(|(_, is_new)| *is_new).map(|(machine, _)| machine).collect()
    }

    /// `None`: the store did not answer, and the next look tries again.
    async fn mark_told(&self, machine: &ForeignMachine) -> Option<bool> {
        let hash = hex::encode(&Sha256::digest(machine.id.as_bytes())[..6]);
        let record = notification(std::slice::from_ref(machine), self.clock.now());
        let key = layout::told_of_account(&format!("foreign-{hash}"));
        match self.store.create(&key, Bytes::from(encode(&record))).await {
            Ok(created) => Some(created == Created::New),
            Err(error) => {
                warn!("cannot record what is told: {error}");
                None
            }
        }
    }
}

fn notification(machines: &[ForeignMachine], now: Timestamp) -> Notification {
    let named: Vec<String> =
        machines.iter().take(NAMED_MAX).map(|machine| line(machine, now)).collect();
    let more = match machines.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let what = match machines.len() {
        1 => "a GPU machine runs that Lamplighter did not launch".to_owned(),
        count => format!("{count} GPU machines run that Lamplighter did not launch"),
    };
    let text = format!("{what}: {}{more}. Lamplighter never ends it", named.join(", "));
    Notification {
        format: RECORD_FORMAT,
        job: JobId::from_name("account", [0; 6]),
        name: "account".to_owned(),
        at: now,
        kind: EventKind::Foreign.word(),
        text,
        command: Some("lamp sweep --foreign".to_owned()),
        usd: None,
        receipt: None,
    }
}

fn line(machine: &ForeignMachine, now: Timestamp) -> String {
    let age = Span::from_secs(elapsed(machine.launched, now).as_secs() / 60 * 60);
    let price = machine.usd_per_hour.map(|price| format!(", at most {price}")).unwrap_or_default();
    format!("{} ({} in {}, for {age}{price})", machine.id, machine.instance_type, machine.region)
}
