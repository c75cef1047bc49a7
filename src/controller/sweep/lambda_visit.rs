//! A visit of the sweeper in the cloud: the same sweep as `lamp sweep` and the daemon's. The
//! program keeps no memory between two visits, and may be cut off at any moment.
//!
//! ```text
//!   every region ──> our machines that bill
//!     ├─ past their hard cap, by tags and our clock ──> read again ──> terminate
//!     └─ the rest: records, heartbeat, the store's clock ──> policy::lifecycle::orphan
//!          ├─ suspected for a minute or longer ──> read again ──> terminate
//!          └─ new ──> suspects.json ──> a minute, if there is time ──> the same
//! ```
//! If the job root is down, only machines past their hard cap are ended, because the cap is in
//! their tags. Each region and each object has its share of the time, so a slow one hides no other.
//! The clock of the program must be a clock of the cloud.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;

use super::sweeper::{By, EndAnswer, Judged, OrphanSweeper, READS_IN_FLIGHT, SECOND_LOOK};
use crate::account::sweeper_visit::{
    EndedMachine, Place, StoppedMachine, Suspect, Suspects, Trouble, Visit,
};
use crate::controller::clocks::no_answer;
use crate::instance::{InstanceView, MachineRef};
use crate::job::RECORD_FORMAT;
use crate::jobdir::SweeperDir;
use crate::market::elapsed;
use crate::policy::lifecycle::forgotten_disk::forgotten;
use crate::policy::lifecycle::orphan::OrphanVerdict;
use crate::ports::{Clock, CloudError, chain_with_cure};

/// The limit for a region, or for the records of all machines. A healthy one answers in a second,
/// and the rest of the visit needs its time.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// The limit for a small object. A visit waits for eight of them at most, and most take a tenth of
/// a second.
const RECORD_MAX: Duration = Duration::from_secs(10);

/// The time for the second look and the record of the visit, after the minute between the looks.
/// With less time left, the next visit makes the second look.
const AFTER_THE_WAIT: Duration = Duration::from_secs(50);

/// The number of unreadable machines that are listed one by one: mostly they have one cause.
const UNREAD_MAX: usize = 10;

/// A suspicion is valid for so long: two visits of five minutes may fail in between. An older one
/// comes from a sweeper that was switched off.
const SUSPICION_HOLDS: Duration = Duration::from_secs(16 * 60);

impl OrphanSweeper {
    /// One visit, which must end within `room`. `sweeper` is the name of its records.
    pub async fn visit(&self, sweeper: &str, version: &str, room: Duration) -> Visit {
        let until = self.clock.mono() + room;
        let mut visit = Visit::new(self.clock.now(), version, &self.clouds.owner);
        let dir = SweeperDir::new(Arc::clone(&self.store), sweeper);
        let (views, standing) = self.ours(&dir, &mut visit).await;
        let (past, rest): (Vec<Judged>, Vec<Judged>) =
            views.into_iter().map(|view| self.judge_by_tags(view)).partition(is_orphan);
        visit.judged = Some(count(past.len()));
        self.end_all(past, By::Tags, &mut visit).await;
        self.tell_of_kept(&standing, &mut visit).await;
        let rest = rest.into_iter().map(|judged| judged.view).collect();
        self.look_at_leases(rest, &dir, until, &mut visit).await;
        visit.judged_at = Some(
            if visit.sees_nobody() { self.judged_before(&dir).await } else { None }
                .unwrap_or(visit.at),
        );
        if let Err(why) = self.clock.within(RECORD_MAX, dir.put_visit(&visit)).await {
            visit.unknown.push(Trouble { what: "the record of this visit".into(), why });
        }
        visit
    }

    /// The machines that bill, and the stopped ones, in all regions of every cloud. A region that
    /// hangs must not hide the others.
    async fn ours(
        &self,
        dir: &SweeperDir,
        visit: &mut Visit,
    ) -> (Vec<InstanceView>, Vec<InstanceView>) {
        visit.places = self.places(dir, visit).await;
        let places = visit.places.iter().map(|place| (place.cloud, &place.region));
        let mut views: Vec<InstanceView> = Vec::new();
        for (region, described) in self.describe_within(places, LOOK_MAX).await {
            match described {
                Ok(described) => {
                    visit.regions += 1;
                    views.extend(
                        described.into_iter().filter(|view| *view.tags.owner == *self.clouds.owner),
                    );
                }
                Err(why) => visit.unknown.push(Trouble { what: region.to_string(), why }),
            }
        }
        views.sort_by_key(InstanceView::machine);
        views.dedup_by_key(|view| view.machine());
        let (billing, standing): (Vec<_>, Vec<_>) =
            views.into_iter().partition(|view| view.state.bills());
        visit.machines = count(billing.len());
        (billing, standing)
    }

    /// Lists disks that seem forgotten. After a late answer the next visit asks again.
    async fn tell_of_kept(&self, standing: &[InstanceView], visit: &mut Visit) {
        let kept = stream::iter(standing)
            .map(|view| self.standing(view))
            .buffer_unordered(READS_IN_FLIGHT);
        let kept = kept.take_until(self.clock.sleep(RECORD_MAX));
        visit.kept = kept.filter_map(|standing| async { standing }).collect().await;
        visit.kept.sort_by(|one, other| one.machine.cmp(&other.machine));
    }

