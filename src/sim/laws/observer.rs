//! The judge of a world: what it remembers of all deeds, so that the laws (`super::laws`) can be
//! held against the next one.
//!
//! It sees the truth: what the cloud bills, what the workload really did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::observer_heartbeat::Beat;
use super::observer_minutes::AGENTS_TROUBLES;
use super::observer_saves::Noticed;
use crate::instance::InstanceState;
use crate::job::{CheckpointFile, Manifest, Plan, Request, ResolvedSpec, Wish};
use crate::market::Usd;
use crate::sim::world::active_faults::Trouble;
use crate::sim::world::machines::Machine;
use crate::sim::world::process::Process;
use crate::sim::world::store::LATE;
use crate::sim::world::training_checkpoints;
use crate::sim::world::workload::Truth;
use crate::sim::world::world::{Deed, Which, World, which};

/// Minutes, by machine and workstation.
pub(crate) type Watched = BTreeMap<(String, String), u32>;

/// Work that is of no use, as one agent watches it.
#[derive(Default)]
pub(crate) struct Useless {
    pub minutes: u32,
    pub watcher: Option<Arc<Process>>,
    /// It hangs before its first sign on this machine, and a checkpoint says that it reports.
    pub hushed: bool,
}

/// What the laws need to remember.
#[derive(Default)]
pub struct Judge {
    pub(crate) budget: Option<Usd>,
    /// What was added to the limits of which job, and when: time, and money.
    grants: Vec<(bool, Duration, (Duration, Usd))>,
    /// By attempt: when its last heartbeat was written, its number, the one before.
    pub(crate) beats: BTreeMap<Which, (Duration, u64, u64)>,
    /// What each party was last shown, and when.
    pub(crate) shown: BTreeMap<String, (Duration, Vec<(String, String)>)>,
    pub(crate) requests: BTreeMap<String, Vec<u8>>,
    /// Minutes without use that a healthy sweeper has let pass, and minutes beyond the cap.
    pub(crate) unused: BTreeMap<String, u32>,
    pub(crate) beyond: BTreeMap<String, u32>,
    /// Minutes without use in which the sweeper could not work, and for each of their spells those
    /// of the visits around it: it began before a second look, and the next visit is a whole
    /// interval after it (seed 33002835 of 24 h).
    pub(crate) unswept: BTreeMap<String, u32>,
    /// Minutes without use in which its cloud was throttled, so that a visit of the sweeper may
    /// have been in vain, up to a visit that met no trouble: for estimates alone.
    pub(crate) throttled: BTreeMap<String, u32>,
    pub(crate) could_sweep: bool,
    /// Machines that should have been ended by a visit of the sweeper which met no trouble, and
    /// were not. One whose every visit met some is not the sweeper's fault (seed 5002237 of 24 h).
    pub(crate) passed_over: BTreeSet<String>,
    /// The first wish to end, and the first cancel.
    pub(crate) wish: Option<Duration>,
    pub(crate) cancelled: Option<Duration>,
    /// When the store, an agent's line to it, and the metadata service were seen last to be in
    /// trouble.
    store_ill: Option<Duration>,
    line_ill: Option<Duration>,
    metadata_ill: Option<Duration>,
    /// A disk was full.
    disk_ill: Option<Duration>,
    /// The hard caps of machines in their tags: the one before, the newest, and since when.
    pub(crate) caps: BTreeMap<String, (Timestamp, Timestamp, Duration)>,
    pub(crate) launched: Vec<Duration>,
    pub(crate) committed: Option<u64>,
    /// The newest checkpoint says that the work reports. A job that has told too few steps for that
    /// is ended by its limit (decision 31; seed 430 of 6 h).
    pub(crate) reports: bool,
    /// By machine: how often a start of it went back to an older checkpoint.
    pub(crate) went_back: BTreeMap<String, u32>,
    /// The same with what landed late, once nobody waited for it: it is kept from then on, and
    /// whoever looks finds it (seeds 94017000 and 94017005 of 24 h).
    pub(crate) landed: Option<u64>,
    pub(crate) outcomes: BTreeMap<Which, Duration>,
    /// When an agent of an attempt died last, or its machine was up again after a reboot.
    pub(crate) deaths: BTreeMap<Which, Duration>,
    /// From when to when no GPU could be seen.
    pub(crate) blind: Vec<(Duration, Duration)>,
    is_blind: bool,
    /// Machines that somebody asked to end, and attempts of which it was recorded why.
    pub(crate) asked: BTreeSet<String>,
    /// When a person ended or stopped a machine that was heard.
    pub(crate) by_hand: Option<Duration>,
    /// Minutes in a row in which the agents of a machine died again and again, and the sweeper
    /// could work.
    pub(crate) looped: BTreeMap<String, u32>,
    /// Minutes that a machine has billed after its attempt's outcome, and beyond its cap, with an
    /// agent that lives.
    pub(crate) lingers: BTreeMap<String, u32>,
    pub(crate) overdue: BTreeMap<String, u32>,
    /// Minutes beyond the cap in which the deadline unit of the machine could do its work, and
    /// minutes in which that unit was set beyond the cap.
    pub(crate) undead: BTreeMap<String, u32>,
    /// Minutes in a row in which an agent could have heeded a wish to end.
    pub(crate) unheeded: BTreeMap<String, u32>,
    /// By machine and workstation: minutes in a row in which that one, awake, could have ended a
    /// machine that was cancelled, that was over or beyond its cap, or that said nothing. Two that
    /// watch after each other each wait for themselves (seed 20001768 of 24 h).
    pub(crate) uncancelled: Watched,
    pub(crate) unended: Watched,
    pub(crate) unheld: Watched,
    /// The same, of one that says nothing and whose host fails the cloud's checks.
    pub(crate) hostless: Watched,
    /// Minutes in a row in which one agent that lives, and sees its GPU, watches work that idles or
    /// hangs.
    pub(crate) useless: BTreeMap<String, Useless>,
    /// Somebody asked for more time or money, and an agent may not have heard it yet: from then on
    /// it watches anew.
    pub(crate) extended: bool,
    pub(crate) mistold: BTreeMap<String, u32>,
    /// By machine: the oldest whole save that is not kept, and the minutes in a row in which its
    /// agent could have kept it.
    pub(crate) unkept: BTreeMap<String, (u64, u32)>,
    /// By machine: what the newest notice of its end found.
    pub(crate) noticed: BTreeMap<String, Noticed>,
    pub(crate) bodies: BTreeMap<String, Bytes>,
}

