//! A plan for people: the machine, its highest cost, the reasons, and what is tried if it is not
//! available.

use std::fmt::Display;

use jiff::Timestamp;

use super::bid_text;
use crate::app::launch::limit_check::OutOfReach;
use crate::app::text::local_time;
use crate::cli::Context;
use crate::controller::Planned;
use crate::job::{LaunchRequest, MarketChoice, Plan, RejectedOffer, Spec, image_contents};
use crate::market::{CloudKind, GpuRequirement, Market, Offer, Quota, Usd};
use crate::policy::purchase::job_cost_bound::{JobMost, MostBy};
use crate::policy::purchase::ranking::Ranked;

/// Lines of one kind; `-o json` has all.
const LINES_MAX: usize = 6;

/// Before a run, in at most three lines: the machine with its end, the whole job, and the reason.
///
/// `lamp run` says at most six lines before the output of the program. `lamp plan` shows the rest.
pub fn before_a_run(planned: &Planned) -> Vec<String> {
    let plan = &planned.plan;
    let mut lines = costs(planned, ON_OFFER);
    if let (Some(first), Some(at)) = (lines.first_mut(), end(planned)) {
        first.push_str(&format!("; it ends at {} at the latest", local_time(at)));
    }
    if plan.offer.cloud == CloudKind::Local {
        // There is one workstation, so only doubts about it are worth a line.
        lines.extend(plan.reasons.iter().skip(2).cloned());
    } else {
        let reasons: Vec<&str> = plan
            .reasons
            .iter()
            .skip(1)
            .take(if plan.bid.is_some() { 2 } else { 1 })
            .map(String::as_str)
            .collect();
        if !reasons.is_empty() {
            lines.push(format!("because it is {}", reasons.join("; ")));
        }
    }
    lines
}

/// Before a job that goes on from a checkpoint: also every other reason, and where it begins.
pub fn before_a_continuation(planned: &Planned) -> Vec<String> {
    [costs(planned, ON_OFFER), why(planned)].concat()
}

/// The basis of a whole job's figures, when a cloud has answered.
const ON_OFFER: &str = "by what is on offer now";

/// The machine, its price, its highest cost, and the highest cost of the job. `by`: the basis of
/// the figures.
pub(crate) fn costs(planned: &Planned, by: &str) -> Vec<String> {
    let (plan, offer) = (&planned.plan, &planned.plan.offer);
    let whole_job = whole_job(plan, &planned.most_job, by);
    let with = if offer.extras.per_hour() > Usd::ZERO {
        ", with its disk, its address and the power-off"
    } else {
        ""
    };
    let most = match plan.most_usd {
        Some(most) if most == Usd::ZERO => "costs nothing".to_owned(),
        Some(most) => {
            // If the job can cost more than its first machine, this line must name only the
            // machine.
            let what = if whole_job.is_some() { "this machine costs at most" } else { "costs at most" };
            // A user who typed 8 and reads 13 must see where the rest comes from.
            let is_by_budget = whole_job.is_none() && planned.most_job.by == MostBy::Budget && offer.cloud == CloudKind::Local;
            let by = if is_by_budget { ": its budget, and five minutes to save and to power off" } else { "" };
            format!("{what} {}{with}{by}{}", most.rounded_up(), whichever(plan, most))
        }
        None => "nothing bounds what it can cost; `limits.budget` would, and `limits.max_runtime` the cost of each machine".to_owned(),
    };
    let unless = match &planned.waits {
        Some(waits) if waits.until.is_none() => "not now; with `--deadline`: ",
        Some(_) => "if nothing cheaper comes: ",
        None => "",
    };
    let first = format!(
        "{unless}{} in {}, {}, {}: {most}",
        offer.instance_type, offer.zone, offer.market, offer.price
    );
    std::iter::once(first).chain(whole_job).collect()
}

