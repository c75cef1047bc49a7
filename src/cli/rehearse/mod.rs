//! `lamp rehearse`: takes the machine away on purpose and proves that the work goes on.

pub(crate) mod cadence;
pub(crate) mod last_checkpoint;
pub(crate) mod missing_proof;
pub(crate) mod python_environment;
pub(crate) mod rehearse;
pub(crate) mod report;
pub(crate) mod resume_watch;
pub(crate) mod second_attempt;
