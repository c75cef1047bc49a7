//! One controller's memory of an attempt: its records, and its own observations by the steady
//! clock.
//!
//! Each look at heartbeat, news and cloud is noted here, and each launch with its answer. `facts`
//! gives the input of a decision. A new controller observes everything anew. Conclusions belong to
//! `policy`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::launch::launch_certainty::Certainty;
use super::settle::alarm_state::{self, Guarding};
use super::settle::heartbeat_streak::Beats;
use super::settle::host_health::HostSeen;
use crate::instance::{InstanceView, Status};
use crate::job::{Lease, Outcome, Plan, Refusal, Settled};
use crate::market::elapsed;
use crate::policy::lifecycle::reconcile::{AttemptFacts, CheckpointSummaries, Watched};

/// Records are written once, so each is read once.
#[derive(Clone, Debug, Default)]
pub struct AttemptMemory {
    /// Incomplete after the agent's first heartbeat ([`JobMemory::lighten`]).
    pub plan: Option<Arc<Plan>>,
    pub lease: Option<Lease>,
    pub outcome: Option<Outcome>,
    pub settled: Option<Arc<Settled>>,
    /// When this controller first saw it settled.
    pub settled_since: Option<Duration>,
    /// The last heartbeat that was read.
    pub status: Option<Status>,
    /// The journal when its machine was gone, and its number of pieces.
    pub journal: Option<(usize, CheckpointSummaries)>,
    pub watched: Watched,
    /// Whether a launch that is refused now has certainly made no machine.
    pub certainty: Certainty,
    /// The job directory says why its machine is ended.
    pub ending_recorded: bool,
    /// The heartbeat's last change by the store's clock: from the record itself, and from the news.
    beat: Option<Timestamp>,
    beat_in_news: Option<Timestamp>,
    looked_at: Option<Duration>,
    beats: Beats,
    outcome_since: Option<Duration>,
    /// The last launch that may have made the machine.
    asked_at: Option<Duration>,
    /// The first launch or start that was answered with a machine.
    starts_at: Option<Duration>,
    refused_at: Option<Duration>,
    missing_since: Option<Duration>,
    /// The first answer that showed it no longer billing.
    dark_since: Option<Duration>,
    /// The last answer that showed it billing.
    billed_at: Option<Duration>,
    pub guarding: Guarding,
    pub host: HostSeen,
}

/// The most that one pause between two looks adds to a silence. More would end healthy machines
/// when a laptop wakes. Less than a tick would add up nothing.
const GAP_MAX: Duration = Duration::from_secs(60);

/// The heartbeat and its news are two objects, written one after the other over a slow line. News
/// come once a minute, heartbeats four times.
const TOLD_WITHIN: Duration = Duration::from_secs(90);

impl AttemptMemory {
    /// Notes a plan that this controller has made: no controller has launched it before.
    pub fn planned(&mut self, plan: impl Into<Arc<Plan>>, now: Duration) {
        self.plan = Some(plan.into());
        self.certainty.planned(now);
    }

    /// Notes a launch that made the machine, or may have. Silence and absence count from now.
    pub fn asked(&mut self, now: Duration) {
        (self.asked_at, self.missing_since) = (Some(now), None);
        (self.watched.asked_for, self.watched.missing_for) = (Some(Duration::ZERO), Duration::ZERO);
        (self.watched.silent_for, self.watched.refusals) = (Duration::ZERO, 0);
    }

    /// Notes the machine that a launch or start returned. It cancels an earlier refusal.
    pub fn launched(&mut self, instance: String, now: Duration) {
        (self.watched.launched, self.watched.refused, self.refused_at) =
            (Some(instance), None, None);
        self.starts_at = self.starts_at.or(Some(now));
        self.asked(now);
    }

    /// Notes a refused launch.
    pub fn refused(&mut self, refusal: Option<Refusal>, why: String, now: Duration) {
        self.watched.refused = Some((refusal, why));
        (self.refused_at, self.watched.refused_for) = (Some(now), Duration::ZERO);
        self.certainty.refused(now);
        self.watched.refusals = self.watched.refusals.saturating_add(1);
    }

