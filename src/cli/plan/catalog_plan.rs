//! A plan without an answer from AWS: what the shipped catalogue would offer, with its date.
//!
//! ```text
//!   AWS is silent ──> the same job on demand, by the catalogue ──> table, exit code 103 or 102
//! ```
//!
//! It is only shown: quotas, capacity and permissions are unknown, and nothing can be launched by
//! it. Not here: a price (`market::Catalog`), and which offer is better
//! (`policy::purchase::placement`).

use std::collections::BTreeSet;

use super::plan_document::{PlanDocument, PlanSource};
use super::text;
use crate::app::costs::hours_cost::HoursCost;
use crate::app::launch::account_ready;
use crate::app::launch::first_plan;
use crate::app::launch::gang_cost::{self, GangCost, gang_cost};
use crate::app::launch::limit_check::OutOfReach;
use crate::app::launch::submission::Submission;
use crate::app::session::Session;
use crate::app::text::local_time;
use crate::cli::output::table::{Give, render_within};
use crate::cli::{Context, ExitCode, Fault, Stream};
use crate::controller::{ActError, Planned};
use crate::job::{MarketChoice, Plan, ResolvedSpec, Spec};
use crate::market::{Catalog, CloudKind, Offer, Region};
use crate::policy::account::setup_plan::Lack;
use crate::policy::purchase::bid;
use crate::policy::purchase::ranking::Ranked;
use crate::policy::tune::tuning_cost::TuningCost;
use crate::wire;

/// Rows of the table; `-o json` has all.
const ROWS_MAX: usize = 12;

pub struct Shipped {
    planned: Planned,
    spec: ResolvedSpec,
    fault: Fault,
    notes: Vec<String>,
    /// Why `lamp run` would refuse it whatever AWS says.
    over_a_cap: Option<String>,
    gang: Option<GangCost>,
}

impl Shipped {
    /// The plan by the catalogue.
    ///
    /// # Errors
    /// Returns `fault` when AWS did answer, or the catalogue has nothing for this job.
    pub async fn instead_of(
        fault: Fault,
        session: &Session<'_>,
        spec: &ResolvedSpec,
    ) -> Result<Shipped, Fault> {
        if spec.spec.machine.cloud != CloudKind::Aws || fault.code != ExitCode::UNREACHABLE {
            return Err(fault);
        }
        let workstation = session.workstation;
        let regions = workstation.aws_regions(&spec.spec.machine.regions).await;
        let Ok(controller) =
            workstation.by_the_catalogue(session.store, regions.iter().map(Region::new).collect())
        else {
            return Err(fault);
        };
        let on_demand = on_demand(spec);
        match controller.first_plan(&on_demand).await {
            Ok(planned) => {
                let notes = notes(&spec.spec, &planned.plan);
                let over_a_cap = controller.cap_forbids(&planned.plan).map(|reason| reason.text);
                let gang = gang_cost(session, &controller, &on_demand, &planned).await?;
                Ok(Shipped { planned, spec: on_demand, fault, notes, over_a_cap, gang })
            }
            Err(none) => Err(instead(fault, &none, spec, &regions)),
        }
    }

