//! The controller: its parts, and its ports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::clocks::Clocks;
use super::cloud_answers::{Answers, CloudRegion};
use super::clouds::Clouds;
use super::launch::agent_shipping::Shipper;
use super::launch::current_caps::CapsInForce;
use super::launch::launcher::JobLauncher;
use super::launch::scheduled_runs::ScheduleRunner;
use super::launch::spending_cap::CapCheck;
use super::notify::notifier::JobNotifier;
use super::settle::settler::Settler;
use super::sweep::sweeper::OrphanSweeper;
use crate::market::{self, Zone};
use crate::policy::purchase::spending_cap::Caps;
use crate::ports::{Clock, Cloud, Notifier, Store, Turns};

/// Drives jobs of one job root. Use one per loop.
pub struct Controller {
    pub(super) store: Arc<dyn Store>,
    pub(super) clouds: Clouds,
    pub(super) clock: Clocks,
    /// For people: the author of a record.
    pub(super) name: String,
    pub(super) launcher: JobLauncher,
    pub(super) settler: Settler,
    pub(super) sweeper: OrphanSweeper,
    pub(super) notifier: JobNotifier,
    pub(super) schedules: ScheduleRunner,
    /// Since when no round has succeeded, by the steady clock.
    troubled: Mutex<Option<Duration>>,
}

impl Controller {
    /// `clouds`: those that this controller can drive, by the word in offers. `here`: this
    /// workstation as a zone of the local cloud.
    pub fn new(
        store: Arc<dyn Store>,
        clouds: BTreeMap<market::CloudKind, Arc<dyn Cloud>>,
        clock: Arc<dyn Clock>,
        owner: String,
        name: String,
        here: Zone,
    ) -> Self {
        let clouds = Clouds::new(clouds, &owner, here);
        let clock = Clocks::new(clock, Arc::clone(&store));
        Controller {
            launcher: JobLauncher::new(&store, &clouds, &clock, &name),
            settler: Settler::new(&store, &clouds, &clock, &name),
            sweeper: OrphanSweeper::new(&store, &clouds, &clock, &name),
            notifier: JobNotifier::new(&store, &clouds, &clock, &name),
            schedules: ScheduleRunner::new(&store, &clouds, &clock, &name),
            store,
            clouds,
            clock,
            name,
            troubled: Mutex::default(),
        }
    }

    /// Sends notifications to the user.
    #[must_use]
    pub fn notifying(mut self, notifier: Arc<dyn Notifier>) -> Self {
        self.notifier.port = Some(notifier);
        self
    }

    /// Ships the agent to machines that come without it.
    #[must_use]
    pub fn shipping(mut self, shipper: Shipper) -> Self {
        self.launcher.shipper = Some(shipper);
        self
    }

    /// Checks these caps before each launch.
    #[must_use]
    pub fn capped(self, caps: Caps) -> Self {
        self.capped_by(Arc::new(CapsInForce::fixed(caps)))
    }

    /// Checks the caps that are in force at each launch.
    #[must_use]
    pub fn capped_by(mut self, caps: Arc<CapsInForce>) -> Self {
        self.launcher.caps.set(caps);
        self
    }

    /// Takes turns with these before a launch that a cap may hold back.
    #[must_use]
    pub fn taking_turns(mut self, turns: Arc<dyn Turns>) -> Self {
        self.launcher.caps.take_turns(turns);
        self
    }

    /// Lets each of these, one for each job root of a process, count the costs of all of them.
    pub fn count_together(controllers: &mut [&mut Controller]) {
        let mut checks: Vec<&mut CapCheck> =
            controllers.iter_mut().map(|one| &mut one.launcher.caps).collect();
        CapCheck::count_together(&mut checks);
    }

    /// The clouds' answers about the owner's machines in these places, asked all at once.
    pub async fn describe(&self, places: BTreeSet<CloudRegion>) -> Answers {
        self.clouds.describe(places, self.clock.mono()).await
    }

    pub(super) fn note_trouble(&self, is_there: bool) {
        let mut troubled = self.troubled.lock().expect("the holder only reads or sets it");
        *troubled = is_there.then(|| troubled.unwrap_or_else(|| self.clock.mono()));
    }

    /// How long no round of [`Controller::drive_all`] has succeeded: the job root failed or denied.
    pub fn troubled_for(&self) -> Duration {
        let troubled = self.troubled.lock().expect("the holder only reads or sets it");
        troubled.map_or(Duration::ZERO, |since| self.clock.mono().saturating_sub(since))
    }
}
