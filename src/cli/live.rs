//! How a job stands, in one line that fits under its log.

use super::summary::Summary;
use crate::job::{JobState, Progress};
use crate::market::{Span, Usd, UsdPerHour};

/// `step 120 of 1000, 12%, 6m left, loss 0.31`; `None` when the job says nothing of itself.
pub fn progress_text(progress: &Progress) -> Option<String> {
    let mut parts = Vec::new();
    match (progress.step, progress.total) {
        (Some(step), Some(total)) => parts.push(format!("step {step} of {total}")),
        (Some(step), None) => parts.push(format!("step {step}")),
        (None, _) => {}
    }
    if let Some(fraction) = progress.fraction() {
        parts.push(format!("{:.0}%", (fraction * 100.0).floor()));
    }
    if let Some(secs) = progress.secs_left().filter(|secs| *secs >= 1.0) {
        parts.push(format!("{} left", Span::from_secs(secs as u64)));
    }
    if let Some(loss) = progress.loss {
        parts.push(format!("loss {loss:.4}"));
    }
    if let Some(message) = &progress.message {
        parts.push(message.clone());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `GPU 93% 10.2/24.0 GiB, CPU 210%`; what is unknown is left out.
pub fn usage_text(summary: &Summary) -> Option<String> {
    let mut parts = Vec::new();
    for gpu in &summary.gpus {
        let used = gpu.util_percent.map(|percent| format!(" {percent:.0}%")).unwrap_or_default();
        let memory = match (gpu.memory_used_mib, gpu.memory_total_mib) {
            (Some(used), Some(total)) => format!(" {:.1}/{:.1} GiB", used as f64 / 1024.0, total as f64 / 1024.0),
            _ => String::new(),
        };
        if !used.is_empty() || !memory.is_empty() {
            let index = if summary.gpus.len() > 1 { gpu.index.to_string() } else { String::new() };
            parts.push(format!("GPU{index}{used}{memory}"));
        }
    }
    if let Some(percent) = summary.cpu_percent {
        parts.push(format!("CPU {percent:.0}%"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The verdict beside the state: only where it says more than that.
pub fn verdict_text(summary: &Summary) -> Option<String> {
    summary.verdict.clone().filter(|_| summary.state == JobState::Running)
}

/// `$0.42 of at most $5.00`
pub fn money_text(summary: &Summary) -> String {
    let spent = if summary.usd_estimated { format!("about {}", summary.usd) } else { summary.usd.to_string() };
    let free = summary.usd_per_hour == Some(UsdPerHour::ZERO);
    match summary.most_usd {
        _ if summary.alone => "no price is known".into(),
        _ if summary.state.is_final() => summary.usd.to_string(),
        _ if summary.usd_per_hour.is_none() => summary.usd.to_string(),
        _ if free && summary.usd == Usd::ZERO => "free".into(),
        Some(most) => format!("{spent} of at most {most}"),
        None if summary.limited => spent,
        None => format!("{spent}, and no limit is set"),
    }
}

/// The live line, cut to `width` columns.
pub fn line(summary: &Summary, width: usize) -> String {
    let mut parts = vec![summary.job.clone(), summary.state.to_string()];
    if let Some(attempt) = summary.attempt.filter(|attempt| *attempt > 1) {
        parts.push(format!("attempt {attempt}"));
    }
    parts.extend(verdict_text(summary).filter(|verdict| verdict != "busy"));
    // Before what may be long: money is never cut off.
    parts.push(money_text(summary));
    if let Some(progress) = &summary.progress {
        parts.extend(progress.fraction().map(bar));
        parts.extend(progress_text(progress));
    }
    parts.extend(usage_text(summary));
    parts.join("  ").chars().take(width).collect()
}

fn bar(fraction: f64) -> String {
    const CELLS: usize = 10;
    let full = (fraction * CELLS as f64).floor() as usize;
    format!("[{}{}]", "#".repeat(full), "-".repeat(CELLS - full.min(CELLS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_said_and_nothing_else() {
        assert_eq!(progress_text(&Progress::default()), None);
        let progress = Progress { step: Some(25.0), total: Some(100.0), secs_per_step: Some(2.0), loss: Some(0.5), ..Progress::default() };
        assert_eq!(progress_text(&progress).unwrap(), "step 25 of 100, 25%, 2m 30s left, loss 0.5000");
        assert_eq!(bar(0.25), "[##--------]");
        assert_eq!(bar(1.0), "[##########]");
    }
}
