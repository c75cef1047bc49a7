//! Sends messages to the user: the news of a job, and its end.
//!
//! Several controllers may drive a job. The one that creates the record of a message sends it. The
//! sending runs beside the drive, and its failure is logged.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;
use tracing::warn;

use super::job_events::{JobEvent, SeenJob};
use super::message_key::message_key;
use crate::account::sweeper;
use crate::account::sweeper_visit::Visit;
use crate::controller::clocks::Clocks;
use crate::controller::clouds::Clouds;
use crate::controller::job_memory::JobMemory;
use crate::controller::observe::Observed;
use crate::job::{EventKind, RECORD_FORMAT, Receipt, ResolvedSpec};
use crate::jobdir::{JobDir, SweeperDir, encode, layout};
use crate::market::{Span, elapsed};
use crate::ports::{Clock, Created, Notification, Notifier, Store};

/// The sweeper comes every five minutes, so after a day it is broken.
const SWEEPER_GONE: Duration = Duration::from_secs(86_400);

/// One request an hour, for all jobs of the root.
const SWEEPER_LOOK_EVERY: Duration = Duration::from_secs(3600);

/// After a week the sweeper counts as removed by the user, and jobs no longer report it.
const SWEEPER_FORGOTTEN: Duration = Duration::from_secs(7 * 86_400);

/// The last look for the sweeper, by the steady clock, and how long it had been absent then, by the
/// store's clock.
#[derive(Default)]
pub struct SweeperWatch {
    looked: Option<Duration>,
    silent: Duration,
    /// It comes, and could read no records for that time.
    is_blind: bool,
    told: bool,
}

/// Sends notifications to the user.
pub struct JobNotifier {
    pub(super) store: Arc<dyn Store>,
    pub(super) clouds: Clouds,
    pub(super) clock: Clocks,
    /// For people: the author of a record.
    pub(super) name: String,
    /// `None`: only the log and the records say it.
    pub port: Option<Arc<dyn Notifier>>,
    sweeper: Mutex<SweeperWatch>,
    /// Notifications in progress.
    under_way: Mutex<Vec<JoinHandle<()>>>,
}

impl JobNotifier {
    pub fn new(store: &Arc<dyn Store>, clouds: &Clouds, clock: &Clocks, name: &str) -> Self {
        let (store, clouds, clock, name) =
            (Arc::clone(store), clouds.clone(), clock.clone(), name.to_owned());
        let (sweeper, under_way) = Default::default();
        JobNotifier { store, clouds, clock, name, port: None, sweeper, under_way }
    }

    /// Tells that the sweeper stopped coming, or that it cannot read the records. Without it, only
    /// the hard cap ends a machine that hangs while every workstation sleeps. A user who never had
    /// a sweeper gets no message. One message for all jobs of this process.
    pub(crate) async fn tell_of_sweeper(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
    ) {
        let seen = || self.sweeper.lock().expect("the holder only reads or sets it");
        let now = self.clock.mono();
        let rests = |seen: &SweeperWatch| {
            seen.looked.is_some_and(|looked| now.saturating_sub(looked) < SWEEPER_LOOK_EVERY)
        };
        if self.port.is_none() || rests(&seen()) {
            return;
        }
        seen().looked = Some(now);
        // Without an answer the last one holds, and the next look is in an hour.
        let sweeper = SweeperDir::new(Arc::clone(&self.store), &sweeper::name(&self.clouds.owner));
        if let Ok(Some(came)) = sweeper.came().await
            && let Some(now) = self.clock.store_now().await
        {
            let blind = sweeper.visit_before().await.ok().flatten().filter(Visit::sees_nobody);
            let judged =
                blind.as_ref().and_then(|visit| visit.judged_at).filter(|judged| *judged < came);
            let mut seen = seen();
            (seen.silent, seen.is_blind) = (elapsed(judged.unwrap_or(came), now), judged.is_some());
        }
        let (silent, is_blind) = {
            let seen = seen();
            (seen.silent, seen.is_blind)
        };
        let is_gone = (SWEEPER_GONE..SWEEPER_FORGOTTEN).contains(&silent);
        if !std::mem::replace(&mut seen().told, is_gone) && is_gone {
            let hours = Span::from_secs(silent.as_secs() / 3600 * 3600);
            let what = if is_blind { "could judge no machine" } else { "has not come" };
            let text = format!(
                "the sweeper in the cloud {what} for {hours}, so a machine that hangs may run to its hard cap: `lamp doctor` says why"
            );
            let what = "the sweeper does not come";
            let news = JobEvent { topic: what.into(), ..JobEvent::attention(text) };
            self.tell_as(dir, spec, memory, &news).await;
        }
    }

