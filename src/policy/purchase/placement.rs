//! Which offer to take, its maximum cost, and how long its machine may run.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::bid::{self, Bid};
use super::fallback_limit::{Bound, TooDear};
use super::hard_end::{Terms, dearest};
use super::job_cost_bound::{self, JobMost};
pub use super::no_offer::{NoOffer, OverBudget};
use super::no_offer::{no_offer, unlimited};
use super::offer_reasons::{dearer, reasons};
use super::ranking::Ranked;
use super::refusal_backoff::{ago, refused_lately};
use crate::job::{AttemptRecord, EndedBecause, MarketChoice, RejectedOffer, Spec};
use crate::market::{Cloud, FallbackCost, Market, Offer, Span, Supply, Usd, UsdPerHour};

#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    pub offer: Offer,
    /// The most that an hour may cost, on the spot market.
    pub bid: Option<UsdPerHour>,
    pub reasons: Vec<String>,
    pub rejected: Vec<RejectedOffer>,
    /// Other fitting offers, in the order of fallback.
    pub fallbacks: Vec<Offer>,
    /// The figures of the chosen offer and the fallbacks, in the same order.
    pub ranking: Vec<Ranked>,
    /// `None`: the workstation's time is unlimited, at a price above zero.
    pub most_usd: Option<Usd>,
    /// The same for the most expensive of the offer and its fallbacks.
    pub most_any_usd: Option<Usd>,
    /// For the whole job from now on, with all later machines.
    pub most_job: JobMost,
    pub kill_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub spec: &'a Spec,
    pub supply: &'a Supply,
    /// Earlier attempts: recently refused pools are skipped.
    pub history: &'a [AttemptRecord],
    pub budget_left: Option<Usd>,
    /// The users' extensions so far.
    pub more_time: Span,
    /// The cost of starts as a share of an hour's price, if known, by zone and type.
    pub overheads: &'a Overheads,
    /// The preferred market at any cost; the other is the fallback.
    pub prefers: Option<Market>,
    /// The users' later permission, beside `fallback_cost`.
    pub widened: Option<FallbackCost>,
    pub now: Timestamp,
}

/// For spot pools, by zone and type.
pub type Overheads = BTreeMap<(String, String), f64>;

/// Takes the fitting offer with the lowest cost for the job.
///
/// # Errors
/// When none fits; each has its reason.
pub fn place(ask: &Ask<'_>) -> Result<Placement, NoOffer> {
    // First, because offers and prices do not matter here.
    if ask.supply.offers.iter().any(|offer| offer.cloud != Cloud::Local)
        && !ask.spec.limits.bound_a_machine()
        && ask.budget_left.is_none()
    {
        return Err(unlimited());
    }
    let mut rejected: Vec<RejectedOffer> = Vec::new();
    let mut fitting: Vec<(&Offer, Option<Bid>)> = Vec::new();
    let mut too_dear: Vec<TooDear> = Vec::new();
    let bound = Bound::of(ask);
    for offer in &ask.supply.offers {
        match (judge(ask, offer), bound.too_dear(offer)) {
            (Err(because), _) => rejected.push(RejectedOffer { offer: offer.clone(), because }),
            (Ok(_), Some(dear)) => too_dear.push(dear),
            (Ok(bid), None) => fitting.push((offer, bid)),
        }
    }
    let rates = &bound.rates;
    let worth = |offer: &Offer| {
        (ask.prefers.is_some_and(|market| market != offer.market), rates.rank(offer))
    };
    fitting.sort_by(|(a, _), (b, _)| {
        let ((a_later, (a_rest, a_hour)), (b_later, (b_rest, b_hour))) = (worth(a), worth(b));
        a_later.cmp(&b_later).then(a_rest.total_cmp(&b_rest)).then(a_hour.total_cmp(&b_hour))
    });
    let Some(((best, bid), others)) = fitting.split_first() else {
        return Err(no_offer(ask, &rejected, too_dear));
    };
    rejected.extend(others.iter().map(|(other, _)| RejectedOffer {
        offer: (*other).clone(),
        because: dearer(other, best, rates),
    }));
    rejected.extend(
        too_dear
            .iter()
            .map(|dear| RejectedOffer { offer: dear.offer.clone(), because: dear.because() }),
    );
    let terms = ask.terms(best, bid.as_ref());
    let kill_at = terms.hard_end();
    let most_any_usd = most_of(ask, &fitting);
    let mut reasons = reasons(ask, rates, best, bid.as_ref(), others);
    let fits: Vec<&Offer> = fitting.iter().map(|(offer, _)| *offer).collect();
    reasons.extend(rates.about_speeds(&fits));
    reasons
        .extend(rates.expectation(best).filter(|_| ask.spec.machine.market != MarketChoice::Auto));
    reasons.extend(terms.cut_short());
    Ok(Placement {
        offer: (*best).clone(),
        bid: bid.as_ref().map(|bid| bid.price),
        reasons,
        rejected,
        fallbacks: others.iter().map(|(other, _)| (*other).clone()).collect(),
        ranking: fits.into_iter().map(|offer| rates.ranked(offer)).collect(),
        most_usd: terms.most(),
        most_any_usd,
        most_job: job_cost_bound::of(ask, &bound, &fitting, most_any_usd),
        kill_at,
    })
}

