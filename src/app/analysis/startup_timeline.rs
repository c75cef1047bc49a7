//! The phases of an attempt up to its first work, beside the median of earlier ones.
//!
//! ```text
//!   plan ── launch ── boot ── agent ── fetch ── setup ── first work
//!   │       │         │       │        └ code, checkpoint  └ command started
//!   │       │         │       └ the agent has read its records
//!   │       │         └ the cloud's start of billing, known once the attempt is settled
//!   │       └ the machine is chosen
//!   └ the job was submitted, or its attempt before has ended
//! ```
//! Each phase ends where the next begins. A record that is missing makes its phase unknown.

use jiff::Timestamp;
use serde::Serialize;

use crate::app::view::timeline::{Explained, ExplainedAttempt};
use crate::instance::Status;
use crate::job::{AttemptNo, AttemptPhase};
use crate::jobdir::EventDetail;

/// The last phase: from the start of the command to its first work.
const FIRST_WORK: &str = "first work";

/// One phase. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct StartupPhase {
    pub name: &'static str,
    pub from: Timestamp,
    pub secs: f64,
    /// It still goes on, and `secs` is up to now.
    pub under_way: bool,
    /// The median of earlier attempts of this job and of similar jobs; `null`: none has this phase.
    pub median_secs: Option<f64>,
}

/// How one attempt began. The field names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "web", derive(utoipa::ToSchema))]
pub struct StartupTimeline {
    #[cfg_attr(feature = "web", schema(value_type = u32))]
    pub attempt: AttemptNo,
    pub phases: Vec<StartupPhase>,
    /// Up to the first work, or to the last known phase.
    pub secs: f64,
    /// The first work was seen.
    pub is_complete: bool,
}

impl StartupTimeline {
    /// After its time, if the first work was not seen.
    pub fn unfinished(&self) -> &'static str {
        let is_open = self.phases.iter().any(|phase| phase.under_way);
        match (self.is_complete, is_open) {
            (true, _) => "",
            (false, true) => " so far",
            (false, false) => " until its end",
        }
    }
}

/// The records of a job that tell how its attempts began.
#[derive(Clone, Copy)]
pub struct StartupFacts<'a> {
    pub attempts: &'a [ExplainedAttempt],
    /// When the job was submitted.
    pub created: Option<Timestamp>,
    /// The newest heartbeat of the newest attempt.
    pub newest: Option<NewestMoments>,
}

/// The moments of an attempt under way that only its heartbeat has.
#[derive(Clone, Copy)]
pub struct NewestMoments {
    pub agent_started: Timestamp,
    pub working_since: Option<Timestamp>,
}

impl<'a> StartupFacts<'a> {
    pub fn of(explained: &'a Explained, status: Option<&Status>) -> StartupFacts<'a> {
        let newest = status.map(|status| NewestMoments {
            agent_started: status.started,
            working_since: status.working_since,
        });
        StartupFacts { attempts: &explained.attempts, created: explained.created, newest }
    }

    /// When the plan of this attempt was wanted.
    fn wanted(&self, at: usize) -> Option<Timestamp> {
        let Some(before) = at.checked_sub(1) else { return self.created };
        let settled = self.attempts.get(before)?.settled.as_ref()?;
        let ended = settled.outcome.as_ref().map(|outcome| outcome.ended);
        ended.or(settled.billed_to)
    }
}

/// The timelines of all attempts, oldest first. `earlier`: of other jobs, for the medians. An
/// attempt without a plan has none.
pub fn startup_timelines(
    facts: &StartupFacts<'_>,
    earlier: &[StartupTimeline],
    now: Timestamp,
) -> Vec<StartupTimeline> {
    let mut timelines: Vec<StartupTimeline> = Vec::new();
    for (at, attempt) in facts.attempts.iter().enumerate() {
        let is_last = at + 1 == facts.attempts.len();
        let newest = facts.newest.filter(|_| is_last);
        let moments = Moments::of(attempt, facts.wanted(at), newest);
        let Some(mut timeline) = moments.map(|moments| moments.timeline(attempt, now)) else {
            continue;
        };
        for phase in &mut timeline.phases {
            phase.median_secs = median(earlier.iter().chain(&timelines), phase.name);
        }
        timelines.push(timeline);
    }
    timelines
}

/// The moments between the phases; `None`: the records lack this moment.
struct Moments {
    wanted: Option<Timestamp>,
    planned: Timestamp,
    billed: Option<Timestamp>,
    /// The agent has its records.
    agent: Option<Timestamp>,
    /// It begins to fetch.
    ready: Option<Timestamp>,
    fetched: Option<Timestamp>,
    started: Option<Timestamp>,
    working: Option<Timestamp>,
}

/// A phase between two moments. `to` is `None` while it goes on, or if its end has no record.
struct PhaseBounds {
    name: &'static str,
    from: Timestamp,
    to: Option<Timestamp>,
}

impl Moments {
    fn of(
        attempt: &ExplainedAttempt,
        wanted: Option<Timestamp>,
        newest: Option<NewestMoments>,
    ) -> Option<Moments> {
        let first = |fits: &dyn Fn(&EventDetail) -> bool| {
            attempt.events.iter().find(|event| fits(&event.what)).map(|event| event.at)
        };
        let phase = |wanted: AttemptPhase| {
            first(&|what| matches!(what, EventDetail::Phase { phase } if *phase == wanted))
        };
        let settled = attempt.settled.as_ref();
        let outcome = settled.and_then(|settled| settled.outcome.as_ref());
        let (setup, running) = (phase(AttemptPhase::Setup), phase(AttemptPhase::Running));
        let ready = first(&|what| matches!(what, EventDetail::Agent { .. }));
        let agent = outcome.map(|outcome| outcome.started);
        let agent = agent.or(newest.map(|newest| newest.agent_started));
        let planned = attempt.plan.as_ref()?.created;
        Some(Moments {
            wanted,
            planned,
            billed: settled.and_then(|settled| settled.billed_from),
            agent: agent
                .filter(|agent| ready.is_some_and(|ready| *agent <= ready) && *agent >= planned),
            ready: phase(AttemptPhase::Preparing).or(ready),
            fetched: setup.or(running),
            started: running,
            working: outcome
                .and_then(|outcome| outcome.working_since)
                .or(newest.and_then(|newest| newest.working_since)),
        })
    }

