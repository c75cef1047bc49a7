//! What jobs cost: by day, by job, by market; the rows as CSV.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::layout::{Page, fault_box, fault_page};
use super::site::Site;
use crate::app::text::local_time;
use crate::app::view::costs::{CostRow, sums};
use crate::market::Usd;

pub async fn page(State(site): State<Arc<Site>>) -> Response {
    let newest = site.overview().await;
    let body = html! {
        @if let Some(fault) = &newest.fault { (fault_box(fault)) }
        @match &newest.overview {
            None => p { "The records could not be read yet. What jobs cost is not known." },
            Some(overview) => {
                @let rows = &overview.costs;
                section aria-label="Total" {
                    p { "Spent by all jobs of this job root: " strong { (overview.money.spent) } }
                    p { a href="/costs.csv" { "All rows as CSV" } }
                    p.muted {
                        "An unfinished job counts until " (local_time(overview.at))
                        ", and its rows are estimates. Days are those of this workstation."
                    }
                }
                (table("By day", "Day", &sums(rows, |row| row.day.to_string()), true))
                (table("By job", "Job", &sums(rows, |row| row.job.clone()), false))
                (table("By market", "Market", &sums(rows, |row| row.market.clone()), false))
                (table("By machine type", "Type", &sums(rows, |row| row.instance_type.clone()), false))
            }
        }
    };
    Page::new("Costs").show(body, html! {}).into_response()
}

fn table(
    title: &str,
    heading: &str,
    sums: &std::collections::BTreeMap<String, Usd>,
    newest_first: bool,
) -> Markup {
    let mut rows: Vec<(&String, &Usd)> = sums.iter().collect();
    if newest_first {
        rows.reverse();
    } else {
        rows.sort_by_key(|(_, usd)| std::cmp::Reverse(usd.micros()));
    }
    let most = sums.values().map(|usd| usd.dollars()).fold(1e-6, f64::max);
    html! {
        section aria-label=(title) {
            h2 { (title) }
            @if rows.is_empty() { p.muted { "Nothing was spent." } }
            div.wide {
                table {
                    thead { tr { th { (heading) } th { "Cost" } th { "Share" } } }
                    tbody {
                        @for (word, usd) in rows {
                            tr {
                                td { @if heading == "Job" { a href=(format!("/job/{word}")) { (word) } } @else { (word) } }
                                td.number { (usd) }
                                td { meter min="0" max=(most) value=(usd.dollars()) aria-label="share" {} }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub async fn csv(State(site): State<Arc<Site>>) -> Response {
    let newest = site.overview().await;
    match (&newest.overview, &newest.fault) {
        // Old rows would look like new ones.
        (_, Some(fault)) => fault_page(fault),
        (overview, None) => {
            let rows = overview.as_ref().map(|overview| overview.costs.as_slice());
            let mut text = "day,job,name,attempt,instance_type,market,usd,estimated\n".to_owned();
            rows.unwrap_or_default().iter().for_each(|row| text.push_str(&line(row)));
            ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response()
        }
    }
}

fn line(row: &CostRow) -> String {
    format!(
        "{},{},{},{},{},{},{:.6},{}\n",
        row.day,
        cell(&row.job),
        cell(&row.name),
        row.attempt,
        cell(&row.instance_type),
        cell(&row.market),
        row.usd.dollars(),
        row.estimated
    )
}

/// A text in quotes. A spreadsheet would run one that begins like a formula.
fn cell(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn cell_is_text_whatever_its_name() {
        assert_eq!(cell("a \"b\", c"), "\"a \"\"b\"\", c\"");
        assert_eq!(cell("=1+1"), "\"'=1+1\"");
    }
}
