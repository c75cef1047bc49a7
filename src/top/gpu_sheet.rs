//! The GPUs of a job, one by one, by the last heartbeat of its agent, and the workload on them.

use ratatui::style::Style;

use super::model::TopModel;
use super::open_job::OpenJob;
use super::overview_sheet::bar;
use super::sheet::{Sheet, part};
use super::spark::plot;
use crate::app::text::measure;
use crate::app::view::machine::{
    gpu_counters_text, gpu_errors, gpu_memory_text, gpu_pcie_text, gpu_power_text,
};
use crate::instance::GpuStatus;
use crate::jobdir::EventDetail;
use crate::market::Span as Time;

const CELLS: usize = 30;

pub fn gpu_sheet(model: &TopModel, look: &OpenJob, width: usize) -> Sheet {
    let mut sheet = Sheet::default();
    let palette = model.palette;
    let Some(summary) = look.summary.as_ref() else {
        sheet.text("Nothing is recorded of its machine yet.", Style::new());
        return sheet;
    };
    if let Some(machine) = &summary.machine {
        sheet.text(&machine.line(), palette.bold());
    }
    if let Some(seconds) = summary.heartbeat_seconds {
        let heard = Time::from_secs(seconds as u64);
        let is_old = summary.silence.is_some();
        let style = if is_old { palette.warn() } else { palette.quiet() };
        sheet.text(&format!("as heard {heard} ago"), style);
    }
    if summary.gpus.is_empty() {
        let text = "Its agent reports no GPU: the machine lacks one, or its driver is silent.";
        sheet.wrapped(text, Style::new(), 0, width);
    }
    for (at, gpu) in summary.gpus.iter().enumerate() {
        let from = sheet.lines.len();
        one(model, gpu, look, at == model.gpu, &mut sheet);
        if at == model.gpu {
            sheet.focus = Some((if at == 0 { 0 } else { from }, sheet.lines.len()));
        }
    }
    if let Some(driver) = summary.gpus.iter().find_map(|gpu| gpu.health.driver_text()) {
        sheet.heading(&driver, palette.quiet());
    }
    last_hour(model, look, &mut sheet, width);
    sheet
}

/// Of all GPUs: the page of the job draws each one.
const TOGETHER: [(&str, &str); 4] = [
    ("gpu_percent", "busiest"),
    ("gpu_power_percent", "power"),
    ("gpu_clock_mhz", "clock"),
    ("gpu_temperature_celsius", "heat"),
];

fn last_hour(model: &TopModel, look: &OpenJob, sheet: &mut Sheet, width: usize) {
    let series = &look.plot.data.series;
    let known: Vec<_> = TOGETHER
        .iter()
        .filter_map(|(name, word)| Some((series.iter().find(|one| one.name == *name)?, *word)))
        .collect();
    if known.is_empty() {
        return;
    }
    sheet.heading("All GPUs together, in this attempt", model.palette.quiet());
    for (one, word) in known {
        let values = || one.values.iter().flatten().copied();
        let top = if one.unit.starts_with('%') { 100.0 } else { values().fold(1.0, f64::max) };
        let columns = width.saturating_sub(34).max(10);
        let drawn = plot(&one.values, top, columns, 1).concat();
        let last = values().next_back().map(|last| format!(" {last:.0} {}", one.unit));
        sheet.push(vec![
            part(&format!("  {word:<8}"), model.palette.quiet()),
            part(&drawn, model.palette.good()),
            part(&last.unwrap_or_default(), Style::new()),
        ]);
    }
    if let Some(load) = look.load() {
        sheet.wrapped(&load.text(look.gpus()), Style::new(), 2, width);
        if let Some(text) = load.disagreement(look.gpus()) {
            sheet.wrapped(&text, model.palette.warn(), 2, width);
        }
    }
}

