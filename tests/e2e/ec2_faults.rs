//! `lamp` against an EC2 that errs, forgets and is late, without machines behind it: never a second
//! machine, never a false end.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::bench::{Finish as _, Running};
use crate::ec2::desk::Desk;
use crate::ec2::machines::patiently;
use crate::jobs::{assert_code, text};
use lamp_test_support::ec2::{Call, FalseEc2, Fault, Options, State};

fn desk() -> Option<Desk<Box<FalseEc2>>> {
    FalseEc2::start(Options::default()).map(Box::new).map(Desk::new)
}

/// Waits until EC2 was asked this many more times.
fn asked_again(ec2: &FalseEc2, action: &str, times: usize) {
    let before = ec2.calls_of(action).len();
    patiently("it is asked again", || (ec2.calls_of(action).len() >= before + times).then_some(()));
}

fn succeeded(calls: Vec<Call>) -> Vec<Call> {
    calls.into_iter().filter(|call| call.status == 200).collect()
}

#[test]
fn ec2_that_errs_gets_one_machine_and_ends_it() {
    let Some(desk) = desk() else { return };
    let ec2 = &*desk.ec2;
    // Done, and nobody was told; then the machine is not found by its id, and does not show.
    ec2.fault(Fault::code("RunInstances", "InternalError").after());
    ec2.unseen(Duration::from_secs(8));
    let job = desk.submit();
    let machine = desk.launched(&[]);
    asked_again(ec2, "DescribeInstances", 2);
    // Nothing is known for a while.
    ec2.fault(Fault::code("DescribeInstances", "Unavailable").always());
    asked_again(ec2, "DescribeInstances", 3);
    ec2.mend();
    assert_eq!(ec2.instances().len(), 1, "never a second one");

    // Its end is refused, and then the cloud is slow to say that it came.
    ec2.fault(Fault::code("TerminateInstances", "UnauthorizedOperation"));
    ec2.fault(Fault::code("TerminateInstances", "RequestLimitExceeded"));
    ec2.stale(Duration::from_secs(4));
    desk.must(&["cancel", &job]);
    let receipt = desk.receipt(&job);
    assert_eq!(receipt["outcome"], "cancelled", "{receipt:#}");
    let ended = ec2.instance(&machine.id);
    assert_eq!(
        (ended.state, ended.reason.as_str()),
        (State::Terminated, "Client.UserInitiatedShutdown")
    );
    assert_eq!(ec2.instances().len(), 1);
    let tokens: BTreeSet<Option<String>> = ec2
        .calls_of("RunInstances")
        .iter()
        .map(|call| call.params.get("ClientToken").cloned())
        .collect();
    assert!(tokens.len() == 1 && !tokens.contains(&None), "{tokens:?}");
    for action in ["StopInstances", "RebootInstances"] {
        assert_eq!(ec2.calls_of(action).len(), 0, "{action}");
    }
}

#[test]
fn two_daemons_on_one_bucket_launch_one_machine() {
    let Some(desk) = desk() else { return };
    let ec2 = &*desk.ec2;
    let job = desk.submit();
    let first = desk.launched(&[]);
    patiently("it runs", || (ec2.instance(&first.id).state == State::Running).then_some(()));
    desk.dies();
    let daemon = |state: &str| {
        let mut command = desk.lamp(&["daemon"]);
        command.env("XDG_STATE_HOME", desk.bench.file(state));
        Running::start(&mut command)
    };
    let (_one, _other) = (daemon("one"), daemon("other"));
    asked_again(ec2, "DescribeInstances", 2);
    // Both see it at about the same time.
    ec2.interrupt(&first.id, Duration::ZERO);
    let second = desk.launched(&[&first.id]);
    asked_again(ec2, "DescribeInstances", 6);
    assert_eq!(ec2.instances().len(), 2, "{:?}", ec2.instances());
    let calls = succeeded(ec2.calls_of("RunInstances"));
    let tokens: BTreeSet<&str> = calls
        .iter()
        .filter_map(|call| call.params.get("ClientToken").map(String::as_str))
        .collect();
    assert_eq!(tokens.len(), 2, "one for each attempt");

    desk.must(&["cancel", &job]);
    desk.receipt(&job);
    assert_eq!(ec2.instance(&second.id).state, State::Terminated);
}

#[test]
fn detached_run_ends_when_its_launch_is_refused_for_good() {
    let Some(desk) = desk() else { return };
    desk.ec2.fault(Fault::code("RunInstances", "UnauthorizedOperation").always());
    let out = desk.lamp(&["run", "--detach", "--unproven", "job.toml"]).finish();
    assert_code(&out, 104);
    let said = text(&out.stderr);
    for word in ["UnauthorizedOperation", "`lamp doctor`", "`lamp iam controller`"] {
        assert!(said.contains(word), "{word:?} in\n{said}");
    }
    assert!(!said.contains("detached"), "{said}");
    assert!(desk.ec2.instances().is_empty());
}
