//! The samples of an attempt: a drawing without a script, numbers for the script, a table and CSV.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;

use super::job::axis_part::axis;
use super::job::gpu_part::gpu_plots;
use super::job::job_look::JobLook;
use super::job::plot_scope::{PlotQuery, PlotScope, age, asked_scope, chosen, source};
use super::layout::{Page, fault_page, nothing_page};
use super::site::Site;
use crate::app::analysis::bands::{BLIND_SECS, Band, BandKind, SecsRange, bands, sums_text};
use crate::app::analysis::effective_load::EffectiveLoad;
use crate::app::analysis::gpu_history::GpuHistory;
use crate::app::analysis::joined_plot::{AttemptSpan, JoinedPlot, PlotPart};
use crate::app::analysis::lost_money::LostMoney;
use crate::app::analysis::sample_csv::series_csv;
use crate::app::analysis::startup_timeline::StartupTimeline;
use crate::app::prices::pool_prices::{MARKED_MAX, PoolTime};
use crate::app::text::{local_time, measure};
use crate::app::view::next_end::Countdown;
use crate::app::view::plot_data::{PlotData, Series, moment, thinned};
use crate::app::view::timeline::{self, ExplainedAttempt, TimelineEntry};
use crate::app::{Fault, record_errors};
use crate::job::AttemptNo;
use crate::market::{PricePoint, Span, UsdPerHour};

pub const WIDTH: f64 = 800.0;

pub const HEIGHT: f64 = 120.0;

/// Something that happened, at its place on the time axis.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Mark {
    secs: f64,
    #[cfg_attr(feature = "web", schema(value_type = String))]
    word: &'static str,
    text: String,
}

#[derive(Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct Plots {
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    attempt: AttemptNo,
    #[serde(flatten)]
    data: PlotData,
    /// Each attempt of these plots, oldest first.
    attempts: Vec<AttemptSpan>,
    marks: Vec<Mark>,
    bands: Vec<Band>,
    load: Option<EffectiveLoad>,
    startup: Option<StartupTimeline>,
    /// The ends of the whole job. `lost` is for the whole job too.
    ends: Vec<Countdown>,
    lost: LostMoney,
    gpus: GpuHistory,
    /// Where the time axis of all plots ends. Time after the last sample is in it.
    end_secs: f64,
    #[serde(skip)]
    gpu_count: u32,
    #[serde(skip)]
    scope: PlotScope,
}

/// What stands on the axis: the verdicts, and what changes the work.
const MARKED: &[&str] = &[
    "asked",
    "attention",
    "because",
    "checkpoint",
    "ended",
    "lost",
    "market",
    "notice",
    "plan",
    "request",
    "resumed",
    "settled",
    "stacks",
    "started",
    "verdict",
];

/// Marks of one word beside each other. More cannot be told apart, and a job of a week that saves
/// each ten minutes has a thousand.
const MARKS_ACROSS: f64 = 300.0;

/// The word of a change of the spot price.
const PRICE: &str = "price";

/// The word of the begin of an attempt, if there are several.
const ATTEMPT: &str = "attempt";

impl Mark {
    /// A price changes often, so that its mark is a tick at the foot.
    fn top(&self) -> f64 {
        if self.word == PRICE { HEIGHT - 8.0 } else { 0.0 }
    }

    fn class(&self) -> &'static str {
        match self.word {
            PRICE => "change",
            ATTEMPT => "begin",
            _ => "mark",
        }
    }
}

/// The data of the plots, with the words beside them: a page that is open draws both anew.
#[derive(Serialize)]
struct PlotsAnswer<'a> {
    #[serde(flatten)]
    plots: &'a Plots,
    /// `None`: this series has no plot.
    captions: Vec<Option<String>>,
    words: String,
}

