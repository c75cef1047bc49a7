//! Optuna, in a Python program of ours beside this one.
//!
//! ```text
//!   request, a JSON line ──> lamp_tuner.py (Python, Optuna) ──> answer, a JSON line
//! ```
//! Not here: what is asked (`app::tune`).

mod optuna_process;

pub use optuna_process::{EngineError, TuneEngine};
