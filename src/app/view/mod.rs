//! What a person sees of a job, read from its records, as values that serialise.

pub mod attempt_records;
pub mod attempt_text;
pub mod cost_bound;
pub mod costs;
pub mod countdowns;
pub mod discarded;
pub mod idle_cost;
pub mod job_summary;
pub mod kept_machines;
pub mod machine;
pub mod next_end;
pub mod plot_data;
pub mod reason_text;
pub mod silence;
pub mod silent_machine;
pub mod standalone_run;
pub mod summary_reader;
pub mod summary_text;
pub mod timeline;
