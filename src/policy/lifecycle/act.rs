//! An action of the controller, as `reconcile` decides it.

use jiff::Timestamp;

use crate::instance::MachineRef;
use crate::job::{AttemptNo, CheckpointNo, Receipt, Settled};
use crate::market::Span;

#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    CreatePlan {
        attempt: AttemptNo,
        resume_from: Option<CheckpointNo>,
        reason: String,
    },
    Launch {
        attempt: AttemptNo,
    },
    /// The user asked for more time.
    RaiseKillAt {
        machine: MachineRef,
        kill_at: Timestamp,
    },
    Terminate {
        machine: MachineRef,
        /// The attempt that this ends, recorded first; `None`: the attempt is over, or its machine
        /// is ending.
        ends: Option<AttemptNo>,
        why: String,
    },
    /// The same for a machine whose disk must stay: it is stopped.
    Stop {
        machine: MachineRef,
        /// As in `Terminate`.
        ends: Option<AttemptNo>,
        why: String,
    },
    /// Arm the machine's alarm, or remove it while it cannot see the metrics.
    Guard {
        attempt: AttemptNo,
        machine: MachineRef,
        armed: bool,
    },
    /// The user asked for a rehearsal.
    Interrupt {
        attempt: AttemptNo,
        machine: MachineRef,
        notice: Span,
        request: u32,
    },
    Settle(Box<Settled>),
    WriteReceipt(Box<Receipt>),
    Wait {
        until: Option<Timestamp>,
        why: String,
    },
}

pub(crate) fn wait(why: String) -> Vec<Act> {
    vec![Act::Wait { until: None, why }]
}
