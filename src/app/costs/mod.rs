//! The shares of a cost that only the records of its attempt know, and the rows for other programs.

pub mod details;
pub mod export;
