//! The order of verdicts: one case for each step down the ladder.

use jiff::Timestamp;
use lamplighter::job::{
    AttemptNo, EndedBecause, ExitStatus, OnSpec, Reaction, Reason, RetriesSpec, SETUP,
};
use lamplighter::market::{Market, Span};
use lamplighter::policy::lifecycle::checkpoint_rollback::StartUp;
use lamplighter::policy::{
    Activity, Afterwards, Decision, EndWish, HardwareFault, MoveWish, Reached, SuperviseFacts,
    SuperviseStep, Warning, WatchAction, WatchVerdict, WorkloadFact, WorkloadStage, supervise,
};

fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + secs).unwrap()
}

fn verdict(standing: Activity, action: WatchAction) -> WatchVerdict {
    WatchVerdict::new(standing, action, "because")
}

struct World {
    on: OnSpec,
    retries: RetriesSpec,
    hardware: Option<HardwareFault>,
    stall: WatchVerdict,
    idle: WatchVerdict,
    workload: WorkloadFact,
    warning: Warning,
    over_by: Option<Timestamp>,
    wish: Option<EndWish>,
    moves: Option<MoveWish>,
    limit: Option<Reached>,
    stage: WorkloadStage,
    setup_for: Option<Span>,
    told: bool,
    left_behind: u32,
    in_background: u32,
    ran_for: Option<Span>,
    done_for: Option<Span>,
    typed: Option<Span>,
    retries_used: u32,
    start_up: Option<StartUp>,
}

impl Default for World {
    fn default() -> Self {
        World {
            on: OnSpec::default(),
            retries: RetriesSpec::default(),
            hardware: None,
            stall: verdict(Activity::Busy, WatchAction::None),
            idle: verdict(Activity::Busy, WatchAction::None),
            workload: WorkloadFact::Running,
            warning: Warning::None,
            over_by: None,
            wish: None,
            moves: None,
            limit: None,
            stage: WorkloadStage::Main,
            setup_for: None,
            told: false,
            left_behind: 0,
            in_background: 0,
            ran_for: None,
            done_for: None,
            typed: None,
            retries_used: 0,
            start_up: None,
        }
    }
}

impl World {
    fn step(&self) -> SuperviseStep {
        self.decision().step
    }

    fn reason(&self) -> String {
        self.decision().reason.text
    }

    fn decision(&self) -> Decision {
        supervise(&SuperviseFacts {
            now: at(0),
            on: &self.on,
            retries: &self.retries,
            workload: self.workload,
            stage: self.stage,
            retries_used: self.retries_used,
            start_up: self.start_up.as_ref(),
            warning: self.warning,
            over_by: self.over_by,
            wish: self.wish.clone(),
            moves: self.moves.as_ref(),
            limit: self.limit.clone(),
            hardware: self.hardware.as_ref(),
            stall: &self.stall,
            idle: &self.idle,
            setup_for: self.setup_for,
            setup_most: SETUP,
            told: self.told,
            left_behind: self.left_behind.max(self.in_background),
            in_background: self.in_background,
            ran_for: self.ran_for,
            done_for: self.done_for,
            typed: self.typed,
        })
    }

    fn because(&self) -> Option<EndedBecause> {
        match self.step() {
            SuperviseStep::End(end) => Some(end.because),
            _ => None,
        }
    }
}

fn exit(code: i32) -> WorkloadFact {
    WorkloadFact::Ended {
        exit: ExitStatus { code: Some(code), ..ExitStatus::default() },
        stage: WorkloadStage::Main,
    }
}

fn moves() -> Option<MoveWish> {
    Some(MoveWish { attempt: AttemptNo::FIRST, to: Market::Spot, by: "me".into() })
}