impl Plots {
    fn to_answer(&self) -> PlotsAnswer<'_> {
        PlotsAnswer {
            plots: self,
            captions: self
                .data
                .series
                .iter()
                .map(|one| self.is_drawn(one).then(|| last(one)))
                .collect(),
            words: self.words().into_string(),
        }
    }

    /// # Errors
    /// Fails when the job root is unreachable.
    pub async fn read(site: &Site, look: &JobLook, scope: &PlotScope) -> Result<Plots, Fault> {
        let (now, number) = (site.clock.now(), scope.newest);
        let parts = scope.parts(site, look).await?;
        let JoinedPlot { data, gpus, spans } = JoinedPlot::of(&parts);
        let attempts = &look.explained.attempts;
        let mut story = timeline::story(&look.explained, false);
        let (mut marks, mut bands) = (Vec::new(), Vec::new());
        for span in &spans {
            let attempt = attempts.iter().find(|one| one.attempt == span.attempt);
            let part = parts.iter().find(|one| one.attempt == span.attempt);
            let Some((attempt, part)) = attempt.zip(part) else { continue };
            if spans.len() > 1 {
                marks.push(attempt_mark(span, attempt));
            }
            story.retain(|(other, _)| *other >= span.attempt);
            if let Some((began, (_, entries))) =
                data.began.zip(story.first()).filter(|(_, (other, _))| *other == span.attempt)
            {
                marks.extend(self::marks(began, entries));
                marks.extend(price_marks(site, attempt, began, now));
            }
            bands.extend(bands_of(attempt, part, span, now));
        }
        let end_secs = axis_end(&data, &gpus, &spans, &bands);
        let newest = parts.last().filter(|part| part.attempt == number);
        let attempt = attempts.iter().find(|attempt| attempt.attempt == number);
        let plan = attempt.and_then(|attempt| attempt.plan.as_ref());
        Ok(Plots {
            attempt: number,
            data,
            attempts: spans,
            marks: joined(marks, end_secs / MARKS_ACROSS),
            bands,
            load: newest.and_then(|part| EffectiveLoad::of(&part.plot.load)),
            startup: look.startups.iter().find(|startup| startup.attempt == number).cloned(),
            ends: look.ends().to_vec(),
            lost: look.lost,
            gpus,
            end_secs,
            gpu_count: plan.map_or(1, |plan| plan.offer.gpus),
            scope: scope.clone(),
        })
    }

    /// The sum of both directions is in the data only, if they have plots.
    fn is_drawn(&self, series: &Series) -> bool {
        let is_split =
            || self.data.series.iter().any(|one| one.name == "net_received_bytes_per_sec");
        series.name != "net_bytes_per_sec" || !is_split()
    }

    pub fn draw(&self, job: &str) -> Markup {
        if self.data.series.is_empty() {
            return html! { p.muted { "There are no samples of this attempt yet." } };
        }
        html! {
            div #words { (self.words()) }
            @for series in self.data.series.iter().filter(|one| self.is_drawn(one)) {
                figure.plot data-series=(series.name) {
                    figcaption {
                        strong { (title(series.name)) } " "
                        span.muted { (last(series)) }
                        (self.links(job, series.name))
                    }
                    div.canvas { (self.drawing(series)) }
                }
            }
            (gpu_plots(&self.gpus, self.data.began, self.end_secs, &self.gpu_links(job)))
            p #mark.muted aria-live="off" {
                "Dashed lines are marks. The timeline below has their words. A click leads to the log of its time."
                @if self.marks.iter().any(|mark| mark.word == PRICE) {
                    " Ticks at the foot are changes of the spot price."
                }
                @if self.data.series.iter().any(|one| limit(one.name).is_some()) {
                    " At the dotted line of the machine's memory, the kernel kills a program."
                }
                @if self.marks.iter().any(|mark| mark.word == ATTEMPT) {
                    " A solid line with a number is the begin of that attempt."
                }
            }
            p #log-at hidden { a { "Log at this time" } }
            p.muted {
                "The same: " code { "lamp top" } ", then Enter on the job and " kbd { "2" }
                "; the numbers: " code { "lamp explain " (job) " --samples NAME" }
            }
        }
    }

    fn links(&self, job: &str, name: &str) -> Markup {
        let rest = format!("{name}?{}", self.scope.query());
        html! {
            span.links {
                a href=(format!("/job/{job}/table/{rest}")) { "Table" } " "
                a href=(format!("/job/{job}/csv/{rest}")) { "CSV" }
            }
        }
    }

    fn gpu_links(&self, job: &str) -> Markup {
        let query = self.scope.query();
        html! {
            span.links {
                a href=(format!("/job/{job}/gpus?{query}")) { "Table" } " "
                a href=(format!("/job/{job}/gpus.csv?{query}")) { "CSV" }
            }
        }
    }

    /// The load in words, and the bands with their colours.
    fn words(&self) -> Markup {
        let sums = sums_text(&self.bands);
        let whole =
            if self.attempts.len() > 1 { "In these attempts: " } else { "In this attempt: " };
        html! {
            @if let Some(load) = &self.load {
                p { (load.text(self.gpu_count)) }
                @if let Some(disagreement) = load.disagreement(self.gpu_count) {
                    p #disagreement.warn { (disagreement) }
                }
            }
            @if !sums.is_empty() {
                p.legend {
                    @for kind in ["busy", "starting", "idle", "stalled", "unknown"] {
                        span.swatch.(kind) {} " " (kind) " "
                    }
                    span.muted { (whole) (sums) }
                }
            }
            // One pattern for all drawings.
            svg.defs aria-hidden="true" width="0" height="0" {
                defs {
                    pattern #hatch width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                        rect.hatch width="2" height="6" {}
                    }
                }
            }
        }
    }

    /// Without a script. With one, a plot with a cursor takes its place.
    fn drawing(&self, series: &Series) -> Markup {
        let end = self.end_secs;
        let x = |secs: f64| format!("{:.1}", (secs / end).clamp(0.0, 1.0) * WIDTH);
        let width = |band: &Band| {
            let (from, to) = (band.from_secs.min(end), band.to_secs.min(end));
            format!("{:.1}", (to - from) / end * WIDTH)
        };
        let fill = |band: &Band| (band.kind == BandKind::Unknown).then_some("url(#hatch)");
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                aria-label=(format!("{}: {}", title(series.name), last(series))) {
                @for band in &self.bands {
                    rect class={ "band " (band.kind.word()) } x=(x(band.from_secs)) y="0" width=(width(band))
                        height=(HEIGHT) fill=[fill(band)] { title { (band.kind.word()) } }
                }
                @for mark in self.marks.iter().filter(|mark| mark.secs >= 0.0 && mark.secs <= end) {
                    line class=(mark.class())
                        x1=(x(mark.secs)) x2=(x(mark.secs)) y1=(mark.top()) y2=(HEIGHT) {
                        title { (mark.word) ": " (mark.text) }
                    }
                }
                @for line in lines(series, x) { polyline points=(line.trim_end()) {} }
                @if let Some(limit) = limit(series.name) {
                    line.limit x1="0" x2=(WIDTH) y1=(height(limit, top(series))) y2=(height(limit, top(series))) {
                        title { (OUT_OF_MEMORY) }
                    }
                }
            }
            (axis(self.data.began, end, &measure(top(series), series.unit)))
        }
    }
}

