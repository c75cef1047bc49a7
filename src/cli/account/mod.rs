//! Commands for the account: `doctor`, `init aws`, `uninit aws`, `iam`, `sweep`, and the proof that
//! machines end by themselves.

pub(crate) mod doctor;
pub(crate) mod doctor_aws;
pub(crate) mod found_table;
pub(crate) mod iam;
#[cfg(feature = "aws")]
pub(crate) mod init_aws;
#[cfg(feature = "aws")]
pub(crate) mod lambda_entry;
pub(crate) mod prove_shutdown;
pub(crate) mod prove_sweeper;
#[cfg(feature = "aws")]
pub(crate) mod setup_steps;
pub(crate) mod stop_cost;
pub(crate) mod sweep;
pub(crate) mod sweep_report;
#[cfg(feature = "aws")]
pub(crate) mod uninit_aws;
pub(crate) mod unknown_job_machines;
