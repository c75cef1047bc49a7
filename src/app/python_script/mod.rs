//! The text of a Python script, read for what it saves and where.

pub mod progress_pattern;
pub mod python_source;
pub mod save_detection;
