//! Orders all verdicts on a running attempt.
//!
//! ```text
//!   work finished well > interruption > cancel > stop > limits > broken machine
//!     > work ended > move > stall > idle > notice of a stall
//! ```
//! Each policy judges alone; here they meet. Reasons for the order:
//!
//! - Finished work stays finished, whatever else is true.
//! - An interruption leaves no time for anything else.
//! - A person's request overrides a rule.
//! - A limit is exact, while the watching policies are estimates, so it comes first.
//! - A machine that lost a GPU caused the failure, so a retry there is useless.
//! - The lower rungs of a stall only notify, so they do not keep an idle machine.

use super::supervise_facts::{
    Afterwards, Decision, End, Reached, SuperviseFacts, SuperviseStep, Warning, WorkloadFact,
    WorkloadStage,
};
use super::verdict::{Activity, WatchAction, WatchVerdict};
use crate::job::{EndedBecause, ExitStatus, OnSpec, Reaction, Reason};
use crate::market::{Span, elapsed};
use crate::policy::lifecycle::checkpoint_rollback::StartUp;

/// Five minutes between "done" and the process's own end: loggers flush and write summaries. With
/// less they are cut off; with more the user pays for a process that never ends.
const DONE_GRACE: Span = Span::from_secs(300);

/// A command that ends within ten seconds but leaves processes in its session only started its
/// work: `nohup`, or a script with `&`. Processes in their own session may be daemons (of a build,
/// of `lamp` itself) and are only named. With less, a launcher that checks things first is missed.
/// With more, a job with a dashboard counts as one.
const AT_ONCE: Span = Span::from_secs(10);

/// The policy of a restart that does not count as a retry.
pub const SERVICE: &str = "service";

/// A user who typed within this time is still working there: the longest wait of
/// `policy::watch::idle`.
const AT_WORK: Span = Span::from_secs(15 * 60);

pub fn supervise(facts: &SuperviseFacts<'_>) -> Decision {
    finished(facts)
        .or_else(|| interrupted(facts))
        .or_else(|| wished(facts))
        .or_else(|| limited(facts))
        .or_else(|| broken(facts))
        .or_else(|| told(facts))
        .or_else(|| ended(facts))
        .or_else(|| moved(facts))
        .or_else(|| done(facts))
        .or_else(|| hung_setup(facts))
        .or_else(|| stalled(facts))
        .or_else(|| idle(facts))
        .unwrap_or_else(|| watching(facts))
}

fn finished(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    match facts.workload {
        WorkloadFact::Ended { exit, stage: WorkloadStage::Main }
            if exit.success() && !facts.told =>
        {
            let left = match facts.left_behind {
                0 => String::new(),
                1 => "; a process that it left in the background is ended with it".to_owned(),
                more => {
                    format!("; {more} processes that it left in the background are ended with it")
                }
            };
            let reason = |verdict, text| {
                Reason::new(facts.now, "workload", verdict, text)
                    .with("left_behind", f64::from(facts.left_behind))
            };
            if let Some(ran) = facts.ran_for.filter(|ran| *ran < AT_ONCE && facts.in_background > 0)
            {
                let text = format!(
                    "the command ended after {ran}{left}: leave `&` and `nohup` away, or let it end with `wait`, so that it lasts as long as its work"
                );
                return Some(end(
                    facts,
                    EndedBecause::Failed,
                    false,
                    reason("failed", text),
                    facts.on.failure,
                ));
            }
            let advice = if facts.left_behind == 0 {
                ""
            } else {
                ": a command that ends with `wait` waits for such work"
            };
            let reason =
                reason("succeeded", format!("the workload ended with exit code 0{left}{advice}"));
            Some(end(facts, EndedBecause::Succeeded, false, reason, facts.on.success))
        }
        _ => None,
    }
}

