//! Virtual time, random numbers and the trace: equal seeds give equal traces.

pub(crate) mod rng;
pub(crate) mod trace;
pub(crate) mod trace_replay;
pub(crate) mod virtual_time;