    /// Sends what the records and the newest heartbeat say anew.
    pub(crate) async fn tell_events(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        observed: &Observed,
    ) {
        let Some(port) = self.port.clone() else { return };
        let now = self.clock.now();
        let seen = SeenJob { job: dir.job(), spec, observed, now };
        memory.usd_so_far = Some(seen.usd());
        for event in seen.events() {
            // A user who does not want the kind of its own hears of it as of any sentence.
            let event = match event.otherwise_attention && !port.wants(event.kind) {
                true => JobEvent { kind: EventKind::Attention, ..event },
                false => event,
            };
            self.tell_as(dir, spec, memory, &event).await;
        }
    }

    /// Sends that a cap holds the next launch back, once a day for each cap.
    pub(crate) async fn tell_cap(&self, dir: &JobDir, spec: &ResolvedSpec, memory: &mut JobMemory) {
        let Some(held) = memory.held_back.as_ref().filter(|held| held.is_cap) else { return };
        let day = self.clock.now().strftime("%Y-%m-%d").to_string();
        let event = JobEvent {
            topic: format!("{day} {}", message_key(&held.why)),
            command: Some(format!("lamp cancel {}", dir.job())),
            ..JobEvent::new(EventKind::Cap, format!("the next machine waits for {}", held.why))
        };
        self.tell_as(dir, spec, memory, &event).await;
    }

    /// Sends the end of a job that this process drove. A job that ended last month is no news.
    pub(crate) async fn tell_end(&self, dir: &JobDir, memory: &mut JobMemory, receipt: &Receipt) {
        let Some(spec) = memory.spec.clone() else { return };
        // A proof must end: no job has failed.
        if spec.trial.is_some() {
            return;
        }
        memory.usd_so_far = Some(receipt.total_usd);
        let text = format!("{}: {}", receipt.outcome, receipt.reason);
        let event = JobEvent {
            receipt: Some(Box::new(receipt.clone())),
            command: Some(format!("lamp receipt {}", dir.job())),
            ..JobEvent::new(EventKind::Ended, text)
        };
        self.tell_as(dir, &spec, memory, &event).await;
    }

    /// Whether the user wants messages of this kind.
    pub(crate) fn is_wanted(&self, kind: EventKind) -> bool {
        self.port.as_ref().is_some_and(|port| port.wants(kind))
    }

    /// Sends one message for each topic. `false`: the next look must try again.
    pub(crate) async fn tell_as(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        event: &JobEvent,
    ) -> bool {
        if !self.is_wanted(event.kind) {
            return true;
        }
        let kind = event.kind.word();
        let name = format!("{kind}-{}", hex::encode(&Sha256::digest(event.topic.as_bytes())[..6]));
        if !memory.told.insert(name.clone()) {
            return true;
        }
        let notification = Notification {
            format: RECORD_FORMAT,
            job: dir.job().clone(),
            name: spec.spec.name.clone(),
            at: self.clock.now(),
            kind,
            text: event.text.clone(),
            command: event.command.clone(),
            usd: memory.usd_so_far,
            receipt: event.receipt.as_deref().cloned(),
        };
        match dir
            .store()
            .create(&layout::told(dir.job(), &name), Bytes::from(encode(&notification)))
            .await
        {
            Ok(Created::New) => {}
            Ok(Created::Exists) => return true,
            Err(error) => {
                // The next look tries again.
                memory.told.remove(&name);
                warn!(job = %dir.job(), "cannot record what is told: {error}");
                return false;
            }
        }
        self.send(notification);
        true
    }

    /// Sends it beside the drive.
    pub(crate) fn send(&self, notification: Notification) {
        let Some(notifier) = self.port.clone() else { return };
        let telling = tokio::spawn(async move {
            if let Err(error) = notifier.tell(&notification).await {
                warn!("{error}");
            }
        });
        let mut under_way = self.under_way.lock().expect("the holder only changes the list");
        under_way.retain(|telling| !telling.is_finished());
        under_way.push(telling);
    }

    /// Waits for the messages in progress, before this controller ends.
    pub async fn finish(&self) {
        let under_way =
            std::mem::take(&mut *self.under_way.lock().expect("the holder only changes the list"));
        for telling in under_way {
            if telling.await.is_err() {
                warn!("a telling was cut off");
            }
        }
    }
}
