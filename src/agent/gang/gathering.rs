//! How a rank comes to an epoch: it says that it is ready, and waits until the epoch is formed.

use std::time::Duration;

use super::rank_state::RankState;
use super::shared_checkpoint::UPLOADED_WITHIN;
use crate::job::{
    CheckpointNo, EpochCause, EpochRecord, Formation, GangEnd, GangEndCause, GangReady, GangSaves,
    RECORD_FORMAT, Wish,
};
use crate::jobdir::JobDirError;
use crate::market::Span;
use crate::policy::gang::epoch_decision::{
    EpochBudget, GatherFacts, GatherVerdict, judge_budget, judge_gather, missing_ranks,
};

/// A look at the job of one missing rank, every so many looks.
const MISSING_LOOK_EVERY: u32 = 5;

/// How long a rank that joins a smaller gang waits for its checkpoint. Longer keeps a paid machine
/// waiting; shorter throws away what the others did since their last checkpoint.
const SAVE_WITHIN: Duration = Duration::from_secs(60);

/// A rank is kept so much longer than it waits: it uploads its checkpoint first, and reads the
/// records of the others at the end. Shorter ends it as idle before its wait is over.
const KEEP_MORE: Duration = UPLOADED_WITHIN.saturating_add(Duration::from_secs(120));

/// The result of the wait.
pub(super) enum Gathered {
    Formed(Formation),
    /// This epoch will not form: another one will.
    Superseded,
    Ended(GangEnd),
    ToldToEnd,
}

impl RankState {
    /// The epoch to be ready for: a new one, or one that is not formed yet.
    pub(super) async fn open_epoch(&self) -> u32 {
        loop {
            let last = self.insist("the epochs", || self.dir.epochs()).await.pop();
            let Some(last) = last.filter(|last| *last > 0) else { return 1 };
            let record = self.insist("an epoch", || self.dir.record(last)).await;
            if record.over.is_some() {
                return last + 1;
            }
            let own = self.insist("an epoch", || self.dir.ready_rank(last, self.rank())).await;
            match (&record.formation, own) {
                (None, None) => return last,
                (None, Some(own)) if own.start == self.me.start => return last,
                // An earlier start of this rank was there: a machine was lost.
                (None, Some(_)) => self.began_again(last).await,
                (Some(formed), _) if formed.member(self.rank()).is_some() => {
                    self.began_again(last).await;
                }
                (Some(_), _) => self.join_smaller(last).await,
            }
        }
    }

    async fn began_again(&self, epoch: u32) {
        let text = format!("rank {} began again in attempt {}", self.rank(), self.me.attempt);
        let mark = self.mark(self.rank());
        self.insist("an epoch", || self.dir.create_lost(epoch, &mark)).await;
        self.end_epoch(epoch, self.rank(), EpochCause::Lost, None, &text).await;
    }

    /// The others work without this rank. They save first, and then form anew with it.
    async fn join_smaller(&self, epoch: u32) {
        let leader = self.leader();
        let newest =
            || async { leader.checkpoint_numbers().await.ok().and_then(|all| all.last().copied()) };
        let before = newest().await;
        if self.resolved.spec.checkpoint.is_some() || self.member.reads.is_some() {
            self.ask(0, Wish::Checkpoint).await;
            let until = self.ports.clock.mono() + SAVE_WITHIN;
            while newest().await <= before && self.ports.clock.mono() < until {
                self.pause().await;
            }
        }
        let text = format!("rank {} joins", self.rank());
        self.end_epoch(epoch, self.rank(), EpochCause::Joined, None, &text).await;
    }