    /// The last visit that could read records; for a visit of an older program, its time. `None`:
    /// it is unknown, and this visit counts.
    async fn judged_before(&self, dir: &SweeperDir) -> Option<Timestamp> {
        let before = self.clock.within(RECORD_MAX, dir.visit_before()).await.ok()??;
        Some(before.judged_at.unwrap_or(before.at))
    }

    /// The places to look at. One region's EC2 lists the regions. If it is down, a cloud without an
    /// answer is looked at in the places of the last visit and of the suspects: the hard cap holds
    /// in every region that answers.
    async fn places(&self, dir: &SweeperDir, visit: &mut Visit) -> Vec<Place> {
        let (found, unknown) = match self
            .clock
            .within(LOOK_MAX, async { Ok::<_, CloudError>(self.everywhere().await) })
            .await
        {
            Ok(found) => found,
            Err(why) => (Default::default(), vec![("the list of regions".to_owned(), why)]),
        };
        let mut places: BTreeSet<Place> =
            found.into_iter().map(|(cloud, region)| Place { cloud, region }).collect();
        if unknown.is_empty() {
            return places.into_iter().collect();
        }
        let mut before = BTreeSet::new();
        match self.clock.within(RECORD_MAX, dir.visit_before()).await {
            // The record of an older program has only the regions of suspects.
            Ok(known) => known.into_iter().for_each(|known| {
                before.extend(known.suspects.into_iter().map(|suspect| Place {
                    cloud: suspect.machine.cloud,
                    region: suspect.machine.region,
                }));
                before.extend(known.places);
            }),
            Err(why) => visit.unknown.push(Trouble { what: "the visit before".into(), why }),
        }
        before.retain(|place| places.iter().all(|known| known.cloud != place.cloud));
        let instead = match before.len() {
            0 => "no visit before has said where to look instead".to_owned(),
            1 => "looked in the one region of the visit before".to_owned(),
            many => format!("looked in the {many} regions of the visit before"),
        };
        visit.unknown.extend(
            unknown
                .into_iter()
                .map(|(what, why)| Trouble { what, why: format!("{why}: {instead}") }),
        );
        places.extend(before);
        places.into_iter().collect()
    }

    /// `None` also without a date: the next visit asks again.
    async fn standing(&self, view: &InstanceView) -> Option<StoppedMachine> {
        let (now, heard) =
            (self.clock.now(), self.clock.within(RECORD_MAX, self.heard_last(view)).await.ok()?);
        let stood = forgotten(view, heard, now)?;
        Some(StoppedMachine {
            machine: view.machine(),
            job: view.tags.job.clone(),
            since: now.checked_sub(stood).ok()?,
        })
    }

