//! Models of the job root, and predictions by an existing server on this workstation.
//!
//! ```text
//! folder ─ model_format ─> registry: files, then the record of the version
//! version | folder ─ model_server: MLflow's, or the user's command ─> ready ─> one POST ─> ended
//!                                                   └─ instances            prediction_table
//! ```
//!
//! Not here: printing and flags (`cli::models`).

pub mod instances;
pub mod model_fetch;
pub mod model_format;
pub mod model_server;
pub mod prediction_table;
pub mod registry;
pub mod version_config;
