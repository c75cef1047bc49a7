//! `ports::Cloud` on EC2: each method calls one file.
//!
//! `supply` is in `offers`; `prepare` in `launch_request`; `launch` in `launch`; `describe` in
//! `describe`; `guard` in `alarm`; `residue` in `residue`; `clear` in `residue_delete`. The rest is
//! in `terminate`: terminate, stop, start, tags. `errors` has one table of error codes. Not here: a
//! decision, or an error code outside of that table.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    alarm, describe, launch, launch_request, offers, regions, residue, residue_delete, spot_prices,
    terminate,
};
use crate::account::{ForeignMachine, Residue};
use crate::adapters::aws::account::foreign_instances;
use crate::adapters::aws::session::AwsSession;
use crate::instance::{InstanceView, MachineRef, OWNER_TAG};
use crate::job::{JobId, LaunchRequest, MachineSpec, Plan, Spec};
use crate::market::{self, Offer, PriceHistory, Region, Span, Supply};
use crate::ports::{Cloud, CloudError};

pub struct AwsCloud {
    session: Arc<AwsSession>,
}

impl AwsCloud {
    pub fn new(session: Arc<AwsSession>) -> Self {
        AwsCloud { session }
    }

    /// Later calls change the machine only if it still has the owner of its plan.
    fn remember_owner(&self, machine: MachineRef, plan: &Plan) {
        if let Some(owner) = plan.tags.get(OWNER_TAG) {
            self.session.memory.owners.put(machine, owner.clone());
        }
    }
}

#[async_trait]
impl Cloud for AwsCloud {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        regions::regions(&self.session).await
    }

    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let (supply, ()) = tokio::join!(
            offers::supply(&self.session, machine),
            launch_request::ahead(&self.session, machine)
        );
        supply
    }

    async fn prepare(
        &self,
        spec: &Spec,
        offer: &Offer,
    ) -> Result<Option<LaunchRequest>, CloudError> {
        launch_request::prepare(&self.session, spec, offer).await.map(Some)
    }

    fn known_unfit(&self, spec: &Spec, offer: &Offer) -> Option<String> {
        launch_request::known_unfit(&self.session, &spec.machine, offer)
    }

    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        let id = launch::launch(&self.session, plan).await?;
        self.remember_owner(
            MachineRef {
                cloud: market::CloudKind::Aws,
                region: plan.offer.region.clone(),
                id: id.clone(),
            },
            plan,
        );
        Ok(id)
    }

    async fn describe(
        &self,
        owner: &str,
        region: &Region,
    ) -> Result<Vec<InstanceView>, CloudError> {
        describe::describe(&self.session, owner, region).await
    }

    async fn confirm_missing(&self, plan: &Plan) -> Result<Option<InstanceView>, CloudError> {
        terminate::confirm_missing(&self.session, plan).await
    }

    async fn permitted(&self, plan: &Plan) -> Result<(), CloudError> {
        launch::permitted(&self.session, plan).await
    }

    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        terminate::terminate(&self.session, machine).await
    }

    async fn stop(&self, machine: &MachineRef) -> Result<(), CloudError> {
        terminate::stop(&self.session, machine).await
    }

    async fn start(&self, machine: &MachineRef, plan: &Plan) -> Result<(), CloudError> {
        // This process may not have seen the machine before, so the plan gives its owner.
        self.remember_owner(machine.clone(), plan);
        terminate::start(&self.session, machine, plan).await
    }

    async fn interrupt(&self, _machine: &MachineRef, _notice: Span) -> Result<(), CloudError> {
        Err(CloudError::Unsupported {
            cloud: "aws",
            act: "play an interruption; `lamp rehearse` plays one on this workstation",
        })
    }

    async fn raise_kill_at(
        &self,
        machine: &MachineRef,
        kill_at: Timestamp,
    ) -> Result<(), CloudError> {
        terminate::raise_kill_at(&self.session, machine, kill_at).await
    }

    async fn foreign(
        &self,
        owner: &str,
        region: &Region,
    ) -> Result<Vec<ForeignMachine>, CloudError> {
        foreign_instances::foreign(&self.session, owner, region).await
    }

    async fn guard(&self, plan: &Plan, machine: &MachineRef) -> Result<(), CloudError> {
        alarm::guard(&self.session, plan, machine).await
    }

    async fn unguard(&self, machine: &MachineRef) -> Result<(), CloudError> {
        alarm::unguard(&self.session, machine).await
    }

    async fn alarmed(&self, machine: &MachineRef) -> Result<Option<Timestamp>, CloudError> {
        alarm::alarmed(&self.session, machine).await
    }

    async fn failing_hosts(&self, region: &Region) -> Result<BTreeSet<String>, CloudError> {
        describe::failing_hosts(&self.session, region).await
    }

    async fn residue(&self, owner: &str, region: &Region) -> Result<Vec<Residue>, CloudError> {
        residue::residue(&self.session, owner, region).await
    }

    async fn residue_of(
        &self,
        owner: &str,
        region: &Region,
        job: &JobId,
        machines: &BTreeSet<String>,
    ) -> Result<Vec<Residue>, CloudError> {
        residue::residue_of(&self.session, owner, region, job, machines).await
    }

    async fn clear(&self, residue: &Residue) -> Result<(), CloudError> {
        residue_delete::clear(&self.session, residue).await
    }

    async fn spot_prices(
        &self,
        offer: &Offer,
        from: Timestamp,
    ) -> Result<PriceHistory, CloudError> {
        spot_prices::pool_history(&self.session, offer, from).await
    }

    async fn release(&self, machine: &MachineRef) -> Result<(), CloudError> {
        alarm::release(&self.session, machine).await
    }
}
