//! A verdict in plain words: spans instead of seconds, without field names. `-o json` has the
//! records.

use crate::job::Reason;
use crate::market::Span;
use crate::policy::rate_text;

/// `busy: the GPU works (GPU 93%, quiet for 4m)`
pub fn reason_text(reason: &Reason) -> String {
    let numbers: Vec<String> =
        reason.numbers.iter().filter_map(|(name, number)| number_text(name, *number)).collect();
    let numbers =
        if numbers.is_empty() { String::new() } else { format!(" ({})", numbers.join(", ")) };
    // `idle: nothing for 15m`, not `idle: idle: nothing for 15m`.
    let verdict = reason.verdict.replace('_', " ");
    let text = reason.text.strip_prefix(&format!("{}: ", reason.verdict)).unwrap_or(&reason.text);
    format!("{verdict}: {text}{numbers}")
}

/// `stays on this machine: 2.0 h of work and 1.5 h to spare; ... (spot is there with 62%, a start
/// takes 12m)`
pub fn market_text(reason: &Reason) -> String {
    let (what, why) = reason.text.split_once(": ").unwrap_or(("", &reason.text));
    let does = match reason.verdict.as_str() {
        "spot" | "on_demand" => format!("takes {what}"),
        "wait" => format!("waits for {what}"),
        "stay" => format!("stays on {what}"),
        "move_to_spot" | "move_to_on_demand" => format!("moves {what}"),
        // From another version.
        other => format!("{} {what}", other.replace('_', " ")),
    };
    let chance = reason
        .numbers
        .get("chance_there")
        .map(|chance| format!("spot is there with {:.0}%", 100.0 * chance));
    let start = reason
        .numbers
        .get("start_secs")
        .map(|secs| format!("a start takes {}", with_unit("start_secs", *secs)));
    let more: Vec<String> = chance.into_iter().chain(start).collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
    format!("{}: {why}{more}", does.trim_end())
}

/// Phrases for measured numbers. `{}` is the number with its unit.
const PHRASES: &[(&str, &str)] = &[
    ("asked_usd_per_hour", "{} an hour asked"),
    ("cpu_percent", "CPU {}"),
    ("cpu_percent_min", "CPU at least {}"),
    ("disk_bytes_per_sec", "disk {}"),
    ("done_secs", "done for {}"),
    ("drain_secs", "saving and ending takes {}"),
    ("gpu_memory_percent", "GPU memory traffic {}"),
    ("gpu_memory_used_mib", "GPU memory {}"),
    ("gpu_percent", "GPU {}"),
    ("gpu_power_watts", "GPU {}"),
    ("interruptions", "interrupted {} times"),
    ("interruptions_max", "of at most {}"),
    ("late_secs", "{} late"),
    ("left_secs", "{} left"),
    ("longest_pause_secs", "longest pause so far {}"),
    ("longest_silence_secs", "longest silence so far {}"),
    ("machine_cpu_percent", "machine CPU {}"),
    ("median_step_secs", "a step takes {}"),
    ("net_bytes_per_sec", "network {}"),
    ("quiet_secs", "quiet for {}"),
    ("rest_cpu_percent", "CPU outside the job's own processes {}"),
    ("retries_used", "{} retries used"),
    ("save_p95_secs", "a save takes up to {}"),
    ("silent_secs", "no progress for {}"),
    ("spent_usd", "{} spent"),
    ("typing_secs", "somebody typed {} ago"),
    ("usd_last_day", "{} in the last day"),
    ("usd_per_hour", "{} an hour now"),
    ("used_share", "{} used"),
    ("usual_power_watts", "usually {}"),
    ("window_secs", "{} would be too long"),
    ("worked_secs", "has worked for {}"),
];

/// A number with its name; `None`: it is 0 and says nothing.
fn number_text(name: &str, number: f64) -> Option<String> {
    let is_time_or_count =
        !["_percent", "_watts", "_usd", "_share"].iter().any(|unit| name.ends_with(unit));
    if number == 0.0 && is_time_or_count {
        return None;
    }
    let shown = with_unit(name, number);
    Some(match PHRASES.iter().find(|(known, _)| *known == name) {
        Some((_, phrase)) => phrase.replace("{}", &shown),
        // From another version.
        None => format!("{} {shown}", name.replace('_', " ")),
    })
}

