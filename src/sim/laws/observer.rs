//! The judge of a world: it remembers all deeds for the laws (`super::laws`).
//!
//! It sees the truth: the bills of the cloud, and the work of the training.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::observer_heartbeat::Beat;
use super::observer_minutes::AGENTS_TROUBLES;
use super::observer_saves::Noticed;
use crate::instance::InstanceState;
use crate::job::{Manifest, ManifestEntry, Plan, Request, ResolvedSpec, Wish};
use crate::market::Usd;
use crate::sim::world::active_faults::WorldFault;
use crate::sim::world::machines::SimMachine;
use crate::sim::world::process::SimProcess;
use crate::sim::world::store::LATE;
use crate::sim::world::training_checkpoints;
use crate::sim::world::workload::Truth;
use crate::sim::world::world::{Deed, Which, World, which};

/// Minutes by machine and workstation.
pub(crate) type WatchedMinutes = BTreeMap<(String, String), u32>;

/// Useless work, as one agent watches it.
#[derive(Default)]
pub(crate) struct Useless {
    pub minutes: u32,
    pub watcher: Option<Arc<SimProcess>>,
    /// It hangs before its first sign on this machine, but a checkpoint says that it reports.
    pub hushed: bool,
}

/// The wishes to end one job.
#[derive(Clone, Copy, Default)]
pub(crate) struct EndWishes {
    /// The first wish to end, and the first cancel.
    pub wish: Option<Duration>,
    pub cancelled: Option<Duration>,
    /// When a person ended or stopped a machine that sent heartbeats.
    pub by_hand: Option<Duration>,
}

/// The facts that the laws remember.
#[derive(Default)]
pub struct Judge {
    pub(crate) budget: Option<Usd>,
    /// Extensions of limits: the job, when, and the added time and money.
    grants: Vec<(u32, Duration, (Duration, Usd))>,
    /// By attempt: when its last heartbeat was written, its number, and the number before.
    pub(crate) beats: BTreeMap<Which, (Duration, u64, u64)>,
    /// The last answer of Describe for each party, and when.
    pub(crate) shown: BTreeMap<String, (Duration, Vec<(String, String)>)>,
    pub(crate) requests: BTreeMap<String, Vec<u8>>,
    /// Minutes without use while the sweeper could work, and minutes beyond the cap.
    pub(crate) unused: BTreeMap<String, u32>,
    pub(crate) beyond: BTreeMap<String, u32>,
    /// Minutes without use while the sweeper could not work. Each such period adds a visit
    /// interval, because it may begin before a second check (seed 33002835 of 24 h).
    pub(crate) unswept: BTreeMap<String, u32>,
    /// Minutes without use while EC2 throttled, until the next visit without errors. Only estimates
    /// use them.
    pub(crate) throttled: BTreeMap<String, u32>,
    pub(crate) could_sweep: bool,
    /// Machines that a visit without errors failed to end. If every visit met errors, it is not the
    /// sweeper's fault (seed 5002237 of 24 h).
    pub(crate) passed_over: BTreeSet<String>,
    /// By rank. Without a gang, all jobs share the first one.
    wishes: BTreeMap<u32, EndWishes>,
    is_gang: bool,
    /// When the store, an agent's line to it, and the metadata service last had a fault.
    store_ill: Option<Duration>,
    line_ill: Option<Duration>,
    metadata_ill: Option<Duration>,
    /// When a disk was last full.
    disk_ill: Option<Duration>,
    /// The hard caps in the tags of machines: the one before, the newest, and since when.
    pub(crate) caps: BTreeMap<String, (Timestamp, Timestamp, Duration)>,
    pub(crate) launched: Vec<Duration>,
    pub(crate) committed: Option<u64>,
    /// The newest checkpoint says that the work reports. A job with too few steps for that ends by
    /// its limit (decision 31; seed 430 of 6 h).
    pub(crate) reports: bool,
    /// By machine: how often a start of it went back to an older checkpoint.
    pub(crate) went_back: BTreeMap<String, u32>,
    /// The same with checkpoints that landed late, after their sender gave up (seeds 94017000 and
    /// 94017005 of 24 h).
    pub(crate) landed: Option<u64>,
    pub(crate) outcomes: BTreeMap<Which, Duration>,
    /// When an agent of an attempt last died, or its machine came back after a reboot.
    pub(crate) deaths: BTreeMap<Which, Duration>,
    /// Periods without GPU readings.
    pub(crate) blind: Vec<(Duration, Duration)>,
    is_blind: bool,
    /// Machines that a party asked to end.
    pub(crate) asked: BTreeSet<String>,
    /// Minutes in a row while the agents of a machine kept dying and the sweeper could work.
    pub(crate) looped: BTreeMap<String, u32>,
    /// Minutes that a machine with a running agent billed after its outcome, and beyond its cap.
    pub(crate) lingers: BTreeMap<String, u32>,
    pub(crate) overdue: BTreeMap<String, u32>,
    /// Minutes beyond the cap while the deadline unit of the machine could work.
    pub(crate) undead: BTreeMap<String, u32>,
    /// Minutes in a row while an agent could obey a wish to end.
    pub(crate) unheeded: BTreeMap<String, u32>,
    /// Minutes in a row while an awake workstation could end a machine that was cancelled, over or
    /// beyond its cap, or silent. Each workstation counts by itself (seed 20001768 of 24 h).
    pub(crate) uncancelled: WatchedMinutes,
    pub(crate) unended: WatchedMinutes,
    pub(crate) unheld: WatchedMinutes,
    /// The same for a silent machine whose host fails the cloud's checks.
    pub(crate) hostless: WatchedMinutes,
    /// Minutes in a row while one running agent reads its GPU and watches work that idles or hangs.
    pub(crate) useless: BTreeMap<String, Useless>,
    /// A user extended a limit, and an agent may not have read it yet. Then it watches anew.
    pub(crate) extended: bool,
    pub(crate) mistold: BTreeMap<String, u32>,
    /// By machine: the oldest whole checkpoint that is not uploaded, and the minutes in a row while
    /// its agent could upload it.
    pub(crate) unkept: BTreeMap<String, (u64, u32)>,
    /// By machine: the state of its work at the newest notice.
    pub(crate) noticed: BTreeMap<String, Noticed>,
    pub(crate) bodies: BTreeMap<String, Bytes>,
}

