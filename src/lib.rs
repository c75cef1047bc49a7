//! Lamplighter starts cloud GPU machines when there is work and stops them when there is none.
//!
//! Two programs come out of this one library: `lamp` (command line and controller, on a
//! workstation) and `lamp-agent` (on the machine that trains).
//!
//! ```text
//!   market <- job <- instance <- account <- policy   pure: nouns and decisions
//!                        ^          ^
//!                      ports     jobdir              what we need from the world; the channel
//!                        ^          ^
//!        adapters    controller   agent              the world; the two loops
//!             ^          ^          ^
//!                      wire                          the only place that picks adapters for ports
//!                        ^
//!            config <- app                           what a person can ask for, and sees
//!                        ^
//!                   cli  web  top  mcp  bin              the faces
//!
//!   sim: controller and agent over simulated ports, in virtual time
//! ```
//!
//! One job's journey: `config` reads the job file and `job::spec::check` finds what is wrong with
//! it; `controller` records a `job::Plan` in the job directory *before* it asks `ports::Cloud` for
//! a machine; on the machine, `agent` takes the lease, prepares, runs the workload, and at each
//! wake lets `policy::watch::supervise` order the verdicts; it drains and writes the outcome;
//! `controller::settle` observes that the machine is gone and writes the receipt.
//!
//! The arrows are held by `tests/architecture.rs`.

pub mod adapters;
pub mod agent;
pub mod instance;
pub mod job;
pub mod jobdir;
pub mod market;
pub mod policy;
pub mod ports;
pub mod wire;

pub mod account;
#[cfg(feature = "lamp")]
pub mod app;
#[cfg(feature = "lamp")]
pub mod cli;
#[cfg(feature = "lamp")]
pub mod config;
#[cfg(feature = "lamp")]
pub mod controller;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "lamp")]
pub mod sim;
#[cfg(feature = "top")]
pub mod top;
#[cfg(feature = "web")]
pub mod web;
