//! The command line from outside: exit code, stdout and stderr of the real binary.

#![expect(clippy::disallowed_methods, reason = "tests are the world around the program")]

mod account;
#[cfg(feature = "aws")]
mod aws_machines;
mod control;
mod faces;
mod job_driver;
mod jobs;
mod place;
mod plan;
mod sandbox;
mod shell;
mod sweep;
mod training;
