//! The adapters against the world, or against a false piece of it.

#![allow(clippy::disallowed_methods, reason = "tests set up the world that adapters read")]

#[cfg(feature = "lamp")]
mod archive_hostile;
#[cfg(feature = "aws")]
mod aws;
mod ec2;
mod false_ec2;
mod host;
mod imds;
#[cfg(feature = "lamp")]
mod local_cloud;
mod local_files;
mod metrics;
mod notify;
mod nvml;
mod objects;
#[cfg(feature = "lamp")]
mod rights;
mod secrets;
mod ship;
mod units;
#[cfg(feature = "lamp")]
mod units_age;
#[cfg(feature = "lamp")]
mod workdir;
mod workload;
