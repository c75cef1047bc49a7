//! What a Python script does, read from its text: what it saves, and where.

pub mod progress_pattern;
pub mod python_source;
pub mod save_detection;
