//! The adapters against the world, or against a false piece of it.

#![allow(clippy::disallowed_methods, reason = "tests set up the world that adapters read")]

#[cfg(feature = "lamp")]
mod archive_hostile;

#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "aws")]
mod cloudwatch_alarm;
#[cfg(feature = "aws")]
mod ec2_describe;
#[cfg(feature = "aws")]
mod ec2_end;
#[cfg(feature = "aws")]
mod ec2_foreign;
#[cfg(feature = "aws")]
mod ec2_launch;
#[cfg(feature = "aws")]
mod ec2_prepare;
#[cfg(feature = "aws")]
mod ec2_refusals;
#[cfg(feature = "aws")]
mod ec2_residue;
#[cfg(feature = "aws")]
mod ec2_subnets;
#[cfg(feature = "aws")]
mod ec2_supply;
mod false_ec2;
mod host;
mod imds;
#[cfg(feature = "lamp")]
mod local_cloud;
mod local_files;
mod metrics;
mod notify;
mod nvml;
mod objects_given_up;
mod objects_packed;
mod objects_s3;
#[cfg(feature = "lamp")]
mod rights;
#[cfg(feature = "lamp")]
mod secret_corpus;
mod secret_formats;
mod secrets_read;
mod ship;
mod units;
#[cfg(feature = "lamp")]
mod units_age;
#[cfg(feature = "lamp")]
mod workdir;
mod workload;
mod workload_ask;
mod workload_end;
mod workload_memory;
mod workload_output;
mod workload_tree;
mod workload_unheard;
mod workload_units;