fn interrupted(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    match facts.warning {
        Warning::None => None,
        Warning::Save if facts.workload == WorkloadFact::Running => {
            let reason = Reason::new(
                facts.now,
                "interruption",
                "save",
                "the cloud gave notice: saving a checkpoint now",
            );
            Some(Decision {
                step: SuperviseStep::Save { asked_by: "notice" },
                standing: standing(facts.stall, facts.idle),
                reason,
            })
        }
        Warning::Save => None,
        Warning::Final { by, at } => {
            let secs = at.duration_since(facts.now).as_secs_f64();
            let text = format!("the cloud takes the machine at {at}: saving and ending");
            let reason =
                Reason::new(facts.now, "interruption", "interrupted", text).with("left_secs", secs);
            let end = End {
                because: EndedBecause::Interrupted,
                save: true,
                by: Some(by),
                then: Afterwards::LeaveToCloud { at },
            };
            Some(Decision {
                step: SuperviseStep::End(end),
                standing: standing(facts.stall, facts.idle),
                reason,
            })
        }
    }
}

fn wished(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    let wish = facts.wish.as_ref()?;
    let (because, word) = if wish.cancel {
        (EndedBecause::UserCancelled, "cancel")
    } else {
        (EndedBecause::UserStopped, "stop")
    };
    let reason =
        Reason::new(facts.now, "request", word, format!("{} asked to {word} the job", wish.by));
    Some(end(facts, because, !wish.cancel, reason, Reaction::Terminate))
}

fn limited(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    let Reached { because, reason, by } = facts.limit.clone()?;
    let mut decision = end(facts, because, true, reason, Reaction::Terminate);
    if let SuperviseStep::End(end) = &mut decision.step {
        end.by = Some(end.by.map_or(by, |notice| notice.min(by)));
    }
    Some(decision)
}

/// A GPU is lost, and the work failed or hangs because of it. Running out of memory has its own
/// verdict.
fn broken(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    let fault = facts.hardware?;
    let what = match facts.workload {
        WorkloadFact::Ended { exit, .. } if !exit.success() && !exit.oom => {
            format!("the workload {}", in_words(exit))
        }
        WorkloadFact::Running if facts.stage == WorkloadStage::Main && fault.hangs() => {
            format!("the workload made no progress for {}", fault.silent)
        }
        _ => return None,
    };
    let because = EndedBecause::HardwareLost;
    let text = format!("{}, and {what}: the machine is given up", fault.text);
    let reason = Reason::new(facts.now, "hardware", because.word(), text)
        .with("silent_secs", fault.silent.secs_f64())
        .with("window_secs", fault.needed.secs_f64());
    // A broken machine and its disk are never kept: complete checkpoints are in the job directory.
    Some(end(facts, because, facts.workload == WorkloadFact::Running, reason, Reaction::Terminate))
}

/// A cheaper market must not cost work: it saves first.
fn moved(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    let wish = facts.moves.filter(|_| facts.done_for.is_none())?;
    let because = EndedBecause::Moved;
    let reason = Reason::new(
        facts.now,
        "market",
        because.word(),
        format!("{} moves the job to {}: saving and ending", wish.by, wish.to),
    );
    Some(end(facts, because, true, reason, Reaction::Terminate))
}

/// Neither success nor failure: a save at SIGTERM also exits with 0. It continues from its newest
/// checkpoint.
fn told(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    let WorkloadFact::Ended { exit, .. } = facts.workload else { return None };
    let text =
        format!("the service manager stopped the unit of the work ({exit}): starting it again");
    let reason = Reason::new(facts.now, SERVICE, "restarted", text);
    facts.told.then_some(Decision {
        step: SuperviseStep::Restart { after: Span::ZERO },
        standing: standing(facts.stall, facts.idle),
        reason,
    })
}

