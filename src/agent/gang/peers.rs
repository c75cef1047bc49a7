//! The view of a rank on the others: heartbeats that stop, notices, jobs that have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rank_state::RankState;
use crate::job::{AttemptPhase, EpochOver, Formation, Wish};
use crate::jobdir::JobDirError;
use crate::market::Span;
use crate::policy::gang::gang_verdict::{is_long_quiet, must_be_kept};

/// A rank without a heartbeat for this long is lost. An agent sends one every 15 seconds, so three
/// are missing. Shorter takes a slow store for a dead machine; longer pays for the others.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(45);

/// Each rank watches so many of the ranks after it. More cost calls; fewer leave a rank unwatched
/// when its neighbours are lost with it.
const WATCHED_MAX: usize = 4;

/// A quiet rank is kept so long at a time. Longer bills longer after the whole gang is idle;
/// shorter writes more requests.
const KEPT_FOR: Span = Span::from_secs(300);

/// It is asked for again a minute before its end.
const KEEP_AGAIN: Duration = Duration::from_secs(240);

/// Looks between two checks of it, at one a second. More may come after the end of a short idle
/// window; fewer cost reads.
pub(super) const KEEP_LOOKS: u32 = 30;

/// The heartbeats of the ranks that this one watches.
#[derive(Debug, Default)]
pub(super) struct PeerWatch {
    watched: Vec<(u32, crate::job::AttemptNo)>,
    seen: BTreeMap<u32, PeerBeat>,
    turn: usize,
}

#[derive(Clone, Copy, Debug)]
struct PeerBeat {
    sequence: u64,
    /// By the steady clock of this machine, when it last changed.
    changed: Duration,
}

impl PeerWatch {
    pub fn of(formation: &Formation, rank: u32) -> Self {
        let node = formation.node_of(rank).unwrap_or_default() as usize;
        let members = &formation.members;
        let others = (1..members.len()).map(|step| &members[(node + step) % members.len()]);
        let watched = others.take(WATCHED_MAX).map(|peer| (peer.rank, peer.attempt)).collect();
        PeerWatch { watched, ..PeerWatch::default() }
    }

    /// Every rank of the epoch, not only the neighbours.
    pub fn all_of(formation: &Formation, rank: u32) -> Self {
        let others = formation.members.iter().filter(|member| member.rank != rank);
        let watched = others.map(|peer| (peer.rank, peer.attempt)).collect();
        PeerWatch { watched, ..PeerWatch::default() }
    }
}

/// The state of another rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PeerSight {
    Alive,
    /// Its heartbeat has not changed for so long.
    Silent(Duration),
    /// Its machine has a notice of an interruption.
    Leaving(String),
}

impl RankState {
    /// Looks at the next rank in turn.
    pub(super) async fn look_at_peer(
        &self,
        watch: &mut PeerWatch,
    ) -> Result<Option<(u32, PeerSight)>, JobDirError> {
        if watch.watched.is_empty() {
            return Ok(None);
        }
        let (rank, attempt) = watch.watched[watch.turn % watch.watched.len()];
        watch.turn += 1;
        let status = self.job_of(rank).status(attempt).await?;
        let now = self.ports.clock.mono();
        let sequence = status.as_ref().map_or(0, |status| status.sequence);
        let beat = watch.seen.entry(rank).or_insert(PeerBeat { sequence, changed: now });
        if beat.sequence != sequence {
            *beat = PeerBeat { sequence, changed: now };
        }
        if let Some(notice) = status.as_ref().and_then(|status| status.notice.as_ref()) {
            return Ok(Some((
                rank,
                PeerSight::Leaving(format!("has a notice: {:?}", notice.kind)),
            )));
        }
        let silent = now.saturating_sub(beat.changed);
        let sight = if silent >= LOST_AFTER { PeerSight::Silent(silent) } else { PeerSight::Alive };
        Ok(Some((rank, sight)))
    }

