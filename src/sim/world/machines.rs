//! The machines of the simulated EC2: their true states, their tokens, and their bills.
//!
//! Receipts are compared with the bills here. Not here: calls that fail ([`super::cloud_port`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;

use super::active_faults::WorldFault;
use super::billing::Bill;
use super::host::Host;
use super::world::{Deed, Which, World, which};
use crate::instance::{InstanceState, InstanceView, Tags, tags_of_rank};
use crate::job::{GangLaunch, Plan};
use crate::market::Offer;
use crate::sim::faults::planted_bugs::KILL_AT_TAG;
use crate::sim::kernel::virtual_time::at;
use crate::sim::laws::laws::CANARY;

/// Terminated machines are shown for about an hour.
const SHOWN_AFTER_END: Duration = Duration::from_secs(3600);

/// How late a machine shows during `LateShows`. With an answer that is 25 s old this is less than
/// the five minutes of the NotFound rule (seed 1282: 299 s were shown after 324 s).
const LATE_SHOW: Duration = Duration::from_secs(270);

/// How long a machine hangs in its end, unless it is forced.
const STUCK: Duration = Duration::from_secs(20 * 60);

pub enum LaunchAnswer {
    /// The machines in the order of their ranks.
    New(Vec<String>),
    /// The token is known, with the same request.
    Same(String),
    /// The token is known, with another request; and its machine.
    Mismatch(String),
    /// The token's machine has ended.
    Spent,
}

/// One state and since when.
#[derive(Clone)]
struct StateChange {
    since: Duration,
    state: InstanceState,
    reason: Option<String>,
    /// When it last began to stop or to terminate. EC2 shows only this date.
    dated: Option<Duration>,
}

pub struct SimMachine {
    pub id: String,
    pub tags: BTreeMap<String, String>,
    pub offer: Offer,
    pub token: String,
    request: Vec<u8>,
    pub launched: Duration,
    shown: Duration,
    /// When billing ended.
    pub ended: Option<Duration>,
    history: Vec<StateChange>,
    pub stuck: bool,
    /// EC2 interrupted it.
    pub(crate) taken: bool,
    pub host: Option<Arc<Host>>,
    /// Its bills before it was stopped and started again.
    pub before: Vec<Bill>,
    /// Earlier tags, each with its end: an old answer shows old tags.
    tags_before: Vec<(Duration, BTreeMap<String, String>)>,
}

#[derive(Default)]
pub struct Ec2(Mutex<Vec<SimMachine>>);

impl SimMachine {
    pub fn state(&self) -> InstanceState {
        self.history.last().map_or(InstanceState::Pending, |moment| moment.state)
    }

    /// Our programs launched it. The others existed before this world.
    pub fn is_of_a_plan(&self) -> bool {
        self.host.is_some()
    }

    pub fn owner(&self) -> Option<&str> {
        self.tags.get(crate::instance::OWNER_TAG).map(String::as_str)
    }

    /// The attempt that it was launched, or started again, for.
    pub fn attempt(&self) -> Option<Which> {
        Tags::from_map(&self.tags).ok().map(|tags| which(tags.job.as_str(), tags.attempt.number()))
    }

    /// Whether it was launched for the rank of this plan. A job of one machine has no ranks.
    pub(crate) fn is_of_rank(&self, plan: &Plan) -> bool {
        plan.gang.is_none()
            || self.attempt().is_some_and(|(rank, _)| rank == which(plan.job.as_str(), 0).0)
    }

    /// It hangs in its end. Only force ends it soon.
    pub fn hangs_in_its_end(&self) -> bool {
        self.stuck && matches!(self.state(), InstanceState::Stopping | InstanceState::ShuttingDown)
    }

    /// When it was first launched, or started, for the attempt that it has now.
    pub fn begun(&self) -> Duration {
        let of_this = self.before.iter().filter(|bill| self.attempt() == Some(bill.attempt));
        of_this.map(|bill| bill.ended.saturating_sub(bill.ran)).min().unwrap_or(self.launched)
    }

    /// When it was terminated or stopped, if it is.
    pub fn gone(&self) -> Option<Duration> {
        self.history.last().filter(|moment| moment.state.is_out()).map(|moment| moment.since)
    }

    fn tags_at(&self, seen: Duration) -> &BTreeMap<String, String> {
        self.tags_before
            .iter()
            .find(|(until, _)| seen < *until)
            .map_or(&self.tags, |(_, tags)| tags)
    }

    fn tag(&mut self, tags: impl IntoIterator<Item = (String, String)>, now: Duration) {
        self.tags_before.push((now, self.tags.clone()));
        self.tags.extend(tags);
    }

