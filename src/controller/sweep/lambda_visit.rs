//! A visit of the sweeper in the cloud: the same sweep as `lamp sweep` and the daemon's, by a
//! program that remembers nothing between two rounds and may be cut off at any moment.
//!
//! ```text
//!   every region (else those of the visit before) ──> ours that bill ─┬─ past their hard cap, by tags and our own clock ──> read again ──> terminate
//!                                    └─ the rest: records, heartbeat, the store's clock ──> policy::lifecycle::orphan
//!                                         suspected a minute ago or longer ──> all of it once more ──> terminate
//!                                         new ──> suspects.json ──> a minute, if there is room for it ──> the same
//! ```
//! The job root may be down: then nobody is ended but whose hard cap has passed, which stands in
//! the machine's own tags. No region and no object is waited for longer than its share, so that
//! what is sick hides nothing else. The clock of whoever makes a visit must be one of the cloud's
//! own. Not here: an opinion about what an orphan is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;

use super::sweeper::{By, EndAsked, Judged, OrphanSweeper, READS_IN_FLIGHT, SECOND_LOOK};
use crate::account::sweeper_visit::{Ended, Place, Standing, Suspect, Suspects, Trouble, Visit};
use crate::controller::clocks::no_answer;
use crate::instance::{InstanceView, MachineRef};
use crate::job::RECORD_FORMAT;
use crate::jobdir::SweeperDir;
use crate::market::elapsed;
use crate::policy::lifecycle::forgotten_disk::forgotten;
use crate::policy::lifecycle::orphan::OrphanVerdict;
use crate::ports::{Clock, CloudError, chain_with_cure};

/// A region, or the records of all machines, get so long: every healthy one answers in a second,
/// and a region that hangs must leave time for all that is not there.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// A small object of our own gets so long. A visit waits for eight of them at most, and most are
/// there in a tenth of a second.
const RECORD_MAX: Duration = Duration::from_secs(10);

/// What the second look and the record of the visit take after the minute between the looks; with
/// less room than both, the second look is the next visit's.
const AFTER_THE_WAIT: Duration = Duration::from_secs(50);

/// Machines whose records cannot be read are told of one by one up to so many: all of them mostly
/// have one cause.
const UNREAD_MAX: usize = 10;

/// A suspicion is good for a second look for so long: two visits of five minutes may be lost in
/// between. One that is older is of a sweeper that was switched off, and says nothing of now.
const SUSPICION_HOLDS: Duration = Duration::from_secs(16 * 60);

impl OrphanSweeper {
    /// One visit, which must be over within `room`; `sweeper` is the name under which it remembers.
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

    /// Those that bill, and those that stand still, in all regions of every cloud; each region by
    /// itself, because one that hangs must not hide the others.
    async fn ours(
        &self,
        dir: &SweeperDir,
        visit: &mut Visit,
    ) -> (Vec<InstanceView>, Vec<InstanceView>) {
        visit.places = self.places(dir, visit).await;
        let asked = visit
            .places
            .iter()
            .filter_map(|place| Some((&place.region, self.clouds.get(place.cloud).ok()?)));
        let asked = asked.map(|(region, port)| async move {
            (region, self.clock.within(LOOK_MAX, port.describe(&self.clouds.owner, region)).await)
        });
        let mut views: Vec<InstanceView> = Vec::new();
        for (region, described) in join_all(asked).await {
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

    /// Disks that seem forgotten. Whom nobody could say anything of in time is asked for again by
    /// the next visit.
    async fn tell_of_kept(&self, standing: &[InstanceView], visit: &mut Visit) {
        let kept = stream::iter(standing)
            .map(|view| self.standing(view))
            .buffer_unordered(READS_IN_FLIGHT);
        let kept = kept.take_until(self.clock.sleep(RECORD_MAX));
        visit.kept = kept.filter_map(|standing| async { standing }).collect().await;
        visit.kept.sort_by(|one, other| one.machine.cmp(&other.machine));
    }

    /// When the last visit came that was not as blind as this one: at the latest the one before, of
    /// a program that did not say so. `None`: there was none, or nobody says; then it is counted
    /// from this one.
    async fn judged_before(&self, dir: &SweeperDir) -> Option<Timestamp> {
        let before = self.clock.within(RECORD_MAX, dir.visit_before()).await.ok()??;
        Some(before.judged_at.unwrap_or(before.at))
    }

    /// Where to look. One region's EC2 says which there are; while that is down, each cloud that
    /// did not say so is looked at where the visit before looked, and where somebody is suspected:
    /// a hard cap is held in all regions that answer.
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
            // The record of an older program names the regions of suspects alone.
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

    /// `None` also where nobody can say since when: the next visit asks again.
    async fn standing(&self, view: &InstanceView) -> Option<Standing> {
        let (now, heard) =
            (self.clock.now(), self.clock.within(RECORD_MAX, self.heard_last(view)).await.ok()?);
        let stood = forgotten(view, heard, now)?;
        Some(Standing {
            machine: view.machine(),
            job: view.tags.job.clone(),
            since: now.checked_sub(stood).ok()?,
        })
    }

    /// Leases and records, where the job root answers.
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
        // Of thousands of machines the records may take longer than those of one, as long as the
        // rest of the visit has its time.
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
        // The next visit may suspect it anew, and then looks twice again.
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

    /// Each is read again before its end. One whose end was refused is told of, and found again by
    /// the next visit. Gives those that are no orphans any more.
    async fn end_all(&self, orphans: Vec<Judged>, by: By, visit: &mut Visit) -> Vec<MachineRef> {
        let ends = orphans.into_iter().map(|orphan| async move {
            let answer = self.clock.bounded(LOOK_MAX, self.end_by(&orphan, by)).await;
            (orphan, answer)
        });
        let ends: Vec<_> = stream::iter(ends).buffered(READS_IN_FLIGHT).collect().await;
        let mut cleared = Vec::new();
        for (orphan, answer) in ends {
            let not_ended = match answer {
                Some(Ok(Some((_, EndAsked::RunsOn(why))))) => why,
                Some(Ok(Some((ended, EndAsked::Ends | EndAsked::Stops)))) => {
                    visit.ended.push(Ended {
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

/// A sweeper that may not read the records keeps every machine, and looks well unless it says so.
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

/// Since when it is suspected: from an earlier visit, if that is not too long ago.
fn suspected(orphan: Judged, known: &[Suspect], now: Timestamp) -> (Judged, Suspect) {
    let machine = orphan.view.machine();
    let before = known
        .iter()
        .find(|known| known.machine == machine && elapsed(known.since, now) <= SUSPICION_HOLDS);
    let suspect =
        Suspect { since: before.map_or(now, |known| known.since), why: reason(&orphan), machine };
    (orphan, suspect)
}
