//! Training jobs as Cloud ML Engine took them: their file, their packages, their states.

pub mod job_view;
