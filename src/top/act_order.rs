//! An act on a job that a person chose, before it is carried out.

use crate::app::extend::More;
use crate::app::job_act::JobAct;
use crate::market::{Span, Usd};

/// The beginning of the sentence after the act.
pub fn done(act: JobAct) -> &'static str {
    match act {
        JobAct::Stop => "Asked to stop",
        JobAct::Cancel => "Asked to cancel",
        JobAct::Extend => "Extended",
        JobAct::Save => "Asked to save",
        JobAct::Keep => "Kept",
    }
}

/// An act on a job that a person chose.
#[derive(Clone, Debug)]
pub struct Order {
    pub act: JobAct,
    pub job: String,
    pub more: More,
    /// The person has read the question of another owner's machine.
    pub is_confirmed: bool,
}

impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        (self.act, &self.job, self.is_confirmed, self.more.time, self.more.budget)
            == (other.act, &other.job, other.is_confirmed, other.more.time, other.more.budget)
    }
}

impl Order {
    pub fn new(act: JobAct, job: String) -> Order {
        Order { act, job, more: More::default(), is_confirmed: false }
    }

    /// The same on the command line. A save has no verb there.
    pub fn command(&self) -> Option<String> {
        let command = self.act.command(&self.job)?;
        let time = self.more.time.map(|time| format!(" {time}")).unwrap_or_default();
        let budget = self.more.budget.map(|usd| format!(" --budget {}", usd.dollars()));
        let more = time + &budget.unwrap_or_default();
        Some(command + &more)
    }
}

/// `2h` is time, `$5` is money.
///
/// # Errors
/// Says which text is not understood.
pub fn amount(text: &str) -> Result<More, String> {
    let text = text.trim();
    if let Some(dollars) = text.strip_prefix('$') {
        let usd = dollars.trim().parse().ok().and_then(|usd| Usd::from_dollars(usd).ok());
        let usd = usd.filter(|usd| *usd > Usd::ZERO);
        let usd = usd.ok_or_else(|| format!("`{text}` is not understood: write `$5`"))?;
        return Ok(More { budget: Some(usd), ..More::default() });
    }
    let time = text.parse::<Span>().ok().filter(|time| *time > Span::ZERO);
    let time = time.ok_or_else(|| format!("`{text}` is not understood: write `2h` or `$5`"))?;
    Ok(More { time: Some(time), ..More::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_money_are_told_apart() {
        let time = amount(" 2h ").expect("time");
        assert_eq!((time.time, time.budget), (Some(Span::from_secs(7200)), None));
        let money = amount("$2.5").expect("money");
        assert_eq!((money.time, money.budget), (None, Usd::from_dollars(2.5).ok()));
        for text in ["", "5", "$", "$-1", "$0", "0s", "soon"] {
            assert!(amount(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn order_is_a_command() {
        let order = Order { more: amount("$5").unwrap(), ..Order::new(JobAct::Extend, "a".into()) };
        assert_eq!(order.command().as_deref(), Some("lamp extend a --budget 5"));
        let command = |act| Order::new(act, "a".into()).command();
        assert_eq!(command(JobAct::Stop).as_deref(), Some("lamp stop a"));
        assert_eq!(command(JobAct::Save), None);
        assert_eq!(command(JobAct::Keep).as_deref(), Some("lamp extend a --keep 1h"));
    }
}
