//! The most that a whole job can cost. After an interruption or a loss another attempt follows,
//! with its own run time.
//!
//! ```text
//!   budget ─────> for all attempts together, power-offs included (`hard_end`)
//!   deadline ───> one machine after another until then, at the most expensive hour
//!   run time ───> of one attempt, times the attempts that `interruptions.max` allows
//!   the smallest is the bound; without any, the cost is unlimited
//! ```
//! Later attempts count with the highest bid of the `max_price` rule at current on-demand prices.
//! They may use every offer that is possible now, or after a refusal expires or a price falls. A
//! raised quota, other prices or a type that was too expensive may bring a costlier machine. Only a
//! budget holds in every case, and the output says so. A machine that was never observed may be
//! settled above the bound, as an estimate. `hard_end` has the bound for one attempt,
//! `cli::plan::text` the words.

use serde::Serialize;

use super::ask::Ask;
use super::bid;
use super::candidate::Candidate;
use super::fallback_limit::Bound;
use super::hard_end::{DRAIN_ALLOWANCE, HardEndTerms, dearest};
use crate::job::{LimitsSpec, MarketChoice, Spec};
use crate::market::{CloudKind, Market, Offer, Usd, UsdPerHour};
use crate::policy::lifecycle::relaunch;

/// A bound on the cost of a job from its next attempt on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobMost {
    /// `None`: unlimited.
    pub usd: Option<Usd>,
    pub by: MostBy,
    /// How many more machines it can get, one after another; `None`: unlimited.
    pub machines: Option<u32>,
    /// The bound by its budget, even if another is lower; `None`: no budget.
    pub budget: Option<Usd>,
}

/// The kind of limit; the names are an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MostBy {
    /// All hours are free.
    Free,
    Budget,
    Deadline,
    /// The number of machines, times the longest run time of each.
    Machines,
    Nothing,
}

/// `most_any`: the most for the next attempt alone, on any machine.
pub(crate) fn of<'a>(
    ask: &'a Ask<'a>,
    bound: &Bound<'_>,
    fitting: &[&'a Candidate<'a>],
    most_any: Option<Usd>,
) -> JobMost {
    let machines = machines(ask);
    let budget = ask.budget_left.map(|left| left + after_the_budget(fitting));
    if most_any == Some(Usd::ZERO) {
        return JobMost { usd: most_any, by: MostBy::Free, machines, budget };
    }
    let later = Later::of(ask, bound, fitting);
    let limits = &ask.spec.limits;
    let deadline = limits
        .deadline
        .and_then(|_| later.most(LimitsSpec { max_runtime: None, budget: None, ..limits.clone() }));
    let each = machines.and_then(|machines| match machines {
        1 => Some((most_any?, MostBy::Machines)),
        _ => {
            let again = later.most(LimitsSpec { budget: None, ..limits.clone() })?;
            Some((
                most_any?
                    + Usd::from_micros(again.micros().saturating_mul(i64::from(machines - 1))),
                MostBy::Machines,
            ))
        }
    });
    let bounds = [
        budget.map(|usd| (usd, MostBy::Budget)),
        deadline.map(|usd| (usd, MostBy::Deadline)),
        each,
    ];
    // On a tie the first: an amount in dollars is clearest.
    let least = bounds.into_iter().flatten().min_by_key(|(usd, _)| *usd);
    let (usd, by) = least.map_or((None, MostBy::Nothing), |(usd, by)| (Some(usd), by));
    JobMost { usd, by, machines, budget }
}

impl JobMost {
    /// The same for a job whose next machine is a kept one. The later ones are unknown here, so
    /// only a budget bounds them.
    #[must_use]
    pub fn after_a_kept_machine(self) -> JobMost {
        if self.by == MostBy::Machines && self.machines != Some(1) || self.by == MostBy::Deadline {
            let by = if self.budget.is_some() { MostBy::Budget } else { MostBy::Nothing };
            return JobMost { usd: self.budget, by, ..self };
        }
        self
    }
}

/// How many more machines the job can get; `None`: unlimited. An `auto` job changes markets as
/// often as that pays.
fn machines(ask: &Ask<'_>) -> Option<u32> {
    let max = ask.spec.interruptions.max;
    let counted = max != u32::MAX && ask.spec.machine.market != MarketChoice::Auto;
    counted
        .then(|| max.saturating_add(1).saturating_sub(relaunch::interruptions(ask.history)).max(1))
}

/// The offers for later attempts, each with its highest hourly bid.
struct Later<'a> {
    ask: &'a Ask<'a>,
    /// `None`: the highest bid of one is unknown.
    offers: Option<Vec<(&'a Offer, Option<UsdPerHour>)>>,
}

impl<'a> Later<'a> {
    fn of(ask: &'a Ask<'a>, bound: &Bound<'_>, fitting: &[&'a Candidate<'a>]) -> Self {
        let now = fitting.iter().map(|next| (next.offer, next.terms.bid));
        let others = ask
            .supply
            .offers
            .iter()
            .filter(|offer| ask.fits_later(bound, offer))
            .map(|offer| (offer, None));
        let bid = |(offer, bid): (&'a Offer, Option<UsdPerHour>)| {
            if offer.market == Market::OnDemand || offer.cloud == CloudKind::Local {
                return Some((offer, None));
            }
            Some((offer, bid.max(Some(bid::most_ever(ask.spec.machine.max_price, offer)?))))
        };
        Later { ask, offers: now.chain(others).map(bid).collect() }
    }

    /// The most of one of them under these limits; `None`: unlimited.
    fn most(&self, limits: LimitsSpec) -> Option<Usd> {
        let (ask, spec) = (self.ask, Spec { limits, ..self.ask.spec.clone() });
        let terms = |offer, bid| HardEndTerms {
            spec: &spec,
            offer,
            bid,
            budget_left: None,
            more_time: ask.more_time,
            now: ask.now,
        };
        dearest(self.offers.as_ref()?.iter().map(|(offer, bid)| terms(*offer, *bid).most()))
    }
}

/// A workstation's budget ends its work, and its drain may follow; a cloud's budget includes it.
fn after_the_budget(fitting: &[&Candidate<'_>]) -> Usd {
    let hour = fitting
        .iter()
        .map(|candidate| candidate.offer)
        .filter(|offer| offer.cloud == CloudKind::Local)
        .map(Offer::hourly);
    hour.max().unwrap_or(UsdPerHour::ZERO).cost_of(DRAIN_ALLOWANCE)
}
