//! The false EC2, as the controller calls it: lost replies, throttling, stale and failing Describe,
//! refusals, tokens with EC2's rules. Not here: the machines ([`super::machines`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::active_faults::WorldFault;
use super::machines::{LaunchAnswer, SimMachine};
use super::offers::ZONES;
use super::world::{Deed, EndRequest, World};
use crate::instance::{InstanceState, InstanceView, MachineRef};
use crate::job::{
    GangLaunch, LaunchRequest, MachineSpec, MarketChoice, Plan, Reaction, Refusal, Shutdown, Spec,
};
use crate::market::{Market, Offer, PriceHistory, PricePoint, Region, Span, Supply};
use crate::ports::{Cloud, CloudError, CredentialsGap, NoCredentials};
use crate::sim::faults::planted_bugs::{self, Bug};

pub const REGION: &str = "us-east-1";
const EMPTY: [(&str, WorldFault); 2] =
    [(ZONES[0], WorldFault::NoCapacityA), (ZONES[1], WorldFault::NoCapacityB)];

/// One party's line to EC2.
pub struct Ec2Line {
    pub world: Arc<World>,
    pub who: String,
    /// The trouble that cuts this line alone; `None`: it is inside the cloud.
    pub cut_by: Option<WorldFault>,
}

fn ambiguous(act: &str, cause: &str) -> CloudError {
    CloudError::Ambiguous { act: act.into(), cause: cause.to_owned().into() }
}

impl Ec2Line {
    /// Applies the active faults; `Ok(true)`: the call takes effect, and its reply is lost.
    async fn meet(&self, act: &str) -> Result<bool, CloudError> {
        let (dice, weather) = (&self.world.dice.cloud, &self.world.weather);
        self.world
            .timeline
            .sleep(dice.between(Duration::from_millis(20), Duration::from_millis(300)))
            .await;
        if self.cut_by.is_some_and(|cut_by| weather.is(cut_by)) {
            self.world.timeline.sleep(Duration::from_secs(dice.pick(&[1, 10, 60]))).await;
            return Err(ambiguous(act, "no route"));
        }
        if self.cut_by.is_some() && weather.is(WorldFault::SignedOut) {
            let nobody = NoCredentials {
                gap: CredentialsGap::Unusable,
                what: "the AWS session is over (ExpiredToken)".into(),
                fix: "`aws sso login` begins another".into(),
            };
            return Err(CloudError::Denied { act: act.into(), cause: Box::new(nobody) });
        }
        if weather.is(WorldFault::Ec2Throttled) && dice.percent(70) {
            return Err(CloudError::Throttled);
        }
        if !weather.is(WorldFault::Ec2Lossy) {
            return Ok(false);
        }
        match dice.roll(100) {
            0..25 => Err(ambiguous(act, "500 internal error")),
            25..55 => Ok(true),
            _ => Ok(false),
        }
    }

    /// The same for a call that names a machine. Some servers do not know a new machine yet.
    async fn meet_known(&self, act: &str, machine: &MachineRef) -> Result<bool, CloudError> {
        let lost = self.meet(act).await?;
        if self.world.ec2.is_known(&machine.id, self.world.timeline.now()) {
            Ok(lost)
        } else {
            Err(ambiguous(act, "InvalidInstanceID.NotFound"))
        }
    }

    fn reply<T>(lost: bool, act: &str, value: T) -> Result<T, CloudError> {
        if lost { Err(ambiguous(act, "the reply was lost")) } else { Ok(value) }
    }

    /// RunInstances, by its token.
    async fn run_instances(&self, plan: &Plan) -> Result<String, CloudError> {
        let act = "launch a machine";
        let lost = self.meet(act).await?;
        // A known token gets its answer even without capacity.
        if !self.world.ec2.knows(&plan.client_token)
            && let Some(refused) = self.refused(plan)
        {
            return Err(refused);
        }
        let launched = self.world.ec2.launch(&self.world, plan);
        let (id, new) = match &launched {
            LaunchAnswer::New(ids) => (ids[0].as_str(), true),
            LaunchAnswer::Same(id) => (id.as_str(), false),
            LaunchAnswer::Mismatch(_) => ("mismatch", false),
            LaunchAnswer::Spent => ("spent", false),
        };
        self.world.happened(&Deed::Launched { plan, id, new, by: &self.who });
        match launched {
            LaunchAnswer::New(ids) => {
                for id in &ids[1..] {
                    self.happened_for_rank(id);
                }
                Self::reply(lost, act, ids[0].clone())
            }
            LaunchAnswer::Same(id) => Self::reply(lost, act, id),
            LaunchAnswer::Mismatch(id) => Err(CloudError::Mismatch {
                machine: Some(id),
                what: "the token was used with other parameters".into(),
            }),
            LaunchAnswer::Spent => Err(CloudError::NoCapacity {
                what: "its machine has ended".into(),
                refusal: Refusal::Spent,
            }),
        }
    }

