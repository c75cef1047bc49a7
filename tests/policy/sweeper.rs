//! From what stands of a sweeper in the cloud to the steps that make it and take it away, and
//! whether it is well.

use jiff::{SignedDuration, Timestamp};
use lamplighter::account::lookup::{Found, RoleFound};
use lamplighter::account::permissions::PolicyName;
use lamplighter::account::setup::{InUse, SetupStep};
use lamplighter::account::sweeper::{
    FunctionFound, FunctionSettings, ScheduleFound, Sweeper, SweeperFound, SweeperStep,
};
use lamplighter::account::sweeper_visit::{Trouble, Visit};
use lamplighter::market::Arch;
use lamplighter::policy::account::doctor::Level;
use lamplighter::policy::account::setup_plan::SetupLine;
use lamplighter::policy::account::sweeper_plan::{
    SweeperSeen, judge_sweeper, plan_sweeper, plan_sweeper_removal,
};
use lamplighter::policy::account::sweeper_proof::{Expected, SweeperFacts, expected};

use crate::setup::names;

const NAME: &str = "lamplighter-sweeper-alice";

fn wanted() -> Sweeper {
    let variables = [("LAMP_JOB_ROOT", names().job_root()), ("LAMP_OWNER", "alice".to_owned())];
    Sweeper {
        name: NAME.into(),
        program: Ok("sum".into()),
        settings: FunctionSettings {
            runtime: "provided.al2023".into(),
            role: format!("arn:aws:iam::1:role/{NAME}"),
            arch: Some(Arch::Arm64),
            timeout_secs: 240,
            memory_mib: 256,
            environment: variables.map(|(key, value)| (key.to_owned(), value)).into(),
        },
        schedule: ScheduleFound {
            enabled: true,
            each: "rate(5 minutes)".into(),
            function: format!("arn:aws:lambda:us-east-2:1:function:{NAME}"),
            role: format!("arn:aws:iam::1:role/{NAME}-schedule"),
        },
    }
}

fn nothing() -> SweeperFound {
    SweeperFound {
        role: Found::Nothing,
        schedule_role: Found::Nothing,
        log: Found::Nothing,
        function: Found::Nothing,
        schedule: Found::Nothing,
    }
}

/// As `lamp init aws --sweeper` of this owner leaves it.
fn ready(owner: &str) -> SweeperFound {
    let role = |policy: PolicyName| {
        let policy = Some(names().permissions().policy(policy));
        Found::There(RoleFound { owner: Some(owner.into()), policy, session_policy: None })
    };
    SweeperFound {
        role: role(PolicyName::Sweeper),
        schedule_role: role(PolicyName::SweeperSchedule),
        log: Found::There(()),
        function: Found::There(FunctionFound {
            owner: Some(owner.into()),
            program: "sum".into(),
            settings: wanted().settings,
        }),
        schedule: Found::There(wanted().schedule),
    }
}

fn steps(lines: &[SetupLine]) -> Vec<SweeperStep> {
    let step = |step: &SetupStep| {
        if let SetupStep::Sweeper(step) = step { *step } else { panic!("{step:?}") }
    };
    lines.iter().flat_map(|line| line.steps.iter().map(step)).collect()
}

#[test]
fn account_without_sweeper_gets_all_steps_and_a_ready_one_none() {
    use SweeperStep::{
        CreateFunction, CreateLog, CreateRole, CreateSchedule, CreateScheduleRole, WriteRolePolicy,
        WriteSchedulePolicy,
    };
    let all = plan_sweeper(&names(), &wanted(), &nothing());
    let expected = [
        CreateRole,
        WriteRolePolicy,
        CreateScheduleRole,
        WriteSchedulePolicy,
        CreateLog,
        CreateFunction,
        CreateSchedule,
    ];
    assert_eq!(steps(&all), expected, "what is needed comes before what needs it");
    let none = plan_sweeper(&names(), &wanted(), &ready("alice"));
    assert!(
        none.iter().all(|line| line.steps.is_empty() && line.remark.is_none() && !line.blocks),
        "{none:?}"
    );
}

