//! Finds the owner's machines that no job needs, in every region, and ends them after a second
//! look.
//!
//! ```text
//!   every region ──> describe by owner tag ──> records, heartbeat ──> policy::lifecycle::orphan
//!                    an orphan ──> a minute ──> read again ──> terminate
//! ```

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
use crate::policy::lifecycle::orphan::{self, LastHeartbeat, OrphanFacts, OrphanVerdict, Records};
use crate::policy::lifecycle::reconcile::may_be_of;
use crate::ports::{Clock, CloudError, NoCredentials, Store, chain, chain_with_cure};

/// A machine of the owner, and the verdict.
#[derive(Clone, Debug)]
pub struct Judged {
    pub view: InstanceView,
    pub verdict: OrphanVerdict,
}

/// The findings of one look.
#[derive(Debug, Default)]
pub struct SweepFindings {
    pub machines: Vec<Judged>,
    /// Disks, addresses, requests and alarms that no machine needs.
    pub residue: Vec<Residue>,
    /// Places that did not answer.
    pub unknown: Vec<(String, String)>,
    /// Places that were not asked, and why.
    pub unasked: Vec<(String, String)>,
}

/// The places where the owner may have machines.
#[derive(Debug, Default)]
pub struct Everywhere {
    pub places: BTreeSet<CloudRegion>,
    /// Clouds that did not answer, and why.
    pub unknown: Vec<(String, String)>,
    /// The clouds without any credentials.
    pub unsigned: BTreeSet<market::CloudKind>,
}

/// The result of a request to end a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndAnswer {
    Ends,
    /// It stops, and its disk is kept.
    Stops,
    /// Its disk is kept, and the cloud cannot stop it, so it runs on. Why, as a text after its
    /// name.
    RunsOn(String),
}

/// Between the two looks. A slow agent is heard by then, with its heartbeat every 15 s. A longer
/// time adds to the cost of an orphan.
pub const SECOND_LOOK: Duration = Duration::from_secs(60);

/// Records of machines that are read in parallel.
pub(crate) const READS_IN_FLIGHT: usize = 16;

/// The limit for the record of an end: an orphan bills, also while the job root is down.
const INTENT_MAX: Duration = Duration::from_secs(10);

/// After its outcome, an agent says by then that it holds the machine: at its next heartbeat, a
/// quarter of a minute later, with some delay.
const HELD_IS_SAID_WITHIN: Duration = Duration::from_secs(60);

/// The limit for the records of one machine; a healthy store needs a second.
const RECORDS_MAX: Duration = Duration::from_secs(10);

/// The facts that a second look reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Tags, records, heartbeat, and the store's clock.
    Everything,
    /// Tags and this program's own clock, for the hard cap. That clock must be a clock of the
    /// cloud.
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

/// A place may be asked twice; each machine counts once.
fn each_once(mut views: Vec<InstanceView>) -> Vec<InstanceView> {
    let mut seen = BTreeSet::new();
    views.retain(|view| seen.insert(view.machine()));
    views
}

impl OrphanSweeper {
    pub fn new(store: &Arc<dyn Store>, clouds: &Clouds, clock: &Clocks, name: &str) -> Self {
        let (store, clouds, clock, name) =
            (Arc::clone(store), clouds.clone(), clock.clone(), name.to_owned());
        OrphanSweeper { store, clouds, clock, name }
    }

    /// All regions of every cloud that can be asked.
    pub async fn everywhere(&self) -> (BTreeSet<CloudRegion>, Vec<(String, String)>) {
        let Everywhere { places, unknown, .. } = self.ask_everywhere().await;
        (places, unknown)
    }

    /// The same, with the clouds that could not be asked for lack of credentials.
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

    /// Looks at all machines of the owner in these places. Ends none.
    pub async fn look_for_orphans(&self, places: &BTreeSet<CloudRegion>) -> SweepFindings {
        let mut found = SweepFindings::default();
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
        let judged = each_once(views).into_iter().map(|view| self.judge(view, now));
        found.machines = stream::iter(judged).buffered(READS_IN_FLIGHT).collect().await;
        found
    }