impl<'a> Ask<'a> {
    /// Whether the offer may be bought later: its quota, its price and the job's limits allow it.
    pub fn fits_later(&self, bound: &Bound<'_>, offer: &Offer) -> bool {
        offer.gpus >= self.spec.machine.gpus.count
            && (offer.cloud == Cloud::Local || self.terms(offer, None).hard_end().is_some())
            && self.has_quota(offer)
            && self.terms_later(offer).check().is_ok()
            && self.bid_reaches(offer)
            && bound.too_dear(offer).is_none()
    }

    pub(crate) fn has_quota(&self, offer: &Offer) -> bool {
        self.supply.quota(offer).is_none_or(|quota| quota.vcpus_left() >= offer.vcpus)
    }

    /// At the lowest price then: at most the highest bid.
    fn terms_later(&self, offer: &'a Offer) -> Terms<'a> {
        let most = bid::most_ever(self.spec.machine.max_price, offer)
            .filter(|_| offer.market == Market::Spot && offer.cloud != Cloud::Local);
        Terms { bid: most.map(|most| most.min(offer.price)), ..self.terms(offer, None) }
    }

    /// Whether the price may fall to the bid: it is there now, was in the window, or is unknown.
    fn bid_reaches(&self, offer: &Offer) -> bool {
        if offer.market == Market::OnDemand || offer.cloud == Cloud::Local {
            return true;
        }
        let bid =
            bid::bid(self.spec.machine.max_price, offer, self.supply.history(offer), self.now);
        bid.is_ok_and(|bid| {
            bid.price >= offer.price || bid.share_above.is_none_or(|above| above < 1.0)
        })
    }

    pub(crate) fn terms(&self, offer: &'a Offer, bid: Option<&Bid>) -> Terms<'a> {
        let (bid, budget_left, more_time) =
            (bid.map(|bid| bid.price), self.budget_left, self.more_time);
        Terms { spec: self.spec, offer, bid, budget_left, more_time, now: self.now }
    }
}

/// The most that any of these costs; `None`: one is unlimited.
fn most_of(ask: &Ask<'_>, fitting: &[(&Offer, Option<Bid>)]) -> Option<Usd> {
    dearest(fitting.iter().map(|(offer, bid)| ask.terms(offer, bid.as_ref()).most()))
}

/// The bid for a fitting offer, or why it does not fit.
fn judge(ask: &Ask<'_>, offer: &Offer) -> Result<Option<Bid>, String> {
    if offer.cloud == Cloud::Local {
        // For a workstation only the cost is checked here; its agent asks the driver and reports
        // problems.
        return ask.terms(offer, None).check().map(|()| None);
    }
    if ask.terms(offer, None).hard_end().is_none() {
        return Err(
            "has no price, so that a budget alone would never end it: `limits.max_runtime` would"
                .into(),
        );
    }
    let wanted = &ask.spec.machine.gpus;
    if offer.gpus < wanted.count {
        return Err(format!("has {} GPUs, and the job needs {wanted}", offer.gpus));
    }
    if let Some((refusal, ago)) = refused_lately(ask.history, offer, ask.now) {
        return Err(format!("had none {} ago: {refusal}", Span::from_secs(ago.as_secs())));
    }
    if let Some(ago) = broke_lately(ask, offer) {
        return Err(format!(
            "gave a machine {} ago whose GPU was lost",
            Span::from_secs(ago.as_secs())
        ));
    }
    if let Some(quota) = ask.supply.quota(offer)
        && quota.vcpus_left() < offer.vcpus
    {
        let (left, max) = (quota.vcpus_left(), quota.vcpus_max);
        return Err(format!(
            "needs {} vCPUs, and the quota \"{}\" has {left} of {max} left in {}",
            offer.vcpus, quota.name, offer.region
        ));
    }
    if offer.market == Market::OnDemand {
        return ask.terms(offer, None).check().map(|()| None);
    }
    let history = ask.supply.history(offer);
    let bid = bid::bid(ask.spec.machine.max_price, offer, history, ask.now)
        .map_err(|no| no.to_string())?;
    if bid.price < offer.price {
        return Err(format!("costs {} now, more than the bid of {}", offer.price, bid.price));
    }
    ask.terms(offer, Some(&bid)).check()?;
    Ok(Some(bid))
}

/// After a machine with a broken GPU, its pool probably returns the same one (row 43 of
/// docs/promises.md).
const BROKEN_FOR: Duration = Duration::from_secs(30 * 60);

fn broke_lately(ask: &Ask<'_>, offer: &Offer) -> Option<Duration> {
    let broken = ask.history.iter().rev().find(|record| {
        record.settled.because == EndedBecause::HardwareLost
            && record.plan.offer.is_same_pool(offer)
    })?;
    let ended = broken.settled.billed_to.unwrap_or(broken.plan.created);
    let ago = ago(ended, ask.now)?;
    (ago < BROKEN_FOR).then_some(ago)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::LimitsSpec;
    use crate::market::{Arch, GpuRequirement, Region, Zone};

    fn spec(limits: LimitsSpec) -> Spec {
        Spec { limits, ..Spec::bare() }
    }

    fn offer(cloud: Cloud, zone: &str, dollars: &str, gpus: u32) -> Offer {
        Offer {
            cloud,
            region: Region::new("r"),
            zone: Zone::new(zone),
            instance_type: "t".into(),
            gpus,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus: 4,
            arch: Arch::X86_64,
            market: Market::OnDemand,
            price: UsdPerHour::new(dollars.parse().unwrap()),
            extras: UsdPerHour::ZERO,
            on_demand: None,
        }
    }

    fn an_hour() -> LimitsSpec {
        LimitsSpec { max_runtime: Some(Span::from_secs(3600)), ..LimitsSpec::default() }
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn place(
        spec: &Spec,
        offers: &[Offer],
        budget_left: Option<Usd>,
        more_time: Span,
        now: Timestamp,
    ) -> Result<Placement, NoOffer> {
        let supply = Supply { offers: offers.to_vec(), ..Supply::default() };
        super::place(&Ask {
            spec,
            supply: &supply,
            history: &[],
            budget_left,
            more_time,
            overheads: &Overheads::new(),
            prefers: None,
            widened: None,
            now,
        })
    }

    #[test]
    fn the_cheapest_that_fits_is_taken_and_the_others_are_named() {
        let mut wanted = spec(an_hour());
        wanted.machine.gpus = "A10G:1".parse::<GpuRequirement>().unwrap();
        let offers = [
            offer(Cloud::Aws, "a", "2", 1),
            offer(Cloud::Aws, "b", "1", 1),
            offer(Cloud::Aws, "c", "0.1", 0),
        ];
        let placed = place(&wanted, &offers, None, Span::ZERO, NOW).unwrap();
        assert_eq!(placed.offer, offers[1]);
        assert_eq!(placed.rejected.len(), 2);
        assert_eq!(placed.kill_at, Some(NOW + Duration::from_secs(3600 + 300)));
        let error = place(&wanted, &offers[2..], None, Span::ZERO, NOW).unwrap_err();
        assert_eq!(error.to_string(), "no offer fits: t in c has 0 GPUs, and the job needs A10G:1");
    }

    #[test]
    fn no_machine_is_bought_for_a_job_that_nothing_ends() {
        let offers = [offer(Cloud::Aws, "a", "2", 0), spot("0.4", "1")];
        let refused = |offers: &[Offer]| {
            place(&spec(LimitsSpec::default()), offers, None, Span::ZERO, NOW)
                .unwrap_err()
                .to_string()
        };
        for offer in &offers {
            assert!(
                refused(std::slice::from_ref(offer))
                    .contains("no `max_runtime`, no `budget` and no `deadline`"),
                "{offer:?}"
            );
        }
        // A budget never ends a free machine.
        let (free, priced) = (offer(Cloud::Aws, "a", "0", 0), offer(Cloud::Aws, "b", "2", 0));
        let placed = place(
            &spec(LimitsSpec::default()),
            &[free.clone(), priced.clone()],
            Some("$1".parse().unwrap()),
            Span::ZERO,
            NOW,
        )
        .unwrap();
        assert_eq!((&placed.offer, &placed.rejected[0].offer), (&priced, &free));
        assert!(
            placed.rejected[0].because.starts_with("has no price, so that a budget alone"),
            "{:?}",
            placed.rejected
        );
        let local = place(
            &spec(LimitsSpec::default()),
            &[offer(Cloud::Local, "a", "2", 0)],
            None,
            Span::ZERO,
            NOW,
        )
        .unwrap();
        assert_eq!((local.most_usd, local.kill_at), (None, None), "this workstation is not bought");
    }

    #[test]
    fn reasons_are_grouped_by_type_and_cut() {
        let mut wanted = spec(an_hour());
        wanted.machine.gpus = "A10G:2".parse::<GpuRequirement>().unwrap();
        let mut offers = vec![offer(Cloud::Aws, "b", "2", 1), offer(Cloud::Aws, "a", "1", 1)];
        let said = |offers: &[Offer]| {
            place(&wanted, offers, None, Span::ZERO, NOW).unwrap_err().to_string()
        };
        assert_eq!(said(&offers), "no offer fits: t in a, b has 1 GPUs, and the job needs A10G:2");
        offers.extend((2..9).map(|n| Offer {
            instance_type: format!("t{n}"),
            ..offer(Cloud::Aws, "a", &format!("{n}.5"), 0)
        }));
        let text = said(&offers);
        assert!(
            text.ends_with("t4 in a has 0 GPUs, and the job needs A10G:2; and 4 more"),
            "{text}"
        );
    }

    #[test]
    fn of_the_gpus_of_this_workstation_nothing_is_promised() {
        let mut wanted = spec(LimitsSpec::default());
        wanted.machine.gpus = "H100:8".parse::<GpuRequirement>().unwrap();
        let placed =
            place(&wanted, &[offer(Cloud::Local, "a", "0", 0)], None, Span::ZERO, NOW).unwrap();
        assert_eq!(
            placed.reasons[0], "the one machine that there is, at $0.00/h",
            "it is not said to fit"
        );
        assert!(
            placed.reasons[1]
                .starts_with("this workstation shows no GPU, and the job needs H100:8: "),
            "{:?}",
            placed.reasons
        );
        let placed =
            place(&wanted, &[offer(Cloud::Local, "a", "0", 8)], None, Span::ZERO, NOW).unwrap();
        assert_eq!(
            placed.reasons[1],
            "this workstation shows 8 GPUs; whether they are the job's H100:8 is seen when it starts"
        );
    }

    #[test]
    fn the_most_it_can_cost_follows_from_the_first_limit() {
        let hour = Span::from_secs(3600);
        let limits = LimitsSpec {
            max_runtime: Some(hour),
            budget: Some("$1".parse().unwrap()),
            deadline: None,
            ..LimitsSpec::default()
        };
        let offers = [offer(Cloud::Aws, "a", "4", 0)];
        // The budget lasts a quarter of an hour, including the power-off.
        let placed = place(&spec(limits.clone()), &offers, limits.budget, Span::ZERO, NOW).unwrap();
        assert_eq!(placed.kill_at, Some(NOW + Duration::from_secs(900 - 120)));
        assert_eq!(placed.most_usd, Some("1".parse().unwrap()));
        let free = [offer(Cloud::Local, "a", "0", 0)];
        let placed = place(&spec(limits), &free, Some("$1".parse().unwrap()), hour, NOW).unwrap();
        assert_eq!(placed.most_usd, Some(Usd::ZERO));
        assert_eq!(
            placed.kill_at,
            Some(NOW + Duration::from_secs(2 * 3600 + 300)),
            "an extension counts"
        );
    }

    fn spot(price: &str, on_demand: &str) -> Offer {
        let full = Some(UsdPerHour::new(on_demand.parse().unwrap()));
        Offer { market: Market::Spot, on_demand: full, ..offer(Cloud::Aws, "s", price, 0) }
    }

    #[test]
    fn a_budget_is_reckoned_with_what_an_hour_may_come_to() {
        let wanted = spec(LimitsSpec::default());
        let mut offers = [spot("0.4", "1")];
        offers[0].extras = UsdPerHour::new("0.14".parse().unwrap());
        let placed = place(&wanted, &offers, Some("$6".parse().unwrap()), Span::ZERO, NOW).unwrap();
        // The bid is 0.46: ten hours at 0.6, including the power-off.
        assert_eq!(placed.bid, Some(UsdPerHour::new("0.46".parse().unwrap())));
        assert_eq!(placed.kill_at, Some(NOW + Duration::from_secs(36_000 - 120)));
        assert_eq!(placed.most_usd, Some("6".parse().unwrap()));
    }

    #[test]
    fn a_budget_that_buys_no_work_is_refused_in_words() {
        let wanted = spec(LimitsSpec::default());
        let error = place(
            &wanted,
            &[offer(Cloud::Aws, "a", "4", 0)],
            Some("0.5".parse().unwrap()),
            Span::ZERO,
            NOW,
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "no offer fits: t in a costs up to $4.00/h with its disk and address: the $0.50 left of the budget buy 5m 30s, and less than $0.80 is not worth a start"
        );
        let few = [offer(Cloud::Aws, "a", "4", 0), offer(Cloud::Aws, "b", "1", 0)];
        assert_eq!(
            place(&wanted, &few, Some("0.5".parse().unwrap()), Span::ZERO, NOW).unwrap().offer,
            few[1]
        );
        // A workstation is free, but a budget that is spent before the first check limits nothing.
        let dear = [offer(Cloud::Local, "a", "100000", 0)];
        let error = place(&wanted, &dear, Some("1".parse().unwrap()), Span::ZERO, NOW).unwrap_err();
        assert!(
            error.to_string().contains("the $1.00 left of the budget are spent within a second"),
            "{error}"
        );
        assert!(place(&wanted, &dear, Some("100".parse().unwrap()), Span::ZERO, NOW).is_ok());
        assert!(
            place(
                &wanted,
                &[offer(Cloud::Local, "a", "4", 0)],
                Some("0.01".parse().unwrap()),
                Span::ZERO,
                NOW
            )
            .is_ok()
        );
    }

    #[test]
    fn what_fits_too_is_tried_in_order_and_on_demand_comes_when_it_is_the_cheaper() {
        let wanted = spec(an_hour());
        let offers = [offer(Cloud::Aws, "a", "1", 0), spot("0.4", "1"), spot("0.3", "1")];
        let placed = place(&wanted, &offers, None, Span::ZERO, NOW).unwrap();
        assert_eq!(placed.offer, offers[2]);
        assert_eq!(placed.fallbacks, [offers[1].clone(), offers[0].clone()]);
    }
}
