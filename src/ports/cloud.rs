//! A seller of machines.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::instance::InstanceView;
use crate::job::{MachineSpec, Plan};
use crate::market::{Offer, Span};

#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// None to be had here now: try the next placement.
    #[error("no capacity for {what}")]
    NoCapacity { what: String },
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
    /// The request can never work.
    #[error("{what}")]
    Invalid { what: String },
    /// This cloud cannot do that at all.
    #[error("the {cloud} cloud cannot {act}")]
    Unsupported { cloud: &'static str, act: &'static str },
}

#[async_trait]
pub trait Cloud: Send + Sync {
    /// What can be bought now that satisfies the requirement.
    async fn offers(&self, machine: &MachineSpec) -> Result<Vec<Offer>, CloudError>;

    /// Launches the machine of a plan and gives its id. Idempotent by the plan's client token: the same plan again gives
    /// the same machine.
    async fn launch(&self, plan: &Plan) -> Result<String, CloudError>;

    /// Every machine of this owner, terminated ones too while the cloud still shows them. An error means *unknown*.
    async fn describe(&self, owner: &str) -> Result<Vec<InstanceView>, CloudError>;

    /// Of a plan whose machine [`Cloud::describe`] did not show: an error when it may be there all the same, and cannot be
    /// read. One such machine is unknown to its own job, and says nothing of the others.
    async fn confirm_missing(&self, _plan: &Plan) -> Result<(), CloudError> {
        Ok(())
    }

    /// Ends a machine for good. A machine that is already gone is success. The caller has read the owner tag in the same
    /// decision.
    async fn terminate(&self, instance: &str) -> Result<(), CloudError>;

    /// Serves an interruption notice, for rehearsals. A second one replaces the first.
    async fn interrupt(&self, instance: &str, notice: Span) -> Result<(), CloudError>;

    /// Raises the hard cap on a machine's life, which the user has asked for in words. Never lowers it.
    async fn raise_kill_at(&self, instance: &str, kill_at: Timestamp) -> Result<(), CloudError>;

    /// The attempt is settled: what was kept of the ended machine only to settle it may go.
    async fn release(&self, instance: &str) -> Result<(), CloudError>;
}
