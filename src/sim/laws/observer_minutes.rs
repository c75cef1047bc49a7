//! The minutes that the judge counts for each machine: without use, beyond the cap, with an unread
//! wish, and without a party that could act.
//!
//! Not here: how many of them break a law (`super::ends`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;

use super::observer::{Judge, PAST_CAP_MINUTES, Useless};
use super::observer_saves::working;
use crate::instance::Tags;
use crate::sim::kernel::virtual_time::at;
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::host::BOOT_TTL;
use crate::sim::world::machines::SimMachine;
use crate::sim::world::workload::Truth;
use crate::sim::world::world::{OWNER, Which, World};

/// From the launch to the boot, when user data sets the deadline.
const MISTOLD: Duration = Duration::from_secs(60);

/// How long a machine has for its first heartbeat.
const BOOT_MINUTES: u32 = 15;

/// From one visit of the sweeper to the next, and the second check.
const VISIT_MINUTES: u32 = 6;

/// Faults that hinder an agent from reading a wish, and those that also hinder a workstation from
/// ending a machine.
pub(crate) const AGENTS_TROUBLES: [WorldFault; 5] = [
    WorldFault::StoreDown,
    WorldFault::StoreLossy,
    WorldFault::StoreStale,
    WorldFault::MachineOffline,
    WorldFault::RoleGone,
];
const WORKSTATIONS_TROUBLES: [WorldFault; 5] = [
    WorldFault::LaptopOffline,
    WorldFault::SignedOut,
    WorldFault::Ec2Down,
    WorldFault::Ec2Throttled,
    WorldFault::Ec2Lossy,
];

/// A workstation that called Describe within this time is awake.
const AWAKE: Duration = Duration::from_secs(120);

/// An agent that runs for so long does not count as a crash loop.
const GROWN: Duration = Duration::from_secs(600);

/// The steps after which the pace is known.
const PACE_STEPS: u64 = 5;

