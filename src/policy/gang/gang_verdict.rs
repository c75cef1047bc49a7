//! The verdict on a gang as a whole, from the newest heartbeat of each rank.
//!
//! A rank that waits for the others looks idle or busy on its own. So only all ranks together show
//! whether the gang works.

use std::time::Duration;

use crate::instance::Status;
use crate::job::{AttemptPhase, Reason};

/// No rank has made a step for this long, or for ten of its steps: the gang hangs. As for one
/// machine, a shorter time takes a long validation for a hang.
const STILL_MIN: Duration = Duration::from_secs(20 * 60);
const STILL_STEPS: f64 = 10.0;

/// A GPU below this does nothing.
const QUIET_UTIL: f64 = 10.0;

/// A processor share below this, in percent of one core, does nothing.
const QUIET_CPU: f64 = 5.0;

/// A GPU that only waits for another rank shows full use and draws little power.
const BURN_UTIL: f64 = 50.0;
const LOW_POWER: f64 = 0.45;

/// A rank that takes so many times the step time of the others slows the gang down.
const SLOW: f64 = 1.5;

/// The step time of a young rank has its first, slow steps. So have the others then: an epoch
/// begins with its last rank.
const SLOW_AFTER: Duration = Duration::from_secs(10 * 60);

/// One rank, by its newest heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankSight {
    pub rank: u32,
    /// The verdict of its own agent is `idle`.
    pub is_idle: bool,
    /// Since its step last changed. `None`: it reports no steps.
    pub step_age: Option<Duration>,
    pub secs_per_step: Option<f64>,
    /// The median of several steps. `None`: there were too few.
    pub pace: Option<f64>,
    /// Since the workload of its last attempt was first seen working.
    pub works_for: Option<Duration>,
    /// The mean of its GPUs.
    pub gpu_percent: Option<f64>,
    /// The power of its GPUs beside their limit.
    pub power_share: Option<f64>,
    /// In percent of one core.
    pub cpu_percent: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GangVerdict {
    /// Too little is known.
    Unknown,
    Working,
    /// All ranks are idle.
    Idle,
    /// No rank goes on. The rank that is quiet while the others wait is the odd one.
    Hung {
        odd: Option<u32>,
    },
    /// One rank takes so many times the step time of the others.
    Straggler {
        rank: u32,
        times: f64,
    },
}

/// `ranks`: those that work together now.
pub fn judge_gang(ranks: &[RankSight]) -> GangVerdict {
    if ranks.is_empty() {
        return GangVerdict::Unknown;
    }
    if ranks.iter().all(|rank| rank.is_idle) {
        return GangVerdict::Idle;
    }
    let odd = odd_rank(ranks);
    if is_still(ranks) || odd.is_some_and(|odd| others_wait(ranks, odd)) {
        return GangVerdict::Hung { odd };
    }
    if let Some((rank, times)) = straggler(ranks) {
        return GangVerdict::Straggler { rank, times };
    }
    GangVerdict::Working
}

impl GangVerdict {
    pub fn word(self) -> &'static str {
        match self {
            GangVerdict::Unknown => "unknown",
            GangVerdict::Working => "busy",
            GangVerdict::Idle => "idle",
            GangVerdict::Hung { .. } => "hung",
            GangVerdict::Straggler { .. } => "straggler",
        }
    }

    /// For a person; `None`: there is nothing to do.
    pub fn sentence(self) -> Option<String> {
        match self {
            GangVerdict::Unknown | GangVerdict::Working => None,
            GangVerdict::Idle => Some("all ranks are idle".to_owned()),
            GangVerdict::Hung { odd: Some(rank) } => Some(format!(
                "the gang hangs: rank {rank} does nothing, and the others wait for it"
            )),
            GangVerdict::Hung { odd: None } => {
                Some("the gang hangs: no rank makes a step".to_owned())
            }
            GangVerdict::Straggler { rank, times } => Some(format!(
                "rank {rank} slows the gang: a step takes it {times:.1} times as long as the others"
            )),
        }
    }
}

