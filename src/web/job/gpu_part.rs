//! A row for each GPU: use, memory, power, clock, heat, health, the last hour, and its processes.

use jiff::Timestamp;
use maud::{Markup, html};

use super::axis_part::axis;
use crate::app::analysis::gpu_history::{GpuHistory, GpuLine, GpuPlot};
use crate::app::text::measure;
use crate::app::view::job_summary::Summary;
use crate::app::view::machine::{
    gpu_counters_text, gpu_errors, gpu_memory_text, gpu_pcie_text, gpu_power_text,
};
use crate::instance::{GpuProcess, GpuStatus};
use crate::market::Span;
use crate::web::sparkline;

const WIDTH: f64 = 800.0;

const HEIGHT: f64 = 120.0;

/// The colours of lines repeat after so many.
const COLOURS: u32 = 8;

pub fn gpu_part(summary: &Summary, history: &GpuHistory) -> Markup {
    let heard = summary.heartbeat_seconds.filter(|_| !summary.state.is_final());
    // Few drivers tell it, and a column of unknown values hides the next ones.
    let has_pcie = summary.gpus.iter().any(|gpu| gpu.health.pcie_received_bytes_per_sec.is_some());
    html! {
        @if !summary.gpus.is_empty() {
            section aria-labelledby="gpus" {
                h2 #gpus { "GPUs" }
                div.wide tabindex="0" role="group" aria-labelledby="gpus" {
                    table {
                        thead { tr {
                            @for heading in ["GPU", "Use", "Memory", "Power", "Clock", "Heat"] { th { (heading) } }
                            @if has_pcie { th { "PCIe" } }
                            th { "Last hour" } th { "Health" }
                        } }
                        tbody { @for gpu in &summary.gpus { (row(gpu, history, has_pcie)) } }
                    }
                }
                @for gpu in summary.gpus.iter().filter(|gpu| !gpu.processes.is_empty()) {
                    p { "Processes on GPU " (gpu.index) ": " (processes(&gpu.processes)) }
                }
                @if let Some(driver) = summary.gpus.iter().find_map(|gpu| gpu.health.driver_text()) {
                    p { (driver) }
                }
                @if let Some(secs) = heard {
                    p.muted { "As heard " (Span::from_secs(secs as u64)) " ago." }
                }
            }
        }
    }
}

fn row(gpu: &GpuStatus, history: &GpuHistory, has_pcie: bool) -> Markup {
    let unknown = || "unknown".to_owned();
    let known = |value: Option<f64>, unit| value.map_or_else(unknown, |v| measure(v, unit));
    let recent = history.recent.iter().find(|line| line.gpu == gpu.index);
    let name = gpu.name.as_deref().unwrap_or("unknown type");
    html! {
        tr {
            th scope="row" { (gpu.index) " " span.muted { (name) } }
            td.number { (known(gpu.util_percent, "%")) }
            td.number { (gpu_memory_text(gpu)) }
            td.number { (gpu_power_text(gpu)) }
            td.number { (known(gpu.clock_mhz, "MHz"))
                @if let Some(why) = slowed(gpu) { br; span.warn { "slowed by: " (why) } } }
            td.number { (known(gpu.temperature_celsius, "°C")) }
            @if has_pcie { td.number { (gpu_pcie_text(gpu)) } }
            td { @if let Some(line) = recent { (sparkline::of_values(&line.values, 100.0, &spoken(gpu))) }
                @else { span.muted { "no samples yet" } } }
            td { (health(gpu)) }
        }
    }
}

fn spoken(gpu: &GpuStatus) -> String {
    format!("use of GPU {} in the last hour", gpu.index)
}

fn slowed(gpu: &GpuStatus) -> Option<String> {
    gpu.throttled_by.as_ref().filter(|why| !why.is_empty()).map(|why| why.join(", "))
}

/// An older agent does not report them.
fn health(gpu: &GpuStatus) -> Markup {
    let problems = gpu_errors(gpu);
    html! {
        @if !problems.is_empty() { span.bad { (problems.join("; ")) } }
        @else if gpu.ecc_uncorrected.is_some() { span.good { "no errors" } }
        @else { span.muted { "no Xid errors; memory errors are not reported" } }
        @if let Some(counters) = gpu_counters_text(gpu) { br; span.muted { (counters) } }
    }
}

