//! The instances: their states over time, why they ended, and what EC2 would say of them.
//!
//! States are functions of the false cloud's clock: nothing moves by itself, [`World::settle`]
//! moves what is due. The whole history is kept, so that a stale read can be answered from it and
//! the ledger written.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::xml::Node;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Pending,
    Running,
    ShuttingDown,
    Terminated,
    Stopping,
    Stopped,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Running => "running",
            State::ShuttingDown => "shutting-down",
            State::Terminated => "terminated",
            State::Stopping => "stopping",
            State::Stopped => "stopped",
        }
    }

    pub fn code(self) -> u8 {
        match self {
            State::Pending => 0,
            State::Running => 16,
            State::ShuttingDown => 32,
            State::Terminated => 48,
            State::Stopping => 64,
            State::Stopped => 80,
        }
    }

    pub fn is_gone(self) -> bool {
        matches!(self, State::ShuttingDown | State::Terminated)
    }

    pub(super) fn node(self, name: &str) -> Node {
        Node::with(name, [Node::leaf("code", self.code()), Node::leaf("name", self.name())])
    }
}

#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub id: String,
    pub one_time: bool,
    pub max_price: String,
    /// `terminate`, `stop` or `hibernate`.
    pub interruption: String,
    pub state: &'static str,
    pub code: &'static str,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub id: String,
    pub region: String,
    pub reservation: String,
    /// As moto describes it.
    pub item: Node,
    pub token: String,
    pub spot: Option<Spot>,
    /// `stop` or `terminate`.
    pub on_shutdown: String,
    pub user_data: String,
    pub launched: Timestamp,
    pub history: Vec<(Duration, State)>,
    pub next: Option<(Duration, State)>,
    /// The code, and the words after it.
    pub reason: Option<(String, String)>,
    pub transition: String,
    /// When the notice that was given ends.
    pub notice: Option<Duration>,
    pub impaired: bool,
    /// moto knows it too.
    pub in_moto: bool,
    /// EC2 says nothing of it any more.
    pub forgotten: bool,
}

impl Instance {
    pub fn state(&self) -> State {
        self.history.last().expect("it begins as pending").1
    }

    /// As it was then; `None` before its launch.
    pub fn state_at(&self, then: Duration) -> Option<State> {
        self.history.iter().rev().find(|(since, _)| *since <= then).map(|(_, state)| *state)
    }

    pub fn tags(&self) -> BTreeMap<String, String> {
        self.item
            .items("tagSet")
            .iter()
            .map(|tag| (tag.at("key").to_owned(), tag.at("value").to_owned()))
            .collect()
    }

    pub fn set_tags(&mut self, tags: &BTreeMap<String, String>) {
        self.item.set(tag_set(tags));
    }

    pub fn enter(&mut self, now: Duration, state: State, then: Option<(Duration, State)>) {
        self.history.push((now, state));
        self.next = then.map(|(after, state)| (now + after, state));
        if state == State::Terminated {
            self.notice = None;
            if let Some(spot) = self.spot.as_mut().filter(|spot| spot.state == "active") {
                (spot.state, spot.code) = ("closed", "instance-terminated-by-user");
            }
        }
    }

    pub fn because(&mut self, code: &str, words: &str, transition: &str) {
        self.reason = Some((code.into(), format!("{code}: {words}")));
        self.transition = transition.into();
    }
}

pub(super) fn tag_set(tags: &BTreeMap<String, String>) -> Node {
    let tag = |(key, value): (&String, &String)| {
        Node::with("item", [Node::leaf("key", key), Node::leaf("value", value)])
    };
    Node::with("tagSet", tags.iter().map(tag))
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub pending: Duration,
    pub stopping: Duration,
    /// Machines stand behind the instances, and say when a state is reached.
    pub managed: bool,
}

impl Pace {
    /// A machine that never says so is late, and EC2 goes on.
    const MANAGED_PATIENCE: Duration = Duration::from_secs(180);

    pub fn then(&self, after: Duration, state: State) -> Option<(Duration, State)> {
        Some((if self.managed { Self::MANAGED_PATIENCE } else { after }, state))
    }
}

