//! Why no offer fits, and for each kind the one change that would make one fit.
//!
//! ```text
//!   rejected offers ──> sentences for people
//!                   └─> the cheapest that only its bid, the budget or a quota excludes ─> hint
//! ```
//! Each fix works alone: a quota is suggested only if the budget would pay for its machines.
//! `placement` chooses the offer.

use super::ask::Ask;
use super::candidate::Candidate;
use super::fallback_limit::TooDear;
use super::hard_end::HardEndTerms;
use super::offer_reasons::{and_dearer, grouped, shortened};
use crate::job::LimitsSpec;
use crate::market::{CloudKind, Market, Offer, Quota, Region, Usd};

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("no offer fits: {}{}", shortened(because), and_dearer(because, too_dear.as_deref()))]
pub struct NoOffer {
    /// The closest offer first.
    pub because: Vec<String>,
    /// The cheapest that only its bid excludes: a bid of its price would buy it.
    pub above_bid: Option<Box<Offer>>,
    /// The cheapest that only the budget excludes.
    pub over_budget: Option<Box<OverBudget>>,
    /// The quota that alone excludes the cheapest such offer, and a sufficient value.
    pub short_of: Option<Box<(Quota, u32)>>,
    /// The cheapest available offer that is too expensive to buy without asking.
    pub too_dear: Option<Box<TooDear>>,
    /// Regions without any offer because prices are unknown.
    pub unpriced: Vec<Region>,
    /// The job has no limit that would end a machine.
    pub is_unlimited: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OverBudget {
    pub offer: Offer,
    /// The job's cost so far: a budget covers all attempts.
    pub spent: Usd,
    /// The smallest budget for a start.
    pub least: Usd,
    /// The cost of the job's time limits on it; `None`: no other limit.
    pub whole: Option<Usd>,
}

/// For jobs from before limits were required (docs/decisions.md, 24).
pub(crate) fn unlimited() -> NoOffer {
    let because = format!(
        "the job {}: nothing would end a machine whose work never does",
        LimitsSpec::UNBOUND
    );
    NoOffer {
        because: vec![because],
        above_bid: None,
        over_budget: None,
        short_of: None,
        too_dear: None,
        unpriced: Vec::new(),
        is_unlimited: true,
    }
}

/// If all fail for one reason of money, one sentence covers them.
pub(crate) fn no_offer(ask: &Ask<'_>, candidates: &[Candidate<'_>]) -> NoOffer {
    let rejected: Vec<&Candidate<'_>> =
        candidates.iter().filter(|candidate| candidate.rejection().is_some()).collect();
    let bought: Vec<&Candidate<'_>> =
        rejected.iter().copied().filter(|no| no.offer.cloud != CloudKind::Local).collect();
    let above: Vec<&Candidate<'_>> =
        bought.iter().copied().filter(|no| no.is_above_bid()).collect();
    let lowest = above.iter().min_by_key(|no| no.offer.price).copied();
    let dear: Vec<&Candidate<'_>> =
        bought.iter().copied().filter(|no| only_the_budget(ask, no)).collect();
    let nearest = dear.iter().min_by_key(|no| no.terms.least()).copied();
    let mut because = match (lowest.and_then(|no| Some((no.offer, no.bid.as_ref()?))), nearest) {
        (Some((lowest, bid)), _) if above.len() == rejected.len() && above.len() > 1 => {
            let (many, kind, zone) = (above.len(), &lowest.instance_type, &lowest.zone);
            vec![format!(
                "each of the {many} spot offers that would do costs more than the bid of {} now, the cheapest {} ({kind} in {zone})",
                bid.price, lowest.price
            )]
        }
        (_, Some(nearest)) if dear.len() > 1 => {
            let mut because = vec![too_poor(dear.len(), nearest)];
            let is_dear = |no: &Candidate<'_>| dear.iter().any(|dear| dear.offer == no.offer);
            let others: Vec<&Candidate<'_>> =
                rejected.iter().copied().filter(|no| !is_dear(no)).collect();
            because.extend(grouped(&others));
            because.extend(ask.supply.refused.clone());
            because
        }
        _ => [grouped(&rejected), ask.supply.refused.clone()].concat(),
    };
    let too_dear = candidates.iter().filter_map(Candidate::too_dear);
    let too_dear = too_dear.min_by(|one, other| one.times.total_cmp(&other.times)).cloned();
    if because.is_empty() && too_dear.is_none() {
        because.push("nothing is on offer".into());
    }
    NoOffer {
        because,
        above_bid: above
            .iter()
            .filter(|no| only_the_bid(ask, no))
            .min_by_key(|no| no.offer.price)
            .map(|no| Box::new(no.offer.clone())),
        over_budget: nearest.map(|no| Box::new(over_budget(ask, no))),
        short_of: short_of(ask, &rejected).map(Box::new),
        too_dear: too_dear.map(Box::new),
        unpriced: if ask.supply.offers.is_empty() {
            ask.supply.unpriced.iter().cloned().collect()
        } else {
            Vec::new()
        },
        is_unlimited: false,
    }
}

