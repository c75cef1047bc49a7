//! One row for each type and zone: its prices, and the bid of a rule. As columns, CSV, or JSON.

use serde_json::{Value, json};

use super::source::PriceSource;
use crate::app::prices::price_row::PriceRow;
use crate::cli::output::table::{Give, render, render_within};
use crate::market::{PriceRule, UsdPerHour};

/// A row with its source.
pub fn with_source(row: &PriceRow, source: &PriceSource) -> Value {
    let mut value = json!(row);
    value["source"] = source.of_a_row();
    value
}

/// Spot machines without a bid, or with a bid that is not capped: a sentence for each reason.
pub fn about_bids(rows: &[PriceRow], rule: PriceRule) -> Vec<String> {
    let uncut = "has no known on-demand price that its bid would be cut to";
    let is_cut = matches!(rule, PriceRule::Quantile { .. });
    let mut kinds: Vec<(&PriceRow, &str, usize)> = Vec::new();
    for row in rows {
        let Some(because) = row
            .no_bid
            .or_else(|| (is_cut && row.bid.is_some() && row.on_demand.is_none()).then_some(uncut))
        else {
            continue;
        };
        match kinds.iter_mut().find(|(_, known, _)| *known == because) {
            Some((_, _, others)) => *others += 1,
            None => kinds.push((row, because, 0)),
        }
    }
    let sentence = |(first, because, others): (&PriceRow, &str, usize)| {
        let gives_none = if first.no_bid.is_some() {
            format!("`{}` gives no bid: ", in_words(rule))
        } else {
            String::new()
        };
        let more =
            if others == 0 { String::new() } else { format!("; nor has any of {others} more") };
        format!("{gives_none}{} in {} {because}{more}", first.instance_type, first.zone)
    };
    kinds.into_iter().map(sentence).collect()
}

const HEADINGS: [&str; 9] =
    ["type", "zone", "gpus", "vcpus", "on-demand", "spot", "ratio", "bid", "exceeded"];

/// On a narrow terminal, columns go that can be calculated or matter least.
const GIVE: Give<'_> = Give { cut: &[], go: &[6, 3, 8] };

const ON_DEMAND_ALONE: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriceLines {
    /// A type in one zone.
    EachZone,
    /// A type in a region: its cheapest zone, and the number of others.
    EachRegion,
}

pub fn text(rows: &[PriceRow], each: PriceLines, width: Option<usize>) -> String {
    let shown: Vec<(&PriceRow, usize)> = match each {
        PriceLines::EachZone => rows.iter().map(|row| (row, 0)).collect(),
        PriceLines::EachRegion => cheapest(rows),
    };
    if rows.iter().all(|row| row.spot.is_none()) {
        let lines: Vec<Vec<String>> = shown
            .into_iter()
            .map(|(row, more)| columns(row, more)[..ON_DEMAND_ALONE].to_vec())
            .collect();
        return render_within(
            width,
            &HEADINGS[..ON_DEMAND_ALONE],
            &lines,
            &[3, 4],
            Give { cut: &[], go: &[3] },
        );
    }
    let lines: Vec<Vec<String>> = shown.into_iter().map(|(row, more)| columns(row, more)).collect();
    render_within(width, &HEADINGS, &lines, &[3, 4, 5, 6, 7, 8], GIVE)
}

/// The first row of each type in a region, which is the cheapest, and how many follow it.
fn cheapest(rows: &[PriceRow]) -> Vec<(&PriceRow, usize)> {
    let mut first: Vec<(&PriceRow, usize)> = Vec::new();
    for row in rows {
        match first.iter_mut().find(|(known, _)| {
            known.instance_type == row.instance_type && known.region == row.region
        }) {
            Some((_, more)) => *more += 1,
            None => first.push((row, 0)),
        }
    }
    first
}

pub fn legend(rows: &[PriceRow], each: PriceLines, rule: PriceRule, days: u32) -> String {
    let order = if rows.iter().any(|row| row.spot.is_some()) {
        "the cheapest on spot first, then what has no spot price; RATIO is spot over on-demand"
    } else {
        "the cheapest first"
    };
    let bid = rows.iter().any(|row| row.bid.is_some()).then(|| {
        let exceeded = format!("for which share of the last {days} days the spot price was above that bid, and how many times it rose above it");
        format!("; BID is what `{}` gives, EXCEEDED {exceeded}", in_words(rule))
    });
    let is_short = each == PriceLines::EachRegion && cheapest(rows).len() < rows.len();
    let zones = if is_short {
        "; +1 is one more zone of the region that sells it, for no less: `--zones` shows each"
    } else {
        ""
    };
    format!("{order}{zones}{}", bid.unwrap_or_default())
}

fn columns(row: &PriceRow, more_zones: usize) -> Vec<String> {
    let price = |price: Option<UsdPerHour>| {
        price.map_or_else(|| "-".to_owned(), |price| format!("${:.4}", price.per_hour().dollars()))
    };
    let exceeded = match (row.share_above, row.crossings) {
        (Some(share), Some(times)) => format!("{:.1}% {times}x", share * 100.0),
        _ => "-".into(),
    };
    vec![
        row.instance_type.clone(),
        if more_zones > 0 { format!("{} +{more_zones}", row.zone) } else { row.zone.to_string() },
        row.gpu_text(),
        row.vcpus.to_string(),
        price(row.on_demand),
        price(row.spot),
        row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.0}%", ratio * 100.0)),
        price(row.bid),
        exceeded,
    ]
}

