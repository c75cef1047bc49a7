//! Which offer to take, its maximum cost, and how long its machine may run.

use jiff::Timestamp;

pub use super::ask::{Ask, Overheads};
use super::candidate::Candidate;
use super::fallback_limit::Bound;
use super::hard_end::dearest;
use super::job_cost_bound::{self, JobMost};
pub use super::no_offer::{NoOffer, OverBudget};
use super::no_offer::{no_offer, unlimited};
use super::offer_reasons::{dearer, reasons};
use super::ranking::{Ranked, RankingInputs};
use crate::job::{MarketChoice, RejectedOffer};
use crate::market::{CloudKind, Offer, Usd, UsdPerHour};

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

/// Takes the fitting offer with the lowest cost for the job.
///
/// # Errors
/// When none fits; each has its reason.
pub fn place(ask: &Ask<'_>) -> Result<Placement, NoOffer> {
    // First, because offers and prices do not matter here.
    if ask.supply.offers.iter().any(|offer| offer.cloud != CloudKind::Local)
        && !ask.spec.limits.bound_a_machine()
        && ask.budget_left.is_none()
    {
        return Err(unlimited());
    }
    let bound = Bound::of(ask);
    let candidates: Vec<Candidate<'_>> =
        ask.supply.offers.iter().map(|offer| Candidate::new(ask, &bound, offer)).collect();
    let fitting = ranked(ask, &bound.rates, &candidates);
    match fitting.split_first() {
        Some((best, others)) => Ok(explained(ask, &bound, &candidates, (best, others))),
        None => Err(no_offer(ask, &candidates)),
    }
}

/// Those that fit, the best first.
fn ranked<'a>(
    ask: &Ask<'_>,
    rates: &RankingInputs<'_>,
    candidates: &'a [Candidate<'a>],
) -> Vec<&'a Candidate<'a>> {
    let mut fitting: Vec<&Candidate<'_>> =
        candidates.iter().filter(|candidate| candidate.fits()).collect();
    let worth = |offer: &Offer| {
        (ask.prefers.is_some_and(|market| market != offer.market), rates.rank(offer))
    };
    fitting.sort_by(|a, b| {
        let (a, b) = (worth(a.offer), worth(b.offer));
        let ((a_later, (a_rest, a_hour)), (b_later, (b_rest, b_hour))) = (a, b);
        a_later.cmp(&b_later).then(a_rest.total_cmp(&b_rest)).then(a_hour.total_cmp(&b_hour))
    });
    fitting
}

