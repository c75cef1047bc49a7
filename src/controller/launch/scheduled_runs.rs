//! Runs the schedules: at each due time a job is made from the stored job file, and driven like any
//! other.
//!
//! ```text
//!   schedules/<set>/<name>.json ──> calendar::judge ─┬─ Run, Skip ──> runs/<due>.json ──> a job
//!                                                    └─ Wait ───────> waiting.json
//! ```
//! Two daemons decide a due time once: the first record of a decision counts. It has the job's
//! whole spec, so any daemon can make the job after a crash. `waiting.json` says which run waits. A
//! daemon that comes later reads there that the run was not missed. `policy::schedule::calendar`
//! decides when a run is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use tracing::{info, warn};

use super::launchable::{Search, launchable};
use super::market_memory::{MarketMemory, of_market};
use super::submit::applied_id;
use crate::controller::act_result::ActError;
use crate::controller::clocks::Clocks;
use crate::controller::clouds::Clouds;
use crate::job::{
    Applied, JobId, RECORD_FORMAT, Reason, ResolvedSpec, Schedule, ScheduleRun, Spec, Waiting,
};
use crate::jobdir::{JobDir, JobDirError, ScheduleDir, schedules, unless_damaged};
use crate::market::{Market, Offer, Span, Supply, elapsed};
use crate::policy::purchase::placement::Ask;
use crate::policy::schedule::calendar::{
    Calendar, DueVerdict, MISSED_AFTER, ScheduleFacts, Spot, judge,
};
use crate::ports::{Clock, Store, chain};

/// Between two listings of the schedules in a bucket: each costs money. It delays new and changed
/// schedules, but no due time.
const LIST_AWAY: Duration = Duration::from_secs(60);

/// The same in a folder: after `lamp apply` the user looks whether it runs.
const LIST_HOME: Duration = Duration::from_secs(5);

/// Between two looks for a waiting run: for the end of a job, or a lower price. Prices move within
/// minutes. A shorter time only repeats the calls.
const WAIT_LOOK: Duration = Duration::from_secs(15);

/// A daemon's memory of the schedules.
#[derive(Default)]
pub struct ScheduleMemory {
    listed: Option<Duration>,
    known: BTreeMap<(String, String), KnownSchedule>,
    trouble: Option<String>,
}

/// The memory of one schedule of this controller.
struct KnownSchedule {
    dir: ScheduleDir,
    record: Schedule,
    calendar: Calendar,
    /// The newest decision; `None`: not read yet.
    decided: Option<NewestDecision>,
    seen: Option<SeenDue>,
    /// The pools, for a run that waits for a price.
    market: MarketMemory,
    not_before: Duration,
    said: Option<RecordedWait>,
    trouble: Option<String>,
}

/// The due time that waits, and when a daemon first saw it.
#[derive(Clone, Copy)]
struct SeenDue {
    due: Timestamp,
    at: Timestamp,
}

/// The text that this daemon wrote to `waiting.json`.
#[derive(PartialEq)]
struct RecordedWait {
    text: String,
    due: Timestamp,
    dated: bool,
}

/// The newest decision.
#[derive(Clone, Default)]
struct NewestDecision {
    due: Option<Timestamp>,
    newest_job: Option<JobId>,
}

/// Runs the schedules of one job root.
pub struct ScheduleRunner {
    store: Arc<dyn Store>,
    clouds: Clouds,
    clock: Clocks,
    /// For people: the author of a decision.
    name: String,
}

impl ScheduleRunner {
    pub fn new(store: &Arc<dyn Store>, clouds: &Clouds, clock: &Clocks, name: &str) -> Self {
        let (store, clouds, clock, name) =
            (Arc::clone(store), clouds.clone(), clock.clone(), name.to_owned());
        ScheduleRunner { store, clouds, clock, name }
    }

