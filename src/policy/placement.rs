//! Which offer to take, what it can cost at most, and how long its machine may live.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{MarketChoice, RejectedOffer, Spec};
use crate::market::{Cloud, Market, Offer, Span, Usd};

/// A chosen offer with its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    pub offer: Offer,
    pub reasons: Vec<String>,
    pub rejected: Vec<RejectedOffer>,
    /// `None`: nothing bounds the time, and an hour costs something.
    pub most_usd: Option<Usd>,
    pub kill_at: Option<Timestamp>,
}

/// Why no offer will do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no offer fits: {}", because.join("; "))]
pub struct NoOffer {
    pub because: Vec<String>,
}

/// The agent saves and uploads before its limit and then powers off within two minutes; this is for clocks and slow
/// listings. Less would cut a power-off that is under way; more lets a hung machine bill longer.
pub const DRAIN_ALLOWANCE: Duration = Duration::from_secs(5 * 60);

/// Takes the cheapest offer that fits. `more_time` is what the users have added so far.
///
/// # Errors
/// When none fits; each one's reason is given.
pub fn place(spec: &Spec, offers: &[Offer], budget_left: Option<Usd>, more_time: Span, now: Timestamp) -> Result<Placement, NoOffer> {
    let mut rejected: Vec<RejectedOffer> = Vec::new();
    let mut fitting: Vec<&Offer> = Vec::new();
    for offer in offers {
        match misfit(spec, offer) {
            Some(because) => rejected.push(RejectedOffer { offer: offer.clone(), because }),
            None => fitting.push(offer),
        }
    }
    fitting.sort_by_key(|offer| offer.price);
    let Some((best, others)) = fitting.split_first() else {
        let mut because: Vec<String> = rejected.iter().map(|no| format!("{} in {} {}", no.offer.instance_type, no.offer.zone, no.because)).collect();
        if because.is_empty() {
            because.push("nothing is on offer".into());
        }
        return Err(NoOffer { because });
    };
    rejected.extend(
        others.iter().map(|other| RejectedOffer { offer: (*other).clone(), because: format!("costs {}, more than {}", other.price, best.price) }),
    );
    let kill_at = kill_at(spec, best, budget_left, more_time, now);
    let free = best.price.per_hour() == Usd::ZERO;
    let time = kill_at.map(|kill_at| Duration::try_from(kill_at.duration_since(now)).unwrap_or_default());
    let most_usd = if free { Some(Usd::ZERO) } else { time.map(|time| best.price.cost_of(time)) };
    Ok(Placement { offer: (*best).clone(), reasons: reasons(spec, best, others.len()), rejected, most_usd, kill_at })
}

/// This workstation is not judged from outside: its agent asks the driver, and says what is missing.
fn misfit(spec: &Spec, offer: &Offer) -> Option<String> {
    if offer.cloud == Cloud::Local {
        return None;
    }
    let wanted = &spec.machine.gpus;
    (offer.gpus < wanted.count).then(|| format!("has {} GPUs, and the job needs {wanted}", offer.gpus))
}

fn reasons(spec: &Spec, best: &Offer, others: usize) -> Vec<String> {
    let mut reasons = vec![match others {
        0 => format!("the one offer that fits, at {}", best.price),
        _ => format!("the cheapest of {} that fit, at {}", others + 1, best.price),
    }];
    if best.cloud == Cloud::Local && spec.machine.market != MarketChoice::OnDemand {
        let market = if best.market == Market::Spot { "it can be interrupted like a spot machine" } else { "it is as good as on-demand" };
        reasons.push(format!("this workstation has one price; {market}"));
    }
    let wanted = &spec.machine.gpus;
    if best.cloud == Cloud::Local && wanted.count > 0 {
        reasons.push(format!("this workstation shows {} GPUs; whether they are the job's {wanted} is seen when it starts", best.gpus));
    }
    reasons
}