#[test]
fn only_what_is_not_as_it_should_be_is_changed() {
    let mut found = ready("alice");
    let Found::There(function) = &mut found.function else { unreachable!() };
    function.program = "older".into();
    assert_eq!(steps(&plan_sweeper(&names(), &wanted(), &found)), [SweeperStep::SendProgram]);
    let Found::There(function) = &mut found.function else { unreachable!() };
    (function.program, function.settings.environment) = ("sum".into(), Default::default());
    assert_eq!(steps(&plan_sweeper(&names(), &wanted(), &found)), [SweeperStep::SetFunction]);
    let mut found = ready("alice");
    let Found::There(schedule) = &mut found.schedule else { unreachable!() };
    schedule.enabled = false;
    let lines = plan_sweeper(&names(), &wanted(), &found);
    assert_eq!(
        (steps(&lines), lines[4].found.as_str()),
        (vec![SweeperStep::SetSchedule], "there, switched off")
    );
}

#[test]
fn what_cannot_be_seen_or_made_stops_all_of_it() {
    let blind = SweeperFound { function: Found::Unknown("AccessDenied".into()), ..ready("alice") };
    assert!(plan_sweeper(&names(), &wanted(), &blind).iter().any(|line| line.blocks));
    let without = Sweeper { program: Err("it needs glibc 2.39".into()), ..wanted() };
    for found in [nothing(), ready("alice")] {
        let lines = plan_sweeper(&names(), &without, &found);
        let blocks: Vec<_> = lines
            .iter()
            .filter(|line| line.blocks)
            .filter_map(|line| line.remark.as_deref())
            .collect();
        assert_eq!(blocks, ["it needs glibc 2.39"]);
    }
}

#[test]
fn what_somebody_else_made_stays_as_it_is() {
    let mut theirs = ready("bob");
    let Found::There(function) = &mut theirs.function else { unreachable!() };
    function.program = "theirs".into();
    let lines = plan_sweeper(&names(), &wanted(), &theirs);
    assert_eq!(steps(&lines), []);
    assert!(
        lines[3].remark.as_ref().is_some_and(|said| said.contains("stays as it is")),
        "{lines:?}"
    );
    assert_eq!(
        steps(&plan_sweeper_removal(&names(), &theirs, &InUse::default())),
        [],
        "nor is it taken away"
    );
}

#[test]
fn sweeper_removal_takes_all_and_shows_no_line_for_absent_parts() {
    use SweeperStep::{
        DeleteFunction, DeleteLog, DeleteRecords, DeleteRole, DeleteSchedule, DeleteScheduleRole,
    };
    assert_eq!(plan_sweeper_removal(&names(), &nothing(), &InUse::default()), []);
    let used = InUse { sweeper_objects: 3, ..InUse::default() };
    let whole =
        [DeleteSchedule, DeleteFunction, DeleteLog, DeleteScheduleRole, DeleteRole, DeleteRecords];
    assert_eq!(steps(&plan_sweeper_removal(&names(), &ready("alice"), &used)), whole);
    // Broken off in the middle: the rest goes by the owner in its name.
    let half = SweeperFound { role: Found::Nothing, function: Found::Nothing, ..ready("alice") };
    assert_eq!(
        steps(&plan_sweeper_removal(&names(), &half, &InUse::default())),
        [DeleteSchedule, DeleteLog, DeleteScheduleRole]
    );
    // Whoever may not look at AWS Lambda is told so, and is kept from nothing.
    let blind = SweeperFound { function: Found::Unknown("AccessDenied".into()), ..nothing() };
    let lines = plan_sweeper_removal(&names(), &blind, &InUse::default());
    assert!(lines.len() == 1 && !lines[0].blocks && lines[0].remark.is_some(), "{lines:?}");
}

fn seen(found: SweeperFound, visit: Result<Option<(Visit, Timestamp)>, String>) -> SweeperSeen {
    SweeperSeen { name: NAME.into(), function: found.function, schedule: found.schedule, visit }
}

