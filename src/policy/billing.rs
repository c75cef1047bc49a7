//! What a cloud bills for a machine's time.
//!
//! EC2, for Linux: by the second, a minute at least for each run; nothing for the machine itself when EC2 takes a spot
//! machine back within its first hour ("Billing for interrupted Spot Instances" in the EC2 user guide). Its disk and its
//! address are billed by themselves, whoever ended it.

use std::time::Duration;

use crate::market::{Cloud, Market, Offer, Usd};

/// The least that EC2 bills for one run of a machine.
const EC2_LEAST: Duration = Duration::from_secs(60);

/// A spot machine that EC2 takes back sooner is free.
const EC2_FREE_IF_TAKEN_WITHIN: Duration = Duration::from_secs(3600);

/// The time that is billed for a run of this length.
pub(super) fn billed(cloud: Cloud, ran: Duration) -> Duration {
    match cloud {
        Cloud::Local => ran,
        Cloud::Aws => ran.max(EC2_LEAST),
    }
}

/// What that costs. `taken`: the cloud itself ended the machine.
pub(super) fn cost(offer: &Offer, billed: Duration, taken: bool) -> Usd {
    let free = offer.cloud == Cloud::Aws && offer.market == Market::Spot && taken && billed < EC2_FREE_IF_TAKEN_WITHIN;
    if free { offer.extras.cost_of(billed) } else { offer.hourly().cost_of(billed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{Arch, Region, UsdPerHour, Zone};

    fn offer(cloud: Cloud, market: Market) -> Offer {
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
    fn a_minute_at_least_and_nothing_for_what_was_taken_in_its_first_hour() {
        let secs = Duration::from_secs;
        assert_eq!(billed(Cloud::Aws, secs(5)), secs(60));
        assert_eq!(billed(Cloud::Aws, secs(61)), secs(61));
        assert_eq!(billed(Cloud::Local, secs(5)), secs(5));
        let spot = offer(Cloud::Aws, Market::Spot);
        assert_eq!(cost(&spot, secs(1000), false).dollars(), 1.1);
        assert_eq!(cost(&spot, secs(1000), true).dollars(), 0.1, "its disk and address");
        assert_eq!(cost(&spot, secs(3600), true).dollars(), 3.96);
        assert_eq!(cost(&offer(Cloud::Aws, Market::OnDemand), secs(1000), true).dollars(), 1.1);
        assert_eq!(cost(&offer(Cloud::Local, Market::Spot), secs(1000), true).dollars(), 1.1);
    }
}
