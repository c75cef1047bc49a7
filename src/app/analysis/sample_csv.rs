//! The samples of attempts as comma-separated values: a row for each, with nothing reduced.

use super::gpu_history::GPU_FIELDS;
use super::sample_cache::TimeAxis;
use crate::app::view::plot_data::{FIELDS, began, each_sample};
use crate::job::AttemptNo;
use crate::jobdir::{JobDir, JobDirError};

/// An attempt, and where it begins on the time axis, in seconds.
pub type AttemptBegin = (AttemptNo, f64);

/// Rows of time, seconds and value. `None`: no sample has a value of this name.
///
/// # Errors
/// Fails when the store does not answer.
pub async fn series_csv(
    dir: &JobDir,
    begins: &[AttemptBegin],
    name: &str,
) -> Result<Option<String>, JobDirError> {
    let Some(field) = FIELDS.iter().find(|field| field.name == name) else { return Ok(None) };
    let (mut text, mut has_value) = (format!("time,seconds,{name}\n"), false);
    for (attempt, from_secs) in begins {
        let mut axis = TimeAxis::default();
        let read = each_sample(dir, *attempt, usize::MAX, |rates| {
            let secs = rates.t_secs + axis.take(rates.t_secs, rates.t_secs, began(&rates));
            let at = rates.at.map(|at| at.to_string()).unwrap_or_default();
            let value = (field.value)(&rates);
            has_value |= value.is_some();
            let value = value.map(|value| value.to_string()).unwrap_or_default();
            text.push_str(&format!("{at},{},{value}\n", from_secs + secs));
        });
        read.await?;
    }
    Ok(has_value.then_some(text))
}

/// A row for each GPU of each sample that has them. `None`: no sample has.
///
/// # Errors
/// As [`series_csv`].
pub async fn gpus_csv(
    dir: &JobDir,
    begins: &[AttemptBegin],
) -> Result<Option<String>, JobDirError> {
    let names: Vec<&str> = GPU_FIELDS.iter().map(|field| field.name).collect();
    let (mut text, mut has_rows) = (format!("time,seconds,gpu,{}\n", names.join(",")), false);
    for (attempt, from_secs) in begins {
        let mut axis = TimeAxis::default();
        let read = each_sample(dir, *attempt, usize::MAX, |rates| {
            let at = rates.at.map(|at| at.to_string()).unwrap_or_default();
            let secs = rates.t_secs + axis.take(rates.t_secs, rates.t_secs, began(&rates));
            for gpu in &rates.gpus {
                has_rows = true;
                let values = GPU_FIELDS.iter().map(|field| (field.value)(gpu));
                let values = values.map(|value| value.map(|v| v.to_string()).unwrap_or_default());
                let values: Vec<String> = values.collect();
                let row = values.join(",");
                text.push_str(&format!("{at},{},{},{row}\n", from_secs + secs, gpu.index));
            }
        });
        read.await?;
    }
    Ok(has_rows.then_some(text))
}