    /// Says that this rank is ready, and waits until the epoch is formed.
    pub(super) async fn gather(&self, epoch: u32) -> Gathered {
        let limit = if epoch == 1 { self.gang.join } else { self.gang.hold };
        if epoch > 1 {
            // A rank that waits is neither idle nor stalled.
            let time = Span::from_duration(limit.duration() + KEEP_MORE);
            self.ask(self.rank(), Wish::Keep { time }).await;
        }
        let checkpoint = self.own_checkpoint(epoch).await;
        if epoch > 1 {
            self.tell_epoch(epoch);
        }
        let ready = match self.make_ready(checkpoint) {
            Ok(ready) => ready,
            Err(error) => {
                let text =
                    format!("rank {} has no address for the other ranks: {error}", self.rank());
                self.say(&text);
                self.end_gang(GangEndCause::Failed, Some(1), Vec::new(), &text).await;
                return Gathered::Superseded;
            }
        };
        self.insist("its readiness", || self.dir.create_ready(epoch, &ready)).await;
        self.say(format!("is ready for epoch {epoch}, at {}:{}", ready.host, ready.port));
        let began = self.ports.clock.mono();
        if let Err(error) = self.end_if_interrupted_too_often(epoch, &[]).await {
            self.say(format!("cannot see the earlier epochs: {error}"));
        }
        let (mut could_form, mut looks) = (None, 0_u32);
        let mut others = OtherRanks::default();
        loop {
            tokio::select! {
                biased;
                () = self.ports.host.told_to_end() => return Gathered::ToldToEnd,
                () = self.pause() => {}
            }
            looks += 1;
            let waited = self.ports.clock.mono().saturating_sub(began);
            let form_for = could_form
                .map_or(Duration::ZERO, |since| self.ports.clock.mono().saturating_sub(since));
            match self.look(epoch, (waited, limit.duration()), form_for, looks, &mut others).await {
                Ok(GatherLook::Wait { could_form: true }) => {
                    could_form.get_or_insert(self.ports.clock.mono());
                }
                Ok(GatherLook::Wait { could_form: false }) => could_form = None,
                Ok(GatherLook::Over(gathered)) => return *gathered,
                Err(error) => self.say(format!("cannot see the other ranks: {error}")),
            }
        }
    }

    fn make_ready(&self, checkpoint: Option<CheckpointNo>) -> std::io::Result<GangReady> {
        let address = self.ports.host.address()?;
        Ok(GangReady {
            format: RECORD_FORMAT,
            rank: self.rank(),
            job: self.job().clone(),
            attempt: self.me.attempt,
            instance: self.me.instance.clone(),
            start: self.me.start.clone(),
            host: address.host,
            interface: address.interface,
            port: address.port,
            gpus: self.me.gpus,
            checkpoint,
            at: self.now(),
        })
    }

    async fn look(
        &self,
        epoch: u32,
        (waited, limit): (Duration, Duration),
        could_form_for: Duration,
        looks: u32,
        others: &mut OtherRanks,
    ) -> Result<GatherLook, JobDirError> {
        if let Some(end) = self.dir.end().await? {
            return Ok(GatherLook::over(Gathered::Ended(end)));
        }
        if self.dir.over(epoch).await?.is_some() {
            return Ok(GatherLook::over(Gathered::Superseded));
        }
        if let Some(formation) = self.dir.formation(epoch).await? {
            return Ok(GatherLook::over(Gathered::Formed(formation)));
        }
        let ready = self.dir.ready_beside(epoch, &others.ready).await?;
        others.ready.clone_from(&ready);
        let facts = GatherFacts {
            nodes: self.gang.nodes,
            rank: self.rank(),
            ready: &ready,
            gone: &others.gone,
            waited,
            limit,
            needs_rank_0: self.gang.saves == GangSaves::Rank0,
            could_form_for,
        };
        match judge_gather(&facts) {
            GatherVerdict::Form => self.form(epoch, ready).await.map(GatherLook::over),
            GatherVerdict::GiveUp { missing } => {
                let all_ended = missing.iter().all(|rank| others.gone.contains(rank));
                let told = others.last_end.take().filter(|_| all_ended);
                let text = told.unwrap_or_else(|| missing_text(&missing, waited));
                self.end_gang(GangEndCause::Incomplete, None, missing, &text).await;
                Ok(GatherLook::Wait { could_form: false })
            }
            GatherVerdict::Wait => {
                if looks.is_multiple_of(MISSING_LOOK_EVERY) {
                    self.look_for_missing(epoch, looks / MISSING_LOOK_EVERY, others).await?;
                }
                let all = ready.len() + others.gone.len() >= self.gang.nodes.max as usize;
                let few = ready.len() >= self.gang.nodes.min as usize && waited >= limit;
                Ok(GatherLook::Wait { could_form: all || few })
            }
        }
    }

