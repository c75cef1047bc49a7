//! The cloud's bill for a machine's time.
//!
//! EC2 bills Linux by the second, at least a minute per run. A spot machine that EC2 interrupts in
//! its first hour is free ("Billing for interrupted Spot Instances" in the EC2 user guide). Its
//! disk and address are always billed.
//!
//! ```text
//!   billed time x price of the plan ─ on demand, this workstation: the bill
//!                                  └─ spot: the price that was shown; the bill uses the price in
//!                                     effect, which moves
//!   prices of that time ─────────────> their steps, none above the bid
//!   prices unknown ──────────────────> the bid all the time, marked as an estimate
//! ```
//! The caller fetches the prices. Not here: the sum of all attempts (`job::record::receipt`).

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{Plan, Settled};
use crate::market::{CloudKind, Market, Offer, PriceHistory, Usd, UsdPerHour};

/// The least that EC2 bills for one run of a machine.
const EC2_LEAST: Duration = Duration::from_secs(60);

/// A spot machine that EC2 interrupts sooner is free.
const EC2_FREE_IF_TAKEN_WITHIN: Duration = Duration::from_secs(3600);

/// Whether an on-demand machine is billed the minimum, for any run up to this length. Spot is
/// excluded, because EC2's interruptions make it free.
pub(crate) fn is_the_least(offer: &Offer, ran_at_most: Duration) -> bool {
    offer.cloud == CloudKind::Aws && offer.market == Market::OnDemand && ran_at_most <= EC2_LEAST
}

pub(crate) fn billed(cloud: CloudKind, ran: Duration) -> Duration {
    match cloud {
        CloudKind::Local => ran,
        CloudKind::Aws => ran.max(EC2_LEAST),
    }
}

/// The cost at the plan's price. `taken`: the cloud itself ended the machine.
pub(crate) fn cost(offer: &Offer, billed: Duration, taken: bool) -> Usd {
    if is_free(offer, billed, taken) {
        offer.extras.cost_of(billed)
    } else {
        offer.hourly().cost_of(billed)
    }
}

/// Whether the machine itself is not billed.
fn is_free(offer: &Offer, billed: Duration, taken: bool) -> bool {
    offer.cloud == CloudKind::Aws
        && offer.market == Market::Spot
        && taken
        && billed < EC2_FREE_IF_TAKEN_WITHIN
}

/// From when on a settled attempt needs spot prices; `None`: the plan's price applies, or only disk
/// and address are billed.
pub fn moves_since(plan: &Plan, settled: &Settled) -> Option<Timestamp> {
    let offer = &plan.offer;
    let taken = settled.cloud_reason.as_deref().is_some_and(is_taken);
    let moves =
        offer.cloud == CloudKind::Aws && offer.market == Market::Spot && settled.usd > Usd::ZERO;
    settled.billed_from.filter(|_| moves && !is_free(offer, settled.billed.duration(), taken))
}

/// The cloud's reason for a spot interruption.
pub(crate) fn is_taken(reason: &str) -> bool {
    reason.starts_with("Server.Spot")
}

/// The same attempt at the prices of its time. If they are unknown, it has its highest possible
/// cost, as an estimate.
#[must_use]
pub fn by_prices(plan: &Plan, settled: &Settled, prices: Option<&PriceHistory>) -> Settled {
    let Some(from) = moves_since(plan, settled) else { return settled.clone() };
    let (offer, billed) = (&plan.offer, settled.billed.duration());
    // Without a bid, EC2 uses the on-demand price.
    let bid = plan.bid.or(offer.on_demand).map(|bid| bid.max(offer.price));
    // A price above the bid is never billed: EC2 interrupts the machine.
    let paid = |price: UsdPerHour| offer.hourly_at(bid.map_or(price, |bid| price.min(bid)));
    match prices.and_then(|prices| prices.steps(from, billed)) {
        Some(steps) => {
            let usd = UsdPerHour::cost_of_steps(
                steps.into_iter().map(|(price, held)| (paid(price), held)),
            );
            Settled { usd, ..settled.clone() }
        }
        None => Settled {
            usd: offer.hourly_at(bid.unwrap_or(offer.price)).cost_of(billed),
            billed_estimated: true,
            ..settled.clone()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{Arch, Region, UsdPerHour, Zone};

    fn offer(cloud: CloudKind, market: Market) -> Offer {
        let dollars = |text: &str| UsdPerHour::new(text.parse().unwrap());
        Offer {
            cloud,
            region: Region::new("r"),
            zone: Zone::new("z"),
            instance_type: "t".into(),
            gpus: 1,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus: 4,
            arch: Arch::X86_64,
            market,
            price: dollars("3.6"),
            extras: dollars("0.36"),
            on_demand: None,
        }
    }

    #[test]
    fn aws_bills_a_minute_at_least_and_no_early_spot_interruption() {
        let secs = Duration::from_secs;
        assert_eq!(billed(CloudKind::Aws, secs(5)), secs(60));
        assert_eq!(billed(CloudKind::Aws, secs(61)), secs(61));
        assert_eq!(billed(CloudKind::Local, secs(5)), secs(5));
        let spot = offer(CloudKind::Aws, Market::Spot);
        assert_eq!(cost(&spot, secs(1000), false).dollars(), 1.1);
        assert_eq!(cost(&spot, secs(1000), true).dollars(), 0.1, "its disk and address");
        assert_eq!(cost(&spot, secs(3600), true).dollars(), 3.96);
        assert_eq!(cost(&offer(CloudKind::Aws, Market::OnDemand), secs(1000), true).dollars(), 1.1);
        assert_eq!(cost(&offer(CloudKind::Local, Market::Spot), secs(1000), true).dollars(), 1.1);
    }

    #[test]
    fn first_minute_on_demand_is_billed_whole_whenever_it_ended() {
        let least =
            |cloud, market, secs| is_the_least(&offer(cloud, market), Duration::from_secs(secs));
        assert!(
            least(CloudKind::Aws, Market::OnDemand, 60)
                && !least(CloudKind::Aws, Market::OnDemand, 61)
        );
        assert!(!least(CloudKind::Aws, Market::Spot, 5), "it is free where EC2 takes it");
        assert!(!least(CloudKind::Local, Market::OnDemand, 5));
    }
}
