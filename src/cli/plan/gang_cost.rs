//! The highest cost of a gang: the highest cost of one machine, times their number.

use crate::controller::Planned;
use crate::job::Spec;
use crate::market::Usd;

/// `None`: the job has one machine.
pub fn line(spec: &Spec, planned: &Planned) -> Option<String> {
    let gang = spec.gang.as_ref()?;
    let count = gang.seats().len();
    let machines = format!("{} machines work as one job, each rank a job of its own", gang.nodes);
    let most = match planned.most_job.usd.or(planned.plan.most_usd) {
        Some(one) => {
            let all = (0..count).fold(Usd::ZERO, |sum, _| sum + one).rounded_up();
            format!("{machines}; all cost at most {count} x {} = {all}", one.rounded_up())
        }
        None => format!("{machines}; nothing bounds what they can cost"),
    };
    let rate = planned.plan.offer.hourly();
    let others = count.saturating_sub(1);
    let waits = [
        ("the start waits for all", gang.join, count),
        ("a lost machine holds the others", gang.hold, others),
        ("finished ranks wait for the last", gang.tail, others),
    ];
    let waits = waits.map(|(what, time, machines)| {
        let usd = (0..machines).fold(Usd::ZERO, |sum, _| sum + rate.cost_of(time.duration()));
        format!("{what} for at most {time} ({})", usd.rounded_up())
    });
    Some(format!("{most}. Time without work: {}", waits.join("; ")))
}