    /// Each phase with its begin and end. Two phases without the moment between them are one.
    fn phases(&self, has_setup: bool) -> Vec<PhaseBounds> {
        let bounds = |name, from, to| PhaseBounds { name, from, to };
        let mut phases = Vec::new();
        let wanted = self.wanted.filter(|wanted| *wanted <= self.planned);
        phases.extend(wanted.map(|wanted| bounds("plan", wanted, Some(self.planned))));
        let booted = self.agent.or(self.ready);
        match self.billed.filter(|billed| *billed >= self.planned) {
            Some(billed) => {
                phases.push(bounds("launch", self.planned, Some(billed)));
                phases.push(bounds("boot", billed, booted));
            }
            None => phases.push(bounds("launch and boot", self.planned, booted)),
        }
        let rest = [
            ("agent", self.agent, self.ready),
            ("fetch", self.ready, self.fetched),
            ("setup", self.fetched.filter(|_| has_setup), self.started),
            (FIRST_WORK, self.started, self.working),
        ];
        phases
            .extend(rest.into_iter().filter_map(|(name, from, to)| Some(bounds(name, from?, to))));
        phases
    }

    fn timeline(&self, attempt: &ExplainedAttempt, now: Timestamp) -> StartupTimeline {
        let has_setup = self.fetched != self.started;
        let is_open = attempt.settled.is_none();
        let mut phases = Vec::new();
        for PhaseBounds { name, from, to } in self.phases(has_setup) {
            // An attempt that ended in a phase says nothing about its length.
            let Some(until) = to.or(is_open.then_some(now)) else { break };
            let secs = until.duration_since(from).as_secs_f64().max(0.0);
            let under_way = to.is_none();
            phases.push(StartupPhase { name, from, secs, under_way, median_secs: None });
            if under_way {
                break;
            }
        }
        let secs = phases.iter().map(|phase| phase.secs).sum();
        let is_complete =
            phases.last().is_some_and(|last| last.name == FIRST_WORK && !last.under_way);
        StartupTimeline { attempt: attempt.attempt, phases, secs, is_complete }
    }
}

fn median<'a>(earlier: impl Iterator<Item = &'a StartupTimeline>, name: &str) -> Option<f64> {
    let phases = earlier.flat_map(|timeline| &timeline.phases);
    let mut secs: Vec<f64> = phases
        .filter(|phase| phase.name == name && !phase.under_way)
        .map(|phase| phase.secs)
        .collect();
    secs.sort_by(f64::total_cmp);
    let middle = secs.len().checked_sub(1)? / 2;
    Some((secs[middle] + secs[secs.len() / 2]) / 2.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::jobdir::Event;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("a moment")
    }

    /// Planned at `second`. The agent comes after `boot`, and the rest in 10 s steps.
    fn attempt(number: u32, second: i64, boot: i64, settled: bool) -> ExplainedAttempt {
        let offer = json!({ "cloud": "aws", "region": "r", "zone": "r1a", "instance_type": "t", "gpus": 1,
            "gpu_model": "A10G", "market": "spot", "price": 1.0 });
        let plan = json!({ "format": 1, "job": "x-222222", "attempt": number, "created": at(second), "controller": "c",
            "offer": offer, "reasons": [], "most_usd": null, "client_token": "t", "lease": "30m", "tags": {} });
        let agent = second + boot;
        let outcome = json!({ "format": 1, "job": "x-222222", "attempt": number, "instance": "i", "started": at(agent - 3),
            "ended": at(agent + 90), "because": "interrupted", "reasons": [], "useful": "1s", "idle": "0s",
            "working_since": at(agent + 35) });
        let settled = settled.then(|| json!({ "format": 1, "attempt": number, "instance": "i", "because": "interrupted",
            "billed_from": at(second + 4), "billed_to": at(agent + 90), "billed": "1m", "usd": 0.1, "outcome": outcome }));
        let event = |after: i64, what: EventDetail| Event { seq: 1, at: at(agent + after), what };
        let phase = |phase| EventDetail::Phase { phase };
        ExplainedAttempt {
            attempt: AttemptNo::new(number),
            plan: Some(serde_json::from_value(plan).expect("a plan")),
            settled: settled.map(|settled| serde_json::from_value(settled).expect("a record")),
            instance: None,
            reasons: Vec::new(),
            idle_cost: None,
            idle_at: None,
            events: vec![
                event(
                    0,
                    EventDetail::Agent {
                        version: "1".into(),
                        instance: "i".into(),
                        reattached: false,
                    },
                ),
                event(0, phase(AttemptPhase::Preparing)),
                event(10, phase(AttemptPhase::Setup)),
                event(30, phase(AttemptPhase::Running)),
                // The agent was started again.
                event(
                    80,
                    EventDetail::Agent {
                        version: "1".into(),
                        instance: "i".into(),
                        reattached: true,
                    },
                ),
            ],
        }
    }

    fn facts(attempts: &[ExplainedAttempt]) -> StartupFacts<'_> {
        StartupFacts { attempts, created: None, newest: None }
    }

    fn told(timeline: &StartupTimeline) -> Vec<String> {
        let one = |phase: &StartupPhase| {
            let median = phase.median_secs.map(|secs| format!(" of {secs}")).unwrap_or_default();
            let open = if phase.under_way { " so far" } else { "" };
            format!("{} {}{open}{median}", phase.name, phase.secs)
        };
        timeline.phases.iter().map(one).collect()
    }

    #[test]
    fn each_phase_stands_beside_the_median_of_earlier_attempts() {
        let attempts =
            [attempt(1, 0, 60, true), attempt(2, 1000, 100, true), attempt(3, 2000, 70, true)];
        let facts = StartupFacts { created: Some(at(-7)), ..facts(&attempts) };
        let timelines = startup_timelines(&facts, &[], at(9000));
        assert_eq!(
            told(&timelines[0]),
            ["plan 7", "launch 4", "boot 53", "agent 3", "fetch 10", "setup 20", "first work 5"]
        );
        assert_eq!(
            told(&timelines[2]),
            [
                // The attempt before ended at 1190.
                "plan 810 of 428.5",
                "launch 4 of 4",
                "boot 63 of 73",
                "agent 3 of 3",
                "fetch 10 of 10",
                "setup 20 of 20",
                "first work 5 of 5"
            ]
        );
        assert_eq!((timelines[0].secs, timelines[0].is_complete), (102.0, true));
    }

    #[test]
    fn attempt_under_way_shows_its_phase_so_far() {
        let mut young = attempt(1, 0, 60, false);
        young.events.truncate(2);
        let shown = |attempt: &ExplainedAttempt, agent: i64, working_since| {
            let facts = facts(std::slice::from_ref(attempt));
            let agent_started = at(agent);
            let newest = Some(NewestMoments { agent_started, working_since });
            let facts = StartupFacts { newest, ..facts };
            told(&startup_timelines(&facts, &[], at(65))[0])
        };
        assert_eq!(shown(&young, 58, None), ["launch and boot 58", "agent 2", "fetch 5 so far"]);
        let runs = attempt(1, -100, 60, false);
        assert_eq!(
            shown(&runs, -42, Some(at(-5)))[1..],
            ["agent 2", "fetch 10", "setup 20", "first work 5"].map(str::to_owned)
        );
        young.events.clear();
        young.settled = attempt(1, 0, 60, true).settled;
        assert_eq!(shown(&young, 58, None), ["launch 4"], "it ended while it booted");
    }

    #[test]
    fn first_attempt_is_compared_with_earlier_jobs() {
        let earlier = [attempt(1, -5000, 40, true)];
        let before = startup_timelines(&facts(&earlier), &[], at(-4000));
        let own = [attempt(1, 0, 60, true)];
        let timelines = startup_timelines(&facts(&own), &before, at(9000));
        assert_eq!(timelines.len(), 1, "the other job has its own page");
        assert_eq!(told(&timelines[0])[..2], ["launch 4 of 4", "boot 53 of 33"].map(str::to_owned));
    }

    #[test]
    fn attempt_without_a_plan_has_no_timeline() {
        let mut alone = attempt(1, 0, 60, false);
        alone.plan = None;
        assert!(startup_timelines(&facts(&[alone]), &[], at(0)).is_empty());
    }
}
