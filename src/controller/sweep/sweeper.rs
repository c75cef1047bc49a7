//! Finds machines of ours that no job needs, in every region, and ends them after a second look.
//!
//! ```text
//!   regions of the account ──> describe by owner tag ──> records and heartbeat of each ──> policy::lifecycle::orphan
//!                                         orphan ──> a minute ──> all of it once more ──> terminate
//! ```
//! Not here: an opinion about what an orphan is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;

use crate::account::{ForeignMachine, Residue};
use crate::controller::clocks::{Clocks, no_answer};
use crate::controller::cloud_answers::{ANSWER_HOLDS, CloudRegion};
use crate::controller::clouds::Clouds;
use crate::instance::{InstanceView, MachineRef};
use crate::job::{AttemptPhase, Ending, RECORD_FORMAT};
use crate::jobdir::{JobDir, JobDirError, layout, unless_damaged};
use crate::market::{self, Region, elapsed};
use crate::policy::lifecycle::forgotten_disk::{
    can_stand, is_all_its_job_has, is_to_be_kept, never_stopped, was_kept, was_started_past_its_cap,
};
use crate::policy::lifecycle::orphan::{self, Facts, Heartbeat, OrphanVerdict, Records};
use crate::policy::lifecycle::reconcile::may_be_of;
use crate::ports::{Clock, CloudError, NoCredentials, Store, chain, chain_with_cure};

/// One machine of ours and what is to be done with it.
#[derive(Clone, Debug)]
pub struct Judged {
    pub view: InstanceView,
    pub verdict: OrphanVerdict,
}

/// What one look found.
#[derive(Debug, Default)]
pub struct Found {
    pub machines: Vec<Judged>,
    /// Disks, addresses, requests and alarms that no machine needs.
    pub residue: Vec<Residue>,
    /// Places that did not answer.
    pub unknown: Vec<(String, String)>,
    /// Places that nobody had a reason to ask, and why they could not have been.
    pub unasked: Vec<(String, String)>,
}

/// Where machines of ours may be, as far as anybody has said.
#[derive(Debug, Default)]
pub struct Everywhere {
    pub places: BTreeSet<CloudRegion>,
    /// Clouds that did not answer, and why.
    pub unknown: Vec<(String, String)>,
    /// Those of them to which nobody here has any credentials.
    pub unsigned: BTreeSet<market::Cloud>,
}

/// What came of the end of one machine that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndAsked {
    Ends,
    /// Its disk is to stay.
    Stops,
    /// The same, and the cloud never stops it: it lives, whatever its cap says. Why, as it follows
    /// on its name.
    RunsOn(String),
}

/// Between the two looks: long enough for an agent that was only slow to be heard (it beats every
/// quarter of a minute), short enough to be a small part of the bound on what an orphan can cost.
pub const SECOND_LOOK: Duration = Duration::from_secs(60);

/// Records of machines that are read at once.
pub(crate) const READS_IN_FLIGHT: usize = 16;

/// The record of an end gets so long: an orphan bills, and a job root that is down must not keep it
/// alight.
const INTENT_MAX: Duration = Duration::from_secs(10);

/// After its outcome an agent says within so long that it holds the machine: at its next heartbeat,
/// a quarter of a minute away, with room for one that came late.
const HELD_IS_SAID_WITHIN: Duration = Duration::from_secs(60);

/// The records of one machine get so long; of a store that is well they come within a second.
const RECORDS_MAX: Duration = Duration::from_secs(10);

/// What a second look reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Its tags, its records, its heartbeat, and the store's clock.
    Everything,
    /// Its tags and our own clock: the hard cap, for whoever's clock is one of the cloud's.
    Tags,
}

/// Finds and ends the owner's machines that no job needs.
pub struct OrphanSweeper {
    pub(super) store: Arc<dyn Store>,
    pub(super) clouds: Clouds,
    pub(super) clock: Clocks,
    /// For people: the author of a record.
    pub(super) name: String,
}

impl OrphanSweeper {
    pub fn new(store: &Arc<dyn Store>, clouds: &Clouds, clock: &Clocks, name: &str) -> Self {
        let (store, clouds, clock, name) =
            (Arc::clone(store), clouds.clone(), clock.clone(), name.to_owned());
        OrphanSweeper { store, clouds, clock, name }
    }

    /// Every place where a machine of ours may be: all regions of every cloud that can be asked.
    pub async fn everywhere(&self) -> (BTreeSet<CloudRegion>, Vec<(String, String)>) {
        let Everywhere { places, unknown, .. } = self.ask_everywhere().await;
        (places, unknown)
    }

