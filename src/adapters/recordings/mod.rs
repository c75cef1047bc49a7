//! Recordings of prices, capacity and utilisation, read from files.

pub mod capacity_trace;
pub mod price_history;
pub mod series;
pub(crate) mod series_csv;
pub mod series_error;
