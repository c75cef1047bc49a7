//! The machines that EC2 sells now and that satisfy a requirement, in all allowed regions.
//!
//! All regions are asked at the same time. In each, the types come first; then zones, on-demand
//! prices, spot prices and quotas at once. Without cached answers that takes two round trips, else
//! one. A remembered quota without room is asked once more.
//!
//! A part that fails becomes a note or a refusal in words. An offer without a known price is left
//! out. Not here: which offer is better.

use std::collections::BTreeSet;

use futures::future::join_all;
use jiff::Timestamp;

use super::disk_key;
use super::instance_types as types;
use super::instance_types::TypeInZone;
use super::price_list;
use super::price_list::Listed;
use super::quotas;
use super::quotas::{FoundQuotas, Used};
use super::regions;
use super::spot_prices;
use crate::adapters::aws::disk_cache::Ec2Cache;
use crate::adapters::aws::session::AwsSession;
use crate::adapters::aws::session_cache::DiskKey;
use crate::job::{MachineSpec, MarketChoice};
use crate::market::{
    Catalog, CloudKind, Fit, MachineType, Market, Offer, PriceHistory, Quota, Region, Span, Supply,
    UsdPerHour, beside_an_hour, did_you_mean, none_so_large,
};
use crate::ports::{CloudError, chain};

/// The types for a job without a GPU or a named type: two vCPUs and 8 GiB, sold in every
/// region.
const DEFAULT_TYPES: [&str; 5] = ["m5.large", "m6i.large", "m6a.large", "m7i.large", "m7a.large"];

/// # Errors
/// If no region answers.
pub async fn supply(session: &AwsSession, machine: &MachineSpec) -> Result<Supply, CloudError> {
    let (supply, keys) = tokio::join!(
        survey(session, machine, machine.max_price.looks_back()),
        disk_keys(session, machine)
    );
    let mut supply = supply?;
    let sold: BTreeSet<&Region> = supply
        .offers
        .iter()
        .filter(|offer| offer.market == Market::Spot)
        .map(|offer| &offer.region)
        .collect();
    let notes = keys
        .iter()
        .filter(|(region, _)| sold.contains(region))
        .filter_map(|(region, key)| key.spot_note(region));
    supply.notes.extend(notes.collect::<Vec<_>>());
    Ok(supply)
}

/// The customer's own disk keys in the regions where spot machines may be bought.
async fn disk_keys(session: &AwsSession, machine: &MachineSpec) -> Vec<(Region, DiskKey)> {
    if !markets(machine.market).contains(&Market::Spot) {
        return Vec::new();
    }
    let regions = session.regions(&machine.regions).await;
    let keys = join_all(regions.iter().map(|region| disk_key::find(session, region))).await;
    regions.into_iter().zip(keys).filter_map(|(region, key)| Some((region, key?))).collect()
}

/// The same with the spot prices of the past time `back`.
///
/// # Errors
/// If no region answers.
pub async fn survey(
    session: &AwsSession,
    machine: &MachineSpec,
    back: Option<Span>,
) -> Result<Supply, CloudError> {
    let regions = session.regions(&machine.regions).await;
    let answers =
        join_all(regions.iter().map(|region| of_region(session, machine, region, back))).await;
    let (mut all, mut trouble, mut answered) = (Supply::default(), None, false);
    for (region, answer) in regions.iter().zip(answers) {
        match answer {
            Ok(supply) => {
                answered = true;
                all.extend(supply);
            }
            Err(error) => {
                // A region that is off denies every call, as if the credentials were wrong.
                let off = if matches!(error, CloudError::Denied { .. }) {
                    regions::why_off(session, region).await
                } else {
                    None
                };
                let error = off.map_or(error, |what| CloudError::Invalid { what });
                all.notes.push(format!("{region} was not asked to the end: {}", chain(&error)));
                trouble = Some(error);
            }
        }
    }
    match trouble {
        Some(error) if !answered => Err(error),
        _ => Ok(all),
    }
}

/// The answers about a region.
struct RegionFacts {
    region: Region,
    /// The types that fit.
    types: Vec<MachineType>,
    zones: Vec<TypeInZone>,
    listed: Listed,
    spot: Vec<PriceHistory>,
    quotas: FoundQuotas,
}

