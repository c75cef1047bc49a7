//! The workstation of the user: private files, driver processes, locks, notifications and the
//! shipped catalogue.

#[cfg(feature = "lamp")]
pub mod agent_files;
#[cfg(feature = "lamp")]
pub mod catalog_cloud;
pub mod detach;
#[cfg(feature = "lamp")]
pub mod doctor;
#[cfg(feature = "lamp")]
pub mod downloaded_file;
#[cfg(feature = "lamp")]
pub mod driver_process;
#[cfg(feature = "lamp")]
pub(crate) mod elf_requirements;
pub(crate) mod hashed_file;
#[cfg(feature = "lamp")]
pub mod launch_lock;
#[cfg(feature = "lamp")]
pub mod notify_command;
#[cfg(feature = "lamp")]
pub mod page_token;
pub mod private_files;
pub mod process_env;
pub mod termination_signals;
#[cfg(feature = "lamp")]
pub mod user_file;
