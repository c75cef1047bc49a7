//! The tunings of the job root: the trials with the best first, and drawings of their values.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use crate::app::Fault;
use crate::app::record_errors::record_fault;
use crate::app::text::local_time;
use crate::app::tune::memory::TuneMemory;
use crate::app::tune::param_places::param_places;
use crate::app::tune::step::in_words;
use crate::app::tune::view::{TrialRow, TuneView};
use crate::job::TuneGoal;
use crate::jobdir;
use crate::market::Usd;
use crate::web::layout::{Page, fact, fault_event, fault_page};
use crate::web::live;
use crate::web::site::Site;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;

/// Between the edge and the drawing: room for the names of axes.
const EDGE: f64 = 24.0;

/// Trials in one drawing. More lines hide each other.
const DRAWN_MAX: usize = 60;

pub async fn list(State(site): State<Arc<Site>>) -> Response {
    match read_all(&site).await {
        Ok(all) => Page::new("Tunings").show(tunings(&all), html! {}).into_response(),
        Err(fault) => fault_page(&fault),
    }
}

pub async fn page(State(site): State<Arc<Site>>, Path(name): Path<String>) -> Response {
    match changing(&site, &name).await {
        Ok((view, shown)) => {
            let mut page = Page::new(&view.tuning);
            // The records of an ended tuning stay as they are.
            if !view.is_over() {
                page = page.live(format!("/tuning/{}/live", view.tuning));
            }
            page.show(html! {}, shown).into_response()
        }
        Err(fault) => fault_page(&fault),
    }
}

pub async fn events(
    State(site): State<Arc<Site>>,
    Path(name): Path<String>,
    address: Uri,
) -> Response {
    live::stream(site, address, move |site| {
        let name = name.clone();
        async move {
            let shown = changing(&site, &name).await;
            shown.map_or_else(|fault| fault_event(&fault), |(_, shown)| shown.into_string())
        }
    })
    .into_response()
}

async fn changing(site: &Site, name: &str) -> Result<(TuneView, Markup), Fault> {
    let memory = TuneMemory::open(&site.store, name).await?;
    let view = TuneView::read_here(&memory, &site.workstation, site.clock.now()).await?;
    let importance = site.importance.of(&memory, view.counts.complete).await;
    let shown = tuning(&view, &importance);
    Ok((view, shown))
}

/// The tunings of a job root, and why others are left out.
#[derive(Default)]
struct AllTunings {
    views: Vec<TuneView>,
    left_out: Vec<Fault>,
}

/// One unreadable tuning must not hide the others.
async fn read_all(site: &Site) -> Result<AllTunings, Fault> {
    let dirs = jobdir::tunings(&site.store).await;
    let mut all = AllTunings::default();
    for dir in dirs.map_err(|error| record_fault(&error.into()))? {
        match read(site, dir.name()).await {
            Ok(view) => all.views.push(view),
            Err(fault) => all.left_out.push(fault),
        }
    }
    Ok(all)
}

async fn read(site: &Site, name: &str) -> Result<TuneView, Fault> {
    let memory = TuneMemory::open(&site.store, name).await?;
    TuneView::read_here(&memory, &site.workstation, site.clock.now()).await
}

