//! How much each parameter matters, asked of Optuna once for each number of complete trials.

use std::collections::BTreeMap;

use tokio::sync::Mutex;

use super::engine_question::importance;
use super::memory::TuneMemory;
use crate::wire::TuneEngine;

/// Optuna knows nothing of fewer trials.
const COMPLETE_MIN: u32 = 4;

pub struct ImportanceReader(Mutex<AskedImportance>);

struct AskedImportance {
    engine: TuneEngine,
    /// By tuning: the number of complete trials, and the parameters, the weightiest first.
    known: BTreeMap<String, (u32, Vec<(String, f64)>)>,
}

impl ImportanceReader {
    pub fn new(engine: TuneEngine) -> Self {
        ImportanceReader(Mutex::new(AskedImportance { engine, known: BTreeMap::new() }))
    }

    /// Empty: few trials are complete, or Optuna is missing.
    pub async fn of(&self, memory: &TuneMemory, complete: u32) -> Vec<(String, f64)> {
        if complete < COMPLETE_MIN {
            return Vec::new();
        }
        let mut asked = self.0.lock().await;
        let name = &memory.tuning.name;
        if let Some((of, known)) = asked.known.get(name)
            && *of == complete
        {
            return known.clone();
        }
        let found = importance(memory, &mut asked.engine).await.unwrap_or_default();
        let parts = found.as_object().into_iter().flatten();
        let mut parts: Vec<(String, f64)> =
            parts.filter_map(|(name, part)| Some((name.clone(), part.as_f64()?))).collect();
        parts.sort_by(|one, other| other.1.total_cmp(&one.1));
        asked.known.insert(name.clone(), (complete, parts.clone()));
        parts
    }
}
