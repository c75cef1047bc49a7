//! A gang on booted machines: EC2 takes the machine of one rank, and the others go on with its
//! successor. The network of each machine reaches the API alone, so the ranks do not talk.

use std::time::Duration;

use super::desk::{Desk, JOB};
use super::journey::bill_agrees;
use super::machines::{Ec2, patiently};
use lamp_test_support::ec2::{Seen, State};

/// A desk whose account has the security group for gangs, and a job of two machines.
fn desk() -> Option<Desk<Ec2>> {
    let desk = Ec2::start().map(Desk::new)?;
    let names = [("GroupName", "lamplighter-gang"), ("GroupDescription", "gangs")];
    let made = desk.ec2.ask("CreateSecurityGroup", &names).expect("a group");
    let group = made.at("groupId");
    let rule = [
        ("GroupId", group),
        ("IpPermissions.1.IpProtocol", "-1"),
        ("IpPermissions.1.Groups.1.GroupId", group),
    ];
    desk.ec2.ask("AuthorizeSecurityGroupIngress", &rule).expect("opened to itself");
    let gang = "\n[gang]\nengine = 'env'\n";
    desk.bench.write("job.toml", &format!("nodes = 2\n{JOB}{gang}"));
    Some(desk)
}

/// The machines of a job that have not been seen yet.
fn machine_of(desk: &Desk<Ec2>, job: &str, known: &[&str]) -> Seen {
    patiently(&format!("a machine of {job}"), || {
        let mut machines = desk.ec2.instances().into_iter();
        machines.find(|seen| {
            seen.tags.get("lamplighter:job").is_some_and(|of| of == job)
                && !known.contains(&seen.id.as_str())
        })
    })
}

fn begun_from(desk: &Desk<Ec2>, machine: &Seen, times: usize) -> u32 {
    let begun = patiently("the trainer begins", || {
        let begun = desk.begun(&machine.id);
        (begun.len() >= times).then(|| begun.last().cloned()).flatten()
    });
    begun.rsplit(' ').next().and_then(|step| step.parse().ok()).expect("a step")
}

#[test]
fn gang_outlives_a_ranks_interruption_and_receipts_are_the_bill() {
    let Some(desk) = desk() else { return };
    let job = desk.submit();
    let other = job.replacen("toy-", "toy-r1-", 1);
    let (first, second) = (machine_of(&desk, &job, &[]), machine_of(&desk, &other, &[]));
    for machine in [&first, &second] {
        assert_eq!(begun_from(&desk, machine, 1), 0);
    }
    patiently("both have done some steps", || {
        [&first, &second].iter().all(|machine| desk.step(&machine.id) > 5).then_some(())
    });
    desk.ec2.interrupt(&second.id, Duration::from_secs(15));
    desk.ec2.until(&second.id, State::Terminated);
    let third = machine_of(&desk, &other, &[&second.id]);
    assert!(begun_from(&desk, &first, 2) > 0, "the notice of rank 1 made rank 0 save");
    assert!(begun_from(&desk, &third, 1) > 0, "and rank 1 from the same");
    assert_eq!(desk.ec2.instance(&first.id).state, State::Running, "rank 0 keeps its machine");
    for machine in [&first, &third] {
        desk.go(&machine.id);
    }
    let receipts = [desk.receipt(&job), desk.receipt(&other)];
    for receipt in &receipts {
        assert_eq!(receipt["outcome"], "succeeded", "{receipt:#}");
    }
    bill_agrees(&desk, &receipts[0], &[&first]);
    bill_agrees(&desk, &receipts[1], &[&second, &third]);
    assert_eq!(desk.ec2.instances().len(), 3, "no machine beside them");
    for machine in [&first, &third] {
        desk.ec2.until(&machine.id, State::Terminated);
    }
}
