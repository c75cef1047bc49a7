//! Reads one job from its records alone, and makes its summary.

use jiff::Timestamp;

use super::attempt_records::{attempts_of, is_heard};
use super::attempt_text::{before, moved};
use super::cost_bound::{Limited, hard_end, most, most_of_job};
use super::countdowns::{EndFacts, countdowns, wait_end};
use super::job_summary::Summary;
use super::kept_machines;
use super::machine::MachineShown;
use super::next_end::{EndAsked, Held, WatchEnd};
use super::silence::Silence;
use super::standalone_run::AloneRun;
use crate::instance::Status;
use crate::job::{AttemptPhase, JobState, Plan, Receipt, ResolvedSpec};
use crate::jobdir::{JobDir, JobDirError, unless_damaged};
use crate::market::{Usd, elapsed};
use crate::policy::Wishes;
use crate::policy::lifecycle::reconcile::{AttemptFacts, history, job_state};
use crate::policy::lifecycle::relaunch;

impl Summary {
    /// Reads one job; `None`: it has no spec. A finished job is one read, and three if it kept
    /// something.
    ///
    /// # Errors
    /// Fails when the store is unreachable, or a record is not understood.
    pub async fn read(dir: &JobDir, now: Timestamp) -> Result<Option<Summary>, JobDirError> {
        Ok(Summary::with_receipt(dir, now).await?.0)
    }

    /// As [`Summary::read`], beside the receipt of a finished job.
    ///
    /// # Errors
    /// As [`Summary::read`].
    pub async fn with_receipt(
        dir: &JobDir,
        now: Timestamp,
    ) -> Result<(Option<Summary>, Option<Receipt>), JobDirError> {
        match dir.receipt().await? {
            Some(receipt) => {
                let summary = Summary::ended(dir, receipt.clone()).await?;
                Ok((Some(summary), Some(receipt)))
            }
            None => Ok((Summary::open(dir, now).await?, None)),
        }
    }

    /// As [`Summary::read`], for a job without a receipt, as the caller has seen.
    ///
    /// # Errors
    /// As [`Summary::read`].
    pub async fn open(dir: &JobDir, now: Timestamp) -> Result<Option<Summary>, JobDirError> {
        // A single look also reads the requests: one more listing.
        let requests = match dir.requests().await {
            Err(error) if !error.is_damage() => return Err(error),
            requests => requests.unwrap_or_default(),
        };
        let wishes = Wishes::of(&requests);
        let summary = Summary::under_way(dir, &wishes, now).await?;
        Ok(summary.map(|summary| Summary { end_asked: wishes.end.map(EndAsked::from), ..summary }))
    }

    /// A job with this receipt.
    ///
    /// # Errors
    /// Fails when the store is unreachable.
    pub async fn ended(dir: &JobDir, receipt: Receipt) -> Result<Summary, JobDirError> {
        let kept = kept_machines::kept_of(dir, &receipt).await?;
        Ok(Summary { kept, ..Summary::of_receipt(receipt) })
    }

    /// Reads a job without a receipt, as the caller has seen, with its known requests. `None`: it
    /// has no spec.
    ///
    /// # Errors
    /// As [`Summary::read`].
    pub async fn under_way(
        dir: &JobDir,
        wishes: &Wishes,
        now: Timestamp,
    ) -> Result<Option<Summary>, JobDirError> {
        let attention = async { unless_damaged(dir.attention().await) };
        let (spec, numbers, attention) = tokio::try_join!(dir.spec(), dir.attempts(), attention)?;
        let Some(spec) = spec else { return Ok(None) };
        if spec.is_alone() {
            return Ok(Some(AloneRun::of(dir, spec).await?.summary(now)));
        }
        let attempts = attempts_of(dir, numbers).await?;
        let mut summary = Summary::of_records(&spec, &attempts, wishes, now);
        summary.trouble = attention.and_then(|attention| attention.text);
        summary.attention.extend(summary.trouble.clone());
        // A machine whose agent has the lease runs, so it waits for nothing. Each look at a bucket
        // costs money.
        let is_there = attempts.last().is_some_and(|last| last.lease.is_some());
        if matches!(
            summary.state,
            JobState::Submitted | JobState::Provisioning | JobState::Interrupted
        ) && !is_there
        {
            // A wait from before the last launch is over.
            let since = attempts.last().map_or(spec.created, |last| last.plan.created);
            // While the next machine is held back, it waits for nothing else.
            let is_held = summary.waiting_until.is_some();
            if let Some(waiting) = unless_damaged(dir.waiting().await)?
                .filter(|waiting| waiting.at >= since && !is_held)
            {
                (summary.waiting, summary.waiting_until, summary.tried_again) =
                    (Some(waiting.why), waiting.until, None);
                summary.ends.extend(waiting.until.map(wait_end));
                summary.ends.sort_by_key(|end| end.at);
            }
        }
        Ok(Some(summary))
    }

