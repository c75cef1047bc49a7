//! A crowded account: a thousand machines of others, which look as much like ours as they can, and
//! some of ours among them.
//!
//! It is a cloud port that shows everything to everybody and keeps an account of what is asked of
//! it. An act is carried out as the adapter for EC2 does it: the tags are read once more, and
//! `owned_by` has the last word.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::Timestamp;
use lamplighter::account::Residue;
use lamplighter::instance::{InstanceState, InstanceView, MachineRef, Tags, owned_by};
use lamplighter::job::{MachineSpec, Plan};
use lamplighter::market::{self, Market, Region, Span, Supply, Usd};
use lamplighter::ports::{Cloud, CloudError};

/// The same numbers for the same seed; xorshift64*.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(drawn).unwrap() % bound
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

type TagMap = BTreeMap<String, String>;

pub struct House {
    pub region: Region,
    pub tags: TagMap,
    /// The tags with which it is ours, letter by letter; `None`: it never is. Judged by this, and
    /// not by what is tried here.
    ours: Option<TagMap>,
    /// What it carries while the other one has it: the two are exchanged now and then.
    other: Option<TagMap>,
    pub ended: bool,
    launched: Timestamp,
    token: Option<String>,
    /// Whether whoever looked last saw one of ours.
    shown_ours: bool,
}

#[derive(Default)]
pub struct Ledger {
    pub houses: BTreeMap<String, House>,
    /// What was left behind, and whether it is of the owner.
    pub left: Vec<(Residue, bool)>,
    /// Both by their regions: what is looked at a hundred thousand times is not searched for.
    places: BTreeMap<Region, (Vec<String>, Vec<usize>)>,
    /// Machines of ours that were ended, and acts that the last look at the tags refused.
    pub ended: BTreeSet<String>,
    pub refused: usize,
    pub cleared: usize,
    /// What must never be.
    pub wrongs: Vec<String>,
    dice: Option<Dice>,
}

pub struct Town {
    owner: String,
    pub ledger: Mutex<Ledger>,
}

impl Town {
    pub fn new(owner: &str, dice: Dice) -> Arc<Self> {
        Arc::new(Town {
            owner: owner.into(),
            ledger: Mutex::new(Ledger { dice: Some(dice), ..Ledger::default() }),
        })
    }

    /// `ours`: the tags with which it is ours. What carries others changes hands with them.
    pub fn settle(
        &self,
        id: String,
        region: Region,
        tags: TagMap,
        ours: Option<TagMap>,
        launched: Timestamp,
        token: Option<String>,
    ) {
        let other = ours.clone().filter(|ours| *ours != tags);
        let house =
            House { region, tags, ours, other, ended: false, launched, token, shown_ours: false };
        let mut ledger = self.ledger.lock().unwrap();
        ledger.places.entry(house.region.clone()).or_default().0.push(id.clone());
        ledger.houses.insert(id, house);
    }

    pub fn leave(&self, residue: Residue, is_ours: bool) {
        let mut ledger = self.ledger.lock().unwrap();
        let number = ledger.left.len();
        ledger.places.entry(residue.region.clone()).or_default().1.push(number);
        ledger.left.push((residue, is_ours));
    }

    pub fn regions_of_all(&self) -> Vec<Region> {
        self.ledger.lock().unwrap().places.keys().cloned().collect()
    }

    /// An act on a machine: what was asked for is judged twice, by what its caller saw and by what
    /// it carries now.
    fn act(&self, machine: &MachineRef, what: &str, ends: bool) -> Result<(), CloudError> {
        let mut ledger = self.ledger.lock().unwrap();
        let Some(house) = ledger.houses.get(&machine.id) else { return Err(CloudError::Throttled) };
        if !house.shown_ours {
            let wrong = format!(
                "asked to {what} {}, which was shown as somebody else's: {:?}",
                machine.id, house.tags
            );
            ledger.wrongs.push(wrong);
            return Err(CloudError::Throttled);
        }
        if let Err(error) = owned_by(&house.tags, &self.owner) {
            ledger.refused += 1;
            return Err(CloudError::Denied { act: what.into(), cause: Box::new(error) });
        }
        if house.ours.as_ref() != Some(&house.tags) {
            let wrong = format!("{what} of {}: {:?}", machine.id, house.tags);
            ledger.wrongs.push(wrong);
        }
        if ends {
            ledger.ended.insert(machine.id.clone());
            ledger.houses.get_mut(&machine.id).unwrap().ended = true;
        }
        Ok(())
    }
}