    /// The same, with who could not be asked for want of any credentials.
    pub async fn ask_everywhere(&self) -> Everywhere {
        let asked = join_all(
            self.clouds.all().map(|(which, cloud)| async move { (*which, cloud.regions().await) }),
        )
        .await;
        let mut all = Everywhere::default();
        for (which, regions) in asked {
            match regions {
                Ok(regions) => all.places.extend(regions.into_iter().map(|region| (which, region))),
                Err(error) => {
                    all.unknown.push((which.word().to_owned(), chain_with_cure(&error)));
                    all.unsigned.extend(
                        NoCredentials::among(&error)
                            .filter(|nobody| nobody.are_nowhere())
                            .map(|_| which),
                    );
                }
            }
        }
        all
    }

    /// Looks at all machines of ours in these places. Ends nothing.
    pub async fn look_for_orphans(&self, places: &BTreeSet<CloudRegion>) -> Found {
        let mut found = Found::default();
        let now = self.clock.store_now().await;
        let asked = places.iter().map(|(cloud, region)| async move {
            let Ok(port) = self.clouds.get(*cloud) else {
                return (region, Ok(Vec::new()), Ok(Vec::new()));
            };
            let (views, residue) = tokio::join!(
                port.describe(&self.clouds.owner, region),
                port.residue(&self.clouds.owner, region)
            );
            (region, views, residue)
        });
        let mut views = Vec::new();
        for (region, described, residue) in join_all(asked).await {
            match described {
                Ok(described) => views.extend(described),
                Err(error) => found.unknown.push((region.to_string(), chain_with_cure(&error))),
            }
            match residue {
                Ok(residue) => found.residue.extend(residue),
                Err(error) => found
                    .unknown
                    .push((format!("{region}, what is left over"), chain_with_cure(&error))),
            }
        }
        // A place that was asked twice has each machine once.
        let mut seen = BTreeSet::new();
        views.retain(|view: &InstanceView| seen.insert(view.machine()));
        let judged = views.into_iter().map(|view| self.judge(view, now));
        found.machines = stream::iter(judged).buffered(READS_IN_FLIGHT).collect().await;
        found
    }

    /// Ends a machine that was an orphan, if it still is one now, or stops it where its disk is to
    /// stay. `None`: it is none any more, and lives.
    ///
    /// # Errors
    /// When the cloud does not answer; then nothing was ended, or it may have been.
    pub async fn end_orphan(&self, before: &Judged) -> Result<Option<EndAsked>, CloudError> {
        Ok(self.end_by(before, By::Everything).await?.map(|(_, asked)| asked))
    }

    pub(crate) async fn end_by(
        &self,
        before: &Judged,
        by: By,
    ) -> Result<Option<(Judged, EndAsked)>, CloudError> {
        let machine = before.view.machine();
        let cloud = self.clouds.get(machine.cloud)?;
        let looked = self.clock.mono();
        let Some(judged) = self.look_again(&machine, by).await? else { return Ok(None) };
        let OrphanVerdict::Orphan { why } = &judged.verdict else { return Ok(None) };
        let keeps = tokio::select! {
            keeps = self.intend_to_end_orphan(&judged) => keeps,
            () = self.clock.sleep(INTENT_MAX) => {
                tracing::warn!(%machine, "the job root does not answer: why it is ended is not recorded");
                was_started_past_its_cap(&judged.view)
            }
        };
        // Whoever slept since has seen a machine that may do another job's work by now.
        if self.clock.mono().saturating_sub(looked) > ANSWER_HOLDS {
            return Ok(None);
        }
        if keeps {
            tracing::warn!("stopping {machine}, whose disk is kept: {why}");
            let asked = match cloud.stop(&machine).await {
                Err(CloudError::Unstoppable { what }) => {
                    EndAsked::RunsOn(never_stopped(&judged.view, &what))
                }
                stopped => stopped.map(|()| EndAsked::Stops)?,
            };
            return Ok(Some((judged, asked)));
        }
        tracing::warn!("terminating {machine}: {why}");
        cloud.terminate(&machine).await?;
        Ok(Some((judged, EndAsked::Ends)))
    }

