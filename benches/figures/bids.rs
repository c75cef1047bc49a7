//! The bid that `auto` makes, judged over recorded spot prices: how often a machine could be
//! bought, and how often the price rose above the bid within a day. `lamp prices --backtest` asks
//! the same function for the prices of now.
//!
//! The recordings are not in this repository (docs/policies.md).

use std::collections::BTreeMap;
use std::path::Path;

use lamplighter::market::{
    Arch, CloudKind, Market, Offer, PriceHistory, PricePoint, Region, Usd, UsdPerHour, Zone,
};
use lamplighter::policy::purchase::bid_backtest::{Backtest, backtest};

use super::Asked;

/// As the user writes them.
const RULES: [&str; 3] = ["auto", "p95 of 14d", "100% of on-demand"];

fn usd(text: &str) -> Option<UsdPerHour> {
    text.parse::<f64>()
        .ok()
        .and_then(|dollars| Usd::from_dollars(dollars).ok())
        .map(UsdPerHour::new)
}

/// `timestamp,instance_type,availability_zone,product_description,spot_price_usd`
fn histories(file: &Path) -> Vec<PriceHistory> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut points: BTreeMap<(String, String), Vec<PricePoint>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [time, kind, zone, product, price] = cells[..] else { continue };
        let (Ok(at), Some(price)) = (time.parse(), usd(price)) else { continue };
        if product.starts_with("Linux") {
            points
                .entry((zone.to_owned(), kind.to_owned()))
                .or_default()
                .push(PricePoint { at, price });
        }
    }
    let region =
        |zone: &str| Region::new(zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase()));
    points
        .into_iter()
        .map(|((zone, kind), points)| {
            PriceHistory::new(region(&zone), Zone::new(&zone), kind, points)
        })
        .collect()
}

/// `instance_type,region,on_demand_usd_per_hour,...`
fn on_demand(file: &Path) -> BTreeMap<(String, String), UsdPerHour> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let rows = text.lines().skip(1).filter_map(|line| {
        let mut cells = line.split(',');
        Some(((cells.next()?.to_owned(), cells.next()?.to_owned()), usd(cells.next()?)?))
    });
    rows.collect()
}

fn offer(history: &PriceHistory, full: UsdPerHour) -> Offer {
    Offer {
        cloud: CloudKind::Aws,
        region: history.region.clone(),
        zone: history.zone.clone(),
        instance_type: history.instance_type.clone(),
        gpus: 1,
        gpu_model: None,
        gpu_memory_mib: None,
        vcpus: 4,
        arch: Arch::X86_64,
        market: Market::Spot,
        price: full,
        extras: UsdPerHour::ZERO,
        on_demand: Some(full),
    }
}

pub fn measured(
    rule: &str,
    histories: &[PriceHistory],
    full: &BTreeMap<(String, String), UsdPerHour>,
) -> Vec<Backtest> {
    let rule = rule.parse().expect("a rule of the table above");
    let judge = |history: &PriceHistory| {
        let full = full.get(&(history.instance_type.clone(), history.region.to_string()))?;
        let (first, last) = (history.points().first()?.at, history.points().last()?.at);
        backtest(rule, &offer(history, *full), history, first, last)
    };
    histories.iter().filter_map(judge).collect()
}

pub fn measure(asked: &Asked) {
    let full = on_demand(&asked.data.join("gpu_on_demand_prices.csv"));
    let mut files: Vec<_> = std::fs::read_dir(asked.data.join("spot_prices"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    if files.is_empty() || full.is_empty() {
        return println!("no recordings there; --data FOLDER names another");
    }
    println!(
        "| Series | Rule | Pools | Moments | Launchable | Above the bid within a day | Headroom |\n|---|---|---|---|---|---|---|"
    );
    let mut all: BTreeMap<&str, Vec<Backtest>> = BTreeMap::new();
    let row = |name: &str, rule: &str, found: &[Backtest]| {
        let moments: usize = found.iter().map(|one| one.moments).sum();
        let launched: f64 = found.iter().map(|one| one.launchable * one.moments as f64).sum();
        let exceeded: f64 = found
            .iter()
            .map(|one| one.exceeded_within_a_day * one.launchable * one.moments as f64)
            .sum();
        let headroom: f64 =
            found.iter().map(|one| one.headroom * one.launchable * one.moments as f64).sum();
        let (bought, above, times) =
            (100.0 * launched / moments as f64, 100.0 * exceeded / launched, headroom / launched);
        println!(
            "| {name} | {rule} | {} | {moments} | {bought:.2} % | {above:.2} % | {times:.3} |",
            found.len()
        );
    };
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let histories = histories(file);
        for rule in RULES {
            let found = measured(rule, &histories, &full);
            row(&name, rule, &found);
            if !name.contains("2016") {
                all.entry(rule).or_default().extend(found);
            }
        }
    }
    for rule in RULES {
        row("all but 2016", rule, &all[rule]);
    }
}
