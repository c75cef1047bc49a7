//! `lamp doctor --prove` beside a sweeper that is installed and does not come: nobody calls it
//! behind the false AWS.

use serde_json::Value;

use crate::place::{end, wait_until};
use crate::sweep::prove::{Account, NEVER, document, until_older, user_data};
use lamp_test_support::ec2::{Fault, Seen};

/// `lamp init aws --sweeper`, with a file that looks like a program for Lambda's machines.
fn with_sweeper(account: &Account) {
    let mut program = vec![0; 64];
    program[..6].copy_from_slice(b"\x7fELF\x02\x01");
    program[18] = 62;
    account.place.0.write("lamp-small", program);
    let mut command = account.command(&["init", "aws", "--sweeper", "--yes"]);
    let made = account
        .place
        .0
        .end(command.env("LAMP_SWEEPER_BINARY", account.place.0.path().join("lamp-small")));
    assert_eq!(made.code, 0, "{made:?}");
}

/// The machine with the unit alone, and the one that is left to a sweep.
fn both(account: &Account) -> (Seen, Seen) {
    let (mut left, mut armed): (Vec<Seen>, Vec<Seen>) = account
        .machines(2)
        .into_iter()
        .partition(|seen| !user_data(seen).contains("boot_secs='2'"));
    (armed.remove(0), left.remove(0))
}

fn trials(proof: &Value) -> Vec<(&str, &str, bool)> {
    let all = proof["trials"].as_array().expect("trials").iter();
    all.map(|trial| {
        let text = |name: &str| trial[name].as_str().expect("a word");
        (text("switch"), text("ended_by"), trial["proven"].as_bool().expect("it is said"))
    })
    .collect()
}

fn refused(account: &Account) {
    let refused = account.lamp(&["run", "--detach", "job.toml"]);
    assert_eq!((refused.0, refused.2.contains("and it failed")), (111, true), "{refused:?}");
}

#[test]
fn proof_fails_when_the_installed_sweeper_does_not_come() {
    let Some(account) = Account::new() else { return };
    with_sweeper(&account);
    let (code, _, err) = account.lamp(&["doctor", "--prove"]);
    assert!(code == 102 && err.contains("this buys 2 machines"), "{code}: {err}");
    assert!(
        err.contains(
            "lamplighter-sweeper-alice is installed, and has not come yet: it is tried all the same"
        ),
        "{err}"
    );
    let proving = account.prove("2s", NEVER);
    let (armed, left) = both(&account);
    until_older(&armed, 3);
    account.ec2.powered_off(&armed.id);
    // Its own last resort: nobody else comes for it.
    account.ec2.powered_off(&left.id);
    let (code, proof, err) = document(end(proving));
    assert_eq!(
        (code, &proof["passed"], &proof["sweeper_unknown"]),
        (109, &false.into(), &Value::Null),
        "{proof:#}\n{err}"
    );
    assert_eq!(
        trials(&proof),
        [("deadline-unit", "itself", true), ("sweep", "itself", false)],
        "{proof:#}"
    );
    refused(&account);
}

/// It is there while its workstation is on: what the sweeper would do is hidden by it for as long
/// as the proof holds.
#[test]
fn manual_sweep_does_not_replace_a_sweeper_in_a_proof() {
    let Some(account) = Account::new() else { return };
    with_sweeper(&account);
    let proving = account.prove("2s", NEVER);
    let (armed, left) = both(&account);
    until_older(&armed, 3);
    account.ec2.powered_off(&armed.id);
    // On a busy computer the second machine is launched that much later, and one that boots is no
    // orphan.
    until_older(&left, 3);
    // A busy machine may still call it booting.
    wait_until("a sweep that ends it", || {
        let swept = account.lamp(&["sweep", "--yes"]);
        assert_eq!(swept.0, 0, "{swept:?}");
        swept.2.contains(&left.id).then_some(())
    });
    let (code, proof, err) = document(end(proving));
    assert_eq!((code, &proof["passed"]), (109, &false.into()), "{proof:#}\n{err}");
    assert_eq!(
        trials(&proof),
        [("deadline-unit", "itself", true), ("sweep", "sweep", false)],
        "{proof:#}"
    );
    let said = proof["trials"][1]["said"].as_str().expect("words");
    assert!(said.contains("while that workstation is off; but lamplighter-sweeper-alice is installed, and has not come yet"), "{said}");
    refused(&account);
}

#[test]
fn proof_records_that_the_sweeper_cannot_be_looked_up() {
    let Some(account) = Account::new() else { return };
    account.ec2.fault(
        Fault::code("GET /2015-03-31/functions/*", "AccessDeniedException")
            .saying("you may not look")
            .always(),
    );
    let (code, _, err) = account.lamp(&["doctor", "--prove"]);
    assert!(code == 102 && err.contains("this buys 1 machine in"), "{code}: {err}");
    assert!(
        err.contains("whether a sweeper of yours is installed cannot be read")
            && err.contains("you may not look"),
        "{err}"
    );
    let proving = account.prove("2s", NEVER);
    let machine = account.machines(1).remove(0);
    until_older(&machine, 3);
    account.ec2.powered_off(&machine.id);
    let (code, proof, err) = document(end(proving));
    assert_eq!(
        (code, trials(&proof)),
        (0, vec![("deadline-unit", "itself", true)]),
        "{proof:#}\n{err}"
    );
    let kept = account.object(&account.proof_key()).expect("it is recorded");
    assert!(
        kept["sweeper_unknown"].as_str().is_some_and(|why| why.contains("you may not look")),
        "{kept:#}"
    );
    let detached = account.lamp(&["run", "--detach", "job.toml"]);
    assert!(
        detached.0 == 0 && detached.2.contains("nor is it known whether a sweeper is installed"),
        "{detached:?}"
    );
}