    /// An ended job by its receipt alone: what it keeps is not read.
    pub fn of_receipt(receipt: Receipt) -> Summary {
        let because =
            receipt.because.or(receipt.attempts.last().map(|attempt| attempt.ended_because));
        let (last, usd_estimated) = (receipt.attempts.last(), receipt.is_estimated());
        Summary {
            job: receipt.job.to_string(),
            name: receipt.name,
            state: receipt.outcome.into(),
            attempt: last.map(|attempt| attempt.attempt.number()),
            instance: last.and_then(|attempt| attempt.instance.clone()),
            machine: last.map(MachineShown::from),
            end_asked: None,
            held: None,
            kept_until: None,
            ends: Vec::new(),
            verdict: None,
            alone: false,
            usd: receipt.total_usd,
            usd_unheard: Usd::ZERO,
            usd_estimated,
            most_usd: Some(receipt.total_usd),
            most_job_usd: Some(receipt.total_usd),
            usd_per_hour: None,
            started: receipt.started,
            ended: Some(receipt.ended),
            progress: None,
            cpu_percent: None,
            gpus: Vec::new(),
            checkpoints: receipt.checkpoints,
            heartbeat_seconds: None,
            silence: None,
            reason: Some(receipt.reason),
            exit_code: receipt.exit_code,
            because,
            waiting: None,
            waiting_until: None,
            tried_again: None,
            trouble: None,
            driven_here: None,
            kept: Vec::new(),
            discarded: None,
            attention: receipt.losses,
            watch_sentences: Vec::new(),
            idle_usd: None,
            lost_usd: None,
            gang: None,
            plan: None,
            owner: None,
            moved: None,
            before: None,
            working_since: None,
            last_checkpoint: receipt.last_checkpoint.map(|last| last.created),
            watch_end: None,
            is_quiet: false,
            limited: Limited::Job,
            refusal: None,
        }
    }

