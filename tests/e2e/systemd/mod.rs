//! Machines with systemd: in a container, or with a kernel of their own.

pub(crate) mod cloud_init;
pub(crate) mod controller_unit;
pub(crate) mod image;
pub(crate) mod machine;
pub(crate) mod nspawn;
pub(crate) mod service_manager;
pub(crate) mod vm;