    /// Ends a machine whose job nobody here knows, for a person who has named it: no sweep does.
    /// Its disk goes with it, and nothing is recorded, because nobody settles such a job. `None`:
    /// by now it is gone, or its job is known here.
    ///
    /// # Errors
    /// When the cloud does not answer; then nothing was ended, or it may have been.
    pub async fn end_stray(&self, named: &MachineRef) -> Result<Option<EndAsked>, CloudError> {
        let cloud = self.clouds.get(named.cloud)?;
        let looked = self.clock.mono();
        let judged = self.look_again(named, By::Everything).await?;
        if !judged.is_some_and(|judged| matches!(judged.verdict, OrphanVerdict::Stray { .. })) {
            return Ok(None);
        }
        if self.clock.mono().saturating_sub(looked) > ANSWER_HOLDS {
            return Ok(None);
        }
        tracing::warn!("terminating {named}: somebody has named it, and nobody here knows its job");
        cloud.terminate(named).await?;
        Ok(Some(EndAsked::Ends))
    }

    /// One machine of ours as it is now; `None`: it is not shown.
    async fn look_again(&self, machine: &MachineRef, by: By) -> Result<Option<Judged>, CloudError> {
        let views =
            self.clouds.get(machine.cloud)?.describe(&self.clouds.owner, &machine.region).await?;
        let Some(view) = views.into_iter().find(|view| view.id == machine.id) else {
            return Ok(None);
        };
        Ok(Some(match by {
            By::Everything => self.judge(view, self.clock.store_now().await).await,
            By::Tags => self.judge_by_tags(view),
        }))
    }

    /// As a drive records it, so that whoever settles the attempt knows whose end it was. Whether
    /// its disk is to stay: the attempt was settled so, and somebody has started its machine at the
    /// cloud itself; or it has ended so, and its power-off does not work.
    async fn intend_to_end_orphan(&self, orphan: &Judged) -> bool {
        let (OrphanVerdict::Orphan { why }, tags) = (&orphan.verdict, &orphan.view.tags) else {
            return false;
        };
        let dir = JobDir::new(Arc::clone(&self.store), tags.job.clone());
        let recorded: Result<bool, JobDirError> = async {
            // Of another job root's job nothing is written here, and what is settled stays as it
            // is.
            if let Some(settled) = dir.settled(tags.attempt).await? {
                return Ok(was_kept(&settled, &orphan.view));
            }
            let Some(plan) =
                dir.plan(tags.attempt).await?.filter(|plan| may_be_of(plan, &orphan.view))
            else {
                return Ok(false);
            };
            let (heard, outcome) = (
                dir.status(tags.attempt).await?.map(|status| status.at),
                unless_damaged(dir.outcome(tags.attempt).await)?,
            );
            let keeps = match outcome {
                Some(outcome) => dir
                    .spec()
                    .await?
                    .is_some_and(|spec| is_to_be_kept(&spec.spec.on, &outcome, &orphan.view)),
                None => {
                    heard.is_none()
                        && is_all_its_job_has(&plan, &orphan.view)
                        && unless_damaged(dir.lease(tags.attempt).await)?.is_none()
                }
            };
            let ending = Ending {
                format: RECORD_FORMAT,
                at: self.clock.now(),
                by: Ending::by_sweep(&self.name),
                why: why.clone(),
                heard,
                stood: None,
            };
            dir.create_ending(tags.attempt, &ending).await.map(|_| keeps)
        }
        .await;
        recorded.unwrap_or_else(|error| {
            tracing::warn!(machine = %orphan.view.machine(), "cannot record why it is ended: {}", chain(&error));
            // Whether its disk is kept nobody here can read: a disk that stands can be given up,
            // and one that is gone is gone.
            if is_unreadable(&error) { can_stand(&orphan.view) } else { was_started_past_its_cap(&orphan.view) }
        })
    }

    /// GPU machines of the account that nobody of ours launched; nothing is done to them.
    pub async fn foreign(
        &self,
        places: &BTreeSet<CloudRegion>,
    ) -> (Vec<ForeignMachine>, Vec<(String, String)>) {
        let asked = places
            .iter()
            .filter_map(|(cloud, region)| Some((region, self.clouds.get(*cloud).ok()?)));
        let asked = asked.map(|(region, cloud)| async move {
            (region, cloud.foreign(&self.clouds.owner, region).await)
        });
        let (mut machines, mut unknown) = (Vec::new(), Vec::new());
        for (region, answer) in join_all(asked).await {
            match answer {
                Ok(found) => machines.extend(found),
                Err(error) => unknown.push((Region::to_string(region), chain_with_cure(&error))),
            }
        }
        (machines, unknown)
    }

    /// One whose records hang is unknown, and hides no other.
    pub(crate) async fn judge_in_time(&self, view: InstanceView, now: Option<Timestamp>) -> Judged {
        let judged = self.clock.bounded(RECORDS_MAX, self.judge(view.clone(), now)).await;
        judged.unwrap_or_else(|| Judged {
            view,
            verdict: OrphanVerdict::Unknown { why: no_answer(RECORDS_MAX) },
        })
    }