    fn of_records(
        spec: &ResolvedSpec,
        attempts: &[AttemptFacts],
        wishes: &Wishes,
        now: Timestamp,
    ) -> Summary {
        let last = attempts.last();
        let status = last.and_then(|attempt| attempt.status.as_ref());
        let since = |from: Timestamp| elapsed(from, now);
        let open_cost = |attempt: &AttemptFacts| {
            let to = last_sign(attempt, now).unwrap_or(now);
            attempt.plan.offer.hourly().cost_of(elapsed(attempt.plan.created, to))
        };
        let cost = |attempt: &AttemptFacts| match &attempt.settled {
            Some(settled) => settled.usd,
            None if is_heard(attempt) => open_cost(attempt),
            None => Usd::ZERO,
        };
        let unheard =
            attempts.iter().filter(|attempt| attempt.settled.is_none() && !is_heard(attempt));
        let scarcity = relaunch::scarcity(&spec.spec, &history(attempts), now)
            .filter(|_| attempts.iter().all(|attempt| attempt.settled.is_some()));
        let hold = relaunch::hold(&spec.spec, &history(attempts), wishes, now)
            .filter(|_| attempts.iter().all(|attempt| attempt.settled.is_some()));
        let instance = |attempt: &AttemptFacts| {
            let settled = attempt.settled.as_ref().and_then(|settled| settled.instance.clone());
            settled.or_else(|| attempt.lease.as_ref().map(|lease| lease.instance.clone()))
        };
        let state = job_state(None, last);
        let heard = status.map(|status| since(status.at));
        let silence = last.and_then(|last| Silence::of(state, heard, last.plan.lease.duration()));
        // It may have billed all the time.
        let unsaid = |attempt: &AttemptFacts| {
            let all = attempt.plan.offer.hourly().cost_of(elapsed(attempt.plan.created, now));
            all - open_cost(attempt)
        };
        let unsaid: Usd = last.filter(|_| silence.is_some()).map(unsaid).into_iter().sum();
        let is_silent = silence.is_some();
        // After the end, the last verdict has no meaning.
        let is_watched =
            matches!(state, JobState::Preparing | JobState::Running | JobState::Draining);
        let heard_at = status.map(|status| status.at);
        let is_quiet = state == JobState::Running && status.is_some_and(WatchEnd::is_quiet);
        let summary = Summary {
            job: spec.job.to_string(),
            name: spec.spec.name.clone(),
            state,
            attempt: last.map(|attempt| attempt.plan.attempt.number()),
            instance: last.and_then(instance),
            machine: last.map(|attempt| MachineShown::from(&*attempt.plan)),
            end_asked: None,
            held: last.and_then(|last| Held::of(last, now)),
            kept_until: wishes.kept_until.filter(|until| state != JobState::Held && *until > now),
            ends: Vec::new(),
            verdict: status
                .filter(|_| is_watched && silence.is_none())
                .map(|status| status.verdict.clone()),
            alone: false,
            usd: attempts.iter().map(cost).sum(),
            usd_unheard: unheard.map(open_cost).sum::<Usd>() + unsaid,
            usd_estimated: attempts
                .iter()
                .any(|attempt| attempt.settled.is_none() && last_sign(attempt, now).is_some()),
            most_usd: most(spec, attempts, wishes),
            most_job_usd: most_of_job(spec, attempts, wishes),
            usd_per_hour: last.map(|attempt| attempt.plan.offer.hourly()),
            started: spec.created,
            ended: None,
            // The pace of a job that stands still says nothing of its end.
            progress: status.and_then(|status| {
                let progress = status.progress.clone()?;
                let has_no_end = is_quiet || progress.is_overdue(status.at);
                Some(if has_no_end { progress.without_pace() } else { progress })
            }),
            cpu_percent: status.and_then(|status| status.cpu_percent),
            gpus: status.map(|status| status.gpus.clone()).unwrap_or_default(),
            checkpoints: checkpoints(attempts),
            heartbeat_seconds: heard.map(|heard| heard.as_secs_f64()),
            silence,
            reason: status
                .and_then(|status| status.reason.as_ref())
                .map(|reason| reason.text.clone()),
            exit_code: None,
            because: None,
            waiting: hold.as_ref().or(scarcity.as_ref()).map(|(waits, _)| waits.clone()),
            waiting_until: hold.map(|(_, until)| until),
            tried_again: scarcity.map(|(_, again)| again),
            trouble: None,
            driven_here: None,
            kept: Vec::new(),
            discarded: None,
            attention: status.map(|status| status.attention.clone()).unwrap_or_default(),
            watch_sentences: status.map(Status::watch_sentences).unwrap_or_default(),
            idle_usd: idle_usd(attempts, open_cost),
            lost_usd: lost_usd(attempts),
            gang: None,
            plan: last.map(|attempt| Plan {
                kill_at: hard_end(&spec.spec, attempt, attempts, wishes),
                ..Plan::clone(&attempt.plan)
            }),
            owner: spec.owner().filter(|_| attempts.is_empty()).map(str::to_owned),
            moved: moved(attempts),
            before: before(attempts),
            working_since: status.and_then(|status| status.working_since),
            last_checkpoint: last_checkpoint(attempts),
            watch_end: status
                .filter(|_| state == JobState::Running && !is_silent)
                .and_then(|status| WatchEnd::seen(status, &spec.spec.on, wishes.kept_until)),
            is_quiet,
            limited: Limited::of(&spec.spec.limits),
            refusal: last.and_then(|last| last.settled.as_ref()?.refusal),
        };
        let limits = &spec.spec.limits;
        let ends = countdowns(&EndFacts { summary: &summary, limits, wishes, heard_at, now });
        Summary { ends, ..summary }
    }
}

/// Until when an unsettled attempt is known to have billed; `None`: it runs, until now.
fn last_sign(attempt: &AttemptFacts, now: Timestamp) -> Option<Timestamp> {
    let status = attempt.status.as_ref();
    let is_held = status.is_some_and(|status| status.phase == AttemptPhase::Held);
    let silent = status
        .map(|status| status.at)
        .filter(|at| elapsed(*at, now) >= attempt.plan.lease.duration());
    // If it was kept after its outcome, its last heartbeat is later.
    let told = status.map_or(Timestamp::MIN, |status| status.at);
    let ended =
        attempt.outcome.as_ref().filter(|_| !is_held).map(|outcome| outcome.ended.max(told));
    ended.or(silent).map(|at| at.max(attempt.plan.created).min(now.max(attempt.plan.created)))
}

