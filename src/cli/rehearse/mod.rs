//! `lamp rehearse`: interrupts a job on purpose and proves that it resumes.

pub(crate) mod cadence;
pub(crate) mod evidence;
pub(crate) mod gang_rehearsal;
pub(crate) mod missing_proof;
pub(crate) mod python_environment;
pub(crate) mod rehearse;
pub(crate) mod rehearsed_job;
pub(crate) mod report;
pub(crate) mod resume_watch;
pub(crate) mod second_attempt;
