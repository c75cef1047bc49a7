//! Relative speed of a job on different machines.
//!
//! A speed has no unit; only ratios count, so the user need not define the 1.
//! `policy::purchase::placement` chooses the offer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Offer;
use super::requirement::is_gpu_model;

/// By GPU model or instance type, as the user wrote it. Other machines have speed 1.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Speeds(BTreeMap<String, f64>);

impl Speeds {
    pub fn new(speeds: BTreeMap<String, f64>) -> Self {
        Speeds(speeds)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, speed)| (name.as_str(), *speed))
    }

    /// `None`: not given. An instance type overrides a model, and a longer model name overrides a
    /// shorter one: `A100-80GB` before `A100`.
    pub fn said(&self, offer: &Offer) -> Option<f64> {
        let of_type = self.0.get(&offer.instance_type);
        let model = offer.gpu_model.as_deref();
        let models =
            self.0.iter().filter(|(name, _)| model.is_some_and(|model| is_gpu_model(name, model)));
        of_type
            .or_else(|| models.max_by_key(|(name, _)| name.len()).map(|(_, speed)| speed))
            .copied()
    }

    pub fn of(&self, offer: &Offer) -> f64 {
        self.said(offer).unwrap_or(1.0)
    }

    /// A measured speed replaces the user's figure.
    pub fn measured(&mut self, instance_type: &str, speed: f64) {
        self.0.insert(instance_type.to_owned(), speed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{Arch, CloudKind, Market, Region, UsdPerHour, Zone};

    fn offer(kind: &str, model: Option<&str>) -> Offer {
        Offer {
            cloud: CloudKind::Aws,
            region: Region::new("r"),
            zone: Zone::new("r1"),
            instance_type: kind.into(),
            gpus: 1,
            gpu_model: model.map(str::to_owned),
            gpu_memory_mib: None,
            vcpus: 4,
            arch: Arch::X86_64,
            market: Market::Spot,
            price: UsdPerHour::ZERO,
            extras: UsdPerHour::ZERO,
            on_demand: None,
        }
    }

    #[test]
    fn speed_of_a_type_beats_a_model_and_a_longer_model_a_shorter() {
        let said = [
            ("A10G", 1.0),
            ("A100", 2.5),
            ("A100-80GB", 2.75),
            ("g5.12xlarge", 3.5),
            ("c7i.large", 0.5),
        ];
        let speeds = Speeds::new(said.map(|(name, speed)| (name.to_owned(), speed)).into());
        for (kind, model, speed) in [
            ("g5.xlarge", Some("A10G"), Some(1.0)),
            ("g5.12xlarge", Some("NVIDIA A10G"), Some(3.5)),
            ("p4d.24xlarge", Some("A100"), Some(2.5)),
            ("p4de.24xlarge", Some("NVIDIA A100-SXM4-80GB"), Some(2.75)),
            ("g4dn.xlarge", Some("T4"), None),
            ("c7i.large", None, Some(0.5)),
            ("m5.large", None, None),
        ] {
            assert_eq!(speeds.said(&offer(kind, model)), speed, "{kind}");
        }
        assert_eq!(speeds.of(&offer("g4dn.xlarge", Some("T4"))), 1.0);
    }
}