async fn of_region(
    session: &AwsSession,
    machine: &MachineSpec,
    region: &Region,
    back: Option<Span>,
) -> Result<Supply, CloudError> {
    let cache = Ec2Cache::of(session, region).await;
    let markets = markets(machine.market);
    let (used, found) = tokio::join!(
        quotas::used(session, &cache, region),
        facts(session, &cache, machine, region, &markets, back)
    );
    let (mut facts, mut supply) = found?;
    count(&mut facts.quotas.quotas, used, &mut supply.notes);
    let kept = std::mem::take(&mut facts.quotas.kept);
    assemble(facts, machine, &markets, &mut supply);
    quotas::ask_again(session, &cache, region, &kept, &mut supply).await;
    if back.is_none() {
        // The newest point alone does not tell how often the price exceeded a bid.
        supply.histories.clear();
    }
    Ok(supply)
}

fn markets(choice: MarketChoice) -> Vec<Market> {
    match choice {
        MarketChoice::OnDemand => vec![Market::OnDemand],
        MarketChoice::Spot => vec![Market::Spot],
        MarketChoice::Auto => vec![Market::Spot, Market::OnDemand],
    }
}

async fn facts(
    session: &AwsSession,
    cache: &Ec2Cache,
    machine: &MachineSpec,
    region: &Region,
    markets: &[Market],
    back: Option<Span>,
) -> Result<(RegionFacts, Supply), CloudError> {
    let mut supply = Supply::default();
    let types = types::types(session, cache, region, &named(machine)).await?;
    let types = fitting(types, machine, region, &mut supply.refused);
    let names: Vec<String> = types.iter().map(|kind| kind.name.clone()).collect();
    if names.is_empty() {
        let nothing = RegionFacts {
            region: region.clone(),
            types,
            zones: vec![],
            listed: Listed::default(),
            spot: vec![],
            quotas: FoundQuotas::default(),
        };
        return Ok((nothing, supply));
    }
    let wants_spot = markets.contains(&Market::Spot);
    let spot = async {
        if !wants_spot {
            return Ok(Vec::new());
        }
        spot_prices::spot(session, cache, region, &names, back, now()).await
    };
    let (zones, listed, spot, quotas) = tokio::join!(
        types::zones(session, cache, region, &names),
        price_list::on_demand(session, cache, region, &names),
        spot,
        quotas::quotas(session, cache, region, &names, markets),
    );
    let spot = spot.unwrap_or_else(|error| {
        supply.notes.push(format!("no spot machine of {region} is offered: {}", chain(&error)));
        Vec::new()
    });
    if let Some(error) = &quotas.trouble {
        supply.notes.push(format!(
            "the quotas of {region} are not known, and EC2 may refuse a launch for want of one: {}",
            chain(error)
        ));
    }
    Ok((RegionFacts { region: region.clone(), types, zones: zones?, listed, spot, quotas }, supply))
}

#[expect(clippy::disallowed_methods, reason = "prices are asked for as of now")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// The only types to ask for; empty: all with a GPU.
fn named(machine: &MachineSpec) -> Vec<String> {
    match (machine.instance_types.is_empty(), machine.gpus.count) {
        (false, _) => machine.instance_types.clone(),
        (true, 0) => DEFAULT_TYPES.map(str::to_owned).to_vec(),
        (true, _) => Vec::new(),
    }
}

