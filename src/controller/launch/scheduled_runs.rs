//! Runs what is scheduled: a job is made of the stored words each time that they are due, and then
//! driven like any other.
//!
//! ```text
//!   list ─ schedules/<set>/<name>.json ─ policy::schedule::calendar::judge ─┬─ Run, Skip ─ by a clock that is right ─ runs/<due>.json (once) ─ jobs/<job>/...
//!                     │                                           └─ Wait ─ waiting.json (what waits, and since when)
//!                     └─ missed, as far as we saw? ─ waiting.json ─ seen by another, or before a restart
//! ```
//! Two daemons decide a due time once: whoever creates the decision, and the job's whole spec is in
//! it, so anybody may make the job from there after a crash. What waits is on record, and not
//! missed for whoever comes later. What must never live here: when something is due.

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

/// Between two listings of the schedules of a bucket, which takes money for each. A new schedule,
/// and a change of an old one, is seen so late; a due time is not.
const LIST_AWAY: Duration = Duration::from_secs(60);

/// The same of a folder: somebody who has just applied looks whether it runs.
const LIST_HOME: Duration = Duration::from_secs(5);

/// Between two looks at what a due run waits for: a job to end, or a price. Prices move within
/// minutes; shorter asks the cloud for nothing.
const WAIT_LOOK: Duration = Duration::from_secs(15);

/// What one daemon remembers of the schedules.
#[derive(Default)]
pub struct ScheduleMemory {
    listed: Option<Duration>,
    known: BTreeMap<(String, String), Known>,
    trouble: Option<String>,
}

/// Of one schedule that is ours to run.
struct Known {
    dir: ScheduleDir,
    record: Schedule,
    calendar: Calendar,
    /// What was decided; `None`: not read yet.
    decided: Option<Decided>,
    seen: Option<Seen>,
    /// Of a run that waits for a price: what is known of the pools.
    market: MarketMemory,
    not_before: Duration,
    said: Option<Said>,
    trouble: Option<String>,
}

/// The due time that has been waiting under our eyes, or another's, and since when.
#[derive(Clone, Copy)]
struct Seen {
    due: Timestamp,
    at: Timestamp,
}

/// What stands in `waiting.json` by our hand.
#[derive(PartialEq)]
struct Said {
    text: String,
    due: Timestamp,
    dated: bool,
}

/// The newest decision.
#[derive(Clone, Default)]
struct Decided {
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

