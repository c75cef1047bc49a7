//! The highest cost of a gang: the highest cost of one machine, times their number, for each kind
//! of machine.

use serde::Serialize;

use super::first_plan;
use crate::app::costs::hours_cost::PricedMachines;
use crate::app::session::Session;
use crate::app::{ExitCode, Fault};
use crate::controller::{Controller, Planned};
use crate::job::{DoneRule, GangRole, GangSpec, ResolvedSpec, machine_kinds};
use crate::market::{Offer, Quota, Span, Usd, UsdPerHour};
use crate::policy::account::doctor;

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
    /// Its kinds of machines at their present prices.
    #[serde(skip)]
    priced: Vec<PricedMachines>,
    /// A quota or a cap that has no room for all its machines together.
    #[serde(skip)]
    pub lack: Option<Fault>,
}

/// The kinds of machines of a gang at their present prices; none: it is one machine.
pub fn priced(gang: Option<&GangCost>) -> &[PricedMachines] {
    gang.map_or(&[], |gang| &gang.priced)
}

/// The most that a trial of a tuning can cost, with all its ranks. `None`: nothing bounds it.
pub fn most_of_trial(planned: &Planned, gang: Option<&GangCost>) -> Option<Usd> {
    let most = planned.most_job.usd?;
    gang.map_or(Some(most), |gang| gang.most_usd)
}

/// Machines of one kind.
struct KindCost {
    count: usize,
    /// The most that one can cost; `None`: nothing bounds it.
    most: Option<Usd>,
    rate: UsdPerHour,
    /// The same, at the bid.
    rate_most: UsdPerHour,
    offer: Offer,
    quotas: Vec<Quota>,
}

impl KindCost {
    fn of(count: usize, planned: &Planned) -> Self {
        let plan = &planned.plan;
        KindCost {
            count,
            most: planned.most_job.usd.or(plan.most_usd),
            rate: plan.offer.hourly(),
            rate_most: plan.offer.hourly_at_most(plan.bid),
            offer: plan.offer.clone(),
            quotas: planned.quotas.clone(),
        }
    }

    fn sum(&self) -> Option<Usd> {
        let most = self.most?;
        Some((0..self.count).fold(Usd::ZERO, |sum, _| sum + most))
    }
}

/// `None`: the job has one machine.
///
/// # Errors
/// If nothing is sold for a role with another machine than rank 0, or its processor is another.
pub async fn gang_cost(
    session: &Session<'_>,
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
        let first = &planned.plan.offer;
        let planned = first_plan::first(session, controller, &alone).await.map_err(|fault| {
            fault.also(format!("it concerns the machines of [gang.{}]", role.word()))
        })?;
        refuse_other_processor(first, &planned.plan.offer, role)?;
        kinds.push(KindCost::of(count, &planned));
    }
    // The launch of rank 0 counts the machines of its own kind alone.
    let lack = (kinds.len() > 1).then(|| lack(controller, &kinds)).flatten();
    let priced = |kind: &KindCost| PricedMachines { count: kind.count, rate: kind.rate };
    Ok(Some(GangCost {
        nodes: gang.nodes.to_string(),
        most_usd: sum(&kinds),
        sentence: text(gang, &kinds),
        priced: kinds.iter().map(priced).collect(),
        lack,
    }))
}

/// All roles have the image and the files of the job, which suit one kind of processor.
fn refuse_other_processor(first: &Offer, other: &Offer, role: GangRole) -> Result<(), Fault> {
    if other.arch == first.arch {
        return Ok(());
    }
    let what = format!(
        "the machines have different processors: {} has {}, and {} of [gang.{}] has {}",
        first.instance_type,
        first.arch,
        other.instance_type,
        role.word(),
        other.arch
    );
    let hint = "name `instance_types` of one processor for all roles";
    Err(Fault::new(ExitCode::REFUSED, what).meaning("nothing was started or billed").hint(hint))
}

/// Why not all kinds of machines can run together.
fn lack(controller: &Controller, kinds: &[KindCost]) -> Option<Fault> {
    const NOTHING: &str = "nothing was started or billed";
    if let Some((quota, vcpus)) = short_quota(kinds) {
        let what = format!(
            "the machines of all roles need {vcpus} vCPUs, and the quota \"{}\" has {} of {} left in {}",
            quota.name,
            quota.vcpus_left(),
            quota.vcpus_max,
            quota.region
        );
        let all = quota.vcpus_used.saturating_add(vcpus);
        let more = doctor::ask_for_more(quota.region.as_str(), &quota.code, all);
        return Some(Fault::new(ExitCode::LAUNCH_FAILED, what).meaning(NOTHING).hint(format!(
            "ask for {all} vCPUs of it, which takes hours to days: {more}; or write a smaller `count`"
        )));
    }
    let rates =
        kinds.iter().flat_map(|kind| std::iter::repeat_n(kind.rate_most.per_hour(), kind.count));
    let reason = controller.cap_forbids_rate(UsdPerHour::new(rates.sum()))?;
    let what = format!("it would wait for ever for {}", reason.text);
    let hint = "a higher cap in [caps] of the configuration, or fewer or cheaper machines";
    Some(Fault::new(ExitCode::REFUSED, what).meaning(NOTHING).hint(hint))
}

/// The quota that has no room for the machines of all roles, and the vCPUs that they need of it.
fn short_quota(kinds: &[KindCost]) -> Option<(&Quota, u32)> {
    kinds.iter().flat_map(|kind| &kind.quotas).find_map(|quota| {
        let covered = kinds.iter().filter(|kind| quota.covers(&kind.offer));
        let vcpus = covered
            .map(|kind| {
                let count = u32::try_from(kind.count).unwrap_or(u32::MAX);
                kind.offer.vcpus.saturating_mul(count)
            })
            .fold(0, u32::saturating_add);
        (vcpus > quota.vcpus_left()).then_some((quota, vcpus))
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::{Arch, CloudKind, Market, Region, Zone};

    fn kind(count: usize, instance_type: &str, vcpus: u32, vcpus_max: u32) -> KindCost {
        let quota = Quota {
            name: "Running On-Demand G and VT instances".into(),
            code: "L-DB2E81BA".into(),
            region: Region::new("us-east-1"),
            market: Market::OnDemand,
            families: vec!["g".into(), "vt".into()],
            vcpus_max,
            vcpus_used: 0,
        };
        let rate = UsdPerHour::new("$1".parse().unwrap());
        KindCost {
            count,
            most: None,
            rate,
            rate_most: rate,
            offer: Offer {
                cloud: CloudKind::Aws,
                region: Region::new("us-east-1"),
                zone: Zone::new("us-east-1a"),
                instance_type: instance_type.into(),
                gpus: 0,
                gpu_model: None,
                gpu_memory_mib: None,
                vcpus,
                arch: Arch::default(),
                market: Market::OnDemand,
                price: rate,
                extras: UsdPerHour::ZERO,
                on_demand: None,
            },
            quotas: vec![quota],
        }
    }

    #[test]
    fn quota_must_have_room_for_the_machines_of_all_roles() {
        let kinds = |vcpus_max| {
            [
                kind(1, "g5.12xlarge", 48, vcpus_max),
                kind(3, "g5.xlarge", 4, vcpus_max),
                kind(9, "m6i.xlarge", 4, vcpus_max),
            ]
        };
        assert_eq!(short_quota(&kinds(59)).map(|(_, vcpus)| vcpus), Some(60));
        assert!(short_quota(&kinds(60)).is_none());
    }
}
