//! Whether a machine may run without a controller: only after a recent proof that machines end by
//! themselves.
//!
//! ```text
//!   identity ──> the account's proofs ──> standing ──> go on | refuse (exit code 111) | warn
//! ```
//!
//! Only AWS machines need a proof: local machines cost nothing. Not here: how long a proof holds
//! (`policy::account::shutdown_proof`).

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::app::session::Session;
use crate::app::{ExitCode, Fault, record_errors};
use crate::job::{MachineSpec, Plan, Proof};
use crate::jobdir::{ProofDir, proof_keys};
use crate::market::CloudKind;
use crate::policy::account::shutdown_proof::{ProofState, not_tried, standing};
use crate::wire::{StoreHandle, Workstation};

/// A user who detaches waits at most this long for the warning.
const WARN_WITHIN: Duration = Duration::from_secs(3);

pub struct Proofs {
    account: String,
    proofs: Vec<Proof>,
}

/// # Errors
/// Fails when AWS refuses the credentials, or the job root is unreachable.
pub async fn look(workstation: &Workstation, store: &StoreHandle) -> Result<Proofs, Fault> {
    // The requests run in parallel, because a launch waits for them.
    let (account, keys) = tokio::join!(account(workstation), proof_keys(&**store));
    let (account, keys) = (account?, keys.map_err(|error| record_errors::record_fault(&error))?);
    let proofs = ProofDir::new(store.clone(), &account)
        .among(&keys)
        .await
        .map_err(|error| record_errors::record_fault(&error))?;
    Ok(Proofs { account, proofs })
}

/// # Errors
/// Fails when AWS refuses the credentials.
pub async fn account(workstation: &Workstation) -> Result<String, Fault> {
    workstation.aws_account().await.map_err(|why| {
        Fault::new(ExitCode::UNREACHABLE, format!("AWS did not say which account this is: {why}"))
            .meaning("nothing was started or billed")
            .hint("`lamp doctor` says who you are to AWS")
    })
}

/// All regions where the job may get a machine, also after a refusal or an interruption.
pub async fn regions(
    workstation: &Workstation,
    machine: &MachineSpec,
    plan: &Plan,
) -> BTreeSet<String> {
    let mut regions: BTreeSet<String> =
        workstation.aws_regions(&machine.regions).await.into_iter().collect();
    // A kept machine may be in a region that the configuration no longer names.
    regions.insert(plan.offer.region.to_string());
    regions
}

impl Proofs {
    fn standing(&self, now: Timestamp, region: &str) -> ProofState<'_> {
        standing(self.proofs.iter().find(|proof| proof.region == region), now)
    }

    /// A good proof may cover only the deadline unit. The note says what was not tried.
    pub fn tell_what_was_not_tried(&self, session: &Session<'_>, regions: &BTreeSet<String>) {
        let now = session.clock.now();
        let less = regions.iter().find_map(|region| match self.standing(now, region) {
            ProofState::Good(proof) => {
                not_tried(proof, &session.workstation.owner).map(|less| (region, less))
            }
            _ => None,
        });
        if let Some((region, less)) = less {
            session.note(format!(
                "of the proof of {region}, {less}; `lamp init aws --sweeper` has a function of AWS sweep, and `lamp doctor --prove --region {region}` then tries that too"
            ));
        }
    }

    /// The refusal when a region has no good proof. `plan` gives the cost at stake.
    pub fn refusal(
        &self,
        now: Timestamp,
        regions: &BTreeSet<String>,
        plan: Option<&Plan>,
    ) -> Option<Fault> {
        let bad: Vec<(&String, ProofState<'_>)> = regions
            .iter()
            .map(|region| (region, self.standing(now, region)))
            .filter(|(_, standing)| !standing.is_good())
            .collect();
        let (first, _) = bad.first()?;
        let words: Vec<String> =
            bad.iter().map(|(region, standing)| format!("{region} {}", standing.words())).collect();
        let what = format!(
            "nothing here drives this machine while this workstation is off, and account {} has not shown that it ends by itself: {}",
            self.account,
            words.join(", ")
        );
        // Not for a kept machine: its disk bills after its end too.
        let stake = plan
            .filter(|plan| plan.starts.is_none())
            .map(|plan| format!("it would bill {} until a user ends it", plan.offer.hourly()));
        let stake = stake
            .map(|stake| {
                format!("; if its agent died and the other switches did not work, {stake}")
            })
            .unwrap_or_default();
        // Without a plan, several jobs were asked for, and some may run already.
        let meaning = if plan.is_some() {
            format!("nothing was started or billed{stake}")
        } else {
            "nothing was changed: what runs goes on".to_owned()
        };
        let also: Vec<&str> = bad.iter().skip(1).map(|(region, _)| region.as_str()).collect();
        let also = if also.is_empty() {
            String::new()
        } else {
            format!(" there (and the same with {})", also.join(", "))
        };
        Some(Fault::new(ExitCode::UNPROVEN, what)
            .meaning(meaning)
            .hint(format!("`lamp doctor --prove --region {first}` shows it{also}, for about a cent and ten minutes; `--unproven` goes on without")))
    }
}

pub async fn warn(session: &Session<'_>, regions: &BTreeSet<String>) {
    let looked = tokio::select! {
        looked = look(session.workstation, session.store) => looked.ok(),
        () = session.clock.sleep(WARN_WITHIN) => None,
    };
    let Some(proofs) = looked else { return };
    let now = session.clock.now();
    let unproven = regions
        .iter()
        .map(|region| (region, proofs.standing(now, region)))
        .find(|(_, standing)| !standing.is_good());
    if let Some((region, standing)) = unproven {
        session.warn(format!(
            "its machine is driven from here only while this workstation is on, and {region} {} that machines end by themselves",
            standing.words()
        ));
        session.hint(format!(
            "`lamp doctor --prove --region {region}` shows it, for about a cent and ten minutes"
        ));
    }
}

pub async fn warn_beforehand(session: &Session<'_>, machine: &MachineSpec) {
    let regions: BTreeSet<String> =
        session.workstation.aws_regions(&machine.regions).await.into_iter().collect();
    let Ok(proofs) = look(session.workstation, session.store).await else { return };
    match proofs.refusal(session.clock.now(), &regions, None) {
        Some(fault) => {
            session.warn(format!("`--detach` would be refused: {}", fault.sentence()));
        }
        None => proofs.tell_what_was_not_tried(session, &regions),
    }
}

pub fn is_asked(cloud: CloudKind, unproven: bool) -> bool {
    cloud != CloudKind::Local && !unproven
}
