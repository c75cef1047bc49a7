//! Parts of the page of costs.

pub mod bars_part;
