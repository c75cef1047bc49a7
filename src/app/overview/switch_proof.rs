//! Whether the switches that end a machine are proven in its region, as a sentence with its date.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Mutex;

use crate::app::view::timeline::Explained;
use crate::job::Proof;
use crate::jobdir::{JobDirError, ProofDir, proof_keys};
use crate::market::CloudKind;
use crate::policy::account::shutdown_proof::{ProofState, standing};
use crate::wire::{ClockHandle, StoreHandle};

/// Proofs are made once a month. Each look at a bucket costs money.
const EVERY: Duration = Duration::from_secs(600);

/// The proofs of the job root, read again every ten minutes.
#[derive(Default)]
pub struct SwitchProofs(Mutex<Option<ReadProofs>>);

struct ReadProofs {
    /// By the monotonic clock.
    at: Duration,
    proofs: Arc<Vec<Proof>>,
}

impl SwitchProofs {
    /// For the region of the newest attempt. `None`: its machine is this workstation, or the proofs
    /// cannot be read.
    pub async fn text(
        &self,
        explained: &Explained,
        store: &StoreHandle,
        clock: &ClockHandle,
    ) -> Option<String> {
        let plan = explained.attempts.last()?.plan.as_ref()?;
        let region =
            (plan.offer.cloud != CloudKind::Local).then(|| plan.offer.region.to_string())?;
        let proofs = self.read(store, clock).await.ok()?;
        let here = proofs.iter().filter(|proof| proof.region == region);
        Some(proof_text(&region, here.max_by_key(|proof| proof.at), clock.now()))
    }

    async fn read(
        &self,
        store: &StoreHandle,
        clock: &ClockHandle,
    ) -> Result<Arc<Vec<Proof>>, JobDirError> {
        let (mut known, now) = (self.0.lock().await, clock.mono());
        if let Some(known) = known.as_ref().filter(|known| now.saturating_sub(known.at) < EVERY) {
            return Ok(Arc::clone(&known.proofs));
        }
        let mut proofs = Vec::new();
        for key in proof_keys(&**store).await? {
            let Some(account) = key.split('/').nth(1) else { continue };
            let of_account = ProofDir::new(Arc::clone(store), account);
            proofs.extend(of_account.among(std::slice::from_ref(&key)).await?);
        }
        let proofs = Arc::new(proofs);
        *known = Some(ReadProofs { at: now, proofs: Arc::clone(&proofs) });
        Ok(proofs)
    }
}

/// `proven on 2026-11-20T10:00:00Z in us-east-1 (deadline unit, sweep)`
fn proof_text(region: &str, newest: Option<&Proof>, now: Timestamp) -> String {
    match standing(newest, now) {
        ProofState::Good(proof) => {
            let switches: Vec<String> =
                proof.trials.iter().map(|tried| tried.switch.to_string()).collect();
            format!("proven on {:.0} in {region} ({})", proof.at, switches.join(", "))
        }
        other => format!(
            "not proven: {region} {}; to prove it: lamp doctor --prove --region {region}",
            other.words()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_has_its_date_and_a_missing_one_its_command() {
        let at: Timestamp = "2026-11-20T10:00:00Z".parse().expect("a time");
        let proof = |passed| Proof {
            format: 1,
            at,
            account: "123456789012".into(),
            region: "us-east-1".into(),
            by: "alice".into(),
            written_by: "0.1.0".into(),
            passed,
            trials: Vec::new(),
            sweeper_unknown: None,
        };
        let later = |days: i64| at + jiff::SignedDuration::from_hours(24 * days);
        let text = |newest: Option<&Proof>, now| proof_text("us-east-1", newest, now);
        let good = text(Some(&proof(true)), later(1));
        assert!(good.starts_with("proven on 2026-11-20T10:00:00Z in us-east-1"), "{good}");
        for (newest, now) in
            [(None, at), (Some(proof(false)), later(1)), (Some(proof(true)), later(31))]
        {
            let told = text(newest.as_ref(), now);
            assert!(told.starts_with("not proven: ") && told.contains("--prove"), "{told}");
        }
    }
}
