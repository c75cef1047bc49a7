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
mod crashes;
mod ec2;
#[cfg(feature = "aws")]
mod ec2_faults;
mod faults;
mod hardware;
mod interruption;
mod jobs;
#[cfg(feature = "aws")]
mod launch;
mod log_lost;
mod metrics;
mod private;
mod refusals;
mod requests;
mod run;
mod systemd;
mod watching;
