//! Parts of the page of a job, and what its open pages share.

pub mod axis_part;
pub mod ends_part;
pub mod gang_part;
pub mod gpu_part;
pub mod idle_part;
pub mod job_look;
pub mod plot_scope;
pub mod startup_part;
pub mod verdict_part;
