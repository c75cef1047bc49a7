//! EC2: one question or one action in each file.

pub(crate) mod alarm;
pub mod cloud;
pub mod describe;
pub(crate) mod disk_key;
pub(crate) mod errors;
pub(crate) mod image;
pub(crate) mod instance_types;
pub(crate) mod launch;
pub(crate) mod launch_request;
pub mod offers;
pub(crate) mod price_list;
pub(crate) mod quotas;
pub(crate) mod regions;
pub(crate) mod residue;
pub(crate) mod residue_delete;
pub(crate) mod spot_prices;
pub(crate) mod subnets;
pub(crate) mod terminate;
pub(crate) mod utilization;