    async fn form(&self, epoch: u32, ready: Vec<GangReady>) -> Result<Gathered, JobDirError> {
        self.end_if_interrupted_too_often(epoch, &ready).await?;
        if let Some(end) = self.dir.end().await? {
            return Ok(Gathered::Ended(end));
        }
        let formation = Formation {
            format: RECORD_FORMAT,
            epoch,
            at: self.now(),
            by: self.rank(),
            rendezvous: format!("{}-{epoch}-{}", self.member.leader(), self.me.start),
            members: ready,
        };
        self.dir.create_formation(&formation).await?;
        // Another rank may have been first: what stands there counts.
        let formed = self.dir.formation(epoch).await?;
        Ok(Gathered::Formed(formed.unwrap_or(formation)))
    }

    /// Ends a gang that has used up its interruptions, before it pays for the wait for a
    /// replacement. `ready`: the ranks of this epoch so far.
    async fn end_if_interrupted_too_often(
        &self,
        epoch: u32,
        ready: &[GangReady],
    ) -> Result<(), JobDirError> {
        let earlier = self.earlier(epoch).await?;
        let interruptions = &self.resolved.spec.interruptions;
        let budget = judge_budget(&earlier, ready, &self.retries(), interruptions);
        if budget == EpochBudget::InterruptionsSpent {
            let text = format!(
                "more interruptions than the {} that `interruptions.max` allows",
                interruptions.max
            );
            self.end_gang(GangEndCause::Interrupted, None, Vec::new(), &text).await;
        }
        Ok(())
    }

    /// The epochs before this one.
    pub(super) async fn earlier(&self, epoch: u32) -> Result<Vec<EpochRecord>, JobDirError> {
        let mut found = Vec::new();
        for number in self.dir.epochs().await?.into_iter().filter(|number| *number < epoch) {
            found.push(self.dir.record(number).await?);
        }
        Ok(found)
    }

    /// A missing rank whose job has ended does not come: the wait for it would only cost money. At
    /// the start, the same holds for a rank without a machine, if the gang can work without it.
    async fn look_for_missing(
        &self,
        epoch: u32,
        turn: u32,
        others: &mut OtherRanks,
    ) -> Result<(), JobDirError> {
        let ready = others.ready.iter().map(|member| member.rank);
        let known: Vec<u32> = ready.chain(others.gone.iter().copied()).collect();
        let missing = missing_ranks(self.gang.nodes, &known);
        if missing.is_empty() {
            return Ok(());
        }
        let rank = missing[turn as usize % missing.len()];
        let left = self.gang.nodes.max.saturating_sub(others.gone.len() as u32 + 1);
        let is_enough = left >= self.gang.nodes.min;
        let text = match self.has_ended(rank).await? {
            Some(why) => format!("rank {rank} does not come back: its job {why}"),
            None if epoch == 1 && rank > 0 && is_enough && self.has_no_machine(rank).await? => {
                let text = format!("the cloud has no machine for rank {rank} yet");
                self.say(&text);
                text
            }
            None => return Ok(()),
        };
        others.gone.push(rank);
        if !is_enough {
            self.end_gang(GangEndCause::Stopped, None, others.gone.clone(), &text).await;
        }
        others.last_end = Some(text);
        Ok(())
    }
}

/// The other ranks, as far as they were seen in this wait.
#[derive(Default)]
struct OtherRanks {
    ready: Vec<GangReady>,
    /// Their jobs have ended, or the cloud has no machine for them.
    gone: Vec<u32>,
    /// Why the last of them does not come, in a sentence.
    last_end: Option<String>,
}

enum GatherLook {
    Wait { could_form: bool },
    Over(Box<Gathered>),
}

impl GatherLook {
    fn over(gathered: Gathered) -> GatherLook {
        GatherLook::Over(Box::new(gathered))
    }
}

fn missing_text(missing: &[u32], waited: Duration) -> String {
    let ranks: Vec<String> = missing.iter().map(u32::to_string).collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {} did not come within {} s", ranks.join(", "), waited.as_secs())
}