fn ended(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    let WorkloadFact::Ended { exit, stage } = facts.workload else { return None };
    if stage == WorkloadStage::Setup {
        if exit.success() {
            return None;
        }
        let reason = Reason::new(
            facts.now,
            "workload",
            "setup_failed",
            format!("the setup script failed: {exit}"),
        );
        return Some(end(facts, EndedBecause::SetupFailed, false, reason, facts.on.failure));
    }
    if let Some(start) = facts.start_up.filter(|start| start.goes_back(exit)) {
        let StartUp { from, lived, .. } = start;
        let text = format!(
            "the workload {} within {lived} of its start from checkpoint {}: going back to an older one",
            in_words(exit),
            from.number()
        );
        let reason = Reason::new(facts.now, "workload", "go_back", text)
            .with("lived_secs", lived.secs_f64())
            .with("went_back", f64::from(start.times));
        return Some(Decision {
            step: SuperviseStep::GoBack { before: start.before() },
            standing: standing(facts.stall, facts.idle),
            reason,
        });
    }
    let counts = facts.retries.counts(exit.code);
    let used = f64::from(facts.retries_used);
    if counts && facts.retries_used < facts.retries.max {
        let text = format!(
            "the workload {}: starting it again ({} of {})",
            in_words(exit),
            facts.retries_used + 1,
            facts.retries.max
        );
        let reason = Reason::new(facts.now, "workload", "retry", text).with("retries_used", used);
        return Some(Decision {
            step: SuperviseStep::Restart { after: facts.retries.delay },
            standing: standing(facts.stall, facts.idle),
            reason,
        });
    }
    if exit.is_unseen() {
        // It may have succeeded. Another attempt continues from its newest checkpoint.
        let text =
            "the process that held the workload was killed, and its end was not seen".to_owned();
        let reason = Reason::new(facts.now, "workload", EndedBecause::Lost.word(), text)
            .with("retries_used", used);
        return Some(end(facts, EndedBecause::Lost, false, reason, Reaction::Terminate));
    }
    let because = if exit.oom { EndedBecause::OutOfMemory } else { EndedBecause::Failed };
    let also = match facts
        .start_up
        .filter(|start| (start.times > 0 || start.is_last) && start.died_of_it(exit))
    {
        Some(StartUp { times: 0, .. }) => "; there is no older checkpoint to begin from".to_owned(),
        Some(StartUp { times, .. }) => format!(
            "; so it did from {} newer checkpoint{}",
            times,
            if *times == 1 { "" } else { "s" }
        ),
        None => String::new(),
    };
    let reason = Reason::new(
        facts.now,
        "workload",
        because.word(),
        format!("the workload {}{also}", in_words(exit)),
    )
    .with("retries_used", used);
    Some(end(facts, because, false, reason, facts.on.failure))
}

fn in_words(exit: ExitStatus) -> String {
    if exit.is_in_order() { format!("ended with {exit}") } else { format!("was {exit}") }
}

fn done(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    let since = facts.done_for?;
    if since < DONE_GRACE || facts.workload != WorkloadFact::Running {
        return None;
    }
    let text = format!("the workload said {since} ago that it is done and has not ended");
    let reason =
        Reason::new(facts.now, "workload", "succeeded", text).with("done_secs", since.secs_f64());
    Some(end(facts, EndedBecause::Succeeded, false, reason, facts.on.success))
}

/// A setup that waits for a lock, an answer or a server would wait forever. Its own limit or
/// silence ends it. The idle rule suffices: compiling or downloading uses CPU, disk or network.
fn hung_setup(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    let ran = facts.setup_for.filter(|_| {
        facts.stage == WorkloadStage::Setup && facts.workload == WorkloadFact::Running
    })?;
    let is_silent = facts.idle.standing == Activity::Idle
        && facts.idle.action == WatchAction::Stop
        && facts.on.idle != Reaction::Notify;
    let text = if ran >= facts.setup_most {
        format!("the setup script has not ended within {} (limits.setup)", facts.setup_most)
    } else if is_silent {
        format!("the setup script hangs: {}", facts.idle.text)
    } else {
        return None;
    };
    let because = EndedBecause::SetupFailed;
    let mut reason = facts
        .idle
        .reason(facts.now, "setup")
        .with("setup_secs", ran.secs_f64())
        .with("limit_secs", facts.setup_most.secs_f64());
    (reason.verdict, reason.text) = (because.word().to_owned(), text);
    Some(end(facts, because, false, reason, facts.on.failure))
}

fn stalled(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    let ends = |verdict: &WatchVerdict| verdict.action >= WatchAction::Restart;
    if facts.idle.standing == Activity::Idle
        && ends(facts.idle)
        && !ends(facts.stall)
        && facts.on.idle != Reaction::Notify
    {
        return None;
    }
    watched(facts, facts.stall, Activity::Stalled, "stall", EndedBecause::Stalled, facts.on.stall)
}

fn idle(facts: &SuperviseFacts<'_>) -> Option<Decision> {
    watched(facts, facts.idle, Activity::Idle, "idle", EndedBecause::Idle, facts.on.idle)
}