/// The idle share of the cost so far. `None`: an agent left no count.
fn idle_usd(attempts: &[AttemptFacts], open_cost: impl Fn(&AttemptFacts) -> Usd) -> Option<Usd> {
    let of = |attempt: &AttemptFacts| match (&attempt.settled, &attempt.status) {
        (Some(settled), _) => settled.idle_usd(),
        (None, Some(status)) => {
            let idle = attempt.plan.offer.hourly().cost_of(status.idle.duration());
            Some(idle.min(open_cost(attempt)))
        }
        // Before its first sign a machine counts no cost. After it, the idle part is unknown.
        (None, None) => (!is_heard(attempt)).then_some(Usd::ZERO),
    };
    attempts.iter().map(of).try_fold(Usd::ZERO, |sum, usd| Some(sum + usd?))
}

/// The cost of the work that interruptions have lost so far. `None`: an agent left no count.
fn lost_usd(attempts: &[AttemptFacts]) -> Option<Usd> {
    let settled = attempts.iter().filter_map(|attempt| attempt.settled.as_ref());
    settled.map(|settled| settled.lost_usd()).try_fold(Usd::ZERO, |sum, usd| Some(sum + usd?))
}

fn checkpoints(attempts: &[AttemptFacts]) -> u32 {
    let of = |attempt: &AttemptFacts| {
        let settled = attempt
            .settled
            .as_ref()
            .and_then(|settled| settled.outcome.as_ref())
            .map(|outcome| outcome.checkpoints);
        settled.or(attempt.status.as_ref().map(|status: &Status| status.checkpoints)).unwrap_or(0)
    };
    attempts.iter().map(of).sum()
}

