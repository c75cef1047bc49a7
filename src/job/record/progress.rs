//! The workload's own reports: one JSON object a line, appended to the file in `LAMP_PROGRESS`.
//!
//! ```json
//! {"step": 120, "total": 1000, "loss": 0.31}
//! {"checkpoint": "step-120"}
//! {"done": true}
//! ```
//! Every field is optional. `checkpoint` means that everything in the checkpoint folder is complete
//! now.
//!
//! Scripts may write `NaN`, `Infinity` or a number for a text. Such a value is converted or lost
//! alone; the rest of its line counts.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of the progress file.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct ProgressLine {
    #[serde(default)]
    pub step: Option<f64>,
    #[serde(default)]
    pub total: Option<f64>,
    #[serde(default)]
    pub loss: Option<f64>,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub checkpoint: Option<String>,
    #[serde(default)]
    pub done: Option<bool>,
    /// A rank of a gang writes it: the next lines belong to this epoch.
    #[serde(default)]
    pub gang_epoch: Option<u32>,
    /// The values that could not be read, as written: `loss: NaN`.
    #[serde(skip)]
    pub lost: Vec<String>,
}

/// The newest progress.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Progress {
    pub step: Option<f64>,
    pub total: Option<f64>,
    #[serde(default)]
    pub loss: Option<f64>,
    #[serde(default)]
    pub message: Option<String>,
    /// When the step last changed.
    pub at: Option<Timestamp>,
    /// The median seconds per unit of `step` so far.
    #[serde(default)]
    pub secs_per_step: Option<f64>,
    /// The mean of recent steps less its standard error, at most the median. Absent: there were
    /// too few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secs_per_step_low: Option<f64>,
    /// The mean of recent steps and its standard error, at least the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secs_per_step_high: Option<f64>,
}

/// Steps without a report, after which the end is unknown. Fewer would hide the end during an
/// evaluation, more would show one that slides forward.
const OVERDUE_STEPS: f64 = 10.0;

/// The same for fast steps: a script may report each thousandth. Longer would show an end that
/// slides forward.
const OVERDUE_SECS_MIN: f64 = 900.0;

/// A narrower range of the time left is shown as one value: its ends would read the same.
const RANGE_MIN: f64 = 0.05;

/// Why a line of the progress file was not understood. Such a line still counts as activity.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of the progress file is not a JSON object with step, total, checkpoint or done")]
pub struct ProgressError;

/// Characters shown of a lost value. Fewer hide what it is; more fill the status.
const SHOWN_MAX: usize = 40;

/// Lost values named per line. More would repeat the first ones.
const LOST_MAX: usize = 8;

impl ProgressLine {
    /// # Errors
    /// When the line is not one complete object.
    pub fn parse(line: &str) -> Result<Self, ProgressError> {
        let line = line.trim_start_matches('\u{feff}').trim();
        let strict = line.starts_with('{').then(|| serde_json::from_str(line).ok()).flatten();
        strict.map_or_else(|| Self::parse_value_by_value(line), Ok)
    }

    /// The step and the value of one metric in a line, NaN and infinity included. `None`: the line
    /// does not have this metric.
    pub fn metric(line: &str, name: &str) -> Option<(Option<f64>, f64)> {
        let line = line.trim_start_matches('\u{feff}').trim();
        let (mut step, mut value) = (None, None);
        for (key, raw) in members(line)? {
            if key == "step" {
                step = number(raw);
            }
            if key == name {
                value = float(raw);
            }
        }
        Some((step, value?))
    }

    /// For a line that is not strict JSON, or that has a value of the wrong type.
    fn parse_value_by_value(line: &str) -> Result<Self, ProgressError> {
        let mut parsed = ProgressLine::default();
        for (key, raw) in members(line).ok_or(ProgressError)? {
            let Some(taken) = parsed.take(key, raw) else { continue };
            if !taken && parsed.lost.len() < LOST_MAX {
                let shown: String = raw.chars().take(SHOWN_MAX).collect();
                parsed.lost.push(format!("{key}: {shown}"));
            }
        }
        Ok(parsed)
    }

    /// Whether the value could be read; `None`: an unknown key, or a value such as `null`.
    fn take(&mut self, key: &str, raw: &str) -> Option<bool> {
        if raw == "null" {
            return None;
        }
        let put = |slot: &mut Option<f64>| {
            *slot = number(raw);
            Some(slot.is_some())
        };
        match key {
            "step" => put(&mut self.step),
            "total" => put(&mut self.total),
            "loss" => put(&mut self.loss),
            "message" => {
                self.message = text(raw);
                Some(self.message.is_some())
            }
            // Any name is a mark; `false` means no mark.
            "checkpoint" if raw == "false" => None,
            "checkpoint" => {
                self.checkpoint = text(raw)
                    .or_else(|| serde_json::from_str::<Value>(raw).is_ok().then(|| raw.to_owned()));
                Some(self.checkpoint.is_some())
            }
            "done" => {
                self.done = truth(raw);
                Some(self.done.is_some())
            }
            _ => None,
        }
    }
}

