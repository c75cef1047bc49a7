//! The results of acts and ticks, and their errors.

use jiff::Timestamp;
use serde::Serialize;

use super::launch::agent_shipping::ShipError;
use crate::job::{JobId, Reason, Receipt};
use crate::jobdir::{JobDirError, RecordError};
use crate::market::Region;
use crate::policy::purchase::placement::NoOffer;
use crate::ports::CloudError;

/// Why an act was not done. The next tick tries again.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error(transparent)]
    Record(#[from] JobDirError),
    #[error(transparent)]
    Cloud(#[from] CloudError),
    #[error(transparent)]
    NoOffer(#[from] NoOffer),
    #[error(transparent)]
    Ship(#[from] ShipError),
    /// The rule for `market = "auto"` wants no machine now.
    #[error("no machine now; it waits for {}", .0.reason.text)]
    NotNow(NotNow),
    /// A machine's hard end is counted from its plan, so the clock must be right.
    #[error("{what}: nothing is launched until one of them is right")]
    ClockOff { what: String },
    /// The cloud can only terminate this machine, and its disk holds the only copy of the work.
    #[error("{0}")]
    Unstoppable(String),
    /// Every suitable place waits for a person; `none`: the other places do not fit now.
    #[error("{}", Unready::sentence(.none.as_ref(), .unready))]
    NotReady { none: Option<NoOffer>, unready: Vec<Unready> },
}

impl ActError {
    /// The credentials or permissions do not suffice.
    pub fn is_denial(&self) -> bool {
        matches!(self, ActError::Cloud(CloudError::Denied { .. }))
    }

    /// The cloud refused, and would refuse again.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            ActError::Cloud(
                CloudError::Denied { .. }
                    | CloudError::Invalid { .. }
                    | CloudError::NoImage { .. }
                    | CloudError::Unsupported { .. }
            )
        )
    }

    /// The region where the image is missing, and whether AWS publishes it elsewhere.
    pub fn missing_image(&self) -> Option<(&Region, bool)> {
        match self {
            ActError::Cloud(CloudError::NoImage { region, is_published, .. }) => {
                Some((region, *is_published))
            }
            _ => None,
        }
    }

    /// The call had no answer: its effect is unknown.
    pub fn is_silence(&self) -> bool {
        matches!(
            self,
            ActError::Cloud(CloudError::Ambiguous { .. } | CloudError::Throttled)
                | ActError::Record(_)
        )
    }
}

/// No machine is requested now.
#[derive(Clone, Debug, PartialEq)]
pub struct NotNow {
    /// The reason to wait; its text follows on "waits for".
    pub reason: Reason,
    /// At this time an on-demand machine is taken; `None`: there is no such time.
    pub until: Option<Timestamp>,
}

/// No launch can succeed in this region before the user mends something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Unready {
    #[cfg_attr(feature = "web", schema(value_type = String))]
    pub region: Region,
    pub because: String,
}

impl Unready {
    /// All of them in a sentence, after the other reason for no offer.
    pub(crate) fn sentence(none: Option<&NoOffer>, unready: &[Unready]) -> String {
        let none = none.map(ToString::to_string);
        let passed_over = unready
            .iter()
            .map(|unready| format!("{} is not ready: {}", unready.region, unready.because));
        none.into_iter().chain(passed_over).collect::<Vec<_>>().join("; ")
    }
}

/// The effect of one act.
pub enum ActEffect {
    /// Something changed: look again at once.
    Changed,
    /// Only a record was written: the cloud's last answer still holds.
    Recorded,
    /// The next tick continues.
    Waiting,
    /// The receipt is written.
    Final,
}

/// Why this controller stops driving a job.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error("job `{job}` is not in this job root")]
    NoJob { job: JobId },
    /// Written by a newer version: neither read nor changed.
    #[error("job `{job}` cannot be driven by this version")]
    Newer {
        job: JobId,
        #[source]
        cause: RecordError,
    },
    /// Its agent does everything itself; a machine for it would run the same command twice.
    #[error("`{job}` is a run of the agent alone: no controller drives it")]
    Alone { job: JobId },
}

/// The result of a tick.
#[derive(Debug)]
pub enum Ticked {
    /// The receipt is written.
    Final(Box<Receipt>),
    /// Look again after the usual time, or earlier at this moment of the steady clock.
    Active,
    /// Another controller's job, for this reason: only watched.
    Elsewhere(String),
    /// The store or the cloud gave no answer: the state is unknown, and no act was done.
    Unknown(ActError),
}
