//! The false world: the shipped controller and the shipped agent over false ports, in virtual time.
//! One seed, one world.
//!
//! ```text
//!   play: seed ──> dice ──> job, habit, faults
//!           │
//!   parties: laptop, second laptop, sweeper ── controller ──┐                  ┌── agent ── host: kernel, disk, workload
//!                                                       store, cloud     store, metadata, power
//!                                                           └──────── world ────────┘
//!                                              every deed: trace (SHA-256) and invariants
//! ```
//! `own` plays a user's job there instead of one of the dice's, on a course of capacity and of
//! prices (`sold`): `lamp simulate`.
//!
//! What the false EC2 bills is the truth. Everything here runs on one thread, and nothing here asks
//! a real clock or rolls real dice: the same seed gives the same trace, byte for byte. Not here: a
//! decision of the product.

pub(crate) mod faults;
pub(crate) mod kernel;
pub(crate) mod laws;
pub(crate) mod play;
pub(crate) mod world;

pub use faults::fault_plan::Story;
pub use faults::fault_times::Strikes;
pub use faults::planted_bugs::Bug;
pub use faults::recovery_times::Measured;
pub use faults::single_fault::{Lone, LoneFault, Moment, Watching};
pub use faults::single_fault_plan::{A_WHILE, CLOCK_OFF};
pub use kernel::virtual_time::{Timeline, in_virtual_time};
pub use play::play::{Play, Played, play, play_on};
pub use play::user_job::{Lived, OwnJob, live};
pub use world::offers::{Course, PriceRound};
pub use world::process::Process;
pub use world::process_ports::{SensesThrough, Through};
pub use world::training_checkpoints::Saves;
pub use world::world::{Death, Violation};
