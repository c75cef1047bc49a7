//! The result of a gang: each rank with its end and cost, and the epochs with their causes.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::gang_jobs::all_ranks;
use super::same_output::print_the_same;
use crate::app::text::{counted, local_time};
use crate::app::view::job_summary::Summary;
use crate::job::{
    EpochCause, EpochRecord, GangEnd, GangEndCause, GangMember, GangReady, JobId, JobState,
    Receipt, ResolvedSpec,
};
use crate::jobdir::{GangDir, JobDir, JobDirError};
use crate::market::{Span, Usd, UsdPerHour};
use crate::policy::gang::epoch_decision::is_interruption;

/// A gang for a person: its ranks and epochs.
#[derive(Clone, Debug, Serialize)]
pub struct GangReport {
    pub ranks: Vec<RankReport>,
    pub epochs: Vec<EpochReport>,
    /// Why the gang is over; `None`: it is not.
    pub end: Option<String>,
    /// Rank 0 and rank 1 print the same lines.
    pub same_output: bool,
    /// The rank other than 0 whose log says why it failed.
    #[serde(skip)]
    pub failed_rank: Option<u32>,
    pub total_usd: Usd,
    /// The wait of ranks for the first formation.
    pub assembly: WaitCost,
    /// The wait for a replacement.
    pub held: WaitCost,
    /// The wait of finished ranks for the others.
    pub tail: WaitCost,
}

/// Time for which machines billed without work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitCost {
    /// Summed over the machines.
    pub time: Span,
    pub usd: Usd,
}

#[derive(Clone, Debug, Serialize)]
pub struct RankReport {
    pub rank: u32,
    pub role: &'static str,
    pub job: JobId,
    pub state: String,
    pub attempts: usize,
    pub usd: Usd,
    /// The price of its last machine. `None`: it had none.
    pub usd_per_hour: Option<UsdPerHour>,
    /// When its job ended.
    #[serde(skip)]
    pub ended: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize)]
pub struct EpochReport {
    pub epoch: u32,
    pub machines: usize,
    pub formed: Option<Timestamp>,
    pub over: Option<Timestamp>,
    /// Why it is over, with the rank.
    pub why: Option<String>,
    pub is_interruption: bool,
}

impl GangReport {
    /// `None`: its job has one machine.
    ///
    /// # Errors
    /// When the job root does not answer.
    pub async fn read(dir: &JobDir, now: Timestamp) -> Result<Option<GangReport>, JobDirError> {
        let spec: Option<ResolvedSpec> = dir.spec().await?;
        let Some(member) = spec.as_ref().and_then(|spec| spec.member()) else { return Ok(None) };
        let gang = GangDir::new(Arc::clone(dir.store()), member.leader().clone());
        let mut ranks = Vec::new();
        for (rank, of) in all_ranks(dir, member).iter().enumerate() {
            ranks.push(rank_report(member, rank, of, now).await?);
        }
        let (mut epochs, mut records) = (Vec::new(), Vec::new());
        let rates = ranks.iter().map(|rank: &RankReport| rank.usd_per_hour).collect();
        let ends = ranks.iter().map(|rank: &RankReport| rank.ended).collect();
        let mut times = EpochTimes { rates, ends, ..EpochTimes::default() };
        let end = gang.end().await?;
        for epoch in gang.epochs().await? {
            let record = gang.record(epoch).await?;
            times.note(&gang, epoch, &record, end.as_ref()).await?;
            records.push((epoch, record));
        }
        for (index, (epoch, record)) in records.iter().enumerate() {
            let later = records.get(index + 1).and_then(|(_, next)| next.formation.as_ref());
            let later = later.map_or(&[][..], |formed| formed.members.as_slice());
            epochs.push(epoch_report(*epoch, record, later));
        }
        let total_usd = ranks.iter().map(|rank| rank.usd).sum();
        let failed = end.as_ref().filter(|end| end.because != GangEndCause::Done);
        let failed_rank = failed.and_then(|end| {
            let last = records.last().and_then(|(_, record)| record.over.as_ref());
            let over = last.filter(|over| over.because == EpochCause::Failed);
            end.missing.first().copied().or(over.map(|over| over.rank))
        });
        let has_log =
            |rank: &u32| *rank > 0 && ranks.get(*rank as usize).is_some_and(|of| of.attempts > 0);
        let failed_rank = failed_rank.filter(has_log);
        let end = end.map(|end| end.text);
        let EpochTimes { assembly, held, tail, .. } = times;
        Ok(Some(GangReport {
            ranks,
            epochs,
            end,
            same_output: false,
            failed_rank,
            total_usd,
            assembly,
            held,
            tail,
        }))
    }

