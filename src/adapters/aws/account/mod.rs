//! The one-time setup of an AWS account: roles, bucket, security group, sweeper; and the checks of
//! `lamp doctor`.

pub(crate) mod bucket;
pub mod doctor;
pub(crate) mod doctor_subnets;
pub(crate) mod foreign_instances;
pub mod lambda_runtime;
pub(crate) mod lambda_zip;
pub mod readiness;
pub(crate) mod roles;
pub(crate) mod security_group;
pub mod setup;
pub mod setup_error;
pub(crate) mod sweeper;
pub(crate) mod sweeper_program;