fn view(id: &str, house: &House, tags: Tags) -> InstanceView {
    InstanceView {
        id: id.into(),
        cloud: market::CloudKind::Aws,
        region: house.region.clone(),
        instance_type: "g5.xlarge".into(),
        market: Market::OnDemand,
        state: if house.ended { InstanceState::Terminated } else { InstanceState::Running },
        tags,
        client_token: house.token.clone(),
        launched: house.launched,
        ended: house.ended.then_some(house.launched),
        state_reason: None,
    }
}

#[async_trait]
impl Cloud for Town {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        Ok(self.regions_of_all())
    }

    async fn supply(&self, _machine: &MachineSpec) -> Result<Supply, CloudError> {
        Ok(Supply::default())
    }

    async fn launch(&self, _plan: &Plan) -> Result<String, CloudError> {
        Err(CloudError::Throttled)
    }

    /// Whatever reads as tags of ours is shown, whosever it is. And some change hands as soon as
    /// they were looked at.
    async fn describe(
        &self,
        _owner: &str,
        region: &Region,
    ) -> Result<Vec<InstanceView>, CloudError> {
        let mut ledger = self.ledger.lock().unwrap();
        let Ledger { houses, places, dice, .. } = &mut *ledger;
        let dice = dice.as_mut().unwrap();
        let mut views = Vec::new();
        for id in places.get(region).map(|place| &place.0[..]).unwrap_or_default() {
            let house = houses.get_mut(id).unwrap();
            house.shown_ours = house.ours.as_ref() == Some(&house.tags);
            if let Ok(tags) = Tags::from_map(&house.tags) {
                views.push(view(id, house, tags));
            }
            if let Some(other) = &mut house.other
                && dice.below(2) == 0
            {
                std::mem::swap(&mut house.tags, other);
            }
        }
        Ok(views)
    }

    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.act(machine, "terminate", true)
    }

    async fn stop(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.act(machine, "stop", true)
    }

    async fn start(&self, machine: &MachineRef, _plan: &Plan) -> Result<(), CloudError> {
        self.act(machine, "start", false)
    }

    async fn interrupt(&self, machine: &MachineRef, _notice: Span) -> Result<(), CloudError> {
        self.act(machine, "interrupt", true)
    }

    async fn raise_kill_at(
        &self,
        machine: &MachineRef,
        _kill_at: Timestamp,
    ) -> Result<(), CloudError> {
        self.act(machine, "tag", false)
    }

    async fn guard(&self, _plan: &Plan, machine: &MachineRef) -> Result<(), CloudError> {
        self.act(machine, "guard", false)
    }

    async fn release(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.act(machine, "release", false)
    }

    async fn residue(&self, _owner: &str, region: &Region) -> Result<Vec<Residue>, CloudError> {
        let ledger = self.ledger.lock().unwrap();
        let there = ledger.places.get(region).map(|place| &place.1[..]).unwrap_or_default();
        Ok(there.iter().map(|number| ledger.left[*number].0.clone()).collect())
    }

    async fn clear(&self, residue: &Residue) -> Result<(), CloudError> {
        let mut ledger = self.ledger.lock().unwrap();
        ledger.cleared += 1;
        if !ledger.left.iter().any(|(left, is_ours)| *is_ours && left.id == residue.id) {
            ledger.wrongs.push(format!("removed {residue:?}"));
        }
        Ok(())
    }
}

/// A disk in this region, by whatever is said of it.
pub fn disk(
    id: &str,
    region: &Region,
    ours: bool,
    job: Option<lamplighter::job::JobId>,
) -> Residue {
    Residue {
        cloud: market::CloudKind::Aws,
        region: region.clone(),
        kind: "volume".into(),
        id: id.into(),
        detail: "100 GiB, in use by nothing".into(),
        usd_per_month: Usd::from_micros(8_000_000),
        ours,
        kept: false,
        job,
    }
}
