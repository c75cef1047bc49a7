//! One row for a gang: rank 0 stands for all, with their money and their verdict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::gang_jobs::ranks_below;
use crate::app::view::job_summary::{GangShown, RankShown, Summary};
use crate::app::view::next_end::WatchPolicy;
use crate::instance::GpuStatus;
use crate::job::{GangKey, JobState, leader_key, member_key};
use crate::jobdir::{JobDir, JobDirError};
use crate::market::{Usd, UsdPerHour, elapsed};
use crate::policy::gang::gang_verdict::{GangVerdict, RankSight, judge_gang};

/// Puts the ranks of each gang into the row of its rank 0. The order of the rows stays.
pub fn fold_gangs(summaries: Vec<Summary>, now: Timestamp) -> Vec<Summary> {
    let keys: Vec<String> = summaries.iter().map(|summary| summary.job.clone()).collect();
    let leaders: BTreeMap<GangKey<'_>, usize> =
        keys.iter().enumerate().filter_map(|(at, job)| Some((leader_key(job)?, at))).collect();
    let leader_of = |job: &str| {
        let (key, rank) = member_key(job)?;
        Some((*leaders.get(&key)?, rank))
    };
    let mut others: BTreeMap<usize, Vec<(u32, Summary)>> = BTreeMap::new();
    let mut rows: Vec<(usize, Summary)> = Vec::new();
    for (at, summary) in summaries.into_iter().enumerate() {
        match leader_of(&summary.job) {
            Some((leader, rank)) => others.entry(leader).or_default().push((rank, summary)),
            None => rows.push((at, summary)),
        }
    }
    let fold = |(at, leader): (usize, Summary)| match others.remove(&at) {
        Some(mut ranks) => {
            ranks.sort_by_key(|(rank, _)| *rank);
            folded(leader, &ranks, now)
        }
        None => leader,
    };
    rows.into_iter().map(fold).collect()
}

/// The row of a job with all its ranks, for its own page. `summary`: as it was read alone.
///
/// # Errors
/// When the job root does not answer.
pub async fn with_ranks(
    summary: Summary,
    dir: &JobDir,
    now: Timestamp,
) -> Result<Summary, JobDirError> {
    let mut all = vec![summary];
    for job in ranks_below(dir).await.into_iter().filter(|job| job != dir.job()) {
        all.extend(Summary::read(&JobDir::new(Arc::clone(dir.store()), job), now).await?);
    }
    let mut rows = fold_gangs(all, now);
    Ok(rows.swap_remove(0))
}

fn folded(leader: Summary, others: &[(u32, Summary)], now: Timestamp) -> Summary {
    let all = || std::iter::once((0, &leader)).chain(others.iter().map(|(rank, of)| (*rank, of)));
    let sum = |get: &dyn Fn(&Summary) -> Usd| -> Usd { all().map(|(_, of)| get(of)).sum() };
    let most = |get: &dyn Fn(&Summary) -> Option<Usd>| {
        all().try_fold(Usd::ZERO, |sum, (_, of)| Some(sum + get(of)?))
    };
    let rates = all().filter(|(_, of)| !of.state.is_final());
    let rate = rates.filter_map(|(_, of)| of.usd_per_hour).map(UsdPerHour::per_hour).sum();
    let sights = all().filter(|(_, of)| of.state == JobState::Running && of.silence.is_none());
    let sights: Vec<RankSight> = sights.map(|(rank, of)| sight(rank, of, now)).collect();
    let verdict = (!sights.is_empty()).then(|| judge_gang(&sights));
    let reason = verdict.and_then(GangVerdict::sentence);
    let mut attention = leader.attention.clone();
    attention.extend(reason.clone());
    for (rank, of) in others {
        attention.extend(of.attention.iter().map(|text| format!("rank {rank}: {text}")));
    }
    let kept = all().flat_map(|(_, of)| of.kept.clone()).collect();
    let driven_here = match leader.driven_here {
        Some(true) if all().any(|(_, of)| of.driven_here == Some(false)) => Some(false),
        known => known,
    };
    // A rank may still bill when rank 0 has ended.
    let is_over = others.iter().all(|(_, of)| of.state.is_final());
    let state =
        if leader.state.is_final() && !is_over { JobState::Terminating } else { leader.state };
    Summary {
        state,
        usd: sum(&|of| of.usd),
        usd_unheard: sum(&|of| of.usd_unheard),
        usd_estimated: all().any(|(_, of)| of.usd_estimated),
        most_usd: most(&|of| of.most_usd),
        most_job_usd: most(&|of| of.most_job_usd),
        usd_per_hour: leader.usd_per_hour.map(|_| UsdPerHour::new(rate)),
        gang: Some(GangShown {
            verdict: verdict.map(|verdict| verdict.word().to_owned()),
            reason,
            ranks: all().map(|(rank, of)| shown(rank, of)).collect(),
        }),
        attention,
        watch_sentences: all().flat_map(|(_, of)| of.watch_sentences.clone()).collect(),
        idle_usd: most(&|of| of.idle_usd),
        lost_usd: most(&|of| of.lost_usd),
        kept,
        driven_here,
        ..leader
    }
}

