//! The most that a whole job can cost, all its machines together: an attempt that is interrupted or lost is followed by another,
//! and each begins its run time anew.
//!
//! ```text
//!   budget ─────> held over all attempts, power-offs included (`hard_end`)
//!   deadline ───> one machine after the other and none beyond it: the time until then, at the dearest hour
//!   run time ───> of one attempt, as often as `interruptions.max` lets the job go on
//!   the least of them is the bound; where there is none, nothing bounds the job
//! ```
//! Later attempts are reckoned with the most that the rule of `max_price` ever bids, at the on-demand prices of now, and with all
//! that may be bought now or when a refusal is forgotten and a price has come down. A quota that is raised, another account of
//! prices or a type that was too dear beside a cheaper one may bring a dearer machine: only a budget holds whatever comes, and the
//! words beside the figure say so. A machine that nobody ever saw may be settled above it, as an estimate. What must never live here: the most of one attempt (`hard_end`), words (`cli::plan::text`).

use serde::Serialize;

use super::bid::{self, Bid};
use super::fallback_limit::Bound;
use super::hard_end::{DRAIN_ALLOWANCE, Terms, dearest};
use super::placement::Ask;
use crate::job::{LimitsSpec, MarketChoice, Spec};
use crate::market::{Cloud, Market, Offer, Usd, UsdPerHour};
use crate::policy::lifecycle::relaunch;

/// A bound on what a job costs from its next attempt on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobMost {
    /// `None`: nothing bounds it.
    pub usd: Option<Usd>,
    pub by: MostBy,
    /// How many machines it may still get, one after the other; `None`: nothing counts them.
    pub machines: Option<u32>,
    /// The most by its budget, whatever bounds it lower; `None`: none was set.
    pub budget: Option<Usd>,
}

/// What bounds it; the names are an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MostBy {
    /// No hour costs anything.
    Free,
    Budget,
    Deadline,
    /// The number of machines, and the longest run time of each.
    Machines,
    Nothing,
}

/// `most_any`: the most of the next attempt alone, whichever machine it gets.
pub(crate) fn of(ask: &Ask<'_>, bound: &Bound<'_>, fitting: &[(&Offer, Option<Bid>)], most_any: Option<Usd>) -> JobMost {
    let machines = machines(ask);
    let budget = ask.budget_left.map(|left| left + after_the_budget(fitting));
    if most_any == Some(Usd::ZERO) {
        return JobMost { usd: most_any, by: MostBy::Free, machines, budget };
    }
    let later = Later::of(ask, bound, fitting);
    let limits = &ask.spec.limits;
    let deadline = limits.deadline.and_then(|_| later.most(LimitsSpec { max_runtime: None, budget: None, ..limits.clone() }));
    let each = machines.and_then(|machines| match machines {
        1 => Some((most_any?, MostBy::Machines)),
        _ => {
            let again = later.most(LimitsSpec { budget: None, ..limits.clone() })?;
            Some((most_any? + Usd::from_micros(again.micros().saturating_mul(i64::from(machines - 1))), MostBy::Machines))
        }
    });
    let bounds = [budget.map(|usd| (usd, MostBy::Budget)), deadline.map(|usd| (usd, MostBy::Deadline)), each];
    // Of equals the first: what is said in dollars is understood best.
    let least = bounds.into_iter().flatten().min_by_key(|(usd, _)| *usd);
    let (usd, by) = least.map_or((None, MostBy::Nothing), |(usd, by)| (Some(usd), by));
    JobMost { usd, by, machines, budget }
}

impl JobMost {
    /// The same of a job whose next machine is a kept one: the others may be any, of which this plan knows nothing, and only a budget
    /// bounds them.
    #[must_use]
    pub fn after_a_kept_machine(self) -> JobMost {
        if self.by == MostBy::Machines && self.machines != Some(1) || self.by == MostBy::Deadline {
            let by = if self.budget.is_some() { MostBy::Budget } else { MostBy::Nothing };
            return JobMost { usd: self.budget, by, ..self };
        }
        self
    }
}

/// How many machines the job may still get; `None`: nothing counts them. A job that chooses its market by itself moves from one
/// to the other as often as that is worth it.
fn machines(ask: &Ask<'_>) -> Option<u32> {
    let max = ask.spec.interruptions.max;
    let counted = max != u32::MAX && ask.spec.machine.market != MarketChoice::Auto;
    counted.then(|| max.saturating_add(1).saturating_sub(relaunch::interruptions(ask.history)).max(1))
}

/// What later attempts may be bought as, each with the most that its hour may be bid for.
struct Later<'a> {
    ask: &'a Ask<'a>,
    /// `None`: nobody knows what one of them may be bid for.
    offers: Option<Vec<(&'a Offer, Option<UsdPerHour>)>>,
}

impl<'a> Later<'a> {
    fn of(ask: &'a Ask<'a>, bound: &Bound<'_>, fitting: &[(&'a Offer, Option<Bid>)]) -> Self {
        let now = fitting.iter().map(|(offer, bid)| (*offer, bid.as_ref().map(|bid| bid.price)));
        let others = ask.supply.offers.iter().filter(|offer| ask.fits_later(bound, offer)).map(|offer| (offer, None));
        let bid = |(offer, bid): (&'a Offer, Option<UsdPerHour>)| {
            if offer.market == Market::OnDemand || offer.cloud == Cloud::Local {
                return Some((offer, None));
            }
            Some((offer, bid.max(Some(bid::most_ever(ask.spec.machine.max_price, offer)?))))
        };
        Later { ask, offers: now.chain(others).map(bid).collect() }
    }

    /// The most of one of them under these limits; `None`: nothing bounds it.
    fn most(&self, limits: LimitsSpec) -> Option<Usd> {
        let (ask, spec) = (self.ask, Spec { limits, ..self.ask.spec.clone() });
        let terms = |offer, bid| Terms { spec: &spec, offer, bid, budget_left: None, more_time: ask.more_time, now: ask.now };
        dearest(self.offers.as_ref()?.iter().map(|(offer, bid)| terms(*offer, *bid).most()))
    }
}

/// The budget of a workstation ends its work, and its drain may come after; at a cloud that is in the budget.
fn after_the_budget(fitting: &[(&Offer, Option<Bid>)]) -> Usd {
    let hour = fitting.iter().filter(|(offer, _)| offer.cloud == Cloud::Local).map(|(offer, _)| offer.hourly());
    hour.max().unwrap_or(UsdPerHour::ZERO).cost_of(DRAIN_ALLOWANCE)
}
