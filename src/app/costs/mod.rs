//! Money: the shares of a cost that only the records of its attempt know, rows for other programs,
//! and the cost of planned hours.

pub mod day_bars;
pub mod details;
pub mod export;
pub mod hours_cost;
