//! The cost of a machine, and the end of its billing.

pub mod billed_cost;
pub(crate) mod billed_until;
pub(crate) mod end_codes;
pub mod end_evidence;
pub mod settlement;