#[derive(Debug)]
pub(super) struct World {
    pub instances: Vec<Instance>,
    pub by_id: BTreeMap<String, usize>,
    pub pace: Pace,
    /// Describe answers from this long ago.
    pub stale: Duration,
    /// An instance is not found this long after its launch.
    pub unseen: Duration,
    /// The region and the token (and the zone, where one is named): the request, and what it made.
    pub tokens: BTreeMap<(String, String, String), (String, Vec<String>)>,
    /// moto's instances changed behind our back.
    pub outdated: bool,
    /// How many spot requests and instances of our own were numbered.
    pub numbered: usize,
    /// Waiting spot requests that came by another call than RunInstances: the region and the type
    /// of each.
    pub waiting: Vec<(String, String)>,
    /// How many more machines there is capacity for; `None`: for all.
    pub room: Option<u32>,
}

impl World {
    pub fn new(pace: Pace) -> Self {
        World {
            instances: Vec::new(),
            by_id: BTreeMap::new(),
            pace,
            stale: Duration::ZERO,
            unseen: Duration::ZERO,
            tokens: BTreeMap::new(),
            outdated: false,
            numbered: 0,
            waiting: Vec::new(),
            room: None,
        }
    }

    pub fn add(&mut self, instance: Instance) {
        self.by_id.insert(instance.id.clone(), self.instances.len());
        self.instances.push(instance);
    }

    pub fn find(&mut self, id: &str) -> Option<&mut Instance> {
        let at = *self.by_id.get(id)?;
        Some(&mut self.instances[at])
    }

    /// Moves what is due. Gives those that are terminated now and that moto still believes in.
    pub fn settle(&mut self, now: Duration) -> Vec<String> {
        let pace = self.pace;
        let mut ended = Vec::new();
        for instance in &mut self.instances {
            if instance.notice.is_some_and(|due| now >= due) {
                instance.notice = None;
                reclaim(instance, now, &pace);
            }
            while let Some((due, state)) = instance.next.filter(|(due, _)| now >= *due) {
                instance.enter(due, state, None);
                if state == State::Terminated && instance.in_moto {
                    instance.in_moto = false;
                    ended.push(instance.id.clone());
                }
            }
        }
        ended
    }
}

/// The end of a spot interruption.
fn reclaim(instance: &mut Instance, now: Duration, pace: &Pace) {
    if !matches!(instance.state(), State::Pending | State::Running | State::Stopping) {
        return;
    }
    if instance.spot.as_ref().is_some_and(|spot| spot.interruption == "stop") {
        instance.because("Server.SpotInstanceShutdown", "Spot instance shutdown", "");
        instance.enter(now, State::Stopping, pace.then(pace.stopping, State::Stopped));
    } else {
        instance.because("Server.SpotInstanceTermination", "Spot instance termination", "");
        instance.enter(now, State::ShuttingDown, pace.then(pace.stopping, State::Terminated));
    }
}

/// An instance as a test sees it: the truth, never stale.
#[derive(Clone, Debug)]
pub struct Seen {
    pub id: String,
    pub region: String,
    pub zone: String,
    pub kind: String,
    pub image: String,
    pub state: State,
    pub spot: bool,
    pub tags: BTreeMap<String, String>,
    pub token: String,
    /// As it was sent: base64.
    pub user_data: String,
    pub reason: String,
    pub launched: Timestamp,
    /// The rest of the notice that it was given.
    pub notice: Option<Duration>,
    /// The effect of an interruption.
    pub interruption: String,
    /// The name of its instance profile; empty without one.
    pub profile: String,
    pub item: Node,
}

impl Instance {
    pub fn seen(&self, now: Duration) -> Seen {
        let text = |path: &str| self.item.at(path).to_owned();
        Seen {
            id: self.id.clone(),
            region: self.region.clone(),
            zone: text("placement/availabilityZone"),
            kind: text("instanceType"),
            image: text("imageId"),
            state: self.state(),
            spot: self.spot.is_some(),
            tags: self.tags(),
            token: self.token.clone(),
            user_data: self.user_data.clone(),
            reason: self.reason.as_ref().map(|(code, _)| code.clone()).unwrap_or_default(),
            launched: self.launched,
            notice: self.notice.map(|due| due.saturating_sub(now)),
            interruption: self
                .spot
                .as_ref()
                .map_or("terminate", |spot| &spot.interruption)
                .to_owned(),
            profile: self
                .item
                .at("iamInstanceProfile/arn")
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned(),
            item: self.item.clone(),
        }
    }
}
