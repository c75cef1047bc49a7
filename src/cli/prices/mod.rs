//! `lamp prices`: current prices, their history, and when buying a machine pays.

pub(crate) mod buy_or_rent;
pub(crate) mod history;
pub(crate) mod plot;
pub(crate) mod prices;
pub(crate) mod source;
pub(crate) mod table;