    /// The same without residue. A place that does not answer within `each` is unknown alone.
    pub async fn look_at_machines(
        &self,
        places: &BTreeSet<CloudRegion>,
        each: Duration,
    ) -> SweepFindings {
        let mut found = SweepFindings::default();
        let now = self.clock.store_now().await;
        let places = places.iter().map(|(cloud, region)| (*cloud, region));
        let mut views = Vec::new();
        for (region, described) in self.describe_within(places, each).await {
            match described {
                Ok(described) => views.extend(described),
                Err(why) => found.unknown.push((region.to_string(), why)),
            }
        }
        let judged = each_once(views).into_iter().map(|view| self.judge_in_time(view, now));
        found.machines = stream::iter(judged).buffered(READS_IN_FLIGHT).collect().await;
        found
    }

    /// The machines of each place, or why it did not answer within `each`. A cloud that cannot be
    /// asked is left out.
    pub(super) async fn describe_within<'a>(
        &self,
        places: impl Iterator<Item = (market::CloudKind, &'a Region)>,
        each: Duration,
    ) -> Vec<(&'a Region, Result<Vec<InstanceView>, String>)> {
        let asked =
            places.filter_map(|(cloud, region)| Some((region, self.clouds.get(cloud).ok()?)));
        let asked = asked.map(|(region, port)| async move {
            (region, self.clock.within(each, port.describe(&self.clouds.owner, region)).await)
        });
        join_all(asked).await
    }

    /// Ends an orphan if it still is one, or stops it if its disk is kept. `None`: it is no orphan
    /// any more, and runs on.
    ///
    /// # Errors
    /// When the cloud does not answer: the machine may have been ended.
    pub async fn end_orphan(&self, before: &Judged) -> Result<Option<EndAnswer>, CloudError> {
        Ok(self.end_by(before, By::Everything).await?.map(|(_, asked)| asked))
    }

    pub(crate) async fn end_by(
        &self,
        before: &Judged,
        by: By,
    ) -> Result<Option<(Judged, EndAnswer)>, CloudError> {
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
        // After a sleep of the workstation, the machine may run another job by now.
        if self.clock.mono().saturating_sub(looked) > ANSWER_HOLDS {
            return Ok(None);
        }
        if keeps {
            tracing::warn!("stopping {machine}, whose disk is kept: {why}");
            let asked = match cloud.stop(&machine).await {
                Err(CloudError::Unstoppable { what }) => {
                    EndAnswer::RunsOn(never_stopped(&judged.view, &what))
                }
                stopped => stopped.map(|()| EndAnswer::Stops)?,
            };
            return Ok(Some((judged, asked)));
        }
        tracing::warn!("terminating {machine}: {why}");
        cloud.terminate(&machine).await?;
        Ok(Some((judged, EndAnswer::Ends)))
    }

    /// Ends a machine with an unknown job that the user has named; a sweep never does. Its disk is
    /// deleted. A record would be useless, because no controller settles such a job. `None`: the
    /// machine is gone, or its job is known here.
    ///
    /// # Errors
    /// When the cloud does not answer: the machine may have been ended.
    pub async fn end_stray(&self, named: &MachineRef) -> Result<Option<EndAnswer>, CloudError> {
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
        Ok(Some(EndAnswer::Ends))
    }

    /// The machine now; `None`: it is not shown.
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

