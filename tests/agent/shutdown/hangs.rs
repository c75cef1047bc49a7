//! What never answers on the way to the power switch: the agent says its word to the watchdog all
//! the while, and the machine goes out.

use std::sync::atomic::Ordering;

use lamplighter::job::{EndedBecause, ExitStatus, Wish};
use lamplighter::market::Span;
use lamplighter::ports::{Clock as _, Tree};

use crate::world::Played;
use crate::{Rig, secs};
use lamp_test_support::faulty_store::Fault;
use lamp_test_support::inline_files::Look;
use lamp_test_support::virtual_clock::simulate;

const SUCCESS: ExitStatus = ExitStatus { code: Some(0), signal: None, oom: false };
const CHECKPOINTS: &str = r#"{"checkpoint": {"path": "ckpt", "interval": "10m", "grace": "100s", "signal": "SIGUSR1"}, "outputs": ["*.pt"]}"#;

/// A network disk that is gone for good: one grace and a minute are spent on it, and what else
/// there is is kept.
#[test]
fn hung_checkpoint_folder_loses_its_checkpoint_but_end_goes_on() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let ends = async {
            clock.sleep(secs(60)).await;
            std::fs::write(rig.path("work").join("model.pt"), "weights").expect("writable");
            *rig.files.hangs.lock().expect("nobody panics with it") =
                Some(rig.path("work").join("ckpt"));
            clock.sleep(secs(60)).await;
            rig.dir()
                .add_request(Wish::Stop, "somebody", rig.clock.now())
                .await
                .expect("the store takes it");
            clock.mono()
        };
        let life = async { tokio::join!(machine.watched(machine.agent(&rig, CHECKPOINTS)), ends) };
        let (finish, stopped) = tokio::select! {
            lived = life => lived,
            () = clock.sleep(secs(3600)) => panic!("an hour later the machine is still lit"),
        };
        assert_eq!(finish.expect("it was never silent").because, EndedBecause::UserStopped);
        let lit = (clock.mono() - stopped).as_secs();
        assert!(machine.is_off() && lit < 240, "{lit} s");
        let losses = rig.outcome().await.losses;
        assert!(
            losses[0]
                .starts_with("no last checkpoint: the checkpoint folder did not answer within"),
            "{losses:?}"
        );
        let rest =
            "what the checkpoint folder held at the end is not kept: it did not answer within 1m";
        assert_eq!(losses[1..], [rest], "and nothing else is lost");
        assert_eq!(rig.store.keys("outputs/").len(), 1);
    });
}

/// A disk with an error, and a folder with more files than the limit: the end says so and goes on.
#[test]
fn unreadable_checkpoint_folder_is_told_and_delays_no_end() {
    let looks: [(Look, &str); 2] = [
        (
            || Err(std::io::Error::other("Input/output error")),
            "cannot look at the checkpoint folder: Input/output error",
        ),
        (
            || Ok(Tree { truncated: true, ..Tree::default() }),
            "cannot look at the checkpoint folder: it holds more than 200000 files, which is the limit",
        ),
    ];
    for (look, why) in looks {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let machine = Played::new(&rig);
            let ends = async {
                clock.sleep(secs(60)).await;
                let ckpt = rig.path("work").join("ckpt");
                std::fs::write(ckpt.join("model.pt"), "weights").expect("writable");
                clock.sleep(secs(1)).await;
                *rig.files.looks.lock().expect("nobody panics with it") = Some((ckpt, look));
                clock.sleep(secs(600)).await;
                machine.end(SUCCESS);
                clock.mono()
            };
            let life =
                async { tokio::join!(machine.watched(machine.agent(&rig, CHECKPOINTS)), ends) };
            let (finish, ended) = tokio::select! {
                lived = life => lived,
                () = clock.sleep(secs(7200)) => panic!("two hours later the machine still runs"),
            };
            assert_eq!(finish.expect("it was never silent").because, EndedBecause::Succeeded);
            let lit = (clock.mono() - ended).as_secs();
            assert!(machine.is_off() && lit < 240, "{lit} s");
            assert!(
                rig.attention().await.iter().any(|text| text.starts_with(why)),
                "{:?}",
                rig.attention().await
            );
            let losses = rig.outcome().await.losses;
            assert!(losses.iter().any(|loss| loss.contains(why)), "{losses:?}");
            assert_eq!(
                rig.store.keys("/manifest.json"),
                Vec::<String>::new(),
                "the agent keeps only what it has seen whole"
            );
        });
    }
}