    /// One look at every schedule; what goes wrong with one is said once, and hinders no other.
    pub async fn run(&self, memory: &mut ScheduleMemory) {
        if let Err(error) = self.list_schedules(memory).await {
            let text = chain(&error);
            if memory.trouble.replace(text.clone()) != Some(text.clone()) {
                warn!("cannot list the schedules, trying again: {text}");
            }
        }
        for known in memory.known.values_mut() {
            let error = self.look_at_schedule(known).await.err();
            // By how much a clock is off differs from look to look.
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
                // What is known of it goes on: an outage is no reason to miss a due time.
                Err(error) => {
                    warn!(set = key.0, schedule = key.1, "left as it was: {}", chain(&error));
                    known.extend(old.map(|old| (key, old)));
                }
            }
        }
        memory.known = known;
        Ok(())
    }

    /// Takes note of a record; `None`: it is not ours to run.
    fn know(&self, dir: ScheduleDir, record: Schedule, old: Option<Known>) -> Option<Known> {
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
                Some(Known {
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

    async fn look_at_schedule(&self, known: &mut Known) -> Result<(), ActError> {
        if known.decided.is_none() {
            known.decided = Some(self.newest_decision(&known.dir).await?);
        }
        if self.clock.mono() < known.not_before
            || matches!(self.judge_schedule(known, None, &Spot::NotAsked), DueVerdict::Rest { .. })
        {
            return Ok(());
        }
        // It is due as far as we know; another daemon may know more, and somebody may have changed
        // the words.
        let Some(record) = known.dir.record().await? else { return Ok(()) };
        if record != known.record {
            // The next listing takes it up.
            return Ok(());
        }
        known.decided = Some(self.newest_decision(&known.dir).await?);
        // What is missed as far as we saw, another may have seen in time, or we before we were
        // started anew.
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
                    .unwrap_or(Seen { due, at: reason.at });
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

    fn judge_schedule(&self, known: &Known, running: Option<&JobId>, spot: &Spot) -> DueVerdict {
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

    /// What was decided last; its job is there when this returns, also if whoever decided died
    /// before making it.
    async fn newest_decision(&self, dir: &ScheduleDir) -> Result<Decided, JobDirError> {
        let Some(due) = dir.due_times().await?.last().copied() else {
            return Ok(Decided::default());
        };
        let Some(run) = dir.run(due).await? else {
            return Ok(Decided { due: Some(due), newest_job: None });
        };
        if let Some(spec) = &run.job {
            let is_there =
                JobDir::new(Arc::clone(&self.store), spec.job.clone()).spec().await?.is_some();
            if !is_there {
                dir.make_job(spec).await?;
                info!(job = %spec.job, "made; it was decided {}", run.decided);
            }
        }
        Ok(Decided { due: Some(due), newest_job: run.newest_job().cloned() })
    }

    /// The last run, if it has not ended.
    async fn running(&self, known: &Known) -> Result<Option<JobId>, JobDirError> {
        let Some(job) = known.decided.as_ref().and_then(|decided| decided.newest_job.clone())
        else {
            return Ok(None);
        };
        let ended = JobDir::new(Arc::clone(&self.store), job.clone()).receipt().await?.is_some();
        Ok(Some(job).filter(|_| !ended))
    }

    /// What an hour costs of the spot machine that the job would be launched on now.
    async fn spot_price(&self, spec: &Spec, market: &mut MarketMemory) -> Spot {
        match self.spot_offer(spec, market).await {
            Ok(offer) => Spot::Costs(offer.price),
            Err(ActError::NoOffer(none)) => Spot::NoneFits(none.to_string()),
            Err(error) => Spot::Unknown(chain(&error)),
        }
    }

    /// As the launch chooses: the cheapest pool may be one that this job is refused, by its bid, a
    /// quota or for want of a network, and the run would begin in a dearer one.
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

    /// What is decided stays so: by a clock that is half a day ahead the run of the evening would
    /// be decided in the morning, and in the evening nothing would run.
    async fn decide(
        &self,
        known: &mut Known,
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
        // Also when the reply to it is lost: then it is read again, and its job is made then.
        known.decided = None;
        let decided = known.dir.decide(&ours).await?;
        if let Some(spec) = &decided.job {
            known.dir.make_job(spec).await?;
        }
        known.decided = Some(Decided { due: Some(due), newest_job: decided.newest_job().cloned() });
        (known.seen, known.said, known.not_before) = (None, None, Duration::ZERO);
        match &decided.job {
            Some(spec) => {
                info!(job = %spec.job, schedule = known.dir.name(), "run: {}", decided.reason)
            }
            None => info!(schedule = known.dir.name(), "left out: {}", decided.reason),
        }
        Ok(())
    }

    /// The same name for every daemon.
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
        }
    }

    /// What waits on record, if whoever saw it first was there when it was due.
    async fn seen_in_time(&self, dir: &ScheduleDir) -> Result<Option<Seen>, JobDirError> {
        let waiting = unless_damaged(dir.waiting().await)?;
        let seen = waiting.and_then(|waiting| Some(Seen { due: waiting.due?, at: waiting.seen? }));
        Ok(seen.filter(|seen| elapsed(seen.due, seen.at) <= MISSED_AFTER))
    }

    /// Once for each sentence of a due time, and once more when the clock that it was seen by turns
    /// out to be right.
    async fn say_waiting(
        &self,
        known: &mut Known,
        seen: Seen,
        until: Option<Timestamp>,
        reason: &Reason,
    ) -> Result<(), JobDirError> {
        let text = reason.text.clone();
        let mut said = Said { text, due: seen.due, dated: true };
        if known.said.as_ref() == Some(&said) {
            return Ok(());
        }
        // Others go by it: by a clock that is half a day behind, what nobody saw in the morning
        // would be seen in the evening.
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
