//! When a job must end, and how long its machine may be silent.
//!
//! `policy::purchase::hard_end` computes the end of one machine.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::market::{Span, Usd, is_bare_metal};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsSpec {
    /// For one attempt, from its launch. The machine's hard end is five minutes later.
    pub max_runtime: Option<Span>,
    /// For all attempts together.
    pub budget: Option<Usd>,
    /// The job must have ended by this time.
    pub deadline: Option<Timestamp>,
    /// How long the whole job works on such a machine, for `market = "auto"`. `None`: taken from
    /// its progress.
    pub work: Option<Span>,
    /// How long each run of the setup script may take.
    pub setup: Span,
    /// How long a machine may run without a heartbeat.
    pub lease: Span,
    /// How long a machine may run before its agent's first heartbeat.
    pub boot: Span,
}

impl Default for LimitsSpec {
    fn default() -> Self {
        LimitsSpec {
            max_runtime: None,
            budget: None,
            deadline: None,
            work: None,
            setup: SETUP,
            lease: LEASE,
            boot: BOOT,
        }
    }
}

impl LimitsSpec {
    /// The message about a job without a limit on its machines, after its name.
    pub const UNBOUND: &'static str = "has no `max_runtime`, no `budget` and no `deadline`";

    /// Whether a limit ends the machine in any case: each bought machine has a hard end.
    pub fn bound_a_machine(&self) -> bool {
        self.max_runtime.is_some() || self.budget.is_some() || self.deadline.is_some()
    }

    /// How long a machine of this type may run before its agent's first heartbeat. A value other
    /// than the default of 15 minutes holds for every type.
    pub fn boot_of(&self, instance_type: &str) -> Span {
        if self.boot == BOOT && is_bare_metal(instance_type) { BOOT_BARE_METAL } else { self.boot }
    }
}

/// An hour. The longest setups take 20 to 50 minutes: building flash-attention or a CUDA extension,
/// or fetching hundreds of GB. Less ends those; more pays for a setup that waits for ever.
pub const SETUP: Span = Span::from_secs(3600);

/// 30 minutes, a hundred and twenty missed heartbeats. Less ends a healthy machine behind a broken
/// line; more lets a failed machine bill.
pub const LEASE: Span = Span::from_secs(30 * 60);

/// The shortest and longest lease. In two minutes eight heartbeats in a row must be lost, and the
/// store's client gives up a call after 20 s. With less, one slow answer ends a machine. More than
/// a day is not a lease.
pub const LEASE_BOUNDS: (Span, Span) = (Span::from_secs(2 * 60), Span::from_secs(24 * 3600));

/// A boot takes one to three minutes and the download seconds. Less ends slow images; more bills a
/// machine whose agent never starts.
pub const BOOT: Span = Span::from_secs(15 * 60);

/// For bare metal. Its firmware tests the whole computer first: EC2 says "up to 20 minutes", and
/// large machines take longer.
pub const BOOT_BARE_METAL: Span = Span::from_secs(35 * 60);

/// The shortest and longest time for a boot. A small machine with a plain image boots in a minute.
/// An hour allows for unpacking a disk of hundreds of GB.
pub const BOOT_BOUNDS: (Span, Span) = (Span::from_secs(2 * 60), Span::from_secs(3600));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_metal_has_longer_to_boot_unless_the_job_says_how_long() {
        let limits = LimitsSpec::default();
        for (kind, boot) in [
            ("g4dn.metal", BOOT_BARE_METAL),
            ("i4i.metal-24xl", BOOT_BARE_METAL),
            ("g5.xlarge", BOOT),
            ("local", BOOT),
        ] {
            assert_eq!(limits.boot_of(kind), boot, "{kind}");
        }
        let said = Span::from_secs(300);
        assert_eq!(LimitsSpec { boot: said, ..limits }.boot_of("g4dn.metal"), said);
    }
}
