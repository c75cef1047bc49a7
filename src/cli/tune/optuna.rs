//! Optuna for the commands: the process that answers, with the environment in the user's cache.

use crate::cli::Context;
use crate::wire::TuneEngine;

/// The process that asks Optuna. It starts at the first question.
pub fn engine(context: &Context) -> TuneEngine {
    TuneEngine::new(context.environment.cache_dir().as_deref())
}
