//! The fake cloud as the controller sees it: the port, and the faults that a call meets.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use lamplighter::account::ForeignMachine;
use lamplighter::instance::{InstanceState, InstanceView, MachineRef, Tags};
use lamplighter::job::{MachineSpec, MarketChoice, Plan, Refusal};
use lamplighter::market::{
    self, Arch, Market, Offer, PriceHistory, PricePoint, Quota, Region, Span, Supply, UsdPerHour,
    Zone,
};
use lamplighter::ports::{Clock, Cloud, CloudError, CredentialsGap, NoCredentials};

use crate::cloud::{CloudFault, FakeCloud, Machine};
use crate::launch::spot_market::History;

/// The agents of the fake cloud hold on to it, so the port is on a handle.
#[async_trait]
impl Cloud for FakeCloudPort {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        Ok(vec![Region::new("local")])
    }

    async fn foreign(
        &self,
        _owner: &str,
        _region: &Region,
    ) -> Result<Vec<ForeignMachine>, CloudError> {
        Ok(self.0.foreign.lock().unwrap().clone())
    }

    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let (kind, takes) = (*self.0.kind.lock().unwrap(), *self.0.supply_takes.lock().unwrap());
        self.0.clock.sleep(takes).await;
        let offer = Offer {
            cloud: kind,
            region: Region::new("local"),
            zone: Zone::new("ws-test"),
            instance_type: "t".into(),
            gpus: 0,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus: 0,
            arch: Arch::X86_64,
            market: Market::Spot,
            price: self.0.price_now().unwrap_or(machine.usd_per_hour),
            extras: UsdPerHour::ZERO,
            on_demand: Some(machine.usd_per_hour),
        };
        let quota = Quota {
            name: "All T Spot Instance Requests".into(),
            code: "L-T".into(),
            region: Region::new("local"),
            market: Market::Spot,
            families: vec!["t".into()],
            vcpus_max: 0,
            vcpus_used: 0,
        };
        let mut offers = vec![offer];
        if machine.market == MarketChoice::Auto {
            offers.push(Offer {
                market: Market::OnDemand,
                price: self.0.on_demand(&offers[0]),
                ..offers[0].clone()
            });
            offers[0].on_demand = Some(offers[1].price);
        }
        let more_zones = self.0.market.lock().unwrap().more_zones;
        offers.extend(
            (0..more_zones)
                .map(|zone| Offer { zone: Zone::new(format!("zone-{zone}")), ..offers[0].clone() })
                .collect::<Vec<_>>(),
        );
        Ok(Supply {
            offers,
            quotas: if kind == market::CloudKind::Aws { vec![quota] } else { vec![] },
            ..Supply::default()
        })
    }

    async fn launch(&self, plan: &Plan) -> Result<String, CloudError> {
        self.0.market.lock().unwrap().asked.push(self.0.clock.mono());
        let fault = {
            let faults = &mut self.0.state.lock().unwrap().launch_faults;
            if faults.is_empty() { None } else { Some(faults.remove(0)) }
        };
        let lost = || CloudError::Ambiguous { act: "launch".into(), cause: "injected".into() };
        match fault {
            Some(CloudFault::Down) => Err(lost()),
            Some(CloudFault::LostReply) => {
                self.0.buy(plan);
                Err(lost())
            }
            Some(CloudFault::NoCapacity) => {
                Err(CloudError::NoCapacity { what: "t".into(), refusal: Refusal::Capacity })
            }
            Some(CloudFault::Throttled) => Err(CloudError::Throttled),
            Some(CloudFault::Invalid) => Err(CloudError::Invalid { what: "no such image".into() }),
            Some(CloudFault::Quota) => Err(CloudError::NoCapacity {
                what: "VcpuLimitExceeded".into(),
                refusal: Refusal::Quota,
            }),
            Some(CloudFault::Verifying) => Err(CloudError::NoCapacity {
                what: "PendingVerification".into(),
                refusal: Refusal::Verification,
            }),
            Some(CloudFault::Disks) => Err(CloudError::NoCapacity {
                what: "VolumeLimitExceeded".into(),
                refusal: Refusal::Disks,
            }),
            Some(CloudFault::Denied) => Err(CloudError::Denied {
                act: "launch a t in ws-test".into(),
                cause: "UnauthorizedOperation".into(),
            }),
            Some(CloudFault::SignedOut) => Err(CloudError::Denied {
                act: "launch a t in ws-test".into(),
                cause: Box::new(signed_out()),
            }),
            Some(CloudFault::Mismatch { shown }) => {
                let machine = Some(self.0.buy(plan)).filter(|_| shown);
                Err(CloudError::Mismatch {
                    machine,
                    what: "IdempotentParameterMismatch: injected".into(),
                })
            }
            None if self.0.is_gone(plan) => {
                Err(CloudError::NoCapacity { what: "t".into(), refusal: Refusal::Capacity })
            }
            None => Ok(self.0.buy(plan)),
        }
    }

    async fn describe(
        &self,
        _owner: &str,
        _region: &Region,
    ) -> Result<Vec<InstanceView>, CloudError> {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock().unwrap();
        state.described = Some(now);
        if state.denied_looks > 0 {
            state.denied_looks -= 1;
            return Err(CloudError::Denied {
                act: "look at the machines in local".into(),
                cause: "ExpiredToken".into(),
            });
        }
        if state.describe_faults > 0 {
            state.describe_faults -= 1;
            return Err(CloudError::Throttled);
        }
        let visible = |machine: &&Machine| {
            !state.unreadable
                && now.duration_since(machine.view.launched) >= state.invisible.try_into().unwrap()
        };
        let kept = |machine: &&Machine| match (machine.view.ended, state.forgets_after) {
            (Some(ended), Some(time)) => now.duration_since(ended) < time.try_into().unwrap(),
            _ => true,
        };
        // As nasty as can be: it also shows what is not ours.
        Ok(state
            .machines
            .iter()
            .filter(visible)
            .filter(kept)
            .map(|machine| machine.view.clone())
            .collect())
    }

    async fn confirm_missing(&self, _plan: &Plan) -> Result<Option<InstanceView>, CloudError> {
        let unreadable = self.0.state.lock().unwrap().unreadable;
        if unreadable {
            Err(CloudError::Ambiguous { act: "read the machine".into(), cause: "injected".into() })
        } else {
            Ok(None)
        }
    }

    async fn terminate(&self, machine: &MachineRef) -> Result<(), CloudError> {
        let instance = machine.id.as_str();
        let now = self.0.clock.now();
        {
            let mut state = self.0.state.lock().unwrap();
            if state.described.is_none_or(|at| now.duration_since(at).as_secs() > 360) {
                state
                    .complaints
                    .push(format!("{instance} was terminated by what was shown long ago"));
            }
        }
        {
            let mut state = self.0.state.lock().unwrap();
            if state.denied_ends > 0 {
                state.denied_ends -= 1;
                let cause =
                    format!("UnauthorizedOperation: encoded message: {:060}", state.denied_ends);
                return Err(CloudError::Denied {
                    act: format!("terminate {instance}"),
                    cause: cause.into(),
                });
            }
        }
        if self.0.state.lock().unwrap().saving.as_deref() == Some(instance) {
            self.0
                .state
                .lock()
                .unwrap()
                .complaints
                .push(format!("{instance} was terminated while it saved"));
        }
        if instance == "i-foreign" {
            self.0
                .state
                .lock()
                .unwrap()
                .complaints
                .push("somebody else's machine was terminated".into());
        }
        self.0.end(instance, "Client.UserInitiatedShutdown: User initiated");
        Ok(())
    }

    async fn stop(&self, machine: &MachineRef) -> Result<(), CloudError> {
        self.0.leave(
            &machine.id,
            InstanceState::Stopped,
            "Client.UserInitiatedShutdown: User initiated",
        );
        Ok(())
    }

    async fn start(&self, machine: &MachineRef, plan: &Plan) -> Result<(), CloudError> {
        let fault = {
            let faults = &mut self.0.state.lock().unwrap().start_faults;
            if faults.is_empty() { None } else { Some(faults.remove(0)) }
        };
        let lost = || CloudError::Ambiguous { act: "start".into(), cause: "injected".into() };
        match fault {
            Some(CloudFault::Down) => Err(lost()),
            Some(CloudFault::LostReply) => {
                self.0.start_again(&machine.id, plan);
                Err(lost())
            }
            Some(CloudFault::NoCapacity) => {
                // As EC2's: its tags were set before the start was asked for.
                let tags = Tags::from_map(&plan.tags).unwrap();
                let mut state = self.0.state.lock().unwrap();
                state
                    .machines
                    .iter_mut()
                    .filter(|known| known.view.id == machine.id)
                    .for_each(|known| known.view.tags = tags.clone());
                Err(CloudError::NoCapacity { what: "t".into(), refusal: Refusal::Capacity })
            }
            Some(CloudFault::SignedOut) => {
                Err(CloudError::Denied { act: "start".into(), cause: Box::new(signed_out()) })
            }
            Some(CloudFault::Throttled) => Err(CloudError::Throttled),
            Some(
                CloudFault::Invalid
                | CloudFault::Denied
                | CloudFault::Quota
                | CloudFault::Verifying
                | CloudFault::Disks
                | CloudFault::Mismatch { .. },
            ) => Err(CloudError::Invalid { what: "cannot be started".into() }),
            None => {
                self.0.start_again(&machine.id, plan);
                Ok(())
            }
        }
    }

    async fn interrupt(&self, machine: &MachineRef, notice: Span) -> Result<(), CloudError> {
        let (cloud, id) = (Arc::clone(&self.0), machine.id.clone());
        tokio::spawn(async move {
            cloud.clock.sleep(notice.duration()).await;
            cloud.end(&id, "Server.SpotInstanceTermination: rehearsed");
        });
        Ok(())
    }

    async fn raise_kill_at(
        &self,
        machine: &MachineRef,
        kill_at: Timestamp,
    ) -> Result<(), CloudError> {
        let mut state = self.0.state.lock().unwrap();
        let machine = state.machines.iter_mut().find(|known| known.view.id == machine.id).unwrap();
        machine.view.tags.kill_at = machine.view.tags.kill_at.max(Some(kill_at));
        Ok(())
    }

    async fn spot_prices(
        &self,
        offer: &Offer,
        from: Timestamp,
    ) -> Result<PriceHistory, CloudError> {
        let (history, prices) = {
            let market = self.0.market.lock().unwrap();
            (market.history, market.prices.clone())
        };
        let prices = if prices.is_empty() { vec![(from, offer.price)] } else { prices };
        match history {
            History::Told => {
                let points = prices.into_iter().map(|(at, price)| PricePoint { at, price });
                Ok(PriceHistory::new(
                    offer.region.clone(),
                    offer.zone.clone(),
                    &offer.instance_type,
                    points.collect(),
                ))
            }
            History::Denied => Err(CloudError::Denied {
                act: "read the spot prices".into(),
                cause: "injected".into(),
            }),
            History::Silent => std::future::pending().await,
        }
    }

    async fn release(&self, _machine: &MachineRef) -> Result<(), CloudError> {
        Ok(())
    }
}

fn signed_out() -> NoCredentials {
    NoCredentials {
        gap: CredentialsGap::Unusable,
        what: "the AWS session is over (ExpiredToken)".into(),
        fix: "`aws sso login` signs in again".into(),
    }
}

/// The cloud as the controller sees it.
pub struct FakeCloudPort(pub Arc<FakeCloud>);
