//! The policies as a specification: tables of cases, then laws that hold for any series.

mod apply;
mod billing;
mod billing_end;
mod budget;
mod cap;
mod checkpointing;
mod discard;
mod doctor;
mod go_back;
mod guard;
mod interruption;
mod lifecycle;
mod proof;
mod purchase;
mod relaunch;
#[cfg(feature = "lamp")]
mod schedule;
mod settlement;
mod setup;
mod sweeper;
#[cfg(feature = "lamp")]
mod tune;
mod watch;