/// One end for all plots, so that each moment has the same place in all of them.
fn axis_end(data: &PlotData, gpus: &GpuHistory, spans: &[AttemptSpan], bands: &[Band]) -> f64 {
    let series = data.series.iter().filter_map(|series| series.t_secs.last());
    let ends = series.chain(gpus.t_secs.last()).copied();
    let ends = ends.chain(spans.iter().map(|span| span.to_secs));
    ends.chain(bands.iter().map(|band| band.to_secs)).fold(1.0, f64::max)
}

/// The begin of one of several attempts.
fn attempt_mark(span: &AttemptSpan, attempt: &ExplainedAttempt) -> Mark {
    let number = span.attempt.number();
    let machine = attempt.plan.as_ref().map(|plan| {
        let offer = &plan.offer;
        format!(": {} in {}, {}", offer.instance_type, offer.zone, offer.market)
    });
    let text = format!("{number}{}", machine.unwrap_or_default());
    Mark { secs: span.from_secs, word: ATTEMPT, text }
}

/// The bands of an attempt at its place. One that is under way and silent is unknown up to now.
fn bands_of(
    attempt: &ExplainedAttempt,
    part: &PlotPart,
    span: &AttemptSpan,
    now: Timestamp,
) -> Vec<Band> {
    let plot = &part.plot;
    let Some(began) = plot.data.began else { return Vec::new() };
    let mut blind = plot.blind.clone();
    let mut end = plot.end_secs;
    let since = now.duration_since(began).as_secs_f64();
    // A batch has a minute, and comes when it is full.
    if attempt.settled.is_none() && since - end > BATCH_SECS + BLIND_SECS {
        blind.push(SecsRange { from: end, to: since });
        end = since;
    }
    let mut drawn = bands(&attempt.events, began, end, &blind);
    for band in &mut drawn {
        band.from_secs += span.from_secs;
        band.to_secs += span.from_secs;
    }
    drawn
}

