//! Reads the metric of a trial: from lines of the progress file, and from the file that
//! `cloudml-hypertune` writes.
//!
//! That library rewrites its file at each report and keeps the last 100 lines. So the whole file is
//! read at each change, and a line counts once, by its time and step.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use crate::agent::activity_counters::ActivityCounters;
use crate::job::{METRIC_TAG, ProgressLine};
use crate::ports::{FileStamp, Files};

/// A hundred lines of the library are about 20 kB. A larger file is not its own.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Watches the metric of one trial.
pub struct MetricWatch {
    name: String,
    file: PathBuf,
    board: ActivityCounters,
    /// Size and time of the file at the last read. The library writes a new file in one go.
    seen: Option<FileStamp>,
    counted: BTreeSet<ReportKey>,
}

/// Two reports with the same key are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReportKey {
    /// Seconds since 1970, as bits: times are positive, so bits are in their order.
    at: u64,
    step: i64,
}

/// One line of the library's file.
struct HypertuneReport {
    key: ReportKey,
    value: f64,
}

impl MetricWatch {
    pub fn new(name: &str, file: PathBuf, board: ActivityCounters) -> Self {
        board.keeps_metric();
        MetricWatch { name: name.to_owned(), file, board, seen: None, counted: BTreeSet::new() }
    }

    /// A line of the progress file, which may have the metric.
    pub(crate) fn progress_line(&mut self, line: &str) {
        if let Some((step, value)) = ProgressLine::metric(line, &self.name) {
            self.board.record_metric(step, value);
        }
    }

    /// Reads the library's file if it has changed. A file that cannot be read is tried again.
    pub(crate) fn poll(&mut self, files: &dyn Files) {
        let Ok(Some(stamp)) = files.stamp(&self.file) else { return };
        if self.seen == Some(stamp) {
            return;
        }
        let Ok(Some(bytes)) = files.read_from(&self.file, 0, FILE_BYTES_MAX) else { return };
        self.seen = Some(stamp);
        self.read(&bytes);
    }

    fn read(&mut self, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n') {
            let Some(report) = self.report(line) else { continue };
            if self.counted.insert(report.key) {
                self.board.record_sign();
                let step = Some(report.key.step as f64).filter(|step| *step > 0.0);
                self.board.record_metric(step, report.value);
            }
        }
    }

    /// `None`: a line that is being written, or of another metric. A name that the file does not
    /// have may be the library's default.
    fn report(&self, line: &[u8]) -> Option<HypertuneReport> {
        let line: Value = serde_json::from_slice(line).ok()?;
        let value = line.get(&self.name).or_else(|| line.get(METRIC_TAG))?;
        let number = |value: &Value| match value {
            Value::String(text) => text.trim().parse::<f64>().ok(),
            other => other.as_f64(),
        };
        let at = line.get("timestamp").and_then(number).unwrap_or_default();
        let step = line.get("global_step").and_then(number).unwrap_or_default();
        let key = ReportKey { at: at.max(0.0).to_bits(), step: step as i64 };
        Some(HypertuneReport { key, value: number(value)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> (MetricWatch, ActivityCounters) {
        let board = ActivityCounters::default();
        (MetricWatch::new("acc", PathBuf::from("/m"), board.clone()), board)
    }

    fn line(at: f64, step: u32, value: &str) -> Vec<u8> {
        // As `cloudml-hypertune` 0.1.0.dev6 writes it.
        format!(
            r#"{{"acc": "{value}", "checkpoint_path": "", "global_step": "{step}", "timestamp": {at}, "trial": "3"}}"#
        )
        .into_bytes()
    }

    #[test]
    fn report_of_the_library_has_texts_for_numbers() {
        let (watch, _) = watch();
        let report = watch.report(&line(1_764_000_000.25, 7, "0.5")).unwrap();
        assert_eq!((report.key.step, report.value), (7, 0.5));
        assert!(watch.report(&line(1.0, 1, "nan")).unwrap().value.is_nan());
        assert!(watch.report(b"{\"acc\": \"0.").is_none(), "it is being written");
        assert!(watch.report(b"{\"other\": \"1\"}").is_none());
        let tagged = br#"{"training/hptuning/metric": "2.0", "timestamp": 1.0}"#;
        assert_eq!(watch.report(tagged).unwrap().value, 2.0, "the library's own name");
    }

    #[test]
    fn line_counts_once_by_its_time_and_step() {
        let (mut watch, board) = watch();
        let files = [
            [line(1.0, 1, "0.1"), line(2.0, 2, "0.2")],
            [line(2.0, 2, "0.2"), line(3.0, 3, "0.3")],
        ];
        for file in files {
            watch.read(&file.join(&b'\n'));
        }
        let metric = board.metric().unwrap();
        assert_eq!((metric.reports, metric.points.len()), (3, 3));
        watch.progress_line(r#"{"step": 4, "acc": NaN}"#);
        assert_eq!(board.metric().unwrap().last.unwrap().value, None);
    }
}
