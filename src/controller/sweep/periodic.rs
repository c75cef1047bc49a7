//! The daemon's own sweep: every five minutes it looks for machines that no job needs, and a minute
//! later it ends those that are still orphans.
//!
//! ```text
//!   describe every region ──> not driven here, or past its hard cap ──> policy::lifecycle::orphan
//!                             an orphan ──> a minute ──> read again ──> terminate
//! ```
//! A driven machine is judged at every tick, so the sweep does not read its records. The cost grows
//! with regions and pages, not with jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use tracing::{debug, info, warn};

use super::foreign_news::ForeignMemory;
use super::sweeper::{EndAnswer, Judged, OrphanSweeper, READS_IN_FLIGHT, SECOND_LOOK};
use crate::controller::clocks::no_answer;
use crate::controller::cloud_answers::CloudRegion;
use crate::controller::job_memory::JobMemory;
use crate::controller::notify::job_events::JobEvent;
use crate::controller::notify::notifier::JobNotifier;
use crate::controller::root_memory::RootMemory;
use crate::instance::InstanceView;
use crate::job::EventKind;
use crate::jobdir::JobDir;
use crate::market::{CloudKind, Region};
use crate::policy::lifecycle::orphan::{self, OrphanVerdict};
use crate::ports::{Clock, CloudError, NoCredentials, chain};

/// Between two sweeps. The bound on the cost of an orphan counts with it. More often means calls
/// that find nothing, one for each region.
const EACH: Duration = Duration::from_secs(5 * 60);

/// After the daemon's start: by then its first ticks have read the jobs of the machines.
const FIRST: Duration = Duration::from_secs(60);

/// A longer look is given up until the next sweep: meanwhile the jobs need their ticks, and the
/// watchdog its report. Every region answers in a second.
const LOOK_MAX: Duration = Duration::from_secs(45);

/// The read of a spec before a message about an orphan. The jobs need their ticks.
const TELL_MAX: Duration = Duration::from_secs(5);

/// A call to one region; a look makes two in a row. Healthy regions answer in a second.
const REGION_MAX: Duration = Duration::from_secs(15);

/// The pause for a cloud without any credentials: most workstations without an account never get
/// one. An expired session may be renewed at any moment, and meanwhile a hanging machine bills
/// (seed 37026194 of 24 h).
const NOBODY_PAUSE: Duration = Duration::from_secs(15 * 60);

/// A daemon's memory of its sweeps.
#[derive(Default)]
pub(crate) struct SweepMemory {
    due: Option<Duration>,
    /// Orphans at the first look, and when the second is due.
    suspects: Vec<Judged>,
    second_look: Option<Duration>,
    /// The end of the pause for a cloud without credentials.
    unsigned: BTreeMap<CloudKind, Duration>,
    /// The last list of regions of each cloud. One region gives it; while that is down, the last
    /// list is swept.
    regions: BTreeMap<CloudKind, Vec<Region>>,
    /// The logged errors of places: each is logged once.
    said: BTreeMap<String, String>,
    foreign: ForeignMemory,
}

impl SweepMemory {
    fn places(&self) -> BTreeSet<CloudRegion> {
        let of = |(cloud, regions): (&CloudKind, &Vec<Region>)| {
            regions.iter().map(|region| (*cloud, region.clone())).collect::<Vec<_>>()
        };
        self.regions.iter().flat_map(of).collect()
    }
}

impl OrphanSweeper {
    /// Sweeps if a sweep is due. Gives the machines that do not bill; `None`: no look was due, or
    /// it took too long.
    pub(crate) async fn sweep_when_due(
        &self,
        memory: &mut SweepMemory,
        root: &RootMemory,
        notifier: &JobNotifier,
    ) -> Option<Vec<InstanceView>> {
        let now = self.clock.mono();
        if memory.second_look.is_some_and(|at| now >= at) {
            memory.second_look = None;
            let suspects = std::mem::take(&mut memory.suspects);
            stream::iter(&suspects)
                .for_each_concurrent(READS_IN_FLIGHT, |suspect| self.end_suspect(suspect))
                .await;
        }
        if now < *memory.due.get_or_insert(now + FIRST) {
            return None;
        }
        memory.due = Some(now + EACH);
        let Some((suspects, stopped)) =
            self.clock.bounded(LOOK_MAX, self.suspects(memory, root)).await
        else {
            warn!(
                "looking for machines that no job needs took more than {} s; again in 5 min",
                LOOK_MAX.as_secs()
            );
            return None;
        };
        if !suspects.is_empty() {
            memory.second_look = Some(self.clock.mono() + SECOND_LOOK);
        }
        for suspect in &suspects {
            if let OrphanVerdict::Orphan { why } = &suspect.verdict {
                warn!(job = %suspect.view.tags.job, "{} seems to be needed by no job ({why}); looking again in a minute", suspect.view.machine());
                self.tell_orphan(notifier, &suspect.view, why).await;
            }
        }
        memory.suspects = suspects;
        let places = memory.places();
        self.tell_foreign_when_due(&mut memory.foreign, &places, notifier).await;
        Some(stopped)
    }

