//! A job's state in one line that fits under its log, and parts of its receipt.

use jiff::Timestamp;

use crate::app::text::{local_time, range_text};
use crate::app::view::cost_bound::Limited;
use crate::app::view::job_summary::Summary;
use crate::job::{CheckpointSummary, JobState, Progress, is_absence};
use crate::market::{Span, Usd, UsdPerHour, elapsed};
use crate::policy::Activity;

/// `step 120 of 1000, 12%, 6m left, loss 0.31`; `None` without progress.
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
    parts.extend(left_text(progress));
    if let Some(loss) = progress.loss {
        parts.push(format!("loss {loss:.4}"));
    }
    if let Some(message) = &progress.message {
        // Must stay one line, whatever the script writes.
        parts.push(message.replace(['\n', '\r', '\t'], " "));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `6m left`, or `5m to 8m left` if the recent steps differ.
fn left_text(progress: &Progress) -> Option<String> {
    let left = progress.secs_left().filter(|secs| *secs >= 1.0)?;
    let time = |secs: f64| Span::from_secs(secs as u64).to_string();
    let (low, high) = progress.secs_left_range().unwrap_or((left, left));
    Some(format!("{} left", range_text((time(low), time(high)))))
}

/// `GPU 93% 10.2/24.0 GiB, CPU 210%`; unknown values are left out.
pub fn usage_text(summary: &Summary) -> Option<String> {
    let mut parts = Vec::new();
    for gpu in &summary.gpus {
        let used = gpu.util_percent.map(|percent| format!(" {percent:.0}%")).unwrap_or_default();
        let memory = match (gpu.memory_used_mib, gpu.memory_total_mib) {
            (Some(used), Some(total)) => {
                format!(" {:.1}/{:.1} GiB", used as f64 / 1024.0, total as f64 / 1024.0)
            }
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

/// The verdict beside the state, if it says more.
pub fn verdict_text(summary: &Summary) -> Option<String> {
    let verdict = summary.verdict.clone().filter(|_| summary.state == JobState::Running)?;
    // `busy` beside `quiet for 12m of 15m` would be a contradiction.
    Some(if summary.is_quiet && verdict == "busy" { "quiet".to_owned() } else { verdict })
}

/// The verdict and its reason. A young job has no reason yet: beside `starting`,
/// `working: log output` would be a contradiction.
pub fn judged(summary: &Summary) -> (Option<String>, Option<String>) {
    let (verdict, seen) = (verdict_text(summary), summary.reason.clone());
    match (verdict, seen) {
        (Some(young), Some(seen)) if young == Activity::Starting.word() => {
            (Some(format!("{young}: too young to be judged; seen so far: {seen}")), None)
        }
        said => said,
    }
}

pub fn spent_text(summary: &Summary) -> String {
    match (summary.usd_unheard > Usd::ZERO, summary.usd_estimated) {
        (true, _) => format!("up to {}", summary.usd + summary.usd_unheard),
        // As its receipt has it.
        (false, is_estimated) if summary.state.is_final() => {
            format!("{}{}", at_most(is_estimated), summary.usd)
        }
        (false, true) => format!("about {}", summary.usd),
        (false, false) => summary.usd.to_string(),
    }
}

/// No machine has reported, and its possible bill is too small to show.
fn is_nothing_yet(summary: &Summary) -> bool {
    summary.instance.is_none() && (summary.usd + summary.usd_unheard).dollars() < 0.000_05
}

/// Said beside the highest cost so far, if another machine may follow.
const UNLESS: &str = " unless interrupted";

/// The cost of a job for people, in a long and a short form.
struct MoneyText {
    whole: String,
    /// Without the limit, where something was spent.
    short: String,
    /// The highest cost holds only if no interruption comes.
    has_condition: bool,
}

/// `$0.42 of at most $5.00`
pub fn money_text(summary: &Summary) -> String {
    money(summary).whole
}

fn money(summary: &Summary) -> MoneyText {
    let plain = |text: String| MoneyText { whole: text.clone(), short: text, has_condition: false };
    let is_nothing = is_nothing_yet(summary);
    let (spent, of) =
        if is_nothing { ("nothing yet".to_owned(), ",") } else { (spent_text(summary), " of") };
    let limited = |most: Usd, condition: &str| {
        let whole = format!("{spent}{of} at most {}{condition}", most.rounded_up());
        let short = if is_nothing { whole.clone() } else { spent.clone() };
        MoneyText { whole, short, has_condition: !condition.is_empty() }
    };
    let free = summary.usd_per_hour == Some(UsdPerHour::ZERO);
    match summary.most_usd {
        _ if summary.alone => plain("no price is known".into()),
        _ if summary.state.is_final() => plain(spent),
        _ if summary.usd_per_hour.is_none() => plain(summary.usd.to_string()),
        _ if free && summary.usd + summary.usd_unheard == Usd::ZERO => plain("free".into()),
        Some(most) => match (summary.limited, summary.most_job_usd) {
            (Limited::Job, Some(job)) => limited(job, ""),
            (_, Some(job)) if job <= most => limited(most, ""),
            _ => limited(most, UNLESS),
        },
        None if summary.limited != Limited::Nothing => plain(spent),
        None => MoneyText {
            whole: format!("{spent}, and no limit is set"),
            short: spent,
            has_condition: false,
        },
    }
}

/// How much is shown; each level drops the least important part.
const LEVELS: u8 = 9;

pub fn line(summary: &Summary, now: Timestamp, width: usize) -> String {
    let fits = |text: &String| text.chars().count() <= width;
    let shortest = || at_level(summary, now, LEVELS).chars().take(width).collect();
    (0..=LEVELS).map(|level| at_level(summary, now, level)).find(fits).unwrap_or_else(shortest)
}

fn at_level(summary: &Summary, now: Timestamp, level: u8) -> String {
    let job = if level >= 9 { summary.name.clone() } else { summary.job.clone() };
    let until = summary
        .held
        .as_ref()
        .filter(|_| level < 7)
        .map(|held| format!(" until {}", local_time(held.until)))
        .unwrap_or_default();
    let since = elapsed(summary.started, now).as_secs();
    let age = if level < 6 && since > 0 && !summary.state.is_final() {
        format!(" {}", Span::from_secs(since))
    } else {
        String::new()
    };
    let mut parts = vec![job, format!("{}{age}{until}", summary.state)];
    parts.extend(
        summary
            .attempt
            .filter(|attempt| *attempt > 1 && level < 8)
            .map(|attempt| format!("attempt {attempt}")),
    );
    parts.extend(verdict_text(summary).filter(|verdict| verdict != "busy"));
    let money = money(summary);
    // Without its condition the figure would be untrue.
    let is_short = level >= 5 || (level >= 3 && money.has_condition);
    parts.push(if is_short { money.short } else { money.whole });
    parts.extend(summary.progress.as_ref().and_then(|progress| progress_at(progress, level)));
    parts.extend(if level >= 3 { usage_short(summary, level < 7) } else { usage_text(summary) });
    parts.join("  ")
}

fn progress_at(progress: &Progress, level: u8) -> Option<String> {
    let bar = progress.fraction().filter(|_| level < 1).map(bar);
    let plain = Progress {
        message: progress.message.clone().filter(|_| level < 2),
        loss: progress.loss.filter(|_| level < 4),
        ..progress.clone()
    };
    let text = match (progress.fraction(), level) {
        (Some(fraction), 6..) => Some(format!("{:.0}%", (fraction * 100.0).floor())),
        // The percentage makes the steps redundant.
        (Some(_), 4..) => progress_text(&plain)
            .map(|text| text.split_once(", ").map_or(text.clone(), |(_, rest)| rest.to_owned())),
        _ => progress_text(&plain),
    };
    let parts: Vec<String> = bar.into_iter().chain(text).collect();
    (!parts.is_empty()).then(|| parts.join("  "))
}

/// `GPU 93%, CPU 210%`; the mean of several GPUs.
fn usage_short(summary: &Summary, with_cpu: bool) -> Option<String> {
    let known: Vec<f64> = summary.gpus.iter().filter_map(|gpu| gpu.util_percent).collect();
    let gpus = (!known.is_empty()).then(|| {
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        if known.len() == 1 {
            format!("GPU {mean:.0}%")
        } else {
            format!("{} GPUs {mean:.0}%", known.len())
        }
    });
    let cpu = summary
        .cpu_percent
        .filter(|_| with_cpu || gpus.is_none())
        .map(|percent| format!("CPU {percent:.0}%"));
    let parts: Vec<String> = gpus.into_iter().chain(cpu).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn bar(fraction: f64) -> String {
    const CELLS: usize = 10;
    let full = (fraction * CELLS as f64).floor() as usize;
    format!("[{}{}]", "#".repeat(full), "-".repeat(CELLS - full.min(CELLS)))
}

pub fn loss_text(loss: &str) -> String {
    if is_absence(loss) { format!("  {loss}") } else { format!("  lost: {loss}") }
}

/// The mark of an upper bound.
pub fn at_most(is_estimated: bool) -> &'static str {
    if is_estimated { "<= " } else { "" }
}

/// For `explain`: the checkpoint, and why it is not a newer one.
pub fn resumed_text(checkpoint: &CheckpointSummary, went_back: Option<&str>) -> String {
    let why = went_back.map(|why| format!(", because {why}")).unwrap_or_default();
    format!("from checkpoint {}{why}", checkpoint.told())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_said_and_nothing_else() {
        assert_eq!(progress_text(&Progress::default()), None);
        let progress = Progress {
            step: Some(25.0),
            total: Some(100.0),
            secs_per_step: Some(2.0),
            loss: Some(0.5),
            ..Progress::default()
        };
        assert_eq!(
            progress_text(&progress).unwrap(),
            "step 25 of 100, 25%, 2m 30s left, loss 0.5000"
        );
        let spread = Progress {
            secs_per_step_low: Some(1.6),
            secs_per_step_high: Some(4.0),
            ..progress.clone()
        };
        let told = progress_text(&spread).expect("a text");
        assert_eq!(told, "step 25 of 100, 25%, 2m to 5m left, loss 0.5000");
        assert_eq!(bar(0.25), "[##--------]");
        assert_eq!(bar(1.0), "[##########]");
    }

    fn training(gpus: usize) -> Summary {
        let gpu = |index: usize| {
            serde_json::from_value::<crate::instance::GpuStatus>(
                serde_json::json!({ "index": index, "name": "A10G", "util_percent": 93.0,
                "memory_used_mib": 10_444, "memory_total_mib": 24_576, "power_watts": null, "temperature_celsius": null }),
            )
        };
        let progress = Progress {
            step: Some(120.0),
            total: Some(1000.0),
            secs_per_step: Some(2.0),
            loss: Some(0.31),
            message: Some("epoch 3 of 25, warming up".into()),
            ..Progress::default()
        };
        Summary {
            job: "llama-finetune-7f3k2q".into(),
            name: "llama-finetune".into(),
            attempt: Some(2),
            usd: Usd::from_micros(420_000),
            most_usd: Some(Usd::from_micros(5_000_000)),
            most_job_usd: Some(Usd::from_micros(5_000_000)),
            usd_per_hour: Some(UsdPerHour::new(Usd::from_micros(1_000_000))),
            progress: Some(progress),
            cpu_percent: Some(210.0),
            gpus: (0..gpus).map(|index| gpu(index).unwrap()).collect(),
            ..Summary::example(JobState::Running)
        }
    }

    #[test]
    fn what_is_seen_of_a_young_job_is_no_reason_for_its_verdict() {
        let seen = |verdict: &str| {
            let young = Summary {
                verdict: Some(verdict.into()),
                reason: Some("working: log output".into()),
                ..training(1)
            };
            judged(&young)
        };
        assert_eq!(
            seen("starting"),
            (
                Some("starting: too young to be judged; seen so far: working: log output".into()),
                None
            )
        );
        assert_eq!(seen("busy"), (Some("busy".into()), Some("working: log output".into())));
    }

    #[test]
    fn what_matters_is_there_in_every_width() {
        let now = jiff::Timestamp::from_second(754).unwrap();
        let at = |width: usize| line(&training(1), now, width);
        assert_eq!(at(60), "llama-finetune-7f3k2q  running  $0.42  12%  GPU 93%");
        assert_eq!(
            at(80),
            "llama-finetune-7f3k2q  running  attempt 2  $0.42  12%  GPU 93%, CPU 210%"
        );
        let more = "llama-finetune-7f3k2q  running 12m 34s  attempt 2  $0.42 of at most $5.00  12%, 29m 20s left  GPU 93%, CPU 210%";
        assert_eq!(at(120), more);
        let all = "[#---------]  step 120 of 1000, 12%, 29m 20s left, loss 0.3100, epoch 3 of 25, warming up  GPU 93% 10.2/24.0 GiB, CPU 210%";
        assert_eq!(
            at(200),
            format!(
                "llama-finetune-7f3k2q  running 12m 34s  attempt 2  $0.42 of at most $5.00  {all}"
            )
        );
        assert_eq!(
            line(&training(8), now, 80),
            "llama-finetune-7f3k2q  running  attempt 2  $0.42  12%  8 GPUs 93%, CPU 210%"
        );
        for width in 20..220 {
            assert!(at(width).chars().count() <= width, "{width}");
        }
    }
}
