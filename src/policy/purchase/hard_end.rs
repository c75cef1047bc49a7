//! A machine's hard end, and the most that it can cost until then.
//!
//! ```text
//!   now ─ work ─ drain ─ hard end ── stop grace ── billing has ended
//!                        └ run time and deadline: 5 minutes after them, for slow listings
//!                        └ budget: early enough that even the stop grace is paid
//! ```
//! A budget includes the drain and the power-off. A spot price may rise to the bid, so the bid is
//! used. `placement` chooses the offer.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{Plan, Spec};
use crate::market::{CloudKind, Offer, Span, Usd, UsdPerHour, elapsed};

/// The agent saves and uploads before its limit, then powers off within two minutes. The rest is
/// for clocks and slow listings. With less, a power-off could be cut off. With more, a hung machine
/// bills longer.
pub const DRAIN_ALLOWANCE: Duration = Duration::from_secs(5 * 60);

/// From the hard end to the last billed second: the agent needs up to two minutes for a power-off.
pub const STOP_GRACE: Duration = Duration::from_secs(120);

/// A machine boots and prepares for three minutes, and saves and uploads for two. A shorter life
/// would spend most of the money without work.
pub(crate) const LIFE_MIN: Duration = Duration::from_secs(10 * 60);

/// A workstation's agent checks once a second, so it cannot enforce a budget that is spent sooner.
const LOCAL_LIFE_MIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub struct HardEndTerms<'a> {
    pub spec: &'a Spec,
    pub offer: &'a Offer,
    /// The most that an hour may cost, on the spot market.
    pub bid: Option<UsdPerHour>,
    pub budget_left: Option<Usd>,
    /// The users' extensions so far.
    pub more_time: Span,
    pub now: Timestamp,
}

impl<'a> HardEndTerms<'a> {
    /// The terms of an existing plan, with later extensions.
    pub fn of_plan(
        spec: &'a Spec,
        plan: &'a Plan,
        budget_left: Option<Usd>,
        more_time: Span,
    ) -> Self {
        HardEndTerms {
            spec,
            offer: &plan.offer,
            bid: plan.bid,
            budget_left,
            more_time,
            now: plan.created,
        }
    }

    /// The most that an hour may cost in total.
    pub fn dearest(&self) -> UsdPerHour {
        self.offer.hourly_at_most(self.bid)
    }

    /// The hard cap on the machine's life; `None`: unlimited.
    pub fn hard_end(&self) -> Option<Timestamp> {
        let (limits, more) = (&self.spec.limits, self.more_time.duration());
        let run_time =
            limits.max_runtime.map(|time| later(self.now, time.duration().saturating_add(more)));
        let deadline = limits.deadline.map(|deadline| later(deadline, more));
        let of_time = [run_time, deadline]
            .into_iter()
            .flatten()
            .min()
            .map(|first| later(first, DRAIN_ALLOWANCE));
        [of_time, self.of_budget()].into_iter().flatten().min()
    }

    /// When the budget is spent. A workstation's price is the user's own estimate and is not
    /// billed, so its drain may follow.
    fn of_budget(&self) -> Option<Timestamp> {
        let left = self.budget_left?;
        if self.offer.cloud == CloudKind::Local {
            let time = self.offer.hourly().time_for(left)?;
            return Some(later(later(self.now, time), DRAIN_ALLOWANCE));
        }
        Some(later(self.now, self.dearest().time_for(left)?.saturating_sub(STOP_GRACE)))
    }

    /// If the budget ends the machine before its time limits: after how long, at which price, and
    /// the fix.
    pub fn cut_short(&self) -> Option<String> {
        let (left, end) = (self.budget_left?, self.of_budget()?);
        let without = HardEndTerms { budget_left: None, ..*self }.hard_end()?;
        if self.offer.cloud == CloudKind::Local || end >= without {
            return None;
        }
        let (ends, asked) = (
            Span::from_secs(self.life(end).as_secs()),
            Span::from_secs(self.life(without).saturating_sub(DRAIN_ALLOWANCE).as_secs()),
        );
        let dearest = self.dearest();
        let by_bid = self.bid.is_some_and(|bid| bid > self.offer.price);
        let (reckoned, mends) = if by_bid {
            (
                format!("the bid, which is up to {dearest} with disk and address"),
                "a lower `max_price` or a higher `limits.budget`",
            )
        } else {
            (format!("{dearest} with disk and address"), "a higher `limits.budget`")
        };
        Some(format!(
            "the budget ends it after {ends}, not after the {asked} that its limits allow: reckoned with {reckoned}, {left} buy no more; {mends} would mend that"
        ))
    }

    /// The most that the machine costs until its hard end; `None`: unlimited, at a price above
    /// zero.
    pub fn most(&self) -> Option<Usd> {
        if self.offer.hourly().per_hour() == Usd::ZERO {
            return Some(Usd::ZERO);
        }
        let grace = if self.offer.cloud == CloudKind::Local { Duration::ZERO } else { STOP_GRACE };
        Some(self.dearest().cost_of(self.life(self.hard_end()?).saturating_add(grace)))
    }

    fn life(&self, hard_end: Timestamp) -> Duration {
        elapsed(self.now, hard_end)
    }

    /// The smallest budget that is worth a start.
    pub fn least(&self) -> Usd {
        self.dearest().cost_of(if self.offer.cloud == CloudKind::Local {
            LOCAL_LIFE_MIN
        } else {
            LIFE_MIN + STOP_GRACE
        })
    }

    /// The most that its time limits allow without a budget; `None`: no other limit.
    pub fn whole(&self) -> Option<Usd> {
        let unbounded = HardEndTerms { budget_left: None, ..*self };
        unbounded.hard_end()?;
        unbounded.most()
    }

    /// Checks that the budget buys enough time for a start.
    ///
    /// # Errors
    /// When it does not; the text follows the machine's name.
    pub fn check(&self) -> Result<(), String> {
        let (Some(left), Some(end)) = (self.budget_left, self.of_budget()) else { return Ok(()) };
        let (dearest, least) = (self.dearest(), self.least());
        if self.offer.cloud == CloudKind::Local {
            let held = left >= least;
            return if held {
                Ok(())
            } else {
                Err(format!(
                    "costs {dearest}: the {left} left of the budget are spent within a second, before anybody looks"
                ))
            };
        }
        let life = self.life(end);
        if life >= LIFE_MIN {
            return Ok(());
        }
        let buys = Span::from_secs(life.as_secs());
        Err(format!(
            "costs up to {dearest} with its disk and address: the {left} left of the budget buy {buys}, and less than {least} is not worth a start"
        ))
    }
}

/// The largest of several costs; `None` if one is unlimited.
pub(crate) fn dearest(mut most: impl Iterator<Item = Option<Usd>>) -> Option<Usd> {
    most.try_fold(Usd::ZERO, |dearest, most| Some(dearest.max(most?)))
}

fn later(from: Timestamp, time: Duration) -> Timestamp {
    from.saturating_add(time).unwrap_or(Timestamp::MAX)
}