fn shown(rank: u32, of: &Summary) -> RankShown {
    RankShown {
        rank,
        job: of.job.clone(),
        state: of.state,
        attempt: of.attempt,
        verdict: of.verdict.clone(),
        step: of.progress.as_ref().and_then(|progress| progress.step),
        gpu_percent: mean(&of.gpus, |gpu| gpu.util_percent),
        cpu_percent: of.cpu_percent,
        usd: of.usd,
        heartbeat_seconds: of.heartbeat_seconds,
    }
}

fn sight(rank: u32, of: &Summary, now: Timestamp) -> RankSight {
    let progress = of.progress.as_ref();
    let power = |gpu: &GpuStatus| Some(gpu.power_watts? / gpu.power_limit_watts?);
    RankSight {
        rank,
        is_idle: of.verdict.as_deref() == Some("idle") || is_soon_idle(of),
        step_age: progress.and_then(|progress| progress.at).map(|at| since(at, now)),
        secs_per_step: progress.and_then(|progress| progress.secs_per_step),
        pace: progress.filter(|at| at.secs_per_step_low.is_some()).and_then(|at| at.secs_per_step),
        works_for: of.working_since.map(|at| since(at, now)),
        gpu_percent: mean(&of.gpus, |gpu| gpu.util_percent),
        power_share: mean(&of.gpus, power),
        cpu_percent: of.cpu_percent,
    }
}

/// At most half of the window that ends it as idle is left.
fn is_soon_idle(of: &Summary) -> bool {
    let end = of.watch_end.as_ref().filter(|end| end.policy == WatchPolicy::Idle);
    end.is_some_and(|end| end.is_soon() || end.quiet.secs_f64() >= end.window.secs_f64() / 2.0)
}

fn since(at: Timestamp, now: Timestamp) -> Duration {
    elapsed(at, now)
}

/// The mean over all GPUs; `None`: one is not known.
fn mean(gpus: &[GpuStatus], get: impl Fn(&GpuStatus) -> Option<f64>) -> Option<f64> {
    let all: Vec<f64> = gpus.iter().map(get).collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(job: &str, usd: &str, verdict: &str) -> Summary {
        Summary {
            job: job.into(),
            usd: usd.parse().unwrap(),
            usd_per_hour: Some(UsdPerHour::new("$1".parse().unwrap())),
            verdict: Some(verdict.into()),
            ..Summary::example(JobState::Running)
        }
    }

    #[test]
    fn gang_is_one_row_with_the_money_of_its_ranks() {
        let all = vec![
            summary("other-333333", "$5", "busy"),
            summary("g-r1-222222", "$2", "idle"),
            summary("g-222222", "$1", "idle"),
            summary("g-r2-444444", "$7", "busy"),
        ];
        let rows = fold_gangs(all, Timestamp::UNIX_EPOCH);
        let jobs: Vec<&str> = rows.iter().map(|row| row.job.as_str()).collect();
        assert_eq!(jobs, ["other-333333", "g-222222", "g-r2-444444"]);
        let gang = &rows[1];
        assert_eq!(gang.usd, "$3".parse().unwrap());
        assert_eq!(gang.usd_per_hour.map(|rate| rate.to_string()), Some("$2.00/h".to_owned()));
        let shown = gang.gang.as_ref().unwrap();
        assert_eq!(shown.verdict.as_deref(), Some("idle"));
        assert_eq!(shown.ranks[1].line(), "rank 1: running, idle, $2.00");
        assert!(gang.attention.contains(&"all ranks are idle".to_owned()));
        assert!(rows[0].gang.is_none());
    }

    /// Rank 1 runs in a new machine, in a job that is an hour old.
    #[test]
    fn replaced_rank_with_slow_first_steps_is_no_straggler() {
        let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(1);
        let rank = |job: &str, secs_per_step: f64, minutes: i64| {
            let progress = crate::job::Progress {
                secs_per_step: Some(secs_per_step),
                secs_per_step_low: Some(secs_per_step),
                at: Some(now),
                ..crate::job::Progress::default()
            };
            let working_since = Some(now - jiff::SignedDuration::from_mins(minutes));
            Summary { progress: Some(progress), working_since, ..summary(job, "$1", "busy") }
        };
        let verdict = |minutes: i64| {
            let all = vec![rank("g-222222", 1.0, 55), rank("g-r1-222222", 2.0, minutes)];
            fold_gangs(all, now)[0].gang.as_ref().and_then(|gang| gang.verdict.clone())
        };
        assert_eq!(verdict(2).as_deref(), Some("busy"));
        assert_eq!(verdict(20).as_deref(), Some("straggler"));
    }

    #[test]
    fn gang_whose_rank_0_ended_is_open_while_a_rank_bills() {
        let mut leader = summary("g-222222", "$1", "busy");
        leader.state = JobState::Succeeded;
        let rank = summary("g-r1-222222", "$2", "busy");
        let state = |all: Vec<Summary>| fold_gangs(all, Timestamp::UNIX_EPOCH)[0].state;
        assert_eq!(state(vec![leader.clone(), rank.clone()]), JobState::Terminating);
        let ended = Summary { state: JobState::Succeeded, ..rank };
        assert_eq!(state(vec![leader, ended]), JobState::Succeeded);
    }
}