/// Whether a rank that is quiet must not end as idle: another rank works, and needs it.
pub fn must_be_kept(own: &Status, others: &[Status]) -> bool {
    is_long_quiet(own) && others.iter().any(works)
}

fn works(status: &Status) -> bool {
    status.phase == AttemptPhase::Running && status.verdict == "busy" && !is_long_quiet(status)
}

/// Half of the window that ends a machine as idle has passed.
pub fn is_long_quiet(status: &Status) -> bool {
    status.verdict == "idle" || status.reason.as_ref().is_some_and(is_long_quiet_by)
}

/// The same, by the reason of the idle rule. The reason of another rule says nothing of it.
pub fn is_long_quiet_by(reason: &Reason) -> bool {
    let clock = reason.clock().filter(|_| reason.policy == "idle");
    clock.is_some_and(|(quiet, window)| quiet >= window / 2.0)
}

/// Every rank that reports steps has stopped, and at least one reports them.
fn is_still(ranks: &[RankSight]) -> bool {
    let stopped = |rank: &RankSight| {
        // Without a pace, the number may be from a single log line.
        let (age, secs) = (rank.step_age?, rank.secs_per_step?);
        let long = Duration::try_from_secs_f64(secs * STILL_STEPS);
        Some(age >= long.unwrap_or(Duration::MAX).max(STILL_MIN))
    };
    let mut known = ranks.iter().filter_map(stopped).peekable();
    known.peek().is_some() && known.all(|is_stopped| is_stopped)
}

/// The only rank that does nothing.
fn odd_rank(ranks: &[RankSight]) -> Option<u32> {
    let mut quiet = ranks.iter().filter(|rank| is_quiet(rank));
    let first = quiet.next()?;
    (ranks.len() > 1 && quiet.next().is_none()).then_some(first.rank)
}

fn is_quiet(rank: &RankSight) -> bool {
    match (rank.gpu_percent, rank.cpu_percent) {
        _ if rank.is_idle => true,
        (Some(gpu), _) => gpu < QUIET_UTIL,
        (None, Some(cpu)) => cpu < QUIET_CPU,
        (None, None) => false,
    }
}

/// The others use their GPUs and draw little power. Its own agent has watched the odd one for a
/// whole window.
fn others_wait(ranks: &[RankSight], odd: u32) -> bool {
    let waits = |rank: &RankSight| {
        rank.gpu_percent.is_some_and(|util| util >= BURN_UTIL)
            && rank.power_share.is_some_and(|share| share < LOW_POWER)
    };
    let is_watched = ranks.iter().any(|rank| rank.rank == odd && rank.is_idle);
    is_watched && ranks.iter().filter(|rank| rank.rank != odd).all(waits)
}