#[test]
fn order_of_verdicts() {
    let mut world = World { idle: verdict(Activity::Idle, WatchAction::Stop), ..World::default() };
    assert_eq!(world.because(), Some(EndedBecause::Idle));
    world.stall = verdict(Activity::Stalled, WatchAction::Stop);
    assert_eq!(world.because(), Some(EndedBecause::Stalled));
    world.workload = exit(3);
    assert_eq!(world.because(), Some(EndedBecause::Failed));
    let reason = Reason::new(at(0), "budget", "stop", "spent");
    assert_eq!(World { moves: moves(), ..World::default() }.because(), Some(EndedBecause::Moved));
    assert_eq!(
        World { moves: moves(), workload: exit(3), ..World::default() }.because(),
        Some(EndedBecause::Failed),
        "the work's own end counts"
    );
    world.limit = Some(Reached { because: EndedBecause::Budget, reason, by: at(60) });
    assert_eq!(world.because(), Some(EndedBecause::Budget));
    world.wish = Some(EndWish { cancel: false, by: "me".into(), at: Timestamp::UNIX_EPOCH });
    assert_eq!(world.because(), Some(EndedBecause::UserStopped));
    world.warning = Warning::Final { by: at(100), at: at(115) };
    assert_eq!(world.because(), Some(EndedBecause::Interrupted));
    world.workload = exit(0);
    assert_eq!(world.because(), Some(EndedBecause::Succeeded));
}

/// Whatever ends the work between a notice and its last save, all of it is over before the machine
/// is taken.
#[test]
fn what_ends_after_a_notice_is_over_before_the_machine_is_taken() {
    let by = |world: World| match world.step() {
        SuperviseStep::End(end) => end.by,
        step => panic!("{step:?}"),
    };
    let wish = || Some(EndWish { cancel: false, by: "me".into(), at: Timestamp::UNIX_EPOCH });
    for workload in [exit(0), exit(3)] {
        assert_eq!(by(World { workload, over_by: Some(at(90)), ..World::default() }), Some(at(90)));
        assert_eq!(by(World { workload, ..World::default() }), None);
    }
    assert_eq!(by(World { wish: wish(), over_by: Some(at(90)), ..World::default() }), Some(at(90)));
    for limit in [60, 120] {
        let limit = Reached {
            because: EndedBecause::Budget,
            reason: Reason::new(at(0), "budget", "stop", "spent"),
            by: at(limit),
        };
        assert_eq!(
            by(World { limit: Some(limit.clone()), over_by: Some(at(90)), ..World::default() }),
            Some(limit.by.min(at(90)))
        );
    }
}

/// While the agent waits for a retry, there is no work to judge. Its machine still bills.
#[test]
fn attempt_between_two_starts_ends_only_from_outside() {
    let mut world = World {
        workload: WorkloadFact::Between,
        stall: verdict(Activity::Stalled, WatchAction::Stop),
        idle: verdict(Activity::Idle, WatchAction::Stop),
        done_for: Some(Span::from_secs(3600)),
        warning: Warning::Save,
        ..World::default()
    };
    assert_eq!(world.step(), SuperviseStep::Continue);
    world.moves = moves();
    assert_eq!(world.because(), None, "the workload said that it is done");
    world.done_for = None;
    assert_eq!(world.because(), Some(EndedBecause::Moved));
    world.limit = Some(Reached {
        because: EndedBecause::Budget,
        reason: Reason::new(at(0), "budget", "stop", "spent"),
        by: at(60),
    });
    assert_eq!(world.because(), Some(EndedBecause::Budget));
    world.wish = Some(EndWish { cancel: false, by: "me".into(), at: Timestamp::UNIX_EPOCH });
    assert_eq!(world.because(), Some(EndedBecause::UserStopped));
    world.warning = Warning::Final { by: at(100), at: at(115) };
    assert_eq!(world.because(), Some(EndedBecause::Interrupted));
}