/// The first of: run time, deadline, the moment when the budget is spent; and the time to drain. `now` is when the plan is made.
pub(super) fn kill_at(spec: &Spec, offer: &Offer, budget_left: Option<Usd>, more_time: Span, now: Timestamp) -> Option<Timestamp> {
    let limits = &spec.limits;
    let later = |from: Timestamp, time: Duration| from.saturating_add(time).unwrap_or(Timestamp::MAX);
    let run_time = limits.max_runtime.map(|time| later(now, time.duration().saturating_add(more_time.duration())));
    let deadline = limits.deadline.map(|deadline| later(deadline, more_time.duration()));
    let budget = budget_left.and_then(|left| offer.price.time_for(left)).map(|time| later(now, time));
    let first = [run_time, deadline, budget].into_iter().flatten().min()?;
    Some(later(first, DRAIN_ALLOWANCE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Command, LimitsSpec, MachineSpec};
    use crate::market::{GpuRequirement, Region, UsdPerHour, Zone};

    fn spec(limits: LimitsSpec) -> Spec {
        Spec {
            name: "x".into(),
            command: Command::Shell("true".into()),
            setup: None,
            env: Default::default(),
            outputs: vec![],
            machine: MachineSpec::default(),
            watch: Default::default(),
            limits,
            checkpoint: None,
            on: Default::default(),
            retries: Default::default(),
            interruptions: Default::default(),
        }
    }

    fn offer(cloud: Cloud, zone: &str, dollars: &str, gpus: u32) -> Offer {
        Offer {
            cloud,
            region: Region::new("r"),
            zone: Zone::new(zone),
            instance_type: "t".into(),
            gpus,
            gpu_model: None,
            market: Market::OnDemand,
            price: UsdPerHour::new(dollars.parse().unwrap()),
        }
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn the_cheapest_that_fits_is_taken_and_the_others_are_named() {
        let mut wanted = spec(LimitsSpec::default());
        wanted.machine.gpus = "A10G:1".parse::<GpuRequirement>().unwrap();
        let offers = [offer(Cloud::Aws, "a", "2", 1), offer(Cloud::Aws, "b", "1", 1), offer(Cloud::Aws, "c", "0.1", 0)];
        let placed = place(&wanted, &offers, None, Span::ZERO, NOW).unwrap();
        assert_eq!(placed.offer, offers[1]);
        assert_eq!(placed.rejected.len(), 2);
        assert_eq!((placed.most_usd, placed.kill_at), (None, None), "nothing bounds it");
        let error = place(&wanted, &offers[2..], None, Span::ZERO, NOW).unwrap_err();
        assert_eq!(error.to_string(), "no offer fits: t in c has 0 GPUs, and the job needs A10G:1");
    }

    #[test]
    fn of_the_gpus_of_this_workstation_nothing_is_promised() {
        let mut wanted = spec(LimitsSpec::default());
        wanted.machine.gpus = "H100:8".parse::<GpuRequirement>().unwrap();
        let placed = place(&wanted, &[offer(Cloud::Local, "a", "0", 0)], None, Span::ZERO, NOW).unwrap();
        assert_eq!(placed.reasons[1], "this workstation shows 0 GPUs; whether they are the job's H100:8 is seen when it starts");
    }

    #[test]
    fn the_most_it_can_cost_follows_from_the_first_limit() {
        let hour = Span::from_secs(3600);
        let limits = LimitsSpec { max_runtime: Some(hour), budget: Some("$1".parse().unwrap()), deadline: None };
        let offers = [offer(Cloud::Aws, "a", "4", 0)];
        // The budget lasts a quarter of an hour, then there is a quarter of an hour to drain.
        let placed = place(&spec(limits.clone()), &offers, limits.budget, Span::ZERO, NOW).unwrap();
        assert_eq!(placed.kill_at, Some(NOW + Duration::from_secs(900 + 300)));
        assert_eq!(placed.most_usd, Some(Usd::from_micros(1_333_334)));
        let free = [offer(Cloud::Local, "a", "0", 0)];
        let placed = place(&spec(limits), &free, Some("$1".parse().unwrap()), hour, NOW).unwrap();
        assert_eq!(placed.most_usd, Some(Usd::ZERO));
        assert_eq!(placed.kill_at, Some(NOW + Duration::from_secs(2 * 3600 + 300)), "an extension counts");
    }
}
