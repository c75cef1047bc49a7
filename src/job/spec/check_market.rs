//! Checks of a job against the shipped catalogue, without a network, before planning.
//!
//! Only a job without a limit gets an error; the rest are warnings. Types and regions may be newer
//! than this program, and an emulator may use any name. Today's prices are not used here.

use std::time::Duration;

use crate::job::{Finding, LimitsSpec, MachineSpec, MarketChoice, Spec};
use crate::market::{
    Catalog, CloudKind, Fit, MachineType, Region, Span, Usd, UsdPerHour, did_you_mean,
    nearest_regions,
};

/// Spot machines cost a tenth of the on-demand price at the least (AWS's own words), hardly ever
/// less.
const SPOT_SHARE_MIN: f64 = 0.1;

/// The shortest machine life: ten minutes of work, two to power off (`policy::purchase::hard_end`).
const LIFE_MIN: Duration = Duration::from_secs(12 * 60);

/// GPUs of workstations that AWS does not sell: their names are not typing errors.
const ELSEWHERE: [&str; 24] = [
    "RTX", "GTX", "GeForce", "Quadro", "TITAN", "Tesla", "Jetson", "Orin", "Radeon", "Instinct",
    "A2", "A10", "A16", "A30", "A40", "A800", "H20", "H800", "L2", "L20", "P4", "P40", "P100",
    "GH200",
];

pub(crate) fn check_market(spec: &Spec, found: &mut Vec<Finding>) {
    let catalog = Catalog::shipped();
    match spec.machine.cloud {
        CloudKind::Local => found.extend(gpu_of_a_workstation(catalog, &spec.machine)),
        CloudKind::Aws => {
            found.extend(spec.machine.regions.iter().filter_map(|region| unknown_region(region)));
            found.extend(
                spec.machine.instance_types.iter().filter_map(|kind| unknown_type(catalog, kind)),
            );
            found.extend(no_type_fits(catalog, &spec.machine));
            found.extend(unbounded(spec));
            found.extend(over_before_it_works(spec));
            found.extend(buys_nothing(catalog, spec));
        }
    }
}

fn unknown_region(name: &str) -> Option<Finding> {
    let near: Vec<String> =
        nearest_regions(name)?.into_iter().map(|known| format!("`{known}`")).collect();
    let finding = Finding::warning(
        "machine.regions",
        format!("`{name}` is no region that this version knows"),
    );
    Some(if near.is_empty() {
        finding
    } else {
        finding.hint(format!("did you mean {}?", near.join(" or ")))
    })
}

/// The catalogue has every type with a GPU and no other, so it can judge only such families.
fn unknown_type(catalog: &Catalog, name: &str) -> Option<Finding> {
    let family = name.trim_start_matches(['g', 'p']);
    let has_gpus =
        family.len() < name.len() && family.starts_with(|letter: char| letter.is_ascii_digit());
    if !has_gpus || catalog.machine_type(name).is_some() {
        return None;
    }
    let text = format!("`{name}` is not in the shipped catalogue of {}", catalog.types_as_of());
    let finding = Finding::warning("machine.instance_types", text);
    let meant = did_you_mean(name, catalog.types().iter().map(|kind| kind.name.as_str()));
    Some(match meant {
        Some(meant) => finding.hint(meant),
        None => finding,
    })
}

/// The types that the job allows; `None`: the catalogue does not know them all.
fn candidates<'a>(catalog: &'a Catalog, machine: &MachineSpec) -> Option<Vec<&'a MachineType>> {
    match machine.instance_types.as_slice() {
        [] if machine.gpus.count == 0 => None,
        [] => Some(catalog.types().iter().collect()),
        named => named.iter().map(|name| catalog.machine_type(name)).collect(),
    }
}

fn no_type_fits(catalog: &Catalog, machine: &MachineSpec) -> Option<Finding> {
    let candidates = candidates(catalog, machine)?;
    let (mut nearest, mut any) = (None::<(u32, String)>, false);
    for kind in candidates {
        match kind.fit(&machine.gpus, &machine.instance_types) {
            Fit::Fits => return None,
            // The largest is the nearest.
            Fit::No(because) if nearest.as_ref().is_none_or(|(gpus, _)| kind.gpus > *gpus) => {
                nearest = Some((kind.gpus, because))
            }
            Fit::No(_) => {}
            Fit::Other => any = true,
        }
    }
    let (wanted, as_of) = (&machine.gpus, catalog.types_as_of());
    match (nearest, &wanted.model) {
        (Some((_, because)), _) => Some(Finding::warning(
            "machine.gpus",
            format!(
                "no machine of the shipped catalogue of {as_of} satisfies `{wanted}`: {because}"
            ),
        )),
        (None, Some(model)) => Some(unknown_gpu(
            catalog,
            model,
            format!("no machine of the shipped catalogue of {as_of} has a GPU `{model}`"),
        )),
        (None, None) => any.then(|| {
            Finding::warning(
                "machine.gpus",
                format!("no machine of the shipped catalogue of {as_of} satisfies `{wanted}`"),
            )
        }),
    }
}

