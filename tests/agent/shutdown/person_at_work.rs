//! Somebody is at work on a machine whose work is over.

use lamplighter::job::{AttemptPhase, EndedBecause, ExitStatus, Wish};
use lamplighter::market::Span;
use lamplighter::ports::Clock;

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::virtual_clock::simulate;

const SUCCESS: ExitStatus = ExitStatus { code: Some(0), signal: None, oom: false };

/// The machine of a job whose work ends after a minute, with somebody there.
fn used(rig: &Rig) -> Played {
    let machine = Played::new(rig);
    *machine.typed.lock().expect("nobody panics with it") = Some(secs(120));
    let (ending, clock) = (machine.clone(), rig.clock.clone());
    tokio::spawn(async move {
        clock.sleep(secs(60)).await;
        ending.end(SUCCESS);
    });
    machine
}

/// What its terminals were told, and how many minutes before it went off.
fn told(rig: &Rig, machine: &Played) -> (Vec<u64>, Vec<String>) {
    let (off, told) = (rig.clock.mono(), machine.told.lock().expect("nobody panics with it"));
    told.iter()
        .map(|(when, text)| (off.saturating_sub(*when).as_secs().div_ceil(60), text.clone()))
        .unzip()
}

#[test]
fn typing_user_has_half_an_hour_and_three_warnings() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = used(&rig);
        let look = async {
            rig.clock.sleep(secs(600)).await;
            let status = rig.status().await;
            assert_eq!(status.phase, AttemptPhase::Held);
        };
        let (finish, ()) = tokio::join!(machine.agent(&rig, "{}").run(), look);
        assert_eq!((finish.because, machine.is_off()), (EndedBecause::Succeeded, true));
        let (before, told) = told(&rig, &machine);
        assert_eq!(before, [30, 10, 1], "{told:?}");
        assert_eq!(
            told[0],
            "digits-222222 is over, and this machine goes in 30m, with its disk. More time: lamp extend digits-222222 1h"
        );
        let outcome = rig.outcome().await;
        let why = outcome.reasons.last().map(|reason| reason.text.clone()).unwrap_or_default();
        assert_eq!(
            why,
            "the workload ended with exit code 0; somebody typed on the machine 2m ago, so it is kept for 30m"
        );
    });
}

#[test]
fn who_wants_more_gets_it_and_who_wants_none_ends_it() {
    for (wish, minutes) in [
        (Wish::Extend { time: Some(Span::from_secs(3600)), budget: None, fallback_cost: None }, 91),
        (Wish::Stop, 10),
    ] {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let machine = used(&rig);
            let begun = rig.clock.mono();
            let asks = async {
                rig.clock.sleep(secs(600)).await;
                rig.dir()
                    .add_request(wish, "me@here", rig.clock.now())
                    .await
                    .expect("the store takes it");
            };
            let (finish, ()) = tokio::join!(machine.agent(&rig, "{}").run(), asks);
            let took = rig.clock.mono().saturating_sub(begun).as_secs();
            assert_eq!(finish.because, EndedBecause::Succeeded);
            assert!(took.abs_diff(minutes * 60) <= 30, "{took} s, with {wish:?}");
        });
    }
}

#[test]
fn limit_within_the_half_hour_is_what_is_told_and_what_holds() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = used(&rig);
        let look = async {
            rig.clock.sleep(secs(120)).await;
            let until = rig.status().await.held_until.expect("it says until when");
            until.duration_since(rig.clock.now()).as_secs()
        };
        let (_, left) =
            tokio::join!(machine.agent(&rig, r#"{"limits": {"max_runtime": "20m"}}"#).run(), look);
        assert!((15 * 60..18 * 60 + 5).contains(&left), "{left} s");
        let (before, told) = told(&rig, &machine);
        assert!(matches!(before.as_slice(), [16..=19, 10, 1]), "{told:?}");
    });
}

#[test]
fn person_at_work_is_waited_for_over_a_crash_but_not_an_outage() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = used(&rig);
        tokio::select! {
            finish = machine.agent(&rig, "{}").run() => panic!("not yet: {finish:?}"),
            () = rig.clock.sleep(secs(600)) => {}
        }
        // Nobody has typed since, and nobody need.
        *machine.typed.lock().expect("nobody panics with it") = None;
        let begun = rig.clock.mono();
        machine.agent(&rig, "{}").run().await;
        let took = rig.clock.mono().saturating_sub(begun).as_secs();
        assert!(took.abs_diff(21 * 60) <= 30, "{took} s");
    });
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = used(&rig);
        rig.store.fault("", Fault::Down, None);
        let begun = rig.clock.mono();
        machine.agent(&rig, "{}").run().await;
        let took = rig.clock.mono().saturating_sub(begun).as_secs();
        assert!((30 * 60..33 * 60).contains(&took), "{took} s, as a machine on which nobody is");
    });
}

#[test]
fn person_is_not_waited_for_at_a_workstation_or_if_job_says_so() {
    for (own_machine, spec) in [(false, "{}"), (true, r#"{"on": {"in_use": "terminate"}}"#)] {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let mut machine = used(&rig);
            machine.own_machine = own_machine;
            machine.agent(&rig, spec).run().await;
            assert!(rig.clock.mono() < secs(120), "{spec}: {:?}", rig.clock.mono());
            assert_eq!(*machine.told.lock().expect("nobody panics with it"), []);
        });
    }
}