/// The workload on the machine, and the processes of one GPU where the driver tells them.
pub fn process_sheet(model: &TopModel, look: &OpenJob, width: usize) -> Sheet {
    let mut sheet = Sheet::default();
    let palette = model.palette;
    let summary = look.summary.as_ref();
    let gpu = summary.and_then(|summary| summary.gpus.get(model.gpu));
    if let Some(gpu) = gpu {
        one(model, gpu, look, true, &mut sheet);
    }
    sheet.heading("The workload on this machine", palette.quiet());
    let attempt = look.explained.attempts.iter().find(|it| it.attempt == look.attempt);
    let started = attempt.and_then(|attempt| {
        attempt.events.iter().rev().find_map(|event| match &event.what {
            EventDetail::WorkloadStarted { start, pid, command } => Some((start, pid, command)),
            _ => None,
        })
    });
    match started {
        Some((start, pid, command)) => {
            sheet.wrapped(
                &format!("process {pid}, start {start}: {command}"),
                palette.bold(),
                2,
                width,
            );
        }
        None => sheet.text("  Its command was not started yet.", Style::new()),
    }
    let status = look.status.as_ref();
    let cpu = status.and_then(|status| status.cpu_percent);
    let memory = status.and_then(|status| status.memory_bytes);
    let cpu = cpu.map_or_else(|| "unknown".to_owned(), |cpu| format!("{cpu:.0}% of a core"));
    let memory = memory.map_or_else(
        || "unknown".to_owned(),
        |bytes| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    );
    sheet.text(&format!("  all its processes: processor {cpu}, memory {memory}"), Style::new());
    let is_told = gpu.is_some_and(|gpu| !gpu.processes.is_empty());
    let none = "The driver tells no process of this GPU. On the machine:";
    sheet.heading(if is_told { "On the machine:" } else { none }, palette.quiet());
    sheet.text(&format!("  lamp ssh {} -- nvidia-smi", look.job), palette.command());
    sheet
}

fn one(model: &TopModel, gpu: &GpuStatus, look: &OpenJob, is_selected: bool, sheet: &mut Sheet) {
    let name = gpu.name.as_deref().unwrap_or("unknown type");
    let style = if is_selected { model.palette.bar() } else { model.palette.bold() };
    sheet.heading(&format!("GPU {}  {name}", gpu.index), style);
    let util = gpu.util_percent.map(|util| (util / 100.0, format!("{util:.0}%")));
    gauge(model, sheet, "busy", util);
    let memory = gpu
        .memory_used_mib
        .zip(gpu.memory_total_mib)
        .map(|(used, total)| (used as f64 / (total as f64).max(1.0), gpu_memory_text(gpu)));
    gauge(model, sheet, "memory", memory);
    if let Some(line) = look.plot.gpus.recent.iter().find(|line| line.gpu == gpu.index) {
        let drawn = plot(&line.values, 100.0, CELLS, 1).concat();
        sheet.push(vec![
            part("  1 hour  ", model.palette.quiet()),
            part(&drawn, model.palette.good()),
        ]);
    }
    let known = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.0} {unit}"))
    };
    let (power, heat) = (gpu_power_text(gpu), known(gpu.temperature_celsius, "°C"));
    let clock = known(gpu.clock_mhz, "MHz");
    sheet.push(vec![
        part("  power   ", model.palette.quiet()),
        part(&power, Style::new()),
        part("    temperature ", model.palette.quiet()),
        part(&heat, Style::new()),
        part("    clock ", model.palette.quiet()),
        part(&clock, Style::new()),
    ]);
    // Few drivers tell it.
    if gpu.health.pcie_received_bytes_per_sec.is_some() {
        sheet.push(vec![
            part("  PCIe    ", model.palette.quiet()),
            part(&gpu_pcie_text(gpu), Style::new()),
        ]);
    }
    if let Some(counters) = gpu_counters_text(gpu) {
        sheet.text(&format!("  {counters}"), model.palette.quiet());
    }
    let errors = gpu_errors(gpu);
    if !errors.is_empty() {
        sheet.text(&format!("  {}", errors.join("; ")), model.palette.warn());
    }
    if let Some(why) = gpu.throttled_by.as_ref().filter(|why| !why.is_empty()) {
        sheet.text(&format!("  slowed by {}", why.join(", ")), model.palette.warn());
    }
    for process in &gpu.processes {
        let name = process.name.as_deref().unwrap_or("unknown");
        let memory = process.memory_mib.map(|mib| measure(mib as f64, "MiB")).unwrap_or_default();
        let whose = if process.of_workload == Some(false) { "  not this job" } else { "" };
        sheet.text(&format!("  {:>7}  {name:<16} {memory}{whose}", process.pid), Style::new());
    }
}

/// An unknown value has no bar.
fn gauge(model: &TopModel, sheet: &mut Sheet, name: &str, value: Option<(f64, String)>) {
    let (drawn, text) = match value {
        Some((share, text)) => (bar(share, CELLS) + " ", text),
        None => (String::new(), "unknown".to_owned()),
    };
    sheet.push(vec![
        part(&format!("  {name:<8}"), model.palette.quiet()),
        part(&drawn, model.palette.good()),
        part(&text, Style::new()),
    ]);
}