    fn view(&self, seen: Duration) -> Option<InstanceView> {
        let moment = self
            .history
            .iter()
            .rev()
            .find(|moment| moment.since <= seen)
            .or(self.history.first())?;
        // The whole view is of that time: a stopped machine shows its last start, even if it was
        // started again since.
        let stood = self.launched > seen && moment.state == InstanceState::Stopped;
        let launched = self
            .before
            .last()
            .filter(|_| stood)
            .map_or(self.launched, |before| before.ended.saturating_sub(before.ran));
        let gone =
            moment.state.is_terminated() && seen.saturating_sub(moment.since) > SHOWN_AFTER_END;
        if seen < self.shown || gone {
            return None;
        }
        Some(InstanceView {
            id: self.id.clone(),
            cloud: self.offer.cloud,
            region: self.offer.region.clone(),
            instance_type: self.offer.instance_type.clone(),
            market: self.offer.market,
            state: moment.state,
            tags: Tags::from_map(self.tags_at(seen)).ok()?,
            client_token: Some(self.token.clone()),
            launched: at(launched),
            ended: moment.dated.map(at),
            state_reason: moment.reason.clone(),
        })
    }
}

/// The plan of one machine of a launch, with the tags of its rank.
fn plan_of_rank(plan: &Plan, rank: u32) -> Plan {
    let Some(launch) = &plan.gang else { return plan.clone() };
    let tags = tags_of_rank(plan.tags.clone(), rank);
    let job = Tags::from_map(&tags).map_or_else(|_| plan.job.clone(), |tags| tags.job);
    Plan { job, tags, gang: Some(GangLaunch { rank, ..launch.clone() }), ..plan.clone() }
}

/// Goes from pending to running after some seconds. If `withdrawn`, it terminates before it runs.
fn boot(world: &Arc<World>, id: &str, host: Arc<Host>, withdrawn: bool) {
    let (world, id) = (Arc::clone(world), id.to_owned());
    tokio::task::spawn_local(async move {
        world
            .timeline
            .sleep(world.dice.cloud.between(Duration::from_secs(5), Duration::from_secs(40)))
            .await;
        if withdrawn {
            let reason = "Server.InternalError: Internal error on launch";
            world.ec2.enter(
                &world,
                &id,
                InstanceState::Terminated,
                Some(reason),
                &[InstanceState::Pending],
            );
        } else if world.ec2.enter(
            &world,
            &id,
            InstanceState::Running,
            None,
            &[InstanceState::Pending],
        ) {
            host.run().await;
        }
    });
}

impl Ec2 {
    pub fn knows(&self, token: &str) -> bool {
        self.lock().iter().any(|machine| machine.token == token)
    }

    /// Whether the launch of this rank made machines, and none for it.
    pub fn made_none_for(&self, plan: &Plan) -> bool {
        let machines = self.lock();
        let mut made = machines
            .iter()
            .filter(|machine| {
                machine.token == plan.client_token && machine.offer.zone == plan.offer.zone
            })
            .peekable();
        made.peek().is_some() && !made.any(|machine| machine.is_of_rank(plan))
    }

    pub fn launch(&self, world: &Arc<World>, plan: &Plan) -> LaunchAnswer {
        let request = serde_json::to_vec(&(&plan.offer, &plan.launch, &plan.tags, &plan.bid))
            .expect("a plan is a record");
        let machines = self.lock();
        // EC2 keeps a token by zone if the request names one. In another zone it buys another
        // machine (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html,
        // "RunInstances idempotency").
        let is_known = |machine: &&SimMachine| {
            machine.token == plan.client_token
                && machine.offer.zone == plan.offer.zone
                && machine.is_of_rank(plan)
        };
        if let Some(known) = machines.iter().find(is_known) {
            return match () {
                () if known.request != request => LaunchAnswer::Mismatch(known.id.clone()),
                () if known.state().is_terminated() => LaunchAnswer::Spent,
                () => LaunchAnswer::Same(known.id.clone()),
            };
        }
        drop(machines);
        let room = world.gang().map_or(u32::MAX, |gang| gang.room(world.timeline.now()));
        let ids: Vec<String> = (0..plan.machines().min(room))
            .map(|rank| self.launch_one(world, &plan_of_rank(plan, rank), &request))
            .collect();
        LaunchAnswer::New(ids)
    }

