//! Dry runs: does the cloud permit the planned launch, and one in each other region and market of
//! its fallbacks? Permissions may differ between regions, and between spot and on-demand. All are
//! asked at once. Nothing is launched.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::launcher::JobLauncher;
use super::plan::Planned;
use crate::controller::act_result::ActError;
use crate::job::{Plan, Spec};
use crate::market::{Market, Offer};

impl JobLauncher {
    /// Whether the cloud would let us launch a plan. Launches nothing.
    ///
    /// When it would refuse, or gives no answer.
    pub async fn permitted(&self, plan: &Plan) -> Result<(), ActError> {
        Ok(self.clouds.get(plan.offer.cloud)?.permitted(plan).await?)
    }

    /// The same for the planned machine, and for the first fallback in each other region and
    /// market.
    pub async fn permissions<'a>(
        &self,
        spec: &Spec,
        planned: &'a Planned,
    ) -> (Result<(), ActError>, Vec<(&'a Offer, Result<(), ActError>)>) {
        let plan = &planned.plan;
        let place = |offer: &Offer| (offer.region.clone(), offer.market);
        let mut seen = BTreeSet::from([place(&plan.offer)]);
        let others = planned.fallbacks.iter().filter(|offer| seen.insert(place(offer)));
        let asked = others
            .map(|offer| async move { (offer, self.permitted_instead(spec, plan, offer).await) });
        tokio::join!(self.permitted(plan), join_all(asked))
    }

    async fn permitted_instead(
        &self,
        spec: &Spec,
        plan: &Plan,
        offer: &Offer,
    ) -> Result<(), ActError> {
        let launch = self.clouds.get(offer.cloud)?.prepare(spec, offer).await?;
        // The bid has no effect on permissions.
        let bid = (offer.market == Market::Spot).then_some(offer.price);
        self.permitted(&Plan { offer: offer.clone(), bid, launch, ..plan.clone() }).await
    }
}