impl Judge {
    pub fn new(spec: &ResolvedSpec) -> Self {
        Judge { budget: spec.spec.limits.budget, ..Judge::default() }
    }

    /// Before the laws are asked.
    pub fn take_note(&mut self, world: &World, deed: &Deed<'_>) {
        let now = world.timeline.now();
        self.look_away(world.weather.is(Trouble::NvmlLost), now);
        self.see_weather(world, now);
        match deed {
            Deed::Described { by, views } => {
                let shown =
                    views.iter().map(|view| (view.id.clone(), view.tags.owner.clone())).collect();
                self.shown.insert((*by).to_owned(), (now, shown));
            }
            Deed::Launched { new: true, .. } => self.launched.push(now),
            // Somebody wants it to go on: what was wished before was for the job before.
            Deed::Wrote { key, new: true, .. } if key.ends_with("/spec.json") => {
                (self.wish, self.cancelled, self.by_hand) = (None, None, None)
            }
            Deed::State { id, state: InstanceState::Pending, .. } => self.begin_anew(id),
            Deed::Wrote { key, body, by, .. } if key.ends_with("/status.json") => {
                if let (Some(attempt), Some(status)) = (attempt_of(key), Beat::read(body)) {
                    let before = self.beats.get(&attempt).map_or(0, |(_, sequence, _)| *sequence);
                    // An agent that has begun by then counts on from what it found before that
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
                    // A wish that was under way for long may reach a job that has ended, and go
                    // past the one that goes on from it (seed 92003158 of 24 h).
                    Ok(Wish::Stop | Wish::Cancel) if job != world.newest_job().as_str() => {}
                    Ok(wish @ (Wish::Stop | Wish::Cancel)) => {
                        self.wish.get_or_insert(now);
                        self.cancelled = self.cancelled.or((wish == Wish::Cancel).then_some(now));
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
                let attempt = world.ec2.with(id, Machine::attempt).flatten();
                let heard =
                    attempt.and_then(|attempt| self.beats.get(&attempt)).map(|(heard, ..)| *heard);
                let is_over = attempt.is_some_and(|attempt| self.outcomes.contains_key(&attempt));
                if !is_over
                    && heard
                        .is_some_and(|heard| now.saturating_sub(heard) < Duration::from_secs(300))
                {
                    self.by_hand = Some(now);
                }
            }
            Deed::Minute => self.count_minutes(world, now),
            Deed::Noticed { host, ahead } => self.take_note_of_notice(world, host, *ahead),
            Deed::Started { host, start, step } if !start.is_setup() => {
                self.take_note_of_start(host, start, *step)
            }
            _ => {}
        }
    }

    /// After the laws were asked: what is true from the next deed on.
    pub fn forget(&mut self, world: &World, deed: &Deed<'_>) {
        match deed {
            Deed::Launched { plan, .. } => {
                self.requests.entry(plan.client_token.clone()).or_insert_with(|| request(plan));
            }
            Deed::Wrote { key, body, by, .. } if is_once(key) => {
                self.bodies.insert((*key).to_owned(), (*body).clone());
                // What nobody had been told was kept when the next machine was planned, nobody
                // could go on from (seeds 92003063 and 92003332 of 24 h).
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
        let is = |troubles: &[Trouble]| troubles.iter().any(|trouble| world.weather.is(*trouble));
        if is(&[Trouble::StoreDown, Trouble::StoreLossy, Trouble::SignedOut]) {
            self.store_ill = Some(now);
        }
        if is(&AGENTS_TROUBLES) {
            self.line_ill = Some(now);
        }
        if is(&[Trouble::MetadataDown]) {
            self.metadata_ill = Some(now);
        }
        if is(&[Trouble::DiskFull]) {
            self.disk_ill = Some(now);
        }
    }

    /// Whether the store was in trouble a moment ago.
    pub(crate) fn was_store_ill(&self, now: Duration, lately: Duration) -> bool {
        self.store_ill.is_some_and(|ill| now.saturating_sub(ill) <= lately)
    }

    /// Whether an agent's line to the store was in trouble since then.
    pub(crate) fn was_line_ill_since(&self, since: Duration) -> bool {
        self.line_ill.is_some_and(|ill| ill >= since)
    }

    /// Whether the store, an agent's line to it, the metadata service or a disk were in trouble
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

    /// What an agent must have read by now of what was added to the limits of its job.
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

    /// All the time that was added to the limits of a job.
    pub(crate) fn granted_in_all(&self, job: &str) -> Duration {
        self.grants
            .iter()
            .filter(|(of, ..)| *of == which(job, 0).0)
            .map(|(.., (time, _))| *time)
            .sum()
    }

    /// The hard cap of a machine that its agent must know by now.
    pub(crate) fn cap_known(&self, id: &str, now: Duration) -> Option<Timestamp> {
        let (before, newest, since) = self.caps.get(id)?;
        let known =
            now.saturating_sub((*since).max(self.metadata_ill.unwrap_or_default())) >= READ_WITHIN;
        Some(if known { *newest } else { *before })
    }

    /// A controller measures silence by what it has seen itself.
    pub fn controller_died(&mut self, who: &str) {
        for watched in [&mut self.unheld, &mut self.hostless] {
            watched.retain(|(_, watching), _| watching != who);
        }
    }

    /// How much of a time nobody could see the GPUs.
    pub(crate) fn blind_within(&self, from: Duration, to: Duration) -> Duration {
        self.blind
            .iter()
            .map(|(began, ended)| to.min(*ended).saturating_sub(from.max(*began)))
            .sum()
    }

    /// A machine that is started again has done nothing yet.
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

    /// The machines that a visit which begins now should end.
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

    /// A visit is over that met no trouble.
    pub fn visited(&mut self, due: Vec<String>) {
        self.passed_over.extend(due);
    }

    /// Whether a sweeper in the cloud can work just now.
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

/// So long a lease holds, and a cap is left to those who end a machine in order; a minute for the
/// count.
const LEASE_MINUTES: u32 = 31;
pub(crate) const PAST_CAP_MINUTES: u32 = 3;

/// What keeps a sweeper in the cloud from its work.
const SWEEPERS_TROUBLES: [Trouble; 4] =
    [Trouble::StoreDown, Trouble::StoreLossy, Trouble::Ec2Down, Trouble::Ec2Lossy];

/// So long after it was written a word has been read, where nothing was in the way.
const READ_WITHIN: Duration = Duration::from_secs(180);

/// The step that a checkpoint really holds: its manifest may say less, where its agent had not read
/// yet how far the work was.
///
/// # Errors
/// When something of it is half.
pub(crate) fn step_held(world: &World, key: &str, manifest: &Manifest) -> Result<u64, String> {
    let job = key.split("/checkpoints/").next().unwrap_or_default();
    let body = |file: &CheckpointFile| {
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
    key.contains("/requests/") || ends.iter().any(|end| key.ends_with(end))
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
