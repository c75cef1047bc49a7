//! Shows the machine and the highest cost of each new job, before `lamp apply` makes anything.
//!
//! Not here: the plan (`controller`), and what is made (`apply::execute`).

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::ready_file::ReadyFile;
use crate::app::launch::account_ready;
use crate::app::session::Session;
use crate::cli::{Context, ExitCode, Fault};
use crate::controller::{Controller, Planned, Unready};
use crate::job::Plan;
use crate::market::Usd;
use crate::policy::schedule::apply_diff::FileChange;

/// Plans made in parallel: a cloud throttles fifty equal requests at once.
const PLANS_IN_FLIGHT: usize = 4;

enum Cost {
    Planned(Box<Planned>),
    /// Why the cost is unknown, and the budget, which bounds it in any case.
    Unknown(String, Option<Usd>),
}

pub struct Costs {
    costs: BTreeMap<String, Cost>,
    /// Why the first of these jobs cannot launch: the account lacks something, or AWS did not
    /// answer.
    refused: Option<Fault>,
}

impl Costs {
    pub async fn of(
        session: &Session<'_>,
        context: &Context,
        controller: &Controller,
        planned: &[FileChange],
        ready: &[ReadyFile],
    ) -> Costs {
        let is_made = |one: &&ReadyFile| {
            planned.iter().any(|change| change.file == one.applied.file && change.makes())
        };
        let costs = stream::iter(ready.iter().filter(is_made)).map(|one| async move {
            let spec = one.submission.spec(&context.config.user.owner, context.clock.now());
            let (planned, lacks) = account_ready::planned(session, controller, &spec).await;
            // As in `lamp run`, missing credentials are reported first. A schedule is not launched
            // now.
            let is_judged = one.scheduled.is_none()
                && (planned.is_ok() || account_ready::was_seen(session, &lacks));
            let file = &one.applied.file;
            let refused = if is_judged { account_ready::refuse(&lacks, &spec).err() } else { None };
            let refused = refused.map(|refused| refused.also(format!("`{file}` asks for one")));
            // As in `lamp run`, AWS must answer before a job is made. Later it would launch without
            // a question.
            let unasked =
                planned.as_ref().err().filter(|fault| fault.code == ExitCode::UNREACHABLE).cloned();
            let refused = refused.or(unasked.map(|fault| {
                fault.also(format!(
                    "AWS could not be asked for the cost of `{file}`, and whether it can be bought"
                ))
            }));
            let cost = match planned {
                Ok(planned) => Cost::Planned(Box::new(planned)),
                Err(fault) => Cost::Unknown(fault.sentence(), spec.spec.limits.budget),
            };
            (file.clone(), cost, refused)
        });
        let all: Vec<(String, Cost, Option<Fault>)> =
            costs.buffered(PLANS_IN_FLIGHT).collect().await;
        let refused = all.iter().find_map(|(.., refused)| refused.clone());
        Costs { costs: all.into_iter().map(|(file, cost, _)| (file, cost)).collect(), refused }
    }

    /// The refusal when the account lacks something that a job needs now, or AWS did not answer.
    pub fn refused(&self) -> Option<Fault> {
        self.refused.clone()
    }

    pub fn word(&self, file: &str) -> String {
        match self.costs.get(file) {
            Some(Cost::Planned(planned)) => planned.most_job.usd.map_or_else(
                || "nothing bounds it".to_owned(),
                |most| most.rounded_up().to_string(),
            ),
            Some(Cost::Unknown(_, Some(budget))) => budget.rounded_up().to_string(),
            Some(Cost::Unknown(_, None)) => "not known".to_owned(),
            None => "-".to_owned(),
        }
    }

    pub fn plan(&self, file: &str) -> Option<&Plan> {
        if let Some(Cost::Planned(planned)) = self.costs.get(file) {
            Some(&planned.plan)
        } else {
            None
        }
    }

    pub fn tell(&self, session: &Session<'_>) {
        for (file, cost) in &self.costs {
            match cost {
                Cost::Planned(planned) => {
                    let offer = &planned.plan.offer;
                    session.note(format!("{file}: {}, {}", offer.describe(), offer.price));
                }
                Cost::Unknown(why, _) => {
                    session.warn(format!("{file}: what it would cost is not known: {why}"))
                }
            }
        }
        let mut unready: Vec<Unready> = Vec::new();
        for one in self.costs.values().flat_map(Cost::unready) {
            if !unready.contains(one) {
                unready.push(one.clone());
            }
        }
        account_ready::warn_unready(session, &unready);
        let most: Option<Vec<Usd>> = self.costs.values().map(Cost::most).collect();
        if let Some(most) = most.filter(|most| most.len() > 1) {
            session.note(format!(
                "together, once each and with every machine that may follow, they cost at most {}",
                most.into_iter().sum::<Usd>().rounded_up()
            ));
        }
    }

    /// The JSON fields of a change; the names are an interface.
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