    /// A machine of another job root is only logged: its job has no records here.
    async fn tell_orphan(&self, notifier: &JobNotifier, view: &InstanceView, why: &str) {
        if !notifier.is_wanted(EventKind::Orphan) {
            return;
        }
        let (job, machine) = (&view.tags.job, view.machine());
        let dir = JobDir::new(Arc::clone(&self.store), job.clone());
        let Some(Ok(Some(spec))) = self.clock.bounded(TELL_MAX, dir.spec()).await else { return };
        let text = format!(
            "{machine} in {} runs and bills, and no job needs it ({why}): the daemon looks again in a minute and ends it",
            machine.region
        );
        let event = JobEvent {
            topic: format!("orphan {machine}"),
            command: Some("lamp sweep".to_owned()),
            ..JobEvent::new(EventKind::Orphan, text)
        };
        notifier.tell_as(&dir, &spec, &mut JobMemory::default(), &event).await;
    }

    async fn end_suspect(&self, suspect: &Judged) {
        let machine = suspect.view.machine();
        match self.clock.bounded(LOOK_MAX, self.end_orphan(suspect)).await {
            Some(Ok(Some(EndAnswer::RunsOn(why)))) => {
                warn!("{machine} in {} {why}", machine.region)
            }
            Some(Ok(Some(EndAnswer::Ends | EndAnswer::Stops))) => {}
            Some(Ok(None)) => info!(%machine, "left alone: it is no orphan any more"),
            Some(Err(error)) => {
                warn!(%machine, "may still run and bill; the next sweep tries again: {}", chain(&error))
            }
            None => {
                warn!(%machine, "may still run and bill; nobody answered, and the next sweep tries again")
            }
        }
    }

    /// One region that hangs must not hide the others.
    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, CloudError> {
        self.clock.bounded(REGION_MAX, work).await.unwrap_or_else(|| {
            Err(CloudError::Ambiguous {
                act: "look for machines that no job needs".into(),
                cause: no_answer(REGION_MAX).into(),
            })
        })
    }

    /// The machines that bill and that no job needs, by one look; and the stopped ones, for their
    /// disks.
    async fn suspects(
        &self,
        memory: &mut SweepMemory,
        root: &RootMemory,
    ) -> (Vec<Judged>, Vec<InstanceView>) {
        let places = self.places_to_sweep(memory).await;
        let asked = places
            .iter()
            .filter_map(|(cloud, region)| Some((region, self.clouds.get(*cloud).ok()?)));
        let asked = asked.map(|(region, port)| async move {
            (region, self.in_time(port.describe(&self.clouds.owner, region)).await)
        });
        let mut views: Vec<InstanceView> = Vec::new();
        for (region, described) in join_all(asked).await {
            match described {
                Ok(described) => views.extend(
                    described.into_iter().filter(|view| *view.tags.owner == *self.clouds.owner),
                ),
                Err(error) => say_once(memory, region.as_str(), "is not swept", &error),
            }
        }
        let (mut views, others): (Vec<InstanceView>, Vec<InstanceView>) =
            views.into_iter().partition(|view| view.state.bills());
        if views.is_empty() {
            return (Vec::new(), others);
        }
        let now = self.clock.store_now().await;
        views.retain(|view| {
            !root.drives(view) || now.is_some_and(|now| orphan::is_past_cap(view, now))
        });
        let judged: Vec<Judged> = stream::iter(views)
            .map(|view| self.judge_in_time(view, now))
            .buffered(READS_IN_FLIGHT)
            .collect()
            .await;
        (
            judged
                .into_iter()
                .filter(|judged| matches!(judged.verdict, OrphanVerdict::Orphan { .. }))
                .collect(),
            others,
        )
    }

    async fn places_to_sweep(&self, memory: &mut SweepMemory) -> BTreeSet<CloudRegion> {
        let now = self.clock.mono();
        let due = self
            .clouds
            .all()
            .filter(|(which, _)| memory.unsigned.get(which).is_none_or(|until| now >= *until));
        let asked =
            join_all(due.map(|(which, cloud)| async move {
                (*which, self.in_time(cloud.regions()).await)
            }))
            .await;
        let mut places = BTreeSet::new();
        for (which, regions) in asked {
            match regions {
                Ok(regions) => {
                    places.extend(regions.iter().map(|region| (which, region.clone())));
                    memory.regions.insert(which, regions);
                }
                Err(error)
                    if NoCredentials::among(&error).is_some_and(NoCredentials::are_nowhere) =>
                {
                    memory.unsigned.insert(which, now + NOBODY_PAUSE);
                    say_once(memory, which.word(), "is not swept", &error);
                }
                Err(error) => {
                    let known = memory.regions.get(&which).cloned().unwrap_or_default();
                    let what = if known.is_empty() {
                        "is not swept"
                    } else {
                        "does not say which regions it has, and is swept in those of the last time"
                    };
                    places.extend(known.into_iter().map(|region| (which, region)));
                    say_once(memory, which.word(), what, &error);
                }
            }
        }
        places
    }
}

/// A missing account is no news. With an account, the trouble of a job tells the user.
fn say_once(memory: &mut SweepMemory, place: &str, what: &str, error: &CloudError) {
    let text = chain(error);
    if memory.said.insert(place.to_owned(), text.clone()).as_ref() == Some(&text) {
        return;
    }
    match error {
        CloudError::Denied { .. } => debug!("{place} {what}: {text}"),
        _ => warn!("{place} {what}: {text}"),
    }
}