fn is_to_be_spot(planned: &Planned) -> bool {
    planned.plan.offer.market == Market::Spot || planned.waits.is_some()
}

/// `None`: the machine waits, so its end is unknown until the launch.
fn end(planned: &Planned) -> Option<Timestamp> {
    planned.plan.kill_at.filter(|_| planned.waits.is_none())
}

fn why(planned: &Planned) -> Vec<String> {
    let plan = &planned.plan;
    // The first reason says why there is a plan, the second why this offer.
    let because =
        plan.reasons.iter().skip(1).take(1).map(|reason| format!("because it is {reason}"));
    let end = end(planned).map(|at| format!("the machine ends at {} at the latest; after a limit of time it has 5m to save and to power off", local_time(at)));
    because.chain(plan.reasons.iter().skip(2).cloned()).chain(end).collect()
}

/// The highest cost of the job with all machines that may follow, if it differs from the first
/// machine's as shown.
fn whole_job(plan: &Plan, most_job: &JobMost, by: &str) -> Option<String> {
    let read = |usd: Option<Usd>| usd.map(|usd| usd.rounded_up().to_string());
    // Another single machine may replace it; that is said beside the first.
    let only_one = most_job.machines == Some(1) && most_job.by == MostBy::Machines;
    if plan.most_usd.is_none() || only_one || read(most_job.usd) == read(plan.most_usd) {
        return None;
    }
    let (is_local, machines) =
        (plan.offer.cloud == CloudKind::Local, most_job.machines.unwrap_or(1));
    let again = if is_local {
        "begins again after a power cut"
    } else {
        "continues on another machine after an interruption or a loss"
    };
    let job = format!("the whole job, which {again},");
    // A user with a budget needs no hint to set one.
    let unset = |words: &'static str| if most_job.budget.is_none() { words } else { "" };
    let Some(usd) = most_job.usd.map(Usd::rounded_up) else {
        return Some(format!(
            "{job} can cost that much again each time, and nothing bounds it; `limits.budget` would"
        ));
    };
    Some(match most_job.by {
        MostBy::Budget if is_local => format!(
            "{job} costs at most {usd}: its budget, and five minutes to save and to power off"
        ),
        MostBy::Budget => format!("{job} costs at most {usd}: that is its budget"),
        MostBy::Deadline => {
            let holds = unset("; `limits.budget` would hold whatever comes");
            format!("{job} costs at most {usd} {by}: its deadline ends it{holds}")
        }
        _ if is_local => {
            let lower = unset("; `limits.budget` would bound it lower");
            format!(
                "{job} costs at most {usd}, even if it took all the {machines} attempts that `interruptions.max` allows{lower}"
            )
        }
        _ => {
            let lower = unset("; `limits.budget` would bound it lower, whatever comes");
            let all = format!(
                "even if it took all the {machines} machines that `interruptions.max` allows"
            );
            format!("{job} costs at most {usd} {by}, {all}{lower}")
        }
    })
}

fn whichever(plan: &Plan, most: Usd) -> String {
    let any = plan.most_whichever().map(Usd::rounded_up).filter(|any| *any > most.rounded_up());
    any.map(|any| {
        format!("; at most {any} where it is not to be had and a dearer one takes its place")
    })
    .unwrap_or_default()
}

