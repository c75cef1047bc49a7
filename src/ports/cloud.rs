//! A cloud that sells machines.

use std::collections::BTreeSet;

use async_trait::async_trait;
use jiff::Timestamp;

use super::NoCredentials;
use crate::account::{ForeignMachine, Residue};
use crate::instance::{InstanceView, MachineRef};
use crate::job::{JobId, LaunchRequest, MachineSpec, Plan, Refusal, ResolvedSpec, Spec};
use crate::market::{Offer, PriceHistory, Region, Span, Supply};

#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// No capacity here now: try the next placement.
    #[error("{refusal} for {what}")]
    NoCapacity { what: String, refusal: Refusal },
    /// Too many calls: repeat this call later.
    #[error("the cloud asks for fewer calls")]
    Throttled,
    /// Credentials or permissions are missing.
    #[error("not allowed to {act}")]
    Denied {
        act: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The reply was lost: the call may have worked. Repeat the same request, then look.
    #[error("no answer to {act}")]
    Ambiguous {
        act: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The plan's token was used with a different request: a bug of lamp. `machine`: the machine
    /// launched with it, which belongs to the plan. `None`: not visible yet, but it may exist.
    #[error("{what}")]
    Mismatch { machine: Option<String>, what: String },
    /// The machine was terminated, but what may relaunch it could not be removed.
    #[error("{machine} is ended, and may come back")]
    Relaunches {
        machine: String,
        #[source]
        cause: Box<CloudError>,
    },
    /// This machine cannot be stopped, only terminated, and its disk is deleted then.
    #[error("{what}")]
    Unstoppable { what: String },
    /// This request will always fail.
    #[error("{what}")]
    Invalid { what: String },
    /// The image is missing, or belongs to another account. `is_published`: AWS publishes it.
    #[error("`machine.image`: {what}")]
    NoImage { what: String, region: Region, is_published: bool },
    #[error("the {cloud} cloud cannot {act}")]
    Unsupported { cloud: &'static str, act: &'static str },
}

impl CloudError {
    /// Whether the call failed for lack of credentials. After the user signs in, it works.
    pub fn is_unsigned(&self) -> bool {
        matches!(self, CloudError::Denied { .. }) && NoCredentials::among(self).is_some()
    }
}

#[async_trait]
pub trait Cloud: Send + Sync {
    async fn regions(&self) -> Result<Vec<Region>, CloudError>;

    /// The offers that satisfy the requirement now.
    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError>;

    /// The other needs of a launch of this offer: image, network, role. The user data comes later.
    /// Only reads. `None`: nothing more is needed. `NoCapacity`: this offer cannot be launched,
    /// another one may work.
    async fn prepare(
        &self,
        _spec: &Spec,
        _offer: &Offer,
    ) -> Result<Option<LaunchRequest>, CloudError> {
        Ok(None)
    }

    /// Why a machine of this offer can never be launched, as [`Cloud::prepare`] found. Sends no
    /// request.
    fn known_unfit(&self, _spec: &Spec, _offer: &Offer) -> Option<String> {
        None
    }

    /// Whether this account may launch the plan's machine, as far as the cloud tells without a
    /// launch.
    async fn permitted(&self, _plan: &Plan) -> Result<(), CloudError> {
        Ok(())
    }

    /// A job was submitted from this process. The local cloud keeps what its machines will need.
    fn submitted(&self, _spec: &ResolvedSpec) {}

    /// The receipt of a job is written: what [`Cloud::submitted`] kept may go.
    fn settled(&self, _job: &JobId) {}

    /// Launches the machine of a plan and returns its id. The plan's client token makes it
    /// idempotent: the same plan returns the same machine. [`CloudError::Mismatch`]: another
    /// request launched it, but it belongs to the plan.
    ///
    /// A plan with `gang` of rank 0 launches the machines of all ranks, or as many as there are, or
    /// none. The plan of another rank only finds its machine. Without one it is
    /// [`CloudError::Ambiguous`], or [`CloudError::NoCapacity`] if the launch made none for it.
    async fn launch(&self, plan: &Plan) -> Result<String, CloudError>;

    /// Every machine of this owner in a region, also terminated ones while the cloud shows them. An
    /// error means *unknown*.
    async fn describe(&self, owner: &str, region: &Region)
    -> Result<Vec<InstanceView>, CloudError>;

    /// Looks for a plan's machine that [`Cloud::describe`] did not show. An error: it may exist but
    /// cannot be read. The cloud removes the tags of a terminated machine, so it is returned with
    /// the plan's tags.
    async fn confirm_missing(&self, _plan: &Plan) -> Result<Option<InstanceView>, CloudError> {
        Ok(None)
    }

    /// Terminates a machine. Success if it is already gone. The caller has checked the owner tag.
    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError>;

    /// Stops an on-demand machine and keeps its disk.
    async fn stop(&self, machine: &MachineRef) -> Result<(), CloudError> {
        Err(CloudError::Unsupported {
            cloud: machine.cloud.word(),
            act: "stop a machine and keep its disk",
        })
    }

    /// Starts a stopped machine again, with the hard cap of its new attempt.
    async fn start(&self, machine: &MachineRef, _plan: &Plan) -> Result<(), CloudError> {
        Err(CloudError::Unsupported { cloud: machine.cloud.word(), act: "start a stopped machine" })
    }

    /// Sends an interruption notice, for rehearsals. A second one replaces the first.
    async fn interrupt(&self, machine: &MachineRef, notice: Span) -> Result<(), CloudError>;

    /// Raises the hard cap on a machine's run time at the user's request. Never lowers it.
    async fn raise_kill_at(
        &self,
        machine: &MachineRef,
        kill_at: Timestamp,
    ) -> Result<(), CloudError>;

    /// Sets up the alarm that watches the machine from outside (switch C). Idempotent.
    async fn guard(&self, _plan: &Plan, _machine: &MachineRef) -> Result<(), CloudError> {
        Ok(())
    }

    /// Removes what [`Cloud::guard`] set up, from a machine that keeps running. Idempotent.
    async fn unguard(&self, _machine: &MachineRef) -> Result<(), CloudError> {
        Ok(())
    }

    /// When the alarm of [`Cloud::guard`] terminated this machine. `None`: it did not. An error
    /// means *unknown*.
    async fn alarmed(&self, _machine: &MachineRef) -> Result<Option<Timestamp>, CloudError> {
        Ok(None)
    }

    /// Machines in a region, of all owners, whose host fails: power, network or hardware. An error
    /// means *unknown*.
    async fn failing_hosts(&self, _region: &Region) -> Result<BTreeSet<String>, CloudError> {
        Ok(BTreeSet::new())
    }

    /// The spot prices of this offer from a moment on, with the price at that moment. The bill uses
    /// them.
    async fn spot_prices(
        &self,
        offer: &Offer,
        _from: Timestamp,
    ) -> Result<PriceHistory, CloudError> {
        Err(CloudError::Unsupported {
            cloud: offer.cloud.word(),
            act: "tell what spot machines cost",
        })
    }

    /// The attempt is settled: removes what was kept of the ended machine, and its watchers.
    async fn release(&self, machine: &MachineRef) -> Result<(), CloudError>;

    /// The remaining resources of an owner in a region that cost money or wait.
    async fn residue(&self, _owner: &str, _region: &Region) -> Result<Vec<Residue>, CloudError> {
        Ok(Vec::new())
    }

    /// The same for the machines of one ended job. Called once per job, so its cost must not grow
    /// with the owner's other resources. It may return more: the caller keeps what belongs to the
    /// job.
    async fn residue_of(
        &self,
        owner: &str,
        region: &Region,
        _job: &JobId,
        _machines: &BTreeSet<String>,
    ) -> Result<Vec<Residue>, CloudError> {
        self.residue(owner, region).await
    }

    /// GPU machines that bill, without tags of this owner or of lamp. Only to show: lamp never
    /// changes them.
    async fn foreign(
        &self,
        _owner: &str,
        _region: &Region,
    ) -> Result<Vec<ForeignMachine>, CloudError> {
        Ok(Vec::new())
    }

    async fn clear(&self, _residue: &Residue) -> Result<(), CloudError> {
        Ok(())
    }
}