    /// Whether all its records have been read.
    pub fn is_settled(&self) -> bool {
        self.plan.is_some() && self.settled.is_some()
    }

    /// The input of a decision.
    pub fn facts(&self, plan: Arc<Plan>, journal: CheckpointSummaries) -> AttemptFacts {
        AttemptFacts {
            plan,
            lease: self.lease.clone(),
            status: self.status.clone(),
            outcome: self.outcome.clone(),
            settled: self.settled.clone(),
            journal,
            watched: Watched { unclear: !self.certainty.is_sure(), ..self.watched.clone() },
        }
    }

    /// Notes a look at the heartbeat.
    pub fn heard(&mut self, beat: Option<Timestamp>, now: Duration) {
        // A resting job is read in its turn: its news may have told of this heartbeat already.
        let told = self
            .beat_in_news
            .zip(beat)
            .is_some_and(|(told, beat)| elapsed(told, beat) <= TOLD_WITHIN);
        let is_new = beat != self.beat && !told;
        self.watched.beats_for = self.beats.heard(beat != self.beat, now);
        self.watched.beats_on |= is_new && self.beat.is_some();
        self.beat = beat;
        self.watched.heard_at = beat;
        self.listened(is_new, now);
    }

    /// Notes the heartbeat that the news report.
    pub fn heard_in_news(&mut self, beat: Option<Timestamp>, now: Duration) {
        let is_new = beat != self.beat_in_news;
        self.watched.beats_on |= is_new && self.beat_in_news.is_some();
        self.beat_in_news = beat;
        self.listened(is_new, now);
    }

    fn listened(&mut self, is_new: bool, now: Duration) {
        let gap =
            self.looked_at.map_or(Duration::ZERO, |before| now.saturating_sub(before)).min(GAP_MAX);
        alarm_state::looked(
            &mut self.watched,
            self.looked_at.map(|before| now.saturating_sub(before)),
        );
        self.looked_at = Some(now);
        self.watched.silent_for =
            if is_new { Duration::ZERO } else { self.watched.silent_for + gap };
        if is_new {
            // A machine with a heartbeat exists, even if the cloud's list lacks it.
            self.missing_since = self.missing_since.map(|_| now);
            // Observations after the earlier heartbeat say nothing about the time after this one.
            (self.watched.billed_after_beat, self.watched.host_fails_for, self.host) =
                (Duration::ZERO, Duration::ZERO, HostSeen::default());
        }
        self.watched.guard_waits = self.guarding.waits(now);
        if self.outcome.is_some() {
            let since = *self.outcome_since.get_or_insert(now);
            self.watched.outcome_for = now.saturating_sub(since);
        }
    }

