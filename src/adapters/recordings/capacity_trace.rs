//! Recordings of spot capacity: `{"gap_seconds", "ticks", "first", "runs"}`, the form of published
//! probes. `runs` are lengths in ticks, alternately with and without capacity. `first` is 1 when
//! the first run has capacity, else 0. `ticks`, their sum, is optional. Anything else is refused,
//! because a misread recording looks valid.

#![expect(
    clippy::disallowed_methods,
    reason = "an adapter: it reads the files that the user names"
)]

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
    #[error("`first` is {first} in `{}`: 1 (capacity is there) or 0 (it is gone)", path.display())]
    First { path: PathBuf, first: i64 },
    #[error("`gap_seconds` is {gap} in `{}`: seconds from one look to the next, from 1 to {}", path.display(), GAP_SECONDS_MAX)]
    Gap { path: PathBuf, gap: f64 },
    #[error("`{}` says {said} ticks, and its `runs` are {found} together", path.display())]
    Ticks { path: PathBuf, said: u64, found: u64 },
    #[error("`{}` holds {found} ticks, more than the {} that are read", path.display(), TICKS_MAX)]
    Long { path: PathBuf, found: u64 },
}

/// Whether capacity was available, per tick.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityTrace {
    pub tick: Duration,
    pub there: Vec<bool>,
}

#[derive(Deserialize)]
struct CapacityRecording {
    gap_seconds: f64,
    ticks: Option<u64>,
    first: i64,
    runs: Vec<u32>,
}

/// More than any recording: a hundred times a month of minutes.
const TICKS_MAX: u64 = 5_000_000;

/// Probes more than a day apart say nothing about gaps of minutes.
const GAP_SECONDS_MAX: f64 = 86_400.0;

/// # Errors
/// When the file cannot be read or has another form.
pub fn read_capacity(path: &Path) -> Result<CapacityTrace, TraceError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| TraceError::File { path: path.to_owned(), source })?;
    let recorded: CapacityRecording = serde_json::from_str(&text)
        .map_err(|source| TraceError::Form { path: path.to_owned(), source })?;
    let path = path.to_owned();
    let CapacityRecording { gap_seconds: gap, ticks: said, first, runs } = recorded;
    let found: u64 = runs.iter().map(|length| u64::from(*length)).sum();
    match said {
        _ if !(0..=1).contains(&first) => return Err(TraceError::First { path, first }),
        _ if !(1.0..=GAP_SECONDS_MAX).contains(&gap) => return Err(TraceError::Gap { path, gap }),
        Some(said) if said != found => return Err(TraceError::Ticks { path, said, found }),
        _ if found == 0 => return Err(TraceError::Empty { path }),
        _ if found > TICKS_MAX => return Err(TraceError::Long { path, found }),
        _ => {}
    }
    let spells = runs.iter().enumerate();
    let there = spells
        .flat_map(|(n, length)| {
            std::iter::repeat_n((first == 1) == n.is_multiple_of(2), *length as usize)
        })
        .collect();
    Ok(CapacityTrace { tick: Duration::from_secs_f64(gap), there })
}