fn unknown_gpu(catalog: &Catalog, model: &str, text: String) -> Finding {
    let models: Vec<String> =
        catalog.gpu_models().into_iter().map(|model| model.replace(' ', "-")).collect();
    let meant = did_you_mean(model, models.iter().map(String::as_str));
    Finding::warning("machine.gpus", text)
        .hint(meant.unwrap_or_else(|| format!("there are {}", models.join(", "))))
}

/// Only the driver knows a workstation's GPU, but an unknown name is reported all the same.
fn gpu_of_a_workstation(catalog: &Catalog, machine: &MachineSpec) -> Option<Finding> {
    let model = machine.gpus.model.as_deref()?;
    let is_sold = catalog.types().iter().any(|kind| kind.fit(&machine.gpus, &[]) != Fit::Other);
    let plain = |text: &str| text.to_ascii_lowercase();
    let is_elsewhere = ELSEWHERE
        .iter()
        .any(|known| plain(model).split(['-', '_', '.']).any(|part| part == plain(known)))
        || ELSEWHERE[..10].iter().any(|brand| plain(model).starts_with(&plain(brand)));
    if is_sold || is_elsewhere {
        return None;
    }
    let text = format!(
        "`{model}` is the name of no GPU that this version knows: where the driver of this workstation does not say so, the job ends as it starts"
    );
    Some(unknown_gpu(catalog, model, text))
}

/// A machine without an end bills until a person looks. So every bought machine needs a hard end
/// (docs/decisions.md, 24), and the payer must set the limit.
fn unbounded(spec: &Spec) -> Option<Finding> {
    if spec.limits.bound_a_machine() {
        return None;
    }
    let text = format!(
        "{}: nothing would end a machine whose work never does, and none is bought",
        LimitsSpec::UNBOUND
    );
    let hint = "say how long it may run, or what it may cost: `--max-runtime 24h`, `--budget 20`, or max_runtime = \"24h\", budget = \"$20\" \
                in [limits] of the job file, or once for all jobs in the configuration; `lamp extend` raises it while it runs";
    Some(Finding::error("limits", text).hint(hint))
}

/// A machine costs money even if its limit ends it before the work begins.
fn over_before_it_works(spec: &Spec) -> Option<Finding> {
    let most = spec
        .limits
        .max_runtime
        .filter(|most| most.duration() < LIFE_MIN && most.duration() > Duration::ZERO)?;
    let text = format!(
        "is {most}, from the launch on: to boot, and to fetch image, code and checkpoint, may take a machine with a GPU {}",
        Span::from_duration(LIFE_MIN)
    );
    Some(
        Finding::warning("limits.max_runtime", text)
            .hint("`lamp receipt` of an earlier job says how long its machines took; `--max-runtime 30m` leaves room"),
    )
}