    /// A rank may be quiet because it waits for another one. Its agent must not end it then.
    /// `asked`: when it was asked for last.
    pub(super) async fn keep_while_others_work(
        &self,
        formation: &Formation,
        asked: &mut Option<Duration>,
    ) {
        let now = self.ports.clock.mono();
        if asked.is_some_and(|asked| now.saturating_sub(asked) < KEEP_AGAIN) {
            return;
        }
        let own = self.own_job().status(self.me.attempt).await.ok().flatten();
        let Some(own) = own.filter(is_long_quiet) else { return };
        let mut others = Vec::new();
        for member in formation.members.iter().filter(|member| member.rank != self.rank()) {
            others.extend(self.job_of(member.rank).status(member.attempt).await.ok().flatten());
        }
        if must_be_kept(&own, &others) {
            *asked = Some(now);
            self.ask(self.rank(), Wish::Keep { time: KEPT_FOR }).await;
        }
    }

    /// Whether the agent of this rank is ending it, for another reason than a failure.
    pub(super) async fn is_leaving(&self) -> bool {
        if self.has_notice() {
            return true;
        }
        let status = self.own_job().status(self.me.attempt).await.ok().flatten();
        status.is_some_and(|status| {
            matches!(status.phase, AttemptPhase::Draining | AttemptPhase::Ended)
        })
    }

    /// Why a failed epoch may have been a lost machine: the evidence of the next minute. `None`:
    /// all ranks live, so the failure was a failure.
    pub(super) async fn find_lost(&self, formation: &Formation, over: &EpochOver) -> Option<u32> {
        let mut watch = PeerWatch::all_of(formation, self.rank());
        let mut first: BTreeMap<u32, u64> = BTreeMap::new();
        let mut alive: Vec<u32> = Vec::new();
        let count = watch.watched.len();
        let until = self.ports.clock.mono() + LOST_AFTER + LOST_AFTER;
        while alive.len() < count && self.ports.clock.mono() < until {
            if let Some(rank) = self.find_replaced(formation, over).await {
                return Some(rank);
            }
            match self.look_at_peer(&mut watch).await {
                Ok(Some((rank, PeerSight::Silent(_) | PeerSight::Leaving(_)))) => {
                    return Some(rank);
                }
                Ok(Some((rank, PeerSight::Alive))) => {
                    let sequence = watch.seen.get(&rank).map_or(0, |beat| beat.sequence);
                    let before = *first.entry(rank).or_insert(sequence);
                    if sequence > before && !alive.contains(&rank) {
                        alive.push(rank);
                    }
                }
                Ok(None) => return None,
                Err(_) => {}
            }
            // One failed rank has an outcome soon, and its heartbeat ends with it.
            if let Ok(Some(_)) = self.dir.end().await {
                return None;
            }
            self.pause().await;
        }
        None
    }

    /// A rank that is ready for the next epoch in another attempt.
    async fn find_replaced(&self, formation: &Formation, over: &EpochOver) -> Option<u32> {
        let next = self.dir.ready(over.epoch + 1).await.ok()?;
        let is_new = |member: &&crate::job::GangReady| {
            formation.member(member.rank).is_some_and(|before| before.attempt != member.attempt)
        };
        next.iter().find(is_new).map(|member| member.rank)
    }

    /// Whether the cloud had no machine for a rank. Its job goes on, and may get one later.
    pub(super) async fn has_no_machine(&self, rank: u32) -> Result<bool, JobDirError> {
        let dir = self.job_of(rank);
        let Some(last) = dir.attempts().await?.pop() else { return Ok(false) };
        Ok(dir.settled(last).await?.is_some_and(|settled| !settled.was_launched()))
    }

    /// How the job of a rank has ended, if it does not go on in another attempt.
    pub(super) async fn has_ended(&self, rank: u32) -> Result<Option<String>, JobDirError> {
        let dir = self.job_of(rank);
        if let Some(receipt) = dir.receipt().await? {
            return Ok(Some(format!("has ended: {}", receipt.told())));
        }
        let Some(last) = dir.attempts().await?.pop() else { return Ok(None) };
        let outcome = dir.outcome(last).await?;
        let outcome = outcome.filter(|outcome| !outcome.because.goes_on());
        Ok(outcome.map(|outcome| format!("has ended: {}", outcome.because.word())))
    }
}
