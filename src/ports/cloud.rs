//! A seller of machines.

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
    /// Not to be had here now: try the next placement.
    #[error("{refusal} for {what}")]
    NoCapacity { what: String, refusal: Refusal },
    /// Too many calls: the same call again, later.
    #[error("the cloud asks for fewer calls")]
    Throttled,
    /// Credentials or permissions.
    #[error("not allowed to {act}")]
    Denied {
        act: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer was lost: it may have happened. Repeat the same request and look.
    #[error("no answer to {act}")]
    Ambiguous {
        act: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The plan's token was used with another request: an error of ours, never the user's. `machine`: the one that it launched,
    /// which is this plan's; `None`: it is not shown yet, and a machine may be there all the same.
    #[error("{what}")]
    Mismatch { machine: Option<String>, what: String },
    /// The machine was ended, and what may launch another in its place could not be taken away.
    #[error("{machine} is ended, and may come back")]
    Relaunches {
        machine: String,
        #[source]
        cause: Box<CloudError>,
    },
    /// This machine is never stopped, only terminated, and its disk goes with it.
    #[error("{what}")]
    Unstoppable { what: String },
    /// The request can never work.
    #[error("{what}")]
    Invalid { what: String },
    /// This cloud cannot do that at all.
    #[error("the {cloud} cloud cannot {act}")]
    Unsupported { cloud: &'static str, act: &'static str },
}

impl CloudError {
    /// Whether nothing was taken because we could not say who we are: a person mends that, and then the same call is taken.
    pub fn is_unsigned(&self) -> bool {
        matches!(self, CloudError::Denied { .. }) && NoCredentials::among(self).is_some()
    }
}

#[async_trait]
pub trait Cloud: Send + Sync {
    /// Every region in which this account may have machines.
    async fn regions(&self) -> Result<Vec<Region>, CloudError>;

    /// What can be bought now that satisfies the requirement.
    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError>;

    /// What the launch of this offer needs beside it: image, network, role; the script of the first boot is not in it yet.
    /// `NoCapacity`: this offer cannot be launched, another may.
    /// `None`: nothing. Changes nothing, buys nothing.
    async fn prepare(&self, _spec: &Spec, _offer: &Offer) -> Result<Option<LaunchRequest>, CloudError> {
        Ok(None)
    }

    /// Why a machine of this offer can never be launched, as far as is remembered since [`Cloud::prepare`] was asked there. Asks nobody:
    /// `None` says only that nothing is known against it.
    fn known_unfit(&self, _spec: &Spec, _offer: &Offer) -> Option<String> {
        None
    }

    /// Whether this account may launch the machine of a plan, as far as the cloud says so without launching it.
    async fn permitted(&self, _plan: &Plan) -> Result<(), CloudError> {
        Ok(())
    }

    /// A job was submitted from this process. A cloud whose machines run here keeps what they will need of it.
    fn submitted(&self, _spec: &ResolvedSpec) {}

    /// The receipt of a job is written: nothing of it is needed here any more.
    fn settled(&self, _job: &JobId) {}

    /// Launches the machine of a plan and gives its id. Idempotent by the plan's client token: the same plan again gives
    /// the same machine. [`CloudError::Mismatch`]: it was launched by another request, and is the plan's all the same.
    async fn launch(&self, plan: &Plan) -> Result<String, CloudError>;

    /// Every machine of this owner in a region, terminated ones too while the cloud still shows them. An error means
    /// *unknown*.
    async fn describe(&self, owner: &str, region: &Region) -> Result<Vec<InstanceView>, CloudError>;

    /// Of a plan whose machine [`Cloud::describe`] did not show: an error when it may be there all the same, and cannot be
    /// read. One such machine is unknown to its own job, and says nothing of the others. One that has ended and lost its tags,
    /// as a cloud takes them off after some time, is given with those of its plan.
    async fn confirm_missing(&self, _plan: &Plan) -> Result<Option<InstanceView>, CloudError> {
        Ok(None)
    }

    /// Ends a machine for good. A machine that is already gone is success. The caller has read the owner tag in the same
    /// decision.
    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError>;

    /// Stops a machine and keeps its disk; only what was bought on demand.
    async fn stop(&self, machine: &MachineRef) -> Result<(), CloudError> {
        Err(CloudError::Unsupported { cloud: machine.cloud.word(), act: "stop a machine and keep its disk" })
    }

    /// Starts a stopped machine again, with the hard cap of its new attempt.
    async fn start(&self, machine: &MachineRef, _plan: &Plan) -> Result<(), CloudError> {
        Err(CloudError::Unsupported { cloud: machine.cloud.word(), act: "start a stopped machine" })
    }

    /// Serves an interruption notice, for rehearsals. A second one replaces the first.
    async fn interrupt(&self, machine: &MachineRef, notice: Span) -> Result<(), CloudError>;

    /// Raises the hard cap on a machine's life, which the user has asked for in words. Never lowers it.
    async fn raise_kill_at(&self, machine: &MachineRef, kill_at: Timestamp) -> Result<(), CloudError>;

    /// Arms what watches the machine from outside (switch C). Idempotent; nothing to arm is success.
    async fn guard(&self, _plan: &Plan, _machine: &MachineRef) -> Result<(), CloudError> {
        Ok(())
    }

    /// Takes off what [`Cloud::guard`] armed, of a machine that goes on. Idempotent; what is not there is success.
    async fn unguard(&self, _machine: &MachineRef) -> Result<(), CloudError> {
        Ok(())
    }

    /// When what [`Cloud::guard`] armed has ended this machine; `None`: it has not. An error means *unknown*.
    async fn alarmed(&self, _machine: &MachineRef) -> Result<Option<Timestamp>, CloudError> {
        Ok(None)
    }

    /// Machines in a region of which the cloud itself says that their host fails: it has no power, no network, or broken hardware.
    /// Anybody's; an error means *unknown*.
    async fn failing_hosts(&self, _region: &Region) -> Result<BTreeSet<String>, CloudError> {
        Ok(BTreeSet::new())
    }

    /// The prices that held for a spot machine of this offer from a moment on, with the one that held then: they move while it
    /// runs, and it is billed by them.
    async fn spot_prices(&self, offer: &Offer, _from: Timestamp) -> Result<PriceHistory, CloudError> {
        Err(CloudError::Unsupported { cloud: offer.cloud.word(), act: "tell what spot machines cost" })
    }

    /// The attempt is settled: what was kept of the ended machine only to settle it, and what watched it, may go.
    async fn release(&self, machine: &MachineRef) -> Result<(), CloudError>;

    /// What is left of an owner's machines in a region and bills or waits.
    async fn residue(&self, _owner: &str, _region: &Region) -> Result<Vec<Residue>, CloudError> {
        Ok(Vec::new())
    }

    /// The same of one job that ends, whose machines these were: it is asked for each job, so that it must not grow with what else
    /// the owner has there. More than that may be given: who asks keeps what is the job's.
    async fn residue_of(&self, owner: &str, region: &Region, _job: &JobId, _machines: &BTreeSet<String>) -> Result<Vec<Residue>, CloudError> {
        self.residue(owner, region).await
    }

    /// GPU machines that bill and do not carry this owner's tags, nor any of ours. For looking at: nothing is ever done to them.
    async fn foreign(&self, _owner: &str, _region: &Region) -> Result<Vec<ForeignMachine>, CloudError> {
        Ok(Vec::new())
    }

    /// Removes one piece of residue of ours.
    async fn clear(&self, _residue: &Residue) -> Result<(), CloudError> {
        Ok(())
    }
}