/// One sentence for all offers that the budget excludes, with what it would buy of the cheapest.
fn too_poor(many: usize, nearest: &Candidate<'_>) -> String {
    let why = nearest.terms.check().err().unwrap_or_default();
    let (kind, zone) = (&nearest.offer.instance_type, &nearest.offer.zone);
    format!(
        "each of the {many} offers that would do is too dear for the budget; the cheapest, {kind} in {zone}, {why}"
    )
}

/// Whether the bid reaches the price, on the spot market.
fn is_affordable(no: &Candidate<'_>) -> bool {
    no.offer.market == Market::OnDemand
        || no.bid.as_ref().is_some_and(|bid| bid.price >= no.offer.price)
}

fn only_the_budget(ask: &Ask<'_>, no: &Candidate<'_>) -> bool {
    no.offer.gpus >= ask.spec.machine.gpus.count
        && ask.has_quota(no.offer)
        && is_affordable(no)
        && no.terms.check().is_err()
}

/// With its price as the bid.
fn only_the_bid(ask: &Ask<'_>, no: &Candidate<'_>) -> bool {
    let bought = HardEndTerms { bid: Some(no.offer.price), ..no.terms };
    no.offer.gpus >= ask.spec.machine.gpus.count
        && ask.has_quota(no.offer)
        && bought.check().is_ok()
}

fn over_budget(ask: &Ask<'_>, no: &Candidate<'_>) -> OverBudget {
    let given = ask.spec.limits.budget.unwrap_or(Usd::ZERO);
    let spent = Usd::from_micros((given - ask.budget_left.unwrap_or(given)).micros().max(0));
    let (least, whole) = (no.terms.least(), no.terms.whole());
    OverBudget { offer: no.offer.clone(), spent, least, whole }
}