#[test]
fn being_told_of_a_stall_does_not_keep_an_idle_machine() {
    let mut world = World { idle: verdict(Activity::Idle, WatchAction::Stop), ..World::default() };
    for action in [WatchAction::Notify, WatchAction::Stacks] {
        world.stall = verdict(Activity::Stalled, action);
        assert_eq!(world.because(), Some(EndedBecause::Idle));
    }
    world.stall = verdict(Activity::Stalled, WatchAction::Restart);
    assert_eq!(world.step(), SuperviseStep::Restart { after: Span::ZERO });
    world.stall = verdict(Activity::Stalled, WatchAction::Stacks);
    world.on.idle = Reaction::Notify;
    assert_eq!(world.step(), SuperviseStep::Stacks);
}

#[test]
fn limits_end_is_over_when_the_limit_falls() {
    let reason = Reason::new(at(0), "budget", "stop", "spent");
    let world = World {
        limit: Some(Reached { because: EndedBecause::Budget, reason, by: at(60) }),
        ..World::default()
    };
    assert!(matches!(world.step(), SuperviseStep::End(end) if end.by == Some(at(60))));
}

/// A setup that compiles for half an hour prints nothing; restarting it as the command would run
/// the command without it.
#[test]
fn setup_is_not_watched() {
    for action in [WatchAction::Restart, WatchAction::Stop] {
        let world = World {
            stage: WorkloadStage::Setup,
            stall: verdict(Activity::Stalled, action),
            idle: verdict(Activity::Idle, action),
            ..World::default()
        };
        assert_eq!(world.step(), SuperviseStep::Continue);
    }
}

#[test]
fn unknown_never_stops() {
    for action in [WatchAction::None, WatchAction::Notify, WatchAction::Stop] {
        let world = World {
            idle: verdict(Activity::Unknown, action),
            stall: verdict(Activity::Unknown, action),
            ..World::default()
        };
        assert_eq!(world.step(), SuperviseStep::Continue);
    }
}

#[test]
fn notify_in_the_job_file_means_that_the_work_goes_on() {
    let mut world = World { idle: verdict(Activity::Idle, WatchAction::Stop), ..World::default() };
    world.on.idle = Reaction::Notify;
    assert_eq!(world.step(), SuperviseStep::Notify);
}

#[test]
fn failures_are_retried_as_often_as_the_spec_says() {
    let mut world = World { workload: exit(7), ..World::default() };
    world.retries = RetriesSpec { max: 2, exit_codes: vec![7], delay: Span::from_secs(5) };
    assert_eq!(world.step(), SuperviseStep::Restart { after: Span::from_secs(5) });
    world.retries_used = 2;
    assert_eq!(world.because(), Some(EndedBecause::Failed));
    world.retries_used = 0;
    world.workload = exit(8);
    assert_eq!(world.because(), Some(EndedBecause::Failed));
}

#[test]
fn setup_that_worked_ends_nothing_and_one_that_failed_does() {
    let setup = |code| WorkloadFact::Ended {
        exit: ExitStatus { code: Some(code), ..ExitStatus::default() },
        stage: WorkloadStage::Setup,
    };
    assert_eq!(World { workload: setup(0), ..World::default() }.step(), SuperviseStep::Continue);
    assert_eq!(
        World { workload: setup(1), ..World::default() }.because(),
        Some(EndedBecause::SetupFailed)
    );
}

#[test]
fn process_that_is_done_but_stuck_is_ended_as_a_success() {
    let mut world = World { done_for: Some(Span::from_secs(299)), ..World::default() };
    assert_eq!(world.step(), SuperviseStep::Continue);
    world.done_for = Some(Span::from_secs(300));
    assert_eq!(world.because(), Some(EndedBecause::Succeeded));
}

fn fault(silent: u64) -> HardwareFault {
    HardwareFault {
        text: "GPU 0: GPU is lost".into(),
        silent: Span::from_secs(silent),
        needed: Span::from_secs(180),
    }
}

