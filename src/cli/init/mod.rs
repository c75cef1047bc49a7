//! `lamp init` and `lamp import`: write a first job file, from a script or another tool's file.

pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod project_detection;
pub(crate) mod starter_file;