    /// One look at every schedule. An error is logged once, and does not stop the others.
    pub async fn run(&self, memory: &mut ScheduleMemory) {
        if let Err(error) = self.list_schedules(memory).await {
            let text = chain(&error);
            if memory.trouble.replace(text.clone()) != Some(text.clone()) {
                warn!("cannot list the schedules, trying again: {text}");
            }
        }
        for known in memory.known.values_mut() {
            let error = self.look_at_schedule(known).await.err();
            // The difference of the clocks changes from look to look.
            let trouble = error.as_ref().map(|error| {
                if matches!(error, ActError::ClockOff { .. }) {
                    "its clock".to_owned()
                } else {
                    chain(error)
                }
            });
            if let Some(error) = &error
                && known.trouble != trouble
            {
                warn!(
                    set = known.dir.set(),
                    schedule = known.dir.name(),
                    "trying again: {}",
                    chain(error)
                );
            }
            known.trouble = trouble;
        }
    }

    async fn list_schedules(&self, memory: &mut ScheduleMemory) -> Result<(), JobDirError> {
        let now = self.clock.mono();
        let every = if self.store.is_folder() { LIST_HOME } else { LIST_AWAY };
        if memory.listed.is_some_and(|listed| now < listed + every) {
            return Ok(());
        }
        let dirs = schedules(&self.store, None).await?;
        memory.listed = Some(now);
        memory.trouble = None;
        let mut known = BTreeMap::new();
        let records =
            join_all(dirs.into_iter().map(|dir| async move { (dir.record().await, dir) })).await;
        for (record, dir) in records {
            let key = (dir.set().to_owned(), dir.name().to_owned());
            let old = memory.known.remove(&key);
            match record {
                Ok(Some(record)) => known.extend(self.know(dir, record, old).map(|new| (key, new))),
                Ok(None) => {}
                // The known schedule stays: an outage must not miss a due time.
                Err(error) => {
                    warn!(set = key.0, schedule = key.1, "left as it was: {}", chain(&error));
                    known.extend(old.map(|old| (key, old)));
                }
            }
        }
        memory.known = known;
        Ok(())
    }

    /// Notes a record; `None`: another controller runs it.
    fn know(
        &self,
        dir: ScheduleDir,
        record: Schedule,
        old: Option<KnownSchedule>,
    ) -> Option<KnownSchedule> {
        let ours = *record.applied.owner == *self.clouds.owner
            && record.here.as_ref().is_none_or(|here| here == self.clouds.here.as_str());
        if !ours || record.removed.is_some() {
            return None;
        }
        if let Some(old) = old
            && old.record == record
        {
            return Some(old);
        }
        match Calendar::of(&record.schedule) {
            Ok(calendar) => {
                let (market, not_before) = (MarketMemory::default(), Duration::ZERO);
                Some(KnownSchedule {
                    dir,
                    record,
                    calendar,
                    decided: None,
                    seen: None,
                    market,
                    not_before,
                    said: None,
                    trouble: None,
                })
            }
            Err(error) => {
                warn!(set = dir.set(), schedule = dir.name(), "not run: {error}");
                None
            }
        }
    }

    async fn look_at_schedule(&self, known: &mut KnownSchedule) -> Result<(), ActError> {
        if known.decided.is_none() {
            known.decided = Some(self.newest_decision(&known.dir).await?);
        }
        if self.clock.mono() < known.not_before
            || matches!(self.judge_schedule(known, None, &Spot::NotAsked), DueVerdict::Rest { .. })
        {
            return Ok(());
        }
        // Another daemon may have decided, and a user may have changed the schedule.
        let Some(record) = known.dir.record().await? else { return Ok(()) };
        if record != known.record {
            // The next listing takes it up.
            return Ok(());
        }
        known.decided = Some(self.newest_decision(&known.dir).await?);
        // If this daemon missed the run, another one may have seen it in time, or this one before a
        // restart.
        if matches!(self.judge_schedule(known, None, &Spot::NotAsked), DueVerdict::Skip { .. }) {
            known.seen = self.seen_in_time(&known.dir).await?;
        }
        let running = self.running(known).await?;
        let mut verdict = self.judge_schedule(known, running.as_ref(), &Spot::NotAsked);
        if matches!(verdict, DueVerdict::AskPrice { .. }) {
            let spot = self.spot_price(&known.record.spec, &mut known.market).await;
            verdict = self.judge_schedule(known, running.as_ref(), &spot);
        }
        match verdict {
            DueVerdict::Rest { .. } | DueVerdict::AskPrice { .. } => Ok(()),
            DueVerdict::Wait { due, until, reason } => {
                let seen = known
                    .seen
                    .filter(|seen| seen.due == due)
                    .unwrap_or(SeenDue { due, at: reason.at });
                known.seen = Some(seen);
                known.not_before = self.clock.mono() + WAIT_LOOK;
                Ok(self.say_waiting(known, seen, until, &reason).await?)
            }
            DueVerdict::Run { due, reason } => self.decide(known, due, &reason, true, None).await,
            DueVerdict::Skip { due, reason } => {
                self.decide(known, due, &reason, false, running).await
            }
        }
    }