pub fn whole(
    planned: &Planned,
    spec: &Spec,
    expected: impl Iterator<Item = String>,
    exceeded: Option<&bid_text::BidHistory>,
) -> Vec<String> {
    let Planned { plan, fallbacks, ranking, quotas, refused, .. } = planned;
    let mut lines: Vec<String> =
        costs(planned, ON_OFFER).into_iter().chain(expected).chain(why(planned)).collect();
    exceeded.iter().for_each(|exceeded| exceeded.stand_in(&mut lines));
    lines.extend(machine_text(&plan.offer, &spec.machine.gpus));
    lines.extend(plan.launch.as_ref().map(launch_text));
    lines.extend(quotas.iter().find(|quota| quota.covers(&plan.offer)).map(quota_text));
    // The ranking begins with the machine itself.
    let to_finish = |n: usize| {
        ranking.get(n + 1).and_then(|ranked| ranked.usd_to_finish).filter(|usd| *usd > Usd::ZERO)
    };
    let tried = |n: usize, offer: &Offer| {
        let begin = if n == 0 { "if there is none:" } else { "then:" };
        let finish = to_finish(n).map(|usd| format!(", {usd} to finish")).unwrap_or_default();
        let starts =
            ranking.get(n + 1).map(|ranked| added_by_starts(offer, ranked)).unwrap_or_default();
        format!(
            "{begin} {} in {}, {}, {}{starts}{finish}",
            offer.instance_type, offer.zone, offer.market, offer.price
        )
    };
    let waits_for_spot = spec.machine.market == MarketChoice::Auto
        && spec.limits.deadline.is_none()
        && is_to_be_spot(planned);
    let is_tried = |offer: &Offer| !waits_for_spot || offer.market == Market::Spot;
    lines.extend(cut(fallbacks
        .iter()
        .enumerate()
        .filter(|(_, offer)| is_tried(offer))
        .map(|(n, offer)| tried(n, offer))));
    if let Some(offer) = fallbacks.iter().find(|offer| !is_tried(offer)) {
        lines.push(format!(
            "without a spot machine it waits; with `--deadline`, or where interruptions make spot the dearer one: {} in {}, {}, {}",
            offer.instance_type, offer.zone, offer.market, offer.price
        ));
    }
    // The other market comes last, and the zones of the first must not hide it.
    let other =
        fallbacks.iter().enumerate().skip(LINES_MAX).filter(|(_, offer)| is_tried(offer)).find(
            |(n, offer)| {
                offer.market != plan.offer.market
                    && fallbacks.iter().take(*n).all(|before| before.market == plan.offer.market)
            },
        );
    lines.extend(other.map(|(n, offer)| format!("  among them, {}", tried(n, offer))));
    let mut unfit: Vec<&RejectedOffer> =
        plan.rejected.iter().filter(|no| !fallbacks.contains(&no.offer)).collect();
    // Among equal reasons, the cheapest offer is named.
    unfit.sort_by_key(|no| no.offer.hourly());
    let unfit = unfit.into_iter().map(|no| {
        format!(
            "{} in {}, {}: {}",
            no.offer.instance_type, no.offer.zone, no.offer.market, no.because
        )
    });
    lines.extend(cut(summed_up("not", unfit).into_iter()));
    lines.extend(cut(summed_up("not on offer:", refused.iter().cloned()).into_iter()));
    lines
}

/// Why a more expensive machine may come first: it is expected to be interrupted less often.
fn added_by_starts(offer: &Offer, ranked: &Ranked) -> String {
    let plain = offer.hourly().per_hour().dollars() / ranked.speed;
    let percent = ((ranked.usd_per_hour_of_work / plain - 1.0) * 100.0).round();
    if percent >= 1.0 { format!(" and {percent} % for its starts") } else { String::new() }
}

/// One line for each reason: its first offer, and the number of others.
fn summed_up(begin: &str, all: impl Iterator<Item = String>) -> Vec<String> {
    let mut kinds: Vec<(String, String, usize)> = Vec::new();
    for text in all {
        let kind = kind(&text);
        match kinds.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, _, more)) => *more += 1,
            None => kinds.push((kind, text, 0)),
        }
    }
    let line = |(_, text, more): (String, String, usize)| match more {
        0 => format!("{begin} {text}"),
        _ => format!("{begin} {text}; nor {more} more for such a reason (`-o json` has all)"),
    };
    kinds.into_iter().map(line).collect()
}

