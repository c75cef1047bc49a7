//! The shipped catalogue as a cloud that sells nothing: for a plan when the real cloud does not
//! answer.
//!
//! ```text
//!   Catalog ── what fits, on demand ── + disk and address ──> Supply, with its day in a note
//! ```
//! It makes no network calls and refuses every change. Not here: a price that is not in the
//! catalogue, or a way to launch.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::instance::{InstanceView, MachineRef};
use crate::job::{MachineSpec, Plan};
use crate::market::{Catalog, Region, Span, Supply, UsdPerHour, beside_an_hour};
use crate::ports::{Cloud, CloudError};

/// Offers what was on sale in these regions when the catalogue was made.
pub struct ShippedCloud {
    pub regions: Vec<Region>,
}

fn refused<T>(act: &'static str) -> Result<T, CloudError> {
    Err(CloudError::Unsupported { cloud: "shipped", act })
}

#[async_trait]
impl Cloud for ShippedCloud {
    async fn regions(&self) -> Result<Vec<Region>, CloudError> {
        Ok(self.regions.clone())
    }

    async fn supply(&self, machine: &MachineSpec) -> Result<Supply, CloudError> {
        let catalog = Catalog::shipped();
        let mut supply = Supply::default();
        if machine.gpus.count == 0 && machine.instance_types.is_empty() {
            supply.refused.push("the shipped catalogue has machines with GPUs alone, and the job asks for none; `--gpus 1` asks for one".to_owned());
            return Ok(supply);
        }
        let unknown =
            machine.instance_types.iter().filter(|name| catalog.machine_type(name).is_none());
        let unknown: Vec<String> = unknown
            .map(|name| {
                format!(
                    "{name} is not in the shipped catalogue, which has machines with GPUs alone"
                )
            })
            .collect();
        for region in &self.regions {
            let mut here = catalog.supply(
                &machine.gpus,
                &machine.instance_types,
                std::slice::from_ref(region),
            );
            match extras(catalog, region, machine.disk_gib) {
                Some((extras, note)) => {
                    here.offers.iter_mut().for_each(|offer| offer.extras = extras);
                    here.notes.extend(Some(note).filter(|_| !here.offers.is_empty()));
                }
                // Disk and address are part of the price.
                None => {
                    here.offers.clear();
                    here.refused.push(format!(
                        "the price of a disk in {region} is not in the shipped catalogue"
                    ));
                }
            }
            supply.extend(here);
        }
        supply.refused.extend(unknown);
        Ok(supply)
    }

    async fn launch(&self, _plan: &Plan) -> Result<String, CloudError> {
        refused("launch a machine")
    }

    async fn describe(
        &self,
        _owner: &str,
        _region: &Region,
    ) -> Result<Vec<InstanceView>, CloudError> {
        refused("say which machines there are")
    }

    async fn terminate(&self, _machine: &MachineRef) -> Result<(), CloudError> {
        refused("end a machine")
    }

    async fn interrupt(&self, _machine: &MachineRef, _notice: Span) -> Result<(), CloudError> {
        refused("interrupt a machine")
    }

    async fn raise_kill_at(
        &self,
        _machine: &MachineRef,
        _kill_at: Timestamp,
    ) -> Result<(), CloudError> {
        refused("raise the hard cap of a machine")
    }

    async fn release(&self, _machine: &MachineRef) -> Result<(), CloudError> {
        refused("forget a machine")
    }
}

/// The price per hour of disk and address, and a note with their dates.
fn extras(catalog: &Catalog, region: &Region, disk_gib: u32) -> Option<(UsdPerHour, String)> {
    let (disk, address) = (catalog.disk_gib_month(region)?, catalog.public_ipv4_hour(region)?);
    let note = format!(
        "in {region} {disk_gib} GiB of disk bill {} a GiB and month (AWS's list since {}), and a public address {} an hour (since {})",
        disk.value, disk.as_of, address.value, address.as_of
    );
    Some((beside_an_hour(disk.value, disk_gib, address.value), note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{CloudKind as Word, Market};

    async fn supply(machine: MachineSpec, regions: &[&str]) -> Supply {
        let cloud =
            ShippedCloud { regions: regions.iter().map(|name| Region::new(*name)).collect() };
        cloud.supply(&machine).await.expect("it asks nobody")
    }

    fn machine(gpus: &str, types: &[&str]) -> MachineSpec {
        let instance_types = types.iter().map(|name| (*name).to_owned()).collect();
        MachineSpec {
            cloud: Word::Aws,
            gpus: gpus.parse().unwrap(),
            instance_types,
            disk_gib: 100,
            ..MachineSpec::default()
        }
    }

    #[tokio::test]
    async fn catalogue_offer_includes_disk_and_address_and_is_on_demand() {
        let found = supply(machine("A10G", &["g5.xlarge"]), &["us-east-1"]).await;
        assert!(
            !found.offers.is_empty()
                && found.offers.iter().all(|offer| offer.market == Market::OnDemand),
            "{found:?}"
        );
        // 100 GiB at eight cents a GiB and month, plus half a cent an hour, as EC2's own offers
        // have it.
        assert_eq!(found.offers[0].extras, UsdPerHour::new("0.015959".parse().unwrap()));
        assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
    }

    #[tokio::test]
    async fn what_the_catalogue_does_not_have_is_not_made_up() {
        let elsewhere = supply(machine("A10G", &["g5.xlarge"]), &["eu-west-1"]).await;
        assert!(elsewhere.offers.is_empty() && elsewhere.notes.is_empty(), "{elsewhere:?}");
        assert_eq!(elsewhere.refused, ["g5.xlarge in eu-west-1 has no price in the catalogue"]);
        let small = supply(machine("none", &["t3.micro"]), &["us-east-1"]).await;
        assert_eq!(
            small.refused,
            ["t3.micro is not in the shipped catalogue, which has machines with GPUs alone"]
        );
        let none = supply(machine("none", &[]), &["us-east-1"]).await;
        assert!(
            none.offers.is_empty()
                && none.refused[0].ends_with("the job asks for none; `--gpus 1` asks for one"),
            "{none:?}"
        );
    }
}
