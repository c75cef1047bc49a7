//! The clouds that a controller can drive, and its owner's machines there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;

use super::clocks::Clocks;
use super::cloud_answers::{Answers, CloudRegion};
use crate::account::Residue;
use crate::instance::InstanceView;
use crate::job::Plan;
use crate::market::{self, Offer, PriceHistory, Zone};
use crate::policy::lifecycle::machine_owner::is_kept_for;
use crate::policy::lifecycle::reconcile::{self, CloudAnswer};
use crate::ports::{Cloud, CloudError};

/// The limit for a call for past prices. One page of rows takes a second; the limit leaves time for
/// retries. The next launch waits meanwhile.
const PRICES_WITHIN: Duration = Duration::from_secs(30);

/// Cheap to clone.
#[derive(Clone)]
pub struct Clouds {
    ports: Arc<BTreeMap<market::CloudKind, Arc<dyn Cloud>>>,
    /// The owner tag of the machines.
    pub owner: Arc<str>,
    /// This workstation as a zone of the local cloud.
    pub here: Zone,
}

impl Clouds {
    pub fn new(
        ports: BTreeMap<market::CloudKind, Arc<dyn Cloud>>,
        owner: &str,
        here: Zone,
    ) -> Self {
        Clouds { ports: Arc::new(ports), owner: owner.into(), here }
    }

    /// # Errors
    /// When this program was built without the cloud.
    pub fn get(&self, which: market::CloudKind) -> Result<&Arc<dyn Cloud>, CloudError> {
        self.ports.get(&which).ok_or(CloudError::Unsupported {
            cloud: which.word(),
            act: "be driven by this program",
        })
    }

    pub fn all(&self) -> impl Iterator<Item = (&market::CloudKind, &Arc<dyn Cloud>)> {
        self.ports.iter()
    }

    /// Why a plan is left to another controller; `None`: it is this controller's.
    pub fn belongs_elsewhere(&self, plan: &Plan) -> Option<String> {
        reconcile::belongs_elsewhere(plan, &self.owner, self.here.as_str())
    }

    /// Asks for the owner's machines in these places, all at once; `now` is on the steady clock.
    pub async fn describe(&self, places: BTreeSet<CloudRegion>, now: Duration) -> Answers {
        let asked = places.into_iter().map(|(cloud, region)| async move {
            let described = match self.get(cloud) {
                Ok(port) => port.describe(&self.owner, &region).await,
                Err(error) => Err(error),
            };
            ((cloud, region), described)
        });
        Answers::from_iter(join_all(asked).await).asked_at(now)
    }

    /// The machine of a plan while it belongs to that attempt, or the kept one that the plan was to
    /// start.
    ///
    /// # Errors
    /// When the cloud does not answer.
    pub async fn machine_of(
        &self,
        plan: &Plan,
        now: Duration,
    ) -> Result<Option<InstanceView>, CloudError> {
        let place = (plan.offer.cloud, plan.offer.region.clone());
        let answers = self.describe([place].into(), now).await;
        let views = match answers.of_job(std::iter::once((plan, false))) {
            CloudAnswer::Known(views) => views,
            CloudAnswer::Unknown(why) => {
                return Err(CloudError::Ambiguous {
                    act: "look for the machine that was kept".into(),
                    cause: why.into(),
                });
            }
        };
        // A kept machine may still carry an earlier attempt's number.
        let same = |view: &InstanceView| match &plan.starts {
            Some(_) => is_kept_for(plan, view),
            None => {
                view.client_token.as_deref() == Some(&plan.client_token)
                    && view.tags.attempt == plan.attempt
            }
        };
        Ok(views.into_iter().find(same))
    }

    /// The spot prices of an offer's pool from this time on; or why they are not known.
    ///
    /// When the cloud is too slow, or its prices are fixed.
    pub async fn spot_prices(
        &self,
        offer: &Offer,
        from: Timestamp,
        clock: &Clocks,
    ) -> Result<PriceHistory, String> {
        let asked = async { self.get(offer.cloud)?.spot_prices(offer, from).await };
        clock.within(PRICES_WITHIN, asked).await
    }

    /// Removes one piece of the owner's residue.
    ///
    /// # Errors
    /// When the cloud refuses, or the residue has another owner.
    pub async fn clear(&self, residue: &Residue) -> Result<(), CloudError> {
        if !residue.ours {
            return Err(CloudError::Invalid {
                what: format!("{} {} is not ours", residue.kind, residue.id),
            });
        }
        self.get(residue.cloud)?.clear(residue).await
    }
}
