//! Which offer can be launched at all, and which regions wait for a person first.
//!
//! ```text
//!   placement::place ── the best of each region ──> Cloud::prepare, all at once
//!        ^                                            ├─ ready ────────────────> taken, if it is the best of all
//!        ├── again, without ── no capacity: that pool ┼─ missing, not allowed ─> its region is passed over, and told
//!        │                                            └─ no answer ────────────> unknown: not passed over
//!        └── again, without what is known by now never to be launched: a zone without a subnet, a type that the image does not fit
//! ```
//! Images, networks and permissions are of a region: one that has no security group must not stop a
//! job that fits into three. Nothing is remembered here from one plan to the next: what a person
//! mends is found by the next one. What must never live here: which offer is better
//! (`policy::purchase::placement`).

use std::collections::BTreeSet;

use futures::future::join_all;

use crate::controller::act_result::{ActError, Unready};
use crate::job::{LaunchRequest, RejectedOffer, Spec};
use crate::market::{Arch, Offer, Region, Supply};
use crate::policy::purchase::placement::{Ask, NoOffer, Placement, place};
use crate::ports::{Cloud, CloudError, NoCredentials, chain};

/// The offer to launch, with what its launch needs.
pub(crate) struct Launchable {
    pub placed: Placement,
    pub launch: Option<LaunchRequest>,
    pub unready: Vec<Unready>,
}

/// What a search has found out so far.
#[derive(Default)]
pub(crate) struct Search {
    /// An image is of a region and a kind of processor.
    looked: BTreeSet<(Region, Arch)>,
    unready: Vec<(Region, CloudError)>,
    rejected: Vec<RejectedOffer>,
    /// Those of them that can never be launched.
    unfit: Vec<String>,
    ready: Option<(Offer, Option<LaunchRequest>)>,
}

/// Takes from the supply what cannot be launched, and the best of the rest.
///
/// # Errors
/// When nothing is left, with what a person can mend; when nobody answers for the best.
pub(crate) async fn launchable(
    cloud: &dyn Cloud,
    asked: &Ask<'_>,
    supply: &mut Supply,
    search: &mut Search,
) -> Result<Launchable, ActError> {
    loop {
        let placed = match place(&Ask { supply, ..*asked }) {
            Ok(placed) => placed,
            Err(none) => return Err(search.nowhere(none, !supply.offers.is_empty())),
        };
        if let Some((_, launch)) = search.ready.take_if(|(offer, _)| *offer == placed.offer) {
            return Ok(search.found(placed, launch));
        }
        let (firsts, before) = (search.firsts(&placed), supply.offers.len());
        let answers = join_all(firsts.iter().map(|offer| cloud.prepare(asked.spec, offer))).await;
        for (offer, answer) in firsts.into_iter().zip(answers) {
            search.note(offer, answer, &placed.offer, supply)?;
        }
        search.leave_out_unfit(cloud, asked.spec, supply);
        // Nothing was taken away: the choice stands, with its fallbacks.
        if supply.offers.len() == before
            && let Some((_, launch)) = search.ready.take()
        {
            return Ok(search.found(placed, launch));
        }
    }
}

impl Search {
    /// How many regions, kinds of processors and single offers were found on which nothing can be
    /// launched.
    pub(crate) fn passed_over(&self) -> usize {
        self.unready.len() + self.unfit.len()
    }

    /// The best offer, and the best of each region that nobody has looked at yet: what is tried
    /// next is known to be ready.
    fn firsts(&mut self, placed: &Placement) -> Vec<Offer> {
        let kind = |offer: &Offer| (offer.region.clone(), offer.arch);
        self.looked.insert(kind(&placed.offer));
        let others = placed.fallbacks.iter().filter(|offer| self.looked.insert(kind(offer)));
        std::iter::once(&placed.offer).chain(others).cloned().collect()
    }

    fn note(
        &mut self,
        offer: Offer,
        answer: Result<Option<LaunchRequest>, CloudError>,
        best: &Offer,
        supply: &mut Supply,
    ) -> Result<(), CloudError> {
        let is_best = offer == *best;
        match answer {
            Ok(launch) if is_best => self.ready = Some((offer, launch)),
            // It cannot be launched there, and no attempt need be wasted on that: the next offer.
            Err(CloudError::NoCapacity { what, .. }) if is_best => {
                supply.offers.retain(|other| !other.is_same_pool(&offer));
                supply.refused.push(format!("{}: {what}", offer.describe()));
                self.rejected.push(RejectedOffer { offer, because: what });
            }
            // Who we are is the same question everywhere; what is there, and what we may, is not.
            Err(error @ (CloudError::Invalid { .. } | CloudError::Denied { .. }))
                if NoCredentials::among(&error).is_none() =>
            {
                let because = chain(&error);
                tracing::info!(region = %offer.region, "passed over: {because}");
                let there = supply.offers.extract_if(.., |other| {
                    other.region == offer.region && other.arch == offer.arch
                });
                self.rejected
                    .extend(there.map(|offer| RejectedOffer { offer, because: because.clone() }));
                self.unready.push((offer.region, error));
            }
            Err(error) if is_best => return Err(error),
            // Of another region: it is asked again when its turn comes.
            _ => {}
        }
        Ok(())
    }

    /// Takes away what can never be launched, as far as anybody has said by now: it is no place to
    /// go next, and no part of the most that the job can cost.
    fn leave_out_unfit(&mut self, cloud: &dyn Cloud, spec: &Spec, supply: &mut Supply) {
        supply.offers.retain(|offer| {
            let Some(because) = cloud.known_unfit(spec, offer) else { return true };
            self.unfit.push(format!("{}: {because}", offer.describe()));
            self.rejected.push(RejectedOffer { offer: offer.clone(), because });
            false
        });
    }

    fn found(&self, mut placed: Placement, launch: Option<LaunchRequest>) -> Launchable {
        let unready = self.told();
        placed.rejected.extend(self.rejected.iter().cloned());
        Launchable { placed, launch, unready }
    }

    /// Why there is no plan: the one thing that is missing, or all of it. `others`: some places are
    /// ready, and do not fit now.
    fn nowhere(&mut self, mut none: NoOffer, others: bool) -> ActError {
        none.because.append(&mut self.unfit);
        let unready = self.told();
        match unready.len() {
            0 => none.into(),
            1 if !others => self.unready.swap_remove(0).1.into(),
            _ => ActError::NotReady { none: others.then_some(none), unready },
        }
    }

    /// Once for each region and reason.
    fn told(&self) -> Vec<Unready> {
        let mut told: Vec<Unready> = Vec::new();
        for (region, error) in &self.unready {
            let unready = Unready { region: region.clone(), because: chain(error) };
            if !told.contains(&unready) {
                told.push(unready);
            }
        }
        told
    }
}