#[test]
fn overdue_sweeper_is_broken_and_an_absent_one_is_not() {
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    let ago = |minutes: i64| now - SignedDuration::from_mins(minutes);
    let came = |minutes: i64| {
        let visit = Visit { regions: 17, machines: 3, ..Visit::new(ago(minutes), "0", "alice") };
        Ok(Some((visit, ago(minutes))))
    };
    let level = |seen: SweeperSeen| {
        let check = judge_sweeper(&names().job_root(), "0", &seen, now);
        (check.level, check.said)
    };
    let is = |seen: SweeperSeen, wanted: Level, words: &str| {
        let (level, said) = level(seen);
        assert!(level == wanted && said.contains(words), "{level:?}: {said}");
    };
    is(seen(nothing(), Ok(None)), Level::Skipped, "there is none in the cloud");
    is(seen(ready("alice"), came(4)), Level::Ok, "came 4 min ago: 17 regions, 3 machines");
    // Made by a stack: whose it is does not matter here.
    is(seen(ready("bob"), came(4)), Level::Ok, "came 4 min ago");
    is(seen(ready("alice"), came(20)), Level::Failure, "should come every five minutes");
    is(seen(ready("alice"), Ok(None)), Level::Warning, "has not come yet");
    let older = Visit { regions: 17, ..Visit::new(ago(4), "0.0.9", "alice") };
    is(
        seen(ready("alice"), Ok(Some((older, ago(4))))),
        Level::Warning,
        "came 4 min ago, as Lamplighter 0.0.9, and this is 0",
    );
    is(seen(ready("alice"), Err("AccessDenied".into())), Level::Warning, "cannot look");
    is(
        seen(SweeperFound { schedule: Found::Nothing, ..ready("alice") }, came(4)),
        Level::Failure,
        "no schedule",
    );
    let mut off = ready("alice");
    let Found::There(schedule) = &mut off.schedule else { unreachable!() };
    schedule.enabled = false;
    is(seen(off, came(4)), Level::Failure, "switched off");
    let mut elsewhere = ready("alice");
    let Found::There(function) = &mut elsewhere.function else { unreachable!() };
    function.settings.environment.insert("LAMP_JOB_ROOT".into(), "s3://another".into());
    is(seen(elsewhere, came(4)), Level::Warning, "s3://another");
    let mut refused = Visit { regions: 17, ..Visit::new(now, "0", "alice") };
    refused.trouble.push(Trouble {
        what: "i-1 in us-east-2".into(),
        why: "may still run and bill: you may not".into(),
    });
    is(
        seen(ready("alice"), Ok(Some((refused, now)))),
        Level::Failure,
        "i-1 in us-east-2: may still run and bill",
    );
}

/// A proof that passes beside a sweeper that has stopped would say so for a month.
#[test]
fn sweeper_that_is_installed_or_was_here_is_always_expected() {
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    let ago = |minutes: i64| Ok(Some(now - SignedDuration::from_mins(minutes)));
    let of = |found: SweeperFound, came: Result<Option<Timestamp>, String>| {
        let (function, schedule) = (found.function, found.schedule);
        expected(
            &SweeperFacts {
                name: NAME.into(),
                job_root: names().job_root(),
                function,
                schedule,
                came,
            },
            now,
        )
    };
    let blind =
        || SweeperFound { function: Found::Unknown("you may not look".into()), ..nothing() };
    let elsewhere = || {
        let mut found = ready("alice");
        let Found::There(function) = &mut found.function else { unreachable!() };
        function.settings.environment.insert("LAMP_JOB_ROOT".into(), "s3://another".into());
        found
    };
    for (found, came) in [(ready("alice"), ago(4)), (nothing(), ago(15)), (blind(), ago(4))] {
        assert_eq!(of(found, came), Expected::Comes);
    }
    let half = |function: bool| {
        if function {
            SweeperFound { schedule: Found::Nothing, ..ready("alice") }
        } else {
            SweeperFound { function: Found::Nothing, ..ready("alice") }
        }
    };
    for (found, came, words) in [
        (ready("alice"), ago(16), "has not come since 2026-11-21T11:44:00Z"),
        (nothing(), ago(60 * 24 * 365), "has not come since 2025-"),
        (blind(), ago(60), "has not come since"),
        (elsewhere(), ago(60), "has not come since"),
        (ready("alice"), Ok(None), "is installed, and has not come yet"),
        (half(true), Ok(None), "is installed, and has not come yet"),
        (half(false), Ok(None), "is installed, and has not come yet"),
        (ready("alice"), Err("nobody answers".into()), "cannot be read: nobody answers"),
    ] {
        let Expected::Missing(said) = of(found, came) else { panic!("{words}") };
        assert!(said.starts_with(NAME) && said.contains(words), "{said}");
    }
    assert_eq!(of(nothing(), Ok(None)), Expected::Nobody);
    let Expected::Elsewhere(said) = of(elsewhere(), Ok(None)) else {
        panic!("it looks after another")
    };
    assert!(said.contains("looks after s3://another"), "{said}");
    // What could not be read is not nobody.
    assert_eq!(of(blind(), Ok(None)), Expected::Unknown("you may not look".into()));
    assert_eq!(
        of(SweeperFound { schedule: Found::Unknown("silent".into()), ..nothing() }, Ok(None)),
        Expected::Unknown("silent".into())
    );
    assert_eq!(
        of(nothing(), Err("nobody answers".into())),
        Expected::Unknown("nobody answers".into())
    );
}
