//! How each attempt began: a bar of its phases, and each phase beside its median.

use maud::{Markup, html};

use crate::app::analysis::startup_timeline::{StartupPhase, StartupTimeline};
use crate::market::Span;

/// The newest attempts. A job that waits for capacity has hundreds.
const SHOWN: usize = 8;

const WIDTH: f64 = 300.0;

const HEIGHT: f64 = 14.0;

pub fn startup_part(startups: &[StartupTimeline]) -> Markup {
    let shown: Vec<&StartupTimeline> = startups.iter().rev().take(SHOWN).collect();
    let longest = shown.iter().map(|one| one.secs).fold(1.0, f64::max);
    html! {
        @if !shown.is_empty() {
            section aria-labelledby="startup" {
                h2 #startup { "Start of each attempt" }
                div.wide tabindex="0" role="group" aria-labelledby="startup" {
                    table {
                        thead { tr { th { "No" } th { "Total" } th { "Bar" } th { "Phases" } } }
                        tbody { @for one in &shown { (row(one, longest)) } }
                    }
                }
                p.muted {
                    "From the submit, or the end of the attempt before, to the first work. Each median covers earlier attempts: of this job, and of ended jobs with its name or on its machine type."
                }
            }
        }
    }
}

fn row(one: &StartupTimeline, longest: f64) -> Markup {
    html! {
        tr {
            td { (one.attempt.number()) }
            td.number { (span(one.secs)) (one.unfinished()) }
            td { (bar(one, longest)) }
            td { @for phase in &one.phases { span.phase { (told(phase)) } " " } }
        }
    }
}

fn told(phase: &StartupPhase) -> String {
    let median = phase.median_secs.map(|secs| format!(" (median {})", span(secs)));
    let open = if phase.under_way { " so far" } else { "" };
    format!("{} {}{open}{}", phase.name, span(phase.secs), median.unwrap_or_default())
}

fn bar(one: &StartupTimeline, longest: f64) -> Markup {
    let mut x = 0.0;
    let mut parts = Vec::new();
    for phase in &one.phases {
        let width = phase.secs / longest * WIDTH;
        parts.push((x, width, class(phase.name), told(phase)));
        x += width;
    }
    html! {
        svg.startup viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
            aria-label=(format!("start of attempt {}, {}", one.attempt.number(), span(one.secs))) {
            @for (x, width, class, text) in &parts {
                rect class=(class) x=(format!("{x:.1}")) y="0" width=(format!("{width:.1}")) height=(HEIGHT) {
                    title { (text) }
                }
            }
        }
    }
}

fn class(name: &str) -> &'static str {
    match name {
        "plan" => "phase-plan",
        "agent" => "phase-agent",
        "launch" | "launch and boot" => "phase-launch",
        "boot" => "phase-boot",
        "fetch" => "phase-fetch",
        "setup" => "phase-setup",
        _ => "phase-work",
    }
}

/// A start on this workstation takes less than a second.
fn span(secs: f64) -> String {
    if secs < 9.95 {
        format!("{secs:.1}s")
    } else {
        Span::from_secs(secs.round() as u64).to_string()
    }
}
