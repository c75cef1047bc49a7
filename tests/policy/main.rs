//! The policies as a specification: tables of cases, then laws that hold for any series.

mod apply;
mod auto;
mod billing;
mod billing_end;
mod budget;
mod cap;
mod checkpointing;
mod discard;
mod doctor;
mod fallback;
mod go_back;
mod guard;
mod hardware;
mod idle;
mod idle_laws;
mod interruption;
mod job_most;
mod market_choice;
mod market_laws;
mod market_run;
#[cfg(feature = "lamp")]
mod placement;
mod proof;
mod reconcile;
mod reconcile_elsewhere;
mod reconcile_extended;
mod reconcile_facts;
mod reconcile_kept;
mod reconcile_laws;
mod reconcile_missing;
mod reconcile_refused;
mod reconcile_silent;
mod reconcile_unheeded;
mod recordings;
mod relaunch;
#[cfg(feature = "lamp")]
mod schedule;
mod script;
mod settlement;
mod setup;
mod speed;
mod stall;
mod supervise;
mod sweeper;
#[cfg(feature = "lamp")]
mod tune;
