//! The command line from outside: exit code, stdout and stderr of the real binary.

#![expect(clippy::disallowed_methods, reason = "tests are the world around the program")]

mod check;
mod documents;
mod init;
mod jobs;
mod newcomer;
mod outputs;
mod place;
mod refused;
mod sandbox;
mod secrets;
mod shell;
mod wishes;