fn processes(all: &[GpuProcess]) -> String {
    let one = |process: &GpuProcess| {
        let name = process.name.as_deref().unwrap_or("unknown");
        let memory = process.memory_mib.map(|mib| format!(", {}", measure(mib as f64, "MiB")));
        let whose = match process.of_workload {
            Some(true) => ", this job",
            Some(false) => ", not this job",
            None => "",
        };
        format!("{name} ({}{}{whose})", process.pid, memory.unwrap_or_default())
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A plot for each value, with a line for each GPU. One GPU has its values in the other plots.
pub fn gpu_plots(
    history: &GpuHistory,
    began: Option<Timestamp>,
    end_secs: f64,
    links: &Markup,
) -> Markup {
    let shown = history.plots.iter().filter(|plot| plot.lines.len() > 1);
    html! {
        @for plot in shown {
            figure.plot data-gpus=(plot.name) {
                figcaption { strong { (title(plot.name)) } " " (legend(plot)) (links) }
                div.canvas {
                    (drawing(plot, &history.t_secs, end_secs))
                    (axis(began, end_secs, &measure(top(plot), plot.unit)))
                }
            }
        }
    }
}

fn legend(plot: &GpuPlot) -> Markup {
    let now = |line: &GpuLine| {
        let last = line.values.iter().flatten().next_back();
        last.map_or_else(|| "unknown".to_owned(), |value| measure(*value, plot.unit))
    };
    html! {
        span.muted {
            @for line in &plot.lines {
                span.phase { span.swatch.{ "gpu-" (line.gpu % COLOURS) } {} " " (line.gpu) ": " (now(line)) }
            }
        }
    }
}

/// The highest value of a plot.
fn top(plot: &GpuPlot) -> f64 {
    let known = plot.lines.iter().flat_map(|line| line.values.iter().flatten());
    known.copied().fold(1e-9_f64, f64::max)
}

fn drawing(plot: &GpuPlot, t_secs: &[f64], end: f64) -> Markup {
    let top = top(plot);
    let point = |secs: f64, value: f64| {
        let y = HEIGHT - 1.0 - (value / top).clamp(0.0, 1.0) * (HEIGHT - 2.0);
        format!("{:.1},{y:.1}", (secs / end).clamp(0.0, 1.0) * WIDTH)
    };
    let stretches = |line: &GpuLine| -> Vec<String> {
        let all: Vec<(f64, Option<f64>)> =
            t_secs.iter().copied().zip(line.values.iter().copied()).collect();
        let known = all.split(|(_, value)| value.is_none()).filter(|part| !part.is_empty());
        let drawn = |part: &[(f64, Option<f64>)]| {
            let points = part.iter().filter_map(|(secs, value)| Some(point(*secs, (*value)?)));
            points.collect::<Vec<_>>().join(" ")
        };
        known.map(drawn).collect()
    };
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
            aria-label=(format!("{}, a line for each GPU", title(plot.name))) {
            @for line in &plot.lines {
                @for part in stretches(line) { polyline.{ "gpu-" (line.gpu % COLOURS) } points=(part) {} }
            }
        }
    }
}

fn title(name: &str) -> &'static str {
    match name {
        "util_percent" => "Use of each GPU",
        "memory_used_mib" => "Memory of each GPU",
        "power_watts" => "Power of each GPU",
        "clock_mhz" => "Clock of each GPU",
        _ => "Temperature of each GPU",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::GpuHealth;

    #[test]
    fn unknown_is_never_zero_or_healthy() {
        let gpu = GpuStatus::default();
        assert_eq!(
            (gpu_memory_text(&gpu).as_str(), gpu_power_text(&gpu).as_str()),
            ("unknown", "unknown")
        );
        assert!(health(&gpu).into_string().contains("not reported"));
        let hot = GpuStatus {
            power_watts: Some(93.0),
            power_limit_watts: Some(300.0),
            throttled_by: Some(vec!["heat".into(), "power limit".into()]),
            ecc_uncorrected: Some(2),
            xids: vec![79],
            ..gpu
        };
        assert_eq!(gpu_power_text(&hot), "93 W, 31 % of 300 W");
        assert_eq!(slowed(&hot).as_deref(), Some("heat, power limit"));
        let said = health(&hot).into_string();
        assert!(said.contains("Xid 79; 2 uncorrected memory errors"), "{said}");
        let health = GpuHealth {
            rows_remapped: Some(3),
            remap_pending: Some(false),
            remap_failed: Some(true),
            pcie_replays: Some(1),
            pcie_received_bytes_per_sec: Some(1.2e9),
            ..GpuHealth::default()
        };
        let worn = GpuStatus { health, ..GpuStatus::default() };
        let said = super::health(&worn).into_string();
        assert!(said.contains("a memory row could not be replaced"), "{said}");
        assert!(said.contains("3 memory rows replaced, 1 PCIe replay"), "{said}");
        assert!(!said.contains("next reset"), "{said}");
        assert_eq!(gpu_pcie_text(&worn), "in 1.2 GB/s, out unknown");
    }

    #[test]
    fn process_has_its_memory_and_its_owner() {
        let process = |pid, of_workload| GpuProcess {
            pid,
            name: (pid == 7).then(|| "python".to_owned()),
            memory_mib: (pid == 7).then_some(15_156),
            of_workload,
        };
        assert_eq!(
            processes(&[process(7, Some(true)), process(9, Some(false)), process(11, None)]),
            "python (7, 14.8 GiB, this job), unknown (9, not this job), unknown (11)"
        );
    }
}