    fn judge_schedule(
        &self,
        known: &KnownSchedule,
        running: Option<&JobId>,
        spot: &Spot,
    ) -> DueVerdict {
        judge(&ScheduleFacts {
            spec: &known.record.schedule,
            calendar: &known.calendar,
            since: known.record.since,
            decided: known.decided.as_ref().and_then(|decided| decided.due),
            running,
            seen: known.seen.map(|seen| seen.due),
            spot,
            now: self.clock.now(),
        })
    }

    /// The newest decision. If its author crashed, its job is made now.
    async fn newest_decision(&self, dir: &ScheduleDir) -> Result<NewestDecision, JobDirError> {
        let Some(due) = dir.due_times().await?.last().copied() else {
            return Ok(NewestDecision::default());
        };
        let Some(run) = dir.run(due).await? else {
            return Ok(NewestDecision { due: Some(due), newest_job: None });
        };
        if let Some(spec) = &run.job {
            let is_there =
                JobDir::new(Arc::clone(&self.store), spec.job.clone()).spec().await?.is_some();
            if !is_there {
                dir.make_job(spec).await?;
                info!(job = %spec.job, "made; it was decided {}", run.decided);
            }
        }
        Ok(NewestDecision { due: Some(due), newest_job: run.newest_job().cloned() })
    }

    /// The job of the last run, while it runs.
    async fn running(&self, known: &KnownSchedule) -> Result<Option<JobId>, JobDirError> {
        let Some(job) = known.decided.as_ref().and_then(|decided| decided.newest_job.clone())
        else {
            return Ok(None);
        };
        let ended = JobDir::new(Arc::clone(&self.store), job.clone()).receipt().await?.is_some();
        Ok(Some(job).filter(|_| !ended))
    }

    /// The price of an hour on the spot machine that a launch would choose now.
    async fn spot_price(&self, spec: &Spec, market: &mut MarketMemory) -> Spot {
        match self.spot_offer(spec, market).await {
            Ok(offer) => Spot::Costs(offer.price),
            Err(ActError::NoOffer(none)) => Spot::NoneFits(none.to_string()),
            Err(error) => Spot::Unknown(chain(&error)),
        }
    }

    /// The same choice as at a launch: its bid, a quota or a missing network may exclude the
    /// cheapest pool, and the run would begin in a more expensive one.
    async fn spot_offer(&self, spec: &Spec, market: &mut MarketMemory) -> Result<Offer, ActError> {
        let cloud = self.clouds.get(spec.machine.cloud)?;
        let mut supply = of_market(&cloud.supply(&spec.machine).await?, Market::Spot, &[]);
        let overheads = &market
            .learned_overheads(&*self.store, &self.clock, spec, &supply, &[], Span::ZERO)
            .await?;
        let (budget_left, more_time, nothing, now) =
            (spec.limits.budget, Span::ZERO, &Supply::default(), self.clock.now());
        let ask = Ask {
            spec,
            supply: nothing,
            history: &[],
            budget_left,
            more_time,
            overheads,
            prefers: None,
            widened: None,
            now,
        };
        Ok(launchable(&**cloud, &ask, &mut supply, &mut Search::default()).await?.placed.offer)
    }

