//! What an instance cost, and until when it billed.

pub mod billed_cost;
pub(crate) mod billed_until;
pub(crate) mod end_codes;
pub mod settlement;