/// An agent sends its samples once a minute.
const BATCH_SECS: f64 = 60.0;

const OUT_OF_MEMORY: &str = "out of memory: the kernel kills a program here";

/// The value of this series at which the kernel kills.
fn limit(name: &str) -> Option<f64> {
    (name == "machine_memory_percent").then_some(100.0)
}

/// The highest value of a drawing. A limit is always in view.
fn top(series: &Series) -> f64 {
    let least = limit(series.name).map_or(1e-9, |limit| limit * 1.05);
    series.values.iter().flatten().copied().fold(least, f64::max)
}

fn height(value: f64, top: f64) -> String {
    format!("{:.1}", HEIGHT - 1.0 - (value / top).clamp(0.0, 1.0) * (HEIGHT - 2.0))
}

/// One line for each stretch without a gap: an unknown value is not zero.
pub fn lines(series: &Series, x: impl Fn(f64) -> String) -> Vec<String> {
    let top = top(series);
    let mut lines: Vec<String> = vec![String::new()];
    for (secs, value) in series.t_secs.iter().zip(&series.values) {
        match (value, lines.last_mut()) {
            (Some(value), Some(line)) => {
                line.push_str(&format!("{},{} ", x(*secs), height(*value, top)));
            }
            _ => lines.push(String::new()),
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

fn marks(began: Timestamp, entries: &[TimelineEntry]) -> Vec<Mark> {
    let mark = |entry: &TimelineEntry| Mark {
        secs: entry.at.duration_since(began).as_secs_f64(),
        word: entry.word,
        text: entry.text.clone(),
    };
    entries.iter().filter(|entry| MARKED.contains(&entry.word)).map(mark).collect()
}

/// Marks of one word that are nearer than this become one, at the place of the first.
fn joined(marks: Vec<Mark>, near_secs: f64) -> Vec<Mark> {
    let mut kept: Vec<(Mark, usize)> = Vec::new();
    let mut last: BTreeMap<&'static str, usize> = BTreeMap::new();
    for mark in marks {
        let before = last.get(mark.word).filter(|_| mark.word != ATTEMPT).copied();
        match before.filter(|at| (mark.secs - kept[*at].0.secs).abs() < near_secs) {
            Some(at) => kept[at].1 += 1,
            None => {
                last.insert(mark.word, kept.len());
                kept.push((mark, 1));
            }
        }
    }
    let told = |(mark, count): (Mark, usize)| match count {
        1 => mark,
        _ => Mark { text: format!("{count} here, the first: {}", mark.text), ..mark },
    };
    kept.into_iter().map(told).collect()
}

/// The changes of the spot price of its machine, oldest first, as far as EC2 has told them.
fn price_marks(
    site: &Site,
    attempt: &ExplainedAttempt,
    began: Timestamp,
    now: Timestamp,
) -> Vec<Mark> {
    let Some(plan) = attempt.plan.as_ref() else { return Vec::new() };
    let to = attempt.settled.as_ref().map(|settled| settled.billed_to.unwrap_or(plan.created));
    let time = PoolTime { from: plan.created, to };
    let history = site.pool_prices.known(&site.workstation, &plan.offer, time, now);
    let mark = |(before, point): (UsdPerHour, PricePoint)| Mark {
        secs: point.at.duration_since(began).as_secs_f64(),
        word: PRICE,
        text: format!("spot {}, before {}", exact(point.price), exact(before)),
    };
    let changes = history.iter().flat_map(|history| history.changes(plan.created));
    let within = changes.filter(|(_, point)| to.is_none_or(|to| point.at <= to));
    let mut marks: Vec<Mark> = within.take(MARKED_MAX).map(mark).collect();
    marks.reverse();
    marks
}

/// EC2 changes the fourth decimal.
fn exact(price: UsdPerHour) -> String {
    format!("${:.4}/h", price.per_hour().dollars())
}

pub fn title(name: &str) -> &'static str {
    match name {
        "gpu_percent" => "GPU",
        "gpu_power_percent" => "GPU power, of its limit",
        "gpu_clock_mhz" => "GPU clock",
        "gpu_temperature_celsius" => "GPU temperature",
        "memory_bytes" => "Memory, this job",
        "machine_memory_percent" => "Memory, whole machine",
        "disk_free_bytes" => "Disk, free",
        "gpu_memory_percent" => "GPU memory traffic",
        "gpu_memory_used_mib" => "GPU memory",
        "gpu_power_watts" => "GPU power",
        "cpu_percent" => "Processor, this job",
        "machine_cpu_percent" => "Processor, whole machine",
        "disk_bytes_per_sec" => "Disk",
        "net_bytes_per_sec" => "Network",
        "net_received_bytes_per_sec" => "Network, in",
        "net_sent_bytes_per_sec" => "Network, out",
        _ => "Other",
    }
}

fn last(series: &Series) -> String {
    let known = series.values.iter().flatten();
    let most = known.clone().copied().fold(0.0_f64, f64::max);
    known.last().map_or_else(
        || "unknown".to_owned(),
        |last| {
            format!("now {}, at most {}", measure(*last, series.unit), measure(most, series.unit))
        },
    )
}

pub async fn json(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    Query(asked): Query<PlotQuery>,
) -> Response {
    let read = async {
        let look = site.looks.of(source(&site), &job, age(&site)).await?;
        let scope = PlotScope::asked(&look.explained, asked);
        // A job without an attempt has empty plots.
        let scope = scope.unwrap_or_else(|| PlotScope::one(chosen(&look.explained, asked.attempt)));
        Plots::read(&site, &look, &scope).await
    };
    match read.await {
        Ok(plots) => {
            let text = serde_json::to_string(&plots.to_answer()).unwrap_or_default();
            ([(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(fault) => fault_page(&fault),
    }
}

pub async fn table(
    State(site): State<Arc<Site>>,
    Path((job, name)): Path<(String, String)>,
    Query(asked): Query<PlotQuery>,
) -> Response {
    let read = one(&site, &job, &name, asked).await;
    let (began, series) = match read {
        Ok(Some(found)) => found,
        Ok(None) => return no_series(),
        Err(fault) => return fault_page(&fault),
    };
    let body = html! {
        p { a href=(format!("/job/{job}")) { (job) } }
        p.muted { "The same: " code { (asked.command(&job, series.name)) } }
        div.wide tabindex="0" role="group" aria-label=(title(series.name)) {
            table {
                thead { tr { th { "Time" } th { "Since the start" } th { "Value" } } }
                tbody {
                    @for (secs, value) in series.t_secs.iter().zip(&series.values) {
                        tr {
                            td { (moment(began, *secs).map(local_time).unwrap_or_default()) }
                            td.number { (Span::from_secs(*secs as u64)) }
                            td.number { (value.map_or_else(|| "unknown".to_owned(), |value| measure(value, series.unit))) }
                        }
                    }
                }
            }
        }
    };
    Page::new(title(series.name)).show(body, html! {}).into_response()
}

pub async fn csv(
    State(site): State<Arc<Site>>,
    Path((job, name)): Path<(String, String)>,
    Query(asked): Query<PlotQuery>,
) -> Response {
    match csv_text(&site, &job, &name, asked).await {
        Ok(Some(text)) => {
            ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response()
        }
        Ok(None) => no_series(),
        Err(fault) => fault_page(&fault),
    }
}

/// Every sample, one after the other. `None`: no sample has a value of this name.
async fn csv_text(
    site: &Site,
    job: &str,
    name: &str,
    asked: PlotQuery,
) -> Result<Option<String>, Fault> {
    let Some((look, scope)) = asked_scope(site, job, asked).await? else { return Ok(None) };
    let begins = scope.begins(site, &look).await?;
    let text = series_csv(&look.dir, &begins, name).await;
    text.map_err(|error| record_errors::record_fault(&error))
}

pub fn no_series() -> Response {
    let text = "There are no samples of this name in this attempt.";
    nothing_page(text)
}

/// The numbers of a table. `None`: there is no such series.
async fn one(
    site: &Site,
    job: &str,
    name: &str,
    asked: PlotQuery,
) -> Result<Option<(Option<Timestamp>, Series)>, Fault> {
    let Some((look, scope)) = asked_scope(site, job, asked).await? else { return Ok(None) };
    let joined = JoinedPlot::of(&scope.parts(site, &look).await?);
    let series = joined.data.series.iter().find(|series| series.name == name);
    Ok(series.map(|series| (joined.data.began, thinned(series))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(word: &'static str, secs: f64) -> Mark {
        Mark { secs, word, text: format!("at {secs}") }
    }

    #[test]
    fn marks_of_one_word_join_where_they_would_overlap() {
        let week: Vec<Mark> = (0..1008).map(|at| mark("checkpoint", f64::from(at * 600))).collect();
        let kept = joined(week, 604_800.0 / MARKS_ACROSS);
        assert!((250..=300).contains(&kept.len()), "{}", kept.len());
        assert_eq!((kept[0].secs, kept[0].text.as_str()), (0.0, "4 here, the first: at 0"));
        let near = [("checkpoint", 0.0), ("verdict", 1.0), ("checkpoint", 2.0)];
        let begins = [(ATTEMPT, 3.0), (ATTEMPT, 4.0), ("verdict", 90.0)];
        let all = near.into_iter().chain(begins).map(|(word, secs)| mark(word, secs));
        let words: Vec<&str> = joined(all.collect(), 10.0).iter().map(|mark| mark.word).collect();
        assert_eq!(words, ["checkpoint", "verdict", ATTEMPT, ATTEMPT, "verdict"]);
    }

    #[test]
    fn axis_of_all_plots_reaches_the_last_unknown_time() {
        let t_secs = vec![0.0, 59.0];
        let series = Series { name: "cpu_percent", unit: "%", values: vec![Some(1.0); 2], t_secs };
        let data = PlotData { began: None, samples: 2, series: vec![series] };
        let span = AttemptSpan { attempt: AttemptNo::FIRST, from_secs: 0.0, to_secs: 61.0 };
        let band = Band { from_secs: 59.0, to_secs: 900.0, kind: BandKind::Unknown };
        let gpus = GpuHistory::default();
        assert_eq!(axis_end(&data, &gpus, &[span], &[band]), 900.0);
        assert_eq!(axis_end(&data, &gpus, &[span], &[]), 61.0);
        assert_eq!(axis_end(&PlotData::default(), &gpus, &[], &[]), 1.0);
    }
}