impl Judge {
    pub fn new(spec: &ResolvedSpec) -> Self {
        let is_gang = spec.member().is_some();
        Judge { budget: spec.spec.limits.budget, is_gang, ..Judge::default() }
    }

    /// The wishes to end the job of an attempt.
    pub(crate) fn wished(&self, attempt: Which) -> EndWishes {
        self.wishes.get(&self.wish_key(attempt)).copied().unwrap_or_default()
    }

    fn wished_mut(&mut self, attempt: Which) -> &mut EndWishes {
        self.wishes.entry(self.wish_key(attempt)).or_default()
    }

    fn wish_key(&self, (job, _): Which) -> u32 {
        if self.is_gang { job } else { 0 }
    }

    /// Called before the laws check the deed.
    pub fn take_note(&mut self, world: &World, deed: &Deed<'_>) {
        let now = world.timeline.now();
        self.look_away(world.weather.is(WorldFault::NvmlLost), now);
        self.see_weather(world, now);
        match deed {
            Deed::Described { by, views } => {
                let shown =
                    views.iter().map(|view| (view.id.clone(), view.tags.owner.clone())).collect();
                self.shown.insert((*by).to_owned(), (now, shown));
            }
            Deed::Launched { new: true, .. } => self.launched.push(now),
            // A continued job begins: earlier wishes were for the job before.
            Deed::Wrote { key, new: true, .. } if key.ends_with("/spec.json") && !self.is_gang => {
                self.wishes.clear();
            }
            Deed::State { id, state: InstanceState::Pending, .. } => self.begin_anew(id),
            Deed::Wrote { key, body, by, .. } if key.ends_with("/status.json") => {
                if let (Some(attempt), Some(status)) = (attempt_of(key), Beat::read(body)) {
                    let before = self.beats.get(&attempt).map_or(0, |(_, sequence, _)| *sequence);
                    // An agent may have started before it landed, and counts from an older number
                    // (seed 94012419 of 24 h).
                    let sequence = if *by == LATE { 0 } else { status.sequence };
                    self.beats.insert(attempt, (now, sequence, before));
                }
            }
            Deed::Wrote { key, new: true, .. } if key.ends_with("/outcome.json") => {
                self.outcomes.extend(attempt_of(key).map(|attempt| (attempt, now)));
            }
            Deed::Wrote { key, body, .. } if key.contains("/requests/") => {
                let wish = serde_json::from_slice::<Request>(body).map(|request| request.wish);
                let job = key.split('/').nth(1).unwrap_or_default();
                match wish {
                    // A late wish may reach a job that has ended, and miss the continued one (seed
                    // 92003158 of 24 h).
                    Ok(Wish::Stop | Wish::Cancel)
                        if !self.is_gang && job != world.newest_job().as_str() => {}
                    Ok(wish @ (Wish::Stop | Wish::Cancel)) => {
                        let wished = self.wished_mut(which(job, 0));
                        wished.wish.get_or_insert(now);
                        wished.cancelled =
                            wished.cancelled.or((wish == Wish::Cancel).then_some(now));
                    }
                    Ok(Wish::Extend { time, budget: more, .. }) => {
                        self.extended = true;
                        self.budget = self.budget.map(|budget| budget + more.unwrap_or_default());
                        self.grants.push((
                            which(job, 0).0,
                            now,
                            (time.unwrap_or_default().duration(), more.unwrap_or_default()),
                        ));
                    }
                    _ => {}
                }
            }
            Deed::Asked { id, .. } => drop(self.asked.insert((*id).to_owned())),
            Deed::State { id, reason, .. }
                if reason.starts_with("Client.UserInitiated") && !self.asked.contains(*id) =>
            {
                let attempt = world.ec2.with(id, SimMachine::attempt).flatten();
                let heard =
                    attempt.and_then(|attempt| self.beats.get(&attempt)).map(|(heard, ..)| *heard);
                let is_over = attempt.is_some_and(|attempt| self.outcomes.contains_key(&attempt));
                if !is_over
                    && heard
                        .is_some_and(|heard| now.saturating_sub(heard) < Duration::from_secs(300))
                {
                    self.wished_mut(attempt.unwrap_or_default()).by_hand = Some(now);
                }
            }
            Deed::Minute => {
                self.count_minutes(world, now);
                if let Some(gang) = world.gang() {
                    gang.count_minute(world);
                }
            }
            Deed::Noticed { host, ahead } => self.take_note_of_notice(world, host, *ahead),
            Deed::Started { host, start, step } if !start.is_setup() => {
                self.take_note_of_start(host, start, *step)
            }
            _ => {}
        }
    }