    /// As [`Self::read`], and also whether two ranks print the same: it reads their logs.
    ///
    /// # Errors
    /// When the job root does not answer.
    pub async fn with_output(
        dir: &JobDir,
        now: Timestamp,
    ) -> Result<Option<GangReport>, JobDirError> {
        let Some(mut report) = GangReport::read(dir, now).await? else { return Ok(None) };
        if let [first, second, ..] = report.ranks.as_slice() {
            let of = |rank: &RankReport| JobDir::new(Arc::clone(dir.store()), rank.job.clone());
            report.same_output = print_the_same(&of(first), &of(second)).await;
        }
        Ok(Some(report))
    }

    /// Lines for a person.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "gang of {}: {} in all",
            counted(self.ranks.len() as u64, "machine"),
            self.total_usd
        )];
        for rank in &self.ranks {
            let role =
                if rank.role == "worker" { String::new() } else { format!(" ({})", rank.role) };
            lines.push(format!(
                "  rank {}{role}: {}, {}, {} [{}]",
                rank.rank,
                rank.state,
                counted(rank.attempts as u64, "attempt"),
                rank.usd,
                rank.job
            ));
        }
        lines.extend(self.epochs.iter().map(EpochReport::line));
        lines.extend(self.time_lines().iter().map(|line| format!("  {line}")));
        if self.same_output {
            lines.push(
                "  ranks 0 and 1 print the same: if the script does not divide the work by its rank, each machine does all of it"
                    .to_owned(),
            );
        }
        lines.extend(self.end.iter().map(|end| format!("  over: {end}")));
        if let Some((rank, first)) = self.failed_rank.zip(self.ranks.first()) {
            lines.push(format!("  `lamp logs --rank {rank} {}` shows what it printed", first.job));
        }
        lines
    }
}

impl GangReport {
    /// Whether rank 0 has ended, and another rank has not.
    pub fn runs_without_first(&self) -> bool {
        let mut over = self.ranks.iter().map(|rank| rank.ended.is_some());
        over.next() == Some(true) && over.any(|over| !over)
    }

    /// The time and money without work, for a person.
    pub fn time_lines(&self) -> Vec<String> {
        let times = [
            (self.assembly, "until the ranks were together"),
            (self.held, "held for a replacement"),
            (self.tail, "waited for other ranks to finish"),
        ];
        let times = times.iter().filter(|(wait, _)| wait.time >= Span::from_secs(1));
        times
            .map(|(wait, what)| format!("{} {what}, over all machines: {}", wait.time, wait.usd))
            .collect()
    }
}

impl EpochReport {
    pub fn line(&self) -> String {
        let (epoch, machines) = (self.epoch, counted(self.machines as u64, "machine"));
        let formed = match self.formed {
            Some(at) => format!("formed at {} with {machines}", local_time(at)),
            None => "not formed".to_owned(),
        };
        let over = match (&self.why, self.over) {
            (Some(why), Some(at)) => format!(", over at {}: {why}", local_time(at)),
            _ => String::new(),
        };
        format!("  epoch {epoch} {formed}{over}")
    }
}

async fn rank_report(
    member: &GangMember,
    rank: usize,
    dir: &JobDir,
    now: Timestamp,
) -> Result<RankReport, JobDirError> {
    let receipt: Option<Receipt> = dir.receipt().await?;
    let seat = &member.seats[rank];
    let (state, attempts, usd) = match &receipt {
        Some(receipt) => (receipt.told(), receipt.attempts.len(), receipt.total_usd),
        None => match Summary::open(dir, now).await? {
            Some(summary) => (summary.state_told(), dir.attempts().await?.len(), summary.usd),
            None => (JobState::Submitted.word().to_owned(), 0, Usd::ZERO),
        },
    };
    let last = dir.attempts().await?.pop();
    let plan = match last {
        Some(last) => dir.plan(last).await?,
        None => None,
    };
    Ok(RankReport {
        rank: u32::try_from(rank).unwrap_or(u32::MAX),
        role: seat.role.word(),
        job: seat.job.clone(),
        state,
        attempts,
        usd,
        usd_per_hour: plan.map(|plan| plan.offer.hourly()),
        ended: receipt.map(|receipt| receipt.ended),
    })
}

