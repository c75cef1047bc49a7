//! How the user's caps apply to what `lamp apply` would make: what is spent, and which job would
//! wait.
//!
//! Not here: whether a cap delays a launch (`policy::purchase::spending_cap`).

use std::collections::BTreeMap;

use super::caps_view::{self, CapsShown};
use super::cost::Costs;
use crate::cli::{Context, Fault};
use crate::market::UsdPerHour;
use crate::policy::purchase::spending_cap::{self, Spending};
use crate::policy::schedule::apply_diff::{Applies, FileChange};
use crate::wire::StoreHandle;

pub struct Capped {
    pub shown: CapsShown,
    /// By file: why its launch would wait.
    pub waits: BTreeMap<String, String>,
}

/// `None`: there is no cap. Jobs launch in turn, so each is judged after those before it; a
/// schedule only by the caps.
///
/// # Errors
/// Fails when the job root is unreachable.
pub async fn of(
    context: &Context,
    store: &StoreHandle,
    planned: &[FileChange],
    costs: &Costs,
) -> Result<Option<Capped>, Fault> {
    let Some(shown) = caps_view::shown(context, store).await? else { return Ok(None) };
    let (allowed, now) = (context.config.user.caps, context.clock.now());
    let mut spending = Spending {
        machines: shown.machines,
        usd_per_hour: shown.usd_per_hour_now,
        usd_last_day: shown.usd_last_day,
    };
    let mut waits = BTreeMap::new();
    for change in planned {
        let Some(plan) = costs.plan(&change.file) else { continue };
        let hourly = plan.offer.hourly_at_most(plan.bid);
        let reason = match change.kind {
            Applies::Job => spending_cap::judge(&allowed, &spending, hourly, now),
            Applies::Schedule => spending_cap::never(&allowed, hourly, now),
        };
        match reason {
            Some(reason) => drop(waits.insert(change.file.clone(), reason.text)),
            None if change.kind == Applies::Job && hourly > UsdPerHour::ZERO => {
                spending.machines += 1;
                spending.usd_per_hour =
                    UsdPerHour::new(spending.usd_per_hour.per_hour() + hourly.per_hour());
            }
            None => {}
        }
    }
    Ok(Some(Capped { shown, waits }))
}

impl Capped {
    pub fn tell(&self, context: &Context) {
        context.printer.note(self.shown.text());
        for (file, why) in &self.waits {
            context.printer.warn(format!("{file}: its machine would wait for {why}"));
        }
    }
}