fn tunings(AllTunings { views, left_out }: &AllTunings) -> Markup {
    html! {
        @for fault in left_out { p.warn { "Left out: " (fault.sentence()) } }
        @if views.is_empty() && left_out.is_empty() {
            p { "No tuning is here. " code { "lamp tune JOB.toml" } " begins one." }
        } @else if !views.is_empty() {
            div.wide tabindex="0" role="group" aria-label="All tunings" {
                table {
                    thead { tr { th scope="col" { "Tuning" } th scope="col" { "State" } th scope="col" { "Best" } th scope="col" { "Cost" } } }
                    tbody {
                        @for view in views {
                            tr {
                                th scope="row" { a href=(format!("/tuning/{}", view.tuning)) { (view.tuning) } }
                                td { (state(view)) }
                                td { (best(view)) }
                                td.number { (view.usd) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn state(view: &TuneView) -> String {
    let counts = &view.counts;
    let ended = counts.ended();
    let running = match counts.running {
        0 => String::new(),
        running => format!(", {running} running"),
    };
    let word = match view.is_undriven() {
        true => "not driven, ",
        false if view.is_over() => "ended, ",
        false => "",
    };
    format!("{word}{ended} of {} trials{running}", view.wanted)
}

fn best(view: &TuneView) -> String {
    view.best
        .as_ref()
        .map_or_else(|| "none yet".to_owned(), |best| format!("{} {:.6}", view.metric, best.value))
}

fn tuning(view: &TuneView, importance: &[(String, f64)]) -> Markup {
    html! {
        section aria-label="State" {
            dl.money {
                (fact("State", Some(state(view))))
                (fact("Best", Some(best(view))))
                (fact("Cost so far", Some(view.usd.to_string())))
                (fact("Budget", view.budget.map(|usd| usd.to_string())))
                (fact("Expected in all", view.expected_usd.map(|usd| usd.to_string())))
                (fact("Expected end", view.expected_end.map(local_time)))
            }
            @if view.is_undriven() {
                p.warn {
                    "No process drives it: no further trial starts. "
                    code { "lamp tune drive " (view.tuning) }
                }
            }
            @if let Some(end) = &view.ended { p { "No more trials start: " (end.reason) "." } }
            @if let Some(best) = &view.best { p { code { (best.command) } } }
        }
        section aria-label="Drawings" {
            (values(view))
            (curves(view))
            (parallel(view))
            (costs(view))
            (importance_bars(&view.tuning, importance))
        }
        (table(view))
    }
}

fn table(view: &TuneView) -> Markup {
    html! {
        section aria-label="Trials" {
            h2 { "Trials" }
            div.wide tabindex="0" role="group" aria-label="All trials" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Trial" } th scope="col" { "State" } th scope="col" { (view.metric) }
                            th scope="col" { "Values" } th scope="col" { "Cost" } th scope="col" { "Why" }
                        }
                    }
                    tbody {
                        @for trial in &view.trials {
                            tr {
                                th scope="row" { a href=(format!("/job/{}", trial.job)) { (trial.number) } }
                                td { (trial.state) }
                                td.number { @if let Some(value) = trial.value { (format!("{value:.6}")) } }
                                td { (in_words(&trial.params)) }
                                td.number { (trial.usd) }
                                td { (trial.reason) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The least and the greatest of some numbers, never equal.
#[derive(Clone, Copy)]
struct Extent {
    low: f64,
    high: f64,
}

impl Extent {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        match low < high {
            true => Extent { low, high },
            false if low.is_finite() => Extent { low: low - 0.5, high: low + 0.5 },
            false => Extent { low: 0.0, high: 1.0 },
        }
    }

    fn part(self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn x(self, value: f64) -> f64 {
        EDGE + self.part(value) * (WIDTH - 2.0 * EDGE)
    }

    fn y(self, value: f64) -> f64 {
        HEIGHT - EDGE - self.part(value) * (HEIGHT - 2.0 * EDGE)
    }
}

fn drawing(title: &str, spoken: &str, body: Markup) -> Markup {
    html! {
        figure {
            figcaption { (title) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(spoken)
                width="100%" fill="none" stroke="currentColor" { (body) }
        }
    }
}

fn line(points: &[(f64, f64)], width: f64, opacity: f64) -> Markup {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    html! { polyline points=(points.join(" ")) stroke-width=(width) stroke-opacity=(opacity) {} }
}

fn word(x: f64, y: f64, text: &str) -> Markup {
    html! {
        text x=(format!("{x:.1}")) y=(format!("{y:.1}")) font-size="11" fill="currentColor"
            stroke="none" text-anchor="middle" { (text) }
    }
}

/// A dot for each complete trial, and a line for the best so far.
fn values(view: &TuneView) -> Markup {
    let so_far = view.best_so_far();
    let Some(last) = so_far.last() else {
        return html! { p.muted { "No trial is complete yet." } };
    };
    let across = Extent::of(so_far.iter().map(|(number, ..)| f64::from(*number)));
    let up = Extent::of(so_far.iter().map(|(_, value, _)| *value));
    let spoken = format!("{} of each trial, the best is {}", view.metric, last.2);
    let best: Vec<(f64, f64)> = so_far
        .iter()
        .map(|(number, _, best)| (across.x(f64::from(*number)), up.y(*best)))
        .collect();
    let body = html! {
        (line(&best, 2.0, 0.9))
        @for (number, value, _) in &so_far {
            circle cx=(format!("{:.1}", across.x(f64::from(*number))))
                cy=(format!("{:.1}", up.y(*value))) r="3" fill="currentColor" stroke="none" {}
        }
        (word(WIDTH / 2.0, 12.0, &format!("{} to {}", short(up.low), short(up.high))))
    };
    let title = format!("{} of each trial; the line is the best so far", view.metric);
    drawing(&title, &spoken, body)
}

/// The metric of each trial over its steps.
fn curves(view: &TuneView) -> Markup {
    let drawn: Vec<&TrialRow> =
        view.trials.iter().filter(|trial| trial.points.len() > 1).take(DRAWN_MAX).collect();
    if drawn.is_empty() {
        return html! {};
    }
    let points = || drawn.iter().flat_map(|trial| &trial.points);
    let across = Extent::of(points().map(|point| point.step));
    let up = Extent::of(points().filter_map(|point| point.value));
    let best = view.best.as_ref().map(|best| best.number);
    let body = html! {
        @for trial in &drawn {
            @let is_best = best == Some(trial.number);
            (line(&curve(trial, across, up), if is_best { 2.5 } else { 1.0 }, if is_best { 1.0 } else { 0.35 }))
        }
        (word(WIDTH / 2.0, HEIGHT - 6.0, &format!("step {} to {}", short(across.low), short(across.high))))
    };
    let spoken = format!("{} over the steps of {} trials", view.metric, drawn.len());
    drawing(
        &format!("{} over the steps of each trial; the best is thick", view.metric),
        &spoken,
        body,
    )
}

fn curve(trial: &TrialRow, across: Extent, up: Extent) -> Vec<(f64, f64)> {
    let known = trial.points.iter().filter_map(|point| Some((point.step, point.value?)));
    known.map(|(step, value)| (across.x(step), up.y(value))).collect()
}

/// Bars, or how to get them.
fn importance_bars(tuning: &str, parts: &[(String, f64)]) -> Markup {
    if parts.is_empty() {
        return html! {
            p.muted {
                "How much each parameter matters: "
                code { "lamp tune status " (tuning) " --importance" }
            }
        };
    }
    html! {
        h2 { "Importance of the parameters" }
        table {
            thead { tr { th scope="col" { "Parameter" } th scope="col" { "Part" } th scope="col" { "" } } }
            tbody {
                @for (name, part) in parts {
                    tr {
                        th scope="row" { (name) }
                        td.number { (format!("{:.0} %", part * 100.0)) }
                        td { meter min="0" max="1" value=(format!("{part:.3}")) { (format!("{part:.2}")) } }
                    }
                }
            }
        }
    }
}

/// A bar for the cost of each trial.
fn costs(view: &TuneView) -> Markup {
    if view.usd == Usd::ZERO {
        return html! {};
    }
    let mut rows: Vec<&TrialRow> = view.trials.iter().collect();
    rows.sort_by_key(|row| row.number);
    let most = rows.iter().map(|row| row.usd).max().unwrap_or(Usd::ZERO);
    let up = Extent { low: 0.0, high: most.dollars() };
    let wide = (WIDTH - 2.0 * EDGE) / rows.len().max(1) as f64;
    let body = html! {
        @for (at, row) in rows.iter().enumerate() {
            @let top = up.y(row.usd.dollars());
            rect x=(format!("{:.1}", EDGE + at as f64 * wide + wide * 0.1)) y=(format!("{top:.1}"))
                width=(format!("{:.1}", wide * 0.8)) height=(format!("{:.1}", HEIGHT - EDGE - top))
                fill="currentColor" fill-opacity="0.6" stroke="none" {
                title { "trial " (row.number) ": " (row.usd) }
            }
        }
        (word(WIDTH / 2.0, 12.0, &format!("up to {most}")))
    };
    drawing("Cost of each trial", &format!("cost of {} trials, at most {most}", rows.len()), body)
}

/// One vertical axis for each parameter and one for the metric, a line for each complete trial.
fn parallel(view: &TuneView) -> Markup {
    let drawn: Vec<&TrialRow> =
        view.trials.iter().filter(|trial| trial.is_done()).take(DRAWN_MAX).collect();
    let Some(first) = drawn.first() else { return html! {} };
    let names: Vec<String> = first.params.keys().cloned().collect();
    let axes: Vec<ParallelAxis> =
        names.iter().map(|name| ParallelAxis::of_param(name, &drawn)).collect();
    let axes: Vec<ParallelAxis> =
        axes.into_iter().chain([ParallelAxis::of_metric(view, &drawn)]).collect();
    let across = Extent { low: 0.0, high: (axes.len() - 1).max(1) as f64 };
    let best = view.best.as_ref().map(|best| best.number);
    let body = html! {
        @for (at, axis) in axes.iter().enumerate() {
            @let x = across.x(at as f64);
            (line(&[(x, EDGE), (x, HEIGHT - EDGE)], 1.0, 0.5))
            (word(x, HEIGHT - 6.0, &axis.name))
        }
        @for (row, trial) in drawn.iter().enumerate() {
            @let is_best = best == Some(trial.number);
            @let points: Vec<(f64, f64)> = axes.iter().enumerate()
                .map(|(at, axis)| (across.x(at as f64), axis.extent.y(axis.places[row]))).collect();
            (line(&points, if is_best { 2.5 } else { 1.0 }, if is_best { 1.0 } else { 0.3 }))
        }
    };
    let spoken = format!("values of {} complete trials, one axis each", drawn.len());
    drawing("Values and metric of each complete trial; the best is thick", &spoken, body)
}

struct ParallelAxis {
    name: String,
    extent: Extent,
    /// The place of each trial on it.
    places: Vec<f64>,
}

impl ParallelAxis {
    fn of_param(name: &str, drawn: &[&TrialRow]) -> Self {
        let extent = Extent { low: 0.0, high: 1.0 };
        ParallelAxis { name: name.to_owned(), extent, places: param_places(name, drawn) }
    }

    /// The better values stand above.
    fn of_metric(view: &TuneView, drawn: &[&TrialRow]) -> Self {
        let sign = if view.goal == TuneGoal::Minimize { -1.0 } else { 1.0 };
        let places: Vec<f64> =
            drawn.iter().map(|trial| sign * trial.value.unwrap_or_default()).collect();
        let extent = Extent::of(places.iter().copied());
        ParallelAxis { name: view.metric.clone(), extent, places }
    }
}

fn short(value: f64) -> String {
    if (1e-3..1e6).contains(&value.abs()) || value == 0.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.2e}")
    }
}