fn with_unit(name: &str, number: f64) -> String {
    let is = |unit: &str| name.ends_with(unit);
    if is("_per_sec") {
        return rate_text(number);
    }
    match name {
        _ if is("_secs") && (0.05..10.0).contains(&number) && number.fract() >= 0.05 => {
            format!("{number:.1} s")
        }
        _ if is("_secs") => Span::from_secs(number.max(0.0).round() as u64).to_string(),
        _ if is("_percent") => format!("{}%", round(number)),
        _ if is("_share") => format!("{:.0}%", number * 100.0),
        _ if is("_watts") => format!("{} W", round(number)),
        _ if is("_mib") => format!("{:.1} GiB", number / 1024.0),
        _ if name.starts_with("usd") || is("_usd") || name.contains("_usd_") => {
            format!("${number:.2}")
        }
        _ => round(number).to_string(),
    }
}

fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// The origin of a request for a checkpoint, by the word in the record.
pub fn asker(by: &str) -> String {
    match by {
        "notice" => "because the cloud gave notice".into(),
        "request" => "because somebody asked for it".into(),
        end => format!("before the end: {}", end.replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn reason(policy: &str, verdict: &str, text: &str) -> Reason {
        Reason::new(Timestamp::UNIX_EPOCH, policy, verdict, text)
    }

    #[test]
    fn nothing_is_said_twice_and_nobodys_field_names_are_shown() {
        let idle = reason("idle", "idle", "idle: nothing for 15m")
            .with("quiet_secs", 900.0)
            .with("longest_pause_secs", 0.0);
        assert_eq!(reason_text(&idle), "idle: nothing for 15m (quiet for 15m)");
        assert_eq!(reason_text(&reason("idle", "busy", "the GPU works")), "busy: the GPU works");
        let many = reason("idle", "busy", "working: GPU 93 %")
            .with("gpu_percent", 93.04)
            .with("net_bytes_per_sec", 5_443_638.0);
        let many = many.with("window_secs", 1176.9).with("worked_secs", 0.0);
        assert_eq!(
            reason_text(&many),
            "busy: working: GPU 93 % (GPU 93%, network 5.4 MB/s, 19m 37s would be too long)"
        );
        assert_eq!(
            reason_text(&reason("workload", "setup_failed", "the setup script failed")),
            "setup failed: the setup script failed"
        );
    }

    #[test]
    fn decision_about_the_market_is_a_sentence() {
        let text = "a cheaper machine than one on demand: 5.0 h of work and 2.8 h to spare; the rest is expected to cost $4.00 waiting now";
        let waits = reason("market", "wait", text)
            .with("slack_hours", 2.8)
            .with("start_secs", 720.0)
            .with("chance_there", 0.618);
        assert_eq!(
            market_text(&waits),
            format!("waits for {text} (spot is there with 62%, a start takes 12m)")
        );
        let moves = reason("market", "move_to_spot", "back to spot: no deadline presses");
        assert_eq!(market_text(&moves), "moves back to spot: no deadline presses");
    }

    #[test]
    fn each_number_has_its_unit() {
        for (name, number, text) in [
            ("left_secs", 97.4, Some("1m 37s left")),
            ("median_step_secs", 0.25, Some("a step takes 0.2 s")),
            ("usd_per_hour", 1.5, Some("$1.50 an hour now")),
            ("asked_usd_per_hour", 4.0, Some("$4.00 an hour asked")),
            ("spent_usd", 0.0, Some("$0.00 spent")),
            ("used_share", 0.955, Some("96% used")),
            ("gpu_memory_used_mib", 10_240.0, Some("GPU memory 10.0 GiB")),
            ("gpu_percent", 0.0, Some("GPU 0%")),
            ("retries_used", 0.0, None),
            ("brand_new_secs", 60.0, Some("brand new secs 1m")),
        ] {
            assert_eq!(number_text(name, number).as_deref(), text, "{name}");
        }
    }

    #[test]
    fn who_asked_is_a_sentence() {
        assert_eq!(asker("succeeded"), "before the end: succeeded");
        assert_eq!(asker("notice"), "because the cloud gave notice");
    }
}