/// The best with its reasons, and why each other was not taken.
fn explained<'a>(
    ask: &'a Ask<'a>,
    bound: &Bound<'_>,
    candidates: &'a [Candidate<'a>],
    (best, others): (&'a Candidate<'a>, &[&'a Candidate<'a>]),
) -> Placement {
    let rates = &bound.rates;
    let fitting: Vec<&Candidate<'_>> = [best].into_iter().chain(others.iter().copied()).collect();
    let offers: Vec<&Offer> = fitting.iter().map(|candidate| candidate.offer).collect();
    let rejected = |offer: &Offer, because: String| RejectedOffer { offer: offer.clone(), because };
    let unfit =
        candidates.iter().filter_map(|no| Some(rejected(no.offer, no.rejection()?.to_owned())));
    let outranked =
        others.iter().map(|other| rejected(other.offer, dearer(other.offer, best.offer, rates)));
    let too_dear = candidates
        .iter()
        .filter_map(Candidate::too_dear)
        .map(|dear| rejected(&dear.offer, dear.because()));
    let rejected = unfit.chain(outranked).chain(too_dear).collect();
    let most_any_usd = dearest(fitting.iter().map(|candidate| candidate.terms.most()));
    let mut reasons = reasons(ask, rates, best, others);
    reasons.extend(rates.about_speeds(&offers));
    reasons.extend(
        rates.expectation(best.offer).filter(|_| ask.spec.machine.market != MarketChoice::Auto),
    );
    reasons.extend(best.terms.cut_short());
    Placement {
        offer: best.offer.clone(),
        bid: best.bid.as_ref().map(|bid| bid.price),
        reasons,
        rejected,
        fallbacks: others.iter().map(|other| other.offer.clone()).collect(),
        ranking: offers.into_iter().map(|offer| rates.ranked(offer)).collect(),
        most_usd: best.terms.most(),
        most_any_usd,
        most_job: job_cost_bound::of(ask, bound, &fitting, most_any_usd),
        kill_at: best.terms.hard_end(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::job::{LimitsSpec, Spec};
    use crate::market::{Arch, GpuRequirement, Market, Region, Span, Supply, Zone};

    fn spec(limits: LimitsSpec) -> Spec {
        Spec { limits, ..Spec::bare() }
    }

    fn offer(cloud: CloudKind, zone: &str, dollars: &str, gpus: u32) -> Offer {
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
    fn cheapest_that_fits_is_taken_and_the_others_are_named() {
        let mut wanted = spec(an_hour());
        wanted.machine.gpus = "A10G:1".parse::<GpuRequirement>().unwrap();
        let offers = [
            offer(CloudKind::Aws, "a", "2", 1),
            offer(CloudKind::Aws, "b", "1", 1),
            offer(CloudKind::Aws, "c", "0.1", 0),
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
        let offers = [offer(CloudKind::Aws, "a", "2", 0), spot("0.4", "1")];
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
        let (free, priced) =
            (offer(CloudKind::Aws, "a", "0", 0), offer(CloudKind::Aws, "b", "2", 0));
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
            &[offer(CloudKind::Local, "a", "2", 0)],
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
        let mut offers =
            vec![offer(CloudKind::Aws, "b", "2", 1), offer(CloudKind::Aws, "a", "1", 1)];
        let said = |offers: &[Offer]| {
            place(&wanted, offers, None, Span::ZERO, NOW).unwrap_err().to_string()
        };
        assert_eq!(said(&offers), "no offer fits: t in a, b has 1 GPUs, and the job needs A10G:2");
        offers.extend((2..9).map(|n| Offer {
            instance_type: format!("t{n}"),
            ..offer(CloudKind::Aws, "a", &format!("{n}.5"), 0)
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
            place(&wanted, &[offer(CloudKind::Local, "a", "0", 0)], None, Span::ZERO, NOW).unwrap();
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
            place(&wanted, &[offer(CloudKind::Local, "a", "0", 8)], None, Span::ZERO, NOW).unwrap();
        assert_eq!(
            placed.reasons[1],
            "this workstation shows 8 GPUs; whether they are the job's H100:8 is seen when it starts"
        );
    }

    #[test]
    fn most_it_can_cost_follows_from_the_first_limit() {
        let hour = Span::from_secs(3600);
        let limits = LimitsSpec {
            max_runtime: Some(hour),
            budget: Some("$1".parse().unwrap()),
            deadline: None,
            ..LimitsSpec::default()
        };
        let offers = [offer(CloudKind::Aws, "a", "4", 0)];
        // The budget lasts a quarter of an hour, including the power-off.
        let placed = place(&spec(limits.clone()), &offers, limits.budget, Span::ZERO, NOW).unwrap();
        assert_eq!(placed.kill_at, Some(NOW + Duration::from_secs(900 - 120)));
        assert_eq!(placed.most_usd, Some("1".parse().unwrap()));
        let free = [offer(CloudKind::Local, "a", "0", 0)];
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
        Offer { market: Market::Spot, on_demand: full, ..offer(CloudKind::Aws, "s", price, 0) }
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
    fn budget_that_buys_no_work_is_refused_in_words() {
        let wanted = spec(LimitsSpec::default());
        let error = place(
            &wanted,
            &[offer(CloudKind::Aws, "a", "4", 0)],
            Some("0.5".parse().unwrap()),
            Span::ZERO,
            NOW,
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "no offer fits: t in a costs up to $4.00/h with its disk and address: the $0.50 left of the budget buy 5m 30s, and less than $0.80 is not worth a start"
        );
        let few = [offer(CloudKind::Aws, "a", "4", 0), offer(CloudKind::Aws, "b", "1", 0)];
        assert_eq!(
            place(&wanted, &few, Some("0.5".parse().unwrap()), Span::ZERO, NOW).unwrap().offer,
            few[1]
        );
        // A workstation is free, but a budget that is spent before the first check limits nothing.
        let dear = [offer(CloudKind::Local, "a", "100000", 0)];
        let error = place(&wanted, &dear, Some("1".parse().unwrap()), Span::ZERO, NOW).unwrap_err();
        assert!(
            error.to_string().contains("the $1.00 left of the budget are spent within a second"),
            "{error}"
        );
        assert!(place(&wanted, &dear, Some("100".parse().unwrap()), Span::ZERO, NOW).is_ok());
        assert!(
            place(
                &wanted,
                &[offer(CloudKind::Local, "a", "4", 0)],
                Some("0.01".parse().unwrap()),
                Span::ZERO,
                NOW
            )
            .is_ok()
        );
    }

    #[test]
    fn fallback_offers_go_in_order_and_on_demand_comes_if_cheaper() {
        let wanted = spec(an_hour());
        let offers = [offer(CloudKind::Aws, "a", "1", 0), spot("0.4", "1"), spot("0.3", "1")];
        let placed = place(&wanted, &offers, None, Span::ZERO, NOW).unwrap();
        assert_eq!(placed.offer, offers[2]);
        assert_eq!(placed.fallbacks, [offers[1].clone(), offers[0].clone()]);
    }
}
