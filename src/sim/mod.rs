//! The false world: the shipped controller and the shipped agent over false ports, in virtual time. One seed, one world.
//!
//! ```text
//!   play: seed ──> dice ──> job, habit, faults
//!           │
//!   parties: laptop, second laptop, sweeper ── controller ──┐                  ┌── agent ── host: kernel, disk, workload
//!                                                       store, cloud     store, metadata, power
//!                                                           └──────── world ────────┘
//!                                              every deed: trace (SHA-256) and invariants
//! ```
//! `own` plays a user's job there instead of one of the dice's, on a course of capacity and of prices (`sold`): `lamp simulate`.
//!
//! What the false EC2 bills is the truth. Everything here runs on one thread, and nothing here asks a real clock or rolls
//! real dice: the same seed gives the same trace, byte for byte. What must never live here: a decision of the product.

mod again;
mod bills;
mod cloud;
mod dice;
mod disk;
mod ec2;
mod fates;
mod host;
mod host_ports;
mod judge;
mod judge_beat;
mod judge_minutes;
mod judge_saves;
mod laws;
mod laws_of_ends;
mod laws_of_outcomes;
mod laws_of_saves;
mod ledger;
mod lone;
mod lone_due;
mod measured;
mod own;
mod parties;
mod planted;
mod play;
mod process;
mod replay;
mod saves;
mod senses;
mod sold;
mod store;
mod strangers;
mod strikes;
mod through;
mod timeline;
mod trace;
mod watchdog;
mod weather;
mod workload;
mod world;

pub use fates::Story;
pub use lone::{Lone, LoneFault, Moment, Watching};
pub use lone_due::{A_WHILE, CLOCK_OFF};
pub use measured::Measured;
pub use own::{Lived, OwnJob, live};
pub use planted::Bug;
pub use play::{Play, Played, play, play_on};
pub use process::Process;
pub use saves::Saves;
pub use sold::{Course, PriceRound};
pub use strikes::Strikes;
pub use through::{SensesThrough, Through};
pub use timeline::{Timeline, in_virtual_time};
pub use world::{Death, Violation};
