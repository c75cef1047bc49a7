//! `lamp top`: the same facts and acts as the command line, live in a terminal.
//!
//! ```text
//! reader (its own tasks) ─ news ─> model ─> sheet (lines) ─> frame ─> terminal
//!        ^                           ^
//!        └──── followed, orders ──────┴─ keys
//! ```
//!
//! Filter, order and lines are functions of the model. Not here: a fact about a job (`app::view`),
//! or an act on one (`app`).

mod act_order;
mod acts;
mod attempt_sheet;
mod frame;
mod gpu_sheet;
mod job_order;
mod job_sheet;
mod keys;
mod live;
mod model;
mod open_job;
mod overview_sheet;
mod palette;
mod reader;
mod safe_text;
mod sheet;
mod source;
mod spark;
#[cfg(test)]
mod tests;

pub use live::{live, once};
pub use palette::Palette;
pub use source::TopSource;
