//! Faults of the simulated world: which, when, and the bugs that are planted on purpose.

pub(crate) mod fault_plan;
pub(crate) mod fault_times;
pub(crate) mod planted_bugs;
pub(crate) mod recovery_times;
pub(crate) mod single_fault;
pub(crate) mod single_fault_plan;
