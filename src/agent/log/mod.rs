//! The log of the workload: read it, ship it, and read the progress from its lines.

pub mod handle;
pub(crate) mod metric_watch;
pub(crate) mod output;
pub(crate) mod progress_lines;
pub(crate) mod progress_steps;
pub mod progress_tail;
pub(crate) mod scan;
pub(crate) mod shipper;
pub mod shipping_state;
