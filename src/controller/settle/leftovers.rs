//! The leftovers of a job in the cloud after its last machine: asked for once, removed if they are
//! the job's, and listed in the receipt.
//!
//! ```text
//!   all attempts settled ──> residue of its regions ──> the job's, by tag or machine ─┬─ kept
//!                                                                                     └─ removed
//! ```
//! This comes before the receipt, because no controller looks at a job with a receipt. It delays
//! nothing: unanswered regions and failed removals are listed, and `lamp sweep --residue` finds
//! them.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use tracing::warn;

use super::settler::Settler;
use crate::account::Residue;
use crate::controller::cloud_answers::CloudRegion;
use crate::controller::job_memory::Leavings;
use crate::controller::observe::Observed;
use crate::job::{JobId, Leaving, LeavingFate};
use crate::market::Usd;
use crate::ports::chain;

impl Settler {
    /// Asks each region where the job had a machine, or was to start a kept one: that one may carry
    /// the job's name already.
    pub(crate) async fn leave_nothing(&self, job: &JobId, observed: &Observed) -> Leavings {
        let mut places = BTreeMap::<CloudRegion, BTreeSet<String>>::new();
        for facts in &observed.attempts {
            let machine = facts.settled.as_ref().and_then(|settled| settled.instance.clone());
            if machine.is_some() || facts.plan.starts.is_some() {
                places
                    .entry((facts.plan.offer.cloud, facts.plan.offer.region.clone()))
                    .or_default()
                    .extend(machine);
            }
        }
        self.take_from(job, places).await
    }

    /// Finds and removes the leftovers in these places, each with the machines that the job had
    /// there.
    pub(crate) async fn take_from(
        &self,
        job: &JobId,
        places: BTreeMap<CloudRegion, BTreeSet<String>>,
    ) -> Leavings {
        let mut leavings = Leavings::default();
        let asked = places.into_iter().filter_map(|((cloud, region), machines)| {
            Some((region, machines, self.clouds.get(cloud).ok()?))
        });
        let answers = asked.map(|(region, machines, cloud)| async move {
            let answer = cloud.residue_of(&self.clouds.owner, &region, job, &machines).await;
            (answer, region, machines)
        });
        for (answer, region, machines) in join_all(answers).await {
            match answer {
                Ok(all) => {
                    for left in all.iter().filter(|left| is_of(left, job, &machines)) {
                        let fate = self.take_away(job, left).await;
                        leavings.left.push(leaving(left, fate));
                    }
                }
                Err(error) => {
                    warn!(%job, "what it left in {region} is not known: {}; `lamp sweep --residue` looks again", chain(&error));
                    leavings.unasked.push(region);
                }
            }
        }
        leavings
    }

    async fn take_away(&self, job: &JobId, left: &Residue) -> LeavingFate {
        let Residue { kind, id, region, detail, usd_per_month, .. } = left;
        let what = format!("the {kind} {id} in {region} ({detail}, {usd_per_month} a month)");
        // A folder of this workstation costs no money.
        if left.kept && *usd_per_month == Usd::ZERO {
            return LeavingFate::Kept;
        }
        if !left.is_removable() {
            warn!(%job, "it leaves {what}");
            return if left.kept { LeavingFate::Kept } else { LeavingFate::Left };
        }
        match self.clouds.clear(left).await {
            Ok(()) => {
                warn!(%job, "it left {what}, which is removed");
                LeavingFate::Removed
            }
            Err(error) => {
                warn!(%job, "it leaves {what}, which cannot be removed now: {}; `lamp sweep --residue` tries again", chain(&error));
                LeavingFate::Left
            }
        }
    }
}

fn leaving(left: &Residue, fate: LeavingFate) -> Leaving {
    let Residue { kind, id, region, detail, usd_per_month, .. } = left;
    Leaving {
        kind: kind.clone(),
        id: id.clone(),
        region: region.clone(),
        detail: detail.clone(),
        usd_per_month: *usd_per_month,
        fate,
    }
}

/// By the tag of its launch; an alarm has only the name of its machine.
fn is_of(left: &Residue, job: &JobId, machines: &BTreeSet<String>) -> bool {
    left.job.as_ref().map_or_else(
        || machines.iter().any(|machine| left.id.contains(machine.as_str())),
        |of| of == job,
    )
}
