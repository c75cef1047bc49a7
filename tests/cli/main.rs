//! The command line from outside: exit code, stdout and stderr of the real binary.

mod check;
mod documents;
mod init;
mod jobs;
mod refused;
mod sandbox;
mod secrets;
mod shell;