fn epoch_report(epoch: u32, record: &EpochRecord, later: &[GangReady]) -> EpochReport {
    let over = record.over.as_ref();
    let is_interruption = over.is_some_and(|over| is_interruption(record, over, later));
    let is_hidden = is_interruption && over.is_some_and(|over| over.because == EpochCause::Failed);
    let lost = if is_hidden { ", because a machine was lost" } else { "" };
    EpochReport {
        epoch,
        machines: record.formation.as_ref().map_or(0, |formed| formed.members.len()),
        formed: record.formation.as_ref().map(|formed| formed.at),
        over: over.map(|over| over.at),
        why: over.map(|over| format!("{}{lost}", over.text)),
        is_interruption,
    }
}

/// How long machines billed without work, summed over the machines.
#[derive(Default)]
struct EpochTimes {
    /// By rank.
    rates: Vec<Option<UsdPerHour>>,
    ends: Vec<Option<Timestamp>>,
    assembly: WaitCost,
    held: WaitCost,
    tail: WaitCost,
}

impl EpochTimes {
    async fn note(
        &mut self,
        gang: &GangDir,
        epoch: u32,
        record: &EpochRecord,
        end: Option<&GangEnd>,
    ) -> Result<(), JobDirError> {
        let ready = gang.ready(epoch).await?;
        let until = record.formation.as_ref().map(|formed| formed.at);
        let until = until.or(record.over.as_ref().map(|over| over.at)).or(end.map(|end| end.at));
        if let Some(until) = until {
            let waits = ready.iter().map(|member| (member.rank, member.at));
            let cost = self.cost_of(waits, until);
            let wait = if epoch == 1 { &mut self.assembly } else { &mut self.held };
            wait.add(cost);
        }
        let is_done = |over: &crate::job::EpochOver| over.because == EpochCause::Done;
        let over = record.over.as_ref().map(|over| over.at).or(end.map(|end| end.at));
        if let Some(over) = over.filter(|_| record.over.as_ref().is_none_or(is_done)) {
            let marks = gang.done_marks(epoch).await?;
            let cost = self.cost_of(marks.iter().map(|mark| (mark.rank, mark.at)), over);
            self.tail.add(cost);
        }
        Ok(())
    }

    /// `waits`: each rank, and since when it waited. It ends with its machine at the latest.
    fn cost_of(&self, waits: impl Iterator<Item = (u32, Timestamp)>, until: Timestamp) -> WaitCost {
        let mut all = WaitCost::default();
        for (rank, since) in waits {
            let end = self.ends.get(rank as usize).copied().flatten();
            let time = between(since, end.map_or(until, |end| end.min(until)));
            let rate = self.rates.get(rank as usize).copied().flatten();
            let usd = rate.map_or(Usd::ZERO, |rate| rate.cost_of(time.duration()));
            all.add(WaitCost { time, usd });
        }
        all
    }
}

impl WaitCost {
    fn add(&mut self, more: WaitCost) {
        self.time = Span::from_duration(self.time.duration() + more.time.duration());
        self.usd += more.usd;
    }
}

fn between(from: Timestamp, to: Timestamp) -> Span {
    Span::from_secs(crate::market::elapsed(from, to).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_cost_the_price_of_each_machine() {
        let rate = |usd: &str| Some(UsdPerHour::new(usd.parse().unwrap()));
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let rates = vec![rate("$1"), rate("$3"), None];
        // A wait ends with its machine.
        let ends = vec![None, Some(at(50)), Some(at(90))];
        let times = EpochTimes { rates, ends, ..Default::default() };
        let since = [(0, at(30)), (1, at(30)), (2, at(50))];
        let cost = times.cost_of(since.into_iter(), at(60));
        assert_eq!(cost.time, Span::from_secs(3600));
        assert_eq!(cost.usd, "$1.5".parse().unwrap());
    }
}
