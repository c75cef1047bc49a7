//! What `lamp apply` says before it makes anything: the machine that each new job would get, and the most that it can cost.
//!
//! What must never live here: the plan itself (`controller`), what is made (`apply::execute`).

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::apply::Ready;
use crate::cli::run::{account_ready, submission};
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::{Controller, Planned, Unready};
use crate::job::Plan;
use crate::market::Usd;
use crate::policy::schedule::apply_diff::Change;

/// So many plans are made at a time: a cloud that is asked the same of fifty files at once throttles.
const PLANS_IN_FLIGHT: usize = 4;

/// What is expected of one new job, or of each run of a schedule.
enum Cost {
    Planned(Box<Planned>),
    /// Nobody knows now, and why; but for a budget, which holds whatever is bought.
    Unknown(String, Option<Usd>),
}

/// By file, of those of which something would be made.
pub struct Costs {
    costs: BTreeMap<String, Cost>,
    /// Why the first job of these cannot be launched as the account is, or must not be as long as nobody can be asked for it.
    refused: Option<Fault>,
}

impl Costs {
    /// Plans everything that would be made, as `lamp plan` does; writes nothing.
    pub async fn of(context: &Context, controller: &Controller, planned: &[Change], ready: &[Ready]) -> Costs {
        let is_made = |one: &&Ready| planned.iter().any(|change| change.file == one.applied.file && change.makes());
        let costs = stream::iter(ready.iter().filter(is_made)).map(|one| async move {
            let spec = submission::spec(context, &one.prepared.loaded);
            let (planned, lacks) = account_ready::planned(context, controller, &spec).await;
            // As `lamp run`: whoever is not known to AWS hears that first. A schedule is not launched now.
            let is_judged = one.scheduled.is_none() && (planned.is_ok() || account_ready::was_seen(context, &lacks));
            let file = &one.applied.file;
            let refused = if is_judged { account_ready::refuse(&lacks, &spec).err() } else { None };
            let refused = refused.map(|refused| refused.also(format!("`{file}` asks for one")));
            // Whoever can ask nobody makes nothing of it, as with `lamp run`: it would be launched unasked once somebody has signed in.
            let unasked = planned.as_ref().err().filter(|fault| fault.code == ExitCode::UNREACHABLE).cloned();
            let refused =
                refused.or(unasked.map(|fault| fault.also(format!("nobody could be asked what `{file}` would cost, and whether it can be bought"))));
            let cost = match planned {
                Ok(planned) => Cost::Planned(Box::new(planned)),
                Err(fault) => Cost::Unknown(fault.sentence(), spec.spec.limits.budget),
            };
            (file.clone(), cost, refused)
        });
        let all: Vec<(String, Cost, Option<Fault>)> = costs.buffered(PLANS_IN_FLIGHT).collect().await;
        let refused = all.iter().find_map(|(.., refused)| refused.clone());
        Costs { costs: all.into_iter().map(|(file, cost, _)| (file, cost)).collect(), refused }
    }

    /// # Errors
    /// The account lacks what a job needs that would be made now: it would be launched unasked as soon as somebody made that. Or nobody
    /// could be asked for it.
    pub fn refuse(&self) -> Result<(), Fault> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// A cell of the table.
    pub fn word(&self, file: &str) -> String {
        match self.costs.get(file) {
            Some(Cost::Planned(planned)) => planned.most_job.usd.map_or_else(|| "nothing bounds it".to_owned(), |most| most.rounded_up().to_string()),
            Some(Cost::Unknown(_, Some(budget))) => budget.rounded_up().to_string(),
            Some(Cost::Unknown(_, None)) => "not known".to_owned(),
            None => "-".to_owned(),
        }
    }

    /// The machine that a file would get now.
    pub fn plan(&self, file: &str) -> Option<&Plan> {
        if let Some(Cost::Planned(planned)) = self.costs.get(file) { Some(&planned.plan) } else { None }
    }

    /// Which machines, and why where there is none.
    pub fn tell(&self, context: &Context) {
        for (file, cost) in &self.costs {
            match cost {
                Cost::Planned(planned) => {
                    let offer = &planned.plan.offer;
                    context.printer.note(format!("{file}: {}, {}", offer.describe(), offer.price));
                }
                Cost::Unknown(why, _) => context.printer.warn(format!("{file}: what it would cost is not known: {why}")),
            }
        }
        // Once for each region, however many jobs would have gone there.
        let mut unready: Vec<Unready> = Vec::new();
        for one in self.costs.values().flat_map(Cost::unready) {
            if !unready.contains(one) {
                unready.push(one.clone());
            }
        }
        account_ready::warn_unready(context, &unready);
        let most: Option<Vec<Usd>> = self.costs.values().map(Cost::most).collect();
        if let Some(most) = most.filter(|most| most.len() > 1) {
            context.printer.note(format!(
                "together, once each and with every machine that may follow, they cost at most {}",
                most.into_iter().sum::<Usd>().rounded_up()
            ));
        }
    }

    /// The fields that a change has of it; the names are an interface.
    pub fn fields(&self, file: &str) -> [(&'static str, Value); 5] {
        let cost = self.costs.get(file);
        let planned = if let Some(Cost::Planned(planned)) = cost { Some(planned) } else { None };
        let no_plan = if let Some(Cost::Unknown(why, _)) = cost { Some(why) } else { None };
        [
            ("most_usd", json!(planned.and_then(|planned| planned.plan.most_whichever()))),
            ("most_job_usd", json!(planned.and_then(|planned| planned.most_job.usd))),
            ("offer", json!(planned.map(|planned| &planned.plan.offer))),
            ("no_plan", json!(no_plan)),
            ("unready", json!(cost.map_or(&[][..], Cost::unready))),
        ]
    }
}

impl Cost {
    fn most(&self) -> Option<Usd> {
        if let Cost::Planned(planned) = self { planned.most_job.usd } else { None }
    }

    fn unready(&self) -> &[Unready] {
        if let Cost::Planned(planned) = self { &planned.unready } else { &[] }
    }
}