    /// Returns the exit code of a silent cloud, or of a refused job if AWS's answer would not
    /// matter.
    pub fn show(
        &self,
        context: &Context,
        session: &Session<'_>,
        submission: &Submission,
        lacks: &[Lack],
        hours: Option<f64>,
    ) -> ExitCode {
        let hours = HoursCost::of(
            self.planned.plan.offer.hourly(),
            gang_cost::priced(self.gang.as_ref()),
            hours,
        );
        let survey = &submission.survey;
        let next = submission.next_run(context.clock.now());
        let out_of_reach = OutOfReach::of(&self.planned, &self.spec, context.clock.now());
        let is_refused =
            self.over_a_cap.is_some() || out_of_reach.as_ref().is_some_and(OutOfReach::is_late);
        let code = if is_refused { ExitCode::REFUSED } else { ExitCode::UNREACHABLE };
        let tuning = submission.loaded.tune.as_ref();
        let most = gang_cost::most_of_trial(&self.planned, self.gang.as_ref());
        let tuning = tuning.map(|tune| TuningCost::of(tune, most));
        if context.is_machine_output() {
            let unanswered = self.fault.sentence();
            context.printer.json(&PlanDocument {
                workdir_files: survey.files,
                workdir_bytes: survey.bytes,
                hours,
                next,
                out_of_reach: out_of_reach.as_ref(),
                tuning: tuning.as_ref(),
                ..self.document(lacks, &unanswered)
            });
            return code;
        }
        context.printer.warn(format!("this is not from EC2: {}", self.fault.sentence()));
        self.fault.hint.iter().for_each(|hint| context.printer.hint(hint));
        out_of_reach.iter().for_each(|out_of_reach| text::warn_out_of_reach(context, out_of_reach));
        context.printer.prose(2, catalogue());
        context.printer.line(format!("\n{}\n", self.table(context.printer.columns(Stream::Out))));
        let hours = hours.map(|hours| hours.sentence());
        let tuning = tuning.map(|tuning| tuning.for_plan());
        let gang = self.gang.iter().map(|cost| cost.sentence.clone());
        for line in gang.chain(self.lines()).chain(tuning).chain(hours) {
            context.printer.prose(2, line);
        }
        account_ready::warn(session, lacks, Some(self.planned.plan.offer.region.as_str()));
        if let Some(reason) = &self.over_a_cap {
            context
                .printer
                .warn(format!("`lamp run` would refuse it: it would wait for ever for {reason}"));
        }
        context.printer.line(submission.ships());
        next.iter().for_each(|next| {
            context
                .printer
                .line(format!("scheduled; the next run would be at {}", local_time(*next)))
        });
        context.printer.note(
            "ALL IN is an hour with its disk and its public address; the cheapest work first",
        );
        context
            .printer
            .note(format!("nothing was started, and a launch waits until {}", self.until()));
        code
    }

    fn until(&self) -> &'static str {
        if self.fault.credentials == Some(wire::CredentialsGap::Nowhere) {
            "there are credentials"
        } else {
            "AWS answers, and allows it"
        }
    }

    /// The fields are the same as in a plan from AWS; `source` tells them apart.
    fn document<'a>(&'a self, lacks: &'a [Lack], unanswered: &'a str) -> PlanDocument<'a> {
        let Planned { plan, most_job, fallbacks, ranking, refused, .. } = &self.planned;
        PlanDocument {
            source: PlanSource {
                name: "catalogue",
                as_of: Catalog::shipped().prices_as_of().to_owned(),
                because: Some(unanswered.to_owned()),
                hint: self.fault.hint.clone(),
            },
            offer: &plan.offer,
            reasons: plan.reasons.iter().chain(&self.notes).collect(),
            rejected: &plan.rejected,
            most_usd: plan.most_whichever(),
            most_usd_offer: plan.most_usd,
            most_job_usd: most_job.usd,
            most_job_by: most_job.by,
            most_job_machines: most_job.machines,
            hours: None,
            kill_at: plan.kill_at,
            bid: None,
            bid_exceeded: None,
            launch: None,
            fallbacks,
            ranking,
            quotas: &[],
            refused,
            unready: &[],
            forbidden: None,
            unanswered: Some(unanswered),
            permissions: Vec::new(),
            lacks,
            agent: None,
            clock: None,
            workdir_files: 0,
            workdir_bytes: 0,
            caps: None,
            waits_for: self.over_a_cap.as_deref(),
            waits_until: None,
            next: None,
            market: None,
            cadence: None,
            out_of_reach: None,
            tuning: None,
            gang: self.gang.as_ref(),
        }
    }

    fn lines(&self) -> Vec<String> {
        let plan = &self.planned.plan;
        let because =
            plan.reasons.iter().skip(1).take(1).map(|reason| format!("because it is {reason}"));
        let end = plan.kill_at.map(|at| {
            format!("launched now, its machine would end at {} at the latest", local_time(at))
        });
        let costs = text::costs(&self.planned, "by the catalogue").into_iter().chain(because);
        let costs = costs.chain(plan.reasons.iter().skip(2).cloned()).chain(end);
        costs
            .chain(text::machine_text(&plan.offer, &self.spec.spec.machine.gpus))
            .chain(self.notes.clone())
            .collect()
    }

    /// A row for each type in each region: its zones cost the same.
    fn table(&self, width: Option<usize>) -> String {
        let offers = std::iter::once(&self.planned.plan.offer).chain(&self.planned.fallbacks);
        let mut seen = BTreeSet::new();
        let kinds = offers
            .zip(&self.planned.ranking)
            .filter(|(offer, _)| seen.insert((offer.region.clone(), offer.instance_type.clone())));
        let all: Vec<Vec<String>> = kinds.map(|(offer, ranked)| columns(offer, ranked)).collect();
        let headings = ["type", "region", "gpus", "vcpus", "on-demand", "all in", "to finish"];
        let rows = &all[..all.len().min(ROWS_MAX)];
        let text =
            render_within(width, &headings, rows, &[3, 4, 5, 6], Give { cut: &[], go: &[3, 6, 1] });
        let more = all.len() - rows.len();
        if more == 0 { text } else { format!("{text}\nand {more} more, dearer; `-o json` has all") }
    }
}

