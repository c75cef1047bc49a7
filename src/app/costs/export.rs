//! Cost rows for other programs: plain CSV, and FOCUS 1.2.
//!
//! FOCUS is the FinOps Open Cost and Usage Specification. The file has all mandatory columns, those
//! for places, resources and prices, and own columns that begin with `x_`. A bill of the cloud
//! stays the truth: these are the costs that the records show.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use crate::app::view::costs::{CostRow, DayPart, by_day};
use crate::market::{Usd, Zone};

/// Each row as it is.
pub fn csv(rows: &[CostRow]) -> String {
    let mut text = "day,job,name,attempt,instance_type,market,usd,estimated,zone,region,owner,\
                    idle_usd,lost_usd,on_demand_usd,tags\n"
        .to_owned();
    for row in rows {
        let cells = [
            row.day.to_string(),
            cell(&row.job),
            cell(&row.name),
            row.attempt.to_string(),
            cell(&row.instance_type),
            cell(&row.market),
            dollars(row.usd),
            row.estimated.to_string(),
            cell(&row.zone),
            cell(row.region.as_deref().unwrap_or_default()),
            cell(row.owner.as_deref().unwrap_or_default()),
            maybe(row.idle_usd),
            maybe(row.lost_usd),
            maybe(row.on_demand_usd),
            cell(&json!(row.tags).to_string()),
        ];
        let _ = writeln!(text, "{}", cells.join(","));
    }
    text
}

fn dollars(usd: Usd) -> String {
    format!("{:.6}", usd.dollars())
}

/// An unknown amount is an empty cell, and not zero.
fn maybe(usd: Option<Usd>) -> String {
    usd.map(dollars).unwrap_or_default()
}

