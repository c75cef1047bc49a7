//! Job files of other tools, turned into job files of this one.
//!
//! ```text
//! text ─ yaml_node ─> format by its keys ─> skypilot | dstack | ml_engine ─> ImportedJob ─> TOML
//!                                                        └─> notes: each key that is not carried
//! ```
//!
//! Each reader names the keys that it carries. Every other key becomes a note with its line, so
//! that nothing is dropped in silence. Not here: reading the file and writing the new one (`cli`).

mod dstack;
mod gpu_words;
mod import_job;
mod imported_job;
mod job_text;
mod ml_engine;
mod skypilot;
mod source_format;
pub(crate) mod yaml_node;

pub use import_job::{ImportError, Imported, import_job};
pub use imported_job::ImportNote;
pub use source_format::SourceFormat;
pub use yaml_node::{YamlNode, YamlValue, documents as yaml_documents};
