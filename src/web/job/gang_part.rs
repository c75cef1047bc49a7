//! The machines of a gang: a row for each rank, how busy it was, and the epochs.

use maud::{Markup, html};

use crate::app::overview::gang_view::{GangView, HeatRow};
use crate::app::text::local_time;

/// The size of one moment of the heat map.
const CELL: usize = 8;
const ROW: usize = 14;

pub fn gang_part(view: &GangView) -> Markup {
    let report = &view.report;
    html! {
        section aria-labelledby="gang" {
            h2 #gang { "Machines of the gang (" (report.ranks.len()) ")" }
            div.wide tabindex="0" role="group" aria-labelledby="gang" {
                table {
                    thead { tr {
                        @for heading in ["Rank", "Role", "Job", "State", "Attempts", "Cost", "Busy"] { th { (heading) } }
                    } }
                    tbody {
                        @for rank in &report.ranks {
                            tr {
                                td { (rank.rank) }
                                td { (rank.role) }
                                td { a href=(format!("/job/{}", rank.job)) { (rank.job) } }
                                td { (rank.state) }
                                td.number { (rank.attempts) }
                                td.number { (rank.usd) }
                                td { @if let Some(row) = view.heat.iter().find(|row| row.rank == rank.rank) { (heat(row)) } }
                            }
                        }
                    }
                }
            }
            @if let Some(first) = report.ranks.first().filter(|_| report.runs_without_first()) {
                p.warn { "Rank 0 has ended, and other ranks still bill." }
                p.acts {
                    @for (word, text) in [("stop", "Stop the others"), ("cancel", "Cancel the others")] {
                        a.button href=(format!("/job/{}/act/{word}", first.job)) { (text) }
                    }
                }
            }
            @for line in report.time_lines() { p { (line) } }
            @if let Some(end) = &report.end { p { "Over: " (end) } }
            h3 { "Epochs" }
            ol {
                @for epoch in &report.epochs {
                    li value=(epoch.epoch) {
                        (epoch.formed.map_or_else(|| "not formed".to_owned(), local_time))
                        ", " (epoch.machines) " machines"
                        @if let Some(why) = &epoch.why { ": " (why) }
                    }
                }
            }
        }
    }
}

/// One row of the heat map: time goes to the right, and a full colour is full use.
fn heat(row: &HeatRow) -> Markup {
    let steps = row.steps();
    let last = row.trend.last();
    let spoken = match last {
        Some(last) => format!("{} of rank {} by time, now {last:.0}%", row.trend.label, row.rank),
        None => format!("rank {} has no samples yet", row.rank),
    };
    html! {
        svg.heat width=(steps.len() * CELL) height=(ROW) role="img" aria-label=(spoken) {
            title { (spoken) }
            @for (at, step) in steps.iter().enumerate() {
                @if let Some(step) = step {
                    rect x=(at * CELL) y="0" width=(CELL) height=(ROW) class=(format!("heat-{step}")) {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::app::overview::usage_trend::UsageTrend;

    #[test]
    fn heat_leaves_unknown_moments_empty() {
        let values = vec![Some(5.0), None, Some(95.0)];
        let trend = UsageTrend { label: "GPU", unit: "%", values, top: 100.0 };
        let drawn = heat(&HeatRow { rank: 1, trend: Arc::new(trend) }).into_string();
        assert_eq!(drawn.matches("<rect").count(), 2, "{drawn}");
        assert!(drawn.contains("heat-0") && drawn.contains("x=\"16\""), "{drawn}");
        assert!(drawn.contains("GPU of rank 1 by time, now 95%"), "{drawn}");
    }
}
