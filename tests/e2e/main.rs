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
mod faults;
mod hardware;
mod image;
mod interruption;
mod jobs;
#[cfg(feature = "aws")]
mod launch;
mod log_lost;
mod machine;
mod metrics;
mod nspawn;
mod private;
mod refusals;
mod requests;
mod run;
mod service_manager;
mod vm;
mod watching;
