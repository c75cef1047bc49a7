//! The judge's facts about checkpoints: how long the oldest one waits for its upload, and the state
//! of the work at a notice of the cloud.
//!
//! Not here: how long an upload may take, and what must be saved after a notice (`super::saves`).

use std::sync::Arc;
use std::time::Duration;

use super::observer::Judge;
use crate::policy::lifecycle::checkpoint_rollback::GOES_BACK_MAX;
use crate::sim::world::host::Host;
use crate::sim::world::workload::{Start, Truth};
use crate::sim::world::world::World;

/// A restarted agent checks all files again, and may doubt files that were begun before it.
const SETTLED: Duration = Duration::from_secs(600);

/// How long after its end a fault of the store or the metadata service still counts. Agents ask the
/// metadata service every few seconds.
const LATELY: Duration = Duration::from_secs(90);

/// The state of the work when the cloud gave notice.
pub(crate) struct Noticed {
    pub since: Duration,
    pub ahead: Duration,
    start: Arc<Start>,
    pub step: u64,
}

impl Judge {
    /// Called for each minute of a machine that bills. Counts the minutes in a row while its agent
    /// could upload the oldest whole checkpoint.
    pub(crate) fn count_saves(&mut self, world: &World, id: &str, over: bool) {
        let Some(host) = world.ec2.with(id, |machine| machine.host.clone()).flatten() else {
            return;
        };
        let now = world.timeline.now();
        // A checkpoint from before this start may be doubted until it is written again (seed
        // 47002696 of 24 h).
        let own = |truth: Truth| {
            truth
                .saved
                .map(|(step, _)| step)
                .filter(|step| *step > truth.step.saturating_sub(truth.steps))
        };
        let saved = working(&host).and_then(|start| own(start.truth()));
        let unkept = saved.filter(|step| self.landed.is_none_or(|kept| kept < *step));
        let is_cut = world.is_cut_alone(id, now.saturating_sub(SETTLED));
        let is_calm = !is_cut && self.is_calm(&host, now, SETTLED);
        let Some(step) = unkept.filter(|_| !over && is_calm) else {
            self.unkept.remove(id);
            return;
        };
        let (oldest, minutes) = self.unkept.entry(id.to_owned()).or_insert((step, 0));
        if self.landed.is_some_and(|kept| kept >= *oldest) {
            (*oldest, *minutes) = (step, 0);
        }
        *minutes += 1;
    }

    /// The cloud gives a machine notice: it takes the machine after `ahead`.
    pub(crate) fn take_note_of_notice(&mut self, world: &World, host: &Host, ahead: Duration) {
        let now = world.timeline.now();
        let Some(start) = working(host) else { return };
        let truth = start.truth();
        let works = truth.steps > 0 && truth.hung_since.is_none() && truth.quiet_since.is_none();
        let attempt =
            world.ec2.with(&host.id, crate::sim::world::machines::SimMachine::attempt).flatten();
        let over = attempt.is_some_and(|attempt| self.outcomes.contains_key(&attempt));
        let wished = self.wished(attempt.unwrap_or_default()).wish;
        let can_save = world.habit.saves_when_asked && works && !over && wished.is_none();
        // A second notice does not delay the first (seed 48000245 of 24 h).
        let goes_sooner = |first: &Noticed| {
            Arc::ptr_eq(&first.start, &start)
                && (now..now + ahead).contains(&(first.since + first.ahead))
        };
        if self.noticed.get(&host.id).is_some_and(goes_sooner) {
            return;
        }
        let is_cut = world.is_cut_alone(&host.id, now.saturating_sub(LATELY));
        if can_save && !is_cut && self.is_calm(host, now, LATELY) {
            self.noticed
                .insert(host.id.clone(), Noticed { since: now, ahead, start, step: truth.step });
        } else {
            self.noticed.remove(&host.id);
        }
    }

    /// A start that failed before its first step may have a bad checkpoint. The next start may use
    /// an older one, twice at most.
    pub(crate) fn take_note_of_start(&mut self, host: &Host, start: &Start, step: u64) {
        if self.committed.is_none_or(|committed| step >= committed) {
            return;
        }
        let state = host.state();
        let before = state
            .starts
            .iter()
            .rev()
            .find(|other| !other.is_setup() && !std::ptr::eq(&***other, start));
        let times = self.went_back.entry(host.id.clone()).or_default();
        if before.is_some_and(|before| before.failed_at_once()) && *times < GOES_BACK_MAX {
            *times += 1;
            self.committed = Some(step);
        }
    }

    /// The state at the notice, if no fault came between it and now.
    pub(crate) fn was_noticed(&self, world: &World, id: &str) -> Option<&Noticed> {
        let noticed = self.noticed.get(id)?;
        let host = world.ec2.with(id, |machine| machine.host.clone())??;
        let now = world.timeline.now();
        let state = host.state();
        let same = state.starts.last().is_some_and(|start| Arc::ptr_eq(start, &noticed.start))
            && noticed.start.truth().hung_since.is_none();
        let lived = state.last_death.is_none_or(|died| died < noticed.since);
        let attempt = world
            .ec2
            .with(id, crate::sim::world::machines::SimMachine::attempt)
            .flatten()
            .filter(|attempt| !self.outcomes.contains_key(attempt));
        let attempt = attempt.as_ref();
        let beats = attempt
            .and_then(|attempt| self.beats.get(attempt))
            .is_some_and(|(heard, ..)| now.saturating_sub(*heard) < LATELY);
        let calm =
            !self.was_ill_since(noticed.since) && !host.disk.is_full() && host.knows_the_time();
        let wished = self.wished(attempt.copied().unwrap_or_default()).wish;
        (same && lived && beats && calm && wished.is_none()).then_some(noticed)
    }

    /// Whether no fault hinders an agent, now or within `lately`. The faults of this deed are noted
    /// first.
    fn is_calm(&self, host: &Host, now: Duration, lately: Duration) -> bool {
        let state = host.state();
        let agent =
            state.agent.as_ref().is_some_and(|agent| agent.is_running()) && state.crash_loop == 0;
        let lived = state.last_death.is_none_or(|died| now.saturating_sub(died) > lately);
        let was_ill = self.was_ill_since(now.saturating_sub(lately));
        agent
            && lived
            && !was_ill
            && host.kernel.is_running()
            && !host.disk.is_full()
            && host.knows_the_time()
    }
}

/// The running work, without a setup.
pub(crate) fn working(host: &Host) -> Option<Arc<Start>> {
    host.state().starts.last().filter(|start| !start.is_over() && !start.is_setup()).map(Arc::clone)
}
