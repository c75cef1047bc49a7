//! Spot, on-demand or wait: the choice under a deadline, from the knowledge of each pool.

pub mod auto_market;
pub mod capacity_periods;
pub mod deadline_choice;
pub mod pool_history;
pub(crate) mod remaining_cost;
pub mod remaining_work;
pub mod replay;
pub mod zones;
