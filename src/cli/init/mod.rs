//! `lamp init`: reads the script of the user and writes a first job file.

pub(crate) mod init;
pub(crate) mod progress_pattern;
pub(crate) mod project_detection;
pub(crate) mod python_source;
pub(crate) mod save_detection;
pub(crate) mod starter_file;