/// Whatever it is that agents die of in their end: after three of them the outcome is all that is
/// still sent.
#[test]
fn machine_whose_end_killed_three_agents_skips_its_last_upload() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        rig.store.fault("outputs/", Fault::Hang, None);
        for life in 1..=3 {
            tokio::select! {
                finish = machine.watched(machine.agent(&rig, CHECKPOINTS)) => panic!("life {life}: the outputs hang: {finish:?}"),
                () = async {
                    clock.sleep(secs(60)).await;
                    std::fs::write(rig.path("work").join("model.pt"), "weights").expect("writable");
                    machine.end(SUCCESS);
                    clock.sleep(secs(60)).await;
                } => {}
            }
            assert!(!machine.is_off());
            clock.sleep(secs(2)).await;
        }
        let begun = clock.mono();
        let finish =
            machine.watched(machine.agent(&rig, CHECKPOINTS)).await.expect("it was never silent");
        assert!(machine.is_off() && clock.mono() - begun < secs(30), "{:?}", clock.mono() - begun);
        assert_eq!((finish.because, finish.exit), (EndedBecause::Succeeded, Some(SUCCESS)));
        let outcome = rig.outcome().await;
        assert_eq!((outcome.because, outcome.exit), (EndedBecause::Succeeded, Some(SUCCESS)));
        assert_eq!(
            outcome.losses,
            ["3 agents died while they ended this attempt: what was not kept by then is lost"]
        );
    });
}

/// Seed 23000332 of 24 h of the false world: whoever waits for the job ends with its exit code, and
/// after a reboot no last word of a failure is believed.
#[test]
fn end_that_a_reboot_cuts_short_keeps_the_exit_code() {
    for spec in ["{}", r#"{"on": {"failure": {"keep": "10m"}}}"#] {
        simulate(async |clock| {
            let rig = Rig::new(clock.clone());
            let machine = Played::new(&rig);
            rig.store.fault("outcome.json", Fault::Down, None);
            let failed = ExitStatus { code: Some(3), ..ExitStatus::default() };
            tokio::select! {
                finish = machine.watched(machine.agent(&rig, spec)) => panic!("nothing can be told yet: {finish:?}"),
                () = async {
                    clock.sleep(secs(60)).await;
                    machine.end(failed);
                    clock.sleep(secs(60)).await;
                } => {}
            }
            machine.rebooted.store(true, Ordering::Relaxed);
            rig.store.mend();
            let finish =
                machine.watched(machine.agent(&rig, spec)).await.expect("it was never silent");
            assert_eq!(
                (finish.because, finish.exit),
                (EndedBecause::Failed, Some(failed)),
                "{spec}"
            );
            let outcome = rig.outcome().await;
            assert_eq!(
                (outcome.because, outcome.exit),
                (EndedBecause::Failed, Some(failed)),
                "{spec}"
            );
        });
    }
}

/// A machine that is kept for a look for days outlives any number of agents.
#[test]
fn kept_machine_stays_as_long_as_promised_over_many_dead_agents() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        let spec = r#"{"on": {"success": {"keep": "1h"}}}"#;
        for _ in 0..6 {
            tokio::select! {
                finish = machine.watched(machine.agent(&rig, spec)) => panic!("not yet: {finish:?}"),
                () = async {
                    clock.sleep(secs(60)).await;
                    machine.end(SUCCESS);
                    clock.sleep(secs(60)).await;
                } => {}
            }
        }
        let finish = machine.watched(machine.agent(&rig, spec)).await.expect("it was never silent");
        assert_eq!(finish.because, EndedBecause::Succeeded);
        assert!(clock.mono() >= secs(3600), "{:?}", clock.mono());
        assert!(rig.outcome().await.losses.is_empty());
    });
}

