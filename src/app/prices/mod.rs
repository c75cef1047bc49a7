//! What machines cost: the same rows for `lamp prices` and the page.

pub mod pool_chance;
pub mod pool_prices;
pub mod price_memory;
pub mod price_row;
