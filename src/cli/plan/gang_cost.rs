//! The highest cost of a gang: the highest cost of one machine, times their number, for each kind
//! of machine.

use serde::Serialize;

use super::first_plan;
use crate::cli::{Context, Fault};
use crate::controller::{Controller, Planned};
use crate::job::{DoneRule, GangSpec, ResolvedSpec, machine_kinds};
use crate::market::{Span, Usd, UsdPerHour};

/// The highest cost of all machines of a gang.
#[derive(Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct GangCost {
    /// `4`, or `2..4`.
    pub nodes: String,
    /// The most that all machines can cost together. Null: nothing bounds it.
    pub most_usd: Option<Usd>,
    #[serde(skip)]
    pub sentence: String,
}

/// Machines of one kind.
struct KindCost {
    count: usize,
    /// The most that one can cost; `None`: nothing bounds it.
    most: Option<Usd>,
    rate: UsdPerHour,
}

impl KindCost {
    fn of(count: usize, planned: &Planned) -> Self {
        let most = planned.most_job.usd.or(planned.plan.most_usd);
        KindCost { count, most, rate: planned.plan.offer.hourly() }
    }

    fn sum(&self) -> Option<Usd> {
        let most = self.most?;
        Some((0..self.count).fold(Usd::ZERO, |sum, _| sum + most))
    }
}

/// `None`: the job has one machine.
///
/// # Errors
/// If nothing is sold for a role with another machine than rank 0.
pub async fn gang_cost(
    context: &Context,
    controller: &Controller,
    spec: &ResolvedSpec,
    planned: &Planned,
) -> Result<Option<GangCost>, Fault> {
    let Some(gang) = &spec.spec.gang else { return Ok(None) };
    let mut kinds = Vec::new();
    for (role, machine, count) in machine_kinds(gang, &spec.spec.machine) {
        if kinds.is_empty() {
            kinds.push(KindCost::of(count, planned));
            continue;
        }
        let mut alone = spec.clone();
        (alone.spec.machine, alone.spec.gang) = (machine, None);
        alone.spec.machine.regions = vec![planned.plan.offer.region.to_string()];
        let planned = first_plan::first(context, controller, &alone).await.map_err(|fault| {
            fault.also(format!("it concerns the machines of [gang.{}]", role.word()))
        })?;
        kinds.push(KindCost::of(count, &planned));
    }
    Ok(Some(GangCost {
        nodes: gang.nodes.to_string(),
        most_usd: sum(&kinds),
        sentence: text(gang, &kinds),
    }))
}

fn sum(kinds: &[KindCost]) -> Option<Usd> {
    kinds.iter().try_fold(Usd::ZERO, |sum, kind| Some(sum + kind.sum()?))
}

fn text(gang: &GangSpec, kinds: &[KindCost]) -> String {
    let machines = format!("{} machines work as one job, each rank a job of its own", gang.nodes);
    let most = match sum(kinds).map(Usd::rounded_up) {
        Some(all) => {
            let each =
                |kind: &KindCost| Some(format!("{} x {}", kind.count, kind.most?.rounded_up()));
            let each: Vec<String> = kinds.iter().filter_map(each).collect();
            format!("{machines}; all cost at most {} = {all}", each.join(" + "))
        }
        None => format!("{machines}; nothing bounds what they can cost"),
    };
    let wait = |what: &str, time: Span, fewer: usize| {
        let of = |kind: &KindCost, count: usize| {
            let one = kind.rate.cost_of(time.duration());
            (0..count).fold(Usd::ZERO, |sum, _| sum + one)
        };
        // The machine that is lost, or the last one, counts as one of the first kind.
        let others = kinds.iter().skip(1).map(|kind| of(kind, kind.count));
        let first = kinds.first().map_or(Usd::ZERO, |kind| of(kind, kind.count - fewer));
        let usd = others.fold(first, |sum, one| sum + one);
        format!("{what} for at most {time} ({})", usd.rounded_up())
    };
    let last = "finished ranks wait for the last";
    let waits = [
        wait("the start waits for all", gang.join, 0),
        wait("a lost machine holds the others", gang.hold, 1),
        match gang.done {
            DoneRule::All => format!("{last}, however long"),
            DoneRule::Rank0 | DoneRule::Any => wait(last, gang.tail, 1),
        },
    ];
    format!("{most}. Time without work: {}", waits.join("; "))
}
