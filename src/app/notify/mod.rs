//! The channels to the user: which there are, and whether a test message comes through.

pub mod channel_test;
