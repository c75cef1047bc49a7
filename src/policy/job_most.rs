//! The most that a whole job can cost, all its machines together: an attempt that is interrupted or lost is followed by another,
//! and each begins its run time anew.
//!
//! ```text
//!   budget ─────> held over all attempts, power-offs included (`hard_end`)
//!   deadline ───> one machine after the other and none beyond it: the time until then, at the dearest hour
//!   run time ───> of one attempt, as often as `interruptions.max` lets the job go on
//!   the least of them is the bound; where there is none, nothing bounds the job
//! ```
//! Later attempts are reckoned with the most that the rule of `max_price` ever bids, at the on-demand prices of now, and with the
//! offers that may be bought now. What must never live here: the most of one attempt (`hard_end`), words (`cli::plan_text`).

use serde::Serialize;

use super::bid::{self, Bid};
use super::hard_end::{DRAIN_ALLOWANCE, Terms};
use super::placement::Ask;
use super::relaunch;
use crate::job::{LimitsSpec, MarketChoice, Spec};
use crate::market::{Cloud, Market, Offer, Usd, UsdPerHour};

/// A bound on what a job costs from its next attempt on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobMost {
    /// `None`: nothing bounds it.
    pub usd: Option<Usd>,
    pub by: MostBy,
    /// How many machines it may still get, one after the other; `None`: nothing counts them.
    pub machines: Option<u32>,
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
pub(super) fn of(ask: &Ask<'_>, fitting: &[(&Offer, Option<Bid>)], most_any: Option<Usd>) -> JobMost {
    if most_any == Some(Usd::ZERO) {
        return JobMost { usd: most_any, by: MostBy::Free, machines: machines(ask) };
    }
    let timeless = LimitsSpec { max_runtime: None, budget: None, ..ask.spec.limits.clone() };
    let (timed, until_deadline) = (LimitsSpec { budget: None, ..ask.spec.limits.clone() }, ask.spec.limits.deadline.map(|_| timeless));
    let budget = ask.budget_left.map(|left| left + after_the_budget(fitting));
    let deadline = until_deadline.and_then(|limits| later(ask, fitting, limits));
    let machines = machines(ask);
    let each = machines.and_then(|machines| {
        let again =
            if machines > 1 { Usd::from_micros(later(ask, fitting, timed)?.micros().saturating_mul(i64::from(machines - 1))) } else { Usd::ZERO };
        Some((most_any? + again, MostBy::Machines))
    });
    let bounds = [budget.map(|usd| (usd, MostBy::Budget)), deadline.map(|usd| (usd, MostBy::Deadline)), each];
    // Of equals the first: what is said in dollars is understood best.
    let least = bounds.into_iter().flatten().min_by_key(|(usd, _)| *usd);
    let (usd, by) = least.map_or((None, MostBy::Nothing), |(usd, by)| (Some(usd), by));
    JobMost { usd, by, machines }
}

/// How many machines the job may still get; `None`: nothing counts them. A job that chooses its market by itself moves from one
/// to the other as often as that is worth it.
fn machines(ask: &Ask<'_>) -> Option<u32> {
    let max = ask.spec.interruptions.max;
    let counted = max != u32::MAX && ask.spec.machine.market != MarketChoice::Auto;
    counted.then(|| max.saturating_add(1).saturating_sub(relaunch::interruptions(ask.history)).max(1))
}

/// The most of one later attempt under these limits, on the dearest that may be bought.
fn later(ask: &Ask<'_>, fitting: &[(&Offer, Option<Bid>)], limits: LimitsSpec) -> Option<Usd> {
    let spec = Spec { limits, ..ask.spec.clone() };
    let most = |(offer, bid): &(&Offer, Option<Bid>)| {
        let ever = bid::most_ever(spec.machine.max_price, offer).filter(|_| offer.market == Market::Spot);
        let bid = bid.as_ref().map(|bid| bid.price).max(ever);
        let terms = Terms { spec: &spec, offer, bid, budget_left: None, more_time: ask.more_time, now: ask.now };
        terms.most(terms.hard_end())
    };
    fitting.iter().map(most).try_fold(Usd::ZERO, |dearest, most| Some(dearest.max(most?)))
}

/// The budget of a workstation ends its work, and its drain may come after; at a cloud that is in the budget.
fn after_the_budget(fitting: &[(&Offer, Option<Bid>)]) -> Usd {
    let hour = fitting.iter().filter(|(offer, _)| offer.cloud == Cloud::Local).map(|(offer, _)| offer.hourly());
    hour.max().unwrap_or(UsdPerHour::ZERO).cost_of(DRAIN_ALLOWANCE)
}
