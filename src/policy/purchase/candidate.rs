//! One offer, judged once: its bid, its limits and costs, and whether the job may take it.
//!
//! ```text
//!   Supply ──Candidate::new──> bid, terms, verdict ─> placement ranks those that fit, and explains
//! ```

use std::time::Duration;

use super::ask::Ask;
use super::bid::{self, Bid, NoBid};
use super::fallback_limit::{Bound, TooDear};
use super::hard_end::HardEndTerms;
use super::refusal_backoff::{ago, refused_lately};
use crate::job::EndedBecause;
use crate::market::{CloudKind, Market, Offer, Span};

pub(crate) struct Candidate<'a> {
    pub offer: &'a Offer,
    /// `None`: bids are only for spot machines, or the rule gives none.
    pub bid: Option<Bid>,
    /// With that bid.
    pub terms: HardEndTerms<'a>,
    pub verdict: Verdict,
}

pub(crate) enum Verdict {
    Fits,
    /// It would do, and costs too much to buy without asking.
    TooDear(Box<TooDear>),
    /// Why it does not fit, to follow its name.
    Rejected(String),
}

impl<'a> Candidate<'a> {
    pub fn new(ask: &Ask<'a>, bound: &Bound<'_>, offer: &'a Offer) -> Self {
        let is_bid_for = offer.market == Market::Spot && offer.cloud != CloudKind::Local;
        let bid = is_bid_for.then(|| {
            bid::bid(ask.spec.machine.max_price, offer, ask.supply.history(offer), ask.now)
        });
        let terms = ask.terms(offer, bid.as_ref().and_then(|bid| bid.as_ref().ok()));
        let verdict = match (judge(ask, &terms, bid.as_ref()), bound.too_dear(offer)) {
            (Err(because), _) => Verdict::Rejected(because),
            (Ok(()), Some(dear)) => Verdict::TooDear(Box::new(dear)),
            (Ok(()), None) => Verdict::Fits,
        };
        Candidate { offer, bid: bid.and_then(Result::ok), terms, verdict }
    }

    pub fn fits(&self) -> bool {
        matches!(self.verdict, Verdict::Fits)
    }

    pub fn rejection(&self) -> Option<&str> {
        if let Verdict::Rejected(because) = &self.verdict { Some(because) } else { None }
    }

    pub fn too_dear(&self) -> Option<&TooDear> {
        if let Verdict::TooDear(dear) = &self.verdict { Some(dear) } else { None }
    }

    /// Whether its price now is above the bid.
    pub fn is_above_bid(&self) -> bool {
        self.bid.as_ref().is_some_and(|bid| bid.price < self.offer.price)
    }
}

/// Why an offer does not fit.
fn judge(
    ask: &Ask<'_>,
    terms: &HardEndTerms<'_>,
    bid: Option<&Result<Bid, NoBid>>,
) -> Result<(), String> {
    let offer = terms.offer;
    // For a workstation only the cost is checked here; its agent asks the driver and reports
    // problems.
    if offer.cloud == CloudKind::Local {
        return terms.check();
    }
    if (HardEndTerms { bid: None, ..*terms }).hard_end().is_none() {
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
        && !ask.has_quota(offer)
    {
        let (left, max) = (quota.vcpus_left(), quota.vcpus_max);
        return Err(format!(
            "needs {} vCPUs, and the quota \"{}\" has {left} of {max} left in {}",
            ask.vcpus(offer),
            quota.name,
            offer.region
        ));
    }
    if let Some(bid) = bid {
        let bid = bid.as_ref().map_err(NoBid::to_string)?;
        if bid.price < offer.price {
            return Err(format!("costs {} now, more than the bid of {}", offer.price, bid.price));
        }
    }
    terms.check()
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