pub fn backtest_text(rows: &[PriceRow], rule: PriceRule) -> String {
    let lines = rows.iter().filter_map(|row| {
        let figures = row.backtest.as_ref()?;
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        let (sold, exceeded) =
            (percent(figures.launchable), percent(figures.exceeded_within_a_day));
        Some(vec![
            row.instance_type.clone(),
            row.zone.to_string(),
            figures.moments.to_string(),
            sold,
            exceeded,
            format!("{:.2}", figures.headroom),
        ])
    });
    let lines: Vec<Vec<String>> = lines.collect();
    if lines.is_empty() {
        return "the known prices are too short a time for a backtest".into();
    }
    let table = render(
        &["type", "zone", "moments", "launchable", "exceeded within 24h", "bid / price"],
        &lines,
        &[2, 3, 4, 5],
    );
    format!(
        "what `{}` would have done, asked every six hours and followed for a day:\n{table}",
        in_words(rule)
    )
}

/// For people: a window in days, not in the seconds of a record.
fn in_words(rule: PriceRule) -> String {
    match rule {
        PriceRule::Quantile { percentile, window } => format!("p{percentile} of {window}"),
        rule => rule.to_string(),
    }
}

pub fn csv(rows: &[PriceRow], source: &PriceSource) -> String {
    let mut lines =
        vec!["instance_type,region,zone,gpus,gpu_model,gpu_memory_mib,vcpus,on_demand,spot,ratio,bid,share_above,crossings,source,as_of".to_owned()];
    for row in rows {
        let price = |price: Option<UsdPerHour>| {
            price.map(|price| price.per_hour().dollars().to_string()).unwrap_or_default()
        };
        let number =
            |number: Option<f64>| number.map(|number| format!("{number:.4}")).unwrap_or_default();
        let fields = [
            row.instance_type.clone(),
            row.region.to_string(),
            row.zone.to_string(),
            row.gpus.to_string(),
            row.gpu_model.clone().unwrap_or_default(),
            row.gpu_memory_mib.map(|mib| mib.to_string()).unwrap_or_default(),
            row.vcpus.to_string(),
            price(row.on_demand),
            price(row.spot),
            number(row.ratio),
            price(row.bid),
            number(row.share_above),
            row.crossings.map(|times| times.to_string()).unwrap_or_default(),
            source.name.to_owned(),
            source.as_of.clone(),
        ];
        lines.push(fields.map(|field| quoted(&field)).join(","));
    }
    lines.join("\n")
}

/// Quotes as in RFC 4180.
pub fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{Region, Usd, Zone};

    fn row(kind: &str, region: &str, zone: &str, spot: Option<f64>) -> PriceRow {
        let price = |usd: f64| UsdPerHour::new(Usd::from_dollars(usd).unwrap());
        PriceRow {
            instance_type: kind.into(),
            region: Region::new(region),
            zone: Zone::new(format!("{region}{zone}")),
            gpus: 1,
            gpu_model: Some("A10G".into()),
            gpu_memory_mib: None,
            vcpus: 4,
            on_demand: Some(price(1.0)),
            spot: spot.map(price),
            ratio: None,
            bid: None,
            no_bid: None,
            share_above: None,
            crossings: None,
            backtest: None,
        }
    }

    /// Once in each region, where it is cheapest; only real omissions are marked.
    #[test]
    fn type_is_listed_once_per_region_unless_zones_are_asked_for() {
        let rows = [
            row("g5.xlarge", "us-east-1", "b", Some(0.3)),
            row("g6.xlarge", "us-east-1", "a", Some(0.35)),
            row("g5.xlarge", "us-east-1", "a", Some(0.4)),
            row("g5.xlarge", "us-west-2", "a", Some(0.45)),
            row("g5.xlarge", "us-east-1", "c", None),
        ];
        let zones = |each: PriceLines| -> Vec<String> {
            let table = text(&rows, each, None);
            table
                .lines()
                .skip(1)
                .map(|line| {
                    line.split("1 x")
                        .next()
                        .unwrap()
                        .split_whitespace()
                        .collect::<Vec<_>>()
                        .join(" ")
                })
                .collect()
        };
        assert_eq!(
            zones(PriceLines::EachRegion),
            ["g5.xlarge us-east-1b +2", "g6.xlarge us-east-1a", "g5.xlarge us-west-2a"]
        );
        assert_eq!(zones(PriceLines::EachZone).len(), rows.len());
        let says = |rows: &[PriceRow], each: PriceLines| {
            legend(rows, each, PriceRule::Auto, 14).contains("`--zones` shows each")
        };
        assert!(
            says(&rows, PriceLines::EachRegion)
                && !says(&rows, PriceLines::EachZone)
                && !says(&rows[..2], PriceLines::EachRegion)
        );
    }

    #[test]
    fn rule_is_named_as_people_write_it() {
        for rule in ["p95 of 14d", "p99.5 of 1d 12h", "80% of on-demand", "auto", "0.65"] {
            assert_eq!(in_words(rule.replace("d 12h", "d12h").parse().unwrap()), rule);
        }
    }
}