fn columns(offer: &Offer, ranked: &Ranked) -> Vec<String> {
    let gpus = offer
        .gpu_model
        .as_ref()
        .map_or_else(|| "none".to_owned(), |model| format!("{} x {model}", offer.gpus));
    let finish = ranked.usd_to_finish.map_or_else(|| "-".to_owned(), |usd| usd.to_string());
    let (price, all_in) =
        (offer.price.per_hour().to_string(), offer.hourly().per_hour().to_string());
    vec![
        offer.instance_type.clone(),
        offer.region.to_string(),
        gpus,
        offer.vcpus.to_string(),
        price,
        all_in,
        finish,
    ]
}

/// Without a plan: a budget below every on-demand price is the job's mistake. In other cases the
/// catalogue may lack something.
fn instead(fault: Fault, none: &ActError, spec: &ResolvedSpec, regions: &[String]) -> Fault {
    let is_over_budget = matches!(none, ActError::NoOffer(none) if none.over_budget.is_some());
    if is_over_budget && spec.spec.machine.market == MarketChoice::OnDemand {
        return first_plan::fault(none).meaning(format!(
            "nothing was started or billed; that is by the catalogue's prices of {}: {}",
            Catalog::shipped().prices_as_of(),
            fault.sentence()
        ));
    }
    let priced = Catalog::shipped().regions();
    let unpriced = regions
        .iter()
        .find(|region| priced.iter().all(|priced| priced.as_str() != region.as_str()));
    let why = match unpriced.filter(|_| !is_over_budget) {
        Some(region) => {
            let names: Vec<&str> = priced.iter().map(Region::as_str).collect();
            format!("it lacks prices of {region} and has only {}", names.join(", "))
        }
        None => none.to_string(),
    };
    let nothing = fault.meaning.clone().map(|meaning| format!("{meaning}; ")).unwrap_or_default();
    fault.meaning(format!("{nothing}the catalogue that ships with `lamp` has no plan: {why}"))
}

fn catalogue() -> String {
    let catalog = Catalog::shipped();
    format!(
        "by the catalogue that ships with `lamp`, not by AWS: on-demand prices of {}, types and zones of {}, the zones by their ids; spot prices are not in it",
        catalog.prices_as_of(),
        catalog.types_as_of()
    )
}

/// The catalogue prices nothing else. An `auto` job may change machines without limit, so this one
/// may too.
fn on_demand(spec: &ResolvedSpec) -> ResolvedSpec {
    let mut spec = spec.clone();
    if spec.spec.machine.market == MarketChoice::Auto {
        spec.spec.interruptions.max = u32::MAX;
    }
    spec.spec.machine.market = MarketChoice::OnDemand;
    spec
}

/// How these figures apply to a job that would buy spot, and what was not asked.
fn notes(spec: &Spec, plan: &Plan) -> Vec<String> {
    let market = match spec.machine.market {
        MarketChoice::OnDemand => None,
        market => {
            let word = if market == MarketChoice::Spot { "spot" } else { "auto" };
            let above = bid::most_ever(spec.machine.max_price, &plan.offer)
                .filter(|most| *most > plan.offer.price);
            Some(match above {
                Some(most) => format!(
                    "`market = \"{word}\"`: `max_price` lets an hour of a spot machine cost up to {most}, more than on demand: for that the figures above are no ceiling"
                ),
                None => format!(
                    "`market = \"{word}\"`: the figures are those on demand; for the same machine no spot bid of this job is higher"
                ),
            })
        }
    };
    let unchecked =
        "nothing of it was checked at AWS: not its quota, capacity, permission or image".to_owned();
    market.into_iter().chain([unchecked]).collect()
}
