//! The command line from outside: exit code, stdout and stderr of the real binary.

#![expect(clippy::disallowed_methods, reason = "tests are the world around the program")]

mod account;
#[cfg(feature = "aws")]
mod aws_machines;
mod faces;
mod job_driver;
mod jobs;
mod lifecycle;
mod place;
mod planning;
mod sandbox;
mod shell;
mod sweeping;
mod training;
