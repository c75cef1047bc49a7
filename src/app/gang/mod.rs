//! Several machines, one job, as a person sees them: the jobs of all ranks, and their sums.

pub mod ask_ranks;
pub mod gang_jobs;
pub mod gang_report;
pub mod gang_rows;
mod same_output;
