//! Recorded courses of spot capacity: `{"gap_seconds", "ticks", "first", "runs"}`, where `runs` are the lengths of spells in
//! ticks, in turn there and gone, and `first` is 1 when the first one is there (the form of published probes).

#![expect(clippy::disallowed_methods, reason = "an adapter: it reads the files that the user names")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("`{}` could not be read", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{}` is no recording of spot capacity", path.display())]
    Form {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("`{}` holds no ticks", path.display())]
    Empty { path: PathBuf },
}

/// Whether capacity was there, tick by tick.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityTrace {
    pub tick: Duration,
    pub there: Vec<bool>,
}

#[derive(Deserialize)]
struct Recorded {
    gap_seconds: f64,
    first: u8,
    runs: Vec<u32>,
}

/// Longer than any recording: a month of minutes, a hundred times.
const TICKS_MAX: usize = 5_000_000;

/// # Errors
/// When the file cannot be read or is something else.
pub fn read_capacity(path: &Path) -> Result<CapacityTrace, TraceError> {
    let text = std::fs::read_to_string(path).map_err(|source| TraceError::File { path: path.to_owned(), source })?;
    let recorded: Recorded = serde_json::from_str(&text).map_err(|source| TraceError::Form { path: path.to_owned(), source })?;
    let spells = recorded.runs.iter().enumerate();
    let ticks = spells.flat_map(|(n, length)| std::iter::repeat_n((recorded.first == 1) == n.is_multiple_of(2), *length as usize));
    let there: Vec<bool> = ticks.take(TICKS_MAX).collect();
    match Duration::try_from_secs_f64(recorded.gap_seconds) {
        Ok(tick) if tick >= Duration::from_secs(1) && !there.is_empty() => Ok(CapacityTrace { tick, there }),
        _ => Err(TraceError::Empty { path: path.to_owned() }),
    }
}