/// A budget below the cheapest machine's cost for the shortest life. Where spot is allowed, at a
/// tenth of the on-demand price: hardly any spot price is lower.
fn buys_nothing(catalog: &Catalog, spec: &Spec) -> Option<Finding> {
    let (budget, machine) =
        (spec.limits.budget.filter(|budget| *budget > Usd::ZERO)?, &spec.machine);
    let fitting = candidates(catalog, machine)?
        .into_iter()
        .filter(|kind| kind.fit(&machine.gpus, &machine.instance_types) == Fit::Fits);
    let regions = catalog.regions();
    let price = |kind: &MachineType| {
        regions.iter().filter_map(|region: &Region| catalog.on_demand(&kind.name, region)).min()
    };
    let (full, kind) =
        fitting.filter_map(|kind| Some((price(kind)?, kind))).min_by_key(|(price, _)| *price)?;
    let share = if machine.market == MarketChoice::OnDemand { 1.0 } else { SPOT_SHARE_MIN };
    let least = UsdPerHour::new(Usd::from_micros((full.per_hour().micros() as f64 * share) as i64))
        .cost_of(LIFE_MIN);
    if budget >= least {
        return None;
    }
    let at = if share < 1.0 {
        format!("even at a tenth of its on-demand price of {full}")
    } else {
        format!("at its on-demand price of {full}")
    };
    let text = format!(
        "is {budget}: {} is the cheapest that fits ({}), and twelve minutes of it, the least that is worth a start, cost {least} {at}",
        kind.name,
        catalog.prices_as_of()
    );
    Some(
        Finding::warning("limits.budget", text)
            .hint("`lamp plan` names the smallest budget that would do now"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::LimitsSpec;

    fn said(cloud: CloudKind, gpus: &str, change: impl FnOnce(&mut Spec)) -> Vec<String> {
        let limits =
            LimitsSpec { max_runtime: Some(Span::from_secs(3600)), ..LimitsSpec::default() };
        let mut spec = Spec {
            machine: MachineSpec { cloud, gpus: gpus.parse().unwrap(), ..MachineSpec::default() },
            limits,
            ..Spec::bare()
        };
        change(&mut spec);
        let mut found = Vec::new();
        check_market(&spec, &mut found);
        found
            .into_iter()
            .map(|finding| format!("{finding} | {}", finding.hint.clone().unwrap_or_default()))
            .collect()
    }

    fn one(said: Vec<String>, words: &[&str]) {
        assert_eq!(said.len(), 1, "{said:?}");
        words.iter().for_each(|word| assert!(said[0].contains(word), "{word}: {said:?}"));
    }

    #[test]
    fn what_the_catalogue_has_is_not_warned_of() {
        for gpus in ["A10G:1", "none", "at least 24GiB", "a100-80gb:8"] {
            assert_eq!(said(CloudKind::Aws, gpus, |_| {}), [""; 0], "{gpus}");
        }
        for gpus in ["A10G:1", "RTX4090:2", "A40", "P100:4", "RTX-A6000"] {
            assert_eq!(said(CloudKind::Local, gpus, |_| {}), [""; 0], "{gpus}");
        }
        let types = |name: &str| {
            said(CloudKind::Aws, "none", |spec| spec.machine.instance_types = vec![name.into()])
        };
        assert_eq!(
            (types("t3.micro"), types("m5.xlarge"), types("g5.xlarge")),
            (vec![], vec![], vec![])
        );
    }

    #[test]
    fn wrong_gpu_type_or_region_is_named_with_what_was_meant() {
        one(said(CloudKind::Aws, "A10", |_| {}), &["has a GPU `A10` | did you mean A100 or A10G?"]);
        one(
            said(CloudKind::Aws, "banana", |_| {}),
            &["has a GPU `banana` | there are A100, A10G,"],
        );
        one(
            said(CloudKind::Aws, "A10G:16", |_| {}),
            &["satisfies `A10G:16`: g5.48xlarge has 8 GPUs, and the job needs A10G:16"],
        );
        one(
            said(CloudKind::Local, "H1000", |_| {}),
            &["`H1000` is the name of no GPU", "did you mean H100?"],
        );
        one(
            said(CloudKind::Aws, "none", |spec| {
                spec.machine.instance_types = vec!["g5.xlrge".into()]
            }),
            &["`g5.xlrge` is not in", "mean g5.xlarge?"],
        );
        one(
            said(CloudKind::Aws, "A10G:1", |spec| {
                spec.machine.regions = vec!["us-eats-2".into(), "eu-north-1".into()]
            }),
            &["`us-eats-2` is no region that this version knows | did you mean `us-east-2`?"],
        );
    }

    #[test]
    fn unbounded_aws_job_is_refused_and_a_useless_budget_is_told() {
        one(
            said(CloudKind::Aws, "A10G:1", |spec| spec.limits.max_runtime = None),
            &["`limits`: has no `max_runtime`"],
        );
        assert_eq!(said(CloudKind::Local, "none", |spec| spec.limits.max_runtime = None), [""; 0]);
        let short = said(CloudKind::Aws, "A10G:1", |spec| {
            spec.limits.max_runtime = Some(Span::from_secs(60))
        });
        one(
            short,
            &["`limits.max_runtime`: is 1m, from the launch on", "a machine with a GPU 12m"],
        );
        let budget = |text: &str, market| {
            said(CloudKind::Aws, "A10G:1", |spec| {
                (spec.limits.budget, spec.machine.market) = (Some(text.parse().unwrap()), market)
            })
        };
        one(
            budget("0.01", MarketChoice::Spot),
            &["`limits.budget`: is $0.0100: g5.xlarge is the cheapest", "a tenth"],
        );
        one(
            budget("0.1", MarketChoice::OnDemand),
            &["cost $0.20 at its on-demand price of $1.01/h"],
        );
        assert_eq!(budget("0.1", MarketChoice::Spot), [""; 0], "spot may come down to it");
    }
}
