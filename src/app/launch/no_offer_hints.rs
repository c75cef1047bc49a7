//! Hints when no offer fits: one line for each obstacle, the nearest first.
//!
//! Not here: which obstacle it is (`policy`).

use crate::market::{Catalog, CloudKind, Offer};
use crate::policy::account::doctor;
use crate::policy::purchase::placement::{NoOffer, OverBudget};

/// Empty: no known cure.
pub fn hints(none: &NoOffer) -> Vec<String> {
    let bid = none.above_bid.as_deref().map(enough);
    let budget = none.over_budget.as_deref().map(larger);
    let quota = none.short_of.as_deref().map(|(quota, vcpus)| {
        let more = doctor::ask_for_more(quota.region.as_str(), &quota.code, *vcpus);
        format!(
            "ask for {vcpus} vCPUs of the quota \"{}\", which takes hours to days: {more}",
            quota.name
        )
    });
    let dearer = none.too_dear.as_deref().map(|dear| {
        let (name, price) = (dear.offer.describe(), dear.offer.price);
        format!("`--fallback-cost {}`, or `fallback_cost` in the job file, would buy {name}, at {price}", dear.enough())
    });
    let prices = (!none.unpriced.is_empty()).then(with_prices);
    let limit =
        none.is_unlimited.then(|| "`--max-runtime 24h` or `--budget 20` sets one".to_owned());
    [limit, bid, budget, quota, dearer, prices].into_iter().flatten().collect()
}

fn enough(offer: &Offer) -> String {
    format!(
        "{} costs {} now: `--max-price {}` would take it, and `--max-price auto` bids 15 % above the price",
        offer.describe(),
        offer.price,
        // As short as possible, and never below the price.
        offer.price.per_hour().in_hundredths_of_a_cent().dollars()
    )
}

/// A budget that starts a machine, and one that pays for all its limits allow. Both include what
/// was spent.
fn larger(over: &OverBudget) -> String {
    let OverBudget { offer, spent, least, whole } = over;
    let typed = |amount| format!("--budget {}", (*spent + amount).in_cents().dollars());
    let words = (*spent + *least).in_cents();
    let (worth, start) = if offer.cloud == CloudKind::Local {
        ("a second", "")
    } else {
        ("10 minutes", ", and a start may take as long")
    };
    let whole = whole.filter(|whole| whole > least);
    let whole = whole
        .map(|whole| {
            format!("; `{}` would pay for all the time that its limits allow", typed(whole))
        })
        .unwrap_or_default();
    format!(
        "`{}`, or `budget = \"{words}\"` in `[limits]`, is enough to start one: {worth} of {}{start}{whole}",
        typed(*least),
        offer.describe()
    )
}

/// A machine without a price is not bought: where prices come from, and where the shipped ones
/// apply.
pub fn with_prices() -> String {
    let names = |regions: Vec<crate::market::Region>| {
        regions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let catalog = Catalog::shipped();
    format!(
        "prices come from AWS's price list: `lamp doctor` says whether it can be read, `lamp iam controller` prints what that takes (`pricing:GetProducts`). \
         Without it, on-demand only machines with GPUs have a price, and in {} alone; spot machines, with a price in `max_price`, are bought in {}",
        names(catalog.regions()),
        names(catalog.disk_regions())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hint must not suggest a shipped price for an `m5.large` in us-east-1.
    #[test]
    fn hint_says_that_shipped_on_demand_prices_are_of_gpu_machines() {
        let said = with_prices();
        assert!(said.contains("on-demand only machines with GPUs have a price, and in us-east-1 alone; spot machines"), "{said}");
        assert!(
            Catalog::shipped().types().iter().all(|kind| kind.gpu_model.is_some()),
            "the catalogue has others: the hint is to say so"
        );
    }
}
