//! What a person can ask for, and what a person sees, once for every face.
//!
//! ```text
//! face (cli, web) ─ parse ─> app: find the job, ask, act ─> values ─> face draws
//! ```
//!
//! A function takes the job root, the workstation and the clock, and returns a value or a
//! [`Fault`]. Not here: printing, flags and tables (`cli`), or a decision about a job (`policy`).

pub mod analysis;
pub mod costs;
pub mod discard;
pub mod discard_selection;
pub mod drive;
pub mod exit_code;
pub mod extend;
pub mod fault;
pub mod find_job;
pub mod gang;
pub mod import;
pub mod job_act;
pub mod launch;
pub mod log_tail;
pub mod missing_spec;
pub mod models;
pub mod notify;
pub mod outputs;
pub mod overview;
pub mod prices;
pub mod python_script;
pub mod record_errors;
pub mod release_kept;
pub mod save_now;
pub mod session;
pub mod stop;
pub mod submit;
pub mod text;
pub mod tune;
pub mod unpack;
pub mod view;

pub use exit_code::ExitCode;
pub use fault::Fault;
