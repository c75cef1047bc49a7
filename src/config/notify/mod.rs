//! `[notify]` of the user configuration: as written, and what is wrong with it.

mod notify_file;
mod notify_settings;

pub use notify_file::NotifyFile;
pub use notify_settings::{judge, settings};
