//! Which offer can be launched, and which regions wait for the user.
//!
//! ```text
//!   place ──> the best of each region ──> Cloud::prepare, all at once
//!      ^                                    ├─ ready ────────> taken, if it is the best of all
//!      ├── again, without the pool ─────────┼─ no capacity
//!      ├── again, without the region ───────┼─ missing, or denied; the user is told
//!      └── again, without unfit offers       └─ no answer ────> unknown, and kept
//! ```
//! Images, networks and permissions belong to a region. A region without a security group must not
//! stop a job that fits into three others. Each plan searches again: it finds what the user has
//! mended.

use std::collections::BTreeSet;

use futures::future::join_all;

use crate::controller::act_result::{ActError, Unready};
use crate::job::{LaunchRequest, RejectedOffer, Spec};
use crate::market::{Arch, Offer, Region, Supply};
use crate::policy::purchase::placement::{Ask, NoOffer, Placement, place};
use crate::ports::{Cloud, CloudError, NoCredentials, chain};

/// The offer to launch, with the data of its launch call.
pub(crate) struct Launchable {
    pub placed: Placement,
    pub launch: Option<LaunchRequest>,
    pub unready: Vec<Unready>,
}

/// The findings of a search so far.
#[derive(Default)]
pub(crate) struct Search {
    /// An image belongs to a region and a kind of processor.
    looked: BTreeSet<(Region, Arch)>,
    unready: Vec<(Region, CloudError)>,
    rejected: Vec<RejectedOffer>,
    /// The rejected offers that can never be launched.
    unfit: Vec<String>,
    ready: Option<(Offer, Option<LaunchRequest>)>,
}

/// Removes from the supply the offers that cannot be launched, and takes the best of the rest.
///
/// When no offer is left, with the errors that the user can mend; when the best one gets no answer.
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
        // No offer was removed: the choice stands, with its fallbacks.
        if supply.offers.len() == before
            && let Some((_, launch)) = search.ready.take()
        {
            return Ok(search.found(placed, launch));
        }
    }
}

impl Search {
    /// The number of regions, kinds of processors and single offers without a possible launch.
    pub(crate) fn passed_over(&self) -> usize {
        self.unready.len() + self.unfit.len()
    }

    /// The best offer, and the best of each region that was not looked at yet: so the next choice
    /// is known to be ready.
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
            // A launch there would fail, so the next offer is tried.
            Err(CloudError::NoCapacity { what, .. }) if is_best => {
                supply.offers.retain(|other| !other.is_same_pool(&offer));
                supply.refused.push(format!("{}: {what}", offer.describe()));
                self.rejected.push(RejectedOffer { offer, because: what });
            }
            // Credentials are the same in every region; resources and permissions differ.
            Err(
                error @ (CloudError::Invalid { .. }
                | CloudError::NoImage { .. }
                | CloudError::Denied { .. }),
            ) if NoCredentials::among(&error).is_none() => {
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
            // Another region: it is asked again in its turn.
            _ => {}
        }
        Ok(())
    }

    /// Removes offers that are known to be unfit: the fallbacks and the highest cost of the job are
    /// without them.
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

    /// Why there is no plan: the one missing thing, or all of them. `others`: some places are
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