impl Judge {
    pub(crate) fn count_minutes(&mut self, world: &World, now: Duration) {
        let healthy = world.swept && Judge::can_sweep(world);
        let ours =
            |machine: &&SimMachine| machine.owner() == Some(OWNER) && machine.state().bills();
        let running: Vec<(String, Which, Option<Timestamp>, Duration)> =
            world.ec2.look(|machines| {
                let facts = |machine: &SimMachine| {
                    let tags = Tags::from_map(&machine.tags).ok()?;
                    Some((machine.id.clone(), machine.attempt()?, tags.kill_at, machine.launched))
                };
                machines.iter().filter(ours).filter_map(facts).collect()
            });
        for (id, attempt, kill_at, launched) in running {
            let heard = self.beats.get(&attempt).map_or(launched, |(heard, ..)| *heard);
            let over = self.outcomes.contains_key(&attempt);
            let beats = now.saturating_sub(heard) <= Duration::from_secs(60);
            let unused = self.unused.entry(id.clone()).or_default();
            // An outcome after a long silence counts as a sign of life (seed 38007821 of 24 h).
            let ended = self
                .outcomes
                .get(&attempt)
                .is_some_and(|at| now.saturating_sub(*at) < Duration::from_secs(60));
            *unused = if beats && !over || ended { 0 } else { *unused + u32::from(healthy) };
            let is_used = *unused == 0;
            // Before it is due, it misses no visit.
            let is_due = over || *unused + VISIT_MINUTES >= BOOT_MINUTES;
            let unswept = if self.could_sweep && is_due { 1 + VISIT_MINUTES } else { 1 };
            *self.unswept.entry(id.clone()).or_default() +=
                unswept * u32::from(!healthy && (over || !beats));
            let throttled = healthy
                && world.weather.is(WorldFault::Ec2Throttled)
                && !self.passed_over.contains(&id);
            *self.throttled.entry(id.clone()).or_default() +=
                u32::from(throttled && (over || !beats));
            let beyond = kill_at.is_some_and(|kill_at| kill_at < at(now));
            *self.beyond.entry(id.clone()).or_default() += u32::from(beyond && healthy);
            if is_used && !beyond {
                self.passed_over.remove(&id);
            }
            self.count_wishes(world, now, (&id, attempt), kill_at);
            self.count_useless(world, &id, over);
            self.count_saves(world, &id, over);
            // Uploads take longer on a bad line.
            let reaches_store = !world.is_cut_alone(&id, now)
                && ![
                    WorldFault::StoreDown,
                    WorldFault::StoreLossy,
                    WorldFault::MachineOffline,
                    WorldFault::RoleGone,
                ]
                .iter()
                .any(|trouble| world.weather.is(*trouble));
            // A running agent needs no sweeper: it has a steady clock and powers off by itself. An
            // agent that keeps dying cannot (seed 103706).
            let (runs, _) = Judge::host_truth(world, &id).unwrap_or_default();
            let loops = |machine: &SimMachine| {
                machine.host.as_ref().is_some_and(|host| host.state().crash_loop > 0)
            };
            let alive = runs && world.ec2.with(&id, loops) == Some(false);
            let dies = |machine: &SimMachine| {
                machine.host.as_ref().is_some_and(|host| {
                    host.state().last_death.is_some_and(|died| now.saturating_sub(died) < GROWN)
                })
            };
            let looped = self.looped.entry(id.clone()).or_default();
            *looped = if world.ec2.with(&id, dies) == Some(true) {
                *looped + u32::from(healthy && !world.weather.is(WorldFault::Ec2Throttled))
            } else {
                0
            };
            // After a reboot an agent asks the metadata service who it is. Only its disk could say
            // that it was terminating. A full disk cannot (seed 23001268 of 24 h), and a stopped
            // machine may have been started again (98009630).
            let tells = |machine: &SimMachine| {
                machine.host.as_ref().is_some_and(|host| host.tells_its_end())
            };
            let knows = !world.weather.is(WorldFault::MetadataDown)
                || world.ec2.with(&id, tells) == Some(true);
            // If its power-off is broken, the workstation or the sweeper must end it.
            let can_end = !world.weather.is(WorldFault::PowerBroken);
            *self.lingers.entry(id.clone()).or_default() +=
                u32::from(over && alive && reaches_store && knows && can_end);
            // A machine with a wrong clock that cannot reach the store does not know that it is due
            // (seed 41000215 of 24 h).
            let knows_time = |machine: &SimMachine| {
                machine.host.as_ref().is_some_and(|host| host.knows_the_time())
            };
            let can_know = reaches_store || world.ec2.with(&id, knows_time) == Some(true);
            *self.overdue.entry(id.clone()).or_default() +=
                u32::from(beyond && alive && can_end && can_know);
            // The deadline unit needs only a kernel and a clock.
            let Some(host) = world
                .ec2
                .with(&id, |machine| machine.host.clone())
                .flatten()
                .filter(|host| host.knows_the_time())
            else {
                continue;
            };
            *self.undead.entry(id.clone()).or_default() +=
                u32::from(beyond && host.kernel.is_running() && can_end);
            // Until its agent has the lease, the deadline of user data holds. A machine that boots
            // beyond its cap is due at once (seed 21007953 of 24 h).
            let latest =
                kill_at.map(|kill_at| kill_at.max(at(launched) + BOOT_TTL).max(at(now)) + MISTOLD);
            // The disk of a kept machine has the old deadline until it boots (seed 1000450 of 24
            // h).
            let powered = host.boots.load(Ordering::Relaxed) > 0;
            let mistold = powered
                && latest.zip(host.deadline()).is_some_and(|(latest, deadline)| deadline > latest);
            *self.mistold.entry(id).or_default() += u32::from(mistold);
        }
        self.could_sweep = healthy;
        self.extended &= AGENTS_TROUBLES.iter().any(|trouble| world.weather.is(*trouble));
    }

