//! `lamp explain --samples`: a series of samples as table, JSON or CSV.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::app::analysis::gpu_history::GpuHistory;
use crate::app::analysis::joined_plot::{AttemptSpan, JoinedPlot, PlotPart, spans, worked};
use crate::app::analysis::sample_cache::SampleCache;
use crate::app::analysis::sample_csv::{AttemptBegin, gpus_csv, series_csv};
use crate::app::record_errors::record_fault;
use crate::app::text::{local_time, measure};
use crate::app::view::plot_data::{FIELDS, Series, moment, thinned};
use crate::app::view::timeline::Explained;
use crate::cli::{Context, ExitCode, Fault, Give, Stream, render_table_within};
use crate::job::AttemptNo;
use crate::jobdir::JobDir;
use crate::market::Span;

/// The series of each GPU.
const GPUS: &str = "gpus";

/// The names that can be asked for.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name).chain([GPUS])
}

/// The series that is asked for, and its form.
pub struct SamplesAsked<'a> {
    pub name: &'a str,
    /// `None`: all that have worked.
    pub attempt: Option<u32>,
    pub csv: bool,
}

/// `lamp explain --samples -o json`. The field names are an interface.
#[derive(Serialize)]
struct SamplesDocument<'a> {
    job: String,
    /// Oldest first.
    attempts: &'a [AttemptSpan],
    /// The wall clock at zero seconds.
    began: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<&'a Series>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<&'a GpuHistory>,
}

/// # Errors
/// Fails when the job has no such attempt or series, or the job root is unreachable.
pub async fn show(
    asked: &SamplesAsked<'_>,
    dir: &JobDir,
    explained: &Explained,
    context: &Context,
) -> Result<ExitCode, Fault> {
    let (cache, now) = (SampleCache::default(), context.clock.now());
    let mut parts = Vec::new();
    for attempt in attempts(asked, explained)? {
        let read = cache.read(dir, attempt, now, Duration::ZERO).await;
        parts.push(PlotPart { attempt, plot: read.map_err(|error| record_fault(&error))? });
    }
    let printer = &context.printer;
    if asked.csv && context.is_machine_output() {
        let text = "`--csv` and `-o` ask for two forms of the same rows";
        return Err(Fault::new(ExitCode::USAGE, text).hint("leave one of them away"));
    }
    if asked.csv {
        let spans = spans(&parts);
        let begins: Vec<AttemptBegin> =
            spans.iter().map(|span| (span.attempt, span.from_secs)).collect();
        let text = match asked.name {
            GPUS => gpus_csv(dir, &begins).await,
            name => series_csv(dir, &begins, name).await,
        };
        let text = text.map_err(|error| record_fault(&error))?;
        printer.line(text.ok_or_else(|| none_of(asked.name, &JoinedPlot::of(&parts)))?.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let joined = JoinedPlot::of(&parts);
    let series = joined.data.series.iter().find(|series| series.name == asked.name);
    let gpus = Some(&joined.gpus).filter(|gpus| asked.name == GPUS && !gpus.t_secs.is_empty());
    if series.is_none() && gpus.is_none() {
        return Err(none_of(asked.name, &joined));
    }
    if context.is_machine_output() {
        let job = explained.job.to_string();
        let (attempts, began) = (joined.spans.as_slice(), joined.data.began);
        printer.json(&SamplesDocument { job, attempts, began, series, gpus });
        return Ok(ExitCode::SUCCESS);
    }
    let (headings, lines) = match (series, gpus) {
        (Some(series), _) => series_rows(&thinned(series), joined.data.began),
        (None, Some(gpus)) => gpu_rows(gpus, joined.data.began),
        (None, None) => Default::default(),
    };
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let right: Vec<usize> = (1..headings.len()).collect();
    let give = Give { cut: &[], go: &[0] };
    let columns = printer.columns(Stream::Out);
    printer.line(render_table_within(columns, &headings, &lines, &right, give));
    printer.note("the lowest and highest of each stretch; `-o csv` prints every sample");
    Ok(ExitCode::SUCCESS)
}

fn attempts(asked: &SamplesAsked<'_>, explained: &Explained) -> Result<Vec<AttemptNo>, Fault> {
    let Some(number) = asked.attempt else { return Ok(worked(explained)) };
    let wanted = AttemptNo::new(number);
    if explained.attempts.iter().any(|one| one.attempt == wanted) {
        return Ok(vec![wanted]);
    }
    let missing = format!("job `{}` has no attempt {number}", explained.job);
    Err(Fault::new(ExitCode::NOT_FOUND, missing)
        .hint(format!("it has {}", explained.attempts.len())))
}

fn none_of(name: &str, joined: &JoinedPlot) -> Fault {
    let mut there: Vec<&str> = joined.data.series.iter().map(|series| series.name).collect();
    there.extend((!joined.gpus.t_secs.is_empty()).then_some(GPUS));
    let hint = match there.as_slice() {
        [] => "samples come some seconds after the workload starts".to_owned(),
        names => format!("there is {}", names.join(", ")),
    };
    Fault::new(ExitCode::NOT_FOUND, format!("there are no samples of `{name}`")).hint(hint)
}

type Rows = (Vec<String>, Vec<Vec<String>>);

fn series_rows(series: &Series, began: Option<Timestamp>) -> Rows {
    let rows = series.t_secs.iter().zip(&series.values).map(|(secs, value)| {
        let [at, since] = times(began, *secs);
        vec![at, since, value_text(*value, series.unit)]
    });
    (["time", "since", series.name].map(str::to_owned).into(), rows.collect())
}

fn gpu_rows(gpus: &GpuHistory, began: Option<Timestamp>) -> Rows {
    let mut headings = ["time", "since", "gpu"].map(str::to_owned).to_vec();
    headings.extend(gpus.plots.iter().map(|plot| plot.name.to_owned()));
    let numbers = gpus.plots.first().map_or(&[][..], |plot| plot.lines.as_slice());
    let mut rows = Vec::new();
    for (place, secs) in gpus.t_secs.iter().enumerate() {
        for gpu in numbers.iter().map(|line| line.gpu) {
            let [at, since] = times(began, *secs);
            let mut row = vec![at, since, gpu.to_string()];
            row.extend(gpus.plots.iter().map(|plot| {
                let line = plot.lines.iter().find(|line| line.gpu == gpu);
                value_text(line.and_then(|line| line.values[place]), plot.unit)
            }));
            rows.push(row);
        }
    }
    (headings, rows)
}

fn times(began: Option<Timestamp>, secs: f64) -> [String; 2] {
    let at = moment(began, secs).map(local_time).unwrap_or_default();
    [at, Span::from_secs(secs as u64).to_string()]
}

fn value_text(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| measure(value, unit))
}
