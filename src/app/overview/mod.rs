//! All jobs at once, as `lamp status` and the page show them: rows, filter, money and needs.

pub mod driven_here;
mod ended_index;
pub mod eta;
pub mod found_machine;
pub mod gang_view;
pub mod job_filter;
pub mod job_sentence;
pub mod machine_look;
pub mod machine_watch;
pub mod machines;
#[expect(clippy::module_inception, reason = "the type that the folder is named for")]
pub mod overview;
pub mod switch_proof;
pub mod usage_trend;