    /// Decisions are final. With a clock half a day ahead, the run of the evening would be decided
    /// in the morning, and the evening would have none.
    async fn decide(
        &self,
        known: &mut KnownSchedule,
        due: Timestamp,
        reason: &Reason,
        run: bool,
        running: Option<JobId>,
    ) -> Result<(), ActError> {
        if let Err(error) = self.clock.must_be_right().await {
            known.not_before = self.clock.mono() + WAIT_LOOK;
            return Err(error);
        }
        let now = self.clock.now();
        let job = run.then(|| Box::new(self.spec_of_run(&known.record, due, now)));
        let ours = ScheduleRun {
            format: RECORD_FORMAT,
            due,
            decided: now,
            by: self.name.clone(),
            reason: reason.text.clone(),
            job,
            running,
        };
        // Also if the reply is lost: then it is read again, and its job is made.
        known.decided = None;
        let decided = known.dir.decide(&ours).await?;
        if let Some(spec) = &decided.job {
            known.dir.make_job(spec).await?;
        }
        known.decided =
            Some(NewestDecision { due: Some(due), newest_job: decided.newest_job().cloned() });
        (known.seen, known.said, known.not_before) = (None, None, Duration::ZERO);
        match &decided.job {
            Some(spec) => {
                info!(job = %spec.job, schedule = known.dir.name(), "run: {}", decided.reason)
            }
            None => info!(schedule = known.dir.name(), "left out: {}", decided.reason),
        }
        Ok(())
    }

    /// Every daemon gives the job the same id.
    fn spec_of_run(&self, record: &Schedule, due: Timestamp, now: Timestamp) -> ResolvedSpec {
        let applied = &record.applied;
        ResolvedSpec {
            format: RECORD_FORMAT,
            job: applied_id(&self.store.url(), &record.spec.name, applied, &due.to_string()),
            created: now,
            written_by: record.written_by.clone(),
            spec: record.spec.clone(),
            code: record.code.clone(),
            origins: record.origins.clone(),
            applied: Some(Applied { due: Some(due), ..applied.clone() }),
            owner: None,
            continues: None,
            trial: None,
            tuned: None,
        }
    }

    /// The recorded waiting run, if a daemon saw it at its due time.
    async fn seen_in_time(&self, dir: &ScheduleDir) -> Result<Option<SeenDue>, JobDirError> {
        let waiting = unless_damaged(dir.waiting().await)?;
        let seen =
            waiting.and_then(|waiting| Some(SeenDue { due: waiting.due?, at: waiting.seen? }));
        Ok(seen.filter(|seen| elapsed(seen.due, seen.at) <= MISSED_AFTER))
    }

    /// Writes each reason of a due time once, and again when the clock proves to be right.
    async fn say_waiting(
        &self,
        known: &mut KnownSchedule,
        seen: SeenDue,
        until: Option<Timestamp>,
        reason: &Reason,
    ) -> Result<(), JobDirError> {
        let text = reason.text.clone();
        let mut said = RecordedWait { text, due: seen.due, dated: true };
        if known.said.as_ref() == Some(&said) {
            return Ok(());
        }
        // Other daemons rely on it. With a clock half a day behind, a run that was missed in the
        // morning would count as seen in the evening.
        said.dated = self.clock.must_be_right().await.is_ok();
        if known.said.as_ref() == Some(&said) {
            return Ok(());
        }
        let (at, by, why) = (reason.at, self.name.clone(), said.text.clone());
        let (due, seen) = (Some(seen.due), said.dated.then_some(seen.at));
        known
            .dir
            .put_waiting(&Waiting { format: RECORD_FORMAT, at, by, why, until, due, seen })
            .await?;
        info!(schedule = known.dir.name(), "waits: {}", said.text);
        known.said = Some(said);
        Ok(())
    }
}
