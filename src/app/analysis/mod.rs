//! Derives bands, phases and replays from the records and samples of one job.

pub mod bands;
pub mod earlier_startups;
pub mod effective_load;
pub mod gpu_history;
pub mod idle_replay;
pub mod job_outlook;
pub mod joined_plot;
pub mod lost_money;
pub mod sample_cache;
pub mod sample_csv;
pub mod startup_timeline;
