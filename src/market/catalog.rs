//! The catalogue that ships with the program: the market on one day, for use offline or without
//! permissions.
//!
//! `config/catalog/generate.py` generates `config/catalog/*.csv` from published sources. Every
//! value has a date, and each message shows that date, because old prices may be wrong today. Spot
//! prices are left out: they would be wrong within hours. Every price needs a source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::{
    Arch, CloudKind, Fit, GpuRequirement, MachineType, Market, Offer, Region, Supply, Usd,
    UsdPerHour, Zone, none_so_large,
};

const TYPES: &str = include_str!("../../config/catalog/types.csv");
const ON_DEMAND: &str = include_str!("../../config/catalog/on_demand.csv");
const ZONES: &str = include_str!("../../config/catalog/zones.csv");
const EXTRAS: &str = include_str!("../../config/catalog/extras.csv");

const DISK: &str = "gp3";

/// AWS's month, in hours.
const HOURS_A_MONTH: f64 = 730.0;

/// Hourly cost of the disk and the public address. The disk is billed per GiB and month; rounded
/// up.
pub fn beside_an_hour(disk_gib_month: Usd, disk_gib: u32, address_hour: Usd) -> UsdPerHour {
    let disk_hour = Usd::from_micros(
        (disk_gib_month.micros() as f64 * f64::from(disk_gib) / HOURS_A_MONTH).ceil() as i64,
    );
    UsdPerHour::new(disk_hour + address_hour)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dated<T> {
    pub value: T,
    /// Such as `2026-07-20`.
    pub as_of: String,
}

pub struct Catalog {
    types: Vec<MachineType>,
    on_demand: BTreeMap<(String, String), UsdPerHour>,
    zones: BTreeMap<(String, String), Vec<String>>,
    /// By kind and region: the price per unit, with its date.
    extras: BTreeMap<(String, String), Dated<Usd>>,
    prices_as_of: String,
    types_as_of: String,
}

impl Catalog {
    pub fn shipped() -> &'static Catalog {
        static SHIPPED: OnceLock<Catalog> = OnceLock::new();
        SHIPPED.get_or_init(|| {
            read().expect("the shipped catalogue is compiled in, and a test reads it")
        })
    }

    /// GPU machines, by name.
    pub fn types(&self) -> &[MachineType] {
        &self.types
    }

    pub fn machine_type(&self, name: &str) -> Option<&MachineType> {
        self.types.iter().find(|kind| kind.name == name)
    }

    /// Date of the list of types.
    pub fn types_as_of(&self) -> &str {
        &self.types_as_of
    }

    /// Date of the on-demand prices.
    pub fn prices_as_of(&self) -> &str {
        &self.prices_as_of
    }

    /// `None`: not in the sources.
    pub fn on_demand(&self, instance_type: &str, region: &Region) -> Option<UsdPerHour> {
        self.on_demand.get(&key(instance_type, region)).copied()
    }

    /// Ids of the zones that sold a type. Unlike zone names, ids are the same for every account.
    pub fn zone_ids(&self, instance_type: &str, region: &Region) -> &[String] {
        self.zones.get(&key(instance_type, region)).map_or(&[], Vec::as_slice)
    }

    pub fn regions(&self) -> Vec<Region> {
        let mut names: Vec<&str> =
            self.on_demand.keys().map(|(_, region)| region.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(Region::new).collect()
    }

    /// Price of one GiB of gp3 for a month.
    pub fn disk_gib_month(&self, region: &Region) -> Option<&Dated<Usd>> {
        self.extra(DISK, region)
    }

    /// Regions with a disk price, by name.
    pub fn disk_regions(&self) -> Vec<Region> {
        self.extras
            .keys()
            .filter(|(what, _)| what == DISK)
            .map(|(_, region)| Region::new(region))
            .collect()
    }

    /// Price of a public IPv4 address for an hour.
    pub fn public_ipv4_hour(&self, region: &Region) -> Option<&Dated<Usd>> {
        self.extra("public-ipv4", region)
    }

    pub fn gpu_models(&self) -> Vec<&str> {
        let models: BTreeSet<&str> =
            self.types.iter().filter_map(|kind| kind.gpu_model.as_deref()).collect();
        models.into_iter().collect()
    }

    /// On-demand offers by zone id. A type without a price is refused.
    pub fn supply(&self, wanted: &GpuRequirement, named: &[String], regions: &[Region]) -> Supply {
        let mut supply = Supply::default();
        // A size that no region sells is refused once, for all of them together.
        let place = regions.iter().map(Region::as_str).collect::<Vec<_>>().join(", ");
        supply.refused.extend(if named.is_empty() {
            none_so_large(self.types.iter(), wanted, &place)
        } else {
            None
        });
        for region in regions {
            for kind in &self.types {
                match (kind.fit(wanted, named), self.on_demand(&kind.name, region)) {
                    (Fit::Fits, Some(price)) => {
                        supply.offers.extend(self.offers(kind, region, price))
                    }
                    (Fit::Fits, None) => supply
                        .refused
                        .push(format!("{} in {region} has no price in the catalogue", kind.name)),
                    (Fit::No(because), _) if !supply.refused.contains(&because) => {
                        supply.refused.push(because)
                    }
                    _ => {}
                }
            }
        }
        supply
    }

    fn offers(&self, kind: &MachineType, region: &Region, price: UsdPerHour) -> Vec<Offer> {
        let ids = self.zone_ids(&kind.name, region);
        // The region sells it; the sources do not name the zones.
        let zones: Vec<Zone> = if ids.is_empty() {
            vec![Zone::new(region.as_str())]
        } else {
            ids.iter().map(Zone::new).collect()
        };
        let offer = |zone| Offer {
            cloud: CloudKind::Aws,
            region: region.clone(),
            zone,
            instance_type: kind.name.clone(),
            gpus: kind.gpus,
            gpu_model: kind.gpu_model.clone(),
            gpu_memory_mib: kind.gpu_memory_mib,
            vcpus: kind.vcpus,
            arch: kind.arch,
            market: Market::OnDemand,
            price,
            extras: UsdPerHour::ZERO,
            on_demand: Some(price),
        };
        zones.into_iter().map(offer).collect()
    }

    fn extra(&self, what: &str, region: &Region) -> Option<&Dated<Usd>> {
        self.extras
            .get(&key(what, region))
            .or_else(|| self.extras.get(&(what.to_owned(), "*".to_owned())))
    }
}

fn key(what: &str, region: &Region) -> (String, String) {
    (what.to_owned(), region.as_str().to_owned())
}

/// `None`: a file is malformed.
fn read() -> Option<Catalog> {
    let mut types = rows(TYPES).map(machine_type).collect::<Option<Vec<_>>>()?;
    types.sort_by(|a, b| a.name.cmp(&b.name));
    let on_demand = rows(ON_DEMAND).map(|row| {
        Some(((text(&row, 0)?, text(&row, 1)?), UsdPerHour::new(row.get(2)?.parse().ok()?)))
    });
    let zones = rows(ZONES).map(|row| {
        Some((
            (text(&row, 0)?, text(&row, 1)?),
            row.get(2)?.split(' ').map(str::to_owned).collect(),
        ))
    });
    let extras = rows(EXTRAS).map(|row| {
        Some((
            (text(&row, 0)?, text(&row, 1)?),
            Dated { value: row.get(3)?.parse().ok()?, as_of: text(&row, 4)? },
        ))
    });
    Some(Catalog {
        types,
        on_demand: on_demand.collect::<Option<_>>()?,
        zones: zones.collect::<Option<_>>()?,
        extras: extras.collect::<Option<_>>()?,
        prices_as_of: as_of(ON_DEMAND)?,
        types_as_of: as_of(TYPES)?,
    })
}

fn machine_type(row: Vec<&str>) -> Option<MachineType> {
    let arch = match *row.get(7)? {
        "x86_64" => Arch::X86_64,
        "arm64" => Arch::Arm64,
        _ => return None,
    };
    Some(MachineType {
        name: text(&row, 0)?,
        gpu_maker: text(&row, 1),
        gpu_model: text(&row, 2),
        gpus: row.get(3)?.parse().ok()?,
        gpu_memory_mib: row.get(4)?.parse().ok(),
        vcpus: row.get(5)?.parse().ok()?,
        memory_mib: row.get(6)?.parse().ok()?,
        arch,
        on_demand: true,
        spot: true,
    })
}

/// The rows below the heading; our files have no quotes.
fn rows(file: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    file.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split(',').collect())
}