/// A text in quotes. A spreadsheet would run one that begins like a formula.
pub fn cell(text: &str) -> String {
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

/// The columns of the file, in its order.
pub const FOCUS_COLUMNS: [&str; 43] = [
    "AvailabilityZone",
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingCurrency",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuPriceId",
    "Tags",
    "x_Estimated",
    "x_IdleCost",
    "x_LostCost",
    "x_OnDemandCost",
];

/// Charge periods end at midnight UTC, so that each lies in one billing period.
pub fn focus(rows: &[CostRow]) -> String {
    let mut text = format!("{}\n", FOCUS_COLUMNS.join(","));
    for row in rows {
        let parts = by_day(row.from, row.to, row.usd, &TimeZone::UTC);
        for part in parts.iter().filter(|part| part.to > part.from) {
            let _ = writeln!(text, "{}", focus_cells(row, part).join(","));
        }
    }
    text
}

fn focus_cells(row: &CostRow, part: &DayPart) -> [String; 43] {
    let share = secs(part.from, part.to) / secs(row.from, row.to);
    let of = |usd: Option<Usd>| {
        usd.map(|usd| dollars(Usd::from_micros((usd.micros() as f64 * share).round() as i64)))
            .unwrap_or_default()
    };
    let hours = secs(part.from, part.to) / 3600.0;
    let billed = dollars(part.usd);
    let full = of(row.on_demand_usd);
    // The column must not be empty. `x_OnDemandCost` says whether the price is known.
    let list = if full.is_empty() { billed.clone() } else { full.clone() };
    let unit_price =
        |usd: &str| usd.parse::<f64>().map(|usd| format!("{:.6}", usd / hours)).unwrap_or_default();
    let (issuer, service) = provider(row);
    let (begin, end) = month(part);
    let is_spot = row.market == "spot";
    let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(cell);
    let text = |found: Option<&str>| text(found).unwrap_or_default();
    [
        text(Some(&row.zone)),
        billed.clone(),
        cell("unknown"),
        String::new(),
        cell("unknown"),
        cell("USD"),
        end,
        begin,
        cell("Usage"),
        String::new(),
        cell(&format!(
            "{} {} for job {}, attempt {}",
            row.instance_type, row.market, row.job, row.attempt
        )),
        cell("Usage-Based"),
        moment(part.to),
        moment(part.from),
        format!("{hours:.6}"),
        cell("Hours"),
        billed.clone(),
        unit_price(&billed),
        billed,
        cell(issuer),
        list.clone(),
        unit_price(&list),
        cell(if is_spot { "Dynamic" } else { "Standard" }),
        cell("USD"),
        format!("{hours:.6}"),
        cell("Hours"),
        cell(issuer),
        cell(issuer),
        text(row.region.as_deref()),
        text(row.region.as_deref()),
        text(row.instance.as_deref()),
        cell(&row.name),
        cell("Virtual Machine"),
        cell("Compute"),
        cell(service),
        cell("Virtual Machines"),
        cell(&row.instance_type),
        cell(&format!("{}:{}", row.instance_type, row.market)),
        tags(row),
        row.estimated.to_string(),
        of(row.idle_usd),
        of(row.lost_usd),
        full,
    ]
}

fn secs(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(1e-9)
}

/// The seller of the machine, and the name of the service.
fn provider(row: &CostRow) -> (&'static str, &'static str) {
    if Zone::is_workstation(&row.zone) {
        ("This workstation", "Workstation")
    } else {
        ("Amazon Web Services", "Amazon Elastic Compute Cloud")
    }
}

/// The calendar month in UTC, as AWS bills.
fn month(part: &DayPart) -> (String, String) {
    let first = part.from.to_zoned(TimeZone::UTC).date().first_of_month();
    let next = first.last_of_month().tomorrow().unwrap_or(first);
    (format!("{first}T00:00:00Z"), format!("{next}T00:00:00Z"))
}

fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A JSON object, as FOCUS asks.
fn tags(row: &CostRow) -> String {
    let mut tags =
        json!({ "lamplighter:job": row.job, "lamplighter:attempt": row.attempt.to_string() });
    for (key, value) in &row.tags {
        tags[key] = json!(value);
    }
    if let Some(owner) = &row.owner {
        tags["lamplighter:owner"] = json!(owner);
    }
    cell(&tags.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::view::costs;
    use crate::job::Receipt;

    fn rows() -> Vec<CostRow> {
        let receipt: Receipt =
            serde_json::from_str(include_str!("../../../tests/data/v1/receipt.json"))
                .expect("a receipt");
        costs::rows(&receipt, &TimeZone::get("Asia/Tokyo").unwrap_or(TimeZone::UTC))
    }

    /// Cells of a line; a comma within quotes separates nothing.
    fn cells(line: &str) -> Vec<String> {
        let (mut cells, mut is_quoted) = (vec![String::new()], false);
        for letter in line.chars() {
            match letter {
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => cells.push(String::new()),
                _ => cells.last_mut().expect("a cell").push(letter),
            }
        }
        cells
    }

    #[test]
    fn cell_is_text_whatever_its_name() {
        assert_eq!(cell("a \"b\", c"), "\"a \"\"b\"\", c\"");
        assert_eq!(cell("=1+1"), "\"'=1+1\"");
    }

    #[test]
    fn focus_rows_add_up_and_lie_in_their_billing_period() {
        let mut rows = rows();
        // A night at the end of a month, in UTC.
        let at = |text: &str| text.parse::<Timestamp>().expect("a moment");
        rows[0].from = at("2026-10-31T23:00:00Z");
        rows[0].to = at("2026-11-01T03:00:00Z");
        rows[0].usd = Usd::from_dollars(4.0).expect("dollars");
        rows.truncate(1);
        let text = focus(&rows);
        let lines: Vec<Vec<String>> = text.lines().map(cells).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines.iter().all(|line| line.len() == FOCUS_COLUMNS.len()), "{text}");
        let of = |line: usize, name: &str| {
            let at = FOCUS_COLUMNS.iter().position(|column| *column == name).expect("a column");
            lines[line][at].clone()
        };
        assert_eq!(
            (of(1, "BilledCost"), of(2, "BilledCost")),
            ("1.000000".into(), "3.000000".into())
        );
        assert_eq!(of(1, "BillingPeriodEnd"), "2026-11-01T00:00:00Z");
        assert_eq!(of(1, "ChargePeriodEnd"), "2026-11-01T00:00:00Z");
        assert_eq!(of(2, "BillingPeriodStart"), "2026-11-01T00:00:00Z");
        assert_eq!(of(2, "ListCost"), of(2, "BilledCost"), "the price on demand is unknown");
        assert_eq!(of(2, "x_OnDemandCost"), "");
    }
}