/// The types that satisfy the requirement. For types that nearly do, it adds the reason.
fn fitting(
    types: Vec<MachineType>,
    machine: &MachineSpec,
    region: &Region,
    refused: &mut Vec<String>,
) -> Vec<MachineType> {
    let named = named(machine);
    let unknown =
        machine.instance_types.iter().filter(|name| types.iter().all(|kind| kind.name != **name));
    refused
        .extend(unknown.map(|name| format!("{name} is not sold in {region}{}", meant_type(name))));
    let mut models: Vec<String> = types.iter().filter_map(|kind| kind.gpu_model.clone()).collect();
    let too_small = if named.is_empty() {
        none_so_large(types.iter(), &machine.gpus, region.as_str())
    } else {
        None
    };
    let (mut fitting, mut close): (Vec<MachineType>, Vec<String>) =
        (Vec::new(), too_small.into_iter().collect());
    for kind in types {
        match kind.fit(&machine.gpus, &named) {
            Fit::Fits => fitting.push(kind),
            Fit::No(because) => close.push(because),
            Fit::Other => {}
        }
    }
    if fitting.is_empty() && close.is_empty() && machine.instance_types.is_empty() {
        models.sort_unstable();
        models.dedup();
        let has = if models.is_empty() {
            "no GPU at all".to_owned()
        } else {
            format!("only {}", models.join(", "))
        };
        let wanted = machine.gpus.model.as_deref().unwrap_or_default();
        let meant = did_you_mean(wanted, models.iter().map(String::as_str))
            .map(|meant| format!("; {meant}"))
            .unwrap_or_default();
        close.push(format!("{region} has no type with {}, {has}{meant}", machine.gpus));
    }
    refused.extend(close);
    fitting
}

/// A hint for a misspelled type; a known type is only sold elsewhere.
fn meant_type(name: &str) -> String {
    let known =
        || Catalog::shipped().types().iter().map(|kind| kind.name.as_str()).chain(DEFAULT_TYPES);
    let meant = if known().any(|kind| kind == name) { None } else { did_you_mean(name, known()) };
    meant.map(|meant| format!(" ({meant})")).unwrap_or_default()
}

/// Subtracts the vCPUs in use. If they are unknown, all quotas are treated as unknown.
fn count(known: &mut Vec<Quota>, used: Result<Used, CloudError>, notes: &mut Vec<String>) {
    match used {
        Ok(used) => quotas::count(known, &used),
        Err(error) => {
            known.clear();
            notes.push(format!("what is left of the quotas is not known, and EC2 may refuse a launch for want of one: {}", chain(&error)));
        }
    }
}

/// Makes offers from the facts.
fn assemble(facts: RegionFacts, machine: &MachineSpec, markets: &[Market], supply: &mut Supply) {
    let RegionFacts { region, types, zones, listed, spot, quotas } = facts;
    supply.quotas = quotas.quotas;
    if types.is_empty() {
        return;
    }
    let catalog = Catalog::shipped();
    if let Some(error) = &listed.trouble {
        let as_of = catalog.prices_as_of();
        supply.notes.push(format!("on-demand prices that are missing are the shipped ones of {as_of}, where there are any: {}", chain(error)));
    }
    let Some(extras) = extras(&region, machine.disk_gib, &listed, supply) else { return };
    for kind in &types {
        // The shipped price replaces an unreadable list. If the list answers without this price,
        // the type has no price.
        let shipped =
            || listed.trouble.as_ref().and_then(|_| catalog.on_demand(&kind.name, &region));
        let full = listed.by_type.get(&kind.name).copied().or_else(shipped);
        let here: Vec<&TypeInZone> =
            zones.iter().filter(|sold| sold.instance_type == kind.name).collect();
        if here.is_empty() {
            supply.refused.push(format!("{} is sold in no zone of {region}", kind.name));
        }
        for market in markets {
            let (mut offers, mut unknown) = (Vec::new(), Vec::new());
            for TypeInZone { zone, .. } in &here {
                let newest = || {
                    spot.iter()
                        .find(|series| series.zone == *zone && series.instance_type == kind.name)?
                        .newest()
                };
                let (is_sold, price) = match market {
                    Market::OnDemand => (kind.on_demand, full),
                    Market::Spot => (kind.spot, newest().map(|point| point.price)),
                };
                match price.filter(|_| is_sold) {
                    Some(price) => {
                        offers.push(offer(kind, &region, zone, *market, price, extras, full))
                    }
                    None => unknown.push(zone.as_str()),
                }
            }
            if !unknown.is_empty() {
                let zones = unknown.join(", ");
                supply.refused.push(format!(
                    "{}, {market}, in {zones}: no price is known, so it is left out",
                    kind.name
                ));
                supply.unpriced.insert(region.clone());
            }
            supply.offers.extend(offers);
        }
    }
    supply.histories = spot;
}