    /// The count begins anew with another agent, or after an extension (seed 49003263 of 24 h).
    fn count_useless(&mut self, world: &World, id: &str, over: bool) {
        let Some(host) = world.ec2.with(id, |machine| machine.host.clone()).flatten() else {
            return;
        };
        let working = working(&host).map(|start| start.truth());
        let state = host.state();
        let agent = state.agent.as_ref().filter(|agent| agent.is_running());
        // An agent without steps lacks a pace, and may think that the work does not report (seed
        // 918). Only a checkpoint that it resumes can say that it reports.
        let hangs_early = |truth: &Truth| {
            truth.hung_since.is_some() && truth.steps < PACE_STEPS && truth.step > 0
        };
        let hushed =
            working.as_ref().is_some_and(hangs_early) && self.committed.is_some() && self.reports;
        let hangs =
            |truth: &Truth| truth.hung_since.is_some() && (truth.steps >= PACE_STEPS || hushed);
        let is_useless =
            working.as_ref().is_some_and(|truth| truth.quiet_since.is_some() || hangs(truth));
        let sees = !world.weather.is(WorldFault::NvmlLost);
        let useless = self.useless.entry(id.to_owned()).or_default();
        let is_same = agent
            .zip(useless.watcher.as_ref())
            .is_some_and(|(agent, watcher)| Arc::ptr_eq(agent, watcher))
            && hushed == useless.hushed;
        let minutes = if !over && sees && is_useless && is_same && !self.extended {
            useless.minutes + 1
        } else {
            0
        };
        *useless = Useless { minutes, watcher: agent.cloned(), hushed };
    }

    /// Counts minutes in a row of a machine that bills. After a hindrance the count begins anew.
    fn count_wishes(
        &mut self,
        world: &World,
        now: Duration,
        (id, attempt): (&str, Which),
        kill_at: Option<Timestamp>,
    ) {
        if let Some(cap) = kill_at {
            let (_, newest, _) = self.caps.entry(id.to_owned()).or_insert((cap, cap, now));
            if *newest != cap {
                let before = *newest;
                self.caps.insert(id.to_owned(), (before, cap, now));
            }
        }
        let over = self.outcomes.contains_key(&attempt);
        let host = world.ec2.with(id, |machine| machine.host.clone()).flatten();
        let (runs, _) = Judge::host_truth(world, id).unwrap_or_default();
        let is_dead = host.as_ref().is_some_and(|host| !host.fails_for(now).is_zero());
        let unhindered =
            runs && host.is_some_and(|host| host.state().crash_loop == 0 && !host.disk.is_full());
        let is =
            |troubles: &[WorldFault]| troubles.iter().any(|trouble| world.weather.is(*trouble));
        let heeds = unhindered
            && !is(&AGENTS_TROUBLES)
            && !is(&[WorldFault::MetadataDown])
            && !world.is_cut_alone(id, now);
        let silent = self.beats.get(&attempt).map(|(heard, ..)| now.saturating_sub(*heard));
        let is_silent = silent.is_some_and(|silent| silent > Duration::from_secs(60));
        let capped = kill_at.is_some_and(|cap| {
            cap + Duration::from_secs(u64::from(PAST_CAP_MINUTES) * 60) < at(now)
        });
        let goes_on = self.wished(attempt).wish.is_some() && !over && heeds;
        let unheeded = self.unheeded.entry(id.to_owned()).or_default();
        *unheeded = if goes_on { *unheeded + 1 } else { 0 };
        let reaches = !is(&AGENTS_TROUBLES) && !is(&WORKSTATIONS_TROUBLES);
        let cancelled = self.wished(attempt).cancelled.is_some();
        for (who, (shown, _)) in self.shown.iter().filter(|(who, _)| *who != "sweeper") {
            let awake = reaches && now.saturating_sub(*shown) <= AWAKE;
            let watched = [
                (&mut self.uncancelled, cancelled),
                (&mut self.unended, capped || over),
                (&mut self.unheld, is_silent),
                (&mut self.hostless, is_silent && is_dead && !over),
            ];
            for (watched, is_due) in watched {
                let minutes = watched.entry((id.to_owned(), who.clone())).or_default();
                *minutes = if is_due && awake { *minutes + 1 } else { 0 };
            }
        }
    }
}