fn straggler(ranks: &[RankSight]) -> Option<(u32, f64)> {
    let is_young = |rank: &RankSight| match rank.works_for {
        Some(time) => time < SLOW_AFTER,
        // A parameter server reports no work.
        None => rank.pace.is_some(),
    };
    let mut paces: Vec<(u32, f64)> =
        ranks.iter().filter_map(|rank| Some((rank.rank, rank.pace?))).collect();
    paces.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (rank, slowest) = paces.pop()?;
    let median = paces.get(paces.len() / 2).map(|(_, pace)| *pace).filter(|pace| *pace > 0.0)?;
    let times = slowest / median;
    (times > SLOW && !ranks.iter().any(is_young)).then_some((rank, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(rank: u32) -> RankSight {
        RankSight {
            rank,
            works_for: Some(Duration::from_secs(3600)),
            secs_per_step: Some(1.0),
            pace: Some(1.0),
            step_age: Some(Duration::from_secs(1)),
            gpu_percent: Some(95.0),
            power_share: Some(0.9),
            ..RankSight::default()
        }
    }

    fn status(verdict: &str, quiet: f64) -> Status {
        let reason = Reason::new(jiff::Timestamp::UNIX_EPOCH, "idle", verdict, "quiet")
            .with("quiet_secs", quiet)
            .with("window_secs", 900.0);
        let bare = serde_json::json!({ "format": 1, "instance": "i", "sequence": 1,
            "at": "2026-01-01T00:00:00Z", "phase": "running", "started": "2026-01-01T00:00:00Z",
            "verdict": verdict, "useful": "1s", "idle": "0s" });
        Status { reason: Some(reason), ..serde_json::from_value(bare).unwrap() }
    }

    #[test]
    fn quiet_rank_is_kept_while_another_works() {
        let (quiet, busy) = (status("busy", 460.0), status("busy", 20.0));
        assert!(must_be_kept(&quiet, &[quiet.clone(), busy.clone()]));
        assert!(!must_be_kept(&quiet, &[quiet.clone(), status("idle", 900.0)]), "all are quiet");
        assert!(!must_be_kept(&busy, std::slice::from_ref(&busy)));
        assert!(!must_be_kept(&quiet, &[]));
    }

    #[test]
    fn gang_is_idle_only_when_all_its_ranks_are() {
        let idle = |rank| RankSight { is_idle: true, gpu_percent: Some(0.0), ..sight(rank) };
        assert_eq!(judge_gang(&[idle(0), idle(1)]), GangVerdict::Idle);
        assert_eq!(judge_gang(&[sight(0), idle(1)]), GangVerdict::Working);
        assert_eq!(judge_gang(&[]), GangVerdict::Unknown);
    }

    #[test]
    fn quiet_rank_among_ranks_that_wait_is_named() {
        let waits = |rank| RankSight { power_share: Some(0.3), step_age: None, ..sight(rank) };
        let quiet = RankSight { is_idle: true, gpu_percent: Some(0.0), step_age: None, ..sight(2) };
        let hung = GangVerdict::Hung { odd: Some(2) };
        assert_eq!(judge_gang(&[waits(0), waits(1), quiet]), hung);
        let at_work = RankSight { power_share: Some(0.9), ..waits(1) };
        assert_eq!(judge_gang(&[waits(0), at_work, quiet]), GangVerdict::Working);
        assert!(hung.sentence().unwrap().contains("rank 2 does nothing"));
    }

    #[test]
    fn gang_without_steps_hangs_after_twenty_minutes() {
        let since = |rank, secs| RankSight {
            step_age: Some(Duration::from_secs(secs)),
            cpu_percent: Some(if rank == 1 { 0.1 } else { 90.0 }),
            gpu_percent: None,
            ..sight(rank)
        };
        assert_eq!(
            judge_gang(&[since(0, 1300), since(1, 1300)]),
            GangVerdict::Hung { odd: Some(1) }
        );
        assert_eq!(judge_gang(&[since(0, 1300), since(1, 60)]), GangVerdict::Working);
        let slow = |rank| RankSight { secs_per_step: Some(300.0), ..since(rank, 1300) };
        assert_eq!(judge_gang(&[slow(0), slow(1)]), GangVerdict::Working, "ten steps are longer");
        let none = |rank| RankSight { secs_per_step: None, ..since(rank, 1300) };
        assert_eq!(judge_gang(&[none(0), none(1)]), GangVerdict::Working, "no steps are known");
    }

    #[test]
    fn straggler_is_named_after_ten_minutes() {
        let slow = RankSight { pace: Some(1.8), ..sight(1) };
        let GangVerdict::Straggler { rank, times } = judge_gang(&[sight(0), slow, sight(2)]) else {
            panic!("no straggler");
        };
        assert!(rank == 1 && (times - 1.8).abs() < 1e-9);
        let young = RankSight { works_for: Some(Duration::from_secs(500)), ..slow };
        assert_eq!(judge_gang(&[sight(0), young]), GangVerdict::Working);
        let replaced = RankSight { works_for: Some(Duration::from_secs(60)), ..sight(0) };
        assert_eq!(judge_gang(&[replaced, slow]), GangVerdict::Working, "a new epoch is young");
        let first_step = RankSight { secs_per_step: Some(60.0), pace: None, ..sight(1) };
        assert_eq!(judge_gang(&[sight(0), first_step]), GangVerdict::Working, "one report");
        let near = RankSight { pace: Some(1.4), ..sight(1) };
        assert_eq!(judge_gang(&[sight(0), near]), GangVerdict::Working);
    }
}