    /// Returns the id.
    fn launch_one(&self, world: &Arc<World>, plan: &Plan, request: &[u8]) -> String {
        let mut machines = self.lock();
        let now = world.timeline.now();
        let id = format!("i-{:04}", machines.len() + 1);
        let late = world.weather.is(WorldFault::LateShows);
        let host = Host::new(world, &id, plan);
        machines.push(SimMachine {
            id: id.clone(),
            tags: plan
                .tags
                .clone()
                .into_iter()
                .chain([("team".to_owned(), CANARY.to_owned())])
                .collect(),
            offer: plan.offer.clone(),
            token: plan.client_token.clone(),
            request: request.to_vec(),
            launched: now,
            shown: now
                + if late {
                    LATE_SHOW
                } else {
                    world.dice.cloud.between(Duration::ZERO, Duration::from_secs(4))
                },
            ended: None,
            history: vec![StateChange {
                since: now,
                state: InstanceState::Pending,
                reason: None,
                dated: None,
            }],
            stuck: false,
            taken: false,
            host: Some(Arc::clone(&host)),
            before: Vec::new(),
            tags_before: Vec::new(),
        });
        drop(machines);
        boot(world, &id, host, world.weather.is(WorldFault::Withdraws));
        id
    }

    /// StartInstances. It boots from its disk, for the attempt of this plan. Returns the state
    /// before.
    pub fn start(&self, world: &Arc<World>, id: &str, plan: &Plan) -> Option<InstanceState> {
        let now = world.timeline.now();
        let host = {
            let mut machines = self.lock();
            let machine = machines.iter_mut().find(|machine| machine.id == id)?;
            let (found, was) = (machine.state(), machine.attempt());
            let bill = was.zip(machine.ended).map(|(attempt, ended)| Bill {
                attempt,
                usd: machine.cost_of_this(now),
                ran: ended.saturating_sub(machine.launched),
                ended,
            });
            // The tags come first, even if the start fails.
            machine.tag(plan.tags.clone(), now);
            if found != InstanceState::Stopped {
                return Some(found);
            }
            machine.before.extend(bill);
            (machine.launched, machine.ended) = (now, None);
            machine.history.push(StateChange {
                since: now,
                state: InstanceState::Pending,
                reason: None,
                dated: None,
            });
            let host = Host::again(machine.host.as_ref()?, plan);
            machine.host = Some(Arc::clone(&host));
            host
        };
        world.happened(&Deed::State { id, state: InstanceState::Pending, reason: "started again" });
        boot(world, id, host, false);
        Some(InstanceState::Stopped)
    }

    /// A machine of another owner, which always runs.
    pub fn add_foreign(&self, id: &str, tags: BTreeMap<String, String>, offer: Offer) {
        let history = vec![StateChange {
            since: Duration::ZERO,
            state: InstanceState::Running,
            reason: None,
            dated: None,
        }];
        let (launched, shown, token) = (Duration::ZERO, Duration::ZERO, id.to_owned());
        let foreign = SimMachine {
            id: id.to_owned(),
            tags,
            offer,
            token,
            request: vec![],
            launched,
            shown,
            ended: None,
            history,
            stuck: false,
            taken: false,
            host: None,
            before: Vec::new(),
            tags_before: Vec::new(),
        };
        self.lock().push(foreign);
    }

    /// Moves a machine to `state` if it is in one of the states `from`.
    fn enter(
        &self,
        world: &Arc<World>,
        id: &str,
        state: InstanceState,
        reason: Option<&str>,
        from: &[InstanceState],
    ) -> bool {
        let now = world.timeline.now();
        {
            let mut machines = self.lock();
            let Some(machine) = machines
                .iter_mut()
                .find(|machine| machine.id == id && from.contains(&machine.state()))
            else {
                return false;
            };
            if !state.bills() && machine.ended.is_none() {
                machine.ended = Some(now);
                machine.taken = reason.is_some_and(|reason| reason.starts_with("Server.Spot"));
            }
            let last = machine.history.last();
            let reason =
                reason.map(str::to_owned).or_else(|| last.and_then(|moment| moment.reason.clone()));
            // EC2 dates requests from outside, but not a shutdown from within the machine
            // (`StateTransitionReason: "User initiated"`).
            let from_within = reason
                .as_deref()
                .is_some_and(|reason| reason.starts_with("Client.InstanceInitiated"));
            let begins = (matches!(state, InstanceState::Stopping | InstanceState::ShuttingDown)
                && !from_within)
                .then_some(now);
            let dated = begins.or(last.and_then(|moment| moment.dated)).filter(|_| !state.bills());
            machine.history.push(StateChange { since: now, state, reason, dated });
            if !state.bills()
                && let Some(host) = &machine.host
            {
                host.kernel.kill();
            }
        }
        world.happened(&Deed::State { id, state, reason: reason.unwrap_or_default() });
        true
    }