    /// Records the end like a drive does, for the controller that settles the attempt. Gives
    /// whether the disk is kept: the settled attempt keeps it, and a user has started the machine
    /// in the console; or the outcome keeps it, and the power-off failed.
    async fn intend_to_end_orphan(&self, orphan: &Judged) -> bool {
        let (OrphanVerdict::Orphan { why }, tags) = (&orphan.verdict, &orphan.view.tags) else {
            return false;
        };
        let dir = JobDir::new(Arc::clone(&self.store), tags.job.clone());
        let recorded: Result<bool, JobDirError> = async {
            // No record for a job of another job root, and a settled record stays as it is.
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
                swept_by: Some(self.name.clone()),
            };
            dir.create_ending(tags.attempt, &ending).await.map(|_| keeps)
        }
        .await;
        recorded.unwrap_or_else(|error| {
            tracing::warn!(machine = %orphan.view.machine(), "cannot record why it is ended: {}", chain(&error));
            // It is unknown whether the disk is kept. A stopped disk can be given up later; a
            // deleted one is lost.
            if is_unreadable(&error) { can_stand(&orphan.view) } else { was_started_past_its_cap(&orphan.view) }
        })
    }

    /// GPU machines of the account that Lamplighter did not launch. They are only listed.
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

    /// A machine whose records hang is unknown, and hides no other.
    pub(crate) async fn judge_in_time(&self, view: InstanceView, now: Option<Timestamp>) -> Judged {
        let judged = self.clock.bounded(RECORDS_MAX, self.judge(view.clone(), now)).await;
        judged.unwrap_or_else(|| Judged {
            view,
            verdict: OrphanVerdict::Unknown { why: no_answer(RECORDS_MAX) },
        })
    }

    pub(crate) async fn judge(&self, view: InstanceView, now: Option<Timestamp>) -> Judged {
        let (mut records, heartbeat) = tokio::join!(self.records(&view), self.heartbeat(&view));
        if let (Records::Open, LastHeartbeat::At(heard)) = (&records, &heartbeat) {
            records = self.ended(&view, *heard).await;
        }
        let verdict = orphan::judge(&OrphanFacts {
            view: &view,
            owner: &self.clouds.owner,
            records,
            heartbeat,
            now,
        });
        Judged { view, verdict }
    }

    /// Judges the hard cap by the tags of the machine alone.
    pub(crate) fn judge_by_tags(&self, view: InstanceView) -> Judged {
        let unread = || "only its tags were read".to_owned();
        let (records, heartbeat, now) =
            (Records::Unknown(unread()), LastHeartbeat::Unknown(unread()), Some(self.clock.now()));
        let verdict = orphan::judge(&OrphanFacts {
            view: &view,
            owner: &self.clouds.owner,
            records,
            heartbeat,
            now,
        });
        Judged { view, verdict }
    }

    /// The existence of a record counts: a torn record, or one of a later version, keeps no machine
    /// running.
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
            // A job of another job root has the same id.
            Ok((.., Some(plan))) if !may_be_of(&plan, view) => Records::NoJob,
            Ok((true, false, false, _)) => Records::Open,
            Ok(_) => Records::Over,
            Err(error) => Records::Unknown(chain(&error)),
        }
    }

    /// Whether an open attempt has ended: its agent has written the outcome, and does not hold the
    /// machine for the user. The agent says that it holds after the outcome, so without a later
    /// heartbeat it may hold. The exception is a last heartbeat that announces the power-off. The
    /// machine has its time from that heartbeat on, because holding may have been long.
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

    async fn heartbeat(&self, view: &InstanceView) -> LastHeartbeat {
        match self.store.head(&layout::status(&view.tags.job, view.tags.attempt)).await {
            Ok(Some(meta)) => LastHeartbeat::At(meta.modified),
            Ok(None) => LastHeartbeat::Never,
            Err(error) => LastHeartbeat::Unknown(chain(&error)),
        }
    }
}

/// The record exists and is unreadable: it is damaged, or from a later version.
fn is_unreadable(error: &JobDirError) -> bool {
    matches!(error, JobDirError::Record(_))
}

/// An unreadable record counts as none for a sweep, which only asks whether it exists.
fn unless_unreadable<T>(read: Result<Option<T>, JobDirError>) -> Result<Option<T>, JobDirError> {
    match read {
        Err(error) if is_unreadable(&error) => Ok(None),
        other => other,
    }
}
