//! When buying a machine pays: months until it costs less than renting.

use serde_json::{Value, json};

use crate::app::prices::price_row::PriceRow;
use crate::market::{Usd, UsdPerHour};

#[derive(Clone, Debug, clap::Args)]
pub struct Purchase {
    /// The price of such a machine in a shop, in dollars: months until it has paid for itself
    #[arg(long, value_name = "USD", value_parser = price)]
    pub buy: Option<Usd>,
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

/// A rented machine, and after how many months a bought one is cheaper; `None`: never.
struct Against<'a> {
    market: &'static str,
    row: &'a PriceRow,
    price: UsdPerHour,
    months: Option<f64>,
}

fn against<'a>(args: &Purchase, rows: &'a [PriceRow]) -> Vec<Against<'a>> {
    let Some(buy) = args.buy else { return Vec::new() };
    let cheapest = |price: fn(&PriceRow) -> Option<UsdPerHour>| {
        rows.iter().filter_map(|row| Some((price(row)?, row))).min_by_key(|(price, _)| *price)
    };
    let found = [("on-demand", cheapest(|row| row.on_demand)), ("spot", cheapest(|row| row.spot))];
    let own_hour = args.watts / 1000.0 * args.usd_per_kwh.dollars();
    found
        .into_iter()
        .filter_map(|(market, found)| {
            let (price, row) = found?;
            let saved_a_month =
                (price.per_hour().dollars() - own_hour) * args.hours_per_week * WEEKS_A_MONTH;
            let months = (saved_a_month > 0.0).then(|| buy.dollars() / saved_a_month);
            Some(Against { market, row, price, months })
        })
        .collect()
}

pub fn text(args: &Purchase, rows: &[PriceRow]) -> Vec<String> {
    let Some(buy) = args.buy else { return Vec::new() };
    let power = if args.watts > 0.0 {
        format!(" and {} W at {} a kWh", args.watts, args.usd_per_kwh)
    } else {
        " and no electricity".into()
    };
    let mut lines = vec![format!(
        "\na machine like the cheapest here, bought for {buy}, with {} hours of work a week{power}:",
        args.hours_per_week
    )];
    for Against { market, row, price, months } in against(args, rows) {
        let rented =
            format!("{} {market} at ${:.4}/h", row.instance_type, price.per_hour().dollars());
        lines.push(match months {
            Some(months) if months < 24.0 => {
                format!("  has paid for itself after {months:.0} months against {rented}")
            }
            Some(months) => format!(
                "  has paid for itself after {months:.0} months ({:.1} years) against {rented}",
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
        |one| json!({ "market": one.market, "instance_type": one.row.instance_type, "zone": one.row.zone, "price": one.price, "months": one.months }),
    );
    json!({
        "usd": buy, "hours_per_week": args.hours_per_week, "watts": args.watts, "usd_per_kwh": args.usd_per_kwh,
        "against": against.collect::<Vec<Value>>(),
    })
}