/// Includes the vCPUs in use, because a quota covers all machines. Only offers that no other
/// condition excludes count.
fn short_of(ask: &Ask<'_>, rejected: &[&Candidate<'_>]) -> Option<(Quota, u32)> {
    let short = rejected.iter().filter_map(|no| Some((no, ask.supply.quota(no.offer)?)));
    let short = short.filter(|(no, quota)| {
        let fits = no.offer.gpus >= ask.spec.machine.gpus.count
            && is_affordable(no)
            && no.terms.check().is_ok();
        quota.vcpus_left() < ask.vcpus(no.offer) && fits
    });
    let (no, quota) = short.min_by_key(|(no, _)| no.offer.hourly())?;
    Some((quota.clone(), quota.vcpus_used + ask.vcpus(no.offer)))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::{MachineSpec, MarketChoice, Spec};
    use crate::market::{Arch, Span, Supply, UsdPerHour, Zone};
    use crate::policy::purchase::placement::{Overheads, place};

    fn offer(kind: &str, vcpus: u32, market: Market, dollars: &str) -> Offer {
        Offer {
            cloud: CloudKind::Aws,
            region: Region::new("r"),
            zone: Zone::new("ra"),
            instance_type: kind.into(),
            gpus: 0,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus,
            arch: Arch::X86_64,
            market,
            price: UsdPerHour::new(dollars.parse().unwrap()),
            extras: UsdPerHour::ZERO,
            on_demand: Some(UsdPerHour::new("9".parse().unwrap())),
        }
    }

    fn quota(market: Market, vcpus_max: u32) -> Quota {
        let (name, code) = ("All G".to_owned(), "L-1".to_owned());
        Quota {
            name,
            code,
            region: Region::new("r"),
            market,
            families: vec!["g".into()],
            vcpus_max,
            vcpus_used: 0,
        }
    }

    fn none(offers: Vec<Offer>, budget: Option<&str>, max_price: &str) -> Result<(), NoOffer> {
        let budget: Option<Usd> = budget.map(|budget| budget.parse().unwrap());
        let limits = LimitsSpec {
            budget,
            max_runtime: Some(Span::from_secs(3600)),
            ..LimitsSpec::default()
        };
        let machine = MachineSpec {
            cloud: CloudKind::Aws,
            market: MarketChoice::Auto,
            max_price: max_price.parse().unwrap(),
            ..MachineSpec::default()
        };
        let spec = Spec { machine, limits, ..Spec::bare() };
        let supply = Supply {
            offers,
            quotas: vec![quota(Market::OnDemand, 8), quota(Market::Spot, 8)],
            ..Supply::default()
        };
        let ask = Ask {
            spec: &spec,
            supply: &supply,
            history: &[],
            budget_left: budget,
            more_time: Span::ZERO,
            overheads: &Overheads::new(),
            prefers: None,
            widened: None,
            now: Timestamp::UNIX_EPOCH,
        };
        place(&ask).map(drop)
    }

    /// A larger machine without quota must not appear as the obstacle.
    #[test]
    fn too_small_budget_names_the_smallest_that_is_enough() {
        let offers = || {
            vec![
                offer("g5.x", 4, Market::OnDemand, "4"),
                offer("g5.y", 8, Market::OnDemand, "5"),
                offer("g5.z", 96, Market::OnDemand, "8"),
            ]
        };
        let no = none(offers(), Some("0.5"), "auto").unwrap_err();
        let over = no.over_budget.unwrap();
        assert_eq!(
            (over.offer.instance_type.as_str(), over.least, over.spent),
            ("g5.x", "0.8".parse().unwrap(), Usd::ZERO)
        );
        // An hour, the drain after it and the power-off.
        assert_eq!(over.whole.map(Usd::in_cents), Some("4.47".parse().unwrap()));
        assert_eq!((no.short_of, no.above_bid), (None, None));
        assert!(
            no.because[0].starts_with("each of the 2 offers that would do is too dear for the budget; the cheapest, g5.x in ra, costs up to $4.00/h"),
            "{:?}",
            no.because
        );
        assert_eq!(none(offers(), Some("0.8"), "auto"), Ok(()), "what is named is enough");
    }

    #[test]
    fn quota_is_named_only_where_it_alone_is_in_the_way() {
        let spot =
            || vec![offer("g5.x", 4, Market::Spot, "0.4"), offer("g5.z", 96, Market::Spot, "0.9")];
        let no = none(spot(), None, "0.1").unwrap_err();
        assert_eq!(
            (no.above_bid.map(|offer| offer.instance_type), no.short_of),
            (Some("g5.x".into()), None)
        );
        let large = none(vec![offer("g5.z", 96, Market::OnDemand, "8")], None, "auto").unwrap_err();
        assert_eq!(large.short_of.map(|short| short.1), Some(96));
    }
}
