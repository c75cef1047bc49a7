//! The cloud `local`: each instance is a folder and a process of this workstation.

#[cfg(feature = "lamp")]
pub mod cloud;
#[cfg(feature = "lamp")]
pub mod file_reads;
pub mod job_workdir;
pub mod machine_folder;
pub mod machine_process;
pub mod metadata;
#[cfg(feature = "lamp")]
pub(crate) mod offer;
pub mod power;
#[cfg(feature = "lamp")]
pub(crate) mod restart;
