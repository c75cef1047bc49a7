//! The ports of a machine's agent that end at the machine itself: its clock, its metadata, its
//! power switch, its stacks.
//!
//! Not here: what the agent decides.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::active_faults::WorldFault;
use super::host::Host;
use super::process::SimProcess;
use crate::instance::Notice;
use crate::ports::{
    Clock, Identity, Metadata, MetadataError, Power, PowerError, PowerOff, Scope, Stacks,
};
use crate::sim::faults::planted_bugs::{self, Bug, KILL_AT_TAG};
use crate::sim::kernel::virtual_time::Timeline;

/// How long a power-off takes if each of its ways fails (`adapters::host::poweroff`).
const LADDER: Duration = Duration::from_secs(120);

/// The clock of the agent. It asks the process itself, because a wrapper doubles the cost of a
/// sleep, and an agent sleeps five times a second.
pub(crate) struct HostClock {
    pub(crate) host: Arc<Host>,
    pub(crate) process: Arc<SimProcess>,
}

#[async_trait]
impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        self.host.wall()
    }
    fn mono(&self) -> Duration {
        planted_bugs::steady(&self.host.world, || self.host.wall()).saturating_sub(self.host.life())
    }
    fn boot(&self) -> String {
        format!("{} of {}", self.host.boots.load(Ordering::Relaxed), self.host.booted())
    }
    async fn sleep(&self, time: Duration) {
        Timeline::sleep(&self.host.world.timeline, time).await;
        self.process.running().await;
    }
}

/// The machine's own ports.
pub struct Ports(pub Arc<Host>);

#[async_trait]
impl Metadata for Ports {
    async fn identity(&self) -> Result<Identity, MetadataError> {
        self.answers("tags/instance/").await?;
        let mut tags =
            self.0.world.ec2.with(&self.0.id, |machine| machine.tags.clone()).unwrap_or_default();
        if let Some(cap) = tags.get_mut(KILL_AT_TAG)
            && let Some(wrong) = planted_bugs::kill_at(&self.0.world, cap, self.0.booted())
        {
            *cap = wrong;
        }
        Ok(Identity { instance: self.0.id.clone(), tags, launched: self.0.booted() })
    }
    async fn notices(&self) -> Result<Vec<Notice>, MetadataError> {
        self.answers("spot/instance-action").await?;
        let is_read = self.0.world.planted() != Some(Bug::NoticesUnread);
        Ok(if is_read { self.0.state().notices.clone() } else { Vec::new() })
    }
}

impl Ports {
    async fn answers(&self, what: &str) -> Result<(), MetadataError> {
        if self.0.world.weather.is(WorldFault::MetadataDown) {
            self.0.world.timeline.sleep(Duration::from_millis(500)).await;
            return Err(MetadataError::Unavailable {
                what: what.into(),
                cause: "401 unauthorized".into(),
            });
        }
        Ok(())
    }

    async fn climbs_in_vain(&self) -> Result<(), PowerError> {
        self.0.world.timeline.sleep(LADDER).await;
        Err(PowerError::StillOn { what: "every rung of the ladder has failed".into() })
    }
}

#[async_trait]
impl Power for Ports {
    async fn off(&self, how: PowerOff, why: &str) -> Result<(), PowerError> {
        if self.0.power_fails() {
            return self.climbs_in_vain().await;
        }
        self.0.world.told(format_args!("{}: powers off ({how:?}): {why}", self.0.id));
        self.0
            .world
            .timeline
            .sleep(Duration::from_secs(self.0.world.dice.faults.pick(&[3, 6, 70])))
            .await;
        // A kernel that hangs meanwhile does not power off.
        self.0.kernel.running().await;
        if self.0.world.planted() != Some(Bug::PowerLost) {
            self.0.go_dark();
            // The power-off broke after the request (seed 47012046 of 24 h).
            if self.0.power_fails() {
                return self.climbs_in_vain().await;
            }
        }
        std::future::pending().await
    }
}

#[async_trait]
impl Stacks for Ports {
    async fn dump(&self, _: &Scope, _: usize) -> String {
        "all of them wait".into()
    }
}
