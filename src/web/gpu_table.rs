//! The numbers of each GPU as a table for people, and as CSV with every sample.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use maud::html;

use super::job::plot_scope::{PlotQuery, asked_scope};
use super::layout::{Page, fault_page};
use super::plots::no_series;
use super::site::Site;
use crate::app::analysis::gpu_history::GpuHistory;
use crate::app::analysis::joined_plot::JoinedPlot;
use crate::app::analysis::sample_csv::gpus_csv;
use crate::app::text::{local_time, measure};
use crate::app::view::plot_data::moment;
use crate::app::{Fault, record_errors};
use crate::market::Span;

pub async fn table(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    Query(asked): Query<PlotQuery>,
) -> Response {
    let read = async {
        let found = asked_scope(&site, &job, asked).await?;
        let Some((look, scope)) = found else { return Ok(None) };
        Ok(Some(JoinedPlot::of(&scope.parts(&site, &look).await?)))
    };
    let plot = match read.await {
        Ok(Some(plot)) if !plot.gpus.t_secs.is_empty() => plot,
        Ok(_) => return no_series(),
        Err(fault) => return fault_page(&fault),
    };
    let gpus = &plot.gpus;
    let body = html! {
        p { a href=(format!("/job/{job}")) { (job) } }
        p.muted { "The same: " code { (asked.command(&job, "gpus")) } }
        div.wide tabindex="0" role="group" aria-label="Each GPU" {
            table {
                thead { tr {
                    th { "Time" } th { "Since the start" } th { "GPU" }
                    @for column in &gpus.plots { th { (heading(column.name)) } }
                } }
                tbody {
                    @for (at, secs) in gpus.t_secs.iter().enumerate() {
                        @for gpu in numbers(gpus) {
                            tr {
                                td { (moment(plot.data.began, *secs).map(local_time).unwrap_or_default()) }
                                td.number { (Span::from_secs(*secs as u64)) }
                                td.number { (gpu) }
                                @for column in &gpus.plots {
                                    @let line = column.lines.iter().find(|line| line.gpu == gpu);
                                    @let value = line.and_then(|line| line.values[at]);
                                    td.number { (value.map_or_else(|| "unknown".to_owned(), |value| measure(value, column.unit))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    Page::new("Each GPU").show(body, html! {}).into_response()
}

fn numbers(gpus: &GpuHistory) -> Vec<u32> {
    gpus.plots
        .first()
        .map(|plot| plot.lines.iter().map(|line| line.gpu).collect())
        .unwrap_or_default()
}

/// The unit is in the cells.
fn heading(name: &str) -> &'static str {
    match name {
        "util_percent" => "Use",
        "memory_used_mib" => "Memory",
        "power_watts" => "Power",
        "clock_mhz" => "Clock",
        _ => "Temperature",
    }
}

pub async fn csv(
    State(site): State<Arc<Site>>,
    Path(job): Path<String>,
    Query(asked): Query<PlotQuery>,
) -> Response {
    match csv_text(&site, &job, asked).await {
        Ok(Some(text)) => {
            ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response()
        }
        Ok(None) => no_series(),
        Err(fault) => fault_page(&fault),
    }
}

/// A row for each GPU of each sample that has them. `None`: no sample has.
async fn csv_text(site: &Site, job: &str, asked: PlotQuery) -> Result<Option<String>, Fault> {
    let Some((look, scope)) = asked_scope(site, job, asked).await? else { return Ok(None) };
    let text = gpus_csv(&look.dir, &scope.begins(site, &look).await?).await;
    text.map_err(|error| record_errors::record_fault(&error))
}