    /// The machine of a later rank is launched by the same call.
    fn happened_for_rank(&self, id: &str) {
        let host = self.world.ec2.with(id, |machine| machine.host.clone()).flatten();
        if let Some(host) = host {
            let (plan, by) = (&host.plan, self.who.as_str());
            self.world.happened(&Deed::Launched { plan, id, new: true, by });
        }
    }

    /// The machine that the call of rank 0 launched for this rank. It buys nothing.
    async fn launched_by_rank_0(&self, plan: &Plan) -> Result<String, CloudError> {
        let act = "find the machine of a rank";
        let lost = self.meet(act).await?;
        let found = self.world.ec2.by_token(plan, self.behind());
        match found.into_iter().next() {
            Some(machine) => Self::reply(lost, act, machine.id),
            None if !lost && self.world.ec2.made_none_for(plan) => Err(CloudError::NoCapacity {
                what: "the launch had machines for other ranks only".into(),
                refusal: Refusal::Capacity,
            }),
            None => Err(ambiguous(act, "the launch of rank 0 does not show it yet")),
        }
    }

    /// DescribeInstances, as true as it is just now.
    async fn describe_instances(
        &self,
        owner: &str,
        region: &Region,
    ) -> Result<Vec<InstanceView>, CloudError> {
        let act = "describe the machines";
        let lost = self.meet(act).await?;
        if self.world.weather.is(WorldFault::Ec2Down) {
            return Err(ambiguous(act, "Unavailable: the zone does not answer"));
        }
        let behind = self.behind();
        let views = if region.as_str() == REGION {
            self.world.ec2.views(owner, behind)
        } else {
            Vec::new()
        };
        // A lost answer changes nothing of what the caller saw before (seed 10008470 of 24 h).
        if !lost {
            self.world.happened(&Deed::Described { by: &self.who, views: &views });
        }
        Self::reply(lost, act, views)
    }

    /// The same by the token of a launch: the second check of the NotFound rule.
    async fn find(&self, plan: &Plan) -> Result<Option<InstanceView>, CloudError> {
        let act = "find the machine of a plan";
        let lost = self.meet(act).await?;
        if self.world.weather.is(WorldFault::Ec2Down) {
            return Err(ambiguous(act, "Unavailable: the zone does not answer"));
        }
        let found = self.world.ec2.by_token(plan, self.behind());
        if found.iter().any(|machine| !machine.state.is_terminated()) {
            return Err(ambiguous(act, "it is there by its token, and not by its tags"));
        }
        Self::reply(lost, act, found.into_iter().max_by_key(|machine| machine.launched))
    }

    /// How old an answer is.
    fn behind(&self) -> Duration {
        let stale =
            self.world.weather.is(WorldFault::Ec2Stale) && self.world.dice.cloud.percent(60);
        if stale {
            self.world.dice.cloud.between(Duration::from_secs(1), Duration::from_secs(25))
        } else {
            Duration::ZERO
        }
    }

    fn refused(&self, plan: &Plan) -> Option<CloudError> {
        let (weather, sold, now) =
            (&self.world.weather, &self.world.sold, self.world.timeline.now());
        let is_spot = plan.offer.market == Market::Spot;
        let zone = EMPTY.iter().find(|(zone, _)| *zone == plan.offer.zone.as_str());
        let least = plan.gang.as_ref().map_or(1, GangLaunch::at_least);
        let has_room = self.world.gang().is_none_or(|gang| gang.room(now) >= least);
        let refusal = match zone {
            _ if !has_room => Refusal::Capacity,
            Some((_, trouble)) if weather.is(*trouble) => Refusal::Capacity,
            _ if weather.is(WorldFault::QuotaFull) => Refusal::Quota,
            _ if !sold.has_capacity(&plan.offer, now) => Refusal::Capacity,
            _ if is_spot
                && (weather.is(WorldFault::PriceHigh)
                    || sold.is_dearer_than(plan.bid, &plan.offer, now)) =>
            {
                Refusal::Price
            }
            _ => return None,
        };
        Some(CloudError::NoCapacity { what: plan.offer.describe(), refusal })
    }
}

