//! Launches: the machine, the time, and the buyer.

pub(crate) mod begin;
pub(crate) mod bootstrap;
pub(crate) mod caps;
pub(crate) mod caps_daemon;
pub(crate) mod caps_together;
pub(crate) mod continuation;
pub(crate) mod fallback;
pub(crate) mod market;
pub(crate) mod owners;
pub(crate) mod prices;
pub(crate) mod regions;
pub(crate) mod schedule_prices;
pub(crate) mod schedules;
pub(crate) mod spot_market;
pub(crate) mod spot_role;
pub(crate) mod submit;
pub(crate) mod throttled;
pub(crate) mod unfit_machines;
