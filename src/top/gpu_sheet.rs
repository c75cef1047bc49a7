//! The GPUs of a job, one by one, by the last heartbeat of its agent.

use ratatui::style::Style;

use super::model::TopModel;
use super::open_job::OpenJob;
use super::overview_sheet::bar;
use super::sheet::{Sheet, part};
use crate::instance::GpuStatus;
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
    for gpu in &summary.gpus {
        one(model, gpu, &mut sheet);
    }
    let command = format!("lamp ssh {}", look.job);
    sheet.heading("The processes of a GPU are not recorded. On the machine:", palette.quiet());
    sheet.text(&format!("  {command}"), palette.command());
    sheet
}

fn one(model: &TopModel, gpu: &GpuStatus, sheet: &mut Sheet) {
    let name = gpu.name.as_deref().unwrap_or("unknown type");
    sheet.heading(&format!("GPU {}  {name}", gpu.index), model.palette.bold());
    let util = gpu.util_percent.map(|util| (util / 100.0, format!("{util:.0}%")));
    gauge(model, sheet, "busy", util);
    let memory = gpu.memory_used_mib.zip(gpu.memory_total_mib).map(|(used, total)| {
        let gib = |mib: u64| mib as f64 / 1024.0;
        let text = format!("{:.1} of {:.1} GiB", gib(used), gib(total));
        (used as f64 / (total as f64).max(1.0), text)
    });
    gauge(model, sheet, "memory", memory);
    let known = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.0} {unit}"))
    };
    let (power, heat) = (known(gpu.power_watts, "W"), known(gpu.temperature_celsius, "°C"));
    sheet.push(vec![
        part("  power   ", model.palette.quiet()),
        part(&power, Style::new()),
        part("    temperature ", model.palette.quiet()),
        part(&heat, Style::new()),
    ]);
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