fn text(row: &[&str], column: usize) -> Option<String> {
    row.get(column).filter(|text| !text.is_empty()).map(|text| (*text).to_owned())
}

fn as_of(file: &str) -> Option<String> {
    file.lines().find_map(|line| line.strip_prefix("# as of ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_catalogue_reads_and_is_dated() {
        let catalog = Catalog::shipped();
        let east = Region::new("us-east-1");
        assert!(catalog.types().len() > 60);
        let g5 = catalog.machine_type("g5.xlarge").unwrap();
        assert_eq!(
            (g5.gpus, g5.gpu_model.as_deref(), g5.gpu_memory_mib, g5.vcpus),
            (1, Some("A10G"), Some(22888), 4)
        );
        assert_eq!(
            catalog.on_demand("g5.xlarge", &east),
            Some(UsdPerHour::new("1.006".parse().unwrap()))
        );
        assert_eq!(
            catalog.on_demand("g5.xlarge", &Region::new("eu-west-1")),
            None,
            "its source may not be published, and a guess is no price"
        );
        assert!(catalog.zone_ids("g5.xlarge", &east).contains(&"use1-az6".to_owned()));
        assert_eq!(catalog.regions(), [Region::new("us-east-1")]);
        assert_eq!((catalog.types_as_of(), catalog.prices_as_of()), ("2026-10-27", "2026-07-20"));
        assert_eq!(
            catalog.disk_gib_month(&Region::new("eu-west-1")).unwrap().value,
            "0.088".parse().unwrap()
        );
        assert_eq!(
            catalog.disk_gib_month(&Region::new("eu-north-1")).unwrap().value,
            "0.0836".parse().unwrap()
        );
        assert_eq!(catalog.disk_gib_month(&Region::new("ap-south-2")), None);
        let with_a_disk = catalog.disk_regions();
        assert!(
            with_a_disk.len() > 20
                && with_a_disk.contains(&Region::new("sa-east-1"))
                && !with_a_disk.contains(&Region::new("*"))
        );
        assert_eq!(
            catalog.public_ipv4_hour(&Region::new("ap-south-2")).unwrap().value,
            "0.005".parse().unwrap()
        );
    }
}
