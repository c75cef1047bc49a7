//! The false world: the shipped controller and the shipped agent over simulated ports, in virtual
//! time. One seed gives one world.
//!
//! ```text
//!   play: seed ──> dice ──> job, habit, faults
//!           │
//!   laptop, second laptop, sweeper            host: kernel, disk, workload
//!           │                                         │
//!       controller                                  agent
//!           │                                         │
//!      store, cloud ──────── world ──────── store, metadata, power
//!                              │
//!               every deed: trace (SHA-256) and laws
//! ```
//! `gang` plays one job on several machines. `play::user_job` plays a user's job on a course of
//! capacity and prices (`world::offers`): `lamp simulate`.
//!
//! Receipts are compared with the bills of the simulated EC2. Everything runs on one thread,
//! without a real clock or real randomness: the same seed gives the same trace, byte for byte. Not
//! here: decisions of the product.

pub(crate) mod faults;
pub(crate) mod gang;
pub(crate) mod kernel;
pub(crate) mod laws;
pub(crate) mod play;
pub(crate) mod world;

pub use faults::fault_plan::Story;
pub use faults::fault_times::Strikes;
pub use faults::planted_bugs::Bug;
pub use faults::recovery_times::RecoveryTimes;
pub use faults::single_fault::{FaultStart, Lone, LoneFault, Watching};
pub use faults::single_fault_plan::{A_WHILE, CLOCK_OFF};
pub use kernel::virtual_time::{Timeline, in_virtual_time};
pub use play::play::{WorldResult, WorldRun, play, play_on};
pub use play::user_job::{Lived, OwnJob, live};
pub use world::offers::{Course, PriceRound};
pub use world::process::SimProcess;
pub use world::process_ports::{SensesThrough, Through};
pub use world::training_checkpoints::SaveStyle;
pub use world::world::{Death, Violation};