    pub fn terminate(&self, world: &Arc<World>, id: &str, reason: &str) {
        use InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Terminated};
        if self.enter(world, id, ShuttingDown, Some(reason), &[Pending, Running, Stopping, Stopped])
        {
            self.finish(world, id, ShuttingDown, Terminated);
        } else {
            self.force(world, id, ShuttingDown, Terminated);
        }
    }

    pub fn stop(&self, world: &Arc<World>, id: &str, reason: &str) {
        use InstanceState::{Running, Stopped, Stopping};
        if self.enter(world, id, Stopping, Some(reason), &[Running]) {
            self.finish(world, id, Stopping, Stopped);
        } else {
            self.force(world, id, Stopping, Stopped);
        }
    }

    /// A second request for a machine that hangs in its end is a forced one.
    fn force(&self, world: &Arc<World>, id: &str, from: InstanceState, to: InstanceState) {
        if self.with(id, |machine| machine.stuck) == Some(true) {
            self.enter(world, id, to, None, &[from]);
        }
    }

    /// Finishes a stop or termination some time later.
    fn finish(&self, world: &Arc<World>, id: &str, from: InstanceState, to: InstanceState) {
        let stuck = world.weather.is(WorldFault::StuckEnds);
        self.with_mut(id, |machine| machine.stuck = stuck);
        let time = if stuck {
            STUCK
        } else {
            world.dice.cloud.between(Duration::from_secs(8), Duration::from_secs(70))
        };
        let (world, id) = (Arc::clone(world), id.to_owned());
        tokio::task::spawn_local(async move {
            world.timeline.sleep(time).await;
            world.ec2.enter(&world, &id, to, None, &[from]);
        });
    }

    /// A cap is never lowered.
    pub fn raise_kill_at(&self, id: &str, kill_at: Timestamp, now: Duration) {
        self.with_mut(id, |machine| {
            let set = Tags::from_map(&machine.tags).ok().and_then(|tags| tags.kill_at);
            if set.is_none_or(|set| set < kill_at) {
                machine.tag([(KILL_AT_TAG.to_owned(), kill_at.to_string())], now);
            }
        });
    }

    /// InvalidInstanceID.NotFound: some servers of EC2 do not know a new machine yet.
    pub fn is_known(&self, id: &str, now: Duration) -> bool {
        self.with(id, |machine| machine.shown <= now) == Some(true)
    }

    /// The answer of Describe by this owner's tag, as it was `behind` ago.
    pub fn views(&self, owner: &str, behind: Duration) -> Vec<InstanceView> {
        let machines = self.lock();
        let Some(now) = machines
            .iter()
            .find_map(|machine| machine.host.as_ref())
            .map(|host| host.world.timeline.now())
        else {
            return Vec::new();
        };
        let ours = machines.iter().filter(|machine| machine.owner() == Some(owner));
        ours.filter_map(|machine| machine.view(now.saturating_sub(behind))).collect()
    }

    /// The machines that the token of a plan launched for its rank, with any tags.
    pub fn by_token(&self, plan: &Plan, behind: Duration) -> Vec<InstanceView> {
        let machines = self.lock();
        let ours = machines
            .iter()
            .filter(|machine| machine.token == plan.client_token && machine.is_of_rank(plan));
        let now =
            |machine: &SimMachine| machine.host.as_ref().map(|host| host.world.timeline.now());
        ours.filter_map(|machine| machine.view(now(machine)?.saturating_sub(behind))).collect()
    }

    pub fn with<T>(&self, id: &str, read: impl FnOnce(&SimMachine) -> T) -> Option<T> {
        self.lock().iter().find(|machine| machine.id == id).map(read)
    }

    fn with_mut(&self, id: &str, change: impl FnOnce(&mut SimMachine)) {
        if let Some(machine) = self.lock().iter_mut().find(|machine| machine.id == id) {
            change(machine);
        }
    }

    /// Reads all machines.
    pub fn look<T>(&self, read: impl FnOnce(&[SimMachine]) -> T) -> T {
        read(&self.lock())
    }

    /// The running machine of an owner.
    pub fn running(&self, owner: &str) -> Option<Arc<Host>> {
        let machines = self.lock();
        let mut ours = machines.iter().rev().filter(|machine| {
            machine.owner() == Some(owner) && machine.state() == InstanceState::Running
        });
        ours.find_map(|machine| machine.host.clone())
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SimMachine>> {
        self.0.lock().expect("the lock is not poisoned")
    }
}
