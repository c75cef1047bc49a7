//! The same facts and acts for programs: `/api/v1` as JSON, and `/metrics` for Prometheus.
//!
//! ```text
//! guard (token) ─> router ─> app ─> values ─> JSON, or OpenMetrics
//! ```
//!
//! The values are the same as in `-o json`. Not here: who may ask (`guard`).

mod acts;
mod answer;
mod document;
mod machines;
mod metrics;
mod reads;
mod router;

pub use answer::{is_for_programs, problem};
pub use router::router;