#[async_trait]
impl Cloud for Ec2Line {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        let lost = self.meet("list regions").await?;
        Self::reply(lost, "list regions", vec![Region::new(REGION)])
    }

    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let lost = self.meet("list offers").await?;
        let markets: &[Market] = match machine.market {
            MarketChoice::OnDemand => &[Market::OnDemand],
            MarketChoice::Spot => &[Market::Spot],
            MarketChoice::Auto => &[Market::Spot, Market::OnDemand],
        };
        let (sold, now) = (&self.world.sold, self.world.timeline.now());
        Self::reply(
            lost,
            "list offers",
            Supply {
                offers: sold.offers(markets, now),
                histories: sold.histories(now),
                ..Supply::default()
            },
        )
    }

    async fn prepare(
        &self,
        spec: &Spec,
        offer: &Offer,
    ) -> Result<Option<LaunchRequest>, CloudError> {
        let lost = self.meet("find the image").await?;
        let request = LaunchRequest {
            image: "ami-0false".into(),
            image_name: None,
            root_device: "/dev/sda1".into(),
            disk_gib: 100,
            profile: None,
            security_groups: Vec::new(),
            subnet: None,
            key_name: None,
            shutdown: if spec.on.success == Reaction::Stop && offer.market == Market::OnDemand {
                Shutdown::Stop
            } else {
                Shutdown::Terminate
            },
            alarm: None,
            user_data: String::new(),
        };
        Self::reply(lost, "find the image", Some(request))
    }

    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        if plan.gang.as_ref().is_some_and(|gang| gang.rank > 0)
            && self.world.planted() != Some(Bug::RankBuysAgain)
        {
            return self.launched_by_rank_0(plan).await;
        }
        planted_bugs::launched(
            &self.world,
            self.run_instances(&planted_bugs::asked_for(&self.world, plan)).await,
        )
    }

    async fn describe(
        &self,
        owner: &str,
        region: &Region,
    ) -> Result<Vec<InstanceView>, CloudError> {
        planted_bugs::described(
            &self.world,
            &self.who,
            self.describe_instances(owner, region).await,
        )
    }

    async fn confirm_missing(&self, plan: &Plan) -> Result<Option<InstanceView>, CloudError> {
        self.find(plan).await
    }

    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        if planted_bugs::stops(&self.world, &machine.id) {
            return self.stop(machine).await;
        }
        let act = "terminate the machine";
        let lost = self.meet_known(act, machine).await?;
        self.world.happened(&Deed::Asked {
            ask: EndRequest::Terminate,
            id: &machine.id,
            by: &self.who,
        });
        self.world.ec2.terminate(
            &self.world,
            &machine.id,
            "Client.UserInitiatedShutdown: User initiated shutdown",
        );
        Self::reply(lost, act, ())
    }

    async fn stop(&self, machine: &MachineRef) -> Result<(), CloudError> {
        let act = "stop the machine";
        let lost = self.meet_known(act, machine).await?;
        self.world.happened(&Deed::Asked { ask: EndRequest::Stop, id: &machine.id, by: &self.who });
        self.world.ec2.stop(
            &self.world,
            &machine.id,
            "Client.UserInitiatedShutdown: User initiated shutdown",
        );
        Self::reply(lost, act, ())
    }

    async fn start(&self, machine: &MachineRef, plan: &Plan) -> Result<(), CloudError> {
        let act = "start the machine";
        let lost = self.meet(act).await?;
        if self.world.ec2.with(&machine.id, |kept| kept.state()) == Some(InstanceState::Stopped)
            && let Some(refused) = self.refused(plan)
        {
            return Err(refused);
        }
        match self.world.ec2.start(&self.world, &machine.id, plan) {
            Some(InstanceState::Stopped | InstanceState::Pending | InstanceState::Running) => {
                Self::reply(lost, act, ())
            }
            // IncorrectInstanceState, or no such machine.
            _ => Err(ambiguous(act, "it is in no state to be started")),
        }
    }

    async fn interrupt(&self, _: &MachineRef, _: Span) -> Result<(), CloudError> {
        Err(CloudError::Unsupported { cloud: "aws", act: "rehearse an interruption" })
    }

    async fn raise_kill_at(
        &self,
        machine: &MachineRef,
        kill_at: Timestamp,
    ) -> Result<(), CloudError> {
        let lost = self.meet_known("raise the hard cap", machine).await?;
        self.world.ec2.raise_kill_at(
            &machine.id,
            planted_bugs::raised(&self.world, kill_at),
            self.world.timeline.now(),
        );
        Self::reply(lost, "raise the hard cap", ())
    }

    /// DescribeInstanceStatus. During a zone outage it fails.
    async fn failing_hosts(&self, region: &Region) -> Result<BTreeSet<String>, CloudError> {
        let act = "read the checks of hosts";
        let lost = self.meet(act).await?;
        if self.world.weather.is(WorldFault::Ec2Down) {
            return Err(ambiguous(act, "Unavailable: the zone does not answer"));
        }
        let (now, is_here) = (self.world.timeline.now(), region.as_str() == REGION);
        let fails = |machine: &&SimMachine| {
            is_here && machine.host.as_ref().is_some_and(|host| !host.fails_for(now).is_zero())
        };
        let failing = self.world.ec2.look(|machines| {
            machines.iter().filter(fails).map(|machine| machine.id.clone()).collect()
        });
        Self::reply(lost, act, failing)
    }

    /// It never fails, because the law of the bills is exact.
    async fn spot_prices(
        &self,
        offer: &Offer,
        from: Timestamp,
    ) -> Result<PriceHistory, CloudError> {
        let moving = self.world.sold.moving_prices(offer, self.world.timeline.now());
        Ok(moving.unwrap_or_else(|| {
            let points = vec![PricePoint { at: from, price: offer.price }];
            PriceHistory::new(
                offer.region.clone(),
                offer.zone.clone(),
                &offer.instance_type,
                points,
            )
        }))
    }

    async fn release(&self, _: &MachineRef) -> Result<(), CloudError> {
        Ok(())
    }
}