fn watched(
    facts: &SuperviseFacts<'_>,
    verdict: &WatchVerdict,
    judged: Activity,
    policy: &str,
    because: EndedBecause,
    reaction: Reaction,
) -> Option<Decision> {
    // A setup script that compiles for half an hour leaves no marks; `hung_setup` ends a hung one.
    if facts.stage != WorkloadStage::Main
        || verdict.standing != judged
        || facts.workload != WorkloadFact::Running
    {
        return None;
    }
    let reason = verdict.reason(facts.now, policy);
    let go_on = |step| Some(Decision { step, standing: judged, reason: reason.clone() });
    match (verdict.action, reaction) {
        (WatchAction::None, _) => None,
        (WatchAction::Notify, _) => go_on(SuperviseStep::Notify),
        (WatchAction::Stacks, _) => go_on(SuperviseStep::Stacks),
        // With `notify` in the job file, the user wants the work to continue anyway.
        (WatchAction::Restart | WatchAction::Stop, Reaction::Notify) => {
            go_on(SuperviseStep::Notify)
        }
        (WatchAction::Restart, _) => go_on(SuperviseStep::Restart { after: Span::ZERO }),
        (WatchAction::Stop, _) => Some(end(facts, because, true, reason, reaction)),
    }
}

fn watching(facts: &SuperviseFacts<'_>) -> Decision {
    let (verdict, policy) = if facts.stall.standing == Activity::Stalled {
        (facts.stall, "stall")
    } else {
        (facts.idle, "idle")
    };
    Decision {
        step: SuperviseStep::Continue,
        standing: standing(facts.stall, facts.idle),
        reason: verdict.reason(facts.now, policy),
    }
}

/// The state of the work; stalled overrides idle.
pub fn standing(stall: &WatchVerdict, idle: &WatchVerdict) -> Activity {
    if stall.standing == Activity::Stalled { Activity::Stalled } else { idle.standing }
}

/// The job file's wish for the machine after such an end.
pub fn afterwards(on: &OnSpec, because: EndedBecause) -> Afterwards {
    then(match because {
        EndedBecause::Succeeded => on.success,
        EndedBecause::Failed | EndedBecause::OutOfMemory | EndedBecause::SetupFailed => on.failure,
        EndedBecause::Idle => on.idle,
        EndedBecause::Stalled => on.stall,
        _ => Reaction::Terminate,
    })
}

fn then(reaction: Reaction) -> Afterwards {
    match reaction {
        // After the end, `notify` is no reason to keep paying.
        Reaction::Terminate | Reaction::Notify => Afterwards::Terminate,
        Reaction::Stop => Afterwards::Stop,
        Reaction::Keep(time) => Afterwards::Hold(time),
    }
}

/// An end by a person, a limit or the cloud is immediate. A machine whose work is over waits for a
/// user who works on it.
fn waits_for(facts: &SuperviseFacts<'_>, because: EndedBecause) -> Option<(Span, Span)> {
    use EndedBecause::{Failed, Idle, OutOfMemory, SetupFailed, Stalled, Succeeded};
    let typed = facts.typed.filter(|typed| *typed < AT_WORK)?;
    let may_stay =
        |time: Span| facts.over_by.is_none_or(|by| elapsed(facts.now, by) > time.duration());
    match facts.on.in_use {
        Reaction::Keep(time)
            if may_stay(time)
                && matches!(
                    because,
                    Succeeded | Failed | OutOfMemory | SetupFailed | Stalled | Idle
                ) =>
        {
            Some((time, typed))
        }
        _ => None,
    }
}

fn end(
    facts: &SuperviseFacts<'_>,
    because: EndedBecause,
    save: bool,
    mut reason: Reason,
    reaction: Reaction,
) -> Decision {
    let mut then = then(reaction);
    if let (Afterwards::Terminate, Some((time, typed))) = (then, waits_for(facts, because)) {
        then = Afterwards::Hold(time);
        reason.text = format!(
            "{}; somebody typed on the machine {typed} ago, so it is kept for {time}",
            reason.text
        );
    }
    // Also while a notice lets the work continue: any end now must be recorded before the machine
    // ends, or the work is repeated.
    let by = match facts.warning {
        Warning::Final { by, .. } => Some(by),
        _ => facts.over_by,
    };
    Decision {
        step: SuperviseStep::End(End { because, save, by, then }),
        standing: standing(facts.stall, facts.idle),
        reason,
    }
}