fn offer(
    kind: &MachineType,
    region: &Region,
    zone: &crate::market::Zone,
    market: Market,
    price: UsdPerHour,
    extras: UsdPerHour,
    full: Option<UsdPerHour>,
) -> Offer {
    Offer {
        cloud: CloudKind::Aws,
        region: region.clone(),
        zone: zone.clone(),
        instance_type: kind.name.clone(),
        gpus: kind.gpus,
        gpu_model: kind.gpu_model.clone(),
        gpu_memory_mib: kind.gpu_memory_mib,
        vcpus: kind.vcpus,
        arch: kind.arch,
        market,
        price,
        extras,
        on_demand: full,
    }
}

/// The hourly price of the disk and the public address; `None`: unknown, and then nothing is
/// offered.
fn extras(
    region: &Region,
    disk_gib: u32,
    listed: &Listed,
    supply: &mut Supply,
) -> Option<UsdPerHour> {
    let catalog = Catalog::shipped();
    let shipped = catalog.disk_gib_month(region);
    let address = catalog.public_ipv4_hour(region)?;
    let Some(disk) = listed.disk.or(shipped.map(|dated| dated.value)) else {
        // For an unreadable list, a note above has the cause.
        let list = if listed.trouble.is_some() {
            "AWS's price list cannot be read"
        } else {
            "AWS's price list does not name it"
        };
        let because = format!(
            "the price of a disk in {region} is not known ({list}, and the shipped catalogue lacks it), so {region} is left out"
        );
        supply.refused.push(because);
        supply.unpriced.insert(region.clone());
        return None;
    };
    let of_disk = match (listed.disk, shipped) {
        (None, Some(dated)) => format!(" (AWS's list since {})", dated.as_of),
        _ => String::new(),
    };
    supply.notes.push(format!(
        "in {region} {disk_gib} GiB of disk bill {disk} a GiB and month{of_disk}, and a public address {} an hour (AWS's list since {})",
        address.value, address.as_of
    ));
    Some(beside_an_hour(disk, disk_gib, address.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{PricePoint, Zone};

    const EAST: &str = "us-east-1";

    fn usd(text: &str) -> UsdPerHour {
        UsdPerHour::new(text.parse().unwrap())
    }

    fn facts(
        types: &[&str],
        zones: &[(&str, &str)],
        listed: Listed,
        spot: &[(&str, &str, &str)],
    ) -> RegionFacts {
        let region = Region::new(EAST);
        let series = |(kind, zone, price): &(&str, &str, &str)| {
            let point = PricePoint { at: Timestamp::UNIX_EPOCH, price: usd(price) };
            PriceHistory::new(region.clone(), Zone::new(*zone), *kind, vec![point])
        };
        RegionFacts {
            types: types
                .iter()
                .map(|name| Catalog::shipped().machine_type(name).unwrap().clone())
                .collect(),
            zones: zones
                .iter()
                .map(|(kind, zone)| TypeInZone {
                    instance_type: (*kind).into(),
                    zone: Zone::new(*zone),
                })
                .collect(),
            spot: spot.iter().map(series).collect(),
            listed,
            quotas: FoundQuotas::default(),
            region,
        }
    }

    fn machine(gpus: &str) -> MachineSpec {
        MachineSpec {
            cloud: CloudKind::Aws,
            gpus: gpus.parse().unwrap(),
            disk_gib: 73,
            ..MachineSpec::default()
        }
    }

    fn sold(facts: RegionFacts, markets: &[Market]) -> Supply {
        let mut supply = Supply::default();
        assemble(facts, &machine("A10G:1"), markets, &mut supply);
        supply
    }

    #[test]
    fn offer_has_its_price_its_ceiling_and_what_bills_beside_it() {
        let listed = Listed {
            by_type: [("g5.xlarge".into(), usd("1.006"))].into(),
            disk: Some("0.1".parse().unwrap()),
            trouble: None,
        };
        let both = [Market::Spot, Market::OnDemand];
        let supply = sold(
            facts(
                &["g5.xlarge"],
                &[("g5.xlarge", "us-east-1a")],
                listed,
                &[("g5.xlarge", "us-east-1a", "0.4")],
            ),
            &both,
        );
        let [spot, full] = supply.offers.as_slice() else { panic!("{supply:?}") };
        assert_eq!(
            (spot.market, spot.price, spot.on_demand),
            (Market::Spot, usd("0.4"), Some(usd("1.006")))
        );
        // 73 GiB at ten cents a month are a cent an hour.
        assert_eq!(
            (full.market, full.price, full.extras),
            (Market::OnDemand, usd("1.006"), usd("0.015"))
        );
        assert_eq!((full.gpus, full.vcpus, full.gpu_model.as_deref()), (1, 4, Some("A10G")));
        assert!(supply.refused.is_empty(), "{:?}", supply.refused);
    }

    #[test]
    fn what_has_no_known_price_is_not_offered() {
        let supply = sold(
            facts(
                &["g5.xlarge"],
                &[("g5.xlarge", "a"), ("g5.xlarge", "b")],
                Listed::default(),
                &[("g5.xlarge", "b", "0.4")],
            ),
            &[Market::Spot, Market::OnDemand],
        );
        assert_eq!(supply.offers.len(), 1);
        assert_eq!(
            supply.offers[0].on_demand, None,
            "an older list must not replace a missing price"
        );
        let because = "no price is known, so it is left out";
        assert_eq!(
            supply.refused,
            [
                format!("g5.xlarge, spot, in a: {because}"),
                format!("g5.xlarge, on-demand, in a, b: {because}")
            ]
        );
    }

    #[test]
    fn unreadable_price_list_is_replaced_by_the_shipped_prices() {
        let denied = Listed { trouble: Some(CloudError::Throttled), ..Listed::default() };
        let supply =
            sold(facts(&["g5.xlarge"], &[("g5.xlarge", "a")], denied, &[]), &[Market::OnDemand]);
        assert_eq!(supply.offers[0].price, usd("1.006"));
        assert!(supply.notes[0].contains("the shipped ones of 2026-07-20"), "{:?}", supply.notes);
        let mut elsewhere = facts(
            &["g5.xlarge"],
            &[("g5.xlarge", "a")],
            Listed { trouble: Some(CloudError::Throttled), ..Listed::default() },
            &[],
        );
        elsewhere.region = Region::new("ap-south-2");
        let supply = sold(elsewhere, &[Market::OnDemand]);
        assert!(
            supply.offers.is_empty()
                && supply.refused[0].contains("the price of a disk in ap-south-2"),
            "{supply:?}"
        );
        assert_eq!(supply.unpriced, [Region::new("ap-south-2")].into());
    }

    /// A price list without that region's disk: the shipped one stands in, as it does for one that
    /// cannot be read.
    #[test]
    fn region_whose_disk_only_the_catalogue_prices_sells_machines() {
        let mut north = facts(
            &["g5.xlarge"],
            &[("g5.xlarge", "eu-north-1a")],
            Listed::default(),
            &[("g5.xlarge", "eu-north-1a", "0.4")],
        );
        north.region = Region::new("eu-north-1");
        let supply = sold(north, &[Market::Spot]);
        assert_eq!(supply.offers.len(), 1, "{supply:?}");
        assert!(
            supply.notes[0]
                .starts_with("in eu-north-1 73 GiB of disk bill $0.0836 a GiB and month"),
            "{:?}",
            supply.notes
        );
    }

    #[test]
    fn nothing_that_fits_is_said_with_what_there_is() {
        let all = || Catalog::shipped().types().to_vec();
        let region = Region::new(EAST);
        let mut refused = Vec::new();
        assert!(fitting(all(), &machine("A10:1"), &region, &mut refused).is_empty());
        assert!(
            refused[0].starts_with("us-east-1 has no type with A10:1, only A100, A10G,"),
            "{refused:?}"
        );
        assert!(refused[0].ends_with("; did you mean A100 or A10G?"), "{refused:?}");
        refused.clear();
        let named = MachineSpec { instance_types: vec!["g5.xlarg".into()], ..machine("none") };
        assert!(fitting(vec![], &named, &region, &mut refused).is_empty());
        assert_eq!(refused, ["g5.xlarg is not sold in us-east-1 (did you mean g5.xlarge?)"]);
    }
}