    /// Called after the laws: updates what holds from the next deed on.
    pub fn forget(&mut self, world: &World, deed: &Deed<'_>) {
        match deed {
            Deed::Launched { plan, .. } => {
                self.requests.entry(plan.client_token.clone()).or_insert_with(|| request(plan));
            }
            Deed::Wrote { key, body, by, .. } if is_once(key) => {
                self.bodies.insert((*key).to_owned(), (*body).clone());
                // The next machine cannot resume from a checkpoint that landed after its plan
                // (seeds 92003063 and 92003332 of 24 h).
                if !key.ends_with("/manifest.json") {
                    return;
                }
                let manifest = serde_json::from_slice::<Manifest>(body).ok();
                self.reports =
                    manifest.as_ref().is_some_and(|manifest| manifest.silent_secs.is_some());
                let held = manifest.and_then(|manifest| step_held(world, key, &manifest).ok());
                self.landed = self.landed.max(held);
                self.committed = self.committed.max(held.filter(|_| *by != LATE));
            }
            _ => {}
        }
    }

    fn look_away(&mut self, is_blind: bool, now: Duration) {
        let was_blind = std::mem::replace(&mut self.is_blind, is_blind);
        match self.blind.last_mut().filter(|_| was_blind) {
            Some((_, to)) if is_blind => *to = now,
            _ if is_blind => self.blind.push((now, now)),
            _ => {}
        }
    }