    /// Notes an answer of the cloud.
    pub fn shown(&mut self, view: Option<&InstanceView>, now: Duration) {
        let there = view.is_some();
        self.certainty.looked(now);
        if let Some(view) = view {
            // Another controller has just launched it, so its silence starts now. So too after our
            // own launch without an answer, which may have done nothing. So too for a kept machine
            // that another controller has started.
            let ours = self.watched.launched.is_some();
            if self.watched.launched_at != Some(view.launched)
                && !ours
                && self.beat.is_none()
                && view.state.bills()
            {
                self.watched.silent_for = Duration::ZERO;
            }
            // Another controller has launched it since the refusal. A kept machine is shown before
            // its start too.
            if self.plan.as_ref().is_none_or(|plan| plan.starts.is_none()) {
                (self.watched.shown, self.watched.refused, self.refused_at) =
                    (Some(view.id.clone()), None, None);
            }
            let stood =
                self.watched.stood.filter(|_| self.watched.launched_at == Some(view.launched));
            self.watched.launched_at = Some(view.launched);
            self.watched.stood =
                stood.into_iter().chain(view.ended.filter(|_| !view.state.bills())).min();
            if view.state.bills() {
                (self.watched.billed_after_beat, self.dark_since, self.billed_at) =
                    (self.watched.silent_for, None, Some(now));
            } else {
                let since = *self.dark_since.get_or_insert(now);
                self.watched.unlooked = self.billed_at.map(|billed| since.saturating_sub(billed));
            }
        }
        self.watched.lit_for = self.billed_at.map(|at| now.saturating_sub(at));
        self.watched.dark_for = self.dark_since.map(|since| now.saturating_sub(since));
        self.missing_since = if there { None } else { self.missing_since.or(Some(now)) };
        self.watched.asked_for = self.asked_at.map(|asked| now.saturating_sub(asked));
        self.watched.starts_for = self.starts_at.map(|starts| now.saturating_sub(starts));
        self.watched.refused_for =
            self.refused_at.map_or(Duration::ZERO, |refused| now.saturating_sub(refused));
        self.watched.missing_for =
            self.missing_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::{InstanceState, Tags};
    use crate::market::{CloudKind, Market, Region};

    #[test]
    fn machine_with_heartbeats_is_not_missing() {
        let mut memory = AttemptMemory::default();
        let secs = Duration::from_secs;
        for now in (0..300).step_by(15) {
            memory.heard(Some(Timestamp::from_second(now).expect("a time")), secs(now as u64));
            memory.shown(None, secs(now as u64 + 1));
            assert!(memory.watched.missing_for <= secs(1), "{:?}", memory.watched.missing_for);
        }
        for now in (300..=360).step_by(15) {
            memory.heard(Some(Timestamp::from_second(285).expect("a time")), secs(now));
            memory.shown(None, secs(now));
        }
        assert!(memory.watched.missing_for >= secs(60), "{:?}", memory.watched.missing_for);
    }

    #[test]
    fn sleep_of_the_workstation_is_not_silence() {
        let mut memory = AttemptMemory::default();
        let beat = Some(Timestamp::UNIX_EPOCH);
        let mut now = Duration::from_secs(1000);
        for _ in 0..=10 {
            memory.heard(beat, now);
            now += Duration::from_secs(15);
        }
        assert_eq!(memory.watched.silent_for, Duration::from_secs(150));
        memory.heard(beat, now + Duration::from_secs(12 * 3600));
        assert_eq!(memory.watched.silent_for, Duration::from_secs(210));
        memory.heard(Some(Timestamp::UNIX_EPOCH + Duration::from_secs(1)), now);
        assert_eq!(memory.watched.silent_for, Duration::ZERO);
    }

    /// Its plan was half an hour old, and another controller launched it a moment ago.
    #[test]
    fn silence_counts_from_the_first_view() {
        let (secs, running) = (Duration::from_secs, view(InstanceState::Running));
        let mut memory = AttemptMemory::default();
        for now in (0..1560).step_by(30) {
            memory.heard(None, secs(now));
            memory.shown(None, secs(now));
        }
        memory.shown(Some(&running), secs(1560));
        assert_eq!(memory.watched.silent_for, Duration::ZERO);
        memory.heard(None, secs(1590));
        memory.shown(Some(&running), secs(1590));
        assert!(memory.watched.silent_for >= secs(30), "from then on it counts");
        // The launching controller counts from its launch, however late the machine is shown.
        let mut launcher = AttemptMemory::default();
        launcher.launched("i-1".into(), Duration::ZERO);
        launcher.heard(None, secs(1));
        launcher.heard(None, secs(41));
        launcher.shown(Some(&running), secs(42));
        assert_eq!(launcher.watched.silent_for, secs(40));
        // Without an answer, another controller may have launched it (seed 18000083 of 24 h).
        let mut unanswered = AttemptMemory::default();
        unanswered.asked(Duration::ZERO);
        unanswered.heard(None, secs(1));
        unanswered.heard(None, secs(41));
        unanswered.shown(Some(&running), secs(42));
        assert_eq!(unanswered.watched.silent_for, Duration::ZERO);
    }

    #[test]
    fn missing_counts_from_the_first_answer_without_it() {
        let mut memory = AttemptMemory::default();
        memory.shown(None, Duration::from_secs(10));
        assert_eq!(memory.watched.missing_for, Duration::ZERO);
        memory.shown(None, Duration::from_secs(75));
        assert_eq!(memory.watched.missing_for, Duration::from_secs(65));
        memory.shown(Some(&view(InstanceState::Running)), Duration::from_secs(80));
        assert_eq!(memory.watched.missing_for, Duration::ZERO);
    }

    /// Seed 672: the cloud was throttled for five minutes, and then a launch came through.
    #[test]
    fn missing_counts_from_the_launch() {
        let mut memory = AttemptMemory::default();
        let secs = Duration::from_secs;
        memory.shown(None, secs(10));
        memory.shown(None, secs(310));
        assert_eq!((memory.watched.missing_for, memory.watched.asked_for), (secs(300), None));
        memory.asked(secs(311));
        assert_eq!(memory.watched.missing_for, Duration::ZERO);
        memory.shown(None, secs(312));
        memory.shown(None, secs(342));
        assert_eq!(
            (memory.watched.missing_for, memory.watched.asked_for),
            (secs(30), Some(secs(31)))
        );
    }

    /// Seed 6001023 of 24 h: a machine was offline for half an hour while the cloud showed it. The
    /// laptop slept over its last heartbeat and its end, and its bill was 25 minutes too long.
    #[test]
    fn new_heartbeat_resets_billed_time() {
        let mut memory = AttemptMemory::default();
        let (secs, beat) =
            (Duration::from_secs, |at| Some(Timestamp::from_second(at).expect("a time")));
        memory.heard(beat(0), secs(0));
        for now in (15..=1500).step_by(15) {
            memory.heard(beat(0), secs(now));
            memory.shown(Some(&view(InstanceState::Running)), secs(now));
        }
        assert_eq!(memory.watched.billed_after_beat, secs(1500));
        memory.heard(beat(1900), secs(5000));
        memory.shown(None, secs(5000));
        assert_eq!(memory.watched.billed_after_beat, Duration::ZERO);
    }

    /// Each of thousands of jobs is read in its turn, an hour after its last heartbeat. The news
    /// have told of that heartbeat long ago.
    #[test]
    fn heartbeat_known_from_news_is_not_new() {
        let mut memory = AttemptMemory::default();
        let (secs, beat) = (Duration::from_secs, |at: u64| {
            Some(Timestamp::from_second(at as i64).expect("a time"))
        });
        memory.heard(beat(0), secs(0));
        for now in (15..=600).step_by(15) {
            memory.heard_in_news(beat(now), secs(now));
        }
        for now in (615..=2400).step_by(15) {
            memory.heard_in_news(beat(600), secs(now));
        }
        memory.shown(Some(&view(InstanceState::Running)), secs(2400));
        memory.heard(beat(601), secs(2401));
        assert_eq!(
            (memory.watched.silent_for, memory.watched.billed_after_beat),
            (secs(1801), secs(1800))
        );
        // A listing without news must not hide that a machine has a heartbeat.
        memory.heard(beat(2390), secs(2402));
        assert_eq!(
            (memory.watched.silent_for, memory.watched.billed_after_beat),
            (Duration::ZERO, Duration::ZERO)
        );
    }

    #[test]
    fn launched_machine_cancels_a_refusal() {
        let mut memory = AttemptMemory::default();
        memory.refused(Some(Refusal::Capacity), "none is left".into(), Duration::from_secs(10));
        memory.shown(None, Duration::from_secs(70));
        assert_eq!(memory.watched.refused_for, Duration::from_secs(60));
        memory.launched("i-0005".into(), Duration::from_secs(71));
        memory.shown(None, Duration::from_secs(72));
        assert_eq!((&memory.watched.refused, memory.watched.refused_for), (&None, Duration::ZERO));
    }

    /// Seeds 37008093 and 37025714 of 24 h: another controller's launch succeeded after a refusal
    /// here, and its machine was missing from the receipt.
    #[test]
    fn shown_machine_cancels_a_refusal() {
        let mut memory = AttemptMemory::default();
        memory.refused(Some(Refusal::Price), "too dear".into(), Duration::ZERO);
        memory.shown(Some(&view(InstanceState::Running)), Duration::from_secs(60));
        memory.shown(None, Duration::from_secs(3600));
        let Watched { refused, shown, lit_for, .. } = memory.watched;
        assert_eq!(
            (refused, shown.as_deref(), lit_for),
            (None, Some("i"), Some(Duration::from_secs(3540)))
        );
    }

    /// The end of billing keeps the stop's date. A stop before the last start is not the end of
    /// this one.
    #[test]
    fn stop_date_is_kept_until_the_next_start() {
        let (secs, at) =
            (Duration::from_secs, |at| Some(Timestamp::from_second(at).expect("a time")));
        let seen = |state, ended| InstanceView { ended, ..view(state) };
        let mut memory = AttemptMemory::default();
        memory.shown(Some(&view(InstanceState::Running)), secs(10));
        memory.shown(Some(&seen(InstanceState::Stopped, at(100))), secs(200));
        memory.shown(Some(&seen(InstanceState::Terminated, at(900))), secs(1000));
        assert_eq!(memory.watched.stood, at(100));
        memory.shown(
            Some(&InstanceView { launched: at(950).expect("it"), ..view(InstanceState::Running) }),
            secs(1010),
        );
        assert_eq!(memory.watched.stood, None);
    }

    /// Seed 1939: its boot had taken too long before it was launched.
    #[test]
    fn silence_counts_from_the_launch() {
        let mut memory = AttemptMemory::default();
        for minute in 0..20 {
            memory.heard(None, Duration::from_secs(minute * 60));
        }
        assert_eq!(memory.watched.silent_for, Duration::from_secs(19 * 60));
        memory.asked(Duration::from_secs(20 * 60));
        memory.heard(None, Duration::from_secs(20 * 60 + 15));
        assert!(
            memory.watched.silent_for <= Duration::from_secs(75),
            "{:?}",
            memory.watched.silent_for
        );
    }

    fn view(state: InstanceState) -> InstanceView {
        let tags = [("owner", "me"), ("job", "x-222222"), ("attempt", "0001"), ("lease-s", "1800")];
        let tags = tags.map(|(key, value)| (format!("lamplighter:{key}"), value.to_owned())).into();
        InstanceView {
            id: "i".into(),
            cloud: CloudKind::Aws,
            region: Region::new("r"),
            instance_type: "t".into(),
            market: Market::Spot,
            state,
            tags: Tags::from_map(&tags).unwrap(),
            client_token: None,
            launched: Timestamp::UNIX_EPOCH,
            ended: None,
            state_reason: None,
        }
    }

    #[test]
    fn end_of_billing_keeps_the_looks_around_it() {
        let mut memory = AttemptMemory::default();
        let secs = Duration::from_secs;
        for now in [100, 110, 120] {
            memory.heard(Some(Timestamp::UNIX_EPOCH), secs(now));
            memory.shown(
                Some(&view(if now < 120 {
                    InstanceState::Running
                } else {
                    InstanceState::ShuttingDown
                })),
                secs(now),
            );
        }
        memory.heard(Some(Timestamp::UNIX_EPOCH), secs(135));
        memory.shown(Some(&view(InstanceState::Terminated)), secs(135));
        assert_eq!(
            (memory.watched.billed_after_beat, memory.watched.dark_for),
            (secs(10), Some(secs(15)))
        );
        assert_eq!(memory.watched.unlooked, Some(secs(10)));
    }
}