    /// Judges leases and records, if the job root answers.
    async fn look_at_leases(
        &self,
        views: Vec<InstanceView>,
        dir: &SweeperDir,
        until: Duration,
        visit: &mut Visit,
    ) {
        if views.is_empty() {
            return;
        }
        let root = || self.store.url();
        let unseen =
            |visit: &mut Visit, why: String| visit.unknown.push(Trouble { what: root(), why });
        let now = match self
            .clock
            .within(RECORD_MAX, async { Ok::<_, CloudError>(self.clock.store_now().await) })
            .await
        {
            Ok(Some(now)) => now,
            Ok(None) => {
                return unseen(
                    visit,
                    "it does not say what time it is: no lease was judged".into(),
                );
            }
            Err(why) => return unseen(visit, format!("{why}: no lease was judged")),
        };
        // The records of thousands of machines may take longer, if the rest of the visit has its
        // time.
        let (all, left) = (views.len(), until.saturating_sub(self.clock.mono()));
        let time = left.saturating_sub(SECOND_LOOK + AFTER_THE_WAIT).max(LOOK_MAX);
        let judged = stream::iter(views)
            .map(|view| self.judge_in_time(view, Some(now)))
            .buffered(READS_IN_FLIGHT);
        let judged: Vec<Judged> = judged.take_until(self.clock.sleep(time)).collect().await;
        if judged.len() < all {
            unseen(
                visit,
                format!(
                    "the records of {} machines were not read within {} s",
                    all - judged.len(),
                    time.as_secs()
                ),
            );
        }
        tell_of_unread(&judged, visit);
        let known = judged.iter().filter(|judged| !is_unknown(judged)).count();
        visit.judged = visit.judged.map(|past| past.saturating_add(count(known)));
        let orphans: Vec<Judged> = judged.into_iter().filter(is_orphan).collect();
        let known = match self.clock.within(RECORD_MAX, dir.suspects()).await {
            Ok(known) => known.map(|known| known.suspects).unwrap_or_default(),
            Err(why) => {
                unseen(visit, format!("who was suspected before is not known: {why}"));
                Vec::new()
            }
        };
        if orphans.is_empty() && known.is_empty() {
            return;
        }
        let all: Vec<(Judged, Suspect)> =
            orphans.into_iter().map(|orphan| suspected(orphan, &known, now)).collect();
        visit.suspects = all.iter().map(|(_, suspect)| suspect.clone()).collect();
        let suspects = Suspects { format: RECORD_FORMAT, suspects: visit.suspects.clone() };
        if let Err(why) = self.clock.within(RECORD_MAX, dir.put_suspects(&suspects)).await {
            unseen(visit, format!("whom this visit suspects could not be written: {why}"));
        }
        let (due, fresh): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, suspect)| elapsed(suspect.since, now) >= SECOND_LOOK);
        let mut cleared = self.second_look(due, visit).await;
        if !fresh.is_empty()
            && until.saturating_sub(self.clock.mono()) >= SECOND_LOOK + AFTER_THE_WAIT
        {
            self.clock.sleep(SECOND_LOOK).await;
            cleared.extend(self.second_look(fresh, visit).await);
        }
        if cleared.is_empty() {
            return;
        }
        // The next visit may suspect it again, and then looks twice again.
        visit.suspects.retain(|suspect| !cleared.contains(&suspect.machine));
        let suspects = Suspects { format: RECORD_FORMAT, suspects: visit.suspects.clone() };
        if let Err(why) = self.clock.within(RECORD_MAX, dir.put_suspects(&suspects)).await {
            unseen(visit, format!("whom this visit cleared could not be written: {why}"));
        }
    }

    /// Gives those that are no orphans any more.
    async fn second_look(
        &self,
        suspects: Vec<(Judged, Suspect)>,
        visit: &mut Visit,
    ) -> Vec<MachineRef> {
        self.end_all(
            suspects.into_iter().map(|(judged, _)| judged).collect(),
            By::Everything,
            visit,
        )
        .await
    }

    /// Reads each again before its end. A refused end is listed, and the next visit finds it again.
    /// Gives the machines that are no orphans any more.
    async fn end_all(&self, orphans: Vec<Judged>, by: By, visit: &mut Visit) -> Vec<MachineRef> {
        let ends = orphans.into_iter().map(|orphan| async move {
            let answer = self.clock.bounded(LOOK_MAX, self.end_by(&orphan, by)).await;
            (orphan, answer)
        });
        let ends: Vec<_> = stream::iter(ends).buffered(READS_IN_FLIGHT).collect().await;
        let mut cleared = Vec::new();
        for (orphan, answer) in ends {
            let not_ended = match answer {
                Some(Ok(Some((_, EndAnswer::RunsOn(why))))) => why,
                Some(Ok(Some((ended, EndAnswer::Ends | EndAnswer::Stops)))) => {
                    visit.ended.push(EndedMachine {
                        machine: ended.view.machine(),
                        job: ended.view.tags.job.clone(),
                        attempt: ended.view.tags.attempt,
                        why: reason(&ended),
                    });
                    continue;
                }
                Some(Ok(None)) => {
                    cleared.push(orphan.view.machine());
                    continue;
                }
                Some(Err(error)) => {
                    format!("may still run and bill: {}", chain_with_cure(&error))
                }
                None => format!("may still run and bill: {}", no_answer(LOOK_MAX)),
            };
            visit.trouble.push(Trouble {
                what: format!("{} in {}", orphan.view.id, orphan.view.region),
                why: not_ended,
            });
        }
        cleared
    }
}

/// Lists unreadable machines: a sweeper without the permission to read keeps every machine, and
/// must say so.
fn tell_of_unread(judged: &[Judged], visit: &mut Visit) {
    let unread = judged.iter().filter(|judged| is_unknown(judged));
    let told = unread
        .clone()
        .take(UNREAD_MAX)
        .map(|judged| Trouble { what: judged.view.id.clone(), why: reason(judged) });
    visit.unknown.extend(told);
    let more = unread.count().saturating_sub(UNREAD_MAX);
    if more > 0 {
        visit.unknown.push(Trouble {
            what: format!("{more} more machines"),
            why: "the same, or the like".into(),
        });
    }
}

fn count(all: usize) -> u32 {
    u32::try_from(all).unwrap_or(u32::MAX)
}

fn is_unknown(judged: &Judged) -> bool {
    matches!(judged.verdict, OrphanVerdict::Unknown { .. })
}

fn is_orphan(judged: &Judged) -> bool {
    matches!(judged.verdict, OrphanVerdict::Orphan { .. })
}

fn reason(judged: &Judged) -> String {
    match &judged.verdict {
        OrphanVerdict::Orphan { why }
        | OrphanVerdict::Stray { why }
        | OrphanVerdict::Keep { why }
        | OrphanVerdict::Unknown { why } => why.clone(),
    }
}

/// The time of the first suspicion: from an earlier visit, if that is recent.
fn suspected(orphan: Judged, known: &[Suspect], now: Timestamp) -> (Judged, Suspect) {
    let machine = orphan.view.machine();
    let before = known
        .iter()
        .find(|known| known.machine == machine && elapsed(known.since, now) <= SUSPICION_HOLDS);
    let suspect =
        Suspect { since: before.map_or(now, |known| known.since), why: reason(&orphan), machine };
    (orphan, suspect)
}