    fn see_weather(&mut self, world: &World, now: Duration) {
        let is =
            |troubles: &[WorldFault]| troubles.iter().any(|trouble| world.weather.is(*trouble));
        if is(&[WorldFault::StoreDown, WorldFault::StoreLossy, WorldFault::SignedOut]) {
            self.store_ill = Some(now);
        }
        if is(&AGENTS_TROUBLES) {
            self.line_ill = Some(now);
        }
        if is(&[WorldFault::MetadataDown]) {
            self.metadata_ill = Some(now);
        }
        if is(&[WorldFault::DiskFull]) {
            self.disk_ill = Some(now);
        }
    }

    /// Whether the store had a fault within `lately`.
    pub(crate) fn was_store_ill(&self, now: Duration, lately: Duration) -> bool {
        self.store_ill.is_some_and(|ill| now.saturating_sub(ill) <= lately)
    }

    /// Whether an agent's line to the store has had a fault since then.
    pub(crate) fn was_line_ill_since(&self, since: Duration) -> bool {
        self.line_ill.is_some_and(|ill| ill >= since)
    }

    /// Whether the store, an agent's line to it, the metadata service or a disk has had a fault
    /// since then.
    pub(crate) fn was_ill_since(&self, since: Duration) -> bool {
        [self.store_ill, self.line_ill, self.metadata_ill, self.disk_ill]
            .into_iter()
            .flatten()
            .any(|ill| ill >= since)
    }

    pub(crate) fn disk_was_full_since(&self, since: Duration) -> bool {
        self.disk_ill.is_some_and(|ill| ill >= since)
    }

    /// The extensions of a job that its agent must have read by now.
    pub(crate) fn granted(&self, job: &str, now: Duration) -> (Duration, Usd) {
        let read = |since: Duration| {
            now.saturating_sub(since.max(self.line_ill.unwrap_or_default())) >= READ_WITHIN
        };
        let known =
            self.grants.iter().filter(|(of, since, _)| *of == which(job, 0).0 && read(*since));
        known.fold(Default::default(), |(time, money), (.., (more, dollars))| {
            (time + *more, money + *dollars)
        })
    }

    /// All the time by which a job was extended.
    pub(crate) fn granted_in_all(&self, job: &str) -> Duration {
        self.grants
            .iter()
            .filter(|(of, ..)| *of == which(job, 0).0)
            .map(|(.., (time, _))| *time)
            .sum()
    }

    /// The hard cap that the machine's agent must know by now.
    pub(crate) fn cap_known(&self, id: &str, now: Duration) -> Option<Timestamp> {
        let (before, newest, since) = self.caps.get(id)?;
        let known =
            now.saturating_sub((*since).max(self.metadata_ill.unwrap_or_default())) >= READ_WITHIN;
        Some(if known { *newest } else { *before })
    }

    /// A new controller measures silence from its own start.
    pub fn controller_died(&mut self, who: &str) {
        for watched in [&mut self.unheld, &mut self.hostless] {
            watched.retain(|(_, watching), _| watching != who);
        }
    }

    /// How long within a period no GPU could be read.
    pub(crate) fn blind_within(&self, from: Duration, to: Duration) -> Duration {
        self.blind
            .iter()
            .map(|(began, ended)| to.min(*ended).saturating_sub(from.max(*began)))
            .sum()
    }