fn last_checkpoint(attempts: &[AttemptFacts]) -> Option<Timestamp> {
    let of = |attempt: &AttemptFacts| {
        let ended = attempt.settled.as_ref().and_then(|settled| settled.outcome.as_ref());
        let told = ended.and_then(|outcome| outcome.last_checkpoint.as_ref());
        told.or(attempt.status.as_ref()?.last_checkpoint.as_ref()).map(|last| last.created)
    };
    attempts.iter().filter_map(of).max()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::app::view::summary_text::money_text;
    use crate::job::EndedBecause;
    use crate::policy::lifecycle::reconcile::{CheckpointSummaries, Watched};

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + hours * 3600).unwrap()
    }

    /// At noon, for a job of one dollar an hour that began at midnight.
    fn summary(outcome: Option<Value>, status: Option<Value>, limits: &Value) -> Summary {
        let price = json!({ "cloud": "local", "region": "here", "zone": "z", "instance_type": "t", "gpus": 0, "gpu_model": null,
            "market": "on-demand", "price": 1.0 });
        let plan = json!({ "format": 1, "job": "x-222222", "attempt": 1, "created": at(0), "controller": "c", "offer": price, "reasons": [],
            "most_usd": null, "client_token": "t", "lease": "30m", "tags": {} });
        let spec = json!({ "format": 1, "job": "x-222222", "created": at(0), "written_by": "v",
            "spec": { "name": "x", "command": { "shell": "true" }, "limits": limits } });
        let facts = AttemptFacts {
            plan: serde_json::from_value(plan).unwrap(),
            lease: None,
            status: status.map(|status| serde_json::from_value(status).unwrap()),
            outcome: outcome.map(|outcome| serde_json::from_value(outcome).unwrap()),
            settled: None,
            journal: CheckpointSummaries::default(),
            watched: Watched::default(),
        };
        Summary::of_records(
            &serde_json::from_value(spec).unwrap(),
            &[facts],
            &Wishes::default(),
            at(12),
        )
    }

    fn status(heard: i64, phase: &str) -> Option<Value> {
        Some(
            json!({ "format": 1, "instance": "i", "sequence": 1, "at": at(heard), "phase": phase, "started": at(0), "verdict": "busy",
            "useful": "1s", "idle": "0s" }),
        )
    }

    fn ended(hours: i64) -> Option<Value> {
        Some(
            json!({ "format": 1, "job": "x-222222", "attempt": 1, "instance": "i", "started": at(0), "ended": at(hours),
            "because": "succeeded", "reasons": [], "useful": "1s", "idle": "0s" }),
        )
    }

    #[test]
    fn ended_or_silent_machine_bills_to_its_last_sign_of_life() {
        for (outcome, status, usd, estimated) in [
            (None, None, "$0", false),
            (None, status(12, "running"), "$12", false),
            (None, status(5, "running"), "$5", true),
            (ended(4), status(4, "ended"), "$4", true),
            (ended(4), None, "$4", true),
            (ended(4), status(12, "held"), "$12", false),
            (ended(4), status(6, "held"), "$6", true),
            // It was kept after its end, and that is over.
            (ended(4), status(6, "ended"), "$6", true),
        ] {
            let summary = summary(outcome.clone(), status.clone(), &json!({}));
            assert_eq!(
                (summary.usd, summary.usd_estimated),
                (usd.parse().unwrap(), estimated),
                "{outcome:?} {status:?}"
            );
            // A silent machine without a known end may have billed all the time.
            let unheard = match (&outcome, &summary.silence) {
                (None, Some(_)) => "$7",
                (None, None) if status.is_none() => "$12",
                _ => "$0",
            };
            assert_eq!(summary.usd_unheard, unheard.parse().unwrap(), "{outcome:?} {status:?}");
        }
    }

    #[test]
    fn that_no_limit_is_set_is_said_only_of_a_job_without_one() {
        assert_eq!(
            money_text(&summary(ended(4), None, &json!({}))),
            "about $4.00, and no limit is set"
        );
        assert_eq!(
            money_text(&summary(None, status(12, "running"), &json!({ "budget": 50.0 }))),
            "$12.00"
        );
    }

    /// Its machine has not reported: it may boot, or was never launched.
    #[test]
    fn what_may_have_cost_something_is_said_as_the_most() {
        assert_eq!(money_text(&summary(None, None, &json!({ "budget": 50.0 }))), "up to $12.00");
        let silent = summary(None, status(5, "running"), &json!({ "budget": 50.0 }));
        assert_eq!((money_text(&silent).as_str(), silent.verdict), ("up to $12.00", None));
    }

    #[test]
    fn job_without_a_machine_shows_the_refusals_and_the_next_try() {
        let refused = |number: u32, zone: &str| {
            let price = json!({ "cloud": "aws", "region": "r", "zone": zone, "instance_type": "t", "gpus": 0, "gpu_model": null,
                "market": "spot", "price": 1.0 });
            let plan = json!({ "format": 1, "job": "x-222222", "attempt": number, "created": at(0), "controller": "c", "offer": price,
                "reasons": [], "most_usd": null, "client_token": "t", "lease": "30m", "tags": {} });
            let settled = json!({ "format": 1, "attempt": number, "instance": null, "because": "launch_failed", "billed_from": null,
                "billed_to": null, "billed": "0s", "usd": 0.0, "refusal": "capacity", "cloud_reason": "t", "outcome": null });
            AttemptFacts {
                plan: serde_json::from_value(plan).unwrap(),
                lease: None,
                status: None,
                outcome: None,
                settled: Some(serde_json::from_value(settled).unwrap()),
                journal: CheckpointSummaries::default(),
                watched: Watched::default(),
            }
        };
        let spec = json!({ "format": 1, "job": "x-222222", "created": at(0), "written_by": "v",
            "spec": { "name": "x", "command": { "shell": "true" } } });
        let now = at(0) + std::time::Duration::from_secs(60);
        let spec: ResolvedSpec = serde_json::from_value(spec).unwrap();
        let summary = Summary::of_records(
            &spec,
            &[refused(1, "a"), refused(2, "b")],
            &Wishes::default(),
            now,
        );
        assert_eq!(
            (summary.state, summary.usd, summary.usd_unheard),
            (JobState::Provisioning, Usd::ZERO, Usd::ZERO)
        );
        assert_eq!(
            summary.waiting.unwrap(),
            "a machine: no capacity in 2 places, the last t in b, spot; tried again in 2m"
        );
        assert_eq!(summary.tried_again, Some(at(0) + std::time::Duration::from_secs(180)));
        let young = |number: u32| {
            let mut facts = refused(number, "a");
            let settled = Arc::make_mut(facts.settled.as_mut().unwrap());
            (settled.because, settled.refusal) = (EndedBecause::Interrupted, None);
            (settled.instance, settled.billed_from, settled.billed_to) =
                (Some("i-1".into()), Some(at(0)), Some(at(0)));
            facts
        };
        let summary =
            Summary::of_records(&spec, &[young(1), young(2), young(3)], &Wishes::default(), now);
        assert!(summary.waiting.unwrap().ends_with("3 machines ended young within an hour; the next is tried in 9m; after 5 in a row it has failed"));
        assert_eq!(
            (summary.waiting_until, summary.tried_again),
            (Some(at(0) + std::time::Duration::from_secs(600)), None)
        );
        let moved = |facts: AttemptFacts| {
            let mut facts = facts;
            Arc::make_mut(facts.settled.as_mut().unwrap()).because = EndedBecause::Moved;
            Summary::of_records(&spec, &[facts], &Wishes::default(), now).state
        };
        assert_eq!(
            (moved(refused(1, "a")), moved(young(1))),
            (JobState::Provisioning, JobState::Provisioning),
            "nobody interrupted it"
        );
    }
}
