//! The real binaries, end to end, as a user would run them: real processes, real signals, a folder
//! as the job root.
//!
//! Every test has a folder of its own, waits for conditions and never for a length of time, and
//! kills what it started even when it fails.

#![allow(clippy::disallowed_methods, reason = "tests are the world around the programs")]

mod alone;
mod bench;
mod bucket;
mod canary;
mod clock;
mod cloud_init;
mod controller_unit;
mod crashes;
mod ec2;
#[path = "../fake_nvml/support.rs"]
mod fake_nvml;
#[path = "../support/ec2/mod.rs"]
mod false_ec2;
#[path = "../support/imds.rs"]
mod false_imds;
mod faults;
mod hardware;
mod image;
mod interruption;
mod jobs;
#[cfg(feature = "aws")]
mod launch;
mod log_lost;
mod machine;
#[path = "../support/moto.rs"]
mod moto;
mod nspawn;
mod private;
mod refusals;
mod requests;
mod run;
mod service_manager;
#[path = "../support/skipped.rs"]
mod skipped;
#[path = "../support/small_agent.rs"]
mod small_agent;
mod vm;
mod watching;