    pub(crate) async fn judge(&self, view: InstanceView, now: Option<Timestamp>) -> Judged {
        let (mut records, heartbeat) = tokio::join!(self.records(&view), self.heartbeat(&view));
        if let (Records::Open, Heartbeat::At(heard)) = (&records, &heartbeat) {
            records = self.ended(&view, *heard).await;
        }
        let verdict = orphan::judge(&Facts {
            view: &view,
            owner: &self.clouds.owner,
            records,
            heartbeat,
            now,
        });
        Judged { view, verdict }
    }

    /// By what stands in the machine's own tags, and nothing else: past its hard cap or not.
    pub(crate) fn judge_by_tags(&self, view: InstanceView) -> Judged {
        let unread = || "only its tags were read".to_owned();
        let (records, heartbeat, now) =
            (Records::Unknown(unread()), Heartbeat::Unknown(unread()), Some(self.clock.now()));
        let verdict = orphan::judge(&Facts {
            view: &view,
            owner: &self.clouds.owner,
            records,
            heartbeat,
            now,
        });
        Judged { view, verdict }
    }

    /// That they are there says enough: one that a power cut has torn, or that a later version
    /// wrote, keeps no machine alight.
    async fn records(&self, view: &InstanceView) -> Records {
        let (job, attempt) = (&view.tags.job, view.tags.attempt);
        let is_there = |key: String| async move {
            Ok::<_, JobDirError>(self.store.head(&key).await?.is_some())
        };
        let dir = JobDir::new(Arc::clone(&self.store), job.clone());
        let plan = async { unless_unreadable(dir.plan(attempt).await) };
        let [spec, receipt, settled] =
            [layout::spec(job), layout::receipt(job), layout::settled(job, attempt)].map(is_there);
        match tokio::try_join!(spec, receipt, settled, plan) {
            Ok((false, ..)) => Records::NoJob,
            // Its job has the id of one of ours, and is in another job root.
            Ok((.., Some(plan))) if !may_be_of(&plan, view) => Records::NoJob,
            Ok((true, false, false, _)) => Records::Open,
            Ok(_) => Records::Over,
            Err(error) => Records::Unknown(chain(&error)),
        }
    }

    /// Of an attempt that is not settled: whether its agent, heard at this time of the store, has
    /// told how it ended and does not hold the machine for a look. That is said after the outcome,
    /// so an agent that has not been heard since may hold it; unless its last word is that the
    /// power goes off next. From that word on the machine has its time to go: a look may have been
    /// long.
    async fn ended(&self, view: &InstanceView, heard: Timestamp) -> Records {
        let (job, attempt) = (&view.tags.job, view.tags.attempt);
        let told = match self.store.head(&layout::outcome(job, attempt)).await {
            Ok(told) => told.map(|meta| meta.modified),
            Err(error) => return Records::Unknown(chain(&error)),
        };
        let Some(told) = told else { return Records::Open };
        let is_late = elapsed(told, heard) >= HELD_IS_SAID_WITHIN;
        match unless_unreadable(
            JobDir::new(Arc::clone(&self.store), job.clone()).status(attempt).await,
        ) {
            Ok(Some(status)) if status.phase == AttemptPhase::Ended => {
                Records::Ended(heard.max(told))
            }
            Ok(Some(status)) if status.phase != AttemptPhase::Held && is_late => {
                Records::Ended(told)
            }
            Ok(_) => Records::Open,
            Err(error) => Records::Unknown(chain(&error)),
        }
    }

    async fn heartbeat(&self, view: &InstanceView) -> Heartbeat {
        match self.store.head(&layout::status(&view.tags.job, view.tags.attempt)).await {
            Ok(Some(meta)) => Heartbeat::At(meta.modified),
            Ok(None) => Heartbeat::Never,
            Err(error) => Heartbeat::Unknown(chain(&error)),
        }
    }
}

/// The record is there, and this program cannot read it: it is damaged, or a later version's.
fn is_unreadable(error: &JobDirError) -> bool {
    matches!(error, JobDirError::Record(_))
}

/// A later version's record is as good as none to a sweep, which asks only whether it is there.
fn unless_unreadable<T>(read: Result<Option<T>, JobDirError>) -> Result<Option<T>, JobDirError> {
    match read {
        Err(error) if is_unreadable(&error) => Ok(None),
        other => other,
    }
}
