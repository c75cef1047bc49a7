//! `lamp doctor --prove` on a machine that really boots: the deadline unit of its user data is all
//! that works there, and ends it.

use std::time::Duration;

use serde_json::Value;

use super::desk::Desk;
use super::machines::Ec2;
use crate::bench::Finish as _;
use crate::jobs::text;
use lamp_test_support::ec2::State;

#[test]
fn deadline_unit_is_proven_on_a_machine_without_an_agent() {
    let Some(desk) = Ec2::start().map(Desk::new) else { return };
    // The lease is over before the unit looks for the first time.
    let out = desk
        .lamp(&["doctor", "--prove", "--yes", "--lease", "4s", "--within", "10m", "-o", "json"])
        .finish();
    assert_eq!(out.status.code(), Some(0), "{}\n{}", text(&out.stdout), text(&out.stderr));
    let proof: Value = serde_json::from_str(&text(&out.stdout)).expect("JSON");
    let trial = &proof["trials"][0];
    assert_eq!(
        (&proof["passed"], &trial["switch"], &trial["ended_by"]),
        (&true.into(), &"deadline-unit".into(), &"itself".into()),
        "{proof:#}"
    );
    let id = trial["instance"].as_str().expect("an id");
    let seen = desk.ec2.instance(id);
    assert_eq!(
        (seen.state, seen.reason.as_str()),
        (State::Terminated, "Client.InstanceInitiatedShutdown")
    );
    let said = desk.ec2.said(id);
    assert!(
        said.contains("the switch is armed, and nothing else works here")
            && !said.contains("agent"),
        "{said}"
    );
    assert!(
        !desk.ec2.file(id, "usr-local/bin/lamp-agent").exists()
            && !desk.ec2.file(id, "etc/systemd/system/lamp-agent.service").exists()
    );
    // EC2 does not say when a machine that powered itself off ended: it was seen to have, and that
    // may only be later.
    let measured: jiff::SignedDuration =
        trial["lived"].as_str().expect("a span").parse().expect("a span");
    let ledger = desk.ec2.ledger(id).running();
    let measured = Duration::try_from(measured).expect("it is positive");
    assert!(
        measured + Duration::from_secs(1) >= ledger,
        "{measured:?} measured, {ledger:?} in the ledger"
    );
    eprintln!(
        "measured: {} after a lease of 4s, of a machine that really boots",
        trial["after_lease"]
    );
}
