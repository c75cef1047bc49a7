//! Recorded series: our own samples (JSON lines, plain or zstd) and CSV tables of other tools.
//!
//! A series becomes [`Rates`], which live policies use too. An empty cell is *unknown* if its
//! column is filled elsewhere. A missing or empty column is *absent*. Not here: the meaning of a
//! series.

#![expect(
    clippy::disallowed_methods,
    reason = "an adapter: it reads the files that the user names"
)]

use std::io::Read;
use std::path::{Path, PathBuf};

use super::series_csv;
use super::series_error::{LineError, SeriesError};
use crate::instance::Rates;

/// Far more than a day of samples at ten a second; a larger file is no recording of ours.
const BYTES_MAX: u64 = 2 << 30;

/// The first bytes of every zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Reads a recording from one or several files, in order. `host` is a second table beside a CSV.
/// `gpus` are the indices that count; `None`: all.
///
/// # Errors
/// When a file cannot be read or is empty, or a line is malformed (with its number).
pub fn read_series(
    files: &[PathBuf],
    host: Option<&Path>,
    gpus: Option<&[u32]>,
) -> Result<Vec<Rates>, SeriesError> {
    let host_text = host.map(text_of).transpose()?;
    let host_rows = match (host, &host_text) {
        (Some(path), Some(text)) => {
            Some(series_csv::host_rows(text).map_err(|error| error.at(path))?)
        }
        _ => None,
    };
    let mut series: Vec<Rates> = Vec::new();
    for path in files {
        let text = text_of(path)?;
        let part = if text.trim_start().starts_with('{') {
            json_lines(&text)
        } else {
            series_csv::rates(&text, host_rows.as_deref().unwrap_or(&[]), gpus)
        };
        let part = part.map_err(|error| error.at(path))?;
        if part.is_empty() {
            return Err(SeriesError::Empty { path: path.clone() });
        }
        if let (Some(before), Some(first)) = (series.last(), part.first())
            && first.t_secs < before.t_secs
        {
            let message = format!(
                "begins at {} s, before the end of the file before it ({} s)",
                first.t_secs, before.t_secs
            );
            return Err(LineError { line: 1, message }.at(path));
        }
        series.extend(part);
    }
    Ok(series)
}

fn json_lines(text: &str) -> Result<Vec<Rates>, LineError> {
    let mut series: Vec<Rates> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |message: String| LineError { line: index + 1, message };
        if line.trim().is_empty() {
            continue;
        }
        let rates: Rates =
            serde_json::from_str(line).map_err(|error| wrong(format!("not a sample: {error}")))?;
        if !rates.t_secs.is_finite() || !rates.interval_secs.is_finite() {
            return Err(wrong("a time that is not a number".into()));
        }
        if series.last().is_some_and(|before| before.t_secs > rates.t_secs) {
            return Err(wrong(format!("time steps back to {} s", rates.t_secs)));
        }
        series.push(rates);
    }
    Ok(series)
}

fn text_of(path: &Path) -> Result<String, SeriesError> {
    let failed = |source| SeriesError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.starts_with(&ZSTD_MAGIC) {
        let mut plain = Vec::new();
        zstd::stream::read::Decoder::new(bytes.as_slice())
            .and_then(|reader| reader.take(BYTES_MAX).read_to_end(&mut plain))
            .map_err(failed)?;
        bytes = plain;
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        LineError { line, message: "not text (UTF-8)".into() }.at(path)
    })
}