/// A reason without its words with digits: types, zones and prices.
fn kind(text: &str) -> String {
    let plain = |word: &&str| !word.chars().any(|letter| letter.is_ascii_digit());
    text.split_whitespace().filter(plain).collect::<Vec<&str>>().join(" ")
}

/// The machine, and what it has beyond the job's needs. `None`: a local agent says it itself.
pub(crate) fn machine_text(offer: &Offer, wanted: &GpuRequirement) -> Option<String> {
    if offer.cloud == CloudKind::Local {
        return None;
    }
    let gpus = match (&offer.gpu_model, offer.gpus) {
        (_, 0) if wanted.count == 0 => {
            "no GPU (`--gpus 1`, or `gpus` in the job file, asks for one)".to_owned()
        }
        (_, 0) => "no GPU".to_owned(),
        (model, gpus) => {
            let model = model.as_deref().unwrap_or("GPU");
            let memory = offer
                .gpu_memory_mib
                .map(|mib| format!(" of {} GiB", (mib + 512) / 1024))
                .unwrap_or_default();
            format!("{gpus} x {model}{memory}")
        }
    };
    let idle = match offer.gpus.saturating_sub(wanted.count) {
        0 => String::new(),
        _ if wanted.count == 0 => "; the job asks for none".to_owned(),
        more => format!(
            "; the job asks for {}, and {more} more {} paid for",
            wanted.count,
            if more == 1 { "is" } else { "are" }
        ),
    };
    let asked =
        wanted.memory_mib_min.filter(|asked| offer.gpu_memory_mib.is_some_and(|has| has < *asked));
    let less = asked.map(|asked| {
        format!(
            "; up to a tenth less than {} GiB will do, since makers count in billions of bytes",
            asked / 1024
        )
    });
    Some(format!("it has {gpus} and {} vCPUs{idle}{}", offer.vcpus, less.unwrap_or_default()))
}

fn launch_text(launch: &LaunchRequest) -> String {
    let image = launch
        .image_name
        .as_ref()
        .map_or_else(|| launch.image.clone(), |name| format!("{name} ({})", launch.image));
    let has = launch.image_name.as_deref().and_then(image_contents).map(|has| format!("; {has}"));
    format!(
        "boots {image} on an encrypted disk of {} GiB{}",
        launch.disk_gib,
        has.unwrap_or_default()
    )
}

fn quota_text(quota: &Quota) -> String {
    let (left, max) = (quota.vcpus_left(), quota.vcpus_max);
    format!("quota \"{}\" in {}: {left} of {max} vCPUs are free", quota.name, quota.region)
}

fn cut<T: Display>(lines: impl Iterator<Item = T>) -> Vec<String> {
    let all: Vec<String> = lines.map(|line| line.to_string()).collect();
    let more = all.len().saturating_sub(LINES_MAX);
    let mut some: Vec<String> = all.into_iter().take(LINES_MAX).collect();
    if more > 0 {
        some.push(format!("  and {more} more; `-o json` has all"));
    }
    some
}

pub fn warn_out_of_reach(context: &Context, out_of_reach: &OutOfReach) {
    context.printer.warn(out_of_reach.sentence());
    context.printer.hint(out_of_reach.cure());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_for_the_same_reason_is_one_line() {
        let refused = [
            "g5.12xlarge in us-east-1a, spot: costs $2.40/h now, more than the bid of $0.38/h",
            "g5.xlarge, spot, in us-east-1b: no price is known",
            "g5.2xlarge in us-east-1c, spot: costs $0.40/h now, more than the bid of $0.38/h",
            "p4d.24xlarge in us-east-1c, spot: costs $9.40/h now, more than the bid of $0.38/h",
        ];
        let lines = summed_up("not", refused.into_iter().map(str::to_owned));
        assert_eq!(
            lines,
            [
                format!("not {}; nor 2 more for such a reason (`-o json` has all)", refused[0]),
                format!("not {}", refused[1])
            ]
        );
    }
}