#[test]
fn lost_gpu_is_blamed_for_a_failed_workload_and_ends_retries() {
    let retries = RetriesSpec { max: 3, ..RetriesSpec::default() };
    let on = OnSpec { failure: Reaction::Keep(Span::from_secs(3600)), ..OnSpec::default() };
    let mut world = World { workload: exit(1), retries, on, ..World::default() };
    assert!(matches!(world.step(), SuperviseStep::Restart { .. }));
    world.hardware = Some(fault(0));
    let SuperviseStep::End(end) = world.step() else { panic!("it ends: {:?}", world.step()) };
    assert_eq!(
        (end.because, end.save),
        (EndedBecause::HardwareLost, false),
        "there is nobody left to ask for a checkpoint"
    );
    assert_eq!(
        end.then,
        lamplighter::policy::Afterwards::Terminate,
        "nobody keeps a broken machine"
    );
    assert!(end.because.is_interruption(), "so the next attempt goes on elsewhere");
    world.workload = exit(0);
    assert_eq!(world.because(), Some(EndedBecause::Succeeded), "finished work is finished");
    world.workload = WorkloadFact::Ended {
        exit: ExitStatus { code: None, signal: Some(9), oom: true },
        stage: WorkloadStage::Main,
    };
    assert!(
        matches!(world.step(), SuperviseStep::Restart { .. }),
        "want of memory explains itself"
    );
}

#[test]
fn out_of_memory_is_retried_as_any_failure_and_then_the_reason() {
    let oom = WorkloadFact::Ended {
        exit: ExitStatus { code: None, signal: Some(9), oom: true },
        stage: WorkloadStage::Main,
    };
    let retries = RetriesSpec { max: 2, ..RetriesSpec::default() };
    let mut world = World { workload: oom, retries, ..World::default() };
    for used in 0..2 {
        world.retries_used = used;
        assert!(matches!(world.step(), SuperviseStep::Restart { .. }), "{used}");
    }
    world.retries_used = 2;
    assert_eq!(world.because(), Some(EndedBecause::OutOfMemory));
}

#[test]
fn lost_gpu_ends_only_work_that_hangs_and_saves_that_work() {
    let mut world = World { hardware: Some(fault(179)), ..World::default() };
    assert_eq!(world.because(), None);
    world.hardware = Some(fault(180));
    let SuperviseStep::End(end) = world.step() else { panic!("it ends: {:?}", world.step()) };
    assert_eq!((end.because, end.save), (EndedBecause::HardwareLost, true));
    world.stage = WorkloadStage::Setup;
    assert_eq!(world.because(), None, "a setup says nothing for long");
    world.stage = WorkloadStage::Main;
    world.wish = Some(EndWish { cancel: true, by: "me".into(), at: at(0) });
    assert_eq!(
        world.because(),
        Some(EndedBecause::UserCancelled),
        "a person's word stands over it"
    );
}

#[test]
fn ended_work_waits_for_active_keyboard() {
    let half = Span::from_secs(30 * 60);
    let then = |world: &World| match world.step() {
        SuperviseStep::End(end) => end.then,
        other => panic!("it ends: {other:?}"),
    };
    let typed = |secs: u64| Some(Span::from_secs(secs));
    let ended = |code: i32| World { workload: exit(code), typed: typed(899), ..World::default() };
    assert_eq!(
        (then(&ended(0)), then(&ended(1))),
        (Afterwards::Hold(half), Afterwards::Hold(half))
    );
    for nobody in [None, typed(900)] {
        assert_eq!(then(&World { typed: nobody, ..ended(0) }), Afterwards::Terminate, "{nobody:?}");
    }
    // What the job file says of the end, and of this, goes before.
    let on = |success, in_use| OnSpec { success, in_use, ..OnSpec::default() };
    let (hour, never) = (Reaction::Keep(Span::from_secs(3600)), Reaction::Terminate);
    for (on, told) in [
        (on(Reaction::Terminate, never), Afterwards::Terminate),
        (on(Reaction::Terminate, hour), Afterwards::Hold(Span::from_secs(3600))),
        (on(Reaction::Keep(Span::from_secs(60)), hour), Afterwards::Hold(Span::from_secs(60))),
        (on(Reaction::Stop, hour), Afterwards::Stop),
    ] {
        assert_eq!(then(&World { on: on.clone(), ..ended(0) }), told, "{on:?}");
    }
    // Who asks for the end means it; a limit is one; and what the cloud takes cannot be kept.
    let wish = EndWish { cancel: false, by: "me@here".into(), at: at(0) };
    assert_eq!(
        then(&World { wish: Some(wish), typed: typed(1), ..World::default() }),
        Afterwards::Terminate
    );
    let reason = Reason::new(at(0), "limits", "max_runtime", "the time is up");
    let limit = Reached { because: EndedBecause::MaxRuntime, reason, by: at(60) };
    assert_eq!(
        then(&World { limit: Some(limit), typed: typed(1), ..World::default() }),
        Afterwards::Terminate
    );
    assert_eq!(then(&World { over_by: Some(at(60)), ..ended(0) }), Afterwards::Terminate);
    assert_eq!(
        then(&World { over_by: Some(at(86_400)), ..ended(0) }),
        Afterwards::Hold(half),
        "an event of tomorrow takes nothing today"
    );
}

