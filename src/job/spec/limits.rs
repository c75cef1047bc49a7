//! When a job must end, whatever it does, and how long its machine may be silent.
//!
//! What must never live here: when that is for one machine (`policy::purchase::hard_end`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::market::{Span, Usd, is_bare_metal};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsSpec {
    /// Of one attempt, from its launch on. The hard cap of its machine is five minutes later.
    pub max_runtime: Option<Span>,
    /// Over all attempts.
    pub budget: Option<Usd>,
    /// Wall clock by which the job must have ended.
    pub deadline: Option<Timestamp>,
    /// How long the whole job works on such a machine, for `market = "auto"`. `None`: what its progress says.
    pub work: Option<Span>,
    /// How long the setup script may run, each time it does.
    pub setup: Span,
    /// How long a machine may live without a heartbeat.
    pub lease: Span,
    /// How long a machine may live before its agent has said a word.
    pub boot: Span,
}

impl Default for LimitsSpec {
    fn default() -> Self {
        LimitsSpec { max_runtime: None, budget: None, deadline: None, work: None, setup: SETUP, lease: LEASE, boot: BOOT }
    }
}

impl LimitsSpec {
    /// Of a job none of whose limits bounds a machine: what is said of it, after its name.
    pub const UNBOUND: &'static str = "has no `max_runtime`, no `budget` and no `deadline`";

    /// Whether one of them ends a machine whatever it does: each machine that is bought has a hard cap.
    pub fn bound_a_machine(&self) -> bool {
        self.max_runtime.is_some() || self.budget.is_some() || self.deadline.is_some()
    }

    /// How long a machine of this type may live before its agent has said a word. Another time than the default, 15 minutes, holds for every type.
    pub fn boot_of(&self, instance_type: &str) -> Span {
        if self.boot == BOOT && is_bare_metal(instance_type) { BOOT_BARE_METAL } else { self.boot }
    }
}

/// An hour. The longest setups build flash-attention or a CUDA extension, or fetch hundreds of GB: 20 to 50 minutes. Shorter ends
/// those; longer pays for one that waits for an answer that never comes.
pub const SETUP: Span = Span::from_secs(3600);

/// The right to run an attempt lasts this long without a heartbeat. A hundred and twenty missed ones: shorter ends a healthy
/// machine behind a broken line, longer lets a dead one bill.
pub const LEASE: Span = Span::from_secs(30 * 60);

/// The shortest and the longest lease. Eight heartbeats in a row must be lost in two minutes, and the client of the store gives
/// up a call after 20 s: shorter, and one slow answer ends a machine. Longer than a day is no lease.
pub const LEASE_BOUNDS: (Span, Span) = (Span::from_secs(2 * 60), Span::from_secs(24 * 3600));

/// A machine whose agent has not taken its lease by then never will. A boot takes one to three minutes and the download seconds;
/// shorter ends slow images, longer bills a machine on which nothing runs.
pub const BOOT: Span = Span::from_secs(15 * 60);

/// The same of bare metal, whose firmware tests the whole computer first: EC2 says "up to 20 minutes", and large ones take longer.
pub const BOOT_BARE_METAL: Span = Span::from_secs(35 * 60);

/// The shortest and the longest time for a boot. A small machine from a plain image is up in a minute; an hour is for one that
/// first unpacks a disk of hundreds of GB.
pub const BOOT_BOUNDS: (Span, Span) = (Span::from_secs(2 * 60), Span::from_secs(3600));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_metal_has_longer_to_boot_unless_the_job_says_how_long() {
        let limits = LimitsSpec::default();
        for (kind, boot) in [("g4dn.metal", BOOT_BARE_METAL), ("i4i.metal-24xl", BOOT_BARE_METAL), ("g5.xlarge", BOOT), ("local", BOOT)] {
            assert_eq!(limits.boot_of(kind), boot, "{kind}");
        }
        let said = Span::from_secs(300);
        assert_eq!(LimitsSpec { boot: said, ..limits }.boot_of("g4dn.metal"), said);
    }
}
