//! Tells somebody, once: what a person should look at, and that a job is over.
//!
//! Several controllers may drive a job; whoever creates the record that it was told tells it. Never in the way of driving:
//! the telling goes on beside it, and its failure is logged.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tracing::warn;

use super::drive::Controller;
use super::memory::JobMemory;
use super::observe::Observed;
use crate::job::{RECORD_FORMAT, Receipt, ResolvedSpec};
use crate::jobdir::{JobDir, encode, layout};
use crate::ports::{Created, Notification};

impl Controller {
    /// The sentences of the newest heartbeat that were not told yet.
    pub(super) async fn tell_attention(&self, dir: &JobDir, spec: &ResolvedSpec, memory: &mut JobMemory, observed: &Observed) {
        let status = observed.attempts.last().and_then(|attempt| attempt.status.as_ref());
        for text in status.map(|status| status.attention.as_slice()).unwrap_or_default() {
            self.tell(dir, spec, memory, "attention", text, None).await;
        }
    }

    /// The end of a job that this controller saw alive: a finished one of last month is no news.
    pub(super) async fn tell_end(&self, dir: &JobDir, memory: &mut JobMemory, receipt: &Receipt) {
        let Some(spec) = memory.spec.clone() else { return };
        // Its end is what somebody waits for, and no job has failed.
        if spec.trial.is_some() {
            return;
        }
        let text = format!("{}: {}", receipt.outcome, receipt.reason);
        self.tell(dir, &spec, memory, "ended", &text, Some(receipt)).await;
    }

    async fn tell(&self, dir: &JobDir, spec: &ResolvedSpec, memory: &mut JobMemory, kind: &'static str, text: &str, receipt: Option<&Receipt>) {
        self.tell_as(dir, spec, memory, (kind, text), text, receipt).await;
    }

    /// Tells it once for each `what`, which says what it is about. `false`: the next look has to try again.
    pub(super) async fn tell_as(
        &self,
        dir: &JobDir,
        spec: &ResolvedSpec,
        memory: &mut JobMemory,
        (kind, what): (&'static str, &str),
        text: &str,
        receipt: Option<&Receipt>,
    ) -> bool {
        let Some(notifier) = self.notifier.clone() else { return true };
        let name = format!("{kind}-{}", hex::encode(&Sha256::digest(what.as_bytes())[..6]));
        if !memory.told.insert(name.clone()) {
            return true;
        }
        let notification = Notification {
            format: RECORD_FORMAT,
            job: dir.job().clone(),
            name: spec.spec.name.clone(),
            at: self.clock.now(),
            kind,
            text: text.to_owned(),
            receipt: receipt.cloned(),
        };
        match dir.store().create(&layout::told(dir.job(), &name), Bytes::from(encode(&notification))).await {
            Ok(Created::New) => {}
            Ok(Created::Exists) => return true,
            Err(error) => {
                // Not told by us, then: the next look tries again.
                memory.told.remove(&name);
                warn!(job = %dir.job(), "cannot record what is told: {error}");
                return false;
            }
        }
        let telling = tokio::spawn(async move {
            if let Err(error) = notifier.tell(&notification).await {
                warn!("{error}");
            }
        });
        let mut under_way = self.telling.lock().expect("nobody panics while holding the list: it is only changed");
        under_way.retain(|telling| !telling.is_finished());
        under_way.push(telling);
        true
    }

    /// Before this controller ends: a command that it started is not cut off.
    pub async fn finish_telling(&self) {
        let under_way = std::mem::take(&mut *self.telling.lock().expect("nobody panics while holding the list: it is only changed"));
        for telling in under_way {
            if telling.await.is_err() {
                warn!("a telling was cut off");
            }
        }
    }
}