/// skypilot#1341: a setup that waits for a lock or an answer.
#[test]
fn setup_ends_by_its_own_limit_and_by_silence() {
    let setup = |secs| World {
        stage: WorkloadStage::Setup,
        setup_for: Some(Span::from_secs(secs)),
        ..World::default()
    };
    let silent = |secs| World { idle: verdict(Activity::Idle, WatchAction::Stop), ..setup(secs) };
    let because = |world: World| match world.step() {
        SuperviseStep::End(end) => Some((end.because, end.save)),
        _ => None,
    };
    assert_eq!(because(setup(3599)), None, "it compiles");
    assert_eq!(because(setup(3600)), Some((EndedBecause::SetupFailed, false)));
    assert_eq!(because(silent(600)), Some((EndedBecause::SetupFailed, false)));
    let told = OnSpec { idle: Reaction::Notify, ..OnSpec::default() };
    assert_eq!(because(World { on: told.clone(), ..silent(600) }), None, "idle is only told");
    assert_eq!(
        because(World { on: told, ..silent(3600) }),
        Some((EndedBecause::SetupFailed, false))
    );
    assert_eq!(
        because(World { stage: WorkloadStage::Main, ..setup(3600) }),
        None,
        "the command has its own rules"
    );
}

/// skypilot#3803: `nohup python train.py &` has succeeded at once, and its work is killed.
#[test]
fn command_that_leaves_its_work_behind_at_once_is_no_success() {
    let exit = ExitStatus { code: Some(0), ..ExitStatus::default() };
    let ended = |in_background, ran: Option<u64>| {
        let workload = WorkloadFact::Ended { exit, stage: WorkloadStage::Main };
        let world = World {
            workload,
            in_background,
            ran_for: ran.map(Span::from_secs),
            ..World::default()
        };
        match world.step() {
            SuperviseStep::End(end) => end.because,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(ended(1, Some(0)), EndedBecause::Failed);
    assert_eq!(ended(3, Some(9)), EndedBecause::Failed);
    assert_eq!(ended(0, Some(0)), EndedBecause::Succeeded, "there was little to do");
    assert_eq!(ended(1, Some(600)), EndedBecause::Succeeded, "a server of its own outlived it");
    assert_eq!(ended(1, None), EndedBecause::Succeeded, "nobody has seen it start");
    let daemon = World {
        left_behind: 1,
        ran_for: Some(Span::ZERO),
        workload: WorkloadFact::Ended { exit, stage: WorkloadStage::Main },
        ..World::default()
    };
    assert!(
        matches!(daemon.step(), SuperviseStep::End(end) if end.because == EndedBecause::Succeeded),
        "it has a session of its own"
    );
    let advice = "; a process that it left in the background is ended with it: a command that ends with `wait` waits for such work";
    assert!(daemon.reason().ends_with(advice), "{}", daemon.reason());
}

/// The process that held it was killed: it may have been well, and goes on from its newest
/// checkpoint.
#[test]
fn unseen_end_is_lost_and_not_failed() {
    let unseen = WorkloadFact::Ended { exit: ExitStatus::default(), stage: WorkloadStage::Main };
    let world = World { workload: unseen, ..World::default() };
    assert!(
        matches!(world.step(), SuperviseStep::End(end) if end.because == EndedBecause::Lost),
        "{:?}",
        world.step()
    );
    assert!(world.reason().contains("its end was not seen"), "{}", world.reason());
    let killed = WorkloadFact::Ended {
        exit: ExitStatus { signal: Some(9), ..ExitStatus::default() },
        stage: WorkloadStage::Main,
    };
    assert_eq!(
        World { workload: killed, ..World::default() }.because(),
        Some(EndedBecause::Failed)
    );
    let retries = RetriesSpec { max: 1, ..RetriesSpec::default() };
    assert!(
        matches!(
            World { workload: unseen, retries, ..World::default() }.step(),
            SuperviseStep::Restart { .. }
        ),
        "a retry is cheaper"
    );
}

/// needrestart after an installation on Ubuntu 24.04, `systemctl stop lamp-...`: a script that
/// saves at SIGTERM ends with 0.
#[test]
fn end_by_the_service_manager_is_neither_success_nor_failure() {
    for exit in [
        ExitStatus { code: Some(0), ..ExitStatus::default() },
        ExitStatus { code: Some(143), ..ExitStatus::default() },
        ExitStatus::default(),
    ] {
        for stage in [WorkloadStage::Main, WorkloadStage::Setup] {
            let world = World {
                workload: WorkloadFact::Ended { exit, stage },
                stage,
                told: true,
                ..World::default()
            };
            assert_eq!(
                world.step(),
                SuperviseStep::Restart { after: Span::ZERO },
                "{exit:?} {stage:?}"
            );
        }
    }
}

/// It uses up no retry, and comes before them; what has ended the attempt anyway comes before it.
#[test]
fn start_that_dies_of_its_checkpoint_goes_back_before_a_retry() {
    let start = StartUp {
        from: "0007".parse().unwrap(),
        exact: true,
        lived: Span::from_secs(3),
        is_going: false,
        times: 0,
        is_last: false,
    };
    let retries = RetriesSpec { max: 1, ..RetriesSpec::default() };
    let world = |start: &StartUp, workload| World {
        start_up: Some(start.clone()),
        retries: retries.clone(),
        workload,
        ..World::default()
    };
    assert_eq!(world(&start, exit(1)).step(), SuperviseStep::GoBack { before: start.from });
    let beside = StartUp { exact: false, ..start.clone() };
    assert_eq!(
        world(&beside, exit(1)).step(),
        SuperviseStep::GoBack { before: start.from.next() },
        "first to that one itself"
    );
    let twice = StartUp { times: 2, ..start.clone() };
    assert!(matches!(world(&twice, exit(1)).step(), SuperviseStep::Restart { .. }));
    let hardware = World { hardware: Some(fault(0)), ..world(&start, exit(1)) };
    assert_eq!(hardware.because(), Some(EndedBecause::HardwareLost));
    let stopped = World {
        wish: Some(EndWish { cancel: false, by: "me".into(), at: at(0) }),
        ..world(&start, exit(1))
    };
    assert_eq!(stopped.because(), Some(EndedBecause::UserStopped));
    assert_eq!(world(&start, WorkloadFact::Between).because(), None);
    assert_eq!(world(&start, exit(0)).because(), Some(EndedBecause::Succeeded));
}

#[test]
fn attempt_that_failed_from_older_checkpoints_too_says_so() {
    let start = StartUp {
        from: "0005".parse().unwrap(),
        exact: true,
        lived: Span::from_secs(3),
        is_going: false,
        times: 2,
        is_last: false,
    };
    let world = World { start_up: Some(start), workload: exit(1), ..World::default() };
    assert_eq!(
        world.reason(),
        "the workload ended with exit code 1; so it did from 2 newer checkpoints"
    );
}