/// A holder may take as long over its first word as the watchdog waits for the agent's.
#[test]
fn slow_start_is_waited_for_with_a_word_to_the_watchdog() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.starts_slowly.store(31, Ordering::Relaxed);
        let ends = async {
            clock.sleep(secs(120)).await;
            machine.end(SUCCESS);
        };
        let (finish, ()) = tokio::join!(machine.watched(machine.agent(&rig, "{}")), ends);
        assert_eq!(finish.expect("it was never silent").because, EndedBecause::Succeeded);
        assert_eq!(machine.starts(), 1);
    });
}

#[test]
fn start_that_never_comes_ends_the_attempt() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.starts_slowly.store(86_400, Ordering::Relaxed);
        let finish = machine.watched(machine.agent(&rig, "{}")).await.expect("it was never silent");
        assert_eq!(finish.because, EndedBecause::Failed);
        assert!(finish.reason.text.contains("no answer within 120 s"), "{:?}", finish.reason);
        assert!(machine.is_off() && clock.mono() < secs(300), "{:?}", clock.mono());
    });
}

/// What a process in the kernel's hands waits for may not be readable: it is restarted all the
/// same.
#[test]
fn stalled_workload_whose_stacks_cannot_be_read_is_restarted() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.stacks_hang.store(true, Ordering::Relaxed);
        let works = async {
            for _ in 0..1800 {
                machine.printed.fetch_add(10, Ordering::Relaxed);
                clock.sleep(secs(1)).await;
            }
            while machine.starts() < 2 {
                clock.sleep(secs(1)).await;
            }
            clock.mono()
        };
        let restarted = tokio::select! {
            finish = machine.watched(machine.agent(&rig, r#"{"watch": {"stall": {"window": "5m"}}}"#)) => panic!("{finish:?}"),
            restarted = works => restarted,
            () = clock.sleep(secs(6 * 3600)) => panic!("it was never restarted"),
        };
        let waited = Span::from_duration(restarted - secs(1800));
        assert!(waited < Span::from_secs(3600), "{waited}");
        let attention = rig.attention().await;
        assert!(
            attention.iter().any(|text| text.ends_with("it could not be read within 15 s")),
            "{attention:?}"
        );
    });
}

/// By the idle rule it works, which is the reverse of why it is stalled.
#[test]
fn status_of_a_stalled_job_at_full_load_says_why_it_is_stalled() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.show(|now| now.works = true);
        let spec =
            r#"{"on": {"stall": "notify"}, "watch": {"stall": {"window": "5m", "restarts": 0}}}"#;
        let hangs = async {
            for _ in 0..60 {
                clock.sleep(secs(10)).await;
                machine.printed.fetch_add(1, Ordering::Relaxed);
            }
            loop {
                clock.sleep(secs(10)).await;
                let status = rig.status().await;
                if status.verdict == "stalled" {
                    return status.reason.expect("it has one");
                }
            }
        };
        let reason = tokio::select! {
            finish = machine.watched(machine.agent(&rig, spec)) => panic!("{finish:?}"),
            reason = hangs => reason,
            () = clock.sleep(secs(7200)) => panic!("it was never stalled"),
        };
        assert_eq!(reason.policy, "stall");
        assert!(!reason.text.contains("working"), "{reason:?}");
    });
}

/// A hang at full power looks like work until it is known for one: then what came after the last
/// sign is no useful time.
#[test]
fn time_of_a_hang_is_not_called_useful() {
    simulate(async |clock| {
        let rig = Rig::new(clock.clone());
        let machine = Played::new(&rig);
        machine.show(|now| now.works = true);
        let spec =
            r#"{"watch": {"idle": {"window": null}, "stall": {"window": "5m", "restarts": 0}}}"#;
        let prints = async {
            for _ in 0..60 {
                clock.sleep(secs(10)).await;
                machine.printed.fetch_add(1, Ordering::Relaxed);
            }
            std::future::pending::<()>().await
        };
        let finish = tokio::select! {
            finish = machine.watched(machine.agent(&rig, spec)) => finish.expect("it was never silent"),
            () = prints => unreachable!("it never ends"),
            () = clock.sleep(secs(7200)) => panic!("an hour later it hangs on"),
        };
        assert_eq!(finish.because, EndedBecause::Stalled);
        let outcome = rig.outcome().await;
        let (useful, idle) =
            (outcome.useful.duration().as_secs(), outcome.idle.duration().as_secs());
        assert!((590..=610).contains(&useful) && idle >= 300, "useful {useful} s, idle {idle} s");
    });
}
