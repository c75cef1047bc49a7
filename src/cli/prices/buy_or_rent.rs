//! When buying a machine pays: months until it costs less than renting.

use std::time::Duration;

use serde_json::{Value, json};

use crate::app::costs::hours_cost::hours_of_work;
use crate::app::prices::price_row::PriceRow;
use crate::market::{Usd, UsdPerHour};

#[derive(Clone, Debug, clap::Args)]
pub struct Purchase {
    /// The price of such a machine in a shop, in dollars: months until it has paid for itself
    #[arg(long, value_name = "USD", value_parser = price)]
    pub buy: Option<Usd>,
    /// Say the cost of so many hours of the cheapest machine
    #[arg(long, value_name = "N", value_parser = hours_of_work)]
    pub hours: Option<f64>,
    /// How many hours a week it would work
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = hours_a_week, requires = "buy")]
    pub hours_per_week: f64,
    /// The power that the bought machine draws while it works
    #[arg(long, value_name = "W", default_value_t = 0.0, value_parser = watts, requires = "buy")]
    pub watts: f64,
    /// What electricity costs
    #[arg(long, value_name = "USD", default_value = "0.30", requires = "buy")]
    pub usd_per_kwh: Usd,
}

fn price(text: &str) -> Result<Usd, String> {
    let usd: Usd = text.parse().map_err(|error| format!("{error}"))?;
    if usd > Usd::ZERO { Ok(usd) } else { Err("what is bought costs something".into()) }
}

fn hours_a_week(text: &str) -> Result<f64, String> {
    let hours: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    if hours > 0.0 && hours <= 168.0 {
        Ok(hours)
    } else {
        Err("a week has 168 hours; write more than none of them".into())
    }
}

fn watts(text: &str) -> Result<f64, String> {
    let watts: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    if watts >= 0.0 && watts.is_finite() {
        Ok(watts)
    } else {
        Err("the power of a machine is 0 or more".into())
    }
}

/// Weeks in a month, on the average of a year.
const WEEKS_A_MONTH: f64 = 365.25 / 7.0 / 12.0;

/// The cheapest machine of a market.
struct Rented<'a> {
    market: &'static str,
    row: &'a PriceRow,
    price: UsdPerHour,
}

/// A rented machine, and after how long a bought one is cheaper; `None`: never.
struct Against<'a> {
    rented: Rented<'a>,
    months: Option<f64>,
    /// Of work.
    hours: Option<f64>,
}

fn cheapest(rows: &[PriceRow]) -> impl Iterator<Item = Rented<'_>> {
    let found = |market, price: fn(&PriceRow) -> Option<UsdPerHour>| {
        let priced =
            rows.iter().filter_map(move |row| Some(Rented { market, row, price: price(row)? }));
        priced.min_by_key(|rented| rented.price)
    };
    [found("on-demand", |row| row.on_demand), found("spot", |row| row.spot)].into_iter().flatten()
}

fn against<'a>(args: &Purchase, rows: &'a [PriceRow]) -> Vec<Against<'a>> {
    let Some(buy) = args.buy else { return Vec::new() };
    let own_hour = args.watts / 1000.0 * args.usd_per_kwh.dollars();
    let compared = |rented: Rented<'a>| {
        let saved_an_hour = rented.price.per_hour().dollars() - own_hour;
        let hours = (saved_an_hour > 0.0).then(|| buy.dollars() / saved_an_hour);
        let months = hours.map(|hours| hours / (args.hours_per_week * WEEKS_A_MONTH));
        Against { rented, months, hours }
    };
    cheapest(rows).map(compared).collect()
}

/// The cost of the asked time on each market.
fn time_text(args: &Purchase, rows: &[PriceRow]) -> Vec<String> {
    let Some(hours) = args.hours else { return Vec::new() };
    let line = |rented: Rented<'_>| {
        let Rented { market, row, price } = rented;
        let time = Duration::from_secs_f64(hours * 3600.0);
        format!(
            "{hours} hours of {} {market} at ${:.4}/h cost {}",
            row.instance_type,
            price.per_hour().dollars(),
            price.cost_of(time)
        )
    };
    std::iter::once(String::new()).chain(cheapest(rows).map(line)).collect()
}

/// The same as JSON; `null` without `--hours`.
pub fn time_document(args: &Purchase, rows: &[PriceRow]) -> Value {
    let Some(hours) = args.hours else { return Value::Null };
    let cost = |rented: Rented<'_>| {
        let Rented { market, row, price } = rented;
        let usd = price.cost_of(Duration::from_secs_f64(hours * 3600.0));
        json!({ "market": market, "instance_type": row.instance_type, "zone": row.zone, "price": price, "usd": usd })
    };
    json!({ "hours": hours, "costs": cheapest(rows).map(cost).collect::<Vec<Value>>() })
}

pub fn text(args: &Purchase, rows: &[PriceRow]) -> Vec<String> {
    let time = time_text(args, rows);
    let Some(buy) = args.buy else { return time };
    let power = if args.watts > 0.0 {
        format!(" and {} W at {} a kWh", args.watts, args.usd_per_kwh)
    } else {
        " and no electricity".into()
    };
    let mut lines = time;
    lines.push(format!(
        "\na machine like the cheapest here, bought for {buy}, with {} hours of work a week{power}:",
        args.hours_per_week
    ));
    for Against { rented: Rented { market, row, price }, months, hours } in against(args, rows) {
        let after = hours.map(|hours| format!(", {hours:.0} hours of work")).unwrap_or_default();
        let rented =
            format!("{} {market} at ${:.4}/h", row.instance_type, price.per_hour().dollars());
        lines.push(match months {
            Some(months) if months < 24.0 => {
                format!("  has paid for itself after {months:.1} months{after}, against {rented}")
            }
            Some(months) => format!(
                "  has paid for itself after {months:.0} months ({:.1} years){after}, against {rented}",
                months / 12.0
            ),
            None => format!("  never pays for itself against {rented}: its electricity costs more"),
        });
    }
    lines
}

/// The same as JSON; `null` without `--buy`.
pub fn document(args: &Purchase, rows: &[PriceRow]) -> Value {
    let Some(buy) = args.buy else { return Value::Null };
    let against = against(args, rows).into_iter().map(
        |one| {
            let Rented { market, row, price } = one.rented;
            json!({ "market": market, "instance_type": row.instance_type, "zone": row.zone, "price": price, "months": one.months, "hours": one.hours })
        },
    );
    json!({
        "usd": buy, "hours_per_week": args.hours_per_week, "watts": args.watts, "usd_per_kwh": args.usd_per_kwh,
        "against": against.collect::<Vec<Value>>(),
    })
}