/// A finite number, also in quotes.
fn number(raw: &str) -> Option<f64> {
    let number = match serde_json::from_str(raw) {
        Ok(Value::Number(number)) => number.as_f64(),
        Ok(Value::String(text)) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

/// A number also if it is not finite, as Python's `json` and `str` write it.
fn float(raw: &str) -> Option<f64> {
    raw.trim_matches('"').trim().parse().ok()
}

/// A text. Numbers and booleans as written; a text that is not strict JSON as it stands.
fn text(raw: &str) -> Option<String> {
    match serde_json::from_str(raw) {
        Ok(Value::String(text)) => Some(text),
        Ok(Value::Number(_) | Value::Bool(_)) => Some(raw.to_owned()),
        Err(_) => raw.strip_prefix('"')?.strip_suffix('"').map(str::to_owned),
        Ok(_) => None,
    }
}

fn truth(raw: &str) -> Option<bool> {
    match raw.trim_matches('"').trim() {
        "true" | "True" | "1" => Some(true),
        "false" | "False" | "0" => Some(false),
        _ => None,
    }
}

/// Keys and raw values of one object; `None`: not one complete object.
fn members(line: &str) -> Option<Vec<(&str, &str)>> {
    let mut rest = line.strip_prefix('{')?.trim_start();
    let mut members = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return after.trim().is_empty().then_some(members);
        }
        let end = end_of_text(rest)?;
        let key = rest.get(1..end - 1)?;
        rest = rest[end..].trim_start().strip_prefix(':')?.trim_start();
        let end = end_of_value(rest)?;
        members.push((key, rest[..end].trim_end()));
        rest = &rest[end..];
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
}

/// The bytes of a quoted text at the beginning.
fn end_of_text(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match (at, byte) {
            (0, b'"') => {}
            (0, _) => return None,
            _ if escaped => escaped = false,
            (_, b'\\') => escaped = true,
            (_, b'"') => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// The bytes before the comma or bracket that ends a value.
fn end_of_value(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_u32);
    loop {
        match text.as_bytes().get(at)? {
            b'"' => {
                at += end_of_text(&text[at..])?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b',' | b'}' if depth == 0 => return (at > 0).then_some(at),
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
    }
}

impl Progress {
    /// The share of the work that is done, in [0, 1], if the total is known.
    pub fn fraction(&self) -> Option<f64> {
        match (self.step, self.total) {
            (Some(step), Some(total)) if total > 0.0 => Some((step / total).clamp(0.0, 1.0)),
            _ => None,
        }
    }

    /// The progress of a job that stands still, whose end is unknown.
    pub fn without_pace(self) -> Progress {
        Progress { secs_per_step: None, secs_per_step_low: None, secs_per_step_high: None, ..self }
    }

    /// Whether its last step is so old that the end is unknown. `heard`: the time of the status, by
    /// the clock of the same machine.
    pub fn is_overdue(&self, heard: Timestamp) -> bool {
        let pace = self.secs_per_step_high.or(self.secs_per_step).unwrap_or(0.0);
        let age = self.at.map_or(0.0, |at| heard.duration_since(at).as_secs_f64());
        age > (OVERDUE_STEPS * pace).max(OVERDUE_SECS_MIN)
    }

    /// Seconds until the total at the pace so far.
    pub fn secs_left(&self) -> Option<f64> {
        let (step, total, pace) = (self.step?, self.total?, self.secs_per_step?);
        Some(((total - step) * pace).max(0.0))
    }

    /// The same by the median and the mean of recent steps. `None`: they are alike, or unknown.
    pub fn secs_left_range(&self) -> Option<(f64, f64)> {
        let (middle, pace) = (self.secs_left()?, self.secs_per_step?);
        let (low, high) = (self.secs_per_step_low?, self.secs_per_step_high?);
        let is_range = pace > 0.0 && low <= pace && pace <= high;
        let is_wide = is_range && high - low >= pace * RANGE_MIN;
        is_wide.then(|| (middle / pace * low, middle / pace * high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_unknown_when_no_step_was_reported_for_long() {
        let at = Timestamp::UNIX_EPOCH;
        let after = |secs: i64| at + jiff::SignedDuration::from_secs(secs);
        let paced =
            |secs: f64| Progress { at: Some(at), secs_per_step: Some(secs), ..Progress::default() };
        assert!(!paced(0.5).is_overdue(after(900)), "it reports each thousandth step");
        assert!(paced(0.5).is_overdue(after(901)));
        assert!(!paced(600.0).is_overdue(after(6000)));
        assert!(paced(600.0).is_overdue(after(6001)));
        let slow = Progress { secs_per_step_high: Some(200.0), ..paced(60.0) };
        assert!(!slow.is_overdue(after(2000)), "the slower steps count");
        assert!(!Progress::default().is_overdue(after(9999)), "nothing was reported");
    }

    #[test]
    fn line_may_say_little_and_must_be_an_object() {
        assert_eq!(ProgressLine::parse(r#"{"step": 3, "extra": [1]}"#).unwrap().step, Some(3.0));
        assert!(ProgressLine::parse("{}").is_ok());
        for wrong in [
            "",
            "3",
            "step 3",
            "[1]",
            r#"{"step": 3"#,
            r#"{"step": }"#,
            r#"{"step": 3, "message": "a}"#,
            r#"{"step": 1} {"step": 2}"#,
        ] {
            assert_eq!(ProgressLine::parse(wrong), Err(ProgressError), "{wrong}");
        }
    }

    /// vscode-dvc#2733, dioptra#810: Python's json writes `NaN`, and the whole line with its mark
    /// was dropped.
    #[test]
    fn odd_value_is_lost_alone() {
        let cases = [
            (r#"{"checkpoint": "a", "loss": NaN}"#, "loss: NaN"),
            (r#"{"loss": -Infinity, "checkpoint": "a"}"#, "loss: -Infinity"),
            (r#"{"loss": -nan(ind),"checkpoint":"a"}"#, "loss: -nan(ind)"),
            (r#"{"step": 1e999, "checkpoint": "a"}"#, "step: 1e999"),
            (r#"{"step": "three", "checkpoint": "a"}"#, "step: \"three\""),
            (r#"{"step": [1, {"b": "}"}], "checkpoint": "a"}"#, r#"step: [1, {"b": "}"}]"#),
            (r#"{"done": "soon", "checkpoint": "a"}"#, "done: \"soon\""),
            (r#"{"message": ["x"], "checkpoint": "a"}"#, r#"message: ["x"]"#),
        ];
        for (line, lost) in cases {
            let parsed = ProgressLine::parse(line).unwrap();
            assert_eq!(
                (parsed.checkpoint.as_deref(), parsed.lost),
                (Some("a"), vec![lost.to_owned()]),
                "{line}"
            );
        }
        // Unknown keys are ignored. The last of two equal keys counts.
        let parsed = ProgressLine::parse(
            r#"{"best": inf, "step": 1, "step": 2, "loss": null, "checkpoint": "a"}"#,
        )
        .unwrap();
        assert_eq!(
            parsed,
            ProgressLine {
                step: Some(2.0),
                checkpoint: Some("a".into()),
                ..ProgressLine::default()
            }
        );
    }

    #[test]
    fn what_is_meant_is_taken() {
        let parsed = ProgressLine::parse(
            r#"{"step": "12", "loss": "0.5", "message": 3.10, "checkpoint": 20, "done": "True"}"#,
        )
        .unwrap();
        let meant = ProgressLine {
            step: Some(12.0),
            loss: Some(0.5),
            message: Some("3.10".into()),
            checkpoint: Some("20".into()),
            done: Some(true),
            ..ProgressLine::default()
        };
        assert_eq!(parsed, meant);
        for name in ["true", "0", "[1]", r#"{"step": 3}"#] {
            assert_eq!(
                ProgressLine::parse(&format!(r#"{{"checkpoint": {name}}}"#))
                    .unwrap()
                    .checkpoint
                    .as_deref(),
                Some(name)
            );
        }
        assert_eq!(
            ProgressLine::parse(r#"{"checkpoint": false}"#).unwrap(),
            ProgressLine::default()
        );
        assert_eq!(
            ProgressLine::parse(r#"{"checkpoint": NaN}"#).unwrap().lost,
            ["checkpoint: NaN"]
        );
        let half = ProgressLine::parse(r#"{"message": "\ud800 x", "checkpoint": "a"}"#).unwrap();
        assert_eq!((half.message.as_deref(), half.lost.len()), (Some(r"\ud800 x"), 0));
        assert_eq!(ProgressLine::parse("\u{feff}{\"step\": 1}").unwrap().step, Some(1.0));
    }

    #[test]
    fn rest_is_estimated_from_the_pace() {
        let progress = Progress {
            step: Some(25.0),
            total: Some(100.0),
            secs_per_step: Some(2.0),
            ..Progress::default()
        };
        assert_eq!(progress.fraction(), Some(0.25));
        assert_eq!(progress.secs_left(), Some(150.0));
        assert_eq!(progress.secs_left_range(), None, "the spread is unknown");
        let spread = |low: f64, high: f64| {
            let (low, high) = (Some(low), Some(high));
            let one =
                Progress { secs_per_step_low: low, secs_per_step_high: high, ..progress.clone() };
            one.secs_left_range()
        };
        assert_eq!(spread(1.6, 4.0), Some((120.0, 300.0)));
        assert_eq!(spread(1.99, 2.01), None, "the steps are alike");
        assert_eq!(spread(3.0, 4.0), None, "the median is not between them");
        assert_eq!(Progress::default().secs_left(), None);
    }
}