    /// Forgets the counts of a machine that is started again.
    fn begin_anew(&mut self, id: &str) {
        for minutes in [
            &mut self.unused,
            &mut self.beyond,
            &mut self.unswept,
            &mut self.throttled,
            &mut self.looped,
            &mut self.lingers,
            &mut self.overdue,
            &mut self.undead,
            &mut self.mistold,
            &mut self.unheeded,
        ] {
            minutes.remove(id);
        }
        self.useless.remove(id);
        self.unkept.remove(id);
        self.noticed.remove(id);
        for watched in
            [&mut self.uncancelled, &mut self.unended, &mut self.unheld, &mut self.hostless]
        {
            watched.retain(|(machine, _), _| machine != id);
        }
        self.caps.remove(id);
        self.asked.remove(id);
        self.passed_over.remove(id);
    }

    /// The machines that a visit that begins now must end.
    pub fn due(&self) -> Vec<String> {
        let over = |minutes: &BTreeMap<String, u32>, most: u32| -> Vec<String> {
            minutes
                .iter()
                .filter(|(_, minutes)| **minutes >= most)
                .map(|(id, _)| id.clone())
                .collect()
        };
        let mut due = over(&self.unused, LEASE_MINUTES);
        due.extend(over(&self.beyond, PAST_CAP_MINUTES));
        due
    }

    /// A visit has ended without errors.
    pub fn visited(&mut self, due: Vec<String>) {
        self.passed_over.extend(due);
    }

    /// Whether a sweeper in the cloud can work now.
    pub fn can_sweep(world: &World) -> bool {
        !SWEEPERS_TROUBLES.iter().any(|trouble| world.weather.is(*trouble))
    }

    pub(crate) fn host_truth(world: &World, id: &str) -> Option<(bool, Option<Truth>)> {
        let host = world.ec2.with(id, |machine| machine.host.clone())??;
        let state = host.state();
        let agent = state.agent.as_ref().is_some_and(|agent| agent.is_running());
        let working =
            state.starts.last().filter(|start| !start.is_over()).map(|start| start.truth());
        Some((agent, working))
    }
}

/// How long a lease lasts, and how long after its cap a machine may still end by itself; with a
/// minute for the count.
const LEASE_MINUTES: u32 = 31;
pub(crate) const PAST_CAP_MINUTES: u32 = 3;

/// Faults that hinder a sweeper in the cloud.
const SWEEPERS_TROUBLES: [WorldFault; 4] =
    [WorldFault::StoreDown, WorldFault::StoreLossy, WorldFault::Ec2Down, WorldFault::Ec2Lossy];

/// How long after its write a record has been read, if no fault hinders it.
const READ_WITHIN: Duration = Duration::from_secs(180);

/// The step that a checkpoint really holds. Its manifest may say less, if its agent had not read
/// the newest step yet.
///
/// # Errors If a file of it is half.
pub(crate) fn step_held(world: &World, key: &str, manifest: &Manifest) -> Result<u64, String> {
    let job = key.split("/checkpoints/").next().unwrap_or_default();
    let body = |file: &ManifestEntry| {
        world
            .objects
            .body(&format!("{job}/{}", file.key))
            .map(|body| body.to_vec())
            .unwrap_or_default()
    };
    training_checkpoints::held(manifest.files.iter().map(|file| (file.path.as_str(), body(file))))
}

/// Records that are written once and never again.
fn is_once(key: &str) -> bool {
    let ends = [
        "/spec.json",
        "/plan.json",
        "/lease.json",
        "/ending.json",
        "/outcome.json",
        "/settled.json",
        "/manifest.json",
        "/receipt.json",
    ];
    key.contains("/requests/")
        || key.contains("/gang/")
        || ends.iter().any(|end| key.ends_with(end))
}

/// The attempt of `jobs/<job>/attempts/<n>/...`.
pub(crate) fn attempt_of(key: &str) -> Option<Which> {
    let (job, below) = key.strip_prefix("jobs/")?.split_once("/attempts/")?;
    Some(which(job, below.split('/').next()?.parse().ok()?))
}

pub(crate) fn request(plan: &Plan) -> Vec<u8> {
    serde_json::to_vec(&(&plan.offer, &plan.launch, &plan.tags, plan.bid))
        .expect("a plan is a record")
}
