//! The spot price history of `lamp prices`: a point for each change, for each pool in its table.
//!
//! ```text
//!   Supply.histories ── pools with a row ── since the window began ── JSON, rows, the plot
//! ```
//!
//! Not here: conclusions such as how often a bid was exceeded (`prices::table`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::table;
use crate::app::prices::price_row::PriceRow;
use crate::cli::{ExitCode, Fault};
use crate::market::{PriceHistory, Supply};

/// The histories of the rows, in their order. The first point is the price at the start of the
/// window, if EC2 gives it.
pub fn of(
    rows: &[PriceRow],
    supply: &Supply,
    zone: Option<&str>,
    from: Timestamp,
) -> Vec<PriceHistory> {
    let rows = rows.iter().filter(|row| zone.is_none_or(|zone| row.zone.as_str() == zone));
    rows.filter_map(|row| supply.histories.iter().find(|history| row.is_of(history)))
        .map(|history| history.since(from))
        .collect()
}

/// # Errors
/// Fails when the history is missing: EC2 was silent (`!is_asked`), or has none for that zone.
pub fn refuse_none(
    courses: &[PriceHistory],
    supply: &Supply,
    zone: Option<&str>,
    is_asked: bool,
) -> Result<(), Fault> {
    if !courses.is_empty() {
        return Ok(());
    }
    if !is_asked {
        return Err(Fault::new(
            ExitCode::UNREACHABLE,
            "no course of spot prices is known: EC2 gave no answer",
        )
        .hint("`lamp doctor` looks at the way there"));
    }
    let place = zone.map(|zone| format!(" in {zone}")).unwrap_or_default();
    let fault = Fault::new(
        ExitCode::NOT_FOUND,
        format!("EC2 tells no spot price of what was asked for{place}"),
    );
    let mut zones: Vec<&str> =
        supply.histories.iter().map(|history| history.zone.as_str()).collect();
    zones.sort_unstable();
    zones.dedup();
    if zones.is_empty() {
        Err(fault)
    } else {
        Err(fault.hint(format!("it does of {}", zones.join(", "))))
    }
}

pub fn points(courses: &[PriceHistory]) -> impl Iterator<Item = Value> {
    courses.iter().flat_map(|course| {
        course.points().iter().map(|point| {
            json!({
                "instance_type": course.instance_type, "region": course.region, "zone": course.zone, "at": point.at, "price": point.price,
            })
        })
    })
}

pub fn csv(courses: &[PriceHistory]) -> String {
    let mut lines = vec!["instance_type,region,zone,at,price".to_owned()];
    for course in courses {
        let pool = [course.instance_type.as_str(), course.region.as_str(), course.zone.as_str()]
            .map(table::quoted)
            .join(",");
        lines.extend(
            course
                .points()
                .iter()
                .map(|point| format!("{pool},{},{}", point.at, point.price.per_hour().dollars())),
        );
    }
    lines.join("\n")
}
