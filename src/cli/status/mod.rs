//! Commands that show jobs: `status`, `receipt`, `explain`, and the words for attempts, machines
//! and ends.

pub(crate) mod attempt_records;
pub(crate) mod attempt_text;
pub(crate) mod cost_bound;
pub(crate) mod discarded_view;
pub(crate) mod explain;
pub(crate) mod explain_cost;
pub(crate) mod explain_text;
pub(crate) mod kept_machines;
pub(crate) mod machine;
pub(crate) mod missing_spec;
pub(crate) mod next_end;
pub(crate) mod other_job_root;
pub(crate) mod receipt;
pub(crate) mod silent_machine;
pub(crate) mod standalone_run;
pub(crate) mod status;
pub(crate) mod summary;
pub(crate) mod undriven_jobs;
pub(crate) mod watch;
